"""Pretrained weights are downloaded once on each machine: torch.hub's own downloads, one rank at a time.

A rank that comes while another one downloads the same file waits, and takes that. It is no collective: a model may be
made on some of the ranks only.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import ranks

try:
    import fcntl
except ImportError:  # Windows: each rank downloads into a file of its own, and moves it to its place
    fcntl = None  # type: ignore[assignment]


def begin() -> None:
    """Have ``torch.hub.download_url_to_file`` do so, which torchvision and timm use, too."""
    torchs = torch.hub.download_url_to_file
    if hasattr(torchs, "dp2ddp") or fcntl is None:
        return

    @functools.wraps(torchs)
    def download(url: str, dst: str, *args: Any, **kwargs: Any) -> None:
        was_there = os.path.exists(dst)
        if ranks.get_local_rank() > 0 and not was_there:
            time.sleep(0.5)  # the main process shows how far it is: let it be first
        with _alone(f"{dst}.lock"):
            if was_there or not os.path.exists(dst):
                torchs(url, dst, *args, **kwargs)

    download.dp2ddp = True  # type: ignore[attr-defined]
    torch.hub.download_url_to_file = download


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Hold a lock among this machine's processes, where the file system has such."""
    try:
        file = open(path, "w")
    except OSError:  # a folder that is not there: `torchs` says so
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # it has none
            pass
        yield
