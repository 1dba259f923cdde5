"""Why a loss is not known to be a mean over the samples: what is said of it, where, and what a person can do.

What is said stands at the cause: the first expression behind the loss that is not known, or is known to mix samples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from dp2ddp.analyse.api.layers import GRAD
from dp2ddp.analyse.api.tensors import FILLS
from dp2ddp.analyse.context import Context
from dp2ddp.analyse.dataflow import kinds
from dp2ddp.analyse.dataflow.definitions import given_to
from dp2ddp.analyse.dataflow.forwards import Forwards
from dp2ddp.analyse.dataflow.kinds import BY_SAMPLE, ELSEWHERE, NUMBERS, PLAIN, Kind, Unclear, Value
from dp2ddp.analyse.dataflow.samples.frames import OPEN, Frame
from dp2ddp.analyse.processes.conditions import assigned
from dp2ddp.analyse.training import assuming
from dp2ddp.analyse.training.assuming import leaves, parts_of
from dp2ddp.facts import SHARDED_ONLY, Problem

GATHERED = "move this into a function: `loss = f(outputs, targets)`"
"""What a loss that looks at the whole batch needs: then it is given the rows of all ranks."""
WANTED = {
    Kind.MEAN: "which may not be a mean over samples",
    Kind.SAME: "which may differ across ranks",
}
MIXES = "which may mix samples"
OF_NUMBERS = (Kind.COUNT, Kind.TOTAL, Kind.SHAPE)


def of_loss(context: Context, samples: Forwards, backward: ast.Call) -> Problem:
    """What is said of a loss that is not known to be a mean over the samples."""
    loss = context.loss(backward)
    value = samples.of(loss)
    place = value.place if isinstance(value, Unclear) else None
    unseen = samples.unseen(loss) if isinstance(value, Unclear) else None
    if isinstance(value, Unclear) and value.problem is not None:
        problem = value.problem
    elif unseen is not None and (place is None or _written(place) in shown(context, loss)):
        place, problem = unseen, Problem(
            f"the loss uses `{ast.unparse(unseen)}`, unknown code, which may mix samples", ""
        )
    elif (
        isinstance(value, Unclear)
        and isinstance(place, ast.expr | ast.arg | ast.AugAssign)
        and _is_behind(context, place, loss)
    ):
        message, help = next(_said(context, samples, value, place, backward))
        problem = Problem(message, help)
    else:
        place, problem = None, Problem(unknown(context, loss), "")
    return replace(problem, forbids=SHARDED_ONLY, cause=context.cause(place))


def unknown(context: Context, loss: ast.expr, inside: bool = False) -> str:
    """What is said of a loss of which no more is known; ``inside``: the model computes it."""
    whose = "the model's loss" if inside else "the loss"
    return f"{whose} `{shown(context, loss)}` may not be a mean over samples"


def shown(context: Context, loss: ast.expr) -> str:
    """A loss as it is computed, where one expression does that."""
    held = assigned(context, loss)
    return ast.unparse(held[0] if len(held) == 1 else loss)


def _is_behind(context: Context, place: ast.AST, loss: ast.expr) -> bool:
    """Whether a place is in the project, and is not the loss itself, as it is written or assigned."""
    whole = [loss, *assigned(context, loss)]
    return id(place) in context.program.file_of and not any(place is it for it in whole)


def _said(
    context: Context, samples: Forwards, value: Unclear, place: ast.AST, backward: ast.Call
) -> Iterator[tuple[str, str]]:
    """What can be said of a place, and what to do: what says the most first."""
    program, code, loss = context.program, f"`{_written(place)}`", context.loss(backward)
    call = program.call(place) if isinstance(place, ast.Call) else None
    names = call.names if call is not None else frozenset()
    _, frame = samples.surfaced.get(id(place), (place, OPEN))
    parts = parts_of(context, place)
    given = [leaf for it in parts for leaf in leaves(samples.of(it, frame))]
    here = program.scope(place) is program.scope(backward)
    around = program.parent(place)
    if _decides(around, place):
        sizes = all(it in (*PLAIN, Kind.COUNT, Kind.SHAPE) for it in given) and Kind.COUNT in given
        if sizes and not _counts_list(context, place):
            # with a collate function of the project's, rows may be anything of the samples, such as boxes
            own = any(isinstance(it, ast.keyword) and it.arg == "collate_fn" for it in program.nodes.values())
            cure = "" if own else "use batches of one size (drop_last=True)"
            yield f"the loss depends on `if {_written(place)}`, which differs across ranks", cure
        if not value.refuted:
            yield f"the loss depends on `if {_written(place)}`, which may differ across ranks", ""
        cure = "" if "len(" in _written(place) else "use torch.where there"
        yield f"the loss depends on `if {_written(place)}`, which a rank's samples decide", cure
    loops = isinstance(around, ast.For | ast.comprehension) and around.iter is place
    if loops and kinds.tensor(samples.drawn(place), place) is Kind.EACH:  # type: ignore[arg-type]
        yield f"the loss loops over single samples, {code}", GATHERED if here else ""
    if GRAD in names or any(it.arg == "create_graph" for it in getattr(place, "keywords", ())):
        yield f"the loss uses the gradient {code}, which may mix samples", ""
    if names & FILLS and any(it in OF_NUMBERS for it in given):
        yield f"the loss uses {code}, whose batch dimension is not dimension 0", "put the batch in dimension 0"
    if isinstance(place, ast.Subscript) and _selects(samples, place, given):
        yield f"the loss uses {code}, which selects samples by their values", GATHERED if here else ""
    if any(it in OF_NUMBERS for it in given) and all(it in (*NUMBERS, Kind.SHAPE) for it in given):
        if Kind.TOTAL in given:
            yield f"the loss uses {code}, a sum over the batch: it differs across ranks", (
                GATHERED if here else ""
            )
        message = f"the loss uses {code}, which depends on the batch size: it differs across ranks"
        yield message, ""
    if value.refuted and given and all(it in NUMBERS for it in given):
        yield f"the loss uses {code}, whose average over ranks is not its value on the global batch", (
            GATHERED if here else ""
        )
    if value.refuted:
        yield f"the loss uses {code}, which mixes samples", GATHERED if here else ""
    if kinds.tensor(samples.of(place, frame), place) in ELSEWHERE:
        yield f"the loss uses {code}, which may not have one row per sample", ""
    wanted = _wanted(samples, place, frame, loss)
    if wanted == MIXES and _is_size(place):
        yield f"the loss uses the size {code} and may mix samples", ""
    if wanted == MIXES and isinstance(place, ast.Subscript):
        wanted = "which may select samples of the batch"
    yield f"the loss uses {code}, {wanted}", ""


def _wanted(samples: Forwards, place: ast.AST, frame: Frame, loss: ast.expr) -> str:
    """What a value is not known to be, and would have to be."""
    supposed = assuming.supposed(samples, place, frame, assuming.scalars(samples.context, loss))
    given = [leaf for it in parts_of(samples.context, place) for leaf in leaves(samples.of(it, frame))]
    if isinstance(place, ast.Subscript) and samples.of(place.value, frame) in BY_SAMPLE:
        return MIXES
    if not any(it in assuming.OF_SAMPLES or isinstance(it, Unclear) for it in given):
        return WANTED[Kind.SAME]
    kind = supposed[0] if supposed is not None else Kind.ROWS
    return WANTED.get(kind, MIXES) if isinstance(kind, Kind) else MIXES


def _is_size(place: ast.AST) -> bool:
    """Whether an expression says how large something is: ``x.shape``, ``x.size(0)``, ``len(x)``."""
    match place:
        case ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size") | ast.Name(id="len")):
            return True
    return False


def _decides(around: ast.AST | None, place: ast.AST) -> bool:
    """Whether a place is a condition."""
    return isinstance(around, ast.If | ast.While | ast.IfExp) and around.test is place


def _counts_list(context: Context, place: ast.AST) -> bool:
    """Whether the length of a list is asked for that the program makes: it may have entries for some samples only."""
    lengths = (it for it in ast.walk(place) if isinstance(it, ast.Call) and ast.unparse(it.func) == "len")
    made = (it for call in lengths for part in call.args for it in given_to(context.program, part))
    return any(isinstance(it, ast.List | ast.ListComp | ast.SetComp | ast.DictComp) for it in made)


def _selects(samples: Forwards, place: ast.Subscript, given: list[Value]) -> bool:
    """Whether an index takes some of the samples, or of their numbers."""
    held, *index = [samples.of(it, OPEN) for it in (place.value, place.slice)]
    return held in (*BY_SAMPLE, Kind.PICKED) and any(
        it in (*BY_SAMPLE, Kind.PICKED, Kind.PLACES) for it in index
    )


def _written(place: ast.AST) -> str:
    """A piece of code in one line; of a parameter, its name."""
    return place.arg if isinstance(place, ast.arg) else " ".join(ast.unparse(place).split())
