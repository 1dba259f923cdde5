"""Starting a rank again, where torchrun's variables may have misled the program.

A program that may go on in ranks of its own sees what torchrun says of them (``own_ranks``). If it trains with
DataParallel all the same, it may have asked how many processes there are, and divided its data among them. So where the
first model is wrapped each rank runs its command again, in the same process, with these variables out of its sight.
"""

from __future__ import annotations

import json
import os
import sys

from . import arguments, messages, output, places, ranks, teardown

BEGAN = dict(places.STARTED), os.getcwd()
"""What the command was given in: the environment and the folder."""
_is_misled = False


def begin() -> None:
    """Note that the program sees torchrun's variables."""
    global _is_misled
    _is_misled = True


def start_if_misled() -> None:
    """Start this rank again, if the program saw torchrun's variables before it came here; all ranks do."""
    global _is_misled
    if not _is_misled or ranks.stands_aside() or ranks.is_helper():
        return
    _is_misled = False
    ranks.settle("wrapping a model")
    said = places.variables(os.environ)
    if said.get("TORCHELASTIC_USE_AGENT_STORE") != "True":  # rank 0 serves the store, which would end with it
        if ranks.is_main_process():
            messages.say(
                "every process trains on all data although WORLD_SIZE is set: start the script with torchrun"
            )
        return
    if ranks.is_main_process():
        messages.say(
            "the script takes its DataParallel branch, not its distributed one: restarted as if started by "
            "`python`"
        )
    teardown.leave()
    output.end()
    output.flush()
    environment, folder = BEGAN
    environment = {**environment, places.KEPT: json.dumps(_kept(said))}
    places.hide(environment)
    os.chdir(folder)
    os.execve(sys.executable, [sys.executable, *_command(said)], environment)


def _command(said: places.Variables) -> list[str]:
    """The command's arguments, without those that are a launcher's."""
    launchers = {f"{it}={said.get('LOCAL_RANK')}" for it in arguments.SPELLINGS}
    return [it for it in sys.orig_argv[1:] if it not in launchers]


def _kept(said: places.Variables) -> dict[str, str]:
    """The place of a rank that begins anew, with those that are left, and with nothing in the store yet."""
    names = (*places.OF_TORCHRUN, "GROUP_RANK")
    attempt = said.get("TORCHELASTIC_RESTART_COUNT", "0")
    return {name: said[name] for name in names if name in said} | {
        "TORCHELASTIC_RESTART_COUNT": f"{attempt} again"
    }
