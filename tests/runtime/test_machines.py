"""Several machines, pretended on the loopback: two commands, each the agent of its own ranks."""

import re
import signal
import socket
import threading
import time
from datetime import timedelta

import pytest
from jobs import finish, line, run, start, write
from parity.harness import free_port

from dp2ddp.runtime import machines
from dp2ddp.runtime.machines import Failure
from dp2ddp.runtime.options import Options

SOON = 15  # seconds from a fault to the end of everything: 10, and some for a machine with other work

PLACE = """
with ddp.main_process_first():
    time.sleep(0.2 * (ddp.get_rank() == 0))
    when = time.time()
whens = ddp.gather(when)
assert min(whens) == whens[0] and (len(whens) < 3 or min(whens[1:]) == min(whens[1], whens[2]))
assert ddp.gather(ddp.get_rank()) == list(range(ddp.get_world_size()))
ddp.barrier()
place = ddp.get_rank(), ddp.get_world_size(), ddp.get_local_rank(), ddp.get_local_world_size(), ddp.ranks.machine()
sys.stdout.write(" ".join(map(str, place)) + os.linesep)  # at once: torchrun's ranks do not buffer
sys.stdout.flush()
"""


def on_two_machines(folder, command, processes, **env):
    """Start the same command as machine 0 and 1."""
    return [
        start(command, folder, count, DP2DDP_MACHINE_RANK=rank, **env) for rank, count in enumerate(processes)
    ]


def results(jobs, limit=60):
    return [finish(job, limit) for job in jobs]


def test_each_machine_starts_its_ranks(tmp_path):
    write(tmp_path, "ddp.launch(print, end='', num_machines=2, dist_url=sys.argv[1])" + PLACE)
    jobs = on_two_machines(tmp_path, ["train.py", f"tcp://localhost:{free_port()}"], (2, 1))
    first, second = results(jobs)
    assert (first.code, first.err, second.code, second.err) == (0, "", 0, "")
    assert sorted(first.out.strip().split("\n")) == ["0 3 0 2 0", "1 3 1 2 0"]
    assert second.out == "2 3 0 1 1\n"
    assert first.left == second.left == []


@pytest.mark.slow
def test_a_failing_rank_ends_the_job_on_both_machines_of_a_slurm_step(tmp_path):
    """srun started one task on each machine, which starts that machine's ranks."""
    write(tmp_path, "ddp.init()" + PLACE + "os._exit(3) if ddp.get_rank() == 3 else time.sleep(60)")
    step = {"SLURM_JOB_ID": time.time_ns(), "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 2}
    step |= {
        "SLURM_STEP_NODELIST": "localhost,other",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_LOCALID": 0,
    }
    jobs = [
        start(["train.py"], tmp_path, **step, SLURM_PROCID=machine, SLURM_NODEID=machine)
        for machine in (0, 1)
    ]
    printed = [[line(job) for _ in range(2)] for job in jobs]
    assert sorted(printed[0]) == ["0 4 0 2 0\n", "1 4 1 2 0\n"]
    assert sorted(printed[1]) == ["2 4 0 2 1\n", "3 4 1 2 1\n"]
    begin = time.monotonic()
    for result in results(jobs):
        assert (result.code, result.left) == (3, [])
        assert result.err == "dp2ddp: rank 3 (on machine 1) failed with exit code 3\n"
    assert time.monotonic() - begin < SOON


@pytest.mark.slow
def test_a_killed_agent_of_machine_0_ends_the_others(tmp_path):
    write(tmp_path, "ddp.init()\nprint('ready', flush=True)\ntime.sleep(60)")
    env = {"DP2DDP_NUM_MACHINES": 2, "DP2DDP_DIST_URL": f"tcp://127.0.0.1:{free_port()}"}
    jobs = on_two_machines(tmp_path, ["train.py"], (1, 1), **env)
    assert [line(job) for job in jobs] == ["ready\n"] * 2
    begin = time.monotonic()
    jobs[0].kill()
    first, second = results(jobs)
    assert first.left == second.left == [] and time.monotonic() - begin < SOON
    assert second.code == 1  # torch's store warns in the ranks, too
    assert second.err.endswith("dp2ddp: lost the connection to machine 0, which holds the job's store\n")


@pytest.mark.slow
def test_joins_what_torchrun_started_on_two_machines(tmp_path):
    write(
        tmp_path,
        "ddp.init()" + PLACE + """
if ddp.get_rank() == 2:
    os.kill(os.getpid(), 9)
dist.barrier()
time.sleep(60)
""",
    )
    command = ["-m", "torch.distributed.run", "--nnodes", 2, "--rdzv-backend", "c10d"]
    command += ["--rdzv-id", "job", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--nproc-per-node"]
    # what was wanted of plain `python` is no matter under torchrun
    jobs = [start([*command, count, "train.py"], tmp_path, processes=4) for count in (2, 1)]
    done = results(jobs)
    # c10d rendezvous numbers the machines by itself
    found = sorted(re.findall(r"^\d 3 \d \d \d$", "".join(result.out for result in done), re.MULTILINE))
    assert found in (["0 3 0 2 0", "1 3 1 2 0", "2 3 0 1 1"], ["0 3 0 1 0", "1 3 0 2 1", "2 3 1 2 1"])
    assert all(result.code == 1 and result.left == [] for result in done)
    assert max(result.seconds for result in done) < 30 + SOON


@pytest.mark.slow
def test_torchruns_restarts(tmp_path):
    write(
        tmp_path,
        """
        ddp.init()
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        with ddp.main_process_first():
            pass
        ddp.barrier()
        sys.stdout.write(f"{attempt} {ddp.get_rank()} {ddp.gather(attempt)}" + os.linesep)
        dist.barrier()
        if ddp.get_rank() == 1 and attempt == 0:
            raise ValueError("only once")
        dist.barrier()
        """,
    )
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "--max-restarts", 1]
    result = run([*command, "train.py"], tmp_path)
    assert (result.code, result.left) == (0, []), result.err
    expected = ["0 0 [0, 0]", "0 1 [0, 0]", "1 0 [1, 1]", "1 1 [1, 1]"]
    assert sorted(result.out.strip().split("\n")) == expected
    assert result.err.count("ValueError: only once") == 1


def together(*wanted, timeout=30):
    """Let agents meet, each in a thread; what each got, or its error."""
    found = {}

    def meet(index, options):
        try:
            found[index] = machines.meet(options, timedelta(seconds=timeout))
        except Exception as error:
            found[index] = error

    threads = [threading.Thread(target=meet, args=pair) for pair in enumerate(wanted)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[index] for index in range(len(wanted))]


@pytest.fixture
def stopped():
    """The signals that stopped this process, in vain."""
    seen = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, previous)


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()


@pytest.mark.parametrize("kind", ["tcp", "env", None, "file"])
def test_agents_meet_and_fail_together(tmp_path, monkeypatch, stopped, kind):
    port = free_port()
    urls = {"tcp": f"tcp://localhost:{port}", "env": "env://", None: None, "file": f"file://{tmp_path}/meet"}
    if kind in ("env", None):
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(port))
    else:
        monkeypatch.delenv("MASTER_ADDR", raising=False)
    links = together(*(Options(None, 3, rank, urls[kind]) for rank in (2, 1, 0)))
    assert all(isinstance(link, machines.Link) for link in links), links
    assert len({(link.host, link.port, link.run_id) for link in links}) == 1
    assert links[0].port == port or kind == "file"
    assert list(tmp_path.iterdir()) == []
    links[0].watch()
    links[2].watch()
    first = Failure(1, 143, "machine 1 was stopped by SIGTERM")
    assert links[1].leave(first) == first
    wait_for(lambda: links[0].failure == links[2].failure == first)
    wait_for(lambda: signal.SIGTERM in stopped)
    later = Failure(2, 1, "its ranks lost the others")
    assert links[0].leave(later) == links[2].leave(None) == first


def test_agents_that_end_well_stop_nobody(stopped):
    links = together(
        *(Options(None, 2, rank, f"tcp://localhost:{port}") for port in [free_port()] for rank in (0, 1))
    )
    for link in links:
        link.watch()
    serving = threading.Thread(target=links[0].leave, args=(None,))
    serving.start()
    serving.join(0.3)
    assert serving.is_alive()  # machine 1 still needs the store
    assert links[1].leave(None) is None
    serving.join(1)
    assert not serving.is_alive()
    wait_for(lambda: "dp2ddp-machines" not in {thread.name for thread in threading.enumerate()})
    assert stopped == []


def one_line(error, kind, *words):
    assert type(error) is kind and "\n" not in str(error), error
    for word in words:
        assert word in str(error)


def test_machines_that_do_not_fit_together():
    url = f"tcp://localhost:{free_port()}"
    alone, late = together(Options(None, 3, 0, url), Options(None, 3, 2, url), timeout=1)
    one_line(alone, RuntimeError, "no answer after 1 s from machine 1 of 3", url[6:])
    one_line(late, RuntimeError, "machine 1 of 3")
    url = f"tcp://localhost:{free_port()}"
    found = together(Options(None, 2, 0, url), Options(None, 2, 1, url), Options(None, 2, 1, url))
    errors = [each for each in found if isinstance(each, Exception)]
    assert len(errors) == 1
    one_line(errors[0], ValueError, "machine_rank=1 is used by two machines")
    url = f"tcp://localhost:{free_port()}"
    found = together(Options(None, 2, 0, url), Options(None, 3, 1, url), timeout=2)
    errors = [each for each in found if isinstance(each, ValueError)]
    one_line(errors[0], ValueError, "num_machines=", "on another")


def test_a_meeting_place_that_cannot_be(tmp_path):
    port = free_port()
    (nobody,) = together(Options(None, 2, 1, f"tcp://127.0.0.1:{port}"), timeout=1)
    one_line(nobody, RuntimeError, f"can't connect to rank 0 at 127.0.0.1:{port} within 1 s", "reachable")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one_line(
            together(Options(None, 2, 0, f"tcp://127.0.0.1:{port}"))[0], RuntimeError, f"port {port} is taken"
        )
    stale = f"file://{tmp_path}/stale"
    (absent,) = together(Options(None, 2, 1, stale), timeout=1)
    one_line(absent, RuntimeError, "no answer after 1 s from machine 0 at file://")
    together(Options(None, 2, 0, stale), timeout=1)
    one_line(together(Options(None, 2, 0, stale))[0], ValueError, "the file is from an earlier job")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (None, "num_machines=2 needs a dist_url: tcp://"),
        ("auto", "num_machines=2 needs a dist_url: tcp://"),
        ("env://", "MASTER_ADDR='' and MASTER_PORT='' for env://"),
        ("tcp://localhost", "dist_url='tcp://localhost' is not an address"),
        ("tcp://localhost:0", "is not an address"),
        ("tcp://localhost:99999", "is not an address"),
        ("tcp://:29500", "is not an address"),
        ("tcp://localhost:29500/x", "is not an address"),
        ("http://localhost:29500", "is not an address"),
        ("localhost:29500", "is not an address"),
        ("tcp://no-such-host.invalid:29500", "the host name 'no-such-host.invalid' can't be resolved"),
        ("file://relative/name", "is not a file in an existing folder"),
        ("file:///", "is not a file in an existing folder"),
        ("file:///no/such/folder/name", "is not a file in an existing folder"),
    ],
)
def test_an_address_that_makes_no_sense(monkeypatch, url, words):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    (error,) = together(Options(None, 2, 0, url))
    one_line(error, ValueError, words)
