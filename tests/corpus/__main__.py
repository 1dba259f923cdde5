"""Arguments → measurements → a table on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from . import __doc__ as description
from .report import reasons, table
from .run import SCRIPTS, Result, entries, measure

FORWARDED = ("--exact", "--force", "--mark", "--no-gather", "--sharded")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the scripts whose checkouts are there; the exit code is 1 if one of them shows a fault."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpus",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkouts", type=Path, help="the folder of the checkouts")
    parser.add_argument("--scripts", type=Path, default=SCRIPTS, help="lines `owner/name: script, script`")
    parser.add_argument("--only", default="", metavar="WORD", help="scripts whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw results")
    parser.add_argument("--reasons", type=Path, metavar="FILE", help="write why scripts are not converted")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="seconds for one conversion")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="conversions at the same time")
    for name in FORWARDED:
        parser.add_argument(
            name, action="append_const", dest="more", const=name, help="as the command takes it"
        )
    options = parser.parse_args(arguments)

    chosen = [entry for entry in entries(options.scripts.read_text()) if options.only in str(entry)]
    here = [entry for entry in chosen if (entry.folder(options.checkouts) / entry.script).exists()]
    for entry in chosen:
        if entry not in here:
            print(f"not here: {entry}", file=sys.stderr)
    if not here:
        parser.error(f"{options.checkouts} holds none of the scripts")
    with ThreadPoolExecutor(options.jobs) as pool:
        results: list[Result] = list(
            pool.map(lambda entry: measure(entry, options.checkouts, options.limit, options.more or ()), here)
        )
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1))
    if options.reasons:
        options.reasons.write_text(reasons(results))
    return int(any(fault for result in results for fault in result.faults.values()))


if __name__ == "__main__":
    sys.exit(main())
