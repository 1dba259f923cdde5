"""What has to be known of any loop that evaluates, for processes to evaluate different batches in it.

Its models are in evaluation mode and leave nothing behind, whatever they are called with; nobody goes on after an
exception that one process alone has; and what is called changes nothing but what it returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeGuard

from dp2ddp.analyse.api.containers import CHANGES
from dp2ddp.analyse.api.iteration import HANDS_OUT_ALL, NUMBERS_OR_PAIRS
from dp2ddp.analyse.api.layers import FORWARD_HOOKS, PURE_FUNCTIONS, STATELESS
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.processes import DEALS_BATCHES, RANK_VARIABLES, RANKS
from dp2ddp.analyse.api.purity import (
    COPIES_OBJECT,
    IN_PLACE,
    NOT_PURE,
    PURE,
    PURE_BUILTINS,
    PURE_METHOD_HOMES,
    PURE_METHODS,
)
from dp2ddp.analyse.context import LOOPS, Context, root_name
from dp2ddp.analyse.dataflow.samples.writes.looks import looks_at
from dp2ddp.analyse.processes import alike
from dp2ddp.analyse.processes.counts import made_of_count
from dp2ddp.analyse.processes.exclusions import is_come_to
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.updates import updated
from dp2ddp.analyse.program.values import Inst, Made, Values, full_name
from dp2ddp.analyse.training.gathering import Gathering
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.facts import Effect
from dp2ddp.source import Location

# What to do about some reasons, by what they say.
CURES = {
    "not name its loader": "write `for batch in loader:`",
    "which DataLoader": "loop over one DataLoader",
    "over a DataLoader": "loop over the DataLoader itself",
    "may change the batches": "loop over the DataLoader itself",
    "another loop over batches": "move that loop out of this one",
    "in the `for` line": "call it in the loop's body",
    "under a condition": "call it once per batch, without a condition",
    "several times": "call it once",
    "inside a function": "call it in the loop itself",
    "once per batch": "call it once, in the loop itself",
    "in the loop runs on rank 0 only": "do that after the loop",
    "only rank 0 calls": "call it on all ranks",
    "it contains": "move that out of the loop",
    "sums up no result": "add up its results in the loop",
    "no variable name": "assign the DataLoader to a variable",
    "outside of the loop": "set it anew for each batch",
    "of the last batch": "use the sum or average instead",
    "in several ways": "fill it in one way",
    "per batch or sample": "append one entry per batch or sample",
    "one entry per sample": "keep one entry per sample",
    "is read inside the loop": "read it after the loop",
    "empty or zero before": "reset it right before the loop",
    "initialization and the loop": "reset it right before the loop",
    "more than sums and averages": "use its sum or average only",
    "it assigns to": "assign after the forward",
    "given the batch": "call it with the loop's batch",
    "come from this batch": "set it anew for each batch",
    "stored by a forward": "return it from the forward",
    "same statement as the forward": "use it in a statement of its own, after the forward",
    "it calls assigns": "return the value instead",
    "it calls changes": "return the value instead",
    "called in an inner loop": "call it once for each batch",
    "called under a condition": "call it for each batch, whatever the condition",
    "forward hooks": "remove the hooks",
    "not set to eval()": "call its `.eval()` there",
    "model draws random numbers": "",
    "draws random numbers": "draw them before the loop",
    "is random": "draw it before the loop",
    "may have side effects": "do that after the loop",
    "has side effects": "do that after the loop",
    "fit a smaller batch": "keep dimension 0 as it is",
    "single sample": "keep dimension 0 as it is",
    "one row per sample": "keep one row per sample",
    "where each rank has its own": "use it after the loop only",
    "before the forward": "read it after the forward",
    "per replica": "return one row per sample",
    "batch index": "count samples instead",
    "copy of the model": "use the model itself",
    "comes from a dict": "write `batch_size=` in the call",
    "batch of 1": "use a larger batch size, if the loop can take one",
    "not be divisible": "make one row per sample there, or only add up numbers in the loop",
    "read elsewhere": "use another name here",
    "may end early": "go through all batches",
    "needs gradients": "use `torch.no_grad()`",
    "is not a tensor": "make it a tensor",
    "one tensor, which": "clone one of them",
    "only one rank": "run it on all ranks",
    "exceptions": "don't catch them there",
}


class Whole(Exception):
    """Why every process must evaluate everything, and what to do about it."""

    def __init__(self, node: ast.AST, reason: str, cure: str = "") -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason
        self.cure = cure or next(
            (it for words, it in CURES.items() if words in reason), "move that out of the loop"
        )


def is_dealt(context: Context, node: ast.AST) -> bool:
    """Whether something is a loader whose batches are dealt already."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    return call is not None and bool(call.names & DEALS_BATCHES)


def calls_of(context: Context, runs: frozenset[int] | set[int]) -> Iterator[Call]:
    """The calls among some nodes, in source order."""
    nodes = context.program.in_order(runs)
    calls = (context.program.call(node) for node in nodes if isinstance(node, ast.Call))
    return (call for call in calls if call is not None)


class Surroundings:
    """What the loops of a program have in common."""

    def __init__(self, context: Context, loops: list[BatchLoop], effects: tuple[Effect, ...]) -> None:
        self.context, self.program = context, context.program
        self.effects = [(Location(effect.path, effect.at.span), effect) for effect in effects]
        self.samples = Gathering(context, loops)

    def runs_model(self, loop: BatchLoop) -> bool:
        return any(
            self.context.is_wrapped(call.callees) or call.callees & self.context.trained_modules
            for call in calls_of(self.context, loop.runs)
        )

    @cached_property
    def hook(self) -> ast.Call | None:
        """What has forwards call something else, too."""
        calls = (node for node in self.program.nodes.values() if isinstance(node, ast.Call))
        hooking = (it for it in calls if getattr(it.func, "attr", "") in FORWARD_HOOKS)
        return next((it for it in hooking if is_come_to(self.context, it)), None)

    @cached_property
    def going_on(self) -> list[tuple[ast.ExceptHandler, ast.Try]]:
        """The handlers after which a process goes on alone."""
        return [
            (it, node)
            for node in self.program.nodes.values()
            if isinstance(node, ast.Try)
            for it in node.handlers
            if not alike.ends(self.context, it.body)
            and (it.type is None or ast.unparse(it.type) != "KeyboardInterrupt")
        ]

    @cached_property
    def by_count(self) -> ast.expr | None:
        """What is made of the number of GPUs in a forward: with nn.DataParallel, each has its part of every batch."""
        bodies = [
            list(self.program.body(self.program.scopes[index])) for index in sorted(self.context.forwards)
        ]
        told = {id(it) for body in bodies for node in body if _only_calls(node) for it in ast.walk(node.test)}
        return made_of_count(self.context, (it for body in bodies for it in body if id(it) not in told))


class EvaluationLoop:
    """One loop, looked at."""

    def __init__(self, around: Surroundings, loop: BatchLoop) -> None:
        self.around = around
        self.context, self.program = around.context, around.program
        self.loop, self.node = loop, loop.node
        self.inside = {id(node) for node in ast.walk(loop.node)}

    def _draw(self) -> ast.expr:
        """The loader in the loop's header."""
        draws = self.loop.draws
        named = [it for it in ast.walk(self.node.iter) if isinstance(it, ast.Name)]
        bars = {id(it): bar for it in named if (bar := self._bar(it)) is not None}
        places = [self.node, *map(self.program.statement, bars.values())]
        if len(draws) != 1 or self.program.statement(draws[0]) not in places or self.node.orelse:
            raise Whole(self.node, "its `for` line does not name its loader")
        values = self.program.values(draws[0])
        if not values or not all(map(self.context.is_loader, values)):
            raise Whole(self.node, "it may not iterate over a DataLoader")
        around = self.node.iter
        while around is not draws[0]:
            if id(around) in bars:
                around = bars[id(around)]
                continue
            call = self.program.call(around)
            through = self._through(call) if call is not None else []
            if len(through) != 1:
                raise Whole(self.node, f"`{ast.unparse(self.node.iter)}` may change the batches")
            (around,) = through
        return draws[0]

    def _through(self, call: Call) -> list[ast.expr]:
        """What a call hands all elements of out, in order, or hands on as it is."""
        if call.names:
            return call.node.args[:1] if call.names <= HANDS_OUT_ALL else []
        values = self.program.values(call.node)
        all_out = HANDS_OUT_ALL - NUMBERS_OR_PAIRS
        whole = all(full_name(it) in all_out or self.context.is_loader(it) for it in values)
        return self.program.handed_on(call) if whole else []

    def _bar(self, name: ast.Name) -> ast.expr | None:
        """What a loop's header gives a name right before it, for the loop alone.

        ``bar = tqdm(loader)``, or ``with tqdm(loader) as bar:`` round it: what is entered hands itself out.
        """
        program = self.program
        definitions = program.definitions(name)
        statement = program.statement(definitions[0]) if len(definitions) == 1 else None
        outermost: ast.stmt = self.node
        contexts: list[ast.stmt] = []
        while isinstance(around := program.parent(outermost), ast.With | ast.AsyncWith):
            outermost = around
            contexts.append(around)
        blocks = [program.block(it) for it in (self.node, outermost)]
        if isinstance(statement, ast.Assign) and statement.targets == definitions:
            value = statement.value if program.block(statement) in blocks else None
        else:
            items = statement.items if isinstance(statement, ast.With) and statement in contexts else []
            value = next((it.context_expr for it in items if it.optional_vars in definitions), None)
        if value is None or self._counts(value):
            return None
        for node in program.body(program.scope(name)):
            read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node is not name
            if read and definitions[0] in program.definitions(node):
                told = program.parent(
                    program.parent(node)
                )  # `bar.set_description(…)`, whose result nobody uses
                alone = isinstance(told, ast.Call) and isinstance(program.parent(told), ast.Expr)
                if not alone or not isinstance(program.parent(node), ast.Attribute):
                    return None
        return value

    def _counts(self, node: ast.expr) -> bool:
        """Whether something numbers what a loop takes."""
        calls = [self.program.call(it) for it in ast.walk(node) if isinstance(it, ast.Call)]
        return any(call is not None and "builtins.enumerate" in call.names for call in calls)

    def _index(self) -> ast.expr | None:
        """What gets the number of the batch, where something counts them."""
        if not self._counts(self.node.iter):
            return None
        return self.node.target.elts[0] if isinstance(self.node.target, ast.Tuple) else self.node.target

    def _check_models(self) -> None:
        """Every module that is called is a wrapped one, in evaluation mode, and none calls something else, too."""
        if self.around.hook is not None:
            raise Whole(self.around.hook, "the model's forward hooks may need whole batches")
        for call in calls_of(self.context, self.loop.runs):
            called = self._modules(call.callees)
            if called and self._is_copy(call.node.func):
                raise Whole(call.node, "a copy of the model is used, with its own buffers")
            if called and not self._is_evaluated(called):
                raise Whole(
                    call.node,
                    f"`{ast.unparse(call.node.func)}` is not set to eval() right before the loop",
                )

    def _check_handlers(self) -> None:
        """Nobody goes on after an exception that one process alone may have in the loop."""
        for handler, node in self.around.going_on:
            if any(id(self.node) in self.context.runs(it) for it in node.body):
                raise Whole(handler, "exceptions in the loop are caught")

    def _check_company(self) -> None:
        """No condition round the loop, or round a call that leads to it, keeps it to one process."""
        waiting: list[ast.AST] = [self.node]
        seen: set[int] = set()
        while waiting:
            for around in self.program.ancestors(waiting.pop()):
                if isinstance(around, ast.If | ast.IfExp | ast.While) and self._asks_for_rank(around.test):
                    raise Whole(around.test, f"only one rank runs it, `if {ast.unparse(around.test)}`")
                if isinstance(around, ast.FunctionDef) and id(around) not in seen:
                    seen.add(id(around))
                    waiting += self.context.callers.get(self.program.by_node[id(around)].index, [])

    def _asks_for_rank(self, test: ast.AST, depth: int = 0) -> bool:
        """Whether a condition asks which process this is."""
        entered = [self.program.scopes[index] for index in self.program.entered(test)]
        for node in (*ast.walk(test), *(node for scope in entered for node in self.program.body(scope))):
            call = self.program.call(node) if isinstance(node, ast.Call) else None
            if call is not None and call.names & RANKS:
                return True
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and node.value in RANK_VARIABLES
            ):
                return True
            if isinstance(node, ast.Name | ast.Attribute) and depth < 3:
                made = (it for it in self.program.definitions(node) if not isinstance(it, ast.arg))
                values = (getattr(self.program.statement(it), "value", None) for it in made)
                if any(it is not None and self._asks_for_rank(it, depth + 1) for it in values):
                    return True
        return False

    def _is_copy(self, called: ast.expr, depth: int = 0) -> bool:
        """Whether a model may be a copy; a wrapped one that is an argument is evaluated as the model is."""
        for made in self.program.definitions(called) if depth < 4 else ():
            if isinstance(made, ast.arg):
                if any(self._is_copy(given, depth + 1) for given in self.program.given(made)):
                    return True
                continue
            right = getattr(self.program.statement(made), "value", None)
            call = self.program.call(right) if isinstance(right, ast.Call) else None
            copies = call is not None and call.names & COPIES_OBJECT
            if copies and not (depth and self.context.is_wrapped(self.program.values(right))):
                return True
        return False

    def _modules(self, values: Values) -> set[object]:
        """The wrapped modules among some values, their wrappers too."""
        found: set[object] = set()
        for value in values:
            if isinstance(value, Made) and value.name == WRAP:
                found |= {value, *self.context.inside(value)}
            elif value in self.context.trained_modules:
                found.add(value)
        return found

    def _held(self, values: Values, depth: int = 0) -> set[object]:
        """The wrapped modules among some values, and those that are parts of them."""
        modules = [it for it in values if isinstance(it, Inst) and self.context.module_class(it)]
        parts = [held for it in modules if depth < 3 for _, held in self.program.fields(it)]
        return self._modules(values).union(*(self._held(it, depth + 1) for it in parts))

    def _is_evaluated(self, called: set[object], node: ast.stmt | None = None, depth: int = 0) -> bool:
        """Whether models are in evaluation mode where a statement, the loop, is come to."""
        node = node or self.node
        block = self.program.block(node)
        for statement in reversed(block[: block.index(node)]):
            match statement:
                case ast.Expr(
                    value=ast.Call(func=ast.Attribute(value=model, attr="eval" | "train" as mode), args=args)
                ):
                    if self._held(self.program.values(model)) & called:
                        return mode == "eval" or _is_false(args)
                case ast.Assign(value=ast.Call(func=ast.Attribute(value=model, attr="eval"))):
                    if self._held(self.program.values(model)) & called:
                        return True
            if self._may_train(statement, called):
                return False
        around = self.program.parent(node)
        if isinstance(around, ast.With | ast.If | ast.Try):
            return self._is_evaluated(called, around, depth)
        if not isinstance(around, ast.FunctionDef) or depth > 3:
            return False
        calls = self.context.callers.get(self.program.by_node[id(around)].index, [])
        places = [self.program.statement(call) for call in calls]
        return bool(places) and all(self._is_evaluated(called, it, depth + 1) for it in places)

    def _may_train(self, statement: ast.stmt, called: set[object]) -> bool:
        """Whether a statement may put a part of a module into training mode."""
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            return False
        entered = [self.program.scopes[index] for index in self.program.entered(statement)]
        run = [*ast.walk(statement), *(node for scope in entered for node in self.program.body(scope))]
        for node in run:
            match node:
                case ast.Call(func=ast.Attribute(value=model, attr="train"), args=args) if not _is_false(
                    args
                ):
                    others = self._modules(self.program.values(model))
                    if not others or others & called:
                        return True
                case ast.Attribute(attr="training", ctx=ast.Store()):
                    return True
        return False

    def _is_older(self, name: ast.Name, seen: set[str]) -> bool:
        """Whether a name may stand for something that was made before the loop, or for a part of it."""
        if not self._is_own(name.id):
            made = map(self.program.statement, self.program.definitions(name))
            return not any(isinstance(it, ast.Import | ast.ImportFrom) for it in made)
        if name.id in seen:
            return False
        given: list[ast.expr] = []
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign):
                if any(name.id in _stored(target) for target in node.targets):
                    given.append(node.value)
            elif isinstance(node, ast.For) and node is not self.node and name.id in _stored(node.target):
                given.append(node.iter)
        seen.add(name.id)
        return any(self._is_older(root, seen) for value in given for root in _looks_at(value))

    def _check_discarded(self, call: ast.Call) -> None:
        """A method whose result nobody looks at is called for what else it does."""
        found = self.program.call(call)
        if found is None or not found.names or not all(map(_is_pure_name, found.names)):
            raise Whole(call, f"`{ast.unparse(call.func)}` may have side effects")

    def _is_own(self, name: str) -> bool:
        """Whether a name is assigned in the loop, anew for each batch."""
        return name in self._own

    @cached_property
    def _own(self) -> set[str]:
        """The names that the loop assigns, but for those that it adds to."""
        comprehended = {
            id(inner)
            for node in ast.walk(self.node)
            if isinstance(node, ast.comprehension)
            for inner in ast.walk(node.target)
        }
        return {
            node.id
            for node in ast.walk(self.node)
            if isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in comprehended
            and not self._is_addition(self.program.statement(node), node)
        }

    def _is_addition(self, statement: ast.stmt, node: ast.Name) -> bool:
        change = updated(statement)
        written = isinstance(statement, ast.AugAssign)
        return change is not None and change.target is node and (written or isinstance(change.op, ast.Add))

    def _check_function(self, scope: Scope, node: ast.AST, in_forward: bool) -> None:
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await):
            raise Whole(node, f"`{ast.unparse(node)}` in a function that it calls has side effects")
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            base = base_name(node)
            if (
                isinstance(node, ast.Attribute)
                or base is None
                or base.id not in scope.names
                or base.id in scope.params
            ):
                raise Whole(node, f"a function that it calls assigns to `{ast.unparse(node)}`")
            elif self._is_given(base, scope):
                raise Whole(node, f"a function that it calls changes `{base.id}`")
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            is_kept = self._is_held(node.target, scope) if in_forward else self._is_given(node.target, scope)
            if is_kept:
                raise Whole(node, f"a function that it calls changes `{node.target.id}`")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            own = self.program.called_scopes(node.value)
            root = root_name(node.value.func)
            if not in_forward and not own and (root is None or not _is_local(scope, root.id)):
                self._check_discarded(node.value)
        self._check_node(node, in_forward)

    def _is_given(self, name: ast.Name, scope: Scope, seen: set[int] | None = None) -> bool:
        """Whether a name in a function may stand for something that was there before, or for a part of it."""
        seen = set() if seen is None else seen
        if id(name) in seen:
            return False
        seen.add(id(name))
        for made in self.program.definitions(name):
            if isinstance(made, ast.arg):
                return True
            statement = self.program.statement(made)
            if self.program.scope(statement) is not scope:
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    return True
            elif isinstance(statement, ast.Assign | ast.For):
                value = statement.value if isinstance(statement, ast.Assign) else statement.iter
                if any(self._is_given(root, scope, seen) for root in _looks_at(value)):
                    return True
        return False

    def _is_held(self, value: ast.expr, scope: Scope) -> bool:
        """Whether a value in a method may be something that its object keeps."""
        me = scope.params[:1] if scope.owner is not None else []
        for root in _looks_at(value):
            if root is not value and root.id in me:
                return True
            for made in self.program.definitions(root) if root is value else ():
                statement = None if isinstance(made, ast.arg) else self.program.statement(made)
                if isinstance(statement, ast.Assign):
                    if any(it.id in me for it in _looks_at(statement.value)):
                        return True
        return False

    def _check_node(self, node: ast.AST, in_forward: bool) -> None:
        if isinstance(node, ast.Call):
            self._check_call(node, in_forward)
        elif isinstance(node, LOOPS) and node is not self.node:
            source = getattr(node, "iter", None)
            if isinstance(node, ast.AsyncFor) or (
                source is not None
                and self.context.made(self.context.iterated(self.program.values(source)), LOADER)
            ):
                raise Whole(node, "it contains another loop over batches")
        elif isinstance(node, ast.With):
            for item in node.items:
                if any(isinstance(it, Inst) for it in self.program.values(item.context_expr)):
                    raise Whole(node, f"`with {ast.unparse(item)}` may have side effects")
        elif isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await):
            raise Whole(node, f"it contains `{ast.unparse(node)}`")

    def _check_call(self, node: ast.Call, in_forward: bool) -> None:
        call = self.program.call(node)
        if call is not None and (draws_always(call)):
            drawn = ast.unparse(node.func)
            if in_forward:
                raise Whole(node, f"the model draws random numbers by `{drawn}`, which sharding changes")
            raise Whole(node, f"`{drawn}` draws random numbers")
        writes = any(it.arg == "out" for it in node.keywords)
        if call is None or writes or not self._is_pure(call, in_forward):
            raise Whole(node, f"`{ast.unparse(node.func)}` may have side effects")

    def _is_pure(self, call: Call, in_forward: bool) -> bool:
        if self._modules(call.callees) or (in_forward and self._is_layer(call)):
            return True
        own = self.program.entered_by(call)
        method = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""
        if own:
            return all(not self._has_state(value) for value in call.callees)
        holder = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        kept = isinstance(holder, ast.Name) and id(holder) in self._kept_uses()
        if method in CHANGES:
            return kept or (isinstance(holder, ast.Name) and self._is_fresh(holder))
        if holder is not None and method.endswith("_") and not method.startswith("__"):
            root = root_name(holder)
            if method not in PURE_METHODS or root is None:
                return False
            if in_forward:
                return not self._is_held(holder, call.scope)
            if id(root) in self.inside:
                return self._is_own(root.id) and not self._is_older(root, set())
            return _is_local(call.scope, root.id) and not self._is_given(root, call.scope)
        if call.names:
            return all(
                _is_pure_name(name)
                or (name.startswith(PURE_METHOD_HOMES) and name.rpartition(".")[-1] in PURE_METHODS)
                for name in call.names
            )
        return kept or method in PURE_METHODS

    def _is_layer(self, call: Call) -> bool:
        """Whether a call in a module's forward is one of its layers, or of its methods."""
        function: ast.expr = call.node.func
        if isinstance(function, ast.Attribute) and (function.attr in CHANGES or function.attr.endswith("_")):
            return False
        if call.callees:
            return all(map(self.context.module_class, call.callees))
        while isinstance(function, ast.Subscript | ast.Attribute):
            function = function.value
        return isinstance(function, ast.Name) and call.scope.params[:1] == [function.id]

    def _is_fresh(self, name: ast.Name) -> bool:
        """Whether a list, dict or set was made in the same place, for each batch."""
        made = self.program.definitions(name)
        right = [
            getattr(self.program.statement(it), "value", None) for it in made if not isinstance(it, ast.arg)
        ]
        is_new = len(right) == len(made) > 0 and all(map(_is_display, right))
        return is_new and self._is_made_there(name)

    def _is_made_there(self, name: ast.Name) -> bool:
        scope = self.program.scope(name)
        return self._is_own(name.id) if id(name) in self.inside else _is_local(scope, name.id)

    def _kept_uses(self) -> set[int]:
        """Where the loop looks at what it keeps."""
        return set()

    def _has_state(self, value: object) -> bool:
        """Whether a module of the project's, which is not wrapped, may have layers: they are this process's own."""
        if not isinstance(value, Inst) or not self.context.module_class(value):
            return False
        for index in self.program.methods(value, "__init__", self.program.node(value.site)):
            for node in self.program.body(self.program.scopes[index]):
                call = self.program.call(node) if isinstance(node, ast.Call) else None
                is_super = isinstance(node, ast.Call) and "super" in ast.unparse(node.func)
                losses = call is not None and call.names and all(map(_is_loss_name, call.names))
                if isinstance(node, ast.Call) and not is_super and not losses:
                    return True
        return False

    def _run(self, scopes: list[Scope]) -> Iterator[ast.AST]:
        yield from ast.walk(self.node)
        for scope in scopes:
            yield from self.program.body(scope)

    def _check_effects(self, nodes: Iterable[ast.AST]) -> None:
        """Nothing that is run must be done once; a progress bar in the header is not looked at."""
        known = self.program.nodes  # the body of a lambda is no statement of the file's
        parts = (it for it in nodes if isinstance(it, ast.expr | ast.stmt) and id(it) in known)
        places = set(map(self.program.location, parts))
        effect = next((effect for place, effect in self.around.effects if place in places), None)
        if effect is not None:
            raise Whole(self.node, f"`{effect.what}` in the loop runs on rank 0 only")

    def _uses(self, name: str) -> Iterator[ast.Name]:
        scope = self.program.scope(self.node)
        tree = self.program.file(self.node).tree if scope.is_module else scope.node
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield node

    def _is_carried(self, use: ast.Name, defined: list[ast.AST]) -> bool:
        """Whether a name that is assigned in the loop may still have what it had before."""
        order, statement = self.program.order, self.program.statement
        later = [it for it in defined if order[id(it)] > order[id(use)] or statement(it) is statement(use)]
        return bool(later) or (bool(defined) and len(defined) < len(self._reaching(use)))

    def _reaching(self, use: ast.Name) -> list[ast.AST]:
        """The definitions that a use may see: in the body of a ``for``, its target hides what was before."""
        found = self.program.definitions(use)
        inner: set[ast.AST] = set()
        for around in self.program.ancestors(use):
            if isinstance(around, ast.For) and any(it in found for it in ast.walk(around.target)):
                body = {id(it) for it in ast.walk(around)}
                order, statement = self.program.order, self.program.statement
                return [
                    it
                    for it in found
                    if id(it) in body
                    and (
                        order[id(it)] < order[id(use)] and statement(it) is not statement(use) or it in inner
                    )
                ]
            if isinstance(around, LOOPS):
                inner |= set(ast.walk(around))
        return found


def _is_display(value: ast.expr | None) -> bool:
    """Whether an expression makes a new list, dict or set."""
    if isinstance(value, ast.IfExp):
        return _is_display(value.body) and _is_display(value.orelse)
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _stored(target: ast.expr) -> set[str]:
    """The names that an assignment makes."""
    return {it.id for it in ast.walk(target) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}


def _looks_at(value: ast.expr) -> list[ast.Name]:
    """The names of which a value may be a part, or another look."""
    return [
        name
        for leaf in looks_at(value)
        for name in ([leaf] if isinstance(leaf, ast.Name) else _looks_at(leaf.value))  # type: ignore[attr-defined]
    ]


def _is_false(args: list[ast.expr]) -> bool:
    return bool(args) and ast.unparse(args[0]) == "False"


def _only_calls(node: ast.AST) -> TypeGuard[ast.If]:
    """Whether a statement calls something under a condition, and nothing else comes of that."""
    return isinstance(node, ast.If) and all(isinstance(it, ast.Expr) for it in (*node.body, *node.orelse))


def base_name(node: ast.expr | None) -> ast.Name | None:
    """The name behind subscripts: ``counts`` of ``counts[i][j]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _is_local(scope: Scope, name: str) -> bool:
    return name in scope.names and name not in scope.params and not scope.is_module


def _is_loss_name(name: str) -> bool:
    return name.startswith("torch.nn.") and name.endswith("Loss")


def draws_always(call: Call) -> bool:
    """Whether a call draws random numbers, in evaluation mode, too."""
    if alike.draws(call):
        return True
    if not any(name.startswith("torch.nn.functional.") and "dropout" in name for name in call.names):
        return False
    training = call.argument("training", 2)
    return training is None or not ast.unparse(training).endswith(("training", "False"))


def _is_pure_name(name: str) -> bool:
    if name in PURE_BUILTINS or name.startswith(PURE_FUNCTIONS):
        return True
    if name.startswith("torch.nn."):
        return name.endswith(STATELESS)
    return name.startswith(PURE) and not name.startswith(NOT_PURE) and not name.endswith(IN_PLACE)
