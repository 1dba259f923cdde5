"""Where a rank stands, by what torchrun, Slurm, Open MPI or a person has put into its environment."""

import json
from pathlib import Path

import pytest
from jobs import write
from parity.harness import Lab, environment, free_port

from dp2ddp.runtime import places
from dp2ddp.runtime.places import Place, Seat

JOB = {
    "SLURM_JOB_ID": "4242",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_NODELIST": "gpu[03-05,11],login1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_NTASKS": "99",
    "SLURM_NODELIST": "other",
}


def test_slurm_tells_a_task_its_place():
    place = places.read(JOB)
    assert place == Place(5, 7, 1, 2, 2, "gpu03", place.port)
    assert 10000 <= place.port < 30000
    assert place.port != places.read(JOB | {"SLURM_JOB_ID": "4243"}).port
    assert place.port != places.read(JOB | {"SLURM_STEP_ID": "2"}).port
    chosen = places.read(JOB | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"})
    assert (chosen.address, chosen.port) == ("10.0.0.1", 29500)
    alone = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": "1",
        "SLURM_NODEID": "1",
    }
    assert places.read(JOB | alone).one_per_machine and not place.one_per_machine


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_NUM_TASKS": None},  # the script of sbatch, and python in it
        {"SLURM_STEP_ID": None},
        {"SLURM_STEP_ID": "4294967290"},  # the shell of salloc
        {"SLURM_STEP_ID": "-5"},  # the script of sbatch that was submitted from a step
        {"SLURM_STEP_NUM_TASKS": "1"},  # srun --pty bash
    ],
)
def test_an_allocation_is_no_place(changes):
    variables = {name: value for name, value in (JOB | changes).items() if value is not None}
    assert places.read(variables) is None


def test_a_shell_on_a_terminal_is_no_place(monkeypatch):
    variables = JOB | {"SLURM_PTY_PORT": "34889"}
    monkeypatch.setattr("os.isatty", lambda _: False)
    assert places.read(variables) is not None  # srun within such a shell: the variable stays
    monkeypatch.setattr("os.isatty", lambda _: True)
    assert places.read(variables) is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[01-03,07]", "node01"),
        ("node[7,9]", "node7"),
        ("rack[2-3]-gpu[010-019]x,other", "rack2-gpu010x"),
        ("gpu-a.example.org", "gpu-a.example.org"),
    ],
)
def test_first_host(nodes, first):
    assert places.first_host(nodes) == first


def test_tasks_per_node():
    assert places.tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert places.tasks_per_node("4") == [4]
    with pytest.raises(ValueError, match="SLURM_STEP_TASKS_PER_NODE='many'"):
        places.tasks_per_node("many")


def test_open_mpi_tells_a_process_its_place():
    variables = {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "PMIX_NAMESPACE": "prterun-host-1@1",
    }
    here = places.read(variables | JOB)  # mpirun within a Slurm job
    assert here == Place(3, 4, 1, 4, None, "127.0.0.1", here.port)
    assert here.port != places.read(variables | {"PMIX_NAMESPACE": "prterun-host-2@1"}).port
    assert places.read(variables | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}).address is None
    assert places.read(variables | {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}) is None


def test_torchrun_comes_first_and_numbers_are_checked():
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    assert places.read(variables | JOB) == Place(1, 2, 1)
    assert places.read({"WORLD_SIZE": "2", "LOCAL_RANK": "0"}) is None
    with pytest.raises(ValueError, match="RANK='one': a whole number"):
        places.read(variables | {"RANK": "one"})
    with pytest.raises(ValueError, match="rank 2 of 2: ranks are 0 to 1"):
        places.read(variables | {"RANK": "2"})


@pytest.mark.parametrize(
    ("hosts", "given", "expected"),
    [
        # nothing but ranks is known: by host, also where ranks are dealt out in turn
        ("aabb", [Place(r, 4) for r in range(4)], [(0, 2, 0), (1, 2, 0), (0, 2, 1), (1, 2, 1)]),
        ("abab", [Place(r, 4) for r in range(4)], [(0, 2, 0), (0, 2, 1), (1, 2, 0), (1, 2, 1)]),
        # local ranks that begin anew on one host: two machines of the same name, or two pretended ones
        ("aaaa", [Place(r, 4, r % 2) for r in range(4)], [(0, 2, 0), (1, 2, 0), (0, 2, 1), (1, 2, 1)]),
        ("abb", [Place(0, 3, 0), Place(1, 3, 0), Place(2, 3, 1)], [(0, 1, 0), (0, 2, 1), (1, 2, 1)]),
        # the machine is known, how many ranks it has is not
        (
            "aaa",
            [Place(r, 3, (0, 0, 1)[r], None, (0, 1, 1)[r]) for r in range(3)],
            [(0, 1, 0), (0, 2, 1), (1, 2, 1)],
        ),
        # everything is known, and counts
        ("aa", [Place(r, 2, 0, 1, r) for r in range(2)], [(0, 1, 0), (0, 1, 1)]),
    ],
)
def test_seats(hosts, given, expected):
    assert places.seats(hosts, given) == [Seat(*seat) for seat in expected]


SHOWS = """
from dp2ddp.runtime import places
from dp2ddp.runtime.ranks import first_of_machine
print(ddp.get_rank(), ddp.get_world_size())
ddp.init()
with ddp.main_process_first():
    time.sleep(0.3 * (ddp.get_rank() == 0))
    first = time.time()
assert ddp.gather(ddp.get_rank()) == list(range(ddp.get_world_size()))
assert min(ddp.gather(first)) == ddp.gather(first)[0]
kept = places.variables(os.environ)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
place = [int(kept[name]) for name in names] + [places.read(kept).port, first_of_machine()]
assert place[:4] == [ddp.get_rank(), ddp.get_world_size(), ddp.get_local_rank(), ddp.get_local_world_size()]
with open(f"place{ddp.get_rank()}", "w") as file:
    file.write(json.dumps(place))
"""


def by_hand(lab: Lab, script: Path, ranks: list[dict[str, str]]) -> tuple[list[int], str, list[list[int]]]:
    """Start one process for each environment; exit codes, all output, and the places that the ranks wrote down."""
    output = script.with_suffix(".out")
    job = {"command": [str(script)], "cwd": str(script.parent), "timeout": 60, "stdout": str(output)}
    job |= {"stderr": str(output), "ranks": [environment(**rank) for rank in ranks]}
    codes = lab.warm.run(job).codes
    return (
        codes,
        output.read_text(),
        [json.loads(p.read_text()) for p in sorted(script.parent.glob("place?"))],
    )


def test_ranks_started_by_srun(lab, tmp_path):
    script = write(tmp_path, "import json" + SHOWS)
    port = str(free_port())
    step = JOB | {"SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_TASKS_PER_NODE": "2,1", "MASTER_PORT": port}
    step["SLURM_STEP_NODELIST"] = "localhost,elsewhere"
    # dealt out in turn: --distribution=cyclic
    tasks = [("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1")]
    ranks = [step | {"SLURM_PROCID": r, "SLURM_NODEID": n, "SLURM_LOCALID": local} for r, n, local in tasks]
    codes, output, found = by_hand(lab, script, ranks)
    assert codes == [0, 0, 0], output
    assert sorted(output.split("\n")) == ["", "0 3", "1 3", "2 3"]  # known before init()
    end = int(port)
    assert found == [[0, 3, 0, 2, 0, end, 0], [1, 3, 0, 1, 1, end, 1], [2, 3, 1, 2, 0, end, 0]]


def test_ranks_started_by_mpirun(lab, tmp_path):
    script = write(tmp_path, "import json" + SHOWS)
    common = {"OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": str(tmp_path)}
    ranks = [common | {"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_LOCAL_RANK": r} for r in "01"]
    codes, output, found = by_hand(
        lab, script, [rank | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"} for rank in ranks]
    )
    assert codes == [0, 0], output
    end = [places.port_of(str(tmp_path)), 0]
    assert found == [[0, 2, 0, 2, 0, *end], [1, 2, 1, 2, 0, *end]]
    codes, output, _ = by_hand(lab, script, [ranks[0] | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}])
    assert (
        codes == [1] and output.count("ValueError: this is rank 0 of 2, but MASTER_ADDR is not set") == 1
    ), output


def test_ranks_started_by_hand(lab, tmp_path):
    script = write(tmp_path, "import json" + SHOWS)
    port = str(free_port())
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3"}
    codes, output, found = by_hand(lab, script, [common | {"RANK": r} for r in "012"])
    assert codes == [0, 0, 0], output
    assert found == [[r, 3, r, 3, 0, int(port), 0] for r in range(3)]
    codes, output, _ = by_hand(lab, script, [common | {"RANK": "0", "MASTER_PORT": "99999"}])
    assert codes == [1] and output.count("ValueError: MASTER_PORT=99999: ports are 1 to 65535") == 1
    # two machines on one host
    common["MASTER_PORT"] = port = str(free_port())
    ranks = [common | {"RANK": r, "LOCAL_RANK": local} for r, local in zip("012", "010", strict=True)]
    codes, output, found = by_hand(lab, script, ranks)
    assert codes == [0, 0, 0], output
    assert [place[2:5] + place[6:] for place in found] == [[0, 2, 0, 0], [1, 2, 0, 0], [0, 1, 1, 2]]


def test_a_world_of_one_needs_no_address(lab, tmp_path):
    script = write(tmp_path, "ddp.init()\nprint(ddp.get_world_size(), dist.get_world_size())")
    codes, output, _ = by_hand(lab, script, [{"RANK": "0", "WORLD_SIZE": "1", "DP2DDP_PROCESSES": "2"}])
    assert (codes, output) == ([0], "1 1\n")


@pytest.mark.slow
def test_in_a_group_that_the_program_made(lab, tmp_path):
    body = """
        import json, torch.multiprocessing as mp
        def work(rank, port):
            dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
            group = dist.group.WORLD
            assert ddp.launch(train, rank) == rank + 1
            assert dist.group.WORLD is group
            dist.barrier()
            dist.destroy_process_group()
        def train(rank):
            ddp.init()
            assert ddp.get_rank() == rank and ddp.gather(rank) == [0, 1] and ddp.sum(1) == 2
            with ddp.main_process_first():
                pass
            ddp.barrier()
            loader = torch.utils.data.DataLoader(range(4), num_workers=1, worker_init_fn=check)
            assert len(list(loader)) == 4
            place = [ddp.get_rank(), ddp.get_world_size(), ddp.get_local_rank(), ddp.get_local_world_size()]
            with open(f"place{rank}", "w") as file:
                file.write(json.dumps(place))
            return rank + 1
        def check(worker):
            ddp.barrier()  # would hang: a worker is no rank
            ddp.launch(print, "not called")
        if __name__ == "__main__":
            mp.start_processes(work, [int(os.environ["PORT"])], 2, start_method=os.environ["METHOD"])
    """
    script = write(tmp_path, body)
    for method in ("fork", "spawn"):
        codes, output, found = by_hand(lab, script, [{"METHOD": method, "PORT": str(free_port())}])
        assert (codes, output) == ([0], ""), output
        assert found == [[0, 2, 0, 2], [1, 2, 1, 2]]
        for rank in range(2):
            (tmp_path / f"place{rank}").unlink()
