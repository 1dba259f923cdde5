"""Judge programs one after the other, a line each, and count."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from textwrap import indent

from parity.harness import Lab

from generated import flat, shaped, trainers
from generated.judge import changed, conversion_of, judged

KINDS = {"flat": flat.program, "shaped": shaped.program, "trainers": trainers.program}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="that of the first one")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", choices=sorted(KINDS), default="shaped")
    parser.add_argument(
        "--show", action="store_true", help="print the program and how it is converted, and end"
    )
    parser.add_argument("--write", type=Path, help="with --show: write before/ and after/ into this folder")
    args = parser.parse_args()
    make = KINDS[args.kind]
    if args.show:
        show(make(args.seed), args.write)
        return
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        for seed in range(args.seed, args.seed + args.count):
            try:
                outcome, form, why = judged(make(seed), lab, args.processes)
            except Exception as error:
                outcome, form, why = "ERROR", "", f"{type(error).__name__}: {error}"
            counts[f"{outcome} {form}".strip()] += 1
            print(seed, outcome, form, flush=True)
            if outcome != "same":
                print(indent(f"{why}\n{make(seed).chosen}", "    "), flush=True)
        lab.close()
    print(dict(counts))


def show(program: flat.Program, folder: Path | None) -> None:
    """Print a program, its conversion and what is said of it."""
    conversion = conversion_of(program)
    after = changed(program, conversion)
    for files, name in ((program.files, "before"), (after, "after")):
        for path, text in files.items():
            if name == "before" or text != program.files[path]:
                print(f"{'-' * 30} {name}: {path}", text, sep="\n")
            if folder:
                (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / name / path).write_text(text)
    print(program.chosen, *conversion.findings, *conversion.errors, sep="\n")


if __name__ == "__main__":
    main()
