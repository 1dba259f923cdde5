"""Every rule's examples are programs it finds something in; converted, they run and there is nothing left to do."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.convert import convert
from dp2ddp.plan import Severity
from dp2ddp.rules import RULES
from dp2ddp.source import Project

EXAMPLES = [
    pytest.param(code, example, id=f"{code}-{index}")
    for code, rule in RULES.items()
    for index, example in enumerate(rule.examples)
]
PATH = Path("/example/train.py")

# One process imports torch and forks for each example: starting one for each would take a second and more.
RUNNER = """
import os, sys, runpy, traceback
import torch._dynamo, torch.distributed  # every optimizer imports the first at its first step
import torch.nn.parallel, torch.utils.data.distributed
if not torch.cuda.is_available():
    from dp2ddp.verify import cuda
    cuda.pretend(1)
failed = []
for path in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        os.chdir(os.path.dirname(path))
        sys.argv = [path]
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(path)
sys.exit(f"failed: {failed}" if failed else 0)
"""


def converted(text: str) -> tuple[str, list]:
    conversion = convert(Project.of({PATH: text}))
    return (conversion.changes[0].after if conversion.changes else text), list(conversion.findings)


@pytest.mark.parametrize("code, example", EXAMPLES)
def test_rule_finds_its_example(code: str, example: str) -> None:
    _, findings = converted(example)
    assert code in {finding.rule for finding in findings}


@pytest.mark.parametrize("code, example", EXAMPLES)
def test_converted_example_has_nothing_left_to_convert(code: str, example: str) -> None:
    after, findings = converted(example)
    if any(finding.severity is Severity.ERROR for finding in findings):
        assert after == example
        return
    ast.parse(after)
    assert after != example
    again, left = converted(after)
    assert again == after
    assert not [finding for finding in left if finding.edits]


def test_rules_have_names_and_explanations() -> None:
    for code, rule in RULES.items():
        assert code.startswith("DDP") and code[3:].isdigit()
        assert rule.explanation.split("\n\n")[0].endswith("."), code
        assert rule.examples, code


def test_converted_examples_train(tmp_path: Path) -> None:
    """On this machine, in one process, with a GPU that is not there; loaders of saved models find one that the example itself would save."""
    paths = []
    for parameter in EXAMPLES:
        after, findings = converted(parameter.values[1])
        if any(finding.severity is Severity.ERROR for finding in findings):
            continue
        if "tqdm" in after or "download" in after:
            continue  # needs a package or a download
        folder = tmp_path / str(parameter.id)
        folder.mkdir()
        (folder / "train.py").write_text(after)
        paths.append(str(folder / "train.py"))
        if "start.pt" in after:
            prefix = "module." if "strip_module_prefix" in after else ""
            state = f"{{'{prefix}weight': torch.ones(2, 8), '{prefix}bias': torch.ones(2)}}"
            start = f"import torch; torch.save({state}, 'start.pt')"
            subprocess.run([sys.executable, "-c", start], cwd=folder, check=True, timeout=120)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *paths], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
