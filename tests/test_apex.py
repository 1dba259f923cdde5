"""apex's mixed precision becomes torch's where all of it is followed; else nothing of it changes, and a note says why."""

from __future__ import annotations

import pytest
from beside import APEX_RANKS
from beside import PROGRAM as BESIDE
from programs import (
    APEX,
    APEX_CLIP,
    APEX_OPTION,
    APEX_PLAIN,
    APEX_SCALE,
    APEX_START,
    APEX_STEP,
    APEX_TRAINER,
    FORWARD,
    LOOP,
    LOSS,
    OPTIMIZER,
    PATH,
    PROGRAM,
    WRAP,
)

from dp2ddp.changes import Conversion
from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.rules import RULES
from dp2ddp.source import Project

OPTIONS = APEX_OPTION.replace("\n\n", "\nimport torch\n\n", 1)
LEVELS = 'parser.add_argument("--level", default="O1", choices=["O1"])\nargs ='
CHOSEN = """\
        if args.half:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
"""
STAYS = "apex amp stays as it is"


def converted(text: str) -> tuple[str, Conversion]:
    compile(text, "train.py", "exec")
    conversion = convert(Project.of({PATH: text}))
    assert conversion.changes, [finding.message for finding in conversion.findings]
    return conversion.changes[0].after, conversion


def changed(*pairs: tuple[str, str], text: str = APEX_PLAIN) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", APEX)
def test_o1_becomes_torch_s(name: str) -> None:
    after, conversion = converted(APEX[name])
    assert "apex" not in after and "scale_loss" not in after
    assert not [finding for finding in conversion.findings if finding.is_left]


FOLLOWED = {
    "a level by its name": ((APEX_START, 'level = "O1"\n' + APEX_START.replace('"O1"', "level")),),
    "a level that is the only choice": (
        ("import torch\n", OPTIONS.replace("args =", LEVELS, 1)),
        (APEX_START, APEX_START.replace('"O1"', "args.level")),
    ),
    "a level that is apex's default": ((', opt_level="O1"', ""),),
    "arguments that change nothing": (('"O1"', '"O1", loss_scale="dynamic", num_losses=1, verbosity=0'),),
    "enabled by an option": (
        ("import torch\n", OPTIONS),
        ('opt_level="O1"', 'enabled=args.half, opt_level="O1"'),
    ),
    "a condition without anything else": (
        ("import torch\n", OPTIONS),
        (APEX_START, f"if args.half:\n    {APEX_START}"),
        (APEX_SCALE + APEX_CLIP, CHOSEN),
    ),
    "a condition by its name": (
        ("import torch\n", "import torch\nhalf = torch.cuda.is_available()\n"),
        (APEX_START, f"if half:\n    {APEX_START}"),
        (APEX_SCALE + APEX_CLIP, CHOSEN.replace("args.", "")),
    ),
    "an import that may fail": (
        ("from apex import amp\n", "try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n"),
    ),
    "another import of it": (("from apex import amp", "import apex.amp as amp"),),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_o1_is_followed_in_other_words(name: str) -> None:
    after, conversion = converted(changed(*FOLLOWED[name]))
    assert not any(STAYS in finding.message for finding in conversion.findings)
    assert "scaler.scale(loss).backward()" in after and "with torch.autocast(" in after
    assert "amp.initialize" not in after and "scale_loss" not in after


PENALTY = "        loss = loss + torch.autograd.grad(outputs.sum(), outputs)[0].norm()\n"
STAYING = {
    "another level": ((('"O1"', '"O2"'),), "no equivalent of O2"),
    "a level that an option chooses": (
        (
            ("import torch\n", OPTIONS.replace("args =", LEVELS.replace('["O1"]', '["O1", "O2"]'), 1)),
            (APEX_START, APEX_START.replace('"O1"', "args.level")),
        ),
        "isn't known to be O1",
    ),
    "a level that anybody gives": (
        (
            ("import torch\n", OPTIONS.replace("args =", LEVELS.replace(', choices=["O1"]', ""), 1)),
            (APEX_START, APEX_START.replace('"O1"', "args.level")),
        ),
        "isn't known to be O1",
    ),
    "a level that is changed": (
        ((APEX_START, 'level = "O1"\nif data:\n    level = "O2"\n' + APEX_START.replace('"O1"', "level")),),
        "isn't known to be O1",
    ),
    "a fixed scale": ((('"O1"', '"O1", loss_scale=128.0'),), "equivalent of loss_scale=128.0"),
    "several losses": ((('"O1"', '"O1", num_losses=2'),), "equivalent of num_losses=2"),
    "several optimizers": (
        ((f"{APEX_START}", APEX_START.replace("model, optimizer,", "model, [optimizer],")),),
        "",
    ),
    "an optimizer of apex's": (
        (
            ("from apex import amp", "from apex import amp, optimizers"),
            ("torch.optim.SGD(", "optimizers.FusedSGD("),
        ),
        "one torch optimizer",
    ),
    "gradients that are unscaled later": (
        (("scale_loss(loss, optimizer)", "scale_loss(loss, optimizer, delay_unscale=True)"),),
        "for other optimizers, too",
    ),
    "gradients that are looked at in each of several passes": (
        (
            (
                f"{APEX_CLIP}        optimizer.step()",
                f"{APEX_CLIP}        if len(data):\n            optimizer.step()",
            ),
        ),
        "after each of several",
    ),
    "gradients that are added up over steps": ((("        optimizer.zero_grad()\n", ""),), "to be zeroed"),
    "a backward pass that is not scaled": (
        ((LOSS, f"{LOSS}\n        outputs.pow(2).mean().backward(retain_graph=True)"),),
        "",
    ),
    "more than a backward pass": (
        (
            (
                "            scaled_loss.backward()\n",
                "            scaled_loss.backward()\n            print(1)\n",
            ),
        ),
        "is used for more than",
    ),
    "a scaled loss that is used later": (
        (("        optimizer.step()\n", "        optimizer.step()\n        print(scaled_loss.item())\n"),),
        "is used for more than",
    ),
    "two losses in one step": (
        ((APEX_SCALE, APEX_SCALE.replace(".backward()", ".backward(retain_graph=True)") + APEX_SCALE),),
        "",
    ),
    "a step without a scaled loss": (
        (
            (
                APEX_SCALE,
                "        if len(inputs) > 3:\n"
                + APEX_SCALE.replace("        ", "            ", 1).replace(
                    "            sc", "                sc", 1
                ),
            ),
        ),
        "to follow a scaled loss",
    ),
    "a closure": ((("optimizer.step()", "optimizer.step(lambda: loss)"),), "a closure"),
    "a gradient of a gradient": (((LOSS, f"{LOSS}\n{PENALTY.rstrip()}"),), "is used as well"),
    "torch's own": (((FORWARD, f"with torch.autocast('cuda'):\n            {FORWARD}"),), "is used as well"),
    "a function with its own gradient": (
        (("data = ", "class Own(torch.autograd.Function):\n    pass\n\n\ndata = "),),
        "its own precision",
    ),
    "functions that are cast by hand": (
        (("data = ", "amp.register_float_function(torch, 'relu')\ndata = "),),
        "register_float",
    ),
    "something of the project's in its place": (
        (
            (
                "from apex import amp\n",
                "try:\n    from apex import amp\nexcept ImportError:\n    class amp:\n"
                "        def scale_loss(loss, optimizer):\n            return loss\n",
            ),
        ),
        "no equivalent of `amp.scale_loss`",
    ),
    "a condition that changes": (
        (
            ("import torch\n", OPTIONS + "args.half = torch.cuda.is_available()\n"),
            ('opt_level="O1"', 'enabled=args.half, opt_level="O1"'),
        ),
        "when amp is enabled",
    ),
    "whether apex is there": (
        (
            (
                "from apex import amp\n",
                "try:\n    from apex import amp\n\n    half = True\nexcept ImportError:\n    half = False\n",
            ),
            (APEX_START, f"if half:\n    {APEX_START}"),
            (APEX_SCALE + APEX_CLIP, CHOSEN.replace("args.", "")),
        ),
        "when amp is enabled",
    ),
    "a scaled loss without its condition": (
        (("import torch\n", OPTIONS), (APEX_START, f"if args.half:\n    {APEX_START}")),
        "outside the condition",
    ),
    "parameters at another time": (
        ((LOOP, f"print(list(amp.master_params(optimizer)))\n{LOOP}"),),
        "not used between",
    ),
    "a loss computed where it is scaled": (
        ((f"        {LOSS}\n", ""), ("scale_loss(loss,", "scale_loss(criterion(outputs, targets.cuda()),")),
        "computed where it is scaled",
    ),
    "two initializations": (((WRAP, f"{APEX_START}\n{WRAP}"),), "several places"),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_is_not_followed_stays_apex_s(name: str) -> None:
    """None of it changes, and the note says why."""
    pairs, reason = STAYING[name]
    before = changed(*pairs)
    after, conversion = converted(before)
    (said,) = {it.message for it in conversion.findings if STAYS in it.message}
    assert reason in said
    assert "GradScaler" not in after and (after.count("autocast") == before.count("autocast"))
    assert after.count("amp.") == before.count("amp.") and "apex" in after


IN_FUNCTIONS, _ = RULES["DDP107"].examples


def test_the_scaler_comes_to_the_functions_that_need_it() -> None:
    """Behind what they are given already; where some of that may be left out, so may the scaler."""
    after, _ = converted(IN_FUNCTIONS)
    assert "def train(model, loader, criterion, optimizer, scaler):" in after
    assert "train(model, loader, criterion, optimizer, scaler=scaler)" in after
    after, _ = converted(IN_FUNCTIONS.replace("optimizer):\n", "optimizer, clip=1.0):\n"))
    assert "def train(model, loader, criterion, optimizer, clip=1.0, scaler=None):" in after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if __name__", "also = train\n\nif __name__"),
        ("optimizer):\n", "optimizer, **more):\n"),
        ("def train", "@torch.enable_grad()\ndef train"),
    ],
)
def test_a_function_that_may_be_called_otherwise_is_not_given_the_scaler(old: str, new: str) -> None:
    after, conversion = converted(IN_FUNCTIONS.replace(old, new))
    assert any("can't be passed" in finding.message for finding in conversion.findings)
    assert "scaler" not in after and "amp.scale_loss(loss, optimizer)" in after


def test_a_file_that_others_import_keeps_its_functions() -> None:
    other = PATH.with_name("other.py")
    conversion = convert(Project.of({PATH: IN_FUNCTIONS, other: "from train import train\n"}))
    assert any("can't be passed" in finding.message for finding in conversion.findings)


def test_an_import_where_it_is_needed_goes_with_its_complaint() -> None:
    """As in the programs that trained transformers first."""
    complaint = "raise ImportError('Please install apex')"
    start = f"""\
    if args.half:
        try:
            from apex import amp
        except ImportError:
            {complaint}
        {APEX_START}
"""
    text = IN_FUNCTIONS.replace("import torch\n", OPTIONS, 1).replace(f"    {APEX_START}\n", start)
    text = text.replace(APEX_SCALE, CHOSEN)
    after, conversion = converted(text)
    assert not any(STAYS in finding.message for finding in conversion.findings)
    assert "apex" not in after and 'scaler = torch.amp.GradScaler("cuda", enabled=args.half)\n' in after


def with_mixed_precision(*pairs: tuple[str, str]) -> str:
    """The program with a distributed branch, which apex scales the loss of."""
    steps = "            loss.backward()\n            optimizer.step()\n"
    scaled = "".join(f"    {line}\n" for line in APEX_SCALE.splitlines()) + "            optimizer.step()\n"
    started = ("    for epoch", f"    {APEX_START}\n    for epoch")
    imported = ("import argparse\n", "import argparse\nfrom apex import amp, parallel\n")
    return changed(imported, (steps, scaled), started, *pairs, text=BESIDE)


def test_a_distributed_branch_gets_torch_s_mixed_precision_with_torch_s_wrap() -> None:
    ranks = ("nn.parallel.Dist", "parallel.Dist")
    for pairs in ((), (ranks,)):
        after, conversion = converted(with_mixed_precision(*pairs))
        assert not any(STAYS in finding.message for finding in conversion.findings)
        assert "apex" not in after and "scaler.scale(loss).backward()" in after


def test_a_distributed_branch_with_apex_keeps_all_of_it() -> None:
    """That branch stays as it is, and would not find what it needs."""
    summed = (
        "nn.parallel.DistributedDataParallel(model",
        "parallel.DistributedDataParallel(model, gradient_average=False",
    )
    after, conversion = converted(with_mixed_precision(summed))
    assert any("a distributed branch uses it, too" in finding.message for finding in conversion.findings)
    assert "amp.initialize" in after and "amp.scale_loss" in after and "amp, parallel" in after


def test_a_name_that_is_taken_is_left_alone() -> None:
    after, _ = converted(changed(("data = ", "scaler = 3\ndata = ")))
    assert "scaler_2 = torch.amp.GradScaler(" in after and "scaler_2.scale(loss)" in after


def test_a_forward_before_the_start_keeps_its_precision() -> None:
    after, _ = converted(changed((OPTIMIZER, f"first = model(torch.zeros(1, 8).cuda())\n{OPTIMIZER}")))
    assert after.count("torch.autocast(") == 1


def test_a_trainer_s_own_scaler_is_left_alone() -> None:
    _, conversion = converted(
        APEX_TRAINER.replace("self.criterion =", "self.scaler = None\n        self.criterion =")
    )
    assert any("another gradient scaler" in finding.message for finding in conversion.findings)


def test_a_method_that_trains_is_no_forward() -> None:
    """A trainer that is a module itself is converted as any other: autocast does not come round backward passes."""
    base, start = "class Trainer:", "def __init__(self, net):\n"
    module, begun = "class Trainer(nn.Module):", f"{start}        super().__init__()\n"
    after, _ = converted(APEX_TRAINER.replace(base, module).replace(start, begun))
    assert after.replace(module, base).replace(begun, start) == converted(APEX_TRAINER)[0]


@pytest.mark.parametrize(
    "looking",
    [
        "nn.utils.clip_grad_value_(model.parameters(), 0.1)",
        "print(model.module.weight.grad.norm())",
        "tamed(model)",
        "elsewhere.tamed(model)",
    ],
)
def test_gradients_are_unscaled_before_anything_looks_at_them(looking: str) -> None:
    tamed = "import elsewhere\n\n\ndef tamed(net):\n    for it in net.parameters():\n        it.grad /= 2\n\n\ndata = "
    after, _ = converted(changed(("data = ", tamed), (APEX_CLIP, f"        print(1)\n        {looking}\n")))
    assert after.count("unscale_(") == 1
    assert after.index("print(1)") < after.index("unscale_(") < after.rindex(looking.partition("(")[2])


def test_gradients_that_nothing_looks_at_are_unscaled_by_the_step() -> None:
    after, _ = converted(changed((APEX_CLIP, "        print(loss.item())\n")))
    assert "unscale_" not in after


def test_an_elif_stays_one() -> None:
    """autocast comes into it, or round all of its branches."""
    again = "        elif epoch:\n            outputs = model(inputs.cuda())\n"
    for first in ("for _ in range(2):\n                pass", "print(epoch)"):
        text = f"{APEX_STEP}        if not epoch:\n            {first}\n{again}"
        after, _ = converted(changed((APEX_STEP, text)))
        assert after.count("torch.autocast(") == 2 and "elif epoch:" in after


def test_what_is_made_of_outputs_later_is_cast_as_well() -> None:
    """O1 computed a softmax of half precision in single precision, wherever it stood."""
    after, _ = converted(changed((APEX_STEP, f"{APEX_STEP}        shares = F.softmax(outputs, 1)\n")))
    assert '        with torch.autocast("cuda"):\n            shares = F.softmax(outputs, 1)\n' in after


GUARD = "try:\n    import apex\n    from apex import amp\nexcept ImportError:\n    pass\n"
NORMS = "model = apex.parallel.convert_syncbn_model(model)\n"


def test_synchronized_norms_become_torch_s() -> None:
    text = PROGRAM.replace("import torch\n", f"import torch\n{GUARD}", 1).replace(WRAP, NORMS + WRAP)
    after, _ = converted(text)
    assert "model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n" in after
    assert "apex" not in after and "try:" not in after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(model)\n", "(model, process_group=None)\n"),
        (NORMS, NORMS.replace("model)", "model, None)")),
    ],
)
def test_norms_of_some_processes_stay_apex_s(old: str, new: str) -> None:
    text = PROGRAM.replace("import torch\n", f"import torch\n{GUARD}", 1).replace(WRAP, NORMS + WRAP)
    after, _ = converted(text.replace(NORMS, NORMS.replace(old, new)))
    assert "apex.parallel.convert_syncbn_model(model, " in after and GUARD in after


def test_a_guard_that_something_asks_stays() -> None:
    """Where it gives the name another value, or where something else of apex is used."""
    text = PROGRAM.replace("import torch\n", f"import torch\n{GUARD}", 1).replace(WRAP, NORMS + WRAP)
    after, _ = converted(text.replace("    pass\n", "    amp = None\n"))
    assert "except ImportError:\n    amp = None\n" in after
    after, _ = converted(text.replace(OPTIMIZER, f"{OPTIMIZER}\nprint(amp)"))
    assert "    from apex import amp\n" in after


SOFT = "with torch.no_grad():\n            soft = F.softmax(model(inputs.cuda()), 1)\n        " + FORWARD
ASKED = "@torch.no_grad()\ndef softened(net, inputs):\n    return F.softmax(net(inputs), 1)\n\n\ndata = "


@pytest.mark.parametrize(
    "pairs",
    [
        ((FORWARD, SOFT),),
        (("data = ", ASKED), (FORWARD, f"soft = softened(model, inputs.cuda())\n        {FORWARD}")),
    ],
    ids=["a block", "a function"],
)
def test_a_forward_without_gradients_leaves_no_casts_for_the_next(pairs: tuple[tuple[str, str], ...]) -> None:
    """torch before 2.11 takes them, and the parameters get no gradients; apex does not."""
    distilled = LOSS + " - (soft * F.log_softmax(outputs, 1)).sum(1).mean()"
    after, _ = converted(changed(*pairs, (LOSS, distilled)))
    assert 'with torch.autocast("cuda", cache_enabled=False):\n' in after
    apart = changed((FORWARD, FORWARD + "\n        with torch.no_grad():\n            size = outputs.norm()"))
    assert "cache_enabled" not in converted(apart)[0]


def test_numbers_of_gradients_are_no_forwards() -> None:
    looked = "        size = sum(it.grad.norm() for it in model.parameters())\n"
    after, _ = converted(changed((APEX_CLIP, looked)))
    assert after.count("torch.autocast(") == 1 and f"unscale_(optimizer)\n{looked}" in after


GUARDED = APEX_RANKS[APEX_RANKS.index("        try:\n") : APEX_RANKS.index("        model = DDP(model)")]
TORCH_S = "torch.nn.parallel.DistributedDataParallel"
CALL = f"{TORCH_S}(\n            model, broadcast_buffers=False, find_unused_parameters=True\n        )"
AT_TOP = ("import torch\n", "import apex\nimport torch\n")
UNGUARDED = (AT_TOP, (GUARDED, ""), ("DDP(model)", "apex.parallel.DistributedDataParallel(model)"))
WRAPPED = {
    "imported where it is needed": (),
    "imported at the top": (("import torch\n", GUARDED.replace("        ", "", 1).replace("\n        ", "\n") + "import torch\n"), (GUARDED, "")),
    "by its full name": UNGUARDED,
    "with its model's name": (("DDP(model)", "DDP(module=model, delay_allreduce=True)"),),
    "with when gradients are sent": (("DDP(model)", "DDP(model, 250000000, not args.several)"),),
    "with what is its default": (("DDP(model)", "DDP(model, gradient_average=True, gradient_predivide_factor=1.0, prof=False)"),),
    "divided before": (("DDP(model)", "DDP(model, gradient_predivide_factor=dist.get_world_size())"),),
    "in single precision": (("DDP(model)", "DDP(model, allreduce_always_fp32=True)"),),
    "with layers that do not train": (("device), args)\n", "device), args)\n    for it in model.module.features.parameters():\n        it.requires_grad = False\n"),),
    "with layers that were let train before": (("    model = wrapped(Net().to(device), args)\n", "    net = Net().to(device)\n    for it in net.parameters():\n        it.requires_grad_()\n    model = wrapped(net, args)\n"),),
    "with layers that are frozen by name": (("    model = wrapped(Net().to(device), args)\n", "    net = Net().to(device)\n    for name, it in net.named_parameters():\n        if 'head' not in name:\n            it.requires_grad = False\n    model = wrapped(net, args)\n"),),
    "asked for with DataParallel": (*UNGUARDED, ("    torch.save(", "    print(isinstance(model, (nn.DataParallel, apex.parallel.DistributedDataParallel)))\n    torch.save(")),
    "run by a function": (
        ("def main", "def ran(model, inputs):\n    return model(inputs)\n\n\ndef main"),
        ("cross_entropy(model(inputs.to(device)), ", "cross_entropy(ran(model, inputs.to(device)), "),
    ),
    "evaluated without gradients": (("            optimizer.step()\n", "            optimizer.step()\n            with torch.no_grad():\n                print(model(inputs.to(device)).sum())\n"),),
    "one forward or another": (
        ("            loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))\n",
         "            if epoch:\n                outputs = model(inputs.to(device))\n            else:\n                outputs = model(-inputs.to(device))\n"
         "            loss = nn.functional.cross_entropy(outputs, targets.to(device))\n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRAPPED)
def test_ranks_of_apex_s_become_torch_s(name: str) -> None:
    after, conversion = converted(changed(*WRAPPED[name], text=APEX_RANKS))
    assert f"        model = {CALL}\n" in after
    assert "apex" not in after and "ImportError" not in after
    assert not [it for it in conversion.findings if RANKS_STAY in it.message or it.is_left]


RANKS_STAY = "apex's DistributedDataParallel stays as it is"
OTHER_ARGUMENTS = {
    "gradient_average=False": "its gradient_average=False",
    "gradient_predivide_factor=2.0": "its gradient_predivide_factor=2.0",
    "gradient_predivide_factor=float(args.lr)": "its gradient_predivide_factor=float(args.lr)",
    "shared_param=True": "its shared_param=True",
    "allreduce_trigger_params=[model.head.weight]": "its allreduce_trigger_params=",
    "retain_allreduce_buffers=True": "its retain_allreduce_buffers=True",
    "num_allreduce_streams=2": "its num_allreduce_streams=2",
    "message_size=print(3)": "its message_size=print(3)",
    "find_unused_parameters=True": "its find_unused_parameters=True",
    "**vars(args)": "its arguments are not visible in the call",
    "10000000, False, True": "its shared_param=True",
}
IN_LOOP = "            loss.backward()\n"
FORWARD_LINE = "            loss = nn.functional"
KEPT = {
    "no gradients are sent": ((("            optimizer.zero_grad()\n", "            optimizer.zero_grad()\n            if args.several:\n                model.disable_allreduce()\n"),), "no `disable_allreduce`"),
    "a flag of its own": ((("    optimizer =", "    if args.several:\n        model.needs_refresh = True\n    optimizer ="),), "no `needs_refresh`"),
    "what is asked of it by name": ((("    optimizer =", "    print(getattr(model, 'world_size', 1))\n    optimizer ="),), "no `world_size`"),
    "a class of the project's": ((("class Net", "from apex.parallel import DistributedDataParallel as Ranks\n\n\nclass Own(Ranks):\n    pass\n\n\nclass Net"),), "`Ranks` is used for more than"),
    "a check of its class": (
        (*UNGUARDED, ("    torch.save(", "    print(isinstance(model, apex.parallel.DistributedDataParallel))\n    torch.save(")),
        "is used for more than",
    ),
    "torch's in its place": (
        (("            raise ImportError(\"Please install apex to use distributed training.\")", "            from torch.nn.parallel import DistributedDataParallel as DDP"),),
        "`DDP` may not be apex's",
    ),
    "nothing in its place": (
        (("            raise ImportError(\"Please install apex to use distributed training.\")", "            DDP = None"),),
        "comes from",
    ),
    "a class that is looked up": (
        (AT_TOP, (GUARDED, "        DDP = getattr(apex.parallel, 'DistributedDataParallel')\n")),
        "comes from",
    ),
    "a class that is looked up where it is called": (
        (AT_TOP, (GUARDED, ""), ("DDP(model)", "getattr(apex.parallel, 'DistributedDataParallel')(model)")),
        "comes from",
    ),
    "a class that is handed on": (
        (AT_TOP, (GUARDED, ""), ("def wrapped(model, args)", "def wrapped(model, args, DDP)"), (", args)\n    loader", ", args, apex.parallel.DistributedDataParallel)\n    loader")),
        "`DDP` comes from",
    ),
    "activations that are computed again": (
        (("return self.head(self.features(inputs))", "return self.head(checkpoint(self.features, inputs))"),
         ("import torch\n", "import torch\nfrom torch.utils.checkpoint import checkpoint\n")),
        "`checkpoint` is used as well",
    ),
    "a gradient of a gradient": (((IN_LOOP, "            loss = loss + torch.autograd.grad(loss, inputs, create_graph=True)[0].norm()\n" + IN_LOOP),), "torch.autograd.grad"),
    "two backward passes": (((IN_LOOP, "            loss.backward(retain_graph=True)\n" + IN_LOOP),), "several backward passes"),
    "two forwards": (((FORWARD_LINE, "            model(inputs.to(device))\n" + FORWARD_LINE),), "several times before a backward pass"),
    "a forward for each of several views": (
        (("cross_entropy(model(inputs.to(device)), ", "cross_entropy(sum(model(it) for it in (inputs, -inputs)), "),),
        "several times before a backward pass",
    ),
    "a function of the forward that is called twice": (
        (
            ("def main", "def ran(model, inputs):\n    return model(inputs)\n\n\ndef main"),
            ("cross_entropy(model(inputs.to(device)), ", "cross_entropy(ran(model, inputs) + ran(model, -inputs), "),
        ),
        "several times before a backward pass",
    ),
    "a frozen model": ((("    optimizer =", "    for it in model.parameters():\n        it.requires_grad = False\n    optimizer ="),), "are frozen"),
    "a model that is frozen at once": ((("wrapped(Net().to(device), args)", "wrapped(Net().to(device).requires_grad_(False), args)"),), "are frozen"),
    "layers that begin to train later": (
        (
            ("        for inputs, targets in loader:\n", "        model.module.head.weight.requires_grad = epoch > 0\n        for inputs, targets in loader:\n"),
        ),
        "may be trained later",
    ),
    "layers that a function lets train later": (
        (
            ("def main", "def thaw(net):\n    for it in net.parameters():\n        it.requires_grad_()\n\n\ndef main"),
            ("    for epoch", "    thaw(model.module.head)\n    for epoch"),
        ),
        "may be trained later",
    ),
    "gradients sent in single precision": (
        (("DDP(model)", "DDP(model.half(), allreduce_always_fp32=True)"),),
        "all-reduces fp16 gradients",
    ),
}  # fmt: skip
KEPT |= {it: ((("DDP(model)", f"DDP(model, {it})"),), said) for it, said in OTHER_ARGUMENTS.items()}


@pytest.mark.parametrize("name", KEPT)
def test_ranks_that_torch_s_would_treat_otherwise_stay_apex_s(name: str) -> None:
    """None of it changes, and the note says why, at its place."""
    pairs, reason = KEPT[name]
    before = changed(*pairs, text=APEX_RANKS)
    after, conversion = converted(before)
    (said,) = {it for it in conversion.findings if RANKS_STAY in it.message}
    assert reason in said.message and said.severity is Severity.NOTE
    line = before.splitlines()[said.location.span.line - 1]
    assert "model = " in line and line in after.splitlines()
    assert "find_unused_parameters=True" not in after.replace(line, "")


def test_half_precision_is_worth_to_be_known() -> None:
    """Sums of gradients may overflow where they are divided later."""
    pairs = [("DDP(model)", "DDP(model.half())")]
    for more, notes in (
        ([], 1),
        ([("half())", "half(), gradient_predivide_factor=dist.get_world_size())")], 0),
    ):
        after, conversion = converted(changed(*pairs, *more, text=APEX_RANKS))
        assert len([it for it in conversion.findings if "fp16 may overflow" in it.message]) == notes
        assert "apex" not in after


def test_another_name_of_the_class_stays_one() -> None:
    chosen = "        if args.lr > 1:\n            Ranks = nn.parallel.DistributedDataParallel\n            model = Ranks(model)\n        else:\n            Ranks = apex.parallel.DistributedDataParallel\n            model = Ranks(model, delay_allreduce=True)\n"
    after, _ = converted(
        changed(AT_TOP, (GUARDED, ""), ("        model = DDP(model)\n", chosen), text=APEX_RANKS)
    )
    assert (
        f"Ranks = {TORCH_S}\n            model = Ranks(model, broadcast_buffers=False, f" in after
        and "model = Ranks(model)\n" in after
    )
    assert "apex" not in after


def test_norms_of_the_branch_become_torch_s_too() -> None:
    norms = "        model = apex.parallel.convert_syncbn_model(model)\n"
    after, _ = converted(
        changed(*UNGUARDED, ("        model = apex", f"{norms}        model = apex"), text=APEX_RANKS)
    )
    assert (
        "        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)\n" in after
        and "apex" not in after
    )


def test_what_asks_whether_apex_is_there_keeps_its_answer() -> None:
    guard = "try:\n    from apex.parallel import DistributedDataParallel as DDP\n\n    found = True\nexcept ImportError:\n    found = False\n\n"
    text = changed(
        ("import torch\n", f"{guard}import torch\n"),
        (GUARDED, ""),
        ("    torch.save(", "    print(found)\n    torch.save("),
        text=APEX_RANKS,
    )
    after, _ = converted(text)
    assert guard in after and CALL in after


def test_a_type_check_that_apex_s_ranks_pass_is_passed_by_ours() -> None:
    """Where apex's stays, the other branch's is no DataParallel any more."""
    check = "    print(isinstance(model, (nn.DataParallel, apex.parallel.DistributedDataParallel)))\n    torch.save("
    summed = ("DistributedDataParallel(model)", "DistributedDataParallel(model, gradient_average=False)")
    after, _ = converted(changed(*UNGUARDED, summed, ("    torch.save(", check), text=APEX_RANKS))
    assert "(ddp.DistributedDataParallel, apex.parallel.DistributedDataParallel)" in after


def test_other_programs_keep_apex_s_ranks() -> None:
    """They do not train with DataParallel: nothing of them is converted."""
    other = PATH.with_name("other.py")
    alone = "import apex\nfrom train import Net\n\nmodel = apex.parallel.DistributedDataParallel(Net(), delay_allreduce=True)\n"
    conversion = convert(Project.of({PATH: APEX_RANKS, other: alone}))
    (change,) = conversion.changes
    assert change.path == PATH and CALL in change.after
