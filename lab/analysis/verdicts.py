"""A summary → one sentence per variant: what its primary metric showed, how surely, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from typing import TYPE_CHECKING, Literal

from lab.analysis import rerun
from lab.analysis.judging import FOLLOWS, GIVEN_RATE, failures
from lab.analysis.summary import Effect, Row, Summary, more_blocks
from lab.model.metrics import RATIOS, about
from lab.stats import paired as stats
from lab.stats.units import format_blocks, format_interval, format_percent, format_size

if TYPE_CHECKING:
    from lab.analysis.outcome_summary import OutcomeSummary

NEEDS = "needs "
"""How the note begins of an effect that needs what no sweep does."""
NO_BLOCK = "no valid block of it and its baseline together"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One variant's sentence, which ends in what to do. Of kinds `apply` and `mixed` `snippet` is what to apply; else it is empty.

    `mixed`: better at some loads and worse at others, or better and in some blocks not working; the text says when to apply it. `differs`: another system than what it is
    compared with, so that there is nothing to apply. `false`: the same variant under another name (`just aa`), so that the claim is
    noise. `no-interval`: fewer than six blocks, its own or the A/A pair's.
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
    found = [_verdict(summary, arm, effects) for arm, effects in by_arm.items()]
    return (*found, *(Verdict(item.variant, "not-measurable", item.advised) for item in summary.not_measurable))


def another_load(summary: Summary | OutcomeSummary, arm: str) -> str:
    """The line of an arm that showed nothing: the command for its hypothesis' load; empty where that was this run's."""
    sweep = summary.elsewhere.get(arm)
    if sweep is None:
        return ""
    return f"\n  its hypothesis is about another load: just bench {arm} --sweep {sweep}{rerun.place(summary.target)}"


def remedy(why: str, arms: str, sweep: str | None, target: str | None) -> str:
    """What to do where the load cannot show the effect, and `why` it cannot. `sweep`: the one that might; None: nobody named one."""
    if why.startswith(NEEDS):
        return "don't bother to measure it, no load of the lab has that"
    which = "" if sweep else " (S: one of `just list`)"
    return f"measure a load that can show it: just bench {arms} --sweep {sweep or 'S'}{rerun.place(target)}{which}"


def unmeasured(summary: Summary | OutcomeSummary) -> str:
    """What to do about an arm without a block that counts."""
    return f"go on with: {summary.resume}" if summary.resume else "mend what its rows' notes tell, and measure it again"


def no_floor(summary: Summary | OutcomeSummary) -> str:
    """Of an effect whose A/A pair lost blocks."""
    more = f"go on with: {summary.resume}" if summary.resume else f"measure with --blocks {2 * summary.blocks} or more"
    return f"nothing is claimed without a floor: fewer than {stats.MIN_BLOCKS} valid A/A blocks; {more}"


def concluded(summary: Summary | OutcomeSummary, arm: str, said: str, claims: Sequence[tuple[str, Effect]]) -> Verdict:
    """What to do about what is claimed. `said`: that; `claims`: of each where ("p99 at ceiling") and the effect."""
    better, snippet = {effect.better for _, effect in claims}, summary.snippets.get(arm, "")
    system = arm in summary.systems
    if len(better) > 1:
        good, bad = (next(where for where, effect in claims if effect.better is each) for each in (True, False))
        do = f"{f'choose {arm}' if system else 'apply'} only if the first matters more to you"
        text = f"{said}: better in {good}, worse in {bad}: {do}{':' if snippet else ''}"
        return Verdict(arm, "mixed", text, snippet)
    if system:
        choice = f"choose {arm}" if True in better else f"stay with {claims[0][1].against}"
        return Verdict(arm, "differs", f"{said}: another system, no setting to apply: {choice}")
    if better == {False}:
        return Verdict(arm, "worse", f"{said}: do not apply it")
    if fell := _fell(summary, arm, claims[0][1].against):
        text = f"{said}, in the blocks that worked ({fell}): apply only once all of them do:"
        return Verdict(arm, "mixed", text, snippet)
    return Verdict(arm, "apply", f"{said}: apply:", snippet)


def _fell(summary: Summary | OutcomeSummary, arm: str, against: str) -> str:
    """Where the arm did not do its work in more samples than its baseline: `6 of 10 blocks at ceiling, proxy-died 4`; empty: nowhere."""
    rows = {(row.arm.name, row.point.name): row for row in summary.rows if not row.point.control}
    for (name, point), row in rows.items():
        failed, base = failures(row.invalid), rows.get((against, point))
        if name == arm and sum(failed.values()) > sum(failures(base.invalid).values() if base else ()):
            reasons = (f"{reason} {count}" for reason, count in failed.items())
            return ", ".join([f"{row.valid_blocks} of {format_blocks(row.planned_blocks)} at {point}", *reasons])
    return ""


def floor_line(summary: Summary) -> str:
    """The A/A floor by metric, the largest where there are several points: what `bench baseline` alone ends with."""
    effects = [effect for row in summary.rows for effect in row.effects if effect.judgement == "a/a"]
    floors = {metric: [e.floor for e in effects if e.metric == metric and e.floor is not None] for metric in RATIOS}
    blocks = min((e.estimate.n for e in effects if e.estimate), default=0)
    if not any(floors.values()):
        return f"no floor yet: {format_blocks(blocks)} with both baselines, {stats.MIN_BLOCKS} are needed"
    parts = [f"{about(metric).title} {format_size(max(values))}" for metric, values in floors.items() if values]
    return f"this machine's floor: {', '.join(parts)} ({format_blocks(blocks)}): smaller differences are noise here"


def _verdict(summary: Summary, arm: str, found: Sequence[tuple[Row, Effect]]) -> Verdict:
    judged = [(row, effect) for row, effect in found if effect.judgement in {"claimed", "unresolved"}]
    if not judged:
        short = [effect.estimate.n for _, effect in found if effect.judgement == "no-interval" and effect.estimate]
        if short:
            text = f"no interval ({format_blocks(min(short))}, {stats.MIN_BLOCKS} are needed): nothing is claimed"
            more = more_blocks(summary.resume, summary.blocks, min(short))
            return Verdict(arm, "no-interval", f"{arm}: {text}; {more}")
        return Verdict(arm, "not-measurable", f"{arm}: nothing to judge: {_nothing(summary, arm, found)}")
    claims = sorted(
        ((row, effect) for row, effect in judged if effect.judgement == "claimed"),
        key=lambda item: -abs(item[1].estimate.effect) if item[1].estimate else 0.0,
    )
    if not claims and any(effect.floor is None for _, effect in judged):
        return Verdict(arm, "no-interval", f"{arm}: {no_floor(summary)}")
    if not claims:
        return Verdict(arm, "unresolved", f"{arm}: {_unresolved(judged)}{another_load(summary, arm)}")
    parts = [_finding(row, effect) for row, effect in claims[:3]]
    if len(claims) > 3:
        parts.append(f"and beyond it at {len(claims) - 3} more points")
    rest = f", not resolved at {len(judged) - len(claims)} of {len(judged)} points" if len(claims) < len(judged) else ""
    if arm in summary.nulls:
        text = f"{arm}: {'; '.join(parts)}{rest}: a false claim, as it is the same variant: `just aa` counts them"
        return Verdict(arm, "false", text)
    said = f"{arm}: {'; '.join(parts)}{rest}"
    return concluded(summary, arm, said, [(_where(row, effect), effect) for row, effect in claims])


def _nothing(summary: Summary, arm: str, found: Sequence[tuple[Row, Effect]]) -> str:
    """Why there is nothing to judge, and what to do about it."""
    if not found:
        return "it has no primary metric: ↑ and ↓ mark what differs, and lab/primary-metric in its overlay says what is to be judged"
    elsewhere = ("", FOLLOWS, GIVEN_RATE)  # of a load beside the one that would show it
    if why := next((effect.note for _, effect in found if effect.note not in elsewhere), ""):
        return f"{why}: {remedy(why, arm, summary.elsewhere.get(arm), summary.target)}"
    return f"{NO_BLOCK}: {unmeasured(summary)}"


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
    assert effect.floor is not None, "what has none is told before"
    found = f"{format_percent(estimate.effect)} %{format_interval(estimate.low, estimate.high)}, floor {format_size(effect.floor)}"
    more = "; more blocks would narrow it" if expm1(bounds[worst]) > 0.1 else ""
    advice = f"don't bother unless {format_size(bounds[worst])} matters to you{more}"
    return f"no difference resolved in {_where(row, effect)} ({found}){points}: {advice}"


def _where(row: Row, effect: Effect) -> str:
    tool = f" ({row.generator} for {row.stand_in_for})" if row.stand_in_for else ""
    limited = " (generator-limited)" if row.generator_limited and not effect.note else ""
    return f"{about(effect.metric).title} at {row.point.name}{tool}{limited}"


def effect_text(effect: Effect) -> str:
    """The effect column's words for one effect; in brackets what is shown but not judged."""
    label, estimate = about(effect.metric).short, effect.estimate
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
