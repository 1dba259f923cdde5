"""Batches that can only be put together of all their samples: padded to the longest, sorted, mixed.

Each process loads such a batch whole, as the original does, and takes its part of what ``collate_fn`` returns. For that
it has to be known where the samples are in it: in dimension 0 of tensors, one after the other in lists. Numbers for all
of them, as the longest length, are handed on. Which numbers there are, and of how many samples one is made, does not
matter: only shapes are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.containers import CHANGES_BEYOND_APPENDING, DICT_LOOKUPS, DICT_VIEWS
from dp2ddp.analyse.api.iteration import COPIES_SEQUENCE, IN_ANOTHER_ORDER, SIDE_BY_SIDE, SORTS_IN_PLACE
from dp2ddp.analyse.api.numbers import CHOOSES_NUMBER, COUNTS_ONE, LONGEST, MAKES_PYTHON_NUMBER, NUMBER_HOMES
from dp2ddp.analyse.api.operations import Does
from dp2ddp.analyse.api.randomness import DRAWS, PERMUTATIONS
from dp2ddp.analyse.api.tensors import (
    ARRAY_HOMES,
    CHANGES_NUMBER_OF_ROWS,
    CHANGES_SHAPE_IN_PLACE,
    CONCATENATES,
    DIMENSION_ARGUMENTS,
    FILLS,
    FILLS_NUMPY,
    GIVES_NUMBERS,
    MAKES_OF_SIZES,
    OF_LISTS,
    OF_ONE_NUMBER,
    ORDERING,
    OTHER_SIZES,
    PADS,
    REGROUPS,
    TURNS_ROUND,
)
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.kinds import Kind
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.training.collating import (
    Across,
    Collating,
    Form,
    Found,
    Parts,
    across,
    collated,
    either,
    holds_lists,
    is_sample,
    may_hold_columns,
)
from dp2ddp.analyse.training.loaders import collates, hides_arguments

PLAIN = (Form.FIXED, Form.NUMBER, Form.COUNT, Form.PLACE)
"""Numbers, and what no sample has a part in."""
BY_ROW = (Form.ROWS, Form.COLLATED, Form.ORDER)
KEEPS_ROWS = {Does.NUMBERS, Does.HANDS_ON, Does.SAMPLES}


def whole(context: Context, training: set[int]) -> dict[int, str]:
    """The loaders of the training whose batches are put together whole, and which part of the code needs that.

    Of each it is known where the samples are in what comes of them.
    """
    found: dict[int, str] = {}
    for call in context.loaders:
        if id(call.node) not in training or getattr(call.node, "own_batch", None) is not None:
            continue
        needs = needs_whole(context, call)
        if needs is not None and hands_rows(context, id(call.node)):
            found[id(call.node)] = ast.unparse(needs)
    return found


def needs_whole(context: Context, call: Call) -> ast.expr | None:
    """What puts a loader's batches together in a way that needs all of their samples."""
    for given in collates(context, call):
        for place in filter(None, map(across, collated(context, given))):
            return place if isinstance(place, ast.expr) else given
    return None


def hands_rows(context: Context, loader: int) -> bool:
    """Whether all that a loader's batches are made of has an entry for each sample, or is one number for all."""
    call = context.program.call(context.program.node(loader))
    if call is None or hides_arguments(context, context.loader_arguments(call)):
        return False
    found = list(handed_out(context, loader))
    return all(across(it) is None for it in found)


def handed_out(context: Context, loader: int) -> Iterator[Found]:
    """What a loader's batches are made of, by all that may put them together."""
    call = context.program.call(context.program.node(loader))
    for given in collates(context, call) if call is not None else ():
        yield from collated(context, given, Rows)


def hand_lists(context: Context) -> bool:
    """Whether batches that are put together whole may hold a list with an entry for each sample."""
    return any(holds_lists(it) for loader in context.put_together for it in handed_out(context, loader))


def lists_are_entries(context: Context) -> bool:
    """Whether all lists that loaders hand out have an entry for each sample, so far as that can be followed."""
    if any(hasattr(it, "own_batch") for it in context.program.nodes.values()):
        return False
    for call in context.loaders:
        follower = Rows if id(call.node) in context.put_together else Collating
        for given in collates(context, call):
            if any(map(may_hold_columns, collated(context, given, follower))):
                return False
    return True


def handed(context: Context) -> dict[int, kinds.Value]:
    """What loaders hand out whose batches are put together whole, where that has numbers for all samples."""
    found: dict[int, kinds.Value] = {}
    for loader in context.put_together:
        made = [*handed_out(context, loader)]
        if any(map(_has_numbers, made)):
            place = context.program.node(loader)
            found[loader] = kinds.join([_value(it, place) for it in made], place)
    return found


def _has_numbers(found: Found) -> bool:
    if isinstance(found, Parts):
        return any(_has_numbers(it) for _, it in found.entries)
    return found in (Form.NUMBER, Form.COUNT)


def _value(found: Found, place: ast.AST) -> kinds.Value:
    """What is handed out, as what the training gets: parts of all that has the samples."""
    if isinstance(found, Parts):
        entries = [(key, _value(it, place)) for key, it in found.entries]
        if any(key is None for key, _ in entries):
            return kinds.Every(kinds.join([it for _, it in entries], place))
        return kinds.Held(tuple(entries))
    return Kind.SAME if found in (Form.NUMBER, Form.COUNT) else Kind.BATCH


def _entries(call: ast.Call) -> dict[str, ast.expr]:
    """What ``batch.update({"key": value, …})`` or ``batch.update(key=value)`` puts into a dict, if all is written."""
    found: dict[str, ast.expr] = {}
    for given in call.args:
        keys = given.keys if isinstance(given, ast.Dict) else [None]
        if not all(isinstance(it, ast.Constant) and isinstance(it.value, str) for it in keys):
            return {}
        found |= {key.value: it for key, it in zip(keys, given.values, strict=True)}  # type: ignore[attr-defined,union-attr]
    if any(it.arg is None for it in call.keywords):
        return {}
    return found | {it.arg: it.value for it in call.keywords}  # type: ignore[misc]


@dataclass
class Rows(Collating):
    """Follows the shapes of what one function makes of all samples of a batch."""

    def handed_out(self, scope: Scope) -> Found:
        """What the function makes of the samples, where the samples in that are known."""
        found = self.returned(scope)
        return found if not isinstance(found, Form) or found in BY_ROW else Across(scope.node)

    def returned(self, scope: Scope) -> Found:
        """What the function returns; under which condition does not matter, nor what it keeps for itself."""
        results = []
        for node in self.program.body(scope):
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                return Across(node)
            if isinstance(node, ast.Return) and node.value is not None and not self._is_of_none(node):
                if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                    results.append(self._known(node.value) if not self.depth else self.of(node.value))
        return either(results, scope.node) if results else Across(scope.node)

    def _known(self, node: ast.expr) -> Found:
        """What is handed out, of which all places have an entry for each sample, or a number."""
        found = self.of(node)
        return found if _is_known(found) or isinstance(found, Across) else Across(node)

    def together(self, values: list[Found], place: ast.AST) -> Found:
        """What is computed of several values, number by number."""
        blamed = next((it for it in values if isinstance(it, Across)), None)
        if blamed is not None:
            return blamed
        kinds = set(values)
        if kinds <= {Form.FIXED}:
            return Form.FIXED
        if kinds <= {*PLAIN}:
            return Form.NUMBER
        if kinds <= {*PLAIN, Form.ALL}:
            return Form.ALL
        if kinds <= {*PLAIN, Form.ALL, Form.SAMPLE}:
            return Form.SAMPLE
        if kinds <= {*PLAIN, *BY_ROW}:
            return Form.COLLATED if kinds <= {*PLAIN, Form.COLLATED} else Form.ROWS
        return Across(place)

    def _of_itself(self, node: ast.AST) -> Found:
        """What is the largest so far is a number as before."""
        if isinstance(node, ast.Call) and self._names(node) <= LONGEST:
            return Form.NUMBER
        return super()._of_itself(node)

    def _names(self, node: ast.Call) -> frozenset[str]:
        call = self.program.call(node)
        return call.names if call is not None and call.names else frozenset({""})

    def _of(self, node: ast.AST) -> Found:
        match node:
            case ast.Constant():
                return Form.FIXED
            case ast.Subscript(
                value=ast.Attribute(attr="shape", value=held), slice=ast.Constant(value=number)
            ):
                if (size := self._size(self.of(held), number)) is not None:
                    return size
            case ast.Attribute(attr="shape", value=held) if self.of(held) in BY_ROW:
                return Form.ALL
            case ast.IfExp(body=body, orelse=other):
                return either([self.of(body), self.of(other)], node)
            case ast.Compare(left=left, comparators=others):
                return self.together([self.of(it) for it in (left, *others)], node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if not any(
                isinstance(it, ast.Starred) for it in elements
            ):
                return self._display(node, elements)
        return super()._of(node)

    def _display(self, node: ast.AST, elements: list[ast.expr]) -> Found:
        found = [self.of(it) for it in elements]
        if elements and set(found) <= {Form.FIXED}:
            return Form.FIXED
        if Form.SAMPLE in found and set(found) <= {*PLAIN, Form.ALL, Form.SAMPLE}:
            return Form.SAMPLE
        return Parts(tuple(enumerate(found)))

    def _size(self, held: Found, dimension: object) -> Found | None:
        """A size of a tensor."""
        if held not in BY_ROW or not isinstance(dimension, int):
            return None
        return Form.COUNT if dimension == 0 else Form.NUMBER

    # Conditions, and what a function changes

    def _tests_differ(self, definition: ast.AST) -> bool:
        return False

    def _changed(self, name: ast.Name, scope: Scope, value: Found, entry: str | None) -> Found:
        """Rows may be written, sorted and shuffled: there are as many as before."""
        added: list[tuple[object, Found]] = []
        for use in self.program.body(scope):
            if not isinstance(use, ast.Name) or use.id != name.id:
                continue
            around = self.program.parent(use)
            call = self.program.parent(around) if around is not None else None
            called = isinstance(call, ast.Call) and isinstance(around, ast.Attribute) and call.func is around
            method = around.attr if called and isinstance(around, ast.Attribute) else ""
            if method == "update" and (put := _entries(call)) and isinstance(value, Parts):  # type: ignore[arg-type]
                added += [
                    (key, self.of(it) if entry in (None, key) else Form.FIXED) for key, it in put.items()
                ]
                continue
            if method in CHANGES_BEYOND_APPENDING - SORTS_IN_PLACE or method in CHANGES_SHAPE_IN_PLACE:
                return Across(call)  # type: ignore[arg-type]
            match around:
                case ast.Subscript(value=held, slice=ast.Constant(value=str(key)), ctx=ast.Store()) if (
                    held is use
                ):
                    stored = self.program.statement(around)
                    plain = isinstance(stored, ast.Assign) and stored.targets == [around]
                    if not plain or not isinstance(value, Parts | Form) or value in (*BY_ROW, Form.SAMPLES):
                        return Across(around)
                    asked = entry in (None, key)
                    added.append((key, self.of(stored.value) if asked else Form.FIXED))  # type: ignore[attr-defined]
                case ast.Subscript(value=held, ctx=ast.Store() | ast.Del()) if held is use:
                    if value not in (*BY_ROW, Form.SAMPLES, Form.ALL) or isinstance(around.ctx, ast.Del):
                        return Across(around)
        if not added:
            return value
        before = dict(value.entries) if isinstance(value, Parts) else {}
        return Parts(tuple((before | dict(added)).items()))

    def _defined(self, definition: ast.AST, use: ast.Name) -> Found:
        statement = None if isinstance(definition, ast.arg) else self.program.statement(definition)
        if isinstance(statement, ast.AugAssign) and statement.target is definition:
            return self.together([self.of(statement.value), Form.NUMBER], definition)
        return super()._defined(definition, use)

    # Lists

    def _mapped(self, drawn: Found, made: Found, tests: list[ast.expr], node: ast.AST) -> Found:
        if isinstance(made, Across):
            return made
        if is_sample(drawn):
            if tests and not self._is_filter(node):
                return Across(tests[0])
            by_itself = isinstance(made, Form) and made not in (Form.SAMPLES, Form.COLUMNS, *BY_ROW)
            alone = isinstance(made, Parts) and all(it in (*PLAIN, Form.ALL) for _, it in made.entries)
            return Form.SAMPLES if by_itself or alone else Across(node)
        if tests:
            return Across(tests[0])
        if drawn in (*PLAIN, Form.SAMPLES, Form.COLLATED):
            return Form.FIXED if made is Form.FIXED else Parts(((None, made),))
        return Across(node)

    def _is_filter(self, node: ast.AST) -> bool:
        """``[it for it in batch if …]``: fewer samples, of which all else is made."""
        match node:
            case ast.ListComp(
                elt=ast.Name(id=name), generators=[ast.comprehension(target=ast.Name(id=taken), iter=source)]
            ) if name == taken and isinstance(source, ast.Name):
                return self._is_batch(source)
        return False

    def _is_batch(self, node: ast.AST) -> bool:
        """Whether something is the list of samples, sorted perhaps: by the name of the parameter that it is."""
        if not isinstance(node, ast.Name):
            return False
        parameter = self.program.scope(node).signature.parameter(node.id)
        return parameter is not None and id(parameter) in self.given and self.of(node) is Form.SAMPLES

    def _held(self, node: ast.Subscript) -> Found:
        match node:
            case ast.Subscript(value=ast.Name() as name, slice=ast.Constant(value=str(key))):
                return self._named(name, key)
        return super()._held(node)

    def _entry(self, node: ast.Subscript) -> Found:
        held = self._held(node)
        if isinstance(held, Across):
            return held
        if not isinstance(node.slice, ast.Slice | ast.Tuple):
            at = self.of(node.slice)
            if held is Form.SAMPLES and at in (*PLAIN, Form.SAMPLE):
                return Form.SAMPLE
            if held in BY_ROW and at is Form.ORDER:
                return held
            if held in (Form.ROWS, Form.ORDER) and at in (*PLAIN, Form.SAMPLE):
                return Form.SAMPLE
        elif isinstance(node.slice, ast.Tuple) and held in BY_ROW:
            first, *others = node.slice.elts
            if isinstance(first, ast.Slice) and not (first.lower or first.upper or first.step):
                plain = all(not isinstance(self._slice_of(it), Across) for it in others)
                return held if plain else Across(node)
        elif held is Form.SAMPLE:
            return Form.SAMPLE
        return super()._entry(node)

    def _slice_of(self, index: ast.expr) -> Found:
        """What bounds an index has in a dimension other than 0."""
        bounds = (index.lower, index.upper, index.step) if isinstance(index, ast.Slice) else (index,)
        return self.together([self.of(it) for it in bounds if it is not None], index)

    def _drawn(self, source: ast.expr) -> Found:
        call = self.program.call(source) if isinstance(source, ast.Call) else None
        if call is None or not call.names or not call.names <= SIDE_BY_SIDE:
            value = self.of(source)
            if value is Form.ORDER:
                return Form.SAMPLE
            if value in (Form.NUMBER, Form.COUNT, Form.ALL):
                return Form.NUMBER
        return super()._drawn(source)

    # Calls

    def _rearranged(self, node: ast.Call, name: str) -> Found:
        if name in COPIES_SEQUENCE and len(node.args) == 1:
            inner = node.args[0]
            names = self._names(inner) if isinstance(inner, ast.Call) else frozenset()
            if names == {"builtins.filter"} and len(inner.args) == 2:  # type: ignore[attr-defined]
                source = inner.args[1]  # type: ignore[attr-defined]
                return Form.SAMPLES if self._is_batch(source) else Across(node)
        return super()._rearranged(node, name)

    def _call(self, node: ast.Call) -> Found:
        call, names = self.program.call(node), self._names(node)
        if call is None:
            return super()._call(node)
        if names == PADS:
            return self._padded(node, call)
        given = [self.of(it.value if isinstance(it, ast.Starred) else it) for it in node.args]
        first = given[0] if given else Form.FIXED
        if names == {"builtins.len"} and first in (Form.SAMPLES, *BY_ROW):
            return Form.COUNT
        if names == {"builtins.range"}:
            alone = first is Form.COUNT and len(given) == 1
            return Form.PLACE if alone else self.together([*given, Form.NUMBER], node)
        if names <= IN_ANOTHER_ORDER:
            return Form.SAMPLES if first in (Form.SAMPLES, Form.PLACE) else first
        if names <= LONGEST:
            return self._largest(node, given)
        if names == {"builtins.sum"}:
            return Form.NUMBER if first in PLAIN or self._counts_each(node.args[0]) else Form.ALL
        if names <= MAKES_PYTHON_NUMBER:
            return Form.SAMPLE if first is Form.SAMPLE else Form.NUMBER
        if names <= FILLS | FILLS_NUMPY and (filled := self._filled(node, names)) is not None:
            return filled
        if names <= PERMUTATIONS and first is Form.COUNT:
            return Form.ORDER
        if all(it.startswith(DRAWS) for it in names) and all(it in PLAIN for it in given):
            sized = len(given) > 2 or any(it.arg == "size" for it in node.keywords)
            scalar = not any(it.startswith("torch.") for it in names)
            return Form.NUMBER if scalar and not sized else Form.ALL
        if names <= OF_ONE_NUMBER and first in PLAIN:
            return Form.NUMBER
        if names <= CONCATENATES and isinstance(first, Parts):
            return self._beside(node, first)
        if names <= OF_LISTS | CONCATENATES and given:
            return super()._call(node)
        if isinstance(node.func, ast.Attribute):
            held = self.of(node.func.value)
            if node.func.attr in MAKES_OF_SIZES and held in (Form.SAMPLE, *BY_ROW):
                return self._filled(node, frozenset()) or Across(node)
            if held in BY_ROW and not self._is_lookup(node):
                return self._method(node, held, given)
            if held is Form.ALL and node.func.attr in GIVES_NUMBERS:
                return Form.NUMBER
        if given and first in BY_ROW and (made := self._function(node, names, first, given)) is not None:
            return made
        if names <= {it for it in names if it.startswith(NUMBER_HOMES)} and all(it in PLAIN for it in given):
            return Form.NUMBER
        return super()._call(node)

    def _is_lookup(self, node: ast.Call) -> bool:
        return node.func.attr in DICT_LOOKUPS | DICT_VIEWS  # type: ignore[attr-defined]

    def _padded(self, node: ast.Call, call: Call) -> Found:
        padded, first = call.argument("sequences", 0), call.argument("batch_first", 1)
        found = self.of(padded) if padded is not None else Across(node)
        if isinstance(found, Across):
            return found
        in_rows = isinstance(first, ast.Constant) and first.value is True
        return Form.ROWS if in_rows and found is Form.SAMPLES else Across(node)

    def _largest(self, node: ast.Call, given: list[Found]) -> Found:
        """The largest of all; the longest sample."""
        blamed = next((it for it in given if isinstance(it, Across)), None)
        if blamed is not None:
            return blamed
        if any(it.arg == "key" for it in node.keywords):
            return Form.SAMPLE if given == [Form.SAMPLES] else Form.ALL
        return Form.SAMPLE if Form.SAMPLE in given else Form.NUMBER

    def _counts_each(self, node: ast.expr) -> bool:
        """``len(it) for it in batch``."""
        match node:
            case ast.ListComp(elt=ast.Call() as counted) | ast.GeneratorExp(elt=ast.Call() as counted):
                return self._names(counted) <= COUNTS_ONE
        return False

    def _filled(self, node: ast.Call, names: frozenset[str]) -> Found | None:
        """A new tensor or array of the sizes given."""
        if not node.args or not names.isdisjoint(OTHER_SIZES):
            return Form.ALL
        places = [it for it in node.args if not isinstance(it, ast.Starred)]
        if names == {"torch.randint"}:
            places = places[-1:]
        sizes = places[0]
        first = sizes.elts[0] if isinstance(sizes, ast.Tuple | ast.List) and sizes.elts else sizes
        found = self.of(first)
        if isinstance(found, Across):
            return found
        return Form.ROWS if found is Form.COUNT else Form.ALL

    def _beside(self, node: ast.Call, first: Parts) -> Found:
        """Rows joined along another dimension."""
        said = [*node.args[1:2], *(it.value for it in node.keywords if it.arg in DIMENSION_ARGUMENTS)]
        numbers = [it.value for it in said if isinstance(it, ast.Constant)]
        later = bool(numbers) and isinstance(numbers[0], int) and numbers[0] > 0
        return Form.ROWS if later and all(it in BY_ROW for _, it in first.entries) else Across(node)

    def _method(self, node: ast.Call, held: Found, given: list[Found]) -> Found:
        """A method of a tensor with a row for each sample."""
        name = node.func.attr  # type: ignore[attr-defined]
        number = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if name == "size" and (size := self._size(held, number)) is not None:
            return size
        if name == "sort":
            return Parts(((0, held), (1, Form.ORDER)))
        if name in ORDERING:
            return Form.ORDER
        if name == "tolist":
            return Form.SAMPLES
        if name in TURNS_ROUND:
            return held
        if name in GIVES_NUMBERS:
            return Form.NUMBER
        row = operations.method(name)
        return self._operation(node, row, held, given, node.args)

    def _function(
        self, node: ast.Call, names: frozenset[str], held: Found, given: list[Found]
    ) -> Found | None:
        """A function that is given such a tensor."""
        last = {it.rpartition(".")[2] for it in names}
        if all(it.startswith(ARRAY_HOMES) for it in names):
            if last <= ORDERING:
                return Form.ORDER
            if last <= TURNS_ROUND:
                return held
            if last == {"sort"}:
                return Parts(((0, held), (1, Form.ORDER)))
            if last == {"pad"} and names <= {"torch.nn.functional.pad"}:
                return self._padded_beside(node, held)
        rows = {id(it): it for it in map(operations.operation, names) if it is not None}
        if len(rows) != 1:
            return None
        return self._operation(node, next(iter(rows.values())), held, given[1:], node.args[1:])

    def _padded_beside(self, node: ast.Call, held: Found) -> Found:
        sizes = node.args[1] if len(node.args) > 1 else None
        return held if isinstance(sizes, ast.Tuple | ast.List) and len(sizes.elts) == 2 else Across(node)

    def _operation(
        self,
        node: ast.Call,
        row: operations.Operation | None,
        held: Found,
        given: list[Found],
        arguments: list[ast.expr],
    ) -> Found:
        blamed = next((it for it in given if isinstance(it, Across)), None)
        if blamed is not None or row is None:
            return blamed or Across(node)
        asked = operations.Arguments(tuple(arguments), {it.arg: it.value for it in node.keywords if it.arg})
        does = row.does(asked)
        alone = not node.args and not node.keywords
        if row.name in CHANGES_NUMBER_OF_ROWS:
            return held if given[:1] == [Form.COUNT] and row.name in REGROUPS else Across(node)
        if row.name == "squeeze" and alone:
            return Across(node)  # a batch of one sample loses its dimension
        if does in KEEPS_ROWS and all(it in (*PLAIN, *BY_ROW) for it in given):
            return held if held is not Form.ORDER else Form.ROWS
        if does in (Does.MEAN, Does.TOTAL, Does.COUNTS):
            return Form.NUMBER
        return Form.NUMBER if row.name in CHOOSES_NUMBER and alone else Across(node)


def _is_known(found: Found) -> bool:
    """Whether it is known where the samples are in what is handed out."""
    if isinstance(found, Parts):
        return bool(found.entries) and all(_is_known(it) for _, it in found.entries)
    return found in (*BY_ROW, Form.SAMPLES, Form.NUMBER, Form.COUNT)
