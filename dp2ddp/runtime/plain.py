"""Numbers that are no tensors: Python's, numpy's, and numpy's arrays.

numpy is never imported here: a value of it has imported it.
"""

from __future__ import annotations

import sys
from numbers import Number
from typing import Any

import torch


def is_number(value: Any) -> bool:
    """Whether a value is a number of Python's or numpy's."""
    numpy = sys.modules.get("numpy")
    return isinstance(value, Number) or (numpy is not None and isinstance(value, numpy.number | numpy.bool_))


def is_array(value: Any, kinds: str = "biufc") -> bool:
    """Whether a value is an array of numpy's, by its dtype's ``kind``: of numbers, unless told otherwise."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and (not kinds or value.dtype.kind in kinds)


def as_was(value: Any, total: Any) -> Any:
    """``total`` as one of numpy's numbers, where ``value`` is."""
    if isinstance(total, torch.Tensor) or is_array(total):
        return total
    is_numpys = not isinstance(value, torch.Tensor) and not is_array(value) and hasattr(value, "item")
    return type(value)(total) if is_numpys and isinstance(total, type(of_python(value))) else total


def of_python(number: Any) -> Any:
    """A number as Python has it."""
    return number.item() if hasattr(number, "item") else number
