"""A program that trains a converted model and starts no ranks: only another one was converted with the model."""

from __future__ import annotations

import os
import sys

import torch

from . import lines, messages, ranks

_said = False


def report() -> None:
    """Say once that this process trains alone on one of several GPUs, if nothing was started or said for that."""
    global _said
    if _said or not torch.is_grad_enabled():
        return
    _said = True
    known = ranks.place() is not None or ranks.has_group() or ranks.has_begun()
    if known or ranks.stands_aside() or ranks.is_helper() or torch.cuda.device_count() < 2:
        return
    program = os.path.basename(sys.argv[0]) or "this program"
    messages.say(
        f"{lines.site()} trains on 1 of {torch.cuda.device_count()} GPUs: {program} starts no other ranks. "
        "Convert it, too, or start it by torchrun"
    )
