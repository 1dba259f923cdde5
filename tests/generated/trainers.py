"""Programs whose loop over epochs belongs to an object: trainers that are derived from, runners with hooks, states.

Unlike in ``shaped``, the whole training is in classes that ask others, by methods that are overridden, callbacks that
are called by name, objects that configuration names.
"""

from __future__ import annotations

import random
import re
from textwrap import indent

from generated import lessons, pieces, tasks
from generated.author import Author, Program
from generated.shaped import Writer, _data, _numbers, _owned, _several

TASKS = {
    name: {**tasks.TASKS, **lessons.TASKS}[name]
    for name in (
        "classify",
        "classify again",
        "own criterion",
        "features",
        "regress",
        "autoencoder",
        "sequences",
        "tags",
        "pairs",
        "segment",
        "labels",
        "two heads",
        "words",
        "paths",
        "boxes",
        "curves",
        "two views",
        "mined",
    )
}
OWN = ["model", "criterion", "optimizer", "scheduler", "device", "loader", "test_loader"]
SETTINGS = {
    "a dictionary": """\
CONFIG = {
    "name": "Net",
    "n_gpu": GPUS,
    "loader": {"batch_size": BATCH},
    "optimizer": {"type": "SGD", "args": {"lr": 0.05, "momentum": 0.9}},
    "lr_scheduler": {"type": "StepLR", "args": {"step_size": 1, "gamma": 0.5}},
    "trainer": {"epochs": 3, "save_dir": "saved", "save_period": 1, "every": 2, "early_stop": 2},
}


def get_config():
    return CONFIG
""",
    "of a file": """\
def get_config():
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", "--config", default="config.json", type=str)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    if not os.path.exists(args.config):
        with open(args.config, "w") as file:
            json.dump({"name": "Net", "n_gpu": GPUS, "loader": {"batch_size": BATCH}}, file)
    with open(args.config) as file:
        config = json.load(file)
    config["optimizer"] = {"type": "Adam", "args": {"lr": 0.02}}
    config["lr_scheduler"] = {"type": "ExponentialLR", "args": {"gamma": 0.9}}
    config["trainer"] = dict(epochs=args.epochs, save_dir="saved", save_period=1, every=2, early_stop=2)
    return config
""",
    "dataclasses": """\
@dataclass
class TrainerConfig:
    epochs: int = 3
    save_dir: str = "saved"
    save_period: int = 1
    every: int = 2
    early_stop: int = 2


class Config(dict):
    __getattr__ = dict.__getitem__


def get_config():
    return Config(
        name="Net",
        n_gpu=GPUS,
        loader={"batch_size": BATCH},
        optimizer={"type": "SGD", "args": {"lr": 0.05}},
        lr_scheduler={"type": "MultiStepLR", "args": {"milestones": [1, 2], "gamma": 0.5}},
        trainer=asdict(TrainerConfig()),
    )
""",
}
UTILS = """\
class MetricTracker:
    def __init__(self, *keys, writer=None):
        self.writer = writer
        self._data = {key: {"total": 0.0, "counts": 0, "average": 0.0} for key in keys}

    def reset(self):
        for row in self._data.values():
            row.update(total=0.0, counts=0, average=0.0)

    def update(self, key, value, n=1):
        if self.writer is not None:
            self.writer.add_scalar(key, value)
        self._data[key]["total"] += value * n
        self._data[key]["counts"] += n
        self._data[key]["average"] = self._data[key]["total"] / self._data[key]["counts"]

    def avg(self, key):
        return self._data[key]["average"]

    def result(self):
        return {key: row["average"] for key, row in self._data.items()}


class ScalarWriter:
    def __init__(self, path):
        self.file = open(path, "w")
        self.step = 0

    def set_step(self, step):
        self.step = step

    def add_scalar(self, key, value):
        self.file.write(json.dumps({"step": self.step, key: round(float(value), 6)}) + "\\n")
        self.file.flush()


def ensure_dir(dirname):
    if not os.path.isdir(dirname):
        os.makedirs(dirname)


def prepare_device(n_gpu_use):
    n_gpu = torch.cuda.device_count()
    if n_gpu_use > 0 and n_gpu == 0:
        n_gpu_use = 0
    if n_gpu_use > n_gpu:
        n_gpu_use = n_gpu
    device = torch.device("cuda:0" if n_gpu_use > 0 else "cpu")
    return device, list(range(n_gpu_use))


def build(module, settings, *args, **more):
    return getattr(module, settings["type"])(*args, **{**settings["args"], **more})


MODELS = {}


def register(name):
    def keep(made):
        MODELS[name] = made
        return made

    return keep


class AttrDict(dict):
    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value
"""
BASE = '''\
class BaseTrainer:
    """Base class for all trainers."""

    def __init__(self, model, criterion, optimizer, config):
        self.config = config
        self.logger = logging.getLogger("trainer")
        self.device, device_ids = prepare_device(config["n_gpu"])
        self.model = model.to(self.device)
        if len(device_ids) > 1:
            self.model = torch.nn.DataParallel(model, device_ids=device_ids)
        self.criterion = criterion
        self.optimizer = optimizer
        trainer = config["trainer"]
        self.epochs = trainer["epochs"]
        self.save_period = trainer["save_period"]
        self.early_stop = trainer["early_stop"]
        self.every = trainer["every"]
        self.checkpoint_dir = trainer["save_dir"]
        self.monitor_best = MONITOR
        self.start_epoch = 1
        ensure_dir(self.checkpoint_dir)
        self.writer = ScalarWriter("scalars.jsonl")
        last = os.path.join(self.checkpoint_dir, "last.pth")
        if os.path.exists(last):
            self._resume_checkpoint(last)

    @abstractmethod
    def _train_epoch(self, epoch):
        raise NotImplementedError

    def _better(self, log):
        return BETTER

    def train(self):
        not_improved_count = 0
        for epoch in range(self.start_epoch, self.epochs + 1):
            result = self._train_epoch(epoch)
            log = {"epoch": epoch}
            log.update(result)
            for key, value in log.items():
                print("    {:15s}: {:.6f}".format(str(key), float(value)))
            best = False
            if self._better(log):
                self.monitor_best = WATCHED
                not_improved_count = 0
                best = True
            else:
                not_improved_count += 1
            if not_improved_count >= self.early_stop:
                print("Validation performance didn't improve for {} epochs.".format(self.early_stop))
                break
            if epoch % self.save_period == 0:
                self._save_checkpoint(epoch, save_best=best)
        return self.monitor_best

    def _save_checkpoint(self, epoch, save_best=False):
        state = {
            "arch": type(self.model).__name__,
            "epoch": epoch,
            "state_dict": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "monitor_best": self.monitor_best,
        }
        filename = os.path.join(self.checkpoint_dir, "last.pth")
        torch.save({key: it for key, it in state.items() if key != "arch"}, filename)
        self.logger.info("Saving checkpoint: {} ...".format(filename))
        if save_best:
            best_path = os.path.join(self.checkpoint_dir, "model_best.pth")
            torch.save(self.model.state_dict(), best_path)
            print("Saving current best: model_best.pth ...")

    def _resume_checkpoint(self, resume_path):
        print("Loading checkpoint: {} ...".format(resume_path))
        checkpoint = torch.load(resume_path, weights_only=False)
        self.start_epoch = checkpoint["epoch"] + 1
        self.epochs += checkpoint["epoch"]
        self.monitor_best = checkpoint["monitor_best"]
        self.model.load_state_dict(checkpoint["state_dict"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])


class Trainer(BaseTrainer):
    def __init__(self, model, criterion, optimizer, config, loader, test_loader, scheduler=None):
        super().__init__(model, criterion, optimizer, config)
        self.loader = loader
        self.test_loader = test_loader
        self.do_validation = self.test_loader is not None
        self.scheduler = scheduler
        self.log_step = int(np.sqrt(loader.batch_size))
        self.train_metrics = MetricTracker("loss", "score", writer=self.writer)
        self.valid_metrics = MetricTracker("loss", "score", writer=self.writer)

    def _train_epoch(self, epoch):
        self.model.train()
        self.train_metrics.reset()
        NUMBERS_BEFORE
        for step, batch in enumerate(self.loader):
            LATER
            self.optimizer.zero_grad()
            LOSSES
            loss.backward()
            self.optimizer.step()
            self.writer.set_step((epoch - 1) * len(self.loader) + step)
            self.train_metrics.update("loss", loss.item())
            self.train_metrics.update("score", SCORE, SIZE)
            NUMBERS_INSIDE
            if step % self.log_step == 0:
                print("Train Epoch: {} {} Loss: {:.6f}".format(epoch, self._progress(step), loss.item()))
        shown = {}
        NUMBERS_AFTER
        log = {**self.train_metrics.result(), **shown}
        if self.do_validation:
            val_log = self._valid_epoch(epoch)
            log.update(**{"val_" + k: v for k, v in val_log.items()})
        if self.scheduler is not None:
            self.scheduler.step()
        return log

    def _valid_epoch(self, epoch):
        self.model.eval()
        self.valid_metrics.reset()
        TEST_BEFORE
        with torch.no_grad():
            for step, batch in enumerate(self.test_loader):
                LATER
                LOSSES
                self.writer.set_step((epoch - 1) * len(self.test_loader) + step)
                self.valid_metrics.update("loss", loss.item())
                self.valid_metrics.update("score", SCORE, SIZE)
                TEST_INSIDE
        shown = {}
        TEST_AFTER
        return {**self.valid_metrics.result(), **shown}

    def _progress(self, step):
        base = "[{}/{} ({:.0f}%)]"
        current = step * self.loader.batch_size
        total = len(self.loader.dataset)
        return base.format(current, total, 100.0 * current / total)
'''
BASE_MAIN = """\
set_seed(3)
config = get_config()
loader, test_loader = build_loaders(config["loader"]["batch_size"])
model = MADE
device, _ = prepare_device(config["n_gpu"])
criterion = CRITERION
trainable_params = filter(lambda p: p.requires_grad, model.parameters())
optimizer = build(torch.optim, config["optimizer"], trainable_params)
scheduler = build(torch.optim.lr_scheduler, config["lr_scheduler"], optimizer)
trainer = Trainer(model, criterion, optimizer, config=config, loader=loader, test_loader=test_loader, scheduler=scheduler)
print("best %.6f" % trainer.train())
"""
FIT = '''\
class Callback:
    def on_train_begin(self, trainer):
        pass

    def on_epoch_begin(self, trainer, epoch):
        pass

    def on_batch_end(self, trainer, step, logs):
        pass

    def on_epoch_end(self, trainer, epoch, logs):
        pass

    def on_train_end(self, trainer):
        pass


class Progress(Callback):
    def __init__(self, every):
        self.every, self.losses = every, []

    def on_batch_end(self, trainer, step, logs):
        self.losses.append(logs["loss"])
        if (step + 1) % self.every == 0:
            print("step %d loss %.6f" % (step, sum(self.losses) / len(self.losses)))
            self.losses = []


class Checkpoint(Callback):
    def __init__(self, folder, monitor="val_loss", mode="min"):
        self.folder, self.monitor = folder, monitor
        self.sign = 1 if mode == "min" else -1
        self.best = float("inf")

    def on_epoch_end(self, trainer, epoch, logs):
        value = self.sign * logs[self.monitor]
        if value < self.best:
            print("%s improved from %.6f to %.6f" % (self.monitor, self.best, value))
            self.best = value
            os.makedirs(self.folder, exist_ok=True)
            torch.save(trainer.unwrapped().state_dict(), os.path.join(self.folder, "best.pt"))


class Stopping(Callback):
    def __init__(self, patience):
        self.patience, self.waited, self.best = patience, 0, None

    def on_epoch_end(self, trainer, epoch, logs):
        if self.best is None or logs["val_loss"] < self.best - 1e-3:
            self.best, self.waited = logs["val_loss"], 0
        else:
            self.waited += 1
            trainer.stop_training = self.waited >= self.patience


class Rates(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        trainer.scheduler.step(logs["val_loss"])
        logs["lr"] = trainer.optimizer.param_groups[0]["lr"]


class Records(Callback):
    def on_train_begin(self, trainer):
        self.rows = []

    def on_epoch_end(self, trainer, epoch, logs):
        self.rows.append({"epoch": epoch, **logs})
        with open("records.json", "w") as file:
            json.dump(self.rows, file)

    def on_train_end(self, trainer):
        with open("records.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


class Engine:
    """The parts that any training has."""

    def __init__(self, model, criterion, optimizer, scheduler, device, callbacks=()):
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self.scheduler, self.device = scheduler, device
        self.callbacks = list(callbacks)
        self.stop_training = False

    def unwrapped(self):
        return self.model.module if hasattr(self.model, "module") else self.model

    def call(self, name, *args):
        for callback in self.callbacks:
            getattr(callback, name)(self, *args)

    def training_step(self, batch):
        raise NotImplementedError

    def validation_step(self, batch):
        return self.training_step(batch)

    def fit(self, loader, test_loader, epochs):
        self.call("on_train_begin")
        for epoch in range(epochs):
            self.call("on_epoch_begin", epoch)
            logs = self.train_epoch(loader)
            logs.update({f"val_{key}": value for key, value in self.evaluate(test_loader).items()})
            self.call("on_epoch_end", epoch, logs)
            print(" ".join("%s %.6f" % (key, value) for key, value in logs.items()))
            if self.stop_training:
                print("stopped")
                break
        self.call("on_train_end")
        return logs

    def train_epoch(self, loader):
        self.model.train()
        total, count = 0.0, 0
        for step, batch in enumerate(loader):
            loss, logs = self.training_step(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            count += 1
            self.call("on_batch_end", step, {"loss": loss.item(), **logs})
        return {"loss": total / count}

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        outs = [self.validation_step(batch) for batch in loader]
        return self.validation_end(outs)

    def validation_end(self, outs):
        return {"loss": float(np.mean([loss.item() for loss, _ in outs]))}


class Task(Engine):
    def training_step(self, batch):
        LATER
        LOSSES
        return loss, {"score": SCORE}

    def validation_end(self, outs):
        logs = super().validation_end(outs)
        logs["score"] = sum(it["score"] for _, it in outs) / len(outs)
        return logs
'''
FIT_MAIN = """\
set_seed(3)
config = get_config()
loader, test_loader = build_loaders(config["loader"]["batch_size"])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = MADE.to(device)
if torch.cuda.device_count() > 1:
    print("several devices")
    model = nn.DataParallel(model)
criterion = CRITERION
optimizer = build(torch.optim, config["optimizer"], model.parameters())
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
callbacks = [Progress(config["trainer"]["every"]), Rates(), Checkpoint("saved", MONITORED), Records(), Stopping(2)]
task = Task(model, criterion, optimizer, scheduler, device, callbacks)
logs = task.fit(loader, test_loader, epochs=config["trainer"]["epochs"])
print("last %.6f" % logs["val_loss"])
"""
RUNNER = """\
class Hook:
    def before_run(self, runner):
        pass

    def after_run(self, runner):
        pass

    def before_epoch(self, runner):
        pass

    def after_epoch(self, runner):
        pass

    def after_iter(self, runner):
        pass

    def every_n_iters(self, runner, n):
        return (runner.iter + 1) % n == 0


class OptimizerHook(Hook):
    def __init__(self, grad_clip=None):
        self.grad_clip = grad_clip

    def after_iter(self, runner):
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        if self.grad_clip is not None:
            nn.utils.clip_grad_norm_(runner.model.parameters(), **self.grad_clip)
        runner.optimizer.step()


class LogHook(Hook):
    def __init__(self, interval):
        self.interval = interval

    def before_epoch(self, runner):
        runner.buffer.clear()

    def after_iter(self, runner):
        for key, value in runner.outputs["log_vars"].items():
            runner.buffer[key].append(value)
        if self.every_n_iters(runner, self.interval):
            shown = {key: float(np.mean(kept[-self.interval :])) for key, kept in runner.buffer.items()}
            print("Iter [%d] " % runner.iter + ", ".join("%s: %.6f" % it for it in shown.items()))


class EvalHook(Hook):
    def __init__(self, loader):
        self.loader = loader
        self.best = None

    def after_epoch(self, runner):
        runner.model.eval()
        results, total = [], 0.0
        with torch.no_grad():
            for batch in self.loader:
                outputs = runner.step(batch)
                results.append(outputs["log_vars"]["score"])
                total += outputs["log_vars"]["loss"] * outputs["num_samples"]
        score = sum(results) / len(results)
        print("Epoch %d score %.6f loss %.6f" % (runner.epoch, score, total / len(self.loader.dataset)))
        if self.best is None or score > self.best:
            self.best = score
            runner.save_checkpoint("best.pth")
        runner.history.append(score)


class LrHook(Hook):
    def __init__(self, step, warmup=0):
        self.step, self.warmup = step, warmup

    def before_run(self, runner):
        for group in runner.optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])

    def after_iter(self, runner):
        if runner.iter < self.warmup:
            for group in runner.optimizer.param_groups:
                group["lr"] = group["initial_lr"] * (runner.iter + 1) / self.warmup

    def after_epoch(self, runner):
        if (runner.epoch + 1) % self.step == 0:
            for group in runner.optimizer.param_groups:
                group["lr"] *= 0.5


class CheckpointHook(Hook):
    def after_epoch(self, runner):
        runner.save_checkpoint("epoch_{}.pth".format(runner.epoch + 1))


class Runner:
    def __init__(self, model, criterion, optimizer, device, work_dir):
        self.model, self.criterion, self.optimizer, self.device = model, criterion, optimizer, device
        self.work_dir = work_dir
        os.makedirs(work_dir, exist_ok=True)
        self._hooks = []
        self.epoch = self.iter = 0
        self.buffer, self.history = defaultdict(list), []

    def register_hook(self, hook, first=False):
        self._hooks.insert(0 if first else len(self._hooks), hook)

    def call_hook(self, name):
        for hook in self._hooks:
            getattr(hook, name)(self)

    def step(self, batch):
        LATER
        LOSSES
        log_vars = {"loss": loss.item(), "score": SCORE}
        return {"loss": loss, "log_vars": log_vars, "num_samples": SIZE}

    def save_checkpoint(self, name):
        model = self.model.module if isinstance(self.model, nn.DataParallel) else self.model
        torch.save({"state_dict": model.state_dict(), "meta": {"epoch": self.epoch}}, os.path.join(self.work_dir, name))

    def train(self, loader):
        self.model.train()
        self.call_hook("before_epoch")
        for batch in loader:
            self.outputs = self.step(batch)
            self.call_hook("after_iter")
            self.iter += 1
        self.call_hook("after_epoch")
        self.epoch += 1

    def run(self, loader, epochs):
        self.call_hook("before_run")
        while self.epoch < epochs:
            self.train(loader)
        self.call_hook("after_run")
"""
RUNNER_MAIN = """\
set_seed(3)
config = get_config()
loader, test_loader = build_loaders(config["loader"]["batch_size"])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.DataParallel(MADE, device_ids=list(range(torch.cuda.device_count()))).to(device)
criterion = CRITERION
optimizer = build(torch.optim, config["optimizer"], model.parameters())
runner = Runner(model, criterion, optimizer, device, "work")
runner.register_hook(OptimizerHook(CLIP))
runner.register_hook(LrHook(step=1, warmup=2))
runner.register_hook(LogHook(config["trainer"]["every"]))
runner.register_hook(EvalHook(test_loader))
runner.register_hook(CheckpointHook())
runner.run(loader, config["trainer"]["epochs"])
print("scores", ["%.6f" % it for it in runner.history])
"""
STATE = """\
def train_epoch(state):
    model, criterion, optimizer, device = state.model, state.criterion, state.optimizer, state.device
    loader = state.loader
    model.train()
    NUMBERS_BEFORE
    for step, batch in enumerate(loader):
        LATER
        LOSSES
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        state.history["loss"].append(loss.item())
        NUMBERS_INSIDE
        if state.step % state.every == 0:
            print("%d %.6f" % (state.step, np.mean(state.history["loss"][-state.every :])))
    shown = {}
    NUMBERS_AFTER
    return shown


@torch.no_grad()
def evaluate(state, loader):
    model, criterion, device = state.model, state.criterion, state.device
    model.eval()
    TEST_BEFORE
    for step, batch in enumerate(loader):
        LATER
        LOSSES
        TEST_INSIDE
    shown = {}
    TEST_AFTER
    return shown


def report(state, name, numbers):
    for key, number in numbers.items():
        state.history[f"{name}/{key}"].append(number)
        print("%s %s %.6f" % (name, key, number))


def save(state, path="state.pth"):
    kept = {"model": state.model.module.state_dict(), "optimizer": state.optimizer.state_dict()}
    torch.save({**kept, "step": state.step, "history": dict(state.history)}, path)


def load(state, path="state.pth"):
    if os.path.isfile(path):
        kept = torch.load(path, weights_only=False)
        state.model.module.load_state_dict(kept["model"])
        state.optimizer.load_state_dict(kept["optimizer"])
        state.step = kept["step"]
        state.history.update(kept["history"])
        print("loaded step", state.step)
"""
STATE_MAIN = """\
set_seed(3)
config = get_config()
state = STATE_KIND()
state.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
state.every, state.step, state.history = config["trainer"]["every"], 0, defaultdict(list)
state.loader, state.test_loader = build_loaders(config["loader"]["batch_size"])
state.model = nn.DataParallel(MADE.to(state.device))
device, loader = state.device, state.loader
state.criterion = CRITERION
state.optimizer = build(torch.optim, config["optimizer"], state.model.parameters())
load(state)
for epoch in range(config["trainer"]["epochs"]):
    report(state, "train", train_epoch(state))
    report(state, "test", evaluate(state, state.test_loader))
    save(state)
with open("history.json", "w") as file:
    json.dump(state.history, file)
"""
KINDS = {
    "template": (BASE, BASE_MAIN, 2),
    "fit": (FIT, FIT_MAIN, 1),
    "runner": (RUNNER, RUNNER_MAIN, 1),
    "state": (STATE, STATE_MAIN, 2),
}
SCORES = {
    "of the loss": "(-loss).exp().item()",
    "spread": "outputs.detach().abs().mean().item()",
    "largest": "outputs.max().item()",
    "a function": "score_of(outputs)",
}
SCORE_OF = "def score_of(outputs):\n    with torch.no_grad():\n        return outputs.double().tanh().mean().item()\n"
MADE = {
    "plain": "Net()",
    "registered": "build_model(config['name'])",
    "by name": "globals()[config['name']]()",
    "with options": "Net(**{'hidden': 6})",
}


def program(seed: int) -> Program:
    """One program, and what its author decided."""
    author = Author(random.Random(seed), rare=pieces.RARE)
    pick = author.pick
    name = author.one("task", TASKS)
    task = TASKS[name]
    author.chosen.update({"settings": "constants", "folds": "no"})
    writer = Writer(author, task, _numbers(author, task, "training"), _numbers(author, task, "evaluation"))
    kind = author.one("kind", KINDS)
    engine, main, runs = KINDS[kind]
    later = writer.unpacked(("", "", "LATER"))[2]
    words = {
        "LATER": later,
        "LOSSES": writer.losses,
        "SCORE": pick("score", SCORES),
        "CLIP": pick("clip", {"none": "None", "clipped": "{'max_norm': 1.0}"}),
        "MONITORED": pick("monitored", {"the loss": "", "the score": "'val_score', mode='max'"}),
        "MONITOR": "float('inf')",
        "BETTER": "log['val_loss'] <= self.monitor_best",
        "WATCHED": "log['val_loss']",
        "STATE_KIND": pick("state kind", {"a namespace": "SimpleNamespace", "attributes": "AttrDict"}),
        "MADE": pick("made", MADE),
        "CRITERION": task.criterion,
        **_placed("NUMBERS", writer.train_numbers),
        **_placed("TEST", writer.test_numbers),
    }
    main = main.replace("'val_score'", '"val_score"')
    text = re.sub(r"\blen\(data\)", "len(loader.dataset)", writer.sized(_filled(engine, words)))
    if kind in ("template", "fit", "runner"):
        text = "\n".join(_method(part) for part in re.split(r"\n(?=    def |    @|class )", text))
    main = _filled(main, words).replace('Checkpoint("saved", )', 'Checkpoint("saved")')
    if "globals()" in main:
        author.chosen["several files"] = "no"
    models = pick("model", task.models)
    if author.chosen["made"] == "registered":
        models = re.sub(r"^(class Net\b)", r'@register("Net")\n\1', models, flags=re.MULTILINE)
        models += "\n\ndef build_model(name):\n    return MODELS[name]()\n"
    gpus = pick("devices", {"many": "4", "two": "2"})
    config = pick("configuration", SETTINGS).replace("GPUS", gpus).replace("BATCH", str(writer.batch))
    data = _data(writer)
    parts = {
        "config": config,
        "utils": f"torch.set_default_dtype(torch.float64)\n{tasks.UTILS}\n\n{pieces.UTILS}\n\n{UTILS}\n\n{SCORE_OF}",
        "data": data,
        "models": f"{models}\n\n{task.extra}",
        "engine": text,
        "train": f"def main():\n{indent(main, '    ')}\n\nif __name__ == \"__main__\":\n    main()\n",
    }
    parts = {part: writer.opted(source) for part, source in parts.items()}
    heads = pieces.IMPORTS + "from abc import abstractmethod\nfrom dataclasses import asdict\n"
    files = (
        _several(author, parts)
        if author.happens("several files", 0.6)
        else {"train.py": f"{pieces.IMPORTS}\n" + "\n\n".join(parts.values())}
    )
    files = {path: it.replace(pieces.IMPORTS, heads, 1) for path, it in files.items()}
    runs = runs if author.happens("run again", 0.5) else 1
    return Program(files, author.chosen, runs=runs, asks_for_gpus=kind == "template")


def _placed(word: str, numbers: list[tasks.Number]) -> dict[str, str]:
    before, inside, after = ("\n".join(it[k] for it in numbers) or "pass" for k in range(3))
    return {f"{word}_BEFORE": before, f"{word}_INSIDE": inside, f"{word}_AFTER": after}


def _filled(text: str, words: dict[str, str]) -> str:
    """Source with its words replaced; what has several lines is indented as the word is."""
    pattern = rf"^( *)(.*?)\b({'|'.join(sorted(words, key=len, reverse=True))})\b"
    while re.search(pattern, text, re.MULTILINE):
        text = re.sub(
            pattern,
            lambda it: it[1] + it[2] + words[it[3]].replace("\n", "\n" + it[1]),
            text,
            flags=re.MULTILINE,
        )
    return text


def _method(text: str) -> str:
    """A method, with what the object has."""
    head, body, rest = (
        re.split(r"(\):\n)", text, maxsplit=1) if re.match(r"    (@.*\n    )?def ", text) else ("", "", text)
    )
    if not head:
        return text
    given = set(re.findall(r"\w+", head))
    return head + body + _owned(rest, [it for it in OWN if it not in given])
