"""What one process must do alone: files, directories, logs, plots, downloads, prints and progress bars."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from pathlib import Path

from dp2ddp.analyse.conditions import is_main_guard
from dp2ddp.analyse.context import LOOPS, Context
from dp2ddp.analyse.link import Bound, Call, Cls, Ext, Func, Inst, Made, Member, Value, full_name, handed
from dp2ddp.facts import Effect, Fetch, Obstacle, Problem, Reread

# Calls that write, by full name or, with a dot at the end, by its beginning.
WRITES = frozenset("""
    os.makedirs os.mkdir os.remove os.unlink os.rename os.replace os.rmdir os.removedirs os.symlink os.link os.system
    shutil. subprocess. distutils. zipfile.ZipFile.extractall tarfile.open.extractall
    numpy.save numpy.savez numpy.savez_compressed numpy.savetxt scipy.io.savemat
    pickle.dump cPickle.dump dill.dump joblib.dump json.dump yaml.dump yaml.safe_dump toml.dump
    torchvision.utils.save_image torchvision.io.write_png torchvision.io.write_jpeg torch.onnx.export torch.jit.save
    imageio.imwrite imageio.imsave imageio.mimsave imageio.mimwrite cv2.imwrite skimage.io.imsave scipy.misc.imsave
    matplotlib.image.imsave matplotlib.pyplot.imsave matplotlib.pyplot.savefig matplotlib.pyplot.show
    logging.basicConfig logging.config. sys.stdout.write sys.stdout.flush sys.stderr.write
    wandb. mlflow. swanlab. clearml. tensorboard_logger. aim.
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
    "logging.": {"addHandler"},
    "plotly.": {"write_html", "write_image", "show"},
}
# Methods that write whoever has them, if that is not one of the project's classes.
WRITING_ANYWAY = {"save_pretrained", "to_json_file"}
# What makes an object that writes whenever it is used.
WRITERS = {
    "torch.utils.tensorboard.SummaryWriter",
    "torch.utils.tensorboard.FileWriter",
    "tensorboardX.SummaryWriter",
    "tensorboardX.FileWriter",
    "tensorboard_logger.Logger",
    "wandb.init",
    "comet_ml.Experiment",
    "comet_ml.OfflineExperiment",
    "comet_ml.ExistingExperiment",
    "comet_ml.start",
    "neptune.init",
    "neptune.init_run",
    "neptune.new.init",
    "neptune.create_experiment",
    "mlflow.start_run",
    "visdom.Visdom",
    "logging.FileHandler",
    "logging.handlers.RotatingFileHandler",
    "csv.writer",
    "csv.DictWriter",
    "swanlab.init",
    "clearml.Task.init",
    "aim.Run",
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
OPENERS = {"builtins.open", "io.open", "codecs.open", "gzip.open", "bz2.open", "pathlib.Path.open"}
READS = {
    "torch.load",
    "numpy.load",
    "numpy.loadtxt",
    "pickle.load",
    "json.load",
    "joblib.load",
    "yaml.safe_load",
}
OUTPUTS = {"sys.stdout", "sys.stderr"}
SAVES = {"torch.save", "dp2ddp.runtime.save"}
MUTATING = {
    "append",
    "extend",
    "update",
    "pop",
    "clear",
    "insert",
    "step",
    "backward",
    "zero_grad",
    "add",
    "remove",
}
BARS = {"tqdm.tqdm", "tqdm.trange", "rich.progress.track"}
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
    return any(name.startswith(writer + ".") for writer in WRITERS)


def opens_for_writing(call: Call) -> bool:
    if not call.names & OPENERS or _is_nowhere(call):
        return False
    mode = call.argument("mode", 0 if any(name.startswith("pathlib.") for name in call.names) else 1)
    if isinstance(mode, ast.Name | ast.Attribute):
        return True  # unknown: as if it wrote
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return any(letter in mode.value for letter in "wax+")
    return False


def _is_nowhere(call: Call) -> bool:
    """``open(os.devnull, "w")``, on the main process or on the others."""
    file = call.argument("file", 0)
    if isinstance(file, ast.IfExp) and "is_main_process" in ast.dump(file.test):
        return True
    return isinstance(file, ast.expr) and ast.unparse(file) in ("os.devnull", "'/dev/null'")


def _is_writer(context: Context, node: ast.AST) -> bool:
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    return call is not None and (bool(call.names & WRITERS) or opens_for_writing(call))


def _writes(context: Context, node: ast.AST) -> bool:
    """Whether a call writes, through a function or through an object that writes."""
    call = context.program.call(node) if isinstance(node, ast.Call) else None
    if (
        call is not None
        and isinstance(call.node.func, ast.Attribute)
        and call.node.func.attr in WRITING_ANYWAY
    ):
        return not any(isinstance(callee, Func | Bound) for callee in call.callees)
    if call is None or not call.names or _in_own_folder(context, call):
        return False
    opened = list(_opened(call))
    if opened:
        return any(_is_writer(context, context.program.node(site)) for site in opened)
    return any(is_write(name) for name in call.names)


def _in_own_folder(context: Context, call: Call) -> bool:
    """Whether a call is given a temporary folder or file, which every process has one of."""
    given = handed(call.node)
    names = [node for argument in given for node in ast.walk(argument) if isinstance(node, ast.Name)]
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


def _opened(call: Call) -> Iterator[int]:
    for callee in call.callees:
        owner = getattr(callee, "owner", None)
        if isinstance(owner, Made) and owner.name in OPENERS:
            yield owner.site


def _guardable(context: Context, statement: ast.stmt) -> bool:
    """A statement that only writes: it can be left out on other ranks, and nothing later misses it."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _writes(context, statement.value) or _is_writer(context, statement.value)
    if isinstance(statement, ast.With) and len(statement.items) == 1:
        return _is_writer(context, statement.items[0].context_expr)
    return _redirects(context, statement)


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


def _is_shared(context: Context, node: ast.AST | None) -> bool:
    """``with open(path, "a") as log:`` round what all processes run: the file of the others is nowhere."""
    if not isinstance(node, ast.With) or _unsafe(context, node) is None:
        return False
    call = context.program.call(node.items[0].context_expr)
    mode = (
        call.argument("mode", 1) if call is not None and call.names <= {"builtins.open", "io.open"} else None
    )
    return isinstance(mode, ast.Constant) and mode.value in ("w", "a", "wt", "at", "wb", "ab") and bool(call.node.args)  # type: ignore[union-attr]


def _writes_to(context: Context, statement: ast.AST, files: set[int]) -> bool:
    """Whether a statement opens one of some files, or calls its methods."""
    if isinstance(statement, ast.With):
        return id(statement.items[0].context_expr) in files
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    return call is not None and bool(files & set(_opened(call)))


def _open(context: Context, call: ast.Call) -> Iterator[Effect]:
    yield _effect(context, "open", call.args[0], f"{ast.unparse(call.func)}()")


def _redirects(context: Context, statement: ast.stmt) -> bool:
    """``sys.stdout = open("log.txt", "w")``, or an object that opens such a file."""
    if not (isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in OUTPUTS):
        return False
    nodes = context.program.nodes
    return any(_is_writer(context, nodes[key]) for key in context.runs(statement) if key in nodes)


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
    imported = [node for path in _modules(context) for node in _imported_nodes(context, path)]
    guarded = {id(node) for node in nodes if isinstance(node, ast.stmt) and _guardable(context, node)}
    guarded |= {id(node) for node in imported if _logs_to_the_console(context, node)}
    guarded |= {id(it) for node in nodes for it in _for_one(context, node, guarded)}
    guarded = {key for key in guarded if not already(context, program.nodes[key])}
    shared = [node for node in map(program.nodes.get, guarded) if _is_shared(context, node)]
    files = {id(node.items[0].context_expr) for node in shared}
    guarded -= {key for key in guarded if _writes_to(context, program.nodes[key], files)}
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
            if id(node) in files:
                found += _open(context, node)
            elif not _writes_to(context, program.statement(node), files):
                found += _calls(context, node, guarded)
    found += (_effect(context, "print", node, "print()") for node in imported if _is_print(context, node))
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
        problem = next((found for part in parent.body if (found := _unsafe(context, part)) is not None), None)
        last = program.anchor(parent.body[-1])
        yield _effect(
            context, "test", parent.test, _what(context, parent.body[0]), last=last, problem=problem
        )


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
        problem = next(
            (found for part in block[index : last + 1] if (found := _unsafe(context, part)) is not None), None
        )
        yield _effect(
            context,
            "guard",
            statement,
            _what(context, statement),
            last=program.anchor(block[last]),
            problem=problem,
        )


def _unsafe(context: Context, statement: ast.stmt) -> Problem | None:
    """Why a statement can't be left to one process."""
    program = context.program
    runs = [program.nodes[key] for key in context.runs(statement) if key in program.nodes]
    for node in runs:
        call = program.call(node) if isinstance(node, ast.Call) else None
        if call is not None and context.is_wrapped(call.callees):
            return Problem(
                "this statement runs the wrapped model while only the main process may write",
                "run the model first, in a statement of its own, and write the result after it",
            )
        if call is not None and call.names & {"builtins.next"}:
            return Problem(
                "this statement draws from an iterator while only the main process may write",
                "draw first, in a statement of its own, and write the result after it",
            )
    if isinstance(statement, ast.With):
        inside = [node for part in statement.body for node in ast.walk(part)]
        bound = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        opened = statement.items[0].optional_vars
        used = _used_after(context, statement)
        if bound & used - ({opened.id} if isinstance(opened, ast.Name) else set()):
            return Problem(
                "a file is written and values are computed for later in the same block",
                "compute them before the file is opened",
            )
        if any(
            isinstance(n, ast.Attribute | ast.Subscript) and isinstance(n.ctx, ast.Store) for n in inside
        ) or any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in MUTATING
            for n in inside
        ):
            return Problem(
                "a file is written and something else is changed in the same block",
                "change it before the file is opened",
            )
        for node in ast.walk(statement):
            if isinstance(node, ast.Return | ast.Yield | ast.Break | ast.Continue) or (
                isinstance(node, ast.Call) and context.is_wrapped(program.values(node.func))
            ):
                return Problem(
                    "the training goes on while a file is open for writing",
                    "open the file by an assignment, `log = open(…)`, and close it at the end",
                )
    return None


def _used_after(context: Context, statement: ast.stmt) -> set[str]:
    position = max(
        context.program.order[id(node)] for node in ast.walk(statement) if id(node) in context.program.order
    )
    scope = context.program.scope(statement)
    return {
        node.id
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and context.program.order.get(id(node), 0) > position
    }


def _calls(context: Context, node: ast.Call, guarded: set[int]) -> Iterator[Effect]:
    program = context.program
    call = program.call(node)
    if call is None:
        return
    statement = program.statement(node)
    inside = id(statement) in guarded or any(id(around) in guarded for around in program.ancestors(node))
    if _is_print(context, node.func):
        yield _effect(context, "print", node.func, "print()")
    elif "torch.save" in call.names:
        yield _effect(context, "save", node.func, "torch.save()")
    elif call.names & BARS:
        disable = call.argument("disable")
        if disable is None or "is_main_process" not in ast.dump(disable):
            operand = program.anchor(disable) if disable is not None else None
            yield _effect(context, "progress", node, f"{ast.unparse(node.func)}()", operand=operand)
    elif inside or already(context, node):
        return
    elif _is_writer(context, node):
        if isinstance(program.parent(node), ast.withitem):
            problem = Problem(
                "this opens something for writing for a whole block, which the other processes run too",
                "open it by an assignment, and close it at the end",
            )
            yield _effect(context, "writer", node, f"{ast.unparse(node.func)}()", problem=problem)
        elif not _chosen(context, node):
            yield _effect(context, "writer", node, f"{ast.unparse(node.func)}()")
    elif _writes(context, node):
        problem = Problem(
            f"the result of {ast.unparse(node.func)}() is used, which only the main process may call",
            "call it in a statement of its own",
        )
        yield _effect(context, "guard", statement, f"{ast.unparse(node.func)}()", problem=problem)


def _chosen(context: Context, node: ast.Call) -> bool:
    """Whether a writer is made under ``… if ddp.is_main_process() else None`` already."""
    parent = context.program.parent(node)
    return isinstance(parent, ast.IfExp) and "is_main_process" in ast.dump(parent.test)


def obstacles(context: Context, effects: tuple[Effect, ...]) -> Iterator[Obstacle]:
    """Uses of what only the main process has, and input and output that can't be shared."""
    program = context.program
    guards = [effect for effect in effects if effect.kind in ("guard", "test")]
    made = {effect.at for effect in effects if effect.kind == "writer"}
    started = any(effect.what in ("wandb.init()", "tracker.init()") for effect in guards)
    for node in program.nodes.values():
        if not context.runs_in_training(node):
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            values = program.values(node.value)
            sites = [
                program.anchor(program.node(v.site))
                for v in values
                if isinstance(v, Made) and _writing(v.name)
            ]
            config = (
                any(isinstance(v, Ext) and v.name in ("wandb.config", "wandb.run") for v in values)
                and started
            )
            if (
                (made & set(sites) or config)
                and not covered(context, node, guards)
                and not already(context, node)
            ):
                yield context.obstacle(
                    node,
                    f"`{ast.unparse(node)}` is there on the main process only",
                    "take it from where every process has it, or use it in a statement that only writes",
                )
        elif isinstance(node, ast.Call) and (call := program.call(node)) and "builtins.input" in call.names:
            yield context.obstacle(node, "every process would ask for input", "take it from the command line")


def imported(context: Context) -> Iterator[Obstacle]:
    """What happens when a module is imported: in the process that starts the ranks, and in every rank."""
    program = context.program
    for path in _modules(context):
        reaching = (file.path for file in context.scripts if path in program.project.reaches(file.path))
        scripts = frozenset(reaching)
        for node in _imported_nodes(context, path):
            call = program.call(node) if isinstance(node, ast.Call) else None
            if call is None or _logs_to_the_console(context, program.statement(node)):
                continue
            writes = _writes(context, node) or _is_writer(context, node) or bool(call.names & SAVES)
            if writes or _fetch(context, call):
                problem = Problem(
                    f"{ast.unparse(node.func)}() runs when this module is imported, in every process",
                    "move it into a function, and call that after the ranks have started",
                )
                yield Obstacle(**{**context.place(node), "scripts": scripts}, problem=problem)


def _modules(context: Context) -> list[Path]:
    """The files that the programs import."""
    return sorted(context.reached - {file.path for file in context.scripts})


def _logs_to_the_console(context: Context, statement: ast.AST) -> bool:
    """``logging.basicConfig(level=…)`` or ``logger.addHandler(logging.StreamHandler())``: no file is opened."""
    call = context.program.call(statement.value) if isinstance(statement, ast.Expr) else None
    if call is None or not call.names:
        return False
    if call.names == {"logging.basicConfig"}:
        return all(it.arg not in (None, "filename", "handlers") for it in call.node.keywords)
    handlers = context.program.values(call.node.args[0]) if call.node.args else frozenset()
    adds = all(name.startswith("logging.") and name.endswith(".addHandler") for name in call.names)
    return adds and bool(handlers) and all(full_name(it) == "logging.StreamHandler" for it in handlers)


def _is_print(context: Context, function: ast.AST) -> bool:
    """Whether an expression is the ``print`` of a call."""
    around = context.program.parent(function)
    call = context.program.call(around) if isinstance(around, ast.Call) and around.func is function else None
    return call is not None and call.names == {"builtins.print"} and isinstance(function, ast.Name)


def _imported_nodes(context: Context, path: Path) -> Iterator[ast.AST]:
    """The nodes that run when a file is imported, those under its main guard left out."""
    for statement in context.program.project.files[path].tree.body:
        if not (isinstance(statement, ast.If) and is_main_guard(statement.test)):
            yield from context.program.descendants(statement)


def _writing(name: str) -> bool:
    return name in WRITERS or name in OPENERS


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
                if data and (inner.names & SAVES or _writes(context, node) or _is_writer(context, node)):
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
        for statement in _places(context, call.node, writes, set()):
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


def _places(context: Context, node: ast.AST, writes: set[int], seen: set[int]) -> Iterator[ast.stmt]:
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
                seen.add(scope)
                for call in context.callers.get(scope, ()):
                    if context.runs_in_training(call):
                        yield from _places(context, call, writes, seen)
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
