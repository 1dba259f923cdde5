"""What programs of any task have beside it: data sets, loaders, schedules, what is done at the end of an epoch, files."""

from __future__ import annotations

IMPORTS = """\
import argparse
import copy
import csv
import json
import logging
import math
import os
import pickle
from collections import defaultdict, deque
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import (
    DataLoader, Dataset, IterableDataset, Subset, SubsetRandomSampler, WeightedRandomSampler, random_split
)
"""
SETTINGS = {
    "options": """\
def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", default=BATCH, type=int, metavar="N")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--every", type=int, default=2, help="steps between two lines")
    return parser.parse_args()
""",
    "a dataclass": """\
@dataclass
class Config:
    epochs: int = 2
    batch_size: int = BATCH
    lr: float = 0.05
    every: int = 2
""",
    "a namespace": "",
    "constants": "EPOCHS = 2\nBATCH_SIZE = BATCH\nLR = 0.05\nEVERY = 2\n",
    "a dictionary": 'CONFIG = {"epochs": 2, "batch_size": BATCH, "lr": 0.05, "every": 2}\n',
}
ARGS = {
    "options": "args = parse_args()\n",
    "a dataclass": "args = Config()\n",
    "a namespace": "args = SimpleNamespace(epochs=2, batch_size=BATCH, lr=0.05, every=2)\n",
    "constants": "",
    "a dictionary": "",
}
DATASETS = {
    "samples": """\
class Samples(Dataset):
    def __init__(self, count, seed):
        draw = np.random.RandomState(seed)
        self.samples = [sample(draw) for _ in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return ITEM
""",
    "drawn by index": """\
class Samples(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self_samples = {index: sample(np.random.RandomState(self.seed * 1000 + index))}
        return ITEM_OF
""",
    "cached": """\
class Samples(Dataset):
    def __init__(self, count, seed):
        path = f"cache_{seed}.pkl"
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.samples = pickle.load(file)
        else:
            draw = np.random.RandomState(seed)
            self.samples = [sample(draw) for _ in range(count)]
            with open(path, "wb") as file:
                pickle.dump(self.samples, file)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return ITEM
""",
    "a stream": """\
class Samples(IterableDataset):
    def __init__(self, count, seed):
        draw = np.random.RandomState(seed)
        self.samples = [sample(draw) for _ in range(count)]

    def __len__(self):
        return len(self.samples)

    def __iter__(self):
        for index in range(len(self.samples)):
            yield ITEM
""",
}
LOADERS = {
    "shuffled": "loader = DataLoader(data, batch_size=batch_size, shuffle=TrueMORE)",
    "dropping": "loader = DataLoader(data, batch_size, shuffle=True, drop_last=TrueMORE)",
    "in order": "loader = DataLoader(data, batch_size=batch_sizeMORE)",
    "weighted": "weights = [1.0 + index % 3 for index in range(len(data))]\nsampler = WeightedRandomSampler(weights, len(data))\nloader = DataLoader(data, batch_size=batch_size, sampler=samplerMORE)",
    "of indices": "sampler = SubsetRandomSampler(list(range(0, len(data), 2)) + list(range(1, len(data), 4)))\nloader = DataLoader(data, batch_size, sampler=samplerMORE)",
    "a part": "loader = DataLoader(Subset(data, range(3, len(data))), batch_size=batch_size, shuffle=TrueMORE)",
    "by options": 'options = {"batch_size": batch_size, "num_workers": 0}\nloader = DataLoader(data, shuffle=TrueMORE, **options)',
    "two workers": "loader = DataLoader(data, batch_size=batch_size, shuffle=True, num_workers=2MORE)",
}
OPTIMIZERS = {
    "sgd": "torch.optim.SGD(model.parameters(), lr=OPT_lr, momentum=0.9)",
    "adam": "torch.optim.Adam(model.parameters(), lr=OPT_lr)",
    "filtered": "torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=OPT_lr)",
    "of the module": "torch.optim.SGD(model.module.parameters(), OPT_lr, weight_decay=1e-3)",
}
# When it is made, at each step, at the end of an epoch.
SCHEDULES = {
    "none": ("", "", ""),
    "none at all": ("", "", ""),
    "steps": ("torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)", "", "scheduler.step()"),
    "one cycle": (
        "torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=OPT_lr, steps_per_epoch=len(loader), epochs=OPT_epochs + 1)",
        "scheduler.step()",
        "",
    ),
    "cosine by steps": (
        "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=OPT_epochs * len(loader))",
        "scheduler.step()",
        "",
    ),
    "warm-up": (
        "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / len(loader)))",
        "scheduler.step()",
        "",
    ),
    "plateau": (
        'torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=0)',
        "",
        "scheduler.step(value)",
    ),
    "by hand": ("", "", "for group in optimizer.param_groups:\n    group['lr'] *= 0.5"),
}
STEPS = {
    "plain": "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    "clipped": "optimizer.zero_grad()\nloss.backward()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    "accumulated": "(loss / 2).backward()\nif (step + 1) % 2 == 0 or step + 1 == len(loader):\n    optimizer.step()\n    optimizer.zero_grad()",
    "guarded": "if not torch.isfinite(loss):\n    raise RuntimeError('not finite')\noptimizer.zero_grad(set_to_none=True)\nloss.backward()\noptimizer.step()",
    "closure": "def closure():\n    return loss\n\noptimizer.zero_grad()\nloss.backward()\noptimizer.step(closure)",
}
HEADS = {
    "enumerated": ("", "for step, GIVEN in enumerate(loader):", "TAKEN"),
    "unpacked later": ("", "for step, batch in enumerate(loader):", "LATER"),
    "from one": ("", "for step, GIVEN in enumerate(loader, start=0):", "TAKEN"),
    "counted": ("step = -1", "for batch in loader:", "step += 1\nLATER"),
    "next": ("drawn = iter(loader)", "for step in range(len(loader)):", "batch = next(drawn)\nLATER"),
    "endless": (
        "drawn = endless(loader)",
        "for step in range(len(loader)):",
        "batch = next(drawn)\nLATER",
    ),
    "again": (
        "drawn = iter(loader)",
        "for step in range(len(loader) + 1):",
        "try:\n    batch = next(drawn)\nexcept StopIteration:\n    drawn = iter(loader)\n    batch = next(drawn)\nLATER",
    ),
    "log_every": (
        "metric_logger = MetricLogger()",
        'for step, batch in enumerate(metric_logger.log_every(loader, OPT_every, "Epoch")):',
        "LATER",
    ),
    "a bar": ("", "for step, GIVEN in enumerate(Bar(loader)):", "TAKEN"),
}
SHOWS = {
    "every": 'print("%d %d %.6f" % (epoch, step, loss.item()))',
    "every few": 'if step % OPT_every == 0:\n    print(f"epoch {epoch} step {step}/{len(loader)} loss {loss.item():.6f}")',
    "seen": 'if (step + 1) % OPT_every == 0:\n    print("[{}/{}] {:.6f}".format(step * SIZE, len(loader.dataset), loss.item()))',
    "nothing": "",
    "nothing at all": "",
    "logged": 'if step % OPT_every == 0:\n    logging.getLogger("train").info("step %d loss %.6f", step, loss.item())',
}
UTILS = """\
def endless(loader):
    while True:
        for batch in loader:
            yield batch


class Bar:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield batch

    def __len__(self):
        return len(self.loader)


class Ema:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = {name: value.detach().clone() for name, value in model.named_parameters()}

    def update(self, model):
        for name, value in model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(value.detach(), alpha=1 - self.decay)

    def norm(self):
        return sum(value.pow(2).sum().item() for value in self.shadow.values()) ** 0.5


class ModelEma:
    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        mine, others = self.module.state_dict(), model.state_dict()
        for name in mine:
            if mine[name].is_floating_point():
                mine[name].copy_(self.decay * mine[name] + (1 - self.decay) * others[name])

    def norm(self):
        return math.sqrt(sum(p.pow(2).sum().item() for p in self.module.parameters()))


class Callback:
    def on_epoch_end(self, epoch, logs, model):
        pass


class Writer(Callback):
    def __init__(self, path):
        self.path, self.keys = path, None

    def on_epoch_end(self, epoch, logs, model):
        with open(self.path, "a", newline="") as file:
            writer = csv.writer(file)
            if self.keys is None:
                self.keys = sorted(logs)
                writer.writerow(self.keys)
            writer.writerow(["%.6f" % logs[key] for key in self.keys])


class Keeper(Callback):
    def __init__(self, key):
        self.key, self.best = key, None

    def on_epoch_end(self, epoch, logs, model):
        if self.best is None or logs[self.key] > self.best:
            self.best = logs[self.key]
            torch.save(model.state_dict(), "kept.pth")


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(lambda: deque(maxlen=3))
        self.totals, self.counts = defaultdict(float), defaultdict(int)

    def update(self, **numbers):
        for name, number in numbers.items():
            if isinstance(number, torch.Tensor):
                number = number.item()
            self.meters[name].append(number)
            self.totals[name] += number
            self.counts[name] += 1

    def mean(self, name):
        return self.totals[name] / self.counts[name]

    def log_every(self, loader, every, header=""):
        for index, batch in enumerate(loader):
            yield batch
            if index % every == 0:
                now = " ".join(f"{name} {np.mean(kept):.6f}" for name, kept in self.meters.items())
                print(f"{header} [{index}/{len(loader)}] {now}")


class EarlyStopping:
    def __init__(self, patience=1, path="stopping.pth"):
        self.patience, self.path = patience, path
        self.best, self.counter, self.stop = None, 0, False

    def __call__(self, score, model):
        if self.best is None or score > self.best:
            self.best, self.counter = score, 0
            torch.save(model.state_dict(), self.path)
        else:
            self.counter += 1
            print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            self.stop = self.counter >= self.patience


class History:
    def __init__(self, path):
        self.path, self.rows = path, []

    def add(self, **row):
        self.rows.append(row)
        with open(self.path, "w") as file:
            json.dump(self.rows, file, indent=2)


class Tee:
    def __init__(self, path):
        self.path = path
        open(path, "w").close()

    def write(self, text):
        print(text)
        with open(self.path, "a") as file:
            file.write(text + "\\n")


def set_seed(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


def save_checkpoint(state, is_best, folder="saved"):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "checkpoint.pth")
    torch.save(state, path)
    if is_best:
        torch.save(state["model"], os.path.join(folder, "model_best.pth"))


def named_logger(path):
    logger = logging.getLogger("train")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        handler = logging.FileHandler(path, mode="w")
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
    return logger
"""
# At the end of an epoch: what is made before, what is done then, what follows the last. ROW is a dictionary of all
# numbers, LAST the validation's first one, STATE the model's.
ENDS = {
    "best file": (
        "best = float('-inf')",
        'if value > best:\n    best = value\n    torch.save(STATE, "best.pth")\n    print("best", epoch)',
        'HOLDER.load_state_dict(torch.load("best.pth"))\nEVALUATE\nprint("best again %.6f" % value)',
    ),
    "best kept": (
        "best, best_state = float('-inf'), None",
        "if value > best:\n    best, best_state = value, copy.deepcopy(model.state_dict())",
        'model.load_state_dict(best_state)\nEVALUATE\nprint("best again %.6f" % value)\ntorch.save(model.state_dict(), "best.pth")',
    ),
    "best model": (
        "best, best_model = float('-inf'), None",
        "if value > best:\n    best, best_model = value, copy.deepcopy(model)",
        'torch.save(best_model.state_dict(), "best.pth")\nprint("best %.6f" % best)',
    ),
    "checkpoints": (
        "best = float('-inf')",
        'is_best = value > best\nbest = max(value, best)\nsave_checkpoint({"epoch": epoch + 1, "model": STATE, "best": best, "optimizer": optimizer.state_dict()}, is_best)',
        "",
    ),
    "patience": (
        "best, waited = float('-inf'), 0",
        'if value > best:\n    best, waited = value, 0\nelse:\n    waited += 1\n    if waited >= 1:\n        print("stopped early")\n        break',
        "",
    ),
    "stopping": (
        "stopping = EarlyStopping()",
        "stopping(value, model)\nif stopping.stop:\n    break",
        'model.load_state_dict(torch.load("stopping.pth"))\nEVALUATE\nprint("stopped at %.6f" % value)',
    ),
    "json": (
        "rows = []",
        "rows.append(ROW)",
        'with open("history.json", "w") as file:\n    json.dump(rows, file)',
    ),
    "json at once": ('record = History("history.json")', "record.add(**ROW)", ""),
    "csv": (
        'log = open("log.csv", "w", newline="")\nwriter = csv.writer(log)',
        "row = ROW\nif epoch == 0:\n    writer.writerow(list(row))\nwriter.writerow([round(it, 6) for it in row.values()])\nlog.flush()",
        "log.close()",
    ),
    "csv of dictionaries": (
        "",
        'row = ROW\nwith open("log.csv", "a", newline="") as file:\n    writer = csv.DictWriter(file, fieldnames=list(row))\n    if epoch == 0:\n        writer.writeheader()\n    writer.writerow(row)',
        "",
    ),
    "arrays": ("curve = []", "curve.append(list(ROW.values()))", 'np.save("curve.npy", np.array(curve))'),
    "in place": (
        "curve = np.zeros((2 * OPT_epochs, 2))",
        "curve[epoch, 0] = value\ncurve[epoch, 1] = optimizer.param_groups[0]['lr']",
        'np.savetxt("curve.txt", curve)',
    ),
    "pickle": (
        "kept = defaultdict(list)",
        "for name, number in ROW.items():\n    kept[name].append(number)",
        'with open("kept.pkl", "wb") as file:\n    pickle.dump(dict(kept), file)',
    ),
    "log file": (
        'logger = named_logger("train.log")',
        'logger.info("epoch %d: %s", epoch, {k: round(v, 6) for k, v in ROW.items()})',
        "",
    ),
    "a tee": ('tee = Tee("tee.txt")', 'tee.write("Epoch {} value {:.6f}".format(epoch, value))', ""),
    "last": ("", 'torch.save({"epoch": epoch, "state": STATE}, f"epoch_{epoch}.pth")', ""),
    "unfrozen": (
        "for p in list(model.parameters())[:1]:\n    p.requires_grad = False",
        "if epoch == 0:\n    for p in model.parameters():\n        p.requires_grad = True",
        "",
    ),
    "callbacks": (
        'callbacks = [Writer("callbacks.csv"), Keeper("value")]',
        'for callback in callbacks:\n    callback.on_epoch_end(epoch, {"value": value, **ROW}, model)',
        "",
    ),
    "resume": (
        'start = 0\nif os.path.exists("resume.pth"):\n    saved = torch.load("resume.pth", weights_only=False)\n    start = saved["epoch"]\n    HOLDER.load_state_dict(saved["model"])\n    optimizer.load_state_dict(saved["optimizer"])\n    print("resumed at", start)',
        'torch.save({"epoch": epoch + 1, "model": STATE, "optimizer": optimizer.state_dict(), "row": ROW}, "resume.pth")',
        "",
    ),
    "basic log": (
        'logging.basicConfig(filename="all.log", level=logging.INFO, format="%(message)s")',
        'logging.info("epoch %d value %.6f", epoch, value)',
        "",
    ),
    "also on training data": ("", "", 'EVALON\nprint("on training data %.6f" % value)'),
    "collected": (
        "",
        "",
        'features = COLLECT\nnp.save("features.npy", features.numpy())\nnear = torch.cdist(features.flatten(1), features.flatten(1)).argsort(1)[:, 1]\nprint("neighbours", near.tolist()[:5], "norm %.6f" % features.norm())',
    ),
    "fixed": (
        "fixed = next(iter(test_loader))",
        'model.eval()\nwith torch.no_grad():\n    FIXED\nnp.save(f"made_{epoch}.npy", outputs.cpu().numpy())',
        "",
    ),
    "summary": (
        "",
        "",
        'weights = {name: p.detach().cpu().numpy() for name, p in model.named_parameters()}\nnp.savez("weights.npz", **weights)\nprint("norm %.6f" % sum((w ** 2).sum() for w in weights.values()))',
    ),
    "frozen": ("", "if epoch == 0:\n    next(iter(model.parameters())).requires_grad_(False)", ""),
    "nothing": ("", "", ""),
}
STATES = {"module": "model.module.state_dict()", "wrapped": "model.state_dict()"}
RARE = frozenset(
    {
        "next",
        "endless",
        "again",
        "a bar",
        "guarded",
        "closure",
        "phases",
        "one_function",
        "contrast",
        "hardest",
    }
    | {
        "mixed up",
        "dice",
        "root",
        "in a row",
        "one forward",
        "some rows",
        "a stream",
        "weighted",
        "of indices",
    }
)
"""What keeps a program's batches whole, or is seldom: most programs have nothing of it."""
