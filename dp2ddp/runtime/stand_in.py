"""Writers, trackers and plotters: the main process has them, the others something that takes any call."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NoReturn

from . import keyed, ranks


def on_main_process(make: Any) -> Any:
    """Make something on rank 0 only; the others get a stand-in that accepts any use and does nothing.

    No collective, and no ``None``: what uses it needs no condition. Write ``ddp.on_main_process(SummaryWriter)(path)``
    for what makes a writer, ``wandb = ddp.on_main_process(wandb)`` for a module that is one, and
    ``class Writer(ddp.on_main_process(SummaryWriter))`` for a writer of your own: its methods run everywhere, and those
    that it inherits do nothing on the others. The stand-in takes any call, attribute, item and ``with``, gives itself,
    and has nothing to iterate over. Of what opens a file (``gzip.open``) it depends on the mode: all may read. What
    opens a store of values by keys (``shelve.open``) gives one that reads the file and keeps what is new in memory.

    Args:
        make: a class, a function or a module.

    Returns:
        ``make`` itself on rank 0 and in a plain process.
    """
    if ranks.is_main_process():
        return make
    if isinstance(make, type) and issubclass(make, logging.Handler):
        return _StandInHandler  # logging compares their levels
    if _full_name(make) in keyed.OPENING:
        return functools.partial(keyed.opened, make)
    opens = _full_name(make) in _OPENING
    return (_Opening if opens else StandIn)(getattr(make, "__name__", type(make).__name__), make)


def _full_name(made: Any) -> str:
    return f"{getattr(made, '__module__', '')}.{getattr(made, '__qualname__', '')}"


# What Python asks of an object that a class of the program's may inherit.
_PROTOCOLS = ("__enter__", "__exit__", "__call__", "__iter__", "__len__", "__getitem__", "__setitem__")


# What opens files by a mode, which may say that they are read.
_OPENING = frozenset("""
    bz2.open codecs.open gzip.open h5py._hl.files.File lzma.open tarfile.TarFile.open zipfile.ZipFile
    """.split())


class StandIn:
    """What takes any use and does nothing.

    It has no value that could decide or be trained on: what asks it for one gets an error that says what to do.
    """

    def __init__(self, name: str, made: Any = None) -> None:
        self.__dict__["_stands_in_for"] = name
        self.__dict__["_made"] = made

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return (_base(self._stands_in_for, self._made),)

    def __instancecheck__(self, other: Any) -> bool:
        return isinstance(other, StandIn)

    def __subclasscheck__(self, _: type) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)  # protocols that Python or a library asks for
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], FunctionType):
            return args[0]  # as a decorator
        return self

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __next__(self) -> NoReturn:
        raise StopIteration

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __contains__(self, _: Any) -> bool:
        return False

    def __getitem__(self, _: Any) -> StandIn:
        return _Entry(self._stands_in_for)

    def __setitem__(self, *_: Any) -> None:
        pass

    def __delitem__(self, _: Any) -> None:
        pass

    def __delattr__(self, name: str) -> None:
        self.__dict__.pop(name, None)

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, _: Any) -> StandIn:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return StandIn, (self._stands_in_for,)

    def __fspath__(self) -> str:
        return os.devnull

    def __str__(self) -> str:
        return f"<{self._stands_in_for}, on the main process only>"

    __repr__ = __str__

    def __format__(self, _: str) -> str:
        return str(self)

    def _decides(self, *_: Any) -> NoReturn:
        raise RuntimeError(
            f"{self._stands_in_for} exists on the main process only, but rank {ranks.own_rank()} needs its "
            "value: use ddp.from_main_process(…) for it, on all ranks"
        )

    def _joined(self, other: Any) -> StandIn:
        """``writer.log_dir + "/model.pt"``: part of a path."""
        return self if isinstance(other, str | os.PathLike) else self._decides()

    __lt__ = __le__ = __gt__ = __ge__ = _decides
    __int__ = __float__ = __index__ = __complex__ = _decides
    __add__ = __radd__ = __truediv__ = __rtruediv__ = _joined
    __sub__ = __rsub__ = __mul__ = __rmul__ = _decides
    __floordiv__ = __mod__ = __pow__ = __neg__ = __abs__ = _decides
    __array__ = _decides

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, str | bytes | int | float | complex | tuple | list | dict):
            self._decides()
        return self is other

    __hash__ = object.__hash__


class _Entry(StandIn):
    """What stands under a key: not an empty list, nor an array of nothing."""

    __iter__ = __len__ = __contains__ = StandIn._decides


class _Opening(StandIn):
    """What opens a file if that is read, and stands in for one that is written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(StandIn(self._stands_in_for), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = kwargs.get("mode", args[1] if len(args) > 1 else "r")
        if mode == "r+":  # what is there is read; h5py has no other mode with a plus
            args, kwargs = (*args[:1], *args[2:]), {**kwargs, "mode": "r"}
        elif not isinstance(mode, str) or set(mode) & set("wax+"):
            return StandIn(self._stands_in_for)
        return self._made(*args, **kwargs)


class _StandInHandler(logging.NullHandler):
    """A handler of log records that handles none, and has any attribute."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(type(self).__name__)


def _base(name: str, made: Any) -> type:
    """What a class derives from in place of a writer's: all that it would inherit takes any call."""

    def nothing(*_: Any, **__: Any) -> StandIn:
        return StandIn(name)

    def get(self: Any, attribute: str) -> Any:
        return StandIn.__getattr__(StandIn(name), attribute)

    plain = (it for it in dir(made) if not it.startswith("__") and callable(getattr(made, it, None)))
    asked = {it: getattr(StandIn, it) for it in _PROTOCOLS if hasattr(made, it)}
    own = {"__init__": lambda *_, **__: None, "__getattr__": get}
    return type(name, (), {**dict.fromkeys(plain, nothing), **asked, **own})
