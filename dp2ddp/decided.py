"""A linked project → Facts, with the form of every program."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dp2ddp.analyse import Linked, analyse, prepare
from dp2ddp.facts import Fact, Facts, Tier
from dp2ddp.tiers import decide


def decided(linked: Linked, *, exact: bool = False, sharded: bool = False) -> Facts:
    """What is known of the programs of a project, with their forms.

    Batches that a program makes itself are looked at as a loader's where that comes to sharding it, or may; and so is
    what it makes of a loader's batches, where nothing else does.

    Args:
        exact: sharded programs draw the very batches of the original.
        sharded: what is not known, and not refuted, is taken to be as sharding needs it.
    """
    look = partial(_look, linked, exact, sharded)
    unsharded: frozenset[Path] = frozenset()
    while True:
        facts = look(unsharded, frozenset())
        own = frozenset[Path]().union(*(it.scripts for it in facts.loaders if it.own))
        whole = own & {
            it.program for it in facts.scripts if it.tier is not Tier.SHARDED and not it.assumptions
        }
        if not whole:
            break
        unsharded |= whole
    stay = {it.program for it in facts.scripts if any(_is_of_parts(fact) for fact in it.reasons)}
    preparing = prepare(linked, _not_sharded(facts) - stay, unsharded)
    while preparing:
        tried = look(unsharded, preparing)
        if not (whole := preparing & _not_sharded(tried)):
            return tried
        preparing -= whole
    return facts


def _look(
    linked: Linked, exact: bool, sharded: bool, unsharded: frozenset[Path], preparing: frozenset[Path]
) -> Facts:
    facts = decide(analyse(linked, unsharded=unsharded, preparing=preparing), exact=exact)
    if sharded and any(script.assumptions for script in facts.scripts):
        more = analyse(linked, assume=True, unsharded=unsharded, preparing=preparing)
        facts = decide(more, exact=exact, assume=True)
    return facts


def _not_sharded(facts: Facts) -> frozenset[Path]:
    return frozenset(it.program for it in facts.scripts if it.tier is not Tier.SHARDED)


def _is_of_parts(fact: Fact) -> bool:
    """Whether what keeps batches whole does so, too, if they are divided after what is done to them."""
    return fact.problem is not None and fact.problem.of_parts
