"""Functions that answer a program's own code otherwise than libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


class Asked:
    """A function that stands for another one, and is told the file in which it is called.

    It is no Python function: one would become a method where a class holds it, as functions of C's do not.

    Args:
        real: what it stands for.
        answer: gets the file's name, and the arguments.
    """

    def __init__(self, real: Any, answer: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = real.__name__
        self.__module__, self.__doc__ = real.__module__, real.__doc__
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._answer(sys._getframe(1).f_code.co_filename, *args, **kwargs)

    def __reduce__(self) -> str:
        return self.__name__


def is_of(folder: str) -> Callable[[str], bool]:
    """Tells of a file whether it is a program's own: in its folder, or beside that."""
    own = tuple({os.path.dirname(it) + os.sep for it in (folder, os.path.realpath(folder))})
    return lambda file: file.startswith(own)
