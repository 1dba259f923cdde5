"""The same comparison against the real nn.DataParallel, where there are two or more GPUs."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest
import torch

from parity import compare
from parity.harness import BATCH, SAMPLES, SHAPES, Lab, Shape

pytestmark = pytest.mark.gpu
RESULTS = Path(__file__).resolve().parents[1] / "results"


def note(shape: str, numbers: dict) -> None:
    """Put `numbers` into this machine's results file, beside what other shapes put there."""
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    name = f"{len(gpus)}x-{gpus[0]}-torch-{torch.__version__}".replace(" ", "-").replace("/", "-")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    results = json.loads(path.read_text()) if path.exists() else {"shapes": {}}
    results |= {
        "gpus": gpus,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }
    results["shapes"][shape] = numbers
    path.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_two_gpus_make_dataparallel_s_steps(lab: Lab, shape: Shape, launcher: str) -> None:
    """nn.DataParallel on two GPUs and two NCCL ranks, in float64, on the same samples."""
    env = {"CUDA_VISIBLE_DEVICES": "0,1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    script = lab.converted(shape.name) / "train.py"
    after = lab.run(script, lab.arguments(), launcher=launcher, processes=2, env=env, timeout=300).ok()
    before = lab.run(
        shape.before / "train.py",
        lab.arguments(),
        launcher="plain",
        env=env,
        plan=str(lab.plan(after)),
        timeout=300,
    ).ok()
    order = compare.order(after.ranks, samples=SAMPLES, batch=BATCH, drop_last=shape.drop_last)
    found = compare.training(before.ranks[0], after.ranks, losses=1e-9, parameters=1e-11, first=20)
    pairs = zip(before.ranks[0]["parameters"], after.ranks[0]["parameters"], strict=True)
    note(
        f"{shape.name}, {launcher}",
        {
            "steps": before.ranks[0]["steps"],
            "largest loss difference": max(
                abs(one - other)
                for one, other in zip(
                    before.ranks[0]["losses"], compare.global_losses(after.ranks), strict=True
                )
            ),
            "largest parameter difference": max((one - other).abs().max().item() for one, other in pairs),
            "differences": order + found,
        },
    )
    assert order + found == []
