"""What the rewriter does to real source. Anchors are found by the text they cover."""

from __future__ import annotations

import ast
import itertools
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import libcst as cst
import pytest

from dp2ddp import legacy
from dp2ddp.plan import (
    AddImport,
    AddParameter,
    Anchor,
    DropArgument,
    DropImport,
    Enclose,
    Insert,
    Remove,
    Replace,
    SetArgument,
    Unwrap,
)
from dp2ddp.rewrite import RewriteError, rewrite
from dp2ddp.source import Span

PATH = Path("train.py")


def span_of(source: str, node: ast.expr | ast.stmt) -> Span:
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode())

    end = node.end_lineno or node.lineno
    return Span(node.lineno, column(node.lineno, node.col_offset), end, column(end, node.end_col_offset or 0))


def anchors(source: str, snippet: str, kind: type[ast.AST]) -> Iterator[Anchor]:
    text = source.replace("\r\n", "\n")
    for node in sorted(
        (it for it in ast.walk(ast.parse(text)) if isinstance(it, kind)),
        key=lambda it: (it.lineno, it.col_offset),  # type: ignore[attr-defined]
    ):
        segment = ast.get_source_segment(text, node) or ""
        if segment == snippet or (kind is ast.stmt and segment.split("\n")[0].split("  #")[0] == snippet):
            yield Anchor(PATH, "stmt" if kind is ast.stmt else "expr", span_of(source, node))  # type: ignore[arg-type]


def expr(source: str, snippet: str, number: int = 0) -> Anchor:
    return list(anchors(source, snippet, ast.expr))[number]


def stmt(source: str, snippet: str, number: int = 0) -> Anchor:
    """The statement with this text, or with this first line."""
    return list(anchors(source, snippet, ast.stmt))[number]


def src(text: str) -> str:
    return dedent(text).lstrip("\n")


def replaced(source: str, snippet: str, template: str, **holes: str) -> str:
    filled = {name: expr(source, piece) for name, piece in holes.items()}
    return rewrite(source, [Replace(expr(source, snippet), template, filled)])


# -- what is not edited stays as it is

NASTY = {
    "crlf": "import a\r\n\r\nif a:\r\n    x = '''1\r\n2'''  # c\r\n",
    "mixed line ends": "import a\r\nb = 1\nc = 2\r\n\n",
    "carriage returns": "a = 1\rb = 2\r",
    "no final newline": "if x:\n\ty = 1",
    "tabs and spaces": "if x:\n\ty = 1\nelse:\n   z = 2\n",
    "form feeds": "\x0cimport a\n\x0c\ndef f():\n  \x0c  return 1\n\x0cx = 1\n",
    "a short last line of blanks": "if x:\n    f(a)\n\n  \n",
    "blanks without a newline": "if x:\r\n    f(a)\r\n\t\r\n  ",
    "only blanks": "  \n \n",
    "empty": "",
    "only a comment": "# nothing here",
    "shebang": "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n\n\nx = 1\n",
    "semicolons": "a = 1 ;b = 2;\nif a : pass ; pass\n",
    "continuation": "x = 1 + \\\n    2\nassert x, \\\n  y\n",
    "odd spaces": "try :\n  f (a , b = 1 , )\nexcept (A, B) :\n  pass\n",
    "odd comments": "if a:\n    b\n  # odd\n    c\n        # in\n# out\nd\n",
    "unicode": "é = '日本語'; ß = f(é, 'ü')\n",
}


@pytest.mark.parametrize("source", NASTY.values(), ids=NASTY.keys())
def test_nothing_to_do_leaves_every_byte(source: str) -> None:
    assert rewrite(source, []) == source


@pytest.mark.parametrize("source", NASTY.values(), ids=NASTY.keys())
def test_an_edit_leaves_every_other_byte(source: str) -> None:
    newline = "\r\n" if "\r\n" in source else "\r" if "\r" in source else "\n"
    probe = "probe(old)"
    before = source + ("" if source.endswith(("\n", "\r")) or not source else newline) + probe + newline
    after = replaced(before, "old", "new")
    assert after == before.replace("old", "new")


def real_files() -> list[Path]:
    stdlib = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[::7]
    torch = Path(sysconfig.get_path("purelib")) / "torch"
    files = [*stdlib, *sorted(torch.glob("utils/data/*.py")), *sorted(torch.glob("nn/parallel/*.py"))]
    return [it for it in files if it.stat().st_size < 24_000]


@pytest.mark.parametrize("path", [pytest.param(it, id=it.stem) for it in real_files()])
def test_every_call_of_real_files_is_found(path: Path) -> None:
    source = path.read_bytes().decode("utf-8")
    assert rewrite(source, []) == source
    edits = []
    lines = source.split("\n")
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Call):
            where = Anchor(PATH, "expr", span_of(source, node))
            edits.append(Replace(where, "{it}", {"it": where}))
        elif (
            isinstance(node, (ast.Tuple, ast.GeneratorExp)) and lines[node.lineno - 1][node.col_offset] == "("
        ):
            edits.append(Replace(where := Anchor(PATH, "expr", span_of(source, node)), "{it}", {"it": where}))
        if not isinstance(node, ast.JoinedStr):  # before 3.12 they do not know where their pieces stand
            todo += ast.iter_child_nodes(node)
    after = rewrite(source, edits)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(source))


def test_the_same_file_moves_nothing_when_a_line_cannot_be_spoken() -> None:
    source = "\x0cimport a\ntry:\n  f(x)\nexcept (A, B) :\n  pass\n"
    assert replaced(source, "f(x)", "g({x})", x="x") == source.replace("f(x)", "g(x)")


# -- replacing


def test_a_hole_receives_the_edited_piece() -> None:
    source = "model = nn.DataParallel(Net(width=4)).to(device)\n"
    whole, net = (expr(source, it) for it in ("nn.DataParallel(Net(width=4)).to(device)", "Net(width=4)"))
    after = rewrite(
        source,
        [
            Replace(
                whole,
                "ddp.DistributedDataParallel({net}.to({device}))",
                {"net": net, "device": expr(source, "device")},
            ),
            Replace(expr(source, "device"), "ddp.device()"),
            SetArgument(net, "depth", "2"),
            Replace(expr(source, "4"), "8"),
        ],
    )
    assert after == "model = ddp.DistributedDataParallel(Net(width=8, depth=2).to(ddp.device()))\n"


def test_edits_apply_whatever_their_order() -> None:
    source = "a = f(g(h(1)), x)\n"
    edits = [
        Replace(
            expr(source, "f(g(h(1)), x)"),
            "F({it}, {x})",
            {"it": expr(source, "g(h(1))"), "x": expr(source, "x")},
        ),
        Replace(expr(source, "g(h(1))"), "G({it})", {"it": expr(source, "h(1)")}),
        Replace(expr(source, "h(1)"), "{it}.h", {"it": expr(source, "h(1)")}),
        Replace(expr(source, "1"), "2 + 3"),
    ]
    for order in itertools.permutations(edits):
        assert rewrite(source, order) == "a = F(G(h(2 + 3).h), x)\n"


def test_a_piece_can_be_hoisted() -> None:
    source = "loader = DataLoader(Data(root), shuffle=True)\n"
    data = expr(source, "Data(root)")
    edits = [
        Insert(stmt(source, source.strip()), "data = {data}", {"data": data}),
        Replace(data, "data"),
        SetArgument(expr(source, source.strip()[9:]), "sampler", "Sampler({data})", {"data": data}),
    ]
    assert rewrite(source, edits) == (
        "data = Data(root)\nloader = DataLoader(data, shuffle=True, sampler=Sampler(data))\n"
    )


def test_a_piece_may_come_from_further_down() -> None:
    source = "x = 1\ny = f(z + 1)\n"
    edits = [
        Insert(stmt(source, "x = 1"), "print({it})", {"it": expr(source, "f(z + 1)")}),
        Replace(expr(source, "z"), "w"),
    ]
    assert rewrite(source, edits) == "print(f(w + 1))\nx = 1\ny = f(w + 1)\n"


def test_two_replacements_of_one_node() -> None:
    source = "f(x)\n"
    where = expr(source, "x")
    assert rewrite(source, [Replace(where, "y"), Replace(where, "y")]) == "f(y)\n"
    with pytest.raises(RewriteError, match="two edits") as caught:
        rewrite(source, [Replace(where, "y"), Replace(where, "z")])
    assert caught.value.span == where.span


def test_text_holes_and_literal_braces() -> None:
    source = "f(x)\n"
    edit = Replace(
        expr(source, "x"), '{{"a": {x}, "b": f"{{{x}}}{word}"}}', {"x": expr(source, "x"), "word": "{w!r}"}
    )
    assert rewrite(source, [edit]) == 'f({"a": x, "b": f"{x}{w!r}"})\n'


@pytest.mark.filterwarnings("ignore:invalid decimal literal")
@pytest.mark.parametrize(
    ("source", "old", "template", "expected"),
    [
        ("y = (a + b).mean()\n", "a + b", "f({x})", "y = f(a + b).mean()\n"),
        ("y = (a + b).mean()\n", "a + b", "{x}", "y = (a + b).mean()\n"),
        ("y = x.mean()\n", "x", "{x} + 1", "y = (x + 1).mean()\n"),
        ("y = a if c else b\n", "a if c else b", "{x}.to(d)", "y = (a if c else b).to(d)\n"),
        ("f(a if c else b)\n", "a if c else b", "g({x})", "f(g(a if c else b))\n"),
        ("f(x)\n", "x", "(yield {x})", "f((yield x))\n"),
        ("f((a, b))\n", "(a, b)", "g({x})", "f(g((a, b)))\n"),
        ("f((a, b))\n", "(a, b)", "{x}.to(d)", "f((a, b).to(d))\n"),
        ("y = a, b\n", "a, b", "f(*{x})", "y = f(*(a, b))\n"),
        ("sum(i for i in x)\n", "(i for i in x)", "list({x})", "sum(list(i for i in x))\n"),
        ("sum(i for i in x)\n", "(i for i in x)", "f({x}, 1)", "sum(f((i for i in x), 1))\n"),
        ("def f():\n    return(x)\n", "x", "g({x})", "def f():\n    return(g(x))\n"),
        ("y = 1 if(x)else 2\n", "x", "not {x}", "y = 1 if(not x)else 2\n"),
        ("y = 1if x else 2\n", "1", "z", "y = (z)if x else 2\n"),
        ("y = 1 .real\n", "1", "2", "y = (2) .real\n"),
        ("x = a ** b\n", "b", "-{x}", "x = a ** -b\n"),
        ("x = a ** b\n", "a", "-{x}", "x = (-a) ** b\n"),
    ],
)
def test_parentheses_where_needed_and_only_there(source: str, old: str, template: str, expected: str) -> None:
    assert replaced(source, old, template, x=old) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f(m.a() if g.device_count() > 1 else m.b())\n", "f(m.a())\n"),
        ("y = (m.a()\n     if isinstance(m, W) else m.b())\n", "y = m.a()\n"),
        ("y = 2 * (m.a() + 1 if c else m.b() + 1)\n", "y = 2 * (m.a() + 1)\n"),
        ("y = m.a() if ask() else m.b()\n", "y = m.a() if ask() else m.a()\n"),
        ("y = (m.a()  # one\n     if c else m.b())\n", "y = (m.a()  # one\n     if c else m.a())\n"),
    ],
)
def test_a_choice_between_what_has_become_one_goes(source: str, expected: str) -> None:
    assert replaced(source, "m.b()", "m.a()") == expected


PLACES = [
    "{}.a",
    "{}[0]",
    "x[{}]",
    "x[{}:1]",
    "{}(1)",
    "f({})",
    "f({}, 1)",
    "f(k={})",
    "f(*{})",
    "f(**{})",
    "-{}",
    "not {}",
    "~{}",
    "{} + 1",
    "1 + {}",
    "1 - {}",
    "{} ** 2",
    "2 ** {}",
    "{} * 2",
    "2 @ {}",
    "{} << 1",
    "1 & {}",
    "1 | {}",
    "1 ^ {}",
    "{} < 1",
    "1 < {}",
    "1 in {}",
    "{} is 1",
    "{} and 1",
    "1 and {}",
    "{} or 1",
    "1 or {}",
    "{} if 1 else 2",
    "1 if {} else 2",
    "9 if 2 else {}",
    "lambda: {}",
    "lambda x={}: 1",
    "[{}]",
    "({}, 1)",
    "{{{}}}",
    "{{{}: 1}}",
    "{{1: {}}}",
    "[{}, *{}]",
    "[{} for i in x]",
    "[i for i in {}]",
    "[i for i in x if {}]",
    "({} for i in x)",
    "{{1: {} for i in x}}",
    "{{**{}}}",
    "f'{{{}}}'",
    "(y := {})",
    "'' % {}",
]
FILLINGS = [
    "a",
    "1",
    "-1",
    "'s'",
    "a.b",
    "a[0]",
    "f(x)",
    "a, b",
    "(a, b)",
    "[a]",
    "{}",
    "{a: b}",
    "a + b",
    "a * b",
    "a ** b",
    "a < b",
    "a and b",
    "a or b",
    "not a",
    "a if b else c",
    "lambda: a",
    "lambda x: x, 1",
    "(y := 1)",
    "(i for i in x)",
    "a | b",
    "a << b",
    "~a",
    "a is not b",
    "'s' 't'",
    "f'{a}'",
    "a @ b",
    "a if b else lambda: c",
]


@pytest.mark.parametrize("place", PLACES)
def test_every_expression_in_every_place_means_itself(place: str) -> None:
    """A filling lands as if it stood in parentheses."""
    blanks = 2 if place.count("{}") == 2 and "{{" not in place else 1
    for filling in FILLINGS:
        if "f'" in place and ("'" in filling or ":" in filling):
            continue
        expected = place.format(*[f"({filling})"] * blanks)
        source = place.format(*["OLD"] * blanks)
        if "f'" not in place:
            after = rewrite(
                source,
                [
                    Replace(it, filling.replace("{", "{{").replace("}", "}}"))
                    for it in anchors(source, "OLD", ast.expr)
                ],
            )
            assert meaning(after) == meaning(expected), after
        moved = f"f(({filling}))\nOLD\n"
        call = next(node for node in ast.walk(ast.parse(moved)) if isinstance(node, ast.Call))
        piece = Anchor(PATH, "expr", span_of(moved, call.args[0]))
        after = rewrite(
            moved, [Replace(expr(moved, "OLD"), place.replace("{}", "{it}"), {"it": piece})]
        ).split("\n")[1]
        assert meaning(after) == meaning(expected), after


def meaning(source: str) -> str:
    """The tree of an expression, in which ``a and (b and c)`` is one conjunction."""

    class Flat(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
            self.generic_visit(node)
            values: list[ast.expr] = []
            for value in node.values:
                same = isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)
                values += value.values if same else [value]  # type: ignore[attr-defined]
            return ast.BoolOp(node.op, values)

    return ast.dump(Flat().visit(ast.parse(source)))


def test_a_piece_that_spans_lines_gets_parentheses_outside_of_brackets() -> None:
    source = "f(\n    a\n    + b\n)\nOLD\n"
    piece = expr(source, "a\n    + b")
    assert "x = (a\n    + b)" in rewrite(source, [Insert(stmt(source, "OLD"), "x = {it}", {"it": piece})])
    assert rewrite(source, [Replace(expr(source, "OLD"), "{it}", {"it": piece})]).endswith("\n(a\n    + b)\n")
    assert rewrite(source, [Replace(expr(source, "OLD"), "g({it})", {"it": piece})]).endswith(
        "\ng(a\n    + b)\n"
    )


def test_parentheses_with_lines_or_comments_stay() -> None:
    source = "model = (\n    DataParallel(net)  # all cards\n)\n"
    assert replaced(source, "DataParallel(net)", "wrap({x})", x="net") == source.replace(
        "DataParallel", "wrap"
    )
    assert replaced(source, "DataParallel(net)", "wrap({x})", x="DataParallel(net)") == source.replace(
        "DataParallel(net)", "wrap(DataParallel(net))"
    )


def test_comments_in_what_is_replaced_go_above() -> None:
    source = src("""
        if x:
            # model
            model = nn.DataParallel(
                Net(
                    4,  # wide
                ),
                device_ids=[0, 1],  # both cards
            )
        """)
    call = source[source.index("nn.") :].strip()
    net = source[source.index("Net") : source.index(",\n        device")]
    after = replaced(source, call, "ddp.DistributedDataParallel({net})", net=net)
    assert after == src("""
        if x:
            # model
            # both cards
            model = ddp.DistributedDataParallel(Net(
                4,  # wide
            ))
        """)


def test_no_piece_in_its_own_hole() -> None:
    source = "f(x)\n"
    whole, part = expr(source, "f(x)"), expr(source, "x")
    with pytest.raises(RewriteError, match="circle"):
        rewrite(source, [Replace(part, "{it}", {"it": whole})])


def test_anchors_that_do_not_exist() -> None:
    source = 'f(x)\nprint(f"{a.b()}")\n'
    wrong = Anchor(PATH, "expr", Span(1, 0, 1, 3))
    with pytest.raises(RewriteError, match="no expression at line 1, column 0") as caught:
        rewrite(source, [Replace(wrong, "y")])
    assert caught.value.span == wrong.span
    inside = Anchor(PATH, "expr", Span(2, 7, 2, 12))
    with pytest.raises(RewriteError, match="f-string"):
        rewrite(source, [Replace(inside, "y")])


def test_the_result_must_be_python() -> None:
    source = "f(x)\n"
    with pytest.raises(RewriteError, match="not an expression"):
        replaced(source, "x", "y +")
    with pytest.raises(RewriteError, match="not valid Python"):
        rewrite("x = 1\n", [Replace(expr("x = 1\n", "x"), "f()")])


# -- arguments


def set_in(call: str, keyword: str, value: str, position: int | None = None) -> str:
    source = f"x = {call}\n"
    after = rewrite(source, [SetArgument(expr(source, call), keyword, value, position=position)])
    return after.removeprefix("x = ").removesuffix("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(): pass", "def f(more): pass"),
        ("def f(a): pass", "def f(a, more): pass"),
        ("def f(self, a: int = 1): pass", "def f(self, a: int = 1, more=None): pass"),
        ("def f(a,\n      b): pass", "def f(a,\n      b,\n      more): pass"),
        ("def f(\n    a,\n    b,\n): pass", "def f(\n    a,\n    b,\n    more,\n): pass"),
        ("def f(\n    a,\n    b\n): pass", "def f(\n    a,\n    b,\n    more\n): pass"),
    ],
)
def test_a_parameter_is_laid_out_like_the_others(before: str, after: str) -> None:
    edit = AddParameter(stmt(before + "\n", before), "more", "None" if "=" in before else "")
    assert rewrite(before + "\n", [edit]) == after + "\n"


def drop_in(call: str, keyword: str, position: int | None = None) -> str:
    source = f"x = {call}\n"
    after = rewrite(source, [DropArgument(expr(source, call), keyword, position)])
    return after.removeprefix("x = ").removesuffix("\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(k=1)"),
        ("f(a)", "f(a, k=1)"),
        ("f(a, b=2)", "f(a, b=2, k=1)"),
        ("f(a, b = 2)", "f(a, b = 2, k = 1)"),
        ("f(a, k=0, b=2)", "f(a, k=1, b=2)"),
        ("f(a, )", "f(a, k=1, )"),
        ("f(**o)", "f(k=1, **o)"),
        ("f(a, **o)", "f(a, k=1, **o)"),
        ("f(*a)", "f(*a, k=1)"),
        ("f(i for i in x)", "f((i for i in x), k=1)"),
        ("f(\n    a,\n)", "f(\n    a,\n    k=1,\n)"),
        ("f(\n    a\n)", "f(\n    a, k=1\n)"),
        ("f(\n    a,\n    b=2,\n)", "f(\n    a,\n    b=2,\n    k=1,\n)"),
        ("f(\n    a,\n    b=2\n)", "f(\n    a,\n    b=2,\n    k=1\n)"),
        ("f(a,\n  b=2)", "f(a,\n  b=2,\n  k=1)"),
        ("f(a, b,\n  c=2)", "f(a, b,\n  c=2, k=1)"),
        ("f(\n    a, b\n)", "f(\n    a, b, k=1\n)"),
        ("f(\n    a,\n    **o,\n)", "f(\n    a,\n    k=1,\n    **o,\n)"),
        (
            "f(\n    a,  # A\n    b,  # B\n    # end\n)",
            "f(\n    a,  # A\n    b,  # B\n    # end\n    k=1,\n)",
        ),
        ("f(a,\n  b  # B\n  )", "f(a,\n  b,  # B\n  k=1\n  )"),
    ],
)
def test_setting_an_argument_keeps_the_layout(before: str, after: str) -> None:
    assert set_in(before, "k", "1") == after


def test_setting_by_position() -> None:
    assert set_in("f(a, b, c)", "k", "1", position=1) == "f(a, 1, c)"
    assert set_in("f(a)", "k", "1", position=1) == "f(a, k=1)"
    assert set_in("f(a, k=2)", "k", "1", position=1) == "f(a, k=1)"
    assert set_in("f(a, b, *c)", "k", "1", position=1) == "f(a, 1, *c)"
    with pytest.raises(RewriteError, match=r"\*c"):
        set_in("f(a, *c)", "k", "1", position=1)
    with pytest.raises(RewriteError, match="not a call"):
        rewrite("x = 1\n", [SetArgument(expr("x = 1\n", "1"), "k", "1")])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(k=1)", "f()"),
        ("f(a, k=1)", "f(a)"),
        ("f(a, k=1, )", "f(a, )"),
        ("f(k=1, a=2)", "f(a=2)"),
        ("f(a, k=1, b=2)", "f(a, b=2)"),
        ("f(a)", "f(a)"),
        ("f(\n    a,\n    k=1,\n)", "f(\n    a,\n)"),
        ("f(\n    k=1,\n    b=2,\n)", "f(\n    b=2,\n)"),
        ("f(\n    k=1,\n)", "f()"),
        ("f(a, k=1,\n  b=2)", "f(a,\n  b=2)"),
        ("f(a,\n  k=1)", "f(a)"),
        ("f(a,\n  k=1, b=2)", "f(a,\n  b=2)"),
        (
            "f(\n    a,  # A\n    k=1,\n    # about b\n    b=2,\n)",
            "f(\n    a,  # A\n    # about b\n    b=2,\n)",
        ),
        ("f(a,  # A\n  k=1)", "f(a  # A\n)"),
    ],
)
def test_dropping_an_argument_keeps_the_layout(before: str, after: str) -> None:
    assert drop_in(before, "k") == after


def test_dropping_by_position() -> None:
    assert drop_in("f(a, [0, 1])", "k", position=1) == "f(a)"
    with pytest.raises(RewriteError, match="change places"):
        drop_in("f(a, [0, 1], 0)", "k", position=1)
    source = "f(a, [0, 1], 0)\n"
    call = expr(source, "f(a, [0, 1], 0)")
    assert rewrite(source, [DropArgument(call, "k", 1), DropArgument(call, "o", 2)]) == "f(a)\n"


def test_a_dropped_arguments_comment_is_kept() -> None:
    source = "x = f(\n    a,\n    k=1,  # why\n)\n"
    assert rewrite(source, [DropArgument(expr(source, source[4:-1]), "k")]) == "# why\nx = f(\n    a,\n)\n"


def test_arguments_compose_in_the_order_given() -> None:
    source = "loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=4)\n"
    call = expr(source, source[9:-1])
    workers, batch = expr(source, "4"), expr(source, "args.batch")
    after = rewrite(
        source,
        [
            SetArgument(call, "batch_size", "ddp.local_batch_size({it})", {"it": batch}, position=1),
            SetArgument(call, "shuffle", "False"),
            SetArgument(call, "sampler", "sampler"),
            SetArgument(call, "num_workers", "ddp.local_workers({it})", {"it": workers}),
            DropArgument(call, "pin_memory"),
            Replace(batch, "args.size"),
            Replace(call, "wrap({it})", {"it": call}),
        ],
    )
    assert after == (
        "loader = wrap(DataLoader(data, batch_size=ddp.local_batch_size(args.size), shuffle=False, "
        "num_workers=ddp.local_workers(4), sampler=sampler))\n"
    )


def test_arguments_of_what_is_replaced() -> None:
    source = "f(x)\n"
    call = expr(source, "f(x)")
    with pytest.raises(RewriteError, match="replaced by something else"):
        rewrite(source, [SetArgument(call, "k", "1"), Replace(call, "g()")])


# -- statements


def check_block(before: str, after: str, *edits: object) -> None:
    assert rewrite(src(before), list(edits)) == src(after)  # type: ignore[arg-type]


def test_inserting_before_goes_above_attached_comments_and_below_blank_lines() -> None:
    source = src("""
        def main():
            a = 1

            # part two

            # about b
            b = 2
            # tail
        """)
    after = rewrite(
        source,
        [
            Insert(stmt(source, "b = 2"), "x = 1\ny = 2"),
            Insert(stmt(source, "b = 2"), "z = 3"),
            Insert(stmt(source, "b = 2"), "if z:\n    w = 4", after=True),
        ],
    )
    assert after == src("""
        def main():
            a = 1

            # part two

            x = 1
            y = 2
            z = 3
            # about b
            b = 2
            if z:
                w = 4
            # tail
        """)


def test_inserted_lines_use_the_files_own_ways() -> None:
    source = "if a:\r\n\tb = 1\r\n"
    after = rewrite(source, [Insert(stmt(source, "b = 1"), "with c:\n    d = 1", after=True)])
    assert after == "if a:\r\n\tb = 1\r\n\twith c:\r\n\t\td = 1\r\n"
    source = "if a:\n  b = 1"
    after = rewrite(source, [Insert(stmt(source, "b = 1"), "with c:\n    d = 1", after=True)])
    assert after == "if a:\n  b = 1\n  with c:\n    d = 1"


def test_what_is_inserted_keeps_its_own_comments_and_blank_lines() -> None:
    source = "def f():\n    a\n"
    after = rewrite(source, [Insert(stmt(source, "a"), "\n# why\nb\n\nc  # how", after=True)])
    assert after == "def f():\n    a\n\n    # why\n    b\n\n    c  # how\n"
    a = stmt(source, "a")
    assert rewrite(source, [Enclose(a, a, "if b:  # why")]) == "def f():\n    if b:  # why\n        a\n"


def test_inserting_round_definitions_and_loops() -> None:
    source = "@decorated\ndef f():\n    pass\n\n\nfor i in x:\n    f()\n"
    edits = [
        Insert(stmt(source, "def f():"), "a = 1"),
        Insert(stmt(source, "for i in x:"), "b = {x}", {"x": expr(source, "x")}),
        Insert(stmt(source, "f()"), "c = i", after=True),
    ]
    assert rewrite(source, edits) == (
        "a = 1\n@decorated\ndef f():\n    pass\n\n\nb = x\nfor i in x:\n    f()\n    c = i\n"
    )


def test_lines_with_several_statements_are_split_only_where_needed() -> None:
    source = "a = 1; b = 2; c = 3  # all\n"
    assert rewrite(source, [Insert(stmt(source, "a = 1"), "x")]) == "x\na = 1; b = 2; c = 3  # all\n"
    assert rewrite(source, [Insert(stmt(source, "b = 2"), "x")]) == "a = 1\nx\nb = 2; c = 3  # all\n"
    assert rewrite(source, [Insert(stmt(source, "c = 3"), "x", after=True)]) == source + "x\n"
    assert rewrite(source, [Remove(stmt(source, "b = 2"))]) == "a = 1; c = 3  # all\n"
    assert rewrite(source, [Remove(stmt(source, "c = 3"))]) == "a = 1; b = 2  # all\n"
    b = stmt(source, "b = 2")
    assert rewrite(source, [Enclose(b, b, "if x:")]) == "a = 1\nif x:\n    b = 2\nc = 3  # all\n"


def test_one_line_bodies_become_blocks_only_where_needed() -> None:
    source = "if x: a = f(y); b = 2  # both\nelse: c = 3\n"
    a = stmt(source, "a = f(y)")
    assert rewrite(source, [Replace(expr(source, "y"), "z")]) == source.replace("y", "z")
    assert rewrite(source, [Insert(a, "d")]) == "if x:\n    d\n    a = f(y); b = 2  # both\nelse: c = 3\n"
    assert rewrite(source, [Remove(a)]) == "if x: b = 2  # both\nelse: c = 3\n"
    assert rewrite(source, [Enclose(a, a, "if z:")]) == (
        "if x:\n    if z:\n        a = f(y)\n    b = 2  # both\nelse: c = 3\n"
    )
    assert rewrite(source, [Remove(stmt(source, "c = 3"))]) == "if x: a = f(y); b = 2  # both\n"


def test_enclosing_keeps_comments_inside_and_blank_lines_outside() -> None:
    source = src('''
        def main():
          a = 1

          # the report
          print("""
        raw""", f(
            b,
          ))
          for i in a:
            c(i)  # c

          d = 1
        ''')
    first, last = stmt(source, 'print("""'), stmt(source, "for i in a:")
    after = rewrite(
        source,
        [
            Enclose(first, last, "with {how}:", {"how": expr(source, "b")}),
            Insert(first, "before = 1"),
            Insert(last, "after = 1", after=True),
            Insert(last, "inside = 1"),
            Insert(stmt(source, "c(i)"), "deep = 1"),
        ],
    )
    assert after == src('''
        def main():
          a = 1

          before = 1
          with b:
            # the report
            print("""
        raw""", f(
              b,
            ))
            inside = 1
            for i in a:
              deep = 1
              c(i)  # c
          after = 1

          d = 1
        ''')


def test_enclosures_that_touch_become_one() -> None:
    source = "a\nb\n\nc\nd\n"
    a, b, c, d = (stmt(source, it) for it in "abcd")
    main = "if main():"
    assert rewrite(source, [Enclose(a, a, main), Enclose(b, b, main), Enclose(c, c, main)]) == (
        "if main():\n    a\n    b\n\n    c\nd\n"
    )
    assert rewrite(source, [Enclose(c, c, main), Enclose(a, a, main), Enclose(b, b, main)]) == (
        "if main():\n    a\n    b\n\n    c\nd\n"
    )
    assert rewrite(source, [Enclose(a, b, main), Enclose(a, b, main)]) == "if main():\n    a\n    b\n\nc\nd\n"
    apart = [Enclose(a, a, main), Enclose(b, b, main), Insert(a, "x", after=True)]
    assert rewrite(source, apart) == "if main():\n    a\nx\nif main():\n    b\n\nc\nd\n"
    assert rewrite(source, [Enclose(a, b, "if x:"), Enclose(b, b, "if y:"), Enclose(d, d, "if x:")]) == (
        "if x:\n    a\n    if y:\n        b\n\nc\nif x:\n    d\n"
    )
    with pytest.raises(RewriteError, match="overlap"):
        rewrite(source, [Enclose(a, b, "if x:"), Enclose(b, c, "if y:")])
    assert rewrite(source, [Enclose(a, b, main), Remove(a), Remove(b)]) == "\nc\nd\n".lstrip()


def test_enclosing_needs_one_block() -> None:
    source = "if a:\n    b\nc\n"
    with pytest.raises(RewriteError, match="different blocks"):
        rewrite(source, [Enclose(stmt(source, "b"), stmt(source, "c"), "if x:")])
    with pytest.raises(RewriteError, match="not the header"):
        rewrite(source, [Enclose(stmt(source, "c"), stmt(source, "c"), "x = 1")])


def test_removing_keeps_comment_lines() -> None:
    source = src("""
        def f():
            # first
            a = 1  # gone

            # second
            b = 2
            c = 3

            d = 4
        """)
    assert rewrite(source, [Remove(stmt(source, "a = 1"))]) == source.replace("    a = 1  # gone\n", "")
    assert rewrite(source, [Remove(stmt(source, "c = 3"))]) == source.replace("    c = 3\n", "")
    assert rewrite(source, [Remove(stmt(source, it)) for it in ("b = 2", "c = 3")]) == src("""
        def f():
            # first
            a = 1  # gone

            # second

            d = 4
        """)
    assert rewrite(source, [Remove(stmt(source, it)) for it in ("a = 1", "b = 2", "c = 3", "d = 4")]) == src(
        """
        def f():
            # first

            # second
            pass
        """
    )


def test_a_block_left_empty() -> None:
    source = src("""
        if torch.cuda.device_count() > 1:
            # many
            if multi:
                model = wrap(model)
        x = 1
        """)
    assert rewrite(source, [Remove(stmt(source, "model = wrap(model)"))]) == "# many\nx = 1\n"
    for header in ("if launch():", "while y:", "for y in x:", "with y:", "def y():", "class Y:"):
        source = f"{header}\n    a\nb\n"
        assert rewrite(source, [Remove(stmt(source, "a"))]) == f"{header}\n    pass\nb\n"
    source = "if x:\n    a\nelif y:\n    b\nelse:\n    c\n"
    a, b, c = (stmt(source, it) for it in "abc")
    assert rewrite(source, [Remove(a)]) == source.replace("    a", "    pass")
    assert rewrite(source, [Remove(b)]) == source.replace("    b", "    pass")
    assert rewrite(source, [Remove(c)]) == "if x:\n    a\nelif y:\n    b\n"
    source = "if x:\n    a\nelse:\n    c\n"
    assert rewrite(source, [Remove(stmt(source, "a")), Remove(stmt(source, "c"))]) == ""
    source = "if x:\n    a\nelif y:\n    b\nelif z:\n    c\n"
    assert rewrite(source, [Remove(stmt(source, "c"))]) == "if x:\n    a\nelif y:\n    b\n"
    assert rewrite(source, [Remove(stmt(source, it)) for it in "bc"]) == "if x:\n    a\n"
    for kept in (source.replace("z:", "z():"), source.replace("z:", "z:  # why")):
        assert rewrite(kept, [Remove(stmt(kept, "c"))]) == kept.replace("    c", "    pass")
    source = "try:\n    a\nexcept E:\n    b\nfinally:\n    c\n"
    assert rewrite(source, [Remove(stmt(source, it)) for it in "abc"]) == (
        "try:\n    pass\nexcept E:\n    pass\nfinally:\n    pass\n"
    )
    source = "if x: a\nb\n"
    assert rewrite(source, [Remove(stmt(source, "a"))]) == "b\n"


def test_unwrapping() -> None:
    source = src("""
        def f():
            # several cards
            if n > 1:  # really
                # wrap
                model = wrap(
                    net,
                )

                if n > 2:
                    more()
                # end
            # after
            x = 1
        """)
    edits = [
        Unwrap(stmt(source, "if n > 1:")),
        Unwrap(stmt(source, "if n > 2:")),
        Replace(expr(source, "net"), "Net()"),
        Insert(stmt(source, "more()"), "less()", after=True),
        Insert(stmt(source, "if n > 1:"), "top()"),
        Insert(stmt(source, "if n > 1:"), "bottom()", after=True),
    ]
    assert rewrite(source, edits) == src("""
        def f():
            top()
            # several cards
            # really
            # wrap
            model = wrap(
                Net(),
            )

            more()
            less()
            # end
            bottom()
            # after
            x = 1
        """)
    assert rewrite(
        source, [Unwrap(stmt(source, "if n > 2:")), Remove(stmt(source, "more()"))]
    ) == source.replace("        if n > 2:\n            more()\n", "")


def test_unwrapping_what_cannot_be() -> None:
    source = "if a:\n    b\nelif c:\n    d\n"
    with pytest.raises(RewriteError, match="without else"):
        rewrite(source, [Unwrap(stmt(source, "if a:"))])
    source = "if a: b; c  # d\n"
    assert rewrite(source, [Unwrap(stmt(source, "if a: b; c"))]) == "b; c  # d\n"


def test_an_elif_that_is_unwrapped_is_an_else() -> None:
    source = "if a:\n    b\n# why\nelif c:  # how\n    # what\n    d\n"
    elif_ = Anchor(PATH, "stmt", Span(4, 0, 6, 5))
    assert rewrite(source, [Unwrap(elif_)]) == source.replace("elif c:", "else:")
    with pytest.raises(RewriteError, match="elif"):
        rewrite(source, [Remove(elif_)])


def test_an_argument_that_makes_a_line_long_gets_one_of_its_own() -> None:
    short = "x = f(first,\n      second=2, third=3)\n"
    long = short.replace("third=3", "third=" + 60 * "3")
    for source, gap in ((short, " "), (long, "\n      ")):
        edit = SetArgument(expr(source, source[4:-1]), "fourth", "name_of_it_which_is_long")
        assert rewrite(source, [edit]) == source.replace(")", f",{gap}fourth=name_of_it_which_is_long)")


def test_removing_and_unwrapping_the_same_if() -> None:
    source = "x\nif a:\n    b\ny\n"
    whole = stmt(source, "if a:")
    assert rewrite(source, [Unwrap(whole), Remove(stmt(source, "b"))]) == "x\ny\n"
    assert rewrite(source, [Remove(whole), Unwrap(whole), Remove(stmt(source, "b"))]) == "x\ny\n"
    source = "if launch():\n    b\ny\n"
    assert rewrite(source, [Unwrap(stmt(source, "if launch():")), Remove(stmt(source, "b"))]) == "y\n"


# -- imports

OWN = "from dp2ddp import runtime as ddp"
SAMPLER = "from torch.utils.data.distributed import DistributedSampler"


def added(source: str, *statements: str) -> str:
    return rewrite(source, [AddImport(PATH, it) for it in statements])


def test_our_import_is_a_block_of_its_own_after_the_last() -> None:
    source = "import os\n\nimport torch\nfrom torch.utils.data import DataLoader\nimport zoo\n\n\ndef main():\n    pass\n"
    assert added(source, OWN, SAMPLER, OWN) == (
        "import os\n\nimport torch\nfrom torch.utils.data import DataLoader\n"
        f"{SAMPLER}\nimport zoo\n\n{OWN}\n\n\ndef main():\n    pass\n"
    )
    assert added(added(source, OWN, SAMPLER), OWN, SAMPLER) == added(source, OWN, SAMPLER)
    assert added("import a\nx = 1\n", OWN) == f"import a\n\n{OWN}\n\nx = 1\n"
    assert added("import a\n\n" + OWN + "\n", "from dp2ddp import runtime") == (
        f"import a\n\n{OWN}\nfrom dp2ddp import runtime\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "{}\n"),
        ("x = 1\n", "{}\n\nx = 1\n"),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\n{}\n\nx = 1\n'),
        ("#!/usr/bin/python\n# license\n\nx = 1\n", "#!/usr/bin/python\n# license\n\n{}\n\nx = 1\n"),
        ("@a\ndef f(): pass\n", "{}\n\n@a\ndef f(): pass\n"),
        ("from __future__ import annotations\n", "from __future__ import annotations\n\n{}\n"),
        ("import a", "import a\n\n{}"),
        ("import a\r\n", "import a\r\n\r\n{}\r\n"),
        ("import a; b = '''\n'''\n", "import a; b = '''\n'''\n\n{}\n"),
        (
            "import sys\nsys.path.insert(0, 'x')\nimport b  # c\n\nx\n",
            "import sys\nsys.path.insert(0, 'x')\nimport b  # c\n\n{}\n\nx\n",
        ),
        (
            "import a\nDEBUG = 1\n\ndef f(): pass\nimport b\n",
            "import a\n\n{}\n\nDEBUG = 1\n\ndef f(): pass\nimport b\n",
        ),
        (
            "import a\ntry:\n    import b\nexcept ImportError:\n    b = None\n\nx\n",
            "import a\ntry:\n    import b\nexcept ImportError:\n    b = None\n\n{}\n\nx\n",
        ),
        ("import a\nddp.init()\nimport b\n", "import a\n\n{}\n\nddp.init()\nimport b\n"),
        (
            "import a\nif __name__ == '__main__':\n    import b\n",
            "import a\n\n{}\n\nif __name__ == '__main__':\n    import b\n",
        ),
        ("from a import (\n    b,\n    c,\n)\n", "from a import (\n    b,\n    c,\n)\n\n{}\n"),
    ],
)
def test_where_imports_stand(before: str, after: str) -> None:
    assert added(before, OWN) == after.format(OWN)


def test_an_import_inside_of_something_is_not_there() -> None:
    source = f"import a\n\n\ndef f():\n    {OWN}\n"
    assert added(source, OWN) == f"import a\n\n{OWN}\n\n\ndef f():\n    {OWN}\n"
    with pytest.raises(RewriteError, match="not an import"):
        added(source, "x = 1")


def dropped(source: str, *names: str) -> str:
    return rewrite(source, [DropImport(PATH, it) for it in names])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch.nn as nn\nx = 1\n", "x = 1\n"),
        ("import a\nimport nn  # gone\n\n\nx = 1\n", "import a\n\n\nx = 1\n"),
        ("import a\n\nimport nn\n\n\nx = 1\n", "import a\n\n\nx = 1\n"),
        ("# about\nimport nn\nimport a\n", "# about\nimport a\n"),
        ("from torch import nn, optim\n", "from torch import optim\n"),
        ("from torch import optim, nn  # both\n", "from torch import optim  # both\n"),
        ("from torch import (a, nn, b)\n", "from torch import (a, b)\n"),
        (
            "from torch import (\n    a,  # A\n    nn,\n    # own\n    b,\n)\n",
            "from torch import (\n    a,  # A\n    # own\n    b,\n)\n",
        ),
        ("from torch import (\n    a,\n    nn,\n)\n", "from torch import (\n    a,\n)\n"),
        ("from torch import (\n    a,\n    nn\n)\n", "from torch import (\n    a\n)\n"),
        ("import a, nn\r\n", "import a\r\n"),
        ("import nn; import b\n", "import b\n"),
        ("def f():\n    import nn\n    return 1\n", "def f():\n    return 1\n"),
        (
            "def f():\n    from a import nn, b\n    return 1\n",
            "def f():\n    from a import b\n    return 1\n",
        ),
        # it stays where anything may refer to it
        ("import nn\nx = nn.a\n", None),
        ("import nn\n__all__ = ['nn']\n", None),
        ("import nn\nx: 'nn.Module' = 1\n", None),
        ("import nn\ndef f(x):\n    # type: (nn.Module) -> None\n    pass\n", None),
        ("def f():\n    global nn\n    import nn\n", None),
        ("try:\n    import nn\nexcept ImportError:\n    pass\n", None),
        ("from nn import *\n", None),
        ("import torch.nn\n", None),
    ],
)
def test_dropping_imports(before: str, after: str | None) -> None:
    assert dropped(before, "nn") == (before if after is None else after)


def test_an_import_goes_when_the_edits_took_its_last_use() -> None:
    source = (
        "from torch import nn\nfrom torch.nn import DataParallel\n\nmodel = DataParallel(nn.Linear(1, 1))\n"
    )
    call = expr(source, "DataParallel(nn.Linear(1, 1))")
    edits = [
        Replace(call, "ddp.DistributedDataParallel({it})", {"it": expr(source, "nn.Linear(1, 1)")}),
        AddImport(PATH, OWN),
        DropImport(PATH, "DataParallel"),
        DropImport(PATH, "nn"),
    ]
    assert rewrite(source, edits) == (
        f"from torch import nn\n\n{OWN}\n\nmodel = ddp.DistributedDataParallel(nn.Linear(1, 1))\n"
    )


MIXED = """\
def scale(factor, values):
        for value in values:
            if factor == 2:
        \t    kernel = open(value)
        \t    if kernel:
        \t\t    kernel = None
            elif factor == 4:
                kernel = 8
        text = '''
        \tleft alone
\t'''
        return kernel
"""


def test_tabs_that_python_can_compare_and_libcst_cannot() -> None:
    with pytest.raises(cst.ParserSyntaxError):
        cst.parse_module(MIXED)
    at = stmt(MIXED, "kernel = open(value)")
    call = expr(MIXED, "open(value)")
    edits = [
        Insert(at, "wait()"),
        Replace(call, "read({call})", {"call": call}),
        Enclose(stmt(MIXED, "if kernel:"), stmt(MIXED, "if kernel:"), "with first():"),
    ]
    after = rewrite(MIXED, edits)
    assert ast.unparse(ast.parse(after)) == ast.unparse(ast.parse(rewrite(legacy.spaced(MIXED), edits)))
    untouched = [
        line
        for line in MIXED.splitlines()
        if "open" not in line and " = None" not in line and "if kernel" not in line
    ]
    assert [line for line in after.splitlines() if line in untouched] == untouched


TABBED = {
    "a statement of two lines": "if a:\n    b()\n    if c:\n\t    x = f('b',\n\t        d=1)\ny = 8\n",
    "blocks as deep elsewhere": "class A:\n    def f(self):\n        pass\n\n\nif a:\n    if c:\n\t    x = f()\n",
    "a string": "if a:\n    if c:\n\t    x = f('''\n\t    b\n     # c\n\tthere''')\n\t    z = 1\n",
    "a string that ends as a comment": "if a:\n    if c:\n\t    y = '''\n     # c'''\n\t    x = f()\n",
    "a line that goes on": "if a:\n    if c:\n\t    x = 1 + \\\n\t      f()\n\t    z = 1\n",
    "comments": "if a:\n    if c:\n\t    # one\n     # two\n\t    x = f()  # three\n\t    # four\n    z = 1\n",
    "blocks inside": "if a:\n    if c:\n\t    x = [f(\n  1)]; y = 2\n    if d:\n\t    if b:\n\t\t    z = 1\n",
    "tabs alone": "if a:\n\tb()\n\tif c:\n\t    x = f('''\n\t    ''')\n",
    "line ends of two characters": "if a:\r\n    if c:\r\n\t    x = f(1,\r\n\t  2)\r\n",
}


@pytest.mark.parametrize("name", TABBED)
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_put_round_lines_with_tabs_is_indented_as_they_are(name: str, whole: bool) -> None:
    text = TABBED[name]
    node = next(
        it for it in ast.walk(ast.parse(text)) if isinstance(it, ast.Assign) and it.targets[0].id == "x"
    )
    place = Anchor(PATH, "stmt", span_of(text, node))
    edits: list = [Enclose(place, place, "with first():"), Insert(place, "# said\nwait()")]
    if whole:
        call = next(it for it in ast.walk(node) if isinstance(it, ast.Call))
        at = Anchor(PATH, "expr", span_of(text, call))
        edits = [Enclose(place, place, "with first():"), Replace(at, "g({call})", {"call": at})]
    after = rewrite(text, edits)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(rewrite(legacy.spaced(text), edits)))
    (header,) = [it for it in after.splitlines() if "first()" in it]
    above = text.splitlines()[node.lineno - 1]
    assert header == above[: above.index("x")] + "with first():"
    (line,) = [it for it in after.splitlines() if "x = " in it]
    deeper = "\t" if name == "tabs alone" else "    "
    assert line.startswith(header[: header.index("with")] + deeper + "x = ")
