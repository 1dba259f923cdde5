"""A verification as one HTML page: no script, no network, pictures as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from dp2ddp.verify import losses
from dp2ddp.verify.causes import CAUSES
from dp2ddp.verify.report import headline, where
from dp2ddp.verify.run import loss_pairs, norm_pairs
from dp2ddp.verify.verdict import Result, Verdict

_WIDTH, _HEIGHT = 430, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 8, 26
_BEFORE, _AFTER, _APART = "#afb8c1", "#0969da", "#cf222e"
_COLOURS = {Verdict.MATCH: "#1a7f37", Verdict.DIFFERS: "#cf222e", Verdict.INCONCLUSIVE: "#9a6700"}
_STYLE = f"""
body {{ font: 15px/1.5 system-ui, sans-serif; color: #24292f; background: white; max-width: 56em;
  margin: 2em auto; padding: 0 1.5em; }}
h1 {{ font-size: 1.5em; margin-bottom: 0; }} h2 {{ font-size: 1.1em; margin: 1.6em 0 .5em; }}
h1 + p {{ margin-top: .3em; overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; width: 100%; }}
td {{ padding: .2em 1em .2em 0; vertical-align: top; overflow-wrap: anywhere; }}
td:first-child {{ width: 30%; }}
tr + tr td {{ border-top: 1px solid #d0d7de; }}
ul {{ margin: 0; padding-left: 1.2em; }}
pre {{ background: #f6f8fa; padding: 1em; overflow-x: auto; font-size: 12px; line-height: 1.4; }}
.add {{ color: #1a7f37; }} .del {{ color: #cf222e; }} .at {{ color: #6e7781; }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24em, 100%), 1fr)); gap: 1em 2em; }}
figure {{ margin: 0; }} svg {{ display: block; width: 100%; height: auto; }}
figcaption, footer {{ color: #57606a; font-size: .9em; }} footer {{ margin-top: 2em; }}
.before {{ border-bottom: 4px solid {_BEFORE}; }} .after {{ border-bottom: 2px solid {_AFTER}; }}
"""
_KEY = ": <span class='before'>before</span> and <span class='after'>converted</span>"


def page(result: Result) -> str:
    """The whole page."""
    parts = [
        f"<h1 style='color: {_COLOURS[result.verdict]}'>{escape(headline(result))}</h1>",
        f"<p><code>{escape(result.command)}</code></p>",
        *_differences(result),
        *_figures(result),
        *_rows("Compared", result.compared),
        *_list("Made equal for the comparison, so not tested", result.aligned),
        *_list("Not covered, or worth knowing", result.notes),
        *_diff(result.diff),
        _footer(result),
    ]
    body = "\n".join(parts)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{escape(headline(result))}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _differences(result: Result) -> list[str]:
    if not result.differences:
        return []
    first = result.differences[0]
    parts = [f"<p>{escape(first.detail)}</p>"]
    if first.cause in CAUSES:
        parts.append(f"<p><b>Usual cause:</b> {escape(CAUSES[first.cause])}</p>")
    rows = [(where(one), one.detail) for one in result.differences[1:6]]
    parts += _rows("Other differences", rows)
    if result.errors:
        parts.append(f"<pre>{escape(result.errors)}</pre>")
    return parts


def _rows(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    cells = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows)
    return [f"<h2>{escape(title)}</h2><table>{cells}</table>"]


def _list(title: str, texts: Sequence[str]) -> list[str]:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return [f"<h2>{escape(title)}</h2><ul>{items}</ul>"] if texts else []


def _diff(text: str) -> list[str]:
    if not text:
        return []
    kinds = {"+": "add", "-": "del", "@": "at"}
    lines = [
        f"<span class='{kinds[line[0]]}'>{escape(line)}</span>" if line[:1] in kinds else escape(line)
        for line in text.splitlines()
    ]
    return ["<h2>The diff</h2><pre>" + "\n".join(lines) + "</pre>"]


def _footer(result: Result) -> str:
    texts = [*(f"{name} {text}" for name, text in result.versions), f"{result.seconds:.0f} s"]
    return f"<footer>{escape(', '.join(texts))}</footer>"


# Pictures


def _figures(result: Result) -> list[str]:
    if not result.before or not result.after or not all(result.after):
        return []
    if len(result.before) > 1:
        mine = [[v for step in one.steps for v in step.losses if v is not None] for one in result.before]
        theirs = [losses.curve(ranks) for ranks in result.after]
        curves = [(_BEFORE, 4.0, one) for one in mine] + [(_AFTER, 1.5, one) for one in theirs]
        figures = [_figure(curves, "loss of each seed", _KEY)]
    else:
        before, after = result.before[0], result.after[0]
        figures = [
            *_pair(loss_pairs(before, after), "loss of each batch"),
            *_pair(norm_pairs(before, after), "norm of the gradients of each step"),
        ]
    return ["<h2>Losses and gradients</h2>", "<div class='figures'>", *figures, "</div>"]


def _pair(pairs: Sequence[tuple[float, float]], caption: str) -> list[str]:
    """The numbers of both programs one over the other, and their difference."""
    curves = [(_BEFORE, 6.0, [one for one, _ in pairs]), (_AFTER, 1.5, [other for _, other in pairs])]
    apart = [(_APART, 1.5, [abs(one - other) for one, other in pairs])]
    return [_figure(curves, caption, _KEY), _figure(apart, "their difference")]


def _figure(curves: Sequence[tuple[str, float, list[float]]], caption: str, key: str = "") -> str:
    """Curves over the steps, one over the other, as SVG."""
    values = [value for _, _, curve in curves for value in curve if math.isfinite(value)]
    if not values:
        return ""
    low, high = min(values), max(values)
    marks = ticks(low, high)
    if len(marks) == 1:
        low, high = low - 1.0, high + 1.0
    count = max(len(curve) for _, _, curve in curves)

    def x(place: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (place / max(1, count - 1))

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - (value - low) / (high - low))

    parts = []
    for value in marks:
        parts.append(
            f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y(value):.1f}' y2='{y(value):.1f}' stroke='#d8dee4'/>"
            f"<text x='{_LEFT - 8}' y='{y(value) + 4:.1f}' text-anchor='end'>{value:.4g}</text>"
        )
    for place in sorted({0, count // 2, count - 1}):
        parts.append(f"<text x='{x(place):.1f}' y='{_HEIGHT - 8}' text-anchor='middle'>{place + 1}</text>")
    for colour, width, curve in curves:
        points = " ".join(f"{x(p):.1f},{y(v):.1f}" for p, v in enumerate(curve) if math.isfinite(v))
        parts.append(
            f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='{width}' "
            "stroke-linejoin='round' stroke-linecap='round'/>"
        )
    drawing = "".join(parts)
    return (
        f"<figure><figcaption>{escape(caption)}{key}</figcaption>"
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' "
        f"font-family='sans-serif' font-size='11' fill='#57606a' role='img'><title>{escape(caption)}</title>"
        f"{drawing}</svg></figure>"
    )


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from ``low`` to ``high``, two to six; one alone where there is nothing between them."""
    if high - low < 1e-300:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / 5))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= (high - low) / 5)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
