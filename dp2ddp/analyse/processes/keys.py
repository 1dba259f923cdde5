"""Where the names that models give their parts meet the keys of states from files, however both are handed on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from dp2ddp.analyse.api.containers import KEEPS, KEY_VIEWS, KEYED, MAKES_SETS, PLAIN_METHODS
from dp2ddp.analyse.api.layers import NAMED
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.processes.conditions import returned
from dp2ddp.analyse.program.sources import How

# What hands out the parts of a model by the keys of its checkpoints.
KEYED_LIKE_FILES = NAMED | {"state_dict"}
# What may be a state dict.
STATES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
# What asks whether one is the other.
_COMPARED = (ast.In, ast.NotIn, ast.Eq, ast.NotEq)
_SETS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)
# Methods of collections that are asked by elements, or compare with others.
_ASKED = PLAIN_METHODS & {*dir(set), *dir(dict), *dir(list)} - KEEPS | KEYED


@once
def meetings(
    context: Context,
    is_names: Callable[[Context, ast.expr], bool],
    is_state: Callable[[Context, ast.expr], bool],
) -> dict[int, list[ast.expr]]:
    """The states from files whose keys meet the names that a call hands out, by the identities of these calls.

    Those of calls whose names meet each other's count for all of them.

    Args:
        is_names: whether an expression hands out a model's names.
        is_state: whether one is a state from a file.
    """
    calls = [it.node for it in context.program.calls]
    together = {id(it): [it] for it in calls if is_names(context, it)}
    states: dict[int, list[ast.expr]] = {key: [] for key in together}
    if not together or not any(is_state(context, it) for it in calls):
        return states
    names, files = _Origins(context, is_names), _Origins(context, is_state)
    for node in context.program.nodes.values():
        for one, other in _sides(context, node):
            found = [*names.of(one), *names.of(other)]
            for it in found:
                states[id(it)] += [*files.of(one), *files.of(other)]
            for it in found[1:]:
                joined = together[id(found[0])]
                if together[id(it)] is not joined:
                    joined += together[id(it)]
                    together |= {id(member): joined for member in joined}
    return {
        key: list({id(it): it for one in them for it in states[id(one)]}.values())
        for key, them in together.items()
    }


def made_of(
    context: Context, node: ast.expr, is_state: Callable[[Context, ast.expr], bool]
) -> list[ast.expr]:
    """The states from files that a collection is filled from."""
    return _Origins(context, is_state).of(node)


def _sides(context: Context, node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is compared, or looked up in the other."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARED):
            if not isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
                yield left, right
        case ast.Subscript(value=value, slice=key) if not isinstance(
            key, ast.Constant | ast.Slice | ast.Tuple
        ):
            yield value, key
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SETS):
            if _is_set(context, left) or _is_set(context, right):
                yield left, right
        case ast.Call(func=ast.Attribute(value=owner, attr=method), args=args) if method in _ASKED:
            yield from ((owner, it) for it in args if not isinstance(it, ast.Constant))


def _is_set(context: Context, node: ast.expr) -> bool:
    """Whether an expression is seen to be a set, or a dictionary's keys."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.BinOp(left=left, right=right, op=op) if isinstance(op, _SETS):
            return _is_set(context, left) or _is_set(context, right)
        case ast.Call(func=ast.Attribute(attr=method)):
            return method in KEY_VIEWS
        case ast.Call():
            return bool(context.program.names_of(node) & MAKES_SETS)
        case ast.Name():
            made = map(context.program.source, context.program.definitions(node))
            plain = [it.plain for it in made if it.plain is not None]
            return any(_is_set(context, it) for it in plain if not isinstance(it, ast.Name | ast.BinOp))
    return False


class _Origins:
    """Follows what elements are taken from, and collections filled from, back to what ``ends`` tells.

    Args:
        ends: whether an expression is what is looked for.
    """

    def __init__(self, context: Context, ends: Callable[[Context, ast.expr], bool]) -> None:
        self.context = context
        self.program = context.program
        self.ends = ends
        self._steps: dict[int, tuple[bool, list[ast.expr]]] = {}

    def of(self, node: ast.expr) -> list[ast.expr]:
        """What an expression is taken from."""
        found: dict[int, ast.expr] = {}
        seen: set[int] = set()
        waiting = [node]
        while waiting:
            it = waiting.pop()
            if id(it) in seen:
                continue
            seen.add(id(it))
            if id(it) not in self._steps:
                self._steps[id(it)] = self._step(it)
            is_end, behind = self._steps[id(it)]
            if is_end:
                found[id(it)] = it
            else:
                waiting += behind
        return list(found.values())

    def _step(self, node: ast.expr) -> tuple[bool, list[ast.expr]]:
        """Whether an expression is what is looked for; else what it is made of."""
        if isinstance(node, STATES) and self.ends(self.context, node) and not self._is_key(node, set()):
            return True, []
        return False, [*self._behind(node)]

    def _is_key(self, node: ast.expr, seen: set[int]) -> bool:
        """Whether an expression is what a loop hands out, or a part of that, and nothing that has keys itself."""
        seen.add(id(node))
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Slice)
        made = map(self.program.source, self.program.definitions(node)) if isinstance(node, ast.Name) else ()
        return any(
            it.how is How.ELEMENT
            or (it.plain is not None and id(it.plain) not in seen and self._is_key(it.plain, seen))
            for it in made
        )

    def _behind(self, node: ast.expr) -> Iterator[ast.expr]:
        """What an expression is made of directly."""
        match node:
            case ast.Name() | ast.Attribute():
                yield from self._defined(node)
                yield from _filled(self.context).get(_variable(self.context, node), ())
            case ast.Call(func=ast.Attribute(value=owner), args=args) if not self.program.entered_itself(
                node
            ):
                yield from (owner, *args)
            case ast.Call(args=args):
                yield from returned(self.context, node) if self.program.entered_itself(node) else args
            case ast.DictComp(key=key):
                yield key
            case ast.Dict(keys=keys, values=values):  # {**state}
                yield from (value if key is None else key for key, value in zip(keys, values, strict=True))
            case ast.ListComp(elt=element) | ast.SetComp(elt=element) | ast.GeneratorExp(elt=element):
                yield element
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
                yield value
            case ast.IfExp(body=body, orelse=other):
                yield from (body, other)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                yield from elements
            case ast.BoolOp(values=values):
                yield from values
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, (*_SETS, ast.Add)):
                yield from (left, right)

    def _defined(self, node: ast.expr) -> Iterator[ast.expr]:
        for definition in self.program.definitions(node):
            if isinstance(definition, ast.arg):
                yield from self._given(definition)
            elif (value := (made := self.program.source(definition)).value) is not None:
                # Of names and parts, or keys and values, the first is the name.
                pairs = isinstance(value, ast.Call) and getattr(value.func, "attr", "") in NAMED | {"items"}
                if not pairs or made.place[:1] in ((), (0,)):
                    yield value

    def _given(self, parameter: ast.arg) -> Iterator[ast.expr]:
        around = self.program.parent(self.program.parent(parameter) or parameter)
        if isinstance(around, ast.Lambda):  # filter(lambda it: it[0] in own, state.items())
            call = self.program.parent(around)
            yield from (it for it in getattr(call, "args", ()) if it is not around)
        else:
            yield from self.program.given(parameter)


@once
def _filled(context: Context) -> dict[int | str, list[ast.expr]]:
    """What is put into collections: ``found[key] = value``, ``names.append(name)``."""
    found: dict[int | str, list[ast.expr]] = {}
    for node in context.program.nodes.values():
        match node:
            case ast.Subscript(value=ast.Name() | ast.Attribute() as owner, slice=key, ctx=ast.Store()):
                found.setdefault(_variable(context, owner), []).append(key)
            case ast.Call(func=ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=method)):
                if method in KEEPS:
                    found.setdefault(_variable(context, owner), []).extend(node.args[:1])
    return found


def _variable(context: Context, node: ast.Name | ast.Attribute) -> int | str:
    """What is the same for all uses of a name, or of an attribute by its spelling."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)
    return next((id(it) for it in context.program.variable(node)), node.id)
