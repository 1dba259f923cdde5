"""Changes → files: all of them or none."""

from __future__ import annotations

import ast
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from dp2ddp.changes import Change

_NOT_COPIED = frozenset({".git", "__pycache__"})


class WriteError(Exception):
    """Nothing was written, and why."""


def write_inplace(changes: Sequence[Change]) -> None:
    """Replace every file by what it says after. When one cannot be replaced, all are as they were."""
    prepared: list[tuple[Change, Path]] = []
    replaced: list[Change] = []
    try:
        for change in changes:
            _check_unchanged(change)
            if not os.access(change.path, os.W_OK):
                raise WriteError(f"nothing is written: {change.path} is read-only")
        for change in changes:
            prepared.append((change, _temporary(change.path, change.after_bytes)))
        for change, temporary in prepared:
            replaced.append(change)  # before it happens: to put back what was never replaced does no harm
            os.replace(temporary, change.path)
    except BaseException as error:
        if lost := [str(change.path) for change in replaced if not _put_back(change)]:
            raise WriteError(f"{reason(error)}; these could not be put back: {', '.join(lost)}") from error
        if isinstance(error, OSError):
            raise WriteError(f"nothing is written: {reason(error)}") from error
        raise
    finally:
        for _, temporary in prepared:
            temporary.unlink(missing_ok=True)


def check_output(output: Path, inputs: Iterable[Path]) -> str:
    """Why a converted copy cannot be put there, or nothing."""
    target = Path(os.path.realpath(output))
    for path in inputs:
        asked = Path(os.path.realpath(path))
        if target.is_relative_to(asked):
            return f"--output {output} is inside of the input {path}"
        if asked.is_relative_to(target):
            return f"--output {output} contains the input {path}"
    if target.exists() and not target.is_dir():
        return f"--output {output} is not a folder"
    if target.is_dir() and any(target.iterdir()):
        return f"--output {output} is not empty"
    return ""


def write_copy(
    output: Path, inputs: Iterable[Path], files: Iterable[Path], changes: Sequence[Change]
) -> Path:
    """Write a copy of the inputs with the changes in it. Returns the folder it is the copy of."""
    folders = [path for path in (Path(os.path.realpath(item)) for item in inputs) if path.is_dir()]
    files = list(files)
    singles = [path for path in files if not any(path.is_relative_to(folder) for folder in folders)]
    base = Path(os.path.commonpath([*folders, *(path.parent for path in singles)]))
    target = Path(os.path.realpath(output))
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        for folder in folders:
            _copy_folder(folder, temporary / folder.relative_to(base), {*folders, *files})
        for path in singles:
            _copy_file(path, temporary / path.relative_to(base))
        for change in changes:
            _check_unchanged(change)
            copy = temporary / change.path.relative_to(base)
            copy.unlink()  # it may be read-only
            copy.write_bytes(_checked(change.after_bytes, change.path))
            shutil.copymode(change.path, copy)
        usual_mode(temporary)
        if os.name == "nt" and target.is_dir():
            target.rmdir()
        os.rename(temporary, target)
    except (OSError, shutil.Error) as error:
        raise WriteError(f"nothing is written: {reason(error)}") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
    return base


def _check_unchanged(change: Change) -> None:
    if change.path.read_bytes() != change.before_bytes:
        raise WriteError(f"nothing is written: {change.path} has changed since it was read")


def _temporary(path: Path, data: bytes) -> Path:
    """A new file beside another, with its mode, that holds valid Python."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        _checked(Path(name).read_bytes(), path)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _checked(data: bytes, path: Path) -> bytes:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError) as error:
        raise WriteError(f"nothing is written: {path} would not be valid Python: {error}") from error
    return data


def _put_back(change: Change) -> bool:
    try:
        if change.path.read_bytes() != change.before_bytes:
            change.path.write_bytes(change.before_bytes)
    except OSError:
        return False
    return True


def _copy_folder(folder: Path, copy: Path, copied: Set[Path]) -> None:
    copy.mkdir(parents=True, exist_ok=True)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        source = Path(entry.path)
        if entry.name in _NOT_COPIED:
            continue
        if entry.is_symlink():
            _copy_link(source, copy / entry.name, copied)
        elif entry.is_dir():
            _copy_folder(source, copy / entry.name, copied)
        elif entry.is_file():
            _copy_file(source, copy / entry.name)
    shutil.copystat(folder, copy)


def _copy_link(link: Path, copy: Path, copied: Set[Path]) -> None:
    """A link to what is copied leads to the copy; another one leads where it led."""
    target = Path(os.path.realpath(link))
    if not target.exists():
        os.symlink(os.readlink(link), copy)
    elif target in copied or copied.intersection(target.parents):
        os.symlink(os.path.relpath(target, link.parent), copy)
    else:
        os.symlink(target, copy)


def _copy_file(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, copy)


def usual_mode(folder: Path) -> None:
    """The mode of a folder that was made in the usual way."""
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)


def reason(error: BaseException) -> str:
    """Why something could not be written, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}" if error.filename else error.strerror.lower()
    return str(error) or type(error).__name__
