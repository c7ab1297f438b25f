"""Cells → effects: each arm against its baseline, metric by metric, and whether that may be judged at this point.

Refuses to claim anything but the primary metric. Of steady loads effects are ratios; of disturbed ones differences in the metric's
own unit, as most of it may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.analysis.cells import Cell, Cells, paired
from lab.analysis.decision import UNBOUNDED, Decision, adjusted, decide
from lab.analysis.judging import LIMITED, Ruling, carrier, ruling
from lab.model.metrics import CARRIED, DIFFERENCES, METRICS, QUANTILES, RATIOS, about, compared
from lab.model.plan import Arm
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND
from lab.stats.units import format_blocks

ALONE = ("failed", "gap_s")
"""What a baseline measured alone shows the floor of, beside a disturbance."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One arm against its baseline in one metric at one point, over the blocks in which both have it.

    `estimate` None: no such block. `floor` is the baseline's A/A δ, a log-ratio; None below six A/A blocks. (Of a disturbance
    both are differences in the metric's own unit, and the floor is no less than what the metric resolves.) `bound`: as
    `Ruling.bound`. `holm_p`: of what is not primary, adjusted over the whole table. Where it is not judged `note` says why this
    point cannot show it (lab/analysis/judging.py has the rules).
    """

    metric: str
    against: str
    estimate: stats.Estimate | None
    floor: float | None
    decision: Decision
    primary: bool
    note: str = ""
    bound: bool = False
    holm_p: float | None = None

    @property
    def claimed(self) -> bool:
        """Resolved, in the metric that may claim."""
        return self.decision.resolved and self.primary

    @property
    def marked(self) -> bool:
        """Resolved, in another metric."""
        return self.decision.resolved and not self.primary

    @property
    def better(self) -> bool:
        return self.decision is Decision.BETTER

    def decided(self, holm_p: float | None) -> Effect:
        """By the rule, where it is judged at all."""
        if self.estimate is None or not self.decision.judged:
            return self
        more = about(self.metric).better == "more"
        decision = decide(
            self.estimate, self.floor, more_is_better=more, primary=self.primary, adjusted_p=holm_p, bound=self.bound
        )
        note = UNBOUNDED if decision is Decision.NOT_JUDGED else self.note
        return replace(self, decision=decision, note=note, holm_p=holm_p)


@dataclass(frozen=True, slots=True)
class Effects:
    """What is asked of a run's cells. `primary`: arm → its metric; an arm without one claims nothing. `needs`: arm → what its effect
    needs and no sweep does: then nothing is judged.
    """

    cells: Cells
    primary: Mapping[str, str | None]
    needs: Mapping[str, str]

    def table(self, places: Sequence[tuple[Arm, Point]]) -> list[tuple[Effect, ...]]:
        """Those of each place, decided: all that is judged and not primary, in the whole table, is the family of Holm's method.

        Empty of what is compared with nothing, and of control runs.
        """
        table = [
            () if arm.baseline is None or point.control else tuple(self._effects(arm, arm.baseline, point))
            for arm, point in places
        ]
        family = [
            effect.estimate.p_value
            if effect.estimate and effect.estimate.has_interval and effect.decision.judged and not effect.primary
            else None
            for effects in table
            for effect in effects
        ]
        holm_p = iter(adjusted(family))
        return [tuple(effect.decided(next(holm_p)) for effect in effects) for effects in table]

    def _effects(self, arm: Arm, baseline: str, point: Point) -> Iterator[Effect]:
        """What is judged cannot be told yet. Of a disturbance only what has a better side, was measured, or is asked for."""
        own, base = self.cells.at(arm.name, point), self.cells.at(baseline, point)
        clock_error_s = max(own.clock_error_s, base.clock_error_s)
        wanted, rulings = self._wanted(arm, point), self._rulings(arm, point)
        asked = compared(point)
        for metric in [*asked, *sorted(wanted.difference(asked))]:
            primary, ruled = metric in wanted, rulings.get(metric, Ruling(f"{metric} are counted, not compared"))
            estimate, why = paired(own, base, metric), ruled.why
            decision = Decision.NOT_AVAILABLE
            silent = METRICS[metric].better == "neither" or not (estimate or why)
            if point.disturbance is not None and silent and not primary:
                continue
            floor = self.cells.floor(baseline, point, metric, clock_error_s)
            if estimate is None and metric in QUANTILES and own.counted and base.counted:
                why = why or f"{metric} needs {BEYOND} requests beyond it in every sample"
            elif why and (estimate or point.disturbance is not None):
                decision = Decision.NOT_JUDGED
            elif estimate is not None:
                decision = Decision.A_A if arm.role == "again" else Decision.CANNOT_TELL
            yield Effect(metric, baseline, estimate, floor, decision, primary, why or ruled.note, ruled.bound)

    def _rulings(self, arm: Arm, point: Point) -> dict[str, Ruling]:
        """Metric → whether it is judged here. An A/A pair's floors are shown where a variant that relies on it is judged."""
        assert arm.baseline is not None, "only arms with a baseline have effects"
        own, base = self.cells.at(arm.name, point), self.cells.at(arm.baseline, point)
        if point.disturbance is not None:
            return {metric: Ruling(untold(own, base, metric)) for metric in compared(point)}
        if needs := self.needs.get(arm.name, ""):
            return dict.fromkeys([*RATIOS, "errors"], Ruling(f"needs {needs}"))
        found = {metric: ruling(metric, own, base, self._points) for metric in RATIOS}
        for user in self._users(arm):
            theirs = self._rulings(user, point)
            found |= {metric: Ruling() for metric in RATIOS if not theirs[metric].why}
        return found

    @property
    def _points(self) -> list[Point]:
        """The steady ones: a sweep with a disturbance says nothing of what they can show."""
        return [point for point in self.cells.plan.points if point.disturbance is None]

    def _users(self, arm: Arm) -> list[Arm]:
        """The variants that rely on an A/A pair."""
        others = self.cells.plan.arms if arm.role == "again" else ()
        return [other for other in others if other.role == "variant" and other.baseline == arm.baseline]

    def _wanted(self, arm: Arm, point: Point) -> set[str]:
        """The metrics of the effect column: what carries the arm's primary one; for an A/A pair those of the variants that rely on it."""
        users = self._users(arm)
        asked = {metric for user in users for metric in self._wanted(user, point)}
        if point.disturbance is not None:
            own = {carried} if (carried := beside_disturbance(self.primary.get(arm.name))) else set[str]()
            return own if arm.role == "variant" else asked or set(ALONE)
        rulings = self._rulings(arm, point)
        if arm.role == "variant":
            why = {metric: found.why for metric, found in rulings.items()}
            return {carrier(metric, point, self._points, why) for metric in [self.primary.get(arm.name)] if metric}
        judged = {metric for metric in asked if metric in rulings and not rulings[metric].why}
        closed = "cpu_per_request" if rulings["rate"].why == LIMITED else "rate"
        return judged or {closed if point.rate_rps is None else "p99"} | (set() if users else {"cpu_per_request"})


def beside_disturbance(metric: str | None) -> str | None:
    """What stands for a primary metric beside a disturbance; None where nothing does."""
    found = CARRIED.get(metric or "", metric)
    return found if found in DIFFERENCES else None


def untold(own: Cell, base: Cell, metric: str, pairs: bool = True) -> str:
    """Why an outcome is not judged: it could not be told in blocks (of `pairs`: that both have); empty where it could."""
    mine, theirs = own.values.get(metric, {}), base.values.get(metric, {})
    both = sum(mine[block] is None or theirs[block] is None for block in mine.keys() & theirs.keys())
    many = both if pairs else own.untold(metric) + base.untold(metric)
    return f"it could not be told in {format_blocks(many)}, so the others do not show all of it" if many else ""
