"""Numbers in lines of text: which are results, and whether they are the same in two programs' lines."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dp2ddp.verify import losses
from dp2ddp.verify.notes import Notes

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan\b|inf\b)")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T_ ]\d\d[:-]\d\d(?:[:-]\d\d)?(?:[.,]\d+)?)?|\d\d/\d\d/\d{2,4}|\d\d\d\d/\d\d/\d\d"
    r"|\b(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?) +\d+\b"
    r"|\d+(?:: ?\d+)+(?:[.,]\d+)?"
    r"|(?:\d+(?:\.\d+)?(?:ms|[Ddhms])(?![A-Za-z]))+"
    r"|\d+(?:\.\d+)?\s*(?:\[(?:ms|s|min|h)\]|(?:ms|s|secs?|seconds?|min|minutes?|hours?)\b)(?:/[A-Za-z]+\b)?"
    r"|\d+(?:\.\d+)?[kM]?\s*[A-Za-z]+(?: ?/ ?| per )(?:s|sec|second|min|minute|h|hour)\b"
    r"|\d+(?:\.\d+)?\s*(?:[kMG]?Hz|fps|FPS)\b"
    r"|\d+(?:\.\d+)?\s*[kKMGT](?:i?B|ib|b)\b"
)
"""Of a run: times, rates and memory."""
_NAME = re.compile(r"\b0x[0-9a-fA-F]{6,}\b|(?<![A-Za-z0-9])tmp[a-z0-9_]{8}(?![A-Za-z0-9_])")
"""Addresses of objects, and names of temporary folders and files."""
_GPU = re.compile(r"(?<=\bcuda):\d+\b")
"""Which one it is: ``cuda`` is the current one, as the first is where one process has all."""
_DEVICE = re.compile(r"\bdevice\(type=('\w+')(?:, index=\d+)?\)")
"""As Python shows it within something else, where another program shows its name."""
_RATE = re.compile(r"(?:/ ?|(?<![A-Za-z])per[ _])s(?![A-Za-z])")
_CLOCK = frozenset(
    "time times data bt dt timestamp date duration elapsed eta took second seconds sec secs minutes hours latency "
    "ms speed throughput fps ips hz memory mem vram rss pid host hostname port".split()
)
"""Words for what is another in every run."""
_TRAINING = frozenset("train training tr".split())
_TESTING = frozenset("test testing val valid validation eval evaluation dev".split())
_METRIC = frozenset("best acc accuracy top prec precision recall miou iou map auc score err error".split())
_DAY = 86400.0


@dataclass(frozen=True)
class Number:
    """A number in a line of text, and what it is said to be."""

    text: str
    words: frozenset[str]
    """Those right before it."""
    splits: tuple[str, ...]
    """The words before it in its part of the line."""

    @property
    def is_clock(self) -> bool:
        """Whether it is a time, or what else differs from run to run."""
        value = float(self.text)
        is_now = any(abs(value / unit - time.time()) < _DAY for unit in (1, 1e3, 1e6, 1e9))
        return is_now or is_clock(self.words)

    @property
    def trains(self) -> bool:
        """Whether it is said to be about training."""
        return trains(self.splits)

    @property
    def is_result(self) -> bool:
        """Whether it is said to be of an evaluation."""
        return not self.trains and any(word in _TESTING | _METRIC for word in self.splits)


def is_clock(said: Iterable[str]) -> bool:
    """Whether words are said of a time, or of what else differs from run to run."""
    return any(word in _CLOCK or word.endswith(("time", "times")) for word in said)


def trains(said: Sequence[str]) -> bool:
    """Whether words are said of training: the last ones count."""
    last = next((word for word in reversed(said) if word in _TRAINING | _TESTING), None)
    return last in _TRAINING


def masked(line: str) -> str:
    """A line without its times and numbers: what stays the same from run to run."""
    return _NUMBER.sub("#", _TIME.sub("T", unnamed(line)))


def unnamed(text: str) -> str:
    """A text without the names that every run makes anew, and the numbers of GPUs."""
    return _GPU.sub("", _DEVICE.sub(r"\1", _NAME.sub("N", text)))


def counted(line: str) -> str:
    """A line without its times and numbers, but for whole ones: those that count, also as ``[1: 4/5]`` does."""
    line = _TIME.sub(lambda found: found[0] if re.fullmatch(r"\d+: \d+", found[0]) else "T", unnamed(line))
    return _NUMBER.sub(lambda found: found[0] if found[0].isdigit() else "#", line)


def numbers(line: str) -> list[Number]:
    """The numbers of a line that are no times."""
    line = _TIME.sub("T", unnamed(line))
    found, end, part = [], 0, 0
    last = frozenset[str]()
    for match in _NUMBER.finditer(line):
        between = line[end : match.start()]
        end = match.end()
        if "," in between:
            part = match.start() - len(between.rpartition(",")[2])
        last = frozenset(words(between)) or last
        found.append(Number(match[0], last, tuple(words(line[part : match.start()]))))
    return found


def words(text: str) -> list[str]:
    """The words of a text, in lower case; a name's, too."""
    spelled = _RATE.sub(" per second", text)
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", spelled)]


def same(one: str, other: str, tolerance: float) -> bool:
    """Whether two printed numbers are one, to their last digit or to ``tolerance``."""
    first, second = float(one), float(other)
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    unit = min(_unit(one), _unit(other))
    return first == second or abs(first - second) <= max(1.01 * unit, tolerance * abs(first) if unit else 0.0)


def _unit(number: str) -> float:
    """What the last digit of a printed number stands for; 0 for whole numbers."""
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0


@dataclass(frozen=True)
class Training:
    """What a script may print of its training losses: their means and sums since any step, and themselves."""

    before: Sequence[float]
    after: Sequence[float]

    @staticmethod
    def of(before: Notes, after: Sequence[Notes]) -> Training:
        """Those of the original; and of the converted program's main process, and of its whole batches."""
        theirs = [*_training_numbers(after[0]), *_training_numbers(after[0], losses.curve(after))]
        return Training(_training_numbers(before), theirs)

    def has(self, one: str, other: str) -> bool:
        """Whether two numbers are the same thing of both programs: of the whole batch, and of a part."""
        return _is_among(one, self.before) and _is_among(other, self.after)


def pairs(one: str, other: str) -> Iterator[tuple[Number, Number]]:
    """The numbers of two lines that are the same otherwise."""
    if masked(one) == masked(other):
        yield from zip(numbers(one), numbers(other), strict=True)


def _training_numbers(notes: Notes, curve: Sequence[float] | None = None) -> list[float]:
    values = [v for v in (notes.losses if curve is None else curve) if math.isfinite(v)]
    found = list(values)
    ends = sorted({step for step, _, evaluated in notes.lines if evaluated} | {len(values)})
    for start in [0, *ends]:
        for end in ends:
            part = values[start:end]
            if part:
                found += [sum(part) / len(part), sum(part)]
    return found


def _is_among(printed: str, known: Sequence[float]) -> bool:
    digits = len(printed.partition(".")[2].partition("e")[0])
    return digits > 0 and any(
        abs(float(printed) - number) <= max(0.51 * 10.0**-digits, 1e-6 * abs(number)) for number in known
    )
