"""The advice of a comparison: one sentence per arm that ends in what to apply, or "no change needed" with the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1
from typing import Literal

from lab.analysis import rerun
from lab.analysis.explain.run import ONLY_TO_MEASURE_BY, find_bound, suggest_load, suggest_remedy
from lab.analysis.judge.comparison import (
    NOT_STEADY,
    TOO_FEW,
    TWO_CLUSTERS,
    ComparedRow,
    Comparison,
    format_change,
)
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.meeting import TWO_MACHINES
from lab.base.grouping import group_values
from lab.model.metrics import OUTCOME_OF_METRIC, QUANTILES, find_metric
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.stats import paired as stats
from lab.stats.units import format_blocks

MOST_NAMED = 3
"""The number of an arm's differences that its sentence names; further ones are counted."""
DIFFERENT_TOOLS = "generators differ"
FIRST_REASONS = (DIFFERENT_TOOLS, NOT_STEADY, "no valid block", "no block in which", TWO_CLUSTERS)
"""The beginnings of notes with a reason why nothing at all could be judged, and not only one metric."""
TOO_SELDOM = "a search tries each rate too seldom for an interval; what it finds is the knee"
WIDE = 0.1
"""The bound, as a fraction, beyond which more blocks are recommended."""


AdviceKind = Literal["apply", "keep", "mixed", "moved", "equivalent", "inconclusive", "nothing", "instrument"]


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice of a comparison about two arms (variants): one sentence with its kind, and what to apply.

    `base_arm` and `other_arm` are the names of the first and the second side. `snippet` is the part of a manifest to
    apply, or empty. Kinds:

    - apply: the second side is better in some rows and worse in none. For another system `snippet` is empty, and the text
      has the action.
    - keep: it is worse in some rows and better in none, so do not change to it.
    - mixed: it is better in some metrics and worse in others, or better but failed in some blocks (repetitions). The text
      has the condition for applying `snippet`.
    - moved: there is a difference that no setting explains. The manifests are equal, or the runs are of two machines, or
      the baseline of both runs may have changed as much.
    - equivalent: every effect with a decision is equivalent.
    - inconclusive: no difference was found; the text has the largest that remains possible.
    - nothing: no row could be judged; the text has what would help.
    - instrument: there is a difference, but the second side only serves to measure, so there is nothing to apply.
    """

    base_arm: str
    other_arm: str
    kind: AdviceKind
    text: str
    snippet: str = ""


def explain_unserved(comparison: Comparison, row: ComparedRow) -> str:
    """Explain a row in which the first side served its offered rate and the second side did not, and what to do about it."""
    search = f"just knee {comparison.variants(row.pair)[1].name}{rerun.place(comparison.other.target)}"
    message = f"the base served {row.point.name} and this did not"
    return f"{message}: `{search}` finds whether the proxy or the generator was the limit, or compare closed loops"


def advise(comparison: Comparison) -> tuple[Advice, ...]:
    """Return the advice about each pair of compared arms (variants), in the order of the comparison's rows."""
    by_pair = group_values((row.pair, row) for row in comparison.rows)
    return tuple(Advice(*pair, *_ArmPair(comparison, *pair, rows).advice) for pair, rows in by_pair.items())


@dataclass(frozen=True, slots=True)
class _ArmPair:
    """Two compared arms (variants) with the comparison's rows about them, from which one sentence of advice is made."""

    comparison: Comparison
    base_arm: str
    other_arm: str
    rows: Sequence[ComparedRow]

    @property
    def variants(self) -> tuple[VariantRecord, VariantRecord]:
        """The variants of the two compared arms: (first side, second side)."""
        return self.comparison.variants((self.base_arm, self.other_arm))

    @property
    def same_settings(self) -> bool:
        """True if the two compared arms (variants) have equal manifests."""
        return self.comparison.same_settings((self.base_arm, self.other_arm))

    @property
    def anchored(self) -> bool:
        """True if the two compared runs have a baseline in common, so that its own change between them is known."""
        return any(row.baseline_move is not None for row in self.rows)

    @property
    def advice(self) -> tuple[AdviceKind, str, str]:
        """The advice about two compared arms (variants): (kind of the advice, sentence, manifest snippet to apply or empty)."""
        is_own = (
            self.base_arm == self.other_arm
            or _find_arm(self.comparison.other, self.other_arm).baseline == self.base_arm
        )
        name = self.other_arm if is_own else f"{self.other_arm} against {self.base_arm}"
        resolved = [row for row in self.rows if row.decision.resolved]
        open_rows = [row for row in self.rows if row.decision is Decision.INCONCLUSIVE]
        same = [row for row in self.rows if row.decision is Decision.EQUIVALENT]
        few = sum(row.decision is Decision.NO_INTERVAL for row in self.rows)
        short = f"; {few} more without an interval: fewer than {stats.MIN_BLOCKS} blocks" if few else ""
        if not resolved and open_rows:
            return "inconclusive", f"{name}: {self._describe_inconclusive(open_rows, short)}", ""
        if not resolved and same:
            text = (
                f"equivalent in {_count(same)}: no change needed: {_describe_bound(_find_widest(same))} at most{short}"
            )
            return "equivalent", f"{name}: {text}", ""
        if not resolved:
            return "nothing", f"{name}: {self._explain_nothing()}", ""
        # differences in several units have no order
        resolved.sort(key=lambda row: -abs(row.estimate.effect) if row.estimate and row.relative else 0.0)
        resolved.sort(key=lambda row: row.metric != self._primary)
        firsts: dict[tuple[str, str], ComparedRow] = {}
        for row in resolved:  # the percentiles of a load are one finding, as they tend to move together
            firsts.setdefault((row.point.name, "latency" if row.metric in QUANTILES else row.metric), row)
        named_rows = list(firsts.values())[:MOST_NAMED]
        findings = (
            f"{_describe_place(row)} {format_change(row, row.estimate)}{' (at least)' if row.bound else ''}"
            for row in named_rows
            if row.estimate
        )
        parts = [
            f"{name}: {', '.join(findings)}",
            f", and {len(resolved) - len(named_rows)} more" if len(resolved) > len(named_rows) else "",
            f"; no difference resolved in {len(open_rows)} more" if open_rows else "",
            f"; equivalent in {len(same)} more" if same else "",
            short,
        ]
        message = "".join(parts)
        clear = [row for row in resolved if row.beyond_baseline]
        if moved := self._explain_moved(clear):
            return "moved", f"{message}: {moved}", ""
        if len(clear) < len(resolved):
            message += f" (of these not clearly beyond what their common baseline moved: {len(resolved) - len(clear)})"
        if not self.comparison.paired and not self.anchored:
            message += f" (no common baseline says what drifted between the runs; {self._remeasure_in_one_run})"
        if reason := self.variants[1].only_to_measure_by:
            return "instrument", f"{message}: {ONLY_TO_MEASURE_BY}: {reason}", ""
        first = {row.decision: row for row in reversed(clear)}
        better, worse = first.get(Decision.BETTER), first.get(Decision.WORSE)
        if better and worse:
            message += f": better in {_describe_place(better)}, worse in {_describe_place(worse)}"
            return self._apply(message, "mixed", " only if the first matters more to you")
        if worse:
            by_table = self.comparison.paired and _find_arm(self.comparison.other, self.other_arm).role == "variant"
            stay = "do not apply it" if by_table else f"worse than {self.base_arm}: plan for that if you choose it"
            if self.base_arm == self.other_arm:
                stay = f"keep the manifests of {self.comparison.base.id}"
            return "keep", f"{message}: {stay}", ""
        if fell := next((row.fell for row in self.rows if row.fell), ""):
            return self._apply(f"{message}, in the blocks that worked ({fell})", "mixed", " only once all of them do")
        return self._apply(message)

    def _explain_moved(self, clear: Sequence[ComparedRow]) -> str:
        """Return why the differences need not be the effect of a setting; empty if there is no such reason.

        Args:
            clear: The rows whose difference is larger than the change of the runs' common baseline.

        """
        if self.same_settings and self.comparison.paired:
            return "a false claim, as it is the same variant: `just aa` counts them"
        if self.same_settings:
            return f"the manifests are the same in both runs, so no setting did this: {self._remeasure_in_one_run}"
        if any(note.startswith(TWO_MACHINES) for note in self.comparison.notes) and not self.anchored:
            return f"on two machines, so apply nothing yet: {self._remeasure_in_one_run}"
        if not clear:
            moved = "not clearly more than their common baseline moved between the runs"
            return f"{moved}, so apply nothing yet: {self._remeasure_in_one_run}"
        return ""

    @property
    def _primary(self) -> str | None:
        """The primary metric of the second side's variant; None if it has none.

        For a disruption it is the outcome that corresponds to this metric, such as failed requests.
        """
        metric = self.variants[1].primary_metric
        return (
            metric
            if not self.rows or self.rows[0].relative or metric is None
            else OUTCOME_OF_METRIC.get(metric, metric)
        )

    @property
    def _remeasure_in_one_run(self) -> str:
        """The advice, with a command, to measure both variants within one run, where nothing but the settings can differ."""
        before, after = self.variants
        if self.same_settings:
            return f"compare settings within one run ({self._format_command(after.name)}), not across these two"
        if self.base_arm != self.other_arm:
            return f"measure both in one run: {self._format_command(f'{before.name} {after.name}')}"
        return f"give the two settings an overlay each and measure both in one run: {self._format_command('A B')}"

    def _apply(self, message: str, kind: AdviceKind = "apply", when: str = "") -> tuple[AdviceKind, str, str]:
        """Return the advice to apply the second side's manifest snippet or, if there is none to apply, all of its manifests.

        Args:
            message: The beginning of the sentence, which describes the differences.
            kind: The kind of the advice.
            when: The condition for applying it, with a leading space: ` only once all of them do`; empty for none.

        Returns:
            (kind, sentence, snippet to apply or empty).

        """
        before, after = self.variants
        same_arm = self.base_arm == self.other_arm
        if after.snippet and not (same_arm and after.snippet == before.snippet):
            return kind, f"{message}: apply{when}:", after.snippet
        action = f"apply its manifests (just show {self.other_arm})"
        if same_arm:
            action = f"apply manifests/{after.name}.yaml of {self.comparison.other.id}"
        elif not after.own_knobs:
            action = f"there is no setting to apply: choose {self.other_arm}"
        return kind, f"{message}: {action}{when}", ""

    def _describe_inconclusive(self, rows: Sequence[ComparedRow], short: str) -> str:
        """Describe the largest differences that the inconclusive rows do not exclude, and what would narrow them down.

        Two sizes are named: the largest in the primary metric, and the largest in any metric.

        Args:
            rows: The inconclusive rows.
            short: A phrase to add about rows without an interval; empty for none.

        """
        primary_rows = [row for row in rows if row.metric == self._primary]
        widest = {row.metric: row for row in map(_find_widest, filter(None, (primary_rows, rows)))}.values()
        bounds = " or ".join(map(_describe_bound, widest))
        wide = any(row.relative and expm1(find_bound(row.estimate)) > WIDE for row in widest)
        text = f"no difference resolved in {_count(rows)}: no change needed unless {bounds} matters to you"
        text += f"{'; more blocks would narrow it' if wide else ''}{short}"
        few = "so few blocks could not have resolved so many comparisons: compare one arm, or measure more blocks"
        text += f"; {few}" if any(TOO_FEW in note for note in self.comparison.notes) else ""
        moves = [
            (row.baseline_move.interval, max(row.size.margin, row.size.noise_floor))
            for row in rows
            if row.baseline_move and row.baseline_move.interval
        ]
        # where the baseline moved significantly, and by more than the margin and its noise floor
        if any(ends[0] > least or ends[1] < -least for ends, least in moves):
            hides = "its baseline moved between the runs, though"
            may_hide = "their common baseline moved between the runs, which may hide a difference"
            text += f"; {hides if self.same_settings else may_hide}: {self._remeasure_in_one_run}"
        after, record = self.variants[1], self.comparison.other
        if self.comparison.paired and after.hypothesis_sweep != record.sweep and after.own_knobs:
            text += suggest_load(after.name, after.hypothesis_sweep, record.target)
        return text

    def _explain_nothing(self) -> str:
        """Return why no row of the two arms (variants) has a decision, and what would help."""
        before, after = self.variants
        same = before.name in (after.name, _find_arm(self.comparison.other, self.other_arm).baseline)
        arms, record = after.name if same else f"{before.name} {after.name}", self.comparison.other
        if short := [row for row in self.rows if row.decision is Decision.NO_INTERVAL]:
            if record.knee is not None:  # a search has no blocks to choose
                return f"{TOO_SELDOM}: {self._format_command(arms)}"
            least = min((row.estimate.n for row in short if row.estimate), default=0)
            few = f"no interval ({format_blocks(least)}, {stats.MIN_BLOCKS} are needed), so nothing is resolved"
            return f"{few}: {self._format_command(arms)} --blocks {stats.MIN_BLOCKS + max(map(self._count_lost, short))}, or more"
        if unserved := next((row for row in self.rows if row.unserved), None):
            return f"nothing to judge: {explain_unserved(self.comparison, unserved)}"
        reasons = list(dict.fromkeys(row.notes[-1] for row in self.rows if row.notes))
        reason = next((reason for reason in reasons if reason.startswith(FIRST_REASONS)), "".join(reasons[:1]))
        if reason.startswith(NOT_STEADY):
            return f"{reason}; no effect is computed"
        return f"nothing to judge: {reason}: {self._find_remedy(reason, arms)}"

    def _find_remedy(self, reason: str, arms: str) -> str:
        if reason.startswith(TWO_CLUSTERS):
            return "find out what decides between them, as no number of blocks narrows it"
        if reason.startswith(DIFFERENT_TOOLS):
            return "measure both with one generator"
        for record in (self.comparison.base, self.comparison.other):
            if any(f"--resume {record.id}" in note for note in self.comparison.notes):
                return rerun.resume(record)
        if reason.startswith(FIRST_REASONS):
            return f"measure again: {self._format_command(arms)}"
        sweep, record = self.variants[1].hypothesis_sweep, self.comparison.other
        return suggest_remedy(reason, arms, sweep if sweep != record.sweep else None, record.target)

    def _count_lost(self, row: ComparedRow) -> int:
        """Return how many planned blocks (repetitions) of a row have no result.

        A recommended number of blocks includes them, because as many may be lost again. Within one run, a block counts
        as lost if either side has no result. For two runs, the larger number of the two is returned.
        """
        if self.comparison.paired and row.estimate is not None:
            return row.base.planned_blocks - row.estimate.n
        return max(side.planned_blocks - len(side.values) for side in (row.base, row.other))

    def _format_command(self, arms: str) -> str:
        """Return the command that measures some arms (variants) again with the load and target of the second side's run.

        Args:
            arms: The names of the arms, separated by spaces.

        """
        return rerun.measure_command(self.comparison.other, arms)


def _describe_place(row: ComparedRow) -> str:
    return f"{find_metric(row.metric).title} at {row.point.name}"


def _count(rows: Sequence[ComparedRow]) -> str:
    return "1 comparison" if len(rows) == 1 else f"{len(rows)} comparisons"


def _describe_bound(row: ComparedRow) -> str:
    size = find_metric(row.metric).size(find_bound(row.estimate))
    return f"{size if row.relative else f'a difference of {size}'} in {_describe_place(row)}"


def _find_widest(rows: Sequence[ComparedRow]) -> ComparedRow:
    """Return the row of a comparison whose interval allows the largest effect.

    Outcomes of a disruption have different units. So that they can be compared, the effect on an outcome is divided by
    the value of this outcome on the first side (the one that the other side is compared with).
    """

    def size(row: ComparedRow) -> float:
        level = row.base.level.value if row.base.level else 0.0
        largest = find_bound(row.estimate)
        return largest if row.relative or not level else largest / abs(level)

    return max(rows, key=size)


def _find_arm(record: RunRecord, name: str) -> Arm:
    return next(arm for arm in record.arms if arm.name == name)
