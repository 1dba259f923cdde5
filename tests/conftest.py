"""What all tests share: the lab that runs programs, and who may be skipped, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import mnist
import pytest
import sampled
import torch
from parity.harness import Lab

STAND_INS = Path(__file__).parent / "stand_ins"


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update`` writes generated files (fixtures' ``after/``, parts of the READMEs) anew."""
    parser.addoption("--update", action="store_true", help="write generated files anew")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Runs fixtures before and after their conversion, each run once per session, with what stands in for packages."""
    paths = (str(STAND_INS), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.close()


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    """What a test sets in this process, no other one finds: verify's runs in double precision do."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.hookimpl(tryfirst=True)  # before pytest looks for the marks that it was asked for
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is long to `-m slow`; skip what this machine cannot show."""
    parts = any("::" in argument for argument in config.args) or config.getoption("lf", False)
    sampled.mark_the_rest(items, whole=not parts)
    gpus = torch.cuda.device_count()
    for item in items:
        if item.get_closest_marker("gpu") and gpus < 2:
            item.add_marker(pytest.mark.skip(reason=f"needs two GPUs, this machine has {gpus}"))
        if item.get_closest_marker("mnist") and mnist.real_root() is None:
            item.add_marker(pytest.mark.skip(reason="needs the real MNIST: set MNIST_ROOT to its folder"))
