"""Copies of the runtime in somebody's project stand for the runtime itself: ``verify`` knows its modules by name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from dp2ddp import runtime

_MARK = b"__dp2ddp_runtime__ = "


class _Same(Loader):
    """Loads a copy as the runtime."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self.spec = runtime.__spec__
        return runtime

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Copies(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target)
        file = Path(found.origin) if found is not None and found.origin else None
        if file is None or file.name != "__init__.py" or "site-packages" in file.parts:
            return None
        try:
            is_copy = _MARK in file.read_bytes()
        except OSError:
            return None
        return ModuleSpec(name, _Same(), is_package=True) if is_copy else None


def install() -> None:
    """From now on, whoever imports a copy gets the runtime."""
    sys.meta_path.insert(0, _Copies())
