"""A wrapped model's state_dict has ``module.`` before every key.

The bare model is saved, ``model.module.state_dict()``, so that a checkpoint loads into a model that is not wrapped.
Loading accepts both: ``ddp.strip_module_prefix`` removes the prefix of old checkpoints, and leaves new ones alone. Code
that cut the prefix off (``key[7:]``, ``key.split(".", 1)[1]``) now removes it only where it is present.
"""

from collections.abc import Iterator

from dp2ddp.facts import Facts, StateDict, Tier
from dp2ddp.plan import Edit, Finding, Replace, Unwrap, bare_model, finding, runtime_import

IGNORABLE = True

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.DataParallel(nn.Linear(8, 2).cuda())
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.load_state_dict(torch.load("start.pt"))
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
""",
)


MESSAGES = {
    "save": ("a wrapped model's state_dict has `module.` before every key", "`.module` added"),
    "either": ("this state_dict has `module.` before every key if the model is wrapped", "`.module` added"),
    "other": ("this state_dict has `module.` before every key if DataParallel wraps the model", "unwrapped"),
    "pickle": ("this pickles the wrapped model", "now the bare model: remove `.module` where it is loaded"),
    "model": ("the bare model is meant here, not the wrapped one", "`.module` added"),
    "load": ("keys of old checkpoints can begin with `module.`", "removed when they are loaded"),
    "forward": ("`model.forward()` bypasses the wrapper", "now calls it"),
    "restored": ("old checkpoints hold the wrapped model, new ones the bare model", "now wrapped"),
    "prefix": (
        "this strips `module.`, which keys of new checkpoints don't have",
        "now only where it is there",
    ),
    "first": (
        "this cuts off each key's first part, `module.`, which keys of new checkpoints don't have",
        "now only `module.`",
    ),
}


def check(facts: Facts) -> Iterator[Finding]:
    for state in facts.states:
        if state.kind in MESSAGES:
            yield finding(state.at, *MESSAGES[state.kind], tuple(_edits(state, facts.tiers(state))))


def _edits(state: StateDict, tiers: frozenset[Tier]) -> Iterator[Edit]:
    holes = {"ddp": state.ddp, "x": state.operand}
    match state.kind:
        case "save" | "model" | "pickle" | "either" | "other":
            yield from bare_model(state.path, state.ddp, state.kind, state.at)
        case "load":
            yield Replace(state.at, "{ddp}.strip_module_prefix({x})", holes)
            yield runtime_import(state.path, state.ddp)
        case "restored":
            name = "DataParallel" if Tier.WHOLE_BATCH in tiers else "DistributedDataParallel"
            yield Replace(state.at, f"{{ddp}}.{name}({{x}})", holes)
            yield runtime_import(state.path, state.ddp)
        case "forward":
            yield Replace(state.at, "{x}", holes)
        case "prefix" | "first":
            yield Replace(state.at, '{x}.removeprefix("module.")', holes)
            if state.guard is not None:
                yield Unwrap(state.guard)
