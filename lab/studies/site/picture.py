"""README's picture: the figure that the report begins with, as an SVG that needs nothing from the network and is legible on white and on black."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from lab.analysis import evidence
from lab.model.metrics import about
from lab.studies.claims.judging import Verdict
from lab.studies.site.rows import step_rows, step_ticks
from lab.studies.steps import steps

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
    """Return the SVG of all steps by the ledger `judged`: a line for what is better, worse or the same; between them, thin and without its name, what nobody can tell."""
    drawn = [(row, row.strip) for row in step_rows(steps(evidence.references()[0], judged)) if row.strip]
    rows = sorted(drawn, key=lambda each: ORDER.index(each[0].kind))
    open_ = sum(row.kind == OPEN for row, _ in rows)
    height = TOP + LINE * (len(rows) - open_ + 2) + THIN * open_
    label = f"{len(rows)} tuning steps as measured, times better or worse, with 95 % intervals: {open_} cannot be told"
    svg = HEAD.format(width=WIDTH, height=height, label=label)
    for place, said in step_ticks():
        svg += f'<text class="faint" x="{_x(place)}" y="16" text-anchor="middle">{said}</text>\n'
        svg += f'<path class="axis" opacity="{1 if place == 50 else 0.25}" d="M{_x(place)} 24V{height - LINE}"/>\n'
    y, before = TOP, ""
    for row, strip in rows:
        step, thin = row.step, row.kind == OPEN
        if thin and before != OPEN:
            svg += f'<text class="faint" x="0" y="{y + THIN * open_ // 2 + 4}">{open_} steps of which nobody can tell here</text>\n'
        if not thin:
            title = step.title if len(step.title) <= LONG else f"{step.title[: LONG - 1]}…"
            told = f"{step.text.partition(' [')[0]} {about(step.metric).short} at {step.point}{step.on}"
            svg += f'<text x="0" y="{y + 8}">{escape(title)}</text>\n'
            svg += f'<text class="faint" x="{LABEL + AXIS + 20}" y="{y + 8}">{escape(told)}</text>\n'
        middle, width, size = (y + 1, 1, 1.5) if thin else (y + 4, 3, 4)
        svg += f'<g class="{row.kind}"><path stroke="currentColor" stroke-width="{width}" d="M{_x(strip.low)} {middle}H{_x(strip.high)}"/>'
        svg += f'<circle fill="currentColor" cx="{_x(strip.at)}" cy="{middle}" r="{size}"/></g>\n'
        for said in () if thin else strip.published:
            svg += f'<path class="said" stroke-width="1.5" d="M{_x(said)} {middle - 5}l5 5l-5 5l-5 -5z"/>\n'
        y, before = y + (THIN if thin else LINE), row.kind
    return f'{svg}<text class="faint" x="0" y="{height - 4}">bar: 95 % interval of one boot; diamond: as published. All of it with its runs: just report</text>\n</svg>\n'


def _x(place: float) -> float:
    return round(LABEL + AXIS * place / 100, 1)
