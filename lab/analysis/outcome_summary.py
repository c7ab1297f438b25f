"""A run's disturbed samples → one row per arm and point: medians of what came of it, and effects against the baseline.

Effects are the blocks' differences in the metric's own unit, as most of it may be 0. Refuses to count a block whose control
run failed: what its disturbance showed may not have been its doing. Claims nothing but the primary metric's effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from lab.analysis.summary import (
    MARK_P,
    Effect,
    changed_facts,
    counted_samples,
    left_out,
    ordered,
    refuse_mixtures,
    with_marks,
)
from lab.model.metrics import CARRIED, DIFFERENCES, METRICS
from lab.model.plan import Arm, Plan
from lab.model.run import NotMeasured, RunRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point, control_of
from lab.stats import paired as stats
from lab.stats.units import format_blocks

SLOWED = ("p99", "p50")
"""Latencies whose ratio of during to before is shown: the first that all arms of a point can tell."""
ALONE = ("failed", "gap_s")
"""What a baseline measured alone shows the floor of."""

Values = Mapping[str, Mapping[int, float | None]]


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """One arm at one point, which may be a control run.

    `values`: metric → block → number, None = it could not be told; `levels`: their medians. `invalid`: samples by
    reason. `clock_error_s`: the largest.
    """

    arm: Arm
    point: Point
    generator: str | None
    stand_in_for: str | None
    values: Values
    levels: Mapping[str, stats.Level]
    valid_blocks: int
    planned_blocks: int
    invalid: Mapping[Reason, int]
    clock_error_s: float
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]

    @property
    def slowdowns(self) -> Mapping[str, stats.Estimate]:
        """p99, p50 → latency during against before, of each block's own two; only what every block that counts can tell."""
        found: dict[str, stats.Estimate] = {}
        for name in SLOWED:
            during, before = (self.values.get(f"{name}_{part}_s", {}) for part in ("during", "before"))
            blocks = sorted(during.keys() & before.keys())
            known = [(one, other) for block in blocks if (one := during[block]) and (other := before[block])]
            if known and len(known) == self.valid_blocks:
                found[name] = stats.paired([one for one, _ in known], [other for _, other in known])
        return found

    @property
    def shown(self) -> tuple[Effect, ...]:
        """The primary metric's effect, or the A/A pair's floors."""
        return tuple(effect for effect in self.effects if effect.primary)

    def largest(self, metric: str) -> float | None:
        return max((value for value in self.values.get(metric, {}).values() if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class OutcomeSummary:
    """A run's disturbed points: `rows` in plan order of the points, arms as in `lab.analysis.summary.Summary`; controls last."""

    target: str | None
    blocks: int
    rows: tuple[OutcomeRow, ...]
    notes: tuple[str, ...]
    primary: Mapping[str, str]
    """Arm → its metric, as `METRICS` calls it; variants without one of these are left out."""
    snippets: Mapping[str, str]
    elsewhere: Mapping[str, str]
    systems: frozenset[str]
    not_measurable: tuple[NotMeasured, ...]
    resume: str
    """As `lab.analysis.summary.Summary` has it."""

    @property
    def complete(self) -> bool:
        return all(row.valid_blocks >= row.planned_blocks for row in self.rows)

    def points(self, control: bool) -> list[Point]:
        return list({row.point.name: row.point for row in self.rows if row.point.control is control}.values())

    def at(self, point: Point) -> list[OutcomeRow]:
        return [row for row in self.rows if row.point.name == point.name]

    def control_of(self, row: OutcomeRow) -> OutcomeRow | None:
        """The same arm with the same load and nothing done."""
        control = control_of(self.points(control=True), row.point)
        return next((other for other in self.rows if other.arm == row.arm and other.point == control), None)


def summarise_outcomes(record: RunRecord, samples: Sequence[Sample]) -> OutcomeSummary | None:
    """None for a run without disturbances. MeasuringError when samples do not belong together."""
    plan = record.plan()
    refuse_mixtures(plan, samples)
    points = sorted((point for point in plan.points if point.disturbance is not None), key=lambda point: point.control)
    if not points:
        return None
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.role == "variant"}
    asked = {name: variant.primary_metric for name, variant in variants.items()}
    primary = {name: CARRIED.get(metric, metric) for name, metric in asked.items() if metric is not None}
    primary = {name: metric for name, metric in primary.items() if metric in DIFFERENCES}
    unmarked = list(_rows(plan, points, samples, primary))
    marked = with_marks([row.effects for row in unmarked])
    rows = [replace(row, effects=effects) for row, effects in zip(unmarked, marked, strict=True)]
    return OutcomeSummary(
        target=next((sample.target for sample in samples), None),
        blocks=plan.blocks,
        rows=tuple(rows),
        notes=(*_general_notes(rows), *changed_facts(record)),
        primary=primary,
        snippets={name: variant.snippet for name, variant in variants.items()},
        elsewhere={
            name: variant.hypothesis_sweep
            for name, variant in variants.items()
            if variant.hypothesis_sweep not in (None, record.sweep)
        },
        systems=record.systems,
        not_measurable=record.not_measurable,
        resume=left_out(record, samples),
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """One arm at one point: the samples that count by block, and the blocks that do not for their control's sake."""

    counted: Mapping[int, Sample]
    lost: tuple[int, ...]

    def values(self, metric: str) -> dict[int, float | None]:
        """Block → number; only the blocks whose sample has the metric."""
        return {block: sample.outcome[metric] for block, sample in self.counted.items() if metric in sample.outcome}

    @property
    def clock_error_s(self) -> float:
        return max((sample.outcome.get("clock_error_s") or 0.0 for sample in self.counted.values()), default=0.0)


def _cells(plan: Plan, points: Sequence[Point], samples: Sequence[Sample]) -> dict[tuple[str, str], _Cell]:
    counted = counted_samples(samples)
    found: dict[tuple[str, str], _Cell] = {}
    for point in points:
        control = control_of(points, point)
        for arm in plan.arms:
            mine = {
                block: one for (block, name, at), one in sorted(counted.items()) if (name, at) == (arm.name, point.name)
            }
            lost = [block for block in mine if control is not None and (block, arm.name, control.name) not in counted]
            kept = {block: sample for block, sample in mine.items() if block not in lost}
            found[arm.name, point.name] = _Cell(kept, tuple(lost))
    return found


def _rows(
    plan: Plan, points: Sequence[Point], samples: Sequence[Sample], primary: Mapping[str, str]
) -> Iterator[OutcomeRow]:
    cells = _cells(plan, points, samples)
    for point in points:
        for arm in ordered(plan.arms):
            planned = len({slot.block for slot in plan.slots if slot.arm == arm and slot.point == point})
            if planned:
                mine = [one for one in samples if (one.arm, one.point.name) == (arm.name, point.name)]
                effects = () if point.control else tuple(_effects(plan, arm, point, cells, primary))
                yield _row(arm, point, cells[arm.name, point.name], mine, planned, effects)


def _row(
    arm: Arm, point: Point, cell: _Cell, mine: Sequence[Sample], planned: int, effects: tuple[Effect, ...]
) -> OutcomeRow:
    counted = list(cell.counted.values())
    values = {metric: found for metric in DIFFERENCES if (found := cell.values(metric))}
    invalid = [sample for sample in mine if not sample.valid]
    row = OutcomeRow(
        arm=arm,
        point=point,
        generator=next((sample.generator for sample in [*counted, *invalid]), None),
        stand_in_for=next((sample.stand_in_for for sample in [*counted, *invalid]), None),
        values=values,
        levels={metric: level for metric, found in values.items() if (level := _level(found)) is not None},
        valid_blocks=len(counted),
        planned_blocks=planned,
        invalid={reason: count for reason in Reason if (count := sum(one.reason is reason for one in invalid))},
        clock_error_s=cell.clock_error_s,
        effects=effects,
        notes=(),
    )
    tried = len({sample.block for sample in mine})
    told = (note for sample in counted for note in sample.notes)
    return replace(row, notes=tuple(dict.fromkeys((*_row_notes(row, cell, tried), *told))))


def _level(found: Mapping[int, float | None]) -> stats.Level | None:
    known = [value for value in found.values() if value is not None and isfinite(value)]
    return stats.middle(known) if known else None


def _row_notes(row: OutcomeRow, cell: _Cell, tried: int) -> Iterator[str]:
    if total := sum(row.invalid.values()):
        reasons = [reason if len(row.invalid) == 1 else f"{reason} {count}" for reason, count in row.invalid.items()]
        yield f"{total} invalid: {', '.join(reasons)}"
    if cell.lost:
        yield f"{format_blocks(len(cell.lost))} not counted: no valid control run of this arm in it"
    if tried < row.planned_blocks:
        yield f"{format_blocks(row.planned_blocks - tried)} not measured"
    for effect in row.shown:
        title, estimate = METRICS[effect.metric].title, effect.estimate
        if effect.note:
            yield f"{title}: {effect.note}"
        elif estimate is not None and stats.NEED_BLOCKS in estimate.notes:
            yield stats.NEED_BLOCKS
        elif estimate is not None and effect.floor is None and effect.judgement == "unresolved":
            yield f"nothing is claimed without a floor: fewer than {stats.MIN_BLOCKS} valid A/A blocks"
        elif estimate is not None and stats.OUTLIERS in estimate.notes:
            about = METRICS[effect.metric]
            low, high = (about.text(bound, signed=True) for bound in (estimate.hl_low, estimate.hl_high))
            middle = about.text(estimate.hodges_lehmann, signed=True)
            yield f"{stats.OUTLIERS} ({title}): Hodges–Lehmann {middle} [{low}, {high}]"


def _effects(
    plan: Plan, arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell], primary: Mapping[str, str]
) -> Iterator[Effect]:
    if arm.baseline is None:
        return
    own, base = cells[arm.name, point.name], cells[arm.baseline, point.name]
    again = next((a.name for a in plan.arms if a.role == "again" and a.baseline == arm.baseline), None)
    repeated = cells[again, point.name] if again else _Cell({}, ())
    wanted = _wanted(plan, arm, primary)
    for metric in DIFFERENCES:
        about = METRICS[metric]
        if about.better == "neither" and metric not in wanted:
            continue
        estimate, untold = _difference(own, base, metric)
        if estimate is None and not untold and metric not in wanted:
            continue
        aa, _ = _difference(repeated, base, metric)
        floor = floor_of(metric, point, aa, max(own.clock_error_s, base.clock_error_s))
        note, judgement = "", "not-available"
        if untold:
            note = f"it could not be told in {format_blocks(untold)}, so the others do not show all of it"
            judgement = "not-judged"
        elif estimate is not None:
            judgement = "a/a" if arm.role == "again" else stats.judge(estimate, floor)
        more = about.better == "more"
        yield Effect(metric, arm.baseline, estimate, floor, judgement, metric in wanted, note, more_is_better=more)


def _difference(own: _Cell, base: _Cell, metric: str) -> tuple[stats.Estimate | None, int]:
    """(estimate over the blocks in which both are known, how many blocks more have the metric but not its number)."""
    mine, theirs = own.values(metric), base.values(metric)
    both = sorted(mine.keys() & theirs.keys())
    pairs = [
        (one, other) for block in both if (one := mine[block]) is not None and (other := theirs[block]) is not None
    ]
    if not pairs:
        return None, len(both)
    first, second = zip(*pairs, strict=True)
    return stats.difference(first, second), len(both) - len(pairs)


def _wanted(plan: Plan, arm: Arm, primary: Mapping[str, str]) -> set[str]:
    """The primary metric; of an A/A pair those of the variants that rely on it."""
    if arm.role == "variant":
        return {primary[arm.name]} if arm.name in primary else set()
    users = [other.name for other in plan.arms if other.role == "variant" and other.baseline == arm.baseline]
    return {primary[name] for name in users if name in primary} or set(ALONE)


def floor_of(metric: str, point: Point, aa: stats.Estimate | None, clock_error_s: float) -> float | None:
    """Of differences: the larger of the A/A pair's δ and of what the metric resolves; None below six A/A blocks."""
    floor = stats.floor_of(aa) if aa is not None else None
    return None if floor is None else max(floor, resolution_s(metric, point, clock_error_s))


def resolution_s(metric: str, point: Point, clock_error_s: float) -> float:
    """Below this a difference is none, however often it repeats: requests come one by one, and clocks are known so well only."""
    seen = METRICS[metric].seen if metric in METRICS else "count"
    spacing_s = 1 / point.rate_rps if point.rate_rps is not None and seen in ("requests", "both") else 0.0
    return spacing_s + (clock_error_s if seen == "both" else 0.0)


def slowed_by(rows: Sequence[OutcomeRow]) -> str | None:
    """p99, or p50 where an arm has too few answers for it: what is compared with before the disturbance. None in control runs."""
    told = [set(row.slowdowns) for row in rows if row.valid_blocks and not row.point.control]
    return next((name for name in SLOWED if told and all(name in names for names in told)), None)


def _general_notes(rows: Sequence[OutcomeRow]) -> Iterator[str]:
    for name, other in dict.fromkeys((row.generator, row.stand_in_for) for row in rows if row.stand_in_for):
        yield f"{name} stood in for {other}"
    measured = [row for row in rows if row.valid_blocks]
    if any(row.valid_blocks >= stats.MIN_BLOCKS for row in measured):
        yield "median of the blocks [95 % interval of the median]"
    if any(1 < row.valid_blocks < stats.MIN_BLOCKS for row in measured):
        yield f"median (smallest to largest): fewer than {stats.MIN_BLOCKS} blocks, nothing is claimed"
    if any(e.judgement in {"claimed", "unresolved"} and e.primary for row in rows for e in row.effects):
        yield (
            "against the baseline: the blocks' mean difference with its 95 % interval; ~: not wholly beyond the A/A floor"
        )
    if any(effect.judgement == "marked" for row in rows for effect in row.effects):
        yield f"↑ ↓: differs from the baseline, Holm-adjusted p <= {MARK_P}; only a variant's primary metric claims"
    if measured:
        yield "p50, p99, largest: of good answers, from when they were due; during: from the disturbance's begin to its end"
        points = {row.point.name for row in measured}
        if any(slowed_by([row for row in measured if row.point.name == name]) for name in points):
            yield f"during against before: geometric mean of the blocks' ratios [95 % interval from {stats.MIN_BLOCKS} blocks on]"
        error_s = max(row.clock_error_s for row in measured)
        yield f"clocks of generator and events: their offset is known to {error_s * 1e3:.3g} ms and taken out"
