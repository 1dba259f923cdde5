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

from . import again, output, places
from .places import Place

VARIABLE = "PYTHONHASHSEED"


def of_job(name: str) -> str:
    """A seed that follows from what all ranks of a job know."""
    return str(zlib.crc32(name.encode()))


def agree(place: Place) -> None:
    """Start this rank again with the seed of all ranks, if it has one of its own; may not return."""
    if place.world_size < 2 or not _is_own() or not _is_command():
        return
    environment, folder = again.BEGAN
    job = f"{place.address}:{place.port} {environment.get('TORCHELASTIC_RUN_ID', '')}"
    output.flush()
    os.chdir(folder)
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**environment, VARIABLE: of_job(job)})


def _is_own() -> bool:
    environment, _ = again.BEGAN  # a program may set the variable, too late
    return bool(sys.flags.hash_randomization) and environment.get(VARIABLE, "random") in ("", "random")


def _is_command() -> bool:
    """Whether a launcher has started this process by the command that Python was given, which can be run again.

    It can't be where a program was read from standard input or is run by another one, as a server or a pool of
    processes does, nor where MPI has counted its processes.
    """
    environment, folder = again.BEGAN
    main = sys.modules["__main__"]
    if "-m" in sys.orig_argv:
        named = getattr(main, "__spec__", None) is not None
    else:
        named = getattr(main, "__file__", "") in [os.path.join(folder, it) for it in sys.orig_argv]
    began = places.read(places.variables(environment)) is not None
    return os.name == "posix" and began and named and "mpi4py.MPI" not in sys.modules
