"""The rows of the report about tuning steps and claims, and the picture of the findings in the main README.

A row has a sentence, details that can be opened, and a measured number with its interval as positions on a short axis:

    TuningStep(gain=(0.98, 0.97, 0.99), …)  →  Strip(at=69.72, low=69.52, high=69.92, zero=50.0, …)

The axis also has marks for the published numbers and for the bounds of the claim. Positions are in per cent of the axis from its
left end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf, log

from lab.analysis import evidence
from lab.model.metrics import find_metric
from lab.report.html.rendering import css_class_of
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.claims.measuring import MeasuredTest
from lab.studies.steps import StepFinding, TuningStep, list_findings, list_steps, read_published_ratio

ANSWERS_BY_KIND: Mapping[str, tuple[str, str]] = {
    "apply": ("Yes", "better"),
    "worse": ("No, it does harm", "worse"),
    "mixed": ("It depends", "inconclusive"),
    "equivalent": ("No, it changes nothing that matters", "equivalent"),
    "better-system": ("Yes", "better"),
    "worse-system": ("No", "worse"),
    "false": ("No", "equivalent"),
    "inconclusive": ("Inconclusive here", "inconclusive"),
    "bimodal": ("It is one of two things", "inconclusive"),
    "no-interval": ("Not measured enough", "inconclusive"),
    "not-measurable": ("Cannot be shown here", "inconclusive"),
    "not-steady": ("It does not hold its rate", "inconclusive"),
    "instrument": ("It is there to measure by", "equivalent"),
}
"""The kind of a verdict → the answer to the question whether a step helps, and its colour."""
AXIS_END = log(12.0)
"""The end of the common axis of all steps, as a log-ratio; larger effects are drawn at the end."""


@dataclass(frozen=True, slots=True)
class Strip:
    """The positions at which a measured number and its interval are drawn on an axis, in per cent of the axis from its left end.

    Attributes:
        at: The position of the value.
        low: The position of the interval's lower end.
        high: The position of the interval's upper end.
        zero: The position that means no difference; None: the axis does not contain it.
        band: Both ends of the range in which a claim says that the value lies; None: there is none.
        published: The positions of the published values.
        cut: Whether the interval continues beyond an end of the axis.

    """

    at: float
    low: float
    high: float
    zero: float | None = None
    band: tuple[float, float] | None = None
    published: tuple[float, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of the report about a tuning step (a variant against its baseline at a load point).

    Attributes:
        step: The step.
        kind: The CSS class of the step's decision, for example `better`.
        metric: The metric's title.
        strip: The effect on the common axis of all steps, better to the right and worse to the left; None for an effect that is no ratio or
            has no interval.
        published: The sizes of this effect that claims published, in words.

    """

    step: TuningStep
    kind: str
    metric: str
    strip: Strip | None
    published: str


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A row of the report about a published claim.

    Attributes:
        verdict: The claim's verdict.
        published: The published value with its unit.
        strip: The positions of the measured number that decides; None: there is none with an interval.
        text: That number in words; without it, the reason for the verdict.
        rest: Further effects and reasons in words.

    """

    verdict: ClaimVerdict
    published: str
    strip: Strip | None
    text: str
    rest: str


def make_step_rows(measured: Sequence[TuningStep]) -> list[StepRow]:
    """Return one row of the report for each tuning step (a variant against its baseline at a load point), in the given order."""
    rows: list[StepRow] = []
    for step in measured:
        metric, strip = find_metric(step.metric), None
        if step.gain is not None:
            sign = 1 if metric.better == "more" else -1  # a step's gain is larger if it is better
            positions = tuple(dict.fromkeys(_place_step(sign * log(claim.ratio)) for claim in step.published))
            cut = max(map(abs, step.gain)) > AXIS_END
            strip = Strip(*map(_place_step, step.gain), zero=50.0, published=positions, cut=cut)
        text = ", ".join(
            dict.fromkeys(f"{metric.change(log(claim.ratio))} ({claim.claim})" for claim in step.published)
        )
        rows.append(StepRow(step, css_class_of(step.decision.value), metric.title, strip, text))
    return rows


def claim_row(verdict: ClaimVerdict) -> ClaimRow:
    """Return the report's row about a claim (a published sentence), with the measured number that decides the claim.

    This is the first number that contradicts the claim. If no number does, it is the first measured number.
    """
    parts = [part for finding in verdict.findings for part in finding.measured if part.test.bounded]
    parts = [part for part in parts if part.value is not None]
    deciding = next((part for part in parts if part.holds is False), next(iter(parts), None))
    strip, text = None, ""
    if deciding is not None:
        strip, text = place_measured(deciding, read_published_ratio(verdict, deciding)), deciding.text
    details = "; ".join(filter(None, [verdict.effect if verdict.effect != text else "", verdict.why]))
    return ClaimRow(verdict, verdict.claim.value, strip, text or verdict.why, details)


def find_answer(finding: StepFinding) -> tuple[str, str]:
    """Return the answer to a finding's yes-or-no question, as (words, CSS class for their colour): `('Yes', 'better')`.

    If the boots (starts of the machine) disagree, the words are `It depends on the boot`. For a finding about another system, the
    answer is `Yes` if that system is better, and otherwise `No`.
    """
    return ANSWERS_BY_KIND[finding.verdict.kind] if finding.boots.agree else ("It depends on the boot", "inconclusive")


def step_ticks() -> list[tuple[float, str]]:
    """Return (position in per cent, label) for each tick of the common axis of all tuning steps.

    The labels reach from `10× worse` over `no change` to `10× better`.
    """
    ticks = {-10: "10× worse", -3: "3×", 1: "no change", 3: "3×", 10: "10× better"}
    return [(_place_step(log(abs(times)) * (1 if times > 0 else -1)), label) for times, label in ticks.items()]


def _place_step(gain: float) -> float:
    """Return the position of an effect on the common axis of all tuning steps, in per cent from the left end.

    The position of an effect beyond an end of the axis is that end.

    Args:
        gain: The effect as a log-ratio, larger is better.

    """
    return round(50 + 50 * max(-1.0, min(1.0, gain / AXIS_END)), 2)


def place_measured(part: MeasuredTest, published: float | None) -> Strip | None:
    """Return the positions of a measured test of a claim on an axis of its own; None for a result without an interval.

    The axis of a ratio is logarithmic with 1 in the centre. Any other axis is linear and contains 0.

    Args:
        part: The measured test.
        published: The published ratio; None: there is none.

    """
    if part.value is None or part.low is None or part.high is None:
        return None
    test = part.test
    bounds = test.within or ((-inf if test.above is None else test.above), (inf if test.below is None else test.below))
    marks = [
        part.low,
        part.value,
        part.high,
        *(mark for mark in (*bounds, published) if mark is not None and abs(mark) < inf),
    ]
    if test.ratio_to is not None and min(marks) > 0:
        span = 1.15 * max(log(1.1), *(abs(log(mark)) for mark in marks))
        places = [50 + 50 * log(mark) / span for mark in marks[:3]]
        ends = [50 + 50 * log(bound) / span if 0 < bound < inf else (0.0 if bound <= 0 else 100.0) for bound in bounds]
        zero, published_place = 50.0, None if published is None else 50 + 50 * log(published) / span
    else:
        least, largest = min(0.0, *marks), max(0.0, *marks)
        width = 1.1 * (largest - least) or 1.0
        least -= 0.05 * width if least < 0 else 0.0
        places = [100 * (mark - least) / width for mark in marks[:3]]
        ends = [
            max(0.0, min(100.0, 100 * (bound - least) / width)) if abs(bound) < inf else (0.0 if bound < 0 else 100.0)
            for bound in bounds
        ]
        zero, published_place = 100 * -least / width, None
    low, middle, high = (round(place, 1) for place in places)
    band = (round(ends[0], 1), round(ends[1], 1)) if test.bounded else None
    return Strip(
        middle, low, high, round(zero, 1), band, () if published_place is None else (round(published_place, 1),)
    )


# -- README's picture: an SVG that needs nothing from the network and is legible on white and on black ----------

WIDTH, LABEL, AXIS = 1120, 620, 330
"""The widths in pixels: of the picture, of the labels on the left, and of the axis between."""
LINE, TOP = 22, 88
"""The heights in pixels: of a line, and of the legend with the axis."""
MOST_DRAWN = 12
"""The number of steps in the picture; the report has all."""
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 12px system-ui, sans-serif; fill: #1d1d1f }} .faint {{ fill: #646468 }} .axis {{ stroke: #7b7b7b }} .said {{ fill: #ffffff; stroke: #1d1d1f }}
.better {{ color: #1c7c3a }} .worse {{ color: #b42318 }} .equivalent, .inconclusive {{ color: #8a8a90 }}
@media (prefers-color-scheme: dark) {{ svg {{ background: #111113 }} text {{ fill: #e9e9ec }} .faint {{ fill: #a0a0a6 }} .said {{ fill: #111113; stroke: #e9e9ec }}
.better {{ color: #6fce8b }} .worse {{ color: #ff8f84 }} }}
</style>
"""
"""The head of the SVG."""


def draw_findings(judged: Sequence[ClaimVerdict]) -> str:
    """Return an SVG with a line for each effect that answers a question in data/reference/findings.toml.

    The same tuning step (a variant against its baseline) on another target has its own line. At most MOST_DRAWN lines are drawn.

    Args:
        judged: The verdicts of the claims, whose published effects are drawn next to the measured ones.

    """
    runs = evidence.load_references()[0]
    steps = list_steps(runs, judged)
    alike = {
        (finding.asked.arm, finding.asked.point): {finding.asked.run, *(step.folder for step in finding.elsewhere)}
        for finding in list_findings(runs)
    }
    chosen = [step for step in steps if step.folder in alike.get((step.arm, step.point), ())]
    rows = [(row, row.strip) for row in make_step_rows(chosen) if row.strip][:MOST_DRAWN]
    height = TOP + LINE * len(rows) + 6
    label = f"{len(rows)} tuning steps as measured, times better or worse, with 95 % intervals"
    svg = HEAD.format(width=WIDTH, height=height, label=label)
    legend = (
        "bar: 95 % interval of one boot; green better, red worse, grey no difference or inconclusive",
        "diamond: as published; a bar that ends at 12× goes on. All steps: just report",
    )
    for number, line in enumerate(legend):
        svg += f'<text class="faint" x="0" y="{16 + 18 * number}">{line}</text>\n'
    for place, mark in step_ticks():
        svg += f'<text class="faint" x="{_place_x(place)}" y="64" text-anchor="middle">{mark}</text>\n'
        svg += f'<path class="axis" opacity="{1 if place == 50 else 0.25}" d="M{_place_x(place)} 72V{height - 6}"/>\n'
    for number, (row, strip) in enumerate(rows):
        step, y = row.step, TOP + LINE * number
        effect = f"{step.text.partition(' [')[0]} {find_metric(step.metric).short}"
        svg += f'<text x="0" y="{y + 8}">{escape(step.title)} <tspan class="faint">({step.target})</tspan></text>\n'
        svg += f'<text class="faint" x="{LABEL + AXIS + 20}" y="{y + 8}">{escape(effect)}</text>\n'
        svg += f'<g class="{row.kind}"><path stroke="currentColor" stroke-width="3" d="M{_place_x(strip.low)} {y + 4}H{_place_x(strip.high)}"/>'
        svg += f'<circle fill="currentColor" cx="{_place_x(strip.at)}" cy="{y + 4}" r="4"/></g>\n'
        for mark in strip.published:
            svg += f'<path class="said" stroke-width="1.5" d="M{_place_x(mark)} {y - 1}l5 5l-5 5l-5 -5z"/>\n'
    return f"{svg}</svg>\n"


def _place_x(place: float) -> float:
    """Return the horizontal position in the SVG in pixels for a position on the axis in per cent of the axis."""
    return round(LABEL + AXIS * place / 100, 1)
