"""A linked project → Facts, with the form of every program."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from dp2ddp.analyse import Joined, Linked, Looks, analyse, join, prepare
from dp2ddp.facts import Fact, Facts, Tier
from dp2ddp.tiers import decide


def decided(linked: Linked, *, exact: bool = False, sharded: bool = False, gather: bool = True) -> Facts:
    """What is known of the programs of a project, with their forms.

    A program is sharded as it is, where that is proven. Else what follows its forwards may be the whole batch's, joined
    from all ranks there. Else what it makes of whole batches may be divided where models are given it. Batches that it
    makes itself are looked at as a loader's where that comes to sharding it, or may.

    Args:
        exact: sharded programs draw the very batches of the original.
        sharded: what is not known, and not refuted, is taken to be as sharding needs it.
        gather: parts of batches may be joined behind the forward.
    """
    forms = _Forms(linked, exact, sharded)
    looks = Looks()
    while True:
        looks = forms.joining(looks) if gather else looks
        own = frozenset[Path]().union(*(it.scripts for it in forms.of(looks).loaders if it.own))
        if not (whole := own & forms.whole(looks)):
            break
        looks = Looks(unsharded=looks.unsharded | whole)
    return forms.of(forms.preparing(looks))


@dataclass
class _Forms:
    """The forms of a project's programs, by how these are looked at."""

    linked: Linked
    exact: bool
    sharded: bool
    _known: dict[Looks, Facts] = field(default_factory=dict)

    def of(self, looks: Looks, seen: Joined | None = None) -> Facts:
        """What is known of the programs, with their forms; ``seen``: a view of them that no other analysis uses."""
        if looks not in self._known:
            facts = decide(analyse(self.linked, looks, seen=seen), exact=self.exact)
            if self.sharded and any(script.assumptions for script in facts.scripts):
                facts = decide(analyse(self.linked, looks, assume=True), exact=self.exact, assume=True)
            self._known[looks] = facts
        return self._known[looks]

    def whole(self, looks: Looks) -> frozenset[Path]:
        """The programs that keep whole batches, whatever is assumed."""
        found = (it for it in self.of(looks).scripts if it.tier is not Tier.SHARDED and not it.assumptions)
        return frozenset(it.program for it in found)

    def unproven(self, looks: Looks) -> frozenset[Path]:
        """The programs that are not sharded by proof."""
        found = (it for it in self.of(looks).scripts if it.tier is not Tier.SHARDED or it.assumptions)
        return frozenset(it.program for it in found)

    def joining(self, looks: Looks) -> Looks:
        """As the programs are looked at, with parts joined in those that are sharded by it."""
        if not (found := self.unproven(looks)):
            return looks
        joined = join(self.linked, found, looks)
        found = joined.programs
        while found:
            tried = replace(looks, joining=found)
            self.of(tried, joined)
            if not (left := found & self.unproven(tried)):
                return self._needed(tried)
            found -= left
        return looks

    def _needed(self, looks: Looks) -> Looks:
        """As the programs are looked at, without the joints that proof does not need, where there are several."""
        places = {it.at for it in self.of(looks).joints}
        for place in sorted(places) if len(places) > 1 else ():
            fewer = replace(looks, needless=looks.needless | {place})
            if self.unproven(fewer) <= self.unproven(looks):
                looks = fewer
        return looks

    def preparing(self, looks: Looks) -> Looks:
        """As the programs are looked at, with whole batches divided later in those that are sharded by it."""
        facts = self.of(looks)
        stay = {it.program for it in facts.scripts if any(_is_of_parts(fact) for fact in it.reasons)}
        found = prepare(self.linked, _not_sharded(facts) - stay, looks)
        while found:
            tried = replace(looks, preparing=found)
            if not (left := found & _not_sharded(self.of(tried))):
                return tried
            found -= left
        return looks


def _not_sharded(facts: Facts) -> frozenset[Path]:
    return frozenset(it.program for it in facts.scripts if it.tier is not Tier.SHARDED)


def _is_of_parts(fact: Fact) -> bool:
    """Whether what keeps batches whole does so, too, if they are divided after what is done to them."""
    return fact.problem is not None and fact.problem.of_parts
