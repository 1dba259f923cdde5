"""What the code itself refutes is never sharded, whatever stands beside it that is not known."""

from __future__ import annotations

import pytest
from forms import ungathered as convert
from mixing import HELPER, MIXING, SEEN, SHOWN, trainers
from programs import PATH

from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, runs


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", MIXING)
def test_samples_that_are_mixed_train_to_the_same_numbers(lab: Lab, name: str) -> None:
    before, after = runs(lab, MIXING[name].text, 2, sharded=True, exact=True)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", SEEN)
def test_what_the_model_is_fed_with_is_each_rank_s_part(lab: Lab, name: str) -> None:
    """Every rank's own rows, or the whole batch on all; the losses and lists that are printed are those of all rows."""
    form, text = SEEN[name]
    (script,) = convert(Project.of({PATH: text}), sharded=True, exact=True).scripts
    assert script.tier.partition(",")[0].startswith(form)
    before, after = runs(lab, text, 2, sharded=True, exact=True)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""


@pytest.mark.parametrize("name", MIXING)
def test_what_is_unknown_hides_nothing_of_it(name: str) -> None:
    """Where no rows can be gathered the batches stay whole, for what mixes the samples, or are divided after that."""
    conversion = convert(Project.of({PATH: MIXING[name].apart}), sharded=True)
    (script,) = conversion.scripts
    if name.startswith("inputs mixed"):
        assert script.tier == "sharded" and "ddp.local_batch(" in conversion.changes[0].after
        return
    assert script.tier == "whole batch" and not script.assumptions
    said = [it.message for it in conversion.findings]
    assert any(MIXING[name].says[:8] in it and "not sharded" in it for it in said), said


@pytest.mark.parametrize("helper", ["apply", "each", "fit"])
def test_a_helper_that_another_program_gives_what_mixes_samples_mixes_none_of_this_one(helper: str) -> None:
    texts = trainers(helper)
    paths = {name: PATH.with_name(f"{name}.py") for name in texts}
    beside = {PATH.with_name("helper.py"): HELPER}
    for names in (["apart"], ["pairs"], ["apart", "pairs"]):
        project = Project.of({paths[name]: texts[name] for name in names} | beside)
        found = {it.path.stem: it.tier.partition(",")[0] for it in convert(project, sharded=True).scripts}
        assert found == {name: {"apart": "sharded", "pairs": "whole batch"}[name] for name in names}


def test_what_only_shows_mixed_samples_by_the_loss_s_helper_is_sharded(lab: Lab) -> None:
    (script,) = convert(Project.of({PATH: SHOWN}), sharded=True).scripts
    assert script.tier == "sharded" and script.assumptions
    before, after = runs(lab, SHOWN, 2, sharded=True, exact=True)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""
