"""apex is used for something that torch has built in.

Mixed precision at apex's level O1 becomes torch's: every forward and the loss run under ``torch.autocast``, and a
``torch.amp.GradScaler`` scales the loss and makes the steps. Gradients are unscaled before they are clipped. It is
converted where all of its use can be followed. Otherwise apex stays, and a note says why: a level that an option
chooses, O2 and O3 (the model itself in half precision), a fixed scale, several models, optimizers or losses. New
checkpoints hold the state of torch's scaler; it can't read a checkpoint with apex's.

Newer versions of apex have no DistributedDataParallel. A branch that starts its own ranks gets torch's instead: with
``broadcast_buffers=False``, as apex's leaves buffers alone, and ``find_unused_parameters=True``, as apex's does not
wait for missing gradients. ``message_size`` and ``delay_allreduce`` only say when gradients are sent, and are dropped.
apex's stays, and a note says why, where torch's does something else: ``gradient_average=False``,
``disable_allreduce()``, activation checkpointing, several forwards or backward passes in a step, a frozen model, layers
that are trained from a later step on. ``apex.parallel.convert_syncbn_model`` becomes
``torch.nn.SyncBatchNorm.convert_sync_batchnorm``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, Precision
from dp2ddp.plan import (
    AddImport,
    AddParameter,
    Anchor,
    DropImport,
    Edit,
    Enclose,
    Finding,
    Insert,
    Remove,
    Replace,
    SetArgument,
    finding,
)

EXAMPLES = (
    """\
import torch
from apex import amp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, criterion, optimizer):
    for inputs, targets in loader:
        outputs = model(inputs.cuda())
        loss = criterion(outputs, targets.cuda())
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()


def main():
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model = nn.Linear(8, 2).cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    model = nn.DataParallel(model)
    for epoch in range(2):
        train(model, loader, criterion, optimizer)


if __name__ == "__main__":
    main()
""",
    """\
import argparse

import apex
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)


def main():
    args = parser.parse_args()
    if args.local_rank != -1:
        torch.cuda.set_device(args.local_rank)
        torch.distributed.init_process_group("nccl")
    model = nn.Linear(8, 2).cuda()
    data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    if args.local_rank != -1:
        model = apex.parallel.DistributedDataParallel(model, delay_allreduce=True)
        sampler = DistributedSampler(data)
    else:
        model = nn.DataParallel(model)
        sampler = None
    loader = DataLoader(data, batch_size=16, shuffle=sampler is None, sampler=sampler)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs.cuda()), targets.cuda())
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
""",
)

WRAP = "torch.nn.parallel.DistributedDataParallel"
# As apex's does it: buffers are each rank's own, and a parameter that no loss reaches is none to wait for.
ARGUMENTS = "broadcast_buffers=False, find_unused_parameters=True"
SAID = {
    "start": "this is mixed precision by apex",
    "forward": "this runs in apex's mixed precision",
    "scale": "apex scales the loss here",
    "step": "apex unscales the gradients before this step",
    "unscale": "apex unscales the gradients before this line",
    "parameters": "apex lists the parameters of the optimizer",
    "state": "this is the state of apex's loss scaler",
    "parameter": "a loss is scaled in this function",
    "argument": "the called function scales a loss",
    "norms": "torch has the layers that apex makes here",
    "wrap": "apex's DistributedDataParallel wraps a model here",
    "class": "this is apex's DistributedDataParallel",
    "imports": "apex is not needed any more",
    "guard": "apex is not needed any more",
}


def check(facts: Facts) -> Iterator[Finding]:
    for piece in facts.precision:
        done = "removed" if piece.kind in ("imports", "guard") else "now torch's own"
        yield finding(piece.at, SAID[piece.kind], done, tuple(_edits(piece)))


def _edits(piece: Precision) -> Iterator[Edit]:
    holes: dict[str, Anchor | str] = {"scaler": piece.scaler}
    holes |= {name: hole for name in ("model", "optimizer") if (hole := getattr(piece, name)) is not None}
    enabled = f", enabled={piece.enabled}" if piece.enabled else ""
    match piece.kind:
        case "start":
            assert piece.last is not None
            yield AddImport(piece.path, "import torch")
            yield Insert(piece.last, f'{{scaler}} = torch.amp.GradScaler("cuda"{enabled})', holes, after=True)
            if piece.call is None:
                yield Remove(piece.at)
            else:
                yield Replace(piece.call, "{model}, {optimizer}", holes)
        case "forward":
            assert piece.last is not None
            yield AddImport(piece.path, "import torch")
            yield Enclose(piece.at, piece.last, f'with torch.autocast("cuda"{enabled}{piece.given}):')
        case "scale":
            yield Insert(piece.at, f"{{scaler}}.scale({{model}}).backward{piece.given}", holes)
            yield Remove(piece.at)
        case "unscale":
            yield Insert(piece.at, "{scaler}.unscale_({optimizer})", holes)
        case "step":
            assert piece.call is not None
            yield Replace(piece.call, "{scaler}.step({optimizer})", holes)
            yield Insert(piece.at, "{scaler}.update()", holes, after=True)
        case "parameters":
            own = '(it for group in {optimizer}.param_groups for it in group["params"])'
            yield Replace(piece.at, f"{piece.given}.parameters()" if piece.given else own, holes)
        case "state":
            yield Replace(piece.at, f"{{scaler}}.{piece.given.rpartition('.')[2]}", holes)
        case "parameter":
            yield AddParameter(piece.at, piece.scaler, piece.given)
        case "argument":
            yield SetArgument(piece.at, piece.scaler, "{scaler}", holes)
        case "norms":
            yield AddImport(piece.path, "import torch")
            yield Replace(piece.at, "torch.nn.SyncBatchNorm.convert_sync_batchnorm")
        case "wrap":
            holes |= {"class": piece.call or WRAP}
            yield AddImport(piece.path, "import torch")
            yield Replace(piece.at, f"{{class}}({{model}}, {ARGUMENTS})", holes)
        case "class":
            yield AddImport(piece.path, "import torch")
            yield Replace(piece.at, WRAP)
        case "imports":
            for name in piece.names:
                yield DropImport(piece.path, name)
        case "guard":
            yield Remove(piece.at)
