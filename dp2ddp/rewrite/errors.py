"""What goes wrong when a plan is carried out."""

from __future__ import annotations

from dp2ddp.source import Span


class RewriteError(Exception):
    """An edit cannot be carried out, or what came of it is not valid Python."""

    def __init__(self, message: str, span: Span | None = None) -> None:
        super().__init__(message)
        self.span = span
