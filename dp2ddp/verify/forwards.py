"""Which modules a run calls: what parameters are called, what is wrapped, and what a wrapped forward draws."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.nn.parallel import DistributedDataParallel

from dp2ddp.runtime import nested
from dp2ddp.verify import draws, reference
from dp2ddp.verify.digests import digest
from dp2ddp.verify.journal import Journal
from dp2ddp.verify.reference import DataParallel as Played

_PLAIN = (int, float, str, type(None))
_RUNTIME = "dp2ddp.runtime."


class Forwards:
    """Follows calls of modules.

    Args:
        journal: gets what was called past its wrapper, or trained without one.
        pinned: whether a wrapped forward draws by its number and its replica.
        rank: of this process, in a run on several.
        on_evaluation: is called when a wrapped model runs that is in evaluation mode.
        whole: whether a wrapped model in evaluation that draws random numbers draws them for the whole batch, not by
            replica: as the converted program does where each rank evaluates all samples.
    """

    def __init__(
        self,
        journal: Journal,
        pinned: bool,
        rank: Any,
        on_evaluation: Callable[[], None] = lambda: None,
        whole: bool = False,
    ) -> None:
        self.journal = journal
        self.pinned = pinned
        self.rank = rank
        self._on_evaluation = on_evaluation
        self._whole, self._drew = whole, False
        self.gathers = False
        """Whether the whole batch goes through the wrapper on every rank."""
        self._kinds = (DistributedDataParallel, nn.DataParallel, Played)
        self._roots: list[weakref.ref[nn.Module]] = []
        self._wrapped: dict[int, tuple[weakref.ref[nn.Module], int]] = {}  # the modules inside, numbered
        self._numbered = 0  # those that are gone, too
        self._made: list[weakref.ref[nn.Module]] = []  # the modules that a wrapper was made for
        self._counts: Counter[tuple[int, bool]] = Counter()
        # of the thread that looks: replicas may run in several
        self._stack: ContextVar[tuple[tuple[nn.Module, Any], ...]] = ContextVar("running", default=())
        self._said: set[str] = set()
        self._told: set[tuple[str, bool]] = set()
        self._kept: set[str] = set()

    def patch(self) -> None:
        """Hook into every call of a module."""
        made = DistributedDataParallel.__init__

        @functools.wraps(made)
        def noted(wrapper: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            self._made.append(weakref.ref(module))
            made(wrapper, module, *args, **kwargs)

        DistributedDataParallel.__init__ = noted
        for kind in {nn.DataParallel, Played}:
            kind.forward = self._entering(kind.forward)
        for module in (nn.parallel, sys.modules["torch.nn.parallel.parallel_apply"]):
            module.parallel_apply = self._applying(module.parallel_apply)
        hooks.register_module_forward_pre_hook(self._begin)
        hooks.register_module_forward_hook(self._end, always_call=True)

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        kept, number = None, self._number(module)
        if isinstance(module, self._kinds):
            self._enter(module)
            kept = _Held(module.module) if _learns(module) else None
        elif number is not None and self.pinned and not any(isinstance(it, tuple) for _, it in self._running):
            # in another that is wrapped it draws on: there replicas are others' parts, which nothing wraps
            state = draws.states()
            learns = _learns(module)
            count = self._counts[number, learns]
            # called past its wrapper it draws as the program does: alike on all ranks
            replica = self._replica() if self.runs_wrapped() else 0
            draws.seed((number, learns, count, replica))
            kept = state, draws.Watched(state), f"{number} {count}", None if learns else inputs
        if not self._running and torch._C._current_graph_task_id() == -1:
            self._note_root(module)
        self._stack.set((*self._running, (module, kept)))

    def _entering(self, forward: Any) -> Any:
        """DataParallel's forward, noted where it is called by its name, past the hooks."""

        @functools.wraps(forward)
        def noted(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            running = self._running
            if not any(one is wrapper for one, _ in running):
                self._enter(wrapper)
                self._stack.set((*running, (wrapper, None)))
            self._drew = False
            reference.cuts.clear()
            result = forward(wrapper, *args, **kwargs)
            self._stack.set(running)
            if len(reference.cuts) > 1 and torch.is_grad_enabled():
                self.journal.add("uneven", most=max(reference.cuts), least=min(reference.cuts))
            return wrapper.module(*args, **kwargs) if self._whole and self._drew else result

        return noted

    def _applying(self, apply: Any) -> Any:
        """torch's parallel_apply, noted where a program calls it itself."""

        @functools.wraps(apply)
        def noted(modules: Any, *args: Any, **kwargs: Any) -> Any:
            if len(modules) > 1:
                self._note_wrapped(type(modules[0]).__name__)
            return apply(modules, *args, **kwargs)

        return noted

    def _note_wrapped(self, module: str) -> None:
        trains = torch.is_grad_enabled()
        if (module, trains) not in self._told:
            self._told.add((module, trains))
            self.journal.add("wrapped", module=module, trains=trains)

    def _enter(self, wrapper: Any) -> None:
        inner = wrapper.module
        if any(isinstance(one, self._kinds) and one.module is inner for one, _ in self._running):
            return  # a wrapper in a wrapper
        self._note_wrapped(type(inner).__name__)
        if not _learns(wrapper):
            self._on_evaluation()
        if self._number(inner) is None:
            self._wrapped[id(inner)] = (weakref.ref(inner), self._numbered)
            self._numbered += 1
        self._counts[self._number(inner), _learns(inner)] += 1
        # what trains nothing may be cut in either form: `ddp.data_parallel()`
        if (
            torch.is_grad_enabled()
            and isinstance(wrapper, nn.DataParallel)
            and not isinstance(wrapper, Played)
        ):
            self.gathers |= any(kind.__module__.startswith(_RUNTIME) for kind in type(wrapper).__mro__)

    def _number(self, module: nn.Module) -> int | None:
        """The number of a module that is wrapped."""
        module = reference.original(module)
        inner, number = self._wrapped.get(id(module), (None, None))
        return number if inner is not None and inner() is module else None

    def _end(self, module: nn.Module, _inputs: Any, _output: Any) -> None:
        while self._running:
            *outer, (one, kept) = self._running
            self._stack.set(tuple(outer))
            if isinstance(kept, _Held):
                self._note_kept(kept)
            elif kept is not None:
                state, watched, what, given = kept
                drawn = watched.drawn_from()
                if drawn and given is None:
                    self.journal.add("stream", what=what, of=type(one).__name__, states=drawn)
                elif drawn:
                    self._drew = True
                    tensors = [it for it in nested.flatten(given) if isinstance(it, torch.Tensor)]
                    self.journal.add("evaluated", what=what, given=list(map(digest, tensors)))
                draws.restore(state)
            if one is module:
                break

    def _note_kept(self, held: _Held) -> None:
        for name in held.changed():
            if name not in self._kept:
                self._kept.add(name)
                self.journal.add("kept", name=name)

    @property
    def _running(self) -> tuple[tuple[nn.Module, Any], ...]:
        return self._stack.get()

    def runs_wrapped(self) -> bool:
        """Whether a wrapped model runs."""
        return any(isinstance(one, self._kinds) for one, _ in self._running)

    def _replica(self) -> int:
        return reference.running.get() or self.rank()

    def _note_root(self, module: nn.Module) -> None:
        if not any(root() is module for root in self._roots):
            self._roots.append(weakref.ref(module))
        if isinstance(module, self._kinds) or not torch.is_grad_enabled() or not module.training:
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        for inner in self._made:
            if inner() is not None and any(module is part for part in inner().modules()):
                self._say("bypass", module)
                return

    def _say(self, event: str, module: nn.Module) -> None:
        name = type(module).__name__
        if f"{event} {name}" not in self._said:
            self._said.add(f"{event} {name}")
            self.journal.add(event, module=name, line=line())

    # Names

    def names(self) -> dict[int, str]:
        """What each parameter that was called so far is named, by its id."""
        found: dict[int, str] = {}
        for prefix, root in self._named_roots():
            for name, parameter in _parameters(root, self._kinds):
                found.setdefault(id(parameter), f"{prefix}.{name}")
        return found

    def wrapped(self) -> set[int]:
        """The parameters inside of wrappers, by their ids."""
        return {id(parameter) for parameter in self.wrapped_parameters()}

    def wrapped_parameters(self) -> list[nn.Parameter]:
        """The parameters inside of wrappers."""
        modules = [inner() for inner, _ in self._wrapped.values()]
        found = {id(p): p for module in modules if module is not None for p in module.parameters()}
        return list(found.values())

    def buffers(self) -> dict[str, torch.Tensor]:
        """The buffers of all modules that were called."""
        found, seen = {}, set()
        for prefix, root in self._named_roots():
            for name, buffer in _buffers(root, self._kinds):
                if id(buffer) not in seen:
                    seen.add(id(buffer))
                    found[f"{prefix}.{name}"] = buffer
        return found

    def _named_roots(self) -> list[tuple[str, nn.Module]]:
        roots = [root() for root in self._roots]
        bare = [_bare(root, self._kinds) for root in roots if root is not None]
        inside = {id(part) for root in bare for part in root.modules() if part is not root}
        outer, counts, named = [], Counter(), []
        for root in bare:
            if id(root) not in inside and not any(root is other for other in outer):
                outer.append(root)
        for root in outer:
            name = type(root).__name__
            counts[name] += 1
            named.append((name if counts[name] == 1 else f"{name}#{counts[name]}", root))
        return named


class _Held:
    """The plain attributes and the buffers that a model's modules have as a forward begins."""

    def __init__(self, model: nn.Module) -> None:
        self._before = [(module, self._of(module)) for module in model.modules()]

    @staticmethod
    def _of(module: nn.Module) -> dict[str, Any]:
        plain = {name: it for name, it in vars(module).items() if isinstance(it, _PLAIN)}
        return {**plain, **vars(module).get("_buffers", {})}

    def changed(self) -> Iterator[str]:
        """Those that are others now, with the class of their module."""
        for module, before in self._before:
            after = self._of(module)
            for name in after.keys() | before.keys():
                mine, theirs = before.get(name, self), after.get(name, self)
                if mine is not theirs and (isinstance(mine, torch.Tensor) or mine != theirs):
                    yield f"{type(module).__name__}.{name}"


def _bare(module: nn.Module, wrappers: tuple[type, ...]) -> nn.Module:
    while isinstance(module, wrappers):
        module = module.module
    return module


def _learns(module: nn.Module) -> bool:
    return module.training and torch.is_grad_enabled()


def _parts(module: nn.Module, wrappers: tuple[type, ...], prefix: str = "") -> Any:
    """The modules inside of ``module``, and their names without those of wrappers."""
    yield prefix, module
    for name, child in module.named_children():
        yield from _parts(_bare(child, wrappers), wrappers, f"{prefix}{name}.")


def _parameters(module: nn.Module, wrappers: tuple[type, ...]) -> Any:
    for prefix, part in _parts(module, wrappers):
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield prefix + name, parameter


def _buffers(module: nn.Module, wrappers: tuple[type, ...]) -> Any:
    for prefix, part in _parts(module, wrappers):
        for name, buffer in part._buffers.items():
            if buffer is not None:
                yield prefix + name, buffer


def line() -> str:
    """The script's line that is running, as ``file:line``: outside of torch and of dp2ddp."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch.", "dp2ddp.", "contextlib")) and name != "torch":
            path = frame.f_code.co_filename.removeprefix(os.getcwd() + os.sep)
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"
