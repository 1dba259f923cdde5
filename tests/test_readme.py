"""What the READMEs say is so: generated parts, links, options, and the size of the first page.

``python -m pytest tests/test_readme.py --update`` writes the generated parts anew, and the conversion of the first example.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import shlex
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from command import run
from parity.harness import Lab

from dp2ddp import runtime
from dp2ddp.rules import RULES

ROOT = Path(__file__).parent.parent
FIRST = ROOT / "README.md"
READMES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "fixtures/README.md", "tests/README.md")),
        *(ROOT / "dp2ddp").rglob("README.md"),
        *(ROOT / "examples").rglob("README.md"),
    ]
)
EXAMPLE = ROOT / "examples" / "first"
LONGEST = 170

every_readme = pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))


# The parts that are made.


def rules(_: str) -> str:
    rows = []
    for code, rule in RULES.items():
        found, _, rest = rule.explanation.replace("``", "`").partition("\n\n")
        first = re.split(r"(?<=\.)\s", rest.replace("\n", " "))[0]
        rows.append(f"| {code} | {found} | {first} |")
    return "\n".join(["| rule | found | what it means, or becomes |", "|---|---|---|", *rows])


def runtime_names(_: str) -> str:
    rows = []
    for name in runtime.__all__:
        value = getattr(runtime, name)
        first = re.split(r"(?<=\.)\s", (inspect.getdoc(value) or "").replace("\n", " ").replace("``", "`"))[0]
        called = "" if inspect.ismodule(value) else f"({_arguments(value)})"
        rows.append(f"| `{name}{called}` | {first} |")
    return "\n".join(["| function | |", "|---|---|", *rows])


def _arguments(value: object) -> str:
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    shown = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]
    return ", ".join(shown)


def patterns(table: str) -> str:
    """A row for every fixture: its name and form are made, and the cells beside them stay as they are."""
    head, rule, *rows = table.splitlines()
    written = {row.split("](")[1].split(")")[0]: row.split(" | ", 2)[2] for row in rows}
    made = []
    for folder in sorted(path.parent for path in (ROOT / "fixtures").glob("*/before")):
        name = folder.name
        rest = written.get(name, "… | |")
        made.append(f"| [{name.replace('_', ' ')}]({name}) | {form(folder)} | {rest}")
    return "\n".join([head, rule, *made])


def form(fixture: Path) -> str:
    """What the summary of a fixture's conversion says of its training data."""
    said = re.search(r"^  (sharded|whole batch)\b.*$", (fixture / "findings.txt").read_text(), re.MULTILINE)
    assert said, fixture
    return f"{said[1]} in order" if "ddp.shard" in said[0] else said[1]


def changed(fixture: str) -> str:
    """The lines that a conversion changes, in their order; empty ones are left out."""
    lines: list[str] = []
    for after in sorted((ROOT / fixture / "after").rglob("*.py")):
        before = ROOT / fixture / "before" / after.relative_to(ROOT / fixture / "after")
        both = (before.read_text().splitlines(), after.read_text().splitlines())
        lines += list(difflib.unified_diff(*both, lineterm="", n=0))[2:]
    return "\n".join(["```diff", *(line for line in lines if line[1:] and line[0] in "+-"), "```"])


def code(file: str) -> str:
    return f"```python\n{(ROOT / file).read_text()}```"


def generated(text: str) -> str:
    """A README with its generated parts made anew."""

    def fill(match: re.Match[str]) -> str:
        kind, _, argument = match["what"].partition(": ")
        tables = {"rules": rules, "runtime": runtime_names, "patterns": patterns}
        made = (
            tables[kind](match["now"])
            if kind in tables
            else {"code": code, "changed": changed}[kind](argument)
        )
        return f"<!-- {match['what']} -->\n{made}\n<!-- end -->"

    return re.sub(
        r"<!-- (?P<what>rules|runtime|patterns|(?:code|changed): [\w/.]+) -->\n(?P<now>.*?)<!-- end -->",
        fill,
        text,
        flags=re.DOTALL,
    )


def test_the_first_example_is_converted_as_shown(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    done = run("convert", "examples/first/before/train.py", "--output", str(tmp_path / "out"), cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    (converted,) = (tmp_path / "out").rglob("train.py")
    after = EXAMPLE / "after" / "train.py"
    if request.config.getoption("--update"):
        after.write_bytes(converted.read_bytes())
    assert converted.read_text() == after.read_text()


@every_readme
def test_generated_parts_are_current(readme: Path, request: pytest.FixtureRequest) -> None:
    text = readme.read_text()
    if request.config.getoption("--update"):
        readme.write_text(generated(text))
    assert readme.read_text() == generated(text)


def test_every_fixture_is_described() -> None:
    assert "| … |" not in (ROOT / "fixtures" / "README.md").read_text()


# What a reader meets.


def test_the_first_page_is_short() -> None:
    assert len(FIRST.read_text().splitlines()) <= LONGEST


def prose(text: str) -> str:
    """A README without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(readme: Path) -> set[str]:
    """What headings can be linked to by, as GitHub makes it of them."""
    headings = re.findall(r"^#+ (.*)$", prose(readme.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_readme
def test_links_lead_somewhere(readme: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(readme.read_text()))
    targets = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"(?:href|src)=\"([^\"]+)\"", text)]
    for target in targets:
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (readme.parent / file).resolve() if file else readme
        assert place.exists(), target
        if anchor:
            assert anchor in anchors(place), target


def shown(kind: str) -> Iterator[tuple[Path, str]]:
    """The blocks of code of one language, with the README each is in."""
    for readme in READMES:
        for block in re.findall(rf"^```{kind}\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE):
            yield readme, block


@cache
def options(command: str) -> set[str]:
    """What ``--help`` says that a command takes."""
    done = run(command, "--help")
    assert done.returncode == 0, (command, done.stderr)
    return set(re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", done.stdout.decode()))


@every_readme
def test_commands_that_are_shown_are_there(readme: Path) -> None:
    """Their options are in ``--help``, and the examples that they name are in this repository."""
    blocks = [block for place, block in shown("sh") if place == readme]
    for line in "".join(blocks).replace("&&", "\n").replace("|", "\n").splitlines():
        if not line.startswith("dp2ddp "):
            continue
        words = shlex.split(line, comments=True)
        own = words[: words.index("--")] if "--" in words else words
        given = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert given <= options(words[1]), line
        for word in own:
            if word.startswith(("examples/", "fixtures/")):
                assert (ROOT / word).exists(), line


@pytest.mark.parametrize(
    ("command", "readme"), [("convert", "README.md"), ("verify", "dp2ddp/verify/README.md")]
)
def test_options_in_tables_are_there(command: str, readme: str) -> None:
    """Those of `verify` are all in its README."""
    tables = [line for line in (ROOT / readme).read_text().splitlines() if line.startswith("| `--")]
    named = {name for line in tables for name in re.findall(r"`(--[a-z][a-z0-9-]*)", line.split(" | ")[0])}
    assert named and named <= options(command)
    if command == "verify":
        assert named == options(command) - {"--help"}


@pytest.mark.parametrize("readme", [readme for readme in READMES if readme != ROOT / "CHANGELOG.md"])
def test_python_that_is_shown_is_python(readme: Path) -> None:
    for place, block in shown("python"):
        if place == readme:
            ast.parse(block)
            assert {name for name in re.findall(r"\bddp\.(\w+)", block)} <= set(runtime.__all__), block


# What the first page shows, done.


def test_the_first_example_trains_the_same_on_any_number_of_processes(lab: Lab) -> None:
    runs = [lab.run(EXAMPLE / "after" / "train.py", processes=n).ok() for n in (1, 2, 3)]
    assert runs[0].printed.count("loss") == 3
    numbers = [[float(number) for number in re.findall(r"loss (\S+)", run.printed)] for run in runs]
    assert numbers[1] == pytest.approx(numbers[0], abs=2e-3)
    assert len(runs[2].ranks) == 3 and runs[2].files() == ["model.pt"]


SETTING = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train_set = TensorDataset(torch.randn(300, 8), torch.randint(3, (300,)))


def Net():
    return nn.Linear(8, 3)


"""


def test_the_runtime_s_example_on_the_first_page_trains_the_same(lab: Lab, tmp_path: Path) -> None:
    (block,) = (block for place, block in shown("python") if place == FIRST)
    script = tmp_path / "train.py"
    script.write_text(SETTING + textwrap.dedent(block))
    runs = [lab.run(script, processes=n).ok() for n in (1, 2, 3)]
    assert runs[0].printed.count("loss") == 1
    for other in runs[1:]:
        assert other.printed == runs[0].printed
        assert other.files() == ["model.pt"]
