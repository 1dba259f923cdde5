"""What a forward stores in its modules is forgotten after it, as nn.DataParallel's replicas forget it.

A replica has a copy of each module's ``__dict__``, and of its dicts of buffers and submodules. So attributes that a
forward stores (``self.calls += 1``) are gone with the replica, as are buffers and submodules that it replaces; what it
changes in place (``self.count.add_(1)``, ``self.seen.append(x)``) stays. Here the module itself runs, and gets its
attributes back. Modules of torch's own classes keep what torch's code stores. A layer that is run again in the backward
pass (torch.utils.checkpoint) finds plain values as the forward left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import is_
from typing import Any

import torch
from torch.autograd import Variable

from . import parts, ranks, replica_buffers, stores

_ABSENT = object()
_TABLES = ("_parameters", "_buffers", "_modules")
_KEPT = ("_dp2ddp", "_compiled_call_impl")  # what begins like this is none of the program's
_PLAIN = (int, float, complex, str, bytes, type(None), torch.device, torch.dtype, torch.Size)

_Table = dict[str, Any]
_Change = tuple[_Table, str, Any]  # where, the name, and the value; or that there is none


@dataclass(frozen=True)
class _Places:
    """Where a forward may store.

    Args:
        names: of attributes.
        named: dicts in which the names are looked up.
        whole: dicts in which any name may be stored.
        others: dicts that have none of the names yet.
    """

    names: frozenset[str]
    named: tuple[_Table, ...]
    whole: tuple[_Table, ...]
    others: tuple[_Table, ...]


@dataclass(frozen=True)
class _Before:
    """What there was before a forward."""

    places: _Places
    named: list[_Table | None]
    whole: list[_Table]
    others: list[int]


class Attributes:
    """Those of one model.

    Args:
        module: the model.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._places: _Places | None = None
        self._with_buffers: list[torch.nn.Module] = []
        self._mode = False  # whether it trained when they were looked for
        self._recalled: dict[tuple[int, str], _Change] = (
            {}
        )  # what there is, but for the backward pass that runs
        self._task = -1  # that pass

    def run(self, call: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
        """The output of ``call``, which runs the model; what that stored in the model is forgotten."""
        mode = self._module.training
        if self._places is None or mode is not self._mode:  # now and then, as models may be changed
            self._places = _places(self._module)
            self._with_buffers = [*filter(replica_buffers.may_be_needed, _parts(self._module))]
            self._mode = mode
        self._end_recall()
        if not self._with_buffers or ranks.is_main_process() or not torch.is_grad_enabled():
            return self._run(self._places, call, inputs, kwargs)
        with replica_buffers.copied(self._with_buffers) as copies:
            return self._run(self._places, call, inputs, kwargs, copies)

    def _run(
        self, places: _Places, call: Any, inputs: Any, kwargs: dict[str, Any], copies: Sequence[_Change] = ()
    ) -> Any:
        if not (copies or places.named or places.whole or places.others):
            return call(*inputs, **kwargs)
        before = _before(places)
        try:
            output = call(*inputs, **kwargs)
        finally:
            stored = [*_stored(before)]
            left = [(table, name, table.get(name, _ABSENT)) for table, name, _ in stored]
            _put(stored)
        plain = [change for change in (*copies, *left) if _is_plain(change[2])]
        if plain and torch.is_grad_enabled():
            self._recall_in_backward(output, plain)
        return output

    def _recall_in_backward(self, output: Any, left: list[_Change]) -> None:
        def begin(_: Any) -> None:
            task = torch._C._current_graph_task_id()
            if self._task != task:
                self._end_recall()
                self._task = task
                Variable._execution_engine.queue_callback(self._end_recall)
            for table, name, _ in left:
                self._recalled.setdefault((id(table), name), (table, name, table.get(name, _ABSENT)))
            _put(left)

        for tensor in parts.tensors(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(begin)

    def _end_recall(self) -> None:
        """Forget again what a backward pass was given; one that failed has not done so."""
        recalled, self._recalled, self._task = self._recalled, {}, -1
        _put(recalled.values())


def _places(module: torch.nn.Module) -> _Places:
    modules = [it for it in _parts(module) if not isinstance(it, torch.jit.ScriptModule)]
    stored = stores.stored(modules)
    if not stored:
        return _Places(stored.names, (), (), ())
    named: list[_Table] = []
    whole: list[_Table] = []
    others: list[_Table] = []
    for it in modules:
        own, tables = not stores.is_torch_s(type(it)), _tables(it)
        if own and stored.any_name:
            whole += tables
        elif own or any(not table.keys().isdisjoint(stored.names) for table in tables):
            named += tables
        else:
            others += tables
    return _Places(stored.names, tuple(named), tuple(whole), tuple(others))


def _parts(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """A model's modules, but for those of models in it that are wrapped themselves, or still lack their shapes."""
    seen, left = set(), [module]
    while left:
        it = left.pop()
        wrapped = isinstance(it, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel)
        if id(it) in seen or wrapped:
            continue
        seen.add(id(it))
        left += [child for child in it._modules.values() if child is not None]
        if not any(map(torch.nn.parameter.is_lazy, it._parameters.values())):
            yield it


def _tables(module: torch.nn.Module) -> list[_Table]:
    held = vars(module)
    return [held, *(held[name] for name in _TABLES if name in held)]


def _before(places: _Places) -> _Before:
    names = places.names
    named = [
        None if table.keys().isdisjoint(names) else {name: table[name] for name in names if name in table}
        for table in places.named
    ]
    return _Before(places, named, [*map(dict, places.whole)], [*map(len, places.others)])


def _stored(before: _Before) -> Iterator[_Change]:
    """What to put back: the values there were."""
    places = before.places
    names = places.names
    for table, values in zip(places.named, before.named, strict=True):
        if values is not None or not table.keys().isdisjoint(names):
            yield from _differing(table, values or {}, names)
    for table, values in zip(places.whole, before.whole, strict=True):
        if len(table) == len(values) and all(map(is_, table.values(), values.values())):
            continue
        yield from _differing(table, values, [*table, *(name for name in values if name not in table)])
    if [*map(len, places.others)] == before.others:  # nearly always
        return
    for table, count in zip(places.others, before.others, strict=True):
        if len(table) != count:
            yield from _differing(table, {}, [it for it in islice(table, count, None) if it in names])


def _differing(table: _Table, values: _Table, names: Iterable[str]) -> Iterator[_Change]:
    for name in names:
        value = values.get(name, _ABSENT)
        if table.get(name, _ABSENT) is not value and not name.startswith(_KEPT):
            yield table, name, value


def _put(changes: Iterable[_Change]) -> None:
    for table, name, value in changes:
        if value is _ABSENT:
            table.pop(name, None)
        else:
            table[name] = value


def _is_plain(value: Any) -> bool:
    """Whether a value has no graph: what a graph's own hooks hold of it is never freed."""
    if isinstance(value, torch.Tensor):
        return value.grad_fn is None and not isinstance(value, torch.nn.Parameter)
    return isinstance(value, _PLAIN) or type(value) is tuple and all(map(_is_plain, value))
