"""``[tool.dp2ddp]``, what is left out of folders, and comments that take findings out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_cli import IDLE, KEPT, TRAIN, run, write
from test_cli import folder as folder  # every test here has one

from dp2ddp.ignored import LeftOut, matched, patterns


def names(*arguments: str, cwd: str = ".") -> set[str]:
    """The files that a run would write."""
    lines = run("convert", *arguments, cwd=cwd).stderr.decode().splitlines()
    (line,) = [it for it in lines if it.startswith("would write: ")] or [""]
    return set(filter(None, line.removeprefix("would write: ").split(", ")))


# [tool.dp2ddp]


def test_the_table_says_what_is_converted_and_how() -> None:
    table = '[tool.dp2ddp]\nentries = ["train.py", "tools/train_*.py"]\nexact = true\n'
    files = {"train.py": TRAIN, "other.py": TRAIN, "tools/train_a.py": TRAIN, "tools/b.py": TRAIN}
    write({**files, "pyproject.toml": table})
    done = run("convert")
    assert done.returncode == 0
    assert b"+    loader = ddp.shard(DataLoader(data, batch_size=16, shuffle=True))" in done.stdout
    assert names() == {"train.py", "tools/train_a.py"}
    assert names("other.py") == {"other.py"}
    assert names(cwd="tools") == {"train_a.py", "../train.py"}
    assert b"ddp.shard" not in run("convert", "train.py", "--isolated").stdout
    assert run("convert", "--isolated").returncode == 2


def test_what_is_excluded_is_left_out_of_folders_only() -> None:
    files = {name: TRAIN for name in ("train.py", "old/train.py", "lib/old_train.py", "kept/train.py")}
    write({**files, "pyproject.toml": '[tool.dp2ddp]\nexclude = ["/old/", "old_*.py"]\n'})
    assert names(".") == {"train.py", "kept/train.py"}
    assert names(".", "--exclude", "kept", "--exclude=/train.py") == set()
    assert names("lib") == set()
    assert names("lib/old_train.py", "old") == {"lib/old_train.py", "old/train.py"}  # asked for by name
    assert names(".", "--isolated") == set(files)
    last = run("convert", ".", "--exclude", "kept").stderr.decode().splitlines()[-1]
    assert "dp2ddp convert . --exclude=kept --inplace" in last


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.dp2ddp]\nexlude = ["a"]\n', "pyproject.toml: [tool.dp2ddp] has no key 'exlude'; did you mean 'exclude'?"),
        ("[tool.dp2ddp]\nexact = 1\n", "pyproject.toml: [tool.dp2ddp] exact takes true or false"),
        ('[tool.dp2ddp]\nexclude = "a"\n', "pyproject.toml: [tool.dp2ddp] exclude takes a list of strings"),
        ('[tool.dp2ddp]\nentries = ["no.py"]\n', "pyproject.toml: entries: there is no no.py"),
        ("[tool.dp2ddp\n", "pyproject.toml: not valid TOML: "),
    ],
)  # fmt: skip
def test_a_mistake_in_the_table_is_one_line_with_the_file(text: str, words: str) -> None:
    write({"train.py": TRAIN, "pyproject.toml": text})
    done = run("convert", *([] if "entries" in text else ["train.py"]))
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"dp2ddp: {words}")


def test_the_file_is_the_nearest_one_with_the_table() -> None:
    write({"pyproject.toml": "[tool.dp2ddp]\nexact = true\n", "sub/pyproject.toml": "[tool.black]\n"})
    write({"sub/train.py": TRAIN, "repository/train.py": TRAIN, "broken/pyproject.toml": "["})
    assert b"ddp.shard(" in run("convert", "sub/train.py").stdout
    subprocess.run(["git", "init", "-q", "repository"], check=True)
    assert b"ddp.shard(" not in run("convert", "repository/train.py").stdout
    write({"broken/train.py": TRAIN})
    assert run("convert", "broken/train.py").returncode == 0


# .gitignore


@pytest.mark.parametrize("git", ["asked", "not there", "no repository"])
def test_what_git_ignores_is_left_out(git: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ignored = ["runs/train.py", "lib/old_train.py", "lib/x/scratch/train.py", "nested/own/train.py"]
    kept = ["train.py", "lib/train.py", "lib/old_kept.py", "runs_of/train.py", "nested/lib/train.py"]
    write({name: TRAIN for name in (*ignored, *kept)})
    write({".gitignore": "# ours\n/runs/\nold_*.py\n!old_kept.py\n", "lib/.gitignore": "x/**/train.py\n"})
    write({"nested/.gitignore": "own\n"})
    if git != "no repository":
        subprocess.run(["git", "init", "-q"], check=True)
        subprocess.run(["git", "init", "-q", "nested"], check=True)
    if git == "not there":
        monkeypatch.setenv("PATH", "/nowhere")
    assert names(".") == set(kept)
    if git != "no repository":  # else nobody says how far up there are patterns for a folder
        assert names("runs", "lib") == {"runs/train.py", "lib/train.py", "lib/old_kept.py"}
    assert names("lib/old_train.py") == {"lib/old_train.py"}


def test_what_git_tracks_is_no_ignored_file() -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    write({"kept/train.py": TRAIN, "kept/other.py": TRAIN, ".gitignore": "kept/\n"})
    subprocess.run(["git", "add", "-f", "kept/train.py"], check=True)
    assert names(".") == {"kept/train.py"}


PATTERNS = [
    "*.log",
    "/top.py",
    "deep/er",
    "a/**/b",
    "**/c",
    "d/**",
    "[!x]y",
    "[a-c]z",
    "e?",
    r"\!f",
    "g/",
    "!k.log",
]
PATHS = [
    "m.log",
    "k.log",
    "q/m.log",
    "top.py",
    "q/top.py",
    "deep/er",
    "q/deep/er",
    "a/b",
    "a/1/2/b",
    "q/c",
    "c",
]
PATHS += ["d/1/2", "xy", "ay", "az", "dz", "e1", "e12", "!f", "g", "q/g/1", "g1"]


def test_patterns_are_those_of_git(tmp_path: Path) -> None:
    here = Path.cwd()
    subprocess.run(["git", "init", "-q"], check=True)
    write({".gitignore": "\n".join(PATTERNS)})
    asked = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input="\n".join(PATHS),
        capture_output=True,
        text=True,
    )
    found = patterns(PATTERNS, here)

    def ignored(name: str) -> bool:
        parts = Path(name).parts
        tops = [here.joinpath(*parts[:count]) for count in range(1, len(parts) + 1)]
        return any(matched(it, it != tops[-1], found) for it in tops)

    assert {it for it in PATHS if ignored(it)} == {
        it.strip('"').replace("\\\\", "") for it in asked.stdout.split()
    }


def test_a_folder_that_is_asked_for_is_looked_at_though_it_is_ignored() -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    write({".gitignore": "out/\n", "out/deep/train.py": TRAIN})
    for top in ("out", "out/deep"):
        left_out = LeftOut(Path(top).absolute())
        left_out.enter(Path("out/deep").absolute())
        assert not left_out.has(Path("out/deep/train.py").absolute(), False)


# Comments

WRITES = TRAIN.replace(
    '        print("epoch", epoch)',
    '        open(f"log{epoch}.txt", "w").write("x")  # dp2ddp: ignore[DDP301] my reason',
)


def test_an_ignored_finding_is_not_acted_on() -> None:
    write({"train.py": WRITES})
    done = run("convert", "train.py", "--inplace")
    assert done.returncode == 0 and b"DDP002" not in done.stderr
    after = Path("train.py").read_text()
    assert '        open(f"log{epoch}.txt", "w").write("x")  # dp2ddp: ignore[DDP301] my reason\n' in after
    assert "ddp.DistributedDataParallel(" in after
    assert run("convert", "train.py", "--check").stderr == b"train.py: nothing to do (already converted)\n"
    write({"train.py": WRITES.replace("# dp2ddp: ", "# ")})
    assert b'ddp.open(f"log{epoch}.txt"' in run("convert", "train.py").stdout


@pytest.mark.parametrize(
    "comment",
    ["        # dp2ddp: ignore[DDP502, DDP301]\n{line}\n", "{line}  # noqa  # dp2ddp:ignore[ddp301]\n"],
)
def test_where_the_comment_stands(comment: str) -> None:
    line = '        open(f"log{epoch}.txt", "w").write("x")'
    write({"train.py": TRAIN.replace('        print("epoch", epoch)\n', comment.format(line=line))})
    done = run("convert", "train.py")
    assert b"ddp.open" not in done.stdout and b"ddp.DistributedDataParallel" in done.stdout
    assert (b"DDP502, which is not reported here" in done.stderr) == ("502" in comment)


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("ignore[DDP301]", "this comment ignores DDP301, which is not reported here; remove the comment"),
        ("ignore[DDP999]", "this comment names DDP999, which does not exist"),
        ("ignore all", "this comment names no rule; write ignore[DDP301], with the rule's code"),
        (
            "ignore[DDP102]",
            "DDP102 can't be ignored: the program would be converted only in part; remove the comment",
        ),
    ],
)
def test_a_comment_without_effect_is_reported(comment: str, words: str) -> None:
    write({"train.py": TRAIN.replace(").cuda()\n    opt", f").cuda()  # dp2ddp: {comment}\n    opt")})
    done = run("convert", "train.py", "--mark")
    assert done.returncode == 0
    assert done.stderr.decode().splitlines()[0] == f"train.py:9: DDP002 warning: {words}"
    assert b"DistributedDataParallel" in done.stdout and b"+    # dp2ddp: DDP002" not in done.stdout


def test_a_comment_in_a_file_that_no_program_uses_is_not_reported() -> None:
    write({"train.py": TRAIN, "eval.py": IDLE + "# dp2ddp: ignore[DDP301]\n"})
    assert b"DDP002" not in run("convert", ".").stderr


def test_an_ignored_error_refuses_nothing() -> None:
    hook = "    model.module.weight.register_post_accumulate_grad_hook(print)"
    text = TRAIN.replace("    optimizer =", f"{hook}\n    optimizer =")
    write({"train.py": text})
    done = run("convert", "train.py")
    assert done.returncode == 3 and done.stderr.startswith(b"train.py:10: DDP503 error: ")
    write({"train.py": text.replace(hook, hook + "  # dp2ddp: ignore[DDP503] it only looks")})
    done = run("convert", "train.py", "--inplace")
    assert done.returncode == 0
    after = Path("train.py").read_text()
    assert hook in after and "ddp.DistributedDataParallel(" in after


def test_an_error_that_must_be_settled_cannot_be_ignored() -> None:
    write({"train.py": KEPT.replace("cuda()\n    opt", "cuda()  # dp2ddp: ignore[DDP102]\n    opt")})
    done = run("convert", "train.py")
    assert done.returncode == 3
    assert b"DDP102 error" in done.stderr and b"DDP102 can't be ignored" in done.stderr
