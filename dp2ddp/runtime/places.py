"""Where a process stands among the ranks, as the program that started it says in environment variables.

Read in this order: torchrun's (also ``torch.distributed.launch`` and what people set by hand), Open MPI's, Slurm's.
What the process was started with counts. A program that has ranks of its own may set the same variables for these,
above the line at which it becomes a rank: if that counted, ranks would look for each other at a wrong place.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

Variables = Mapping[str, str]

KEPT = "DP2DDP_PLACE"
"""Where a rank keeps its place: JSON, in torchrun's words. The program sees none of these variables in ranks that
the runtime starts or joins: one that asks them how many processes there are goes on as it did, alone.
"""

OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun says in the environment; and how the names of all else begin that it says."""
ALSO_OF_TORCHRUN = ("GROUP_", "ROLE_", "TORCHELASTIC_", "TORCH_ELASTIC_")
_OF_ATTEMPTS = ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_ERROR_FILE")

# Slurm numbers its own steps (batch script, shell of `salloc`, …) down from here; a batch script may see them as
# negative numbers.
_SLURM_OWN_STEPS = 0xFFFFFFF0


@dataclass(frozen=True)
class Place:
    """One rank's place. None: the environment does not say."""

    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    machine: int | None = None  # 0 to the number of machines - 1
    address: str | None = None  # of rank 0's machine
    port: int | None = None
    one_per_machine: bool = False  # each machine was given one process, for however many GPUs it has


@dataclass(frozen=True)
class Seat:
    """A rank's place on its machine, once the ranks have met."""

    local_rank: int
    local_world_size: int
    machine: int


def _as_started() -> Variables:
    """The environment that this process was started with, as far as that is known: else as it is now.

    The system keeps it, whatever has been set by what is imported before the runtime.
    """
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    found = dict(it.partition("=")[::2] for it in map(os.fsdecode, entries) if "=" in it)
    return found if found.keys() & os.environ.keys() else dict(os.environ)


STARTED = _as_started()


def start(environment: Variables) -> None:
    """Take ``environment`` for what this process was started with: it has been forked for another command."""
    global STARTED
    STARTED = dict(environment)


def meeting_point(environment: Variables) -> tuple[str, str]:
    """MASTER_ADDR and MASTER_PORT, as the command was given; where it was not, as the program has set them."""
    address, port = (STARTED.get(name) or environment.get(name, "") for name in OF_TORCHRUN[-2:])
    return address, port


def _kept(environment: Variables) -> Variables:
    return json.loads(environment.get(KEPT, "{}"))


def variables(environment: Variables, started: Variables | None = None) -> Variables:
    """What is said of a rank: what it has kept, then what a launcher has said, then what ``environment`` says.

    Args:
        environment: as it is now.
        started: as it was when this process was started, if that is another than this one knows.
    """
    began = STARTED if started is None else started
    told = OF_TORCHRUN if "RANK" in began and "WORLD_SIZE" in began else ()
    return {**environment, **{name: began[name] for name in told if name in began}, **_kept(environment)}


def find(environment: Variables) -> Place | None:
    """This process's place, or None if it was not started as one of several.

    What the program has set counts where nothing else is known; but a world of one that it has set is no place: the
    program makes a process group of its own of this process.

    Raises:
        ValueError: as ``read``.
    """
    told = read({**STARTED, **_kept(environment)})
    if told is None:
        found = read(variables(environment))
        return None if found is None or found.world_size == 1 else found
    address = told.address or environment.get("MASTER_ADDR")
    port = _number(environment, "MASTER_PORT") if told.port is None else told.port
    return replace(told, address=address, port=port)


def hide(environment: MutableMapping[str, str]) -> Callable[[], None]:
    """Keep what torchrun says of ranks in ``environment`` out of the program's sight; undone by what is returned.

    How often it has started them, and where it wants to read of an error, may be asked for.
    """
    said = variables(environment)
    names = [it for it in environment if it in OF_TORCHRUN or it.startswith(ALSO_OF_TORCHRUN)]
    hidden = {name: environment.pop(name) for name in names if name not in _OF_ATTEMPTS}
    told = {name: said[name] for name in OF_TORCHRUN if name in said}
    environment[KEPT] = json.dumps({**hidden, **told, **_kept(environment)})
    return lambda: environment.update(hidden)


def read(variables: Variables) -> Place | None:
    """This process's place, or None if nothing says that it is one of several.

    Raises:
        ValueError: a variable is no number, or makes no sense beside the others.
    """
    place = _torchrun(variables) or _open_mpi(variables) or _slurm(variables)
    if place is not None and not 0 <= place.rank < place.world_size:
        raise ValueError(
            f"the environment says rank {place.rank} of {place.world_size}: ranks are 0 to {place.world_size - 1}"
        )
    return place


def _number(variables: Variables, name: str) -> int | None:
    value = variables.get(name)
    if value is None or value == "":
        return None
    if not re.fullmatch(r"-?\d+", value):
        raise ValueError(f"{name}={value!r}: a whole number is needed")
    return int(value)


def _torchrun(variables: Variables) -> Place | None:
    rank, world_size = _number(variables, "RANK"), _number(variables, "WORLD_SIZE")
    if rank is None or world_size is None:
        return None
    return Place(
        rank,
        world_size,
        _number(variables, "LOCAL_RANK"),
        _number(variables, "LOCAL_WORLD_SIZE"),
        _number(variables, "GROUP_RANK"),
        variables.get("MASTER_ADDR"),
        _number(variables, "MASTER_PORT"),
    )


def _open_mpi(variables: Variables) -> Place | None:
    """Of Open MPI's ``mpirun``. Which machine is rank 0's it does not say."""
    rank, world_size = _number(variables, "OMPI_COMM_WORLD_RANK"), _number(variables, "OMPI_COMM_WORLD_SIZE")
    if rank is None or world_size is None or world_size == 1:
        return None
    local_world_size = _number(variables, "OMPI_COMM_WORLD_LOCAL_SIZE")
    here = "127.0.0.1" if local_world_size == world_size else None
    # The name of the job, the same in all its processes: of PMIx since Open MPI 2, of its own run-time before 5.
    job = variables.get("PMIX_NAMESPACE") or variables.get("OMPI_MCA_ess_base_jobid", "")
    return Place(
        rank,
        world_size,
        _number(variables, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_world_size,
        None,
        variables.get("MASTER_ADDR") or here,
        _number(variables, "MASTER_PORT") or port_of(job),
    )


def _slurm(variables: Variables) -> Place | None:
    """Of a task that ``srun`` started, by the variables of the *step*.

    SLURM_PROCID and SLURM_NTASKS are no evidence: the batch script has them too, and a plain ``python`` in it.
    """
    step, tasks = _number(variables, "SLURM_STEP_ID"), _number(variables, "SLURM_STEP_NUM_TASKS")
    rank = _number(variables, "SLURM_PROCID")
    if step is None or not 0 <= step < _SLURM_OWN_STEPS or tasks is None or tasks == 1 or rank is None:
        return None
    if "SLURM_PTY_PORT" in variables and os.isatty(0):  # typed into a shell that `srun --pty` started
        return None
    machine = _number(variables, "SLURM_NODEID") or 0
    counts = tasks_per_node(variables.get("SLURM_STEP_TASKS_PER_NODE") or str(tasks))
    return Place(
        rank,
        tasks,
        _number(variables, "SLURM_LOCALID") or 0,
        counts[machine] if machine < len(counts) else None,
        machine,
        variables.get("MASTER_ADDR") or first_host(variables.get("SLURM_STEP_NODELIST") or "127.0.0.1"),
        _number(variables, "MASTER_PORT") or port_of(f"{variables.get('SLURM_JOB_ID')}.{step}"),
        set(counts) == {1},
    )


def first_host(nodes: str) -> str:
    """The first host of a Slurm list: ``gpu03`` of ``gpu[03-05,11],login1``."""
    first = re.match(r"(?:\[[^]]*\]|[^,[])*", nodes).group()
    return re.sub(r"\[(\w+)[^]]*\]", r"\1", first)


def tasks_per_node(text: str) -> list[int]:
    """Slurm's counts written out: ``2(x3),1`` means 2, 2, 2, 1.

    Raises:
        ValueError: it is written in another way.
    """
    counts = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not found:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE={text!r}: counts like 2(x3),1 are expected")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def port_of(job: str) -> int:
    """A port that all processes of a job derive alike, and other jobs on the machine hardly do: 10000 to 29999."""
    return 10000 + zlib.crc32(job.encode()) % 20000


def seats(hosts: Sequence[str], places: Sequence[Place]) -> list[Seat]:
    """Who shares a machine with whom.

    Args:
        hosts: the name of each rank's machine, in the order of ranks.
        places: what each rank's environment says. What it says of machines and local ranks counts; what it does not
            say follows from the hosts. Ranks of one host with the same local rank are taken as of several machines.
    """
    complete = [p for p in places if None not in (p.local_rank, p.local_world_size, p.machine)]
    if len(complete) == len(places):
        return [Seat(p.local_rank, p.local_world_size, p.machine) for p in places]
    given = all(p.local_rank is not None for p in places)
    seen: Counter[tuple] = Counter()
    groups: dict[tuple, list[int]] = {}
    for rank, (host, place) in enumerate(zip(hosts, places, strict=True)):
        local = (host, place.machine, place.local_rank if given else None)
        groups.setdefault((host, place.machine, seen[local] if given else 0), []).append(rank)
        seen[local] += 1
    found = {}
    for machine, members in enumerate(groups.values()):
        for order, rank in enumerate(members):
            local_rank = places[rank].local_rank if given else order
            found[rank] = Seat(local_rank, len(members), machine)
    return [found[rank] for rank in range(len(places))]
