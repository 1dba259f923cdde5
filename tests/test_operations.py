"""Every row of the table of torch's operations is run: what it does to the whole batch is what it does to the parts.

The arguments are tried out: a list of them for every operation, on tensors of several types and shapes. What raises is
no call that a program could make; of each other call the table must say the truth, and of each row some call is known.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import CodeType

import numpy
import pytest
import torch
import torchvision.transforms.functional
import torchvision.transforms.v2.functional  # noqa: F401

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.losses import LOSSES, Loss
from dp2ddp.analyse.api.operations import NAMES, TABLE, Arguments, Does, Operation, along, always
from dp2ddp.analyse.api.tensors import LAYERS_KEEP_DIMENSIONS, REORDERS_DIMENSIONS

Tensors = dict[str, torch.Tensor]

DIVISIONS = ((2, 2), (3, 1))
"""How the batch of four samples is divided."""
KINDS = ("positive", "signed", "int", "bool")
SHAPES = ((), (3,), (4,), (4, 3), (3, 3), (4, 6, 5), (3, 5, 4, 6))
"""Of one sample."""
ROWS = {"x", "y", "z", "index", "mask", "boxes", "hidden", "grid"}
"""The names of what has a row for each sample; all else is the same for each part."""
COUNTS = {"len(x)", "x.size(0)", "x.shape[0]"}
GIVEN = """
    ||0|1|2|-1|-2|0.5|y|y, 0.5|y, z|y, z, 0.5|0.1, 0.9|1, 2|0, 1|1, 0|2, 0|2, 1|1, 1|2, -1|(0, 1)|(1, 2)|(1,)|(2, 1)
    |dim=0|dim=1|dim=-1|dim=-2|dim=(1, 2)|dim=None|2, dim=0|2, dim=1|1, 2, True|1, 1, 2|0, 0, 2|(1, 2), (2, 1)
    |y, 1|y, 0|y, dim=1|y, dim=0|mask|mask, 0.5|mask, y|index|1, index|0, index|1, index, y|0, index, y|0, index, 0.5
    |1, index, 0.5|index, 1|index, 0|1, chosen|0, chosen|1, chosen, 0.5|0, chosen, 0.5|bounds|0.5, 1|0.5, 0|0.5, -1
    |len(x), -1|x.size(0), -1|-1, 2|-1|4, -1|2, 2, -1|1, -1|0, 2, 1|1, 0, 2|(0, 2, 1)|(2, 0, 1)|0, 1, 3, 2|1, 3, 2, 0
    |1, 3|3, 1|2, 3, 1|2, 1, 1|(1, 3)|-1, 3|3, -1|3, -1, -1|len(x), 3|-1, len(x)|1, len(x)|(1, 1)|(1, 1, 1, 1)
    |(0, 0, 0, 1)|(0, 0, 1, 0)|(1, 0, 0, 0)|(0, 0, 0, 0, 1, 1)|(1, 1, 1, 1), 'reflect'|(1, 1, 1, 1), mode='circular'
    |(1, 0), 'constant', 0.5|num_classes=7|num_classes=-1|7|1, (1, -1)|0, (2, -1)|1, 0, 2|1, 1, True|2, 2
    |3, 1, False, 1e-10, 1|weight|weight, bias|matrix|vector|(3,)|(4,)|[5]|torch.float64|torch.float32|4, table|table
    |y, matrix|y, square|2, 1, 0|kernel1|kernel2|kernel3|back1|back2|back3|vector3|both|scale_factor=2|2, 1, 0, 1|grid
    |grid, align_corners=False|(2, 3)|(6, 7)|(2, 2), 1|(4, 6), 2|2, return_indices=True|(1, 1), return_indices=True
    |mean3, mean3|1, 1, 2, 2|0.5, mean3|running, running, None, None, True|running, running|(2.0,)|(1, 2), True
    |3, 0.5, 1.0|3, 1, 1.0|2, 0, 1.0|2, 1, 1.0|torch.tensor([0.2, 0.7], dtype=x.dtype), 1|[0, 1]|[1, 2]|[-1]|[-2]|[-1, -2]
    |rows3, -1, 2.0|rows7, None, 0.5|rows7|rows7, scale_grad_by_freq=True|y, p=1.0|(0, 2), (0, 1)|1, -1|-1, 1|1, -2|-2, -1
    |x.size()|(len(x), 3, 5, 4, 6)|2, 3|1, 2, 0.5|dims=1|dims=(1, 2)|1, dims=1|1, [1, 2]|1, [0, 1]|y, y|1, index, y, 'sum'|other=y|other=0.5|minlength=9
    """.replace("\n    ", "").strip().split("|")
PLAINLY = """
    ||y|0.5|2|1|y, 0.5|y, z|y, z, 0.5|0.1, 0.9|mask, 0.5|torch.float64|dim=1|dim=0
    """.strip().split("|")
MADE = """
    |1|2|3|4|5|0|-1|dim=0|dim=1|dim=-1|3, 5|4, 5|6, 5|5, 3|3, 4, 2|4, 6, 3|6, 4, 3|3, 6, 3|3, 5, 1|2, 3|1, 3|1, 4|3, 3|1, 0|0, 1|0.3
    |0.1, 0.9|2, 2|1, (1, -1)|1, (3, 1)|2, (2, -1)|3, affine=True|4, 1e-5, 0.1, True, True|3, track_running_stats=True
    |4, track_running_stats=True|6, track_running_stats=True|4, track_running_stats=False|6, affine=True|2, return_indices=True
    |7, 3|7, 3, None, 0.5|7, 3, scale_grad_by_freq=True|7, 3, padding_idx=0|(2, 2)|(5, 4), 2|(6, 5)|(4, 6)|[3]|6, 5, 4|3, 3, 2
    |4, 4, 2|6, 6, 2|(1, 1)|(1, 1, 1, 1)|scale_factor=2|(1, 1), 0.5|(1, 1, 1, 1), 0.5|(1, 1, 1, 1, 1, 1), 0.5|(1, 1, 1, 1, 1, 1)
    |3, 2|3, 1|(0.1, 0.2, 0.3), (0.5, 0.6, 0.7)|torch.float64|1, 2, 3|1, -1|4, 2|6, 2|4, 2, batch_first=True|3, 2, batch_first=True
    |5, 1, 8, 0.0|torch.nn.TransformerEncoderLayer(5, 1, 8, 0.0), 1|5, 1
    """.replace("\n    ", "").strip().split("|")
TAKEN = ("x", "x, y", "x, y, z", "x, (y, y)", "index", "x, hidden", "x, (hidden, hidden)")
"""What layers are called with."""
SPELLED = {
    "cat": [
        "torch.cat([x, y], 1)",
        "torch.cat((x, y), dim=-1)",
        "torch.cat([x, y])",
        "torch.cat([x, y], dim=0)",
    ],
    "stack": [f"torch.stack([x, y], {dim})" for dim in (0, 1, -1, -2)] + ["torch.stack((x, y))"],
    "column_stack": ["torch.column_stack([x, y])"],
    "einsum": [
        *(f"torch.einsum('{it}', x, matrix)" for it in ("nc,cd->nd", "nc,cd->dn", "nc,nd->cd", "nc,dc->nd")),
        *(
            f"torch.einsum('{it}', x, y)"
            for it in ("nc,nc->n", "nc,nc->c", "nc,mc->nm", "nc,nd->ncd", "nc,nc->nc")
        ),
        *("torch.einsum('nc->n', x)", "torch.einsum('nc->cn', x)", "torch.einsum('ncd,ned->nce', x, y)"),
    ],
    "zeros": ["torch.zeros(len(x), 3)", "torch.zeros((x.size(0), 2))", "torch.zeros(len(x))"],
    "full": ["torch.full((len(x), 2), 0.5)"],
    "new_full": ["x.new_full((len(x), 2), 0.5)"],
    "randint": ["torch.randint(5, (len(x), 2))", "torch.randint(0, 5, (len(x), 2))"],
    "arange": ["torch.arange(len(x))"],
    "range": ["torch.range(1, len(x))"],
    "eye": ["torch.eye(len(x))", "torch.eye(len(x), 3)"],
    "linspace": ["torch.linspace(0, 1, len(x))"],
    "logspace": ["torch.logspace(0, 1, len(x))"],
    "randperm": ["torch.randperm(len(x))"],
    "index_select": ["torch.index_select(vector, 0, index)", "vector.index_select(0, index)"],
    "take": ["torch.take(matrix, index)", "vector.take(index)"],
    "gather": ["matrix.gather(1, index)"],
    "where": ["torch.where(mask, x, y)", "torch.where(x > 0.4, x, 0.0)", "x.where(mask, y)"],
    "polar": ["torch.polar(x, y)"],
    "tensor": ["torch.tensor(x)"],
    "normal": ["torch.normal(x, 0.5)", "torch.normal(x, y)"],
    "nonzero": ["torch.nonzero(x > 0.4)"],
    "vecdot": [
        "torch.linalg.vecdot(x, y)",
        "torch.linalg.vecdot(x, y, dim=0)",
        "torch.linalg.vecdot(x, y, dim=1)",
    ],
    "matmul": [
        "torch.matmul(x, matrix)",
        "x.matmul(vector)",
        "torch.matmul(x, y)",
        "torch.linalg.matmul(x, matrix)",
    ],
    "cdist": ["torch.cdist(x, square)", "torch.cdist(x, y)"],
    "bmm": ["torch.bmm(x, y.transpose(1, 2))", "x.bmm(y.transpose(1, 2))"],
    "baddbmm": ["torch.baddbmm(x, y, z)", "x.baddbmm(y, z)"],
    "bilinear": ["torch.nn.functional.bilinear(x, y, both)"],
}
for made in (
    "ones",
    "empty",
    "rand",
    "randn",
    "FloatTensor",
    "LongTensor",
    "DoubleTensor",
    "IntTensor",
    "ByteTensor",
):
    SPELLED[made] = [f"torch.{made}(len(x), 3)"]
SPELLED |= {made: [f"torch.{made}(len(x), 3)"] for made in ("BoolTensor", "Tensor")}
SPELLED |= {name: [it.replace("cat", name) for it in SPELLED["cat"]] for name in ("concat", "concatenate")}
SPELLED |= {f"{way}stack": [f"torch.{way}stack([x, y])"] for way in "hvd"}
SPELLED |= {
    f"new_{made}": [f"x.new_{made}(len(x), 3)", f"x.new_{made}((len(x), 3))"]
    for made in ("zeros", "ones", "empty")
}
CALLED = {"bool": torch.bool, "int": torch.int64, "float": torch.float64, "double": torch.float32}
OF_INDICES = {"one_hot", "embedding", "take", "bitwise_and", "isin"}
ALSO = {"gather", "index_select", "where"}
UNSET = {
    "empty",
    "FloatTensor",
    "LongTensor",
    "DoubleTensor",
    "IntTensor",
    "ByteTensor",
    "BoolTensor",
    "Tensor",
}
UNSET |= {"new_empty", "empty_like"}
"""What has any numbers in it."""
AXES = {"astype"}
"""Methods of arrays, which the table has beside those of tensors."""


PACKAGES = {"torch": torch, "torchvision": torchvision, "numpy": numpy}


class Wrong(AssertionError):
    """The table says something of a call that is not so."""


@cache
def batch(shape: tuple[int, ...], kind: str) -> Tensors:
    """Four samples of a shape, and what else operations are given."""
    torch.manual_seed(sum(shape))
    size = (4, *shape)
    numbers = [torch.rand(size, dtype=torch.float64) * 0.8 + 0.1 for _ in range(3)]
    match kind:
        case "signed":
            numbers = [(it - 0.5) * 3 for it in numbers]
        case "int":
            numbers = [(it * 7).long() for it in numbers]
        case "bool":
            numbers = [it > 0.4 for it in numbers]
    x, y, z = numbers
    dtype = x.dtype if x.dtype.is_floating_point else torch.float64
    last = shape[-1] if shape else 4
    wide = shape[0] if shape else 4

    def weights(*sizes: int) -> torch.Tensor:
        return torch.rand(sizes, dtype=dtype)

    return {
        **dict(x=x, y=y, z=z, mask=y > 0.5, index=(z * 3).long() % 3),
        **dict(grid=torch.rand(4, 2, 3, 2, dtype=dtype) * 2 - 1, hidden=weights(4, 5), boxes=weights(4, 4)),
        **dict(
            matrix=weights(last, 5), square=weights(5, last), vector=weights(last), weight=weights(5, last)
        ),
        **dict(
            bias=weights(5),
            chosen=torch.tensor([0, 2]),
            bounds=torch.tensor([0.2, 0.5, 0.7]),
            table=weights(7, 3),
        ),
        **dict(
            kernel1=weights(5, wide, 2), kernel2=weights(5, wide, 2, 2), kernel3=weights(5, wide, 2, 2, 2)
        ),
        **dict(back1=weights(wide, 5, 2), back2=weights(wide, 5, 2, 2), back3=weights(wide, 5, 2, 2, 2)),
        **dict(vector3=weights(wide), both=weights(5, last, last), mean3=(0.4, 0.5, 0.6)[: max(wide, 1)]),
        **dict(running=torch.ones(wide, dtype=dtype), rows3=weights(8, 3), rows7=weights(8, 3)),
    }


@dataclass
class Tried:
    """A call as it is written, the row that it is one of, what it is given, and what it works on."""

    text: str
    row: Operation
    given: tuple[ast.expr, ...]
    keywords: dict[str | None, ast.expr]
    operands: tuple[ast.expr, ...]
    is_layer: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is one of the calls that are tried with all types."""
        return self.row.rule in operations.FIXED and self.row.rows is None

    @cached_property
    def _code(self) -> CodeType:
        return compile(self.text, "<call>", "eval")

    def run(self, tensors: Tensors) -> object:
        """What the call hands out; it gets tensors of its own, as it may write into them."""
        named = {name: tensors[name] for name in self._code.co_names if name in tensors}
        given = {**PACKAGES, **_own(named)}
        if self.text.startswith("numpy."):
            given |= {name: it.numpy() for name, it in given.items() if isinstance(it, torch.Tensor)}
        before = torch.get_rng_state() if self.is_layer else None
        if self.row.random or self.is_layer:
            torch.manual_seed(1)
        try:
            return _numeric(eval(self._code, given))
        finally:
            if before is not None:
                torch.set_rng_state(before)


def _numeric(value: object) -> object:
    """What numpy hands out, unless it has made an array of text."""
    if isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind not in "biufc":
        raise TypeError(value.dtype)
    return value


def _own(tensors: Tensors) -> Tensors:
    """Copies: what is tried may write into what it is given, and the batches are kept for all calls."""
    return {name: it.clone() if isinstance(it, torch.Tensor) else it for name, it in tensors.items()}


def calls(row: Operation) -> Iterator[Tried]:
    """All calls of an operation that are tried: every argument with one of its names, the usual ones with the others."""
    depends = row.rule not in operations.FIXED or row.rows is not None or row.shapes
    given = GIVEN if depends else PLAINLY
    for name, found in NAMES.items():
        if (found.name, found.homes, found.layers) != (row.name, row.homes, row.layers):
            continue
        home, _, last = name.rpartition(".")
        if name in row.layers:
            fixed = row.rule in operations.FIXED and row.does(Arguments()) is Does.NUMBERS
            for made in (it for it in (PLAINLY if fixed else MADE) if _can_be_made(f"{name}({it})")):
                yield from (
                    _layer(row, f"{name}({made})({taken})") for taken in (TAKEN[:1] if fixed else TAKEN)
                )
            continue
        if not _exists(name) or (row.name in SPELLED and row.name not in ALSO):
            continue
        taking = ("x", "index") if row.name in OF_INDICES else ("x",)
        for taken, rest in itertools.product(taking, given):
            if home == "torch.Tensor":
                yield _method(row, f"{taken}.{last}({rest})")
            else:
                named = rest.replace("dim=", "axis=") if home == "numpy" else rest
                yield _function(row, f"{name}({', '.join(filter(None, (taken, named)))})")
        given = PLAINLY
    for text in SPELLED.get(row.name, ()):
        function = ast.parse(text).body[0].value.func  # type: ignore[attr-defined]
        is_method = not ast.unparse(function).startswith("torch")
        yield _method(row, text) if is_method else _function(row, text)


def _can_be_made(text: str) -> bool:
    try:
        eval(text, PACKAGES)
    except Exception:
        return False
    return True


def _exists(name: str) -> bool:
    """Whether this version of torch has it; arrays' methods are not looked at."""
    found: object = PACKAGES[name.partition(".")[0]]
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return callable(found)


def _parsed(text: str) -> ast.Call:
    return ast.parse(text, mode="eval").body  # type: ignore[return-value]


def _named(node: ast.Call) -> dict[str | None, ast.expr]:
    return {it.arg: it.value for it in node.keywords}


def _function(row: Operation, text: str) -> Tried:
    node = _parsed(text)
    alone = row.name in ("einsum",) or row.does(Arguments()) in (Does.FILLS, Does.ORDERS)
    operands = node.args[1:] if row.name == "einsum" else node.args
    return Tried(text, row, tuple(node.args if alone else node.args[1:]), _named(node), tuple(operands))


def _method(row: Operation, text: str) -> Tried:
    node = _parsed(text)
    return Tried(text, row, tuple(node.args), _named(node), (node.func.value, *node.args))  # type: ignore[attr-defined]


def _layer(row: Operation, text: str) -> Tried:
    node = _parsed(text)
    made: ast.Call = node.func  # type: ignore[assignment]
    return Tried(text, row, tuple(made.args), _named(made), tuple(node.args), is_layer=True)


def _counts(node: ast.expr) -> bool:
    return ast.unparse(node) in COUNTS


def _of_batch(node: ast.AST) -> bool:
    if isinstance(node, ast.expr) and (_counts(node) or ast.unparse(node) == "x.dtype"):
        return False
    if isinstance(node, ast.Call) and any(map(_of_batch, node.args)):
        return True
    return (isinstance(node, ast.Name) and node.id in ROWS) or any(map(_of_batch, ast.iter_child_nodes(node)))


def _has_count(node: ast.expr) -> bool:
    return any(isinstance(it, ast.expr) and _counts(it) for it in ast.walk(node))


def claim(tried: Tried, rank: int | None, is_flat: bool, place: int = 0) -> Does:
    """What the table says of a call, as the analysis asks for it; ``place``: the dimension that the samples are in."""
    arguments = Arguments(
        tried.given,
        tried.keywords,
        tried.is_layer,
        rank=rank,
        is_flat=is_flat,
        least=1 if is_flat else 2,
        counts=_counts,
        is_of_batch=_of_batch,
        is_rows=_of_batch,
        place=place,
    )
    does = tried.row.does(arguments)
    made = does in (Does.FILLS, Does.ORDERS)
    if does is Does.LOOKS_UP:
        return Does.MIXES if _of_batch(tried.operands[0]) else Does.SAMPLES
    if not made and not _of_batch(tried.operands[0]):
        return Does.MIXES
    if not made and not tried.row.shapes and any(map(_has_count, tried.given)):
        return Does.MIXES
    rows = tried.row.rows
    rest = () if rows is None else tried.operands[rows:]
    given = tried.given if tried.is_layer else tried.keywords.values()
    if rows is not None and any(map(_of_batch, (*rest, *given))) and does is not Does.HANDS_ON:
        return Does.MIXES
    return does


def runs(tried: Tried, whole: Tensors, parts: list[Tensors]) -> tuple[object, list[object]] | None:
    """What it hands out of the whole batch, and of the parts; None where it can't be called so."""
    try:
        return tried.run(whole), [tried.run(part) for part in parts]
    except Exception:
        return None


def divide(tensors: Tensors, sizes: tuple[int, ...], dimension: int = 0) -> list[Tensors]:
    parts: list[Tensors] = [{} for _ in sizes]
    for name, tensor in tensors.items():
        pieces = tensor.split(list(sizes), dimension) if name in ROWS else [tensor] * len(sizes)
        for part, piece in zip(parts, pieces, strict=True):
            part[name] = piece
    return parts


@cache
def divided(shape: tuple[int, ...], kind: str, sizes: tuple[int, ...]) -> list[Tensors]:
    return divide(batch(shape, kind), sizes)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    one, other = (it.to(torch.complex128 if it.is_complex() else torch.float64) for it in (one, other))
    return torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def holds(does: Does, whole: object, parts: list[object], is_random: bool, dimension: int = 0) -> bool:
    """Whether what comes of the parts is what a claim says."""
    whole, *parts = (_tensor(it) for it in (whole, *parts))
    if does is Does.PARTS:
        if not isinstance(whole, tuple | list) or not all(len(it) == len(whole) for it in parts):  # type: ignore[arg-type]
            return False
        pairs = zip(whole, zip(*parts, strict=True), strict=True)  # type: ignore[call-overload]
        return all(holds(Does.SAMPLES, one, list(its), is_random) for one, its in pairs)
    if does is Does.TELLS:
        return all(part == whole for part in parts)
    if does is Does.COUNTS:
        return sum(parts) == whole  # type: ignore[arg-type]
    if does is Does.SHAPE:
        sizes = [it if isinstance(it, tuple) else (it,) for it in (whole, *parts)]
        rest = {it[1:] for it in sizes}
        return len(rest) == 1 and (sum(it[0] for it in sizes[1:]) == sizes[0][0] or len({*sizes}) == 1)
    if not isinstance(whole, torch.Tensor) or not all(isinstance(it, torch.Tensor) for it in parts):
        return False
    if does is Does.MOVES:
        flat = torch.cat([it.flatten() for it in parts])  # type: ignore[union-attr]
        return whole.dtype.is_complex or equal(whole.flatten().sort()[0], flat.sort()[0])
    if does in (Does.MEAN, Does.TOTAL):
        together = sum(parts) / (len(parts) if does is Does.MEAN else 1)  # type: ignore[arg-type]
        return equal(whole, together)
    if whole.dim() == 0:
        return False
    try:
        joined = torch.cat(parts, dimension)  # type: ignore[arg-type]
    except Exception:
        return False
    return joined.shape == whole.shape if is_random else equal(whole, joined)


def _tensor(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], int | float | bool | list):
        return torch.tensor(value)
    return torch.as_tensor(value) if isinstance(value, numpy.ndarray | numpy.generic) else value


def check(row: Operation, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> tuple[set[Does], bool]:
    """What has been shown of a row, and whether there are calls that treat several samples at once.

    Raises: Wrong.
    """
    shown: set[Does] = set()
    mixes = False
    for each in itertools.product(shapes, KINDS):
        batch(*each)  # they are made once
    trials = list(calls(row))
    before = torch.get_rng_state()
    for tried in trials:
        for shape, kind in itertools.product(shapes, KINDS):
            if len(shape) + 1 < _needed(row):
                continue
            if kind != "positive" and (
                len(shape) > 1 or tried.is_layer or tried.given and not tried.is_plain
            ):
                continue
            tensors = batch(shape, kind)
            is_flat = _is_flat(tried, tensors)
            claims = {claim(tried, None, is_flat), claim(tried, len(shape) + 1, is_flat)}
            for sizes in (
                DIVISIONS[:1] if row.name == "squeeze" else DIVISIONS
            ):  # one row is a dimension of one
                got = runs(tried, tensors, divided(shape, kind, sizes))
                if got is None:
                    break
                for does in claims:
                    if does in (Does.MIXES, Does.ORDERS):
                        mixes = mixes or not holds(Does.SAMPLES, *got, row.random)
                        continue
                    if does is Does.MEAN and len(set(sizes)) > 1:
                        continue
                    plain = (
                        Does.SAMPLES
                        if does in (Does.NUMBERS, Does.HANDS_ON, Does.PICKS, Does.FILLS)
                        else does
                    )
                    if does is Does.HANDS_ON and not _is_alone(tried):
                        continue
                    plain, dimension = (Does.SAMPLES, 1) if does is Does.TURNS else (plain, 0)
                    if not holds(plain, *got, row.random or row.name in UNSET, dimension):
                        raise Wrong(
                            f"{tried.text} on {kind} {tuple(tensors['x'].shape)}: {does.name} is not so"
                        )
                    if tried.is_layer and does in (Does.SAMPLES, Does.NUMBERS, Does.PARTS):
                        _check_kept(tried, tensors)
                    shown.add(does)
                    if does is Does.NUMBERS and not tried.is_layer:
                        _check_moved(tried, tensors, sizes)
                if (row.keeps or row.shapes) and len(shape) > 0 and not tried.is_layer:
                    shown |= _turned(tried, tensors, sizes)
    if not row.random and not torch.equal(before, torch.get_rng_state()):
        raise Wrong(f"{row.name} draws random numbers")
    kept = [it for each in itertools.product(shapes, KINDS) for it in batch(*each).values()]
    assert not any(it._version for it in kept if isinstance(it, torch.Tensor)), "a trial wrote into a batch"
    return shown, mixes


def _needed(row: Operation) -> int:
    """How many dimensions batches have for what pads or pools so many of them: samples and channels come first."""
    found = re.search(r"(?:ZeroPad|ConstantPad|pool)(\d)d$", row.name)
    if found is None:
        return 1
    return 5 if "Pad" in row.name else int(found.group(1)) + 2  # numbers for more dimensions may be given


def _check_kept(tried: Tried, tensors: Tensors) -> None:
    """A layer that treats samples by themselves remembers nothing of them, as running statistics would."""
    call, state = _parsed(tried.text), torch.get_rng_state()
    layer = eval(ast.unparse(call.func), PACKAGES)
    before = {name: it.clone() for name, it in getattr(layer, "state_dict", dict)().items()}
    eval(f"layer({', '.join(map(ast.unparse, call.args))})", {**_own(tensors), "layer": layer})
    torch.set_rng_state(state)
    if before and not all(torch.equal(it, before[name]) for name, it in layer.state_dict().items()):
        raise Wrong(f"{tried.text} remembers what it was given")


def _is_flat(tried: Tried, tensors: Tensors) -> bool:
    return tensors["x"].dim() == 1


def _is_alone(tried: Tried) -> bool:
    return not any(map(_of_batch, tried.operands[1:]))


def _check_moved(tried: Tried, tensors: Tensors, sizes: tuple[int, ...]) -> None:
    """Number by number: the same with the samples in the last dimension."""
    moved = {name: it.transpose(0, -1) if name in ROWS else it for name, it in tensors.items()}
    if tensors["x"].dim() < 2:
        return
    got = runs(tried, moved, divide(moved, sizes, -1))
    if got is not None and not holds(Does.SAMPLES, *got, tried.row.random or tried.row.name in UNSET, -1):
        raise Wrong(f"{tried.text}: not number by number")


def _turned(tried: Tried, tensors: Tensors, sizes: tuple[int, ...]) -> set[Does]:
    """With the samples in dimension 1: what keeps shapes leaves them there, and what changes places has rows again."""
    turned = {
        name: it.transpose(0, 1) if name in ROWS and it.dim() > 1 else it for name, it in tensors.items()
    }
    got = runs(tried, turned, divide(turned, sizes, 1)) if _is_alone(tried) else None
    claims = {claim(tried, rank, False, place=1) for rank in (None, tensors["x"].dim())}
    stays = {Does.SAMPLES: 1} if tried.row.keeps else {Does.TURNS: 0}
    for does in claims & stays.keys() if got is not None else ():
        if not holds(Does.SAMPLES, *got, tried.row.random, stays[does]):  # type: ignore[misc]
            raise Wrong(f"{tried.text} on turned {tuple(tensors['x'].shape)}: {does.name} is not so")
    return claims & stays.keys() if got is not None else set()


@pytest.fixture(autouse=True)
def _in_doubles(default_dtype: None) -> None:
    """Layers have numbers of the batches' type."""
    torch.set_default_dtype(torch.float64)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# What can't be run here, or hands out something else than tensors.
NOT_RUN = {
    "randperm",
    "cuda",
    "pin_memory",
    "data",
    "astype",
    "from_numpy",
    "item",
    "retain_grad",
    "Variable",
}


def _id(row: Operation) -> str:
    return f"{'.'.join(row.homes[:1])}.{row.name}"


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("row", TABLE, ids=_id)
def test_a_row_says_what_becomes_of_the_samples(row: Operation) -> None:
    shown, mixes = check(row)
    if row.name in NOT_RUN:
        return
    if row.rule in operations.FIXED and row.does(Arguments()) in (Does.MIXES, Does.ORDERS):
        assert mixes, "no call looks at several samples"
    else:
        assert shown, "no call is known"


def _mistaken(row: Operation) -> Operation | None:
    """A row as one would write it who does not think of what it is given."""
    does = row.does(Arguments())
    if row.rule not in operations.FIXED or does in (Does.MIXES, Does.MEAN, Does.TOTAL, Does.MOVES):
        several = row.rule(_given("dim=1")) is Does.PARTS
        return replace(row, rule=always(Does.PARTS if several else Does.SAMPLES), rows=None, least=1)
    return None


def _given(text: str) -> Arguments:
    return Arguments(keywords=_named(_parsed(f"f({text})")))


# These leave the rows as they are where they do not follow: the mistake would be none.
HARMLESS = {"where", "type", "squeeze", "repeat_interleave", "column_stack", "flatten", "multinomial"}
MISTAKES = {
    _id(row): wrong for row in TABLE if (wrong := _mistaken(row)) is not None and row.name not in HARMLESS
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_row_that_says_too_much_is_found(name: str) -> None:
    """Each rule matters: without it, some call is claimed to be sample-wise that is not."""
    with pytest.raises(Wrong):
        check(MISTAKES[name])


def _row(name: str) -> Operation:
    return NAMES[name]


PLANTED = {
    "softmax along the samples": replace(_row("torch.softmax"), rule=along(5, default=1)),
    "padding as if it were the last dimension": replace(
        _row("torch.nn.functional.pad"), rule=always(Does.SAMPLES)
    ),
    "pooling number by number": replace(
        _row("torch.nn.functional.adaptive_avg_pool1d"), rule=always(Does.NUMBERS), rows=None
    ),
    "a mean that is a sum": replace(_row("torch.mean"), rule=along(whole=Does.TOTAL)),
    "a sum that is a mean": replace(_row("torch.sum"), rule=along(whole=Does.MEAN)),
    "sorted parts": replace(_row("torch.sort"), rule=along(default=1, result=Does.PARTS, position=7)),
    "the dimension at the wrong place": replace(_row("torch.topk"), rule=along(0, result=Does.PARTS)),
    "indices of all samples": replace(_row("torch.bucketize"), rows=None, rule=always(Does.NUMBERS)),
    "numbers in order": replace(_row("torch.arange"), rule=always(Does.FILLS)),
    "batch norm": replace(_row("torch.nn.BatchNorm1d"), rule=always(Does.SAMPLES), rows=1),
    "running statistics": replace(_row("torch.nn.InstanceNorm1d"), rule=always(Does.SAMPLES)),
    "a turned tensor that is whole": replace(_row("torch.transpose"), rule=always(Does.TURNS)),
    "what keeps the samples along the samples": replace(
        _row("torch.log_softmax"), rule=lambda given: Does.SAMPLES if given.place else along()(given)
    ),
    "a transposed tensor": replace(_row("torch.t"), rule=always(Does.SAMPLES)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_found(name: str) -> None:
    with pytest.raises(Wrong):
        check(PLANTED[name])


def test_what_is_not_in_the_table_is_not_known() -> None:
    for name in ("helper.sub", "torch.nn.functional.unheard_of", "torch.optim.relu", "numpy.unheard_of"):
        assert operations.operation(name) is None
    assert operations.method("unheard_of") is None


def test_every_layer_of_torch_that_is_not_known_is_named() -> None:
    """Whoever adds layers to torch, or takes some away here, sees it: what is missing is missing on purpose."""
    layers = {
        name
        for name, it in vars(torch.nn).items()
        if isinstance(it, type) and issubclass(it, torch.nn.Module) and not name.endswith(("Loss", "Loss2d"))
    }
    missing = {it for it in layers if f"torch.nn.{it}" not in NAMES and not it.startswith("Lazy")}
    assert missing <= {
        *("Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Container"),
        *(
            "DataParallel",
            "RNNBase",
            "RNNCellBase",
            "Transformer",
            "TransformerDecoder",
            "TransformerDecoderLayer",
        ),
        *(
            "TransformerEncoder",
            "EmbeddingBag",
            "AdaptiveLogSoftmaxWithLoss",
            "FractionalMaxPool2d",
            "FractionalMaxPool3d",
        ),
        *("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"),
    }


# Dimensions


@pytest.mark.parametrize("name", sorted(LAYERS_KEEP_DIMENSIONS))
def test_a_layer_keeps_as_many_dimensions(name: str) -> None:
    made = [f"{name}({it})" for it in MADE if _can_be_made(f"{name}({it})")]
    results = [it for text in made for it in _dimensions(f"{text}(x)")]
    assert results and all(before == after for before, after in results)


@pytest.mark.parametrize("name", sorted(REORDERS_DIMENSIONS))
def test_an_operation_keeps_as_many_dimensions(name: str) -> None:
    spelled = [f"x.{name}(%s)", f"torch.{name}(x, %s)", f"torch.nn.functional.{name}(x, %s)"]
    results = [it for text in spelled for given in GIVEN for it in _dimensions(text % given)]
    assert results and all(before == after for before, after in results)


def _dimensions(text: str) -> Iterator[tuple[int, int]]:
    """How many dimensions batches have, and what a call makes of them, where it can be called so."""
    for shape in SHAPES:
        tensors = _own(batch(shape, "positive"))
        try:
            made = eval(text, {"torch": torch, **tensors})
        except Exception:
            continue
        yield tensors["x"].dim(), made.dim()


# Losses


def _samples(loss: Loss) -> list[torch.Tensor]:
    """What a loss may be given."""
    torch.manual_seed(0)
    rows = [torch.rand(4, 3, dtype=torch.float64) * 0.8 + 0.1 for _ in range(3)]
    ones = torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    match loss.name:
        case "cross_entropy" | "nll_loss" | "multi_margin_loss":
            return [rows[0], torch.tensor([0, 2, 1, 1])]
        case "multilabel_margin_loss":
            return [rows[0], torch.tensor([[0, -1, 1], [2, 1, -1], [1, 0, 2], [-1, 0, 0]])]
        case "multilabel_soft_margin_loss" | "binary_cross_entropy":
            return [rows[0], rows[1].round()]
        case "hinge_embedding_loss" | "soft_margin_loss":
            return [rows[0], rows[1].round() * 2 - 1]
        case "margin_ranking_loss":
            return [rows[0][:, 0], rows[1][:, 0], ones]
        case "cosine_embedding_loss":
            return [rows[0], rows[1], ones]
        case "ctc_loss":
            scores = torch.rand(4, 6, 5, dtype=torch.float64).log_softmax(-1)
            targets = torch.tensor([[1, 2, 2], [3, 3, 1], [4, 1, 2], [1, 1, 1]])
            return [scores, targets, torch.tensor([6, 5, 4, 2]), torch.tensor([2, 3, 1, 0])]
    return rows[: len(loss.tensors)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_loss_is_a_mean_over_the_samples_or_a_sum(loss: Loss) -> None:
    given = _samples(loss)
    parts = [list(it) for it in zip(*(it.split(2) for it in given), strict=True)]
    if loss.second:
        at = loss.tensors.index(loss.second)
        for each in (given, *parts):
            each[at] = each[at].transpose(0, 1)
    for way in ("mean", "sum", "none"):
        function = functools.partial(getattr(torch.nn.functional, loss.name), reduction=way)
        for made in (function, getattr(torch.nn, loss.layer)(reduction=way)):
            whole, of_parts = made(*given), [made(*part) for part in parts]
            joined = torch.cat(of_parts) if way == "none" else sum(of_parts) / (2 if way == "mean" else 1)
            assert equal(whole, joined)
            if loss.by_number and way == "none":
                turned = [it.movedim(0, -1) for it in given]
                assert equal(made(*turned), whole.movedim(0, -1))


@pytest.mark.parametrize("loss", [it for it in LOSSES if it.reduction], ids=lambda loss: loss.name)
def test_a_reduction_stands_where_the_table_says(loss: Loss) -> None:
    made = (getattr(torch.nn.functional, loss.name), getattr(torch.nn, loss.layer))
    for function, place in zip(made, loss.reduction or (), strict=True):
        names = [*inspect.signature(function).parameters]
        assert names[place] == "reduction"


def test_what_is_joined_is_as_good_as_rows() -> None:
    (loss,) = (it for it in LOSSES if it.joined)
    scores, targets, inputs, lengths = _samples(loss)
    joined = torch.cat([row[:size] for row, size in zip(targets, lengths, strict=True)])
    found = [
        torch.nn.functional.ctc_loss(scores.transpose(0, 1), it, inputs, lengths) for it in (targets, joined)
    ]
    assert equal(*found)
    with pytest.raises(RuntimeError):  # so many dimensions, if it is given several samples
        torch.nn.functional.ctc_loss(scores[0], targets, inputs, lengths)


def test_a_mean_over_the_batch_is_one() -> None:
    given = _samples(next(it for it in LOSSES if it.name == "kl_div"))
    whole, *parts = (
        torch.nn.functional.kl_div(*part, reduction="batchmean")
        for part in (given, *zip(*(it.split(2) for it in given), strict=True))
    )
    assert equal(whole, sum(parts) / 2)
