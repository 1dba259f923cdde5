"""Which DataLoaders feed the training, and with what arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dp2ddp.analyse.api.containers import ENTRY_CHANGES
from dp2ddp.analyse.api.iteration import (
    LOADER_ARGUMENTS,
    ORDERLESS_ARGUMENTS,
    SAMPLER_ARGUMENTS,
    SAYS_OF_BATCHES,
)
from dp2ddp.analyse.api.naming import LOADER
from dp2ddp.analyse.context import Context, once
from dp2ddp.analyse.dataflow.kinds import Kind
from dp2ddp.analyse.dataflow.samples.follower import Samples
from dp2ddp.analyse.processes.branches import is_shared
from dp2ddp.analyse.processes.conditions import assigned, is_call_of
from dp2ddp.analyse.processes.downloads import fetches, is_off
from dp2ddp.analyse.program.calls import Call
from dp2ddp.analyse.program.scopes import Scope
from dp2ddp.analyse.program.values import Const, Ext, Inst
from dp2ddp.analyse.training.loops import BatchLoop
from dp2ddp.analyse.training.seeding import Seeding
from dp2ddp.facts import SHARDED_ONLY, Loader, Loading, Problem, Workers
from dp2ddp.plan import Anchor

SAMPLERS, SAMPLER = "torch.utils.data.distributed", "DistributedSampler"
DEPTH = 12


def collect(
    context: Context, training: set[int], together: dict[int, list[int]], whole: dict[int, str]
) -> tuple[Loader, ...]:
    """The loaders of training loops: those that a loop draws from at once, and why some need the very batches."""
    found = []
    read, seeding = _read(context, training), Seeding(context)
    for call in context.loaders:
        if id(call.node) in training:
            first, *others = together.get(id(call.node), [0])
            loader = replace(_loader(context, call), number=first)
            shard = loader.shard or ("several loaders made here are iterated together" if others else "")
            shard = shard or whole.get(id(call.node), "") or read.get(id(call.node), "")
            if not shard and loader.shuffle is not False and seeding.is_late(call.node):
                shard = "the seed may be set after the loader is made"
            if (needs := context.put_together.get(id(call.node))) is not None:
                found.append(replace(loader, shard=f"`{needs}` needs the whole batch", whole=True))
            else:
                found.append(replace(loader, shard=shard))
    return tuple(found)


def _read(context: Context, training: set[int]) -> dict[int, str]:
    """The loaders of which the program asks what speaks of the batches they draw, and what it is.

    A rate, a schedule or an average made of it must be that of whole batches, as what ``shard`` makes says of itself.
    """
    found: dict[int, str] = {}
    for node in context.program.nodes.values():
        asked = _asked(context, node)
        if asked is not None and context.runs_in_training(node):
            for site in context.made(context.program.values(asked), LOADER) & training:
                found.setdefault(site, f"`{ast.unparse(node)}` is read and must describe the global batch")
    return found


def sized(context: Context, loops: list[BatchLoop]) -> dict[int, str]:
    """The loaders of training loops in which the size of a batch decides, and where: no sample may be drawn twice."""
    found: dict[int, str] = {}
    samples = Samples(context)
    for loop in loops:
        nodes = context.program.in_order(loop.runs) if loop.trains else ()
        for test in (it.test for it in nodes if isinstance(it, ast.If | ast.While | ast.IfExp)):
            compared = (it for it in ast.walk(test) if isinstance(it, ast.Compare))
            parts = (part for it in compared for part in (it.left, *it.comparators))
            if any(samples.of(it) is Kind.COUNT for it in parts):
                for site in loop.loaders:
                    found.setdefault(site, f"`{ast.unparse(test)}` asks for the size of the global batch")
    return found


def _asked(context: Context, node: ast.AST) -> ast.expr | None:
    """The loader that an expression asks for what it draws, if it is one."""
    match node:
        case ast.Attribute(attr=name, value=asked, ctx=ast.Load()) if name in SAYS_OF_BATCHES:
            return asked
        case ast.Call(func=ast.Name(id="getattr"), args=[asked, name, *_]):
            known = isinstance(name, ast.Constant)
            return asked if not known or name.value in SAYS_OF_BATCHES else None  # type: ignore[attr-defined]
        case ast.Call(func=ast.Name(id="vars"), args=[asked]) | ast.Attribute(attr="__dict__", value=asked):
            return asked
    return None


def dealt(context: Context, draws: list[ast.expr]) -> tuple[Loader, ...]:
    """The loaders of the training that are sharded where it draws from them."""
    return tuple(_as_made(context, draw, shard="another loop needs its global batches") for draw in draws)


def _as_made(context: Context, node: ast.expr, **more: Any) -> Loader:
    """A loader that keeps its arguments."""
    return Loader(
        **context.place(node),
        statement=context.program.anchor(context.program.statement(node)),
        dataset=context.program.anchor(node),
        hoist=None,
        fetches=False,
        batch_size=None,
        shuffle=False,
        drop_last=None,
        sampler="",
        sampler_class="",
        sampler_import=None,
        **more,
    )


def loading(context: Context, drawn: set[int], undivided: set[int]) -> tuple[Loading, ...]:
    """The loaders with workers, of those that all processes draw from; ``undivided``: see ``Loading``."""
    found, cut = [], _behind_own(context)
    for call in context.loaders:
        if (
            id(call.node) in drawn
            and context.runs_in_training(call.node)
            and context.makes_loaders_only(call.node)
            and _may_have_workers(context, context.loader_arguments(call))
        ):
            statement = context.program.statement(call.node)
            target = _target(context, statement, call)
            place = context.place(call.node)
            at, site = context.program.anchor(statement), id(call.node)
            stays = site in undivided and _is_in_order(context, context.loader_arguments(call))
            found.append(Loading(**place, statement=at, target=target, cut=site in cut, undivided=stays))
    return tuple(found)


def _is_in_order(context: Context, call: Call) -> bool:
    """Whether a loader hands out samples in the order of the data set: in that, all ranks agree."""
    values = (it for name in ("shuffle", *SAMPLER_ARGUMENTS) for it in given_for(context, call, name))
    plain = all(_is_none(context, it) or (isinstance(it, ast.Constant) and not it.value) for it in values)
    return plain and not hides_arguments(context, call)


@once
def _behind_own(context: Context) -> set[int]:
    """The loaders that batches come from which the program hands out itself."""
    program, found = context.program, {*context.whole_loaders}
    own = (it.own_source for it in program.nodes.values() if hasattr(it, "own_batch"))
    for key in context.runs_before_own.union(*(_makes(context, it) for it in own)):
        match program.nodes.get(key):
            case ast.For(iter=source) | ast.comprehension(iter=source) | ast.YieldFrom(value=source):
                found |= context.made(context.iterated(program.values(source)), LOADER)
            case ast.Call(args=[source, *_]) as node if is_call_of(context, node, "builtins.next"):
                found |= context.made(context.iterated(program.values(source)), LOADER)
    return found


def _makes(context: Context, node: ast.AST, depth: int = 0) -> frozenset[int]:
    """What runs to make what a batch is taken from: a generator goes through loaders where it was made."""
    names = (it for it in ast.walk(node) if isinstance(it, ast.Name | ast.Attribute))
    sources = [it for name in names for it in assigned(context, name)] if depth < DEPTH else []
    found = (context.runs(it) | _makes(context, it, depth + 1) for it in sources)
    return frozenset[int]().union(*found)


def _may_have_workers(context: Context, call: Call) -> bool:
    given = given_for(context, call, "num_workers")
    some = any(not (isinstance(value, ast.Constant) and not value.value) for value in given)
    return some or (not given and hides_arguments(context, call))


def workers(context: Context, drawn: set[int], shared: tuple[Loading, ...]) -> tuple[Workers, ...]:
    """Numbers of worker processes that are not 0, of the loaders that a training program makes.

    Workers of a stream may each read a part of it: their number decides what is drawn, and stays as it is. So does that
    of loaders whose batches the program hands out itself, or may: nothing that is seen has ``drawn`` from them. The
    workers of loaders that are ``shared`` in both forms are divided there.
    """
    found: dict[Anchor, Workers] = {}
    kept: set[Anchor] = set()
    divided: set[Anchor] = set()
    cut, whole = _behind_own(context), {it.at for it in shared if it.undivided}
    hands_out = any(hasattr(it, "own_batch") for it in context.program.nodes.values())
    for call in context.loaders:
        given = context.loader_arguments(call)
        site = id(call.node)
        stays = site in cut or site in context.put_together or (hands_out and site not in drawn)
        if not context.runs_in_training(call.node) or _is_stream(context, given.argument("dataset", 0)):
            continue
        for value in given_for(context, given, "num_workers"):
            if not (isinstance(value, ast.Constant) and not value.value) and not _is_local(context, value):
                fact = Workers(**context.place(value))
                found[fact.at] = fact
                kept |= {fact.at} if stays else set()
                divided |= {fact.at} if context.program.anchor(call.node) not in whole else set()
    return tuple(fact for at, fact in found.items() if at in divided - kept)


def _is_local(context: Context, value: ast.expr) -> bool:
    call = context.program.call(value) if isinstance(value, ast.Call) else None
    return call is not None and "dp2ddp.runtime.local_workers" in call.names


def given_for(context: Context, call: Call, name: str) -> list[ast.expr]:
    """What a loader's argument may be: written in the call, or in a dict that is passed as ``**kwargs``."""
    argument = call.argument(name, LOADER_ARGUMENTS[name])
    if argument is not None:
        return [argument]
    return [value for display in _displays(context, call) or () for key, value in display if key == name]


def collates(context: Context, call: Call) -> list[ast.expr]:
    """What may put the samples of a loader's batches together, that a call makes: as an argument, or stored later."""
    given = given_for(context, context.loader_arguments(call), "collate_fn")
    return [*given, *context.collates_later(id(call.node))]


def hides_arguments(context: Context, call: Call) -> bool:
    """Whether a loader is given arguments that can't be seen."""
    starred = any(isinstance(it, ast.Starred) for it in call.node.args)
    return starred or _displays(context, call) is None


def _displays(context: Context, call: Call) -> list[list[tuple[str, ast.expr]]] | None:
    """The entries of the dicts passed as ``**kwargs``; None where one can't be followed."""
    found = []
    for keyword in call.node.keywords:
        if keyword.arg is not None:
            continue
        sources = _sources(context, keyword.value)
        if not sources:
            return None
        for source in sources:
            entries = _entries(context, source)
            if entries is None:
                return None
            found.append(entries)
    return found


def _sources(context: Context, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    if isinstance(node, ast.Dict | ast.Call):
        return [node]
    if isinstance(node, ast.IfExp):
        return _sources(context, node.body, depth) + _sources(context, node.orelse, depth)
    found: list[ast.expr] = []
    for definition in context.program.definitions(node):
        statement = context.program.statement(definition) if not isinstance(definition, ast.arg) else None
        if not isinstance(statement, ast.Assign) or _is_updated(context, node) or depth > DEPTH:
            return []
        found += _sources(context, statement.value, depth + 1)
    return found


def _is_updated(context: Context, node: ast.expr) -> bool:
    """``kwargs["shuffle"] = …`` and ``kwargs.update(…)``."""
    text = ast.unparse(node)
    for other in ast.walk(context.program.file(node).tree):
        if (
            isinstance(other, ast.Subscript)
            and isinstance(other.ctx, ast.Store)
            and ast.unparse(other.value) == text
        ):
            return True
        if isinstance(other, ast.Attribute) and other.attr in ENTRY_CHANGES:
            if ast.unparse(other.value) == text:
                return True
    return False


def _entries(context: Context, node: ast.expr) -> list[tuple[str, ast.expr]] | None:
    if isinstance(node, ast.Dict):
        entries = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return None
            entries.append((key.value, value))
        return entries
    if isinstance(node, ast.Call):
        call = context.program.call(node)
        if call and call.names == {"builtins.dict"} and not node.args and all(k.arg for k in node.keywords):
            return [(str(keyword.arg), keyword.value) for keyword in node.keywords]
    return None


def _loader(context: Context, call: Call) -> Loader:
    program = context.program
    path = program.file(call.node).path
    statement = program.statement(call.node)
    own = getattr(call.node, "own_batch", None)
    if own is not None:
        source = call.node.own_source  # type: ignore[attr-defined]
        works = context.whole_loaders and not own.is_loop
        shard = "the program works on whole batches first" if works else "the program makes these batches"
        return _as_made(context, source, shard=shard, own=own)
    if context.is_derived_loader(call):
        given = context.loader_arguments(call)
        shard, target = "its class derives from DataLoader", _target(context, statement, call)
        full, problem = _is_full(context, given), _problem(context, given)
        return _as_made(context, call.node, shard=shard, target=target, problem=problem, full=full)
    dataset = call.argument("dataset", 0)
    name = _name(context, call.node)
    place = {**context.place(call.node), "statement": program.anchor(statement)}
    problem = _problem(context, call)
    shard = _unsampled(context, call, dataset, statement)
    if problem is not None or dataset is None or shard:
        target = _target(context, statement, call)
        full = _is_full(context, call)
        return _as_made(context, call.node, shard=shard, target=target, problem=problem, full=full)
    hoist = None
    if not isinstance(dataset, ast.Name | ast.Attribute):
        hoist = context.fresh(path, _beside(name, "set" if name.endswith("loader") else "dataset"))
    spelled, statement_import = _sampler_class(context, call)
    batch_size = call.argument("batch_size", 1)
    empty = _empty_sampler(context, call)
    drop_last = call.argument("drop_last", 8)
    if isinstance(drop_last, ast.Constant) and drop_last.value is False:
        drop_last = None
    return Loader(
        **place,
        dataset=program.anchor(dataset),
        hoist=hoist,
        fetches=bool(fetches(context, dataset)),
        batch_size=program.anchor(batch_size) if batch_size is not None else None,
        shuffle=_flag(context, call.argument("shuffle", 2), empty),
        drop_last=program.anchor(drop_last) if drop_last is not None else None,
        sampler=empty.targets[0].id if empty else context.fresh(path, _beside(name, "sampler")),  # type: ignore[attr-defined]
        sampler_class=spelled,
        sampler_import=statement_import,
        target=_target(context, statement, call),
        empty=program.anchor(empty) if empty else None,
        full=_is_full(context, call),
    )


def _is_full(context: Context, call: Call) -> bool:
    """Whether a loader is known to drop what is no full batch."""
    argument = call.argument("drop_last", LOADER_ARGUMENTS["drop_last"])
    options = [] if argument is not None else _displays(context, call) or []
    given = [value for display in options[:1] for key, value in display if key == "drop_last"]
    given += [argument] if argument is not None else []
    is_true = [isinstance(it, ast.Constant) and it.value is True for it in given]
    return len(options) < 2 and bool(given) and all(is_true)


def _empty_sampler(context: Context, call: Call) -> ast.Assign | None:
    """``sampler = None``, where this loader's call is all that reads the name."""
    program = context.program
    given = call.argument("sampler", 3)
    found = program.definitions(given) if isinstance(given, ast.Name) else []
    empty = program.statement(found[0]) if len(found) == 1 and not isinstance(found[0], ast.arg) else None
    if not isinstance(empty, ast.Assign) or not _is_none(context, empty.value) or len(empty.targets) != 1:
        return None
    inside = {id(node) for node in ast.walk(call.node)} | {id(empty.targets[0])}
    uses = [it for it in ast.walk(program.file(empty).tree) if isinstance(it, ast.Name) and it.id == given.id]  # type: ignore[union-attr]
    return empty if all(id(it) in inside for it in uses) else None


def _target(context: Context, statement: ast.stmt, call: Call) -> Anchor | None:
    """The name that a loader is assigned to, where its call has several lines: there it is sharded in the next one."""
    if call.node.lineno == call.node.end_lineno or not isinstance(statement, ast.Assign):
        return None
    if statement.value is not call.node or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    plain = isinstance(target, ast.Name | ast.Attribute)
    return context.program.anchor(target) if plain else None


def _flag(context: Context, node: ast.expr | None, empty: ast.Assign | None) -> Anchor | bool:
    """Whether a loader shuffles; an expression may ask whether its sampler is ``empty``."""
    if node is None:
        return False
    match node:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            if empty is not None and ast.unparse(empty.targets[0]) == name:
                return True
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | None):
        return bool(node.value)
    return context.program.anchor(node)


def _name(context: Context, node: ast.expr) -> str:
    """What the loader is called: the name or attribute that it is assigned to, else the function that returns it."""
    parent = context.program.parent(node)
    if isinstance(parent, ast.Assign):
        target = parent.targets[0]
        if isinstance(target, ast.Name):
            return target.id
        if isinstance(target, ast.Attribute):
            return target.attr
    for around in context.program.ancestors(node):
        if isinstance(around, ast.FunctionDef):
            return "train_loader" if "train" in around.name else "loader"
    return "train_loader"


def _beside(name: str, word: str) -> str:
    """``train_loader`` → ``train_sampler``, ``trainloader`` → ``train_sampler``, ``dl`` → ``dl_sampler``."""
    for ending in ("data_loader", "dataloader", "loader"):
        if name.lower().endswith(ending):
            stem = name[: len(name) - len(ending)].rstrip("_")
            return f"{stem}_{word}" if stem else (word if word != "set" else "dataset")
    return f"{name}_{word}"


def _sampler_class(context: Context, call: Call) -> tuple[str, str | None]:
    """``DistributedSampler`` in the spelling of the loader beside it, and the import that this needs."""
    function = call.node.func
    if isinstance(function, ast.Attribute):
        owners = context.program.values(function.value)
        if owners == {Ext("torch.utils.data")}:
            return f"{ast.unparse(function.value)}.DistributedSampler", None
    statement = f"from {SAMPLERS} import {SAMPLER}"
    if not _is_taken(context, context.program.scope(call.node)):
        return SAMPLER, statement
    name = context.fresh(context.program.file(call.node).path, f"{SAMPLER}OfRanks")
    return name, f"{statement} as {name}"


def _is_taken(context: Context, scope: Scope) -> bool:
    """Whether a place's function, one round it, or its file has something of its own that is called as the sampler."""
    around: Scope | None = scope
    while around is not None and not around.is_module:
        if SAMPLER in around.names:
            return True
        around = around.parent
    known = {f"{SAMPLERS}.{SAMPLER}", f"torch.utils.data.{SAMPLER}"}
    values = context.program.parameter_values(context.program.modules[scope.file.path], SAMPLER)
    return not all(isinstance(it, Ext) and it.name in known for it in values)


def _is_none(context: Context, node: ast.expr) -> bool:
    sources = [node] if isinstance(node, ast.Constant) else assigned(context, node)
    return bool(sources) and all(
        isinstance(source, ast.Constant) and source.value is None for source in sources
    )


def _problem(context: Context, call: Call) -> Problem | None:
    """Why a loader can't be sharded at all."""
    batch_size = call.argument("batch_size", 1)
    if isinstance(batch_size, ast.Constant) and batch_size.value is None:
        return Problem(
            "the dataset makes the batches itself (batch_size=None), so they can't be split",
            "",
            SHARDED_ONLY,
            gist="the dataset makes the batches",
        )
    if _is_single(context, call, batch_size):
        return Problem(
            "batches of one sample can't be split over ranks",
            "use a larger batch size, if the model can take one",
            SHARDED_ONLY,
            of_parts=True,
        )
    return None


def _is_single(context: Context, call: Call, batch_size: ast.expr | None) -> bool:
    """Whether a loader's batches have one sample each: that is written, or no batch size at all."""
    if batch_size is not None:
        return context.program.values(batch_size) == {Const(1)}
    displays = _displays(context, call)
    sizes = {key for display in displays or () for key, _ in display} & {"batch_size", "batch_sampler"}
    own = [it for it in given_for(context, call, "batch_sampler") if not _is_none(context, it)]
    starred = any(isinstance(it, ast.Starred) for it in call.node.args)
    return call.names == {LOADER} and displays is not None and not (sizes or own or starred)


def _unsampled(context: Context, call: Call, dataset: ast.expr | None, statement: ast.stmt) -> str:
    """Why no DistributedSampler can take the place of a loader's sampler."""
    program = context.program
    if is_shared(context, call.node):
        return "the distributed branch uses it, too"
    if dataset is None:
        return "its dataset is not an argument of the call"
    for name in SAMPLER_ARGUMENTS:
        for value in given_for(context, call, name):
            if not _is_none(context, value):
                return f"it already has a {name}"
    shuffled = [it for it in given_for(context, call, "shuffle") if not is_off(it)]
    if shuffled and any(not _is_none(context, it) for it in given_for(context, call, "generator")):
        return "it shuffles with its own generator"
    displays = _displays(context, call)
    if displays is None:
        return "its arguments come from a dict or list that can't be analysed"
    hidden = {key for display in displays for key, _ in display} & set(LOADER_ARGUMENTS) - ORDERLESS_ARGUMENTS
    if hidden:
        return f"its {', '.join(sorted(hidden))} come{'s' * (len(hidden) == 1)} from a dict or list"
    if any(isinstance(argument, ast.Starred) for argument in call.node.args):
        return "its arguments come from a list (`*`)"
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Return | ast.Expr):
        return "it is created inside a larger statement"
    for around in program.ancestors(call.node):
        if isinstance(around, ast.ListComp | ast.DictComp | ast.GeneratorExp | ast.Lambda | ast.IfExp):
            return "it is created inside a larger expression"
        if isinstance(around, ast.stmt):
            break
    return "an IterableDataset takes no sampler" if _is_stream(context, dataset) else ""


def _is_stream(context: Context, dataset: ast.expr | None) -> bool:
    """Whether a data set may be an IterableDataset."""
    values = () if dataset is None else context.program.values(dataset)
    base = "torch.utils.data.IterableDataset"
    return any(isinstance(it, Inst) and context.program.derives(it, base) for it in values)


def hoisted(context: Context, training: set[int]) -> set[int]:
    """Identities of data sets written inside a training loader's call: they may get a statement of their own."""
    made = [
        call for call in context.loaders if id(call.node) in training and not context.is_derived_loader(call)
    ]
    given = [call.argument("dataset", 0) for call in made]
    return {id(node) for node in given if node is not None and not isinstance(node, ast.Name | ast.Attribute)}


def conditional(made: Iterable[Loader], programs: list[frozenset[Path]]) -> tuple[Loader, ...]:
    """Loaders, of which those of ``programs`` that wrap a model under a condition are divided where it is wrapped."""
    why = "the model is wrapped under a condition"
    return tuple(
        (
            replace(it, shard=it.shard or why, if_wrapped=True)
            if any(it.scripts & some for some in programs)
            else it
        )
        for it in made
    )
