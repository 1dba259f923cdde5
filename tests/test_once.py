"""What a program writes, logs, asks and makes: done once by two processes, as by one before its conversion.

Each program is converted by the command and run as people have it, on one process, and converted, on two. Both must
say the same, leave the same files with the same text, and call the trackers as often.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import command
import pytest
from parity.harness import Lab, environment

START = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

torch.manual_seed(3)
{setup}
data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Linear(8, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for epoch in range(2):
    for step, (inputs, targets) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
{epoch}
{after}
"""
TEXTS = {".txt", ".csv", ".json", ".log", ""}


def program(imports: str = "", setup: str = "", before: str = "", epoch: str = "", after: str = "") -> str:
    """A program that trains, and does something before, in each epoch and after."""
    inside = "".join(f"    {line}\n" for line in epoch.splitlines()) or "    pass\n"
    return START.format(imports=imports, setup=setup, before=before, epoch=inside, after=after)


def files(folder: Path, given: dict[str, str]) -> dict[str, bytes]:
    """The files that a program has left, with what texts hold."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.suffix in TEXTS else b""
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(folder)) not in given
    }


def folders(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_dir() and path.name != "__pycache__"
    )


SAYS = program(
    imports="import atexit\nimport contextlib\nimport functools\nimport io\nimport sys\nimport warnings\nfrom pprint import pprint",
    setup="""\
say = functools.partial(print, "say", flush=True)
atexit.register(print, "the end")


class Block:
    def __enter__(self):
        print("in")

    def __exit__(self, *error):
        print("out")


def loud(function):
    def called(*given):
        print("calling", function.__name__)
        return function(*given)

    return called


@loud
def done(epoch):
    sys.stdout.write("done %d\\n" % epoch)


buffer = io.StringIO()
with contextlib.redirect_stdout(buffer):
    print("captured")
assert buffer.getvalue() == "captured\\n"
callbacks = [print, done]
""",
    epoch="""\
with Block():
    pprint({"epoch": epoch})
list(map(say, ["a", "b"]))
for callback in callbacks:
    callback(epoch)
warnings.warn("careful")
""",
)
BARS = program(
    imports="from tqdm import tqdm, trange",
    epoch="""\
bar = tqdm(range(4))
for i in bar:
    bar.set_postfix(i=i)
print(bar.n, bar.total)
bar = tqdm(total=3)
bar.update(2)
bar.write("written")
print(bar.n, bar.format_dict["n"])
bar.close()
for i in trange(2, desc="again"):
    pass
""",
)
BOARDS = program(
    imports="import importlib\nimport os\nimport visdom\nfrom tensorboardX import SummaryWriter",
    setup="""\
class Trainer:
    def __init__(self, folder):
        self.writers = {"train": SummaryWriter(os.path.join(folder, "train"))}
        self.writer = SummaryWriter(folder)

    def log(self, epoch):
        self.writer.add_scalar("a", 1, epoch)
        self.writers["train"].add_scalar("b", 2, epoch)


class Callback:
    def __init__(self, writer):
        self.writer = writer

    def on_epoch_end(self, epoch):
        if self.writer is not None:
            self.writer.add_scalar("c", 3, epoch)


class Own(SummaryWriter):
    def __init__(self, folder):
        super().__init__(folder, comment="-own")
        self.count = 0

    def add(self, value):
        self.count += 1
        self.add_scalar("own", value, self.count)
        return self.count


class Forwarding:
    def __init__(self, folder):
        self.inner = SummaryWriter(folder)

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Found:
    def __init__(self, folder):
        for name in ("no_board_at_all", "tensorboardX"):
            try:
                module = importlib.import_module(name)
                self.inner = module.SummaryWriter(folder)
                break
            except ImportError:
                pass


vis = visdom.Visdom(env="x")
assert vis.check_connection()
window = None
""",
    before="""\
trainer = Trainer("logs")
callback = Callback(trainer.writer)
own = Own("own")
forwarding = Forwarding("forwarding")
found = Found("found")
trainer.writer.add_graph(model, data[:2][0])
with SummaryWriter("block") as block:
    block.add_scalar("outputs", model(data[:2][0]).sum(), 0)
maybe = SummaryWriter("maybe") if len(data) > 3 else None
""",
    epoch="""\
trainer.log(epoch)
callback.on_epoch_end(epoch)
forwarding.add_scalar("d", 4, epoch)
found.inner.add_scalar("f", 6, epoch)
maybe and maybe.add_scalar("e", 5, epoch)
print(own.add(epoch) + 1)
if window is None:
    window = vis.line([epoch])
else:
    vis.line([epoch], win=window, update="append")
""",
    after="""\
if maybe:
    maybe.close()
torch.save(model.state_dict(), trainer.writer.logdir + "/model.pt")
trainer.writer.close()
""",
)
TRACKERS = program(
    imports="from helpers import log, note\n\ntry:\n    import wandb\nexcept ImportError:\n    wandb = None",
    setup="""\
import comet_ml

if wandb is not None:
    run = wandb.init(project="p", name="n-%s" % "a")
    wandb.run.name = f"{wandb.run.id}"
    wandb.config.update({"a": 1})
experiment = comet_ml.Experiment("key")
table = wandb.Table(columns=["a"])
""",
    epoch="""\
log(epoch)
note(epoch)
experiment.log_metric("epoch", epoch)
table.add_data(epoch)
wandb.log({"image": wandb.Image(1), "table": table}, step=epoch)
wandb.run.summary["best"] = epoch
wandb.watch(model)
""",
    after="with experiment.test():\n    experiment.log_metric('t', 1)\nrun.finish()",
)
HELPERS = """\
import wandb as tracker
from wandb import log as send


def log(epoch):
    send({"epoch": epoch})


def note(epoch):
    import mlflow
    from mlflow import log_metric

    with mlflow.start_run() as run:
        mlflow.log_metric("e", epoch)
        log_metric("f", epoch)
        assert run is not None
    tracker.log({})
    with tracker.init() as run:
        run.log({})
"""
LOGGING = program(
    imports="import logging\nimport logging.config\nimport os\nimport sys",
    setup="""\
class Counting(logging.FileHandler):
    def __init__(self, path):
        super().__init__(path, mode="w")
        self.count = 0

    def emit(self, record):
        self.count += 1
        super().emit(record)


def made(name, folder):
    logger = logging.getLogger(name)
    if logger.handlers:
        return logger
    if not os.path.exists(folder):
        os.makedirs(folder)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    file = logging.FileHandler(os.path.join(folder, name + ".log"), mode="w")
    file.setLevel(logging.INFO)
    file.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.addHandler(file)
    logger.addHandler(Counting(folder + "/counted.log"))
    return logger


logger = made("own", "logs")
assert made("own", "logs") is logger and len(logger.handlers) == 3
logging.basicConfig(filename="logs/root.log", level=logging.INFO, format="%(message)s")
listed = logging.getLogger("listed")
listed.addHandler(logging.FileHandler("logs/listed.log"))
settings = {"version": 1, "disable_existing_loggers": False}
settings["handlers"] = {"f": {"class": "logging.FileHandler", "filename": "logs/dict.log"}}
settings["loggers"] = {"dict": {"handlers": ["f"], "level": "INFO"}}
logging.config.dictConfig(settings)
""",
    epoch="""\
logging.info("epoch %d", epoch)
logger.info("own %d", epoch)
logger.error("wrong %d", epoch)
listed.error("listed")
logging.getLogger("dict").info("dict")
""",
    after="for handler in list(logger.handlers):\n    handler.close()\n    logger.removeHandler(handler)",
)
OPENED = program(
    imports="import codecs\nimport contextlib\nimport csv\nimport gzip\nimport json\nimport os\nimport pickle\nfrom pathlib import Path",
    setup="""\
mode = "a" if os.environ.get("APPEND") else "w"
out = Path("out")
out.mkdir(exist_ok=True, parents=True)
table = (out / "table.csv").open("w", newline="")
rows = csv.writer(table)
named = csv.DictWriter(open("named.csv", "w"), fieldnames=["a"])
named.writeheader()
json.dump({"n": 0}, open("status.json", "w"))
values = open("values.bin", "wb")
values.write(b"PIEH")
torch.arange(4).numpy().tofile(values)
torch.arange(6).numpy().tofile(values)
values.close()


class Log:
    def __init__(self, path, names):
        self.file = open(path, "w")
        self.names = names
        self.numbers = {name: [] for name in names}

    def append(self, numbers):
        for name, number in zip(self.names, numbers):
            self.file.write("{:.6f}\\t".format(number))
            self.numbers[name].append(number)
        self.file.flush()
        os.fsync(self.file.fileno())


@contextlib.contextmanager
def opened(path):
    file = open(path, "a")
    try:
        yield csv.writer(file)
    finally:
        file.close()


log = Log("numbers.txt", ["a", "b"])
""",
    before="""\
with open("log.txt", "w") as file, open("second.txt", mode) as second:
    for epoch in range(2):
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            optimizer.step()
        file.write("%d\\n" % epoch)
        print("second", epoch, file=second)
""",
    epoch="""\
rows.writerow([epoch, 1])
named.writerow({"a": epoch})
log.append([epoch, 2 * epoch])
with opened("block.csv") as block:
    block.writerow([epoch])
with open("status.json", "r+") as file:
    status = json.load(file)
    status["n"] += 1
    file.seek(0)
    json.dump(status, file)
    file.truncate()
pickle.dump({"epoch": epoch}, open(out / ("%d.pkl" % epoch), "wb"))
(out / "note.txt").write_text("epoch %d" % epoch)
with gzip.open("packed-%d.gz" % epoch, "wb") as file:
    pickle.dump([1] * 100, file)
with (out / "more.txt").open(mode="a") as file:
    file.write("x")
with codecs.open("coded.txt", "w", "utf-8") as file:
    file.write("y")
open(str(out / "one.txt"), "a").write("z")
""",
    after="""\
table.close()
print(status, log.numbers, log.file.name)
print(len(open("log.txt").readlines()), pickle.load(open(out / "1.pkl", "rb")))
with open("model.pt", "wb") as file:
    torch.save(model.state_dict(), file)
""",
)
TEE = program(
    imports="import sys\nfrom tools import Logger",
    setup='sys.stdout = Logger("log.txt")',
    epoch='print("epoch", epoch)',
    after="sys.stdout.flush()",
)
TOOLS = """\
import os
import sys


class Logger:
    def __init__(self, path=None):
        self.console = sys.stdout
        self.file = None
        if path is not None:
            self.file = open(path, "w")

    def __del__(self):
        if self.file is not None:
            self.file.close()

    def write(self, text):
        self.console.write(text)
        if self.file is not None:
            self.file.write(text)

    def flush(self):
        self.console.flush()
        if self.file is not None:
            self.file.flush()
            os.fsync(self.file.fileno())
"""
SHELL = program(
    imports="import io\nimport json\nimport os\nimport shutil\nimport subprocess",
    setup="""\
if os.system("mkdir made") != 0:
    print("not made")
assert subprocess.call(["sh", "-c", "echo a >> called.txt"]) == 0
done = subprocess.run("echo b >> ran.txt; echo out", shell=True, capture_output=True, text=True)
print(done.returncode, done.stdout)
pipe = subprocess.Popen("echo c >> pipe.txt; echo out", shell=True, stdout=subprocess.PIPE)
out, errors = pipe.communicate()
print(out.decode())
subprocess.check_call("echo d >> checked.txt", shell=True)
text = subprocess.Popen(["echo", "direct"], stdout=subprocess.PIPE).communicate()[0].decode().strip()
print(text, len(text), shutil.copy("ran.txt", "copied.txt"))
if not os.path.isdir("other") and os.system("mkdir other") == 0:
    print("made")
if not os.path.exists("ready"):
    status = os.system("mkdir ready")
    assert status == 0
for line in subprocess.Popen("seq 2", shell=True, stdout=subprocess.PIPE).stdout.readlines():
    print(line)


def started(command):
    return subprocess.Popen(command, shell=True, stdout=subprocess.PIPE)


def first(command):
    with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE) as pipe:
        for line in pipe.stdout:
            one, two = line.decode().split(",")
            return int(one), int(two)


one, two = first("echo 3,4; seq 5")
pipe = started("seq 3")
counted = sum(place * int(it) for place, it in enumerate(pipe.stdout))
pipe.wait()
pipe = started("seq 4")
for line in iter(pipe.stdout.readline, b""):
    counted += int(line)
    if counted > 12:
        break
pipe = started("seq 2 4")
for line in io.TextIOWrapper(pipe.stdout, encoding="utf-8"):
    counted += int(line)
pipe = started("echo '[5, 6]'")
counted += sum(json.load(pipe.stdout)) + one + two
pipe = started("echo 7; echo 8")
counted += 2 * int(next(pipe.stdout)) + int(next(pipe.stdout))
pipe = started("echo heard; exit 3")
for line in pipe.stdout:
    print(line)
pipe.wait()
print(counted, pipe.returncode + counted)
""",
)
EMPTIED = program(
    imports="import os",
    setup="""\
def empty(path):
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        if os.path.isdir(inner):
            empty(inner)
            os.rmdir(inner)
        else:
            os.remove(inner)


for number in range(60):
    os.makedirs(f"out/{number}/inner", exist_ok=True)
    open(f"out/{number}/file.txt", "w").close()
if os.path.exists("out"):
    try:
        empty("out")
    except Exception as error:
        print(error)
        raise SystemExit(1)
if os.path.exists("out") and os.listdir("out"):
    raise ValueError("out is not empty")
print("emptied")
""",
)
FOLDERS = program(
    imports="import argparse\nimport glob\nimport json\nimport os\nimport shutil\nimport tarfile\nfrom pathlib import Path",
    setup="""\
args = argparse.Namespace(out="results/run")
if not os.path.exists(args.out):
    os.makedirs(args.out)
else:
    print("already there")
json.dump(vars(args), open(os.path.join(args.out, "args.json"), "w"), indent=2)
number = 0
while os.path.isdir("run-%d" % number):
    number += 1
os.mkdir("run-%d" % number)
counted = max([int(path.name.split("_")[1]) for path in Path(".").glob("c_*")] + [0]) + 1
Path("c_%d" % counted).mkdir()
while os.path.exists(name := "dir_%d" % len([it for it in os.listdir(".") if it.startswith("dir_")])):
    pass
os.mkdir(name)
os.makedirs("snapshot/scripts")
for script in glob.glob("*.py"):
    shutil.copyfile(script, os.path.join("snapshot", "scripts", os.path.basename(script)))
shutil.copytree("snapshot/scripts", "snapshot/copy")
archive = tarfile.open("code.tar", "w")
archive.add("snapshot")
archive.close()
if os.path.exists("snapshot"):
    shutil.rmtree("snapshot")
[os.makedirs(it) for it in ("l1", "l2") if not os.path.exists(it)]
os.path.exists("o1") or os.mkdir("o1")
list(map(os.makedirs, ["m1", "m2"]))


def save_checkpoint(state, is_best, folder="checkpoints"):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    path = os.path.join(folder, "last.pt")
    torch.save(state, path)
    if is_best:
        shutil.copyfile(path, os.path.join(folder, "best.pt"))
    if os.path.exists(os.path.join(folder, "old.pt")):
        os.remove(os.path.join(folder, "old.pt"))
""",
    epoch="""\
save_checkpoint({"epoch": epoch, "state_dict": model.state_dict()}, epoch > 0)
torch.save(model.state_dict(), "run-%d/%d.pt" % (number, epoch))
for old in sorted(glob.glob("run-%d/*.pt" % number))[:-1]:
    os.remove(old)
""",
    after='model.load_state_dict(torch.load("run-%d/1.pt" % number))\nprint(number, counted, name)',
)
PLACES = program(
    imports="import numpy as np\nimport os\nimport signal\nfrom torchvision.utils import save_image",
    setup="""\
class Recorder:
    def __init__(self, path):
        self.path = path
        self.values = []

    def __del__(self):
        with open(self.path, "a") as file:
            file.write("deleted %d" % len(self.values))

    def __setitem__(self, key, value):
        with open("set.txt", "a") as file:
            file.write("%s=%s" % (key, value))

    @property
    def saved(self):
        open("property.txt", "a").write("p")
        return len(self.values)


def at_signal(number, frame):
    with open("signal.txt", "a") as file:
        file.write("s")


recorder = Recorder("recorder.txt")
signal.signal(signal.SIGUSR1, at_signal)
try:
    os.makedirs("made/deep")
except OSError as error:
    print("exists", error)
try:
    raise ValueError("x")
except ValueError:
    with open("error.txt", "a") as file:
        file.write("e")
finally:
    open("finally.txt", "a").write("f")
""",
    epoch="""\
if epoch == 0:
    np.save("first.npy", np.zeros(3))
    with open("first.txt", "a") as file:
        file.write("1")
else:
    open("later.txt", "a").close()
recorder.values.append(epoch)
recorder["epoch"] = epoch
print(recorder.saved)
os.kill(os.getpid(), signal.SIGUSR1)
save_image(model(torch.randn(4, 8)).view(1, 1, 4, 2), "out-%d.png" % epoch)
np.save("outputs.npy", model(data[:4][0]).detach().numpy())
with open("rows.txt", "a") as file:
    file.write("%d\\n" % len(model(data[:6][0])))
""",
    after="del recorder",
)
TEMPORARY = program(
    imports="import io\nimport os\nimport shutil\nimport tempfile",
    before="""\
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.pt")
    torch.save(model.state_dict(), path)
    model.load_state_dict(torch.load(path))
with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    file.write("x")
    file.flush()
    print(open(file.name).read())
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "a.txt"), "w") as file:
    file.write("abc")
print(len(os.listdir(folder)))
shutil.copy(os.path.join(folder, "a.txt"), "kept.txt")
shutil.rmtree(folder)
buffer = io.BytesIO()
torch.save(torch.zeros(1), buffer)
buffer.seek(0)
print(torch.load(buffer))
""",
)
PRIVATE = program(
    imports="import json\nimport os\nimport shutil\nimport tempfile\nfrom pathlib import Path\nimport numpy as np",
    setup="""\
class Scratch:
    def __init__(self):
        self.handle, self.path = tempfile.mkstemp(suffix=".json")
        self.folder = tempfile.TemporaryDirectory()

    def kept(self, values):
        json.dump(values, open(self.path, "w"))
        with open(os.path.join(self.folder.name, "v.txt"), "w") as file:
            json.dump(values, file)
        with open(os.path.join(self.folder.name, "v.txt")) as file:
            return json.load(open(self.path)) + json.load(file)


def by_handle(values):
    handle, name = tempfile.mkstemp()
    with os.fdopen(handle, "w") as file:
        json.dump(values, file)
    with open(name) as file:
        found = json.load(file)
    os.remove(name)
    return found


def by_place(values):
    name = Path(tempfile.mkstemp()[1])
    with name.open("w") as file:
        file.write(json.dumps(values))
    found = json.loads(name.read_text())
    name.unlink()
    return found


def by_name(values):
    file = tempfile.NamedTemporaryFile(delete=False, suffix=".npy")
    file.close()
    np.save(file.name, np.array(values))
    return np.load(file.name).tolist()


def unnamed(values):
    with tempfile.TemporaryFile("w+") as file:
        json.dump(values, file)
        file.seek(0)
        return json.load(file)


def whole(state, path):
    handle, name = tempfile.mkstemp(dir=".")
    os.close(handle)
    torch.save(state, name)
    os.replace(name, path)


def whole_by_name(state, path):
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        torch.save(state, file)
    Path(file.name).rename(path)


def copied(values):
    handle, name = tempfile.mkstemp()
    with open(name, "w") as file:
        json.dump(values, file)
    print(len(json.load(open(name))))
    shutil.copy(name, "copied.json")
    with tempfile.SpooledTemporaryFile() as file:
        file.write(b"abc")
        file.seek(0)
        Path("spooled.txt").write_bytes(file.read())
    return json.load(open("copied.json"))


scratch = Scratch()
""",
    epoch="""\
values = [epoch, len(model.module.bias)]
print(scratch.kept(values), by_handle(values), by_place(values), by_name(values), unnamed(values), copied(values))
""",
    after="""\
whole(model.module.state_dict(), "whole.pt")
whole_by_name(model.module.state_dict(), "by_name.pt")
print(len(torch.load("whole.pt")), len(torch.load("by_name.pt")))
""",
)
HANDED = program(
    imports="import atexit\nimport json\nimport multiprocessing\nimport numpy as np\nimport threading\nfrom concurrent.futures import ThreadPoolExecutor",
    setup="""\
HOOKS = {}


def register(name):
    def keep(function):
        HOOKS.setdefault(name, []).append(function)
        return function

    return keep


@register("epoch")
def write(epoch):
    with open("hook.txt", "a") as file:
        file.write(str(epoch))


class Base:
    def run(self, name, *given):
        getattr(self, "on_" + name)(*given)


class Saver(Base):
    def on_epoch(self, epoch):
        open("saver.txt", "a").write("x")


def finish():
    with open("finish.txt", "a") as file:
        file.write("done")


def work(number):
    with open("pool-%d.txt" % number, "a") as file:
        file.write("x")
    return number


atexit.register(lambda: open("end.txt", "a").write("end"))
atexit.register(finish)
savers = {"json": lambda it, path: json.dump(it, open(path, "w")), "npy": lambda it, path: np.save(path, it)}
dump = np.savetxt
saver = Saver()
pool = ThreadPoolExecutor(2)
futures = []
""",
    epoch="""\
for hook in HOOKS.get("epoch", []):
    hook(epoch)
saver.run("epoch", epoch)
for kind, save in savers.items():
    save([epoch], "kept." + kind)
dump("dumped.txt", np.zeros(1))
thread = threading.Thread(target=np.save, args=("thread.npy", np.zeros(2)))
thread.start()
thread.join()
futures.append(pool.submit(np.savetxt, "future-%d.txt" % epoch, np.zeros(2)))
futures.append(pool.submit(torch.save, {"a": 1}, "future-%d.pt" % epoch))
""",
    after="""\
for future in futures:
    future.result()
with multiprocessing.get_context("fork").Pool(2) as workers:
    print(workers.map(work, range(3)))
""",
)
VERBS = program(
    imports="import numpy as np\nimport os\nimport yaml\nfrom pathlib import Path\nfrom PIL import Image\n"
    "import torchvision.transforms.functional as TF\nfrom torchvision.transforms import ToPILImage",
    setup="""\
yaml.safe_dump({"b": 2}, open("d.yaml", "w"))
text = yaml.dump({"c": 3})
out = Path("o") / "p"
out.mkdir(parents=True)
(out / "x.txt").touch()
(out / "x.txt").rename(out / "y.txt")
""",
    epoch="""\
np.arange(4).tofile("raw.bin")
np.savez("z.npz", a=np.zeros(2))
picture = Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8))
picture.resize((2, 2)).save(os.path.join("img-%d.png" % epoch))
TF.to_pil_image(torch.zeros(3, 4, 4)).save("made-%d.png" % epoch)
ToPILImage()(torch.zeros(3, 4, 4)).save("layer-%d.png" % epoch)
traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
traced.save("traced.pt")
torch.save(obj=model.state_dict(), f="kw.pt")
""",
    after="print(text, yaml.safe_load(open('d.yaml')), sorted(it.name for it in out.iterdir()))",
)
SETTINGS = """\
import os

RUN = "out"
if not os.path.isdir(RUN):
    os.makedirs(RUN)
with open(os.path.join(RUN, "settings.txt"), "a") as file:
    file.write("x")
"""
IMPORTED = """\
import logging

import settings

logger = logging.getLogger("lib")
logger.setLevel(logging.INFO)
logger.addHandler(logging.FileHandler(settings.RUN + "/lib.log"))
"""
# The files of each program, and lines of it after its conversion.
PROGRAMS: dict[str, tuple[dict[str, str], list[str]]] = {
    "what is said": ({"train.py": SAYS}, []),
    "progress bars": ({"train.py": BARS}, []),
    "boards and plots": (
        {"train.py": BOARDS},
        [
            "        self.writer = ddp.on_main_process(SummaryWriter)(folder)",
            "class Own(ddp.on_main_process(SummaryWriter)):",
            "                self.inner = ddp.on_main_process(module.SummaryWriter)(folder)",
            "trainer.writer.add_graph(model.module, data[:2][0])",
            'with ddp.on_main_process(SummaryWriter)("block") as block:',
            "    callback.on_epoch_end(epoch)",
        ],
    ),
    "trackers": (
        {"train.py": TRACKERS, "helpers.py": HELPERS},
        ["    wandb = ddp.on_main_process(wandb)", "comet_ml = ddp.on_main_process(comet_ml)"],
    ),
    "logging": (
        {"train.py": LOGGING},
        [
            "class Counting(ddp.on_main_process(logging.FileHandler)):",
            "    logger.addHandler(logging.StreamHandler(sys.stdout))",
            'listed.addHandler(ddp.on_main_process(logging.FileHandler)("logs/listed.log"))',
        ],
    ),
    "open files": (
        {"train.py": OPENED},
        [
            'with ddp.open("log.txt", "w") as file, ddp.open("second.txt", mode) as second:',
            "torch.arange(6).numpy().tofile(values)",
        ],
    ),
    "a tee": ({"train.py": TEE, "tools.py": TOOLS}, ['sys.stdout = Logger("log.txt")']),
    "the shell": (
        {"train.py": SHELL},
        ["out, errors = ddp.from_main_process(pipe.communicate() if ddp.is_main_process() else None)"],
    ),
    "a folder that is emptied": (
        {"train.py": EMPTIED},
        ["        if ddp.is_main_process():", '            empty("out")', "            os.rmdir(inner)"],
    ),
    "folders": ({"train.py": FOLDERS}, ["number = ddp.from_main_process(number)"]),
    "odd places": ({"train.py": PLACES}, []),
    "temporary folders": (
        {"train.py": TEMPORARY},
        ["    torch.save(model.module.state_dict(), path)", "shutil.rmtree(folder)"],
    ),
    "files of a process's own": (
        {"train.py": PRIVATE},
        [
            '        json.dump(values, open(self.path, "w"))',
            "    os.remove(name)",
            '        handle, name = tempfile.mkstemp(dir=".")',
            "        torch.save(state, name)",
            '    with open(name, "w") as file:',
        ],
    ),
    "functions handed on": (
        {"train.py": HANDED},
        ['atexit.register(lambda: ddp.open("end.txt", "a").write("end"))'],
    ),
    "other libraries": ({"train.py": VERBS}, ['text = yaml.dump({"c": 3})']),
    "imported modules": (
        {
            "train.py": program(
                imports="import settings\nfrom lib.log import logger",
                epoch="logger.info('e %d', epoch)\nprint(settings.RUN)",
            ),
            "settings.py": SETTINGS,
            "lib/__init__.py": "from lib.log import logger\n",
            "lib/log.py": IMPORTED,
        },
        ["ddp.init()", "import settings"],
    ),
}
UNCHANGED = ("what is said", "progress bars")  # but for the loader and the wrap


def once(lab: Lab, place: Path, given: dict[str, str], **env: str) -> dict[str, str]:
    """Run a program before and after its conversion, and compare what they did; the converted files."""
    found = []
    for name, processes in (("before", 1), ("after", 2)):
        folder = place / name
        for path, text in given.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        if name == "after":
            done = command.run("convert", "train.py", "--inplace", cwd=folder)
            assert done.returncode == 0, done.stderr.decode()
        converted = {path: (folder / path).read_text() for path in given}
        ran = lab.run(folder / "train.py", processes=processes, folder=folder, recorded=False, env=env).ok()
        found.append({"says": ran.printed, "files": files(folder, given), "folders": folders(folder)})
    one, two = found
    assert two == one
    return converted


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_processes_do_once_what_one_did(name: str, lab: Lab, tmp_path: Path) -> None:
    given, lines = PROGRAMS[name]
    converted = once(lab, tmp_path, given)
    after = converted["train.py"].splitlines()
    assert [line for line in lines if line not in after] == []
    if name in UNCHANGED:
        lost = [it for it in given["train.py"].splitlines() if it not in after and "DataParallel" not in it]
        assert [it for it in lost if it != "loader = DataLoader(data, batch_size=16, shuffle=True)"] == []


ASKING = """\
import os
import shutil


def made(path):
    if os.path.exists(path):
        answer = input("%s exists, remove? [y/n] " % path).lower()
        if answer == "y":
            shutil.rmtree(path)
        else:
            raise SystemExit("kept")
    os.makedirs(path)
    return path
"""


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_question_is_asked_once_and_answered_for_all(answer: str, tmp_path: Path) -> None:
    text = program(
        imports="from tools import made",
        setup='folder = made("run")',
        epoch='open(folder + "/log.txt", "a").write(str(epoch))',
        after='print("trained")',
    )
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "tools.py").write_text(ASKING)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "old.txt").write_text("old")
    assert command.run("convert", "train.py", "--inplace", cwd=tmp_path).returncode == 0
    place = environment(DP2DDP_PROCESSES="2")
    start = [sys.executable, "train.py"]
    done = subprocess.run(
        start, cwd=tmp_path, env=place, input=f"{answer}\n", capture_output=True, text=True, timeout=120
    )
    assert done.stdout.count("remove? [y/n]") == 1
    if answer == "y":
        assert (done.returncode, "trained" in done.stdout) == (0, True), done.stderr
        assert {it.name: it.read_text() for it in (tmp_path / "run").iterdir()} == {"log.txt": "01"}
    else:
        assert done.returncode != 0 and "kept" in done.stderr and "trained" not in done.stdout
        assert [it.name for it in (tmp_path / "run").iterdir()] == ["old.txt"]


PREPARED = """\
import os
import pickle
import time

from torch.utils.data import TensorDataset
import torch


class Rows(TensorDataset):
    def __init__(self, path):
        if not os.path.exists(path):
            file = open(path, "wb")
            time.sleep(1)
            pickle.dump(torch.ones(64, 8), file)
            file.close()
        super().__init__(pickle.load(open(path, "rb")), torch.zeros(64, dtype=torch.long))
"""
CHOSEN = {
    "by a text": "eval('rows.{}(path)'.format(name))",
    "by its name": "getattr(rows, name)(path)",
}


@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_data_set_of_a_module_that_a_function_imports_is_prepared_first(
    chosen: str, lab: Lab, tmp_path: Path
) -> None:
    """Others read the file that it keeps only when that is written."""
    made = f"\n\ndef fetch(name, path):\n    import rows\n\n    return {CHOSEN[chosen]}\n\n\ndata = fetch('Rows', 'kept')\n"
    text = START.format(imports="", setup="", before="", epoch="", after="print(loss.item())")
    data = "data = TensorDataset(torch.randn(64, 8), torch.randint(2, (64,)))\n"
    (tmp_path / "rows.py").write_text(PREPARED)
    script = tmp_path / "train.py"
    script.write_text(text.replace(data, made))
    assert command.run("convert", "train.py", "--inplace", cwd=tmp_path).returncode == 0
    assert "ddp.main_process_first()" in script.read_text() + (tmp_path / "rows.py").read_text()
    lab.run(script, processes=2, folder=tmp_path, recorded=False, timeout=60).ok()
