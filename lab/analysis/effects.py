"""Cells → effects: each arm against its baseline, metric by metric, and whether that may be judged at this point.

Refuses to claim anything but the primary metric. Of steady loads effects are ratios; of disturbed ones differences in the metric's
own unit, as most of it may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.analysis.cells import Cell, Cells, paired
from lab.analysis.judging import LIMITED, Ruling, carrier, ruling
from lab.model.metrics import CARRIED, DIFFERENCES, METRICS, QUANTILES, RATIOS, about, compared
from lab.model.plan import Arm
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND
from lab.stats.units import format_blocks

MARK_P = 0.05
UNBOUNDED = "not resolved, and no bound: the faster side was limited by the generator"
ALONE = ("failed", "gap_s")
"""What a baseline measured alone shows the floor of, beside a disturbance."""
Judged = Literal["claimed", "marked", "unresolved", "no-interval", "a/a", "not-judged", "not-available"]


@dataclass(frozen=True, slots=True)
class Effect:
    """One arm against its baseline in one metric at one point, over the blocks in which both have it.

    `estimate` None: no such block. `floor` is the baseline's A/A δ, a log-ratio; None below six A/A blocks. (Of a disturbance
    both are differences in the metric's own unit, and the floor is no less than what the metric resolves.) Judgements:
    claimed        primary, and its interval lies wholly beyond the floor
    marked         not primary: larger than the floor and `holm_p`, adjusted over the whole table, at most 0.05
    unresolved     neither
    no-interval    fewer than six blocks
    a/a            the baseline against itself: what the floor comes from
    not-judged     `note` says why this point cannot show it (lab/analysis/judging.py has the rules)
    not-available  no estimate
    """

    metric: str
    against: str
    estimate: stats.Estimate | None
    floor: float | None
    judgement: Judged
    primary: bool
    note: str = ""
    holm_p: float | None = None

    @property
    def better(self) -> bool:
        return self.estimate is not None and (self.estimate.effect > 0) == (about(self.metric).better == "more")


@dataclass(frozen=True, slots=True)
class Effects:
    """What is asked of a run's cells. `primary`: arm → its metric; an arm without one claims nothing. `needs`: arm → what its effect
    needs and no sweep does: then nothing is judged.
    """

    cells: Cells
    primary: Mapping[str, str | None]
    needs: Mapping[str, str]

    def of(self, arm: Arm, point: Point) -> tuple[Effect, ...]:
        """Empty of what is compared with nothing, and of control runs. Of a disturbance only what has a better side, was measured,
        or is asked for.
        """
        if arm.baseline is None or point.control:
            return ()
        return tuple(self._effects(arm, arm.baseline, point))

    def _effects(self, arm: Arm, baseline: str, point: Point) -> Iterator[Effect]:
        own, base = self.cells.at(arm.name, point), self.cells.at(baseline, point)
        clock_error_s = max(own.clock_error_s, base.clock_error_s)
        wanted, rulings = self._wanted(arm, point), self._rulings(arm, point)
        asked = compared(point)
        for metric in [*asked, *sorted(wanted.difference(asked))]:
            primary, ruled = metric in wanted, rulings.get(metric, Ruling(f"{metric} are counted, not compared"))
            estimate, why = paired(own, base, metric), ruled.why
            judgement: Judged = "not-available"
            silent = METRICS[metric].better == "neither" or not (estimate or why)
            if point.disturbance is not None and silent and not primary:
                continue
            floor = self.cells.floor(baseline, point, metric, clock_error_s)
            if estimate is None and metric in QUANTILES and own.counted and base.counted:
                why = why or f"{metric} needs {BEYOND} requests beyond it in every sample"
            elif why and (estimate or point.disturbance is not None):
                judgement = "not-judged"
            elif estimate is not None:
                judgement = "a/a" if arm.role == "again" else stats.judge(estimate, floor)
                if ruled.bound and judgement == "unresolved" and primary:
                    judgement, why = "not-judged", UNBOUNDED
            yield Effect(metric, baseline, estimate, floor, judgement, primary, why or ruled.note)

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


def untold(own: Cell, base: Cell, metric: str) -> str:
    """Why an outcome is not judged: it could not be told in blocks that both have; empty where it could."""
    mine, theirs = own.values.get(metric, {}), base.values.get(metric, {})
    many = sum(mine[block] is None or theirs[block] is None for block in mine.keys() & theirs.keys())
    return f"it could not be told in {format_blocks(many)}, so the others do not show all of it" if many else ""


def with_marks(table: Sequence[tuple[Effect, ...]]) -> list[tuple[Effect, ...]]:
    """Each row's effects, marked: Holm over all that is not primary in the whole table; a mark also wants one larger than the floor."""
    family = [
        (number, place, effect.estimate.p_value)
        for number, effects in enumerate(table)
        for place, effect in enumerate(effects)
        if not effect.primary
        and effect.judgement in {"claimed", "unresolved"}
        and effect.estimate
        and effect.estimate.p_value is not None
    ]
    found = [list(effects) for effects in table]
    for (number, place, _), adjusted in zip(family, stats.holm([p for _, _, p in family]), strict=True):
        old = found[number][place]
        beyond = old.estimate is not None and old.floor is not None and abs(old.estimate.effect) > old.floor
        judgement = "marked" if beyond and adjusted <= MARK_P else "unresolved"
        found[number][place] = replace(old, judgement=judgement, holm_p=adjusted)
    return [tuple(effects) for effects in found]
