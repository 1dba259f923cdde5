"""What one process of a run writes down: a line of JSON for each event, readable while the run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Journal:
    """Keeps the events, and writes them to a file once it is known whose they are.

    Args:
        folder: gets ``<rank>.jsonl``. A process that never learns its rank by training writes nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank: int | None = None
        self._waiting: list[str] = []
        self._file: Any = None
        self.on = True
        self._process = os.getpid()

    def add(self, event: str, **values: Any) -> None:
        """Write an event down."""
        if not self.on or os.getpid() != self._process:  # a loader's worker
            return
        line = json.dumps({"event": event, **values}, default=str) + "\n"
        if self._file is None:
            self._waiting.append(line)
        else:
            self._file.write(line)
            self._file.flush()

    def add_anywhere(self, rank: int, event: str, **values: Any) -> None:
        """Write an event down that a loader's worker of ``rank`` may see, too."""
        if os.getpid() == self._process:
            self.add(event, **values)
            return
        with open(self.folder / f"{rank}.workers", "a") as file:
            file.write(json.dumps({"event": event, **values}, default=str) + "\n")

    def open(self, rank: int) -> None:
        """Begin to write, as ``rank``."""
        if self._file is None and self.on:
            self.rank = rank
            self._file = open(self.folder / f"{rank}.jsonl", "w")
            self._file.writelines(self._waiting)
            self._file.flush()
            self._waiting.clear()


def hashable(index: Any) -> Any:
    """What names a sample, in a form that is the same for what was written down and read again."""
    if isinstance(index, dict):
        return tuple(sorted((key, hashable(it)) for key, it in index.items()))
    return tuple(map(hashable, index)) if isinstance(index, list | tuple) else index
