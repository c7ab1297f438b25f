"""An outcome summary → one sentence per variant: what its primary metric showed under the disturbance, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.outcome_summary import OutcomeRow, OutcomeSummary
from lab.analysis.summary import Effect, more_blocks
from lab.analysis.verdicts import NO_BLOCK, Verdict, another_load, concluded, no_floor, remedy, unmeasured
from lab.model.metrics import DIFFERENCES, METRICS
from lab.stats import paired as stats
from lab.stats.units import format_blocks

Found = tuple[OutcomeRow, Effect]


def verdicts(summary: OutcomeSummary) -> tuple[Verdict, ...]:
    """One per variant, in row order, as `lab.analysis.verdicts.verdicts` of a steady run."""
    by_arm: dict[str, list[Found]] = {}
    for row in summary.rows:
        if row.arm.role == "variant" and not row.point.control:
            by_arm.setdefault(row.arm.name, []).extend((row, effect) for effect in row.shown)
    found = (_verdict(summary, arm, effects) for arm, effects in by_arm.items())
    return (*found, *(Verdict(item.variant, "not-measurable", item.advised) for item in summary.not_measurable))


def floor_line(summary: OutcomeSummary) -> str:
    """The A/A floors, the largest where there are several points: what a baseline alone ends with."""
    effects = [effect for row in summary.rows for effect in row.shown if effect.judgement == "a/a"]
    floors = {
        metric: [e.floor for e in effects if e.metric == metric and e.floor is not None] for metric in DIFFERENCES
    }
    blocks = min((effect.estimate.n for effect in effects if effect.estimate), default=0)
    parts = [
        f"{METRICS[metric].title} {METRICS[metric].with_unit(max(values))}"
        for metric, values in floors.items()
        if values
    ]
    if not parts:
        return f"no floor yet: {format_blocks(blocks)} with both baselines, {stats.MIN_BLOCKS} are needed"
    return f"this machine's floor: {', '.join(parts)} ({format_blocks(blocks)}): smaller differences are noise here"


def _verdict(summary: OutcomeSummary, arm: str, found: Sequence[Found]) -> Verdict:
    judged = [(row, effect) for row, effect in found if effect.judgement in {"claimed", "unresolved"}]
    if not judged:
        return _nothing(summary, arm, found)
    claims = [(row, effect) for row, effect in judged if effect.judgement == "claimed"]
    if not claims and any(effect.floor is None for _, effect in judged):
        return Verdict(arm, "no-interval", f"{arm}: {no_floor(summary)}")
    if not claims:
        return Verdict(arm, "unresolved", f"{arm}: {_unresolved(judged)}{another_load(summary, arm)}")
    parts = [_finding(summary, row, effect) for row, effect in claims[:3]]
    if len(claims) > 3:
        parts.append(f"and beyond it at {len(claims) - 3} more points")
    rest = f", not resolved at {len(judged) - len(claims)} of {len(judged)} points" if len(claims) < len(judged) else ""
    where = [(f"{METRICS[effect.metric].title} at {row.point.name}", effect) for row, effect in claims]
    return concluded(summary, arm, f"{arm}: {'; '.join(parts)}{rest}", where)


def _nothing(summary: OutcomeSummary, arm: str, found: Sequence[Found]) -> Verdict:
    short = [effect.estimate.n for _, effect in found if effect.judgement == "no-interval" and effect.estimate]
    if short:
        text = f"no interval ({format_blocks(min(short))}, {stats.MIN_BLOCKS} are needed): nothing is claimed"
        more = more_blocks(summary.resume, summary.blocks, min(short))
        return Verdict(arm, "no-interval", f"{arm}: {text}; {more}")
    why, do = NO_BLOCK, unmeasured(summary)
    if arm not in summary.primary:
        why = "its primary metric is of steady loads"
        do = remedy(why, arm, summary.elsewhere.get(arm), summary.target)
    elif untold := next((f"{METRICS[effect.metric].title}: {effect.note}" for _, effect in found if effect.note), ""):
        why, do = untold, "measure it again"
    elif any(row.valid_blocks for row, _ in found):
        why = f"nothing told of its primary metric, {METRICS[summary.primary[arm]].title}"
        do = remedy(why, arm, summary.elsewhere.get(arm), summary.target)
    return Verdict(arm, "not-measurable", f"{arm}: nothing to judge: {why}: {do}")


def _finding(summary: OutcomeSummary, row: OutcomeRow, effect: Effect) -> str:
    about, estimate = METRICS[effect.metric], effect.estimate
    assert estimate is not None, "what is claimed has an estimate"
    own = row.levels[effect.metric].value
    base = (
        next(other for other in summary.at(row.point) if other.arm.name == effect.against).levels[effect.metric].value
    )
    return (
        f"{about.title} at {row.point.name} {about.with_unit(own)} instead of {about.with_unit(base)}:"
        f" {difference_text(effect)}, beyond the floor of {about.with_unit(effect.floor)}"
    )


def _unresolved(judged: Sequence[Found]) -> str:
    """The bound is what the interval and the floor together leave possible."""

    def bound(effect: Effect) -> float:
        low, high = (effect.estimate.interval if effect.estimate else None) or (0.0, 0.0)
        return max(abs(low), abs(high), effect.floor or 0.0)

    row, effect = max(judged, key=lambda item: bound(item[1]))
    about, others = METRICS[effect.metric], len(judged) - 1
    points = f" nor at {others} more point{'s' if others > 1 else ''}" if others else ""
    floor = about.with_unit(effect.floor)
    found = f"{about.title} at {row.point.name} ({difference_text(effect)}, floor {floor}){points}"
    if bound(effect) == 0:
        return f"no difference in {found}: every block was the same; don't bother"
    level = row.levels[effect.metric].value
    more = "; more blocks would narrow it" if bound(effect) > 0.1 * abs(level) and _varies(effect) else ""
    matters = f"a difference of {about.with_unit(bound(effect))}"
    return f"no difference resolved in {found}: don't bother unless {matters} matters to you{more}"


def effect_text(effect: Effect) -> str:
    """The effect in its unit, without the metric's name: a ranking's cell."""
    about, estimate = METRICS[effect.metric], effect.estimate
    if effect.judgement == "a/a" and effect.floor is not None:
        return f"floor {about.with_unit(effect.floor)}"
    if estimate is None or effect.judgement == "not-judged":
        return "–"
    if estimate.interval is None:
        return f"no interval ({format_blocks(estimate.n)})"
    if effect.judgement == "claimed":
        return difference_text(effect)
    floor = f"floor {about.with_unit(effect.floor)}" if effect.floor is not None else "no floor"
    return " ".join(filter(None, [f"~{interval_text(effect)}", about.unit, f"({floor})"]))


def difference_text(effect: Effect) -> str:
    """`−29.6 s [−29.9, −29.3]`; without the interval below six blocks."""
    about, estimate = METRICS[effect.metric], effect.estimate
    if estimate is None:
        return "–"
    return f"{about.with_unit(estimate.effect, signed=True)}{interval_text(effect)}"


def interval_text(effect: Effect) -> str:
    """` [−29.9, −29.3]`, empty below six blocks."""
    about, interval = METRICS[effect.metric], effect.estimate.interval if effect.estimate else None
    if interval is None:
        return ""
    return f" [{about.text(interval[0], signed=True)}, {about.text(interval[1], signed=True)}]"


def _varies(effect: Effect) -> bool:
    """Whether the blocks differed at all."""
    return effect.estimate is not None and bool(effect.estimate.sd)
