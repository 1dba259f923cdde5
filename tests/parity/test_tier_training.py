"""Programs of both tiers train as nn.DataParallel did, whatever their loss is and however their batches are drawn.

Nothing is planned here: with one seed a converted program draws by itself what the original draws.
"""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
import torch
from losses import COMBINED, EVEN_LOSSES, GATHERED, MEANS, OWN_LOSSES, SCALED
from programs import (
    AGREED,
    APEX,
    AVERAGED,
    BALANCED,
    BARE,
    CHOSEN,
    CLOSURES,
    CONFIGURED,
    COUNTED,
    DEALT,
    FUNCTIONAL,
    HANDED,
    LATER_HEADS,
    LOADER,
    PATH,
    PHASES,
    PROGRAM,
    PULLED,
    SAMPLED,
    SHARDED_LOADERS,
    SOMETIMES_WRAPPED,
    WHOLE_BATCH,
    WRAP,
    bare,
)

from dp2ddp.convert import convert, convert_paths
from dp2ddp.source import Project
from parity import compare
from parity.harness import FIXTURES, SHAPES, Lab, Run

PROCESSES = [2, pytest.param(3, marks=pytest.mark.slow)]

CHECKPOINTS = {"contrastive": "models/last.pth", "weighted_sampler": "best.pth.tar"}
# Those that are run where 16 samples are cut for three, too.
UNEVEN = ["a spread of squares", "similarities between samples", "another dimension"]
UNEVEN += ["a decision by the outputs", "a head that is not wrapped", "a part of the model"]
SEED = "torch.manual_seed(3)\n"


def seeded(text: str) -> str:
    return text.replace("data = ", SEED + "data = ", 1)


def write(lab: Lab, name: str, text: str) -> Path:
    path = lab.place(name) / "train.py"
    path.write_text(text)
    return path


def runs(lab: Lab, text: str, processes: int, **options: bool) -> tuple[Run, Run]:
    """A program on so many replicas, and converted on so many processes."""
    text = seeded(text)
    conversion = convert(Project.of({PATH: text}), **options)
    assert not conversion.errors, conversion.errors
    before = lab.run(write(lab, "before", text), replicas=processes, timeout=60).ok()
    after = lab.run(write(lab, "after", conversion.changes[0].after), processes=processes, timeout=60).ok()
    return before, after


def differences(before: Run, after: Run, losses: bool = True) -> list[str]:
    """Where a rank's steps are not the original's: ``losses`` where each rank has that of the whole batch."""
    (expected,) = before.ranks
    found = []
    if not expected["parameters"]:
        found.append("nothing was trained")
    for notes in after.ranks:
        who = f"rank {notes['rank']}"
        if notes["steps"] != expected["steps"]:
            found.append(f"{who} made {notes['steps']} steps, not {expected['steps']}")
        for step, (one, other) in enumerate(zip(expected["parameters"], notes["parameters"], strict=False)):
            worst = (one - other).abs().max().item()
            if not worst <= 1e-12:
                found.append(f"{who}, step {step}: parameters differ by {worst:.2g}")
                break
        pairs = zip(expected["losses"], notes["losses"], strict=False) if losses else ()
        for step, (one, other) in enumerate(pairs):
            if not abs(one - other) <= 1e-9:
                found.append(f"{who}, step {step}: loss {other!r}, not {one!r}")
                break
    return found


@pytest.mark.sample(processes=(2, 3), every=5)
@pytest.mark.parametrize(
    ("name", "processes"), [*((name, 2) for name in WHOLE_BATCH), *((name, 3) for name in UNEVEN)]
)
def test_whole_batches_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    """Losses and parameters of every rank."""
    before, after = runs(lab, WHOLE_BATCH[name].text, processes, no_gather=True)
    assert len(after.ranks) == processes
    assert differences(before, after) == []


def test_loaders_that_one_function_makes_of_settings_make_dataparallel_s_steps(lab: Lab) -> None:
    before, after = runs(lab, CONFIGURED, 2)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []


@pytest.mark.sample("in an expression")
@pytest.mark.parametrize("name", SOMETIMES_WRAPPED)
def test_a_model_that_is_sometimes_wrapped_is_trained_by_all_processes_or_by_one(lab: Lab, name: str) -> None:
    text = seeded(PROGRAM.replace(WRAP, SOMETIMES_WRAPPED[name])).replace("(64", "(60")
    text += "print(sum(it.sum().item() for it in model.parameters()))\n"
    before, after = runs(lab, text, 2)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []
    converted = convert(Project.of({PATH: text})).changes[0].after
    alone = {"env": {"ALONE": "1"}, "timeout": 60, "recorded": False}
    before = lab.run(write(lab, "before_alone", text), launcher="plain", gpus=2, **alone).ok()
    after = lab.run(write(lab, "after_alone", converted), launcher="plain", processes=2, gpus=2, **alone).ok()
    assert before.printed == after.printed and "only this one continues" in after.errors


@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", AGREED)
def test_decisions_by_the_whole_batch_make_dataparallel_s_steps_in_parts(
    lab: Lab, name: str, processes: int
) -> None:
    """With an uneven last batch; every process goes on as the original does, and none alone."""
    before, after = runs(lab, AGREED[name].replace("batch_size=16", "batch_size=15"), processes, exact=True)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


@pytest.mark.sample(processes=2, every=2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", BARE)
def test_bare_modules_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    """With a last batch of another size, which three processes have unlike parts of, as of the others."""
    text = bare(name).replace("torch.randn(64, 8)", "torch.randn(57, 8)").replace("(64,)", "(57,)")
    before, after = runs(lab, text, processes, exact=True)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("name", LATER_HEADS)
def test_bare_modules_are_synced_with_the_layers_that_are_trained(lab: Lab, name: str) -> None:
    before, after = runs(lab, LATER_HEADS[name], 2, exact=True)
    assert len(after.ranks) == 2
    assert differences(before, after, losses=False) == []


def test_bare_modules_that_are_not_synced_are_noticed(lab: Lab) -> None:
    text = seeded(bare("a head"))
    after = convert(Project.of({PATH: text}), exact=True).changes[0].after
    assert "ddp.sync_gradients(head)\n" in after
    before = lab.run(write(lab, "before", text), replicas=2, timeout=60).ok()
    left = lab.run(
        write(lab, "after", after.replace("ddp.sync_gradients(head)\n", "")), processes=2, timeout=60
    )
    assert "parameters differ" in differences(before, left.ok(), losses=False)[0]


@pytest.mark.sample(processes=(2, 3), every=2)
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        *((name, 2) for name in {**SHARDED_LOADERS, **DEALT}),
        ("weights", 3),
        ("a batch sampler", 3),
        ("a subset", 3),
    ],
)
def test_sharded_loaders_make_dataparallel_s_steps(lab: Lab, name: str, processes: int) -> None:
    before, after = runs(lab, PROGRAM.replace(LOADER, {**SHARDED_LOADERS, **DEALT}[name]), processes)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


@pytest.mark.sample(processes=2, every=2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", CLOSURES)
def test_optimizers_that_ask_for_the_loss_are_told_the_whole_batch_s(
    lab: Lab, name: str, processes: int
) -> None:
    """L-BFGS ends its rounds by it: given those of their parts, processes would make different numbers of them."""
    step = PROGRAM[PROGRAM.index("        optimizer.zero_grad") :]
    text = PROGRAM.replace(step, CLOSURES[name]).replace("optim.SGD", "optim.LBFGS")
    assert "LBFGS" in text
    before, after = runs(lab, text.replace("16", "15"), processes, exact=True)
    assert before.printed == after.printed != ""
    for rank in after.ranks:  # it makes rounding larger than others do
        torch.testing.assert_close(rank["parameters"], before.ranks[0]["parameters"], rtol=0, atol=1e-8)


@pytest.mark.sample(processes=2, every=2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", PULLED | HANDED)
def test_loops_draw_their_parts_of_batches_that_are_pulled_or_handed_out(
    lab: Lab, name: str, processes: int
) -> None:
    """However often an iterator ends between two epochs, whichever object hands out a loader's batches, and with an
    uneven last batch; what is evaluated through such an object stays whole.
    """
    text = (PULLED | HANDED)[name].replace("batch_size=16", "batch_size=15")
    before, after = runs(lab, text, processes, exact=True)
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""


def test_batches_that_are_put_together_make_dataparallel_s_steps(lab: Lab) -> None:
    before, after = runs(lab, BALANCED, 2)
    assert len(after.ranks) == 2
    assert differences(before, after) == []


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("name", PHASES)
def test_loops_that_train_and_evaluate_have_the_numbers_of_whole_sets(
    lab: Lab, name: str, processes: int
) -> None:
    """Where the last batch of the evaluation has one sample, too."""
    before, after = runs(lab, PHASES[name], processes)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""


@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("counted", COUNTED)
@pytest.mark.parametrize("made", ["made by one line", "made by two lines"])
def test_loops_that_train_and_evaluate_count_each_sample_once(
    lab: Lab, made: str, counted: str, processes: int
) -> None:
    """Where a batch of the evaluation has fewer samples than there are processes, too."""
    text = PHASES[made].replace(AVERAGED, COUNTED[counted])
    (script,) = convert(Project.of({PATH: text})).scripts
    assert script.tier == "sharded"
    before, after = runs(lab, text, processes)
    assert differences(before, after, losses=False) == []
    assert after.printed == before.printed != ""


@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", APEX)
def test_apex_s_mixed_precision_becomes_torch_s(lab: Lab, name: str, processes: int) -> None:
    """The steps are the same where both scale: gradients are unscaled before they are clipped, and not twice.

    In single precision, as torch's scaler knows no other.
    """
    text = seeded(APEX[name].replace("batch_size=16", "batch_size=15"))
    (change,) = convert(Project.of({PATH: text}), exact=True).changes
    on_cpu = change.after.replace('GradScaler("cuda"', 'GradScaler("cpu"')
    assert on_cpu != change.after and "apex" not in on_cpu
    single = {"float64": False, "timeout": 60, "env": {"APEX_SCALE": "1024"}}
    (before,) = lab.run(write(lab, "before", text), replicas=processes, **single).ok().ranks
    after = lab.run(write(lab, "after", on_cpu), processes=processes, **single).ok().ranks
    assert len(after) == processes
    for rank in after:
        torch.testing.assert_close(rank["parameters"], before["parameters"], rtol=0, atol=1e-6)


def test_apex_s_mixed_precision_goes_on_where_it_stays(lab: Lab) -> None:
    """Its model is the wrapped one, and it unscales gradients after they are averaged."""
    text = APEX["clipped"].replace('"O1"', '"O2"').replace("16", "15")
    before, after = runs(lab, text, 2, exact=True)
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", PROCESSES)
def test_networks_that_replicate_a_part_at_every_call_make_the_same_steps(lab: Lab, processes: int) -> None:
    """The original is the network wrapped once: what ``data_parallel()`` computes is what nn.DataParallel does."""
    text = seeded(FUNCTIONAL.replace("GPUS", str(processes)))
    (change,) = convert(Project.of({PATH: text}), exact=True).changes
    wrapped = text.replace("model.apply(double)\n", "model.apply(double)\nmodel = nn.DataParallel(model)\n")
    wrapped = wrapped.replace("self.ngpu > 1", "False")  # once is enough
    assert wrapped != text
    before = lab.run(write(lab, "before", wrapped), replicas=processes, timeout=60).ok()
    after = lab.run(write(lab, "after", change.after), processes=processes, timeout=60).ok()
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", PROCESSES)
def test_samples_of_a_network_that_is_wrapped_in_another_one_are_the_same(lab: Lab, processes: int) -> None:
    """It stays in training mode: its BatchNorm sees what a replica saw, and keeps what the first one kept."""
    before, after = runs(lab, SAMPLED, processes)
    assert differences(before, after) == []
    assert len(printed(before)) == 8 and printed(after) == printed(before)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", MEANS)
def test_means_over_samples_make_dataparallel_s_steps_in_parts(lab: Lab, name: str) -> None:
    """With an uneven last batch, in the original's batches."""
    text = MEANS[name].replace("batch_size=16", "batch_size=15")
    before, after = runs(lab, text, 2, exact=True)
    assert differences(before, after, losses=False) == []


@pytest.mark.sample(processes=2, every=2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize("name", OWN_LOSSES)
def test_losses_that_the_model_computes_make_dataparallel_s_steps_in_parts(
    lab: Lab, name: str, processes: int
) -> None:
    """With an uneven last batch, and one of fewer samples than processes."""
    text = OWN_LOSSES[name].replace("batch_size=16", "batch_size=15")
    text = text.replace(
        "torch.randn(64, 8), torch.randint(2, (64,))", "torch.randn(61, 8), torch.arange(61) % 2"
    )
    before, after = runs(lab, text, processes, exact=True)
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("name", EVEN_LOSSES)
def test_losses_of_equal_parts_make_dataparallel_s_steps(lab: Lab, name: str) -> None:
    """Dealt one by one in turn, by a DistributedSampler; the classes are, too."""
    text = EVEN_LOSSES[name].replace(", shuffle=True", "")
    text = text.replace("torch.randint(2, (64,))", "torch.arange(64) // 2 % 2")
    before, after = runs(lab, text, 2)
    assert differences(before, after, losses=False) == []


@pytest.mark.sample(processes=(2, 3), every=5)
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        *((name, 2) for name in {**SCALED, **COMBINED, **GATHERED}),
        ("class weights", 3),
        ("a sum", 3),
        ("samples compared", 3),
        ("a number that grows", 3),
        ("a mean of squares, squared", 3),
    ],
)
def test_losses_over_the_batch_make_dataparallel_s_steps_in_parts(
    lab: Lab, name: str, processes: int
) -> None:
    """With an uneven last batch; and every process has the loss of the whole batch."""
    text = {**SCALED, **COMBINED, **GATHERED}[name].replace("batch_size=16", "batch_size=15")
    before, after = runs(lab, text, processes, exact=True)
    means = ("beside a mean", "only where the batch", "by what the batch", "by the loss", "a loss that")
    of_part = any(it in name for it in means)
    assert differences(before, after, losses=not of_part) == []


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("value", ["1", "2"])
def test_models_wrapped_by_choice_make_dataparallel_s_steps(lab: Lab, name: str, value: str) -> None:
    """Whatever was chosen: without a layer that looks at several samples, a bare model makes them, too."""
    text = PROGRAM.replace(WRAP, CHOSEN[name].replace("VALUE", value)).replace(
        "batch_size=16", "batch_size=15"
    )
    before, after = runs(lab, text, 2, exact=True)
    assert differences(before, after, losses=False) == []


@pytest.mark.parametrize("processes", [*PROCESSES, pytest.param(4, marks=pytest.mark.slow)])
def test_the_batch_exact_form_makes_dataparallel_s_steps(lab: Lab, processes: int) -> None:
    """With batches of 10, which no number of these divides, and an uneven last one."""
    before, after = runs(lab, PROGRAM.replace("batch_size=16", "batch_size=10"), processes, exact=True)
    assert differences(before, after, losses=False) == []


# Random numbers of every kind, and gradients through several wraps

NOISY = """\
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)
np.random.seed(3)
random.seed(3)


class Noisy(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        noise = torch.randn(8) * np.random.rand() + random.random()
        return torch.arange(8.0).sin() * index + noise, index % 2


model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(RATE), nn.Linear(8, 2))
model = nn.DataParallel(model).cuda()
loader = DataLoader(Noisy(), batch_size=10, shuffle=True, num_workers=WORKERS)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, targets in loader:
        inputs, targets = inputs.cuda(), targets.cuda()
        share = np.random.beta(0.4, 0.4)
        other = torch.randperm(len(inputs)).cuda()
        mixed = inputs * share + inputs[other] * (1 - share) + torch.randn_like(inputs) * random.random()
        print(float(mixed.sum()))
        outputs = model(mixed)
        loss = share * nn.functional.cross_entropy(outputs, targets)
        loss = loss + (1 - share) * nn.functional.cross_entropy(outputs, targets[other])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_loop_draws_what_it_drew_whatever_the_model_draws(lab: Lab, workers: str) -> None:
    """Augmentation in the data set, mixup and noise in the loop; dropout, on chunks of 4, 4 and 2, has its own stream."""
    text = NOISY.replace("WORKERS", workers)
    before, after = runs(lab, text.replace("RATE", "0.0"), 3)
    assert differences(before, after, losses=False) == []  # the batch is divided after the mixup
    assert after.printed == before.printed != ""
    _, dropping = runs(lab, text.replace("RATE", "0.5"), 3)
    assert dropping.printed == before.printed
    first, *others = dropping.ranks
    assert all(torch.equal(first["parameters"][-1], other["parameters"][-1]) for other in others)


ADVERSARIAL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(50, 4), torch.randn(50, 3))
loader = DataLoader(data, batch_size=10, shuffle=True)
generator = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))
critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
generator = nn.DataParallel(generator.cuda())
critic = nn.DataParallel(critic.cuda())
first = torch.optim.SGD(critic.parameters(), lr=0.1)
second = torch.optim.SGD(generator.parameters(), lr=0.1)
for epoch in range(2):
    for real, noise in loader:
        real = real.cuda()
        fake = generator(noise.cuda())
        between = (real + fake.detach()).div(2).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).pow(2).mean()
        first.zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty).backward()
        first.step()
        second.zero_grad()
        (-critic(fake).mean()).backward()
        second.step()
"""


@pytest.mark.parametrize("processes", PROCESSES)
def test_gradients_pass_through_one_wrap_into_another(lab: Lab, processes: int) -> None:
    """A generator that learns from a critic, and a penalty on the critic's own gradients."""
    before, after = runs(lab, ADVERSARIAL, processes, exact=True)
    assert len(after.ranks) == processes
    assert differences(before, after, losses=False) == []


# Fixtures


@pytest.mark.sample(processes=2, every=2)
@pytest.mark.parametrize("processes", PROCESSES)
@pytest.mark.parametrize(("name", "checkpoint"), CHECKPOINTS.items())
def test_fixtures_make_dataparallel_s_steps(lab: Lab, name: str, checkpoint: str, processes: int) -> None:
    """In batches of 32, and an uneven last one; with what they print and save."""
    arguments = lab.arguments()
    script = FIXTURES / name / "before" / "train.py"
    before = lab.run(script, arguments, replicas=processes).ok()
    after = lab.run(lab.converted(name) / "train.py", arguments, processes=processes).ok()
    assert differences(before, after, losses=name == "contrastive") == []
    assert printed(after) == printed(before) != []
    pair = before.load(checkpoint), after.load(checkpoint)
    assert compare.checkpoints(*pair, tolerance=1e-9) == []
    assert before.files() == after.files()


@pytest.mark.sample("flat")
@pytest.mark.parametrize(
    "name", [it if it in ("flat", "trainer") else pytest.param(it, marks=pytest.mark.slow) for it in SHAPES]
)
def test_fixtures_in_the_batch_exact_form_draw_the_original_s_batches(lab: Lab, name: str) -> None:
    """By themselves, on three processes, which do not divide a batch of 32."""
    folder = lab.place("exact") / name
    shutil.copytree(FIXTURES / name / "before", folder)
    for change in convert_paths([folder / "train.py"], exact=True).changes:
        change.path.write_bytes(change.after_bytes)
    before = lab.run(FIXTURES / name / "before" / "train.py", lab.arguments(), replicas=3).ok()
    after = lab.run(folder / "train.py", lab.arguments(), processes=3).ok()
    assert compare.global_batches(after.ranks) == before.ranks[0]["epochs"]
    assert differences(before, after, losses=False) == []


def printed(run: Run) -> list[str]:
    """The lines that are the same in every run."""
    return [line for line in run.printed.splitlines() if "total time" not in line]


def converted(text: str, **options: bool) -> str:
    """What a program becomes, each statement in one line."""
    (change,) = convert(Project.of({PATH: text}), **options).changes
    return ast.unparse(ast.parse(change.after))


def test_a_loss_of_parts_is_seen(lab: Lab) -> None:
    """One over the whole batch, computed as if it were a mean over samples."""
    text = WHOLE_BATCH["similarities between samples"].text
    before, _ = runs(lab, text, 2)
    whole, sharded = converted(seeded(text)), converted(seeded(PROGRAM))
    right, wrong = (next(it for it in one.splitlines() if "loss = " in it) for one in (whole, sharded))
    run = lab.run(write(lab, "wrong", sharded.replace(wrong, right)), processes=2, timeout=60).ok()
    assert any("parameters differ" in line for line in differences(before, run))


def test_ranks_that_draw_each_their_own_batches_are_seen(lab: Lab) -> None:
    """By the program itself, before it has trained on them."""
    text = converted(seeded(WHOLE_BATCH["similarities between samples"].text), no_gather=True)
    wrong = text.replace(SEED, SEED.replace("3", "3 + ddp.get_rank()"))
    assert wrong != text
    run = lab.run(write(lab, "wrong", wrong), processes=2, timeout=60)
    assert run.code != 0
    assert "different batches" in run.errors


OWN_LOSS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, Y, M = torch.randn(60, 6), torch.randint(0, 3, (60,)), (torch.rand(60) > 0.5).float()
loader = DataLoader(TensorDataset(X, Y, M), batch_size=12, shuffle=True)
valid = DataLoader(TensorDataset(X[:30], Y[:30], M[:30]), batch_size=6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)

    def forward(self, x, y, m):
        out = self.fc(x)
        rows = nn.functional.cross_entropy(out, y, reduction="none")
        return out, (rows * m).sum() / m.sum().clamp(min=1)


net = nn.DataParallel(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    net.train()
    for x, y, m in loader:
        out, loss = net(x, y, m)
        loss = loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    total = 0.0
    with torch.no_grad():
        for x, y, m in valid:
            out, loss = net(x, y, m)
            total += loss.mean().item()
    print("valid", total / len(valid))
"""


@pytest.mark.parametrize("processes", PROCESSES)
def test_a_loss_of_each_replica_is_evaluated_as_replicas_do(lab: Lab, processes: int) -> None:
    """A mean over the masked samples of a replica is not that over the batch's."""
    before, after = runs(lab, OWN_LOSS, processes, exact=True)
    assert differences(before, after, losses=False) == []
    assert [round(float(it), 9) for it in before.printed.split()[1::2]] == [
        round(float(it), 9) for it in after.printed.split()[1::2]
    ]
