"""Programs, processes, threads and ranks: what starts, ends and joins them, and what tells one from the others."""

from __future__ import annotations

import re

# What ends the program, or this process.
ENDS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort"})
# What says something to who runs the program, by the beginning of its name.
TELLS = ("builtins.print", "logging.", "warnings.warn")
# What prints what it is given, or writes it where that is printed.
PRINTS = (
    frozenset("""
    builtins.print dp2ddp.runtime.print pprint.pprint pprint.pp warnings.warn tqdm.tqdm.write
    click.echo click.secho typer.echo typer.secho rich.print rich.pretty.pprint termcolor.cprint
    """.split())
    | {
        f"sys.{stream}.{way}"
        for stream in ("stdout", "stderr", "__stdout__", "__stderr__")
        for way in ("write", "writelines", "buffer.write")
    }
)
# What runs another program, by the beginning of its name.
RUNS_PROGRAMS = ("os.system", "os.exec", "os.spawn", "os.popen", "subprocess.")
# How a command begins that starts ranks.
LAUNCHERS = re.compile(r"torchrun|torch\.distributed\.(launch|run)\b")
# What says how a program ended that ``subprocess.Popen`` started, and what it wrote.
POPEN_ANSWERS = frozenset(
    f"subprocess.Popen.{it}"
    for it in ("communicate", "wait", "poll", "stdout.read", "stdout.readline", "stdout.readlines")
)
# How it ended, and what it writes while it runs, line by line: in these, too.
POPEN_ENDED = "subprocess.Popen.returncode"
POPEN_LINES = frozenset({"subprocess.Popen.stdout", "subprocess.Popen.stderr"})
READS_AS_TEXT = "io.TextIOWrapper"

# What starts processes that run a function; what makes one such process.
SPAWNS = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"})
PROCESSES = frozenset({"multiprocessing.Process", "torch.multiprocessing.Process"})
# What is given a function as ``target``, and what to call it with as ``args`` and ``kwargs``.
RUNS_TARGET = PROCESSES | {"threading.Thread"}
# What runs functions that it is given in threads of its own, by the beginning of its name.
THREADS = ("threading.", "concurrent.futures.", "multiprocessing.pool.ThreadPool", "multiprocessing.dummy.")
# What hands out results of threads or processes, by the beginning and the end of its name; and by its whole name.
QUEUES = ("queue.", "multiprocessing.", "torch.multiprocessing.")
TAKES_AS_READY = ("Queue.get", "Queue.get_nowait", ".imap_unordered")
AS_COMPLETED = frozenset("""
    asyncio.as_completed asyncio.wait concurrent.futures.as_completed concurrent.futures.wait
    dask.distributed.as_completed dask.distributed.wait distributed.as_completed distributed.wait
    multiprocessing.connection.wait
    ray.wait ray.util.ActorPool.get_next_unordered ray.util.ActorPool.map_unordered
    """.split())
# What does so where it is told to, by an argument and its value.
UNORDERED = {"joblib.Parallel": ("return_as", "generator_unordered")}
# What takes results of processes that draw random numbers of their own: they are seeded for themselves.
OF_OTHERS = frozenset("""
    ray.get ray.util.ActorPool.get_next ray.util.ActorPool.map
    """.split())
# What takes a message of whichever process has sent one, by the beginning and the end of its name.
SOCKETS = ("zmq.", "socket.")
RECEIVES = tuple(
    f".{it}"
    for it in "recv recv_into recv_json recv_multipart recv_pyobj recv_serialized recv_string recvfrom".split()
)
# What one thread waits for another by.
WAITS = frozenset("""
    queue.Queue queue.SimpleQueue Queue.Queue threading.Barrier threading.Condition threading.Event
    """.split())

# Where torch has its collectives, and what of that joins a group, asks for one, or needs none.
DISTRIBUTED = ("torch.distributed", "torch.distributed.distributed_c10d")
JOINS = frozenset(f"{home}.init_process_group" for home in DISTRIBUTED) | {"deepspeed.initialize"}
# Engines that have ranks of their own, and wrap or divide for them what they are given.
JOINS |= frozenset(
    f"{home}.{name}"
    for homes, names in (
        (
            "accelerate.Accelerator accelerate.accelerator.Accelerator",
            "prepare prepare_data_loader prepare_model",
        ),
        (
            "lightning.Fabric lightning.fabric.Fabric lightning.fabric.fabric.Fabric lightning_fabric.Fabric "
            "lightning_fabric.fabric.Fabric",
            "setup setup_dataloaders setup_module",
        ),
    )
    for home in homes.split()
    for name in names.split()
)
ASKS_FOR_GROUP = frozenset(f"{home}.is_initialized" for home in DISTRIBUTED)
NEEDS_NO_GROUP = frozenset({"init_device_mesh", "get_node_local_rank", "register_backend"})
WORLD_SIZE = "torch.distributed.get_world_size"
# What tells one rank from the others: calls, and what a launcher sets in the environment.
RANKS = frozenset({"torch.distributed.get_rank", "dp2ddp.runtime.get_rank", "dp2ddp.runtime.is_main_process"})
RANK_VARIABLES = frozenset({"RANK", "LOCAL_RANK"})
# All that a launcher says there; what DataParallel's programs do not see.
LAUNCHER_VARIABLES = frozenset(
    {*RANK_VARIABLES, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)
# What a program's environment is, as it is written.
ENVIRONMENT = frozenset({"os.environ", "environ"})

# The runtime's: what starts the ranks, asks whether they are, and agrees on a value.
STARTED = frozenset({"dp2ddp.runtime.launch", "dp2ddp.runtime.init"})
ASKS_RUNTIME_FOR_GROUP = frozenset({"dp2ddp.runtime.is_initialized", "dp2ddp.runtime.stands_aside"})
AGREED = "dp2ddp.runtime.from_main_process"
INPUT = "builtins.input"
# What else asks who runs the program, and returns the answer.
ASKS_USER = frozenset("""
    click.confirm click.getchar click.prompt getpass.getpass
    inquirer.prompt pwinput.pwinput rich.prompt.Confirm.ask rich.prompt.IntPrompt.ask rich.prompt.Prompt.ask
    typer.confirm typer.prompt
    """.split())
# The runtime's, for the batches of a loop that are dealt to the ranks.
DEALS_BATCHES = frozenset({"dp2ddp.runtime.shard_batches", "dp2ddp.runtime.divide_batches"})
# The names that the runtime may be imported as.
RUNTIME_NAMES = ("ddp", "ddp_runtime", "dp2ddp_runtime", "dp2ddp_ddp")
