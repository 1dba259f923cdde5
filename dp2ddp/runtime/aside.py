"""A program that starts ranks of its own, in place of the runtime's: from there on it goes its own way.

Whether it does so is often known only while it runs: by an option, a configuration file, a variable. So what such
programs call is watched: torch's ``init_process_group`` and ``spawn``. At the first call that is not the runtime's,
what has been begun is taken back. Of the ranks that the runtime's agent started, all but one of each machine end there,
quietly and with exit code 0; the one that stays has its environment as the command was given, and goes on as a plain
process. Ranks that somebody else started, torchrun for one, all go on: the program was started for its own group.
From there on everything of the runtime does what it does in a plain process, here and in what this process starts.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.multiprocessing

from . import lines, output, places, ranks, rendezvous, teardown
from .messages import say

BEFORE = "DP2DDP_BEFORE"  # in ranks that the agent started: variables and threads as they were before it changed them
_CHANGED = frozenset("""
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME
    MASTER_ADDR MASTER_PORT OMP_NUM_THREADS GLOO_SOCKET_IFNAME PYTHONHASHSEED TORCH_ELASTIC_SHUTDOWN_TIMEOUT
    TORCH_NCCL_ASYNC_ERROR_HANDLING
    """.split())
_STARTS = {"init_process_group", "spawn", "start_processes"}

_has_begun = False
_is_said = False
_is_given = False
_current: torch.device | str | int | None = (
    None  # the GPU that ranks of the program's own make the current one
)
_watched: dict[Callable, Callable] = {}
_told: dict[str, str] = {}  # what the program sees of what the launcher says of this rank
_undone: list[Callable[[], None]] = []
_served: list[Any] = (
    []
)  # the store that rank 0 may serve: the program's own group meets there, under the same address


def as_started() -> str:
    """What the agent is about to change of its environment, for the rank that goes on in its place."""
    variables = {name: os.environ[name] for name in _CHANGED if name in os.environ}
    return json.dumps({"variables": variables, "threads": torch.get_num_threads()})


def begin() -> None:
    """The runtime has ranks to start or to join from now on, unless the program turns out to have its own."""
    global _has_begun
    _has_begun = True
    watch()


def remember() -> None:
    """Note what the program sees of the launcher's variables: what it finds otherwise later, it has set itself."""
    _told.update({name: os.environ[name] for name in places.OF_TORCHRUN if name in os.environ})


def is_said() -> bool:
    """Whether the program has said that it goes its own way."""
    return _is_said


def watch() -> None:
    """Have ``stand_aside`` called before the program starts ranks or joins a group, by whatever name it knows the call.

    What has been imported by name is replaced in its module; call it again when the program has imported more.
    """
    if not _watched and dist.is_available():
        starts = [getattr(home, name, None) for home in (dist, torch.multiprocessing) for name in _STARTS]
        _watched.update({start: _noticed(start) for start in starts if isinstance(start, FunctionType)})
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and not name.startswith(("torch.distributed", "torch.multiprocessing")):
            continue
        held = getattr(module, "__dict__", {})
        for key, value in list(held.items()):
            if type(value) is FunctionType and value in _watched:
                held[key] = _watched[value]


def watch_in_helpers() -> None:
    """The same in a process that multiprocessing has started for one of the agent's ranks: it may be one of its own."""
    if ranks.AGENT in os.environ and ranks.is_helper():
        watch()


def _noticed(start: Callable) -> Callable:
    @functools.wraps(start)
    def noticed(*args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__package__") != __package__:
            stand_aside()
        return start(*args, **kwargs)

    return noticed


def when_standing_aside(undo: Callable[[], None]) -> None:
    """Have ``undo`` called if the program goes its own way: it takes something back that ``init`` has arranged."""
    _undone.append(undo)


def stand_aside() -> None:
    """Let the program start its own processes from here on; every process of it has to call this.

    Called by itself before the program's own ``init_process_group`` and ``spawn``. Of the ranks that ``launch`` or
    ``init`` started, all but one of each machine end here with exit code 0, and the one that is left goes on as a plain
    process. Before ``launch`` or ``init``: they will start and join nothing.
    """
    global _is_said
    _is_said = True
    if ranks.stands_aside():
        return
    set_by_program = _set_by_program()
    if ranks.is_helper():
        if ranks.AGENT in os.environ:  # a process that the program starts for a rank of its own
            _go_on_alone()
            os.environ.update(set_by_program)
        return
    if not _has_begun or ranks.is_foreign():
        return
    place, own = ranks.place(), ranks.AGENT in os.environ
    if own and place is not None and place.rank == 0 and place.world_size > 1:
        what = f"of the {place.world_size} processes here, only this one continues"
        say(f"{lines.site()} starts the program's own ranks: {what}")
    _served.append(rendezvous.connection())
    _leave()
    os.environ.update(set_by_program)


def go_on_alone(why: str) -> None:
    """Let rank 0 go on as a plain process, and the other ranks end with exit code 0; all ranks have to call this.

    Unlike ``stand_aside``, ranks that torchrun has started end, too: there is no group that they were started for.

    Args:
        why: said by rank 0.
    """
    if ranks.stands_aside() or ranks.is_helper() or ranks.get_world_size() == 1:
        return
    if ranks.get_rank() > 0:
        teardown.leave()
        _end()
    say(f"{why}: of {ranks.get_world_size()} processes only this one continues")
    _leave()


def _leave() -> None:
    """Take back what has been begun, and be a plain process."""
    teardown.leave()
    for undo in _undone:
        undo()
    if ranks.AGENT in os.environ:
        _go_on_alone()
    else:
        _forget()


def _set_by_program() -> dict[str, str]:
    """What the program itself says of the ranks that it starts: where they meet, in MASTER_ADDR and MASTER_PORT."""
    if not _has_begun and places.KEPT not in os.environ:  # it sees what the launcher says
        return {}
    found = {name: os.environ[name] for name in places.OF_TORCHRUN if name in os.environ}
    return {name: value for name, value in found.items() if _told.get(name) != value}


def _go_on_alone() -> None:
    """Be the process that was started by hand, in its environment; the other ranks of the machine end."""
    if ranks.get_local_rank() > 0:
        _end()
    before = json.loads(os.environ.pop(BEFORE, '{"variables": {}}'))
    for name in _CHANGED:
        os.environ.pop(name, None)
    os.environ.update(before["variables"])
    os.environ.pop(ranks.AGENT, None)
    if before.get("threads"):
        torch.set_num_threads(before["threads"])
    _forget()


def _forget() -> None:
    for name in (places.KEPT, ranks.OWNER):
        os.environ.pop(name, None)
    ranks.step_aside(True)
    if _current is not None:
        torch.cuda.set_device(_current)


def _end() -> NoReturn:
    """End this rank: what the program has registered for its end is for the one that goes on."""
    output.flush()
    os._exit(0)


def set_device(device: torch.device | str | int) -> None:
    """``torch.cuda.set_device`` where the program starts its own processes; elsewhere each rank has its device.

    Before it is known which way the program goes, it is put off until it stands aside.
    """
    global _current
    if ranks.stands_aside():
        torch.cuda.set_device(device)
    elif not ranks.is_helper():
        _current = device


def is_initialized() -> bool:
    """Whether the program has made a process group itself, as ``torch.distributed.is_initialized`` tells.

    The group that ``launch`` or ``init`` makes does not count: a program with a distributed branch of its own asks so
    whether it runs in that one.
    """
    return dist.is_available() and dist.is_initialized() and (ranks.stands_aside() or not _has_begun)


def join_given() -> None:
    """The runtime has been told of the group that the program has made: its ranks are the runtime's, too."""
    global _is_given
    _is_given = True


def stands_aside() -> bool:
    """Whether the program has ranks of its own, so that everything works as in a plain process.

    Also where it has made a group and nothing calls ``launch`` or ``init``: a program that is not converted asks so in
    a file that converted ones share with it.
    """
    return ranks.stands_aside() or (is_initialized() and not _is_given)
