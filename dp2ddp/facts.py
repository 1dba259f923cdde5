"""What we know about a program: plain data, collected by ``analyse`` and read by ``rules``.

Facts name pieces of code by ``Anchor``. ``ddp`` is the runtime's name in the file that a fact stands in.
A fact with a ``problem`` could not be followed to the end, or stands in the way of a tier: it says why and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from dp2ddp.legacy import Mend
from dp2ddp.plan import Anchor
from dp2ddp.source import Location


class Tier(Enum):
    """How the processes of a program share its work.

    Sharded: each draws its part of every batch, and DistributedDataParallel averages the gradients. Whole batch: each
    draws every batch, and the model computes its part of it: nn.DataParallel's own contract, exact for any loss.
    """

    SHARDED = "sharded"
    WHOLE_BATCH = "whole batch"


ANY_TIER = frozenset(Tier)
SHARDED_ONLY = frozenset({Tier.SHARDED})
NO_TIER: frozenset[Tier] = frozenset()


@dataclass(frozen=True)
class Assumption:
    """What is neither proven nor refuted, in plain words, at the place of its cause."""

    at: Anchor
    text: str


@dataclass(frozen=True)
class Problem:
    """What stands in the way, and what a person can do about it.

    ``forbids``: the tiers that it makes impossible. None: it is worth a look, no more. ``works``: not even that, the
    program does what it says; it is worth to be known. ``concerns``: the tiers in which it is. ``assumes``: what is not
    known, and would have to hold for nothing to be in the way; without any, it is known that something is.
    ``assumed``: it was taken as true.
    ``cause``: the place that it comes from, where that is not the fact's own. ``briefly``: the help in fewer words, for
    where there is no room. ``gist``: what is there, in a few words, for what it settles elsewhere. ``of_parts``: it
    holds wherever a rank's part is taken.
    """

    message: str
    help: str
    forbids: frozenset[Tier] = ANY_TIER
    works: bool = False
    assumes: tuple[Assumption, ...] = ()
    assumed: bool = False
    cause: Anchor | None = None
    concerns: frozenset[Tier] = ANY_TIER
    briefly: str = ""
    gist: str = ""
    of_parts: bool = False

    @property
    def is_refuted(self) -> bool:
        """Whether it is known that a tier is impossible, and not only unknown whether it is possible."""
        return bool(self.forbids) and not self.assumes


@dataclass(frozen=True)
class Fact:
    """Something found at one place of a file, where the runtime is called ``ddp``.

    ``scripts``: the programs that run it.
    """

    at: Anchor
    ddp: str
    scripts: frozenset[Path] = field(default=frozenset(), kw_only=True)
    problem: Problem | None = field(default=None, kw_only=True)

    @property
    def path(self) -> Path:
        return self.at.path

    @property
    def cause(self) -> Anchor:
        """Where its problem comes from."""
        return self.at if self.problem is None or self.problem.cause is None else self.problem.cause


@dataclass(frozen=True)
class Late(Fact):
    """The devices are chosen by ``devices`` when the ranks run already: before the statement ``at`` or ``after`` it."""

    after: bool
    devices: str


@dataclass(frozen=True)
class Aside(Fact):
    """It is known whether the program starts ranks by itself, by a ``condition``: before the statement ``at`` or
    ``after`` it.
    """

    after: bool
    condition: str


@dataclass(frozen=True)
class Script(Fact):
    """A program that trains with DataParallel: ``at`` is where its ranks start, in the file ``program`` or another.

    ``form`` is "launch" (``at`` is the call of the main function) or "init" (``at`` is the first statement that
    only ranks may run). ``devices`` is the expression that chooses the devices, if the program does so by then, and
    ``imports`` what it needs; ``late`` says where it does so later, on each of several ways that it may go. ``enabled``
    is the condition under which ranks start, where the program may start others by itself; ``asides`` say where
    that is known later. ``own_ranks``: whether the program may ask the environment what a launcher says of ranks of
    its own.
    ``tier`` is decided last, and ``reasons`` are the facts that keep the program from being sharded.
    ``assumptions``: what has to hold for it to be sharded, where nothing else is in the way of that; what was taken as
    true where it is.
    """

    form: str
    program: Path
    reaches: frozenset[Path]
    function: Anchor | None = None
    arguments: tuple[tuple[str, Anchor], ...] = ()
    devices: Anchor | str | None = None
    late: tuple[Late, ...] = ()
    asides: tuple[Aside, ...] = ()
    imports: tuple[str, ...] = ()
    enabled: str = ""
    own_ranks: bool = False
    done: bool = False
    tier: Tier = Tier.SHARDED
    reasons: tuple[Fact, ...] = ()
    assumptions: tuple[Assumption, ...] = ()

    @property
    def decisive(self) -> tuple[Fact, ...]:
        """The reasons that hold whatever else is known; all of them, where nothing is refuted."""
        refuted = tuple(it for it in self.reasons if it.problem is not None and it.problem.is_refuted)
        return refuted or self.reasons


CURRENT = "the current GPU"


@dataclass(frozen=True)
class Condition:
    """An ``if`` that decides whether the model is wrapped.

    ``whole`` if it does nothing else; ``alternative`` if it has an ``else``; ``option`` if an option of the user's
    has a part in it, which also decides the device: then moves to the device stay under it. ``guard`` is the condition
    under which it is wrapped after that, where it has another wrap in a distributed branch; ``part`` if DataParallel
    wraps only a part of it here. ``inner``: further conditions inside of it, round the wrap.
    """

    at: Anchor
    statement: Anchor
    target: Anchor | str
    whole: bool
    alternative: bool
    option: bool
    guard: str = ""
    part: bool = False
    inner: tuple[Anchor, ...] = ()


@dataclass(frozen=True)
class Wrap(Fact):
    """A model given to DataParallel. ``at`` is the whole expression, with the moves chained to it.

    ``device`` is where the model must still be moved (`CURRENT`: by ``.cuda()``), ``moves`` are later statements that
    do it, ``idle`` is an expression that does it and the model in it, ``moved`` says that a move is chained to the
    wrap. Where the program calls ``data_parallel()`` instead, it is wrapped under its name ``target`` ``after`` a
    statement. ``stays``: the call is one of a class that is not torch's own, or makes replicas by hand, and stays as it
    is (see ``Parallel``). ``otherwise``: the parts of a call that wraps it for ranks of the program's own, too, by a
    class that is chosen elsewhere.
    """

    module: Anchor
    imported: str
    device: Anchor | str | None = None
    moves: tuple[Anchor, ...] = ()
    idle: tuple[Anchor, Anchor] | None = None
    moved: bool = False
    condition: Condition | None = None
    call: Anchor | None = None
    dim: Anchor | None = None
    after: Anchor | None = None
    target: str = ""
    stays: bool = False
    otherwise: tuple[tuple[str, Anchor], ...] = ()


@dataclass(frozen=True)
class Parallel(Fact):
    """A name of torch's that becomes the runtime's, where DataParallel's work is not done by DataParallel itself.

    ``kind``: "base" (``at`` is the class that a DataParallel of the project derives from), "class" (one outside the
    project that derives from DataParallel), or the name of a function of ``torch.nn.parallel``. ``imported`` is the
    name that ``at`` is, if it is one.
    """

    kind: str
    imported: str = ""


@dataclass(frozen=True)
class Functional(Fact):
    """A call of ``data_parallel()`` that becomes a plain one, now that the whole network is wrapped.

    ``at`` is a condition that chooses between both, ``value`` the plain call, ``target`` what that is assigned to; or
    ``at`` is the call, ``value`` the module and ``target`` its input. Without a ``value``, the call stays, and ``at``
    is the function, ``imported`` by a name of its own, for which there is one of several processes.
    ``whole``: the other way round. A call ``at`` of a wrapped model, ``value``, that trains nothing: each process would
    run all samples of its input, ``target``, together. ``graph``: gradients are enabled there, but not asked for.
    """

    value: Anchor | None = None
    target: Anchor | None = None
    imported: str = ""
    whole: bool = False
    graph: bool = False


@dataclass(frozen=True)
class Bare(Fact):
    """A module that is trained and not wrapped, where its parameters are given to an optimizer.

    It can be synced before the ``statement`` that does so, or ``after`` the one that gives it its name. ``forwards``
    are the ``module.forward`` of its calls, with the module. ``syncs``: it is one, with a name of its own.
    """

    statement: Anchor
    after: bool = False
    syncs: bool = True
    forwards: tuple[tuple[Anchor, Anchor], ...] = ()


@dataclass(frozen=True)
class OwnBatch:
    """A batch that the program makes itself; ``is_loop``: what hands such batches out to a loop.

    ``is_structure``: it is a tuple or dict of tensors, not one tensor, array or list of samples. ``holds_lists``: or
    of lists with an entry for each sample. ``names``: it is what these have, ``after`` a statement or before it.
    ``in_rows``: it is known that all of it has an entry for each sample, and nothing all samples' one after the other.
    ``dim``: the dimension of the samples; where that is not 0, it is what batches are cut from, before the loop.
    """

    is_loop: bool
    is_structure: bool = False
    holds_lists: bool = False
    names: tuple[str, ...] = ()
    after: bool = True
    in_rows: bool = False
    dim: int = 0


@dataclass(frozen=True)
class Loader(Fact):
    """A DataLoader that a training loop iterates over.

    ``shard`` says why no DistributedSampler can take the place of its sampler: then ``ddp.shard`` gives each process
    its part of every batch that the loader draws. ``target`` is the name it is assigned to, if its call has several
    lines. ``empty`` is the statement ``sampler = None`` whose name the sampler takes. ``weighed`` is decided with the
    tier: whether parts weigh by their numbers of samples, None where that is not known. ``number`` tells those apart
    that one loop draws from at once: each has an order of its own. ``full``: its batches all have one size.
    ``if_wrapped``: it is divided only where a model is wrapped. ``whole``: its batches are put together whole, and
    divided then. ``own``: it is no loader, but stands for batches that
    the program makes itself.
    """

    statement: Anchor
    dataset: Anchor
    hoist: str | None
    fetches: bool
    batch_size: Anchor | None
    shuffle: Anchor | bool
    drop_last: Anchor | None
    sampler: str
    sampler_class: str
    sampler_import: str | None
    shard: str = ""
    target: Anchor | None = None
    empty: Anchor | None = None
    weighed: bool | None = True
    number: int = 0
    full: bool = False
    if_wrapped: bool = False
    whole: bool = False
    own: OwnBatch | None = None


@dataclass(frozen=True)
class Loading(Fact):
    """A DataLoader with workers, whose batches every process draws. ``target`` is as in ``Loader``.

    ``cut``: of each batch a rank takes its part, as the program hands them out itself. ``undivided``: all that draws
    from it evaluates, on all ranks, in the sharded form too.
    """

    statement: Anchor
    target: Anchor | None = None
    cut: bool = False
    undivided: bool = False


@dataclass(frozen=True)
class Workers(Fact):
    """A number of worker processes given to a DataLoader."""


@dataclass(frozen=True)
class EpochLoop(Fact):
    """A loop over epochs that draws from a loader. ``at`` is the first statement of its body."""

    loader: Anchor
    sampler: str
    variable: str
    rename: Anchor | None = None


@dataclass(frozen=True)
class Loss(Fact):
    """What a backward pass starts from.

    ``average`` says how the losses of parts average to that of the whole batch: "samples" (parts weigh by their
    numbers of samples), "parts" (all weigh the same), "even" (all have one size). It is empty where they don't, or
    where each process has that of the whole batch. ``assumed``: it is what the assumptions of its problem say.
    """

    average: str = ""
    assumed: bool = False


@dataclass(frozen=True)
class Gather(Fact):
    """An argument of a loss that looks at the whole batch: each process needs the rows of all.

    ``call`` is given it by ``keyword``, or at ``position``; by neither where it is given all elements of it. ``why``:
    what is said of the loss. ``entries``: lists in it have an entry for each sample.
    """

    call: Anchor
    keyword: str
    position: int | None
    why: str = ""
    entries: bool = False


@dataclass(frozen=True)
class Joint(Fact):
    """A statement behind which a round of the training needs the whole batch: the ``names`` of what is joined there.

    ``counts``: the names of numbers of samples, which are added up. ``entries``: lists in the others have an entry for
    each sample. ``if_grad``: evaluations without gradients come there, too, with whole batches. ``hoisted``: names that
    forwards get, which stand in the statement itself and run before it from then on.
    """

    names: tuple[str, ...]
    counts: tuple[str, ...] = ()
    entries: bool = False
    if_grad: bool = False
    hoisted: tuple[tuple[str, Anchor], ...] = ()


@dataclass(frozen=True)
class Scaled(Fact):
    """A loss of a part that needs a factor: a sum, or the mean of a ``criterion`` that weighs a ``target``.

    ``is_part``: a sum, or a mean, of which a loss is computed together with other numbers.
    """

    criterion: str = ""
    target: str = ""
    is_part: bool = False
    is_mean: bool = False


@dataclass(frozen=True)
class Draw(Fact):
    """Random numbers that the training loop draws for the samples of a batch, by a ``function``."""

    function: Anchor
    what: str


@dataclass(frozen=True)
class Squeeze(Fact):
    """``values.squeeze()`` of the samples of a batch, without a dimension."""

    values: Anchor
    what: str


@dataclass(frozen=True)
class Lacking(Fact):
    """``model.head`` of a wrapped model, which the wrapper does not have; ``model``: what is asked for it.

    ``bare``: how the model in it is taken, as ``kind`` of ``StateDict``.
    """

    model: Anchor
    what: str
    bare: str = "save"


@dataclass(frozen=True)
class Device(Fact):
    """An expression that names the GPU, or asks how many there are.

    ``kind``: "device" (the expression becomes this rank's device), "named" (it does where the text ``operand``, which a
    file holds, names a GPU), "either" (the statement only chooses which device
    ``operand`` becomes), "name" (a ``"cuda:0"`` kept as a string), "number" (one kept as a number), "cuda"
    (``x.cuda(…)``), "load" (``torch.load`` without ``map_location``), "type" (``at`` asks whether ``operand`` is a GPU
    by its number), "current" (``torch.cuda.set_device``), "count" (``torch.cuda.device_count()``),
    "any" (``at`` asks by that whether there is a GPU: ``operand`` is the function that is called there).
    ``number`` is that of ``.cuda(number)``. ``beside``: ranks of the program's own come by, and keep what is named.
    """

    kind: str
    operand: Anchor | None = None
    extra: Anchor | None = None
    number: Anchor | None = None
    beside: bool = False


@dataclass(frozen=True)
class Effect(Fact):
    """Something that one process must do alone.

    ``kind``: "guard" (statements ``at`` to ``last``), "test" (an ``if`` whose whole body is such a thing; ``at`` is
    its test), "writer" (a function or class, called, that writes or makes what writes), "open" (Python's ``open``,
    or the call of a path's, with the path ``operand`` and its ``arguments``), "tracker" (the import of a module
    ``what`` that is one, at the end of the imports ``last``), "answer" (a call whose result all need), "input"
    (Python's ``input``), "save", "folder" (the call ``at`` that makes a folder which each machine needs, with its
    ``arguments``, of the function or, with os.mkdir, the module ``operand``). ``line``: where that is, if not ``at``.
    """

    kind: str
    what: str
    line: int = field(default=0, kw_only=True)
    last: Anchor | None = None
    operand: Anchor | None = None
    arguments: tuple[tuple[str, Anchor], ...] = ()

    def covers(self, place: Anchor) -> bool:
        """Whether a place is in the statements that only the main process runs."""
        if self.kind not in ("guard", "test") or place.path != self.path:
            return False
        first, last = self.at.span, (self.last or self.at).span
        return (first.line, first.column) <= (place.span.line, place.span.column) and (
            (place.span.end_line, place.span.end_column) <= (last.end_line, last.end_column)
        )


@dataclass(frozen=True)
class Fetch(Fact):
    """Statements ``at`` to ``last`` fetch or cache something that one process should fetch first.

    ``dataset`` is the data set in a training loader's call that does so: where it gets a statement of its own, that
    one is enclosed. ``anew``: they do so whether it is there or not.
    """

    what: str
    last: Anchor
    dataset: Anchor | None = None
    anew: bool = False


@dataclass(frozen=True)
class Reread(Fact):
    """A statement before which all wait: it reads what the main process wrote, or changes what all read."""

    what: str


@dataclass(frozen=True)
class Question(Fact):
    """A condition that asks for a file which the main process may just have made, and decides who goes on."""

    what: str


@dataclass(frozen=True)
class Agreement(Fact):
    """An expression that each process has its own value of, where all need the main process's.

    ``name``: that of a variable which statement ``at`` gives such a value, for all that come after it. ``measured``:
    by an evaluation, where each process runs the model for itself; with ``ddp.DataParallel`` all have the same outputs.
    ``seeds``: ``at`` is a call of ``function`` that seeds a generator, or makes one, otherwise in each process: "main",
    "worker" where it runs in a loader's worker, "torch" where it is ``torch.seed()``, which takes no number,
    "generator" where it is ``generator.seed()``, of what ``function`` then is.
    """

    what: str
    name: str = ""
    measured: bool = False
    seeds: str = ""
    function: Anchor | None = None


@dataclass(frozen=True)
class StateDict(Fact):
    """A use of a wrapped model's state.

    ``kind``: "save" (``at`` is the model whose state is taken or set), "either" (the same, and the model may be bare),
    "other" (the same, and it may be one that is not wrapped and has a ``module`` of its own), "load" (``at`` is the
    state dict given to ``load_state_dict``), "model" (``at`` is a wrapped model where the bare one is meant), "pickle"
    (the same, in what is pickled), "forward" (``at`` is the ``model.forward`` of a call), "prefix" (``at`` cuts
    ``module.`` off a key), "first" (``at`` cuts a key's first part off, whatever it is), "class" (``at`` names
    DataParallel in a type check), "type" (the same, of the very type), "restored" (``at`` is a model from a file in the
    place of the wrapped one that was saved).
    ``shared`` says of a type check that programs make it, too, which are not converted. ``at`` is one of the very type
    as a whole then, whether the type ``left`` is ``among`` some, "in" or "not in"; or all that it is asked for among.
    ``guard``: the condition that a key has the prefix, without which none would be kept.
    """

    kind: str
    operand: Anchor
    imported: str = ""
    shared: bool = False
    left: Anchor | None = None
    among: str = ""
    guard: Anchor | None = None


@dataclass(frozen=True)
class Number(Fact):
    """A number of the training loop that is reported: it is this rank's, not the whole batch's.

    ``kind``: "mean" (``at`` is a mean over the samples), "sum" (``at`` is a sum over them, or their number), "rows"
    (``at`` are rows of which a number is made; ``call`` may be given them by ``keyword``, or at ``position``), "totals"
    (``names`` are sums that the loop ``at`` adds up), "added" (``at`` is added to one of these), "left" (``at``
    is a statement that reports something else).
    ``name`` is what a number is called that stands in several places, or where only the main process comes;
    ``before`` is the statement before which it gets that name. ``average`` says of a mean what that of ``Loss`` does,
    ``size`` of a sum that it is the number of samples in the batch, ``in_loop`` that it is made anew of each batch.
    ``kept`` says of what is left that it is an object which keeps the numbers: a meter. ``rows`` is what a mean is of,
    where the means of parts may not average to it. ``entries`` says that lists have an entry for each sample.
    """

    kind: str
    what: str
    kept: bool = False
    average: str = ""
    in_loop: bool = False
    call: Anchor | None = None
    keyword: str = ""
    position: int | None = None
    names: tuple[str, ...] = ()
    name: str = ""
    before: Anchor | None = None
    rows: Anchor | None = None
    entries: bool = False

    @classmethod
    def left(cls, what: str, *, kept: bool = False, told: str | None = None, **place: Any) -> Number:
        """One that stays the rank's own, which the program may be shown for the whole batch's.

        ``told``: what to do for it to be all ranks', as a template; else it is taken for a mean.
        """
        return _without_sum(cls(kind="left", what=what, kept=kept, **place), told)

    @property
    def as_left(self) -> Number:
        """The same, as one that stays the rank's own."""
        told = told_by("sum", self.what) if self.kind in ("sum", "batch", "added") else None
        return _without_sum(replace(self, kind="left", average="", name="", before=None), told)

    @property
    def as_picture(self) -> Number:
        """The same, of which only pictures are made: the samples of one rank will do."""
        problem = Problem(
            f"a picture of `{self.what}` is made of rank 0's local batch only", "", NO_TIER, works=True
        )
        return replace(self, problem=problem)


SUPPOSED = "if sharded, "
"""What begins a message about what is not so, but would be, or could."""


def told_by(function: str, what: str) -> str:
    """What is to be done for a number to be that of all ranks, as a template."""
    return f"use `{{ddp}}.{function}({what})`"


def _without_sum(number: Number, told: str | None) -> Number:
    what = number.what
    told = told_by("mean", what) if told is None else told
    message = f"`{what}` could {'hold' if number.kept else 'cover'} rank 0's local batch only"
    holds = Assumption(number.at, f"`{what}` is equal on all ranks, or rank 0's value is good enough")
    help = told.replace("{ddp}", number.ddp)
    problem = Problem(f"{SUPPOSED}{message}", help, SHARDED_ONLY, assumes=(holds,))
    return replace(number, problem=problem)


@dataclass(frozen=True)
class Division:
    """How each batch of an evaluation is divided, and made whole again.

    ``forward`` is the model's call, in ``statement``, ``into`` the one name that the outputs are given alone. ``rows``
    are the names whose rows are looked at behind it, ``beside`` those in the statement itself. ``counts`` are names,
    ``sizes`` expressions, that give the number of samples: as many as ``counted`` has rows. ``loads_whole``: batches
    are put together of all their samples, and then divided.
    """

    forward: Anchor
    into: Anchor | None
    statement: Anchor
    beside: tuple[str, ...]
    rows: tuple[str, ...]
    counts: tuple[str, ...]
    sizes: tuple[Anchor, ...]
    counted: str
    loads_whole: bool = False


@dataclass(frozen=True)
class Evaluation(Fact):
    """A loop that evaluates the model: ``at`` is the loader that it draws from.

    ``sums`` and ``lists`` are the names of what it adds up and of what it collects; after the statement ``after`` they
    are complete. ``whole`` says why every process must run all of it, or all but the model's forward where there is a
    ``division``; then the others are empty. ``cure``: what to do about that.
    """

    after: Anchor
    sums: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    whole: str = ""
    division: Division | None = None
    cure: str = ""


@dataclass(frozen=True)
class Precision(Fact):
    """A piece of what a program does with apex that torch does itself.

    ``kind``: "start" (the statement that initializes O1; the scaler is made after the statement ``last``, ``enabled``
    is the condition; where names are given anew, the ``call`` hands back ``model`` and ``optimizer``), "forward" (the
    statements ``at`` to ``last`` run under autocast, with ``given`` more), "scale" (the statement is a backward pass
    from the loss ``model``, with the arguments ``given``), "unscale" (gradients are looked at from this statement on),
    "step" (the ``call`` is a step of ``optimizer``), "parameters" (those of ``optimizer``, which are all of the model
    ``given``, if it is), "state" (the function ``given`` of the scaler's state), "parameter" and "argument" (a
    function, and a call of it, to which the scaler comes), "norms" (the function that makes synchronized BatchNorm),
    "wrap" (a model that apex's DistributedDataParallel wraps; the class is ``call`` where a variable is given it),
    "class" (that class elsewhere), "imports" (of ``names``), "guard" (a statement that only imports).
    """

    kind: str
    scaler: str = ""
    enabled: str = ""
    given: str = ""
    names: tuple[str, ...] = ()
    last: Anchor | None = None
    call: Anchor | None = None
    model: Anchor | None = None
    optimizer: Anchor | None = None


@dataclass(frozen=True)
class OwnGroup(Fact):
    """A call that asks whether there is a process group; or a statement that ``starts`` ranks of the program's own.

    Starts that the runtime sees by itself are none. Or a statement that makes a group which nothing uses, by the import
    ``unused``.
    """

    starts: bool = False
    unused: str = ""


@dataclass(frozen=True)
class Obstacle(Fact):
    """Code that is in the way of a conversion, or worth a look after it."""


@dataclass(frozen=True)
class Outdated(Fact):
    """Something that today's Python or libraries don't run: ``what``, since when, and what is written ``instead``.

    ``mends`` have been made before anything else, and are of the file as it is on disk; without any it is left to a
    person. ``syntax``: it can't even be parsed. ``lines``: where the same stands further down. ``fails_at_import``:
    nothing that imports the file runs.
    """

    what: str
    instead: str
    mends: tuple[Mend, ...] = ()
    syntax: bool = False
    lines: tuple[int, ...] = ()
    fails_at_import: bool = False


@dataclass(frozen=True)
class Lines:
    """The lines of a function, or of what runs only where a file is started itself, and the programs that run them."""

    path: Path
    first: int
    last: int
    scripts: frozenset[Path]


@dataclass(frozen=True)
class Unused(Obstacle):
    """A wrap that no program runs and trains."""


@dataclass(frozen=True)
class Proof:
    """What ``verify`` has to be told to run a program: ``arguments`` of its own, and whether data are to be replaced.

    ``wraps``: the files and lines in which its models are wrapped.
    """

    program: Path
    synthetic: bool = False
    arguments: tuple[str, ...] = ()
    wraps: tuple[tuple[Path, int], ...] = ()


@dataclass(frozen=True)
class Prediction:
    """A program that wraps a model, and trains nothing."""

    program: Path
    at: Anchor


@dataclass(frozen=True)
class Facts:
    """Everything that is known about a project.

    ``beside``: the programs that stay as they are, as they have DistributedDataParallel already. ``unprefixed``: those
    whose checkpoints had ``module.`` before their keys, and have it no longer.
    """

    scripts: tuple[Script, ...] = ()
    lines: tuple[Lines, ...] = ()
    wraps: tuple[Wrap, ...] = ()
    parallel: tuple[Parallel, ...] = ()
    functional: tuple[Functional, ...] = ()
    bare: tuple[Bare, ...] = ()
    loaders: tuple[Loader, ...] = ()
    loading: tuple[Loading, ...] = ()
    workers: tuple[Workers, ...] = ()
    loops: tuple[EpochLoop, ...] = ()
    losses: tuple[Loss, ...] = ()
    gathers: tuple[Gather, ...] = ()
    joints: tuple[Joint, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    devices: tuple[Device, ...] = ()
    effects: tuple[Effect, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    rereads: tuple[Reread, ...] = ()
    questions: tuple[Question, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    states: tuple[StateDict, ...] = ()
    numbers: tuple[Number, ...] = ()
    draws: tuple[Draw, ...] = ()
    squeezes: tuple[Squeeze, ...] = ()
    lacking: tuple[Lacking, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    precision: tuple[Precision, ...] = ()
    groups: tuple[OwnGroup, ...] = ()
    outdated: tuple[Outdated, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    beside: frozenset[Path] = frozenset()
    proofs: tuple[Proof, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    unprefixed: frozenset[Path] = frozenset()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the collections of facts."""
        others = ("lines", "beside", "proofs", "predictions", "unprefixed")
        return tuple(name for name in self.__dataclass_fields__ if name not in others)

    @property
    def troubles(self) -> tuple[Fact, ...]:
        """All facts with a problem."""
        groups = (getattr(self, name) for name in self.kinds)
        return tuple(fact for facts in groups for fact in facts if fact.problem is not None)

    def running(self, place: Location) -> frozenset[Path]:
        """The programs that run what stands at a place: outside of functions, all that import the file."""
        around = [it for it in self._lines.get(place.path, ()) if it.first <= place.span.line <= it.last]
        return max(around, key=lambda it: it.first).scripts if around else self.reaching(place.path)

    def reaching(self, path: Path) -> frozenset[Path]:
        """The programs that import a file, or are it."""
        return frozenset(script.program for script in self.scripts if path in script.reaches)

    @cached_property
    def _lines(self) -> dict[Path, list[Lines]]:
        found: dict[Path, list[Lines]] = {}
        for lines in self.lines:
            found.setdefault(lines.path, []).append(lines)
        return found

    def tiers(self, fact: Fact) -> frozenset[Tier]:
        """The tiers of the programs that run a place; where none is seen to, of those that import its file."""
        programs = fact.scripts or self.reaching(fact.path)
        return frozenset(script.tier for script in self.scripts if script.program in programs)
