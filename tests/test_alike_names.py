"""What says the same under several names is treated the same: programs that differ in such a name are converted alike."""

from __future__ import annotations

import pytest
import test_decisions
from programs import LOADER, PATH, PROGRAM

from dp2ddp.convert import Conversion, convert
from dp2ddp.source import Project

IMPORTS = """\
import bz2
import collections
import gzip
import json
import lzma
import os
import pickle
import shutil
import sys
from pathlib import Path

import cloudpickle
import dill
import requests
"""
START = f"{IMPORTS}\nimport torch\n" + PROGRAM.partition("import torch\n")[2]
DOWNLOAD = """\
def fetch(url, path):
    if not os.path.exists(path):
        with open(path, "wb") as file:
            file.write(requests.get(url).content)


fetch("https://example.org/names", "names")
"""
EVALUATED = """\
    hits = 0
    model.eval()
    with torch.no_grad():
        for inputs, targets in held_out:
            hits += (model(inputs.cuda()).argmax(1).cpu() == targets).sum().item()
    model.train()
    print(hits / 64)
"""
KEEPING = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head, self.seen = nn.Linear(8, 2), collections.deque()

    def forward(self, x):
        self.seen.append(0)
        return self.head(x)


"""
HELD_OUT = "held_out = DataLoader(data, batch_size=16)\n"
PROGRAMS = {
    "numbers that a forward keeps": START.replace(LOADER, HELD_OUT + LOADER)
    .replace("data = ", KEEPING + "data = ", 1)
    .replace("nn.Linear(8, 2).cuda()", "Net().cuda()")
    + EVALUATED,
    "an end that a file decides": START.replace(
        LOADER,
        'try:\n    os.makedirs("out")\nexcept OSError:\n    if os.path.exists("out"):\n        sys.exit(1)\n'
        + LOADER,
    ),
    "an end that an evaluation decides": IMPORTS
    + test_decisions.START
    + "    if evaluate() > 9:\n        sys.exit(1)\n",
    "an end above the start": START.replace(
        LOADER, 'if torch.cuda.device_count() < 2:\n    print("too few")\n    sys.exit(1)\n' + LOADER
    ),
    "a download": START.replace(LOADER, DOWNLOAD + LOADER),
    "a file that is written in each epoch": START
    + '    with gzip.open("log-%d" % epoch, "wb") as file:\n        file.write(b"0")\n',
    "a pickle that is read again": START
    + '    with open("state", "wb") as file:\n        pickle.dump(epoch, file)\n'
    + '    with open("state", "rb") as file:\n        print(file.read())\n',
    "a file that is moved and read": START
    + '    torch.save(epoch, "new")\n    shutil.move("new", "last")\n    print(torch.load("last"))\n',
    "a file above the start": START.replace(LOADER, 'Path("log").touch(0o600)\n' + LOADER),
}
OTHER_NAMES = [
    ("numbers that a forward keeps", "append", "appendleft"),
    ("numbers that a forward keeps", "append", "extendleft"),
    ("an end that a file decides", "sys.exit(1)", "os._exit(1)"),
    ("an end that a file decides", "sys.exit(1)", "os.abort()"),
    ("an end that an evaluation decides", "sys.exit(1)", "os.abort()"),
    ("an end above the start", "sys.exit(1)", "os.abort()"),
    ("an end above the start", "sys.exit(1)", "quit(1)"),
    ("a download", "os.path.exists(path)", "os.path.isdir(path)"),
    ("a download", "os.path.exists(path)", "Path(path).is_dir()"),
    ("a download", 'open(path, "wb")', 'gzip.open(path, "wb")'),
    ("a file that is written in each epoch", "gzip.open", "lzma.open"),
    ("a file that is moved and read", "shutil.move", "os.symlink"),
    ("a file that is moved and read", "shutil.move", "os.link"),
    ("a file above the start", "touch", "chmod"),
    ("a file above the start", "touch", "replace"),
    ("a file above the start", "touch", "symlink_to"),
]
UNKNOWN = {
    "append": "index",
    "sys.exit(1)": "os.getpid()",
    "os.path.exists(path)": "len(path)",
    'open(path, "wb")': 'str(path, "wb")',
    "gzip.open": "io.StringIO",
    "pickle.dump": "print",
    "shutil.move": "print",
    "touch": "exists",
}


def shown(conversion: Conversion) -> tuple[list[str], list[tuple[str, int, str]]]:
    """What becomes of a program: its text and what is said of it."""
    said = [(it.rule, it.location.span.line, it.message) for it in conversion.findings]
    return [change.after for change in conversion.changes], said


@pytest.mark.parametrize(("name", "known", "other"), OTHER_NAMES, ids=lambda it: it)
def test_another_name_of_the_same_changes_nothing(name: str, known: str, other: str) -> None:
    program = PROGRAMS[name]
    assert program.count(known) == 1
    found = shown(convert(Project.of({PATH: program})))
    texts, said = shown(convert(Project.of({PATH: program.replace(known, other)})))
    assert [text.replace(other, known) for text in texts] == found[0] != []
    assert [(*place, message.replace(other, known)) for *place, message in said] == found[1]
    texts, said = shown(convert(Project.of({PATH: program.replace(known, UNKNOWN[known])})))
    assert (
        [text.replace(UNKNOWN[known], known) for text in texts],
        said,
    ) != found, "the name says nothing here"
