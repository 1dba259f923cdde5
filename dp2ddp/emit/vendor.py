"""``--vendor DIR``: a copy of the runtime in somebody's project."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from dp2ddp.emit.write import WriteError, reason, usual_mode
from dp2ddp.source import COPY

SOURCE = Path(__file__).parents[1] / "runtime"


def check_vendor(folder: Path) -> str:
    """Why no copy of the runtime can be put there, or nothing."""
    if not folder.name.isidentifier():
        return f"{folder} can't be imported: its name is no Python identifier; give a name such as --vendor my_ddp"
    if folder.exists() and not folder.is_dir():
        return f"{folder} is not a folder"
    if folder.is_dir() and any(folder.iterdir()) and not _is_copy(folder):
        return f"{folder} is not empty, and no copy of the runtime: name the folder that shall be one"
    return ""


def is_current(folder: Path) -> bool:
    """Whether a folder is a copy of this version's runtime."""
    return folder.is_dir() and all(
        (folder / name).is_file() and (folder / name).read_bytes() == data for name, data in copied()
    )


def vendor(folder: Path) -> bool:
    """Make a folder a copy of the runtime, all of it or nothing; whether something had to be done."""
    if is_current(folder):
        return False
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        made, old = temporary / "new", temporary / "old"
        made.mkdir()
        for name, data in copied():
            (made / name).write_bytes(data)
        usual_mode(made)
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(made, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
    except OSError as error:
        raise WriteError(f"nothing is written: {reason(error)}") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return True


@contextmanager
def vendoring(folder: Path | None) -> Iterator[None]:
    """Have a copy in a folder while what needs it is written; if that fails, a new one goes again."""
    new = folder is not None and not folder.exists()
    if folder is not None:
        vendor(folder)
    try:
        yield
    except BaseException:
        if folder is not None and new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_copy(folder: Path) -> bool:
    init = folder / "__init__.py"
    return init.is_file() and COPY in init.read_bytes()


def copied() -> Iterator[tuple[str, bytes]]:
    """The files of a copy, with the licence that goes with them."""
    for path in sorted(SOURCE.glob("*.py")):
        yield path.name, path.read_bytes()
    try:
        files = metadata.files("dp2ddp") or []
        licence = next(Path(os.fspath(it.locate())) for it in files if it.name == "LICENSE")
        yield "LICENSE", licence.read_bytes()
    except (metadata.PackageNotFoundError, StopIteration, OSError):
        pass
