"""The arguments of a call: set and dropped in the call's own layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from dp2ddp.plan import DropArgument, SetArgument
from dp2ddp.rewrite.errors import RewriteError
from dp2ddp.rewrite.parentheses import code, fit, parenthesised

Space = cst.BaseParenthesizableWhitespace
LONG = 100
"""More columns than a line with arguments should have, the indentation of its block left aside."""


@dataclass
class _Slot:
    """An argument and, if it was given by position, its number in the original call."""

    number: int | None
    arg: cst.Arg


@dataclass
class _Layout:
    before: Space
    slots: list[_Slot]
    lost: list[cst.Comment] = field(default_factory=list)


def edit_arguments(
    call: cst.Call,
    edits: Sequence[SetArgument | DropArgument],
    value: Callable[[SetArgument], cst.BaseExpression],
) -> tuple[cst.Call, list[cst.Comment]]:
    """The call with its arguments edited, in order, and the comments that have no place left in it."""
    layout = _Layout(call.whitespace_before_args, _slots(call.args))
    for edit in edits:
        at = _find(layout.slots, edit)
        if isinstance(edit, DropArgument):
            if at is not None:
                _drop(layout, at)
        elif at is None:
            _append(layout, _argument(edit, value(edit), layout.slots))
        else:
            arg = layout.slots[at].arg
            layout.lost += comments(arg.value)
            layout.slots[at].arg = _with_value(arg, value(edit))
    _check_order(layout.slots, edits)
    args = [slot.arg for slot in layout.slots]
    if len(args) > 1:
        args = [_protected(arg) for arg in args]
    return call.with_changes(args=args, whitespace_before_args=layout.before), layout.lost


def as_laid_out(made: cst.BaseExpression, call: cst.BaseExpression) -> cst.BaseExpression:
    """A call that hands on all that ``call`` was given, laid out as it is; ``made`` itself where it is none."""
    if not isinstance(made, cst.Call) or not isinstance(call, cst.Call) or not call.args:
        return made
    count = len(call.args)
    starts = range(len(made.args) - count + 1)
    same = (it for it in starts if all(map(_is_same, made.args[it : it + count], call.args)))
    first = next(same, None)
    if first is None or "\n" not in code(call):
        return made
    layout = _Layout(call.whitespace_before_args, _slots(call.args))
    for arg in made.args[first + count :]:
        _append(layout, arg)
    begins = isinstance(layout.before, cst.ParenthesizedWhitespace)
    between = _without_words(layout.before) if begins else cst.SimpleWhitespace(" ")  # type: ignore[arg-type]
    leading = [
        it.with_changes(
            comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace("")
        )
        for it in made.args[:first]
    ]
    args = [*leading, *(slot.arg for slot in layout.slots)]
    return made.with_changes(args=args, whitespace_before_args=layout.before)


def _is_same(one: cst.Arg, other: cst.Arg) -> bool:
    """Whether two arguments are the same, however they are laid out."""
    names = (it.keyword and it.keyword.value for it in (one, other))
    return one.star == other.star and len(set(names)) == 1 and code(one.value) == code(other.value)


def add_parameter(parameters: cst.Parameters, name: str, default: str) -> cst.Parameters:
    """A function's parameters and one more, laid out like the last of them."""
    new = cst.Param(cst.Name(name))
    if default:
        none = cst.SimpleWhitespace("")
        sign = cst.AssignEqual(whitespace_before=none, whitespace_after=none)
        new = new.with_changes(default=cst.parse_expression(default), equal=sign)
    if not parameters.params:
        return parameters.with_changes(params=[new])
    *others, last = parameters.params
    between = others[-1].comma if others else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    closing = new.with_changes(comma=last.comma, whitespace_after_param=last.whitespace_after_param)
    last = last.with_changes(comma=between, whitespace_after_param=cst.SimpleWhitespace(""))
    return parameters.with_changes(params=[*others, last, closing])


def comments(node: cst.CSTNode) -> list[cst.Comment]:
    """All comments in a node, in order."""
    if isinstance(node, cst.Comment):
        return [node]
    return [comment for child in node.children for comment in comments(child)]


def _slots(args: Sequence[cst.Arg]) -> list[_Slot]:
    numbers = iter(range(len(args)))
    return [_Slot(None if arg.keyword or arg.star == "**" else next(numbers), arg) for arg in args]


def _find(slots: Sequence[_Slot], edit: SetArgument | DropArgument) -> int | None:
    for at, slot in enumerate(slots):
        if slot.arg.keyword is not None and slot.arg.keyword.value == edit.keyword:
            return at
    if edit.position is None:
        return None
    for at, slot in enumerate(slots):
        if slot.number is None:
            continue
        if slot.arg.star:
            raise RewriteError(
                f"whether {edit.keyword!r} is given cannot be told: *{_name(slot.arg)}", edit.at.span
            )
        if slot.number == edit.position:
            return at
    return None


def _name(arg: cst.Arg) -> str:
    return arg.value.value if isinstance(arg.value, cst.Name) else "…"


def _check_order(slots: Sequence[_Slot], edits: Sequence[SetArgument | DropArgument]) -> None:
    """Dropping an argument must not move another into its place."""
    numbers = [slot.number for slot in slots if slot.number is not None]
    if numbers != list(range(len(numbers))):
        gone = next(edit for edit in edits if isinstance(edit, DropArgument))
        raise RewriteError(
            f"without {gone.keyword!r} the arguments after it would change places", gone.at.span
        )


def _argument(edit: SetArgument, value: cst.BaseExpression, slots: Sequence[_Slot]) -> cst.Arg:
    if not edit.keyword.isidentifier():
        raise RewriteError(f"the call has no argument number {edit.position}", edit.at.span)
    equal = next((slot.arg.equal for slot in slots if slot.arg.keyword), None) or cst.AssignEqual(
        cst.SimpleWhitespace(""), cst.SimpleWhitespace("")
    )
    return _with_value(cst.Arg(value=cst.Name("_"), keyword=cst.Name(edit.keyword), equal=equal), value)


def _with_value(arg: cst.Arg, value: cst.BaseExpression) -> cst.Arg:
    return arg.with_changes(value=fit(value, (arg,), arg.value))


def _protected(arg: cst.Arg) -> cst.Arg:
    if isinstance(arg.value, cst.GeneratorExp) and not arg.value.lpar:
        return arg.with_changes(value=parenthesised(arg.value))
    return arg


def _append(layout: _Layout, new: cst.Arg) -> None:
    slots = layout.slots
    if not slots:
        slots.append(_Slot(None, new))
        return
    between = _between(layout, new)
    if slots[-1].arg.star == "**":
        slots.insert(len(slots) - 1, _Slot(None, new.with_changes(comma=cst.Comma(whitespace_after=between))))
        return
    last = slots[-1].arg
    trailing = isinstance(last.comma, cst.Comma)
    tail = _tail(last)
    if _has_words(tail):  # they are about the argument before: they stay with it
        assert isinstance(tail, cst.ParenthesizedWhitespace)
        between = tail.with_changes(last_line=_indent(layout, tail))
        tail = _without_words(tail)
    comma = last.comma if isinstance(last.comma, cst.Comma) else cst.Comma()
    slots[-1].arg = last.with_changes(
        comma=comma.with_changes(whitespace_after=between),
        whitespace_after_arg=last.whitespace_after_arg if trailing else cst.SimpleWhitespace(""),
    )
    bare = new.with_changes(comma=cst.Comma() if trailing else cst.MaybeSentinel.DEFAULT)
    slots.append(_Slot(None, _with_tail(bare, tail)))


def _between(layout: _Layout, new: cst.Arg) -> Space:
    """What stands between this call's arguments: a line end if each has its own line, or the last line gets long."""
    gaps = [_tail(slot.arg) for slot in layout.slots[:-1]]
    last = layout.slots[-1].arg
    if (
        not gaps
        and isinstance(last.comma, cst.Comma)
        and isinstance(_tail(last), cst.ParenthesizedWhitespace)
    ):
        gaps = [layout.before]
    if gaps and all(isinstance(gap, cst.ParenthesizedWhitespace) for gap in gaps):
        return _without_words(gaps[-1])
    line = [new]
    for slot, gap in zip(reversed(layout.slots), reversed([layout.before, *gaps]), strict=False):
        line.append(slot.arg)
        if isinstance(gap, cst.ParenthesizedWhitespace):
            width = len(gap.last_line.value) + sum(len(code(arg).strip()) + 2 for arg in line)
            return _without_words(gap) if width > LONG else cst.SimpleWhitespace(" ")
    return cst.SimpleWhitespace(" ")


def _indent(layout: _Layout, tail: cst.ParenthesizedWhitespace) -> cst.SimpleWhitespace:
    for space in (*(_tail(slot.arg) for slot in reversed(layout.slots[:-1])), layout.before):
        if isinstance(space, cst.ParenthesizedWhitespace):
            return space.last_line
    return tail.last_line


def _drop(layout: _Layout, at: int) -> None:
    slots = layout.slots
    gone = slots.pop(at).arg
    tail = _tail(gone)
    layout.lost += comments(gone.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=_NOTHING))
    if isinstance(tail, cst.ParenthesizedWhitespace) and tail.first_line.comment:
        layout.lost.append(tail.first_line.comment)
        tail = tail.with_changes(first_line=_plain(tail.first_line))
    if not slots:
        layout.lost = [*comments(layout.before), *layout.lost, *comments(tail)]
        layout.before = _NOTHING
    elif at == 0:
        if _has_words(tail) and not isinstance(layout.before, cst.ParenthesizedWhitespace):
            layout.lost += comments(tail)
        else:
            layout.before = _joined(layout.before, tail, layout.before)
    elif at == len(slots):
        last = slots[-1].arg
        joined = _joined(_tail(last), tail, tail)
        slots[-1].arg = _with_tail(last.with_changes(comma=gone.comma), joined)
    else:
        previous = slots[at - 1].arg
        gap = _tail(previous)
        kept = gap if isinstance(gap, cst.ParenthesizedWhitespace) else tail
        slots[at - 1].arg = _with_tail(previous, _joined(gap, tail, kept))


_NOTHING = cst.SimpleWhitespace("")


def _joined(before: Space, after: Space, kept: Space) -> Space:
    """One space for two: ``kept``, with the comments of both."""
    if not _has_words(before) and not _has_words(after):
        return kept
    lines = [space for space in (before, after) if isinstance(space, cst.ParenthesizedWhitespace)]
    return lines[0].with_changes(
        empty_lines=[line for space in lines for line in space.empty_lines],
        last_line=kept.last_line if isinstance(kept, cst.ParenthesizedWhitespace) else _NOTHING,
    )


def _tail(arg: cst.Arg) -> Space:
    """The space after an argument and its comma, if it has one."""
    return arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else arg.whitespace_after_arg


def _with_tail(arg: cst.Arg, tail: Space) -> cst.Arg:
    if isinstance(arg.comma, cst.Comma):
        return arg.with_changes(comma=arg.comma.with_changes(whitespace_after=tail))
    return arg.with_changes(whitespace_after_arg=tail)


def _has_words(space: Space) -> bool:
    return bool(comments(space))


def _without_words(space: Space) -> Space:
    if isinstance(space, cst.ParenthesizedWhitespace):
        return space.with_changes(first_line=_plain(space.first_line), empty_lines=[])
    return space


def _plain(line: cst.TrailingWhitespace) -> cst.TrailingWhitespace:
    return line.with_changes(whitespace=_NOTHING, comment=None)
