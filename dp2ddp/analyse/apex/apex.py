"""apex's O1: where the whole use of it is followed, torch.autocast and torch.amp.GradScaler do what it does.

O1 makes the functions of torch compute in half or in single precision, whoever calls them from then on, and scales
the loss. So every forward, and the loss made of it, is to run under autocast, in training and evaluation; what
``apex.amp`` was asked for is asked of one GradScaler, which comes to every function that needs it. All of it is
followed, or apex stays, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dp2ddp.analyse.apex import apex_wraps
from dp2ddp.analyse.apex.autocast import Regions, Unfollowed
from dp2ddp.analyse.api.handing import INITIALIZE
from dp2ddp.analyse.api.layers import AUTOGRAD_FUNCTION
from dp2ddp.analyse.api.parallel import WRAP
from dp2ddp.analyse.api.precision import (
    AMP,
    AMP_KNOWN,
    AMP_STATES,
    BESIDE_AUTOCAST,
    HARMLESS,
    INITIALIZE_PARAMETERS,
    LOADS_STATE,
    MASTER_PARAMETERS,
    SCALE,
    SCALE_PARAMETERS,
    SYNC_NORMS,
)
from dp2ddp.analyse.context import LOOPS, Context, option_names
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.signature import is_spread
from dp2ddp.analyse.program.values import (
    NOTHING,
    Bound,
    Ext,
    Func,
    Inst,
    Made,
    Value,
    Values,
    closure,
    full_name,
)
from dp2ddp.facts import NO_TIER, Obstacle, Precision
from dp2ddp.plan import DONE
from dp2ddp.source import SourceFile, parse

# A file, a line, and a column.
Position = tuple[Path, int, int]


def collect(context: Context, whole: Context) -> tuple[tuple[Precision, ...], tuple[Obstacle, ...]]:
    """What of apex becomes torch's own, and what stays; ``whole`` has the branches with ranks of their own, too."""
    calls = [
        it for it in context.program.calls if INITIALIZE in it.names and context.runs_in_training(it.node)
    ]
    wraps, norms = apex_wraps.collect(whole), list(_norms(whole))
    done = [*wraps.pieces, *(Precision(**whole.place(it), kind="norms") for it in norms)]
    gone, stays = {_position(whole, it) for it in (*wraps.names, *norms)}, wraps.obstacles
    if calls:
        use = _Use(context, calls, frozenset(gone))
        try:
            done += list(use.pieces())
            gone |= {_position(context, node.func) for nodes in use.uses.values() for node in nodes}
            stays += tuple(_unreadable(context, node) for node in use.uses[LOADS_STATE])
        except Unfollowed as reason:
            stays += tuple(_staying(context, call, reason) for call in calls)
    return (*done, *_imports(whole, gone)), stays


def _staying(context: Context, call: Call, reason: Unfollowed) -> Obstacle:
    return context.obstacle(
        call.node,
        f"apex amp stays as it is: {reason}",
        f"{DONE}, or use torch.autocast and torch.amp.GradScaler",
        NO_TIER,
        works=True,
    )


def _unreadable(context: Context, node: ast.Call) -> Obstacle:
    return context.obstacle(
        node,
        "old checkpoints hold the state of apex's scaler, which torch's scaler can't load",
        "to resume from one, remove this line; else no action needed",
        NO_TIER,
        works=True,
    )


def _norms(context: Context) -> Iterator[ast.expr]:
    """Where apex makes synchronized BatchNorm of a model's layers, as torch does."""
    for call in context.program.calls:
        alone = len(call.node.args) == 1 and not call.node.keywords
        if call.callees == {Ext(SYNC_NORMS)} and alone and context.runs_in_training(call.node):
            yield call.node.func


def _imports(context: Context, gone: set[Position]) -> Iterator[Precision]:
    """The imports of apex that nothing needs any more, with what stands round them in case it is not there."""
    for path in dict.fromkeys(path for path, *_ in gone):
        file = context.program.project.files[path]
        mentions = (it for it in ast.walk(file.tree) if isinstance(it, ast.Name))
        used = {it.id for it in mentions if (path, it.lineno, it.col_offset) not in gone}
        unused: dict[str, ast.stmt] = {}
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                around = context.program.parent(node)
                if isinstance(around, ast.Try) and not _only_imports(around):
                    used |= _bound(node)  # something asks whether apex is there
                unused |= dict.fromkeys(_bound(node), node)
            elif isinstance(node, ast.Try) and _only_imports(node):
                if not used & set().union(*map(_bound, node.body)):  # type: ignore[arg-type]
                    yield Precision(**context.place(node), kind="guard")
        names = sorted(unused.keys() - used)
        if names:
            yield Precision(**context.place(unused[names[0]]), kind="imports", names=tuple(names))


def _position(context: Context, node: ast.expr) -> Position:
    """Where an expression begins: there stands the name that it needs."""
    return (context.program.file(node).path, node.lineno, node.col_offset)


def _bound(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The names that an import of apex alone binds."""
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [it.name for it in node.names]
    if any(it.partition(".")[0] != "apex" for it in modules) or getattr(node, "level", 0):
        return set()
    return {it.asname or it.name.partition(".")[0] for it in node.names}


def _mentions(file: SourceFile) -> set[Position]:
    """Where a file uses the names that it imports of apex."""
    tree = parse(file.text)  # the file's own may be without branches that are not converted
    imports = (it for it in ast.walk(tree) if isinstance(it, ast.Import | ast.ImportFrom))
    names = set().union(*map(_bound, imports))
    found = (it for it in ast.walk(tree) if isinstance(it, ast.Name) and it.id in names)
    return {(file.path, it.lineno, it.col_offset) for it in found}


def _only_imports(guard: ast.Try) -> bool:
    """``try: from apex import amp``, and ``except ImportError:`` with a complaint or nothing."""
    imports = all(isinstance(it, ast.Import | ast.ImportFrom) and _bound(it) for it in guard.body)
    said = [it for handler in guard.handlers for it in handler.body]
    return imports and not guard.orelse and not guard.finalbody and all(map(_complains, said))


def _complains(statement: ast.stmt) -> bool:
    match statement:
        case ast.Pass() | ast.Raise():
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="print") | ast.Attribute(attr="warn" | "warning"))):
            return True
    return False


@dataclass(frozen=True)
class _Scale:
    """``with amp.scale_loss(loss, optimizer) as scaled_loss: scaled_loss.backward()``.

    ``choice`` is the condition that asks for mixed precision round it, if one does.
    """

    statement: ast.With
    loss: ast.expr
    backward: ast.Call
    choice: ast.If | None

    @property
    def whole(self) -> ast.stmt:
        return self.choice or self.statement

    @property
    def place(self) -> ast.stmt:
        """What ``scaler.scale(loss).backward()`` stands for: the choice too, where that is all it chooses."""
        if self.choice is not None and self.choice.body == [self.statement] and len(self.choice.orelse) == 1:
            other = self.choice.orelse[0]
            same = f"{ast.unparse(self.loss)}.backward{self.arguments}"
            return self.choice if ast.unparse(other) == same else self.statement
        return self.statement

    @property
    def arguments(self) -> str:
        """What backward() is given, in its parentheses."""
        given = [*map(ast.unparse, self.backward.args), *map(ast.unparse, self.backward.keywords)]
        return f"({', '.join(given)})"


@dataclass
class _Use:
    """All that a project does with ``apex.amp``; ``gone`` is where the names of apex are replaced already."""

    context: Context
    calls: list[Call]
    gone: frozenset[Position]
    _unscaled: set[int] = field(default_factory=set)
    _given: dict[int, Scope] = field(default_factory=dict)
    """The functions that are to be given the scaler, by their index."""

    def __post_init__(self) -> None:
        self.program = self.context.program

    def pieces(self) -> Iterator[Precision]:
        """Every piece of it."""
        self._alone()
        yield from self._starting()
        steps = {id(it.statement): self._step(it) for it in self.scales}
        for scale in self.scales:
            yield from self._scaled(scale, steps[id(scale.statement)])
        yield from self._asked_for()
        yield from self._handed_on()
        kept = [*(it.whole for it in self.scales), *map(self.program.statement, steps.values())]
        regions = Regions(self.context, self.choice or self.statement, kept)
        for first, last, scope, keeps in regions.find([(it.whole, it.loss) for it in self.scales]):
            yield Precision(
                **self._place(first),
                kind="forward",
                last=self.program.anchor(last),
                enabled=self._enabled(scope),
                given="" if keeps else ", cache_enabled=False",
            )

    def _place(self, node: ast.AST) -> dict[str, Any]:
        place = self.context.place(node)
        if place["scripts"] != self.context.run_by(self.call.node):
            raise Unfollowed("other programs share part of the code")
        return place

    def _alone(self) -> None:
        """Nothing else casts, or computes gradients that are not scaled."""
        for call in self.program.calls:
            if self.context.runs_in_training(call.node) and any(
                it.startswith(BESIDE_AUTOCAST) for it in call.names
            ):
                raise Unfollowed(f"`{ast.unparse(call.node.func)}` is used as well")
        for scope in self.program.scopes:
            bases = scope.node.bases if isinstance(scope.node, ast.ClassDef) else []
            if any(
                full_name(value) == AUTOGRAD_FUNCTION for base in bases for value in self.program.values(base)
            ):
                raise Unfollowed("an autograd.Function sets its own precision")

    # How it starts

    @cached_property
    def call(self) -> Call:
        """The call of ``amp.initialize()``."""
        if len(self.calls) != 1:
            raise Unfollowed("amp.initialize is called in several places")
        return self.calls[0]

    @cached_property
    def statement(self) -> ast.stmt:
        return self.program.statement(self.call.node)

    @cached_property
    def home(self) -> Scope:
        """The function, or the module, that initializes."""
        return self.program.scope(self.call.node)

    @cached_property
    def file(self) -> SourceFile:
        return self.program.file(self.call.node)

    @cached_property
    def given(self) -> dict[str, ast.expr]:
        """The arguments of ``amp.initialize()``."""
        node = self.call.node
        if is_spread(node):
            raise Unfollowed("its arguments are not visible in the call")
        named = {it.arg: it.value for it in node.keywords if it.arg is not None}
        return {**dict(zip(INITIALIZE_PARAMETERS, node.args, strict=False)), **named}

    @cached_property
    def optimizer(self) -> Values:
        """The one optimizer that it prepares."""
        values = self.program.values(self.given["optimizers"]) if "optimizers" in self.given else frozenset()
        if len(values) != 1 or not full_name(*values).startswith("torch.optim."):
            raise Unfollowed("it is not given exactly one torch optimizer")
        return values

    @cached_property
    def choice(self) -> ast.If | None:
        """The condition under which it is initialized, if there is one."""
        found: list[ast.If] = []
        for around in self.program.ancestors(self.statement):
            if around is self.home.node:
                break
            if isinstance(around, ast.If) and _asks_for_main(around.test):
                continue
            if not isinstance(around, ast.If) or self.statement not in around.body or found:
                raise Unfollowed("it is unclear when amp.initialize runs")
            found.append(around)
        return found[0] if found else None

    @cached_property
    def asked(self) -> ast.expr | None:
        """The expression that says whether mixed precision is asked for; None if it always is."""
        enabled = self.given.get("enabled")
        if isinstance(enabled, ast.Constant) and enabled.value:
            enabled = None
        found = [it for it in (enabled, self.choice and self.choice.test) if it is not None]
        if len(found) > 1 or not all(map(self._is_settled, found)):
            raise Unfollowed("it is unclear when amp is enabled")
        return found[0] if found else None

    def _is_settled(self, test: ast.expr) -> bool:
        """``args.fp16`` or ``half``, which nothing changes later."""
        if isinstance(test, ast.Attribute):
            return bool(self.program.values(test.value)) and not self._is_set(test.attr)
        made = self.program.definitions(test)
        around = [it for node in made for it in self.program.ancestors(node)]
        return len(made) == 1 and not any(isinstance(it, LOOPS) for it in around)

    def _is_set(self, attribute: str) -> bool:
        return bool(self.context.attribute_assignments.get(attribute))

    def _is_asked(self, test: ast.expr) -> bool:
        """Whether an expression is the one that says whether mixed precision is asked for."""
        match self.asked, test:
            case ast.Attribute(value=owner, attr=name), ast.Attribute(value=other, attr=same):
                return name == same and self.program.values(owner) == self.program.values(other)
            case ast.Name(id=name) as asked, ast.Name(id=same):
                return name == same and self.program.definitions(asked) == self.program.definitions(test)
        return False

    def _options(self, name: str) -> list[Call]:
        """Where the program's options of a name are declared."""
        declared = (it for it in self.program.calls if any(n.endswith(".add_argument") for n in it.names))
        return [it for it in declared if name in option_names(it)]

    def _check_level(self) -> None:
        """Its ``opt_level`` is "O1", whoever starts the program."""
        given = self.given.get("opt_level")
        if given is None or _is_o1(given):
            return
        if isinstance(given, ast.Constant):
            raise Unfollowed(f"torch.amp has no equivalent of {given.value}")
        if isinstance(given, ast.Name):
            made = [self.program.statement(it) for it in self.program.definitions(given)]
            if made and all(isinstance(it, ast.Assign) and _is_o1(it.value) for it in made):
                return
        if isinstance(given, ast.Attribute) and self._is_settled(given):
            choices = [it.argument("choices") for it in self._options(given.attr)]
            if choices and all(
                isinstance(it, ast.List | ast.Tuple) and all(map(_is_o1, it.elts)) for it in choices
            ):
                return
        raise Unfollowed(f"`{ast.unparse(given)}` isn't known to be O1")

    def _starting(self) -> Iterator[Precision]:
        """``model, optimizer = amp.initialize(model, optimizer, opt_level="O1")``."""
        self._check_level()
        for name, value in self.given.items():
            known = isinstance(value, ast.Constant) and value.value in (None, HARMLESS.get(name))
            if name not in (*INITIALIZE_PARAMETERS[:4], "verbosity") and not known:
                raise Unfollowed(f"torch.amp has no equivalent of {name}={ast.unparse(value)}")
        targets = self.statement.targets if isinstance(self.statement, ast.Assign) else []
        pair = targets[0] if len(targets) == 1 and self.statement.value is self.call.node else None  # type: ignore[attr-defined]
        if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2 or not self.optimizer:
            raise Unfollowed("it is unclear where its return value goes")
        handed = [self.given["models"], self.given["optimizers"]]
        same = [ast.unparse(it) for it in pair.elts] == [ast.unparse(it) for it in handed]
        model, optimizer = map(self.program.anchor, handed)
        yield Precision(
            **self._place(self.statement),
            kind="start",
            scaler=self._scaler(self.statement),
            enabled=ast.unparse(self.asked) if self.asked is not None else "",
            last=self.program.anchor(self.choice or self.statement),
            call=None if same else self.program.anchor(self.call.node),
            model=model,
            optimizer=optimizer,
        )

    # What it is asked for

    @cached_property
    def uses(self) -> dict[str, list[ast.Call]]:
        """All calls of it, by name; nothing else is done with it."""
        found: dict[str, list[ast.Call]] = {name: [] for name in AMP_KNOWN}
        calls = {id(it.node.func): it for it in self.program.calls}
        for node in self.program.nodes.values():
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            names = {it.name for it in self.program.values(node) if isinstance(it, Ext)}
            if not any(it.startswith(f"{AMP}.") for it in names):
                continue
            call = calls.get(id(node))
            if call is None or len(call.callees) != 1 or not names <= AMP_KNOWN:
                raise Unfollowed(f"torch.amp has no equivalent of `{ast.unparse(node)}`")
            if self.program.file(node) is not self.file:
                raise Unfollowed("it is used in several files")
            found[names.pop()].append(call.node)
        names = (it for it in ast.walk(self.file.tree) if isinstance(it, ast.Name))
        if _mentions(self.file) - {_position(self.context, it) for it in names} - self.gone:
            raise Unfollowed("a distributed branch uses it, too")
        return found

    @cached_property
    def scales(self) -> list[_Scale]:
        """The scaled losses: all backward passes start from one, where mixed precision is asked for."""
        found = [self._scale(node) for node in self.uses[SCALE]]
        others = [part for it in found if it.choice is not None for part in it.choice.orelse]
        known = {id(it.backward) for it in found} | {id(node) for part in others for node in ast.walk(part)}
        passes = [it for it in self.context.backwards if self.context.runs_in_training(it)]
        if not found or any(id(it) not in known for it in passes):
            raise Unfollowed("not every backward() is called on a scaled loss")
        return found

    def _scale(self, node: ast.Call) -> _Scale:
        statement = self.program.statement(node)
        named = {it.arg: it.value for it in node.keywords}
        given = {**dict(zip(SCALE_PARAMETERS, node.args, strict=False)), **named}
        if len(node.args) > 2 or set(given) != {*SCALE_PARAMETERS}:
            raise Unfollowed("a loss is scaled for other optimizers, too")
        if self.program.values(given["optimizers"]) != self.optimizer:
            raise Unfollowed("a loss is scaled for another optimizer")
        if not isinstance(statement, ast.With) or len(statement.items) != 1 or len(statement.body) != 1:
            raise Unfollowed("a scaled loss is used for more than backward()")
        match statement.items[0].optional_vars, statement.body[0]:
            case ast.Name(id=name), ast.Expr(value=ast.Call(func=ast.Attribute(attr="backward")) as backward):
                inside = {id(it) for it in ast.walk(statement)}
                body = self.program.body(self.program.scope(node))
                around = [it for it in body if isinstance(it, ast.Name) and it.id == name]
                owner = backward.func.value  # type: ignore[attr-defined]
                alone = all(id(it) in inside for it in around) and len(around) == 2
                if alone and isinstance(owner, ast.Name) and owner.id == name:
                    return _Scale(statement, given["loss"], backward, self._choosing(statement))
        raise Unfollowed("a scaled loss is used for more than backward()")

    def _choosing(self, statement: ast.stmt) -> ast.If | None:
        """The condition that asks for mixed precision at a scaled loss, as it does at the start."""
        if self.choice is None:
            return None
        choice = self.program.parent(statement)
        if isinstance(choice, ast.If) and self._is_asked(choice.test) and statement in choice.body:
            return choice
        raise Unfollowed("a loss is scaled outside the condition under which amp is initialized")

    @cached_property
    def steps(self) -> list[ast.Call]:
        """Where its optimizer steps."""
        found = []
        for call in self.program.calls:
            owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            if owner is None or call.node.func.attr != "step" or not self.context.runs_in_training(call.node):  # type: ignore[attr-defined]
                continue
            values = self.program.values(owner)
            alone = isinstance(self.program.statement(call.node), ast.Expr)
            if not values or (values & self.optimizer and values != self.optimizer):
                raise Unfollowed(f"it is unclear which optimizer `{ast.unparse(call.node)}` steps")
            if values == self.optimizer:
                if not alone or call.node.args or call.node.keywords:
                    raise Unfollowed("step() is given a closure, or its return value is used")
                found.append(call.node)
        return found

    def _step(self, scale: _Scale) -> ast.Call:
        """The step after a scaled loss: the only one in its loop, in its block or further in."""
        order = self.program.order
        whole, loop = scale.whole, self._loop(scale.whole)
        if [it for it in self.scales if self._loop(it.whole) is loop] != [scale]:
            raise Unfollowed("several losses are scaled in one step")
        found = [it for it in self.steps if self._loop(it) is loop]
        if len(self.steps) != len(self.scales) or len(found) != 1 or order[id(found[0])] < order[id(whole)]:
            raise Unfollowed("a scaled loss is not followed by exactly one step()")
        block = self.program.block(whole)
        if not any(it in block for it in self.program.ancestors(found[0])):
            raise Unfollowed("a step() isn't known to follow a scaled loss")
        if not any(loop in self.program.ancestors(it) for it in self._zeroing(found[0])):
            raise Unfollowed("gradients aren't known to be zeroed between steps")
        return found[0]

    def _zeroing(self, step: ast.Call) -> Iterator[ast.stmt]:
        """Where gradients are zeroed whenever a step is made: beside it, or further out."""
        path = [it for it in self.program.ancestors(step) if isinstance(it, ast.stmt)]
        for outer in path:
            for statement in self.program.block(outer):
                match statement:
                    case ast.Expr(value=ast.Call(func=ast.Attribute(attr="zero_grad"))):
                        yield statement

    def _loop(self, node: ast.AST) -> ast.AST:
        """The innermost loop, function or module that holds a node."""
        kinds = (*LOOPS, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)
        return next(it for it in self.program.ancestors(node) if isinstance(it, kinds))

    def _scaled(self, scale: _Scale, step: ast.Call) -> Iterator[Precision]:
        """A scaled loss, its step, and where gradients are looked at between."""
        optimizer = self.program.anchor(step.func.value)  # type: ignore[attr-defined]
        scaler = self._scaler(scale.statement)
        yield Precision(
            **self._place(scale.place),
            kind="scale",
            scaler=scaler,
            model=self.program.anchor(scale.loss),
            given=scale.arguments,
        )
        statement = self.program.statement(step)
        yield Precision(
            **self._place(statement),
            kind="step",
            scaler=self._scaler(statement),
            call=self.program.anchor(step),
            optimizer=optimizer,
        )
        path = [statement, *(it for it in self.program.ancestors(statement) if isinstance(it, ast.stmt))]
        after = self._after(scale, path)
        looking = [it for it in after if self._looks_at_gradients(it)]
        self._unscaled |= {id(node) for it in looking for node in ast.walk(it)}
        if not looking:
            return
        first, block = looking[0], self.program.block(looking[0])
        direct = self.program.block(statement) is self.program.block(scale.whole)
        if not (block is self.program.block(statement) or (direct and first not in path)):
            raise Unfollowed("gradients are read after each of several backward passes")
        yield Precision(**self._place(first), kind="unscale", scaler=scaler, optimizer=optimizer)

    def _after(self, scale: _Scale, path: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """The statements between a scaled loss and its step, which ``path`` leads out of."""
        if scale.choice is not None:
            yield from scale.choice.body[scale.choice.body.index(scale.statement) + 1 :]
        block = self.program.block(scale.whole)
        outer = next(it for it in path if it in block)
        yield from block[block.index(scale.whole) + 1 : block.index(outer)]
        for inner in reversed(path[: path.index(outer)]):
            block = self.program.block(inner)
            yield from block[: block.index(inner)]

    def _looks_at_gradients(self, statement: ast.stmt) -> bool:
        """Whether a statement has to do with gradients, or gives the model to something that may."""
        nodes = [self.program.nodes.get(it) for it in self.context.runs(statement)]
        calls = [
            call for it in nodes if isinstance(it, ast.Call) if (call := self.program.call(it)) is not None
        ]
        return (
            any(isinstance(it, ast.Attribute) and it.attr == "grad" for it in nodes)
            or any(it == MASTER_PARAMETERS or "clip_grad" in it for call in calls for it in call.names)
            or any(self._is_given_all(call) for call in calls)
        )

    def _is_given_all(self, call: Call) -> bool:
        """Whether something outside of the project is given the model or its optimizer."""
        if not any(isinstance(it, Ext) and not it.name.startswith("builtins.") for it in call.callees):
            return False
        values = set().union(*(self.program.values(it) for it in call.node.args))
        return bool(values & self.optimizer) or any(
            isinstance(it, Made | Inst) and self.context.module_class(it) for it in values
        )

    def _asked_for(self) -> Iterator[Precision]:
        """Its state, and the parameters that it keeps."""
        for call in (node for name in sorted(AMP_STATES) for node in self.uses[name]):
            place = {**self._place(call), "at": self.program.anchor(call.func)}
            yield Precision(
                **place,
                kind="state",
                scaler=self._scaler(call),
                given=full_name(*self.program.values(call.func)),
            )
        for call in self.uses[MASTER_PARAMETERS]:
            if id(call) not in self._unscaled:
                raise Unfollowed("amp.master_params is not used between backward() and step()")
            if len(call.args) != 1 or self.program.values(call.args[0]) != self.optimizer:
                raise Unfollowed("amp.master_params is given another optimizer")
            place, optimizer = self._place(call), self.program.anchor(call.args[0])
            yield Precision(**place, kind="parameters", optimizer=optimizer, given=self._model(call))

    def _model(self, call: ast.Call) -> str:
        """What the model is called at a place whose parameters are all that the optimizer was given, if it is one."""
        (optimizer,) = self.optimizer
        made = self.program.call(self.program.node(optimizer.site)) if isinstance(optimizer, Made) else None
        given = made.argument("params", 0) if made is not None else None
        if any(
            isinstance(it, ast.Attribute) and it.attr == "add_param_group"
            for it in self.program.nodes.values()
        ):
            return ""
        match given:
            case ast.Call(func=ast.Attribute(value=model, attr="parameters"), args=[], keywords=[]):
                values = self._bare(self.program.values(model))
                for node in self.program.body(self.program.scope(call)):
                    loaded = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
                    if loaded and values and self._bare(self.program.values(node)) == values:
                        return ast.unparse(node)
        return ""

    def _bare(self, values: Values) -> Values:
        """Models as they are before they are wrapped."""

        def inside(value: Value) -> ast.expr | None:
            is_wrap = isinstance(value, Made) and value.name == WRAP
            return self.context.given.get(value.site) if is_wrap else None  # type: ignore[union-attr]

        def behind(value: Value) -> Values:
            module = inside(value)
            return NOTHING if module is None else self.program.values(module)

        return frozenset(value for value in closure(values, behind) if inside(value) is None)

    # How the scaler comes to where it is needed

    @cached_property
    def name(self) -> str:
        """What the scaler is called: an attribute of the object, where several of its methods need it."""
        places = [it.statement for it in self.scales] + self.steps
        places += [node for name in AMP_STATES for node in self.uses[name]]
        others = {self.program.scope(it).index for it in places} - {self.home.index}
        owners = {self.program.scopes[it].owner for it in others}
        nodes = self.program.nodes.values()
        attributes = {it.attr for it in nodes if isinstance(it, ast.Attribute)}
        attributes |= {it.name for it in nodes if isinstance(it, ast.FunctionDef)}
        if others and self.home.owner is not None and owners == {self.home.owner}:
            if "scaler" in attributes:
                raise Unfollowed("there is another gradient scaler")
            return f"{self.home.params[0]}.scaler"
        return self.context.fresh(self.file.path, "scaler")

    def _scaler(self, node: ast.AST) -> str:
        """What the scaler is called at a place."""
        scope = self.program.scope(node)
        if "." in self.name and scope.params[:1] != self.home.params[:1]:
            raise Unfollowed("an object has several names")
        if not self.home.is_module and "." not in self.name:
            self._needing(scope)
        return self.name

    def _needing(self, scope: Scope) -> None:
        """Note a function that is given the scaler, with those that it comes through."""
        if scope is self.home or scope.index in self._given:
            return
        self._given[scope.index] = scope
        calls = self.context.callers.get(scope.index, [])
        if not calls or not self._takes_more(scope) or not all(map(self._gives_more, calls)):
            raise Unfollowed("the scaler can't be passed to where it is needed")
        for call in calls:
            self._needing(self.program.scope(call))

    def _takes_more(self, scope: Scope) -> bool:
        """Whether a function can get another parameter: all that use it are seen, and call it."""
        if (
            not isinstance(scope.node, ast.FunctionDef)
            or scope.node.decorator_list
            or scope.file is not self.file
        ):
            return False
        args, project = scope.node.args, self.program.project
        called = {id(call.func) for call in self.context.callers[scope.index]}
        named = [
            node
            for node in self.program.nodes.values()
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
            if any(_function(value) == scope.index for value in self.program.values(node))
        ]
        imported = any(self.file.path in project.reaches(it) for it in project.files if it != self.file.path)
        plain = not (args.vararg or args.kwonlyargs or args.kwarg)
        return plain and not imported and all(id(node) in called for node in named)

    def _gives_more(self, call: ast.Call) -> bool:
        """Whether a call enters one function, and shows what it gives."""
        known = self.program.call(call)
        return not is_spread(call) and known is not None and len(known.callees) == 1

    def _handed_on(self) -> Iterator[Precision]:
        """The parameters and arguments that hand the scaler on."""
        for scope in self._given.values():
            default = "None" if scope.node.args.defaults else ""  # type: ignore[attr-defined]
            yield Precision(**self._place(scope.node), kind="parameter", scaler=self.name, given=default)
            for call in self.context.callers[scope.index]:
                yield Precision(**self._place(call), kind="argument", scaler=self.name)

    # When forwards are cast

    def _enabled(self, scope: Scope) -> str:
        """What says in a function whether mixed precision is asked for; nothing if it always is."""
        asked = self.asked
        if asked is None:
            return ""
        body = [it for it in self.program.body(scope) if isinstance(it, ast.Name | ast.Attribute)]
        loaded = [it for it in body if isinstance(it.ctx, ast.Load)]
        for node in loaded:
            if self._is_asked(node):
                return self._truth(ast.unparse(node))
        if isinstance(asked, ast.Attribute):
            values = self.program.values(asked.value)
            named = [it.id for it in loaded if isinstance(it, ast.Name) and self.program.values(it) == values]
            given = [it for it in scope.params if self.program.parameter_values(scope, it) == values]
            for name in (*named, *given):
                return self._truth(f"{name}.{asked.attr}")
        has_own = scope is self.home or scope.index in self._given or self.home.is_module
        of_object = "." in self.name and scope.owner == self.home.owner
        if scope.file is self.file and (has_own or of_object):
            return f"{self.name}.is_enabled()"
        raise Unfollowed("at a forward it is unclear whether amp is enabled")

    def _truth(self, text: str) -> str:
        """A condition as a truth value, which is what autocast wants."""
        asked = self.asked
        if isinstance(asked, ast.Name):
            made = [self.program.statement(it) for it in self.program.definitions(asked)]
            known = all(isinstance(getattr(getattr(it, "value", None), "value", None), bool) for it in made)
            return text if known else f"bool({text})"
        flags = [it.argument("action") for it in self._options(text.rpartition(".")[2])]
        known = all(isinstance(it, ast.Constant) and str(it.value).startswith("store_") for it in flags)
        return text if flags and known else f"bool({text})"


def _function(value: Value) -> int | None:
    """The function that a value is, or is a method by."""
    function = value.func if isinstance(value, Bound) else value
    return function.scope if isinstance(function, Func) else None


def _is_o1(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "O1"


def _asks_for_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
