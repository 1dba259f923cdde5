"""Decisions by evaluations that every process does whole: all take the main process's numbers, and only there."""

from __future__ import annotations

import re

import pytest
from parity.harness import Lab
from programs import PATH

from dp2ddp.convert import convert
from dp2ddp.facts import Tier
from dp2ddp.plan import Severity
from dp2ddp.source import Project

START = """\
import copy
import operator
import os
import sys

import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("LAB_RANK", 0))
torch.manual_seed(1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)


def collate(samples):  # what it makes is not known: so every process evaluates everything
    return operator.attrgetter("default_collate")(torch.utils.data)(samples)


held_out = DataLoader(data, batch_size=16, collate_fn=collate)


class Net(nn.Module):
    runs = 0

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        if not self.training:
            Net.runs += RANK  # its last bits drift, as on a GPU of its own
        return self.head(x) * (1 - 1e-6 * Net.runs)


class Meter:
    def __init__(self):
        self.sum, self.count, self.avg = 0, 0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count


class Patience:
    def __init__(self, rounds):
        self.rounds, self.bad, self.best, self.over = rounds, 0, None, False

    def __call__(self, value):
        if self.best is None or value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
            if self.bad > self.rounds:
                self.over = True


def evaluate():
    model.eval()
    size, hits = Meter(), 0
    with torch.no_grad():
        for number, (inputs, targets) in enumerate(held_out):
            outputs = model(inputs.cuda())
            size.update(outputs.pow(2).mean().item(), len(inputs))
            hits += (outputs.argmax(1).cpu() == targets).sum().item()
            print(number, size.avg)
    model.train()
    return size.avg


model = nn.DataParallel(Net().cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
scheduler = ReduceLROnPlateau(optimizer, patience=0, threshold=0.0, eps=0.0)
patience = Patience(1)
best, bad = float("inf"), 0
for epoch in range(6):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
"""
RETURNED = "    return size.avg\n"
AGREED = "    return ddp.from_main_process(size.avg)\n"
INLINE = """\
    model.eval()
    hits = 0
    for number, (inputs, targets) in enumerate(held_out):
        print(number)
        hits += (model(inputs.cuda()).argmax(1).cpu() == targets).sum().item()
    model.train()
"""
COUNTED = """\
    value = evaluate()
    if value < best:
        best, bad = value, 0
    else:
        bad += 1
    if bad > 1:
        break
"""
PAIR = "    return size.avg, hits / 64\n"
# How the training goes on, and the line that has it the same in all processes.
STEERED = {
    "a loop is left": ("    if evaluate() > 9:\n        break\n", AGREED),
    "a loop is left after some bad rounds": (COUNTED, AGREED),
    "an object counts the bad rounds": (
        "    patience(evaluate())\n    if patience.over:\n        break\n",
        AGREED,
    ),
    "a schedule is told": ("    scheduler.step(evaluate())\n", AGREED),
    "a learning rate is set": (
        '    if evaluate() > 9:\n        for group in optimizer.param_groups:\n            group["lr"] *= 0.1\n',
        AGREED,
    ),
    "weights are kept": (
        "    value = evaluate()\n    if value < best:\n        best = value\n"
        "        weights = copy.deepcopy(model.state_dict())\nmodel.load_state_dict(weights)\n",
        AGREED,
    ),
    "another set is evaluated": ("    if evaluate() < best:\n        best = evaluate()\n", AGREED),
    "the program ends": ("    if evaluate() > 9:\n        sys.exit()\n", AGREED),
    "through a history": (
        "    history = []\n    history.append(evaluate())\n    if min(history) > 9:\n        break\n",
        AGREED,
    ),
    "numbers in the loop": (
        INLINE + "    if hits / 64 > best:\n        best = hits / 64\n        break\n",
        "    hits = ddp.from_main_process(hits)\n    model.train()\n",
    ),
    "a ratio in the loop": (
        INLINE + "    share = hits / 64\n    if share > 0.9:\n        break\n",
        "    share = ddp.from_main_process(hits / 64)\n",
    ),
    "no loop over batches": (
        "    rows = data.tensors[0].cuda()\n    size = model(rows).pow(2).mean()\n    scheduler.step(size)\n",
        "    size = ddp.from_main_process(model(rows).pow(2).mean())\n",
    ),
}
# What the evaluation returns, how it decides, and the line that has it the same in all processes.
RETURNING = {
    "one number of two": (
        PAIR,
        "    size, share = evaluate()\n    if share > 0.9:\n        break\n",
        "    return ddp.from_main_process((size.avg, hits / 64))\n",
    ),
    "a number beside what is none": (
        "    return roc_auc_score(targets, outputs[:, 0]), outputs\n",
        "    share, outputs = evaluate()\n    if share > best:\n        kept = copy.deepcopy(model)\n        best = share\n",
        "    if ddp.from_main_process(share > best):\n",
    ),
    "a number beside what is none, for several decisions": (
        "    return roc_auc_score(targets, outputs[:, 0]), outputs\n",
        "    share, outputs = evaluate()\n    scheduler.step(share)\n    if share > 0.9:\n        break\n",
        "    return ddp.from_main_process(roc_auc_score(targets, outputs[:, 0])), outputs\n",
    ),
    "two numbers": (
        PAIR,
        "    size, share = evaluate()\n    scheduler.step(size)\n    if share > 0.9:\n        break\n",
        "    return ddp.from_main_process((size.avg, hits / 64))\n",
    ),
    "numbers by name": (
        '    found = {"size": size.avg, "share": hits / 64}\n    return found\n',
        '    if evaluate()["share"] > 0.9:\n        break\n',
        '    found = ddp.from_main_process({"size": size.avg, "share": hits / 64})\n',
    ),
    "what another function makes a number of": (
        "    return outputs\n",
        "    score = roc_auc_score(data.tensors[1], evaluate()[:, 0])\n    if score > 0.9:\n        break\n",
        "    score = ddp.from_main_process(roc_auc_score(data.tensors[1], evaluate()[:, 0]))\n",
    ),
    "something that is not known": (
        "    return summary(size)\n",
        "    found = evaluate()\n    if found.good:\n        break\n",
        "    found = ddp.from_main_process(evaluate())\n",
    ),
}


def converted(text: str) -> str:
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors, conversion.errors
    assert not [it for it in conversion.findings if it.severity is Severity.WARNING]
    (change,) = conversion.changes
    assert not convert(Project.of({PATH: change.after})).changes
    return change.after


def agreed(text: str) -> list[str]:
    return [line for line in converted(text).splitlines() if "ddp.from_main_process(" in line]


@pytest.mark.parametrize("name", STEERED)
def test_what_steers_the_training_is_the_main_process_s(name: str) -> None:
    steering, expected = STEERED[name]
    assert expected in converted(START + steering)
    assert len(agreed(START + steering)) == 1


@pytest.mark.parametrize("name", RETURNING)
def test_the_number_is_agreed_on_where_it_leaves_the_evaluation(name: str) -> None:
    returned, steering, expected = RETURNING[name]
    text = START.replace(RETURNED, returned) + steering
    assert expected in converted(text)
    assert len(agreed(text)) == 1


SAVED = '    value = evaluate()\n    if value < best:\n        best = value\n        torch.save(model.state_dict(), "best.pt")\n'
KEEPING = """\
def keep(value):
    if value > best:
        return
    torch.save(model.state_dict(), "best.pt")


"""
DEALT = START.replace("number, (inputs, targets) in enumerate(held_out)", "inputs, targets in held_out")
DEALT = DEALT.replace("            print(number, size.avg)\n", "").replace("self.runs += RANK", "x = x + 0")
ALONE = {
    "it is only reported": START + "    print(evaluate())\n",
    "it only says what is saved": START + SAVED,
    "a function that saves": START.replace("model = nn.", KEEPING + "model = nn.") + "    keep(evaluate())\n",
    "the processes share the evaluation": DEALT.replace("Net.runs += RANK", "pass") + COUNTED,
    "a schedule by epochs": START + "    evaluate()\n    StepLR(optimizer, 1).step(epoch)\n",
    "a shape": START
    + "    outputs = model(data.tensors[0].cuda())\n    if outputs.shape[1] > 2 or len(outputs) > 99:\n        break\n",
    "the evaluation itself ends early": START.replace("print(number, size.avg)", "if number > 1: break")
    + "    evaluate()\n",
    "the loss of the training": START.replace("import copy\n", "import copy\nimport math\n")
    + "        if math.isnan(loss.item()):\n            break\n    evaluate()\n",
    "a meter of the same class": START
    + "    losses = Meter()\n    losses.update(epoch, 1)\n    evaluate()\n    if losses.avg > 9:\n        break\n",
}


@pytest.mark.parametrize("name", ALONE)
def test_nothing_is_agreed_on_that_steers_nothing(name: str) -> None:
    assert not agreed(ALONE[name])


def test_with_whole_batches_all_have_the_same_outputs() -> None:
    text = START.replace(
        "loss = criterion(model(inputs.cuda()), targets.cuda())",
        "loss = (model(inputs.cuda()) if epoch else model(inputs.cuda())).norm()",
    )
    conversion = convert(Project.of({PATH: text + COUNTED}))
    assert [script.tier for script in conversion.scripts] == [Tier.WHOLE_BATCH.value]
    assert "from_main_process" not in conversion.changes[0].after


NOT_ALIKE = START + INLINE.replace("hits +=", "hits = hits +").replace("hits = 0", "hits = torch.zeros(1)")


def test_what_can_not_be_agreed_on_is_said() -> None:
    conversion = convert(Project.of({PATH: NOT_ALIKE + "    if hits:\n        break\n"}))
    (warning,) = [it for it in conversion.findings if it.severity is Severity.WARNING]
    assert (warning.rule, "`hits`" in warning.message) == ("DDP307", True)


@pytest.mark.parametrize("test", ["hits > 50", "epoch > 0 and hits > 50", "not hits > 50"])
def test_a_question_by_what_is_no_number_is_answered_by_the_main_process(test: str) -> None:
    asked = f"    if {test}:\n        break\n"
    assert f"    if ddp.from_main_process({test}):\n" in converted(NOT_ALIKE + asked)


def test_processes_meet_under_no_condition_that_they_answer_differently() -> None:
    inner = "        if evaluate() > 9:\n            break\n"
    conversion = convert(Project.of({PATH: NOT_ALIKE + "    if hits:\n" + inner}))
    warnings = [it.message for it in conversion.findings if it.severity is Severity.WARNING]
    assert len(warnings) == 2
    assert "from_main_process" not in conversion.changes[0].after


KEPT = {
    "a model": "    return model\n",
    "an object that is known elsewhere": "    return patience\n",
    "one of several objects": "    return [size, patience]\n",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_known_elsewhere_stays_the_same_object(name: str) -> None:
    """Each process would else go on with a copy, which nobody trains or tells anything."""
    text = START.replace("    model.train()\n    return size.avg\n", "    model.train()\n" + KEPT[name])
    text = text.replace("    size, hits = Meter(), 0\n", "    size, hits = patience, 0\n")
    text = text.replace(
        "size.update(outputs.pow(2).mean().item(), len(inputs))", "size(outputs.pow(2).mean().item())"
    )
    text = text.replace("print(number, size.avg)", "print(number)")
    steering = "    found = evaluate()\n    if found.over:\n        break\n"
    conversion = convert(Project.of({PATH: text + steering}))
    assert "from_main_process" not in conversion.changes[0].after


ENDS = """
import sys
sys.stderr.write(f"rank {RANK} ended {epoch} {optimizer.param_groups[0]['lr']}\\n")
"""
RUN = {
    "a loop is left": COUNTED,
    "a schedule": STEERED["a schedule is told"][0],
    "sums": INLINE.replace("argmax(1).cpu() == targets", "cpu()").replace("hits / 64", "hits")
    + COUNTED.replace("evaluate()", "hits / 64"),
    "a question": INLINE.replace("hits +=", "hits = hits +")
    .replace("argmax(1).cpu() == targets", "cpu()")
    .replace("hits = 0", "hits = torch.zeros(1)")
    + COUNTED.replace("evaluate()", "hits"),
}


def run(lab: Lab, text: str) -> tuple[int, list[str]]:
    script = lab.place("decisions") / "train.py"
    script.write_text(text.replace("from sklearn.metrics import roc_auc_score\n", ""))
    ran = lab.run(script, processes=2, recorded=False, env={"DP2DDP_TIMEOUT": "20"})
    return ran.code, sorted(set(re.findall(r"rank \d ended (.*)", ran.errors)))


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.slow] if it != "a loop is left" else []) for it in RUN]
)
def test_processes_that_differ_in_the_last_bits_go_on_alike(name: str, lab: Lab) -> None:
    text = converted(START + RUN[name]) + ENDS
    code, ends = run(lab, text)
    assert (code, len(ends)) == (0, 1)
    code, ends = run(lab, re.sub(r"ddp\.from_main_process\((.*)\)", r"\1", text))
    assert code != 0 or len(ends) == 2, "this would have gone well without"


PRUNE = """\
def prune():
    OLD
        try:
            os.remove(old)
        except OSError:
            pass


def keep(epoch, is_best):
    if is_best:
        prune()
        torch.save(model.state_dict(), f"best_{epoch}.pt")


"""
OLD = {
    "found at once": 'for old in glob.glob("best_*.pt"):',
    "found before": 'found = glob.glob("best_*.pt")\n    for old in found:',
}
BEST = "    value = evaluate() + 1e10 * RANK\n    keep(epoch, value < best)\n    best = min(value, 1e9)\n"


def keeping(functions: str) -> str:
    return "import glob\n" + START.replace("model = nn.Data", functions + "model = nn.Data") + BEST


@pytest.mark.parametrize("old", OLD)
def test_nobody_waits_where_each_rank_decides_for_itself_what_is_saved(lab: Lab, old: str) -> None:
    """What only the main process lists and removes needs no barrier, under such a condition or in such a loop."""
    text = converted(
        keeping(PRUNE.replace("OLD", OLD[old])).replace('best, bad = float("inf"), 0', "best = 1e9")
    )
    assert "barrier" not in text
    code, _ = run(lab, text)
    assert code == 0


def test_all_come_to_where_all_wait() -> None:
    """A condition by an evaluation is the main process's, where what that has written is read under it."""
    reread = PRUNE[PRUNE.index("def keep") :].replace("        prune()\n", "").rstrip()
    reread += '\n        print(list(torch.load(f"best_{epoch}.pt")))\n\n\n'
    text = converted(keeping(reread))
    assert "ddp.barrier()" in text and "ddp.from_main_process(" in text
