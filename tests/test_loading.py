"""Whole-batch programs load each batch once: the converter shares their loaders with workers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from forms import ungathered as convert
from runtime import jobs

from dp2ddp.source import Project

PATH = Path("/example/train.py")
PROGRAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 46

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=generator) + torch.randn(8), index % 2


def main():
    torch.manual_seed(1)
    model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Data(), batch_size=8, shuffle=True, num_workers=3)
    few = DataLoader(
        Data(),
        batch_size=8,
        num_workers=2,
    )
    none = DataLoader(Data(), batch_size=8)
    for epoch in range(2):
        for inputs, targets in loader:
            inputs = inputs.double().mul_(0.5)
            features = model(inputs)
            distances = torch.cdist(features, features)
            same = targets[:, None] == targets
            loss = distances[same].mean() - distances[~same].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for held in (few, none):
                total = 0
                for inputs, targets in held:
                    total += model(inputs.double()).sum().item()
                print(f"{total:.9f}")


if __name__ == "__main__":
    main()
"""
ALONE = {
    "loop": """\
            for number, (images, _) in enumerate(few):
                numpy.save(f"{number}.npy", images.numpy())
""",
    "function": """\
            dump(few)
""",
}
DUMP = """\
def dump(loader):
    numpy.save("all.npy", numpy.concatenate([images.numpy() for images, _ in loader]))


def main"""


def converted(text: str) -> str:
    return convert(Project.of({PATH: text})).changes[0].after


def test_loaders_with_workers_are_shared() -> None:
    after = converted(PROGRAM)
    assert "loader = ddp.share(DataLoader(Data(), batch_size=8, shuffle=True, num_workers=3))" in after
    assert "    few = ddp.share(few)\n" in after
    assert "none = DataLoader(Data(), batch_size=8)\n" in after and after.count("share(") == 2


@pytest.mark.parametrize("how", ALONE)
def test_loaders_that_one_process_alone_draws_from_stay(how: str) -> None:
    text = PROGRAM.replace("import torch\n", "import numpy\nimport torch\n", 1).replace("def main", DUMP)
    begin = "        with torch.no_grad():\n"
    after = converted(text.replace(begin, begin + ALONE[how]))
    assert "if ddp.is_main_process():" in after
    assert "ddp.share(DataLoader(" in after and "share(few)" not in after


SHARDED = PROGRAM.replace(
    "loss = distances[same].mean() - distances[~same].mean()",
    "loss = nn.functional.cross_entropy(features, targets)",
).replace("+ torch.randn(8), index", ", index")
# Of these evaluations the sum of one batch decides how the next one goes on.
FOLLOWING = SHARDED.replace("total += model", "total = 0.5 * total + model")


def test_sharded_programs_share_the_loaders_of_undivided_evaluations() -> None:
    begin, end = SHARDED.index("            for held in"), SHARDED.index("\n\nif __name__")
    loop = "            for inputs, targets in few:\n                total += model(inputs.double()).sum().item()\n"
    text = f"{SHARDED[:begin]}            model.eval()\n            total = 0\n{loop}            print(total)\n{SHARDED[end:]}"
    assert "share(" not in converted(text) and "ddp.shard_batches(few)" in converted(text)
    after = converted(FOLLOWING)
    assert after.count("share(") == 1 and "    few = ddp.share(few)\n" in after
    assert "num_workers=ddp.local_workers(3)" in after and "num_workers=2" in after
    for change in (
        ("        batch_size=8,\n", "        batch_size=8,\n        shuffle=True,\n"),
        ("model(inputs.double()).sum().item()\n", "model(inputs.double()).sum().item()\n                    if total > 9:\n                        break\n"),
    ):  # fmt: skip
        assert "share(" not in converted(FOLLOWING.replace(*change)), change


COMMON = FOLLOWING.replace("num_workers=3", "num_workers=WORKERS").replace(
    "num_workers=2", "num_workers=WORKERS"
)
COMMON = COMMON.replace("class Data", "WORKERS = 3\n\n\nclass Data", 1)
MADE = FOLLOWING.replace("few = DataLoader(\n", "few = made(\n").replace(
    "loader = DataLoader(", "loader = made("
)
MADE = MADE.replace("def main", """def made(data, batch_size, num_workers, shuffle=False):
    return DataLoader(data, batch_size, shuffle, num_workers=num_workers)


def main""")  # fmt: skip


@pytest.mark.parametrize("text", [FOLLOWING, COMMON, MADE], ids=["apart", "a constant", "a function"])
def test_undivided_evaluations_of_sharded_programs_say_the_same(tmp_path: Path, text: str) -> None:
    text = text.replace("optimizer.step()", "pass")  # the order of the samples is another one
    for name, side in {"one": text, "many": converted(text)}.items():
        (tmp_path / f"{name}.py").write_text(side)
    one = jobs.run(["one.py"], tmp_path, processes=None)
    many = jobs.run(["many.py"], tmp_path, 2, DP2DDP_OUTPUT="main")
    assert one.code == many.code == 0, many.err
    assert many.out == one.out != ""


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_they_train_as_one_process_does_with_random_samples(tmp_path: Path, processes: int) -> None:
    for name, text in {"one": PROGRAM, "many": converted(PROGRAM)}.items():
        (tmp_path / f"{name}.py").write_text(text)
    one = jobs.run(["one.py"], tmp_path, processes=None)
    many = jobs.run(["many.py"], tmp_path, processes, DP2DDP_OUTPUT="main")
    assert one.code == many.code == 0, many.err
    told = [[float(word) for word in it.out.split()] for it in (one, many)]
    assert len(told[0]) == 4 and told[1] == pytest.approx(told[0], abs=1e-7)
