"""What DataParallel means to the linker: classes that derive from it, what its objects hand on, and what they wrap."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.analyse.api.layers import CALLS, OVERRIDES, WRAP_NAMES
from dp2ddp.analyse.api.parallel import DDP_WRAPS, STEP_FUNCTIONS, WRAP, is_derived
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.link import Linker, Program
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.sources import source
from dp2ddp.analyse.program.values import NOTHING, Cls, Ext, Func, Made, Value, Values, full_name
from dp2ddp.source import Project, SourceFile


def linked(project: Project, files: Iterable[SourceFile]) -> Program:
    """Link files of a project, in which models are wrapped."""
    return Program(project, files, Wrappers())


class Wrappers:
    """A ``program.special.Special``: what the linker asks of wrapped models; and what the analysis asks of wraps."""

    def __init__(self) -> None:
        self.classes: frozenset[Cls] = frozenset()
        """The classes of the project whose objects are DataParallels: known when all has been linked once."""

    # What the linker asks

    def attach(self, linker: Linker) -> None:
        self._store, self._tree, self._families = linker.store, linker.tree, linker.classes
        self._calling, self._members, self._attributes = linker.calling, linker.members, linker.attributes

    def learns(self) -> bool:
        self.classes = frozenset(self._wrapping())
        return bool(self.classes)

    def named(self, callees: Values) -> Values:
        return callees | {Ext(WRAP)} if any(map(self.is_wrapper, callees)) else callees

    def called(self, callee: Value, node: ast.Call) -> Values | None:
        match callee:
            case Cls() if callee in self.classes:
                for init in self._families.inherited(callee, "__init__"):
                    if isinstance(init, Func):
                        self._calling.invoke(init, Made(WRAP, id(node)), self._calling.arguments(node))
                return NOTHING
            case Ext() if is_derived(callee.name):
                return NOTHING
            case Made() if callee.name == WRAP:
                steps = self.steps(callee)
                run = [it for name in CALLS for it in steps.get(name, ())]
                given = self._calling.arguments(node)
                self._calling.enter_by(node, self._wrapped(callee), "forward", implicit=False)
                return NOTHING.union(*(self._calling.invoke(Func(it), callee, given) for it in run))
        return None

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Values | None:
        if not isinstance(owner, Made):
            return None
        if name == "module" and (owner.name == WRAP or owner.name in DDP_WRAPS):
            return self._inside(owner)
        if owner.name != WRAP:
            return None
        return self._of_own_class(owner, name, node) or self._of_model(owner, name, node)

    def entered(self, value: Value) -> set[int] | None:
        if isinstance(value, Made) and value.name == WRAP:
            return set().union(*self.steps(value).values())
        return None

    def always_runs(self, value: ast.Call) -> bool:
        """``model = nn.DataParallel(model)``, and ``nn.DataParallel(model).cuda()``."""
        made: ast.expr | None = value
        while isinstance(made, ast.Call):
            self._store.read(id(made.func))
            if any(map(self.is_wrapper, self._store.of(made.func))):
                return True
            made = made.func.value if isinstance(made.func, ast.Attribute) else None
        return False

    def otherwise(self, test: ast.expr, values: Values) -> Values:
        """What has no ``module``, or is no DataParallel."""
        match test:
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value="module"), _]):
                return values - _wraps(values)
        return values - _wraps(values) if asks_for_wrap(test) else values

    # What the analysis asks

    def is_wrapper(self, callee: object) -> bool:
        """Whether a callee makes a DataParallel."""
        return callee in self.classes or (
            isinstance(callee, Ext) and (callee.name == WRAP or is_derived(callee.name))
        )

    def own_classes(self, wrap: Value) -> list[Cls]:
        """The classes of the project that a DataParallel may be of."""
        call = self._store.calls.get(wrap.site) if isinstance(wrap, Made) and wrap.name == WRAP else None
        return [it for it in call.callees if isinstance(it, Cls) and it in self.classes] if call else []

    def _of_own_class(self, wrap: Made, name: str, node: ast.AST) -> Values:
        """What a DataParallel has that its class gives it; and what its model has, where it hands on what is asked."""
        classes = self.own_classes(wrap)
        if not classes:
            return NOTHING
        owners = [wrap, *(base for cls in classes for base in self._families.bases(cls))]
        found = set().union(*(it for owner in owners for it in self._store.field(owner, name).values()))
        for cls in classes:
            found |= {self._members.method(it, wrap) for it in self._families.inherited(cls, name)}
        if not found and any(self._families.inherited(cls, "__getattr__") for cls in classes):
            found |= self._of_inside(wrap, name, node)
        return frozenset(found)

    def _of_model(self, wrap: Made, name: str, node: ast.AST) -> Values | None:
        """What a model has that its DataParallel lacks: it is asked for where the model is not wrapped, too."""
        own = self.own_classes(wrap) or self._store.field(wrap, name)
        if own or name in WRAP_NAMES or name.startswith("_"):
            return None
        return self._of_inside(wrap, name, node)

    def _of_inside(self, wrap: Made, name: str, node: ast.AST) -> Values:
        """What the models inside have under a name."""
        return NOTHING.union(*(self._attributes.attribute(it, name, node) for it in self._inside(wrap)))

    def steps(self, wrap: Value) -> dict[str, set[int]]:
        """What a call of a DataParallel runs of its own classes: their functions, by name."""
        found: dict[str, set[int]] = {}
        for cls in self.own_classes(wrap):
            for name in OVERRIDES:
                scopes = {it.scope for it in self._families.inherited(cls, name) if isinstance(it, Func)}
                if scopes:
                    found.setdefault(name, set()).update(scopes)
        return found

    def argument(self, call: Call, keyword: str, position: int) -> ast.expr | None:
        """What a call gives DataParallel's own ``__init__`` for a parameter, through those of classes that derive."""
        if not any(map(self.is_wrapper, call.callees)):
            return None
        classes = [it for it in call.callees if isinstance(it, Cls) and it in self.classes]
        if not classes:
            return call.argument(keyword, position)
        for cls in classes:
            found = self._handed_up(cls, call, keyword, position)
            if found is not None:
                return found
        return None

    def _handed_up(
        self, cls: Cls, call: Call, keyword: str, position: int, seen: frozenset[int] = frozenset()
    ) -> ast.expr | None:
        """The same, for one class: what its ``__init__`` gives ``super().__init__``, and the call gives it."""
        for init in self._families.inherited(cls, "__init__"):
            scope = self._tree.scopes[init.scope] if isinstance(init, Func) else None
            if scope is None or scope.owner is None or scope.index in seen:
                continue
            bases = [it for it in self._families.bases(scope.owner) if it != scope.owner]
            made = (it for it in bases if isinstance(it, Cls) and self._families.inherited(it, "__init__"))
            own = next(made, None)
            for above in self._calls_up(scope):
                if own is not None:
                    given = self._handed_up(own, above, keyword, position, seen | {scope.index})
                else:
                    given = above.argument(keyword, position)
                if given is not None:
                    return self._given_by(call, given, scope)
                if own is None and (found := call.argument(keyword, _handed_on(above, position, scope))):
                    return found
            return self._assigned(scope, keyword, call)
        return call.argument(keyword, position)

    def _calls_up(self, init: Scope) -> Iterator[Call]:
        """``super().__init__(…)`` in an ``__init__``."""
        for node in self._tree.body(init):
            match node:
                case ast.Call(func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super")))):
                    yield Call(node, init, NOTHING)
                case ast.Call(func=ast.Attribute(attr="__init__", value=base), args=[_, *args]):
                    if any(map(self.is_wrapper, self._store.values(base))):
                        yield Call(ast.Call(node.func, args, node.keywords), init, NOTHING)

    def _assigned(self, init: Scope, name: str, call: Call) -> ast.expr | None:
        """``self.module = module``, in an ``__init__`` that hands nothing up: the first parameter that is given so."""
        for node in self._tree.body(init):
            match node:
                case ast.Attribute(value=ast.Name(id=me), attr=attr, ctx=ast.Store()) if attr == name:
                    value = source(node, self._tree.parent).plain
                    if [me] == init.params[:1] and isinstance(value, ast.Name) and value.id in init.params:
                        return self._given_by(call, value, init)
        return None

    def _given_by(self, call: Call, given: ast.expr, scope: Scope) -> ast.expr | None:
        """What a call gives a function, where that hands on one of its parameters; else what it hands on itself."""
        named = [it.arg for it in scope.node.args.kwonlyargs]  # type: ignore[attr-defined]
        match given:
            case ast.Name(id=name) if name in scope.params:
                return call.argument(name, scope.params.index(name) - 1)
            case ast.Name(id=name) if name in named:
                return call.argument(name)
        return given

    def _wrapped(self, wrap: Made) -> Values:
        """The modules that a DataParallel may wrap."""
        call = self._store.calls.get(wrap.site)
        if call is None:
            return NOTHING
        given = call.argument("module", 0) if call.names & DDP_WRAPS else self.argument(call, "module", 0)
        if given is None:
            return NOTHING
        self._store.read(id(given))
        return self._store.of(given)

    def _inside(self, wrap: Made) -> Values:
        """The same without DataParallels: what one of two branches wraps is not the other's wrapper, nor itself."""
        wrapped = self._wrapped(wrap)
        return wrapped - _wraps(wrapped)

    def _wrapping(self) -> Iterator[Cls]:
        """The classes that derive from DataParallel, and modules that do with replicas what it does."""
        for scope in self._tree.scopes:
            if scope.is_class:
                cls = Cls(scope.index)
                names = {full_name(base) for base in self._families.bases(cls)}
                if WRAP in names or any(map(is_derived, names)) or self._replicates(cls):
                    yield cls

    def _replicates(self, cls: Cls) -> bool:
        """Whether a class is a copy of torch's own: a module whose methods make replicas, and run them."""
        if Ext("torch.nn.Module") not in self._families.bases(cls):
            return False
        functions = [it for it in self._tree.scopes if it.owner == cls]
        calls = (
            self._store.calls.get(id(node))
            for it in functions
            for node in self._tree.body(it)
            if isinstance(node, ast.Call)
        )
        steps = {STEP_FUNCTIONS.get(name) for call in calls if call is not None for name in call.names}
        return {"replicate", "parallel_apply"} <= steps


def _wraps(values: Values) -> Values:
    """The values that are DataParallels."""
    return frozenset(it for it in values if isinstance(it, Made) and it.name == WRAP)


def _handed_on(call: Call, position: int, scope: Scope) -> int | None:
    """Where a method is given what it hands on at a position: among its ``*args``, behind its own parameters."""
    for place, argument in enumerate(call.node.args):
        if isinstance(argument, ast.Starred):
            return len(scope.params) - 1 + position - place if position >= place else None
    return None


def asks_for_wrap(test: ast.expr) -> bool:
    """``hasattr(model, "module")`` and ``isinstance(model, nn.DataParallel)``."""
    match test:
        case ast.Call(func=ast.Name(id="hasattr"), args=[_, ast.Constant(value="module" | "device_ids")]):
            return True
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, kind]):
            return "DataParallel" in ast.unparse(kind)
    return False
