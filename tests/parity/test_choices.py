"""Programs in which options choose whether a model is wrapped: each choice trains as it did, on its devices."""

from __future__ import annotations

import pytest
import torch
from programs import PATH, PROGRAM, WRAP
from torch import nn

from dp2ddp.convert import convert
from dp2ddp.source import Project
from parity.harness import Lab
from parity.test_tier_training import differences, seeded, write

MODEL = "model = nn.Linear(8, 2).cuda()"
OPTIONS = "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--checkpoint')\nargs = parser.parse_args()\n"
RESUMED = f"""\
if args.checkpoint is None:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).cuda()
    {WRAP}
else:
    checkpoint = torch.load(args.checkpoint, weights_only=False)
    model = checkpoint["model"]
"""


def resumed() -> str:
    text = PROGRAM.replace(f"{MODEL}\n{WRAP}\n", RESUMED).replace(
        "import torch\n", f"{OPTIONS}\nimport torch\n", 1
    )
    assert RESUMED in text
    return text.replace("batch_size=16", "batch_size=12") + 'torch.save({"model": model}, "last.pt")\n'


@pytest.mark.parametrize("processes", [2, 3])
def test_a_model_that_was_saved_wrapped_is_wrapped_when_it_is_resumed(lab: Lab, processes: int) -> None:
    """By checkpoints of before the conversion, too, that hold nn.DataParallel."""
    text = seeded(resumed())
    conversion = convert(Project.of({PATH: text}))
    (change,) = conversion.changes
    assert not conversion.errors
    assert "ddp.DataParallel(checkpoint" in change.after and "devices=" not in change.after
    before, after = write(lab, "before", text), write(lab, "after", change.after)
    first = lab.run(before, replicas=processes, timeout=60).ok()
    begun = lab.run(after, processes=processes, timeout=60).ok()
    assert differences(first, begun) == []
    resume = ["--checkpoint", str(first.folder / "last.pt")]
    expected = lab.run(before, resume, replicas=processes, timeout=60).ok()
    bare, old = begun.folder / "last.pt", begun.folder / "old.pt"
    torch.save({"model": nn.DataParallel(torch.load(bare, weights_only=False)["model"])}, old)
    for held in (bare, old):
        found = lab.run(after, ["--checkpoint", str(held)], processes=processes, timeout=60).ok()
        assert len(found.ranks) == processes
        assert differences(expected, found) == []


EXPORTED = """
def export(model):
    torch.jit.script(model).save("module.pt")


def finish(model):
    if not args.parallel:
        export(model)


finish(model)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_a_model_that_is_not_wrapped_by_choice_is_exported_as_it_was(lab: Lab, processes: int) -> None:
    """TorchScript takes no wrapper: under the opposite option the program goes on with the bare model."""
    options = OPTIONS.replace("'--checkpoint'", "'--parallel', action='store_true'")
    text = PROGRAM.replace(WRAP, f"if args.parallel:\n    {WRAP}")
    text = seeded(text.replace("import torch\n", f"{options}\nimport torch\n", 1) + EXPORTED)
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors
    before, after = write(lab, "before", text), write(lab, "after", conversion.changes[0].after)
    chosen = ["--parallel"] if processes > 1 else []
    expected = lab.run(before, chosen, replicas=processes if chosen else None, timeout=60).ok()
    found = lab.run(after, chosen, processes=processes, timeout=60).ok()
    assert differences(expected, found, losses=False) == []
    assert (found.folder / "module.pt").exists() is not bool(chosen)


TWO_MODELS = """\
if len(sys.argv) > 1:
    single = LAYERS.cuda()
    model = nn.DataParallel(single)
else:
    model = LAYERS.cuda()
""".replace("LAYERS", "nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))")


@pytest.mark.parametrize("layers", ["written out", "by a function"])
@pytest.mark.parametrize("chosen", [["--parallel"], []], ids=["wrapped", "bare"])
def test_each_of_two_models_trains_as_it_did_of_which_only_one_is_wrapped(
    lab: Lab, chosen: list[str], layers: str
) -> None:
    text = PROGRAM.replace(f"{MODEL}\n{WRAP}\n", TWO_MODELS).replace(
        "import torch\n", "import sys\n\nimport torch\n", 1
    )
    if layers == "by a function":
        (made,) = {line.split(" = ")[1] for line in TWO_MODELS.splitlines() if "Sequential" in line}
        text = text.replace(made, "make()").replace(
            "data = ", f"def make():\n    return {made}\n\n\ndata = ", 1
        )
    text = seeded(text.replace("shuffle=True", "shuffle=False"))
    conversion = convert(Project.of({PATH: text}))
    assert conversion.scripts[0].tier == "sharded", [it.message for it in conversion.findings]
    before, after = write(lab, "before", text), write(lab, "after", conversion.changes[0].after)
    expected = lab.run(before, chosen, replicas=2 if chosen else None, timeout=60).ok()
    found = lab.run(after, chosen, processes=2, timeout=60).ok()
    assert len(found.ranks) == (2 if chosen else 1)
    assert differences(expected, found, losses=False) == []


# How a program decides whether it wraps, which it asks again where it wants the bare model; and what it asks of that.
COUNTED = "several = torch.cuda.device_count()", "several > 1"
FLAGGED = "several = torch.cuda.is_available() and torch.cuda.device_count() > 1", "several"
BESIDE = (
    """\
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
if args.local_rank == -1:
    args.several = 0 if torch.cuda.device_count() == 0 else torch.cuda.device_count()
else:
    torch.cuda.set_device(args.local_rank)
    torch.distributed.init_process_group(backend="nccl")
    args.several = 1""",
    "args.several > 1",
)
AT_ONCE = "print((model.module.weight if TEST else model.weight).sum().item())"
NAMED = "bare = model.module if TEST else model\nprint(bare.weight.sum().item())"
BRANCHED = "if TEST:\n    bare = model.module\nelse:\n    bare = model\nprint(bare.weight.sum().item())"

SET = (
    "if TEST:\n    model.module.rate = 0.5\nelse:\n    model.rate = 0.5\n"
    "print(getattr(model, 'module', model).rate)"
)
ASKED = {
    "counted, at once": (COUNTED, AT_ONCE),
    "counted, named": (COUNTED, NAMED),
    "a flag, branches": (FLAGGED, BRANCHED),
    "counted, set": (COUNTED, SET),
    "beside, at once": (BESIDE, AT_ONCE),
    "beside, named": (BESIDE, NAMED),
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("decided", "asked"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("processes", [1, 2])
def test_a_condition_that_tells_a_wrapped_model_from_a_bare_one_stays(
    lab: Lab, decided: tuple[str, str], asked: str, processes: int
) -> None:
    """On one GPU, or none, the program goes on with the bare model, as it did."""
    setting, test = decided
    wrap = f"if {test}:\n    {WRAP}"
    if decided is BESIDE:
        wrap += "\nif args.local_rank != -1:\n    model = nn.parallel.DistributedDataParallel(model)"
    text = PROGRAM.replace("import torch\n", "import argparse\n\nimport torch\n", 1)
    text = text.replace(MODEL, f"{setting}\n{MODEL}").replace(WRAP, wrap)
    text = seeded(text.replace("shuffle=True", "shuffle=False") + asked.replace("TEST", test) + "\n")
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors
    before, after = write(lab, "before", text), write(lab, "after", conversion.changes[0].after)
    expected = lab.run(before, replicas=processes if processes > 1 else None, timeout=60).ok()
    found = lab.run(after, processes=processes, timeout=60).ok()
    # Sharded, a rank's loss is that of its part.
    assert [it for it in differences(expected, found) if ": loss " not in it or processes == 1] == []
