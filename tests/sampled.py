"""What of long matrices runs every time; the other cases get the mark ``slow``, so that ``-m slow`` runs exactly them.

Three and more processes are slow where a test has the same on two. ``@pytest.mark.sample`` says it for one test:
``sample("a mean-3", processes=2)`` keeps the cases on two processes, and those whose name holds ``a mean-3``;
``processes=(2, 3)`` those on two and three; ``every=4`` of what the values keep (of all, without any) each fourth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest


def mark_the_rest(items: Sequence[pytest.Item], whole: bool) -> None:
    """Mark as slow what is no part of its test's sample; an error where a mark names no case of a ``whole`` test."""
    tests: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec"):
            tests[item.nodeid.partition("[")[0]].append(item)
    missing = []
    for test, cases in tests.items():
        params = [item.callspec.params for item in cases]
        mark = cases[0].get_closest_marker("sample")
        if mark is None and "processes" not in params[0]:
            continue
        texts = mark.args if mark else ()
        values = mark.kwargs if mark else {"processes": (1, 2, min(it["processes"] for it in params))}
        kept = [
            item for item in cases if values and not item.get_closest_marker("slow") and _has(item, values)
        ][:: values.get("every", 1)]
        for text in texts:
            named = [item for item in cases if text in item.callspec.id]
            missing += [] if named else [f"{test}: {text}"]
            kept += named
        for item in set(cases).difference(kept):
            item.add_marker(pytest.mark.slow)
    if whole and missing:
        raise pytest.UsageError("marks name cases that are not there:\n" + "\n".join(missing))


def _has(item: Any, values: dict[str, Any]) -> bool:
    """Whether a case has one of the values that a mark names, of each parameter."""
    return all(
        item.callspec.params[name] in (value if isinstance(value, tuple) else (value,))
        for name, value in values.items()
        if name != "every"
    )
