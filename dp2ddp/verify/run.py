"""Verify a pair of programs: run both, compare what they did. Read this first.

The converted program runs first, by itself; then the original, as nn.DataParallel, with the samples that the ranks
drew. What was drawn is compared with what the original's own samplers dealt.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from dp2ddp.verify import compare, contents, losses, noise, notes, reached, rounding
from dp2ddp.verify.folders import OWN, link_neighbours, mirror
from dp2ddp.verify.jobs import Ended, Server, environment, ranks_environment, variable
from dp2ddp.verify.notes import Notes, norm
from dp2ddp.verify.record import STATES
from dp2ddp.verify.report import headline, where
from dp2ddp.verify.verdict import Difference, Result, Tolerance, Verdict

SEEDS = 3
_AS_IS = (
    "nothing is aligned, so the programs draw other samples or random numbers, and their parameters cannot be the "
    "same; what was compared agrees. Without --as-is the parameters are compared, too"
)
_WAITED = (
    "needs every rank",
    "still needs it",
    "imed out",
    "Connection closed",
    "onnection reset",
    "has ended, but",
)
"""What a process says that waited for another one."""
_NOT_THEIRS = re.compile(r'File "(?:<frozen |.*/(?:torch|dp2ddp/verify)/)')
_NOT_THERE = (
    "FileNotFoundError",
    "NotADirectoryError",
    "URLError",
    "HTTPError",
    "ConnectionError",
    "OSError",
)
_APART = "the ranks train different models"  # as the runtime says
_PRINTED = ("evaluation", "output of training")
_WRITTEN = ("evaluation", "contents", "parts")
"""Causes of what differs in what is printed, written and saved."""
_NO_RATES = "no optimizer of torch's: the program changes the parameters itself"
_INDIVISIBLE = "can't be divided among"
"""What the runtime says of a batch size."""


@dataclass(frozen=True)
class Request:
    """What shall be verified.

    Args:
        before, after: the scripts.
        root: the folder that both are run in a copy of.
        start: the folder in it that they are started in.
        overlay: contents that files of the converted program's copy get.
        mended: those that files of the original's copy get, which does not run as it is.
        originals: those that they get where the folder has the converted program.
        added: files that both copies get: what an installer would write.
        modules: the dotted names of the scripts, where they are started by these.
        processes: how many, and how many replicas.
        steps: optimizer steps.
        device: "cpu" or "cuda".
        arguments: of the scripts.
        float64: make float64 the default type.
        as_is: align nothing, and compare curves over several seeds.
        synthetic: put small data sets in the place of torchvision's.
        prepare: a Python file that runs before the scripts.
        patience: seconds of silence after which a run is taken to hang.
        wraps: where the original wraps its model, as far as it is known.
        watched: places of the original, of which it is noted whether they are run: file, first line, last line.
        shows_parts: whether numbers of training may be of the main process's part of a batch, as where a person has
            written the converted program, or the conversion has said so.
    """

    before: Path
    after: Path
    root: Path
    start: Path = Path()
    overlay: Mapping[Path, bytes] = field(default_factory=dict)
    mended: Mapping[Path, bytes] = field(default_factory=dict)
    originals: Mapping[Path, bytes] = field(default_factory=dict)
    added: Mapping[Path, bytes] = field(default_factory=dict)
    modules: tuple[str, str] = ("", "")
    processes: int = 2
    steps: int = 20
    device: str = "cpu"
    arguments: tuple[str, ...] = ()
    float64: bool = False
    as_is: bool = False
    synthetic: bool = False
    prepare: Path | None = None
    patience: float = 120.0
    wraps: tuple[str, ...] = ()
    watched: tuple[tuple[Path, int, int], ...] = ()
    shows_parts: bool = True


@dataclass
class Run:
    """One run of one of the programs."""

    ranks: list[Notes]
    ended: Ended
    errors: str
    last_lines: dict[int, str]
    """What each rank said last on standard error."""
    folder: Path = Path()
    """Where the ranks wrote down what they did."""

    @property
    def failed(self) -> bool:
        """Whether it did not end by itself, well."""
        return bool(self.ended.stopped) or any(self.ended.codes) or not self.ranks


def verify(
    request: Request, say: Callable[[str], None] = lambda _: None, server: Server | None = None
) -> Result:
    """Run both programs and compare them.

    Args:
        say: gets lines of progress.
        server: that starts the runs; one for this verification if none is given.
    """
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=OWN))
    own = server or Server("torchvision")
    try:
        bench = Bench(request, folder, own, say)
        result = _as_is(bench) if request.as_is else _aligned(bench)
        computed = _computed(result.differences) or result.cut
        if computed is not None and _rounding_may_be_all(computed, request):
            result = _in_float64(bench, result, computed)
        if result.verdict is Verdict.DIFFERS and (reason := _left_out(result.before, request)):
            result.verdict, result.reason, result.differences = Verdict.INCONCLUSIVE, reason, []
            result.unfit = "nn.DataParallel leaves samples out on as many replicas"
    finally:
        if server is None:
            own.close()
        shutil.rmtree(folder, ignore_errors=True)
    if request.mended:
        names = ", ".join(str(path.relative_to(request.root)) for path in request.mended)
        result.notes.insert(
            0, f"the original is compared as it is after these mends alone, it does not run without: {names}"
        )
    result.versions = versions()
    result.seconds = time.monotonic() - begun
    return result


class Bench:
    """Where the runs are made."""

    def __init__(self, request: Request, folder: Path, server: Server, say: Callable[[str], None]) -> None:
        self.request = request
        self.folder = folder
        self.server = server
        self.say = say
        self.count = 0
        self.began = time.time()
        # on real GPUs torch's own DataParallel is the reference
        self.is_real = request.device == "cuda" and torch.cuda.device_count() >= request.processes

    def run_after(self, seeds: int | None = None) -> Run:
        """The converted program, on as many processes as are wanted."""
        request = self.request
        what = f"the converted program on {request.processes} processes"
        more = {"seeds": seeds, "module": request.modules[1]}
        return self._run(request.after, what, request.processes, request.overlay, **more)

    def run_before(
        self,
        plan: Path | None = None,
        seeds: int | None = None,
        noise: Path | None = None,
        states: Path | None = None,
        whole: bool = False,
        nudge: int = 0,
        fills: bool = False,
    ) -> Run:
        """The original, on as many replicas; drawing by ``plan``, and the noise of the run in the folder ``noise``.

        ``states``: of the generators in that run. ``whole``: an evaluation draws for whole batches.
        ``nudge``: the number of a run with other rounding errors, from 1 on. ``fills``: memory that is not written
        into has other values.
        """
        settings: dict[str, Any] = {} if self.is_real else {"replicas": self.request.processes}
        if plan is not None:
            settings["plan"] = str(plan)
        if noise is not None:
            settings["noise"] = str(noise)
        if states is not None:
            settings["states"] = str(states)
        if whole:
            settings["whole"] = True
        if nudge:
            settings["nudge"] = nudge
        if fills:
            settings["fills"] = True
        settings |= {"seeds": seeds, "module": self.request.modules[0], "watched": self.request.watched}
        what = f"the original on {self.request.processes} replicas"
        overlay = {**self.request.originals, **self.request.mended}
        return self._run(self.request.before, what, 1, overlay, **settings)

    def _run(
        self, script: Path, what: str, processes: int, overlay: Mapping[Path, bytes], **more: Any
    ) -> Run:
        self.count += 1
        request, out = self.request, self.folder / f"notes{self.count}"
        out.mkdir()
        place = self.folder / f"run{self.count}"
        work = place / (request.root.name or "root")
        mirror(request.root, work, overlay)
        for path, text in request.added.items():
            (work / path.relative_to(request.root)).write_bytes(text)
        link_neighbours(request.root, place)
        start = work / request.start
        settings = {
            "out": str(out),
            "float64": request.float64,
            "steps": request.steps,
            "align": not request.as_is,
            "synthetic": request.synthetic,
            "prepare": str(request.prepare) if request.prepare else None,
            "clock": None if request.as_is else self.began,
            "moved": [str(request.root), str(work)],
            **({} if self.is_real else {"gpus": request.processes, "device": self._device()}),
            **more,
        }
        settings["watched"] = [
            (str(work / path.relative_to(request.root)), *lines) for path, *lines in more.get("watched", ())
        ]
        shown = request.device == "cuda" or not torch.cuda.is_available()  # else there is nothing to hide
        hidden = {} if shown else {"CUDA_VISIBLE_DEVICES": ""}
        if self.is_real:
            hidden["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(request.processes)))
        base = environment(**variable(settings), **hidden)
        base |= {"DP2DDP_DEBUG": "1", "DP2DDP_TIMEOUT": str(request.patience)}
        job = {
            "command": [str(work / script.relative_to(request.root)), *request.arguments],
            "cwd": str(start),
            "ranks": [{**base, **place} for place in ranks_environment(processes)],
            "timeout": 3600,
            "stdout": str(out / "{rank}.stdout"),
            "stderr": str(out / "{rank}.stderr"),
            "out": str(out),
        }
        ended = self.server.run(job, patience=request.patience, tick=self._progress(what, out))
        errors = {path.stem: path.read_text(errors="replace") for path in sorted(out.glob("*.stderr"))}
        ranks = notes.read(out)
        if ranks:
            written = {path for one in ranks for _, path in one.files}
            ranks[0].texts = contents.read(start, sorted(written), place)
        for one in ranks:
            one.lines = [(step, text.replace(str(place), ""), flag) for step, text, flag in one.lines]
        last_lines = {int(rank): _tail(text).rpartition("\n")[2] for rank, text in errors.items()}
        errors |= {
            str(one.rank): one.error["trace"]
            for one in ranks
            if one.error and not (_exits(one) and last_lines.get(one.rank))
        }
        lasts = {f"rank {rank}: " * (processes > 1): _tail(text) for rank, text in errors.items()}
        shown = "\n".join(f"{who}{last}" for who, last in lasts.items() if last)
        shutil.rmtree(place, ignore_errors=True)

        def local(text: str) -> str:
            return text.replace(f"{start}{os.sep}", "").replace(f"{place}{os.sep}", "")

        ended.traces = {rank: local(text) for rank, text in ended.traces.items()}
        return Run(ranks, ended, local(shown), last_lines, out)

    def _device(self) -> str:
        return "cpu" if self.request.device == "cpu" else "cuda:0"

    def _progress(self, what: str, out: Path) -> Callable[[], None]:
        said = [-1, time.monotonic()]

        def tick() -> None:
            journal = out / "0.jsonl"
            made = 0
            if journal.exists():
                made = journal.read_bytes().count(b'{"event": "step"')
            if said[0] < 0 or (made != said[0] and time.monotonic() - said[1] > 2):
                said[:] = [made, time.monotonic()]
                self.say(f"{what}: step {made} of {self.request.steps}" if made else f"{what} …")

        return tick


def _exits(notes: Notes) -> bool:
    """Whether a rank ends by saying so itself: what it says is on standard error."""
    return notes.error is not None and notes.error["kind"] == "SystemExit"


def _end_of(run: Run, notes: Notes) -> str:
    """How a rank has ended, in words."""
    error = notes.error
    if not _exits(notes):
        first = error["text"].strip().partition("\n")[0]
        return f"{error['kind']}: {first.rstrip(':')}"
    said = run.last_lines.get(notes.rank, "")
    code = f"exit code {error['code']}"
    return error["text"] if not isinstance(error["code"], int) else f"{said} ({code})" if said else code


def _tail(text: str) -> str:
    """The last lines of an output, without those of torch's C++ stacks."""
    lines = [
        line for line in text.strip().splitlines() if not line.lstrip().startswith(("frame #", "[W", "[E"))
    ]
    return "\n".join(lines[-25:])


# Aligned


def _aligned(bench: Bench) -> Result:
    request = bench.request
    tolerance = replace(Tolerance.of(request.float64), parts=request.shows_parts)
    after = bench.run_after()
    if reason := _cannot_be_run(after):
        return Result(Verdict.INCONCLUSIVE, reason, indivisible=True, unfit="they can't divide its batches")
    plan = bench.folder / "plan.json"
    plan.write_text(json.dumps(notes.plan(after.ranks) if after.ranks else {}))
    given = {"noise": after.folder} if noise.joined(after.folder) else {}
    states = after.folder / STATES
    kept: dict[str, Any] = {"states": states if states.exists() else None}
    kept["whole"] = notes.evaluates_whole(after.ranks)
    before = bench.run_before(plan, **given, **kept)
    result = Result(Verdict.MATCH, before=before.ranks[:1], after=[after.ranks])
    result.reached = reached.read(before.folder)
    reason = _why_not(before, request)
    if reason:
        result.verdict, result.reason, result.errors = Verdict.INCONCLUSIVE, reason, before.errors
        result.unfit = "the original fails on as many replicas" if any(before.ended.codes) else ""
        return result
    result.aligned = _what_was_aligned(bench)
    if given:
        result.aligned.append(
            "noise that the loop draws per sample: the original got the values that the converted program drew"
        )
    first, ranks = before.ranks[0], after.ranks
    if after.failed:
        found = [_failure(after)]
        if ranks:
            made = min(len(one.steps) for one in ranks)
            found += [
                one
                for one in compare.differences(first, ranks, tolerance)
                if one.step <= made and one.what not in ("number of steps", "files", "checkpoint")
            ]
        result.differences = sorted(found, key=lambda one: one.step)
        result.verdict, result.errors = Verdict.DIFFERS, said_by(after)
        return result
    result.steps = min([len(first.steps), *(len(one.steps) for one in ranks)])
    if reason := _no_reference(first, ranks, request):
        result.verdict, result.reason = Verdict.INCONCLUSIVE, reason
        return result
    again = functools.partial(bench.run_before, plan, **given, **kept)
    result.differences, written = _differences(first, ranks, tolerance)
    computed = _computed(result.differences, printed=False)
    if computed is not None and _rounding_may_make(computed):
        nudged = [again(nudge=number) for number in range(1, rounding.RUNS + 1)]
        others = [run.ranks[0] for run in nudged if not run.failed]
        moved = replace(rounding.moved(first, others), written=contents.moved(first, others))
        tolerance = replace(tolerance, moved=moved)
        result.differences, written = _differences(first, ranks, tolerance)
        if result.steps >= moved.chaotic:
            result.steps, result.cut = moved.chaotic - 1, computed
    computed = _computed(result.differences)
    if computed is not None and computed.cause in _WRITTEN:
        once_more = again(fills=True)
        if not once_more.failed:
            tolerance = replace(tolerance, varying=contents.varying(first, once_more.ranks[0], tolerance))
            result.differences, written = _differences(first, ranks, tolerance)
    result.verdict = Verdict.DIFFERS if result.differences else Verdict.MATCH
    result.compared = _compared(first, ranks) + _measured(tolerance.moved)
    result.parts = any(one.trains for one in written)
    result.notes = _remarks(first, ranks, request, written)
    if tolerance.varying:
        lines = ", ".join(list(dict.fromkeys(tolerance.varying.values()))[:4])
        result.notes.append(f"what the original itself gives otherwise in each run was not compared: {lines}")
    return result


def _differences(
    before: Notes, after: Sequence[Notes], tolerance: Tolerance
) -> tuple[list[Difference], list[contents.Found]]:
    """All that differs, and in what is written, up to where rounding makes another training of it."""
    written = contents.found(before, after, tolerance)
    found = compare.differences(before, after, tolerance, written)
    end = tolerance.moved.chaotic
    return [one for one in found if one.step < end], [one for one in written if one.step < end]


def _computed(differences: Sequence[Difference], printed: bool = True) -> Difference | None:
    """The first difference in what the programs compute, not in which files they write and when.

    ``printed``: that may be what is printed of an evaluation.
    """
    left_out = {"files", "checkpoint", *([] if printed else _PRINTED)}
    return next((it for it in differences if it.what not in left_out or _is_content(it)), None)


def _is_content(difference: Difference) -> bool:
    """Whether it is of what stands in a file."""
    return difference.cause in _WRITTEN and difference.what not in _PRINTED


def _in_float64(bench: Bench, result: Result, first: Difference) -> Result:
    """The result in float64 where the programs compute the same in that; else in float32, with what float64 says.

    ``first``: what they computed otherwise in float32, beside whatever else differs.
    """
    request = bench.request
    bench.say("they differ in float32, maybe by rounding; running once more in float64 …")
    folder = bench.folder / "float64"
    folder.mkdir()
    wide = _aligned(Bench(replace(request, float64=True), folder, bench.server, bench.say))
    same = wide.verdict is not Verdict.INCONCLUSIVE and not _computed(
        wide.differences, first.what in _PRINTED
    )
    cut = result.cut is not None  # what float32 says ends early
    enough = wide.steps > result.steps if cut else wide.steps >= first.step
    differs = wide.verdict is Verdict.DIFFERS and wide.differences[0].what != "end"
    if (same and enough) or (cut and differs):
        wide.notes.insert(
            0,
            f"in float32 rounding errors grow from step to step: the programs differ {where(first)} "
            f"({first.detail}); so they were compared in float64, where they {'agree' if same else 'differ, too'}",
        )
        wide.widened = True
        return wide
    if wide.verdict is Verdict.DIFFERS:
        result.notes.append(f"they differ in float64, too, so it is not rounding: {headline(wide)}")
    return result


def _rounding_may_make(first: Difference) -> bool:
    """Whether a difference may be rounding errors that grew: losses and gradients before the first step are strict."""
    strict = first.step <= 1 and first.what in ("loss", "gradient")
    is_value = first.what in ("loss", "gradient", "parameter", "buffer") or _is_content(first)
    return is_value and not strict


def _measured(moved: rounding.Moved) -> list[tuple[str, str]]:
    """What rounding was allowed to do, if that was measured."""
    if not moved.parameters:
        return []
    far = max((it for step in moved.parameters for it in step.values()), default=0.0) / rounding.ROOM
    text = (
        f"moves parameters of the original by up to {far:.2g}, as measured by {rounding.RUNS} more runs of it"
    )
    text = f"{text}; differences of up to {rounding.ROOM:g} times as much, in each tensor, were accepted"
    if moved.chaotic < math.inf:
        text += (
            f"; step {moved.chaotic} and what comes after it were not compared: rounding changes the gradients "
            "there"
        )
    return [("rounding", text)]


def _rounding_may_be_all(first: Difference, request: Request) -> bool:
    """Whether a difference that shows later than at the first step may be rounding errors of float32."""
    is_made = _rounding_may_make(first) or first.what in _PRINTED
    return first.step > 1 and is_made and not (request.float64 or request.as_is)


def _why_not(before: Run, request: Request) -> str:
    """Why there is nothing to compare with."""
    if before.ended.stopped:
        return (
            f"the original hangs: {before.ended.stopped}; run it alone to find out where, or raise --timeout"
        )
    if any(before.ended.codes):
        first = next((one for one in before.ranks if one.error), None)
        return (
            f"the original fails: {_end_of(before, first) if first else f'exit code {before.ended.codes[0]}'}"
            f"{_advice(before, first, request)}"
        )
    if not before.ranks or not before.ranks[0].steps:
        return (
            "the original makes no optimizer step, so there is nothing to compare: after --, give arguments with "
            "which it trains"
        )
    return ""


def _advice(before: Run, ended: Notes | None, request: Request) -> str:
    """What to add to the command, as an original's end shows it."""
    if ended is None:
        return ""
    trace, kind = ended.error["trace"], ended.error["kind"]
    if kind == "SystemExit" and ended.error["code"] == 2:
        return "; give the program's own arguments after --: dp2ddp verify … -- ARGUMENTS"
    if re.search(r'File ".*/torchvision/datasets/', trace) and not request.synthetic:
        return "; its data set is missing: --synthetic replaces torchvision's data sets by small random ones"
    if kind in _NOT_THERE and not request.prepare:
        return "; --prepare FILE runs a Python file of yours first, which can provide the data"
    return ""


def _no_reference(before: Notes, after: Sequence[Notes], request: Request) -> str:
    """Why two runs say nothing of DataParallel on so many devices, although both have trained."""
    if not before.trained_wrapped:
        where = f" ({', '.join(request.wraps)})" if request.wraps else ""
        what = "in training, only elsewhere" if before.wrapped else "in training"
        return (
            f"the original did not use nn.DataParallel{where} {what}: it chose one device; after --, give the "
            "options that choose several"
        )
    if len(after) < request.processes:
        trained = f"{len(after)} of {request.processes} processes"
        return (
            f"the converted program trained on {trained}: its options selected fewer devices; give others "
            "after --"
        )
    return ""


def _left_out(before: Sequence[Notes], request: Request) -> str:
    """That the original does not train on all samples with so many replicas: what it computes is no reference."""
    uneven = next((one.uneven for one in before if one.uneven), None)
    if uneven is None:
        return ""
    most, least = uneven
    return (
        f"nn.DataParallel on {request.processes} replicas cuts arguments of one call into {most} and {least} parts and "
        "leaves the rest of the samples out: verify with another number of --processes"
    )


def _cannot_be_run(after: Run) -> str:
    """Why the converted program is not for so many processes, in the runtime's words."""
    said = next((line for line in after.last_lines.values() if _INDIVISIBLE in line), "")
    return (
        (f"{said.removeprefix('dp2ddp: ')}. Verify with --exact, or with another number of --processes")
        if said
        else ""
    )


def _failure(after: Run) -> Difference:
    """How the converted program hangs or dies, as a difference."""
    made = min((len(one.steps) for one in after.ranks), default=0)
    errors = [one for one in after.ranks if one.error]
    own = [one for one in errors if not any(sign in one.error["text"] for sign in _WAITED)]
    if own:
        first = own[0]
        detail = f"rank {first.rank} ends: {_end_of(after, first)}"[:400]
        return Difference(made + 1, "end", detail, "replica" if _APART in first.error["text"] else "error")
    if after.ended.stopped or errors or any(sign in after.errors for sign in _WAITED):
        where = [f"rank {one.rank} last called {one.collective}" for one in after.ranks if one.collective]
        what = after.ended.stopped or "a rank waited for another rank"
        detail = f"the converted program hangs: {'; '.join([what, *where])}"
        return Difference(made + 1, "end", detail, "collective")
    codes = ", ".join(f"rank {rank}: {code}" for rank, code in enumerate(after.ended.codes))
    return Difference(made + 1, "end", f"the converted program ends with exit codes {codes}", "error")


def said_by(run: Run) -> str:
    """What a run that failed said, and where its ranks were."""
    traces = [f"rank {rank} was at\n{_own_frames(text)}" for rank, text in run.ended.traces.items() if text]
    return "\n".join(filter(None, [run.errors, *traces]))


def _own_frames(trace: str) -> str:
    """Where a process was: the innermost frame, and those of the script that led there."""
    frames = [line for line in trace.splitlines() if line.lstrip().startswith("File ")]
    return "\n".join(frames[:1] + [line for line in frames[1:] if not _NOT_THEIRS.search(line)])


def _what_was_aligned(bench: Bench) -> list[str]:
    request = bench.request
    if bench.is_real:
        reference = f"nn.DataParallel itself, on {request.processes} GPUs"
    else:
        where = "the CPU" if request.device == "cpu" else "one GPU"
        reference = (
            f"nn.DataParallel emulated on {where}, {request.processes} replicas, not run on several GPUs"
        )
    lines = [
        f"reference: {reference}",
        "order of the samples: the original was given the global batches that the converted program drew; their "
        "sizes, repeats and reshuffling were compared with those of its own samplers",
        "random augmentation: drawn by data set, epoch and sample, whichever process draws it",
        "random numbers in wrapped models (dropout): drawn by forward and replica",
        "states of random generators: the same in the original and on rank 0, with each training batch and after each "
        "optimizer step; Python's and numpy's also before the programs seed them",
        "the clock: each time that the programs' own code asks for is 10 ms later than the one before; what it calls "
        "unique (uuid, secrets) is drawn alike",
        "line numbers in log records: none, as the conversion moves lines",
        f"number of steps: loops over training data end after {-(-request.steps // 2)}, and the programs after "
        f"{request.steps}",
    ]
    if request.float64:
        lines.append("type: float64 is the default, and replaces float32 in batches and casts")
    if not bench.is_real:
        device = "the CPU, without mixed precision," if request.device == "cpu" else "one GPU"
        lines.append(f"devices: CUDA is {device} in both runs")
    if request.synthetic:
        lines.append("synthetic data: small random sets instead of torchvision's")
    if request.prepare:
        lines.append(f"what {request.prepare.name} replaces: it runs first in both")
    return lines


def _compared(before: Notes, after: Sequence[Notes]) -> list[tuple[str, str]]:
    rows = []
    losses = loss_pairs(before, after)
    if losses:
        worst = max(abs(one - other) for one, other in losses)
        rows.append(("losses", f"{len(losses)}, at most {worst:.2g} apart"))
    norms = norm_pairs(before, after)
    if norms:
        worst = max(abs(one - other) / max(one, 1e-30) for one, other in norms)
        rows.append(("gradient norms", f"{len(norms)}, at most {worst:.2g} of their size apart"))
    sizes = [size for optimizer in before.optimizers for size in optimizer.sizes]
    rows.append(("parameters", f"{len(sizes)} tensors, {sum(sizes):,} numbers, after every step"))
    far = compare.largest_distance(before, after)
    if far is not None:
        rows.append(("largest difference at the end", f"{far[0]:.2g} ({far[1]})"))
    buffers = len(before.steps[-1].buffers)
    rows.append(("buffers", f"{buffers} tensors of rank 0" if buffers else "there are none"))
    batches = sum(one.handed for one in before.training)
    rows.append(("global batches", f"{batches} in {len(before.training)} loops over training data"))
    rates = sorted({rate for step in before.steps for rate in step.rates}, reverse=True)
    rows.append(("learning rates", ", ".join(f"{rate:g}" for rate in rates[:6]) or _NO_RATES))
    evaluated = sum(flag for _, _, flag in before.lines)
    rows.append(("printed", f"{len(before.lines)} lines, {evaluated} of them after evaluations"))
    saved = {one.path: f"{one.path} ({len(one.values)} values)" for one in before.saves}
    rows.append(("checkpoints", ", ".join(saved.values()) or "none saved"))
    numbers = contents.count(before, after[0])
    named = [
        f"{path} ({numbers[path]} numbers)" if path in numbers else path
        for path in sorted({path for _, path in before.files} - saved.keys())
    ]
    rows.append(("other files", ", ".join(named[:8]) or "none written"))
    return rows


def _remarks(
    before: Notes, after: Sequence[Notes], request: Request, written: Sequence[contents.Found]
) -> list[str]:
    found = []
    made = min(len(one.steps) for one in (before, *after))
    if made < request.steps:
        found.append(f"the programs end after {made} steps by themselves")
    found += _unnumbered(before)
    if len(before.training) < 2:
        found.append("one loop over the training data was seen: whether epochs are shuffled anew was not")
    if not any(evaluated for _, _, evaluated in before.lines):
        found.append("nothing was printed after an evaluation")
    if any(notes.gathers for notes in after):
        found.append("whole batches: every rank loads all samples, and the wrapper splits them")
    found += [
        f"{one.path or 'output'}: a training number differs, apparently computed on rank 0's local batch only: "
        f"{one.detail}"
        for one in written
        if one.trains and request.shows_parts
    ]
    found += _unwrapped(before, after)
    adaptive = any(optimizer.adaptive for optimizer in before.optimizers)
    if adaptive and not request.float64:
        found.append(
            "an adaptive optimizer in float32 turns rounding into steps: parameters were held to 1e-5 and two "
            "learning rates for each step, their gradients strictly; --float64 holds both"
        )
    return found


def _unwrapped(before: Notes, after: Sequence[Notes]) -> list[str]:
    """That models are pickled bare which were with their wrapper: their states are compared all the same."""
    paths = dict.fromkeys(
        one.path
        for one, other in contents.saves(before, after)
        if one and other and one.wrapped and not other.wrapped
    )
    text = "the model is pickled without its wrapper, and with it before: their states were compared"
    return [f"{', '.join(paths)}: {text}, and what loads it needs no .module"] if paths else []


def _unnumbered(before: Notes) -> list[str]:
    """That the sizes of some batches are not known."""
    names = {
        one.data[0] for one in before.training for p in range(one.handed) if one.drawn[p : p + 1] == [None]
    }
    names |= {
        one.data[0] for one in before.training if one.drawn and one.drawn[0] and one.drawn[0][0] is None
    }
    if not before.training:
        return ["training used no DataLoader: batch sizes were not compared"]
    return [f"{name} has no sample indices: its batch sizes were not compared" for name in sorted(names)]


def loss_pairs(before: Notes, after: Sequence[Notes]) -> list[tuple[float, float]]:
    """Each step's losses: the original's, and the converted program's of the whole batch."""
    pairs = []
    for number in range(min([len(before.steps), *(len(one.steps) for one in after)])):
        one, others = before.steps[number], [rank.steps[number] for rank in after]
        for place in range(min([len(one.losses), *(len(other.losses) for other in others)])):
            candidates = losses.of_whole(after, others, place)
            if one.losses[place] is not None and candidates:
                value = one.losses[place]
                pairs.append((value, min(candidates, key=lambda found: abs(found - value))))
    return pairs


def norm_pairs(before: Notes, after: Sequence[Notes]) -> list[tuple[float, float]]:
    """The norms of each step's gradients."""
    return [
        (norm(one.gradients), norm(other.gradients))
        for one, other in zip(before.steps, after[0].steps, strict=False)
    ]


# As it is


def _as_is(bench: Bench) -> Result:
    """Compare what does not hang on the samples and random numbers that are drawn, and loss curves over several seeds.

    Only where both draw alike by themselves can their parameters be the same: then all is compared, and may match.
    """
    request = bench.request
    tolerance = Tolerance.of(request.float64)
    befores, afters = [], []
    strict: list[Difference] = []
    loose: list[Difference] = []
    for seeds in range(SEEDS):
        before = bench.run_before(seeds=seeds)
        reason = _why_not(before, request)
        if reason:
            return Result(Verdict.INCONCLUSIVE, reason, errors=before.errors)
        befores.append(before.ranks[0])
        after = bench.run_after(seeds=seeds)
        if reason := _cannot_be_run(after):
            return Result(Verdict.INCONCLUSIVE, reason)
        if not after.failed and (reason := _no_reference(before.ranks[0], after.ranks, request)):
            return Result(Verdict.INCONCLUSIVE, reason)
        if after.failed:
            return Result(
                Verdict.DIFFERS,
                differences=[_failure(after)],
                before=befores,
                after=afters,
                errors=said_by(after),
            )
        afters.append(after.ranks)
        written = contents.found(before.ranks[0], after.ranks, tolerance)
        strict += compare.differences(before.ranks[0], after.ranks, tolerance, written)
        loose = loose or compare.law(before.ranks[0], after.ranks, tolerance)
    result = Result(Verdict.MATCH, before=befores, after=afters)
    result.aligned = [f"nothing: {SEEDS} seeds of each program, with their own samples and random numbers"]
    curves = [[value for step in one.steps for value in step.losses if value is not None] for one in befores]
    theirs = [losses.curve(ranks) for ranks in afters]
    result.steps = min(map(len, [*curves, *theirs]))
    outside, result.compared = spread(curves, theirs)
    result.compared += _compared_as_is(befores)
    result.notes = _unnumbered(befores[0]) + _unwrapped(befores[0], afters[0])
    by_seed = {
        it.what for other in befores[1:] for it in compare.law(befores[0], [other], tolerance)
    }  # the original's own runs differ in it
    result.differences = strict and [it for it in loose if it.what not in by_seed - {"start"}] + outside
    if result.differences:
        result.verdict = Verdict.DIFFERS
    elif strict:
        result.verdict, result.reason = Verdict.INCONCLUSIVE, _AS_IS
        result.notes.append(
            f"what differs first, as other samples or random numbers make it: {where(strict[0])}: {strict[0].detail}"
        )
    return result


def _compared_as_is(befores: Sequence[Notes]) -> list[tuple[str, str]]:
    """What is the same whatever is drawn."""
    first = befores[0]
    sizes = sorted({size for one in first.training for p in range(one.handed) if (size := one.own_size(p))})
    rates = sorted({rate for step in first.steps for rate in step.rates}, reverse=True)
    return [
        (
            "global batches",
            ", ".join(map(str, sizes[:6])) + " samples" if sizes else "their samples have no numbers",
        ),
        ("learning rates", ", ".join(f"{rate:g}" for rate in rates[:6]) or _NO_RATES),
        (
            "also",
            "parameters before the first step, options of the optimizers, numbers of steps and losses, "
            "lengths and reshuffling of epochs, keys and times of checkpoints, files",
        ),
    ]


def spread(
    curves: list[list[float]], theirs: list[list[float]]
) -> tuple[list[Difference], list[tuple[str, str]]]:
    """Where the mean of ``theirs`` leaves the range of ``curves``, widened by as much again and 2 % of its size.

    Single steps are noisy: means over quarters of the run are compared.
    """
    count = min(map(len, [*curves, *theirs]))
    size = max(1, math.ceil(count / 4))
    found, rows = [], []
    for start in range(0, count, size):
        mine = [statistics.fmean(curve[start : min(start + size, count)]) for curve in curves]
        other = statistics.fmean(statistics.fmean(one[start : min(start + size, count)]) for one in theirs)
        low, high = min(mine), max(mine)
        room = (high - low) + 0.02 * max(abs(low), abs(high))
        rows.append(
            (
                f"losses {start + 1} to {min(start + size, count)}",
                f"{other:.5g}, original {low:.5g} to {high:.5g}",
            )
        )
        if not low - room <= other <= high + room:
            detail = f"mean loss {other:.5g}, outside of the original's {low:.5g} to {high:.5g}"
            found.append(Difference(start + 1, "loss", detail, "curve"))
    return found, rows


def versions() -> list[tuple[str, str]]:
    """What this ran with."""
    from dp2ddp import __version__

    found = [("dp2ddp", __version__), ("torch", torch.__version__), ("Python", platform.python_version())]
    if torch.cuda.is_available():
        found.append(("CUDA", str(torch.version.cuda)))
    return [*found, ("system", f"{platform.system()} {platform.machine()}")]
