"""What one process must do alone: files, directories, logs, plots, downloads, questions to whoever sits there.

What is printed is not among it: the other ranks are not heard. Nor is what is done with a writer: it is made on the
main process, and elsewhere it is a stand-in.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from dp2ddp.analyse.context import LOOPS, Context, is_main_guard
from dp2ddp.analyse.link import Bound, Call, Cls, Ext, Func, Inst, Made, Member, Value, full_name, handed
from dp2ddp.facts import NO_TIER, Effect, Fetch, Obstacle, Reread

# Calls that write, by full name or, with a dot at the end, by its beginning.
WRITES = frozenset("""
    os.makedirs os.mkdir os.remove os.unlink os.rename os.replace os.rmdir os.removedirs os.symlink os.link os.system
    shutil. subprocess. distutils. zipfile.ZipFile.extractall tarfile.open.extractall
    numpy.save numpy.savez numpy.savez_compressed numpy.savetxt scipy.io.savemat
    pickle.dump cPickle.dump dill.dump joblib.dump json.dump yaml.dump yaml.safe_dump toml.dump
    torchvision.utils.save_image torchvision.io.write_png torchvision.io.write_jpeg torch.onnx.export torch.jit.save
    imageio.imwrite imageio.imsave imageio.mimsave imageio.mimwrite cv2.imwrite skimage.io.imsave scipy.misc.imsave
    matplotlib.image.imsave matplotlib.pyplot.imsave matplotlib.pyplot.savefig matplotlib.pyplot.show
    logging.config.
    """.split())
# Methods that write, by the class or function that makes the object and the method's name.
WRITING_METHODS = {
    "pathlib.": {
        "mkdir",
        "write_text",
        "write_bytes",
        "touch",
        "unlink",
        "rename",
        "replace",
        "rmdir",
        "symlink_to",
    },
    "PIL.": {"save"},
    "matplotlib.": {"savefig", "show", "save"},
    "seaborn.": {"savefig"},
    "pandas.": {"to_csv", "to_json", "to_pickle", "to_excel", "to_hdf", "to_parquet"},
    "plotly.": {"write_html", "write_image", "show"},
}
# Methods that write whoever has them, if that is not one of the project's classes.
WRITING_ANYWAY = {"save_pretrained", "to_json_file"}
# Modules that are trackers themselves.
TRACKERS = ("wandb", "mlflow", "swanlab", "clearml", "tensorboard_logger", "trackio")
# What makes an object that writes whenever it is used.
WRITERS = frozenset("""
    torch.utils.tensorboard.SummaryWriter torch.utils.tensorboard.FileWriter
    tensorboardX.SummaryWriter tensorboardX.FileWriter tensorboard_logger.Logger
    tensorflow.summary.FileWriter tensorflow.summary.create_file_writer tensorflow.compat.v1.summary.FileWriter
    comet_ml.Experiment comet_ml.OfflineExperiment comet_ml.ExistingExperiment comet_ml.start
    neptune.init neptune.init_run neptune.new.init neptune.create_experiment
    visdom.Visdom aim.Run subprocess.Popen
    logging.FileHandler logging.handlers.RotatingFileHandler logging.handlers.TimedRotatingFileHandler
    cv2.VideoWriter imageio.get_writer pandas.ExcelWriter
    """.split())
# What makes one where its mode says so, by the mode's position.
OPENING = {
    "codecs.open": 1,
    "gzip.open": 1,
    "bz2.open": 1,
    "lzma.open": 1,
    "h5py.File": 1,
    "zipfile.ZipFile": 1,
    "tarfile.open": 1,
}
ASKS = {
    "subprocess.check_output",
    "subprocess.getoutput",
    "shutil.which",
    "shutil.disk_usage",
    "wandb.util.generate_id",
}
ASKING = (
    "os.path.",
    "builtins.len",
    "builtins.isinstance",
    "builtins.hasattr",
    "builtins.bool",
    "builtins.range",
    "builtins.enumerate",
    "builtins.zip",
    "pathlib.Path.exists",
)
BUILTIN_OPEN = {"builtins.open", "io.open"}
OPENERS = BUILTIN_OPEN | {"codecs.open", "gzip.open", "bz2.open", "pathlib.Path.open"}
READS = {
    "torch.load",
    "numpy.load",
    "numpy.loadtxt",
    "pickle.load",
    "json.load",
    "joblib.load",
    "yaml.safe_load",
}
SAVES = {"torch.save", "dp2ddp.runtime.save"}
INPUT = "builtins.input"
FETCHES = {
    "torch.hub.load",
    "torch.hub.load_state_dict_from_url",
    "torch.hub.download_url_to_file",
    "torch.utils.model_zoo.load_url",
    "torchvision.datasets.utils.download_url",
    "torchvision.datasets.utils.download_and_extract_archive",
    "torchvision.models.utils.load_state_dict_from_url",
    "urllib.request.urlretrieve",
    "gdown.download",
    "huggingface_hub.hf_hub_download",
    "huggingface_hub.snapshot_download",
    "datasets.load_dataset",
}
FILE_FETCHES = {
    "torch.hub.download_url_to_file",
    "torchvision.datasets.utils.download_url",
    "torchvision.datasets.utils.download_and_extract_archive",
    "urllib.request.urlretrieve",
    "gdown.download",
}
UNPACKS = {"zipfile.ZipFile.extractall", "tarfile.open.extractall", "tarfile.TarFile.extractall"}
SHELL_FETCHES = ("wget", "curl", "gdown", "unzip", "tar -x", "tar x", "git clone")
PRETRAINED = {"pretrained", "weights", "weights_backbone", "pretrained_backbone"}


def is_write(name: str) -> bool:
    """Whether a call of something outside the project, by its full name, writes or logs."""
    if name in ASKS or any(name.startswith(f"{asks}.") for asks in ASKS):
        return False
    if name in WRITES or any(entry.endswith(".") and name.startswith(entry) for entry in WRITES):
        return True
    owner, _, method = name.rpartition(".")
    if any(owner.startswith(prefix) and method in methods for prefix, methods in WRITING_METHODS.items()):
        return True
    return name.startswith(tuple(f"{tracker}." for tracker in TRACKERS)) or any(
        name.startswith(f"{writer}.") for writer in WRITERS
    )


def opens_for_writing(call: Call) -> bool:
    """Whether a call may open a file for writing: an unknown mode counts."""
    if not call.names & OPENERS or _is_nowhere(call):
        return False
    mode = call.argument("mode", 0 if any(name.startswith("pathlib.") for name in call.names) else 1)
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return any(letter in mode.value for letter in "wax+")
    return mode is not None


def _is_nowhere(call: Call) -> bool:
    """``open(os.devnull, "w")``."""
    file = call.argument("file", 0)
    return isinstance(file, ast.expr) and ast.unparse(file) in ("os.devnull", "'/dev/null'")


def _is_writer(context: Context, call: Call) -> bool:
    """Whether a call makes something that writes whenever it is used, if not by Python's own ``open``."""
    if call.names & WRITERS:
        return not _in_own_folder(context, call)
    for name in call.names & OPENING.keys():
        mode = call.argument("mode", OPENING[name])
        if isinstance(mode, ast.Constant) and any(letter in str(mode.value) for letter in "wax+"):
            return not _in_own_folder(context, call)
    return False


def _is_open(context: Context, call: Call) -> bool:
    """Whether a call is Python's ``open``, or a path's, of a file that may be written to."""
    plain = call.names & (BUILTIN_OPEN | {"pathlib.Path.open"})
    return bool(plain) and opens_for_writing(call) and not _in_own_folder(context, call)


def _writes(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, by itself: not into a file that is open already."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    if isinstance(call.node.func, ast.Attribute) and call.node.func.attr in WRITING_ANYWAY:
        return not any(isinstance(callee, Func | Bound) for callee in call.callees)
    if call.names == {"logging.basicConfig"}:
        return call.argument("filename", 0) is not None
    if (
        not call.names
        or call.names & WRITERS
        or _in_own_folder(context, call)
        or _into_open_file(context, call)
    ):
        return False
    return any(_is_plain_write(name) for name in call.names)


def _is_plain_write(name: str) -> bool:
    """Whether a call writes that is neither a tracker's nor a writer's: these are stand-ins on the other ranks."""
    stands_in = (*(f"{tracker}." for tracker in TRACKERS), *(f"{writer}." for writer in WRITERS))
    return is_write(name) and not name.startswith(stands_in)


def _into_open_file(context: Context, call: Call) -> bool:
    """Whether a call is of an open file, or is given one: on the other ranks that leads nowhere."""
    owners = [getattr(callee, "owner", None) for callee in call.callees]
    given = [value for argument in handed(call.node) for value in context.program.values(argument)]
    opened = OPENERS | OPENING.keys() | {"dp2ddp.runtime.open"}
    return any(isinstance(it, Made) and it.name in opened for it in (*owners, *given))


def _in_own_folder(context: Context, call: Call) -> bool:
    """Whether a call is given a temporary folder or file, which every process has one of."""
    names = [
        node for argument in handed(call.node) for node in ast.walk(argument) if isinstance(node, ast.Name)
    ]
    found = [context.program.values(name) for name in names]
    return any(values and all(_is_own_folder(context, it) for it in values) for values in found)


def _is_own_folder(context: Context, value: Value) -> bool:
    """Whether something is a temporary file or folder that the processes don't share."""
    if not isinstance(value, Made | Member) or not full_name(value).startswith("tempfile."):
        return False
    while isinstance(value, Member):
        value = value.owner
    made = context.program.node(value.site)
    return not any(id(node) in context.agreed for node in (made, *context.program.ancestors(made)))


def happens_once(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, fetches or asks for something that must not be done again by who starts the ranks."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if call is None:
        return False
    opens = _is_open(context, call) or _is_writer(context, call)
    return opens or _writes(context, node) or bool(call.names & {*SAVES, INPUT}) or _fetch(context, call)


def _is_written(context: Context, statement: ast.AST) -> bool:
    """A statement that only writes: it can be left out on other ranks, and nothing later misses it."""
    return (
        isinstance(statement, ast.Expr)
        and _writes(context, statement.value)
        and not _does_more(context, statement)
    )


def _does_more(context: Context, statement: ast.stmt) -> bool:
    """Whether a statement that writes runs the model or draws a batch, too: for that, all ranks must come."""
    program = context.program
    for key in context.runs(statement):
        node = program.nodes.get(key)
        call = program.call(node) if isinstance(node, ast.Call) else None
        if call is not None and (context.is_wrapped(call.callees) or call.names & {"builtins.next"}):
            return True
    return False


def _for_one(context: Context, node: ast.AST, guarded: set[int]) -> list[ast.stmt]:
    """``path = writer.logdir()`` with the statements that write with it, if it is there for nothing else."""
    program = context.program
    if not (
        isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and len(node.targets) == 1
    ):
        return []
    if not any(_writes(context, inner) for inner in program.descendants(node.value)):
        return []
    block = program.block(node)
    group = [node]
    for statement in block[block.index(node) + 1 :]:
        if id(statement) not in guarded and not _saves(context, statement):
            break
        group.append(statement)
    inside = {id(inner) for statement in group for inner in ast.walk(statement)}
    uses = [
        it
        for it in ast.walk(program.scope(node).node)
        if isinstance(it, ast.Name) and it is not node.targets[0]
    ]
    alone = all(id(it) in inside for it in uses if it.id == node.targets[0].id)
    return group if alone and len(group) > 1 else []


def _saves(context: Context, statement: ast.stmt) -> bool:
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    return call is not None and bool(call.names & SAVES)


def collect(context: Context, meetings: frozenset[int] = frozenset()) -> tuple[Effect, ...]:
    """Everything in programs that train with DataParallel which one process must do alone.

    ``meetings``: statements in which all processes meet: what stands round them is for all.
    """
    program = context.program
    nodes = [
        node
        for node in program.nodes.values()
        if context.runs_in_training(node) and not is_inside(context, node, context.downloaders)
    ]
    guarded = {id(node) for node in nodes if _is_written(context, node)}
    guarded |= {id(it) for node in nodes for it in _for_one(context, node, guarded)}
    guarded = {key for key in guarded if not already(context, program.nodes[key])}
    guarded |= _around(context, guarded, meetings)
    inner = {
        key
        for key in guarded
        if any(id(around) in guarded for around in program.ancestors(program.nodes[key]))
    }
    found: list[Effect] = []
    found += _tests(context, guarded - inner, meetings)
    found += _groups(context, guarded - inner, meetings)
    for node in nodes:
        if isinstance(node, ast.Call) and program.statement(node) is not None:
            found += _calls(context, node, guarded)
        elif isinstance(node, ast.Import):
            found += _trackers(context, node)
    return tuple(sorted(found, key=lambda effect: (effect.path, effect.at.span, effect.kind)))


def _around(context: Context, guarded: set[int], meetings: frozenset[int]) -> set[int]:
    """Loops and choices of which nothing is left without the calls that write: one guard for all of it."""
    program = context.program
    found: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key], reverse=True):
        node = program.parent(program.nodes[key])
        while id(node) not in found and _only_writes(context, node, (guarded | found) - meetings):
            found.add(id(node))
            node = program.parent(node)
    return found


def _only_writes(context: Context, node: ast.AST | None, guarded: set[int]) -> bool:
    match node:
        case ast.For(iter=header):
            if _is_needed(context, node):
                return False
        case ast.If(test=header, orelse=[_, *_]):
            pass
        case _:
            return False
    parts = [*node.body, *node.orelse]
    return _only_asks(context, header) and all(
        id(part) in guarded and isinstance(part, ast.Expr | ast.For | ast.If) for part in parts
    )


def _is_needed(context: Context, loop: ast.For) -> bool:
    """Whether what a loop binds is used outside it, or is no plain name."""
    program = context.program
    inside = {id(node) for node in ast.walk(loop)}
    bound = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
    return any(isinstance(node, ast.Attribute | ast.Subscript) for node in ast.walk(loop.target)) or any(
        definition in bound
        for node in ast.walk(program.scope(loop).node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in inside
        for definition in program.definitions(node)
    )


def already(context: Context, statement: ast.AST) -> bool:
    """Whether a statement stands under ``if ddp.is_main_process()`` already."""
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.If) and any(
            isinstance(node, ast.Call)
            and (call := context.program.call(node)) is not None
            and "dp2ddp.runtime.is_main_process" in call.names
            for node in ast.walk(around.test)
        ):
            return True
    return False


def _effect(context: Context, kind: str, node: ast.AST, what: str, **more: object) -> Effect:
    return Effect(**context.place(node), kind=kind, what=what, **more)


def _what(context: Context, statement: ast.AST) -> str:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            return f"{ast.unparse(node.func)}()"
    return "this"


def _tests(context: Context, guarded: set[int], meetings: frozenset[int]) -> Iterator[Effect]:
    """Conditions whose whole body only writes: the guard joins the condition."""
    program = context.program
    seen: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key]):
        parent = program.parent(program.nodes[key])
        if (
            not isinstance(parent, ast.If)
            or id(parent) in seen
            or not _whole(context, parent, guarded - meetings)
        ):
            continue
        seen.add(id(parent))
        last = program.anchor(parent.body[-1])
        yield _effect(context, "test", parent.test, _what(context, parent.body[0]), last=last)


def _only_asks(context: Context, test: ast.expr) -> bool:
    """Whether a condition changes nothing: the main process alone may evaluate it."""
    for node in ast.walk(test):
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield):
            return False
        if isinstance(node, ast.Call):
            call = context.program.call(node)
            if call is None or not call.names or not all(name.startswith(ASKING) for name in call.names):
                return False
    return True


def _whole(context: Context, node: ast.AST | None, guarded: set[int]) -> bool:
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and not is_main_guard(node.test)
        and _only_asks(context, node.test)
        and all(id(statement) in guarded for statement in node.body)
    )


def _groups(context: Context, guarded: set[int], meetings: frozenset[int]) -> Iterator[Effect]:
    """Neighbouring statements that only write: one guard for all of them."""
    program = context.program
    seen: set[int] = set()
    for key in sorted(guarded, key=lambda key: program.order[key]):
        statement = program.nodes[key]
        if key in seen or _whole(context, program.parent(statement), guarded - meetings):
            continue
        block = program.block(statement)  # type: ignore[arg-type]
        index = block.index(statement)  # type: ignore[arg-type]
        last = index
        while last + 1 < len(block) and id(block[last + 1]) in guarded:
            last += 1
        seen.update(id(part) for part in block[index : last + 1])
        yield _effect(
            context,
            "guard",
            statement,
            _what(context, statement),
            last=program.anchor(block[last]),
        )


def _calls(context: Context, node: ast.Call, guarded: set[int]) -> Iterator[Effect]:
    """What a call does that one process must do alone, where no guard stands round it."""
    program = context.program
    call = program.call(node)
    if call is None:
        return
    if "torch.save" in call.names:
        yield _effect(context, "save", node.func, "torch.save()")
        return
    inside = id(program.statement(node)) in guarded
    if inside or any(id(around) in guarded for around in program.ancestors(node)) or already(context, node):
        return
    what = f"{ast.unparse(node.func)}()"
    if INPUT in call.names:
        yield _effect(context, "input", node.func, what)
    elif _is_open(context, call):
        yield _open(context, call, what)
    elif _is_writer(context, call) or _is_tracker_function(context, call):
        yield _effect(context, "writer", node.func, what)
    elif _writes(context, node):
        statement = program.statement(node)
        asked = not (isinstance(statement, ast.Expr) and statement.value is node)
        handled = any(isinstance(it, ast.ExceptHandler) for it in program.ancestors(node))
        answers = any(name.startswith(("os.", "subprocess.", "shutil.")) for name in call.names)
        if asked and answers and not handled:
            yield _effect(context, "answer", node, what)
        else:
            yield _effect(context, "writer", node.func, what)


def _open(context: Context, call: Call, what: str) -> Effect:
    """Python's ``open``, or a path's."""
    owner = None
    if "pathlib.Path.open" in call.names and isinstance(call.node.func, ast.Attribute):
        owner = context.program.anchor(call.node.func.value)
    given = tuple(
        (f"{keyword.arg}=" if keyword.arg else "**", context.program.anchor(keyword.value))
        for keyword in call.node.keywords
    )
    placed = tuple(
        ("*" if isinstance(it, ast.Starred) else "", context.program.anchor(it)) for it in call.node.args
    )
    if owner is None:
        return _effect(context, "open", call.node.func, what)
    return _effect(context, "open", call.node, what, operand=owner, arguments=(*placed, *given))


def _trackers(context: Context, statement: ast.Import) -> Iterator[Effect]:
    """Modules that are trackers: one line after their import."""
    for alias in statement.names:
        if alias.name.partition(".")[0] in TRACKERS and (alias.asname or "." not in alias.name):
            name = alias.asname or alias.name
            if not _stands_in(context, statement, name):
                last = context.program.anchor(_last_import(context, statement))
                yield _effect(context, "tracker", statement, name, last=last)


def _last_import(context: Context, statement: ast.stmt) -> ast.stmt:
    """The last of the imports that follow one another."""
    block = context.program.block(statement)
    last = statement
    for following in block[block.index(statement) + 1 :]:
        if not isinstance(following, ast.Import | ast.ImportFrom):
            break
        last = following
    return last


def _is_tracker_function(context: Context, call: Call) -> bool:
    """Whether a call is of a function that was imported from a tracker's module."""
    return isinstance(call.node.func, ast.Name) and any(map(_is_of_tracker, call.names))


def _is_of_tracker(name: str) -> bool:
    return name.startswith(tuple(f"{tracker}." for tracker in TRACKERS)) and name not in ASKS


def _stands_in(context: Context, statement: ast.stmt, name: str) -> bool:
    """Whether a name is made ``ddp.on_main_process(name)`` after its import already."""
    block = context.program.block(statement)
    text = f"on_main_process({name})"
    return any(isinstance(it, ast.Assign) and text in ast.unparse(it) for it in block)


def obstacles(context: Context) -> Iterator[Obstacle]:
    """What comes out of a tracker and may be trained by: only the main process has it."""
    program = context.program
    names = {f"{tracker}.{name}" for tracker in TRACKERS for name in ("config", "run.config")}
    for node in program.nodes.values():
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
            continue
        used = isinstance(program.parent(node), ast.Attribute | ast.Subscript | ast.Assign | ast.keyword)
        called = isinstance(program.parent(program.parent(node) or node), ast.Call)
        if used and not called and context.runs_in_training(node) and not already(context, node):
            if any(isinstance(value, Ext) and value.name in names for value in program.values(node)):
                yield context.obstacle(
                    node,
                    f"`{ast.unparse(node)}` is there on the main process only",
                    "where it is trained by, give all ranks its value: ddp.from_main_process(…)",
                    NO_TIER,
                )


def covered(context: Context, node: ast.AST, guards: list[Effect]) -> bool:
    return any(guard.covers(context.program.anchor(node)) for guard in guards)


# Downloads and caches


def fetches(context: Context, node: ast.AST) -> list[str]:
    """What an expression or statement fetches or caches, by the names of the calls."""
    found = []
    for inner in context.program.descendants(node):
        call = context.program.call(inner) if isinstance(inner, ast.Call) else None
        if call is not None and _fetch(context, call):
            found.append(f"{ast.unparse(call.node.func)}()")
    return found


def _fetch(context: Context, call: Call) -> bool:
    names = {callee.name for callee in call.callees if isinstance(callee, Ext)}
    if names & FETCHES or any(name.endswith(".from_pretrained") for name in names):
        return True
    for name in names:
        if name.startswith(("torchvision.", "timm.", "torchaudio.", "torchtext.")):
            given = [keyword.arg for keyword in call.node.keywords if not _is_off(keyword.value)]
            if {"download", *PRETRAINED} & set(given):
                return True
        if name.startswith("torchvision.datasets.") and _positional_download(call):
            return True
        if name.startswith("torchvision.models.") and call.node.args and not _is_off(call.node.args[0]):
            return True
    if any(isinstance(callee, Func) and callee.scope in context.downloaders for callee in call.callees):
        return True
    return any(isinstance(callee, Cls) and _caches(context, callee, call) for callee in call.callees)


def _is_off(node: ast.expr) -> bool:
    """A literal that asks for nothing: False, None, 0."""
    return isinstance(node, ast.Constant) and not node.value


def _positional_download(call: Call) -> bool:
    """MNIST(root, train, transform, target_transform, download), and the data sets like it."""
    return len(call.node.args) > 4 and not _is_off(call.node.args[4])


def _caches(context: Context, cls: Cls, call: Call) -> bool:
    """A class of the project whose ``__init__`` fetches or unpacks files, or a data set whose one writes some."""
    program = context.program
    made = Inst(cls, id(call.node))
    if context.module_class(made) or context.runs(call.node) & context.trained_wraps:
        return False
    data = any(
        program.derives(made, f"torch.utils.data.{base}")
        or program.derives(made, f"torchvision.datasets.{base}")
        for base in ("Dataset", "ImageFolder", "VisionDataset", "MNIST", "CIFAR10", "DatasetFolder")
    )
    for index in program.entered(call.node):
        for part in program.scopes[index].body:
            for node in program.descendants(part):
                inner = program.call(node) if isinstance(node, ast.Call) else None
                if inner is None:
                    continue
                if inner.names & (FILE_FETCHES | UNPACKS):
                    return True
                if data and (
                    inner.names & SAVES
                    or _writes(context, node)
                    or _is_writer(context, inner)
                    or _is_open(context, inner)
                ):
                    if not any(name.startswith(("logging.", "wandb.")) for name in inner.names):
                        return True
    return False


def caching(context: Context) -> set[int]:
    """The classes whose objects one process makes first, with their bases, and the functions that it calls first."""
    return context.downloaders | {
        base.scope
        for call in context.program.calls
        for callee in call.callees
        if isinstance(callee, Cls) and _caches(context, callee, call)
        for base in context.program.bases(callee)
        if isinstance(base, Cls)
    }


def fetch_facts(context: Context, hoisted: set[int]) -> tuple[Fetch, ...]:
    """Statements that fetch or cache, neighbours together; ``hoisted`` expressions may get a statement of their own."""
    program = context.program
    cached = caching(context)
    statements: dict[int, list[str]] = {}
    found: list[Fetch] = []
    for node in program.nodes.values():
        if not (isinstance(node, ast.Call) and context.runs_in_training(node)):
            continue
        call = program.call(node)
        if call is None or not _fetch(context, call):
            continue
        statement = _whole_question(context, program.statement(node))
        if _under_main_first(context, statement) or is_inside(context, node, cached):
            continue
        what = f"{ast.unparse(node.func)}()"
        dataset = next((it for it in (node, *program.ancestors(node)) if id(it) in hoisted), None)
        if dataset is None:
            statements.setdefault(id(statement), []).append(what)
        else:
            place, last = context.place(statement), program.anchor(statement)
            found.append(Fetch(**place, what=what, last=last, dataset=program.anchor(dataset)))
    seen: set[int] = set()
    for key in sorted(statements, key=lambda key: program.order[key]):
        if key in seen:
            continue
        first: ast.stmt = program.nodes[key]  # type: ignore[assignment]
        block = program.block(first)
        index = last = block.index(first)
        while last + 1 < len(block) and id(block[last + 1]) in statements:
            last += 1
        seen.update(id(part) for part in block[index : last + 1])
        place = context.place(first)
        found.append(Fetch(**place, what=statements[key][0], last=program.anchor(block[last])))
    return tuple(found)


def _whole_question(context: Context, statement: ast.stmt) -> ast.stmt:
    """The outermost ``if`` round a statement that asks for files: what it finds may differ between processes."""
    found = statement
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.While):
            break
        if isinstance(around, ast.If):
            calls = [
                context.program.call(node) for node in ast.walk(around.test) if isinstance(node, ast.Call)
            ]
            names = {name for call in calls if call is not None for name in call.names}
            if any(name.startswith(("os.path.", "pathlib.Path.", "os.listdir", "glob.")) for name in names):
                found = around
    return found


def is_inside(context: Context, node: ast.AST, cached: Container[int]) -> bool:
    """Whether a node stands in a class or function of these: the place that calls it waits, and it alone."""
    around = (it for it in context.program.ancestors(node) if isinstance(it, ast.ClassDef | ast.FunctionDef))
    return any(context.program.by_node[id(it)].index in cached for it in around)


def _under_main_first(context: Context, statement: ast.stmt) -> bool:
    for around in context.program.ancestors(statement):
        if isinstance(around, ast.With) and any(
            "main_process_first" in ast.dump(i.context_expr) for i in around.items
        ):
            return True
    return False


# Reading what was written


def rereads(context: Context) -> tuple[Reread, ...]:
    """Statements that read a file after the same program has written one."""
    program = context.program
    writes = {
        id(call.node)
        for call in program.calls
        if call.names & SAVES or any(_writes_file(name) for name in call.names) or _fetches_by_shell(call)
    }
    alone = set().union(*(context.runs(call.node) for call in program.calls if _fetch(context, call)), set())
    found: dict[int, Reread] = {}
    for call in program.calls:
        # What runs in `main_process_first()` waits there, and nowhere inside.
        if not call.names & READS or not context.runs_in_training(call.node) or id(call.node) in alone:
            continue
        for statement in _places(context, call.node, writes, frozenset()):
            if id(statement) not in found and not _after_barrier(context, statement, writes, found):
                what = f"{ast.unparse(call.node.func)}()"
                found[id(statement)] = Reread(**context.place(statement), what=what)
    return tuple(found.values())


def _writes_file(name: str) -> bool:
    files = (
        "numpy.",
        "pickle.",
        "json.",
        "shutil.copy",
        "shutil.move",
        "joblib.",
        "os.rename",
        "os.replace",
        "pandas.",
    )
    return is_write(name) and name.startswith(files)


def _fetches_by_shell(call: Call) -> bool:
    """``os.system("wget …")``."""
    shell = any(name == "os.system" or name.startswith("subprocess.") for name in call.names)
    return (
        shell
        and bool(call.node.args)
        and any(word in ast.unparse(call.node.args[0]) for word in SHELL_FETCHES)
    )


def _places(context: Context, node: ast.AST, writes: set[int], seen: frozenset[int]) -> Iterator[ast.stmt]:
    """The statements before which all processes must wait: after one that writes, outside conditions."""
    program = context.program
    inside: ast.stmt = program.statement(node)
    while True:
        block = program.block(inside)
        parent = program.parent(inside)
        index = block.index(inside)
        others = block[:index] + (block[index + 1 :] if isinstance(parent, LOOPS) else [])
        if any(context.runs(other) & writes for other in others):
            if not (_in_function(context, parent) and _any_before(context, parent, writes)):
                yield inside
                return
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            scope = program.by_node[id(parent)].index
            if scope not in seen:
                for call in context.callers.get(scope, ()):
                    if context.runs_in_training(call):
                        yield from _places(context, call, writes, seen | {scope})
            return
        if not isinstance(parent, ast.stmt):
            return
        inside = parent


def _in_function(context: Context, node: ast.AST) -> bool:
    return isinstance(node, ast.If) and not is_main_guard(node.test)


def _any_before(context: Context, statement: ast.stmt, writes: set[int]) -> bool:
    block = context.program.block(statement)
    return any(context.runs(other) & writes for other in block[: block.index(statement)])


def _after_barrier(context: Context, statement: ast.stmt, writes: set[int], waiting: Container[int]) -> bool:
    """Whether all have waited, or will at a statement in ``waiting``, since something was written in this block."""
    block = context.program.block(statement)
    for before in reversed(block[: block.index(statement)]):
        call = context.program.call(before.value) if isinstance(before, ast.Expr) else None
        if call is not None and "dp2ddp.runtime.barrier" in call.names:
            return True
        if context.runs(before) & writes:
            return False
        if id(before) in waiting:
            return True
    return False
