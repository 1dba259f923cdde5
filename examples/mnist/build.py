"""Rebuild this example: `MNIST_ROOT=/folder/of/mnist python examples/mnist/build.py`.

Converts `before.py`, which is the fixture "main" as people wrote it, to `after.py` and `train.diff`. Then trains both
for one epoch of the real MNIST, `after.py` on two processes and `before.py` as DataParallel on two replicas with the
batches that the two processes drew, and draws both loss curves (`loss.png`). Needs `pip install '.[examples]'`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import mnist  # noqa: E402
from parity.harness import Lab  # noqa: E402

INK, MUTED, BEFORE, AFTER = "#24292f", "#6e7781", "#d1d9e0", "#0969da"


def convert() -> None:
    """Write `before.py`, `after.py` and `train.diff`."""
    text = (ROOT / "fixtures" / "main" / "before" / "train.py").read_text()
    (HERE / "before.py").write_text(text)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(text)
        command = [sys.executable, "-m", "dp2ddp", "convert", "train.py"]
        diff = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
        (HERE / "train.diff").write_bytes(diff.stdout)
        subprocess.run([*command, "--inplace"], cwd=folder, check=True, capture_output=True)
        (HERE / "after.py").write_text(script.read_text())


def train(folder: Path) -> tuple[list[float], list[float]]:
    """The loss of every step of one epoch, before and after: of whole batches, in float32."""
    root = mnist.real_root()
    if root is None:
        sys.exit("set MNIST_ROOT to the folder that holds the real MNIST (MNIST/raw/train-images-idx3-ubyte …)")
    lab = Lab(folder)
    try:
        arguments = ["--data", str(root), "--epochs", "1"]
        settings = {"float64": False, "parameters": "last", "timeout": 280}
        after = lab.run(HERE / "after.py", arguments, launcher="plain", processes=2, **settings).ok()
        plan = str(lab.plan(after))
        before = lab.run(HERE / "before.py", arguments, replicas=2, plan=plan, **settings).ok()
    finally:
        lab.close()
    ranks = [notes["losses"] for notes in after.ranks]
    print(before.printed.splitlines()[-1], "(before)", after.printed.splitlines()[-1], "(after)")
    return before.ranks[0]["losses"], [sum(losses) / len(losses) for losses in zip(*ranks, strict=True)]


def draw(before: list[float], after: list[float]) -> None:
    """Both curves, the first wide and pale under the second, and their difference."""
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10, "text.color": INK, "axes.edgecolor": MUTED})
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(8, 4.6), dpi=150, sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    steps = range(1, len(before) + 1)
    top.plot(steps, before, color=BEFORE, linewidth=5, label="before: nn.DataParallel, two replicas (emulated)")
    top.plot(steps, after, color=AFTER, linewidth=1, label="after: DistributedDataParallel, two processes")
    top.set_ylabel("training loss")
    top.set_title("One epoch of MNIST, the same batches: the curves lie on each other", loc="left", fontsize=11)
    top.legend(frameon=False)
    differences = [abs(one - other) for one, other in zip(before, after, strict=True)]
    bottom.plot(steps, differences, color=INK, linewidth=0.8)
    bottom.set_ylabel("difference")
    bottom.set_xlabel("step")
    bottom.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    for axes in (top, bottom):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=MUTED)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
    figure.savefig(HERE / "loss.png")
    print(f"largest difference of a loss over {len(before)} steps: {max(differences):.1e}")


if __name__ == "__main__":
    convert()
    with tempfile.TemporaryDirectory() as folder:
        draw(*train(Path(folder)))
