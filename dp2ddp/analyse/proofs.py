"""What a program has to be given so that ``dp2ddp verify`` can run it here: arguments, and data that are not there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from dp2ddp.analyse.api.downloads import DATA_SETS, SYNTHETIC
from dp2ddp.analyse.api.settings import DECLARES, FLAGS, OPTIONAL
from dp2ddp.analyse.context import Context, option_names
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.values import Cls, full_name
from dp2ddp.facts import Proof, Wrap


def collect(context: Context, programs: Iterable[Path], wraps: Iterable[Wrap]) -> Iterator[Proof]:
    """What each program needs."""
    wraps = list(wraps)
    for path in dict.fromkeys(programs):
        calls = [call for call in context.program.calls if path in context.run_by(call.node)]
        asked = _asked(context, [wrap for wrap in wraps if path in wrap.scripts])
        arguments = dict.fromkeys(
            words for call in calls for words in _argument(call, asked)
        )  # some are declared for several commands
        unknown = not arguments and _reads_arguments(context, path)
        yield Proof(
            path,
            synthetic=any(_is_data_set(context, call) for call in calls),
            arguments=("...",) if unknown else tuple(word for words in arguments for word in words),
            wraps=tuple(
                dict.fromkeys((wrap.path, wrap.at.span.line) for wrap in wraps if path in wrap.scripts)
            ),
        )


def _is_data_set(context: Context, call: Call) -> bool:
    names = set(call.names)
    for callee in call.callees:
        if isinstance(callee, Cls):
            names |= {full_name(base) for base in context.program.bases(callee)}
    return any(name.startswith(DATA_SETS) and name.rpartition(".")[2] in SYNTHETIC for name in names)


def _argument(call: Call, asked: set[str]) -> Iterator[tuple[str, ...]]:
    """The words of the command line that an argument asks for: it must be there, or decides on the wrap."""
    words = [it.value for it in call.node.args if isinstance(it, ast.Constant) and isinstance(it.value, str)]
    kind = next((name.rpartition(".")[2] for name in sorted(call.names) if _declares(name)), "")
    if not kind or not words:
        return
    options = sorted((word for word in words if word.startswith("-")), key=len, reverse=True)
    if kind == "argument" or not options:
        if not _is_optional(call):
            yield (_value(call, words[0]),)
    elif _constant(call, "required") is True:
        flag = _constant(call, "action") in FLAGS
        yield (options[0],) if flag else (options[0], _value(call, options[0]))
    elif _constant(call, "action") == "store_true" and option_names(call) & asked:
        yield (options[0],)


def _declares(name: str) -> bool:
    return name.endswith(".add_argument") or name in DECLARES


def _is_optional(call: Call) -> bool:
    if _constant(call, "required") is False:
        return True
    if call.argument("default") is not None:
        return True
    return _constant(call, "nargs") in OPTIONAL


def _value(call: Call, name: str) -> str:
    """A value that fits: the first of its choices, else its name in capitals."""
    choices = call.argument("choices")
    if (
        isinstance(choices, ast.List | ast.Tuple)
        and choices.elts
        and isinstance(choices.elts[0], ast.Constant)
    ):
        return str(choices.elts[0].value)
    told = _constant(call, "metavar")
    return told if isinstance(told, str) and told else name.lstrip("-").replace("-", "_").upper()


def _constant(call: Call, keyword: str) -> object:
    given = call.argument(keyword)
    return given.value if isinstance(given, ast.Constant) else None


def _asked(context: Context, wraps: Iterable[Wrap]) -> set[str]:
    """The names in the conditions under which models are wrapped."""
    found: set[str] = set()
    for wrap in wraps:
        for node in context.program.project.files[wrap.path].nodes:
            if isinstance(node, ast.If) and node.body[0].lineno <= wrap.at.span.line <= (
                node.body[-1].end_lineno or 0
            ):
                found |= _names(node.test)
            elif isinstance(node, ast.IfExp) and node.lineno <= wrap.at.span.line <= (node.end_lineno or 0):
                found |= _names(node.test)
    return found


def _names(test: ast.expr) -> set[str]:
    named = {it.id for it in ast.walk(test) if isinstance(it, ast.Name)}
    named |= {it.attr for it in ast.walk(test) if isinstance(it, ast.Attribute)}
    return named | {str(it.value) for it in ast.walk(test) if isinstance(it, ast.Constant)}


def _reads_arguments(context: Context, path: Path) -> bool:
    """Whether a program reads an argument by its place, ``sys.argv[1]``, whether it is given or not."""
    for file in context.program.project.reaches(path):
        text = context.program.project.files[file].text
        if "len(sys.argv)" in text or "argv" not in text:
            continue
        for node in context.program.project.files[file].nodes:
            if (
                isinstance(node, ast.Subscript)
                and ast.unparse(node.value) == "sys.argv"
                and isinstance(node.slice, ast.Constant)
                and node.slice.value != 0
                and path in context.run_by(node)
            ):
                return True
    return False
