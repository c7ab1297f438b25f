"""The table of an ablation: the effect of every knob (setting), alone and cumulatively, ranked by size, and what to apply.

Effects of steady loads are ratios. Effects on the outcome of a disruption are differences in the unit of the metric, and their
sizes cannot be compared. Within each group of the ranking, such knobs come after those with ratios, in the order of the plan.

A knob may have been better than another variant than the root (the one that all others derive from). It is then not advised for
the root. If a knob was measured at several load points, one point decides: that with the largest claimed effect. Without a
claimed effect, it is that with the largest judged effect, and otherwise that with the largest effect. The tables of the runs show
every point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from lab.analysis.explain.run import format_effect, make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.model.metrics import DIFFERENCES, find_metric
from lab.records.ablation import AblationRecord, Step
from lab.report.grid import Grid, Notes, Part, Sentences, TableRow, make_columns, make_row

VERDICT_TEXTS = {
    "apply": "apply",
    "worse": "do not apply",
    "better-system": "another system",
    "worse-system": "another system",
    "mixed": "better at some loads, worse at others",
    "equivalent": "no change needed: equivalent",
    "inconclusive": "inconclusive",
    "no-interval": "no interval",
    "bimodal": "two clusters",
    "not-measurable": "nothing to judge",
    "instrument": "only to measure by",
    "not-steady": "not steady: no effect",
}
HANDICAPPED = {"apply": "better than", "worse": "worse than"}
"""The words for a knob whose baseline is another variant than the root."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """The line about one knob (setting) in the table of an ablation.

    Attributes:
        step: The planned measurements of the knob: one at a time, and cumulatively (with all knobs before it).
        point: The name of the load point with the strongest effect; None: there is no effect.
        alone: The knob's effect when it is the only one added; None: not known.
        cumulative: The effect of this knob together with all knobs before it, at the same load point and in the metric of `alone`; None:
            not known.
        verdict: The verdict in words.
        notes: Notes about the line.
        snippet: The configuration to apply; empty: there is nothing to apply.

    """

    step: Step
    point: str | None
    alone: Effect | None
    cumulative: Effect | None
    verdict: str
    notes: tuple[str, ...]
    snippet: str = ""

    @property
    def order(self) -> tuple[int, float]:
        """The sort key of the line about a knob (setting) in the table of an ablation; smaller keys come first.

        Lines with a better or worse effect come first, then those with any other decision, then effects without an interval, then missing
        ones. Within each group, larger ratios come first.
        """
        estimate = self.alone.estimate if self.alone else None
        decision = self.alone.decision if self.alone else Decision.NOT_AVAILABLE
        kind = 0 if decision.resolved else 1 if decision.judged else 2 if decision is Decision.NO_INTERVAL else 3
        comparable = (
            self.alone is not None and self.alone.metric not in DIFFERENCES
        )  # ratios; each outcome of a disruption has a unit that no other effect shares
        return kind, -abs(estimate.effect) if estimate and comparable else 0.0


def rank_knobs(
    record: AblationRecord, summaries: Mapping[str, Summary], outcomes: Mapping[str, Summary] | None = None
) -> tuple[Ranked, ...]:
    """Return a line for each knob (setting) of an ablation, the one with the strongest effect first.

    Args:
        record: The ablation.
        summaries: Sweep (a list of load points) → summary of the steady loads in its run, for runs that have begun.
        outcomes: Sweep → summary of the disrupted loads in its run, for sweeps that have any.

    """
    missing = {(run.sweep, item.variant): str(item) for run in record.runs for item in run.not_measurable}
    lines: list[Ranked] = []
    for step in record.steps:
        steady, disturbed = summaries.get(step.sweep), (outcomes or {}).get(step.sweep)
        by_outcome = disturbed and (steady is None or not steady.rows or disturbed.primary.get(step.alone or ""))
        lines.append(_make_line(step, disturbed if by_outcome else steady, missing))
    return tuple(sorted(lines, key=lambda line: line.order))


def _make_line(
    step: Step,
    summary: Summary | None,
    missing: Mapping[tuple[str, str], str],
) -> Ranked:
    notes = [*step.why]
    notes += [reason for name in (step.alone, step.cumulative) if name and (reason := missing.get((step.sweep, name)))]
    if step.alone is None or (step.sweep, step.alone) in missing:
        return Ranked(step, None, None, None, "not measurable", tuple(dict.fromkeys(notes)))
    if summary is None:
        return Ranked(step, None, None, None, "not measured yet", tuple(notes))
    effects = [
        (row, effect) for row in summary.rows if row.arm.name == step.alone for effect in row.shown if effect.estimate
    ]
    best = max(effects, key=_rate_weight, default=None)
    verdict = next((verdict for verdict in make_verdicts(summary) if verdict.arm == step.alone), None)
    text = _describe_verdict(step, verdict.kind) if verdict else "not measured yet"
    if best is None:
        return Ranked(step, None, None, None, text, (*notes, *([verdict.text] if verdict else [])))
    best_row, best_effect = best
    notes += [note for note in best_row.notes if note not in notes]
    rows = (row for row in summary.rows if (row.arm.name, row.point.name) == (step.cumulative, best_row.point.name))
    cumulative = next((effect for row in rows for effect in row.effects if effect.metric == best_effect.metric), None)
    snippet = verdict.snippet if verdict and text == VERDICT_TEXTS["apply"] else ""
    return Ranked(step, best_row.point.name, best_effect, cumulative, text, tuple(notes), snippet)


def _describe_verdict(step: Step, kind: str) -> str:
    """Return the verdict on a knob (setting) in words.

    Usually the knob was compared with the root (the variant that all others derive from). If it is better or worse than another
    variant, the words name this variant, because the knob may have no effect on the root.

    Args:
        step: The planned measurements of the knob.
        kind: The kind of the verdict, for example `apply` or `worse`.

    """
    if kind in HANDICAPPED and step.against != step.root:
        alone_on_root = step.cumulative == f"{step.root}+{step.knob}"
        advice = f"against {step.root}: see cumulative" if alone_on_root else f"not compared with {step.root}"
        return f"{HANDICAPPED[kind]} {step.against}; {advice}"
    return VERDICT_TEXTS[kind]


def _rate_weight(item: tuple[SummaryRow, Effect]) -> tuple[bool, bool, float]:
    """Return a sort key for the effects of one knob (one setting): the strongest effect has the greatest key.

    Claimed effects (significant after adjustment) have the greatest keys. The next group is the other effects with a decision,
    and the last group is those without (`NOT_JUDGED`). Within each group, the larger effect has the greater key.

    Args:
        item: A row of the results, and one of its effects.

    """
    _, effect = item
    size = abs(effect.estimate.effect) if effect.estimate else 0.0
    return effect.claimed, effect.decision is not Decision.NOT_JUDGED, size


def page(record: AblationRecord, lines: Sequence[Ranked]) -> list[Part]:
    """Return the page of an ablation: the table of its ranked knobs (settings), numbered notes, and what to apply."""
    numbers = {
        note: str(number) for number, note in enumerate(dict.fromkeys(n for line in lines for n in line.notes), 1)
    }
    knobs_by_root: dict[
        str, list[str]
    ] = {}  # the knobs that `cumulative` adds up, root by root, in the order of the plan and not of the ranked lines
    for step in record.steps:
        if step.cumulative:
            knobs_by_root.setdefault(step.root, []).append(step.knob)
    orders = (f"cumulative: against {root}, in this order: {', '.join(knobs)}" for root, knobs in knobs_by_root.items())
    notes = [*(f"{number}: {note}" for note, number in numbers.items()), *orders, *record.notes]
    rows: list[TableRow] = []
    for line in lines:
        step, marks = line.step, ",".join(numbers[note] for note in line.notes)
        rows.append(
            make_row(
                step.knob,
                step.against,
                f"{step.sweep}/{line.point}" if line.point else step.sweep,
                find_metric(line.alone.metric if line.alone else step.metric).short,
                _format_effect(line.alone),
                _format_effect(line.cumulative),
                line.verdict + (f" ({marks})" if marks else ""),
            )
        )
    heads = ("knob", "against", "load", "metric", "one at a time", "cumulative", "verdict")
    advice = _advise(lines)
    return [
        Grid(make_columns(heads, range(len(heads))), tuple(rows)),
        Notes(tuple(Text(note, "dim") for note in notes), blank=True),
        Sentences(tuple(map(Text, advice)), tuple(advice)),
    ]


def _format_effect(effect: Effect | None) -> str:
    """Return an effect as text without the name of its metric, which has its own column; `–` for None."""
    return format_effect(effect).replace(f"{find_metric(effect.metric).short} ", "", 1) if effect else "–"


def _advise(lines: Sequence[Ranked]) -> list[str]:
    """Return lines of advice: which knobs (settings) to apply, the largest effect first, or that nothing needs to be changed.

    Each knob to apply has its snippet of configuration. The knobs that were only better than a variant that is not the root (the
    one that all others derive from) follow without a snippet.
    """
    better = [line for line in lines if line.verdict == _describe_verdict(line.step, "apply")]
    handicapped = [f"{line.step.knob}: {line.verdict}" for line in better if not line.snippet]
    snippets = [
        text
        for line in better
        if line.snippet
        for text in (f"# {line.step.knob}: {line.step.title} (against {line.step.against})", line.snippet.rstrip())
    ]
    if better:
        return [*(["", "apply:", *snippets] if snippets else []), *(["", *handicapped] if handicapped else [])]
    judged = any(line.alone and line.alone.decision.judged for line in lines)
    return ["", "nothing here was shown to be better: no change needed" if judged else "nothing to judge yet"]
