"""Writers, trackers and plotters: the main process has them, the others something that takes any call."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NoReturn

from . import ranks


def on_main_process(make: Any) -> Any:
    """Have something on rank 0 only; the others get a stand-in that takes any use and does nothing.

    No collective, and no ``None``: what uses it needs no condition. Write ``ddp.on_main_process(SummaryWriter)(path)``
    for what makes a writer, ``wandb = ddp.on_main_process(wandb)`` for a module that is one. The stand-in takes any
    call, attribute, item and ``with``, gives itself, and has nothing to iterate over.

    Args:
        make: a class, a function or a module.

    Returns:
        ``make`` itself on rank 0 and in a plain process.
    """
    if ranks.is_main_process():
        return make
    if isinstance(make, type) and issubclass(make, logging.Handler):
        return _dropping
    return StandIn(getattr(make, "__name__", type(make).__name__))


def _dropping(*_: Any, **__: Any) -> logging.Handler:
    """A handler of log records that drops them: logging compares its level with theirs."""
    return logging.NullHandler()


class StandIn:
    """What takes any use and does nothing.

    It has no value that could decide or be trained on: what asks it for one gets an error that says what to do.
    """

    def __init__(self, name: str) -> None:
        self.__dict__["_stands_in_for"] = name

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
        return self

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
            f"{self._stands_in_for} is there on the main process only, and what comes of it is needed on rank "
            f"{ranks.own_rank()}: use ddp.from_main_process(…) of that value, on all ranks"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _decides
    __int__ = __float__ = __index__ = __complex__ = _decides
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _decides
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __neg__ = __abs__ = _decides

    def __eq__(self, other: Any) -> bool:
        return self is other if other is None or isinstance(other, StandIn) else self._decides()

    __hash__ = object.__hash__
