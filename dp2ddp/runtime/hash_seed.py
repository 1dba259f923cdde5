"""The order of a set of strings: as in a single process, the same on all ranks.

It depends on the seed by which Python hashes strings, which is drawn for each process, unless PYTHONHASHSEED says it.
The ranks that ``init`` starts have one seed; a launcher leaves each rank its own. Words numbered in the order of a set
would be other numbers on each of them. Nothing but a new start sets the seed, so each rank runs its command again, in
the same process, as long as nothing has happened yet.
"""

from __future__ import annotations

import os
import sys
import zlib

from . import again, output
from .places import Place

VARIABLE = "PYTHONHASHSEED"


def of_job(name: str) -> str:
    """A seed that follows from what all ranks of a job know."""
    return str(zlib.crc32(name.encode()))


def agree(place: Place) -> None:
    """Start this rank again with the seed of all ranks, if it has one of its own; may not return."""
    if place.world_size < 2 or not _is_own() or not _can_start_again():
        return
    environment, folder = again.BEGAN
    job = f"{place.address}:{place.port} {environment.get('TORCHELASTIC_RUN_ID', '')}"
    output.flush()
    os.chdir(folder)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**environment, VARIABLE: of_job(job)})


def _is_own() -> bool:
    environment, _ = again.BEGAN  # a program may set the variable, too late
    return bool(sys.flags.hash_randomization) and environment.get(VARIABLE, "random") in ("", "random")


def _can_start_again() -> bool:
    """Whether the command says it all: a program read from standard input is gone, and MPI counts its processes."""
    read = len(sys.orig_argv) < 2 or sys.orig_argv[-1] == "-" or hasattr(sys, "ps1")
    return os.name == "posix" and not read and "mpi4py.MPI" not in sys.modules
