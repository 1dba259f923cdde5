"""What the conditions of a program answer where it trains with DataParallel alone, in one process.

Two things are known of that way. There is no process group, so that what needs one is never come to: of a condition
round such a thing the answer is the other one. And the model is wrapped in DataParallel there. What one condition says
of an option is so in all others that ask for it.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from dp2ddp.analyse.api.options import PARSED
from dp2ddp.analyse.api.processes import ENVIRONMENT
from dp2ddp.analyse.context import Context, is_main_guard
from dp2ddp.analyse.processes import own_ranks
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Cls, Coll, Func, Made, Value, full_name

OPERATORS = {
    ast.Eq: ("==", "!=", operator.eq),
    ast.Is: ("is", "is not", operator.is_),
    ast.Gt: (">", "<=", operator.gt),
    ast.GtE: (">=", "<", operator.ge),
    ast.In: ("in", "not in", lambda value, among: value in among),
}
OPPOSITES = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.NotIn: ast.In}
LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEPTH = 6
ROUNDS = 8


def compared(comparison: ast.cmpop, left: object, right: object) -> bool | None:
    """What a comparison of constants answers; None where it can't be made."""
    kind = type(comparison)
    if kind not in OPERATORS and kind not in OPPOSITES:
        return None
    compare = OPERATORS[OPPOSITES.get(kind, kind)][2]
    try:
        return bool(compare(left, right)) is (kind in OPERATORS)
    except TypeError:
        return None


@dataclass(frozen=True, order=True)
class Literal:
    """What a condition says of one value: that it is true, or compares so with a constant; or the opposite.

    ``subject`` names the value wherever it is used: ``option gpu`` is ``args.gpu``, and what that is given to.
    """

    subject: str
    comparison: tuple[str, ...] = ()
    positive: bool = True

    def __invert__(self) -> Literal:
        return replace(self, positive=not self.positive)

    def text(self, name: str) -> str:
        """How it is written where the value has this name."""
        if not self.comparison:
            return name if self.positive else f"not {name}"
        word, opposite, constant = self.comparison
        return f"{name} {word if self.positive else opposite} {constant}"


Literals = frozenset[Literal]
NOTHING: Literals = frozenset()
IMPOSSIBLE: Literals = frozenset([Literal(""), ~Literal("")])
OPTION = "option "


@dataclass
class Answers:
    """What is known of the conditions of a linked program where it trains in one process."""

    context: Context
    known: set[Literal] = field(default_factory=set)
    blank: bool = False
    """Whether nothing of the way is known: then only what the program says of constants is."""
    structural: dict[int, bool] = field(default_factory=dict)
    """The answers that follow from what stands under the conditions, by the identity of what branches."""
    _truths: dict[int, bool | None] = field(default_factory=dict)
    _hits: dict[int, bool] = field(default_factory=dict)
    _hitting: dict[int, bool] = field(default_factory=dict)
    _leaving: dict[int, bool] = field(default_factory=dict)
    _asking: int = 0  # how many functions are being asked about: what is found meanwhile may be provisional
    _calls: dict[int, list[list[Scope]]] = field(default_factory=dict)
    """What calls run that an expression is sure to make, of those that may come there: that hangs on no answer."""
    _reached: dict[int, bool | None] = field(default_factory=dict)
    _subjects: dict[int, str] = field(default_factory=dict)

    # Reading

    def read(self, assumed: Iterable[Literal] = ()) -> Answers:
        """Find all answers; ``assumed`` is known before."""
        self.known |= set(assumed)
        trained = self.context.trained
        nodes = [it for it in self.context.program.nodes.values() if id(it) in trained]
        branching = [it for it in nodes if isinstance(it, ast.stmt | ast.IfExp | ast.BoolOp)]
        for _ in range(ROUNDS):
            before = len(self.known), len(self.structural)
            for memo in (self._truths, self._hits, self._reached, self._leaving, self._hitting):
                memo.clear()
            for node in branching:
                self._learn(node)
            if (len(self.known), len(self.structural)) == before:
                break
        return self

    def _learn(self, node: ast.AST) -> None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                hit, other = self.leads_there(body), self.leads_there(orelse)
                if hit is not other and self._keeps(*((orelse, body) if hit else (body, orelse))):
                    self._answer(node, test, other)
            case ast.IfExp(test=test, body=one, orelse=two):
                hit, other = self._hits_expression(one), self._hits_expression(two)
                if hit is not other:
                    self._answer(node, test, other)
            case ast.BoolOp(op=kind, values=values):
                self._learn_first(values, isinstance(kind, ast.Or))
        if isinstance(node, ast.stmt) and self._hits_statement(node):
            self._learn_guard(node)

    def _learn_first(self, values: list[ast.expr], answer: bool) -> None:
        """``not several or dist.get_rank() == 0``: the first is true, as the second raises."""
        unknown: list[ast.expr] = []
        for value in values:
            if self._hits_expression(value):
                if len(unknown) == 1:
                    self._answer(unknown[0], unknown[0], answer)
                return
            truth = self.truth(value)
            if truth is answer:
                return
            unknown += [value] if truth is None else []

    def _learn_guard(self, node: ast.stmt) -> None:
        """``if not several: return`` before what is never come to."""
        program = self.context.program
        try:
            block = program.block(node)
        except LookupError:
            return
        guards = []
        for before in block[: block.index(node)]:
            if isinstance(before, ast.If):
                leaves = [part for part in (before.body, before.orelse) if _leaves(part)]
                truth = self.truth(before.test)
                if len(leaves) == 2 or (
                    truth is not None and (before.body if truth else before.orelse) in leaves
                ):
                    return
                guards += [(before, leaves[0] is before.body)] if leaves and truth is None else []
        if len(guards) == 1:
            guard, answer = guards[0]
            self._answer(guard, guard.test, answer)

    def _keeps(self, kept: list[ast.stmt], left: list[ast.stmt]) -> bool:
        """Whether DataParallel is still come to by one way, if it is by the other."""
        return not self._wraps(left) or self._wraps(kept)

    def _wraps(self, block: list[ast.stmt]) -> bool:
        wraps = {id(call.node) for call in self.context.wraps}
        return any(self.context.runs_one_of(part, wraps) for part in block)

    def _answer(self, node: ast.AST, test: ast.expr, answer: bool) -> None:
        truth = self.truth(test)
        if truth is not None and (truth is not answer or self._constants.truth(test) is None):
            return  # what constants say alone is a setting: it is known where ranks hang on it
        if self.structural.setdefault(id(node), answer) is answer:
            self._hitting.clear()
        if self._is_reached(node) or self._wraps_there(node, answer):
            said = self.implied(self.said(test, answer))
            if not self.contradict(said, self.known):
                self.known |= said
                self._hitting.clear()

    def _wraps_there(self, node: ast.AST, answer: bool) -> bool:
        """Whether DataParallel is come to by the answer: then the condition is asked."""
        if not isinstance(node, ast.If):
            return False
        return self._wraps(node.body if answer else node.orelse)

    # What is come to

    def _is_reached(self, node: ast.AST) -> bool:
        """Whether the program is sure to come to a place."""
        program, inside = self.context.program, node
        for around in program.ancestors(node):
            if isinstance(inside, ast.stmt) and not self._goes_on(around, inside):
                return False
            if isinstance(around, FUNCTIONS):
                return self._is_entered(program.by_node[id(around)])
            if isinstance(around, ast.ClassDef | ast.ExceptHandler):
                return False
            if isinstance(around, ast.If) and inside is not around.test and not is_main_guard(around.test):
                if self.truth(around.test) is not (inside in around.body):
                    return False
            if isinstance(around, ast.IfExp | ast.BoolOp) and isinstance(inside, ast.expr):
                first = around.test if isinstance(around, ast.IfExp) else around.values[0]
                if inside is not first:
                    return False
            inside = around
        return True

    def _goes_on(self, around: ast.AST, statement: ast.stmt) -> bool:
        """Whether nothing before a statement of a block may leave the block."""
        for _, block in ast.iter_fields(around):
            if isinstance(block, list) and any(it is statement for it in block):
                before = itertools.takewhile(lambda it: it is not statement, block)
                return not any(self._may_leave(it) for it in before)
        return True

    def _may_leave(self, statement: ast.stmt) -> bool:
        if id(statement) not in self._leaving:
            self._leaving[id(statement)] = self._leaves(statement)
        return self._leaving[id(statement)]

    def _leaves(self, statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            truth = self.truth(statement.test)
            ways = (statement.body, statement.orelse) if truth is None else ()
            ways = ways or ((statement.body,) if truth else (statement.orelse,))
            return any(
                self._may_leave(part) for way in ways for part in way if not isinstance(part, ast.Raise)
            )
        return isinstance(statement, ast.Return | ast.Continue | ast.Break)

    def _is_entered(self, scope: Scope) -> bool:
        """Whether the program is sure to call a function."""
        if scope.index not in self._reached:
            self._reached[scope.index] = False
            calls = self.context.callers.get(scope.index, ())
            self._reached[scope.index] = any(
                self._is_reached(call) for call in calls if self.context.runs_in_training(call)
            )
        return bool(self._reached[scope.index])

    def leads_there(self, block: list[ast.stmt]) -> bool:
        """Whether running some statements is sure to come to what needs ranks of the program's own."""
        for statement in block:
            if self._hits_statement(statement):
                return True
            if self._may_leave(statement):
                return False
        return False

    def never_runs(self, scope: Scope) -> bool:
        """Whether a function is sure to come there, and is none that wraps a model in DataParallel."""
        if scope.index not in self._hits:
            self._hits[scope.index] = False
            self._asking += 1
            hit = isinstance(scope.node, FUNCTIONS) and self.leads_there(scope.body)
            self._asking -= 1
            self._hits[scope.index] = hit and not self._wraps(scope.body)
        return self._hits[scope.index]

    def _hits_statement(self, node: ast.stmt) -> bool:
        if id(node) in self._hitting:
            return self._hitting[id(node)]
        hits = self._comes_there(node)
        if not self._asking:
            self._hitting[id(node)] = hits
        return hits

    def _comes_there(self, node: ast.stmt) -> bool:
        match node:
            case ast.If():
                if self._hits_expression(node.test):
                    return True
                truth = self.truth(node.test)
                if truth is None:
                    truth = self.structural.get(id(node))
                ways = [node.body, node.orelse] if truth is None else [node.body if truth else node.orelse]
                hits = [self.leads_there(way) for way in ways]
                return any(hits) and all(hit or _fails(way) for hit, way in zip(hits, ways, strict=True))
            case ast.For() | ast.AsyncFor():
                return self._hits_expression(node.iter)
            case ast.While():
                return self._hits_expression(node.test)
            case ast.With() | ast.AsyncWith():
                return any(self._hits_expression(it.context_expr) for it in node.items) or self.leads_there(
                    node.body
                )
            case ast.Try():
                return self.leads_there(node.finalbody) or (not node.handlers and self.leads_there(node.body))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return False
            case ast.Assign(targets=[target], value=ast.Constant(value=bool() as value)):
                whole = replace(Literal(self.subject(target)), positive=not value)
                return not isinstance(target, ast.Name) and whole in self.known
        return self._hits_expression(node)

    def _hits_expression(self, node: ast.expr | ast.stmt) -> bool:
        """Whether an expression, or those of a statement without a block, is sure to come there."""
        if id(node) not in self._calls:
            parts = [node] if isinstance(node, ast.expr) else ast.iter_child_nodes(node)
            made = (self._sure(it) for it in parts if isinstance(it, ast.expr))
            found = (self._leading(it) for sure in made for it in sure if isinstance(it, ast.Call))
            self._calls[id(node)] = [it for it in found if it is not None]
        return any(all(map(self.never_runs, functions)) for functions in self._calls[id(node)])

    def _sure(self, node: ast.AST) -> Iterator[ast.AST]:
        """All nodes that an expression is sure to evaluate."""
        yield node
        match node:
            case ast.BoolOp(values=[first, *_]):
                yield from self._sure(first)
            case ast.IfExp(test=test):
                yield from self._sure(test)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self._sure(child)

    def _leading(self, node: ast.Call) -> list[Scope] | None:
        """The functions by all of which a call comes there; none where it does itself, None where it never does."""
        call = self.context.program.call(node)
        if call is None or self.blank or own_ranks.in_handler(self.context, node):
            return None
        if own_ranks.needs_them(self.context, call):
            return []
        entered = [scope for it in call.callees for scope, *_ in self.context.program.targets(it, call)]
        functions = [self.context.program.scopes[index] for index in entered]
        return functions if functions and not call.names else None

    # What conditions answer

    def truth(self, test: ast.expr, depth: int = 0) -> bool | None:
        """What a condition answers; None where it may answer either."""
        if id(test) not in self.context.program.nodes:
            return self._truth(test, depth)
        if id(test) not in self._truths:
            self._truths[id(test)] = None
            self._truths[id(test)] = self._truth(test, depth)
        return self._truths[id(test)]

    def _truth(self, test: ast.expr, depth: int) -> bool | None:
        if id(test) in self.structural and not isinstance(test, ast.IfExp):
            return self.structural[id(test)]
        match test:
            case ast.Constant(value=value):
                return bool(value)
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                answer = self.truth(inner, depth)
                return None if answer is None else not answer
            case ast.BoolOp(op=kind, values=values):
                decides = isinstance(kind, ast.Or)
                answers = [self.truth(value, depth) for value in values]
                return decides if decides in answers else None if None in answers else not decides
            case ast.IfExp(test=inner, body=one, orelse=two):
                chosen = self.truth(inner, depth)
                answers = {
                    self.truth(it, depth)
                    for it in ([one, two] if chosen is None else [one if chosen else two])
                }
                return answers.pop() if len(answers) == 1 else None
        ways = () if self.blank else (True, False)
        never = [answer for answer in ways if self.contradict(self.said(test, answer), self.known)]
        if len(never) == 1:
            return not never[0]
        if isinstance(test, ast.Compare):
            return self._compares(test, depth)
        answers = {self.truth(it, depth + 1) for it in self._sources(test, depth)}
        return answers.pop() if len(answers) == 1 else None

    def _compares(self, test: ast.Compare, depth: int) -> bool | None:
        left, right = (self._constant(it, depth) for it in (test.left, test.comparators[0]))
        if len(test.ops) != 1 or left is None or right is None:
            return None
        return compared(test.ops[0], left[0], right[0])

    def _constant(self, node: ast.expr, depth: int) -> tuple[object] | None:
        """The one constant that an expression is; in a tuple, as it may be None."""
        if (written := constant(node)) is not None or depth > DEPTH:
            return written
        found = [self._constant(it, depth + 1) for it in self._sources(node, depth)]
        return found[0] if found and all(it == found[0] for it in found) else None

    def _sources(self, node: ast.expr, depth: int) -> list[ast.expr]:
        """The expressions one of which a value is, without those that are never come to; empty where one is unknown."""
        if depth > DEPTH or id(node) not in self.context.program.nodes:
            return []
        if isinstance(node, ast.Call):
            call = self.context.program.call(node)
            if call is not None and own_ranks.is_denied(call):
                return [] if self.blank else [ast.Constant(False)]
            return self._returned(call) if call is not None else []
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return []
        found = self._given(node) or assigned(self.context, node)
        return [it for it in found if not self._is_never(it)]

    def _returned(self, call: Call) -> list[ast.expr]:
        """What a function of the project returns, by the ways that may be gone."""
        entered = [scope for it in call.callees for scope, *_ in self.context.program.targets(it, call)]
        if call.names or len(entered) != 1 or len(call.callees) != 1:
            return []
        found: list[ast.expr] = []
        scope = self.context.program.scopes[entered[0]]
        if any(isinstance(it, ast.Yield | ast.YieldFrom) for it in self.context.program.body(scope)):
            return []
        ends = self._ends(scope.body, found)
        return found if ends else []

    def _ends(self, block: list[ast.stmt], found: list[ast.expr]) -> bool:
        """Whether all ways through a block end the function, in one of the values found."""
        for statement in block:
            if self._hits_statement(statement):
                return True
            match statement:
                case ast.Return(value=value):
                    found.append(value or ast.Constant(None))
                    return True
                case ast.Raise():
                    return True
                case ast.If(test=test, body=body, orelse=orelse):
                    truth = self.truth(test)
                    ways = [body, orelse] if truth is None else [body if truth else orelse]
                    if all([self._ends(way, found) for way in ways]):
                        return True
                case _ if any(
                    isinstance(it, ast.Return) for it in self.context.program.descendants(statement)
                ):
                    found.append(ast.Name("unknown", ast.Load()))
        return False

    def _is_never(self, node: ast.AST) -> bool:
        """Whether a place stands where the program does not come to."""
        inside = node
        for around in self.context.program.ancestors(node):
            if isinstance(around, FUNCTIONS):
                return self.never_runs(self.context.program.by_node[id(around)])
            if isinstance(around, ast.If) and inside is not around.test:
                if self.answer(around) is (inside not in around.body):
                    return True
            inside = around
        return False

    def answer(self, node: ast.If | ast.IfExp) -> bool | None:
        """The one way that is gone at a condition; None where both may be.

        What constants alone say counts for nothing, but for those that calls of a function give: others may set more.
        """
        if id(node) in self.structural:
            return self.structural[id(node)]
        truth = self.truth(node.test)
        if truth is not None and self._constants.truth(node.test) is None:
            return truth
        said = {answer: self.said(node.test, answer) for answer in (True, False)}
        never = [answer for answer, it in said.items() if it >= IMPOSSIBLE or self.contradict(it, self.known)]
        return not never[0] if never else None

    @cached_property
    def _constants(self) -> Answers:
        return self if self.blank else Answers(self.context, blank=True)

    # What conditions say

    def around(self, node: ast.AST) -> Literals:
        """What is so where a node runs, by the conditions round it in its function."""
        found = NOTHING
        inside = node
        for outer in self.context.program.ancestors(node):
            if isinstance(outer, (*FUNCTIONS, ast.ClassDef)):
                break
            if isinstance(outer, ast.If | ast.IfExp) and inside is not outer.test:
                body = outer.body if isinstance(outer.body, list) else [outer.body]
                found |= self.said(outer.test, any(part is inside for part in body))
            if isinstance(inside, ast.stmt):
                found |= self._passed(outer, inside)
            inside = outer
        return found

    def _passed(self, around: ast.AST, statement: ast.stmt) -> Literals:
        """What is so behind the conditions before a statement of a block: ``if not several: return``."""
        found = NOTHING
        for _, block in ast.iter_fields(around):
            if isinstance(block, list) and any(it is statement for it in block):
                for before in itertools.takewhile(lambda it: it is not statement, block):
                    if isinstance(before, ast.If) and _leaves(before.body) is not _leaves(before.orelse):
                        found |= self.said(before.test, _leaves(before.orelse))
        return found

    def contradict(self, literals: Literals, assumed: Iterable[Literal]) -> bool:
        """Whether something can't be so where all that is assumed is."""
        every = self.implied(literals) | frozenset(assumed)
        equal = [(it.subject, it.comparison) for it in every if it.positive and it.comparison[:1] == ("==",)]
        several = len({subject for subject, _ in equal}) < len(equal)
        return several or any(~it in every for it in every)

    def said(self, test: ast.expr, positive: bool = True) -> Literals:
        """What is so where a condition is true, or where it is not."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                return self.said(test.operand, not positive)
            case ast.BoolOp():
                decides = isinstance(test.op, ast.Or)
                left = [it for it in test.values if self._truths.get(id(it)) is not (not decides)]
                if decides is not positive or len(left) == 1:
                    return NOTHING.union(*(self.said(value, positive) for value in left))
            case ast.Compare(
                ops=[ast.In()], comparators=[ast.List() | ast.Tuple() as listed]
            ) if not positive:
                equal = [ast.Compare(test.left, [ast.Eq()], [it]) for it in listed.elts]
                return NOTHING.union(*(self.said(it, False) for it in equal))
            case ast.Compare(ops=[ast.NotIn()], comparators=[ast.List() | ast.Tuple()]) if positive:
                return self.said(ast.Compare(test.left, [ast.In()], test.comparators), False)
            case ast.Compare(ops=[ast.In() | ast.NotIn() as kind], comparators=[held]) if constant(test.left):
                word = ("in", "not in", ast.unparse(test.left))
                return frozenset([Literal(self.subject(held), word, isinstance(kind, ast.In) is positive)])
            case ast.Compare(ops=[kind], comparators=[right]):
                return self._compared(test.left, type(kind), right, positive)
            case ast.Call(func=ast.Name(id="hasattr"), args=[held, ast.Constant(value=str() as name)]):
                return frozenset([Literal(self.subject(held), ("has", "has not", name), positive)])
            case ast.Call(func=ast.Name(id="bool"), args=[inner]):
                return self.said(inner, positive)
            case ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call() if isinstance(
                test, ast.Name
            ) or key(test):
                return frozenset([replace(Literal(self.subject(test)), positive=positive)])
        return NOTHING

    def _compared(self, left: ast.expr, kind: type, right: ast.expr, positive: bool) -> Literals:
        if kind in OPPOSITES:
            kind, positive = OPPOSITES[kind], not positive
        written = constant(right)
        if kind not in OPERATORS or written is None:
            return NOTHING
        word, opposite, _ = OPERATORS[kind]
        known = [constant(it) for it in self._given(left)]
        if known and None not in known and kind is not ast.Is:
            answers = {compared(kind(), value, written[0]) for (value,) in known}  # type: ignore[misc]
            return IMPOSSIBLE if answers == {not positive} else NOTHING
        if isinstance(written[0], bool) and kind in (ast.Eq, ast.Is):
            return self.said(left, positive is written[0])
        return frozenset([Literal(self.subject(left), (word, opposite, ast.unparse(right)), positive)])

    def implied(self, literals: Iterable[Literal]) -> Literals:
        """These, and what follows from how options are computed from others: ``a.x = a.y > 1 or a.z``."""
        found = set(literals)
        for literal in list(found):
            for option, value in self._computed.items():
                whole = Literal(option)
                if literal == whole or literal == ~whole:
                    found |= self.said(value, literal.positive)
                elif isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
                    if any(self.said(it) == {literal} for it in value.values):
                        found.add(whole)
        return frozenset(found)

    @cached_property
    def _computed(self) -> dict[str, ast.expr]:
        """The options that a program computes, each in one place."""
        computed = {}
        for name, places in self.context.attribute_assignments.items():
            found = [it.value for target, it in places if is_options(self.context, target.value)]
            if len(found) == 1:
                computed[OPTION + name] = found[0]
        return computed

    # Names

    def subject(self, node: ast.expr, depth: int = 0) -> str:
        """One name for a value, wherever it is used."""
        if id(node) not in self._subjects or id(node) not in self.context.program.nodes:
            self._subjects[id(node)] = self._subject(node, depth)
        return self._subjects[id(node)]

    def _subject(self, node: ast.expr, depth: int) -> str:
        program = self.context.program
        given = self._given(node) if depth < DEPTH else []
        names = {self.subject(it, depth + 1) for it in given}
        if len(names) == 1:
            return names.pop()
        held, name = key(node) or (None, "")
        if held is not None:
            if is_options(self.context, held):
                return OPTION + name
            if ast.unparse(held) in ENVIRONMENT:
                return f"environment {name}"
        if id(node) not in program.nodes:
            return f" {ast.unparse(node)}"
        if isinstance(node, ast.Name | ast.Attribute) and depth < DEPTH:
            found = [it for it in program.definitions(node) if not isinstance(it, ast.arg)]
            statement = program.statement(found[0]) if len(found) == 1 else None
            if isinstance(statement, ast.Assign) and key(statement.value) and found[0] in statement.targets:
                return self.subject(statement.value, depth + 1)
        if held is not None:
            return f"{name} of {self._holder(held, depth)}"
        if isinstance(node, ast.Name):
            return f"{_where(self._home(node))} {node.id}"
        return f"{_where(program.scope(node))} {ast.unparse(node)}"

    def _holder(self, node: ast.expr, depth: int) -> str:
        """One name for what holds options: a configuration, an object, a module."""
        program = self.context.program
        classes = {getattr(it, "cls", it) for it in program.values(node)}
        if len(classes) != 1:
            return self.subject(node, depth + 1)
        match held := classes.pop():
            case Cls() | Func():
                return f"{type(held).__name__} {_where(program.scopes[held.scope])}"
            case Made() | Coll():
                site = program.node(held.site)
                line = getattr(site, "lineno", 0), getattr(site, "col_offset", 0)
                return f"{type(held).__name__} {full_name(held)} {line} {_where(program.scope(site))}"
        return str(held)

    def _home(self, name: ast.Name) -> Scope:
        """The scope that binds a name."""
        program = self.context.program
        return next((program.scope(it) for it in program.variable(name)), program.scope(name))

    def _given(self, node: ast.expr) -> list[ast.expr]:
        """What the calls of a function give for the parameter that a name is; nothing for others."""
        known = isinstance(node, ast.Name) and id(node) in self.context.program.nodes
        definitions = self.context.program.definitions(node) if known else []
        alone = definitions[0] if len(definitions) == 1 else None
        return self.context.program.given(alone) if isinstance(alone, ast.arg) else []


def _where(scope: Scope) -> str:
    """A scope by its place in the source, which stays where the program is looked at in another form."""
    node = scope.node
    return f"{scope.file.path}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"


def key(node: ast.AST) -> tuple[ast.expr, str] | None:
    """What an option is asked of, and its name: ``opt.x``, ``opt["x"]``, ``opt.get("x")``, ``getattr(opt, "x", …)``.

    Of a name, the empty ones.
    """
    match node:
        case ast.Attribute(value=held, attr=name):
            return held, name
        case ast.Subscript(value=held, slice=ast.Constant(value=str() as name)):
            return held, name
        case ast.Call(
            func=ast.Attribute(value=held, attr="get"), args=[ast.Constant(value=str() as name), *_]
        ):
            return held, name
        case ast.Call(func=ast.Name(id="getattr"), args=[held, ast.Constant(value=str() as name), *_]):
            return held, name
    return None


def constant(node: ast.expr) -> tuple[object] | None:
    """The value of a literal, in a tuple: it may be None."""
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError):
        return None


def is_options(context: Context, node: ast.expr) -> bool:
    """Whether an expression is what a parser made of the command line."""
    values = context.program.values(node)
    return bool(values) and all(map(is_parsed, values))


def is_parsed(value: Value) -> bool:
    """Whether a value is what a parser made of the command line."""
    return full_name(value).endswith(PARSED)


def _leaves(block: list[ast.stmt]) -> bool:
    """Whether a block leaves what it stands in, at its end."""
    return bool(block) and isinstance(block[-1], LEAVING)


def _fails(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], ast.Raise)
