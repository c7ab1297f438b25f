"""The verdicts of a run: one sentence per variant with what its primary metric showed, how surely, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import expm1
from typing import Literal

from lab.analysis import rerun
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.analysis.judge.rulings import FOLLOWS, GIVEN_RATE, describe_failures
from lab.analysis.judge.thirds import lasting_change
from lab.model.design import CONCURRENT
from lab.model.metrics import find_metric
from lab.stats import paired as stats
from lab.stats.power import MAX_BLOCKS, count_blocks_to_detect
from lab.stats.units import format_blocks

NEEDS = "needs "
"""The beginning of the note of an effect that needs what no sweep does."""
ONLY_TO_MEASURE_BY = "only to measure by, nothing to apply"
NO_BLOCK = "no valid block of it and its baseline together"
BY_SOLO = "by solo samples, as these are different systems"
TOO_FEW_SOLO = f"a concurrent pair of different systems does not decide, and fewer than {stats.MIN_BLOCKS} blocks have solo samples"

PAIRS_MISS = "pairs may miss part of such a cost"
NOISY = "it is within what the baseline shows against itself"

VerdictKind = Literal[
    "apply",
    "worse",
    "better-system",
    "worse-system",
    "false",
    "mixed",
    "equivalent",
    "inconclusive",
    "no-interval",
    "bimodal",
    "not-steady",
    "not-measurable",
    "instrument",
]


WORDS: dict[VerdictKind, str] = {
    "apply": "better",
    "worse": "worse",
    "better-system": "",
    "worse-system": "",
    "false": "a false claim",
    "mixed": "not better everywhere",
    "equivalent": "no difference found",
    "inconclusive": "inconclusive",
    "no-interval": "too few blocks",
    "bimodal": "two clusters of values",
    "not-steady": "not steady",
    "not-measurable": "not measurable",
    "instrument": "a difference",
}
"""Kind of a verdict → what its headline says was found."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a run about one variant: what was found, and what to do.

    `arm` is the variant's name in the run, `found` the differences in words, `do` the advised action, `snippet` the
    part of a manifest to apply, and `further` a command that would show more. Kinds:

    - apply: better at some loads, worse at none.
    - worse: worse, so do not apply it.
    - better-system, worse-system: better at some loads, or worse; it is another system than its baseline, so there is no setting to apply.
    - false: a difference of a variant from itself under another name (`just aa`), which can only be noise.
    - mixed: better at some loads and worse at others, or better but failed in some blocks (repetitions). The text has
      the condition for applying `snippet`.
    - equivalent: equivalent at every load that has a decision.
    - inconclusive: inconclusive somewhere, and no difference anywhere.
    - no-interval: fewer than six blocks.
    - bimodal: the blocks fall into two clusters, so no single difference describes them.
    - not-steady: at every load, the rate or CPU time changes within samples of the variant or its baseline.
    - not-measurable: nothing could be judged.
    - instrument: a difference, but the variant only serves to measure, so there is nothing to apply.
    """

    arm: str
    kind: VerdictKind
    found: str
    do: str = ""
    snippet: str = ""
    further: str = ""

    @property
    def text(self) -> str:
        """The verdict about a variant as one sentence: every difference that was found, then what to do."""
        return f"{self.arm}: {': '.join(filter(None, (self.found, self.do)))}{self.further}"

    @property
    def headline(self) -> str:
        """The verdict about a variant as one short line, without numbers: `keepalive: no difference found; no change needed`."""
        return f"{self.arm}: {'; '.join(filter(None, (WORDS[self.kind], self.do or self.found)))}"


RowEffect = tuple[SummaryRow, Effect]


def make_verdicts(summary: Summary) -> tuple[Verdict, ...]:
    """Return the verdict about each variant of a run: what its primary metric showed, how surely, and what to do.

    Verdicts are in the order of the table's rows. Variants that could not be measured come last.
    """
    by_arm: dict[str, list[RowEffect]] = {}
    for row in summary.rows:
        if row.arm.role == "variant" and not row.point.control:
            by_arm.setdefault(row.arm.name, []).extend((row, effect) for effect in row.shown)
    results = [_conclude_arm(summary, arm, effects) for arm, effects in by_arm.items()]
    return (
        *results,
        *(
            Verdict(item.variant, "not-measurable", "", item.advised.removeprefix(f"{item.variant}: "))
            for item in summary.not_measurable
        ),
    )


def suggest_load(arm: str, sweep: str | None, target: str | None) -> str:
    """Return a line with the command that measures a variant under the load that its hypothesis is about.

    Args:
        arm: The name of the variant's arm.
        sweep: The sweep (named list of loads) of the hypothesis. None if the run had this sweep; the result is then
            empty.
        target: The target to measure on.

    """
    return f"\n  its hypothesis is about another load: {rerun.bench(arm, sweep, target)}" if sweep else ""


def suggest_remedy(reason: str, arms: str, sweep: str | None, target: str | None) -> str:
    """Return what to do if the load of a run cannot show an effect.

    Args:
        reason: The reason why the load cannot show it.
        arms: The arms to measure, as the command line names them.
        sweep: The sweep (named list of loads) of the variant's hypothesis, which might show the effect; None if
            unknown.
        target: The target to measure on.

    """
    if reason.startswith(NEEDS):
        return "no need to measure it, no load of the lab has that"
    which = "" if sweep else " (S: one of `just list`)"
    return f"measure a load that can show it: {rerun.bench(arms, sweep or 'S', target)}{which}"


# -- a variant -----------------------------------------------------------------------------------------------


def _conclude_arm(summary: Summary, arm: str, findings: Sequence[RowEffect]) -> Verdict:
    """Return the verdict about a variant of a run, from its effects at all loads.

    At some loads, samples of the variant or its baseline may not be steady: their rate or CPU time changes midway. The
    verdict's text then begins with these loads. If no other load has a result, the verdict is `not-steady`.

    Args:
        summary: The summary of the run.
        arm: The name of the variant's arm.
        findings: The rows of the arm, each with an effect that the table's effect column shows.

    """
    unsteady: dict[str, str] = {}
    for row, _ in findings:
        if row.unsteady is not None:
            of_base = f"of {row.base.arm.name} " if row.cell.unsteady is None and row.base is not None else ""
            unsteady[row.point.name] = f"at {row.point.name} {of_base}{row.unsteady.sentence()}"
    steady, message = [(row, effect) for row, effect in findings if row.unsteady is None], "; ".join(unsteady.values())
    outcomes = {Decision.NO_INTERVAL, Decision.BIMODAL}
    if unsteady and not any(effect.decision.judged or effect.decision in outcomes for _, effect in steady):
        return Verdict(arm, "not-steady", message, "no effect is computed")
    verdict = _conclude_steady(summary, arm, steady)
    found = f"{message}, so no effect is computed there; {verdict.found}"
    return replace(verdict, found=found) if unsteady else verdict


def _conclude_steady(summary: Summary, arm: str, findings: Sequence[RowEffect]) -> Verdict:
    judged = [(row, effect) for row, effect in findings if effect.decision.judged]
    if not judged:
        return _explain_nothing(summary, arm, findings)
    additions = "".join(f"; {clusters}" for clusters in _list_clusters(findings))
    if few := [row.point.name for row, effect in findings if _lacks_solo_blocks(effect)]:
        additions += f"; nothing is decided at {', '.join(few)} ({TOO_FEW_SOLO})"
    if doubts := [(row, effect) for row, effect in judged if row.thirds is not None and row.thirds.unsettled(effect)]:
        message = "; ".join(_describe_finding(summary, row, effect) for row, effect in doubts)
        do = "nothing to decide by, as the average over a sample hides what holds for minutes"
        return Verdict(arm, "inconclusive", message, do)
    claims = [(row, effect) for row, effect in judged if effect.claimed]
    if not summary.disturbed:  # differences in several units have no order
        claims.sort(key=lambda item: -abs(item[1].estimate.effect) if item[1].estimate else 0.0)
    if not claims:
        elsewhere = suggest_load(arm, summary.elsewhere.get(arm), summary.target)
        open_ = [finding for finding in judged if finding[1].decision is not Decision.EQUIVALENT]
        if not open_:
            return Verdict(
                arm, "equivalent", _describe_equivalent(judged) + additions, "no change needed", further=elsewhere
            )
        held = f", equivalent at {len(judged) - len(open_)} of {len(judged)} points" if len(open_) < len(judged) else ""
        found, do, blocks = _describe_inconclusive(open_, count_judged(summary), held)
        return Verdict(arm, "inconclusive", found + additions, do, further=blocks + elsewhere)
    parts = [_describe_finding(summary, row, effect) for row, effect in claims[:3]]
    if len(claims) > 3:
        parts.append(f"and at {len(claims) - 3} more points")
    kinds = [effect.decision for _, effect in judged]
    counts = {"equivalent": kinds.count(Decision.EQUIVALENT), "open": kinds.count(Decision.INCONCLUSIVE)}
    undecided = "".join(f", {label} at {count} of {len(judged)} points" for label, count in counts.items() if count)
    message = f"{'; '.join(parts)}{undecided}{additions}"
    if arm in summary.nulls:
        return Verdict(arm, "false", message, "a false claim, as it is the same variant: `just aa` counts them")
    return _conclude_claims(summary, arm, message, claims)


def _conclude_claims(summary: Summary, arm: str, message: str, claims: Sequence[RowEffect]) -> Verdict:
    """Return the verdict about a variant for which the run claims differences (decides better or worse).

    Args:
        summary: The summary of the run.
        arm: The name of the variant's arm.
        message: The beginning of the sentence, which describes the differences.
        claims: The rows with their claimed effects, at least one.

    """
    better, snippet = {effect.better for _, effect in claims}, summary.snippets.get(arm, "")
    if reason := summary.instruments.get(arm):
        return Verdict(arm, "instrument", message, f"{ONLY_TO_MEASURE_BY}: {reason}")
    system, against = arm in summary.systems, claims[0][1].against
    if len(better) > 1:
        good, bad = (
            next(_describe_place(row, effect) for row, effect in claims if effect.better is is_better)
            for is_better in (True, False)
        )
        do = f"{'choose' if system else 'apply'} it only if the first matters more to you"
        return Verdict(arm, "mixed", message, f"better in {good}, worse in {bad}: {do}", snippet)
    if better == {True} and (titles := _list_worse_outcomes(summary, arm)):
        do = f"better in that, worse in {', '.join(titles)}: {'choose' if system else 'apply'} it only if the first matters more to you"
        return Verdict(arm, "mixed", message, do, snippet)
    if system:  # what it is compared with may have ended: nobody is advised to stay with that
        if True in better:
            return Verdict(
                arm, "better-system", message, f"better than {against}: choose it if its behaviour suits you"
            )
        return Verdict(arm, "worse-system", message, f"worse than {against}: plan for that if you choose it")
    if better == {False}:
        return Verdict(arm, "worse", message, "do not apply it")
    rows = {(row.arm.name, row.point.name): row.cell for row in summary.rows if not row.point.control}
    for (name, point), cell in rows.items():  # points where it failed to do its work in more samples than its baseline
        counted = f"{cell.valid_blocks} of {format_blocks(cell.planned_blocks)} at {point}"
        base = rows.get((against, point))
        if name == arm and (lost := describe_failures(cell.invalid, base.invalid if base else {}, counted)):
            found = f"{message}, in the blocks that worked ({lost})"
            return Verdict(arm, "mixed", found, "apply it only once all of them do", snippet)
    return Verdict(arm, "apply", message, "apply it", snippet)


def _list_worse_outcomes(summary: Summary, arm: str) -> list[str]:
    """Return the titles of at most three outcomes in which an arm (variant) is worse than its baseline.

    An outcome is a metric of disrupted loads or streams, such as the longest gap. The primary outcome is left out, and so are
    outcomes that only detail another one.
    """
    effects = [
        effect
        for row in summary.rows
        if summary.disturbed and row.arm.name == arm and not row.point.control
        for effect in row.effects
        if effect.marked and effect.decision is Decision.WORSE and not find_metric(effect.metric).detail
    ]
    return list(dict.fromkeys(find_metric(effect.metric).title for effect in effects))[:3]


def _list_clusters(findings: Sequence[RowEffect]) -> list[str]:
    return [
        f"{_describe_place(row, effect)} falls into two clusters ({effect.note})"
        for row, effect in findings
        if effect.decision is Decision.BIMODAL
    ]


def _lacks_solo_blocks(effect: Effect) -> bool:
    """Return whether an effect has no decision because too few solo samples were measured, and only these may decide it.

    A solo sample has the machine to itself. Between different systems, samples of both measured at once (pairs) may not
    decide.
    """
    return CONCURRENT in effect.note and effect.decision in {Decision.NO_INTERVAL, Decision.NOT_AVAILABLE}


def _explain_nothing(summary: Summary, arm: str, findings: Sequence[RowEffect]) -> Verdict:
    """Return the verdict about a variant without any decision: the reason, and what to do about it.

    Args:
        summary: The summary of the run.
        arm: The name of the variant's arm.
        findings: The variant's rows with their effects, none of which has a decision.

    """
    if split := _list_clusters(findings):
        do = "find out what decides between them, as no number of blocks narrows it"
        return Verdict(arm, "bimodal", f"{'; '.join(split)}, so that no single difference describes it", do)
    for row, _ in findings:
        if row.missing is not None:
            after, point = next(iter(row.missing.shares)), row.point.name
            do = f"what {after} leaves behind decides at {point}" if after else f"{point} fails first"
            return Verdict(arm, "not-measurable", f"at {point} {row.missing.text}", do)
    short = [
        (effect.estimate.n, (row.pair.own if row.pair and effect.scheme else row.cell).planned_blocks)
        for row, effect in findings
        if effect.decision is Decision.NO_INTERVAL and effect.estimate
    ]
    if short:
        valid, planned = min(short)
        pairs = f"; {CONCURRENT}" if any(_lacks_solo_blocks(effect) for _, effect in findings) else ""
        text = f"no interval ({format_blocks(valid)}, {stats.MIN_BLOCKS} are needed): nothing is claimed{pairs}"
        lost = 0 if summary.resume else planned - valid  # as many may be lost again
        go_on = f"not all of it was measured, go on with: {summary.resume}"
        again = f"measure with --blocks {stats.MIN_BLOCKS + lost} or more"
        advice = go_on if summary.resume and planned >= stats.MIN_BLOCKS else again
        return Verdict(arm, "no-interval", text, advice)
    mend = f"go on with: {summary.resume}" if summary.resume else "mend what its rows' notes say, and measure it again"
    do = _explain_unjudged(summary, arm, findings) or f"{_describe_lost(findings) or NO_BLOCK}: {mend}"
    return Verdict(arm, "not-measurable", "nothing to judge", do)


def _describe_lost(findings: Sequence[RowEffect]) -> str:
    """Describe a load at which a variant or its baseline has only invalid samples: `at ceiling no sample of nginx is valid (…)`.

    The brackets contain the reasons with their numbers, such as `steal 30`. The text is empty if there is no such load.
    """
    for row, _ in findings:
        for side in (row.cell, row.base):
            if side is not None and side.invalid and not side.valid_blocks:
                reasons = ", ".join(f"{reason} {count}" for reason, count in side.invalid.items())
                return f"at {row.point.name} no sample of {side.arm.name} is valid ({reasons})"
    return ""


def _explain_unjudged(summary: Summary, arm: str, findings: Sequence[RowEffect]) -> str:
    """Return why the loads of a run cannot show a variant's effect, and what to do about it; empty if the reason is unknown."""
    metric, reason = summary.primary.get(arm), ""
    if not summary.disturbed:
        if not findings:
            return "it has no primary metric: ↑ and ↓ mark what differs, and lab/primary-metric in its overlay says what is to be judged"
        elsewhere = ("", FOLLOWS, GIVEN_RATE, CONCURRENT)  # notes of a load other than the one that would show it
        reason = next((effect.note for _, effect in findings if effect.note not in elsewhere), "")
    elif metric is None:
        reason = "its primary metric is of steady loads"
    elif unjudged := next((effect for _, effect in findings if effect.note), None):
        reason = unjudged.note
        if not reason.startswith(NEEDS):
            return f"{find_metric(unjudged.metric).title}: {reason}: measure it again"
    elif any(row.cell.valid_blocks for row, _ in findings):
        reason = f"nothing was recorded of its primary metric, {find_metric(metric).title}"
    return reason and f"{reason}: {suggest_remedy(reason, arm, summary.elsewhere.get(arm), summary.target)}"


def _describe_finding(summary: Summary, row: SummaryRow, effect: Effect) -> str:
    metric = find_metric(effect.metric)
    if summary.disturbed:
        assert row.base is not None, "what has an effect is compared with something"
        levels = (cell.level(effect.metric) for cell in (row.cell, row.base))
        arm_text, base_text = (metric.with_unit(level.value if level else None) for level in levels)
        return f"{_describe_place(row, effect)} {arm_text} instead of {base_text}: {format_difference(effect)}"
    sentences = [row.thirds.sentence(effect.metric, effect.estimate.effect)] if row.thirds and effect.estimate else []
    sides = [side for side in (row.cell, row.base) if side is not None and row.point.sustained]
    changes = ((side.arm.name, lasting_change(list(side.counted.values()))) for side in sides)
    sentences += [f"of {name} {change.sentence()}" for name, change in changes if change]
    within = "".join(f", {sentence}" for sentence in sentences if sentence)
    note = f" ({effect.remark.replace(CONCURRENT, BY_SOLO)})" if effect.remark else ""
    return f"{_describe_place(row, effect)} {format_difference(effect)}{note}{within}"


def _describe_equivalent(judged: Sequence[RowEffect]) -> str:
    """Describe effects that are all within the equivalence margin, by the effect whose interval allows the largest size."""
    row, effect = max(judged, key=lambda item: find_bound(item[1].estimate))
    metric, further = find_metric(effect.metric), len(judged) - 1
    points = f" and {further} more point{'s' if further > 1 else ''}" if further else ""
    if not find_bound(effect.estimate):
        return f"no difference in {_describe_place(row, effect)}{points}, every block was the same"
    significant = effect.holm_p is not None and effect.holm_p <= ALPHA
    message = (
        f"real, but only {metric.size(abs(effect.estimate.effect))}"
        if significant and effect.estimate
        else "no difference"
    )
    within = f"smaller than the equivalence margin of {metric.size(effect.size.margin)}"
    return f"{message} in {_describe_place(row, effect)} ({format_difference(effect)}, {within}){points}"


def _describe_inconclusive(judged: Sequence[RowEffect], family: int, held: str) -> tuple[str, str, str]:
    """Describe a variant's inconclusive effects by the effect whose interval allows the largest size.

    Args:
        judged: The inconclusive effects with their rows.
        family: The number of effects whose p-values the run adjusts together.
        held: A phrase with the number of other points at which the variant is equivalent; empty for none.

    Returns:
        Three phrases: what was found, what to do, and how many blocks (repetitions) would decide it, or empty.

    """
    row, effect = max(judged, key=lambda item: find_bound(item[1].estimate))
    metric, largest, further = find_metric(effect.metric), find_bound(effect.estimate), len(judged) - 1
    points = f" nor at {further} more point{'s' if further > 1 else ''}" if further else ""
    reason = explain_inconclusive(effect)
    blocks = suggest_blocks(effect, family)
    found = f"inconclusive in {_describe_place(row, effect)} ({format_difference(effect)}{f'; {reason}' if reason else ''}){points}{held}"
    reasons = {explain_inconclusive(effect) for _, effect in judged}
    if NOISY in reasons:
        do = "measure it again on a quieter machine (just doctor)"
    elif reasons == {PAIRS_MISS}:
        do = "no change needed unless a cost that pairs may miss matters to you"
    else:
        matters = metric.size(largest) if metric.ratio else f"a difference of {metric.size(largest)}"
        do = f"no change needed unless {matters} matters to you"
    return found, do, f"; {blocks}" if blocks else ""


def explain_inconclusive(effect: Effect) -> str:
    """Return why an effect is inconclusive if it is not because of a wide interval; otherwise empty.

    There are two such reasons. First, the A/A noise floor is larger than the equivalence margin; if this floor is only a
    lower bound, it must also be as large as the effect. Second, the interval lies within the margin, but pairs (two
    variants measured at once) may miss part of a cost in this metric.
    """
    size, least = effect.size, abs(effect.estimate.effect) if effect.estimate else 0.0
    if size.noise_floor > size.margin and (size.floor_measured or size.noise_floor >= least):
        return NOISY
    within = find_bound(effect.estimate) <= effect.size.margin and not effect.size.may_be_equivalent
    return PAIRS_MISS if within else ""


def format_margin(effect: Effect) -> str:
    """Format the equivalence margin that an effect was compared with: `2 %`, or `0.2 s`."""
    metric, margin = find_metric(effect.metric), effect.size.margin
    return f"{100 * expm1(margin):.3g} %" if metric.ratio else metric.size(margin)


def count_judged(summary: Summary) -> int:
    """Return the number of effects whose p-values a run adjusts together (the family of Holm's method)."""
    return sum(effect.decision.judged for row in summary.rows for effect in row.shown)


def suggest_blocks(effect: Effect, family: int) -> str:
    """Return a phrase with the number of blocks (repetitions) that would detect an effect of the equivalence margin's size.

    Args:
        effect: The effect, whose standard deviation and margin are used.
        family: The number of effects whose p-values are adjusted together by Holm's method.

    Returns:
        The phrase. It is empty if the number cannot be computed, if the interval lies within the margin, or if the run
        already has as many blocks.

    """
    estimate, margin = effect.estimate, effect.size.margin
    if estimate is None or not estimate.sd or not margin or not estimate.has_interval or find_bound(estimate) <= margin:
        return ""
    blocks = count_blocks_to_detect(estimate.sd, estimate.n, margin, ALPHA / family)
    if blocks is None:
        return f"not even {MAX_BLOCKS} blocks would detect {find_metric(effect.metric).size(margin)}"
    return f"--blocks {blocks} would detect {find_metric(effect.metric).size(margin)}" if blocks > estimate.n else ""


def find_bound(estimate: stats.Estimate | None) -> float:
    """Return the largest effect that the interval of an estimate allows, without its sign; 0 without an interval."""
    return max(map(abs, (estimate.interval if estimate else None) or (0.0,)))


def _describe_place(row: SummaryRow, effect: Effect) -> str:
    place = f"{find_metric(effect.metric).title} at {row.point.name}"
    if row.point.has_outcome:
        return place
    tool = f" ({row.cell.generator} for {row.cell.stand_in_for})" if row.cell.stand_in_for else ""
    limited = " (generator-limited)" if row.generator_limited and not effect.note else ""
    ports = f" ({row.exhaustion.label})" if row.exhaustion else ""
    return f"{place}{tool}{limited}{ports}"


# -- an effect -----------------------------------------------------------------------------------------------


def format_difference(effect: Effect) -> str:
    """Format an effect for people, with its interval if it has one, and as CPU time per request if that is known.

    Examples: `−8.2 % [−9.1, −7.3] = −1.4 µs`, `−29.6 s [−29.9, −29.3]`.
    """
    metric, estimate = find_metric(effect.metric), effect.estimate
    if estimate is None:
        return "–"
    return f"{metric.change(estimate.effect)}{format_interval(effect)}{metric.time(estimate.effect, effect.level_s)}"


def format_interval(effect: Effect) -> str:
    """Format the interval of an effect, with a leading space: ` [−29.9, −29.3]`; empty for fewer than six blocks."""
    interval = effect.estimate.interval if effect.estimate else None
    return find_metric(effect.metric).ends(*interval) if interval else ""


def format_effect(effect: Effect) -> str:
    """Format one effect for the effect column of a table: its size with interval, and its adjusted p-value.

    `equivalent:` or `?` (inconclusive) precedes an effect with that decision. An effect without a decision is in
    brackets.
    """
    metric, estimate, pair_estimate = find_metric(effect.metric), effect.estimate, effect.pair_estimate
    if effect.decision is Decision.BIMODAL:
        return f"{metric.short} two clusters"
    if estimate is None and pair_estimate is not None:
        ends = format_interval(replace(effect, estimate=pair_estimate))
        return f"{metric.short} – (as a pair {metric.change(pair_estimate.effect)}{ends})"
    if estimate is None or (effect.decision is Decision.NOT_JUDGED and (effect.metric == "rate" or not metric.ratio)):
        return f"{metric.short} –"
    as_pair = f" (as a pair {metric.change(pair_estimate.effect)})" if pair_estimate is not None else ""
    if not estimate.has_interval:
        return f"{metric.short} no interval ({format_blocks(estimate.n)}){as_pair}"
    if effect.decision is Decision.A_A:
        return f"a/a {metric.short} {format_difference(effect)}"
    if not effect.decision.judged or not effect.primary:
        return f"({metric.short} {format_difference(effect)})"
    prefix = {Decision.EQUIVALENT: "equivalent: ", Decision.INCONCLUSIVE: "? "}.get(effect.decision, "")
    pairs = f", {estimate.n} pairs" if effect.scheme else ""
    return f"{prefix}{metric.short} {format_difference(effect)} p {format_p_value(effect.holm_p)}{pairs}{as_pair}"


def format_p_value(p_value: float | None) -> str:
    """Format a p-value with three decimals: `0.034`, `<0.001`, or `–` for None."""
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
