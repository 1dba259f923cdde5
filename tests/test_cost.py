"""What a conversion costs: what is the same for many questions is looked for once."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dp2ddp.convert import convert
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
