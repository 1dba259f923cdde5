"""Arguments → measurements → tables on standard output."""

from __future__ import annotations

import argparse
import sys

from ..runtime import jobs
from . import __doc__ as description
from . import evaluation, replicas, shared, start, steps

PARTS = {
    "start": start.table,
    "steps": steps.table,
    "evaluation": evaluation.table,
    "replicas": replicas.table,
    "shared": shared.table,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", help="start, steps, evaluation, replicas, shared; all if none is given"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each thing is measured")
    parser.add_argument(
        "--update", action="store_true", help="write the tables into dp2ddp/runtime/README.md"
    )
    options = parser.parse_args()
    for part in options.parts or PARTS:
        if part not in PARTS:
            parser.error(f"there is no {part}: {', '.join(PARTS)}")
        table = PARTS[part](options.rounds)
        print(table, flush=True)
        if options.update:
            jobs.fill_readme(f"benchmark: {part}", table)


if __name__ == "__main__":
    sys.exit(main())
