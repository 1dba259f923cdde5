"""Make a small data set in MNIST's own IDX files, and find the real one.

`write(root)` fills `root/MNIST/raw` with the four files torchvision looks for, so that
`torchvision.datasets.MNIST(root, download=True)` is content without a network. The digits
are ten fixed blurry patterns, shifted and noisy: learnable in a few steps, the same on every machine.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import torch
from torch.nn.functional import interpolate

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def digits(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` images of 28 x 28 bytes and their labels, drawn from ten fixed patterns."""
    patterns = torch.rand(10, 1, 7, 7, generator=torch.Generator().manual_seed(10))
    patterns = interpolate((patterns > 0.6).float(), size=(28, 28), mode="bilinear")[:, 0]
    labels = torch.randint(10, (count,), generator=generator)
    noise = torch.rand(count, 28, 28, generator=generator)
    shifts = torch.randint(-2, 3, (count, 2), generator=generator).tolist()
    images = torch.stack(
        [patterns[label].roll(shift, (0, 1)) for label, shift in zip(labels.tolist(), shifts, strict=True)]
    )
    return (images * 200 + noise * 55).to(torch.uint8), labels.to(torch.uint8)


def write(root: str | Path, train: int = 250, test: int = 150, seed: int = 0) -> Path:
    """Write the four IDX files for `train` and `test` samples under `root`, and return `root`."""
    raw = Path(root) / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    for count, (images_name, labels_name) in ((train, FILES[:2]), (test, FILES[2:])):
        images, labels = digits(count, generator)
        header = struct.pack(">IIII", 0x0803, count, 28, 28)
        (raw / images_name).write_bytes(header + bytes(images.flatten().tolist()))
        (raw / labels_name).write_bytes(struct.pack(">II", 0x0801, count) + bytes(labels.tolist()))
    return Path(root)


def real_root() -> Path | None:
    """The folder that holds the real MNIST: `MNIST_ROOT`, or `shared/data` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    for root in (os.environ.get("MNIST_ROOT"), beside):
        if root and all((Path(root) / "MNIST" / "raw" / name).is_file() for name in FILES):
            return Path(root)
    return None
