"""Programs of functions, classes, closures and files: a task, its numbers, its evaluation, in one of many shapes."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass
from textwrap import indent

from generated import lessons, pieces, tasks
from generated.author import Author, Program
from generated.tasks import Number, Task

KNOWN = (
    "model",
    "loader",
    "test_loader",
    "criterion",
    "optimizer",
    "scheduler",
    "ema",
    "device",
    "epoch",
    "args",
)
"""What functions are given and objects keep, where they use it; with what a task trains beside."""
SIZES = [(50, 15), (48, 12), (47, 16), (37, 6)]


@dataclass(frozen=True)
class Report:
    """What a function that goes over the batches answers: the names of its numbers, if they are known, and its form."""

    names: tuple[str, ...]
    form: str
    target: str

    @classmethod
    def of(cls, author: Author, about: str, numbers: list[Number], target: str) -> Report:
        """The form that an author chooses."""
        ends = "\n".join(after for _, _, after in numbers)
        names = tuple(re.findall(r'^shown\["([^"]+)"\] = ', ends, re.MULTILINE))
        simple = (
            bool(names)
            and "shown.update" not in ends
            and "shown[name]" not in ends
            and 'shown[f"' not in ends
        )
        forms = {it: it for it in ("dictionary", "numbers", "an object")} if simple else {"dictionary": ""}
        return cls(names if simple else (), author.one(f"what {about} answers", forms), target)

    def after(self, numbers: list[Number]) -> str:
        """What follows the loop over batches."""
        ends = "\n".join(after for _, _, after in numbers)
        if self.form == "dictionary":
            return f"shown = {{}}\n{ends}\nreturn shown"
        ends = re.sub(
            r'^shown\["([^"]+)"\] = ', lambda it: f"{_word('mean ' + it[1])} = ", ends, flags=re.MULTILINE
        )
        means = ", ".join(_word("mean " + it) for it in self.names)
        if self.form == "numbers":
            return f"{ends}\nreturn {means}"
        given = ", ".join(f"{_word(it)}={_word('mean ' + it)}" for it in self.names)
        return f"{ends}\nreturn SimpleNamespace({given})"

    @property
    def assigned(self) -> str:
        """What takes the answer."""
        if self.form == "numbers":
            return ", ".join(_word(f"{self.target} {it}") for it in self.names)
        return self.target

    @property
    def row(self) -> str:
        """All numbers, as items of a dictionary."""
        if self.form == "dictionary":
            return f"**{{'{self.target} ' + key: number for key, number in {self.target}.items()}}"
        return ", ".join(f"'{self.target} {it}': {self.one(it)}" for it in self.names)

    def one(self, name: str) -> str:
        """One number."""
        return _word(f"{self.target} {name}") if self.form == "numbers" else f"{self.target}.{_word(name)}"

    @property
    def value(self) -> str:
        """The number that is decided by."""
        if self.form == "dictionary":
            return f"{self.target}[{self.names[0]!r}]" if self.names else f"sum({self.target}.values())"
        return self.one(self.names[0])

    @property
    def shown(self) -> str:
        """What prints the numbers."""
        if self.form == "dictionary":
            return f'for name, number in {self.target}.items():\n    print("{self.target} %s %.6f" % (name, number))'
        places = " ".join(f"{it} {{:.6f}}" for it in self.names)
        return f'print("{self.target} {places}".format({", ".join(map(self.one, self.names))}))'


def _word(text: str) -> str:
    return re.sub(r"\W", "_", text)


@dataclass
class Writer:
    """What is decided of one program, and its parts as they are written."""

    author: Author
    task: Task
    train_numbers: list[Number]
    test_numbers: list[Number]

    def __post_init__(self) -> None:
        pick, one = self.author.pick, self.author.one
        self.settings = one("settings", pieces.SETTINGS)
        self.train, self.batch = self.author.chance.choice(SIZES)
        self.is_dict = not self.task.collate and self.author.happens("batches of dictionaries", 0.2)
        self.losses = pick("loss", self.task.losses)
        self.step = self.task.steps or f"{self.losses}\n{pick('step', pieces.STEPS)}"
        self.schedule = pieces.SCHEDULES[one("schedule", pieces.SCHEDULES)]
        emas = {
            "none": "",
            "none at all": "",
            "none ever": "",
            "of parameters": "Ema",
            "of the model": "ModelEma",
        }
        self.ema = pick("ema", emas)
        self.middle = self.author.happens("evaluated between", 0.12)
        self.state = pick("state", pieces.STATES)
        self.trained = Report.of(self.author, "training", self.train_numbers, "shown")
        self.tested = Report.of(self.author, "evaluation", self.test_numbers, "result")
        self.known = (*KNOWN, *self.task.trained)

    def unpacked(self, head: tuple[str, str, str]) -> tuple[str, str, str]:
        """What stands before a loop over batches, its head, and the first lines in it."""
        names = self.task.names
        joined = ", ".join(names)
        later = f"{joined} = batch" if len(names) > 1 else f"{joined} = batch[0]"
        given = f"({joined})" if len(names) > 1 else f"({joined},)"
        if self.is_dict:
            later = f"{joined} = " + ", ".join(f'batch["{it}"]' for it in names)
            given = "batch"
        moved = [it for it in names if it not in self.task.kept]
        moves = {
            "at once": f"{', '.join(moved)} = {', '.join(f'{it}.to(device)' for it in moved)}",
            "one by one": "\n".join(f"{it} = {it}.to(device, non_blocking=True)" for it in moved),
            "none": "",
        }
        start, line, taken = head
        taken = taken.replace("LATER", later).replace("TAKEN", later if self.is_dict else "")
        return start, line.replace("GIVEN", given), f"{taken}\n{self.author.pick('moves', moves)}".strip()

    def training(self, evaluate: str = "") -> str:
        """The body of an epoch of training."""
        head = self.unpacked(pieces.HEADS[self.author.one("loop", pieces.HEADS)])
        lines = [self.step, self.schedule[1]]
        lines += ["ema.update(model)"] if self.ema else []
        if "metric_logger" in head[0]:
            lines.append("metric_logger.update(loss=loss.item(), twice=2 * loss)")
        lines += [self.author.pick("shows", pieces.SHOWS)]
        if self.middle and evaluate:
            lines.append(
                f'if step == 1:\n    {evaluate}\n    print("between %.6f" % ({self.tested.value}))\n    model.train()'
            )
        return self.looped("model.train()", head, lines, self.train_numbers)

    def looped(self, mode: str, head: tuple[str, str, str], lines: list[str], numbers: list[Number]) -> str:
        """A loop over batches, and the numbers that are taken in it."""
        start, line, first = head
        body = "\n".join(filter(None, [first, *lines, *(inside for _, inside, _ in numbers)]))
        before = "\n".join(filter(None, [mode, *(it for it, _, _ in numbers), start]))
        return self.sized(f"{before}\n{line}\n{indent(body, '    ')}")

    def evaluating(self) -> str:
        """The body of an evaluation."""
        heads = {it: it for it in ("enumerated", "unpacked later", "counted", "a bar")}
        head = self.unpacked(pieces.HEADS[self.author.one("evaluation's loop", heads)])
        body = self.looped("model.eval()", head, [self.losses], self.test_numbers)
        if self.author.happens("no_grad() as a block", 0.5):
            before, line, rest = re.split(r"^(for .*)", body, maxsplit=1, flags=re.MULTILINE)
            return f"{before}with torch.no_grad():\n{indent(line + rest, '    ')}"
        return body

    def collecting(self) -> tuple[list[str], str]:
        """A function that collects the outputs for a loader, and what it is given."""
        head = self.unpacked(("found_ = []", "for batch in loader:", "LATER"))
        start, line, first = head
        body = f"model.eval()\n{start}\n{line}\n"
        body = self.sized(body + indent(f"{first}\n{self.losses}\nfound_.append(outputs.cpu())", "    "))
        body += "\nreturn torch.cat(found_)"
        given = self.given(body)
        return given, "@torch.no_grad()\n" + _function("collect", given, body)

    def sized(self, text: str) -> str:
        """Source with the number of samples as the author writes it."""
        first = self.task.names[0]
        sizes = {"size": f"{first}.size(0)", "shape": f"{first}.shape[0]", "len": f"len({first})"}
        return text.replace("SIZED", "count_").replace("SIZE", self.author.pick("size", sizes))

    def given(self, text: str) -> list[str]:
        """What of the known names a piece uses."""
        return [it for it in self.known if re.search(rf"(?<![\w.\"']){it}\b(?!\s*=[^=])", self.opted(text))]

    def opted(self, text: str) -> str:
        """Source with its options as the author writes them."""
        forms = {"constants": lambda it: it[1].upper(), "a dictionary": lambda it: f'CONFIG["{it[1]}"]'}
        return re.sub(r"OPT_(\w+)", forms.get(self.settings, lambda it: f"args.{it[1]}"), text)


def _function(name: str, given: list[str], body: str) -> str:
    return f"def {name}({', '.join(given)}):\n{indent(body, '    ')}\n"


def _owned(text: str, names: list[str]) -> str:
    """Source in a method: some names are attributes of the object."""
    pattern = rf"(?<![\w.\"'])({'|'.join(names)})\b(?![\"'])(?!\s*=[^=])"
    return re.sub(pattern, r"self.\1", text)


# A shape gives the definitions of its engine, what is made before the epochs, and the calls for an epoch and for an
# evaluation (both with their answers assigned); a call that is a loop over epochs ends with a colon.
Engine = tuple[str, str, str, str]


def _answers(writer: Writer) -> tuple[str, str]:
    return writer.trained.assigned, writer.tested.assigned


def _evaluation(writer: Writer) -> tuple[str, list[str]]:
    body = writer.evaluating() + "\n" + writer.tested.after(writer.test_numbers)
    return body, writer.given(body)


def _decorated(body: str) -> str:
    return "" if "with torch.no_grad()" in body else "@torch.no_grad()\n"


def functions(writer: Writer) -> Engine:
    """Functions that are given all they use."""
    shown, result = _answers(writer)
    test, asked = _evaluation(writer)
    call = f"{result} = evaluate({', '.join('test_loader' if it == 'loader' else it for it in asked)})"
    train = writer.training(call) + "\n" + writer.trained.after(writer.train_numbers)
    given = writer.given(train)
    text = _decorated(test) + _function("evaluate", asked, test) + "\n\n" + _function("train", given, train)
    return text, "", f"{shown} = train({', '.join(given)})", call


def keywords(writer: Writer) -> Engine:
    """Functions that are given all they use by name."""
    text, before, train, test = functions(writer)
    by_name = [re.sub(r"(\w+)(?=[,)])", r"\1=\1", it[it.index("(") :]) for it in (train, test)]
    calls = [it[: it.index("(")] + named for it, named in zip((train, test), by_name, strict=True)]
    return (
        text,
        before,
        calls[0],
        (
            calls[1].replace("test_loader=test_loader", "loader=test_loader", 1)
            if "test_loader" not in text.split("def train")[0]
            else calls[1]
        ),
    )


def closures(writer: Writer) -> Engine:
    """Functions made by a function."""
    shown, result = _answers(writer)
    test, asked = _evaluation(writer)
    call = f"{result} = evaluate(test_loader)"
    train = writer.training(call) + "\n" + writer.trained.after(writer.train_numbers)
    used = [it for it in writer.known if it in {*asked, *writer.given(train), "loader"} and it != "epoch"]
    inner = (
        _function("train", ["epoch"], train)
        + "\n"
        + _decorated(test)
        + _function("evaluate", ["loader"], test)
    )
    text = _function("make_engine", used, inner + "\nreturn train, evaluate")
    return text, f"train, evaluate = make_engine({', '.join(used)})", f"{shown} = train(epoch)", call


def _methods(writer: Writer, train_name: str, test_name: str) -> tuple[list[str], str, str]:
    """What an object keeps, and its methods."""
    _, result = _answers(writer)
    test, asked = _evaluation(writer)
    call = f"{result} = self.{test_name}()"
    train = writer.training(call) + "\n" + writer.trained.after(writer.train_numbers)
    test = re.sub(r"\bloader\b", "test_loader", test)
    used = {*asked, *writer.given(train), "loader", "test_loader", "model", "optimizer"} - {"epoch"}
    kept = [it for it in writer.known if it in used]
    methods = _function(train_name, ["self", "epoch"], _owned(writer.opted(train), kept))
    methods += "\n" + _decorated(test) + _function(test_name, ["self"], _owned(writer.opted(test), kept))
    return kept, methods, call


def _init(kept: list[str], more: str = "") -> str:
    return _function("__init__", ["self", *kept], "\n".join(f"self.{it} = {it}" for it in kept) + more)


def trainer(writer: Writer) -> Engine:
    """A class that has everything."""
    shown, result = _answers(writer)
    kept, methods, _ = _methods(writer, "train_one_epoch", "validate")
    text = f"class Trainer:\n{indent(_init(kept) + chr(10) + methods, '    ')}"
    made = f"trainer = Trainer({', '.join(f'{it}={it}' for it in kept)})"
    return text, made, f"{shown} = trainer.train_one_epoch(epoch)", f"{result} = trainer.validate()"


def hooks(writer: Writer) -> Engine:
    """A base class that calls what a class of its own fills in."""
    shown, result = _answers(writer)
    kept, methods, _ = _methods(writer, "run_epoch", "run_evaluation")
    base = """\
class Base:
    def __init__(self, **parts):
        self.__dict__.update(parts)
        self.epochs_done = 0

    def before_epoch(self, epoch):
        pass

    def after_epoch(self, epoch):
        self.epochs_done += 1

    def epoch_of(self, epoch):
        self.before_epoch(epoch)
        answer = self.run_epoch(epoch)
        self.after_epoch(epoch)
        return answer

    def run_epoch(self, epoch):
        raise NotImplementedError
"""
    if writer.author.happens("kept by name", 0.5):
        base = base.replace("**parts", ", ".join(kept)).replace(
            "        self.__dict__.update(parts)\n", "".join(f"        self.{it} = {it}\n" for it in kept)
        )
    own = 'def before_epoch(self, epoch):\n    print("epoch", epoch, "of", self.epochs_done)\n\n'
    text = f"{base}\n\nclass Task(Base):\n{indent(own + methods, '    ')}"
    made = f"task = Task({', '.join(f'{it}={it}' for it in kept)})"
    return text, made, f"{shown} = task.epoch_of(epoch)", f"{result} = task.run_evaluation()"


def one_function(writer: Writer) -> Engine:
    """One function for both, that trains where it is given an optimizer."""
    shown, result = _answers(writer)
    writer.tested = Report(writer.trained.names, writer.trained.form, "result")
    writer.test_numbers = writer.train_numbers
    result = writer.tested.assigned
    head = writer.unpacked(
        pieces.HEADS[
            writer.author.one("loop", {it: it for it in ("enumerated", "unpacked later", "counted")})
        ]
    )
    step = writer.step.removeprefix(writer.losses) if not writer.task.steps else writer.step
    lines = [
        f"with torch.set_grad_enabled(optimizer is not None):\n{indent(writer.losses, '    ')}",
        f"if optimizer is not None:\n{indent(step.strip(), '    ')}"
        + (f"\n{indent(writer.schedule[1], '    ')}" if writer.schedule[1] else ""),
    ]
    mode = "if optimizer is not None:\n    model.train()\nelse:\n    model.eval()"
    body = (
        writer.looped(mode, head, lines, writer.train_numbers)
        + "\n"
        + writer.trained.after(writer.train_numbers)
    )
    given = [it for it in writer.given(body) if it != "optimizer"]
    text = _function("run", [*given, "optimizer=None"], body)
    asked = ["test_loader" if it == "loader" else it for it in given]
    asked = ["0" if it == "epoch" else it for it in asked]
    return (
        text,
        "",
        f"{shown} = run({', '.join([*given, 'optimizer'])})",
        f"{result} = run({', '.join(asked)})",
    )


def phases(writer: Writer) -> Engine:
    """A loop over the phases in one function."""
    writer.trained = Report(writer.trained.names, "dictionary", "shown")
    writer.tested = Report(writer.trained.names, "dictionary", "result")
    writer.test_numbers = writer.train_numbers
    head = writer.unpacked(
        pieces.HEADS[
            writer.author.one("loop", {it: it for it in ("enumerated", "unpacked later", "counted")})
        ]
    )
    step = writer.step.removeprefix(writer.losses) if not writer.task.steps else writer.step
    lines = [
        f'with torch.set_grad_enabled(phase == "train"):\n{indent(writer.losses, "    ")}',
        f'if phase == "train":\n{indent(step.strip(), "    ")}'
        + (f"\n{indent(writer.schedule[1], '    ')}" if writer.schedule[1] else ""),
    ]
    mode = 'if phase == "train":\n    model.train()\nelse:\n    model.eval()\nloader = loaders[phase]'
    body = writer.looped(mode, head, lines, writer.train_numbers)
    after = "shown = {}\n" + "\n".join(it for _, _, it in writer.train_numbers) + "\nreports[phase] = shown"
    whole = f'reports = {{}}\nfor phase in PHASES:\n{indent(body + chr(10) + after, "    ")}\nreturn reports'
    given = [it for it in writer.given(whole) if it != "loader"]
    text = _function(
        "run_phases", ["loaders", *given], whole.replace("PHASES", '["train", "val"]' if "val" else "")
    )
    call = (
        f"reports = run_phases(loaders, {', '.join(given)})\nshown, result = reports['train'], reports['val']"
    )
    return text, 'loaders = {"train": loader, "val": test_loader}', call, ""


def inline(writer: Writer) -> Engine:
    """Everything in the loop over epochs."""
    test, asked = _evaluation(writer)
    _, result = _answers(writer)
    writer.trained = Report(writer.trained.names, "dictionary", "shown")
    call = f"{result} = evaluate({', '.join('test_loader' if it == 'loader' else it for it in asked)})"
    after = "shown = {}\n" + "\n".join(it for _, _, it in writer.train_numbers)
    text = _decorated(test) + _function("evaluate", asked, test)
    return text, "", f"{writer.training(call)}\n{after}", call


def generator(writer: Writer) -> Engine:
    """A generator of the results of epochs."""
    shown, result = _answers(writer)
    test, asked = _evaluation(writer)
    call = f"{result} = evaluate({', '.join('test_loader' if it == 'loader' else it for it in asked)})"
    after = writer.trained.after(writer.train_numbers).replace("\nreturn ", "\nyield epoch, ")
    train = writer.training(call) + "\n" + after
    given = [it for it in writer.given(train) if it != "epoch"]
    loop = f"for epoch in range(EPOCHS_):\n{indent(train, '    ')}"
    text = _decorated(test) + _function("evaluate", asked, test) + "\n\n"
    text += _function("epochs_of", [*given, "EPOCHS_"], loop).replace("EPOCHS_", "epochs")
    return text, "", f"for epoch, {shown} in epochs_of({', '.join([*given, 'OPT_epochs'])}):", call


def steps(writer: Writer) -> Engine:
    """Steps without end, in the loop over what is evaluated."""
    test, asked = _evaluation(writer)
    _, result = _answers(writer)
    writer.trained = Report(writer.trained.names, "dictionary", "shown")
    call = f"{result} = evaluate({', '.join('test_loader' if it == 'loader' else it for it in asked)})"
    head = writer.unpacked(("", "for step in range(5):", "batch = next(drawn)\nLATER"))
    lines = [writer.step, writer.author.pick("shows", pieces.SHOWS)]
    after = "shown = {}\n" + "\n".join(it for _, _, it in writer.train_numbers)
    body = writer.looped("model.train()", head, lines, writer.train_numbers) + "\n" + after
    return _decorated(test) + _function("evaluate", asked, test), "drawn = endless(loader)", body, call


SHAPES = {
    it.__name__: it
    for it in (functions, keywords, closures, trainer, hooks, one_function, phases, inline, generator, steps)
}


TASKS = {**tasks.TASKS, **lessons.TASKS}


def program(seed: int) -> Program:
    """One program, and what its author decided."""
    author = Author(random.Random(seed), rare=pieces.RARE)
    task = TASKS[author.one("task", TASKS)]
    writer = Writer(author, task, _numbers(author, task, "training"), _numbers(author, task, "evaluation"))
    shape = author.one("shape", SHAPES)
    text, made, train, test = SHAPES[shape](writer)
    main = _main(writer, made, train, test)
    if "collected" in author.chosen["ends"]:
        text += "\n\n" + writer.collecting()[1]
    parts = {
        "config": _config(writer),
        "utils": f"{tasks.UTILS}\n\n{pieces.UTILS}",
        "data": _data(writer),
        "models": f"{author.pick('model', task.models)}\n\n{task.extra}",
        "engine": text,
        "train": main,
    }
    parts = {part: writer.opted(source) for part, source in parts.items()}
    several = author.happens("several files", 0.4)
    files = (
        _several(author, parts)
        if several
        else {"train.py": f"{pieces.IMPORTS}\n" + "\n\n".join(parts.values())}
    )
    return Program(files, author.chosen, runs=2 if "resume" in author.chosen["ends"] else 1)


def _numbers(author: Author, task: Task, about: str) -> list[Number]:
    """Some numbers of a task that don't use the same names."""
    known = {**tasks.GENERAL, **task.numbers}
    own = sorted(task.numbers)
    names = author.chance.sample(own, min(len(own), author.chance.choice([1, 1, 2])))
    names += author.chance.sample(sorted(tasks.GENERAL), author.chance.choice([0, 1, 1]))
    kept: list[Number] = []
    taken: set[str] = set()
    for name in list(names):
        before, inside, after = known[name]
        if name in tasks.GENERAL or task is not tasks.CLASSIFY:
            before, inside, after = (_renamed(task, it) for it in (before, inside, after))
        used = set(re.findall(r'^shown\["([^"]+)"\]', after, re.MULTILINE)) | {
            it.id
            for it in ast.walk(ast.parse(f"{before}\n{inside}"))
            if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)
        }
        if not used & taken:
            kept.append((before, inside, after))
            taken |= used
        else:
            names.remove(name)
    author.chosen[f"numbers of {about}"] = ", ".join(names)
    return kept


def _renamed(task: Task, text: str) -> str:
    """A number of another task's batches, in the names of this one's."""
    text = re.sub(r"\blen\(data\)", "len(loader.dataset)", text)
    if "inputs" not in task.names:
        text = re.sub(r"\binputs\b", task.names[0], text)
    return text if "targets" in task.names else re.sub(r"\btargets\b", task.names[-1], text)


def _config(writer: Writer) -> str:
    text = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
    text += "torch.set_default_dtype(torch.float64)\n"
    return (
        text
        + "\n\n"
        + pieces.SETTINGS[writer.settings]
        .replace("BATCH", str(writer.batch))
        .replace(f"{writer.batch}_SIZE", "BATCH_SIZE")
    )


def _data(writer: Writer) -> str:
    author, task = writer.author, writer.task
    kinds = dict(pieces.DATASETS)
    if author.happens("no stream", 0.85):
        kinds.pop("a stream")
    kind = author.one("data", kinds)
    item = "self.samples[index]"
    if writer.is_dict:
        item = "{" + ", ".join(f'"{it}": self.samples[index][{k}]' for k, it in enumerate(task.names)) + "}"
        item = item.replace('"indices": self.samples[index][2]', '"indices": index')
    elif task.indexed:
        item = f"(*{item}, index)"
    text = kinds[kind].replace("ITEM_OF", item.replace("self.samples", "self_samples")).replace("ITEM", item)
    loaders = pieces.LOADERS if kind != "a stream" else {"in order": pieces.LOADERS["in order"]}
    more = ", collate_fn=collate" if task.collate else ""
    made = author.pick("loader", loaders).replace("MORE", more)
    build = f"data, others = Samples({writer.train}, 1), Samples(21, 2)\n"
    if author.happens("folds", 0.08):
        if kind == "a stream":
            build = f"data, others = Samples({writer.train}, fold), Samples(21, fold + 2)\n"
        else:
            build = f"whole = Samples({writer.train + 21}, 1)\nheld = range(fold, len(whole), 5)\n"
            build += "data = Subset(whole, [it for it in range(len(whole)) if it not in held])\n"
            build += "others = Subset(whole, list(held))\n"
    build += f"{made}\n"
    build += f"test_loader = DataLoader(others, batch_size=8{more})\nreturn loader, test_loader"
    sample = _function("sample", ["draw"], task.sample)
    return "\n\n".join(
        filter(
            None,
            [
                sample,
                text,
                task.collate,
                _function(
                    "build_loaders",
                    ["fold", "batch_size"] if author.happens("folds", 0.08) else ["batch_size"],
                    build,
                ),
            ],
        )
    )


def _main(writer: Writer, made: str, train: str, test: str) -> str:
    author, task = writer.author, writer.task
    wraps = {
        "wrapped": "model = nn.DataParallel(Net()).to(device)",
        "then wrapped": "model = Net().to(device)\nmodel = nn.DataParallel(model)",
        "wrapped if it helps": "model = Net()\nif torch.cuda.device_count() > 0:\n    model = nn.DataParallel(model)\nmodel.to(device)",
    }
    if "model.module" in writer.state:
        wraps.pop("wrapped if it helps")
    pool = {it: it for it in pieces.ENDS if it != "collected" or author.chosen["task"] != "tags"}
    ends = [pieces.ENDS[it] for it in _ends(author, pool)]
    schedule, _, later = writer.schedule
    lines = [
        pieces.ARGS[writer.settings].replace("BATCH", str(writer.batch)),
        "set_seed(3)",
        "loader, test_loader = build_loaders(OPT_batch_size)",
        author.pick("wrap", wraps),
        *(f"{name} = {how}" for name, how in task.trained.items()),
        f"criterion = {task.criterion}",
        f"optimizer = {author.pick('optimizer', pieces.OPTIMIZERS)}",
        f"scheduler = {schedule}" if schedule else "",
        f"ema = {writer.ema}(model)" if writer.ema else "",
        made,
        *(before for before, _, _ in ends),
    ]
    row = f'{{"epoch": epoch, {writer.trained.row}, {writer.tested.row}}}'
    is_loop = train.endswith(":")
    loop = [
        "" if is_loop else train,
        writer.trained.shown,
        f"{test}\nvalue = {writer.tested.value}" if test else f"value = {writer.tested.value}",
        writer.tested.shown,
        later,
        *(inside for _, inside, _ in ends),
        'print("ema %.6f" % ema.norm())' if writer.ema else "",
    ]
    again = f"{test}\nvalue = {writer.tested.value}" if test else ""
    final = [after for _, _, after in ends]
    head = train if is_loop else "for epoch in range(OPT_epochs):"
    if any("resumed" in before for before, _, _ in ends) and not is_loop:
        head = "for epoch in range(start, start + OPT_epochs):"
    body = "\n".join(filter(None, lines))
    body += f"\n{head}\n{indent(chr(10).join(filter(None, loop)), '    ')}\n"
    body += "\n".join(filter(None, final))
    taken = writer.unpacked(("", "", "LATER"))[2].replace("batch", "fixed")
    words = {
        "HOLDER": writer.state.removesuffix(".state_dict()"),
        "EVALUATE": again,
        "EVALON": again.replace("test_loader", "loader"),
        "COLLECT": f"collect({', '.join('test_loader' if it == 'loader' else it for it in writer.collecting()[0])})",
        "FIXED": f"{taken}\n{writer.losses}",
        "ROW": row,
        "STATE": writer.state,
    }
    kept = rf"^( *)(.*?)\b({'|'.join(words)})\b"
    while re.search(kept, body, re.MULTILINE):
        body = re.sub(
            kept,
            lambda it: it[1] + it[2] + words[it[3]].replace("\n", "\n" + it[1]),
            body,
            flags=re.MULTILINE,
        )
    body = writer.sized(body)
    if author.happens("folds", 0.08):
        body = body.replace("build_loaders(", "build_loaders(fold, ")
        body = f"for fold in range(2):\n    print('fold', fold)\n{indent(body, '    ')}"
    if author.happens("a main", 0.7):
        return _function("main", [], body) + '\n\nif __name__ == "__main__":\n    main()\n'
    return body + "\n"


def _ends(author: Author, pool: dict[str, object]) -> list[str]:
    """What is done at the end of an epoch: some that don't use the same names; what may stop comes last."""
    names = author.chance.sample(sorted(pool), author.chance.choice([1, 2, 2, 3]))
    kept: list[str] = []
    taken: set[str] = set()
    for name in names:
        used = set(
            re.findall(r"\b(best|rows|record|log|curve|kept|logger|tee|row)\b", "\n".join(pieces.ENDS[name]))
        )
        files = set(re.findall(r'"([\w.]+\.\w+)"', "\n".join(pieces.ENDS[name])))
        if not (used | files) & taken:
            kept.append(name)
            taken |= used | files
    author.chosen["ends"] = ", ".join(kept)
    return sorted(kept, key=lambda it: "break" in pieces.ENDS[it][1])


def _several(author: Author, parts: dict[str, str]) -> dict[str, str]:
    """Files that import from each other what they use."""
    folder = author.pick("folder", {"beside": "", "a package": "lib"})
    defined = {part: _defined(source) for part, source in parts.items() if part != "train"}
    files = {f"{folder}/__init__.py": ""} if folder else {}
    for part, source in parts.items():
        used = {it.id for it in ast.walk(ast.parse(source)) if isinstance(it, ast.Name)}
        lines = [
            f"from {folder + '.' if folder else ''}{other} import {', '.join(names)}"
            for other, known in defined.items()
            if other != part and (names := sorted(known & used - defined.get(part, set())))
        ]
        path = "train.py" if part == "train" or not folder else f"{folder}/{part}.py"
        path = path if folder else f"{part}.py"
        files[path] = f"{pieces.IMPORTS}\n" + "\n".join(lines) + f"\n\n\n{source}"
    return files


def _defined(source: str) -> set[str]:
    found: set[str] = set()
    for it in ast.parse(source).body:
        if isinstance(it, ast.FunctionDef | ast.ClassDef):
            found.add(it.name)
        elif isinstance(it, ast.Assign):
            found |= {
                name.id for target in it.targets for name in ast.walk(target) if isinstance(name, ast.Name)
            }
    return found
