"""What the operations of torch and numpy do to the batch: one table of functions, methods and layers.

A batch has its samples in dimension 0. Each row is one operation, under all the names that it has: ``silu/SiLU`` is
``torch.nn.functional.silu`` and the layer ``torch.nn.SiLU``; ``relu/ReLU`` also ``torch.relu``, ``x.relu()`` and
``x.relu_()``. What an operation does may depend on what it is given (``dim``, ``pad``, ``num_classes``): then its rule
looks at that. What is not in the table is unknown, and never taken for sample-wise. ``tests/test_operations.py`` runs
every row: ``op(cat(parts)) == cat(op(parts))``, or whatever else the row claims.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Does(Enum):
    """What comes of a tensor with the samples in dimension 0; the parts of the batch are such tensors, too."""

    NUMBERS = auto()
    """Every number is computed by itself, in whatever dimensions the samples are."""
    HANDS_ON = auto()
    """The numbers as they are: on another device, of another type, with fewer dimensions of one."""
    SAMPLES = auto()
    """Every sample is computed by itself: rows again, those of the parts one after the other."""
    PARTS = auto()
    """A tuple of such rows."""
    MOVES = auto()
    """The numbers that rows would have, in other places: no number is made of several samples."""
    TURNS = auto()
    """The same, with the samples in dimension 1; of a tensor that has them there, rows."""
    LOOKS_UP = auto()
    """What a table without samples has for every number of an index; of rows, it may take any."""
    PICKS = auto()
    """Some numbers of each sample, as many as the data say."""
    MEAN = auto()
    """The mean over all numbers: that of equal parts averaged."""
    TOTAL = auto()
    """The sum over all numbers: that of the parts added up."""
    TELLS = auto()
    """What has nothing to do with the samples: the same for each part."""
    SHAPE = auto()
    """The shape, or one of its sizes."""
    COUNTS = auto()
    """How many numbers there are."""
    FILLS = auto()
    """A new tensor of the sizes given, each number like the other, or drawn by itself."""
    ORDERS = auto()
    """A new tensor that depends on the sizes given: its rows are not those of smaller ones put together."""
    MIXES = auto()
    """What may look at several samples at once."""


@dataclass(frozen=True)
class Arguments:
    """What an operation is given beside the tensor that it works on; for a layer, what that is made with.

    ``rank``: how many dimensions the tensor has, where the code says it. ``is_flat``: whether it may have but one, as
    one number for each sample; ``least``: how many it has at least. ``counts``: whether an expression is the number of
    samples. ``is_of_batch``: whether one is computed of the samples, ``is_rows``: whether it has them in dimension 0.
    ``number``: the number that an expression is. ``place``: the dimension that the samples are in, 0 or 1.
    """

    given: tuple[ast.expr, ...] = ()
    keywords: Mapping[str | None, ast.expr] = field(default_factory=dict)
    is_layer: bool = False
    rank: int | None = None
    is_flat: bool = False
    least: int = 2
    counts: Callable[[ast.expr], bool] = lambda _: False
    is_of_batch: Callable[[ast.expr], bool] = lambda _: False
    is_rows: Callable[[ast.expr], bool] = lambda _: False
    number: Callable[[ast.expr], int | None] = lambda node: written(node)
    place: int = 0

    def get(self, position: int | None, *names: str) -> ast.expr | None:
        """An argument by place or name; None where it is not given, or is ``None``."""
        named = (self.keywords[name] for name in names if name in self.keywords)
        given = self.given[position] if position is not None and position < len(self.given) else None
        found = next(named, given)
        return None if isinstance(found, ast.Constant) and found.value is None else found

    def numbers(self, node: ast.expr) -> list[int] | None:
        """The numbers of an expression, one or several in a tuple; None where they are not known."""
        found = [self.number(it) for it in getattr(node, "elts", [node])]
        return None if None in found else found  # type: ignore[return-value]

    def is_first(self, dimension: int) -> bool:
        """Whether a dimension is, or may be, that of the samples; the last is not, but of one number for each."""
        if dimension >= 0:
            return dimension == self.place
        if self.place:
            rank = self.rank or self.least
            return dimension + rank <= self.place and not (self.rank and dimension + rank < self.place)
        if self.rank is not None:
            return dimension + self.rank <= 0
        return dimension + self.least <= 0 or self.is_flat

    @property
    def adds_dimensions(self) -> bool:
        """Whether there may be more sizes than the tensor has dimensions: the samples are not first then."""
        return len(self.sizes) > (self.rank or self.least)

    @property
    def hides(self) -> bool:
        """Whether arguments are spread, so that it can't be seen which they are."""
        return None in self.keywords or any(isinstance(it, ast.Starred) for it in self.given)

    @property
    def sizes(self) -> list[ast.expr]:
        """What is given by place, or as ``shape``, ``size`` and ``dims``, one by one."""
        named = [self.keywords[name] for name in ("shape", "size", "sizes", "dims") if name in self.keywords]
        return [size for given in (*self.given, *named) for size in getattr(given, "elts", [given])]


Rule = Callable[[Arguments], Does]


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    ``homes``: where it is found under its name (``torch``, ``Tensor``, …); ``layers``: the full names of its layers.
    ``rows``: how many of the tensors that it is given, from the first one on, may hold samples; None for all. What
    else it is given must be the same for all. ``random``: whether it draws random numbers. ``shapes``: whether it only
    gives another shape, by sizes of which one may be the number of samples. ``least``: how many dimensions a tensor of
    several samples must have for this. ``keeps``: whether what it gives has the shape of what it works on, along
    dimensions that it is told: then the samples may be in another dimension than the first.
    """

    name: str
    homes: tuple[str, ...]
    layers: tuple[str, ...]
    rule: Rule
    rows: int | None = None
    random: bool = False
    shapes: bool = False
    least: int = 1
    keeps: bool = False

    def does(self, arguments: Arguments) -> Does:
        """What it does to the batch, given these arguments."""
        rank = 1 if arguments.is_flat else arguments.rank
        return Does.MIXES if rank is not None and rank < self.least else self.rule(arguments)


# Where operations are found: by a plain name in the first ones, else by the home that is written before the name.
HOMES = {
    "torch": "torch",
    "F": "torch.nn.functional",
    "Tensor": "torch.Tensor",
    "special": "torch.special",
    "linalg": "torch.linalg",
    "fft": "torch.fft",
    "autograd": "torch.autograd",
    "N": "numpy",
    "V": "torchvision.transforms.functional",
    "V2": "torchvision.transforms.v2.functional",
}
USUAL = ("torch", "F", "Tensor", "special")
LAYERS = {"nn": "torch.nn", "V": "torchvision.transforms", "V2": "torchvision.transforms.v2"}


def _table(
    rule: Rule,
    text: str,
    rows: int | None = None,
    random: bool = False,
    shapes: bool = False,
    least: int = 1,
    keeps: bool = False,
) -> Iterator[Operation]:
    """Rows that share a rule: ``name``, ``home.name``, ``name/Layer/Layer``, ``/Layer`` for a layer alone."""
    for entry in text.split():
        spelled, *layers = entry.split("/")
        home, _, name = spelled.rpartition(".")
        homes = tuple(home.split(",")) if home else USUAL if name else ()
        places = [it for it in homes if it in LAYERS] or ["nn"]
        named = tuple(f"{LAYERS[place]}.{layer}" for layer in layers for place in places)
        yield Operation(name or layers[0], homes, named, rule, rows, random, shapes, least, keeps)


# Rules

FIXED: set[Rule] = set()
"""Those that say the same whatever an operation is given."""


def always(does: Does) -> Rule:
    """What an operation does whatever it is given."""

    def rule(arguments: Arguments) -> Does:
        return does

    FIXED.add(rule)
    return rule


def along(
    position: int | None = 0,
    default: int | tuple[int, ...] | None = None,
    whole: Does = Does.MIXES,
    result: Does = Does.SAMPLES,
    layer: int | None = 0,
    several: bool = False,
    last: bool = False,
) -> Rule:
    """Operations that are told along which dimensions they work: rows, where none is that of the samples.

    ``position``: where the dimension is among the arguments, ``layer``: among those that the layer is made with.
    ``default``: the dimensions where none is given; without, ``whole`` is what becomes of all numbers. ``last``: the
    last one is meant then. ``several``: all arguments from that position on are dimensions.
    """

    def rule(arguments: Arguments) -> Does:
        if arguments.hides:
            return Does.MIXES
        place = layer if arguments.is_layer else position
        given = arguments.get(place, "dim", "axis", "dims")
        if default is not None and isinstance(arguments.keywords.get("dim"), ast.Constant) and given is None:
            return Does.MIXES  # `dim=None`: all of them
        if given is None:
            if default is None and not last:
                return whole
            defaults = -1 if default is None else default
            numbers: list[int] | None = [*defaults] if isinstance(defaults, tuple) else [defaults]
        elif several and place is not None and given in arguments.given:
            rest = [arguments.numbers(it) for it in arguments.given[place:]]
            numbers = None if None in rest else [it for part in rest for it in part]  # type: ignore[union-attr]
        else:
            numbers = arguments.numbers(given)
        if not numbers or any(map(arguments.is_first, numbers)):
            return Does.MIXES
        return result

    return rule


def _greatest(arguments: Arguments) -> Does:
    """``max`` and ``min``: of all numbers, along a dimension, or of two tensors."""
    other = arguments.get(0, "other")
    if other is not None and arguments.is_of_batch(other):
        return Does.NUMBERS
    return along(result=Does.PARTS)(arguments)


def _quantile(arguments: Arguments) -> Does:
    """Several quantiles stand in a dimension of their own, before that of the samples."""
    wanted = arguments.get(0, "q")
    return along(1)(arguments) if isinstance(wanted, ast.Constant) else Does.MIXES


def _repeats_each(arguments: Arguments) -> Does:
    """``repeat_interleave``: as often each; along dimension 0, and where none is named, rows stay in their order."""
    repeats = arguments.get(0, "repeats")
    known = not arguments.hides and repeats is not None and arguments.number(repeats) is not None
    return Does.SAMPLES if known else Does.MIXES


def _histogram(arguments: Arguments) -> Does:
    """``histc``: how many numbers there are in each bin, where the bounds are given and no part's own."""
    bounds = [arguments.get(1, "min"), arguments.get(2, "max")]
    given = [
        it for it in bounds if it is not None and not arguments.is_of_batch(it) and not arguments.counts(it)
    ]
    known = not arguments.hides and len(given) == 2 and ast.dump(given[0]) != ast.dump(given[1])
    return Does.TOTAL if known else Does.MIXES


def _bin_counts(arguments: Arguments) -> Does:
    """``bincount``: how often each number is there, in as many places as are asked for."""
    least, weights = arguments.get(2, "minlength"), arguments.get(1, "weights")
    known = not arguments.hides and least is not None and weights is None and not arguments.is_of_batch(least)
    return Does.TOTAL if known else Does.MIXES


def _view(arguments: Arguments) -> Does:
    """``view`` and ``reshape``: the samples are still first where the first size is theirs, or left open."""
    sizes = arguments.sizes
    kept = bool(sizes) and (arguments.number(sizes[0]) == -1 or arguments.counts(sizes[0]))
    return Does.SAMPLES if kept and not any(map(arguments.counts, sizes[1:])) else Does.MOVES


def _flatten(arguments: Arguments) -> Does:
    """Numbers stay in their order, whichever dimensions become one."""
    numbers = [arguments.number(it) for it in (*arguments.given, *arguments.keywords.values())]
    return Does.MIXES if arguments.hides or None in numbers else Does.SAMPLES


def _like(arguments: Arguments) -> Does:
    """``view_as`` and the like: the samples are first where they are in the other."""
    other = arguments.get(0, "other")
    return Does.SAMPLES if other is not None and arguments.is_rows(other) else Does.MOVES


def _expand(arguments: Arguments) -> Does:
    """``expand``: by the number of samples in another dimension, there is a row for each pair of them."""
    sizes = arguments.sizes
    if any(arguments.counts(it) or arguments.is_of_batch(it) for it in sizes[1:]):
        return Does.MIXES
    if arguments.adds_dimensions and sizes and arguments.counts(sizes[0]):
        return Does.MIXES
    return _view(arguments)


def _repeat(arguments: Arguments) -> Does:
    """``repeat``: the samples are still first where they are not repeated, and no dimension is put before."""
    sizes = arguments.sizes
    if any(arguments.counts(it) or arguments.is_of_batch(it) for it in sizes):
        return Does.MIXES
    kept = bool(sizes) and arguments.number(sizes[0]) == 1 and not arguments.adds_dimensions
    return Does.SAMPLES if kept else Does.MOVES


def _permute(arguments: Arguments) -> Does:
    first, second = ([arguments.number(it) for it in arguments.sizes] + [None, None])[:2]
    if arguments.place:
        return Does.TURNS if first == arguments.place else Does.MOVES
    return Does.SAMPLES if first == 0 else Does.TURNS if second == 0 else Does.MOVES


def _changes_places(*names: str) -> Rule:
    """Dimensions that change places: the samples stay first where they are not among them."""

    def rule(arguments: Arguments) -> Does:
        named = [arguments.keywords[it] for it in names if it in arguments.keywords]
        numbers = [arguments.numbers(it) for it in (*arguments.given, *named)]
        if sorted(it for part in numbers for it in part or ()) == [0, 1]:
            return Does.TURNS
        kept = len(numbers) == 2 and all(it and not any(map(arguments.is_first, it)) for it in numbers)
        return Does.SAMPLES if kept and not arguments.place else Does.MOVES

    return rule


def _unsqueeze(arguments: Arguments) -> Does:
    """A dimension more: the samples stay first unless it is put before them, as -2 does to one number for each."""
    given = arguments.get(0, "dim", "axis")
    number = None if given is None else arguments.number(given)
    return Does.MOVES if number is None or number == 0 or number < -1 else Does.SAMPLES


def _unflatten(arguments: Arguments) -> Does:
    given = arguments.get(0, "dim")
    number = None if given is None else arguments.number(given)
    return Does.MOVES if number is None or arguments.is_first(number) else Does.SAMPLES


def _join(arguments: Arguments) -> Does:
    """``cat``: beside each other, or one after the other."""
    given = arguments.get(0, "dim", "axis")
    number = None if given is None else arguments.number(given)
    return Does.MOVES if number is None or arguments.is_first(number) else Does.SAMPLES


def _pad(arguments: Arguments) -> Does:
    """``F.pad``: two numbers for each dimension, from the last one on; but by constants, it never pads the first."""
    pad, mode = arguments.get(0, "pad"), arguments.get(1, "mode")
    if mode is not None and not (isinstance(mode, ast.Constant) and mode.value == "constant"):
        known = isinstance(mode, ast.Constant) and mode.value in ("reflect", "replicate", "circular")
        return Does.SAMPLES if known else Does.MIXES
    if arguments.hides or not isinstance(pad, ast.Tuple | ast.List):
        return Does.MIXES
    widths = [arguments.number(it) for it in pad.elts]
    touched = [-1 - index // 2 for index, width in enumerate(widths) if width != 0]
    if any(isinstance(it, ast.Starred) for it in pad.elts) or any(map(arguments.is_first, touched)):
        return Does.MIXES
    return Does.SAMPLES


def _one_hot(arguments: Arguments) -> Does:
    """As many columns as given; else as the greatest number of all samples asks for."""
    given = arguments.get(0, "num_classes")
    if given is None or arguments.hides or arguments.is_of_batch(given) or arguments.number(given) == -1:
        return Does.MIXES
    return Does.SAMPLES


def _index_select(arguments: Arguments) -> Does:
    """Along dimension 0, an index takes any rows: of a table that has no samples, it looks them up."""
    given = arguments.get(0, "dim")
    if given is not None and arguments.number(given) == 0:
        return Does.LOOKS_UP
    return along()(arguments)


def _unless(position: int, layer: int, *names: str, does: Does = Does.SAMPLES) -> Rule:
    """Sample by sample, unless one of some options is given: by name, or any by place from a position on."""

    def rule(arguments: Arguments) -> Does:
        rest = arguments.given[layer if arguments.is_layer else position :]
        given = [*rest, *(arguments.keywords[name] for name in names if name in arguments.keywords)]
        off = all(isinstance(it, ast.Constant) and not it.value for it in given)
        return does if off and not arguments.hides else Does.MIXES

    return rule


def _squeeze(arguments: Arguments) -> Does:
    """Dimensions of one: with several samples it is not theirs."""
    return Does.HANDS_ON


def _where(arguments: Arguments) -> Does:
    """By three arguments number by number; by one, it is places that are found."""
    given = len(arguments.given) + len(arguments.keywords)
    return Does.NUMBERS if given == 2 else Does.MIXES


def _einsum(arguments: Arguments) -> Does:
    """The samples' letter is the first of each tensor that has them, and of the result, and stands nowhere else."""
    equation, *operands = arguments.given or (None,)
    if arguments.hides or not (isinstance(equation, ast.Constant) and isinstance(equation.value, str)):
        return Does.MIXES
    inputs, arrow, output = equation.value.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != len(operands) or "." in inputs:
        return Does.MIXES
    first = {term[:1] for term, it in zip(terms, operands, strict=True) if arguments.is_of_batch(it)}
    rows = all(arguments.is_rows(it) for it in operands if arguments.is_of_batch(it))
    letter = first.pop() if len(first) == 1 else ""
    rest = [term[1:] if arguments.is_of_batch(it) else term for term, it in zip(terms, operands, strict=True)]
    kept = bool(letter) and rows and output[:1] == letter and letter not in "".join(rest)
    return Does.SAMPLES if kept else Does.MIXES


def _letters(arguments: Arguments) -> set[str]:
    """The letters of the samples in an einsum's tensors of rows: with several, each sample meets every other."""
    equation, *operands = arguments.given or (None,)
    text = equation.value if isinstance(equation, ast.Constant) and isinstance(equation.value, str) else ""
    terms = text.replace(" ", "").partition("->")[0].split(",")
    rows = (term for term, it in zip(terms, operands, strict=False) if arguments.is_rows(it))
    return {term[:1] for term in rows if term[:1].isalpha()}


def _type(arguments: Arguments) -> Does:
    """``x.type()`` asks, ``x.type(torch.float)`` makes another of it."""
    return Does.HANDS_ON if arguments.given or arguments.keywords else Does.TELLS


BEFORE_DIMENSION = frozenset({"topk", "kthvalue", "quantile", "nanquantile"})
"""What is told something else before the dimension that it works along."""


def surely_mixes(row: Operation, arguments: Arguments) -> bool:
    """Whether an operation is known to look at several samples at once: always, or along dimension 0."""
    if row.rule in FIXED:
        return row.rule(arguments) is Does.MIXES
    if arguments.hides or row.does(arguments) is not Does.MIXES:
        return False
    if row.rule is _einsum:
        return len(_letters(arguments)) > 1
    if row.name in BEFORE_DIMENSION:
        along_it = arguments.get(1, "dim")
        whole = arguments.is_flat or row.rule is _quantile
        return whole if along_it is None else arguments.place in (arguments.numbers(along_it) or ())
    dimensions = [it for name in ("dim", "axis", "dims") if (it := arguments.keywords.get(name)) is not None]
    known = [arguments.numbers(it) for it in (*arguments.given, *dimensions)]
    return None not in known and (not known or any(arguments.place in it for it in known if it))


_numbers, _samples, _mixes = always(Does.NUMBERS), always(Does.SAMPLES), always(Does.MIXES)

TABLE: tuple[Operation, ...] = (
    # Number by number.
    *_table(
        _numbers,
        """
        abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin
        asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        ceil celu/CELU clamp clamp_max clamp_min clip conj conj_physical copysign cos cosh deg2rad digamma div divide
        elu/ELU eq erf erfc erfinv exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac gcd ge
        gelu/GELU greater greater_equal gt
        hardshrink/Hardshrink hardsigmoid/Hardsigmoid hardswish/Hardswish hardtanh/Hardtanh
        heaviside hypot i0 igamma igammac isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le
        leaky_relu/LeakyReLU lerp less less_equal lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and
        logical_not logical_or logical_xor logit logsigmoid/LogSigmoid lt masked_fill maximum minimum mish/Mish mul
        multiply mvlgamma nan_to_num ne neg negative nextafter not_equal positive pow rad2deg real reciprocal relu/ReLU
        relu6/ReLU6 remainder round rsqrt rsub selu/SELU sgn sigmoid/Sigmoid sign signbit silu/SiLU sin sinc sinh
        softplus/Softplus softshrink/Softshrink softsign/Softsign sqrt square sub subtract tan tanh/Tanh
        tanhshrink/Tanhshrink threshold/Threshold true_divide trunc xlogy special.expit special.entr special.erfcx
        special.gammainc special.gammaincc special.gammaln special.i0e special.i1 special.i1e special.log_ndtr
        special.ndtr special.ndtri special.psi special.xlog1py special.zeta special.multigammaln
        Tensor.copy_ Tensor.zero Tensor.fill torch.fill ones_like zeros_like full_like empty_like complex polar
        N.abs N.absolute N.add N.ceil N.clip N.cos N.divide N.equal N.exp N.floor N.greater N.greater_equal N.isfinite
        N.isinf N.isnan N.less N.less_equal N.log N.log10 N.log1p N.log2 N.logical_and N.logical_not N.logical_or
        N.maximum N.minimum N.multiply N.nan_to_num N.negative N.not_equal N.ones_like N.power N.round N.sign N.sin
        N.sqrt N.square N.subtract N.tanh N.zeros_like
        /Identity
        """,
    ),
    *_table(
        _numbers,
        """
        dropout/Dropout alpha_dropout/AlphaDropout rrelu/RReLU torch.rand_like torch.randn_like torch.randint_like
        bernoulli poisson torch.normal Tensor.normal_ Tensor.uniform_ Tensor.random_
        Tensor.exponential_ Tensor.cauchy_ Tensor.log_normal_ Tensor.geometric_
        """,
        random=True,
    ),
    *_table(_numbers, "isin bucketize", rows=1),
    *_table(_where, "where N.where"),
    # The numbers as they are.
    *_table(
        always(Does.HANDS_ON),
        """
        Tensor.to Tensor.cuda Tensor.cpu Tensor.long Tensor.float Tensor.double Tensor.half Tensor.int Tensor.short
        Tensor.char Tensor.bool Tensor.byte Tensor.bfloat16 Tensor.type_as Tensor.contiguous detach clone
        Tensor.requires_grad_ Tensor.pin_memory Tensor.data autograd.Variable Tensor.astype torch.tensor torch.as_tensor
        torch.asarray torch.from_numpy Tensor.numpy Tensor.item Tensor.tolist Tensor.to_dense Tensor.retain_grad
        Tensor.resolve_conj Tensor.resolve_neg N.array N.asarray N.asanyarray N.ascontiguousarray N.copy
        """,
        rows=1,
    ),
    *_table(_type, "Tensor.type", rows=1),
    *_table(_squeeze, "squeeze N.squeeze", rows=1),
    # Sample by sample, in the dimensions that the operation is made for: the samples' is its batch dimension.
    *_table(
        _samples,
        """
        F.adaptive_avg_pool1d/AdaptiveAvgPool1d torch.adaptive_avg_pool1d torch,F.avg_pool1d/AvgPool1d
        F.lp_pool1d/LPPool1d F.local_response_norm/LocalResponseNorm torch,F.conv1d/Conv1d
        torch,F.conv_transpose1d/ConvTranspose1d F.linear/Linear layer_norm/LayerNorm rms_norm/RMSNorm
        group_norm/GroupNorm prelu/PReLU matmul mm mv linalg.matmul inner cdist
        /ReflectionPad1d /ReplicationPad1d /ZeroPad1d /ConstantPad1d /CircularPad1d
        """,
        rows=1,
        least=2,
    ),
    *_table(_samples, "outer ger", rows=1),
    *_table(
        _samples,
        """
        F.adaptive_avg_pool2d/AdaptiveAvgPool2d F.avg_pool2d/AvgPool2d F.lp_pool2d/LPPool2d torch,F.conv2d/Conv2d
        torch,F.conv_transpose2d/ConvTranspose2d F.interpolate F.upsample/Upsample
        F.upsample_nearest/UpsamplingNearest2d F.upsample_bilinear/UpsamplingBilinear2d F.unfold/Unfold F.fold/Fold
        torch,F.pixel_shuffle/PixelShuffle torch,F.pixel_unshuffle/PixelUnshuffle
        torch,F.channel_shuffle/ChannelShuffle /CrossMapLRN2d
        /ReflectionPad2d /ReplicationPad2d /ZeroPad2d /ConstantPad2d /CircularPad2d
        """,
        rows=1,
        least=3,
    ),
    *_table(
        _samples,
        """
        F.adaptive_avg_pool3d/AdaptiveAvgPool3d F.avg_pool3d/AvgPool3d F.lp_pool3d/LPPool3d torch,F.conv3d/Conv3d
        torch,F.conv_transpose3d/ConvTranspose3d
        /ReflectionPad3d /ReplicationPad3d /ZeroPad3d /ConstantPad3d /CircularPad3d
        """,
        rows=1,
        least=4,
    ),
    *_table(_samples, "F.grid_sample bmm bilinear/Bilinear", rows=2),
    *_table(_samples, "baddbmm", rows=3),
    *_table(_samples, "/RNNCell /GRUCell", rows=2),
    *_table(
        _samples,
        """
        dropout1d/Dropout1d dropout2d/Dropout2d dropout3d/Dropout3d feature_alpha_dropout/FeatureAlphaDropout
        """,
        rows=1,
        random=True,
    ),
    *_table(always(Does.PARTS), "/LSTMCell", rows=2),
    # These hand out indices, too, where they are told to.
    *_table(
        _unless(5, 4, "return_indices"),
        """
        F.max_pool1d/MaxPool1d F.max_pool2d/MaxPool2d F.max_pool3d/MaxPool3d torch.max_pool1d torch.max_pool2d
        torch.max_pool3d
        """,
        rows=1,
    ),
    *_table(
        _unless(1, 1, "return_indices"),
        """
        F.adaptive_max_pool1d/AdaptiveMaxPool1d F.adaptive_max_pool2d/AdaptiveMaxPool2d
        F.adaptive_max_pool3d/AdaptiveMaxPool3d
        """,
        rows=1,
    ),
    *_table(
        _samples,
        """
        linalg.det linalg.eigvalsh linalg.matrix_exp linalg.matrix_power det logdet
        matrix_exp matrix_power
        """,
        rows=1,
        least=3,
    ),
    *_table(always(Does.PARTS), "linalg.slogdet linalg.eigh slogdet", rows=1, least=3),
    # Weights by their numbers; `max_norm` changes them, frequencies are those of all samples.
    *_table(_unless(2, 3, "max_norm", "scale_grad_by_freq"), "F.embedding/Embedding", rows=1),
    *_table(_one_hot, "F.one_hot", rows=1),
    # Running statistics are those of all samples.
    *_table(
        _unless(0, 4, "running_mean", "running_var", "track_running_stats"),
        "F.instance_norm/InstanceNorm1d/InstanceNorm2d/InstanceNorm3d",
        rows=1,
    ),
    *_table(_pad, "F.pad", rows=1),
    # Along a dimension that they are told.
    *_table(along(), "softmax/Softmax log_softmax/LogSoftmax softmin/Softmin", rows=1, keeps=True),
    *_table(along(1, default=1), "F.normalize", rows=1, keeps=True),
    *_table(along(1, default=1), "cosine_similarity/CosineSimilarity", rows=2),
    *_table(along(None, layer=None, last=True), "pairwise_distance/PairwiseDistance", rows=2),
    *_table(along(last=True), "glu/GLU", rows=1),
    *_table(along(3, last=True), "F.gumbel_softmax", rows=1, random=True),
    *_table(along(whole=Does.MEAN), "mean N.mean", rows=1),
    *_table(along(whole=Does.TOTAL), "sum nansum count_nonzero N.sum N.nansum N.count_nonzero", rows=1),
    *_table(
        along(),
        """
        nanmean amax amin all any argmax argmin argsort prod std var logsumexp
        N.all N.amax N.amin N.any N.argmax N.argmin N.argsort N.cumsum N.max N.median N.min N.nanmean N.prod N.sort
        N.std N.var
        """,
        rows=1,
    ),
    *_table(along(), "cumsum cumprod logcumsumexp", rows=1, keeps=True),
    *_table(along(result=Does.PARTS), "median nanmedian mode sort cummax cummin std_mean var_mean", rows=1),
    *_table(along(None, result=Does.PARTS), "aminmax", rows=1),
    *_table(along(1, result=Does.PARTS), "topk kthvalue", rows=1),
    *_table(_quantile, "quantile nanquantile", rows=1),
    *_table(_greatest, "max min"),
    *_table(along(1), "norm linalg.norm linalg.vector_norm diff", rows=1),
    *_table(along(several=True), "flip", rows=1),
    *_table(along(1), "roll rot90", rows=1),
    *_table(along(1), "cross take_along_dim"),
    *_table(along(None, last=True), "linalg.cross linalg.vecdot", rows=2, least=2),
    *_table(along(1, last=True), "fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft", rows=1),
    *_table(along(1, default=(-2, -1)), "fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2", rows=1),
    *_table(along(), "fft.fftshift fft.ifftshift", rows=1),
    *_table(along(1, default=0, result=Does.PARTS), "chunk split tensor_split", rows=1),
    *_table(along(0, default=0, result=Does.PARTS), "unbind", rows=1),
    *_table(along(), "narrow select Tensor.unfold index_fill", rows=1),
    *_table(along(), "gather scatter scatter_add scatter_reduce"),
    *_table(_index_select, "index_select"),
    *_table(always(Does.LOOKS_UP), "take"),
    *_table(_einsum, "torch.einsum"),
    # Other shapes.
    *_table(_view, "Tensor.view reshape N.reshape", shapes=True),
    *_table(_like, "Tensor.view_as Tensor.reshape_as Tensor.expand_as", shapes=True),
    *_table(_flatten, "flatten/Flatten ravel", rows=1, shapes=True),
    *_table(_unflatten, "unflatten/Unflatten", rows=1, shapes=True),
    *_table(_expand, "Tensor.expand broadcast_to", shapes=True),
    *_table(_repeat, "Tensor.repeat tile", rows=1, shapes=True),
    *_table(_repeats_each, "repeat_interleave", rows=1, shapes=True),
    *_table(_permute, "permute N.transpose", rows=1, shapes=True),
    *_table(
        _changes_places("dim0", "dim1", "axis0", "axis1"), "transpose swapaxes swapdims", rows=1, shapes=True
    ),
    *_table(_changes_places("source", "destination"), "movedim moveaxis", rows=1, shapes=True),
    *_table(_unsqueeze, "unsqueeze N.expand_dims", rows=1, shapes=True),
    *_table(always(Does.MOVES), "t adjoint", rows=1, shapes=True),
    *_table(_join, "torch.cat torch.concat torch.concatenate", shapes=True),
    *_table(_unsqueeze, "torch.stack", shapes=True),
    *_table(always(Does.SAMPLES), "torch.column_stack", shapes=True),
    *_table(always(Does.MOVES), "torch.hstack torch.vstack torch.dstack", shapes=True),
    *_table(always(Does.PICKS), "masked_select"),
    *_table(always(Does.TOTAL), "dot"),
    *_table(_histogram, "histc", rows=1),
    *_table(_bin_counts, "bincount N.bincount", rows=1),
    # What is asked of a tensor.
    *_table(
        always(Does.TELLS),
        """
        Tensor.dim Tensor.ndimension Tensor.element_size Tensor.get_device is_floating_point is_complex is_signed
        Tensor.is_contiguous torch.is_tensor
        """,
    ),
    *_table(always(Does.SHAPE), "Tensor.size"),
    *_table(always(Does.COUNTS), "numel Tensor.nelement"),
    # New tensors.
    *_table(
        always(Does.FILLS),
        """
        torch.zeros torch.ones torch.full torch.empty torch.FloatTensor torch.LongTensor torch.DoubleTensor
        torch.IntTensor torch.ByteTensor torch.BoolTensor torch.Tensor Tensor.new_zeros Tensor.new_ones Tensor.new_full
        Tensor.new_empty
        """,
    ),
    *_table(always(Does.FILLS), "torch.rand torch.randn torch.randint", random=True),
    *_table(always(Does.ORDERS), "torch.arange torch.eye torch.linspace torch.logspace torch.range"),
    *_table(always(Does.ORDERS), "torch.randperm", random=True),
    # On images, whose dimensions are the last three: what draws random numbers does so once for all samples.
    *_table(
        _samples,
        """
        V,V2.normalize/Normalize V,V2.resize/Resize    
         V,V2.gaussian_blur V,V2.adjust_brightness 
        V,V2.adjust_saturation V,V2.adjust_hue V,V2.adjust_gamma  V,V2.invert V,V2.solarize
        V,V2.posterize  V,V2.convert_image_dtype/ConvertImageDtype V,V2.rotate 
        V,V2.equalize 
        """,
        rows=1,
    ),
    # Several samples at once: named, so that what is missing in this table is not known rather than forgotten.
    *_table(
        _mixes,
        """
        torch,F.batch_norm/BatchNorm1d/BatchNorm2d/BatchNorm3d/SyncBatchNorm pdist cov corrcoef trace dist
        unique unique_consecutive nonzero argwhere equal allclose triu tril diag kron msort flipud
        /LSTM /GRU /RNN /TransformerEncoderLayer /MultiheadAttention /Softmax2d
        F.scaled_dot_product_attention
        """,
    ),
    *_table(_mixes, "multinomial", random=True),
)


def _index() -> dict[str, Operation]:
    """The rows by the full names of functions, methods (``torch.Tensor.…``) and layers."""
    found: dict[str, Operation] = {}
    for row in TABLE:
        names = [f"{HOMES[home]}.{row.name}" for home in row.homes]
        # What ends in an underscore writes into the tensor that it works on.
        in_place = [f"{HOMES[home]}.{row.name}_" for home in row.homes if home in ("torch", "F", "Tensor")]
        for name in (*names, *in_place, *row.layers):
            assert name not in found, name
            found[name] = row
    return found


NAMES: Mapping[str, Operation] = _index()
LAYER_NAMES = frozenset(layer for row in TABLE for layer in row.layers)
METHODS = frozenset(name.removeprefix("torch.Tensor.") for name in NAMES if name.startswith("torch.Tensor."))
"""The names of tensors' methods that are in the table."""


def operation(name: str) -> Operation | None:
    """The row of a function, a method as ``torch.Tensor.…``, or a layer, by its full name; None where it has none."""
    return NAMES.get(canonical(name))


def method(name: str) -> Operation | None:
    """The row of a tensor's method."""
    return NAMES.get(f"torch.Tensor.{name}")


def names(*does: Does) -> frozenset[str]:
    """The last names of operations that do one of some things whatever they are given."""
    return frozenset(row.name for row in TABLE if row.rule in FIXED and row.rule(Arguments()) in does)


def methods(*does: Does) -> frozenset[str]:
    """The methods that do one of some things whatever they are given."""
    known = names(*does)
    return frozenset(it for it in METHODS if NAMES[f"torch.Tensor.{it}"].name in known)


def layers(*does: Does) -> frozenset[str]:
    """The full names of layers that do one of some things whatever they are given."""
    known = names(*does)
    return frozenset(it for it in LAYER_NAMES if NAMES[it].name in known)


def canonical(name: str) -> str:
    """A layer's name without the module of torch.nn that defines it."""
    parts = name.split(".")
    return f"torch.nn.{parts[-1]}" if parts[:3] == ["torch", "nn", "modules"] else name


def written(node: ast.AST) -> int | None:
    """A number that is written as such."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return None if isinstance(number, bool) else -number
        case ast.Constant(value=int() as number):
            return None if isinstance(number, bool) else number
    return None
