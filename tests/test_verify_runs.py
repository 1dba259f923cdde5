"""What differs from run to run (times, names, memory) is no difference, and hides none that stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pairs import LOSS, NET, PRINT, Pair
from parity.harness import Lab
from test_verify import CHAOTIC, GROWN, verified

from dp2ddp.verify import printed
from dp2ddp.verify.compare import files
from dp2ddp.verify.notes import Notes
from dp2ddp.verify.report import report
from dp2ddp.verify.verdict import Verdict

HEAD = """\
import datetime, logging, os, resource, secrets, subprocess, sys, tempfile, time, uuid
from datetime import datetime as Date
from time import strftime

import torch
"""
SHOWN = {
    "strftime": "time.strftime('%H%M%S')",
    "by name": "strftime('%d%m%H%M%S')",
    "ctime": "time.ctime().replace(':', '')",
    "localtime": "list(time.localtime())[:6]",
    "now": "Date.now().strftime('%d%H%M%S%f')",
    "utcnow": "datetime.datetime.utcnow().strftime('%d%H%M%S%f')",
    "now somewhere": "Date.now(datetime.timezone.utc).microsecond",
    "today": "datetime.date.today().toordinal()",
    "the shell": "subprocess.check_output(['date', '+%N'], text=True).strip()",
    "process": "os.getpid()",
    "memory": "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
    "gigabytes": "f'{os.getpid() / 7:.3f} GB'",
    "processor": "resource.getrusage(resource.RUSAGE_SELF).ru_utime",
    "rate": "f'{1e4 * resource.getrusage(resource.RUSAGE_SELF).ru_utime:.2f}batch/s'",
    "folder": "tempfile.mkdtemp()",
    "uuid4": "uuid.uuid4()",
    "uuid1": "uuid.uuid1().hex[:6]",
    "secret": "secrets.token_hex(3)",
    "object": "object()",
}


def pair(lines: list[str], others: list[str] | None = None, head: str = "") -> Pair:
    """A program that does ``lines`` after each evaluation; the converted one does ``others``, on the main process."""
    after = "if ddp.is_main_process():\n        " + "\n        ".join(others or lines)
    return Pair(
        both=(("import torch\n", HEAD + head),),
        before=((PRINT, "\n    ".join(lines)),),
        after=(("ddp." + PRINT, after),),
    )


def printing(name: str, number: str = "correct / 30") -> str:
    """A line that prints a number beside what differs from run to run."""
    return f'print(f"{name}:", {SHOWN[name]}, f"test accuracy {{{number}:.4f}}")'


def test_what_differs_from_run_to_run_is_none(lab: Lab, tmp_path: Path) -> None:
    result = verified(lab, tmp_path, pair([printing(name) for name in SHOWN]), float64=True)
    assert result.verdict is Verdict.MATCH, report(result)
    assert "what the original itself gives otherwise in each run was not compared" in report(result)


OTHERWISE = """\
print(argparse.Namespace(device=torch.device("{device}"), batch=30))
    print(f"test accuracy {{(correct + is_other) / 30:.4f}} on {device}, {rate} Hz, samples/s: {rate}, {rate} img / s")\
"""


@pytest.mark.parametrize("is_other", [False, True])
def test_the_name_of_the_gpu_and_rates_are_no_difference(lab: Lab, tmp_path: Path, is_other: bool) -> None:
    before, after = (
        OTHERWISE.format(device=device, rate=rate) for device, rate in (("cuda:0", 12.5), ("cuda", 14.75))
    )
    after = after.replace("is_other", str(is_other)).replace("\n", "\n    ")
    two = pair([before.replace("is_other", "0")], [after], head="import argparse\n")
    result = verified(lab, tmp_path, two, float64=True, steps=4)
    assert result.verdict is (Verdict.DIFFERS if is_other else Verdict.MATCH), report(result)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(
    "name", ["now", "the shell", "process", "gigabytes", "rate", "folder", "uuid4", "object"]
)
def test_what_stands_beside_it_is_found(lab: Lab, tmp_path: Path, name: str) -> None:
    """A number that is another by one in thirty."""
    lines = [[printing(name, number)] for number in ("correct / 30", "(correct + 1) / 30")]
    result = verified(lab, tmp_path, pair(*lines), float64=True, steps=4)
    assert result.verdict is Verdict.DIFFERS, report(result)
    assert (result.differences[0].what, result.differences[0].step) == ("evaluation", 2), report(result)


WRITE = "open(name, 'a').write(f'test accuracy {{{number}:.4f}}\\n')"
NAMED = {
    "a time stamp": "name = Date.now().strftime('%b%d_%H-%M-%S') + '.txt'",
    "a time stamp of another kind": "name = time.strftime('%H-%M-%S') + '.txt'",
    "an id": "name = f'log_{uuid.uuid4().hex[:6]}.txt'",
    "a temporary folder": "name = os.path.join(tempfile.mkdtemp(dir='.'), 'log.txt')",
    "a process": "name = f'log.{os.getpid()}'",
}


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("is_other", [False, True])
def test_files_whose_names_differ_are_compared(lab: Lab, tmp_path: Path, name: str, is_other: bool) -> None:
    lines = [
        [NAMED[name], WRITE.format(number=number)] for number in ("correct / 30", "(correct + is_other) / 30")
    ]
    result = verified(lab, tmp_path, pair(*lines, head=f"is_other = {is_other}\n"), float64=True, steps=4)
    assert result.verdict is (Verdict.DIFFERS if is_other else Verdict.MATCH), report(result)


def test_records_of_logs_have_the_programs_time(lab: Lab, tmp_path: Path) -> None:
    head = "logging.basicConfig(filename='log.txt', format='%(asctime)s %(message)s', datefmt='%d%H%M%S', level=20)\n"
    line = "logging.info(f'Test: accuracy {correct / 30:.4f}')"
    right = pair([line], head=head.replace("'log.txt'", "f'log{os.environ.get(\"RANK\", 0)}.txt'"))
    found = verified(lab, tmp_path, right, float64=True, steps=4)
    texts = [notes.texts["log0.txt"] for notes in (found.before[0], found.after[0][0])]
    assert texts[0] == texts[1] != ""


def test_a_file_that_is_missing_among_others_with_numbers_is_found() -> None:
    before = Notes(0, files=[(1, "step_1000.pt"), (2, "step_2000.pt")])
    assert [it.detail for it in files(before, [Notes(0, files=before.files[1:])])] == [
        "step_1000.pt is not written"
    ]
    assert not [*files(before, [Notes(0, files=[(1, "step_1001.pt"), (2, "step_2000.pt")])])]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("<Net object at 0x7f3a2b4c5d6e> has 3", "<Net object at N> has #"),
        ("100%|##| 3/3 [00:00<00:00, 51781.53batch/s, acc=0.4]", "#%|##| #/# [T<T, T, acc=#]"),
        ("0.11 sec/batch, 3.2 GB, 5 MiB, 12 Bytes", "T, T, T, # Bytes"),
        ("/tmp/tmp3k_x9a1b/log and tmp_path", "/tmp/N/log and tmp_path"),
        ("top1/second best 0.5", "top1/second best #"),
        ("3.1 Hz, 2.5kHz, 60 fps, 8 img / s, 1.5k samples per sec", "T, T, T, T, T"),
        ("Namespace(device='cuda:0', gpus=2)", "Namespace(device='cuda', gpus=#)"),
        (
            "device(type='cuda', index=1) tensor(0.5, device='cuda:1')",
            "'cuda' tensor(#, device='cuda')",
        ),
    ],
)
def test_names_and_rates_are_no_numbers(line: str, shown: str) -> None:
    assert printed.masked(line) == shown


@pytest.mark.parametrize(
    "said", ["samples/s:", "it/s |", "Hz =", "img_per_s", "ips", "images/sec", "(batches / s)"]
)
def test_a_rate_is_said_before_it_too(said: str) -> None:
    assert [it.is_clock for it in printed.numbers(f"acc 0.5, {said} 12.5")] == [False, True]


@pytest.mark.slow
def test_beside_another_file_rounding_is_no_difference(lab: Lab, tmp_path: Path) -> None:
    """What rounding does is measured although a file differs, too."""
    extra = (("ddp.save(", 'open("extra.txt", "a").close()\n    ddp.save('),)
    result = verified(lab, tmp_path, replace(GROWN, after=(*GROWN.after, *extra)), processes=3, steps=12)
    assert result.verdict is Verdict.DIFFERS, report(result)
    assert {it.what for it in result.differences} == {"files"}, report(result)


@pytest.mark.slow
def test_what_rounding_hides_of_float32_is_looked_at_in_float64(lab: Lab, tmp_path: Path) -> None:
    """Steps that are no more comparable in float32, right ones and such that another learning rate makes."""
    loop = "for epoch in range(40):\n"
    pair = Pair(
        both=(
            (NET, CHAOTIC),
            ("for epoch in range(3):\n", loop),
            (LOSS, LOSS + " * 0.1 + outputs.mean()"),
            ("lr=0.1)", "lr=1.0)"),
        )
    )
    result = verified(lab, tmp_path, pair, steps=28)
    assert (result.verdict, result.widened) == (Verdict.MATCH, True), report(result)
    assert result.steps > 24, report(result)
    assert "so they were compared in float64, where they agree" in report(result)
    wrong = (loop, loop + "    if epoch == 6:\n        optimizer.param_groups[0]['lr'] = 0.9\n")
    found = verified(lab, tmp_path, replace(pair, after=(wrong,)), steps=28)
    assert found.verdict is Verdict.DIFFERS, report(found)
    assert found.differences[0].what == "learning rate", report(found)


@pytest.mark.parametrize("is_other", [False, True])
def test_what_is_saved_of_memory_that_nothing_was_written_into_is_no_difference(
    lab: Lab, tmp_path: Path, is_other: bool
) -> None:
    """What stands beside it is compared."""
    save = "torch.save({'curve': torch.Tensor(8), 'right': float(correct)}, 'curve.pt')"
    other = ["filled = torch.Tensor(8).fill_(3)", save.replace("torch.Tensor(8)", "filled")]
    other[1] = other[1].replace("correct", "correct + 1") if is_other else other[1]
    result = verified(lab, tmp_path, pair([save], other), float64=True, steps=4)
    if is_other:
        assert result.verdict is Verdict.DIFFERS, report(result)
        assert "right: " in result.differences[0].detail
    else:
        assert result.verdict is Verdict.MATCH, report(result)
        assert "was not compared: curve.pt: curve" in report(result)
