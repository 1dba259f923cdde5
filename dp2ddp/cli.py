"""Arguments → convert or explain → exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dp2ddp import __version__
from dp2ddp.config import Config

if TYPE_CHECKING:
    from dp2ddp.convert import Conversion

DONE, WOULD_CHANGE, USAGE, KEPT, UNREADABLE = range(5)

DEFECT = "this is a defect of dp2ddp and nothing is changed; DP2DDP_DEBUG=1 shows where it comes from"

CODES = """\
exit codes:
  0  done, or nothing to do
  1  --check, and something would change
  2  wrong usage
  3  an error kept a script, or with --force a part of it, from being converted
  4  a file cannot be read or parsed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
    except SystemExit as exit_:  # argparse's way to end
        return int(exit_.code or 0)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("DP2DDP_DEBUG"):
            traceback.print_exc()
        words = " ".join(f"{type(error).__name__}: {error}".split())
        _say(f"dp2ddp: DDP000 error: {words}; {DEFECT}")
        return KEPT
    return code


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="dp2ddp", description="Turn nn.DataParallel scripts into DistributedDataParallel scripts."
    )
    parser.add_argument("--version", action="version", version=f"dp2ddp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)

    command = commands.add_parser(
        "convert",
        help="convert scripts, or show how",
        description="Convert scripts, together with the local files that they import. Shows a diff if not "
        "told otherwise; findings and a summary go to standard error.",
        epilog=CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("paths", nargs="+", metavar="PATH", help="file or folder, or - for standard input")
    outcome = command.add_mutually_exclusive_group()
    outcome.add_argument("--diff", action="store_true", help="show a diff and write nothing (the default)")
    outcome.add_argument("--inplace", action="store_true", help="rewrite the files")
    outcome.add_argument(
        "--output", type=Path, metavar="DIR", help="write a converted copy into a new folder"
    )
    command.add_argument(
        "--check", action="store_true", help="write nothing; end with 1 if something would change"
    )
    command.add_argument(
        "--exact", action="store_true", help="draw the very batches of the original, by ddp.shard(loader)"
    )
    command.add_argument("--force", action="store_true", help="convert all else where there are errors")
    command.add_argument(
        "--mark", action="store_true", help="put a comment, # dp2ddp: ..., above every site left to you"
    )
    command.add_argument("--no-color", action="store_true", help="no colours in a diff on a terminal")
    command.set_defaults(run=_convert, error=command.error)

    command = commands.add_parser(
        "explain", help="explain a rule", description="Explain a rule by an example."
    )
    command.add_argument("code", metavar="CODE", help="a rule's code or name, or all")
    command.set_defaults(run=_explain, error=command.error)
    return parser


def _config(options: argparse.Namespace) -> Config:
    writes = "--inplace" if options.inplace else "--output" if options.output else ""
    if writes and options.check:
        options.error(f"argument {writes}: not allowed with argument --check")
    if writes and "-" in options.paths:
        options.error(f"argument {writes}: not allowed with standard input")
    return Config(
        paths=tuple(options.paths),
        diff=options.diff or not (writes or options.check),
        inplace=options.inplace,
        output=options.output,
        check=options.check,
        exact=options.exact,
        force=options.force,
        mark=options.mark,
        color=sys.stdout.isatty() and not options.no_color and not os.environ.get("NO_COLOR"),
    )


def _convert(options: argparse.Namespace) -> int:
    config = _config(options)
    from dp2ddp.emit.write import check_output

    if config.output and (reason := check_output(config.output, map(Path, config.paths))):
        options.error(reason)
    from dp2ddp.convert import convert_paths

    conversion = convert_paths(
        config.paths,
        sys.stdin.buffer.read() if "-" in config.paths else None,
        exact=config.exact,
        force=config.force,
        mark=config.mark,
    )
    return _emit(conversion, config)


def _emit(conversion: Conversion, config: Config) -> int:
    from dp2ddp.emit.text import report
    from dp2ddp.emit.write import WriteError, write_copy, write_inplace

    writes = bool(conversion.changes) and (config.inplace or config.output is not None)
    moved = None
    try:
        if writes and config.output:
            base = write_copy(config.output, map(Path, config.paths), conversion.files, conversion.changes)
            moved = base, Path(os.path.realpath(config.output))
        elif writes:
            write_inplace(conversion.changes)
    except WriteError as error:
        _say(f"dp2ddp: {error}")
        return UNREADABLE if conversion.unreadable else KEPT
    if config.diff:
        _show(conversion, config)
    sys.stderr.write(report(conversion, written=writes, moved=moved))
    if conversion.unreadable:
        return UNREADABLE
    if conversion.errors:
        return KEPT
    return WOULD_CHANGE if config.check and conversion.changes else DONE


def _show(conversion: Conversion, config: Config) -> None:
    from dp2ddp.emit.diff import base_of, diff

    cwd = Path.cwd()
    base = base_of(conversion.changes, cwd)
    _write(diff(conversion.changes, base, color=config.color))
    if base != cwd:
        _say(f"dp2ddp: the diff's paths count from {base}: apply it there")


def _explain(options: argparse.Namespace) -> int:
    from dp2ddp.convert import explain
    from dp2ddp.emit.explain import explanation

    chosen = explain(options.code)
    if not chosen:
        options.error(f"there is no rule {options.code}")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _write(b"\n\n".join(explanation(rule, examples, Path.cwd(), color=color) for rule, examples in chosen))
    return DONE


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except (
        BrokenPipeError
    ):  # the reader of the pipe has seen enough; nor can what is buffered be written at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str) -> None:
    print(line, file=sys.stderr)
