"""The rules, one file each: this folder is their registry.

A rule's file name gives its code and its name (``ddp101_single_process_program``: DDP101). The file holds the
explanation (its docstring), ``check(facts)`` and ``EXAMPLES``: programs that the rule finds something in, which
``dp2ddp explain`` shows converted and the tests run. ``TIES = False``: what it writes does in one process what stood
there, so that a program which is not converted may run it, too. ``IGNORABLE = True``: ``# dp2ddp: ignore[CODE]`` may
take its findings out, as the program is converted wholly without them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dp2ddp.facts import Facts
from dp2ddp.plan import Finding, Plan, Rule


def _load() -> Mapping[str, Rule]:
    rules = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        code, _, name = info.name.partition("_")
        module = importlib.import_module(f"{__name__}.{info.name}")
        explanation = (module.__doc__ or "").strip()
        rules[code.upper()] = Rule(
            code.upper(),
            name.replace("_", "-"),
            explanation,
            module.check,
            tuple(module.EXAMPLES),
            getattr(module, "TIES", True),
            getattr(module, "IGNORABLE", False),
        )
    return rules


RULES: Mapping[str, Rule] = _load()


def check(facts: Facts) -> Plan:
    """Facts → Plan: what every rule finds, by file and line."""
    found = [
        replace(finding, rule=rule.code, ties=rule.ties)
        for rule in RULES.values()
        for finding in rule.check(facts)
    ]
    ordered = sorted(found, key=lambda finding: (finding.location, finding.rule))
    return Plan(tuple(_once(ordered)))


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """Findings without those that only say again what is said of a line."""
    told: dict[object, int] = {}
    kept: list[Finding] = []
    for finding in findings:
        place = finding.location.path, finding.location.span.line
        same = finding.rule, place, finding.severity, finding.message, finding.help
        if finding.edits or same not in told:
            told[same] = len(kept)
            kept.append(finding)
        else:
            before = kept[told[same]]
            kept[told[same]] = replace(before, scripts=before.scripts | finding.scripts)
    return kept
