"""Files from before Python 3.7: what is written otherwise is that alone, and means what it meant."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from dp2ddp.legacy import Kind, Mend, mended, mends, reason, unmended
from dp2ddp.source import Project, SourceFile, Unreadable, load

PATH = Path("/example/train.py")

RENAMED = {
    "x.cuda(async=True)": "x.cuda(non_blocking=True)",
    "x.to(device, async = not args.wait)": "x.to(device, non_blocking = not args.wait)",
    "x.type(torch.cuda.FloatTensor,\n       async=True)": "x.type(torch.cuda.FloatTensor,\n       non_blocking=True)",
    "copy(a)(b, *c, async=1, **d)": "copy(a)(b, *c, non_blocking=1, **d)",
    "y = [x[0](async=1) for x in z]": "y = [x[0](non_blocking=1) for x in z]",
    "def f(x, async=False):\n    return x.cuda(async=async)\nf(y, async=True)": "def f(x, non_blocking=False):\n"
    "    return x.cuda(non_blocking=non_blocking)\nf(y, non_blocking=True)",
    "f = lambda x, async=0: x.cuda(0, async)": "f = lambda x, non_blocking=0: x.cuda(0, non_blocking)",
    "d = {1: lambda async: async, 2: f(async=1)}": "d = {1: lambda non_blocking: non_blocking, 2: f(non_blocking=1)}",
    "async = True\nx.cuda(async=async)": "non_blocking = True\nx.cuda(non_blocking=non_blocking)",
    "if args.async: x = y.opt.async or 1": 'if getattr(args, "async"): x = getattr(y.opt, "async") or 1',
    "args.async = f(1, 2); b = 1": 'setattr(args, "async", f(1, 2)); b = 1',
    "class A:\n    def f(self, async):\n        self.async = async": "class A:\n    def f(self, non_blocking):\n"
    '        setattr(self, "async", non_blocking)',
}
KEPT = {
    "a function": "def async(x):\n    return x\nasync(1)",
    "a class's variable": "class A:\n    async = True",
    "a module": "import async",
    "a name in a module": "from tools import async",
    "an argument of a class": "class A(B, async=1):\n    pass",
    "a variable beside its new name": "def f(non_blocking, async=1):\n    return async",
    "an attribute of something computed": "x = f(y).async",
    "an attribute that is counted up": "x.async += 1",
    "attributes that are unpacked": "x.async, y = 1, 2",
    "an attribute that is deleted": "del x.async",
    "two assignments at once": "x.async = y = 1",
    "a tuple": "x.async = 1, 2",
    "in an f-string": 'f"{x.cuda(async=True)}"',
}


def text_of(file: SourceFile | Unreadable) -> str:
    assert isinstance(file, SourceFile), file
    return file.text


@pytest.mark.parametrize("before", RENAMED)
def test_async_gets_another_name(before: str) -> None:
    assert text_of(load(PATH, before.encode())) == RENAMED[before]


@pytest.mark.parametrize("name", KEPT)
def test_what_cannot_be_renamed_is_named(name: str) -> None:
    file = load(PATH, f"x = 1\n{KEPT[name]}\n".encode())
    assert isinstance(file, Unreadable)
    assert file.legacy
    assert file.line and "async" in KEPT[name].splitlines()[file.line - 2]
    assert "is a keyword since Python 3.7" in file.reason


def test_strings_comments_and_everything_else_stay_as_they_are() -> None:
    text = (
        "\ufeff# coding: utf-8; async=True\r\n"
        "text = \"x.cuda(async=True)\" '''async=1,\r\n  async=2'''\t# f(async=1)\r\n"
        "y = x.cuda(  async  =  True )  ;z=\\\r\n  'é'\x0c\n"
        "async def f():\n\tasync with a as b: await b.cuda(\n  # async=1\n  async=1)\n"
        r"w = r'\' f(async=1)'; v = 'it''s' + b'\'async=' + u\"async=\"".replace('\\"', '"') + "\n"
    )
    data = text.encode()
    file = load(PATH, data)
    assert isinstance(file, SourceFile)
    assert file.written.encode(file.encoding) == data
    after = file.text.encode(file.encoding)
    assert len(after) == len(data) + 2 * (len("non_blocking") - len("async"))
    assert after.replace(b"non_blocking", b"async") == data


def test_a_file_that_can_be_parsed_is_not_looked_into() -> None:
    text = "async def f():\n    return [x async for x in y]\nif x:\n\ty = 1\nelse:\n        y = 2\n"
    file = load(PATH, text.encode())
    assert isinstance(file, SourceFile) and not file.mends and file.text == file.written == text


# Tabs


def indented(column: int, kind: random.Random) -> str:
    """One of the ways to write an indentation with tabs of 8 columns."""
    tabs = kind.randint(0, column // 8)
    before = " " * kind.randint(0, 7) if tabs and kind.random() < 0.3 else ""
    return before + "\t" * tabs + " " * (column - 8 * tabs)


def block(column: int, depth: int, kind: random.Random) -> list[str]:
    lines = []
    for _ in range(kind.randint(1, 3)):
        if depth < 4 and kind.random() < 0.5:
            lines += [indented(column, kind) + f"if x{len(lines)}:"]
            lines += block(column + kind.choice([1, 2, 4, 8]), depth + 1, kind)
        else:
            lines += ["\t # a comment", "", indented(column, kind) + "y = (1,\n\t 2)"]
    return lines


@pytest.mark.parametrize("seed", range(60))
def test_mixed_tabs_are_read_as_python_2_did(seed: int) -> None:
    """Where nothing is ambiguous, every line is in the block where a tab up to the next multiple of 8 puts it."""
    text = "\n".join(block(0, 0, random.Random(seed))) + "\n"
    wanted = "\n".join(
        line[: len(line) - len(line.lstrip())].expandtabs(8) + line.lstrip() for line in text.split("\n")
    )
    file = load(PATH, text.encode())
    if isinstance(file, Unreadable):
        assert "expand -i -t 8" in file.reason
        return
    assert ast.dump(file.tree) == ast.dump(ast.parse(wanted))
    assert [line.strip() for line in file.text.split("\n")] == [line.strip() for line in text.split("\n")]


def test_only_lines_that_python_3_cannot_compare_are_indented_otherwise() -> None:
    text = "def f():\n\tx = 1\n        y = (\n   2)\n\tif x:\n\t    return 1\n    \n\treturn 2\n"
    assert text_of(load(PATH, text.encode())) == text.replace("        y", "\ty")


def test_tabs_that_could_mean_two_things_are_left() -> None:
    text = "def f():\n    for x in y:\n        a(x)\n\tb(x)\n"
    file = load(PATH, text.encode())
    assert isinstance(file, Unreadable) and file.legacy
    assert (
        file.line,
        "`expand -i -t 8 /example/train.py > new && mv new /example/train.py`" in file.reason,
    ) == (4, True)
    never_ran = load(
        PATH, text.replace("        a", "    \ta").replace("\tb", "    b").encode() + b"\tc(x)\n"
    )
    assert isinstance(never_ran, Unreadable)


# Python 2


@pytest.mark.parametrize(
    "line",
    [
        "print 'a'",
        "print x, y",
        "if x: print x",
        "exec 'x = 1'",
        "raise IOError, 'no'",
        "os.chmod(x, 0755)",
        "x = 10L",
        "x = `y`",
        "if x <> y: pass",
        "x = ur'a'",
        "try:\n    pass\nexcept ValueError, error:\n    pass",
    ],
)
def test_python_2_is_said_with_what_mends_it(line: str) -> None:
    file = load(PATH, f"import os\n{line}\n".encode())
    assert isinstance(file, Unreadable) and file.legacy
    assert file.line == (4 if "except" in line else 2)
    assert re.search(
        r"^Python 2 code: .*`python -m pip install fissix && python -m fissix -w -n /example/train.py`",
        file.reason,
    )


def test_what_is_no_python_at_all_is_not_called_old() -> None:
    file = load(PATH, b"def f(:\n    pass\n")
    assert isinstance(file, Unreadable) and not file.legacy
    assert reason(SyntaxError("invalid syntax"), "x = (") == ""


# Mends


def test_mends_of_mended_text_are_mends_of_the_text() -> None:
    """What was written otherwise twice is written otherwise at once, wherever in the line."""
    kind = random.Random(3)
    for _ in range(300):
        text = "".join(kind.choice("abc\n") for _ in range(40))
        first = pieces(text, kind)
        middle = mended(text, first)
        # what is changed again is none of what was put in
        second = [it for it in pieces(middle, kind) if not touches(it, first)]
        both = [*first, *(unmended(it, first) for it in second)]
        assert mended(text, both) == mended(middle, second)


def pieces(text: str, kind: random.Random) -> list[Mend]:
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        column = 0
        while column + 2 < len(line) and kind.random() < 0.8:
            start = kind.randint(column, len(line) - 1)
            end = kind.randint(start + 1, len(line))
            found.append(Mend(number, start, end, kind.choice(["", "XY", "XYZXYZ"]), Kind.REMOVED))
            column = end + 1
    return found


def touches(mend: Mend, earlier: list[Mend]) -> bool:
    shift = 0
    for one in sorted((it for it in earlier if it.line == mend.line), key=lambda it: it.start):
        start, end = one.start + shift, one.start + shift + len(one.after)
        if mend.start <= end and start <= mend.end:
            return True
        shift += len(one.after) - (one.end - one.start)
    return False


def test_a_project_in_memory_is_read_alike() -> None:
    project = Project.of({PATH: "x.cuda(async=True)\n"})
    assert project.files[PATH].text == "x.cuda(non_blocking=True)\n"
    assert project.files[PATH].written == "x.cuda(async=True)\n"
    assert mends("x.cuda(non_blocking=True)\n") == ()
    changed = project.with_texts({PATH: "x = 1\n"})
    assert (changed.files[PATH].mends, changed.files[PATH].written) == ((), "x = 1\n")
