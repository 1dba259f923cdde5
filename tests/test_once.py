"""What a program writes, logs, asks and makes: done once by two processes, as by one before its conversion.

Each program is converted by the command and run as people have it, on one process, and converted, on two. Both must
say the same, leave the same files with the same text, and call the trackers as often.
"""

from __future__ import annotations

from pathlib import Path

import command
from parity.harness import Lab

START = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

torch.manual_seed(3)
{setup}
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for epoch in range(2):
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
{epoch}
{after}
"""
TEXTS = {".txt", ".csv", ".json", ".log", ""}


def program(imports: str = "", setup: str = "", before: str = "", epoch: str = "", after: str = "") -> str:
    """A program that trains, and does something before, in each epoch and after."""
    inside = "".join(f"    {line}\n" for line in epoch.splitlines()) or "    pass\n"
    return START.format(imports=imports, setup=setup, before=before, epoch=inside, after=after)


def files(folder: Path, given: dict[str, str]) -> dict[str, bytes]:
    """The files that a program has left, with what texts hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.suffix in TEXTS else b""
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(folder)) not in given
    }


def folders(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_dir() and path.name != "__pycache__"
    )


def once(lab: Lab, place: Path, given: dict[str, str], **env: str) -> dict[str, str]:
    """Run a program before and after its conversion, and compare what they did; the converted files."""
    found = []
    for name, processes in (("before", 1), ("after", 2)):
        folder = place / name
        for path, text in given.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        if name == "after":
            done = command.run("convert", "train.py", "--inplace", cwd=folder)
            assert done.returncode == 0, done.stderr.decode()
        converted = {path: (folder / path).read_text() for path in given}
        ran = lab.run(folder / "train.py", processes=processes, folder=folder, recorded=False, env=env).ok()
        found.append({"says": ran.printed, "files": files(folder, given), "folders": folders(folder)})
    one, two = found
    assert two == one
    return converted
