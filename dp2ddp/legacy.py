"""Python from before 3.7: what keeps a file from being parsed today, and how that is written now.

Neither ``ast`` nor libcst reads such a file, so this works with tokens. A mend changes some characters within one line:
lines keep their numbers, and everything else stays as it is, strings and comments included.

- ``x.cuda(async=True)``: as the name of an argument ``async`` became ``non_blocking``, with which PyTorch renamed it. A
  parameter or variable called so is renamed alike, and an attribute is asked for by ``getattr``.
- Tabs mixed with spaces: Python 2 read a tab as going on to the next multiple of 8. Lines that Python 3 can't compare
  with those of their block are indented as these are.

Python 2's own syntax is not mended: such code means other things too, by ``/`` for instance.
"""

from __future__ import annotations

import ast
import keyword
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

TAB = 8
"""Columns between the stops of a tab, as Python 2 counted them."""
OTHER_TAB = 4
"""What editors show instead."""
KEYWORD, NOW = "async", "non_blocking"

TO_PYTHON_3 = "python -m pip install fissix && python -m fissix -w -n"
"""The command that mends a file of Python 2, without the file's name."""

LINES = re.compile("\r\n|\r|\n")
_TOKEN = re.compile(
    r"""
      (?P<comment> \#[^\r\n]* )
    | (?P<string> (?i:[bfru]{0,3}) (?: \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3}
                                     | \"(?:\\(?:\r\n|.)|[^"\\\r\n])*\" | '(?:\\(?:\r\n|.)|[^'\\\r\n])*' ) )
    | (?P<blank> [ \t\f]+ | \\(?:\r\n|\r|\n) )
    | (?P<end> \r\n|\r|\n )
    | (?P<word> \w+ )
    | (?P<sign> (?: \*\*|//|>>|<<|[-+*/%&|^@<>=!:] )= | . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Kind(Enum):
    """What is written otherwise."""

    ARGUMENT = "the name of an argument"
    NAME = "a name"
    ATTRIBUTE = "an attribute"
    INDENTATION = "tabs mixed with spaces"
    REMOVED = "what a library no longer has"


@dataclass(frozen=True)
class Mend:
    """Other characters for some of a line: lines count from 1, columns from 0 in characters, the end is exclusive."""

    line: int
    start: int
    end: int
    after: str
    kind: Kind = Kind.REMOVED


def ordered(mends: Iterable[Mend]) -> tuple[Mend, ...]:
    """Mends in the order of the text."""
    return tuple(sorted(mends, key=lambda mend: (mend.line, mend.start, mend.end)))


def mended(text: str, mends: Iterable[Mend]) -> str:
    """A text after its mends, which don't overlap."""
    starts, found, done = _starts(text), [], 0
    for mend in ordered(mends):
        begin = starts[mend.line - 1]
        found += [text[done : begin + mend.start], mend.after]
        done = begin + mend.end
    return "".join([*found, text[done:]])


def unmended(place: Mend, mends: Iterable[Mend]) -> Mend:
    """A mend of a mended text as one of the text before: together they make of that what both make in turn."""
    before, shifts = ordered(it for it in mends if it.line == place.line), []
    for column in (place.start, place.end):
        shift = 0
        for mend in before:
            if column < mend.start + shift + len(mend.after):
                break
            shift += len(mend.after) - (mend.end - mend.start)
        shifts.append(shift)
    return Mend(place.line, place.start - shifts[0], place.end - shifts[1], place.after, place.kind)


def mends(text: str) -> tuple[Mend, ...]:
    """What would have a text parsed by Python 3.7 and later; empty where that can't be told."""
    tokens = list(_tokens(text))
    return ordered([*(_keywords(text, tokens) or ()), *_indentation(text, tokens)])


def reason(error: SyntaxError | ValueError, text: str, name: str = "FILE") -> str:
    """Why a text from before Python 3.7 can't be parsed, and what mends the file; empty for other texts."""
    message = getattr(error, "msg", None) or str(error)
    lines = LINES.split(text)
    number = getattr(error, "lineno", None) or 0
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    if isinstance(error, TabError):
        tab = next((tab for tab, tree in _readings(text, list(_tokens(text))).items() if tree), TAB)
        command = f"expand -i -t {tab} {name} > new && mv new {name}"
        return f"tabs are mixed with spaces, which Python 3 can't compare; `{command}` takes a tab for {tab} columns"
    if re.search(rf"\b{KEYWORD}\b", re.sub(r"#.*", "", line)):
        return f"`{KEYWORD}` is a keyword since Python 3.7, and a name here: give it another one"
    for pattern, what in _PYTHON_2.items():
        if re.search(pattern, message) or re.search(pattern, line):
            return f"Python 2 code: {what}; `{TO_PYTHON_3} {name}` rewrites it"
    return ""


_PYTHON_2 = {
    r"^Missing parentheses in call to '?(print|exec)": "print and exec are functions since Python 3",
    r"^\s*(?:\w.*:\s*)?(?:print|exec)\s+[^=\s(.]": "print and exec are functions since Python 3",
    r"^\s*except\s+[^:]+,\s*\w+\s*:": "since Python 3 it is `except … as name`",
    r"^multiple exception types must be parenthesized": "since Python 3 it is `except … as name`",
    r"^\s*(?:\w.*:\s*)?raise\s+[\w.]+\s*,": "since Python 3 it is `raise Error(message)`",
    r"^leading zeros in decimal integer literals": "octal numbers are written 0o755 since Python 3",
    r"^invalid (?:decimal literal|token)$|\b\d+[lL]\b": "numbers have no L since Python 3",
    r"`[^`]+`": "backquotes are repr() since Python 3",
    r"<>": "`<>` is `!=` since Python 3",
    r"\b[uU][rR]['\"]": "strings have no ur since Python 3",
}


# Tokens


@dataclass(frozen=True)
class _Token:
    """A word, a sign, a string, or the end of a logical line, by its place in the text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of a text, without comments, blanks and line ends inside brackets or of empty lines."""
    depth, ended = 0, True
    for match in _TOKEN.finditer(text):
        kind, token = str(match.lastgroup), match.group()
        if kind in ("comment", "blank") or (kind == "end" and (depth or ended)):
            continue
        depth = max(depth + (token in ("(", "[", "{")) - (token in (")", "]", "}")), 0)
        ended = kind == "end"
        yield _Token(kind, token, match.start())


def _starts(text: str) -> list[int]:
    return [0, *(match.end() for match in LINES.finditer(text))]


def _place(starts: Sequence[int], start: int, end: int) -> tuple[int, int, int] | None:
    """Line and columns of a range; None where it goes over several lines."""
    line = bisect_right(starts, start)
    same = line == len(starts) or end <= starts[line]
    return (line, start - starts[line - 1], end - starts[line - 1]) if same else None


# async


class _Unmendable(Exception):
    """A keyword is used as a name in a way that is left to a person."""


def _keywords(text: str, tokens: Sequence[_Token]) -> list[Mend] | None:
    """What becomes of ``async`` where it is no keyword; None where it can't become anything."""
    if not any(token.text == KEYWORD and token.kind == "word" for token in tokens):
        return []
    starts, found = _starts(text), []
    try:
        for start, end, after, kind in _Names(text, tokens).mends():
            place = _place(starts, start, end)
            if place is None:
                raise _Unmendable
            found.append(Mend(*place, after, kind))
    except _Unmendable:
        return None
    return found


class _Names:
    """Goes through the tokens of a file, and says what each ``async`` is there."""

    def __init__(self, text: str, tokens: Sequence[_Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.first, self.column = 0, 0  # where the logical line begins
        self.brackets: list[str] = []  # those that are open: of a "call", "def", "class", "lambda" or "other"
        self.blocks: list[tuple[int, str]] = []  # the classes and functions around, by their columns

    def mends(self) -> Iterator[tuple[int, int, str, Kind]]:
        """Ranges of the text and what they become."""
        renamed = taken = False
        line = 0
        for index, token in enumerate(self.tokens):
            if token.kind == "end":
                line = index + 1
                self.brackets = []
                continue
            if index == line:
                self._begin(index)
            if token.text == KEYWORD and token.kind == "word" and not self._is_keyword(index):
                if self._text(index - 1) == ".":
                    yield from self._attribute(index)
                elif self._is_argument(index):
                    yield token.start, token.end, NOW, Kind.ARGUMENT
                else:
                    self._check_name(index)
                    renamed = True
                    yield token.start, token.end, NOW, Kind.NAME
            elif token.text == NOW and not self._is_argument(index) and self._text(index - 1) != ".":
                taken = True
            self._follow(index)
        if renamed and taken:
            raise _Unmendable

    def _text(self, index: int) -> str:
        """A token of the same logical line, else nothing."""
        inside = 0 <= index < len(self.tokens) and self.tokens[index].kind != "end"
        return self.tokens[index].text if inside else ""

    def _begin(self, index: int) -> None:
        """A logical line begins: which class or function is it in?"""
        self.first = index
        self.column = _columns(_indent(self.text, self.tokens[index]))
        while self.blocks and self.blocks[-1][0] >= self.column:
            self.blocks.pop()

    def _follow(self, index: int) -> None:
        """Keep track of brackets, parameters of lambdas and blocks."""
        token, before = self.tokens[index], self.tokens[index - 1] if index else None
        if token.kind not in ("word", "sign"):
            return
        if token.text == "(":
            word = before is not None and before.kind == "word" and self._text(index - 1)
            header = self._text(index - 2) if word else ""
            called = word and not keyword.iskeyword(str(word))
            after = before is not None and (before.text in (")", "]", "}") or before.kind == "string")
            kind = header if header in ("def", "class") else "call" if called or after else "other"
            self.brackets.append(kind)
        elif token.text in ("[", "{"):
            self.brackets.append("other")
        elif token.text == "lambda":
            self.brackets.append("lambda")
        elif token.text in (")", "]", "}", ":"):
            if self.brackets and (token.text != ":" or self.brackets[-1] == "lambda"):
                self.brackets.pop()
        elif token.text in ("def", "class"):
            self.blocks.append((self.column, token.text))

    def _is_keyword(self, index: int) -> bool:
        return self._text(index + 1) in ("def", "for", "with")

    def _is_argument(self, index: int) -> bool:
        """Whether a word names an argument of a call."""
        called = bool(self.brackets) and self.brackets[-1] == "call"
        return called and self._text(index - 1) in ("(", ",") and self._text(index + 1) == "="

    def _check_name(self, index: int) -> None:
        """A name may be changed where nobody asks for it from elsewhere: not what a module or a class holds."""
        before, first = self._text(index - 1), self._text(self.first)
        defined = before in ("def", "class") or first in ("from", "import", "global", "nonlocal")
        in_class = bool(self.brackets) and self.brackets[-1] == "class"
        in_method = first in ("def", "@") or self._is_keyword(self.first)
        held = bool(self.blocks) and self.blocks[-1][1] == "class" and not in_method
        if defined or in_class or held:
            raise _Unmendable

    def _attribute(self, index: int) -> Iterator[tuple[int, int, str, Kind]]:
        """``x.y.async`` is ``getattr(x.y, "async")``, and what is assigned to it is set so."""
        start = index - 2
        while self._text(start - 1) == ".":
            start -= 2
        names = [self._text(at) for at in range(start, index - 1)]
        before, after = self._text(start - 1), self._text(index + 1)
        words = all(name.isidentifier() for name in names[::2])
        if not words or self._text(self.first) in ("from", "import", "del") or before in ("for", "as"):
            raise _Unmendable
        begin, end = self.tokens[start].start, self.tokens[index].end
        owner = "".join(names)
        if after == "=" and not self.brackets:
            if start != self.first and before not in (";", ":"):
                raise _Unmendable
            last = self._value(index + 2)
            yield begin, self.tokens[index + 1].end, f'setattr({owner}, "{KEYWORD}",', Kind.ATTRIBUTE
            yield last.end, last.end, ")", Kind.ATTRIBUTE
        elif after.endswith("=") and after not in ("==", "!=", "<=", ">=") and after != "=":
            raise _Unmendable
        else:
            yield begin, end, f'getattr({owner}, "{KEYWORD}")', Kind.ATTRIBUTE

    def _value(self, index: int) -> _Token:
        """The last token of a single value that a statement assigns."""
        depth, at = 0, index
        while (text := self._text(at)) and (depth or text != ";"):
            if not depth and text in ("=", ",", "yield"):
                raise _Unmendable
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            at += 1
        if at == index:
            raise _Unmendable
        return self.tokens[at - 1]


# Indentation


def _indentation(text: str, tokens: Sequence[_Token]) -> list[Mend]:
    """Other indentation for the lines that Python 3 can't compare with those of their block."""
    found = list(_aligned(list(_levels(text, tokens))))
    if not found or not _is_one_reading(text, tokens):
        return []
    starts = _starts(text)
    return [_indented(starts, *one) for one in found]


def _indented(starts: Sequence[int], start: int, was: str, now: str) -> Mend:
    line = bisect_right(starts, start)
    column = start - starts[line - 1]
    return Mend(line, column, column + len(was), now, Kind.INDENTATION)


def _levels(text: str, tokens: Sequence[_Token]) -> Iterator[tuple[int, str]]:
    """Where each logical line begins, and what it is indented by."""
    ended = True
    for token in tokens:
        if ended:
            indent = _indent(text, token)
            yield token.start - len(indent), indent
        ended = token.kind == "end"


def _indent(text: str, token: _Token) -> str:
    """What stands before a token in its line, since the last form feed."""
    start = max(text.rfind(end, 0, token.start) for end in "\n\r\f") + 1
    return text[start : token.start]


def _aligned(levels: Sequence[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """The lines to be indented otherwise: where they begin, by what they are indented, and by what they should be."""
    blocks = [("", "")]
    for start, was in levels:
        column = _columns(was)
        while _columns(blocks[-1][0]) > column:
            blocks.pop()
        outer, now = blocks[-1]
        if _columns(outer) < column:
            fits = was.startswith(now)
            added = " " * (column - _columns(now))
            blocks.append((was, was if fits else now + added))
            outer, now = blocks[-1]
        if _columns(outer) == column and was != now:
            yield start, was, now


def _columns(indent: str, tab: int = TAB) -> int:
    return len(indent.expandtabs(tab))


def spaced(text: str) -> str:
    """A text with one space for each tab that its lines begin with, those inside of strings left as they are."""
    starts = _starts(text)
    levels = [(start, was) for start, was in _levels(text, list(_tokens(text))) if "\t" in was]
    return mended(text, (_indented(starts, start, was, was.replace("\t", " ")) for start, was in levels))


def indentations(text: str) -> dict[int, str]:
    """What each logical line is indented by, by the line that it begins on, from 0."""
    starts = _starts(text)
    return {bisect_right(starts, start) - 1: indent for start, indent in _levels(text, list(_tokens(text)))}


def _is_one_reading(text: str, tokens: Sequence[_Token]) -> bool:
    """Whether blocks are the same with narrower tabs, or are no blocks at all then: else nobody knows what is meant."""
    readings = _readings(text, tokens)
    return readings[OTHER_TAB] in ("", readings[TAB])


def _readings(text: str, tokens: Sequence[_Token]) -> dict[int, str]:
    """What a text says with tabs of so many columns; nothing where that is no Python."""
    starts, keywords = _starts(text), _keywords(text, tokens) or ()
    levels = list(_levels(text, tokens))
    found = {}
    for tab in (TAB, OTHER_TAB):
        expanded = [_indented(starts, start, was, " " * _columns(was, tab)) for start, was in levels]
        try:
            found[tab] = ast.dump(ast.parse(mended(text, [*expanded, *keywords])))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found[tab] = ""
    return found
