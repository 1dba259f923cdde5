"""A linked project → Facts, with the form of every program."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.analyse import Linked, analyse
from dp2ddp.facts import Facts, Tier
from dp2ddp.tiers import decide


def decided(linked: Linked, *, exact: bool = False, sharded: bool = False) -> Facts:
    """What is known of the programs of a project, with their forms.

    Batches that a program makes itself are looked at as a loader's where that comes to sharding it, or may.

    Args:
        exact: sharded programs draw the very batches of the original.
        sharded: what is not known, and not refuted, is taken to be as sharding needs it.
    """
    unsharded: frozenset[Path] = frozenset()
    while True:
        facts = decide(analyse(linked, unsharded=unsharded), exact=exact)
        if sharded and any(script.assumptions for script in facts.scripts):
            facts = decide(analyse(linked, assume=True, unsharded=unsharded), exact=exact, assume=True)
        whole = {it.program for it in facts.scripts if it.tier is not Tier.SHARDED and not it.assumptions}
        own = frozenset[Path]().union(*(it.scripts for it in facts.loaders if it.own))
        if not whole & own:
            return facts
        unsharded |= whole & own
