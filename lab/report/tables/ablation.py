"""An ablation's runs → one table: every knob, alone and cumulatively, ranked by effect, and what to apply.

What is done to the system in a sweep is judged by its outcome: differences in the metric's own unit, which are not compared
with ratios nor with one another; within what is claimed, and what is not, such knobs come last in the plan's order.

Refuses to claim more than the runs' own summaries do: what was better than a handicap is no advice against the root. Of
several points the one with the largest claimed effect speaks for a knob, else the one with the largest effect; the runs'
tables have them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from lab.analysis.explain.run import effect_text, verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Row as ResultRow
from lab.analysis.judge.rows import Summary
from lab.model.metrics import DIFFERENCES, about
from lab.records.ablation import AblationRecord, Step
from lab.report.grid import Grid, Notes, Part, Row, Words, columns, row

WORDS = {
    "apply": "apply",
    "worse": "do not apply",
    "differs": "another system",
    "mixed": "better at some loads, worse at others",
    "same": "don't bother: the same",
    "unresolved": "cannot tell",
    "no-interval": "no interval",
    "bimodal": "two clusters",
    "not-measurable": "nothing to judge",
    "instrument": "only to measure by",
    "not-steady": "not steady: no effect",
}
HANDICAPPED = {"apply": "better than", "worse": "worse than"}
"""The same of a knob that was compared with another variant than the root."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One knob's line. `alone` and `cumulative` are effects at the same point in the same metric, where there are any."""

    step: Step
    point: str | None
    alone: Effect | None
    cumulative: Effect | None
    verdict: str
    notes: tuple[str, ...]
    snippet: str = ""

    @property
    def order(self) -> tuple[int, float]:
        estimate = self.alone.estimate if self.alone else None
        decision = self.alone.decision if self.alone else Decision.NOT_AVAILABLE
        kind = 0 if decision.resolved else 1 if decision.judged else 2 if decision is Decision.NO_INTERVAL else 3
        comparable = (
            self.alone is not None and self.alone.metric not in DIFFERENCES
        )  # ratios; of a disturbance each has its own unit
        return kind, -abs(estimate.effect) if estimate and comparable else 0.0


def ranked(
    record: AblationRecord, summaries: Mapping[str, Summary], outcomes: Mapping[str, Summary] | None = None
) -> tuple[Ranked, ...]:
    """`summaries`: sweep → its run's summary, of those that have begun; `outcomes`: of those in which something is done."""
    missing = {(run.sweep, item.variant): str(item) for run in record.runs for item in run.not_measurable}
    found: list[Ranked] = []
    for step in record.steps:
        steady, disturbed = summaries.get(step.sweep), (outcomes or {}).get(step.sweep)
        by_outcome = disturbed and (steady is None or not steady.rows or disturbed.primary.get(step.alone or ""))
        found.append(_ranked(step, disturbed if by_outcome else steady, missing))
    return tuple(sorted(found, key=lambda line: line.order))


def _ranked(
    step: Step,
    summary: Summary | None,
    missing: Mapping[tuple[str, str], str],
) -> Ranked:
    notes = [*step.why]
    notes += [why for name in (step.alone, step.cumulative) if name and (why := missing.get((step.sweep, name)))]
    if step.alone is None or (step.sweep, step.alone) in missing:
        return Ranked(step, None, None, None, "not measurable", tuple(dict.fromkeys(notes)))
    if summary is None:
        return Ranked(step, None, None, None, "not measured yet", tuple(notes))
    shown = [(row, one) for row in summary.rows if row.arm.name == step.alone for one in row.shown if one.estimate]
    best = max(shown, key=_speaks, default=None)
    verdict = next((each for each in verdicts(summary) if each.arm == step.alone), None)
    word = _word(step, verdict.kind) if verdict else "not measured yet"
    if best is None:
        return Ranked(step, None, None, None, word, (*notes, *([verdict.text] if verdict else [])))
    own, effect = best
    notes += [note for note in own.notes if note not in notes]
    rows = (each for each in summary.rows if (each.arm.name, each.point.name) == (step.cumulative, own.point.name))
    beside = next((each for one in rows for each in one.effects if each.metric == effect.metric), None)
    snippet = verdict.snippet if verdict and word == WORDS["apply"] else ""
    return Ranked(step, own.point.name, effect, beside, word, tuple(notes), snippet)


def _word(step: Step, kind: str) -> str:
    """A handicap's opposite may do nothing for the root: the claim then names what it is about."""
    if kind in HANDICAPPED and step.against != step.root:
        alone_on_root = step.cumulative == f"{step.root}+{step.knob}"
        rest = f"against {step.root}: see cumulative" if alone_on_root else f"not compared with {step.root}"
        return f"{HANDICAPPED[kind]} {step.against}; {rest}"
    return WORDS[kind]


def _speaks(item: tuple[ResultRow, Effect]) -> tuple[bool, bool, float]:
    """How much an effect says for its knob: what is claimed, then what is judged, then the largest."""
    _, effect = item
    size = abs(effect.estimate.effect) if effect.estimate else 0.0
    return effect.claimed, effect.decision is not Decision.NOT_JUDGED, size


def page(record: AblationRecord, lines: Sequence[Ranked]) -> list[Part]:
    """The ranked knobs, what their numbers in brackets stand for, and what to apply."""
    numbers = {
        note: str(number) for number, note in enumerate(dict.fromkeys(n for line in lines for n in line.notes), 1)
    }
    grown: dict[
        str, list[str]
    ] = {}  # what `cumulative` adds up, root by root: the lines are ranked, and so in another order
    for step in record.steps:
        if step.cumulative:
            grown.setdefault(step.root, []).append(step.knob)
    orders = (f"cumulative: against {root}, in this order: {', '.join(knobs)}" for root, knobs in grown.items())
    notes = [*(f"{number}: {note}" for note, number in numbers.items()), *orders, *record.notes]
    rows: list[Row] = []
    for line in lines:
        step, marks = line.step, ",".join(numbers[note] for note in line.notes)
        rows.append(
            row(
                step.knob,
                step.against,
                f"{step.sweep}/{line.point}" if line.point else step.sweep,
                about(line.alone.metric if line.alone else step.metric).short,
                _effect(line.alone),
                _effect(line.cumulative),
                line.verdict + (f" ({marks})" if marks else ""),
            )
        )
    heads = ("knob", "against", "load", "metric", "one at a time", "cumulative", "verdict")
    told = _advice(lines)
    return [
        Grid(columns(heads, range(len(heads))), tuple(rows)),
        Notes(tuple(Text(note, "dim") for note in notes), blank=True),
        Words(tuple(map(Text, told)), tuple(told)),
    ]


def _effect(effect: Effect | None) -> str:
    """Without the metric's name, which has a column of its own."""
    return effect_text(effect).replace(f"{about(effect.metric).short} ", "", 1) if effect else "–"


def _advice(lines: Sequence[Ranked]) -> list[str]:
    """What to apply of the claimed ones, the largest effect first; or that there is nothing. Then what only beat a handicap."""
    better = [line for line in lines if line.verdict == _word(line.step, "apply")]
    apart = [f"{line.step.knob}: {line.verdict}" for line in better if not line.snippet]
    found = [
        text
        for line in better
        if line.snippet
        for text in (f"# {line.step.knob}: {line.step.title} (against {line.step.against})", line.snippet.rstrip())
    ]
    if better:
        return [*(["", "apply:", *found] if found else []), *(["", *apart] if apart else [])]
    judged = any(line.alone and line.alone.decision.judged for line in lines)
    return ["", "nothing here was shown to be better: don't bother" if judged else "nothing to judge yet"]
