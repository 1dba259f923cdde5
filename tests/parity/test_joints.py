"""Rounds that need the whole batch behind the forward train to the same numbers, those printed included."""

from __future__ import annotations

import pytest
from joints import APART, DETECTOR, HEAD, JOINED
from losses import OTHERS, UNGATHERED
from own_batches import with_steps
from programs import PATH, WHOLE_BATCH

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_own_batches import same_numbers, trains_alike
from parity.test_tier_training import differences, runs, write

ONLY_READ = {  # no whole programs, or unseeded ones
    "gradients of what mixes samples",
    "pairs of samples, with settings beside the loader",
    "a function of an unknown package",
    "a method of an unknown object",
    "an entry of an unknown object",
    "a type of an unknown package",
    "elements that are compared with labels in other shapes",
    "elements of which one meets labels only by choice",
    "a spread or an option",
    "a loss by what the batch has, or by chance",
    "rows in another dimension",
    "a number of the part",
    "only by chance",
}
MIXING = {name: case.text for name, case in WHOLE_BATCH.items()} | OTHERS | UNGATHERED


@pytest.mark.sample(processes=(2, 3), every=4)
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", JOINED)
def test_parts_are_joined_behind_the_forward(lab: Lab, name: str, processes: int) -> None:
    text = with_steps(HEAD, JOINED[name])
    conversion = convert(Project.of({PATH: text}))
    (script,) = conversion.scripts
    assert script.tier == "sharded", [it.message for it in conversion.findings]
    assert "ddp.whole_batch(" in conversion.changes[0].after
    trains_alike(lab, text, processes, exact=True)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", APART)
def test_what_cannot_be_joined_trains_alike_all_the_same(lab: Lab, name: str) -> None:
    text = with_steps(HEAD, APART[name])
    (script,) = convert(Project.of({PATH: text})).scripts
    assert not any("ddp.whole_batch" in how for _, how in script.dealt)
    trains_alike(lab, text, 3, exact=True)


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_detector_that_evaluates_in_its_training_loop_is_joined(lab: Lab, processes: int) -> None:
    conversion = convert(Project.of({PATH: DETECTOR}))
    assert conversion.scripts[0].tier == "sharded", [it.message for it in conversion.findings]
    assert "out, targets = ddp.whole_batch((out, targets)" in conversion.changes[0].after
    trains_alike(lab, DETECTOR, processes, exact=True)


@pytest.mark.parametrize(
    "change",
    [
        ("test_net(net, dataset, detector)", "test_net(net, [images], detector)"),
        ("detector = Detector(2)", "detector = Detector(images.mean())"),
        ("out = net(images)", "detector.scale = images.mean()\n        out = net(images)"),
        ("out = net(images)", "kept.append(images)\n        out = net(images)"),
        ("for i in range(len(testset)):\n        x = testset[i][0].unsqueeze(0)", "for x in next(batch_iterator)[:1]:\n        pass"),
    ],
    ids=["a batch", "made of a batch", "an object that keeps", "a list", "the training's loader"],
)  # fmt: skip
def test_what_an_evaluation_is_given_of_a_batch_is_of_a_part(lab: Lab, change: tuple[str, str]) -> None:
    names = "images, batch_iterator, kept, detector = torch.zeros(8, 6), None, [], None\n\n\n"
    text = DETECTOR.replace("def test_net", names + "def test_net")
    text = text.replace(
        "    torch.manual_seed(0)\n",
        "    global images, batch_iterator, detector\n    torch.manual_seed(0)\n",
    )
    text = text.replace("    batch_iterator = None\n", "")
    old, new = change
    assert text.count(old) == 1
    if "kept" in new:
        text = text.replace("return sum(found)", "return sum(found) + sum(it.sum().item() for it in kept)")
    if "scale" in new:
        text = text.replace("                detector = Detector(2)\n", "").replace(
            "    epoch_size =", "    detector = Detector(2)\n    epoch_size ="
        )
    text = text.replace(old, new).replace(
        "epoch_size = len(dataset) // 8", "epoch_size = len(dataset) // 8 - 1"
    )
    trains_alike(lab, text, 2, exact=True)


SQUEEZED = """
from sklearn.metrics import accuracy_score

loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y[:, None]), batch_size=SIZE, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y.view(-1))
        STEP
        found = torch.max(out, 1)[1]
        print(loss.item(), accuracy_score(y.cpu().data.squeeze().numpy(), found.cpu().data.squeeze().numpy()))
"""
SCORE = "def accuracy_score(one, other):\n    assert one.shape == other.shape\n    return float((one == other).mean())\n"


@pytest.mark.parametrize("size", [8, 3])
def test_rows_that_are_squeezed_are_gathered(lab: Lab, size: int) -> None:
    """In a part of one sample, squeeze() would drop the samples' dimension, too."""
    text = with_steps(HEAD, SQUEEZED.replace("SIZE", str(size)))
    (change,) = convert(Project.of({PATH: text}), exact=True).changes
    assert change.after.count("ddp.whole_batch(ddp.squeeze(") == 2
    sides = (it.replace("from sklearn.metrics import accuracy_score\n", SCORE) for it in (text, change.after))
    before, after = (
        lab.run(write(lab, name, side), timeout=60, **more).ok()
        for name, side, more in zip(
            ("before", "after"), sides, ({"replicas": 2}, {"processes": 2}), strict=True
        )
    )
    assert same_numbers(before.printed, after.printed) and before.printed
    assert differences(before, after, losses=False) == []


FIRST = """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=8, shuffle=True)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        out = net(x)
        loss = F.cross_entropy(out, y)
        STEP
        if step % 2 == 0:
            if isinstance(out, list):
                print(out[0][0].cpu().max(0)[1].data.unsqueeze(0))
            else:
                print(out[0].cpu().max(0)[1].data.unsqueeze(0), out[0].detach().max(0)[0].item())
"""


def test_the_first_sample_of_what_is_not_known_is_taken_of_the_whole_batch(lab: Lab) -> None:
    """Where it may be a structure's first tensor, too: of either, the whole batch has the right one."""
    hidden = HEAD.replace("nn.Sequential(", 'getattr(nn, "Sequ" + str("ential"))(')
    assert hidden != HEAD
    text = with_steps(hidden, FIRST)
    (change,) = convert(Project.of({PATH: text})).changes
    assert "ddp.whole_batch(out)[0].cpu().max(0)" in change.after
    trains_alike(lab, text, 2, exact=True)


IN_ORDER = """
for epoch in range(2):
    for x, y in loader:
        out = net(x)
        loss = F.cross_entropy(out, y) + (out[0::2] - out[1::2]).pow(2).mean()
        STEP
    print(epoch, loss.item())
"""


@pytest.mark.parametrize("processes", [2, 3])
def test_rows_are_joined_in_the_order_of_a_loader_that_does_not_shuffle(lab: Lab, processes: int) -> None:
    """Which of them are pairs follows from it."""
    text = with_steps(HEAD.replace("shuffle=True", "shuffle=False"), IN_ORDER)
    trains_alike(lab, text, processes)
    assert "ddp.whole_batch((out, y))" in convert(Project.of({PATH: text})).changes[0].after


@pytest.mark.sample(every=9)
@pytest.mark.parametrize("name", [name for name in MIXING if name not in ONLY_READ])
def test_what_keeps_batches_whole_otherwise_makes_dataparallel_s_steps(lab: Lab, name: str) -> None:
    """Joined behind the forward, most of them; the others in whole batches, as they come."""
    before, after = runs(lab, MIXING[name], 2, exact=True)
    assert differences(before, after, losses=False) == []
