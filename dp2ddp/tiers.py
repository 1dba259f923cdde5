"""Which tier each program gets: sharded where nothing forbids it, whole batch where something forbids only that.

Programs that share the line which wraps the model, the class that wraps it, or the line which makes the training
loader, get the same: there is one such line, and it can say one thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dp2ddp.facts import NO_TIER, SHARDED_ONLY, Assumption, Fact, Facts, Loss, Number, Problem, Tier
from dp2ddp.plan import DONE, Finding, Severity, elsewhere, finding

ASKED = "--exact was given"
UNSHARDED = "not sharded (exact, less speedup)"
"""What is said first of all that keeps the batches whole."""
NEEDED = f"{DONE}: it needs the whole batch"
"""What is said to do where nothing is, of what is known to need the whole batch."""
DOUBTS = {
    "may differ across": "equal on all ranks",
    " could cover rank 0's ": "rank 0's will do",
    " could hold rank 0's ": "rank 0's will do",
    " may not be a mean": "it's a mean",
    " may not be linear": "it is linear",
    " may not have one row": "it has one row per sample",
    "can't tell if all of ": "it is",
    "can't tell if ": "it is",
    " may draw ": "equal draws on all ranks will do",
    " may store ": "training uses nothing of that",
    " may pad ": "padding changes no result",
    " may select samples": "it selects none",
    " may mix samples": "no sample depends on others",
}
"""How a message says that something is not known, and when ``--sharded`` is right: the first that fits."""


def decide(facts: Facts, *, exact: bool = False, assume: bool = False) -> Facts:
    """Facts with the tier of every program.

    Args:
        exact: sharded programs draw the very batches of the original.
        assume: what is not known, and not refuted, is taken to be as sharding needs it.
    """
    groups = _groups(facts)
    facts = _weighed(facts, groups, exact)
    facts = _without_moot(facts, groups)
    scripts = list(facts.scripts)
    for group in groups:
        reasons = _reasons(facts, group)
        assumptions = assumed_by(reasons)
        tier = Tier.SHARDED if not reasons or (assume and assumptions) else Tier.WHOLE_BATCH
        given = {
            "tier": tier,
            "reasons": reasons if tier is Tier.WHOLE_BATCH else (),
            "assumptions": assumptions,
        }
        scripts = [
            replace(script, **given) if script.program in group else script  # type: ignore[arg-type]
            for script in scripts
        ]
    facts = replace(facts, scripts=tuple(scripts))
    facts = _taken(facts)
    if exact:
        loaders = tuple(replace(loader, shard=loader.shard or ASKED) for loader in facts.loaders)
        facts = replace(facts, loaders=loaders, loops=())
    return facts


def _keeps_whole(fact: Fact) -> bool:
    """Whether a fact keeps batches whole."""
    return fact.problem is not None and fact.problem.forbids == SHARDED_ONLY


def _reasons(facts: Facts, group: frozenset[Path]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts.troubles if _keeps_whole(fact) and fact.scripts & group)


def _without_moot(facts: Facts, groups: list[frozenset[Path]]) -> Facts:
    """Facts without the numbers that may be a rank's own, where batches are kept whole whatever they are."""
    refuted = [group for group in groups if (some := _reasons(facts, group)) and not assumed_by(some)]
    programs = frozenset().union(*refuted)
    numbers = tuple(it for it in facts.numbers if it.problem is None or not it.scripts <= programs)
    return replace(facts, numbers=numbers)


def assumed_by(reasons: Iterable[Fact]) -> tuple[Assumption, ...]:
    """What has to hold for nothing to be in the way, once for each cause; nothing where some of it is refuted."""
    problems = [fact.problem for fact in reasons if fact.problem is not None]
    if any(problem.is_refuted for problem in problems):
        return ()
    found = {(it.at.path, it.at.span.line, it.text): it for one in problems for it in one.assumes}
    return tuple(found[key] for key in sorted(found))


def _taken(facts: Facts) -> Facts:
    """Facts whose problems are in the way no more where the program is sharded by what it assumes."""
    sharded = {it.program for it in facts.scripts if it.tier is Tier.SHARDED and it.assumptions}
    if not sharded:
        return facts
    changed = {}
    for name in facts.kinds:
        found: list[Fact] = []
        for fact in getattr(facts, name):
            inside = fact.scripts & sharded if _keeps_whole(fact) else frozenset()
            if inside:
                problem = replace(fact.problem, forbids=NO_TIER, assumed=True)
                found.append(replace(fact, scripts=inside, problem=problem))
            if not inside or fact.scripts - inside:
                found.append(replace(fact, scripts=fact.scripts - inside) if inside else fact)
        changed[name] = tuple(found)
    return replace(facts, **changed)  # type: ignore[arg-type]


def _weighed(facts: Facts, groups: list[frozenset[Path]], exact: bool) -> Facts:
    """Facts with how parts of different sizes weigh: those that ``ddp.shard`` deals, and a loader's own."""
    unknown: set[Loss] = set()
    equal: set[Path] = set()
    for group in groups:
        losses = [loss for loss in facts.losses if loss.scripts & group]
        mixed = any(loss.average == "samples" for loss in losses)
        unweighed = {it for it in losses if it.average == "even" or (it.average == "parts" and mixed)}
        if exact or any(loader.shard and loader.scripts & group for loader in facts.loaders):
            unknown |= unweighed
        elif unweighed:
            equal |= group
    own = {script for loss in facts.losses if loss.average == "parts" for script in loss.scripts}
    dealt = {script for loader in facts.loaders if loader.shard or exact for script in loader.scripts}
    odd = {
        it
        for it in facts.numbers
        if it.average in {"even", "samples" if it.scripts & own else "parts"} and it.average
    }
    equal |= {script for number in odd for script in number.scripts - dealt}
    return replace(
        facts,
        numbers=tuple(_unaveraged(it) if it in odd and it.scripts & dealt else it for it in facts.numbers),
        losses=tuple(
            replace(loss, problem=None) if loss.average and loss not in unknown and not loss.assumed else loss
            for loss in facts.losses
        ),
        loaders=tuple(
            replace(it, weighed=None if it.scripts & equal and not it.shard else not it.scripts & own)
            for it in facts.loaders
        ),
    )


def _unaveraged(number: Number) -> Number:
    """A mean to which those of parts do not average: made of the rows of all, where every rank comes there, or left."""
    if number.rows is not None and number.before is None:
        return replace(number, kind="rows", at=number.rows, average="", name="")
    return number.as_left


def _groups(facts: Facts) -> list[frozenset[Path]]:
    """The programs, those together that share a wrap or a training loader."""
    groups = [frozenset([script.program]) for script in facts.scripts]
    for fact in (*facts.wraps, *facts.parallel, *facts.loaders):
        touched = [group for group in groups if group & fact.scripts]
        groups = [group for group in groups if group not in touched]
        if touched:
            groups.append(frozenset().union(*touched))
    return groups


def trouble(facts: Facts, fact: Fact) -> Iterator[Finding]:
    """What a fact's problem comes to: an error, what keeps the batches whole, a warning, or nothing in this tier."""
    problem = fact.problem
    if problem is None or problem.assumed:
        return
    tiers = facts.tiers(fact)
    if not problem.forbids:
        if problem.concerns & tiers or not tiers:
            severity = Severity.NOTE if problem.works else Severity.WARNING
            yield plain(fact, problem, severity, DONE if problem.works else "")
    elif problem.forbids & tiers or not tiers:
        yield plain(fact, problem, Severity.ERROR)
    elif Tier.WHOLE_BATCH in tiers:
        first, *shorter = ((f"{UNSHARDED}: {problem.message}", cure) for cure in _cures(facts, fact, problem))
        moot = not problem.is_refuted and all(
            it.decisive != it.reasons for it in facts.scripts if it.program in fact.scripts
        )
        yield replace(finding(fact.cause, *first, shorter=shorter), scripts=fact.scripts, is_moot=moot)


def plain(fact: Fact, problem: Problem, severity: Severity, done: str = "") -> Finding:
    """A problem as it is, with what to do, or that there is nothing to do."""
    shorter = [(problem.message, problem.briefly)] * bool(problem.briefly)
    return finding(fact.at, problem.message, problem.help or done, severity=severity, shorter=shorter)


def _cures(facts: Facts, fact: Fact, problem: Problem) -> list[str]:
    """What to do for a program to be sharded: the code's own cure, or taking as true what is assumed.

    In fewer words the later, and at last without the latter, which is said of the whole program, too.
    """
    helps = list(dict.fromkeys([problem.help, problem.briefly or problem.help]))
    none = [NEEDED, DONE] if problem.is_refuted else [DONE]
    plainly = [way for it in helps for way in ([f"to shard: {it}"] if it else none)]
    holds = next((it for words, it in DOUBTS.items() if words in problem.message), "")
    if not problem.assumes or not holds:
        return plainly
    scripts = [it for it in facts.scripts if it.program in fact.scripts]
    if not any(it.assumptions for it in scripts):
        refuted = next((it for one in scripts for it in one.decisive if it.problem.is_refuted), None)  # type: ignore[union-attr]
        if refuted is None or not (place := elsewhere(refuted.cause, fact.cause)):
            return [DONE]
        gist = refuted.problem.gist or "sharding is ruled out"  # type: ignore[union-attr]
        return [f"{DONE}: {gist}{place}", f"{DONE}{place.replace('(', '(see ')}"]
    begins = (f"{it}, or{' use' * (not it.startswith('use '))}" if it else "use" for it in helps)
    assumed = [f"to shard: {begin} --sharded if {holds}" for begin in begins]
    return [*assumed, *plainly] if problem.help else assumed
