"""Each fault ends the job soon, with the right exit code, one clear message and nothing left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jobs
import pytest
from faults import FAULTS, Fault, Outcome, inflict

CASES = [
    pytest.param(
        fault,
        processes,
        id=f"{fault.name}-{processes}",
        marks=[pytest.mark.slow] if fault.variant or processes == 4 else [],
    )
    for fault in FAULTS
    for processes in (2, 4)
]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """The outcomes of all tests that were chosen; two jobs run at a time."""
    items = (item for item in request.session.items if item.path == request.path)
    chosen = [item for item in items if "outcomes" in item.fixturenames]
    with ThreadPoolExecutor(2) as pool:
        yield {
            item.callspec.id: pool.submit(
                inflict, *item.callspec.params.values(), tmp_path_factory.mktemp("fault")
            )
            for item in chosen
        }


@pytest.mark.parametrize(("fault", "processes"), CASES)
def test_a_fault(fault: Fault, processes: int, outcomes: dict[str, Future[Outcome]]) -> None:
    outcome = outcomes[f"{fault.name}-{processes}"].result()
    assert not outcome.wrong, "\n".join(outcome.wrong)


SILENT = """
import socket
from datetime import timedelta
from dp2ddp.runtime import rendezvous
rendezvous.SILENCE = 0.5
server = socket.create_server(("127.0.0.1", 0))
rendezvous.open_store("127.0.0.1", server.getsockname()[1], serve=False, timeout=timedelta(seconds=60))
"""


def test_a_port_where_another_program_listens_and_never_answers(tmp_path: Path) -> None:
    result = jobs.run(["-c", SILENT], tmp_path)
    assert result.code == 1 and result.seconds < 20
    assert re.search(
        r"127.0.0.1:\d+ answers, but not as this job's store \(no answer in 0.5 s\)", result.err
    ), result.err


NEEDED = """
import threading
from dp2ddp.runtime import teardown

def slowly(pid):
    # the connection to the rank that has ended breaks in the main thread before the watching one sees it gone
    running = is_running(pid)
    if not running and threading.current_thread().name == "dp2ddp-watch":
        time.sleep(3)
    return running

is_running, teardown._is_running = teardown._is_running, slowly

def main():
    for _ in range(2 + ddp.get_rank()):
        dist.all_reduce(torch.ones(1))

ddp.launch(main)
"""


def test_what_is_lost_with_a_rank_that_has_ended_is_said_once(tmp_path: Path) -> None:
    result = jobs.run([jobs.write(tmp_path, NEEDED)], tmp_path)
    assert result.code == 1
    assert "rank 0 has ended, but rank 1 of 2 still needs it" in result.err
    assert "Traceback" not in result.err, result.err
