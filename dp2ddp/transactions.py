"""Which programs are converted together, and what keeps them from it.

What is written is whole: a program is converted with all that it needs, or not at all. Programs that share no line that
changes are converted independently of each other; those that run the same changed line are converted together. But for
lines that still do the same in a program of one process, ``ddp.save(…)``: one that stays as it is may run them, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.facts import Facts
from dp2ddp.plan import (
    AddImport,
    AddParameter,
    DropImport,
    Edit,
    Enclose,
    Finding,
    Mark,
    Plan,
    Severity,
)
from dp2ddp.source import Location, Span


@dataclass(frozen=True)
class Transaction:
    """Programs that are converted together, or not at all.

    ``findings`` are about what they run. ``ties`` are the changed lines that keep several of them together, one for
    each program that came to the others.
    """

    scripts: frozenset[Path]
    findings: tuple[Finding, ...] = ()
    ties: tuple[Location, ...] = ()

    @property
    def blockers(self) -> tuple[Finding, ...]:
        """What keeps these programs from being converted."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)


def needed(findings: Iterable[Finding], facts: Facts) -> tuple[Finding, ...]:
    """The findings without mends of files that no training program uses, and in which nothing else is done."""
    findings = tuple(findings)
    used = {path for script in facts.scripts for path in script.reaches}
    used |= {it.location.path for it in findings if it.edits and not it.is_mend}
    return tuple(it for it in findings if it.location.path in used or not it.is_mend)


def placed(findings: Iterable[Finding], facts: Facts) -> Plan:
    """A plan whose findings know their programs: those that run a line of theirs, else all that import the file."""
    made = []
    for finding in findings:
        places = [finding.location, *map(_place, _inside(finding.edits))]
        scripts = finding.scripts.union(*(facts.running(place) for place in places))
        if finding.is_mend or not scripts:
            scripts |= facts.reaching(finding.location.path)
        made.append(replace(finding, scripts=scripts))
    return Plan(tuple(made))


def divided(plan: Plan, facts: Facts) -> tuple[Transaction, ...]:
    """The programs of a placed plan in groups that change together.

    A finding about none of them belongs to no group: it makes another file ready for what they save, say.
    """
    groups = [Transaction(frozenset([path])) for path in dict.fromkeys(it.program for it in facts.scripts)]
    for finding in (it for it in plan.findings if it.ties):
        for place in map(_place, _inside(finding.edits)):
            touched = [it for it in groups if it.scripts & facts.running(place)]
            if len(touched) > 1:
                groups = [it for it in groups if it not in touched]
                ties = (*(tie for it in touched for tie in it.ties), place)
                groups.append(Transaction(frozenset().union(*(it.scripts for it in touched)), (), ties))
    return tuple(
        replace(group, findings=tuple(it for it in plan.findings if it.scripts & group.scripts))
        for group in sorted(groups, key=lambda it: sorted(it.scripts))
    )


def _inside(edits: Iterable[Edit]) -> Iterator[Edit]:
    """The edits that change what a line does, not only what a file imports or says."""
    return (edit for edit in edits if not isinstance(edit, AddImport | DropImport | Mark))


def _place(edit: Edit) -> Location:
    """Where an edit changes something."""
    anchor = edit.first if isinstance(edit, Enclose) else edit.at  # type: ignore[union-attr]
    span = anchor.span
    if isinstance(edit, AddParameter):  # who calls the function is concerned, not who only defines it
        span = Span(span.end_line, span.end_column, span.end_line, span.end_column)
    return Location(anchor.path, span)
