"""A distributed branch beside DataParallel in every spelling, and how each is started in it.

Every program trains the same in its DataParallel branch, by whatever it chooses that; and in its own ranks as
they are written. ``torchrun`` stands before the arguments where the ranks are a launcher's.
"""

from __future__ import annotations

from dataclasses import dataclass

HEAD = """\
import argparse
import json
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
        self.head = nn.Linear(6, 2)

    def forward(self, inputs):
        return self.head(self.features(inputs))


def leave():
    dist.barrier()
    time.sleep(0.1)  # for gloo's threads to let go
    dist.destroy_process_group()


"""
TRAIN = """\
def train(PARAMETERS):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(60, 8), torch.randint(2, (60,)))
    model = Net()
    if torch.cuda.is_available():
        model.cuda()
    WRAP
    sampler = DistributedSampler(data) if FLAG else None
    batch_size = 12
    if FLAG:
        batch_size = batch_size // dist.get_world_size()
    loader = DataLoader(data, batch_size=batch_size, shuffle=sampler is None, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, targets in loader:
            if torch.cuda.is_available():
                inputs, targets = inputs.cuda(), targets.cuda()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        if not (FLAG) or dist.get_rank() == 0:
            print("epoch", epoch)
            torch.save(model.state_dict(), "weights.pt")
    if FLAG:
        leave()


"""
EITHER = """\
if FLAG:
        model = nn.parallel.DistributedDataParallel(model)
    else:
        model = nn.DataParallel(model)"""
GUARD = """

if __name__ == "__main__":
    main()
"""
PARSER = """\
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist", action="store_true")
    parser.add_argument("--url", default="")
    args = parser.parse_args()
"""
CONFIGURED = """\
def main():
    with open("options.json") as file:
        opt = json.load(file)
"""
JOIN = """\
        dist.init_process_group("gloo")
"""
WORKER = """\
def worker(rank, args):
    if FLAG:
        dist.init_process_group("gloo", init_method=URL, rank=rank, world_size=2)
    train(args)


"""


@dataclass(frozen=True)
class Spelling:
    """A program, and its arguments where it has ranks of its own.

    ``options`` is what its configuration says then; {} where there is none. ``url``: the argument that is an address.
    """

    text: str
    start: tuple[str, ...]
    options: tuple[tuple[str, object], ...] = ()

    @property
    def is_launched(self) -> bool:
        """Whether a launcher starts its ranks."""
        return self.start[:1] == ("torchrun",)


def spelling(
    main: str,
    start: str,
    flag: str = "args.dist",
    parameters: str = "args",
    wrap: str = EITHER,
    before: str = "",
    **options: object,
) -> Spelling:
    train = TRAIN.replace("PARAMETERS", parameters).replace("WRAP", wrap)
    text = (HEAD + before + train + main + GUARD).replace("FLAG", flag)
    return Spelling(text, tuple(start.split()), tuple(options.items()))


HELPERS = """\
def is_available_and_initialized():
    if not dist.is_available():
        return False
    if not dist.is_initialized():
        return False
    return True


def world_size():
    if not is_available_and_initialized():
        return 1
    return dist.get_world_size()


"""
LAUNCHER = """\
def init_dist(launcher, backend="gloo"):
    if mp.get_start_method(allow_none=True) is None:
        mp.set_start_method("spawn")
    if launcher == "pytorch":
        rank = int(os.environ["RANK"])
        dist.init_process_group(backend=backend)
    else:
        raise ValueError(f"Invalid launcher type: {launcher}")


def get_dist_info():
    if dist.is_available():
        initialized = dist.is_initialized()
    else:
        initialized = False
    if initialized:
        rank = dist.get_rank()
        world_size = dist.get_world_size()
    else:
        rank = 0
        world_size = 1
    return rank, world_size


class Model:
    def __init__(self, opt):
        self.opt = opt

    def model_to_device(self, net):
        if self.opt["dist"]:
            net = nn.parallel.DistributedDataParallel(net, find_unused_parameters=False)
        elif self.opt["num_gpu"] > 1:
            net = nn.DataParallel(net)
        return net


"""
LAUNCHED = """\
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", choices=["none", "pytorch"], default="none")
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()
    with open("options.json") as file:
        opt = json.load(file)
    if args.launcher == "none":
        opt["dist"] = False
        print("Disable distributed.", flush=True)
    else:
        opt["dist"] = True
        init_dist(args.launcher)
    opt["rank"], opt["world_size"] = get_dist_info()
    if opt["rank"] == 0:
        print("processes:", opt["world_size"])
    train(opt)
"""
CLASSES = """\
class Trainer:
    def __init__(self):
        torch.manual_seed(3)
        self.data = TensorDataset(torch.randn(60, 8), torch.randint(2, (60,)))
        self.model = self.wrap(Net().cuda() if torch.cuda.is_available() else Net())
        self.loader = self.load()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def train(self):
        for epoch in range(2):
            for inputs, targets in self.loader:
                if torch.cuda.is_available():
                    inputs, targets = inputs.cuda(), targets.cuda()
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(inputs), targets)
                loss.backward()
                self.optimizer.step()
            self.end(epoch)
        self.leave()

    def leave(self):
        pass


class DPTrainer(Trainer):
    def wrap(self, model):
        return nn.DataParallel(model)

    def load(self):
        return DataLoader(self.data, batch_size=12, shuffle=True)

    def end(self, epoch):
        print("epoch", epoch)
        torch.save(self.model.state_dict(), "weights.pt")


class DDPTrainer(Trainer):
    def wrap(self, model):
        return nn.parallel.DistributedDataParallel(model)

    def load(self):
        return DataLoader(self.data, batch_size=12 // dist.get_world_size(), sampler=DistributedSampler(self.data))

    def end(self, epoch):
        if dist.get_rank() == 0:
            print("epoch", epoch)
            torch.save(self.model.state_dict(), "weights.pt")

    def leave(self):
        leave()


"""
CHOSEN = """\
TRAINERS = {"dp": DPTrainer, "ddp": DDPTrainer}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="dp", choices=list(TRAINERS))
    args = parser.parse_args()
    if args.mode == "ddp":
        dist.init_process_group("gloo")
    TRAINERS[args.mode]().train()
"""
IMPORTED = HEAD.replace("import torch.multiprocessing as mp\n", "").replace(
    "from torch import nn\n",
    "from torch import nn\nfrom torch.distributed import init_process_group as join\n",
)

SPELLINGS = {
    "an option": spelling(PARSER + "    if args.dist:\n" + JOIN + "    train(args)\n", "torchrun --dist"),
    "an option that is read late": spelling(
        'def main():\n    print("training")\n    train(options())\n',
        "torchrun --dist",
        before="def options():\n    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--dist", action="store_true")\n    args = parser.parse_args()\n'
        "    if args.dist:\n" + JOIN + "    return args\n\n\n",
    ),
    "the local rank": spelling(
        "def main():\n    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--local_rank", type=int, default=-1)\n    args = parser.parse_args()\n'
        "    if args.local_rank != -1:\n" + JOIN + "    train(args)\n",
        "torchrun --local_rank 0",
        flag="args.local_rank != -1",
    ),
    "the number of processes, in the environment": spelling(
        "def main():\n    args = argparse.ArgumentParser().parse_args()\n"
        '    args.world_size = int(os.environ["WORLD_SIZE"]) if "WORLD_SIZE" in os.environ else 1\n'
        "    args.distributed = args.world_size > 1\n    if args.distributed:\n" + JOIN + "    train(args)\n",
        "torchrun",
        flag="args.distributed",
    ),
    "whether a variable is there": spelling(
        'def main():\n    if "WORLD_SIZE" in os.environ:\n' + JOIN + "    train()\n",
        "torchrun",
        flag='"WORLD_SIZE" in os.environ',
        parameters="",
    ),
    "a variable, when it is imported": spelling(
        "def main():\n    if RANK != -1:\n" + JOIN + "    train()\n",
        "torchrun",
        flag="RANK != -1",
        parameters="",
        before='RANK = int(os.environ.get("RANK", -1))\n\n\n',
    ),
    "a configuration file": spelling(
        CONFIGURED + '    if opt["dist"]:\n' + JOIN + "    train(opt)\n",
        "torchrun",
        flag='opt["dist"]',
        parameters="opt",
        dist=True,
    ),
    "a configuration in a class": spelling(
        PARSER + "    cfg.dist = args.dist\n    if cfg.dist:\n" + JOIN + "    train(cfg)\n",
        "torchrun --dist",
        flag="cfg.dist",
        parameters="cfg",
        before="class Config:\n    dist = False\n\n\ncfg = Config()\n\n\n",
    ),
    "a configuration in which something is None": spelling(
        PARSER + '    cfg = Config(GPU=None)\n    if args.dist:\n' + JOIN + '        cfg["GPU"] = dist.get_rank()\n    train(cfg)\n',
        "torchrun --dist",
        flag="cfg.GPU is not None",
        parameters="cfg",
        before="class Config(dict):\n    __getattr__ = dict.get\n\n\n",
    ),
    "an attribute that is there or not": spelling(
        PARSER + "    if args.dist:\n" + JOIN + "        args.rank = dist.get_rank()\n    train(args)\n",
        "torchrun --dist",
        flag='hasattr(args, "rank")',
    ),
    "whether there is a group": spelling(
        PARSER + "    if args.dist:\n" + JOIN + "    Runner().run()\n",
        "torchrun --dist",
        flag="several",
        parameters="several",
        before="class Runner:\n    def __init__(self):\n        self.is_distributed = dist.is_initialized()\n\n"
        "    def run(self):\n        train(self.is_distributed)\n\n\n",
    ),
    "the size of the group": spelling(
        PARSER + "    if args.dist:\n" + JOIN + "    train()\n",
        "torchrun --dist",
        flag="world_size() > 1",
        parameters="",
        before=HELPERS,
    ),
    "a launcher, and a method that wraps": spelling(
        LAUNCHED,
        "torchrun --launcher pytorch",
        flag='opt["dist"]',
        parameters="opt",
        wrap="model = Model(opt).model_to_device(model)",
        before=LAUNCHER,
        num_gpu=2,
    ),
    "a function that returns the wrapped model": spelling(
        PARSER + "    if args.dist:\n" + JOIN + "    train(args)\n",
        "torchrun --dist",
        wrap="model = parallel(model, args)",
        before="def parallel(model, args):\n    if not args.dist:\n        return nn.DataParallel(model)\n"
        "    return nn.parallel.DistributedDataParallel(model)\n\n\n",
    ),
    "one class or the other": spelling(
        PARSER + "    if args.dist:\n" + JOIN + "    train(args)\n",
        "torchrun --dist",
        wrap="parallel = nn.parallel.DistributedDataParallel if args.dist else nn.DataParallel\n"
        "    model = parallel(model)",
    ),
    "classes in a table": spelling(
        "def main():\n    parser = argparse.ArgumentParser()\n"
        '    parser.add_argument("--wrap", default="dp")\n    args = parser.parse_args()\n'
        '    args.dist = args.wrap != "dp"\n    if args.dist:\n' + JOIN + "    train(args)\n",
        "torchrun --wrap ddp",
        wrap='wraps = {"dp": nn.DataParallel, "ddp": nn.parallel.DistributedDataParallel}\n'
        "    model = wraps[args.wrap](model)",
    ),
    "a trainer of its own": Spelling(
        HEAD
        + CLASSES
        + PARSER
        + "    if args.dist:\n"
        + JOIN
        + "        trainer = DDPTrainer()\n    else:\n        trainer = DPTrainer()\n    trainer.train()\n"
        + GUARD,
        ("torchrun", "--dist"),
    ),
    "trainers in a table": Spelling(HEAD + CLASSES + CHOSEN + GUARD, ("torchrun", "--mode", "ddp")),
    "a call that was imported by another name": Spelling(
        spelling('def main():\n    print("training")\n    train(options())\n', "").text.replace(HEAD, IMPORTED).replace(
            "def train(", "def options():\n    parser = argparse.ArgumentParser()\n"
            '    parser.add_argument("--dist", action="store_true")\n    args = parser.parse_args()\n'
            '    if args.dist:\n        join("gloo")\n    return args\n\n\ndef train(',
        ),
        ("torchrun", "--dist"),
    ),
    "processes that are spawned": spelling(
        PARSER + "    if args.dist:\n        mp.spawn(worker, nprocs=2, args=(args,))\n    else:\n        worker(0, args)\n",
        "--dist --url URL",
        before=WORKER.replace("URL", "args.url"),
    ),
    "processes that are spawned, and an option that is read late": spelling(
        'def main():\n    print("training")\n    start(options())\n',
        "--dist --url URL",
        before=WORKER.replace("URL", "args.url")
        + PARSER.replace("main", "options") + "    return args\n\n\n"
        "def start(args):\n    if args.dist:\n        mp.spawn(worker, nprocs=2, args=(args,))\n    else:\n        worker(0, args)\n\n\n",
    ),
    "processes that are spawned, and a GPU that goes back into the options": spelling(
        PARSER.replace(
            "    args = parser.parse_args()", '    parser.add_argument("--gpu", type=int)\n'
            "    args = types.SimpleNamespace(**vars(parser.parse_args()))"
        )
        + "    if args.dist:\n        mp.spawn(worker, nprocs=2, args=(args,))\n    else:\n        worker(args.gpu, args)\n",
        "--dist --url URL",
        wrap=EITHER.replace("    else:", "    elif args.gpu is not None:\n        model.to(args.gpu)\n    else:"),
        before="import types\n\n\n" + WORKER.replace("URL", "args.url").replace("    train", "    args.gpu = rank\n    train"),
    ),
    "processes that are spawned, by a configuration file": spelling(
        CONFIGURED
        + '    if opt["dist"]:\n        mp.spawn(worker, nprocs=2, args=(opt,))\n    else:\n        worker(0, opt)\n',
        "",
        flag='opt["dist"]',
        parameters="opt",
        before=WORKER.replace("URL", 'opt["url"]').replace("args", "opt"),
        dist=True,
        url="URL",
    ),
    "processes that are made one by one": spelling(
        'def main():\n    print("training")\n    start(options())\n',
        "--dist --url URL",
        before=WORKER.replace("URL", "args.url")
        + PARSER.replace("main", "options") + "    return args\n\n\n"
        "def start(args):\n    if args.dist:\n        context = mp.get_context('spawn')\n"
        "        found = [mp.Process(target=worker, args=(rank, args)) for rank in range(2)]\n"
        "        for process in found:\n            process.start()\n        for process in found:\n            process.join()\n"
        "    else:\n        worker(0, args)\n\n\n",
    ),
    "a command that is run": spelling(
        PARSER + "    if args.dist and 'RANK' not in os.environ:\n"
        "        command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '2']\n"
        "        raise SystemExit(subprocess.call([*command, __file__, '--dist']))\n"
        "    if args.dist:\n" + JOIN + "    train(args)\n",
        "--dist",
        before="import subprocess\nimport sys\n\n\n",
    ),
}  # fmt: skip
