"""Replicas are watched while they train: all ranks must have the same parameters, to the bit.

Digests of them are compared where the ranks meet anyway, at the end of a synchronised backward pass: the model's first
one, then after 1, 2, 4, 8, … and then every 1,000 passes, with one small collective. What differs is

- *what a forward wrote* from its part of the batch (data-dependent initialisation, running averages kept in
  parameters): it becomes rank 0's, now and from now on at the end of each backward pass and before each forward, as
  nn.DataParallel keeps what replica 0 wrote. Where the model's source says that its forward writes a parameter (see
  ``written``), so it is from the first one on;
- *rounding* (a norm computed on GPUs of several kinds): it becomes rank 0's, which is said once;
- or *a fault*: the ranks train different models. The job ends, and the parameter, the step and usual causes are said.

Buffers are compared where the form promises them to be the same (whole batches). In shards they may differ until the
next forward, before which they become rank 0's. Frozen wrapped models are compared with those that are trained.

``DP2DDP_CHECK=0`` turns the comparisons off. With a communication hook of one's own, and in ``join()``, there are none:
there parameters may differ.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist

from . import debug, digests, ranks, unwrapped, written
from .exchange import exchange
from .messages import say
from .unwrapped import HOW_TO_GO_ON, VARIABLE

_EVERY = 1000  # passes, from the first 1,000 on
_FORWARDS = 4  # before one backward pass that are looked at
_ROUNDING = {torch.float32: 64.0, torch.float64: 64.0, torch.complex64: 64.0, torch.complex128: 64.0}
_COARSE = 2.0  # of other types; both in units of the type's rounding

_Digests = dict[str, torch.Tensor]
_Key = tuple[str, str]  # whose tensor it is (empty: the model's own), and its name there
_companions: weakref.WeakValueDictionary[int, Watch] = weakref.WeakValueDictionary()
_numbers = itertools.count()
_OWN, _BUFFER = "", "buffer"
_agreed: list[bool] = []  # whether the ranks compare; empty before that is agreed


class Owner(Protocol):
    """Whose tensors are watched."""

    def watched(self) -> dict[str, torch.Tensor]:
        """Parameters, by name, that must be the same on all ranks at the end of a pass."""

    def promised(self) -> dict[str, torch.Tensor]:
        """Buffers, by name, that must be the same on all ranks before a training forward."""

    def is_watched(self) -> bool:
        """Whether its own passes are compared; all ranks say the same."""

    def is_frozen(self) -> bool:
        """Whether it is compared with models that are trained; all ranks say the same."""


def agree() -> None:
    """Have all ranks do what rank 0's environment says; a collective."""
    if not _agreed:
        wanted = os.environ.get(VARIABLE, "1") != "0"
        said = torch.tensor([wanted], dtype=torch.uint8, device=ranks.talk_device())
        dist.broadcast(said, 0)
        _agreed.append(bool(said.item()))


class Watch:
    """What is known of one model's passes.

    Args:
        owner: has the tensors; it is not kept alive.
        name: of the model, in messages.
        module: whose forward may write parameters; None where there is none.

    Attributes:
        shared: names of parameters that are rank 0's before each forward.
        written: names of those that a forward writes, as its source says.
        is_due: whether the next pass is compared.
    """

    def __init__(self, owner: Owner, name: str, module: torch.nn.Module | None = None) -> None:
        self._owner = weakref.ref(owner)
        self.name = name
        self._passes = 0
        self.shared = written.names(module) if module is not None else set()
        self.written = frozenset(self.shared)
        self._suspected = set(self.shared)  # of which it is not known whether ranks write the same
        self._has_said = False
        self._forget()

    def accompany(self) -> None:
        """Have the model compared with others, while it is frozen; called where all ranks make it."""
        _companions[next(_numbers)] = self
        unwrapped.averaged(self._owner().watched().values(), is_wrapper=True)

    def _forget(self) -> None:
        self._started: _Digests | None = None
        self._spans: list[tuple[_Digests, _Digests]] = []  # the parameters before and after forwards
        self._promised: dict[str, torch.Tensor] = {}  # copies of what was promised, before the first of them

    @property
    def is_due(self) -> bool:
        """Whether the coming pass is compared."""
        passes = self._passes
        power = passes & (passes - 1) == 0 and passes < _EVERY
        return bool(_agreed) and _agreed[0] and (power or passes % _EVERY == 0)

    def shared_parameters(self) -> list[torch.Tensor]:
        """Those that are rank 0's before each forward."""
        if not self.shared:
            return []
        return [it for name, it in self._owner().watched().items() if name in self.shared]

    # A forward in training mode

    def begin(self) -> None:
        """Note the parameters as a forward begins."""
        self._started = None
        if self.is_due and len(self._spans) < _FORWARDS and _may_look():
            self._started = self._look()
            if not self._spans:
                promised = self._owner().promised()
                self._promised = {name: it.detach().clone() for name, it in promised.items()}

    def end(self) -> None:
        """Note them as it has ended."""
        if self._started is not None:
            self._spans.append((self._started, self._look()))
            self._started = None

    def _look(self) -> _Digests:
        return {name: digests.digest(it) for name, it in self._owner().watched().items()}

    # A synchronised backward pass

    def passed(self) -> Callable[[], None] | None:
        """Count a pass, and return what is to be called at its end: a collective, on all ranks or on none."""
        is_due, meets = self.is_due, self._owner().is_watched() and not _is_capturing()
        self._passes += 1
        if is_due and meets:
            return self.compare
        self._forget()
        return self._share if self.shared and meets else None

    def _share(self) -> None:
        """Have all ranks end the pass with what rank 0's forward wrote."""
        debug.meet(f"the broadcast of what the forward of {self.name} wrote")
        for parameter in self.shared_parameters():
            parameter.data.copy_(_rank_0s(parameter))

    def compare(self) -> None:
        """Compare the ranks' parameters; a collective.

        Raises:
            RuntimeError: on all ranks, they differ.
        """
        spans, tensors = self._spans, self._tensors(self._promised)
        self._forget()
        debug.meet(f"the comparison of the parameters of {self.name}")
        values = dict(zip(tensors, digests.fetched(map(digests.digest, tensors.values())), strict=True))
        if not self._suspected and _are_alike(values):
            return
        said = exchange("the comparison of parameters", _Said.of(tensors, values, spans))
        _Comparison(self, tensors, said).settle()

    def _tensors(self, promised: dict[str, torch.Tensor]) -> dict[_Key, torch.Tensor]:
        """All that is compared."""
        found = {(_OWN, name): it for name, it in self._owner().watched().items()}
        found |= {(_BUFFER, name): it for name, it in promised.items()}
        for number, other in sorted(_companions.items()):
            owner = other._owner()
            if other is not self and owner is not None and owner.is_frozen():
                its = {name: it for name, it in owner.watched().items() if name not in other.shared}
                found |= {(f"{number} {other.name}", name): it for name, it in its.items()}
        return found

    def say_once(self, text: str) -> None:
        """Say something of this model, on rank 0."""
        if not self._has_said and ranks.is_main_process():
            say(text)
        self._has_said = True


@dataclass(frozen=True)
class _Said:
    """What a rank tells the others if not all is alike."""

    kinds: dict[_Key, str]
    values: dict[_Key, int]
    spans: list[tuple[dict[str, int], dict[str, int]]] = field(default_factory=list)

    @staticmethod
    def of(
        tensors: dict[_Key, torch.Tensor], values: dict[_Key, int], spans: list[tuple[_Digests, _Digests]]
    ) -> _Said:
        kinds = {name: f"{it.dtype} {list(it.shape)}" for name, it in tensors.items()}
        fetched = [
            tuple(dict(zip(it, digests.fetched(it.values()), strict=True)) for it in span) for span in spans
        ]
        return _Said(kinds, values, fetched)

    def written(self) -> set[str]:
        """The parameters that this rank's forwards wrote."""
        return {name for before, after in self.spans for name in after if after[name] != before.get(name)}

    def begun(self, name: str) -> int | None:
        """A parameter as the last forward began."""
        return self.spans[-1][0].get(name) if self.spans else None


class _Comparison:
    """What the ranks do about what they told each other; all the same."""

    def __init__(self, watch: Watch, tensors: dict[_Key, torch.Tensor], said: list[_Said]) -> None:
        self._watch, self._tensors, self._said = watch, tensors, said
        self._written = set().union(*(it.written() for it in said))
        known = [key for key in said[0].values if all(key in it.values for it in said)]
        self._differing = [key for key in known if len({(it.values[key], it.kinds[key]) for it in said}) > 1]

    def settle(self) -> None:
        """Take from rank 0 what forwards wrote, and what is rounding; complain of the rest."""
        watch = self._watch
        its = self._written | watch.shared
        forwards = [(whose, name) for whose, name in self._differing if whose == _OWN and name in its]
        self._refuse([key for key in self._differing if key not in forwards])
        self._refuse_late([name for _, name in forwards])
        watch.shared |= {name for _, name in forwards}
        self._clear_suspected()
        self._take(forwards)

    def _clear_suspected(self) -> None:
        """Forget about parameters that all ranks' forwards wrote alike."""
        watch = self._watch
        for name in watch._suspected & self._written:
            after = {tuple(span[1].get(name) for span in it.spans) for it in self._said}
            if len(after) == 1:
                watch.shared.discard(name)
        watch._suspected -= self._written

    def _take(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            tensor = self._tensors[key]
            tensor.data.copy_(_rank_0s(tensor))

    def _refuse_late(self, names: list[str]) -> None:
        """Complain of parameters that differed before the forward that is known to write them."""
        watch = self._watch
        late = [
            it for it in names if it not in watch.shared and len({said.begun(it) for said in self._said}) > 1
        ]
        if not late:
            return
        what = f"the forward of {watch.name} writes its parameter {late[0]}"
        if watch._passes == 1:
            watch.say_once(
                f"{what}: from now on rank 0's value is used before each forward; in the first step, which has "
                "several forwards, each rank used its own"
            )
            return
        raise RuntimeError(
            f"{what} from the local batch, but not in the first step (found in backward pass {watch._passes}): "
            "the ranks train different models. Keep it in a buffer (register_buffer), which is rank 0's "
            f"before each forward. {HOW_TO_GO_ON}"
        )

    def _refuse(self, keys: list[_Key]) -> None:
        if not keys:
            return
        far = {key: self._distances(key) for key in keys}
        faults = [key for key in keys if max(far[key]) > _ROUNDING.get(self._tensors[key].dtype, _COARSE)]
        watch = self._watch
        if not faults:
            watch.say_once(
                f"{self._label(keys[0])} differs across ranks by rounding, found in backward pass "
                f"{watch._passes}: rank 0's values are used"
            )
            self._take(keys)
            return
        first = faults[0]
        rank = next(rank for rank, its in enumerate(far[first]) if its == max(far[first]))
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise RuntimeError(
            f"the ranks train different models: {self._label(first)} has other values on rank {rank} than on rank 0"
            f"{more}, found in backward pass {watch._passes} of {watch.name}. Usual cause: {self._cause(faults)}. "
            f"{HOW_TO_GO_ON}"
        )

    def _label(self, key: _Key) -> str:
        whose, name = key
        if whose == _BUFFER:
            return f"the buffer {name} of {self._watch.name}"
        return f"the parameter {name} of {whose.partition(' ')[2] or self._watch.name}"

    def _cause(self, faults: list[_Key]) -> str:
        owner = self._watch._owner()
        trained = {name for name, it in owner.watched().items() if it.requires_grad}
        hit = {name for whose, name in faults if whose == _OWN}
        if trained and len(trained & hit) * 2 > len(trained):
            return (
                "an optimizer steps, or gradients or its learning rate change, on some ranks only: control "
                "flow depends on a value that differs across ranks"
            )
        return (
            "it is written outside of the model's forward, from the local batch or from random numbers that "
            "differ across ranks: combine it over the ranks (ddp.mean, ddp.gather) or use rank 0's "
            "(ddp.from_main_process)"
        )

    def _distances(self, key: _Key) -> list[float]:
        """How far each rank's tensor is from rank 0's."""
        if len({it.kinds[key] for it in self._said}) > 1:
            return [0.0 if it.kinds[key] == self._said[0].kinds[key] else float("inf") for it in self._said]
        tensor = self._tensors[key].detach()
        return exchange("the comparison of parameters", digests.distance(tensor, _rank_0s(tensor)))


def _rank_0s(tensor: torch.Tensor) -> torch.Tensor:
    """Rank 0's values of a tensor; a collective."""
    sent = tensor.detach().contiguous().to(ranks.talk_device(tensor.device))
    if sent.data_ptr() == tensor.data_ptr():
        sent = sent.clone()
    dist.broadcast(sent, 0)
    return sent.to(tensor.device)


def _are_alike(values: dict[_Key, int]) -> bool:
    """Whether all ranks have the same; one small collective."""
    own = int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:8], "little", signed=True)
    mine = torch.tensor([own], dtype=torch.int64, device=ranks.talk_device())
    everyone = [torch.empty_like(mine) for _ in range(ranks.get_world_size())]
    dist.all_gather(everyone, mine)
    return len({it.item() for it in everyone}) == 1


def _may_look() -> bool:
    return not torch.jit.is_tracing() and not _is_capturing()


def _is_capturing() -> bool:
    """Whether what is done now becomes a part of a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
