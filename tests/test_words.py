"""What findings say: where it comes from, what was done or is to do, and no more than fits a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import WHOLE_BATCH

from dp2ddp.convert import convert
from dp2ddp.plan import LONGEST, fitted, shortened
from dp2ddp.source import Project

PATH = Path("/example/train.py")
PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{before}
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for inputs, targets in loader:
    optimizer.zero_grad()
    outputs = model(inputs.cuda())
{loss}
    optimizer.step()
"""
MIXED = """\
    together = outputs @ outputs.t()
    (together.pow(2).mean() + criterion(outputs, targets.cuda())).backward(retain_graph=True)
    together.abs().mean().backward()
"""


def said(text: str) -> list[str]:
    """What is said of a program's lines, each with its line."""
    found = convert(Project.of({PATH: text})).findings
    return [f"{it.location.span.line}: {it.message}; {it.help}" for it in found if not it.edits]


def test_code_in_messages_is_shortened_where_there_is_no_room() -> None:
    message, help = fitted(f"`{'x' * 300}` and `short` differ", "use `short`")
    assert len(message) + len("; ") + len(help) == LONGEST
    assert message.endswith("…` and `short` differ") and help == "use `short`"


@pytest.mark.parametrize(
    ("code", "room", "short"),
    [
        ("torch.randn(2, size, device)", 28, "torch.randn(2, size, device)"),
        ("torch.randn(2, (size, 3), device)", 20, "torch.randn(2, (s…))"),
        ("labels.to(device).squeeze()", 20, "labels.to….squeeze()"),
    ],
)
def test_code_is_cut_in_its_middle(code: str, room: int, short: str) -> None:
    assert shortened(code, room) == short and len(shortened(code, room)) <= room


def test_one_cause_of_several_losses_is_said_once_and_where_it_stands() -> None:
    (finding,) = said(PROGRAM.format(before="", loss=MIXED))
    assert finding == (
        "13: not sharded (correct, no speedup): the loss uses `outputs @ outputs.t()`, which mixes samples; "
        "to shard: compute the loss in one function of outputs and targets"
    )


def test_what_is_advised_for_a_loss_that_mixes_samples_has_it_sharded() -> None:
    text = PROGRAM.format(
        before="\n\ndef contrast(outputs):\n    return (outputs @ outputs.t()).pow(2).mean()\n\n",
        loss="    loss = contrast(outputs)\n    loss.backward()",
    )
    assert [it.tier for it in convert(Project.of({PATH: text})).scripts] == [
        "sharded"
    ], "the help of the test before says so"


def test_the_value_that_is_not_known_is_named_and_not_what_is_made_of_it() -> None:
    loss = "    ids = torch.arange(count(inputs))\n    (outputs[:, ids].mean()).backward()"
    before = "from elsewhere import count\n"
    (finding,) = said(PROGRAM.format(before=before, loss=loss))
    assert "the loss uses `count(inputs)`, not known to be" in finding and "arange" not in finding
    assert finding.endswith("to shard: convert with --sharded if it is")


def test_of_a_refused_program_nothing_is_said_to_be_done() -> None:
    text = PROGRAM.format(before="", loss="    criterion(outputs, targets.cuda()).backward()")
    kept = text + 'torch.save(model.state_dict(), "model.pt")\n'
    done = [it.help for it in convert(Project.of({PATH: kept})).findings if it.rule == "DDP303"]
    assert done == ["now rank 0 only: `ddp.save`; nothing to do"]
    refused = kept.replace("nn.Linear(8, 2).cuda())", "*[nn.Linear(8, 2).cuda()])")
    left = [it.help for it in convert(Project.of({PATH: refused})).findings if it.rule == "DDP303"]
    assert left == ["not changed until the errors of this program are mended"]


@pytest.mark.parametrize("name", WHOLE_BATCH)
def test_what_keeps_the_batches_whole_fits_a_line(name: str) -> None:
    found = said(WHOLE_BATCH[name].text)
    assert found and all("not sharded (correct, no speedup): " in it for it in found if "shard" in it)
    assert all(len(it.partition(": ")[2]) <= LONGEST for it in found), found
