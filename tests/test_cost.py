"""What a conversion costs: what is the same for many questions is looked for once, and the collector begins late."""

from __future__ import annotations

import ast
import gc
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dp2ddp.analyse import wrappers
from dp2ddp.analyse.program.outside import MOST
from dp2ddp.convert import convert
from dp2ddp.deep import deeply
from dp2ddp.source import Project

IMPORTS = "".join(
    f"import {name}\n" for name in ("csv", "json", "math", "os", "random", "re", "time", "wandb")
)
TRAIN = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{IMPORTS}
wandb.init(project="x")
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 2)), batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    wandb.log({{"loss": loss.item()}})
"""


def test_a_file_is_looked_through_once_for_all_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk, walked = ast.walk, Counter[int]()
    trees: list[ast.AST] = []  # kept, for their identities

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Module) and sys._getframe(1).f_globals["__name__"].endswith(".effects"):
            trees.append(node)
            walked[id(node)] += 1
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    (change,) = convert(Project.of({tmp_path / "train.py": TRAIN})).changes
    assert "on_main_process(wandb)" in change.after
    assert set(walked.values()) == {1}


def test_the_collector_begins_later_while_a_project_is_followed() -> None:
    usual = gc.get_threshold()
    during = deeply(lambda: (gc.get_threshold(), deeply(gc.get_threshold)))
    assert during[0] == during[1] == (50_000, *usual[1:])
    assert gc.get_threshold() == usual
    with pytest.raises(KeyError):
        deeply(lambda: {}["none"])
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("first", [0, 80_000], ids=["is off", "begins later still"])
def test_a_collector_that_looks_less_often_stays_as_it_is(first: int) -> None:
    usual = gc.get_threshold()
    gc.set_threshold(first, *usual[1:])
    try:
        assert deeply(gc.get_threshold) == gc.get_threshold() == (first, *usual[1:])
    finally:
        gc.set_threshold(*usual)


def test_an_object_that_is_followed_by_names_has_no_end_of_parts() -> None:
    """Each round of the loop asks all that the last one may have given: without an end, six names to the fourth."""
    steps = "".join(f"    if name == '{it}':\n        at = getattr(at, '{it}')\n" for it in "abcdefgh")
    path = Path.cwd() / "walk.py"
    text = f"import foreign\nat = foreign.load()\nfor name in foreign.names():\n{steps}at.show()\n"
    project = Project.of({path: text})
    program = wrappers.linked(project, project.files.values())
    (shown,) = (it for it in program.nodes.values() if getattr(it, "attr", "") == "show")
    assert len(program.values(shown.value)) < 8 * MOST  # type: ignore[attr-defined]


def _collating(entries: dict[str, str]) -> str:
    """A program whose collate function fills a dict in turn."""
    made = "".join(f'    data["{key}"] = {value}\n' for key, value in entries.items())
    return f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader

def collate(batch):
    data = {{}}
    data["size"] = max([len(it) for it in batch])
{made}    return data

loader = DataLoader([torch.ones(n % 5 + 1) for n in range(64)], batch_size=16, collate_fn=collate)
model = nn.DataParallel(nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for data in loader:
    loss = model(data["rows0"].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _converted(program: str, home: Path) -> str:
    """What a program becomes, in a minute of the processor's time at most."""
    script = home / "train.py"
    script.write_text(program)
    command = [sys.executable, "-m", "dp2ddp", "convert", str(script), "--diff"]
    limit = (60, 60)  # seconds; some three are needed
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    ).stdout


def _stacked(width: str) -> str:
    return f"torch.stack([nn.functional.pad(it, (0, {width} - len(it))) for it in batch])"


def test_entries_of_a_batch_that_are_made_of_other_entries_are_followed_once(tmp_path: Path) -> None:
    entries = {"rows0": _stacked('data["size"]')}
    for i in range(1, 24):
        before = f'data["rows{i - 1}"]'
        entries[f"rows{i}"] = _stacked(f"{before}.shape[1] * {before}.size(1)")
    assert "ddp.shard(" in _converted(_collating(entries), tmp_path)


def test_a_batch_whose_entries_are_all_made_of_each_other_is_not_followed_for_ever(tmp_path: Path) -> None:
    names = [f"rows{i}" for i in range(12)]
    entries = {
        name: _stacked(" + ".join(f'data["{it}"].shape[1]' for it in names if it != name)) for name in names
    }
    assert "ddp.shard(" not in _converted(_collating(entries), tmp_path)
