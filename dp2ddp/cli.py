"""Arguments → convert, explain or verify → exit code."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import os
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dp2ddp import __version__
from dp2ddp.config import FILE, TABLE, Config, ConfigError, Settings, settings
from dp2ddp.defects import DEBUG, DEFECT, INTERNAL
from dp2ddp.ignored import patterns
from dp2ddp.progress import Progress

if TYPE_CHECKING:
    from dp2ddp.convert import Conversion
    from dp2ddp.verify.run import Request
    from dp2ddp.verify.verdict import Result

COMMANDS = ("convert", "explain", "verify")
FORMATS = ("text", "json", "sarif", "github", "markdown")
FORMS = ("exact", "force", "mark", "sharded", "no_gather")
"""Options that say what is written, which are passed on."""
DONE, WOULD_CHANGE, USAGE, KEPT, UNREADABLE = range(5)
INTERRUPTED = 130
# What a disk, a folder or its rights are the reason of: the user's to mend.
_OF_THE_MACHINE = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
}
_OF_THE_MACHINE |= {errno.ENOMEM, errno.EFBIG, errno.ENAMETOOLONG}

_AFTER_THE_DASHES = "what the scripts are given stands after --"

CODES = """\
exit codes:
  0  done, or nothing to do
  1  --check, and something would change
  2  wrong usage
  3  a script was refused, or with --force a part of it; the others are converted
  4  a file cannot be read, parsed or written; what does not need it is converted
"""

VERDICTS = """\
exit codes:
  0  MATCH: losses, gradients, parameters after every step, batch sizes, learning rates, numbers of steps are the same
  1  DIFFERS: the first thing that does, and what usually causes it
  2  wrong usage
  3  INCONCLUSIVE: nothing to compare with, and what to add; or the script was not converted
  4  a file cannot be read or parsed
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    scripts: list[str] = []
    runs = given[:1] == ["verify"] or (given[:1] == ["convert"] and "--prove" in given)
    if runs and "--" in given:  # what follows is the scripts'
        scripts = given[given.index("--") + 1 :]
        given = given[: given.index("--")]
    try:
        parser = _parser()
        if given and not given[0].startswith("-") and given[0] not in COMMANDS:
            parser.error(f"there is no command {given[0]}{_meant(given)}")
        options, unknown = parser.parse_known_args(given)
        if unknown:
            hint = f"; {_AFTER_THE_DASHES}" if given[:1] == ["verify"] else ""
            close = _close(unknown[0].partition("=")[0], options.own)
            options.error(f"unrecognized arguments: {' '.join(unknown)}{close}{hint}")
        options.scripts = tuple(scripts)
        options.given = shlex.join(["dp2ddp", *given, *(["--", *scripts] if scripts else [])])
        code: int = options.run(options)
    except SystemExit as exit_:  # argparse's way to end
        return int(exit_.code or 0)
    except KeyboardInterrupt:
        _say("dp2ddp: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read what is said has seen enough
        _silence()
        return DONE
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            return _failed(error)
        place = f"{error.filename}: " if error.filename else ""
        _say(f"dp2ddp: {place}{(error.strerror or str(error)).lower()}")
        return UNREADABLE
    except _Wrong as error:
        _say(f"dp2ddp: {error}")
        return USAGE
    except Exception as error:
        return _failed(error)
    return code


def command() -> NoReturn:
    """Run the command and end the process with its exit code."""
    code = main()
    if (
        code == INTERRUPTED
    ):  # the interpreter's own end would wait for, or crash in, a thread that still analyses
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _meant(given: Sequence[str]) -> str:
    """What was perhaps meant by a first argument that is no command."""
    if given[0].endswith((".py", os.sep)) or Path(given[0]).exists():
        return f"; did you mean {shlex.join(['dp2ddp', 'convert', *given])}?"
    return _close(given[0], COMMANDS)


def _close(word: str, known: Iterable[str]) -> str:
    """The nearest of some words, as a question, if one is near."""
    close = difflib.get_close_matches(word, list(known), 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def _failed(error: Exception) -> int:
    """Say that dp2ddp itself failed."""
    if os.environ.get(DEBUG):
        traceback.print_exc()
    words = " ".join(f"{type(error).__name__}: {error}".split())
    _say(f"dp2ddp: {INTERNAL} error: {words}; {DEFECT}")
    return KEPT


class _Wrong(Exception):
    """A mistake of the user's: what it is, in one line."""


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps what is one line, and leaves tables alone."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kind = argparse.RawDescriptionHelpFormatter if "\n" in text else argparse.HelpFormatter
        return kind._fill_text(self, text, width, indent)


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
        formatter_class=_Help,
    )
    command.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="file or folder, or - for standard input; without one, the entries of [tool.dp2ddp] in pyproject.toml",
    )
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
        "--exact",
        action="store_true",
        help="keep exactly the original's global batches, by ddp.shard(loader)",
    )
    assumed = command.add_mutually_exclusive_group()
    assumed.add_argument(
        "--sharded",
        action="store_true",
        help="shard also where it could not be proven to train the same; lists what this assumes",
    )
    assumed.add_argument(
        "--prove",
        action="store_true",
        help="test these assumptions as verify does, with the arguments after --, and shard only if they hold",
    )
    command.add_argument(
        "--no-gather",
        action="store_true",
        help="do not gather outputs behind the model: such scripts get the whole-batch form",
    )
    command.add_argument("--force", action="store_true", help="convert the rest of scripts that have errors")
    command.add_argument(
        "--mark", action="store_true", help="put a comment, # dp2ddp: ..., above every line to change by hand"
    )
    command.add_argument("--no-color", action="store_true", help="no colours in a diff on a terminal")
    command.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="skip files in folders by a .gitignore pattern; what git ignores is always skipped",
    )
    command.add_argument("--isolated", action="store_true", help="leave pyproject.toml alone")
    command.add_argument(
        "--vendor",
        type=Path,
        metavar="DIR",
        help="copy the runtime (about 80 files) into a folder of the project, such as my_ddp, and import it from there",
    )
    command.add_argument(
        "--format", choices=FORMATS, default="text", help="how findings and the summary are written (text)"
    )
    command.add_argument("--statistics", action="store_true", help="count the findings of every rule")
    loud = command.add_mutually_exclusive_group()
    loud.add_argument("-q", "--quiet", action="store_true", help="print findings only")
    loud.add_argument(
        "-v", "--verbose", action="store_true", help="print what was changed, and all reasons, too"
    )
    command.set_defaults(run=_convert, error=command.error, own=_options_of(command))

    command = commands.add_parser(
        "explain", help="explain a rule", description="Explain a rule by an example."
    )
    command.add_argument(
        "code",
        nargs="?",
        metavar="CODE",
        help="a rule's code, number or name, or all; with another word, the rules that name it are listed, and all "
        "without one",
    )
    command.set_defaults(run=_explain, error=command.error, own=_options_of(command))
    _add_verify(commands)
    return parser


def _add_verify(commands: argparse._SubParsersAction[_Parser]) -> None:
    command = commands.add_parser(
        "verify",
        help="show that a converted script trains the same",
        usage="%(prog)s [options] BEFORE [AFTER] [-- arguments of the programs]",
        description="Run a script as DataParallel on so many replicas, and the converted one on so many processes, a "
        "few optimizer steps each, in copies of the working folder, and compare what they did. Without AFTER the "
        "script is converted for it. Needs torch.",
        epilog=VERDICTS,
        formatter_class=_Help,
    )
    command.add_argument(
        "before",
        type=Path,
        metavar="BEFORE",
        help="the script with DataParallel, or a command that its project installs (FOLDER/NAME)",
    )
    command.add_argument("after", type=Path, nargs="?", metavar="AFTER", help="the converted one")
    command.add_argument(
        "--processes",
        type=_processes,
        metavar="N",
        help="processes and replicas (2; with --sharded 2, then 3)",
    )
    command.add_argument("--steps", type=_count, default=20, metavar="N", help="optimizer steps (20)")
    command.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="the device to run on (cpu)"
    )
    command.add_argument("--float64", action="store_true", help="run both in float64")
    command.add_argument(
        "--as-is", action="store_true", help="align nothing; compare loss curves over several seeds"
    )
    command.add_argument(
        "--synthetic", action="store_true", help="small random data instead of torchvision's data sets"
    )
    command.add_argument(
        "--prepare",
        type=Path,
        metavar="FILE",
        help="a Python file to run before the scripts, to replace data by",
    )
    command.add_argument(
        "--timeout",
        type=_count,
        default=120,
        metavar="S",
        help="seconds without progress that count as a hang (120)",
    )
    command.add_argument(
        "--exact", action="store_true", help="without AFTER: convert as convert --exact does"
    )
    command.add_argument(
        "--force", action="store_true", help="without AFTER: convert as convert --force does"
    )
    command.add_argument(
        "--sharded",
        action="store_true",
        help="without AFTER: convert as convert --sharded does, and test what that assumes",
    )
    command.add_argument(
        "--no-gather",
        action="store_true",
        help="without AFTER: convert as convert --no-gather does",
    )
    command.add_argument(
        "--git",
        metavar="REVISION",
        help="without AFTER: BEFORE is converted already; compare with this git revision of it",
    )
    command.add_argument("--report", type=Path, metavar="FILE", help="write an HTML report")
    command.add_argument(
        "-v", "--verbose", action="store_true", help="say how the two runs were made comparable"
    )
    command.add_argument("--isolated", action="store_true", help="leave pyproject.toml alone")
    command.set_defaults(run=_verify, error=command.error, own=_options_of(command))


def _options_of(command: argparse.ArgumentParser) -> frozenset[str]:
    """The options that a command has itself."""
    return frozenset(name for action in command._actions for name in action.option_strings)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _processes(text: str) -> int:
    if _count(text) == 1:
        raise argparse.ArgumentTypeError(
            "one process is the same as the original and proves nothing; use 2 or more"
        )
    return int(text)


def _config(options: argparse.Namespace) -> Config:
    writes = "--inplace" if options.inplace else "--output" if options.output else ""
    if writes and options.check:
        options.error(f"argument {writes}: not allowed with argument --check")
    if writes and "-" in options.paths:
        options.error(f"argument {writes}: not allowed with standard input")
    if options.diff and options.format != "text":
        options.error(f"argument --diff: not allowed with --format {options.format}")
    said = _settings(options, options.paths)
    try:
        paths = tuple(options.paths) or said.entries
    except ConfigError as error:
        raise _Wrong(str(error)) from error
    if not paths:
        options.error(f"the following arguments are required: PATH (or entries in [{TABLE}] of {FILE})")
    vendor = options.vendor or said.path("vendor")
    if vendor is not None and "-" in paths:
        options.error("argument --vendor: not allowed with standard input")
    return Config(
        paths=paths,
        vendor=vendor,
        diff=options.format == "text" and (options.diff or not (writes or options.check)),
        inplace=options.inplace,
        output=options.output,
        check=options.check,
        exact=options.exact or said.flag("exact"),
        force=options.force or said.flag("force"),
        mark=options.mark or said.flag("mark"),
        sharded=options.sharded or said.flag("sharded"),
        no_gather=options.no_gather or said.flag("no-gather"),
        format=options.format,
        statistics=options.statistics or said.flag("statistics"),
        quiet=options.quiet,
        verbose=options.verbose,
        exclude=(*said.exclude, *patterns(options.exclude, Path.cwd().resolve())),
        repeated=_repeated(options),
        color=sys.stdout.isatty() and not options.no_color and not os.environ.get("NO_COLOR"),
    )


def _repeated(options: argparse.Namespace) -> tuple[str, ...]:
    vendor = ["--vendor", str(options.vendor)] if options.vendor else []
    return (*(f"--exclude={it}" for it in options.exclude), *["--isolated"] * options.isolated, *vendor)


def _settings(options: argparse.Namespace, paths: Iterable[str | Path]) -> Settings:
    """What pyproject.toml says for what is asked for, unless that is not to be looked at."""
    try:
        return Settings(Path.cwd()) if options.isolated else settings(paths)
    except ConfigError as error:
        raise _Wrong(str(error)) from error


def _convert(options: argparse.Namespace) -> int:
    config = _config(options)
    from dp2ddp.emit.write import check_output

    if config.output and (reason := check_output(config.output, map(Path, config.paths))):
        options.error(reason)
    if options.prove:
        return _prove(options, config)
    given = sys.stdin.buffer.read() if "-" in config.paths else None
    return _emit(_converted(options, config, given), config)


def _converted(options: argparse.Namespace, config: Config, stdin: bytes | None = None) -> Conversion:
    from dp2ddp.convert import Misplaced, convert_paths
    from dp2ddp.emit.vendor import check_vendor

    if config.vendor and (reason := check_vendor(config.vendor)):
        options.error(f"argument --vendor: {reason}")
    form = {name: getattr(config, name) for name in FORMS}
    try:
        with Progress(not config.quiet) as progress:
            return convert_paths(
                config.paths,
                stdin,
                config.exclude,
                config.vendor and Path(os.path.realpath(config.vendor)),
                progress,
                **form,
            )
    except Misplaced as error:
        options.error(f"argument --vendor: {error}")


def _prove(options: argparse.Namespace, config: Config) -> int:
    """Convert to the sharded form where what it assumes is true of the runs that ``verify`` makes."""
    from dp2ddp.emit.text import shown

    if "-" in config.paths:
        options.error("argument --prove: not allowed with standard input, which is no program to run")
    proven = _converted(options, config)
    config = replace(config, sharded=True)
    assumed = _converted(options, config)
    programs = [it for it in assumed.scripts if it.is_assumed and it.converted]
    if len(programs) > 1:
        names = ", ".join(shown(it.path) for it in programs)
        options.error(f"argument --prove: one script at a time, of {names}")
    if not programs:
        return _emit(
            proven, replace(config, sharded=False), ["measured: nothing, as no assumption is needed or helps"]
        )
    (program,) = programs
    path = os.fspath(program.path.with_name(program.command) if program.command else program.path)
    given = ["verify", path, "--sharded", *_options(config, "exact", "force", "no_gather")]
    wanted = _parser().parse_args([*given, *["--synthetic"] * program.synthetic])
    wanted.scripts, wanted.given = options.scripts, options.given
    trial = _set_up(wanted)
    if isinstance(trial, int):
        return trial
    from dp2ddp.verify.assumed import all_reached, lines, outcome, tested
    from dp2ddp.verify.verdict import Verdict

    trials = tested(trial.request, say=_say)
    matches = outcome(trials) is Verdict.MATCH
    holds = matches and all_reached(trials, trial.assumptions)
    measured = [f"measured: {line}" for line in lines(trials, trial.assumptions)]
    why = (": not every assumption was reached in the test; --sharded takes them as true") * (
        matches and not holds
    )
    otherwise = next(it.tier for it in proven.scripts if it.path == program.path)
    form = "sharded" if holds else f"{otherwise}{', without them' * (otherwise != 'whole batch')}"
    measured.append(f"so {shown(program.path)} is {form}{why}")
    return _emit(assumed if holds else proven, replace(config, sharded=holds), measured)


def _emit(conversion: Conversion, config: Config, measured: Sequence[str] = ()) -> int:
    from dp2ddp.emit.text import moved_path, report, statistics
    from dp2ddp.emit.vendor import vendor, vendoring
    from dp2ddp.emit.write import WriteError, write_copy, write_inplace

    writes = bool(conversion.changes) and (config.inplace or config.output is not None)
    moved = None
    copy = _copy(conversion, config)
    try:
        if writes and config.output:
            base = write_copy(config.output, map(Path, config.paths), conversion.files, conversion.changes)
            moved = base, Path(os.path.realpath(config.output))
            copy = copy and moved_path(copy, moved)
            if copy:
                vendor(copy)
        elif writes or (copy and config.inplace):
            with vendoring(copy):
                write_inplace(conversion.changes)
    except WriteError as error:
        _say(f"dp2ddp: {error}")
        return UNREADABLE
    code = UNREADABLE if conversion.unreadable else KEPT if conversion.errors else DONE
    if code == DONE and config.check and conversion.changes:
        code = WOULD_CHANGE
    unsaved = _unsaved(conversion) if config.inplace or config.diff else []
    proving = _proving(config, writes, unsaved)
    if config.format != "text":
        _write(_document(conversion, config, code, writes, moved, proving).encode())
        return code
    if config.diff:
        _show(conversion, config)
    said = report(
        conversion,
        written=writes,
        moved=moved,
        command=_writing(config),
        verify=proving,
        quiet=config.quiet,
        verbose=config.verbose,
        vendored=copy,
        measured=measured,
        unsaved=unsaved,
    )
    sys.stderr.write(said)
    if config.statistics:
        from dp2ddp.convert import EXPLAINED

        sys.stderr.write(statistics(conversion.findings, {rule.code: rule.name for rule in EXPLAINED}))
    return code


def _copy(conversion: Conversion, config: Config) -> Path | None:
    """The folder that has to become a copy of the runtime, or of this version's, for what is converted."""
    from dp2ddp.emit.vendor import is_current

    copy = conversion.runtime
    if copy is None or not (conversion.changes or copy.exists()):
        return None
    asked = config.vendor is not None and not is_current(copy)
    return copy if asked or (config.output is not None and conversion.changes) else None


def _document(
    conversion: Conversion,
    config: Config,
    code: int,
    written: bool,
    moved: tuple[Path, Path] | None,
    proving: Sequence[str],
) -> str:
    """The run in one of the formats that are not for a terminal."""
    from dp2ddp.convert import EXPLAINED
    from dp2ddp.emit.outcome import Outcome
    from dp2ddp.emit.text import proof

    emit = importlib.import_module(f"dp2ddp.emit.{config.format}")
    outcome = Outcome(
        conversion,
        rules={rule.code: rule for rule in EXPLAINED},
        code=code,
        written=written,
        proofs={it.path: proof(it, moved, proving) for it in conversion.scripts},
        version=__version__,
    )
    document: str = emit.document(outcome)
    return document


def _writing(config: Config) -> str:
    """The command that writes what was shown."""
    asked = _options(config, *FORMS)
    return shlex.join(["dp2ddp", "convert", *config.paths, *asked, *config.repeated, "--inplace"])


def _proving(config: Config, writes: bool, unsaved: Sequence[Path]) -> list[str]:
    """The options with which ``verify`` converts as this run, or finds the original where that is written over."""
    if config.output:
        return []
    if writes:
        return [] if unsaved else ["--git", "HEAD"]
    return _options(config, "exact", "force", "sharded", "no_gather")


def _unsaved(conversion: Conversion) -> list[Path]:
    """The files that change, and that git does not have as they are before that."""
    from dp2ddp.emit.text import STDIN

    return [
        it.path
        for it in conversion.changes
        if it.path.name != STDIN and _lines_of(_committed("HEAD", it.path)) != _lines_of(it.before_bytes)
    ]


def _lines_of(text: bytes | None) -> bytes | None:
    """A text with the ends of lines that git may keep."""
    return text and text.replace(b"\r\n", b"\n")


def _options(config: Config, *names: str) -> list[str]:
    """Those of some options that were given, as they are given."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(config, name)]


def _committed(revision: str, path: Path) -> bytes | None:
    """What a file says in a revision of its git repository; None where there is none of it."""
    return _git(path.parent, "show", f"{revision}:./{path.name}")


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git answers in a folder; None where it has no answer."""
    try:
        done = subprocess.run(["git", "-C", os.fspath(folder), *arguments], capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _originals(revision: str, folder: Path) -> dict[Path, bytes]:
    """What the files around a folder said in a revision that say something else now."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    names = _git(folder, "diff", "--name-only", "-z", "--diff-filter=MT", "--no-renames", revision, "--")
    if top is None or names is None:
        return {}
    root = Path(os.path.realpath(os.fsdecode(top.rstrip(b"\n"))))
    paths = [root / os.fsdecode(name) for name in names.split(b"\0") if name]
    return {path: text for path in paths if (text := _committed(revision, path)) is not None}


def _no_original(revision: str, named: Path, file: Path) -> str:
    """Why git has no other version of a program's files, and what to do."""
    instead = f"pass the original as BEFORE and {named} as AFTER"
    if _git(file.parent, "rev-parse", "--show-toplevel") is None:
        return f"{named} is in no git repository: {instead}"
    if _git(file.parent, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") is None:
        return f"the git repository of {named} has no revision {revision}: {instead}"
    if _committed(revision, file) is None:
        return f"git has no {named} in {revision}: {instead}"
    return f"no file differs from its version in {revision}: pass an earlier revision to --git"


def _show(conversion: Conversion, config: Config) -> None:
    from dp2ddp.emit.diff import base_of, diff

    cwd = Path.cwd()
    base = base_of(conversion.changes, cwd)
    _write(diff(conversion.changes, base, color=config.color))
    if base != cwd:
        _say(f"dp2ddp: the diff's paths count from {base}: apply it there")


def _explain(options: argparse.Namespace) -> int:
    from dp2ddp.convert import EXPLAINED, explain, naming
    from dp2ddp.emit.explain import explanation, listing

    if options.code is None:
        _write(listing(EXPLAINED).encode())
        return DONE
    chosen = explain(options.code)
    if not chosen:
        if found := naming(options.code):
            _write(listing(found).encode())
            return DONE
        names = [name for rule in EXPLAINED for name in (rule.code.lower(), rule.name)]
        close = _close(options.code.lower(), names)
        raise _Wrong(f"no rule is named {options.code} or contains it{close}; dp2ddp explain lists all rules")
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    _write(b"\n\n".join(explanation(rule, examples, Path.cwd(), color=color) for rule, examples in chosen))
    return DONE


@dataclass(frozen=True)
class _Program:
    """What verify runs: the file to run, the one that it is converted by, and its dotted name if that starts it."""

    path: Path
    file: Path
    module: str = ""
    added: Mapping[Path, bytes] = field(default_factory=dict)


def _program(given: Path) -> _Program | None:
    """The program that a path is, or the name of a command in a folder; None where there is neither."""
    from dp2ddp.convert import installed, module_of

    if not given.exists() and (found := installed(Path(os.path.abspath(given)))):
        return _Program(found.path, found.module, added={found.path: found.text.encode()})
    path = given.resolve()
    return _Program(path, path, module_of(path)) if path.is_file() else None


@dataclass(frozen=True)
class _Trial:
    """What shall be verified, its difference, and what was assumed for it; ``whole``: why it is not sharded."""

    request: Request
    diff: str
    assumptions: tuple[str, ...] = ()


def _verify(options: argparse.Namespace) -> int:
    trial = _set_up(options)
    if isinstance(trial, int):
        return trial
    from dp2ddp.verify.assumed import COUNTS, lines, tested
    from dp2ddp.verify.report import report
    from dp2ddp.verify.run import verify

    if options.sharded:
        trials = tested(trial.request, (options.processes,) if options.processes else COUNTS, _say)
        result = trials[-1].result
        last = lines(trials, trial.assumptions)
    else:
        result, last = verify(trial.request, _say), []
    result.command = options.given
    result.diff = trial.diff
    _write("".join(f"{line}\n" for line in (report(result, options.verbose).rstrip("\n"), *last)).encode())
    if options.report:
        from dp2ddp.verify.page import page

        result.notes += last
        options.report.write_text(page(result))
        _say(f"dp2ddp: the report is in {options.report}")
    return _code(result)


def _code(result: Result) -> int:
    """The exit code of a verdict."""
    from dp2ddp.verify.verdict import Verdict

    return {Verdict.MATCH: DONE, Verdict.DIFFERS: WOULD_CHANGE, Verdict.INCONCLUSIVE: KEPT}[result.verdict]


def _set_up(options: argparse.Namespace) -> _Trial | int:
    """What ``verify`` is to run; an exit code where there is nothing."""
    if options.after is not None and options.after.suffix != ".py" and _program(options.after) is None:
        options.error(f"argument AFTER: {options.after} is no Python script; {_AFTER_THE_DASHES}")
    for name in ("exact", "force", "sharded", "no_gather", "git"):
        if getattr(options, name) and options.after:
            options.error(
                f"argument --{name.replace('_', '-')}: not allowed with AFTER, which is converted already"
            )
    if options.after is None and not options.git:
        said = _settings(options, [options.before])
        for name in ("exact", "force", "no_gather"):
            setattr(options, name, getattr(options, name) or said.flag(name.replace("_", "-")))
    from dp2ddp.convert import alike

    programs = [_program(path) for path in (options.before, options.after) if path is not None]
    for path, program in zip((options.before, options.after), programs, strict=False):
        if program is None:
            _say(f"{path}: cannot be read: {_unreadable(path)}{alike(path)}")
            return UNREADABLE
    if options.prepare is not None and (reason := _unreadable(options.prepare)):
        _say(f"{options.prepare}: cannot be read: {reason}{alike(options.prepare)}")
        return UNREADABLE
    if options.report is not None and (reason := _unwritable(options.report)):
        options.error(f"argument --report: {options.report}: {reason}")
    own = [word for word in options.scripts if word.partition("=")[0] in options.own]
    if own:
        _say(f"dp2ddp: {', '.join(own)} after -- is for the scripts: verify's own options stand before it")
    try:
        from dp2ddp.verify.run import Request
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        options.error("torch is needed to run the scripts: install dp2ddp[train]")
    from dp2ddp.convert import convert_paths, is_converted, mended_paths

    first, last = programs[0], programs[-1]
    before, after = first.path, last.path
    cwd, overlay, originals, diff = Path.cwd().resolve(), {}, {}, b""
    wraps, assumptions, watched, shows_parts = (), (), (), True
    if options.git:
        originals = _originals(options.git, first.file.parent)
        if not originals:
            _say(f"INCONCLUSIVE: {_no_original(options.git, options.before, first.file)}")
            return KEPT
    elif is_converted(first.file):
        _say(
            f"INCONCLUSIVE: {options.before} is converted already: pass the script with DataParallel as "
            "BEFORE, or --git HEAD if git has it"
        )
        return KEPT
    mended = {it.path: it.after_bytes for it in mended_paths([first.file], originals)}
    if mended:
        names = ", ".join(os.path.relpath(path, cwd) for path in mended)
        _say(
            f"dp2ddp: {names} does not run with the installed Python and libraries: it is compared after "
            "fixing only that"
        )
    if options.after is None and not options.git:
        from dp2ddp.emit.diff import base_of
        from dp2ddp.emit.diff import diff as differences
        from dp2ddp.emit.text import report as findings
        from dp2ddp.emit.text import shown

        form = {name: getattr(options, name) for name in ("exact", "force", "sharded", "no_gather")}
        conversion = convert_paths([str(first.file)], **form)
        stays = conversion.errors and not options.force
        if conversion.unreadable or stays or not conversion.changes:
            if not (conversion.unreadable or conversion.errors):
                why = next((f": {it.reason}" for it in conversion.idle if it.path == first.file), "")
                _say(f"INCONCLUSIVE: nothing to compare in {options.before}{why}")
                return KEPT
            sys.stderr.write(findings(conversion, written=False, quiet=True))
            _say(f"{options.before} was not converted, so there is nothing to compare: see above")
            return UNREADABLE if conversion.unreadable else KEPT
        overlay = {change.path: change.after_bytes for change in conversion.changes}
        diff = differences(conversion.changes, base_of(conversion.changes, cwd))
        found = dict.fromkeys(place for script in conversion.scripts for place in script.wraps)
        wraps = tuple(f"{shown(place.path)}:{place.span.line}" for place in found)
        taken = [it for script in conversion.scripts if script.is_assumed for it in script.assumptions]
        assumptions = tuple(f"{shown(at.path)}:{at.span.line} assumes: {text}" for at, text in taken)
        watched = tuple((at.path.resolve(), at.span.line, at.span.end_line) for at, _ in taken)
        # Numbers of a part that are shown are named; without such a finding all are the whole batch's.
        parts = (it for it in conversion.findings if it.rule == "DDP502")
        shows_parts = bool(taken) or any(it.is_left for it in parts)
        for script in conversion.scripts if options.sharded else ():
            if script.reasons:
                _say(
                    f"dp2ddp: {shown(script.path)} stays whole batch in spite of --sharded: see `dp2ddp "
                    f"convert {shown(script.path)}`"
                )
    added = {**first.added, **last.added}
    scripts = (before, after, first.file, last.file, *overlay, *mended)
    root = cwd if all(path.is_relative_to(cwd) for path in scripts) else _common(scripts)
    start = cwd.relative_to(root) if cwd.is_relative_to(root) else Path()
    request = Request(
        before=before,
        after=after,
        root=root,
        start=start,
        overlay=overlay,
        mended=mended,
        originals={path: text for path, text in originals.items() if path.is_relative_to(root)},
        added=added,
        modules=(first.module, last.module),
        processes=options.processes or 2,
        steps=options.steps,
        device=options.device,
        arguments=options.scripts,
        float64=options.float64,
        as_is=options.as_is,
        synthetic=options.synthetic,
        prepare=options.prepare and options.prepare.resolve(),
        patience=float(options.timeout),
        wraps=wraps,
        watched=watched,
        shows_parts=shows_parts,
    )
    shown_diff = diff.decode(errors="replace") if diff else _unified(first, last, originals)
    return _Trial(request, shown_diff, assumptions)


def _unreadable(path: Path) -> str:
    try:
        path.open("rb").close()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _unwritable(path: Path) -> str:
    """Why no file could be written there, or nothing."""
    if path.is_dir():
        return "this is a folder"
    if not path.parent.is_dir():
        return "there is no such folder"
    is_open = os.access(path if path.exists() else path.parent, os.W_OK)
    return "" if is_open else "it can't be written"


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path.parent for path in paths]))


def _unified(before: _Program, after: _Program, originals: Mapping[Path, bytes]) -> str:
    pairs = [(path, text, path.read_bytes()) for path, text in originals.items()]
    pairs = pairs or [(before.file, before.file.read_bytes(), after.file.read_bytes())]
    lines = []
    for path, *texts in pairs:
        told = [text.decode(errors="replace").splitlines() for text in texts]
        lines += difflib.unified_diff(*told, str(path), str(path if originals else after.file), lineterm="")
    return "\n".join(lines)


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from error


def _silence() -> None:
    """Nobody listens any more: nor can what is buffered be written at the end."""
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _say(line: str) -> None:
    print(line, file=sys.stderr)
