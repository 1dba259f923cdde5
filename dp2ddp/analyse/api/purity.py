"""What changes nothing: by full name, or by the beginning of it where a whole package is like that."""

from __future__ import annotations

from dp2ddp.analyse.api import operations
from dp2ddp.analyse.api.operations import Does
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.processes import ENDS

# Before the ranks start

# Calls that change nothing outside the process and draw no random numbers, by the beginning of their names; and those
# of them that do.
NO_SIDE_EFFECTS = (
    "addict.",
    "argparse.",
    "box.",
    "builtins.",
    "collections.",
    "colorama.",
    "configparser.",
    "dataclasses.",
    "easydict.",
    "enum.",
    "functools.",
    "inspect.",
    "itertools.",
    "json.load",
    "logging.getLogger",
    "math.",
    "matplotlib.use",
    "ml_collections.",
    "multiprocessing.cpu_count",
    "munch.",
    "numpy.array",
    "omegaconf.",
    "os.chdir",
    "os.cpu_count",
    "os.environ",
    "os.getcwd",
    "os.getenv",
    "os.path.",
    "pathlib.",
    "pyhocon.",
    "re.",
    "subprocess.check_output",
    "sys.path.",
    "time.",
    "datetime.",
    "torch.accelerator.",
    "torch.cuda.is_available",
    "torch.cuda.device_count",
    "torch.device",
    "torch.nn.functional.",
    "torch.set_default_dtype",
    "torchvision.transforms.",
    "types.",
    "typing.",
    "warnings.",
    "yacs.",
    "yaml.",
    "dp2ddp.runtime.device",
    "dp2ddp.runtime.get_",
    "dp2ddp.runtime.is_main_process",
    "dp2ddp.runtime.on_main_process",
)
SIDE_EFFECTS = ENDS | {"builtins.print", "builtins.input", "builtins.exec"}

# In an evaluation

# What changes nothing but what it returns, and what of that changes something.
PURE = ("torch.", "numpy.", "math.", "scipy.", "sklearn.metrics.", "itertools.", "functools.", "operator.")
NOT_PURE = (
    *("torch.save", "torch.load", "torch.manual_seed", "torch.seed", "torch.utils.", "torch.distributed."),
    *("torch.optim.", "torch.autograd.backward", "torch.set_", "numpy.save", "numpy.load", "scipy.io."),
    *("torch.nn.", "torch.multiprocessing.", "torch.hub.", "torch.onnx.", "torch.jit.", "numpy.put"),
    *("numpy.copyto", "numpy.fill_diagonal", "numpy.place"),
)
# Functions that change what they are given, by the end of their names.
IN_PLACE = ("_", ".at")
PURE_BUILTINS = frozenset(f"builtins.{name}" for name in """
    abs all any bool dict divmod enumerate filter float format int isinstance len list map max min pow range reversed
    round set slice sorted str sum tuple zip hasattr getattr type
    """.split())
# Methods of tensors, arrays and strings that leave these as they are.
PURE_METHODS = frozenset("""
    size dim numel nelement view view_as reshape permute transpose t unsqueeze flatten index_select masked_select
    nonzero matmul mm bmm dot isnan isfinite equal format join split strip items keys values get lower upper
    startswith endswith count index copy repeat narrow unfold diag trace triu tril ne_ bincount histc unique
    max_pool1d ravel swapaxes is_cuda get_device element_size stack nanmean nansum quantile median mode kthvalue
    __getattr__
    """.split())
PURE_METHODS |= {it for it in operations.METHODS if not it.endswith("_")} | operations.methods(Does.NUMBERS)
PURE_METHODS |= {"detach_", "requires_grad_", "scatter_"}
# Where objects come from whose methods are those: an unknown package's `update`, or `sum`, may do anything.
PURE_METHOD_HOMES = (
    "torch.",
    "numpy.",
    "builtins.",
    "collections.",
    "pandas.",
    "scipy.",
    "PIL.",
    "cv2.",
    "os.",
    *OPTIONS,
)

# Beside the training

# What gives settings, numbers, paths and loggers: nothing that could be trained.
UNTRAINED = (
    *OPTIONS,
    *(f"builtins.{name}" for name in ("float", "int", "len", "str")),
    "logging.",
    "os.",
    "pathlib.",
)
# Where a program's own tensors may not come from: these are torch's, Python's, or settings.
NO_TENSORS_OF_OTHERS = ("torch.", "builtins.", *OPTIONS)
# Packages whose objects keep nothing of what they are given, or share it between the processes by themselves. Those of
# torchmetrics keep it for each rank: the runtime has them stay as they are in one process.
KEEPS_NOTHING = (
    *(
        "builtins.",
        "torch.",
        "torchvision.",
        "numpy.",
        "tqdm.",
        "logging.",
        "dp2ddp.",
        "ignite.",
    ),
    *("collections.", "apex.", "random.", "math.", "copy.", "gc.", "time.", "os.", "sys.", "warnings."),
)
# What computes with numbers and arrays alone, of what is the same the same; those, and what copies objects.
COMPUTES_NUMBERS = ("math.", "numpy.", "random.")
COMPUTES_OR_COPIES = (*COMPUTES_NUMBERS, "copy.")
# What makes arrays, or lists of them.
ARRAYS = ("numpy.", "builtins.list")
ARRAYS_AND_BUILTINS = ("numpy.", "builtins.")
# What is given a loader, and keeps it or asks for it, beside ``handing.ASKING``: others may draw from it.
HOLDS = (
    "builtins.dict",
    "builtins.enumerate",
    "builtins.reversed",
    "builtins.setattr",
    "builtins.vars",
    "collections.",
    "copy.",
    "functools.partial",
    "itertools.repeat",
    "logging.",
    "types.",
)
# What works on paths, files, texts and processes: a loader it is given, where what it is given is not known, is none.
DRAWS_NOTHING = (
    *(
        f"{it}."
        for it in "os posixpath ntpath shutil pathlib glob fnmatch tempfile io sys platform socket".split()
    ),
    *(f"{it}." for it in "json pickle marshal yaml csv re string argparse configparser hashlib".split()),
    *(
        f"{it}."
        for it in "time datetime calendar warnings traceback subprocess threading signal uuid gc".split()
    ),
    *("builtins.str", "builtins.repr", "builtins.format", "builtins.open", "torch.save", "torch.load"),
)
# What copies an object.
COPIES_OBJECT = frozenset({"copy.deepcopy", "copy.copy"})
