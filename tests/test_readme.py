"""The generated parts of the README are current; ``python -m pytest tests/test_readme.py --update`` writes them."""

from __future__ import annotations

import difflib
import inspect
import re
from pathlib import Path

import pytest

from dp2ddp import runtime
from dp2ddp.rules import RULES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def rules() -> str:
    rows = []
    for code, rule in RULES.items():
        found, _, rest = rule.explanation.replace("``", "`").partition("\n\n")
        first = re.split(r"(?<=\.)\s", rest.replace("\n", " "))[0]
        rows.append(f"| {code} | {found} | {first} |")
    return "\n".join(["| rule | found | what it means, or becomes |", "|---|---|---|", *rows])


def runtime_names() -> str:
    rows = []
    for name in runtime.__all__:
        value = getattr(runtime, name)
        first = re.split(r"(?<=\.)\s", (inspect.getdoc(value) or "").replace("\n", " ").replace("``", "`"))[0]
        called = "" if inspect.ismodule(value) else f"({_arguments(value)})"
        rows.append(f"| `{name}{called}` | {first} |")
    return "\n".join(["| | |", "|---|---|", *rows])


def _arguments(value: object) -> str:
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    shown = [str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters]
    return ", ".join(shown)


def diff(fixture: str) -> str:
    lines: list[str] = []
    for after in sorted((ROOT / fixture / "after").rglob("*.py")):
        before = ROOT / fixture / "before" / after.relative_to(ROOT / fixture / "after")
        both = (before.read_text().splitlines(), after.read_text().splitlines())
        lines += list(difflib.unified_diff(*both, lineterm="", n=1))[2:]
    return "\n".join(["```diff", *lines, "```"])


def code(file: str) -> str:
    return f"```python\n{(ROOT / file).read_text()}```"


def generated(text: str) -> str:
    """The README with its generated parts made anew."""

    def fill(match: re.Match[str]) -> str:
        kind, _, argument = match["what"].partition(": ")
        makers = {"rules": rules, "runtime": runtime_names}
        made = makers[kind]() if kind in makers else {"code": code, "diff": diff}[kind](argument)
        return f"<!-- {match['what']} -->\n{made}\n<!-- end -->"

    return re.sub(
        r"<!-- (?P<what>rules|runtime|(?:code|diff): [\w/.]+) -->\n.*?<!-- end -->",
        fill,
        text,
        flags=re.DOTALL,
    )


def test_readme_is_current(request: pytest.FixtureRequest) -> None:
    text = README.read_text()
    if request.config.getoption("--update"):
        README.write_text(generated(text))
    assert README.read_text() == generated(text)


def test_readme_links_to_files_that_are_there() -> None:
    for target in re.findall(r"\]\((?!#|https?:)([^)]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target
