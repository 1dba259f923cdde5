"""What Python, torch and others no longer have, and what takes its place: names, modules, builtins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Removed:
    """Something that fails, ``since`` a version, and what is written ``instead``, if anything.

    ``what``: its full name, or a form in words. ``instead`` of a name is a full name too, or words for a person.
    """

    what: str
    since: str
    instead: str

    @property
    def place(self) -> tuple[str, str]:
        """The module and the name in it that take the place of a name; empty where nothing does by itself."""
        module, _, name = self.instead.rpartition(".")
        return (module, name) if module and re.fullmatch(r"[\w.]+", self.instead) else ("", "")

    @property
    def module(self) -> str:
        """The module that takes the place of one; empty where none does by itself."""
        return self.instead if re.fullmatch(r"[\w.]+", self.instead) and "." not in self.what else ""


def _renames(since: str, names: Mapping[str, str], module: str = "", now: str = "") -> tuple[Removed, ...]:
    """Names that are others now, of a module each."""
    return tuple(
        Removed(f"{module}{name}", since, f"{now or module}{other}") for name, other in names.items()
    )


def _gone(since: str, instead: str, module: str, names: str = "") -> tuple[Removed, ...]:
    """Names that nothing takes the place of by itself."""
    return tuple(Removed(f"{module}.{name}", since, instead) for name in names.split())


# Names that are gone, or others now.
REMOVED_NAMES = {
    row.what: row
    for row in (
        *_renames("torchvision 0.12", {"Scale": "Resize"}, "torchvision.transforms."),
        *_renames("torchvision 0.12", {"RandomSizedCrop": "RandomResizedCrop"}, "torchvision.transforms."),
        *_renames(
            "torchvision 0.13",
            {"load_state_dict_from_url": "load_state_dict_from_url"},
            "torchvision.models.utils.",
            "torch.hub.",
        ),
        *_renames("PyTorch 2.0", {"inf": "inf"}, "torch._six.", "torch."),
        *_renames("PyTorch 2.0", {"container_abcs": "abc"}, "torch._six.", "collections."),
        *_gone("PyTorch 2.0", "`(str, bytes)`", "torch._six", "string_classes"),
        *_gone("PyTorch 2.0", "`int`", "torch._six", "int_classes"),
        *_gone("PyTorch 1.8", "a function of torch.fft", "torch", "rfft irfft ifft"),
        *_gone(
            "PyTorch 2.0",
            "a function of torch.linalg",
            "torch",
            "gels gesv btrifact potrf trtrs symeig eig solve lstsq",
        ),
        *_gone(
            "PyTorch 1.0", "`iter(loader)`", "torch.utils.data.dataloader", "DataLoaderIter _DataLoaderIter"
        ),
        *_gone("torchvision 0.13", "`weights=`", "torchvision.models.resnet", "model_urls"),
        *_gone("torchvision 0.13", "`weights=`", "torchvision.models.vgg", "model_urls"),
        *_gone("torchvision 0.13", "`weights=`", "torchvision.models.densenet", "model_urls"),
        *_gone("SciPy 1.3", "imageio", "scipy.misc", "imread imsave toimage fromimage"),
        *_gone("SciPy 1.3", "Pillow: `PIL.Image`", "scipy.misc", "imresize imrotate imshow"),
        *_renames(
            "NumPy 1.24",
            {
                "float": "float",
                "int": "int",
                "object": "object",
                "str": "str",
                "complex": "complex",
                "unicode": "str",
            },
            "numpy.",
            "builtins.",
        ),
        *_renames(
            "NumPy 2.0",
            {
                **{
                    "Inf": "inf",
                    "Infinity": "inf",
                    "infty": "inf",
                    "PINF": "inf",
                    "NaN": "nan",
                    "NAN": "nan",
                },
                **{"float_": "float64", "complex_": "complex128", "unicode_": "str_", "string_": "bytes_"},
                **{
                    "product": "prod",
                    "cumproduct": "cumprod",
                    "sometrue": "any",
                    "alltrue": "all",
                },
                **{"round_": "round", "mat": "asmatrix"},
            },
            "numpy.",
        ),
        *_renames("NumPy 2.4", {"in1d": "isin"}, "numpy."),
        *_gone("NumPy 2.0", "`np.asarray(…, dtype=float)`", "numpy", "asfarray"),
        *_renames(
            "Python 3.0",
            {"izip": "zip", "imap": "map", "ifilter": "filter"},
            "itertools.",
            "builtins.",
        ),
        *_renames("Python 3.0", {"izip_longest": "zip_longest", "ifilterfalse": "filterfalse"}, "itertools."),
        *_renames(
            "Pillow 10", {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"}, "PIL.Image."
        ),
        *_renames(
            "Python 3.10",
            {
                **{
                    it: it
                    for it in (
                        "Callable",
                        "Container",
                        "Generator",
                        "Hashable",
                        "ItemsView",
                        "Iterable",
                        "Iterator",
                    )
                },
                **{
                    it: it
                    for it in ("KeysView", "Mapping", "MutableMapping", "MutableSequence", "MutableSet")
                },
                **{it: it for it in ("Sequence", "Set", "Sized", "ValuesView")},
            },
            "collections.",
            "collections.abc.",
        ),
    )
}
# Whole modules; where one takes the place of another, all that programs use of that is in it.
REMOVED_MODULES = {
    it.what: it
    for it in (
        Removed("torch.legacy", "PyTorch 1.0", "torch.nn"),
        Removed("torch.utils.ffi", "PyTorch 1.0", "torch.utils.cpp_extension"),
        Removed("torch._six", "PyTorch 2.0", "torch.inf, collections.abc, str and int"),
        Removed("urllib2", "Python 3.0", "urllib.request and urllib.error"),
        *(
            Removed(old, "Python 3.0", new)
            for old, new in {
                "cPickle": "pickle",
                "Queue": "queue",
                "ConfigParser": "configparser",
                "StringIO": "io",
                "cStringIO": "io",
                "Tkinter": "tkinter",
                "tkMessageBox": "tkinter.messagebox",
                "commands": "subprocess",
                "urlparse": "urllib.parse",
                "httplib": "http.client",
                "HTMLParser": "html.parser",
                "cookielib": "http.cookiejar",
                "copy_reg": "copyreg",
                "__builtin__": "builtins",
                "thread": "_thread",
                "SocketServer": "socketserver",
                "BaseHTTPServer": "http.server",
            }.items()
        ),
    )
}
# Methods of dictionaries in Python 2, and what they are now.
PYTHON_2_METHODS = {"iteritems": "items", "itervalues": "values", "iterkeys": "keys"}
# Builtins of Python 2, and what they are now, if anything by itself.
PYTHON_2 = {
    **{
        "xrange": "range",
        "raw_input": "input",
        "unicode": "str",
        "basestring": "str",
        "long": "int",
        "unichr": "chr",
    },
    **dict.fromkeys(("reduce", "reload", "execfile", "cmp", "apply", "buffer", "intern", "file")),
}
# What tells the version of Python or a library, by its last name.
VERSIONS = ("__version__", "version_info", "version", "PY2", "PY3")
# What is caught where something may not be there.
ATTEMPTED = frozenset("""
    ImportError ModuleNotFoundError AttributeError NameError IndexError TypeError Exception
    """.split())
