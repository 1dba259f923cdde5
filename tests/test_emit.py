"""Diffs that git and patch take, and files written all or none."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from dp2ddp.changes import Change, Conversion, Idle, Script
from dp2ddp.emit.diff import base_of, diff
from dp2ddp.emit.text import report
from dp2ddp.emit.write import WriteError, check_output, write_copy, write_inplace
from dp2ddp.plan import DropImport, Finding, Severity
from dp2ddp.source import Location, Span, Unreadable

TOOLS = [
    pytest.param(["git", "apply", "-"], id="git"),
    pytest.param(
        ["patch", "-p1", "--quiet"],
        id="patch",
        marks=pytest.mark.skipif(not shutil.which("patch"), reason="there is no patch on this machine"),
    ),
]

CASES = {
    "one line": ("a\n", "b\n"),
    "far apart": (
        "".join(f"{n}\n" for n in range(40)),
        "".join(f"{n + 100 * (n in (3, 30))}\n" for n in range(40)),
    ),
    "at both ends": ("a\nb\nc\n", "0\na\nb\nc\nd\n"),
    "no end before": ("a\nb", "a\nc\n"),
    "no end after": ("a\nb\n", "a\nc"),
    "no end at all": ("a\nb", "c\nb"),
    "no end far off": ("a\n1\n2\n3\n4\n5\nb", "c\n1\n2\n3\n4\n5\nb"),
    "carriage returns": ("a\r\nb\r\n", "a\r\nc\r\n"),
    "mixed ends": ("a\r\nb\nc\rd\n", "a\r\ne\nc\rd\n"),
    "tabs and feeds": ("\ta\n\x0c\nb\n", "\ta\n\x0c\n\tc\n"),
    "all of it": ("a\nb\n", ""),
    "from nothing": ("", "a\n"),
    "like a diff": ("-- a\n++ b\n@@ c\n\\ d\n", "-- a\n++ x\n@@ c\n\\ d\n"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def change(name: str, before: str = "a = 1\n", after: str = "a = 2\n", encoding: str = "utf-8") -> Change:
    path = Path.cwd() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Change(path, before, after, encoding)
    path.write_bytes(made.before_bytes)
    return made


def apply(tool: list[str], data: bytes, cwd: Path | None = None) -> None:
    done = subprocess.run(tool, input=data, capture_output=True, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr + b"\n" + data


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", CASES)
def test_a_diff_applies(tool: list[str], case: str) -> None:
    if case in ("all of it",) and tool[0] == "patch":
        pytest.skip("patch removes a file that becomes empty")
    made = change("a.py", *CASES[case])
    apply(tool, diff([made], Path.cwd()))
    assert made.path.read_bytes() == made.after_bytes


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_diff_is_in_the_encoding_of_its_file(tool: list[str], encoding: str) -> None:
    made = change("a.py", "a = 'é'\nb = 1\n", "a = 'é'\nb = 'ü'\n", encoding)
    apply(tool, diff([made], Path.cwd()))
    assert made.path.read_bytes() == made.after_bytes


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    "name", ["my file.py", "é/ü.py", 'quote"d.py', "tab\there.py", "back\\slash.py", "sub/x y.py"]
)
def test_a_diff_names_files_as_git_does(tool: list[str], name: str) -> None:
    made = change(name)
    data = diff([made], Path.cwd())
    apply(tool, data)
    assert made.path.read_bytes() == made.after_bytes
    subprocess.run(["git", "init", "-q"], check=True)
    made.path.write_bytes(made.before_bytes)
    subprocess.run(["git", "add", "-A"], check=True)
    made.path.write_bytes(made.after_bytes)
    shown = subprocess.run(["git", "diff"], check=True, capture_output=True).stdout
    assert data.splitlines()[:2] == [
        line for line in shown.splitlines() if line.startswith((b"--- ", b"+++ "))
    ]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_diff_applies_inside_of_a_folder_of_a_repository(tool: list[str], folder: Path) -> None:
    made = change("sub/deep/a.py")
    subprocess.run(["git", "init", "-q"], check=True)
    apply(tool, diff([made], folder / "sub"), folder / "sub")
    assert made.path.read_bytes() == made.after_bytes


def test_a_diff_is_what_git_shows(folder: Path) -> None:
    for number, (before, after) in enumerate(CASES.values()):
        made = change(f"{number}.py", before, after)
        Path("after.py").write_bytes(made.after_bytes)
        command = ["git", "diff", "--no-index", "--no-color", f"{number}.py", "after.py"]
        shown = subprocess.run(command, capture_output=True).stdout

        def hunks(data: bytes) -> list[bytes]:
            lines = data[data.index(b"@@") :].splitlines(keepends=True)
            return [
                b"@@".join(it.split(b"@@")[:2]) if it.startswith(b"@@ ") else it.rstrip(b"\n") for it in lines
            ]

        assert hunks(diff([made], folder)) == hunks(shown)


def test_a_colored_diff_is_the_same_between_the_colors() -> None:
    made = change("a.py")
    colored = diff([made], Path.cwd(), color=True)
    plain = colored
    for code in (b"1", b"36", b"31", b"32", b""):
        plain = plain.replace(b"\x1b[" + code + b"m", b"")
    assert colored != plain == diff([made], Path.cwd())


def test_the_base_of_a_diff_contains_all_files(folder: Path) -> None:
    inside, outside = change("a.py"), change("../other/b.py")
    outside = Change(outside.path.resolve(), outside.before, outside.after)
    assert base_of([inside], folder) == folder
    assert base_of([inside, outside], folder) == folder.parent
    assert base_of([outside], folder) == folder.parent / "other"


def test_files_are_replaced_with_their_mode() -> None:
    made = [change("a.py"), change("sub/b.py", "b = 'é'\r\n", "b = 'ü'\r\n", "latin-1")]
    made[1] = Change(
        made[1].path, "# coding: latin-1\r\nb = 'é'\r\n", "# coding: latin-1\r\nb = 'ü'\r\n", "latin-1"
    )
    made[1].path.write_bytes(made[1].before_bytes)
    made[0].path.chmod(0o750)
    write_inplace(made)
    assert [it.path.read_bytes() for it in made] == [it.after_bytes for it in made]
    assert stat.S_IMODE(made[0].path.stat().st_mode) == 0o750
    assert sorted(os.listdir()) == ["a.py", "sub"]


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_all_files_are_written_or_none(
    failing: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [change("a.py"), change("b.py"), change("c.py")]
    usual, calls = os.replace, []

    def replace(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == failing + 1:
            raise error
        usual(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_inplace(made)
    assert [it.path.read_bytes() for it in made] == [it.before_bytes for it in made]
    assert sorted(os.listdir()) == ["a.py", "b.py", "c.py"]


@pytest.mark.parametrize("reason", ["valid Python", "changed since"])
def test_what_would_be_wrong_is_not_written(reason: str) -> None:
    made = [change("a.py"), change("b.py", after="a = (\n" if reason == "valid Python" else "a = 2\n")]
    if reason == "changed since":
        made[1].path.write_text("a = 3\n")
    before = made[1].path.read_bytes()
    with pytest.raises(WriteError, match=reason):
        write_inplace(made)
    assert made[0].path.read_bytes() == made[0].before_bytes
    assert made[1].path.read_bytes() == before
    assert sorted(os.listdir()) == ["a.py", "b.py"]


def test_a_copy_is_the_whole_folder_with_the_changes(folder: Path) -> None:
    made = change("in/sub/a.py")
    made.path.chmod(0o440)
    change("in/b.py")
    (folder / "in/data.bin").write_bytes(b"\0\1")
    for name in (".git", "sub/__pycache__", "empty"):
        (folder / "in" / name).mkdir()
        (folder / "in" / name / "x").write_text("")
    (folder / "in/empty/x").unlink()
    (folder / "elsewhere").mkdir()
    for target, link in (
        ("sub/a.py", "file"),
        ("sub", "inner"),
        ("../elsewhere", "outer"),
        ("nowhere", "dead"),
    ):
        os.symlink(target, folder / "in" / link)
    assert write_copy(Path("deep/out"), ["in"], [made.path, folder / "in/b.py"], [made]) == folder / "in"
    out = folder / "deep/out"
    assert sorted(os.listdir(out)) == ["b.py", "data.bin", "dead", "empty", "file", "inner", "outer", "sub"]
    assert (out / "sub/a.py").read_bytes() == (out / "file").read_bytes() == made.after_bytes
    assert stat.S_IMODE((out / "sub/a.py").stat().st_mode) == 0o440
    assert (out / "inner").resolve() == out / "sub"
    assert (out / "outer").resolve() == folder / "elsewhere"
    assert made.path.read_bytes() == made.before_bytes
    assert sorted(os.listdir("deep")) == ["out"]


def test_a_copy_of_a_script_has_the_files_it_reaches(folder: Path) -> None:
    script, helper = change("pkg/train.py"), change("pkg/lib/helper.py")
    change("pkg/unused.py")
    base = write_copy(Path("out"), ["pkg/train.py"], [script.path, helper.path], [script])
    assert base == folder / "pkg"
    assert sorted(os.listdir("out")) == ["lib", "train.py"]
    assert Path("out/train.py").read_bytes() == script.after_bytes
    assert Path("out/lib/helper.py").read_bytes() == helper.before_bytes


def test_a_copy_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = change("in/a.py")

    def rename(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(WriteError, match="cross-device"):
        write_copy(Path("out"), ["in"], [made.path], [made])
    assert os.listdir() == ["in"]


def test_a_copy_is_refused_where_it_would_mix_with_the_input() -> None:
    change("in/a.py")
    change("full/b.py")
    Path("empty").mkdir()
    assert "inside" in check_output(Path("in/out"), [Path("in")])
    assert "inside" in check_output(Path("in"), [Path("in")])
    assert "contains" in check_output(Path("."), [Path("in")])
    assert "not empty" in check_output(Path("full"), [Path("in")])
    assert "not a folder" in check_output(Path("full/b.py"), [Path("in")])
    assert not check_output(Path("empty"), [Path("in")])
    assert not check_output(Path("new"), [Path("in/a.py")])
    os.symlink("in", "link")
    assert "inside" in check_output(Path("link/out"), [Path("in")])


def finding(line: int, severity: Severity, *, edited: bool = False, rule: str = "DDP999") -> Finding:
    edits = (DropImport(Path("train.py"), "x"),) if edited else ()
    path = Path.cwd() / "train.py"
    return Finding(rule, Location(path, Span(line, 0, line, 1)), "it is so", "do this", severity, edits=edits)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([("train.py", 17)], "line 17"),
        ([("train.py", 17), ("train.py", 17), ("train.py", 31)], "lines 17 and 31"),
        ([("losses.py", 4)], "losses.py:4"),
        ([("losses.py", 4), ("train.py", 17)], "line 17 and losses.py:4"),
        ([("train.py", line) for line in range(1, 8)], "lines 1, 2, 3 and 4 more"),
    ],
)
def test_the_whole_batch_tier_names_what_forced_it(places: list[tuple[str, int]], words: str) -> None:
    here = Path.cwd()
    reasons = tuple(Location(here / name, Span(line, 0, line, 1)) for name, line in places)
    script = Script(here / "train.py", frozenset(), tier="whole batch", reasons=reasons, converted=True)
    said = report(
        Conversion(changes=(Change(here / "train.py", "", "x\n"),), scripts=(script,)), written=True
    )
    assert f"  whole batch, because of {words}: every rank gets the whole batch" in said.splitlines()


def test_the_sharded_tier_names_what_needs_the_runtime_to_shard_it() -> None:
    here = Path.cwd()
    dealt = (
        (
            Location(here / "data.py", Span(8, 0, 8, 1)),
            "ddp.shard instead of DistributedSampler: an IterableDataset takes no sampler",
        ),
        (
            Location(here / "train.py", Span(9, 0, 9, 1)),
            "ddp.shard instead of DistributedSampler: it already has a sampler",
        ),
    )
    script = Script(here / "train.py", frozenset(), dealt=dealt, converted=True)
    said = report(
        Conversion(changes=(Change(here / "train.py", "", "x\n"),), scripts=(script,)), written=True
    )
    assert (
        "  sharded: each rank loads its part of every batch (data.py:8 uses ddp.shard instead of DistributedSampler: an IterableDataset takes no sampler; line 9 uses ddp.shard instead of DistributedSampler: it already has a sampler)"
    ) in said.splitlines()


def test_a_report_counts_names_and_says_how_to_start() -> None:
    here = Path.cwd()
    tie = Location(here / "third.py", Span(7, 0, 7, 1))
    conversion = Conversion(
        changes=(Change(here / "train.py", "", "x\n"),),
        findings=(
            finding(1, Severity.NOTE, edited=True),
            finding(2, Severity.WARNING, edited=True),
            finding(3, Severity.WARNING),
            finding(4, Severity.NOTE),
        ),
        scripts=(
            Script(here / "second.py", frozenset(), blockers=2, edits=3),
            Script(here / "third.py", frozenset(), edits=1, tied=(here / "second.py",), ties=(tie,)),
            Script(here / "train.py", frozenset(), converted=True, edits=2, left=1),
        ),
        unreadable=(Unreadable(here / "broken.py", 7, "not valid Python: no"),),
        idle=(Idle(here / "eval.py", "no DataParallel"), Idle(here / "done.py", "already converted")),
        asked=(here / "train.py",),
    )
    assert report(conversion, written=True).splitlines() == [
        "broken.py:7: not valid Python: no",
        "train.py:2: DDP999 warning: it is so; do this",
        "train.py:3: DDP999 warning: it is so; do this",
        "train.py:4: DDP999 note: it is so; do this",
        "second.py: refused: 2 errors to fix, then 3 edits can be made",
        "third.py: refused: 1 edit would be made; it can only be converted together with second.py, as both run line 7",
        "train.py: 2 edits, 1 to do by hand",
        "  sharded: each rank loads its part of every batch",
        "  start it with: python train.py ...  (one process per GPU)",
        "             or: torchrun --nproc-per-node N -- train.py ...",
        "eval.py: nothing to do (no DataParallel)",
        "done.py: nothing to do (already converted)",
        "the converted script imports dp2ddp: install dp2ddp where it trains, or convert with --vendor DIR to copy the "
        "runtime into your project",
        "wrote: train.py",
        "1 converted, 2 refused (second.py: 2 errors; third.py: can only be converted together with second.py); "
        "next: start it as shown above",
    ]
