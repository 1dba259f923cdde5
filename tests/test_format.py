"""Formatting: only where the file was formatted before, and as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.format import _formatted, _is_unformatted, _mode, format_like

CLEAN = 'x = f("a", b)\n'
AFTER = "x = f('a',b)\nyyyyyyyy = call(first_argument, second_argument, third_argument, fourth_argument_and_last)\n"
FORMATTED = 'x = f("a", b)\nyyyyyyyy = call(\n    first_argument, second_argument, third_argument, fourth_argument_and_last\n)\n'


def configured(folder: Path, text: str) -> Path:
    (folder / ".git").mkdir()
    (folder / "pyproject.toml").write_text(text)
    inner = folder / "package"
    inner.mkdir()
    return inner / "train.py"


def test_a_clean_file_stays_clean(tmp_path: Path) -> None:
    assert format_like(CLEAN, AFTER, configured(tmp_path, "")) == FORMATTED


def test_any_other_file_is_left_alone(tmp_path: Path) -> None:
    path = configured(tmp_path, "")
    assert format_like("x = f('a', b)\n", AFTER, path) == AFTER
    assert format_like("", AFTER, path) == AFTER
    assert format_like("x = (\n", AFTER, path) == AFTER


@pytest.mark.parametrize(
    "text",
    [
        'def f():\n    """Says  \n\n\n\n    more."""\n',
        'x = """\n\n\n\n  \n"""\n',
        'x = b"""\n  \n"""\n',
        "x = 'a \"word\"'\ny = f'{x[0]} '\n",
        "x = 'a\\'b'\n# fmt: off\ny = 'a'  \n",
        "if x:\r\n    y = 1  # one  \r\n\r\n\r\n\r\n",
    ],
)
def test_what_black_has_formatted_is_not_seen_as_unformatted(text: str) -> None:
    formatted = _formatted(text, _mode({}), fast=True)
    assert formatted is not None
    assert not _is_unformatted(formatted, True)
    assert not _is_unformatted(text, True) or formatted != text


def test_what_is_clean_already_or_cannot_be_parsed(tmp_path: Path) -> None:
    path = configured(tmp_path, "")
    assert format_like(CLEAN, FORMATTED, path) == FORMATTED
    assert format_like(CLEAN, "x = (\n", path) == "x = (\n"


@pytest.mark.parametrize(
    ("options", "before", "after", "expected"),
    [
        ("line-length = 120", CLEAN, AFTER, AFTER.replace("'a',b", '"a", b')),
        ("skip-string-normalization = true", "x = 'a'\n", "x = 'a';y = 1\n", "x = 'a'\ny = 1\n"),
        ("skip-magic-trailing-comma = true", "f(a)\n", "f(a,)\ng(b,)\n", "f(a)\ng(b)\n"),
        ('target-version = ["py311"]\npreview = true', CLEAN, "x  =  1\n", "x = 1\n"),
        ('target-version = ["py99"]', CLEAN, "x  =  1\n", "x = 1\n"),
    ],
)
def test_the_projects_own_configuration(
    options: str, before: str, after: str, expected: str, tmp_path: Path
) -> None:
    path = configured(tmp_path, f"[tool.black]\n{options}\n")
    assert format_like(before, after, path) == expected


def test_a_broken_configuration_is_no_configuration(tmp_path: Path) -> None:
    assert format_like(CLEAN, "x  =  1\n", configured(tmp_path, "[tool.black\n")) == "x = 1\n"


def test_line_ends(tmp_path: Path) -> None:
    path = configured(tmp_path, "")
    windows = [text.replace("\n", "\r\n") for text in (CLEAN, AFTER, FORMATTED)]
    assert format_like(windows[0], windows[1], path) == windows[2]
    mixed = windows[1] + "z = 1\n"
    assert format_like(windows[0], mixed, path) == mixed


SPELLED = "x = f('a', b)\n"
CALL = "loader = make(data_set={0}, batch_size=local(size), number_of_workers=local(workers), shuffle={0})"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_that_became_too_long_is_folded(end: str, tmp_path: Path) -> None:
    path = configured(tmp_path, "")
    before = (SPELLED + "if x:\n\tloader = make(data)\n").replace("\n", end)
    after = (SPELLED + "if x:\n\t" + CALL.format("'data'") + "\n").replace("\n", end)
    folded = "\tloader = make(\n\t    data_set='data', batch_size=local(size), number_of_workers=local(workers), shuffle='data'\n\t)\n"
    assert format_like(before, after, path) == (SPELLED + "if x:\n" + folded).replace("\n", end)


@pytest.mark.parametrize(
    ("old", "new"),
    {
        "as long before": (CALL.format("'da'"), CALL.format("'data'")),
        "a part of a statement": (
            "y = [\nmake(),\n]",
            "y = [\n" + CALL.format(1).partition(" = ")[2] + ",\n]",
        ),
        "one of two": ("y = 1", CALL.format("'data'") + "; y = 1"),
        "with a comment": ("y = 1", CALL.format("'data'") + "  # all"),
        "in a text": ("y = 1", 'y = """\n' + CALL.format("'data'") + '\n"""'),
        "not too long": ("y = 1", CALL.format("'data'").replace("shuffle", "s").replace("number_of_", "")),
    }.values(),
)
def test_any_other_long_line_stays(old: str, new: str, tmp_path: Path) -> None:
    before, after = (f"{SPELLED}{text}\n" for text in (old, new))
    assert format_like(before, after, configured(tmp_path, "")) == after
