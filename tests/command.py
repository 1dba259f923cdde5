"""The command, in a process forked from this one (half a second of imports less than a new one), or in this one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

import dp2ddp.convert  # noqa: F401 - what the command imports when it needs it
from dp2ddp import cli


def run(*arguments: str, stdin: bytes = b"", cwd: Path | str = ".") -> subprocess.CompletedProcess[bytes]:
    """``python -m dp2ddp *arguments`` in a folder, given something to read."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        child = os.fork()
        if child == 0:
            _become(arguments, cwd, (given, out, err))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str


def here(
    server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs ``dp2ddp *arguments`` in this process, and the programs that it starts by the tests' own server."""
    monkeypatch.setattr(server, "close", lambda: None)
    monkeypatch.setattr("dp2ddp.verify.run.Server", lambda *_: server)

    def run(*arguments: str) -> Done:
        code = cli.main(list(arguments))
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return run


def _become(arguments: Sequence[str], cwd: Path | str, files: Sequence[IO[bytes]]) -> None:
    """Become the command: never returns."""
    code = 1
    try:
        gc.freeze()  # no collection looks through what the tests have made
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)
        os.chdir(cwd)
        code = cli.main(arguments)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - whatever it is belongs on standard error
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
