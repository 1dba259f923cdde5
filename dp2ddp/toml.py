"""Reading TOML."""

from __future__ import annotations

from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib  # type: ignore[no-redef]


def parsed(text: str) -> dict[str, Any]:
    """What a TOML file says. Raises ``ValueError``."""
    return tomllib.loads(text)


def table(data: object, *names: str) -> dict[str, Any]:
    """The table of this name, ``tool.black`` by ``"tool", "black"``; an empty one where there is none."""
    for name in names:
        data = data.get(name, {}) if isinstance(data, dict) else {}
    return data if isinstance(data, dict) else {}
