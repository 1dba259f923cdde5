"""``--local-rank``, which ``python -m torch.distributed.launch`` puts among a program's arguments.

A program that does not declare the option would end there: "unrecognized arguments". So it is taken out of
``sys.argv`` when the runtime is imported, before the program can read it, and an ``argparse`` parser that declares the
option, in either spelling, gets it back when it parses.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

SPELLINGS = ("--local-rank", "--local_rank")


def take_local_rank() -> None:
    """Take the launcher's ``--local-rank`` out of ``sys.argv``, if this process was started with one."""
    found = re.fullmatch(r"--local[-_]rank=(\d+)", sys.argv[1]) if len(sys.argv) > 1 else None
    # The launcher says the same in the environment; without that the argument is the program's own.
    if not found or os.environ.get("LOCAL_RANK") != found[1] or "RANK" not in os.environ:
        return
    del sys.argv[1]
    _give_back_to_parsers_that_declare_it(found[1])


def _give_back_to_parsers_that_declare_it(local_rank: str) -> None:
    for method in (
        "parse_known_args",
        "parse_known_intermixed_args",
    ):  # parse_args and the like call one of them
        _wrap(method, local_rank)


def _wrap(method: str, local_rank: str) -> None:
    parse = getattr(argparse.ArgumentParser, method)

    def wrapped(self, args=None, namespace=None):
        if args is None or list(args) == sys.argv[1:]:
            declared = [name for name in SPELLINGS if name in self._option_string_actions]
            args = [f"{name}={local_rank}" for name in declared[:1]] + sys.argv[1:]
        return parse(self, args, namespace)

    setattr(argparse.ArgumentParser, method, wrapped)
