"""Every rank would evaluate the whole data set.

The evaluation is divided among the ranks, and every rank gets the results of the whole data set, for printing and for
control flow. If a loop only adds up and collects, each rank computes some of the batches,
``ddp.shard_batches(loader)``, each batch once, as before. After the loop the sums are combined over all ranks,
``correct, total = ddp.sum((correct, total))``, and lists get the entries of all ranks in data set order,
``ddp.gather(scores, samples_of=loader)``. Averages over the set are exact, without padding and without samples that
count twice.

If a loop does more (it reports in between, uses the batch index, keeps something from one batch to the next), each
batch is divided instead, ``ddp.divide_batches(loader)``, and after the forward the outputs are gathered, with all else
that the loop uses: ``outputs, labels = ddp.whole_batch((model(inputs), labels))``. All lines after that do the same as
before, on every rank.

Where neither is provably right, every rank evaluates the whole data set, and a note says why. ``ddp.DataParallel``
divides each batch anyway.
"""

from collections.abc import Iterator

from dp2ddp.facts import Division, Evaluation, Facts, Tier
from dp2ddp.plan import DONE, Edit, Finding, Insert, Replace, combined, finding, runtime_import

TIES = False
UNDIVIDED = "evaluation not sharded (exact, no speedup)"
DIVIDED = "now sharded, and its results combined over the ranks"

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
train_loader = DataLoader(data, batch_size=16)
test_loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
    model.eval()
    correct, scores = 0, []
    with torch.no_grad():
        for inputs, targets in test_loader:
            outputs = model(inputs.cuda()).cpu()
            correct += (outputs.argmax(1) == targets).sum().item()
            scores.extend(outputs[:, 0].tolist())
    print(correct / len(data), max(scores))
""",
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
train_loader = DataLoader(data, batch_size=16)
test_loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    model.train()
    for inputs, targets in train_loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
    model.eval()
    total = 0
    with torch.no_grad():
        for i, (inputs, targets) in enumerate(test_loader):
            inputs, targets = inputs.cuda(), targets.cuda()
            outputs = model(inputs)
            total += criterion(outputs, targets).item() * inputs.size(0)
            if i % 2 == 0:
                print(i, total)
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for evaluation in facts.evaluations:
        if facts.tiers(evaluation) != {Tier.SHARDED}:
            continue
        if evaluation.division is not None:
            edits = tuple(_divided(evaluation, evaluation.division))
            yield finding(evaluation.at, "every rank would evaluate the whole dataset", DIVIDED, edits)
        elif evaluation.whole:
            cure = f"to shard: {evaluation.cure}" if evaluation.cure else DONE
            yield finding(evaluation.at, f"{UNDIVIDED}: {evaluation.whole}", cure)
        else:
            yield finding(
                evaluation.at,
                "every rank would evaluate the whole dataset",
                DIVIDED,
                tuple(_edits(evaluation)),
            )


def _edits(evaluation: Evaluation) -> Iterator[Edit]:
    holes = {"ddp": evaluation.ddp, "loader": evaluation.at}
    yield Replace(evaluation.at, "{ddp}.shard_batches({loader})", holes)
    lines = []
    together = [name for name in evaluation.sums if "." not in name]
    for group in ([together] if together else []) + [[it] for it in evaluation.sums if "." in it]:
        lines.append(combined(group))
    lines += [f"{name} = {{ddp}}.gather({name}, samples_of={{loader}})" for name in evaluation.lists]
    yield Insert(evaluation.after, "\n".join(lines), holes, after=True)
    yield runtime_import(evaluation.path, evaluation.ddp)


def _divided(evaluation: Evaluation, division: Division) -> Iterator[Edit]:
    holes = {"ddp": evaluation.ddp, "loader": evaluation.at, "forward": division.forward}
    whole = ", whole=True" * division.loads_whole
    yield Replace(evaluation.at, f"{{ddp}}.divide_batches({{loader}}{whole})", holes)
    after = [f"{name} = {division.counted}.size(0)" for name in division.counts]
    if division.into is not None and division.rows:
        names = ", ".join(division.rows)
        yield Replace(division.into, f"{{outputs}}, {names}", {"outputs": division.into})
        yield Replace(division.forward, f"{{ddp}}.whole_batch(({{forward}}, {names}))", holes)
    else:
        yield Replace(division.forward, "{ddp}.whole_batch({forward})", holes)
        after = [combined(it, "whole_batch") for it in [division.rows] if it] + after
    if division.beside:
        yield Insert(division.statement, combined(division.beside, "whole_batch"), holes)
    if after:
        yield Insert(division.statement, "\n".join(after), holes, after=True)
    for size in division.sizes:
        yield Replace(size, f"{division.counted}.size(0)")
    yield runtime_import(evaluation.path, evaluation.ddp)
