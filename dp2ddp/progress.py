"""What is being done, on a terminal, if it takes more than a second."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

_AFTER = 1.0
_EVERY = 0.2


class Progress:
    """A line that says what is being done and for how long, gone when that is done; nothing but on a terminal."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown and sys.stderr.isatty()
        self.doing = "reading"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, name=__name__, daemon=True)

    def __call__(self, doing: str) -> None:
        self.doing = doing

    def __enter__(self) -> Progress:
        if self.shown:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self.shown:
            self._thread.join()

    def _show(self) -> None:
        start = time.monotonic()
        wait = _AFTER
        while not self._ended.wait(wait):
            wait = _EVERY
            self._put(f"dp2ddp: {self.doing} … {time.monotonic() - start:.0f} s")
        if wait == _EVERY:
            self._put("")

    @staticmethod
    def _put(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
