"""What takes any use and does nothing, where another rank has the writer."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import types

import numpy
import pytest
import torch

from dp2ddp.runtime import on_main_process
from dp2ddp.runtime import stand_in as module
from dp2ddp.runtime.stand_in import StandIn


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.ranks, "is_main_process", lambda: False)


def test_the_main_process_has_the_thing_itself() -> None:
    assert on_main_process(dict) is dict and on_main_process(json) is json


def test_it_takes_any_use(other: None) -> None:
    writer = on_main_process(dict)("runs", flush=1)
    assert isinstance(writer, StandIn) and writer.add_scalar("loss", 1).close() is writer
    with writer as entered:
        assert entered is writer
    assert (
        isinstance(writer["a"]["b"].log({}), StandIn)
        and list(writer) == []
        and [*writer.items()] == []
        and "x" not in writer
    )
    writer["a"] = 1
    del writer["a"]
    writer.step = 3
    assert writer.step == 3 and writer and writer is not None and writer != None  # noqa: E711
    assert os.path.join(writer.log_dir, "a.txt") == "/dev/null/a.txt"
    assert f"{writer} {writer:>3}" and repr(writer) and str(writer.run.id)
    assert copy.deepcopy({"writer": writer})["writer"] is writer
    assert isinstance(pickle.loads(pickle.dumps(writer)), StandIn)
    tracker = on_main_process(types.ModuleType("wandb"))
    assert tracker.init(project="x").log({"a": 1}) is tracker

    @tracker.traced
    def doubled(x: int) -> int:
        return 2 * x

    assert doubled(2) == 4


@pytest.mark.parametrize(
    "use",
    [
        "w > 1",
        "w == 1",
        "w != 0",
        "int(w)",
        "float(w)",
        "1 + w",
        "w / 2",
        "range(w)",
        "[1][w]",
        "len(w[0])",
        "list(w[0])",
        "torch.tensor(w[0])",
        "numpy.asarray(w)",
    ],
)
def test_it_has_no_value_that_decides(other: None, use: str) -> None:
    stand_in = on_main_process(json).dumps(1)
    with pytest.raises(RuntimeError, match=r"on the main process only.*ddp\.from_main_process"):
        eval(use, {"w": stand_in, "torch": torch, "numpy": numpy})


def test_a_log_that_goes_to_a_file_is_a_handler_that_drops_all(other: None, tmp_path: os.PathLike) -> None:
    handler = on_main_process(logging.FileHandler)(f"{tmp_path}/log.txt", mode="w")
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.Logger("any")
    logger.addHandler(handler)
    logger.error("x")
    assert isinstance(handler, logging.Handler) and os.listdir(tmp_path) == []


class File:
    """As h5py's."""

    def __init__(self, name: str, mode: str = "r") -> None:
        self.opened = name, mode


File.__module__, File.__qualname__ = "h5py._hl.files", "File"


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        (("a.h5",), "r"),
        (("a.h5", "r"), "r"),
        (("a.h5", "r+"), "r"),
        (("a.h5", "w"), None),
        (("a.h5", "a"), None),
    ],
)
def test_a_file_that_may_be_read_is_read_on_every_rank(
    other: None, given: tuple[str, ...], opened: str | None
) -> None:
    for file in (
        on_main_process(File)(*given),
        on_main_process(File)(given[0], **dict(zip(["mode"], given[1:], strict=False))),
    ):
        assert isinstance(file, File if opened else StandIn)
        assert opened is None or file.opened == ("a.h5", opened)
