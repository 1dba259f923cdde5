"""What a batch is made of decides whether it can be dealt in parts."""

from __future__ import annotations

import pytest
from batches import CASES, HEAD, LOADER, TAIL
from forms import ungathered as convert
from losses import EVEN_LOSSES, OWN_LOSSES
from programs import PATH, PROGRAM

from dp2ddp.analyse.api.iteration import PROGRESS_BARS
from dp2ddp.changes import Conversion
from dp2ddp.convert import convert as gathered
from dp2ddp.source import Project


def converted(text: str) -> Conversion:
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors, conversion.errors
    return conversion


@pytest.mark.parametrize("name", CASES)
def test_batches_are_whole_where_parts_would_be_others(name: str) -> None:
    """They are divided after what is done to them, where that can be; else the finding says why."""
    case = CASES[name]
    conversion = converted(case.text)
    (script,) = conversion.scripts
    after = conversion.changes[0].after
    if not case.whole or "ddp.local_batch(" in after or "whole=True" in after:
        assert script.tier == "sharded"
        shards = "ddp.shard(" in after and "whole=True" not in after
        assert not case.whole or "DistributedSampler" not in after and not shards
        return
    assert script.tier == "whole batch"
    reasons = (case.whole,) if isinstance(case.whole, str) else case.whole
    said = [finding.message for finding in conversion.findings]
    assert any(reason in message for reason in reasons for message in said), said


def test_a_collate_function_that_is_not_seen_keeps_batches_whole() -> None:
    hidden = HEAD + "import settings\n" + LOADER.replace("12)", "12, **settings.loader)") + TAIL
    assert converted(hidden).scripts[0].tier == "sharded"
    named = hidden + "other = DataLoader(data, collate_fn=default_collate)\n"
    assert "ddp.local_batch(" in converted(named).changes[0].after


def test_how_uneven_parts_weigh_is_told_where_it_is_not_by_their_sizes() -> None:
    assert "ddp.local_batch_size(12)" in converted(HEAD + LOADER + TAIL).changes[0].after
    for cases, written in ((OWN_LOSSES, "weighed=False)"), (EVEN_LOSSES, "weighed=None)")):
        text = next(iter(cases.values()))
        assert f"ddp.local_batch_size(16, {written}" in converted(text).changes[0].after


def test_what_is_joined_is_named_in_the_order_of_its_use() -> None:
    text = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(*(torch.randn(64, 8) for _ in range(6)))
model = nn.DataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, f, c, e, b, d in DataLoader(data, batch_size=16, shuffle=True):
    outputs = model(x)
    loss = ((outputs @ f.T) @ (c @ e.T)).logsumexp(0).sum() + (b @ d.T).logsumexp(0).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    (change,) = gathered(Project.of({PATH: text})).changes
    assert "ddp.whole_batch((outputs, f, c, e, b, d))" in change.after


@pytest.mark.parametrize("name", sorted(PROGRESS_BARS))
def test_a_loop_over_a_progress_bar_is_one_over_its_loader(name: str) -> None:
    module, _, bar = name.rpartition(".")
    text = PROGRAM.replace("import torch\n", f"from {module} import {bar}\nimport torch\n", 1)
    (script,) = convert(Project.of({PATH: text.replace(" in loader:", f" in {bar}(loader):")})).scripts
    assert script.tier == "sharded"
