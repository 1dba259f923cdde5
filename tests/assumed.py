"""Programs that are sharded if something holds that the code does not show: of some it does, of others it does not."""

from __future__ import annotations

from dataclasses import dataclass

from programs import CRITERION, FORWARD, LOADER, LOSS, OPTIMIZER, PROGRAM

HIDDEN = """\
import operator


class Library:
    @staticmethod
    def function({}):
        {}


hidden = operator.attrgetter("function")(Library)
{}"""
SEEDED = ("import torch\n", "import torch\n\ntorch.manual_seed(0)\n")


@dataclass(frozen=True)
class Planted:
    """A program, and the line in which something is assumed, with words that this is said by."""

    line: str
    says: str
    changes: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        text = PROGRAM
        for old, new in (SEEDED, *self.changes):
            assert old in text, old
            text = text.replace(old, new, 1)
        return text


def planted(line: str, says: str, *changes: tuple[str, str]) -> Planted:
    return Planted(line, says, changes)


def hidden(parameters: str, body: str, before: str = "criterion") -> tuple[str, str]:
    """A function that the program calls, and that can't be followed."""
    place = {"criterion": CRITERION, "loader": LOADER}[before]
    return place, HIDDEN.format(parameters, body, place)


def loss(body: str) -> Planted:
    """A loss that can't be followed."""
    return planted("loss = hidden(", "is a mean over the samples", hidden("o, t", body), (LOSS, LOSS_HIDDEN))


def rows(body: str) -> Planted:
    """Something that is made of the outputs and can't be followed."""
    return planted(
        "outputs = hidden(",
        "does not mix samples",
        hidden("o", body),
        (LOSS, "outputs = hidden(outputs)\n        " + LOSS),
    )


def collated(body: str) -> Planted:
    """What puts batches together, and can't be followed."""
    given = LOADER.replace("shuffle=True", "shuffle=True, collate_fn=hidden")
    place, text = hidden("samples", body, "loader")
    return planted("collate_fn=hidden", "does not mix samples", (place, text.replace(LOADER, given)))


def fetched(body: str) -> Planted:
    """A data set that is asked for all samples of a batch at once."""
    made = (
        "class Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 64\n\n"
        "    def __getitem__(self, index):\n        return data[index]\n\n    def __getitems__(self, places):\n"
        f"        {body}\n\n\n"
    )
    return planted(
        "DataLoader(Rows()",
        "does not mix samples",
        (LOADER, made + LOADER.replace("data,", "Rows(),")),
    )


def trained(body: str) -> Planted:
    """Parameters for the optimizer that can't be followed."""
    place, text = hidden("m", body)
    factor = "scale = nn.Parameter(torch.ones(1))\n"
    return planted(
        "hidden(model)",
        "are in a wrapped model",
        (place, text.replace(CRITERION, factor + CRITERION)),
        (OPTIMIZER, OPTIMIZER.replace("model.parameters()", "hidden(model)")),
        (FORWARD, FORWARD + " * scale.to(inputs.device)"),
    )


def decided(test: str) -> Planted:
    """A rate that is set by something that can't be followed."""
    place, text = hidden("o", f"return {test}")
    return planted(
        "hidden(",
        "is the same on all ranks",
        (place, text),
        (LOSS, LOSS + "\n        if hidden(outputs):\n            optimizer.param_groups[0]['lr'] = 0.05"),
    )


LOSS_HIDDEN = "loss = hidden(outputs, targets.cuda())"
GIVEN = "inputs, targets = map(torch.stack, zip(*samples))\n        "
# What is assumed of these is true.
HOLDING = {
    "a mean of losses": loss("return F.cross_entropy(o, t)"),
    "a mean of squares": loss("return (o - t[:, None]).pow(2).mean()"),
    "a mean weighed by each sample's own loss": loss(
        "rows = F.cross_entropy(o, t, reduction='none')\n        return (rows * (1 - torch.exp(-rows)) ** 2).mean()"
    ),
    "a sum of means": planted(
        "hidden(loss",
        "only adds up the means",
        hidden("a, b", "return 2 * a + 0.5 * b"),
        (LOSS, LOSS + "\n        loss = hidden(loss, outputs.abs().mean())"),
    ),
    "a mean of the sums over columns": loss("return o.abs().sum(1).mean() + F.cross_entropy(o, t)"),
    "each number by itself": rows("return torch.tanh(o)"),
    "each row by its own norm": rows("return o / o.norm(dim=1, keepdim=True)"),
    "each row in another order": rows("return o.flip(1)"),
    "samples that are stacked": collated(GIVEN + "return inputs, targets"),
    "samples that are scaled": collated(GIVEN + "return inputs * 2 + 1, targets"),
    "samples fetched together": fetched("return [data[it] for it in places]"),
    "samples fetched and scaled": fetched("return [(data[it][0] * 3, data[it][1]) for it in places]"),
    "the parameters of the model": trained("return list(m.parameters())"),
    "some parameters of the model": trained("return [it for it in m.parameters() if it.dim() > 1]"),
    "a decision that is the same": decided("o.dim() == 2"),
}
# What is assumed of these is not.
BREAKING = {
    "a sum of losses": loss("return F.cross_entropy(o, t, reduction='sum') / 16"),
    "a mean by class weights": loss("return F.cross_entropy(o, t, weight=torch.tensor([1.0, 5.0]).to(o))"),
    "a product of means": planted(
        "hidden(loss",
        "only adds up the means",
        hidden("a, b", "return a * b"),
        (LOSS, LOSS + "\n        loss = hidden(loss, outputs.abs().mean())"),
    ),
    "a root of a mean": loss("return F.cross_entropy(o, t).sqrt()"),
    "a median": loss("return F.cross_entropy(o, t, reduction='none').median()"),
    "distances between samples": loss("return torch.cdist(o, o + 1).mean() + F.cross_entropy(o, t)"),
    "a contrast between samples": loss("return F.cross_entropy(o @ o.t(), torch.arange(len(o)))"),
    "a mean over the samples of one class": loss(
        "rows = F.cross_entropy(o, t, reduction='none')\n        return rows[t == 1].sum() / (t == 1).sum().clamp(min=1)"
    ),
    "rows less their mean": rows("return o - o.mean(0)"),
    "rows in another order": rows("return o.roll(1, 0)"),
    "rows by the greatest": rows("return o / o.detach().abs().max()"),
    "samples less their mean": collated(GIVEN + "return inputs - inputs.mean(0), targets"),
    "samples that are mixed": collated(GIVEN + "return inputs + inputs.roll(1, 0), targets"),
    "samples fetched by their place": fetched(
        "return [(data[it][0] * place, data[it][1]) for place, it in enumerate(places)]"
    ),
    "a parameter beside the model": trained("return [*m.parameters(), scale]"),
    "a decision by a part": decided("bool(o.sum() > 0)"),
}
# What is known to be in the way: there is nothing to test.
REFUTED = {
    "a sum of squares": planted("", "", (LOSS, "loss = (outputs**2).sum() / 16")),
    "a root of a mean that is seen": planted(
        "", "", (LOSS, LOSS.replace("loss = ", "loss = torch.sqrt(") + ")")
    ),
    "a product of means that is seen": planted("", "", (LOSS, LOSS + " * outputs.abs().mean()")),
    "similarities": planted(
        "", "", (LOSS, "loss = criterion(outputs @ outputs.t(), torch.arange(len(outputs)).cuda())")
    ),
    "a permutation beside something unknown": planted(
        "",
        "",
        hidden("o", "return o"),
        (LOSS, "outputs = hidden(outputs)[torch.randperm(16)]\n        " + LOSS),
    ),
    "class weights of one of two criteria, by chance": planted(
        "",
        "",
        hidden("o", "return o"),
        ("import torch\n", "import random\n\nimport torch\n"),
        (
            CRITERION,
            "def judged(outputs, labels):\n    return F.cross_entropy(2 * outputs, labels)\n\n\n"
            "weighed = nn.CrossEntropyLoss(torch.tensor([1.0, 9.0]).cuda())\n"
            "criterion = weighed if len(data) > 9 else judged",
        ),
        (
            LOSS,
            "outputs, labels = hidden(outputs), targets.cuda()\n"
            "        if random.random() < 0.5:\n"
            "            loss = 0.3 * criterion(outputs, labels) + 0.7 * criterion(outputs, 1 - labels)\n"
            "        else:\n            loss = criterion(outputs, labels)",
        ),
    ),
    "a decision by the loss": planted(
        "", "", (LOSS, LOSS + "\n        if loss > 0.5:\n            continue")
    ),
}
