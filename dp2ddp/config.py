"""What one run shall do, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """``paths`` may contain ``-``. Without ``inplace`` and ``output`` nothing is written."""

    paths: tuple[str, ...]
    diff: bool = True
    inplace: bool = False
    output: Path | None = None
    check: bool = False
    exact: bool = False
    force: bool = False
    mark: bool = False
    sharded: bool = False
    color: bool = False
