"""Files, directories, logs or plots would be written by every rank.

Only the main process writes: ``if ddp.is_main_process():``. Writer objects are made on the main process,
``ddp.on_main_process(SummaryWriter)(folder)``, and the other ranks get a stand-in that accepts any call; a tracker that
is a module (wandb) gets one line after its import. On the other ranks ``ddp.open`` opens a file that discards what is
written. So their uses stay as they are. ``ddp.input`` asks once for all ranks. A folder that one rank of each
machine writes into is made on each machine, with ``exist_ok=True``.
"""

from collections.abc import Iterator

from dp2ddp.facts import Effect, Facts
from dp2ddp.plan import Edit, Enclose, Finding, Insert, Replace, finding, runtime_import

TIES = False
IGNORABLE = True

EXAMPLES = (
    """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if not os.path.isdir("plots"):
    os.mkdir("plots")
log = open("log.txt", "w")
model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        criterion(model(inputs.cuda()), targets.cuda()).backward()
        optimizer.step()
    log.write(f"epoch {epoch} done")
log.close()
""",
)


def check(facts: Facts) -> Iterator[Finding]:
    for effect in facts.effects:
        if effect.kind == "save":
            continue
        if effect.kind == "folder":
            yield finding(
                effect.at,
                f"another rank may create the folder before `{effect.what}`",
                "`exist_ok=True` added",
                _folder(effect),
            )
            continue
        edits = (*_edits(effect), runtime_import(effect.path, effect.ddp))
        done = (
            "now on rank 0, which sends the result to the others"
            if effect.kind in ("answer", "input")
            else "now on rank 0 only"
        )
        where = f" (line {effect.line})" if effect.line not in (0, effect.at.span.line) else ""
        yield finding(effect.at, f"`{effect.what}`{where} would run on every rank", done, edits)


def _folder(effect: Effect) -> tuple[Edit, ...]:
    given = [f"{prefix}{{a{index}}}" for index, (prefix, _) in enumerate(effect.arguments)]
    holes = {f"a{index}": argument for index, (_, argument) in enumerate(effect.arguments)}
    made = "{owner}.makedirs" if effect.what == "os.mkdir()" else "{owner}"
    template = f"{made}({', '.join([*given, 'exist_ok=True'])})"
    return (Replace(effect.at, template, {**holes, "owner": effect.operand or effect.at}),)


def _edits(effect: Effect) -> Iterator[Edit]:
    ddp = {"ddp": effect.ddp}
    match effect.kind:
        case "test":
            yield Replace(effect.at, "{ddp}.is_main_process() and {test}", {**ddp, "test": effect.at})
        case "writer":
            yield Replace(effect.at, "{ddp}.on_main_process({made})", {**ddp, "made": effect.at})
        case "tracker":
            template = f"{effect.what} = {{ddp}}.on_main_process({effect.what})"
            yield Insert(effect.last or effect.at, template, ddp, after=True)
        case "answer":
            template = "{ddp}.from_main_process({call} if {ddp}.is_main_process() else None)"
            yield Replace(effect.at, template, {**ddp, "call": effect.at})
        case "input":
            yield Replace(effect.at, "{ddp}.input", ddp)
        case "open" if effect.operand is None:
            yield Replace(effect.at, "{ddp}.open", ddp)
        case "open":
            given = [f"{prefix}{{a{index}}}" for index, (prefix, _) in enumerate(effect.arguments)]
            holes = {f"a{index}": argument for index, (_, argument) in enumerate(effect.arguments)}
            template = f"{{ddp}}.open({', '.join(['{path}', *given])})"
            yield Replace(effect.at, template, {**ddp, **holes, "path": effect.operand})
        case _:
            yield Enclose(effect.at, effect.last or effect.at, "if {ddp}.is_main_process():", ddp)
