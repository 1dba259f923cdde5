"""Following values: what must not multiply."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.analyse.link import Program
from dp2ddp.source import Project

LOOP = """\
import pandas
import numpy as np


def turn(frame):
    while True:
        frame = frame.drop() if frame.empty() else frame.dropna()
        frame = frame.sort() if frame.empty() else frame.join()
        frame = frame.head() if frame.empty() else other(frame)


def other(frame):
    array = np.random.rand(3)
    for _ in range(3):
        array = array.take() if frame else array.repeat()
        array = array.ravel() if frame else array.clip()
    return turn(frame.copy(array))


turn(pandas.read_csv("x"))
"""


def test_chains_of_methods_in_loops_end() -> None:
    path = Path("/example/a.py")
    project = Project.of({path: LOOP})
    program = Program(project, [project.files[path]])
    assert max(len(program.values(node)) for node in program.nodes.values()) < 200
    assert any(program.values(node) for node in program.nodes.values())
