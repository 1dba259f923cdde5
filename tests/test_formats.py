"""The formats for programs, and what uses them: the action and the hook, by the commands that they run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from test_cli import BROKEN, IDLE, KEPT, REPOSITORY, TRAIN, run, write
from test_cli import folder as folder  # every test here has one

WARNED = TRAIN.replace(").cuda()\n    opt", ").cuda()  # dp2ddp: ignore[DDP301]\n    opt")
FILES = {"train.py": WARNED, "kept.py": KEPT, "sub dir/é.py": BROKEN, "eval.py": IDLE}


def emitted(name: str, *arguments: str) -> str:
    done = run("convert", ".", "--format", name, *arguments)
    assert done.stderr == b""
    return done.stdout.decode()


# JSON


def test_json_holds_the_whole_run() -> None:
    write(FILES)
    run_ = json.loads(emitted("json"))
    assert (run_["version"], run_["exit_code"], run_["written"]) == (1, 4, False)
    programs = {it["path"]: it for it in run_["programs"]}
    assert [(it["converted"], it["tier"]) for it in programs.values()] == [(False, None), (True, "sharded")]
    assert programs["train.py"]["verify"] == "dp2ddp verify train.py"
    (error,) = [it for it in run_["findings"] if it["severity"] == "error"]
    line = KEPT.splitlines()[error["line"] - 1]
    assert line[error["column"] - 1 : error["end_column"] - 1] == "nn.DataParallel(nn.Linear(8, 2), **{})"
    assert (error["rule"], error["name"], error["left"]) == ("DDP102", "data-parallel-model", True)
    assert error["programs"] == [error["path"]] == ["kept.py"]
    edited = {it["path"] for it in run_["findings"] if it["edited"]}
    assert edited == {"train.py"}
    assert [it["path"] for it in run_["unreadable"]] == ["sub dir/é.py"]
    assert [(it["path"], it["reason"]) for it in run_["idle"]] == [("eval.py", "no DataParallel")]
    (change,) = run_["changes"]
    subprocess.run(["git", "apply"], input=change["diff"].encode(), check=True)
    assert b"DistributedDataParallel" in Path("train.py").read_bytes()


def test_json_counts_what_was_found() -> None:
    write(FILES)
    run_ = json.loads(emitted("json"))
    for count in run_["statistics"]:
        found = [it for it in run_["findings"] if it["rule"] == count["rule"]]
        assert (count["found"], count["left"]) == (len(found), sum(it["left"] for it in found))
    assert sum(it["found"] for it in run_["statistics"]) == len(run_["findings"])


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from keys(inner)


def test_every_key_of_json_is_documented() -> None:
    write({**FILES, "whole.py": TRAIN.replace(".backward()", ".exp().backward()")})
    said = (REPOSITORY / "dp2ddp/emit/README.md").read_text()
    assert set(keys(json.loads(emitted("json")))) <= set(re.findall(r"`(\w+)`", said))


@pytest.mark.parametrize("name", ["json", "sarif", "github", "markdown"])
def test_formats_have_the_exit_codes_and_write_as_asked(name: str) -> None:
    write({"train.py": TRAIN, "kept.py": KEPT})
    assert run("convert", "train.py", "--format", name).returncode == 0
    assert run("convert", "train.py", "--format", name, "--check").returncode == 1
    assert run("convert", ".", "--format", name).returncode == 3
    assert Path("train.py").read_text() == TRAIN
    assert run("convert", "train.py", "--format", name, "--inplace").returncode == 0
    assert "DistributedDataParallel" in Path("train.py").read_text()
    assert run("convert", "train.py", "--format", name, "--diff").returncode == 2


# SARIF: what the schema of 2.1.0 requires of the objects that are used, and which properties it knows.

SARIF: dict[str, tuple[dict[str, Any], set[str]]] = {
    "log": ({"$schema": str, "version": str, "runs": ["run"]}, {"version", "runs"}),
    "run": (
        {
            "tool": "tool",
            "results": ["result"],
            "invocations": ["invocation"],
            "columnKind": str,
            "originalUriBaseIds": dict,
        },
        {"tool"},
    ),
    "tool": ({"driver": "component"}, {"driver"}),
    "component": (
        {"name": str, "version": str, "semanticVersion": str, "rules": ["descriptor"]},
        {"name"},
    ),
    "descriptor": (
        {"id": str, "name": str, "shortDescription": "text", "fullDescription": "text", "help": "text"},
        {"id"},
    ),
    "text": ({"text": str, "markdown": str}, {"text"}),
    "invocation": ({"executionSuccessful": bool, "exitCode": int}, {"executionSuccessful"}),
    "result": (
        {"ruleId": str, "ruleIndex": int, "level": str, "message": "text", "locations": ["location"]},
        {"message"},
    ),
    "location": ({"physicalLocation": "physical"}, set()),
    "physical": ({"artifactLocation": "artifact", "region": "region"}, set()),
    "artifact": ({"uri": str, "uriBaseId": str}, set()),
    "region": ({"startLine": int, "startColumn": int, "endLine": int, "endColumn": int}, set()),
}


def conforms(value: Any, kind: Any) -> None:
    if isinstance(kind, list):
        assert isinstance(value, list)
        for item in value:
            conforms(item, kind[0])
    elif isinstance(kind, str):
        known, required = SARIF[kind]
        assert required <= set(value) <= set(known), (kind, set(value))
        for name, inner in value.items():
            conforms(inner, known[name])
    else:
        assert type(value) is kind


def test_sarif_is_sarif() -> None:
    write(FILES)
    log = json.loads(emitted("sarif"))
    conforms(log, "log")
    assert log["version"] == "2.1.0" and log["$schema"].endswith("/sarif-schema-2.1.0.json")
    (run_,) = log["runs"]
    rules = [it["id"] for it in run_["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert run_["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    (root,) = [it["uri"] for it in run_["originalUriBaseIds"].values()]
    assert root == f"{Path.cwd().as_uri()}/"
    assert run_["invocations"][0]["exitCode"] == 4
    found = set()
    for result in run_["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert result["message"]["text"]
        (location,) = result["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert re.fullmatch(r"[\w.~%/-]+", artifact["uri"], re.ASCII)
        assert Path(unquote(artifact["uri"])).exists() and artifact["uriBaseId"] in run_["originalUriBaseIds"]
        region = location["physicalLocation"]["region"]
        assert min(region.values()) >= 1
        assert (region["startLine"], region["startColumn"]) <= (region["endLine"], region["endColumn"])
        found.add((result["ruleId"], result["level"], unquote(artifact["uri"]), region["startLine"]))
    assert ("DDP102", "error", "kept.py", 9) in found
    assert ("DDP001", "error", "sub dir/é.py", 1) in found
    assert ("DDP002", "warning", "train.py", 9) in found


# Annotations and comments


def test_github_gets_workflow_commands() -> None:
    write(FILES)
    write({"a,b:c.py": KEPT})
    lines = emitted("github").splitlines()
    command = re.compile(r"::(error|warning|notice) (?:\w+=[^,:]*,)*\w+=[^,:]*::.+")
    assert all(command.fullmatch(line) for line in lines), lines
    assert (
        "::error file=kept.py,line=9,endLine=9,col=13,endColumn=50,title=DDP102 data-parallel-model::"
        "arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown; write them out: `nn.DataParallel(model)`"
    ) in lines
    assert any("file=a%2Cb%3Ac.py," in line for line in lines)
    assert any(line.startswith("::warning file=train.py,line=9,") for line in lines)
    assert lines[-1] == "::notice file=train.py,line=1,endLine=1,title=dp2ddp::train.py would be converted"


def test_markdown_is_a_comment_with_the_diff_folded_up() -> None:
    write({**FILES, "train.py": WARNED + "\n# ```\n"})
    text = emitted("markdown")
    assert "| `train.py` | sharded: each rank loads its part of every batch | " in text
    assert (
        "- **error** `kept.py:9` DDP102: arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown<br>write them out: `nn.DataParallel(model)`\n"
        in text
    )
    fence = re.search(r"^(`{3,})diff$", text, re.MULTILINE)
    assert fence and text.count(f"\n{fence[1]}\n") == 1
    block = text.split(f"{fence[1]}diff\n")[1].split(f"{fence[1]}\n")[0]
    subprocess.run(["git", "apply"], input=block.encode(), check=True)


# Text


def test_equal_findings_are_said_once() -> None:
    ignored = "  # dp2ddp: ignore[DDP301]"
    text = TRAIN.replace("step()\n", f"step(){ignored}\n").replace("epoch)\n", f"epoch){ignored}\n")
    write({"train.py": text, "other.py": text})
    lines = run("convert", ".").stderr.decode().splitlines()
    assert [line for line in lines if "DDP002" in line] == [
        "other.py:15: DDP002 warning: this comment ignores DDP301, which is not reported here; remove the comment "
        "(also in line 16, train.py:15 and train.py:16)"
    ]
    assert emitted("github").count("::warning ") == 4


def test_every_error_is_said_at_its_place() -> None:
    write({"a.py": KEPT, "b.py": KEPT})
    assert run("convert", ".").stderr.count(b"DDP102 error") == 2


def test_statistics_count_each_rule() -> None:
    write({"train.py": TRAIN, "kept.py": KEPT})
    lines = run("convert", ".", "--statistics").stderr.decode().splitlines()
    assert "    2 DDP102 data-parallel-model (1 to do by hand)" in lines
    assert "    2 DDP201 unsharded-loader" in lines


def test_quiet_says_what_was_found_and_verbose_what_was_changed() -> None:
    write({"train.py": TRAIN, "kept.py": KEPT})
    quiet = run("convert", ".", "-q")
    assert (
        quiet.stderr
        == b"kept.py:9: DDP102 error: arguments of nn.DataParallel are passed by `*` or `**`: the model is unknown; write them out: `nn.DataParallel(model)`\n"
    )
    assert quiet.stdout.startswith(b"--- a/train.py")
    assert run("convert", "train.py", "-q", "--inplace").stderr == b""
    assert b"kept.py:12: DDP202 note: " in run("convert", "kept.py", "--verbose").stderr
    assert run("convert", ".", "-q", "-v").returncode == 2


# The action and the hook


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of somebody's, in which ``dp2ddp`` is on the path."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "dp2ddp").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dp2ddp "$@"\n')
    (binaries / "dp2ddp").chmod(0o755)
    monkeypatch.setenv("PATH", f"{binaries}{os.pathsep}{os.environ['PATH']}")
    subprocess.run(["git", "init", "-q"], check=True)
    write({"src/train.py": TRAIN, "eval.py": IDLE, "third_party/train.py": KEPT})
    write({"pyproject.toml": '[tool.dp2ddp]\nexclude = ["third_party/"]\n'})
    return Path.cwd()


def steps() -> list[str]:
    """What the action's steps run."""
    text = (REPOSITORY / ".github/action/action.yml").read_text()
    blocks = re.findall(r"^      run: (?:\|\n((?:        .*\n)+)|(.*)\n)", text, re.MULTILINE)
    return [re.sub(r"^ {8}", "", block, flags=re.MULTILINE) or line for block, line in blocks]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(
    ("paths", "arguments", "fail", "code"),
    [
        (".", "", "true", 1),
        (".", "", "false", 0),
        ("eval.py", "", "true", 0),
        ("src third_party", "-q", "false", 3),
    ],
)
def test_the_action_annotates_and_fails(
    repository: Path, tmp_path: Path, paths: str, arguments: str, fail: str, code: int
) -> None:
    summary = tmp_path / "summary.md"
    given = {"DP2DDP_PATHS": paths, "DP2DDP_ARGUMENTS": arguments, "DP2DDP_FAIL": fail}
    install, check = steps()
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check],
        env={**os.environ, **given, "GITHUB_STEP_SUMMARY": str(summary)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert ("src/train.py would be converted" in done.stdout) == (paths != "eval.py")
    assert ("::error file=third_party/train.py" in done.stdout) == (code == 3)
    assert summary.read_text().startswith("## dp2ddp\n")
    assert 'pip install --quiet "$GITHUB_ACTION_PATH/../.."' in install
    assert (REPOSITORY / ".github/action/../../pyproject.toml").is_file()


def test_the_hook_finds_what_would_be_converted(repository: Path) -> None:
    text = (REPOSITORY / ".pre-commit-hooks.yaml").read_text()
    hook = dict(re.findall(r"^(?:- |  )(\w+): (.*)$", text, re.MULTILINE))
    assert hook["language"] == "python" and hook["pass_filenames"] == "false"
    command = [*shlex.split(hook["entry"]), *json.loads(hook["args"])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "would write: src/train.py\n" in done.stderr and "third_party" not in done.stderr
    subprocess.run(["dp2ddp", "convert", ".", "--inplace"], check=True, capture_output=True)
    assert subprocess.run(command, capture_output=True).returncode == 0
