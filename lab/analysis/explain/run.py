"""A summary → one sentence per variant: what its primary metric showed, how surely, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.analysis import rerun
from lab.analysis.judge.decision import SURE_P, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Row, Summary
from lab.analysis.judge.rulings import FOLLOWS, GIVEN_RATE, fell
from lab.analysis.judge.thirds import lasting_change
from lab.model.design import CONCURRENT
from lab.model.metrics import METRICS, about
from lab.stats import paired as stats
from lab.stats.power import MAX_BLOCKS, blocks_to_resolve
from lab.stats.units import format_blocks

NEEDS = "needs "
"""How the note begins of an effect that needs what no sweep does."""
ONLY_TO_MEASURE_BY = "only to measure by, nothing to apply"
NO_BLOCK = "no valid block of it and its baseline together"
BY_SOLO = "by solo samples, as these are different systems"
TOO_FEW_SOLO = f"a concurrent pair of different systems does not decide, and fewer than {stats.MIN_BLOCKS} blocks have solo samples"

Kind = Literal[
    "apply",
    "worse",
    "differs",
    "false",
    "mixed",
    "same",
    "unresolved",
    "no-interval",
    "bimodal",
    "not-steady",
    "not-measurable",
    "instrument",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One variant's sentence, which ends in what to do. Of kinds `apply` and `mixed` `snippet` is what to apply; else it is empty.

    `mixed`: better at some loads and worse at others, or better and in some blocks not working; the text says when to apply it. `differs`: another system than what it is
    compared with, so that there is nothing to apply. `false`: the same variant under another name (`just aa`), so that the claim is
    noise. `not-steady`: it or its baseline is not steady wherever it was measured, so that there is no effect. `bimodal`: blocks in two
    clusters, which are the outcome. `instrument`: only to measure by, nothing to apply whatever it showed. `same`: smaller than what is worth
    knowing, wherever it is judged. `no-interval`: fewer than six blocks.
    """

    arm: str
    kind: Kind
    text: str
    snippet: str = ""


Found = tuple[Row, Effect]


def verdicts(summary: Summary) -> tuple[Verdict, ...]:
    """One sentence per variant, in row order: what its primary metric showed, how surely, and what to do about it."""
    by_arm: dict[str, list[Found]] = {}
    for row in summary.rows:
        if row.arm.role == "variant" and not row.point.control:
            by_arm.setdefault(row.arm.name, []).extend((row, effect) for effect in row.shown)
    found = [_with_unsteady(summary, arm, effects) for arm, effects in by_arm.items()]
    return (*found, *(Verdict(item.variant, "not-measurable", item.advised) for item in summary.not_measurable))


def noise_line(summary: Summary) -> str:
    """The baseline against itself by metric, the largest where there are several points: what `bench baseline` alone ends with."""
    asked = (effect for row in summary.rows for effect in (row.shown if summary.disturbed else row.effects))
    effects = [effect for effect in asked if effect.decision is Decision.A_A]
    known = [effect for effect in effects if effect.estimate is not None and effect.estimate.has_interval]
    blocks = min((effect.estimate.n for effect in effects if effect.estimate), default=0)
    if not known:
        return f"the noise here is not known yet: {format_blocks(blocks)} with both baselines, {stats.MIN_BLOCKS} are needed"
    widest = {effect.metric: effect for effect in sorted(known, key=lambda effect: bound(effect.estimate))}
    parts = [f"{about(name).title} {difference_text(widest[name])}" for name in METRICS if name in widest]
    return f"the baseline against itself here: {', '.join(parts)} ({format_blocks(blocks)})"


def another_load(arm: str, sweep: str | None, target: str | None) -> str:
    """The line of an arm that showed nothing: the command for its hypothesis' load; empty where that was this run's."""
    return f"\n  its hypothesis is about another load: {rerun.bench(arm, sweep, target)}" if sweep else ""


def remedy(why: str, arms: str, sweep: str | None, target: str | None) -> str:
    """What to do where the load cannot show the effect, and `why` it cannot. `sweep`: the one that might; None: nobody named one."""
    if why.startswith(NEEDS):
        return "don't bother to measure it, no load of the lab has that"
    which = "" if sweep else " (S: one of `just list`)"
    return f"measure a load that can show it: {rerun.bench(arms, sweep or 'S', target)}{which}"


# -- a variant -----------------------------------------------------------------------------------------------


def _with_unsteady(summary: Summary, arm: str, found: Sequence[Found]) -> Verdict:
    """The arm's sentence, with what happened at the points where it or its baseline is not steady in front."""
    moved: dict[str, str] = {}
    for row, _ in found:
        if row.unsteady is not None:
            whose = f"of {row.base.arm.name} " if row.cell.unsteady is None and row.base is not None else ""
            moved[row.point.name] = f"at {row.point.name} {whose}{row.unsteady.sentence()}"
    rest, said = [(row, effect) for row, effect in found if row.unsteady is None], "; ".join(moved.values())
    outcomes = {Decision.NO_INTERVAL, Decision.BIMODAL}
    if moved and not any(effect.decision.judged or effect.decision in outcomes for _, effect in rest):
        return Verdict(arm, "not-steady", f"{arm}: {said}; no effect is computed")
    verdict = _verdict(summary, arm, rest)
    told = f"{arm}: {said}, so no effect is computed there; {verdict.text.removeprefix(f'{arm}: ')}"
    return replace(verdict, text=told) if moved else verdict


def _verdict(summary: Summary, arm: str, found: Sequence[Found]) -> Verdict:
    judged = [(row, effect) for row, effect in found if effect.decision.judged]
    if not judged:
        return _nothing(summary, arm, found)
    besides = "".join(f"; {each}" for each in _in_clusters(found))
    if few := [row.point.name for row, effect in found if _too_few_solo(effect)]:
        besides += f"; nothing is decided at {', '.join(few)} ({TOO_FEW_SOLO})"
    if doubts := [(row, effect) for row, effect in judged if row.thirds is not None and row.thirds.unsettled(effect)]:
        said = "; ".join(_finding(summary, row, effect) for row, effect in doubts)
        do = "nothing to decide by, as the average over a sample hides what holds for minutes"
        return Verdict(arm, "unresolved", f"{arm}: {said}: {do}")
    claims = [(row, effect) for row, effect in judged if effect.claimed]
    if not summary.disturbed:  # differences in several units have no order
        claims.sort(key=lambda item: -abs(item[1].estimate.effect) if item[1].estimate else 0.0)
    if not claims:
        elsewhere = another_load(arm, summary.elsewhere.get(arm), summary.target)
        open_ = [each for each in judged if each[1].decision is not Decision.SAME]
        if not open_:
            return Verdict(arm, "same", f"{arm}: {_same(judged)}{besides}{elsewhere}")
        family = sum(effect.decision.judged for row in summary.rows for effect in row.shown)
        held = f", the same at {len(judged) - len(open_)} of {len(judged)} points" if len(open_) < len(judged) else ""
        return Verdict(arm, "unresolved", f"{arm}: {_unresolved(open_, family, held)}{besides}{elsewhere}")
    parts = [_finding(summary, row, effect) for row, effect in claims[:3]]
    if len(claims) > 3:
        parts.append(f"and at {len(claims) - 3} more points")
    kinds = [effect.decision for _, effect in judged]
    counts = {"the same": kinds.count(Decision.SAME), "open": kinds.count(Decision.CANNOT_TELL)}
    rest = "".join(f", {what} at {count} of {len(judged)} points" for what, count in counts.items() if count)
    said = f"{arm}: {'; '.join(parts)}{rest}{besides}"
    if arm in summary.nulls:
        return Verdict(arm, "false", f"{said}: a false claim, as it is the same variant: `just aa` counts them")
    return _concluded(summary, arm, said, claims)


def _concluded(summary: Summary, arm: str, said: str, claims: Sequence[Found]) -> Verdict:
    """What to do about what is claimed. `said`: that."""
    better, snippet = {effect.better for _, effect in claims}, summary.snippets.get(arm, "")
    if why := summary.instruments.get(arm):
        return Verdict(arm, "instrument", f"{said}: {ONLY_TO_MEASURE_BY}: {why}")
    system, against = arm in summary.systems, claims[0][1].against
    if len(better) > 1:
        good, bad = (
            next(_where(row, effect) for row, effect in claims if effect.better is each) for each in (True, False)
        )
        do = f"{f'choose {arm}' if system else 'apply'} only if the first matters more to you"
        text = f"{said}: better in {good}, worse in {bad}: {do}{':' if snippet else ''}"
        return Verdict(arm, "mixed", text, snippet)
    if system:
        choice = f"choose {arm}" if True in better else f"stay with {against}"
        return Verdict(arm, "differs", f"{said}: another system, no setting to apply: {choice}")
    if better == {False}:
        return Verdict(arm, "worse", f"{said}: do not apply it")
    rows = {(row.arm.name, row.point.name): row.cell for row in summary.rows if not row.point.control}
    for (name, point), cell in rows.items():  # where it did not do its work in more samples than its baseline
        counted = f"{cell.valid_blocks} of {format_blocks(cell.planned_blocks)} at {point}"
        base = rows.get((against, point))
        if name == arm and (lost := fell(cell.invalid, base.invalid if base else {}, counted)):
            text = f"{said}, in the blocks that worked ({lost}): apply only once all of them do:"
            return Verdict(arm, "mixed", text, snippet)
    return Verdict(arm, "apply", f"{said}: apply:", snippet)


def _in_clusters(found: Sequence[Found]) -> list[str]:
    return [
        f"{_where(row, effect)} falls into two clusters ({effect.note})"
        for row, effect in found
        if effect.decision is Decision.BIMODAL
    ]


def _too_few_solo(effect: Effect) -> bool:
    """Return whether its pair decides nothing, and its solo samples do not because they are too few."""
    return CONCURRENT in effect.note and effect.decision in {Decision.NO_INTERVAL, Decision.NOT_AVAILABLE}


def _nothing(summary: Summary, arm: str, found: Sequence[Found]) -> Verdict:
    """Why there is nothing to judge, and what to do about it."""
    if split := _in_clusters(found):
        do = "find out what decides between them, as no number of blocks narrows it"
        return Verdict(arm, "bimodal", f"{arm}: {'; '.join(split)}, so that no single difference describes it: {do}")
    for row, _ in found:
        if row.missing is not None:
            after, point = next(iter(row.missing.shares)), row.point.name
            do = f"what {after} leaves behind decides at {point}" if after else f"{point} fails first"
            return Verdict(arm, "not-measurable", f"{arm}: at {point} {row.missing.text}: {do}")
    short = [
        (effect.estimate.n, (row.pair.own if row.pair and effect.scheme else row.cell).planned_blocks)
        for row, effect in found
        if effect.decision is Decision.NO_INTERVAL and effect.estimate
    ]
    if short:
        valid, planned = min(short)
        text = f"no interval ({format_blocks(valid)}, {stats.MIN_BLOCKS} are needed): nothing is claimed"
        if any(_too_few_solo(effect) for _, effect in found):
            text = f"{text}; {CONCURRENT}"
        lost = 0 if summary.resume else planned - valid  # as many may be again
        go_on = f"not all of it was measured, go on with: {summary.resume}"
        again = f"measure with --blocks {stats.MIN_BLOCKS + lost} or more"
        more = go_on if summary.resume and planned >= stats.MIN_BLOCKS else again
        return Verdict(arm, "no-interval", f"{arm}: {text}; {more}")
    mend = f"go on with: {summary.resume}" if summary.resume else "mend what its rows' notes tell, and measure it again"
    return Verdict(
        arm, "not-measurable", f"{arm}: nothing to judge: {_unjudged(summary, arm, found) or f'{NO_BLOCK}: {mend}'}"
    )


def _unjudged(summary: Summary, arm: str, found: Sequence[Found]) -> str:
    """Why the loads show nothing of what is to be judged, and what to do about it; empty where that is not known."""
    metric, why = summary.primary.get(arm), ""
    if not summary.disturbed:
        if not found:
            return "it has no primary metric: ↑ and ↓ mark what differs, and lab/primary-metric in its overlay says what is to be judged"
        elsewhere = ("", FOLLOWS, GIVEN_RATE, CONCURRENT)  # of a load beside the one that would show it
        why = next((effect.note for _, effect in found if effect.note not in elsewhere), "")
    elif metric is None:
        why = "its primary metric is of steady loads"
    elif untold := next((f"{about(effect.metric).title}: {effect.note}" for _, effect in found if effect.note), ""):
        return f"{untold}: measure it again"
    elif any(row.cell.valid_blocks for row, _ in found):
        why = f"nothing told of its primary metric, {about(metric).title}"
    return why and f"{why}: {remedy(why, arm, summary.elsewhere.get(arm), summary.target)}"


def _finding(summary: Summary, row: Row, effect: Effect) -> str:
    metric = about(effect.metric)
    if summary.disturbed:
        assert row.base is not None, "what has an effect is compared with something"
        levels = (cell.level(effect.metric) for cell in (row.cell, row.base))
        own, base = (metric.with_unit(level.value if level else None) for level in levels)
        return f"{_where(row, effect)} {own} instead of {base}: {difference_text(effect)}"
    said = [row.thirds.sentence(effect.metric, effect.estimate.effect)] if row.thirds and effect.estimate else []
    sides = [side for side in (row.cell, row.base) if side is not None and row.point.sustained]
    changes = ((side.arm.name, lasting_change(list(side.counted.values()))) for side in sides)
    said += [f"of {name} {change.sentence()}" for name, change in changes if change]
    within = "".join(f", {each}" for each in said if each)
    note = f" ({effect.note.replace(CONCURRENT, BY_SOLO)})" if effect.note else ""
    return f"{_where(row, effect)} {difference_text(effect)}{note}{within}"


def _same(judged: Sequence[Found]) -> str:
    """The largest of those that are not worth knowing."""
    row, effect = max(judged, key=lambda item: bound(item[1].estimate))
    metric, others = about(effect.metric), len(judged) - 1
    points = f" and {others} more point{'s' if others > 1 else ''}" if others else ""
    if not bound(effect.estimate):
        return f"no difference in {_where(row, effect)}{points}: every block was the same; don't bother"
    sure = effect.holm_p is not None and effect.holm_p <= SURE_P
    said = f"real, but only {metric.size(abs(effect.estimate.effect))}" if sure and effect.estimate else "no difference"
    within = f"smaller than the {metric.size(effect.size.worth)} that are worth knowing"
    return f"don't bother: {said} in {_where(row, effect)} ({difference_text(effect)}, {within}){points}"


def _unresolved(judged: Sequence[Found], family: int, held: str) -> str:
    """The one that leaves most open, and how many blocks would do. `family`: how many effects the run judges; `held`: at which others it is the same."""
    row, effect = max(judged, key=lambda item: bound(item[1].estimate))
    metric, most, others = about(effect.metric), bound(effect.estimate), len(judged) - 1
    points = f" nor at {others} more point{'s' if others > 1 else ''}" if others else ""
    why = ""
    if effect.size.guard > effect.size.worth:
        why = "; the baseline against itself shows as much"
    elif most <= effect.size.worth and not effect.size.same:
        why = "; pairs are not known to show all of such a cost"
    matters = metric.size(most) if metric.ratio else f"a difference of {metric.size(most)}"
    more = more_text(effect, family)
    return (
        f"cannot tell in {_where(row, effect)} ({difference_text(effect)}{why}){points}{held}: don't bother unless {matters}"
        f" matters to you{f'; {more}' if more else ''}"
    )


def more_text(effect: Effect, family: int) -> str:
    """How many blocks would find what is worth knowing, at the first step of Holm's method; empty where nobody can say."""
    estimate, worth = effect.estimate, effect.size.worth
    if estimate is None or not estimate.sd or not worth or not estimate.has_interval or bound(estimate) <= worth:
        return ""
    blocks = blocks_to_resolve(estimate.sd, estimate.n, worth, SURE_P / family)
    if blocks is None:
        return f"not even {MAX_BLOCKS} blocks would tell {about(effect.metric).size(worth)}"
    return f"--blocks {blocks} would tell {about(effect.metric).size(worth)}" if blocks > estimate.n else ""


def bound(estimate: stats.Estimate | None) -> float:
    """What an interval leaves possible."""
    return max(map(abs, (estimate.interval if estimate else None) or (0.0,)))


def _where(row: Row, effect: Effect) -> str:
    where = f"{about(effect.metric).title} at {row.point.name}"
    if row.point.disturbance is not None:
        return where
    tool = f" ({row.cell.generator} for {row.cell.stand_in_for})" if row.cell.stand_in_for else ""
    limited = " (generator-limited)" if row.generator_limited and not effect.note else ""
    ports = f" ({row.exhaustion.label})" if row.exhaustion else ""
    return f"{where}{tool}{limited}{ports}"


# -- an effect -----------------------------------------------------------------------------------------------


def difference_text(effect: Effect) -> str:
    """`−8.2 % [−9.1, −7.3] = −1.4 µs`, `−29.6 s [−29.9, −29.3]`; without the interval below six blocks."""
    metric, estimate = about(effect.metric), effect.estimate
    if estimate is None:
        return "–"
    return f"{metric.change(estimate.effect)}{interval_text(effect)}{metric.time(estimate.effect, effect.level_s)}"


def interval_text(effect: Effect) -> str:
    """` [−29.9, −29.3]`, empty below six blocks."""
    interval = effect.estimate.interval if effect.estimate else None
    return about(effect.metric).ends(*interval) if interval else ""


def effect_text(effect: Effect) -> str:
    """The effect column's words for one effect: its size, how sure its sign is, and the word for it where it is no difference.

    In brackets what is shown but not judged.
    """
    metric, estimate, beside = about(effect.metric), effect.estimate, effect.beside
    if effect.decision is Decision.BIMODAL:
        return f"{metric.short} two clusters"
    if estimate is None and beside is not None:
        ends = interval_text(replace(effect, estimate=beside))
        return f"{metric.short} – (as a pair {metric.change(beside.effect)}{ends})"
    if estimate is None or (effect.decision is Decision.NOT_JUDGED and (effect.metric == "rate" or not metric.ratio)):
        return f"{metric.short} –"
    as_pair = f" (as a pair {metric.change(beside.effect)})" if beside is not None else ""
    if not estimate.has_interval:
        return f"{metric.short} no interval ({format_blocks(estimate.n)}){as_pair}"
    if effect.decision is Decision.A_A:
        return f"a/a {metric.short} {difference_text(effect)}"
    if not effect.decision.judged or not effect.primary:
        return f"({metric.short} {difference_text(effect)})"
    word = {Decision.SAME: "same: ", Decision.CANNOT_TELL: "? "}.get(effect.decision, "")
    pairs = f", {estimate.n} pairs" if effect.scheme else ""
    return f"{word}{metric.short} {difference_text(effect)} p {p_text(effect.holm_p)}{pairs}{as_pair}"


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
