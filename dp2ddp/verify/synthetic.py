"""torchvision's data sets as small ones of the same shapes, for a machine that does not have them.

The classes stay: only what they read is replaced, so that type checks, attributes and transforms find what they expect.
Images are noise whose brightness follows from the label.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

TRAIN, TEST = 270, 157
"""How many samples there are: so many that last batches are smaller, and parts uneven."""


def replace() -> None:
    """Put small data into torchvision's data sets: MNIST's and CIFAR's kinds, SVHN, STL10, folders of images."""
    try:
        datasets = importlib.import_module("torchvision.datasets")
    except ModuleNotFoundError:
        return
    datasets.MNIST.__init__ = _mnist
    datasets.CIFAR10.__init__ = _cifar
    datasets.SVHN.__init__ = _by_split((3, 32, 32), 10)
    of_split = _by_split((3, 96, 96), 10)
    datasets.STL10.__init__ = lambda self, root, split="train", folds=None, *rest, **options: of_split(
        self, root, split, *rest, **options
    )
    datasets.ImageFolder.__init__ = _folder
    datasets.ImageNet.__init__ = _imagenet


def images(count: int, shape: tuple[int, ...], classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So many images of bytes, and their labels; always the same, and no draw from the global generators."""
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(classes, (count,), generator=generator, device="cpu")
    noise = torch.randint(128, (count, *shape), generator=generator, device="cpu")
    bright = (labels * 127 // max(1, classes - 1)).reshape(-1, *[1] * len(shape))
    return (noise + bright).to(torch.uint8), labels


def _base(dataset: Any, root: Any, options: dict[str, Any]) -> None:
    vision = importlib.import_module("torchvision.datasets").VisionDataset
    kept = {
        name: options[name] for name in ("transforms", "transform", "target_transform") if name in options
    }
    vision.__init__(dataset, root, **kept)


def _mnist(
    self: Any,
    root: Any,
    train: bool = True,
    transform: Any = None,
    target_transform: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    _base(self, root, {"transform": transform, "target_transform": target_transform})
    self.train = train
    self.data, self.targets = images(TRAIN if train else TEST, (28, 28), 10)


def _cifar(
    self: Any,
    root: Any,
    train: bool = True,
    transform: Any = None,
    target_transform: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    _base(self, root, {"transform": transform, "target_transform": target_transform})
    self.train = train
    count = 100 if type(self).__name__ == "CIFAR100" else 10
    data, labels = images(TRAIN if train else TEST, (32, 32, 3), count)
    self.data, self.targets = data.numpy(), labels.tolist()
    self.classes = [str(number) for number in range(count)]
    self.class_to_idx = {name: number for number, name in enumerate(self.classes)}


def _by_split(shape: tuple[int, ...], classes: int) -> Any:
    def made(
        self: Any,
        root: Any,
        split: str = "train",
        transform: Any = None,
        target_transform: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        _base(self, root, {"transform": transform, "target_transform": target_transform})
        data, labels = images(TEST if split == "test" else TRAIN, shape, classes)
        self.split, self.data, self.labels = split, data.numpy(), labels.numpy()

    return made


def _folder(
    self: Any, root: Any, transform: Any = None, target_transform: Any = None, *_: Any, **__: Any
) -> None:
    _base(self, root, {"transform": transform, "target_transform": target_transform})
    count = TEST if any(word in str(root).lower() for word in ("val", "test")) else TRAIN
    pictures, labels = images(count, (224, 224, 3), 10)
    self.classes = [str(number) for number in range(10)]
    self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
    self.samples = self.imgs = [(f"{place}.png", int(label)) for place, label in enumerate(labels)]
    self.targets = [label for _, label in self.samples]
    self.extensions = (".png",)
    self.loader = _Picture(pictures)


def _imagenet(self: Any, root: Any, split: str = "train", **options: Any) -> None:
    _folder(self, f"{root}/{split}", **options)
    self.split = split


class _Picture:
    """Opens a picture by its name."""

    def __init__(self, pictures: torch.Tensor) -> None:
        self.pictures = pictures

    def __call__(self, path: str) -> Any:
        image = importlib.import_module("PIL.Image")
        return image.fromarray(self.pictures[int(str(path).split(".")[0])].numpy())
