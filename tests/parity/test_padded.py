"""Batches that ``collate_fn`` makes of all their samples are divided after that, and train to the same numbers."""

from __future__ import annotations

import pytest
from own_batches import with_steps
from padded import DIVIDED, HEAD, TRAINED, WHOLE
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import trains_alike


def program(body: str) -> str:
    return with_steps(HEAD, body.replace("MODEL", TRAINED))


@pytest.mark.sample(processes=(2, 3), every=4)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", DIVIDED)
def test_they_are_divided(lab: Lab, name: str, processes: int) -> None:
    text = program(DIVIDED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier.startswith("sharded"), [it.message for it in conversion.findings]
    trains_alike(lab, text, processes)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", WHOLE)
def test_what_has_its_samples_elsewhere_trains_to_the_same_numbers(lab: Lab, name: str) -> None:
    text = program(WHOLE[name])
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier == "whole batch"
    trains_alike(lab, text, 2)


JUDGED = """
class Judge(Net):
    def forward(self, tokens, mask, labels=None):
        logits = super().forward(tokens, mask)
        wanted = labels.masked_fill(mask.sum(1) < 4, -100)
        return F.cross_entropy(logits, wanted, ignore_index=-100), logits


def padded(batch):
    tokens = pad_sequence([torch.tensor(text) for text, _ in batch], batch_first=True)
    labels = torch.tensor([label for _, label in batch])
    return {"tokens": tokens, "mask": (tokens > 0).float(), "labels": labels}


def evaluate(loader):
    model.eval()
    losses, right = 0.0, 0
    for number, batch in enumerate(loader):
        with torch.no_grad():
            loss, logits = model(**batch)
        losses += loss.mean().item()
        right += (logits.argmax(1) == batch["labels"]).sum().item()
    model.train()
    return losses / (number + 1), right


model = nn.DataParallel(Judge().cuda())
optimizer = optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Texts(), batch_size=8, shuffle=True, collate_fn=padded)
others = DataLoader(Texts(29), batch_size=10, collate_fn=padded)
for epoch in range(2):
    for batch in loader:
        loss = model(**batch)[0].mean()
        STEP
    print(*evaluate(others))
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_evaluations_of_padded_batches_are_divided_as_the_training_is(lab: Lab, processes: int) -> None:
    """A loss that the model computes of its part is the mean of the replicas' then, as it was."""
    text = with_steps(HEAD, JUDGED)
    conversion = convert(Project.of({PATH: text}))
    assert "ddp.divide_batches(loader, whole=True)" in conversion.changes[0].after
    trains_alike(lab, text, processes)
