"""Run a training script as it is, and write down what it did.

    DP2DDP_RECORD='{"out": "runs/1", "float64": true}' python -m dp2ddp.verify.record train.py --epochs 2

The script is not touched: torch is patched before it starts, and its own launcher, which starts the ranks by running
the same command again, brings the patches along. The variable is a JSON object:

    out        folder that gets one journal per rank (``0.jsonl``, …) and one file of tensors (``0.pt``, …);
               absent: only ``gpus`` counts
    float64    make float64 the default type, and what is float32 (see ``doubles``)
    replicas   play nn.DataParallel with so many replicas (see ``reference``)
    gpus       so many GPUs are seen, all of them the CPU or ``device`` (see ``cuda``); absent: leave CUDA as it is
    noise      folder of a converted run, whose noise for the samples is to be drawn (see ``noise``)
    states     file with the states that a converted run's generators had with each training batch and after each
               step: they are to be the same
    whole      whether a model that draws in an evaluation does that for the whole batch (see ``forwards``)
    plan       file with the training batches to draw instead of the sampler's
    steps      end after so many optimizer steps; loops over training data end after half of them
    align      samples draw by their index and epoch, wrapped forwards by their number and replica
    parameters "all": keep those after every optimizer step · "last": after the last one only
    nudge      number of a run whose rounding errors are to be others (see ``rounding``)
    fills      memory that the program reads before it writes there has other values than by itself
    seeds      number that is added to every seed
    synthetic  replace torchvision's data sets by small ones
    prepare    a Python file to run first
    module     the script's dotted name, if it is started by that
    clock      what time it is to be when the program begins, for its own code (see ``clock``)
    moved      the user's folder, in which nothing may be written, and the copy of it to work in
    watched    places, [file, first line, last line] each: which of them are run is noted (see ``reached``)
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from dp2ddp.runtime import parts
from dp2ddp.runtime.sameness import is_used
from dp2ddp.verify import cuda, doubles, draws, noise, reference, rounding, synthetic, vendored
from dp2ddp.verify.clock import Clock
from dp2ddp.verify.digests import digest
from dp2ddp.verify.forwards import Forwards, line
from dp2ddp.verify.journal import Journal
from dp2ddp.verify.loaders import Loaders
from dp2ddp.verify.manual import Manual
from dp2ddp.verify.notes import LOOP
from dp2ddp.verify.outputs import Outputs
from dp2ddp.verify.reached import Reached

VARIABLE = "DP2DDP_RECORD"
PLACE = "DP2DDP_PLACE"
"""Where the ranks that the runtime starts keep what torchrun says of them; the program does not see it."""

_PERTURBS, _FILL, _CACHED = -6, 0x3F, 1040
"""An option of glibc's mallopt; the byte, which makes numbers far from 0, also turned round; sizes of small blocks."""
STATES = "states"
"""The file, in the folder of a run, with the states of rank 0's generators where it got batches and after steps."""

_COLLECTIVES = (
    "all_reduce all_gather all_gather_into_tensor all_gather_object broadcast broadcast_object_list barrier gather "
    "gather_object reduce reduce_scatter scatter scatter_object_list all_to_all _broadcast_coalesced"
).split()
_IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")
_ADAPTIVE = ("Adam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "Lion", "LAMB", "Lamb")


class Done(SystemExit):
    """The run has made its steps."""


class Recorder:
    """Patches torch to note what one process does."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.out = Path(settings["out"]).resolve()
        self.journal = Journal(self.out)
        self.root, self.work = settings.get("moved") or (None, None)
        self.steps = 0
        self.limit: int | None = settings.get("steps")
        plan = json.loads(Path(settings["plan"]).read_text()) if settings.get("plan") else None
        align = bool(settings.get("align"))
        self.loaders = Loaders(
            self.journal,
            plan,
            align,
            lambda: self.steps,
            self.limit,
            bool(settings.get("float64")),
            current_rank,
        )
        whole = bool(settings.get("whole"))
        self.forwards = Forwards(self.journal, align, current_rank, self.loaders.note_evaluation, whole)
        self.outputs = Outputs(self.journal, lambda: self.loaders.evaluated, self.root, self.work)
        self.parameters: list[torch.Tensor] = []
        self._known: dict[int, list[str]] = {}  # optimizers, and their parameters' names
        self._optimizers: list[torch.optim.Optimizer | Manual] = []
        self.manual = Manual(self.forwards.wrapped_parameters)
        self.noted: noise.Noted | None = None
        self.states: dict[Any, Any] = (
            torch.load(settings["states"], weights_only=False) if settings.get("states") else {}
        )
        self._keeps_states = align and plan is None

    def patch(self) -> None:
        """Put the notes into torch, and make the changes that the settings ask for."""
        settings = self.settings
        if settings.get("steps"):  # a script may draw its seed: the same one in the original and on rank 0
            draws.begin(1000 * (settings.get("seeds") or 0) + _started_as())
        if settings.get("fills"):
            _fill_memory()
        if settings.get("seeds") is not None:
            draws.shift_seeds(settings["seeds"])
        if settings.get("float64"):
            doubles.use()
        if settings.get("gpus"):
            cuda.pretend(settings["gpus"], settings.get("device", "cpu"))
        if settings.get("replicas"):
            reference.play(settings["replicas"])
        if settings.get("synthetic"):
            synthetic.replace()
        if settings.get("clock") and self.work:
            Clock(settings["clock"], self.work, _started_as()).patch()
            draws.name_alike(_started_as(), self.work)
        self._patch_backward()
        self._patch_collectives()
        self.loaders.on_training_batch = self._align_states
        self.loaders.patch()
        self.forwards.patch()
        self.outputs.patch()
        self._align_noise()
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def _align_noise(self) -> None:
        # not all batches so far: of a divided evaluation each rank gets its own number of them
        of_loops = lambda: (self.steps, *self.loaders.last()), self.forwards.runs_wrapped  # noqa: E731
        if self.settings.get("noise"):
            noise.Given(noise.joined(Path(self.settings["noise"])), *of_loops).patch()
        elif self.settings.get("align") and not self.settings.get("plan"):
            self.noted = noise.Noted(self._note_alike, self.loaders.rows, *of_loops)
            self.loaders.on_batch = self.noted.patch

    def _note_alike(self, name: str, value: torch.Tensor, place: noise.Place) -> None:
        shown = f"{value.shape} {digest(value.double())}"
        self.journal.add(
            "stream",
            what=f"{name} after {place[0]} steps, in batch {place[-1]}",
            of=LOOP,
            states={"torch": shown},
        )

    # Backward passes

    def _patch_backward(self) -> None:
        backward = torch.Tensor.backward
        inside = False
        nudge = rounding.Nudge(self.settings["nudge"]) if self.settings.get("nudge") else None

        @functools.wraps(backward)
        def noted(tensor: torch.Tensor, gradient: Any = None, *args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside:  # a function mode sends backward through torch.Tensor.backward once more
                return backward(tensor, gradient, *args, **kwargs)
            self._note_manual_step()
            if self.limit is not None and self.steps >= self.limit:
                raise Done(0)
            self.loaders.note_backward()
            value = tensor.detach().double().item() if tensor.numel() == 1 else None
            self.journal.add(
                "loss",
                value=value,
                looks=_looks(tensor) if self.settings.get("replicas") else {},
                samples=parts.sizes(),
                cuts=is_used(),
            )
            if nudge is not None:
                gradient = nudge(tensor, gradient)
            inside = True
            try:
                result = backward(tensor, gradient, *args, **kwargs)
            finally:
                inside = False
            if self._steps_by_hand:
                self.manual.after_backward(self._buffers())
            return result

        torch.Tensor.backward = noted

    def _patch_collectives(self) -> None:
        dist = torch.distributed
        for name in _COLLECTIVES:
            if hasattr(dist, name):
                setattr(dist, name, self._noted_collective(name, getattr(dist, name)))

    def _noted_collective(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.journal.open(current_rank())
            self.journal.add("collective", name=name, line=line())
            return function(*args, **kwargs)

        return noted

    # Optimizer steps

    @property
    def _steps_by_hand(self) -> bool:
        """Whether no optimizer has been made: the program may write its parameters itself."""
        return self._optimizers in ([], [self.manual])

    def _note_manual_step(self) -> None:
        if self._steps_by_hand and self.manual.has_stepped():
            self.journal.open(current_rank())
            if not self._optimizers:
                self._introduce(self.manual, self.manual.before)
            self.journal.add("gradients", optimizer=0, digests=self.manual.gradients)
            self._after_step(self.manual, (), {})

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self.limit is not None and self.steps >= self.limit:
            raise Done(0)
        self.journal.open(current_rank())
        if id(optimizer) not in self._known:
            self._introduce(optimizer)
        digests = [digest(parameter.grad) for parameter in _parameters(optimizer)]
        self.journal.add("gradients", optimizer=self._number(optimizer), digests=digests)

    def _introduce(self, optimizer: torch.optim.Optimizer | Manual, start: Sequence[Any] = ()) -> None:
        """Note an optimizer before its first step; ``start``: digests of its parameters, if they have changed since."""
        self._optimizers.append(optimizer)
        names, wrapped = self.forwards.names(), self.forwards.wrapped()
        parameters = _parameters(optimizer)
        number = len(self._optimizers) - 1
        mine = [
            names.get(id(p), f"parameter {place} of optimizer {number + 1}")
            for place, p in enumerate(parameters)
        ]
        self._known[id(optimizer)] = mine
        kind = type(optimizer).__name__
        self.journal.add(
            "optimizer",
            number=number,
            kind=kind,
            adaptive=any(name in kind for name in _ADAPTIVE),
            names=mine,
            sizes=[parameter.numel() for parameter in parameters],
            bare=[
                name
                for name, p in zip(mine, parameters, strict=True)
                if id(p) not in wrapped and p.grad is not None
            ],
            dtype=str(parameters[0].dtype) if parameters else "",
            digests=start or [digest(parameter) for parameter in parameters],
        )

    def _after_step(self, optimizer: torch.optim.Optimizer | Manual, _args: Any, _kwargs: Any) -> None:
        self.steps += 1
        parameters = _parameters(optimizer)
        buffers = optimizer.buffers if isinstance(optimizer, Manual) else self._buffers()
        self.journal.add(
            "step",
            number=self.steps,
            optimizer=self._number(optimizer),
            rates=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            digests=[digest(parameter) for parameter in parameters],
            buffers=buffers,
            gathers=self.forwards.gathers,
            options=[_options(group) for group in optimizer.param_groups],
            frozen=[place for place, parameter in enumerate(parameters) if not parameter.requires_grad],
        )
        self._align_states(self.steps)
        keep = self.settings.get("parameters")
        if keep:
            if keep == "last":
                self.parameters.clear()
            self.parameters.append(torch.cat([p.detach().flatten().double().cpu() for p in parameters]))

    def _align_states(self, place: Any) -> None:
        """Keep the states that the generators have at a place, or give them those that were kept there."""
        if self._keeps_states:
            self.states[place] = draws.states()
        elif place in self.states:
            draws.restore(self.states[place])

    def _buffers(self) -> dict[str, list[float] | None]:
        return {name: digest(buffer) for name, buffer in self.forwards.buffers().items()}

    def _number(self, optimizer: torch.optim.Optimizer | Manual) -> int:
        return next(place for place, one in enumerate(self._optimizers) if one is optimizer)

    # The end

    def fail(self, error: BaseException) -> None:
        """Note that the script ended in ``error``."""
        code = error.code if isinstance(error, SystemExit) else 1
        text = "".join(traceback.format_exception(error.with_traceback(_from_script(error.__traceback__))))
        self.journal.add("error", kind=type(error).__name__, text=str(error), code=code, trace=text)
        self.journal.open(current_rank())

    def write(self) -> None:
        """Write what is left, if this process trained or read data at all: a launching agent does neither."""
        self._note_manual_step()
        if not (self.steps or self.loaders.evaluated or self.journal.rank is not None):
            return
        self.journal.open(current_rank())
        rank = self.journal.rank
        last = [[p.detach().cpu() for p in _parameters(optimizer)] for optimizer in self._optimizers]
        partial = self.out / f"{rank}.pt.partial"
        self.journal.on = False
        torch.save({"parameters": self.parameters, "last": last if self.limit else []}, partial)
        partial.replace(self.out / f"{rank}.pt")
        if self.noted is not None:
            self.noted.write(self.out, rank)
        if self._keeps_states and rank == 0:
            torch.save(self.states, self.out / STATES)
        self.journal.on = True
        self.journal.add("done", steps=self.steps)


def _parameters(optimizer: torch.optim.Optimizer | Manual) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """What a group of parameters is trained with, and how many there are; not how that is computed."""
    told = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in group.items()
        if name not in _IMPLEMENTATION and isinstance(value, (int, float, str, bool, tuple))
    }
    return {**told, "params": len(group["params"])}


def _looks(loss: torch.Tensor) -> dict[str, Any]:
    """What a loss is computed with from the gathered outputs: the kinds of nodes, and how a mean is weighed."""
    kinds: set[str] = set()
    found: dict[str, Any] = {"weights": False, "ignored": False}
    left, seen = [loss.grad_fn], set()
    while left and len(seen) < 2000:
        node = left.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if reference.GATHERED in node.metadata:
            continue
        kinds.add(node.name().removesuffix("Backward0"))
        if node.name().startswith("NllLoss"):
            found["weights"] = found["weights"] or node._saved_weight is not None
            ignored = node._saved_ignore_index
            found["ignored"] = found["ignored"] or bool((node._saved_target == ignored).any())
        left += [following for following, _ in node.next_functions]
    return {**found, "kinds": sorted(kinds)}


def current_rank() -> int:
    """This process's rank: from the process group where there is one, else from the environment."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return _started_as()


def _started_as() -> int:
    """The rank that this process was started as."""
    kept = json.loads(os.environ.get(PLACE, "{}"))
    return int({**os.environ, **kept}.get("RANK", "0"))


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from where the script begins; all of it where none of it is the script's."""
    frame = trace
    while frame is not None and frame.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        frame = frame.tb_next
    return frame or trace


def _moved(path: str, root: str, work: str) -> str:
    """A place to import from: in the copy where it is in the folder that was copied."""
    within = path == root or path.startswith(root + os.sep)
    return work + path.removeprefix(root) if within else path


def _first_place(script: str, module: str | None) -> str:
    """Where Python looks first for what a script imports, run by its path or by its dotted name."""
    path = Path(script).resolve()
    above = module.count(".") + (path.name == "__main__.py") if module else 0
    return str(path.parents[above])


def _start(script: str, module: str | None) -> None:
    """Run a script, by its dotted name if it has to be."""
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")


def _fill_memory() -> None:
    """Have the C library fill what it hands out, where it can: by chance that may be zeros in every run."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p
        library.mallopt(_PERTURBS, _FILL)
        for size in range(
            8, _CACHED, 16
        ):  # small ones that are kept for the next call, as they are: free fills them
            for block in [library.malloc(ctypes.c_size_t(size)) for _ in range(16)]:
                library.free(ctypes.c_void_p(block))


def main() -> None:
    """Run the script that the command line names, recorded as the variable says; just run it where it is not set.

    Where it says only how many GPUs are seen, nothing is recorded.
    """
    script = sys.argv[1]
    vendored.install()
    settings = json.loads(os.environ[VARIABLE]) if VARIABLE in os.environ else None
    recorder = None if settings is None or "out" not in settings else Recorder(settings)
    if recorder is None and settings is not None:
        cuda.pretend(settings["gpus"], settings.get("device", "cpu"))
    if recorder is not None:
        recorder.patch()
        if hasattr(signal, "SIGUSR1") and settings.get("steps"):
            trace = open(recorder.out / f"{_started_as()}.trace", "w")
            faulthandler.register(signal.SIGUSR1, file=trace, all_threads=False)
    sys.argv = sys.argv[1:]
    module = settings.get("module") if settings else None
    sys.path[0] = _first_place(script, module)
    if recorder is not None and recorder.root:
        sys.path[1:] = [_moved(path, recorder.root, recorder.work) for path in sys.path[1:]]
    if recorder is None:
        _start(script, module)
        return
    process = os.getpid()
    try:
        if settings.get("prepare"):  # it may import what the script can
            runpy.run_path(settings["prepare"], run_name="prepare")
        if settings.get("watched"):
            Reached(settings["watched"], recorder.out).watch()
        _start(script, module)
    except Done:
        pass
    except BaseException as error:
        stopped = isinstance(error, StopIteration) or isinstance(error.__cause__, StopIteration)
        if os.getpid() == process and not (stopped and recorder.loaders.was_cut):
            if not isinstance(error, SystemExit) or error.code not in (None, 0):
                recorder.fail(error)
            raise
    finally:
        if os.getpid() == process:
            recorder.write()


if __name__ == "__main__":
    main()
