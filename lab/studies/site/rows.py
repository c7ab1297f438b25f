"""Steps and claims as rows of a page, and README's picture of them.

A row has what is said of each, what folds out, and its number with the interval as places on a short axis:

    Step(gain=(0.98, 0.97, 0.99), …)  →  Strip(at=71.3, low=71.1, high=71.5, zero=50.0, …)

Beside a number stands what was published, and where a claim wants it. Places are per cent of the axis from its left end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf, log

from lab.analysis import evidence
from lab.model.metrics import about
from lab.report.html.rendering import kind_of
from lab.studies.claims.judging import Verdict
from lab.studies.claims.measuring import Measured
from lab.studies.steps import Finding, Step, published_ratio, steps

ANSWERED: Mapping[str, tuple[str, str]] = {
    "apply": ("Yes", "better"),
    "worse": ("No, it does harm", "worse"),
    "mixed": ("It depends", "cannot-tell"),
    "same": ("No, nothing worth having", "same"),
    "differs": ("It is another system", "same"),
    "false": ("No", "same"),
    "unresolved": ("Cannot be told here", "cannot-tell"),
    "bimodal": ("It is one of two things", "cannot-tell"),
    "no-interval": ("Not measured enough", "cannot-tell"),
    "not-measurable": ("Cannot be shown here", "cannot-tell"),
    "not-steady": ("It does not hold its rate", "cannot-tell"),
    "instrument": ("It is there to measure by", "same"),
}
"""Kind of a verdict → the answer to a question whether a step helps, and its colour."""
SPAN = log(12.0)
"""How many times better or worse fits on the axis of all steps; what is more stands at its end."""


@dataclass(frozen=True, slots=True)
class Strip:
    """`low`, `high`: the interval; `zero`: no difference; `band`: where it should lie; `published`: what was said; `cut`: goes on beyond an end."""

    at: float
    low: float
    high: float
    zero: float | None = None
    band: tuple[float, float] | None = None
    published: tuple[float, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class StepRow:
    """`kind`: its decision as a class of CSS; `published`: the same effect as it was claimed, in words. `strip` is on the axis of all steps: times
    better to the right, worse to the left; None of a difference.
    """

    step: Step
    kind: str
    metric: str
    strip: Strip | None
    published: str


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """`strip` is of the first number that decides, `text` says it."""

    verdict: Verdict
    published: str
    strip: Strip | None
    text: str
    rest: str


def step_rows(found: Sequence[Step]) -> list[StepRow]:
    rows: list[StepRow] = []
    for step in found:
        metric, strip = about(step.metric), None
        if step.gain is not None:
            said = tuple(dict.fromkeys(_on_steps(step.gained(each.ratio)) for each in step.published))
            cut = max(map(abs, step.gain)) > SPAN
            strip = Strip(*map(_on_steps, step.gain), zero=50.0, published=said, cut=cut)
        told = ", ".join(dict.fromkeys(f"{metric.change(log(each.ratio))} ({each.claim})" for each in step.published))
        rows.append(StepRow(step, kind_of(step.decision.value), metric.title, strip, told))
    return rows


def claim_row(verdict: Verdict) -> ClaimRow:
    parts = [part for found in verdict.findings for part in found.measured if part.test.bounded]
    parts = [part for part in parts if part.value is not None]
    deciding = next((part for part in parts if part.holds is False), next(iter(parts), None))
    strip, text = None, ""
    if deciding is not None:
        strip, text = place_measured(deciding, published_ratio(verdict, deciding)), deciding.text
    rest = "; ".join(filter(None, [verdict.effect if verdict.effect != text else "", verdict.why]))
    return ClaimRow(verdict, verdict.claim.value, strip, text or verdict.why, rest)


def answered(finding: Finding) -> tuple[str, str]:
    """(the answer in words, its colour)"""
    return ANSWERED[finding.verdict.kind] if finding.boots.agree else ("It depends on the boot", "cannot-tell")


def step_ticks() -> list[tuple[float, str]]:
    """(place, label); which side is which is said at both ends."""
    ticks = {-10: "10× worse", -3: "3×", 1: "no change", 3: "3×", 10: "10× better"}
    return [(_on_steps(log(abs(times)) * (1 if times > 0 else -1)), label) for times, label in ticks.items()]


def _on_steps(gain: float) -> float:
    return round(50 + 50 * max(-1.0, min(1.0, gain / SPAN)), 2)


def place_measured(part: Measured, published: float | None) -> Strip | None:
    """On an axis of its own, from 0 for a level, about 1 for a ratio (a logarithm), about 0 for a difference. None without an interval."""
    if part.value is None or part.low is None or part.high is None:
        return None
    test = part.test
    wanted = test.within or ((-inf if test.above is None else test.above), (inf if test.below is None else test.below))
    marks = [
        part.low,
        part.value,
        part.high,
        *(each for each in (*wanted, published) if each is not None and abs(each) < inf),
    ]
    if test.ratio_to is not None and min(marks) > 0:
        span = 1.15 * max(log(1.1), *(abs(log(each)) for each in marks))
        places = [50 + 50 * log(each) / span for each in marks[:3]]
        ends = [50 + 50 * log(each) / span if 0 < each < inf else (0.0 if each <= 0 else 100.0) for each in wanted]
        zero, said = 50.0, None if published is None else 50 + 50 * log(published) / span
    else:
        least, most = min(0.0, *marks), max(0.0, *marks)
        width = 1.1 * (most - least) or 1.0
        least -= 0.05 * width if least < 0 else 0.0
        places = [100 * (each - least) / width for each in marks[:3]]
        ends = [
            max(0.0, min(100.0, 100 * (each - least) / width)) if abs(each) < inf else (0.0 if each < 0 else 100.0)
            for each in wanted
        ]
        zero, said = 100 * -least / width, None
    low, at, high = (round(each, 1) for each in places)
    band = (round(ends[0], 1), round(ends[1], 1)) if test.bounded else None
    return Strip(at, low, high, round(zero, 1), band, () if said is None else (round(said, 1),))


# -- README's picture: an SVG that needs nothing from the network and is legible on white and on black ----------

WIDTH, LABEL, AXIS = 980, 350, 330
"""Pixels: of the whole, of what is written on the left, of the axis between."""
LINE, THIN, TOP = 17, 4, 34
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
            title = step.title if len(step.title) <= 50 else f"{step.title[:49]}…"  # for so much there is room
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
