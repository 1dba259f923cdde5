"""What each process finds in its own part of a batch, wherever the program keeps it: who decides by it trains whole."""

from __future__ import annotations

import pytest
from forms import ungathered as convert
from programs import LOADER, LOOP, LOSS, PATH, PROGRAM, STEP, STOPPER

from dp2ddp.source import Project


def program(before: str = "", after: str = "", loss: str = "", imports: str = "") -> str:
    """The program with something before its loops, after each step, and after each loss."""
    text = PROGRAM.replace(LOOP, before + LOOP).replace(LOSS, LOSS + loss)
    return imports + text.replace(STEP, STEP + after)


def indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.splitlines())


def tier(text: str) -> str:
    conversion = convert(Project.of({PATH: text}))
    assert not conversion.errors, conversion.errors
    return conversion.scripts[0].tier


def function(body: str, name: str = "check") -> str:
    return f"\n\ndef {name}(x):\n" + "".join(f"    {line}\n" for line in body.splitlines()) + "\n\n"


def kept(*methods: str, name: str = "Kept") -> str:
    """A class with some methods, and an object of it."""
    lines = "\n\n".join(methods).replace("\n", "\n    ")
    return f"\n\nclass {name}:\n    bad = False\n    hits = 0\n\n    {lines}\n\n\nit = {name}()\n"


SEE = "def see(self, x):\n    if x.std() < 0.6:\n        self.bad = True"
LEAVE = "if it.bad:\n    break"

CALL = "\n\ndef call(name, *given):\n    for one in [it]:\n        {}\n\n\n"
ENDS = "def on_end(self, x):\n    if x < 0.6:\n        self.bad = True"
COUNTS = "def on_step(self, x):\n    self.hits += 1"
CALLS = {
    "by its name": ("getattr(one, name)(*given)", "call('on_{}', {})"),
    "by a part of its name": ("getattr(one, f'on_{name}')(*given)", "call('{}', {})"),
    "by a name added to": ("act = getattr(one, 'on_' + name, None)\n        act(*given)", "call('{}', {})"),
}
BOTH = {
    how: (
        "seen = []\n" + function("seen.append(x.std().item())") + kept(ENDS, COUNTS) + CALL.format(body),
        call.format("step", "{}") + "\n" + call.format("end", "{}"),
    )
    for how, (body, call) in CALLS.items()
}
"""Two methods that one function calls, each with what it is given for that."""

# Before the loops, and after each step.
DECIDED = {
    **{
        f"one of several methods, {how}": (
            before,
            "check(outputs)\n" + after.format("1.0", "seen[-1]") + "\n" + LEAVE,
        )
        for how, (before, after) in BOTH.items()
    },
    "one of several methods, by a name that is not known": (
        BOTH["by its name"][0] + "NAMES = ['on_end', 'on_step']\n",
        "check(outputs)\nfor name in NAMES:\n    call(name, seen[-1])\n" + LEAVE,
    ),
    "a variable of a function round it": (
        "\n\ndef make():\n    hits = 0\n\n    def see(x):\n        nonlocal hits\n        hits += int(x.std() < 0.6)\n\n"
        "    def stop():\n        return hits > 1\n\n    return see, stop\n\n\nsee, stop = make()\n",
        "see(outputs)\nif stop():\n    break",
    ),
    "whether something is there that some rank saw": (
        "",
        "seen = None\nif outputs.std() < 0.6:\n    seen = epoch\nif seen != None:\n    break",
    ),
    "which elements are None": (
        "",
        "rows = np.array([None if it > 1 else it for it in outputs[:, 0].tolist()])\nif (rows == None).any():\n    break",
    ),
    "a list that a function fills": (
        "seen = []\n" + function("seen.append(x.std().item())"),
        "check(outputs)\nif max(seen) > 1:\n    break",
    ),
    "a list that a function is given": (
        "seen = []\n\n\ndef check(found, x):\n    found.append(x.std().item())\n\n\n",
        "check(seen, outputs)\nif max(seen) > 1:\n    break",
    ),
    "an array that is filled by its columns": (
        "kept = np.zeros((3, 1))\n",
        "np.put(kept.T, 0, outputs.std().item())\nif kept[0] < 0.6:\n    break",
    ),
    "a field of what is loaded": (
        "class Held:\n    pass\n\n\nheld = Held()\nnp.save('held.npy', [held])\n",
        "held.T = outputs.std().item()\nif np.load('held.npy', allow_pickle=True)[0].T > 1 or operator.attrgetter('held')(sys).T > 1:\n    break",
    ),
    "how often a function came to its end": (
        "seen = []\n" + function("if x.std() < 0.6:\n    return\nseen.append(1)"),
        "check(outputs)\nif len(seen) > 1:\n    break",
    ),
    "a flag that a method sets again after it was reset": (
        kept(SEE, "def reset(self):\n    self.bad = False"),
        "it.reset()\nit.see(outputs)\n" + LEAVE,
    ),
    "an object that is called": (kept(SEE.replace("see", "__call__")), "it(outputs)\n" + LEAVE),
    "an attribute of a class": (
        kept("@classmethod\ndef see(cls, x):\n    cls.hits += int(x.std() < 0.6)"),
        "Kept.see(outputs)\nif Kept.hits > 1:\n    break",
    ),
    "a method of a base": (
        kept(SEE, name="Base")
        + "\n\nclass Derived(Base):\n    def see(self, x):\n        super().see(x)\n\n\nit = Derived()\n",
        "it.see(outputs)\n" + LEAVE,
    ),
    "a property": (
        kept("kept = []", "def see(self, x):\n    self.kept.append(x.std().item())").replace(
            "\n\n\nit", "\n\n    @property\n    def worst(self):\n        return max(self.kept)\n\n\nit"
        ),
        "it.see(outputs)\nif it.worst > 1:\n    break",
    ),
    "whether an object is true": (
        kept(SEE, "def __bool__(self):\n    return self.bad"),
        "it.see(outputs)\nif it:\n    break",
    ),
    "an object in an object": (
        kept(SEE) + "\n\nclass Outer:\n    inner = it\n\n\nouter = Outer()\n",
        "outer.inner.see(outputs)\n" + LEAVE,
    ),
    "a list that an object was given": (
        "seen = []\n\n\nclass Kept:\n    def __init__(self, kept):\n        self.kept = kept\n\n"
        "    def see(self, x):\n        self.kept.append(x.std().item())\n\n\nit = Kept(seen)\n",
        "it.see(outputs)\nif max(seen) > 1:\n    break",
    ),
    "a method by its name": (
        kept(SEE) + "\n\ndef call(name, *given):\n    getattr(it, name)(*given)\n\n\n",
        "call('see', outputs)\n" + LEAVE,
    ),
    "a function that was given the rest before": (
        "found = []\n\n\ndef check(kept, x):\n    if x.std() < 0.6:\n        kept.append(1)\n\n\n"
        "see = functools.partial(check, found)\n",
        "see(outputs)\nif len(found) > 1:\n    break",
    ),
    "a function in a dict": (
        "seen = []\nactions = {'a': lambda x: seen.append(x.std().item())}\n",
        "actions['a'](outputs)\nif seen[-1] > 1:\n    break",
    ),
    "a hook": (
        "seen = []\nmodel.module.register_forward_hook(lambda a, b, x: seen.append(x.std().item()))\n",
        "if max(seen) > 1:\n    break",
    ),
    "an exception": (
        function("if x.std() < 0.6:\n    raise ValueError"),
        "try:\n    check(outputs)\nexcept ValueError:\n    optimizer.zero_grad()",
    ),
    "an assertion": (
        function("assert x.std() > 0.6"),
        "try:\n    check(outputs)\nexcept AssertionError:\n    optimizer.zero_grad()",
    ),
    "the end of the program": (function("if x.std() < 0.6:\n    sys.exit()"), "check(outputs)"),
    "setattr": (kept(SEE), "if outputs.std() < 0.6:\n    setattr(it, 'bad', True)\n" + LEAVE),
    "whether there is an attribute": (
        kept(SEE),
        "if outputs.std() < 0.6:\n    it.more = 1\nif hasattr(it, 'more'):\n    break",
    ),
    "an entry that is deleted": (
        "seen = {'ok': 1}\n",
        "if outputs.std() < 0.6:\n    del seen['ok']\nif not seen:\n    break",
    ),
    "a heap": ("heap = []\n", "heapq.heappush(heap, outputs.std().item())\nif heap[0] > 1:\n    break"),
    "an array": ("seen = np.zeros(2)\n", "seen[0] = outputs.std().item()\nif seen[0] > 1:\n    break"),
    "an array that a function changes": (
        "seen = np.zeros(2)\n" + function("seen[0] = x.std().item()"),
        "check(outputs)\nif seen[0] > 1:\n    break",
    ),
    "a tensor": ("hits = torch.zeros(1).cuda()\n", "hits.add_((outputs > 1).any())\nif hits > 1:\n    break"),
    "match": ("", "match bool(outputs.std() < 0.6):\n    case True:\n        break"),
    "a step under a condition of an expression": ("", "outputs.std() < 0.6 and optimizer.step()"),
    "a step for each sample": ("", "for sample in outputs:\n    optimizer.step()"),
    "a rate that a function sets": (
        "\n\ndef set_rate(value):\n    for group in optimizer.param_groups:\n        group.update(lr=value)\n\n\n",
        "set_rate(0.1 / (1 + outputs.std().item()))",
    ),
    "another optimizer": (
        "",
        "if outputs.std() < 0.6:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
    ),
    "layers that are frozen": ("", "if outputs.std() < 0.6:\n    model.requires_grad_(False)"),
    "a checkpoint": (
        kept(SEE),
        "it.see(outputs)\nif it.bad:\n    torch.save(model.state_dict(), 'model.pt')",
    ),
    "the weights of a sampler": ("", "sampler.weights[0] = outputs.std().item()"),
}
# After each loss, which it scales.
SCALED = {
    "a heap": (
        "heap = []\n",
        "heapq.heappush(heap, outputs.max().item())\nif heap[0] > 1:\n    loss = loss / 2",
    ),
    "a field": (
        kept(SEE),
        "it.hits = max(it.hits, outputs.max().item())\nif it.hits > 1:\n    loss = loss / 2",
    ),
    "an entry that a function sets": (
        "state = {'scale': 1.0}\n" + function("state['scale'] = 1 / (1 + x.abs().max().item())"),
        "loss = loss * state['scale']\ncheck(outputs)",
    ),
    "a number that a function halves": (
        "scale = 1.0\n" + function("global scale\nscale = scale / 2"),
        "loss = loss * scale\nif outputs.max() > 1:\n    check(0)",
    ),
    "a loop that ends": (
        "",
        "for _ in range(3):\n    loss = loss + criterion(outputs, targets.cuda())\n    if outputs.max() > 1:\n        break",
    ),
}
# What every process has alike, or only reports, or agrees on.
ALIKE = {
    "whether a part of the batch is used": (
        "def scaled(x, by=None):\n    return x if by == None else x * by\n\n\nuses = False\n",
        "mark = targets if uses else None\nif not mark == None and epoch > 1:\n    break\nscaled(outputs, mark)",
    ),
    **{
        f"another method, {how}": (
            before,
            "check(outputs)\n" + after.format("seen[-1]", "1.0") + "\n" + LEAVE,
        )
        for how, (before, after) in BOTH.items()
    },
    "how many batches a function counted": (
        "hits = 0\n" + function("global hits\nhits += 1"),
        "check(outputs)\nif hits > 3:\n    break",
    ),
    "how many outputs a list holds": (
        "seen = []\n" + function("seen.append(x.std().item())"),
        "check(outputs)\nif len(seen) > 3:\n    break",
    ),
    "what was never given": (
        "seen = []\nkept = []\n" + function("kept.append(x.std().item())"),
        "check(outputs)\nseen.append(epoch)\nif max(seen) > 1:\n    break",
    ),
    "the columns of an array, where those of others are changed": (
        function("return x.T", "turned"),
        "seen = outputs.detach().numpy()\nnp.put(seen.T, 0, 1)\nif turned(epoch)[0] > 1:\n    break",
    ),
    "another object of the class": (
        kept(SEE) + "other = Kept()\n",
        "it.see(outputs)\nif other.bad:\n    break",
    ),
    "the same function, given something else": (
        function("return x > 1"),
        "wide = check(outputs)\nif check(epoch):\n    break",
    ),
    "how the outputs are shaped": (
        function("return x.shape[1] > 2 or x.dim() > 2"),
        "if check(outputs):\n    break",
    ),
    "a method of another name": (
        kept(SEE, "def enough(self, epoch):\n    return epoch > 3"),
        "it.see(outputs)\nif it.enough(epoch):\n    break",
    ),
    "gradients, which are averaged": (
        function("return any(p.grad.abs().max() > 9 for p in x.parameters())"),
        "if check(model):\n    break",
    ),
    "the loss of the whole batch": (STOPPER, "if stopper.step(loss.item()):\n    break"),
    "a message": (function("if x.std() < 0.6:\n    print('narrow')"), "check(outputs)"),
}
IMPORTS = "import functools\nimport heapq\nimport operator\nimport sys\n\nimport numpy as np\n"


@pytest.mark.parametrize("name", DECIDED)
def test_what_differs_between_parts_does_not_decide(name: str) -> None:
    before, after = DECIDED[name]
    text = program(before, indented(after), imports=IMPORTS)
    if "sampler" in after:
        drawn = "sampler = torch.utils.data.WeightedRandomSampler(torch.ones(64), 64)\n"
        text = text.replace(LOADER, drawn + LOADER.replace("shuffle=True", "sampler=sampler"))
    assert tier(text) == "whole batch"


@pytest.mark.parametrize("name", SCALED)
def test_what_differs_between_parts_does_not_scale_their_losses(name: str) -> None:
    before, after = SCALED[name]
    assert tier(program(before, loss="\n" + indented(after).rstrip(), imports=IMPORTS)) == "whole batch"


@pytest.mark.parametrize("name", ALIKE)
def test_what_every_process_has_alike_may_decide(name: str) -> None:
    before, after = ALIKE[name]
    assert tier(program(before, indented(after), imports=IMPORTS)) == "sharded"


def test_a_module_s_names_are_followed_from_other_files() -> None:
    """Set there by a function, or from here."""
    state = "bad = False\n\n\ndef see(x):\n    global bad\n    if x.std() < 0.6:\n        bad = True\n"
    here = program(after=indented("state.see(outputs)\nif state.bad:\n    break"), imports="import state\n")
    there = here.replace("state.see(outputs)", "if outputs.std() < 0.6:\n            state.bad = True")
    for text in (here, there):
        (script,) = convert(Project.of({PATH: text, PATH.with_name("state.py"): state})).scripts
        assert script.tier == "whole batch"


def test_a_batch_that_some_processes_skip_is_seen() -> None:
    text = PROGRAM.replace(LOSS, "if outputs.max() > 2.5:\n            continue\n        " + LOSS)
    assert tier(text) == "whole batch"
    assert tier(text.replace("outputs.max() > 2.5", "epoch > 2.5")) == "sharded"


@pytest.mark.parametrize(
    "asked, form",
    [
        ("'mask' in batch", "sharded"),
        ("'mask' not in batch.keys()", "sharded"),
        ("'mask' in outputs", "sharded"),
        ("'mask' in batch['names']", "sharded"),  # asked of the whole batch, which is divided afterwards
        ("batch['mask'].max() in outputs", "whole batch"),
    ],
)
def test_keys_are_the_same_everywhere(asked: str, form: str) -> None:
    """Those of a batch and of what the model returns; not what stands under them."""
    text = program(after=f"        if {asked}:\n            break\n").replace(
        "inputs, targets in", "batch in"
    )
    for name, there in (("inputs", "batch['x']"), ("targets", "batch['y']")):
        text = text.replace(f"{name}.cuda()", f"{there}.cuda()")
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(8, 2)\n\n"
        "    def forward(self, x):\n        return {'a': self.a(x)}\n\n\nmodel = Net().cuda()"
    )
    text = text.replace("model = nn.Linear(8, 2).cuda()", net).replace(
        "criterion(outputs,", "criterion(outputs['a'],"
    )
    assert tier(text) == form


@pytest.mark.parametrize(
    "made, form",
    [
        ("made = {}\nmade['a'] = outputs.std()", "sharded"),
        ("made = {'a': outputs.std()}", "sharded"),
        ("made = dict()\nfor name in ('a', 'b'):\n    made[name] = outputs.std()", "sharded"),
        ("made = {}\nif outputs.max() > 2.5:\n    made['b'] = 1", "whole batch"),
        ("made = {}\nfor it in outputs.argmax(1).tolist():\n    made[it] = 1", "whole batch"),
        ("made = dict(zip(targets.tolist(), outputs))", "whole batch"),
    ],
)
@pytest.mark.parametrize("goes", ["for key, value in made.items():", "for key in made.keys():"])
def test_the_keys_of_a_dict_differ_where_those_that_are_put_there_do(made: str, form: str, goes: str) -> None:
    asked = f"key = 'a'\n{made}\n{goes}\n    pass\nif key == 'b':\n    break"
    assert tier(program(after=indented(asked))) == form


def test_a_batch_that_a_function_is_given_in_training_and_evaluation_has_its_keys_everywhere() -> None:
    text = program(after="        if known(batch):\n            break\n").replace(
        "inputs, targets in", "batch in"
    )
    for name, there in (("inputs", "batch['x']"), ("targets", "batch['y']")):
        text = text.replace(f"{name}.cuda()", f"{there}.cuda()")
    text += "model.eval()\nfor batch in DataLoader(data, batch_size=10):\n    print(known(batch))\n"
    known = "def known(held):\n    return 'mask' in held\n\n\nmodel ="
    assert tier(text.replace("model =", known, 1)) == "sharded"


@pytest.mark.parametrize(
    "goes", ["for key, (size, factor) in made.items():", "for size, factor in made.values():"]
)
def test_what_stands_at_the_keys_of_a_dict_is_each_rank_s(goes: str) -> None:
    asked = f"made = {{}}\nmade['a'] = outputs.std(), 2\n{goes}\n    pass\nif size > 0.5:\n    break"
    assert tier(program(after=indented(asked))) == "whole batch"


KEPT = "state = {it: 0.0 for it in ('rate', 'loss')}\nstate['rate'] = 0.1\n"
ENTRIES = {
    "of a name": (KEPT, "state['{key}']"),
    "of an attribute": (
        "class Run:\n    pass\n\n\nrun = Run()\nrun.state = {}\nrun.state['rate'] = 0.1\n",
        "run.state['{key}']",
    ),
    "written out": ("state = {'rate': 0.1, 'loss': 0.0}\n", "state['{key}']"),
    "through a function": (
        KEPT + "\n\ndef keep(held, value):\n    held['loss'] = value\n\n\n",
        "state['{key}']",
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_what_a_dict_has_under_one_key_says_nothing_of_the_others(name: str) -> None:
    before, asked = ENTRIES[name]
    held = asked.format(key="loss")
    stored = f"{held} = outputs.std().item()"
    if "function" in name:
        stored = "keep(state, outputs.std().item())"
    for key, goes in (("rate", "sharded"), ("loss", "whole batch")):
        test = f"{stored}\nif {asked.format(key=key)} < 0.05:\n    break\n"
        assert tier(program(before, indented(test))) == goes, key


def test_an_empty_dict_that_some_processes_begin_decides() -> None:
    step = "if outputs.std() > 0.6:\n    state = {}\nif len(state) > 0:\n    break\n"
    assert tier(program("state = {'rate': 0.1}\n", indented(step))) == "whole batch"
