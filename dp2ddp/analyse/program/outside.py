"""What comes of things from outside the project: how far attributes, elements and calls of them are followed."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from dp2ddp.analyse.api.files import GIVES_PATH, PATH
from dp2ddp.analyse.api.options import OPTIONS
from dp2ddp.analyse.api.tensors import GIVES_TENSORS, NO_TENSORS
from dp2ddp.analyse.program.values import NOTHING, Ext, Made, Member, Value, Values, full_name

# How many attributes, elements and calls from something outside the project are followed: a value that goes round in
# a circle would have another name each time.
FARTHEST = 4
# Attributes of how many things from outside the project one expression may be before it is unknown.
MOST = 24
ELEMENT = "[]"


@dataclass
class Outside:
    """Attributes, elements and results of what is not the project's."""

    _derivation: dict[str, int] = field(default_factory=dict)
    """The names of what calls make of what came of other calls, with the steps from the first one."""
    _parts: dict[tuple[Value, str], Values] = field(default_factory=dict)
    """Made once: they are asked for again and again, and compared quickly if they are the same objects."""

    def part(self, owner: Value, name: str) -> Values:
        """An attribute, or the elements, of something from outside the project; nothing where that is too far."""
        if name == "parent" and isinstance(owner, Made) and owner.name == PATH:
            return frozenset([owner])
        if self.steps(owner) >= FARTHEST:
            return NOTHING
        found = self._parts.get((owner, name))
        if found is None:
            found = self._parts[owner, name] = frozenset([Member(owner, name)])
        return found

    def element(self, value: Value) -> Values:
        """The elements of something from outside the project; those of settings are settings, however deep."""
        if isinstance(value, Made):
            return self.part(value, ELEMENT)
        if isinstance(value, Member) and value.name == ELEMENT and full_name(value).startswith(OPTIONS):
            return frozenset([value])
        return NOTHING

    def steps(self, value: Value) -> int:
        """How many attributes and calls lie between a value and what was called or made first."""
        steps = 0
        while isinstance(value, Member):
            value, steps = value.owner, steps + 1
        return steps + (self._derivation.get(value.name, 0) if isinstance(value, Made) else 0)

    def fewer(self, values: Values) -> Values:
        """Values, without attributes of too many things from outside the project: which of them it is, nobody knows."""
        parts = {it for it in values if isinstance(it, Member)}
        return values - parts if len(parts) > MOST else values

    def made(self, callee: Ext | Member, node: ast.Call) -> Values:
        """What a call of something outside the project returns."""
        name = full_name(callee)
        if not name or _is_tensor(name):
            return NOTHING
        home, _, method = name.rpartition(".")
        if home == PATH and method in GIVES_PATH:
            return frozenset([Made(PATH, id(node))])
        self._derivation.setdefault(name, self.steps(callee))
        return frozenset([Made(name, id(node))])


def _is_tensor(name: str) -> bool:
    """Whether a call returns a tensor or array, or ends a chain: nobody asks who those are, and they multiply."""
    parts = name.split(".")
    function = parts[0] == "torch" and len(parts) == 2 and parts[1] not in NO_TENSORS
    array = parts[0] == "numpy" and "random" not in parts
    if function or array or name.startswith(GIVES_TENSORS):
        return True
    # A method of its own result, in a loop or in functions that call each other, makes chains without end.
    return len(parts) > 8 or (parts[-1] in parts[2:-1] and parts[0] != "pathlib")
