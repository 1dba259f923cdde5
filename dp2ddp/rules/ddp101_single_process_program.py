"""A program trains with nn.DataParallel in a single process.

DistributedDataParallel needs one process (rank) per GPU. ``ddp.launch(main)`` starts the ranks and runs ``main`` in
each; where the training code is not a function, or devices are chosen first, ``ddp.init()`` is put before the first
side effect instead. Everything above that line also runs in the process that starts the ranks, so only imports,
definitions and options may be there. A program that chooses its devices later calls ``ddp.use_devices(ids)`` there:
ranks without a device end. Under ``torchrun`` both join the ranks that it started, and hide its environment variables
from the program; with one GPU or none both simply continue in this process.

If an option makes the program start its own ranks, that distributed branch stays as it is:
``ddp.init(enabled=not args.distributed)`` does nothing there. With ``own_ranks=True`` the program may read torchrun's
environment variables.
"""

from collections.abc import Iterator

from dp2ddp.facts import Aside, Facts, Late, Script
from dp2ddp.plan import AddImport, Anchor, Finding, Insert, Replace, finding, runtime_import
from dp2ddp.tiers import trouble

EXAMPLES = (
    """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def main():
    model = nn.DataParallel(nn.Linear(8, 2).cuda())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs.cuda()), targets.cuda()).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
""",
)

OPTIONS = (
    "devices",
    "num_machines",
    "machine_rank",
    "dist_url",
    "processes",
    "backend",
    "timeout",
    "own_ranks",
)
"""What ``launch`` keeps for itself, and does not pass on."""


def check(facts: Facts) -> Iterator[Finding]:
    found = (it for script in facts.scripts for it in _findings(facts, script))
    yield from {(it.location, it.message): it for it in found}.values()  # programs may start at one place


def _findings(facts: Facts, script: Script) -> Iterator[Finding]:
    if script.problem:
        yield from trouble(facts, script)
    elif not script.done:
        yield finding(
            script.at, "this program trains in a single process", "now one process per GPU", _edits(script)
        )
        yield from map(_chosen_late, script.late)
        yield from map(_standing_aside, script.asides)


def _chosen_late(late: Late) -> Finding:
    holes = {"ddp": late.ddp, "devices": late.devices}
    edits = (
        Insert(late.at, "{ddp}.use_devices({devices})", holes, after=late.after),
        runtime_import(late.path, late.ddp),
    )
    return finding(
        late.at,
        "every rank would use all GPUs that this line selects",
        "now each rank takes one of them",
        edits,
    )


def _standing_aside(aside: Aside) -> Finding:
    stands = f"if {aside.condition}:\n    {{ddp}}.stand_aside()"
    edits = (
        Insert(aside.at, stands, {"ddp": aside.ddp}, after=aside.after),
        runtime_import(aside.path, aside.ddp),
    )
    return finding(
        aside.at,
        "from here on the program may start its own ranks (distributed branch)",
        "then dp2ddp starts none: `stand_aside()` added",
        edits,
    )


def _edits(script: Script) -> tuple:
    holes: dict[str, Anchor | str] = {"ddp": script.ddp}
    given = []
    for index, (prefix, argument) in enumerate(script.arguments):
        holes[f"a{index}"] = argument
        given.append(f"{prefix}{{a{index}}}")
    if script.devices is not None:
        holes["devices"] = script.devices
        given.append("devices={devices}")
    if script.own_ranks:
        given.append("own_ranks=True")
    if script.enabled:
        given.append(f"enabled={script.enabled}")
    imports = (AddImport(script.path, statement) for statement in script.imports)
    added = (runtime_import(script.path, script.ddp), *imports)
    if script.function is None:
        return (Insert(script.at, f"{{ddp}}.init({', '.join(given)})", holes), *added)
    holes["main"] = script.function
    own = given[len(script.arguments) :]
    passed = given[: len(script.arguments)]
    if any(prefix == "**" or prefix.removesuffix("=") in OPTIONS for prefix, _ in script.arguments):
        call = [f"lambda: {{main}}({', '.join(passed)})"]
    else:
        call = ["{main}", *passed]
    return (Replace(script.at, f"{{ddp}}.launch({', '.join([*call, *own])})", holes), *added)
