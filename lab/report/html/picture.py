"""README's picture: the figure that the report begins with, as an SVG that needs nothing from the network and is legible on white and on black."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from lab.analysis.claims import evidence
from lab.analysis.claims.judging import Verdict
from lab.analysis.steps import steps
from lab.model.metrics import about
from lab.report.html.rows import StepRow, step_rows
from lab.report.strips import Strip, step_ticks

WIDTH, LABEL, AXIS = 980, 350, 330
"""Pixels: of the whole, of what is written on the left, of the axis between."""
LINE, THIN, TOP = 17, 4, 34
LONG = 50
"""Characters of a step's title that have room."""
OPEN = "cannot-tell"
ORDER = ("better", "same", OPEN, "worse")
"""From top to bottom; each by what it gained."""
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 12px system-ui, sans-serif; fill: #1d1d1f }} .faint {{ fill: #646468 }} .axis {{ stroke: #7b7b7b }} .said {{ fill: #ffffff; stroke: #1d1d1f }}
.better {{ color: #1c7c3a }} .worse {{ color: #b42318 }} .same, .cannot-tell {{ color: #8a8a90 }}
@media (prefers-color-scheme: dark) {{ svg {{ background: #111113 }} text {{ fill: #e9e9ec }} .faint {{ fill: #a0a0a6 }} .said {{ fill: #111113; stroke: #e9e9ec }}
.better {{ color: #6fce8b }} .worse {{ color: #ff8f84 }} }}
</style>
"""


def picture(judged: Sequence[Verdict]) -> str:
    """`judged`: the ledger. A line for what is better, worse or the same; what nobody can tell is drawn thin between them, without its name."""
    drawn = [row for row in step_rows(steps(evidence.references()[0], judged)) if row.strip]
    rows = sorted(drawn, key=lambda row: ORDER.index(row.kind))
    open_ = sum(row.kind == OPEN for row in rows)
    height = TOP + LINE * (len(rows) - open_ + 2) + THIN * open_
    label = f"{len(rows)} tuning steps as measured, times better or worse, with 95 % intervals: {open_} cannot be told"
    return "".join([HEAD.format(width=WIDTH, height=height, label=label), *_drawn(rows, height, open_), "</svg>\n"])


def _drawn(rows: Sequence[StepRow], height: int, open_: int) -> Iterator[str]:
    for place, said in step_ticks():
        yield f'<text class="faint" x="{_x(place)}" y="16" text-anchor="middle">{said}</text>\n'
        yield f'<path class="axis" opacity="{1 if place == 50 else 0.25}" d="M{_x(place)} 24V{height - LINE}"/>\n'
    y = TOP
    for number, row in enumerate(rows):
        thin = row.kind == OPEN
        if thin and rows[number - 1].kind != row.kind:
            yield f'<text class="faint" x="0" y="{y + THIN * open_ // 2 + 4}">{open_} steps of which nobody can tell here</text>\n'
        if row.strip:
            yield from _row(row, row.strip, y)
        y += THIN if thin else LINE
    yield f'<text class="faint" x="0" y="{height - 4}">bar: 95 % interval of one boot; diamond: as published. All of it with its runs: just report</text>\n'


def _row(row: StepRow, strip: Strip, y: int) -> Iterator[str]:
    step, thin = row.step, row.kind == OPEN
    middle = y + 1 if thin else y + 4
    if not thin:
        title = step.title if len(step.title) <= LONG else f"{step.title[: LONG - 1]}…"
        yield f'<text x="0" y="{y + 8}">{escape(title)}</text>\n'
        said = f"{step.text.partition(' [')[0]} {about(step.metric).short} at {step.point}{step.on}"
        yield f'<text class="faint" x="{LABEL + AXIS + 20}" y="{y + 8}">{escape(said)}</text>\n'
    size = 1.5 if thin else 4
    yield f'<g class="{row.kind}"><path stroke="currentColor" stroke-width="{1 if thin else 3}" d="M{_x(strip.low)} {middle}H{_x(strip.high)}"/>'
    yield f'<circle fill="currentColor" cx="{_x(strip.at)}" cy="{middle}" r="{size}"/></g>\n'
    for said in () if thin else strip.published:
        yield f'<path class="said" stroke-width="1.5" d="M{_x(said)} {middle - 5}l5 5l-5 5l-5 -5z"/>\n'


def _x(place: float) -> float:
    return round(LABEL + AXIS * place / 100, 1)
