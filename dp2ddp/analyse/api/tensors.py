"""Methods and functions of tensors and arrays, by what they do to the numbers, the dimensions and the place.

What an operation does to the samples of a batch says ``operations``; here are sets of names for questions that are not
about samples. A name alone says nothing where something else than a tensor may have it.
"""

from __future__ import annotations

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.operations import Does

# Leaving torch

# What makes a number, an array or a list of a tensor.
LEAVES_TORCH = frozenset({"numpy", "tolist", "item"})
# The same, and what only brings a tensor to the host.
TO_HOST = frozenset({"numpy", "tolist", "cpu"})
# What makes a number, or an array, of a tensor, or hands it on without its graph.
WITHOUT_GRAPH = LEAVES_TORCH | {"detach", "cpu", "float", "double", "clone"}
# What of a tensor makes the array that holds its numbers.
TO_ARRAY = frozenset({"cpu", "detach", "numpy"})
# What hands one number on without its graph.
ONE_WITHOUT_GRAPH = frozenset({"item", "detach"})

# Handing on

# What hands a tensor on, by its last name: to follow a tensor, where it is known that it is one.
HANDS_ON = operations.names(Does.HANDS_ON) | {"type", "squeeze"}
# What averages all numbers, by its method and its full name.
AVERAGING = frozenset({"mean", "nanmean", "torch.mean", "torch.nanmean"})
# What hands numbers on, or tells their shape.
HANDS_NUMBERS_ON = WITHOUT_GRAPH | HANDS_ON | {"size", "dim"}
# What leaves each row of a tensor where it is, whatever it is given.
KEEPS_ROWS = HANDS_ON - LEAVES_TORCH - {
    *("data", "expand", "expand_as", "tensor", "new_tensor", "squeeze", "item"),
}  # fmt: skip
# Methods that leave each row where it is, and compute it by itself.
BY_ROW = frozenset("""
    to cuda cpu float long int bool half double type contiguous clone detach pin_memory share_memory_ astype numpy
    mul div add sub mul_ div_ add_ sub_ abs exp log clamp sqrt neg
    """.split())
# What hands a tensor on with the dimensions that it has, computed number by number or as it is.
KEEPS_DIMENSIONS = frozenset("""
    data cpu cuda to type float double half long int bool byte detach detach_ clone contiguous numpy grad T
    abs abs_ neg exp log sqrt clamp clamp_ clamp_min clamp_max sigmoid tanh relu round floor ceil requires_grad_
    t expm1 log1p square reciprocal
    """.split())
# What hands on as many dimensions as it is given, in another order or along one of them; layers that do.
REORDERS_DIMENSIONS = frozenset("""
    transpose swapaxes swapdims permute movedim moveaxis softmax log_softmax softmin normalize cumsum cumprod flip roll
    """.split())
LAYERS_KEEP_DIMENSIONS = operations.layers(Does.NUMBERS) | frozenset(f"torch.nn.{name}" for name in """
    Linear LayerNorm GroupNorm RMSNorm BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d
    Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d AvgPool1d AvgPool2d AdaptiveAvgPool1d
    AdaptiveAvgPool2d Dropout1d Dropout2d Softmax LogSoftmax PReLU
    """.split())
# Methods that hand a gradient on, or turn its sign.
HANDS_GRADIENT_ON = frozenset(
    {"neg", "neg_", "clone", "detach", "contiguous", "to", "float", "double", "half"}
)
# Methods that hand a tensor on, on another device or of another type.
CASTS_OR_MOVES = frozenset({"cuda", "to", "double", "float", "long"})
# Methods that keep a matrix transposed where it is.
KEEPS_TRANSPOSED = frozenset({"eq", "ne", "float", "byte", "long", "cpu", "cuda"})
# What is asked of a gradient that leaves its size aside; methods that hand it on with its sign.
SIGN_ALONE = frozenset({"sign", "sign_", "zero_", "device", "dtype", "shape"})
KEEPS_SIGN = frozenset({"detach", "clone", "cpu", "float", "to"})
# Methods whose result is another look at what they are called of, or may be.
VIEWS = frozenset("""
    view view_as reshape permute transpose t unsqueeze squeeze flatten ravel narrow detach contiguous numpy cpu cuda to
    select split chunk unbind diagonal unfold swapaxes movedim expand expand_as long float double half int bool type
    type_as values items get detach_ requires_grad_
    """.split())
# Attributes that are another look at the tensor that they are asked of.
IS_ITS_DATA = frozenset({"data", "T", "mT", "real", "imag"})

# Masks

# What compares with a number or tensor; what makes a mask, and what keeps one; what is given one.
COMPARES = frozenset("eq ne gt ge lt le".split())
MAKES_MASKS = COMPARES | {"bool", "logical_not", "logical_and", "isnan", "isfinite"}
KEEPS_MASKS = frozenset("""
    detach contiguous view reshape squeeze unsqueeze flatten to cuda clone detach_
    """.split())
TAKES_MASK = frozenset({"masked_fill", "masked_fill_", "masked_select"})

# Arithmetic

# What computes with another number or tensor, number by number.
ARITHMETIC = frozenset("""
    mul mul_ div div_ add add_ sub sub_ pow pow_ eq ne gt ge lt le true_divide multiply divide
    """.split())
# What multiplies or divides by what it is given.
SCALES = frozenset({"mul", "div", "mul_", "div_", "multiply", "divide"})
# Methods that add to some numbers of a tensor in its place.
ADDS_IN_PLACE = frozenset({"add_", "index_add_", "index_put_", "scatter_add_", "scatter_reduce_"})
# What computes something of each row of one tensor and each of another.
PAIRS_ROWS = frozenset({"cdist", "mm", "inner"})

# Reductions

# What makes one number of all, or of those along a dimension.
REDUCES = frozenset("""
    sum mean prod max min std var norm median all any argmax argmin logsumexp nansum nanmean count_nonzero
    """.split())
# Those that hand out two tensors where they are told a dimension.
GIVES_TWO = frozenset({"max", "min", "median"})
# What takes dimensions from a tensor, so that there may be but one left.
TAKES_DIMENSIONS = frozenset("""
    sum mean max min amax amin norm argmax argmin any all prod std var logsumexp squeeze ravel pairwise_distance
    cosine_similarity dot select
    """.split())
# Functions that make one number of all, of which parts of a batch have others; and those that make numbers of all rows.
STATISTICS = frozenset(f"torch.{name}" for name in ("mean", "median", "std", "var"))
OF_ALL_ROWS = STATISTICS | frozenset(f"torch.{name}" for name in """
    median std var max min amax amin aminmax norm unique unique_consecutive bincount histc mode quantile nanquantile
    kthvalue count_nonzero std_mean var_mean nanmedian
    """.split())

# Shapes

# What gives another shape to the same numbers, without and with dimensions of one.
RESHAPES = frozenset({"view", "reshape", "flatten"})
# Methods that only shape a tensor, by what they may be given first for that.
SHAPES = {
    "view": (-1,),
    "reshape": (-1,),
    "flatten": (1,),
    "squeeze": (1, 2, 3, -1),
    "unsqueeze": (1, 2, 3, -1),
}
# What shapes by sizes that it is given one by one.
BY_SIZES = frozenset({"view", "reshape", "permute", "expand", "repeat"})
# What repeats rows; what does so by another's shape; what takes another's shape.
SPREADS = frozenset({"expand", "expand_as", "broadcast_to"})
SHAPES_LIKE = frozenset({"view_as", "reshape_as", "expand_as"})
# What is as large as what is given, and has nothing of its numbers: the number that it is full of, if that is known.
CONSTANTS_LIKE = {"zeros_like": 0, "ones_like": 1, "full_like": None}
# Methods that copy rows as often as they are told.
REPEATS = frozenset({"repeat", "expand", "tile", "repeat_interleave"})
# Words by which the size of a tensor is asked for.
SIZE_WORDS = ("size", "len(", "shape", "numel")
# Methods that are given sizes: of the tensor itself, or of a new one.
GIVEN_SIZES = frozenset({"view", "reshape", "expand", "repeat", "resize_", "new_zeros", "new_ones"})
# Methods that make another tensor, of the sizes that they are given.
MAKES_OF_SIZES = frozenset({"new", "new_zeros", "new_ones", "new_full", "new_empty"})
# What gives a tensor another first dimension in its place.
RESHAPES_IN_PLACE = frozenset("squeeze_ unsqueeze_ resize_ resize_as_ transpose_ t_ swapaxes_ set_".split())
# What may do otherwise with one row than with two, or asks for the greatest number of all rows.
BY_NUMBER_OF_ROWS = frozenset({"squeeze", "expand", "one_hot"})
# Methods that move or take away dimensions: the first stays where they are told others.
MOVES_ONE_DIMENSION = frozenset({"unsqueeze", "squeeze", "transpose"})
MOVES_DIMENSIONS = MOVES_ONE_DIMENSION | {"flatten"}
# Arguments that name a dimension; that give sizes; that bound or give the numbers of a new tensor; the tensor itself.
DIMENSION_ARGUMENTS = frozenset({"dim", "axis"})
SIZE_ARGUMENTS = frozenset({"size", "shape"})
# Methods that give a tensor another size; what it holds is that of no sample then, until it is written anew.
RESIZES = frozenset({"resize_", "resize_as_"})
# Methods that write all that a tensor holds, whatever it has held.
OVERWRITES = frozenset(
    "copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ log_normal_ cauchy_".split()
)
NUMBER_ARGUMENTS = frozenset({"low", "high", "fill_value"})
TENSOR_ARGUMENTS = frozenset({"input", "self"})

# Joining and making

# What joins tensors, by its last name: along a dimension that is there, or a new one.
JOINS_BY_NAME = frozenset({"cat", "concat", "concatenate", "stack", "column_stack"})
# Functions of torch that join a list of tensors along one dimension.
JOINS_TENSORS = frozenset({"torch.stack", "torch.cat", "torch.concat"})
# Functions of torch and numpy that join arrays along a dimension that is there; those with a new one.
CONCATENATES = frozenset({"torch.cat", "torch.concat", "torch.vstack", "numpy.concatenate"})
STACKS = frozenset({"torch.stack", "numpy.stack"})
# Methods that make a tensor of what they are given: it has the type and device of their own, and none of its numbers.
LIKE_ITS_TENSOR = frozenset({"new_tensor"})
# Operations that make one array or tensor of a list, with a dimension more.
MAKES_ARRAY = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "tensor", "as_tensor"})
# What makes a tensor of several that are padded to the longest.
PADS = frozenset({"torch.nn.utils.rnn.pad_sequence"})
# Those that remove dimensions of size 1.
SQUEEZES = frozenset({"torch.squeeze", "numpy.squeeze"})
# What makes a tensor or array of a list, entry by entry.
OF_LISTS = STACKS | frozenset("""
    torch.tensor torch.as_tensor torch.from_numpy torch.FloatTensor torch.DoubleTensor torch.LongTensor torch.IntTensor
    torch.ByteTensor torch.BoolTensor numpy.array numpy.asarray
    """.split())
# What makes a tensor or array of numbers that are given.
OF_NUMBERS = frozenset({"tensor", "array"})
TENSOR_OF_NUMBER = frozenset({"tensor", "as_tensor"})
OF_ONE_NUMBER = frozenset({"torch.tensor", "torch.as_tensor", "numpy.array"})
# What gives the places of the numbers in their order; what turns rows round, by their last names.
ORDERING = frozenset({"argsort"})
TURNS_ROUND = frozenset({"flip", "roll"})
# What may give a tensor another number of rows, each of one sample alone, by its last name.
CHANGES_NUMBER_OF_ROWS = frozenset("""
    view reshape flatten ravel unflatten repeat repeat_interleave tile unfold view_as reshape_as resize
    """.split())
REGROUPS = frozenset({"view", "reshape"})
# What makes a tensor of one dimension where it is given one size, or a list.
OF_ONE_SIZE = frozenset({"zeros", "ones", "FloatTensor", "Tensor"})
# What makes a tensor of the sizes that it is given.
FILLS = frozenset(
    f"torch.{name}"
    for name in ("zeros", "ones", "full", "rand", "randn", "randint", "empty", "eye", "arange")
)
# Those whose sizes are not those that they are given.
OTHER_SIZES = frozenset({"torch.arange", "torch.eye"})
# Those of numpy, but for what may begin a sum.
FILLS_ARRAY = frozenset({"numpy.ones", "numpy.full", "numpy.empty"})
FILLS_NUMPY = FILLS_ARRAY | {"numpy.zeros"}
# What cuts an array into a list of such: functions, and methods.
SPLITS = frozenset({"numpy.split", "numpy.array_split", "torch.split", "torch.chunk", "torch.tensor_split"})
SPLITTING_METHODS = frozenset({"split", "chunk", "tensor_split"})
VARIABLE = "torch.autograd.Variable"
# Whose functions return tensors and arrays, or tuples of them.
ARRAY_HOMES = ("torch.", "numpy.")
# What makes nothing of a batch where it is given nothing of one.
NO_BATCH_HOMES = ("torch.nn.", "torch.device", "torch.cuda.")
# Where those that are given numbers before stand the sizes: from the first, or from the last.
SIZE_PLACES = {"torch.randint": -1, "numpy.random.randint": 2}
# What makes something that may begin a sum.
ZEROS = frozenset("""
    torch.zeros numpy.zeros torch.tensor numpy.array torch.zeros_like numpy.zeros_like
    """.split())
# Those that change the shape.
CHANGES_SHAPE_IN_PLACE = frozenset("""
    resize_ resize_as_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ set_
    """.split())
# Methods in place that change nothing of the numbers.
NO_NUMBERS_IN_PLACE = frozenset({"requires_grad_", "detach_"})

# Knowing a tensor

# What is asked of tensors alone.
OF_TENSORS = {"size", "shape", "view", "dim"} | (HANDS_ON - LEAVES_TORCH - {"data"})
OF_TENSORS |= operations.methods(Does.NUMBERS)
# Methods that only tensors have, and those of what makes one number that others have, too.
OF_TENSORS_ALONE = frozenset("""
    cuda cpu detach contiguous view expand expand_as unsqueeze float double half long eq ne gt ge lt le t topk norm
    logsumexp requires_grad_ backward new_zeros new_ones new_full new_empty new_tensor
    """.split())
# Those of them that batches of other kinds don't have, with what arrays have, too.
SHOW_TENSORS = (OF_TENSORS_ALONE | LEAVES_TORCH | {"size", "shape", "dim", "reshape", "mean"}) - {
    "cuda",
    "cpu",
}
# Those of them that hand a tensor on, or make an array or a list of it.
MAKES_ONE_OF_TENSOR = SHOW_TENSORS & (BY_ROW | LEAVES_TORCH)
# Modules whose functions take tensors first; those that take a list of them, or whatever they are given.
FUNCTION_HOMES = frozenset({"torch", "torch.nn.functional"})
TAKE_LISTS = frozenset("""
    cat concat concatenate stack vstack hstack dstack column_stack row_stack tensor as_tensor is_tensor
    """.split())
# How the names begin of what makes tensors, where methods are called of it.
TENSOR_HOMES = (
    "torch.Tensor.",
    "torch.utils.data.DataLoader.",
    "torch.autograd.Variable.",
    "torch.nn.Parameter.",
    "torch.nn.parameter.Parameter.",
    "builtins.next.",
)
# Modules whose functions give tensors; what of torch itself does not.
GIVES_TENSORS = ("torch.nn.functional.", "torch.autograd.")
NO_TENSORS = frozenset({"load", "device", "Generator"})
# What hands on what it is given, or a picture or a probability of it.
PASSES_PICTURES_ON = frozenset("""
    torch.autograd.Variable torchvision.utils.make_grid torch.sigmoid torch.tanh
    """.split())

# Asking a tensor

# What tensors say of themselves, whatever rows they have.
DESCRIBES = frozenset("device dtype layout ndim is_cuda is_sparse requires_grad".split())
# What has nothing to do with the numbers in a tensor, of it or of a module.
NO_NUMBERS = frozenset("shape size dim ndim numel device dtype is_cuda training".split())
# What a gradient or a weight may be asked for without its numbers.
NO_GRADIENT = frozenset("device dtype shape size type".split())
# What is the same for each sample alone.
OF_KIND = frozenset({"device", "dtype"})
# What a tensor is asked for to get gradients by it, which belong to all that was computed of it.
OF_GRADIENTS = frozenset({"grad", "requires_grad_", "retain_grad", "register_hook"})
# Methods that give one number.
GIVES_NUMBERS = frozenset({"item", "size", "dim", "numel", "nelement", "data_ptr"})

# Methods that leave the samples in the dimension that they have them in.
KEEPS_PLACES = HANDS_ON | frozenset(
    "expand float double half long int bool detach cpu cuda to contiguous clone".split()
)
# What tells where in rows, or in a list of them, something stands; so does ``where`` of one argument.
PLACES_OF = frozenset({"nonzero", "argwhere", "flatnonzero", "index"})
# Operations that fill a tensor that is there with what samples give: it keeps as many rows as it has.
FILLS_BY_INDEX = frozenset({"scatter", "scatter_add", "scatter_reduce"})
# The same numbers in one dimension, and in those that are given.
FLATTENS = frozenset({"flatten", "ravel"})
TAKES_SIZES = frozenset({"view", "reshape"})
# Methods of tensors that return values and, beside them, the tensor of where these stand; that return such a tensor.
ORDERS_BY_VALUE = frozenset("max min sort topk kthvalue median mode cummax cummin".split())
GIVES_INDICES = frozenset(
    "nonzero argmax argmin argsort long bool byte logical_not logical_and logical_or eq ne lt le gt ge".split()
)
# And functions of torch.
MAKES_INDICES = GIVES_INDICES | frozenset("randperm arange multinomial tensor where isnan isfinite".split())
