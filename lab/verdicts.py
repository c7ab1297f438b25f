"""A summary → one sentence per variant: what its primary metric showed, how surely, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1
from typing import Literal

from lab import stats
from lab.summary import LABELS, Effect, Row, Summary
from lab.units import format_blocks, format_interval, format_percent, format_size, metric_name


@dataclass(frozen=True, slots=True)
class Verdict:
    """One variant's sentence. Kind `apply` ends in a colon, and `snippet` is what to apply; else it is empty.

    `differs`: another system than what it is compared with, so that there is nothing to apply. `false`: the same variant
    under another name (`just aa`), so that the claim is noise.
    """

    arm: str
    kind: Literal["apply", "worse", "differs", "false", "mixed", "unresolved", "no-interval", "not-measurable"]
    text: str
    snippet: str = ""


def verdicts(summary: Summary) -> tuple[Verdict, ...]:
    """One sentence per variant, in row order: what its primary metric showed, how surely, and what to do about it."""
    by_arm: dict[str, list[tuple[Row, Effect]]] = {}
    for row in summary.rows:
        if row.arm.role == "variant":
            by_arm.setdefault(row.arm.name, []).extend((row, effect) for effect in row.shown)
    found = [_completed(summary, _verdict(summary, arm, effects)) for arm, effects in by_arm.items()]
    return (*found, *(Verdict(item.variant, "not-measurable", str(item)) for item in summary.not_measurable))


def _completed(summary: Summary, verdict: Verdict) -> Verdict:
    """With what to apply, or with the load to try where this one may not be able to show the effect."""
    own = summary.elsewhere.get(verdict.arm)
    if verdict.kind == "apply":
        return replace(verdict, snippet=summary.snippets.get(verdict.arm, ""))
    if verdict.kind == "unresolved" and own:
        advice = f"its hypothesis is about another load: just bench {verdict.arm} --sweep {own}"
        return replace(verdict, text=f"{verdict.text}\n  {advice}")
    return verdict


def floor_line(summary: Summary) -> str:
    """The A/A floor by metric, the largest where there are several points: what `bench baseline` alone ends with."""
    effects = [effect for row in summary.rows for effect in row.effects if effect.judgement == "a/a"]
    floors = {metric: [e.floor for e in effects if e.metric == metric and e.floor is not None] for metric in LABELS}
    blocks = min((e.estimate.n for e in effects if e.estimate), default=0)
    if not any(floors.values()):
        return f"no floor yet: {format_blocks(blocks)} with both baselines, {stats.MIN_BLOCKS} are needed"
    parts = [f"{metric_name(metric)} {format_size(max(values))}" for metric, values in floors.items() if values]
    return f"this machine's floor: {', '.join(parts)} ({format_blocks(blocks)}): smaller differences are noise here"


def _verdict(summary: Summary, arm: str, found: Sequence[tuple[Row, Effect]]) -> Verdict:
    judged = [(row, effect) for row, effect in found if effect.judgement in {"claimed", "unresolved"}]
    if not judged:
        short = [effect.estimate.n for _, effect in found if effect.judgement == "no-interval" and effect.estimate]
        if short:
            text = f"no interval ({format_blocks(min(short))}, {stats.MIN_BLOCKS} are needed): nothing is claimed"
            return Verdict(arm, "no-interval", f"{arm}: {text}; measure with --blocks {stats.MIN_BLOCKS} or more")
        why = next((effect.note for _, effect in found if effect.note), "" if found else "it has no primary metric")
        return Verdict(
            arm, "not-measurable", f"{arm}: nothing to judge: {why or 'no valid block of it and its baseline together'}"
        )
    claims = sorted(
        ((row, effect) for row, effect in judged if effect.judgement == "claimed"),
        key=lambda item: -abs(item[1].estimate.effect) if item[1].estimate else 0.0,
    )
    if not claims:
        return Verdict(arm, "unresolved", f"{arm}: {_unresolved(judged)}")
    parts = [_finding(row, effect) for row, effect in claims[:3]]
    if len(claims) > 3:
        parts.append(f"and beyond it at {len(claims) - 3} more points")
    rest = f", not resolved at {len(judged) - len(claims)} of {len(judged)} points" if len(claims) < len(judged) else ""
    if arm in summary.nulls:
        text = f"{arm}: {'; '.join(parts)}{rest}: a false claim, as it is the same variant: `just aa` counts them"
        return Verdict(arm, "false", text)
    signs = {effect.better for _, effect in claims}
    if len(signs) > 1:
        return Verdict(
            arm,
            "mixed",
            f"{arm}: {'; '.join(parts)}{rest}: better at some loads, worse at others: decide by the load you have",
        )
    if arm in summary.systems:
        return Verdict(arm, "differs", f"{arm}: {'; '.join(parts)}{rest}: another system, no setting to apply")
    kind: Literal["apply", "worse"] = "apply" if signs == {True} else "worse"
    return Verdict(arm, kind, f"{arm}: {'; '.join(parts)}{rest}: {'apply:' if kind == 'apply' else 'do not apply it'}")


def _finding(row: Row, effect: Effect) -> str:
    estimate = effect.estimate
    assert estimate is not None, "what is claimed has an estimate"
    assert effect.floor is not None, "and a floor"
    beyond = f"beyond the A/A floor of {format_size(effect.floor)}" + (f" ({effect.note})" if effect.note else "")
    return f"{_where(row, effect)} {format_percent(estimate.effect)} %{format_interval(estimate.low, estimate.high)}, {beyond}"


def _unresolved(judged: Sequence[tuple[Row, Effect]]) -> str:
    """The bound is what the interval and the floor together leave possible."""
    bounds = {
        index: max(abs(estimate.low or 0), abs(estimate.high or 0), effect.floor or 0)
        for index, (_, effect) in enumerate(judged)
        if (estimate := effect.estimate)
    }
    worst = max(bounds, key=lambda index: bounds[index])
    row, effect = judged[worst]
    estimate = effect.estimate
    assert estimate is not None
    others = len(judged) - 1
    points = f" nor at {others} more point{'s' if others > 1 else ''}" if others else ""
    floor = f"floor {format_size(effect.floor)}" if effect.floor is not None else "no floor"
    found = f"{format_percent(estimate.effect)} %{format_interval(estimate.low, estimate.high)}, {floor}"
    more = "; more blocks would narrow it" if expm1(bounds[worst]) > 0.1 else ""
    advice = f"don't bother unless {format_size(bounds[worst])} matters to you{more}"
    return f"no difference resolved in {_where(row, effect)} ({found}){points}: {advice}"


def _where(row: Row, effect: Effect) -> str:
    tool = f" ({row.generator} for {row.stand_in_for})" if row.stand_in_for else ""
    limited = " (generator-limited)" if row.generator_limited and not effect.note else ""
    return f"{metric_name(effect.metric)} at {row.point.name}{tool}{limited}"


def effect_text(effect: Effect) -> str:
    """The effect column's words for one effect; in brackets what is shown but not judged."""
    label, estimate = LABELS.get(effect.metric, effect.metric), effect.estimate
    if effect.judgement == "a/a" and effect.floor is not None:
        return f"floor {label} {format_size(effect.floor)}"
    if estimate is None or (effect.judgement == "not-judged" and effect.metric == "rate"):
        return f"{label} –"
    if not estimate.has_interval:
        return f"{label} no interval ({format_blocks(estimate.n)})"
    found = f"{format_percent(estimate.effect)} %{format_interval(estimate.low, estimate.high)}"
    if effect.judgement == "claimed":
        return f"{label} {found}"
    if effect.judgement == "unresolved":
        floor = f"floor {format_size(effect.floor)}" if effect.floor is not None else "no floor"
        return f"{label} ~{format_interval(estimate.low, estimate.high)} ({floor})"
    return f"({label} {found})"
