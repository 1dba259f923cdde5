"""How a rank ends: quietly with the others, or soon and by name.

- A rank that ends reports it in the store, with the number of collectives it took part in, and waits for the others.
  When all have ended, they leave the process group together.
- A thread in every rank watches for such reports. A rank that started more collectives than one that has ended will
  wait for it in vain: it says so and ends the job. Likewise if that one waits at a barrier to which this one will
  not come before.
- A rank that fails says so first, so that the ranks which fail because of it, or alike, stay quiet.
- A rank whose collective times out asks the threads of the others how many they have started, and where they are.

Why not simply a barrier at exit: a rank that ends early would cost the whole collective timeout. Why not simply
``destroy_process_group``: gloo's threads take the interpreter's lock to let go of a collective's tensor. With torch
2.4 the group's destructor waits for them with the lock held, and one job in two hung; once the interpreter has ended,
the lock ends the process ("terminate called without an active exception", SIGABRT, in 16 of 25 jobs that did not
destroy the group). So the last collective is one without tensors, and the threads get a moment to let go.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import ctypes
import functools
import gc
import io
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from . import lines, output, ranks, rendezvous
from .messages import say

FOLDER = "DP2DDP_FOLDER"  # the agent's folder for temporary files, in the ranks that it started
USAGE = "usage"  # begins the name of a file in it: the program's parser of options has ended a rank
WRONG_USAGE = 2  # the exit code of argparse
WATCH_PERIOD = 0.5  # seconds
COURTESY = 2.0  # seconds that a rank gives the one at fault to end first, so that its exit code is the job's
LEAVING = 12.0  # seconds that a process which has reported its end may take for it, on a busy machine
GIVING_UP = "giving up"  # what the rank claims that ends the job because it waits in vain

_pid: int | None = None  # of the rank whose end is cared for here: not that of a process forked from it
_failed = False
_code: int | None = None  # what this process will exit with, if that is known
_stop = threading.Event()
_watcher: threading.Thread | None = None


def watch() -> None:
    """Care for this rank's end from now on."""
    global _pid, _failed, _code, _watcher
    _pid, _failed, _code = os.getpid(), False, None
    if ranks.count() > 1:
        _stop.clear()
        _watcher = threading.Thread(target=_watch_others, name="dp2ddp-watch", daemon=True)
        _watcher.start()
        listen()
        _leave_with_one_text()
    if ranks.has_own_agent():
        # loader workers that are killed leave sockets behind: these go with the agent's folder
        multiprocessing.current_process()._config["tempdir"] = os.environ[FOLDER]
        _note_wrong_usage()
    atexit.register(_end)


def _note_wrong_usage() -> None:
    """Have the agent know where the program's own parser ends a rank: it has said what is wrong."""
    end = argparse.ArgumentParser.exit
    note = os.path.join(os.environ[FOLDER], f"{USAGE}{ranks.own_rank()}")

    @functools.wraps(end)
    def noted(self: argparse.ArgumentParser, status: int = 0, message: str | None = None) -> NoReturn:
        if status == WRONG_USAGE:
            with suppress(OSError):
                open(note, "w").close()
        end(self, status, message)

    if not hasattr(end, "__wrapped__"):
        argparse.ArgumentParser.exit = noted


def is_wrong_usage(code: int, folder: str) -> bool:
    """Whether ranks, whose agent has this folder, have ended as the program was given wrong arguments."""
    return code == WRONG_USAGE and any(it.startswith(USAGE) for it in os.listdir(folder))


def leave() -> None:
    """Leave the process group with the others, if there is one; this process goes on without it."""
    _end()


def end_workers(failures: Iterable[Any]) -> None:
    """End the loader workers of ranks that were killed, which would notice it after 5 s only.

    Args:
        failures: torch's ``ProcessFailure`` of each rank; ranks lead process groups of their own.
    """
    for failure in failures:
        if failure.exitcode < 0:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(failure.pid, signal.SIGTERM)


def fail(error: BaseException) -> None:
    """Note that this rank is ending in ``error``, and name the rank in the error's traceback."""
    global _failed, _code
    _failed = True
    if isinstance(error, SystemExit):
        _code = error.code & 0xFF if isinstance(error.code, int) else 1
    if hasattr(error, "add_note") and not isinstance(error, SystemExit):
        note = f"on {_name()}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _name() -> str:
    return f"rank {ranks.own_rank()} of {ranks.count()}"


def _watch_others() -> None:
    asked, ends = False, []
    while not _stop.wait(WATCH_PERIOD):
        try:
            if not (dist.is_initialized() or ranks.has_begun() or ranks.is_settling()):
                return
            if not asked and rendezvous.store().check(["where"]):
                asked = True
                answer = json.dumps([rendezvous.started(), lines.site_of_program()])
                rendezvous.store().set(f"where/{ranks.own_rank()}", answer)
            ends += rendezvous.ends(len(ends))
            for report in ends:
                if rendezvous.started() > report["sequence"]:
                    _give_up(
                        f"rank {report['rank']} has ended, but {_name()} still needs it "
                        f"(in a collective at {lines.site_of_program()})"
                    )
            waiting = rendezvous.waits_in_vain()
            if waiting is not None:
                rank, site = waiting
                _give_up(
                    f"rank {rank} waits at a barrier at {site} for {_name()}, "
                    f"which waits for it in a collective at {lines.site_of_program()}"
                )
        except RuntimeError:  # the store is gone, and the agent with it: whoever started us ends us
            return


def _give_up(why: str) -> None:
    """End the job because this rank waits in a collective in vain."""
    if rendezvous.claim(GIVING_UP):
        say(f"{why}: ending the job")
    _wait_for_exits()
    if not _stop.wait(COURTESY):
        for worker in multiprocessing.active_children():
            worker.terminate()
        output.flush()
        os._exit(1)


def _wait_for_exits() -> None:
    """Let the ranks of this machine that have reported their end be gone: the agent then has their exit code."""
    first = ranks.first_of_machine()
    reports = map(rendezvous.ended, range(first, first + ranks.get_local_world_size()))
    pids = [report["pid"] for report in reports if report]
    rendezvous.store().set("needed", "")  # they wait for the others until they hear this
    end = time.monotonic() + LEAVING
    while any(map(_is_running, pids)) and time.monotonic() < end and not _stop.wait(0.05):
        pass


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _leave_with_one_text() -> None:
    """Have a text that ranks end with, by ``sys.exit(text)``, said by the first of them alone."""
    leave = sys.exit

    def exit(status: Any = None, /) -> NoReturn:
        if os.getpid() == _pid and status is not None and not isinstance(status, int):
            with suppress(RuntimeError):  # the store is gone
                status = status if rendezvous.claim(f"said {status}") else 1
        leave(status)

    sys.exit = exit


def listen() -> None:
    """Show an uncaught error only if this rank is the first to fail."""
    global _pid
    _pid = os.getpid()
    previous = sys.excepthook

    def hook(kind, error, trace):
        global _code
        if os.getpid() != _pid:
            return previous(kind, error, trace)
        fail(error)
        _code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        if isinstance(error, KeyboardInterrupt) and ranks.has_own_agent():
            return None
        text = f"{kind.__name__}: {error}"
        try:
            consequence, timeout = _is_lost_connection(error), _is_timeout(error)
            if consequence and not timeout:
                _wait_for_exits()
                _wait_for_cause()
            first = not (consequence and _given_up()) and rendezvous.claim("failure")
            missing = _missing() if first and timeout else []
        except RuntimeError:  # the store is gone
            first, missing = True, []
        if not first:
            said = _wait_for_end()
            if not consequence and said != text:
                say(f"{_name()} failed too: {text}")
            time.sleep(COURTESY)
            return None
        for line in missing if hasattr(error, "add_note") else ():
            error.add_note(line)
        previous(kind, error, trace)
        for line in [f"on {_name()}", *missing] if not hasattr(error, "add_note") else ():  # Python 3.10
            builtins.print(line, file=sys.stderr)
        sys.stderr.flush()
        with suppress(RuntimeError):
            rendezvous.store().set("failure/said", text)

    sys.excepthook = hook


def _is_lost_connection(error: BaseException) -> bool:
    """Whether an error is another rank's, which says it, or looks like the consequence of its end."""
    if hasattr(error, "raised_on_rank"):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    signs = ("connection closed", "connection reset", "broken pipe", "gloo", "nccl")
    ours = ("has ended, but rank", "which needs every rank, but rank")
    return isinstance(error, dist.DistError) or any(sign in text for sign in signs + ours)


def _wait_for_cause() -> None:
    """Give the rank at fault time to say why, and the agent time to end this one."""
    end = time.monotonic() + COURTESY
    while time.monotonic() < end and not (rendezvous.claimed("failure") or _given_up()):
        time.sleep(0.05)


def _given_up() -> bool:
    """Whether a rank has said why it ends the job: what the others lose with it is said, too."""
    return rendezvous.claimed(GIVING_UP)


def _wait_for_end() -> str | None:
    """Let the rank that failed first say why and exit first: the agent then ends this one, and names that one.

    Returns:
        What it said, if it did.
    """
    end = time.monotonic() + COURTESY
    with suppress(RuntimeError):
        while time.monotonic() < end:
            if rendezvous.store().check(["failure/said"]):
                return rendezvous.store().get("failure/said").decode()
            time.sleep(0.02)
    return None


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "timed out" in str(error).lower()


def _missing() -> list[str]:
    """Of each rank that has not come to this rank's last collective: where it is, as its watching thread says.

    If there is none, how to find out more.
    """
    mine, store, answers = rendezvous.started(), rendezvous.store(), {}
    others = set(range(ranks.count())) - {ranks.own_rank()}
    store.set("where", "")
    end = time.monotonic() + COURTESY
    while others - answers.keys() and time.monotonic() < end:
        time.sleep(0.05)
        for rank in others - answers.keys():
            if store.check([f"where/{rank}"]):
                answers[rank] = json.loads(store.get(f"where/{rank}"))
    found = []
    for rank in sorted(others):
        sequence, site = answers.get(rank, (0, None))
        if sequence < mine:
            found.append(
                f"rank {rank} has not called this collective: it "
                f"{f'is at {site}' if site else 'does not answer'}"
            )
    hint = "every rank has called the same number of collectives, maybe different ones"
    return found or [f"{hint}: set DP2DDP_DEBUG=1 to see where"]


def _end() -> None:
    """Leave the process group with the others, when this process exits."""
    global _pid
    if os.getpid() != _pid:
        return
    _pid = None
    together = False
    with suppress(RuntimeError):  # the store may be gone, and the agent with it
        if ranks.has_begun():
            if ranks.count() > 1 and not _failed:
                _wait_for_others()
        elif not dist.is_initialized():  # the program left the group itself
            if ranks.count() > 1 and not _failed:
                rendezvous.report_end(sys.maxsize)
        elif dist.get_world_size() == 1:
            together = True
        elif not _failed:
            together = _wait_for_others()
    _stop.set()
    if _watcher is not None:
        _watcher.join(5)
    rendezvous.disconnect()
    if dist.is_initialized():
        _leave(together)
    if ranks.count() > 1:
        _write_out()  # what a replica's class refers to may outlive the interpreter, with what is buffered in it
    if _code is not None and ranks.count() > 1:
        _exit_at_once(_code)


def _exit_at_once(code: int) -> None:
    """Exit without the interpreter's end, which gloo's threads might turn into SIGABRT."""
    atexit._run_exitfuncs()  # those registered before ours; ours knows that it has run
    _write_out()
    os._exit(code)


def _write_out() -> None:
    """Flush all files, those that the program has left open, too."""
    for file in (*gc.get_objects(), sys.stdout, sys.stderr):
        if issubclass(type(file), io.IOBase):
            with suppress(OSError, ValueError):
                file.flush()


def _wait_for_others() -> bool:
    """Report this rank's end and wait until all have; False if one needs this rank, or the store is gone."""
    rendezvous.report_end(rendezvous.started())
    pause = 0.005
    leaving = rendezvous.left_count if ranks.has_begun() else lambda: 0
    while rendezvous.ended_count() + leaving() < ranks.count():
        if rendezvous.store().check(["needed"]):
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return True


def _leave(together: bool) -> None:
    """Give up the process group: with the others, or leaving it as it is."""
    group = dist.group.WORLD
    if together:
        with suppress(RuntimeError):
            cpu = torch.device("cpu")
            if cpu in group._device_types and rendezvous.started():
                # unlike dist.barrier, it starts no NCCL and has no tensor
                group._get_backend(cpu).barrier().wait()
                time.sleep(0.05)
            dist.destroy_process_group()
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
