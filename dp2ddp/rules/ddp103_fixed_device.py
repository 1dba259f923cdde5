"""Code names a GPU by its index: ``"cuda:0"``, ``.cuda(0)``, a checkpoint loaded without ``map_location``.

Each rank has its own device, ``ddp.device()``: the GPU of its local rank, or the CPU if there is none. ``"cuda"`` and
``.cuda()`` stay: they mean the current GPU, which the runtime sets on every rank. ``torch.load`` without
``map_location`` would put every rank's copy on the GPU that saved it; what was saved on the CPU stays there.
``set_device`` is removed. A GPU that a configuration file names is the rank's own, too, and the CPU stays the CPU:
``ddp.device(config["device"])``. In code that a distributed branch of the program shares, its ranks keep their device:
``ddp.device(args.gpu)``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Device, Facts
from dp2ddp.plan import Anchor, Edit, Finding, Insert, Remove, Replace, SetArgument, finding, runtime_import

MESSAGES = {
    "device": ("this names the same device on every rank", "now each rank's own"),
    "either": ("both branches name the same device on every rank", "now each rank's own"),
    "named": ("a file may name the same GPU for every rank", "a GPU is now each rank's own"),
    "number": ("this GPU number is the same on every rank", "now each rank's own"),
    "name": ("this names the same GPU on every rank", "now each rank's own"),
    "cuda": ("this moves to the same GPU on every rank", "now to each rank's own"),
    "type": ("this checks for one certain GPU", "now for any GPU"),
    "load": (
        "without map_location every rank loads this to the GPU it was saved from",
        "map_location added: now to each rank's own",
    ),
    "current": ("this binds every rank to the same GPU", "removed: each rank has its own GPU"),
}
EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.cuda.set_device(0)
model = nn.Linear(8, 2).cuda()
model.load_state_dict(torch.load("start.pt"))
model = nn.DataParallel(model)
criterion = nn.CrossEntropyLoss().to("cuda:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda(non_blocking=True)), targets.cuda(0)).backward()
        optimizer.step()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for device in facts.devices:
        if device.kind in MESSAGES:
            yield finding(device.at, *MESSAGES[device.kind], tuple(_edits(device)))


def _edits(device: Device) -> Iterator[Edit]:
    ddp: dict[str, Anchor | str] = {"ddp": device.ddp}
    if device.beside:
        yield from _kept(device, ddp)
        return
    match device.kind:
        case "device":
            yield Replace(device.at, "{ddp}.device()", ddp)
        case "named" if device.operand is not None:
            yield Replace(device.at, "{ddp}.device({named})", {**ddp, "named": device.operand})
        case "number":
            yield Replace(device.at, "{ddp}.device().index", ddp)
        case "either" if device.operand is not None:
            yield Insert(device.at, "{target} = {ddp}.device()", {**ddp, "target": device.operand})
            yield Remove(device.at)
        case "type" if device.operand is not None:
            yield Replace(device.at, '{x}.type == "cuda"', {"x": device.operand})
        case "name":
            yield Replace(device.at, '"cuda"')
        case "cuda" if device.extra is not None and device.operand is not None:
            holes = {**ddp, "x": device.operand, "blocking": device.extra}
            yield Replace(device.at, "{x}.to({ddp}.device(), non_blocking={blocking})", holes)
        case "cuda" if device.operand is not None:
            yield Replace(device.at, "{x}.to({ddp}.device())", {**ddp, "x": device.operand})
        case "load":
            yield SetArgument(device.at, "map_location", "{ddp}.map_location", ddp, position=1)
        case "current":
            yield Remove(device.at)
    if device.kind in ("device", "named", "number", "either", "cuda", "load"):
        yield runtime_import(device.path, device.ddp)


def _kept(device: Device, holes: dict[str, Anchor | str]) -> Iterator[Edit]:
    """The device of this rank, and what is named there for ranks that the program starts by itself."""
    yield runtime_import(device.path, device.ddp)
    match device.kind:
        case "device":
            yield Replace(device.at, "{ddp}.device({named})", {**holes, "named": device.at})
        case "name":
            yield Replace(device.at, "str({ddp}.device({named}))", {**holes, "named": device.at})
        case "cuda" if device.operand is not None and device.number is not None:
            blocking = ", non_blocking={blocking}" if device.extra is not None else ""
            holes = {**holes, "x": device.operand, "named": device.number, "blocking": device.extra or ""}
            yield Replace(device.at, "{x}.to({ddp}.device({named})" + blocking + ")", holes)
        case "current" if device.operand is not None:
            yield Insert(device.at, "{ddp}.set_device({named})", {**holes, "named": device.operand})
            yield Remove(device.at)
