"""What findings say: where it comes from, what was done or is to do, and no more than fits a line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest
from forms import ungathered as convert
from programs import WHOLE_BATCH

from dp2ddp import plan
from dp2ddp.analyse.evaluation import divided, evaluating
from dp2ddp.emit.text import report
from dp2ddp.plan import LONGEST, fitted, shortened
from dp2ddp.source import Project
from dp2ddp.tiers import UNSHARDED

PATH = Path("/example/train.py")
FIXTURES = Path(__file__).parents[1] / "fixtures"
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
CODE = (
    "torch.randn(2, (size, 3), device)",
    "labels.to(device).squeeze()",
    "nn.functional.mse_loss(rec, x) + 0.1 * (mu ** 2).mean()",
    "(model.module if args.multi_gpu else model).eps",
    "max((x.shape[0] for x, _, y in batch))",
    "self.name == 'a long (text' and not self.done",
    "batch[names['one']][:, index, 1:]",
    "train_instance_accuracy",
    "-self.first * {'a': value}['a']",
)
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
    message, help = fitted(f"`f({', '.join(['value'] * 50)})` and `short` differ", "use `short`")
    assert LONGEST - len("value, ") < len(message) + len("; ") + len(help) <= LONGEST
    assert message.endswith("value, …)` and `short` differ") and help == "use `short`"


def test_names_and_what_is_to_be_typed_are_never_cut() -> None:
    """Where there is no room for them, other words are taken, and the line gets longer at last."""
    name = "self.meters.accuracy_of_the_first_instance"
    message, help = f"`{name}` may be rank 0's", f"print `ddp.mean({name})` there, on all ranks"
    assert fitted(message, help) == (message, help)
    more = " and a good deal of what else there is to know about it, for whoever wants to know it"
    assert fitted(message + more, help, [(message, help), (message, "average it")]) == (message, help)
    long = name + "_" + "x" * 60
    ways = [
        (f"`{long}` may be rank 0's", f"print `ddp.mean({long})` there"),
        (f"`{long}` is local", "average it"),
    ]
    assert fitted(*ways[0], ways[1:]) == ways[1]
    longest = "x" * LONGEST
    assert fitted(f"`{longest}` is local", "average it") == (f"`{longest}` is local", "average it")


@pytest.mark.parametrize(
    "code",
    [
        " + ".join(f"f{it}(a, g(b), c)" for it in range(30)),
        "f(" + ", ".join(f"g{it}(a, h(b, c[{it}]))" for it in range(25)) + ")",
        "".join(f"f{it}(a, " for it in range(50)) + "b" + ")" * 50,
        "".join(f"(f{it}(a, " for it in range(30)) + "b" + ") + c)" * 30,
        "f" + "(a, b)" * 80,
    ],
)
def test_what_can_be_left_of_long_code_is_found_once(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is tried with less and less room: code of 523 characters with many brackets took 14 s."""
    looked: list[str] = []

    def counted(code: str, *most: int) -> Iterator[str]:
        looked.append(code)
        return begun(code, *most)

    begun = plan._begun
    monkeypatch.setattr(plan, "_begun", counted)
    message, help = fitted(f"the loss uses `{code}`", "to shard: compute the loss in one function")
    assert len(message) + len(help) + len("; ") <= LONGEST and "…" in message
    assert len(looked) < 2 * len(code), "once for each of its brackets, and not for each room"


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("room", [1, 6, 12, 20, 30, 45])
def test_what_is_left_of_code_are_whole_names(code: str, room: int) -> None:
    short = shortened(code, room)
    names = set(re.findall(r"[\w.]*\w", code))
    left = re.findall(r"[\w.]*\w", short)
    assert left and set(left) <= names and set("…") | set(code) >= set(short)
    brackets = re.sub("'[^']*'", "", short)
    assert all(brackets.count(one) == brackets.count(other) for one, other in ("()", "[]", "{}"))


@pytest.mark.parametrize(
    ("code", "room", "short"),
    [
        ("torch.randn(2, size, device)", 28, "torch.randn(2, size, device)"),
        ("torch.randn(2, (size, 3), device)", 28, "torch.randn(2, (size, 3), …)"),
        ("torch.randn(2, (size, 3), device)", 20, "torch.randn(2, …)"),
        ("labels.to(device).squeeze()", 22, "labels.to(…).squeeze()"),
        ("(weight * cross_entropy(out, y)).sum() / weight.sum()", 36, "(weight * …).sum() / weight.sum()"),
        ("self.first * self.weight + self.second", 24, "self.first * …"),
        ("train_instance_accuracy", 16, "train_instance_accuracy"),
        ("criterion.proxies", 12, "criterion.proxies"),
        ("hasattr(self, 'labels')", 17, "hasattr(self, …)"),
    ],
)
def test_code_is_left_out_in_whole_parts(code: str, room: int, short: str) -> None:
    assert shortened(code, room) == short


def test_one_cause_of_several_losses_is_said_once_and_where_it_stands() -> None:
    (finding,) = said(PROGRAM.format(before="", loss=MIXED))
    assert finding == (
        "13: not sharded (exact, less speedup): the loss uses `outputs @ outputs.t()`, which mixes samples; "
        "to shard: move this into a function: `loss = f(outputs, targets)`"
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
    assert "the loss uses `count(inputs)`, which may mix samples" in finding and "arange" not in finding
    assert finding.endswith("to shard: use --sharded if no sample depends on others")


def test_of_a_refused_program_nothing_is_said_to_be_done() -> None:
    text = PROGRAM.format(before="", loss="    criterion(outputs, targets.cuda()).backward()")
    kept = text + 'torch.save(model.state_dict(), "model.pt")\n'
    done = [it.help for it in convert(Project.of({PATH: kept})).findings if it.rule == "DDP303"]
    assert done == ["now rank 0 only: `ddp.save`; no action needed"]
    refused = kept.replace("nn.Linear(8, 2).cuda())", "*[nn.Linear(8, 2).cuda()])")
    left = [it.help for it in convert(Project.of({PATH: refused})).findings if it.rule == "DDP303"]
    assert left == ["not changed until the errors in this program are fixed"]


@pytest.mark.parametrize("name", WHOLE_BATCH)
def test_what_keeps_the_batches_whole_fits_a_line(name: str) -> None:
    found = said(WHOLE_BATCH[name].text)
    assert found and all(f"{UNSHARDED}: " in it for it in found if "to shard" in it)
    assert all(len(it.partition(": ")[2]) <= LONGEST for it in found), found


def test_a_reason_that_another_one_settles_names_it() -> None:
    """What ``--sharded`` can't help, as something else keeps the batches whole anyway."""
    loss = "    criterion(hidden(outputs), targets.cuda()).backward()"
    text = PROGRAM.format(before="from elsewhere import hidden\n", loss=loss)
    (alone,) = said(text)
    assert alone.endswith(
        "`hidden(outputs)`, which may mix samples; to shard: use --sharded if no sample depends on others"
    )
    mended = text.replace(".cuda())\ncrit", ".cuda(), dim=1)\ncrit")
    _, consequence = said(mended)
    assert consequence.endswith("may mix samples; no action needed: sharding is ruled out (line 6)")
    settled = text.replace(
        "    outputs = model", "    inputs = inputs[torch.randperm(16)]\n    outputs = model"
    )
    found = said(settled)
    assert any("permutes the samples" in it and it.endswith("; no action needed") for it in found)
    why = "which may mix samples; no action needed: samples are permuted (line 13)"
    assert any(it.endswith(why) for it in found)
    conversion = convert(Project.of({PATH: settled}))
    assert why not in report(conversion, written=False) and why in report(
        conversion, written=False, verbose=True
    )
    assert "whole batch, because of line 13: " in report(conversion, written=False)


def test_a_reason_that_a_loss_settles_beyond_what_is_not_known_names_it() -> None:
    before = "from elsewhere import hidden, pairs\n\n\ndef apart(z):\n    return torch.cdist(z, z).mean()\n\n"
    terms = " + ".join(4 * ["hidden(outputs)"])
    loss = f"    try:\n        loss = {terms} + apart(outputs)\n    except KeyError:\n        raise\n    loss.backward()\n"
    loss += "    criterion(pairs(outputs), targets.cuda()).backward()"
    found = said(PROGRAM.format(before=before, loss=loss))
    assert any("the loss uses `torch.cdist(z, z)`, which mixes samples" in it for it in found)
    settled = "which may mix samples; no action needed: the loss needs the whole batch (line 8)"
    assert any(it.endswith(settled) for it in found)


def test_a_number_of_one_rank_says_what_makes_it_that_of_all() -> None:
    loss = "    criterion(outputs, targets.cuda()).backward()\n    {name} = count(outputs)\n    print('%.3f' % {name})"
    before = "from elsewhere import count\n"
    (finding,) = said(PROGRAM.format(before=before, loss=loss.format(name="seen")))
    assert finding == (
        "16: not sharded (exact, less speedup): if sharded, `seen` could cover rank 0's local batch only; "
        "to shard: use `ddp.mean(seen)`, or --sharded if rank 0's will do"
    )
    long = "accuracy_of_first_one"
    (finding,) = said(PROGRAM.format(before=before, loss=loss.format(name=long)))
    assert finding == (
        f"16: not sharded (exact, less speedup): if sharded, `{long}` could cover rank 0's local batch only; "
        f"to shard: use `ddp.mean({long})`"
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("seen = count(outputs)\nprint(seen)", "use --sharded if rank 0's will do"),
        ("seen = count(outputs)\nprint(round(seen, 3))", "use `ddp.mean(seen)`, or --sharded"),
        (
            "seen = count(outputs)\nprint(round(seen / count(targets), 3))",
            "use `ddp.sum` on both sides of the division",
        ),
        (
            "hits = count(outputs)\nseen = hits / count(targets)\nif rank() == 0:\n    print(round(seen, 3))",
            "use `ddp.sum` on both sides of the division in line 19",
        ),
        (
            "steps = 4\nseen = count(outputs) / steps\nprint(round(seen, 3))",
            "use `ddp.mean(seen)`, or --sharded",
        ),
        (
            "_, seen = ratio(count(outputs), count(targets))\nif rank() == 0:\n    print(round(seen, 3))",
            "use `ddp.sum` on both sides of the division in line 7",
        ),
        (
            "seen = count(outputs)\nseen += len(count(outputs))\nprint(seen)",
            "use `ddp.sum(seen)`, or --sharded",
        ),
        (
            "seen = count(outputs)\nnumber = 0\nnumber += targets.size(0)\nprint(seen / number)",
            "use `ddp.sum(seen) / ddp.sum(number)`",
        ),
        ("seen = f'{count(outputs)} of them'\nprint(seen)", "use `ddp.mean` on the numbers in it"),
        (
            "seen = count(outputs)\nif rank() == 0:\n    print(round(seen, 3))",
            "use `ddp.mean(seen)`, before the condition in line",
        ),
    ],
)
def test_a_number_of_one_rank_is_told_the_one_way_that_fits_it(lines: str, told: str) -> None:
    """A count is a sum, a mean is not; a text is no number; what only one rank comes to can't wait for the others."""
    loss = "    criterion(outputs, targets.cuda()).backward()\n" + indent(lines, "    ")
    before = "from elsewhere import count, rank\n\ndef ratio(x, y):\n    return x, x / y\n"
    (finding,) = said(PROGRAM.format(before=before, loss=loss))
    assert f"if sharded, `seen` could cover rank 0's local batch only; to shard: {told}" in finding


def test_a_sum_and_a_size_in_a_loss_are_called_so() -> None:
    before = (
        "\n\ndef dice(p, t):\n    inter = (p * t).sum()\n"
        "    return 1 - (2 * inter + 1.0) / (p.sum() + t.sum() + 1.0)\n\n\n"
    )
    loss = (
        "    try:\n        (dice(outputs[:, 0], targets.cuda()) * outputs.mean()).backward()\n"
        "    except ValueError:\n        raise"
    )
    (finding,) = said(PROGRAM.format(before=before, loss=loss))
    assert "the loss uses `2 * inter + 1.0`, a sum over the batch: it differs across ranks" in finding
    loss = "    part = Part(outputs)\n    (outputs * torch.eye(part.x.shape[0])).mean().backward()"
    (finding,) = said(PROGRAM.format(before="from elsewhere import Part\n", loss=loss))
    assert "the loss uses the size `part.x.shape` and may mix samples" in finding


def test_why_a_loss_needs_the_whole_batch_is_said() -> None:
    loss = "    mask = targets > 0\n    criterion(outputs[mask], targets[mask].cuda()).backward()"
    text = PROGRAM.format(before="", loss=loss)
    refused = text.replace("nn.Linear(8, 2).cuda())", "*[nn.Linear(8, 2).cuda()])")
    (message,) = {it.message for it in convert(Project.of({PATH: refused})).findings if it.rule == "DDP501"}
    assert message == (
        "the loss is a mean over the selected elements `outputs[mask]`, whose number differs across ranks"
    )


def test_a_layer_that_is_taken_away_is_not_what_mixes_samples() -> None:
    before = (
        "\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(8, 8)\n        self.top = nn.Linear(8, 2)\n\n"
        "    def forward(self, x):\n        x = self.body(x)\n        return self.top(x) if self.top else x\n\n\n"
    )
    loss = "    criterion(outputs, targets.cuda()).backward()"
    text = PROGRAM.format(before=before, loss=loss)
    wrap = "model = Net().cuda()\nmodel.body = nn.DataParallel(model.body)\n{top}"
    text = text.replace("model = nn.DataParallel(nn.Linear(8, 2).cuda())\n", wrap)
    assert [it.tier for it in convert(Project.of({PATH: text.format(top="model.top = None\n")})).scripts] == [
        "sharded"
    ]
    found = said(text.format(top="model.top = nn.BatchNorm1d(8).cuda()\n"))
    mixing = "`model`, wrapped only in part (line 22), holds a `nn.BatchNorm1d`, which mixes samples; to shard: wrap all of it"
    assert found[-1].endswith(mixing)


def test_what_exceptions_do_fits_a_line() -> None:
    loss = (
        "    try:\n        criterion(outputs, targets.cuda()).backward()\n    except RuntimeError:\n"
        "        print('skipped')\n        continue"
    )
    (finding,) = said(PROGRAM.format(before="", loss=loss))
    assert len(finding.partition(": ")[2]) <= LONGEST and "out of memory: use smaller batches" in finding


def test_every_reason_of_an_evaluation_has_its_cure() -> None:
    """A cure that does not fit, "do that elsewhere", tells nobody anything."""
    for module in (evaluating, divided):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Whole" and len(node.args) == 2:
                reason = ast.unparse(node.args[1])
                assert any(words in reason for words in evaluating.CURES), reason


def test_what_is_said_of_the_fixtures_fits_a_line() -> None:
    lines = "\n".join(it.read_text() for it in FIXTURES.glob("*/findings.txt"))
    texts = re.findall(r": DDP\d+ \w+: (.*?)(?: \(also in .*\))?$", lines, re.MULTILINE)
    assert texts and not [it for it in texts if len(it) > LONGEST]


@pytest.mark.parametrize(("given", "is_said"), [("pipes", True), ("[it.sentinel for it in workers]", False)])
def test_waiting_for_processes_to_end_gives_no_results(given: str, is_said: bool) -> None:
    before = "from multiprocessing import connection\nfrom elsewhere import pipes, workers\n"
    loss = f"    criterion(outputs, targets.cuda()).backward()\n    connection.wait({given})"
    found = said(PROGRAM.format(before=before, loss=loss))
    assert any("yields results in completion order" in it for it in found) is is_said


def test_a_test_that_prevents_wrapping_twice_is_called_so() -> None:
    loss = "    criterion(outputs, targets.cuda()).backward()"
    text = PROGRAM.format(before="", loss=loss).replace(
        "model = nn.DataParallel(nn.Linear(8, 2).cuda())\n",
        "model = nn.Linear(8, 2).cuda()\nif not isinstance(model, nn.DataParallel):\n    model = nn.DataParallel(model)\n",
    )
    assert any("this prevents wrapping it twice" in it for it in said(text))


@pytest.mark.parametrize(("base", "told"), [("nn.Module", "wrap all of `self`"), ("object", "wrap it")])
def test_what_is_told_to_be_wrapped_can_be(base: str, told: str) -> None:
    """An object that holds a module is none itself."""
    before = (
        f"\n\nclass Held({base}):\n    def __init__(self, head):\n        super().__init__()\n        self.head = head\n\n"
        "    def learned(self):\n        return list(self.head.parameters())\n\n\n"
        "held = Held(nn.Sequential(nn.BatchNorm1d(2)).cuda())\n"
    )
    text = PROGRAM.format(before=before, loss="    criterion(held.head(outputs), targets.cuda()).backward()")
    found = said(text.replace("SGD(model.parameters()", "SGD([*model.parameters(), *held.learned()]"))
    assert any(f"holds a `nn.BatchNorm1d`, which mixes samples; to shard: {told}" in it for it in found)


def test_a_condition_on_how_many_samples_are_chosen_is_not_helped_by_batches_of_one_size() -> None:
    loss = (
        "    loss = 0\n    for label in range(2):\n"
        "        chosen = [it for it in range(len(targets)) if targets[it] == label]\n        if len(chosen) > 0:\n"
        "            loss = loss + criterion(outputs[chosen], targets[chosen].cuda()) * len(chosen)\n    loss.backward()"
    )
    found = said(PROGRAM.format(before="", loss=loss))
    decides = (
        "`if len(chosen) > 0`, which a rank's samples decide; no action needed: it needs the whole batch"
    )
    assert any(decides in it for it in found)


def test_labels_that_no_sample_has_say_what_has_each_rank_its_own() -> None:
    made = "    made = torch.stack([torch.tensor(it % 2) for it in range(16)])\n"
    loss = made + "    model(inputs * 2)\n    criterion(outputs, made.cuda()).backward()"
    (finding,) = said(PROGRAM.format(before="", loss=loss))
    assert finding.endswith(
        "the labels `made.cuda()` fit the whole batch, not the rows of one rank; to shard: load them with the samples"
    )


def test_data_that_a_forward_sets_and_hooks_say_both_what_is_and_what_else_to_do() -> None:
    before = (
        "\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.top = nn.Linear(8, 2)\n\n"
        "    def forward(self, x):\n        self.top.weight.data = self.top.weight.data / 2\n        return self.top(x)\n\n\n"
        "kept = []\n"
    )
    loss = "    criterion(outputs, targets.cuda()).backward()"
    text = PROGRAM.format(before=before, loss=loss).replace("nn.Linear(8, 2).cuda())", "Net().cuda())")
    hook = "model.module.top.register_forward_hook(lambda m, x, y: kept.append(len(y)))\ncriterion ="
    found = said(text.replace("criterion =", hook, 1))
    assert any(
        "`self.top.weight.data`, set in a forward, now stays set, as on one GPU" in it
        and it.endswith("no action needed; if it should not stay, compute with a copy")
        for it in found
    )
    assert any(it.endswith("`ddp.sum` of counts, `ddp.gather` of tensors") for it in found)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("best.item()", "`ddp.batch_loss(best)`"),
        ("[loss.item(), best.item()]", "`ddp.batch_loss` of each number"),
    ],
)
def test_a_meter_is_told_which_numbers_it_is_to_be_given(given: str, told: str) -> None:
    loss = (
        "    loss = criterion(outputs, targets.cuda())\n    best = count(outputs)\n    loss.backward()\n"
        f"    losses.update({given})\n    print('%.3f' % losses.avg)"
    )
    before = (
        "from elsewhere import count, note\n\n\nclass Meter:\n    def __init__(self):\n        self.avg = 0\n\n"
        "    def update(self, given):\n        self.avg = note(self.avg, given)\n\n\nlosses = Meter()\n"
    )
    found = said(PROGRAM.format(before=before, loss=loss))
    assert any(
        f"`losses` could hold rank 0's local batch only; to shard: give it {told}" in it for it in found
    )


def test_a_loss_that_is_made_of_shares_is_told_to_be_a_mean() -> None:
    """Not to sum both sides of a division that is within what is summed up."""
    before = (
        "from elsewhere import count\n\n\ndef smooth(outputs, targets):\n"
        "    weights = torch.ones_like(outputs) / (outputs.size(1) - 1)\n"
        "    return (weights * count(outputs)).sum(dim=1).mean()\n\n\n"
    )
    loss = "    seen = smooth(count(outputs), targets)\n    criterion(outputs, targets.cuda()).backward()\n    print(round(seen, 3))"
    found = said(PROGRAM.format(before=before, loss=loss))
    assert any("to shard: use `ddp.mean(seen)`" in it for it in found)
