"""Samples and their histograms → one row per arm and point, with each metric's effect against the baseline.

Refuses to pool different targets, generators or loads, to average percentiles, and to claim anything but the
primary metric. Seconds and ratios inside. A sample's block, arm and point name its cell; of a cell's samples
the last valid attempt counts, and an interrupted block's never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Literal

from lab.analysis import rerun
from lab.analysis.judging import ERRORS_MIX, LIMITED, Ruling, Side, carrier, ruling
from lab.base.errors import MeasuringError
from lab.model.metrics import QUANTILES, RATIOS, about
from lab.model.plan import Arm, ArmRole, Plan
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND, Histogram
from lab.stats.units import format_blocks, format_interval, format_percent

if TYPE_CHECKING:
    from lab.model.run import NotMeasured, RunRecord


MARK_P = 0.05
UNBOUNDED = "not resolved, and no bound: the faster side was limited by the generator"
WHY_NO_MORE = {
    "limit": "limited by a container's CPU limit",
    "link": "limited by the shaped link",
    "errors": "limited by what failed",
    "waiting": "no CPU was full: what it waited for was the limit",
}
"""Notes of closed-loop rows in which every sample had this limit."""
Judged = Literal["claimed", "marked", "unresolved", "no-interval", "a/a", "not-judged", "not-available"]
HistogramOf = Callable[[Sample], Histogram | None]


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
    more_is_better: bool = False

    @property
    def better(self) -> bool:
        return self.estimate is not None and (self.estimate.effect > 0) == self.more_is_better


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one point. Rates (of answers as they should be) and CPU are medians over the valid blocks, percentiles
    those of the merged histogram.

    `errors` by kind over the valid samples, `errors_invalid` over the others. `cpu_of`: whose CPU (`backend` where
    there is no proxy). `invalid`: samples by reason, re-measured ones included. `generator_limited`: at a closed loop,
    any valid sample of the arm or its baseline was.
    """

    arm: Arm
    point: Point
    generator: str | None
    stand_in_for: str | None
    offered_rps: float | None
    achieved_rps: float | None
    latency_s: Mapping[str, float | None]
    histogram: str | None
    requests: int
    errors: Mapping[str, int]
    errors_invalid: Mapping[str, int]
    cpu_per_request_s: float | None
    cpu_of: str | None
    bring_up_s: float | None
    """Median over the blocks: how long the arm took to come up. Not part of any measured time."""
    valid_blocks: int
    planned_blocks: int
    invalid: Mapping[Reason, int]
    generator_limited: bool
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]
    values: Mapping[str, Mapping[int, float]] = field(default_factory=dict[str, Mapping[int, float]])
    """Metric → block → what was measured, of the valid blocks (seconds, req/s)."""
    limits: tuple[str, ...] = ()
    """What limited this arm itself in any valid block of a closed loop, as in `Sample.limited_by`."""
    memory_bytes: float | None = None
    """Of whom `cpu_of` names: resident at most, the median over the valid blocks."""
    gauges: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the system said of itself before the load (`System.gauges`): medians over the valid blocks that told."""

    @property
    def generator_label(self) -> str:
        """The generator used, and the one it stands in for: `k6 (for wrk2)`."""
        name = self.generator or self.point.generator
        return f"{name} (for {self.stand_in_for})" if self.stand_in_for else name

    @property
    def shown(self) -> tuple[Effect, ...]:
        """What the effect column carries: the primary metric's effect, or the A/A pair's floors."""
        return tuple(effect for effect in self.effects if effect.primary)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run's rows, grouped by point in plan order; inside, reference, baselines with their A/A, variants."""

    target: str | None
    blocks: int
    seed: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    snippets: Mapping[str, str]
    elsewhere: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arm → the sweep that its hypothesis names, where this run's is another: its load may not be able to show the effect."""
    not_measurable: tuple[NotMeasured, ...] = ()
    """What was asked for and cannot be shown here. It counts against nothing."""
    systems: frozenset[str] = frozenset()
    """Arms that are another system than what they are compared with: there is nothing to apply."""
    nulls: frozenset[str] = frozenset()
    """Arms that are compared with their own variant: there is no effect, and what is claimed of them is false."""
    resume: str = ""
    """The command that measures what an interruption left out; empty = everything planned was begun."""

    @property
    def complete(self) -> bool:
        """Whether every cell has all its valid blocks."""
        return all(row.valid_blocks >= row.planned_blocks for row in self.rows)


@dataclass(slots=True)
class _Cell:
    """What one arm measured at one point: counted samples by block, each metric's value by block, all latencies."""

    needs: str = ""
    """What the arm's effect needs and no sweep does; empty = nothing."""
    planned: set[int] = field(default_factory=set[int])
    """Blocks; of a search, those of the trials of this arm at this rate."""
    everything: list[Sample] = field(default_factory=list[Sample])
    counted: dict[int, Sample] = field(default_factory=dict[int, Sample])
    values: dict[str, dict[int, float]] = field(default_factory=lambda: {metric: {} for metric in RATIOS})
    merged: Histogram | None = None

    def add(self, sample: Sample, histogram: Histogram | None) -> None:
        self.counted[sample.block] = sample
        found = {"rate": sample.goodput_rps, "cpu_per_request": sample.cpu_per_request_s}
        if histogram is not None:
            found |= {name: histogram.quantile_s(q) for name, q in QUANTILES.items()}
            self.merged = self.merged.merge(histogram) if self.merged else histogram
        for metric, value in found.items():
            if value is not None and isfinite(value) and value > 0:  # 0: below the clock's resolution, no ratio
                self.values[metric][sample.block] = value

    @property
    def cpu_of(self) -> str | None:
        return next(
            ("proxy" if sample.usage.get("proxy") else "backend" for sample in self.counted.values() if sample.usage),
            None,
        )

    @property
    def side(self) -> Side:
        return Side(list(self.counted.values()), self.values, self.cpu_of)


def counted_samples(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """(block, arm, point) → the sample that counts: the last valid attempt, never one of an interrupted block."""
    found: dict[tuple[int, str, str], Sample] = {}
    for sample in sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id)):
        if sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            found[sample.block, sample.arm, sample.point.name] = sample
    return found


def summarise_run(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf) -> Summary:
    """`summarise` of a stored run: plan, primary metrics (or the one that its blocks were planned for) and snippets are those it recorded."""
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.role == "variant"}
    asked = record.planned_for.asked if record.planned_for else None  # chosen beforehand, as a hypothesis' own is
    primary = {name: asked or variant.primary_metric for name, variant in variants.items()}
    snippets = {name: variant.snippet for name, variant in variants.items()}
    elsewhere = {
        name: variant.hypothesis_sweep
        for name, variant in variants.items()
        if variant.hypothesis_sweep not in (None, record.sweep)
    }
    needs = {name: variant.needs for name, variant in variants.items()}
    summary = summarise(record.plan(), samples, histogram_of, primary, snippets, needs)
    notes = (*summary.notes, *changed_facts(record))
    ran = {arm.name: arm.variant for arm in record.arms}
    nulls = frozenset(
        arm.name for arm in record.arms if arm.role == "variant" and ran.get(arm.baseline or "") == arm.variant
    )
    return replace(
        summary,
        elsewhere=elsewhere,
        notes=notes,
        not_measurable=record.not_measurable,
        systems=record.systems - nulls,
        nulls=nulls,
        resume=left_out(record, samples),
    )


def left_out(record: RunRecord, samples: Iterable[Sample]) -> str:
    """The command that goes on with a run of which something planned was not begun; empty = nothing."""
    counted = (sample for sample in samples if sample.reason is not Reason.BLOCK_INTERRUPTED)
    begun = {(sample.block, sample.arm, sample.point.name) for sample in counted}
    return rerun.resume(record) if set(record.slots) - begun else ""


def more_blocks(resume: str, planned: int, valid: int) -> str:
    """What gives an interval where `valid` of `planned` blocks did not. `resume`: as `Summary.resume`."""
    if resume and planned >= stats.MIN_BLOCKS:
        return f"not all of it was measured, go on with: {resume}"
    lost = 0 if resume else planned - valid  # as many may be again
    return f"measure with --blocks {stats.MIN_BLOCKS + lost} or more"


def changed_facts(record: RunRecord) -> list[str]:
    """A note per resumption on a machine that was not quite the same."""
    return [
        f"resumed with other facts ({', '.join(changed)}): blocks before and after were not measured under the same conditions"
        for resumption in record.resumed
        if (changed := [name for name in resumption if name not in ("at", "boot_id")])
    ]


def summarise(
    plan: Plan,
    samples: Sequence[Sample],
    histogram_of: HistogramOf,
    primary: Mapping[str, str | None],
    snippets: Mapping[str, str] | None = None,
    needs: Mapping[str, str] | None = None,
) -> Summary:
    """Every cell of the plan as a row, measured or not; points with a disturbance have none (`lab.analysis.outcome_summary`).

    `primary`: arm → its primary metric; arms without one claim nothing. `histogram_of` is called once per counted
    sample. `snippets`: arm → what to apply, for its verdict. `needs`: arm → what its effect needs and no sweep does: then
    nothing is judged. MeasuringError when samples do not belong together.
    """
    refuse_mixtures(plan, samples)
    plan = replace(plan, points=tuple(point for point in plan.points if point.disturbance is None))
    samples = [sample for sample in samples if sample.point.disturbance is None]
    needs = needs or {}
    cells = {(arm.name, point.name): _Cell(needs.get(arm.name, "")) for arm in plan.arms for point in plan.points}
    for slot in plan.slots:
        if slot.point.disturbance is None:
            cells[slot.arm.name, slot.point.name].planned.add(slot.block)
    for sample in samples:
        cells[sample.arm, sample.point.name].everything.append(sample)
    for (_, arm, point), sample in sorted(counted_samples(samples).items()):
        cells[arm, point].add(sample, histogram_of(sample))
    arms = ordered(plan.arms)
    at = [(arm, point) for point in plan.points for arm in arms if cells[arm.name, point.name].planned]
    rows = [_row(plan, arm, point, cells, primary) for arm, point in at]
    marked = with_marks([row.effects for row in rows])
    rows = [replace(row, effects=effects) for row, effects in zip(rows, marked, strict=True)]
    target = next((sample.target for sample in samples), None)
    return Summary(target, plan.blocks, plan.seed, tuple(rows), _general_notes(rows), snippets or {})


def refuse_mixtures(plan: Plan, samples: Sequence[Sample]) -> None:
    """MeasuringError when samples do not belong together, or not to the plan."""
    remedy = "results of different targets, generators or loads are never pooled: summarise each run by itself"
    points = {point.name: point for point in plan.points}
    arms = {arm.name for arm in plan.arms}
    targets = sorted({sample.target for sample in samples})
    if len(targets) > 1:
        raise MeasuringError("samples", f"measured on different targets: {', '.join(targets)}", remedy)
    used: dict[str, set[str]] = {}
    for sample in samples:
        if sample.arm not in arms or points.get(sample.point.name) != sample.point:
            raise MeasuringError(
                sample.id, f"{sample.arm} at {sample.point.name} with this load is not in the run's plan", remedy
            )
        if sample.reason is not Reason.BLOCK_INTERRUPTED:
            used.setdefault(sample.point.name, set()).add(
                f"{sample.generator} {sample.generator_version or ''}".strip()
            )
    for point, generators in used.items():
        names = {name.split()[0] for name in generators}
        if len(names) > 1 or len([name for name in generators if " " in name]) > 1:
            raise MeasuringError(point, f"measured with different generators: {', '.join(sorted(generators))}", remedy)


def ordered(arms: Sequence[Arm]) -> list[Arm]:
    """Reference, baselines each with its A/A, variants."""
    place = {arm.name: number for number, arm in enumerate(arms)}
    roles: dict[str | None, ArmRole] = {arm.name: arm.role for arm in arms}
    rank = {"reference": 0, "baseline": 1, "variant": 2}

    def key(arm: Arm) -> tuple[int, int, bool]:
        again = arm.role == "again" and arm.baseline in place
        first = arm.baseline if again and arm.baseline else arm.name  # an A/A arm follows the arm it repeats
        return rank.get(roles[first], 1), place[first], again

    return sorted(arms, key=key)


def _row(
    plan: Plan, arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell], primary: Mapping[str, str | None]
) -> Row:
    cell = cells[arm.name, point.name]
    counted = list(cell.counted.values())
    invalid = [sample for sample in cell.everything if not sample.valid]
    row = Row(
        arm=arm,
        point=point,
        generator=next((sample.generator for sample in [*counted, *invalid]), None),
        stand_in_for=next((sample.stand_in_for for sample in [*counted, *invalid]), None),
        offered_rps=point.rate_rps,
        achieved_rps=_median(sample.goodput_rps for sample in counted),
        latency_s={
            **{name: cell.merged.quantile_s(q) if cell.merged else None for name, q in QUANTILES.items()},
            "max": cell.merged.maximum_s if cell.merged else None,
        },
        histogram=cell.merged.kind if cell.merged else None,
        requests=sum(sample.requests or 0 for sample in counted),
        errors=_sum_errors(counted),
        errors_invalid=_sum_errors(invalid),
        cpu_per_request_s=_median(sample.cpu_per_request_s for sample in counted),
        cpu_of=cell.cpu_of,
        bring_up_s=_median(sample.bring_up_s for sample in counted),
        valid_blocks=len(counted),
        planned_blocks=len(cell.planned),
        invalid={reason: count for reason in Reason if (count := sum(sample.reason is reason for sample in invalid))},
        generator_limited=_limited(arm, point, cells),
        effects=_effects(plan, arm, point, cells, primary),
        notes=(),
        values=cell.values,
        limits=tuple(sorted({sample.limited_by for sample in counted if sample.limited_by and point.rate_rps is None})),
        memory_bytes=_median(_memory_bytes(sample) for sample in counted),
        gauges=_gauges(counted),
    )
    told = (note for sample in counted for note in sample.notes)
    limits = {sample.limited_by for sample in counted}
    why = WHY_NO_MORE.get(limits.pop() or "", "") if len(limits) == 1 else ""
    notes = (*_row_notes(row, len({sample.block for sample in cell.everything})), *filter(None, [why]))
    return replace(row, notes=tuple(dict.fromkeys((*notes, *told))))


def _memory_bytes(sample: Sample) -> float | None:
    usage = sample.usage.get("proxy") or sample.usage.get("backend")
    return float(usage.rss_bytes) if usage else None


def _gauges(counted: Sequence[Sample]) -> dict[str, float]:
    names = dict.fromkeys(name for sample in counted for name in sample.gauges)
    return {name: median(sample.gauges[name] for sample in counted if name in sample.gauges) for name in names}


def _limited(arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell]) -> bool:
    return any(
        True in cells[name, point.name].side.limited
        for name in (arm.name, arm.baseline)
        if name and (name, point.name) in cells
    )


def _effects(
    plan: Plan, arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell], primary: Mapping[str, str | None]
) -> tuple[Effect, ...]:
    if arm.baseline is None:
        return ()
    own, base = cells[arm.name, point.name], cells[arm.baseline, point.name]
    again = next(
        (cells[a.name, point.name] for a in plan.arms if a.role == "again" and a.baseline == arm.baseline), _Cell()
    )
    rulings = _rulings(plan, arm, point, cells)
    wanted = _wanted(plan, arm, point, cells, primary)
    effects: list[Effect] = []
    for metric in [*RATIOS, *sorted(wanted.difference(RATIOS))]:
        ruled = rulings.get(metric, Ruling(f"{metric} are counted, not compared"))
        why, note = ruled.why, ruled.note
        estimate = _paired(own, base, metric)
        aa = _paired(again, base, metric)
        floor = stats.floor_of(aa) if aa else None
        judgement: Judged
        if estimate is None:
            judgement = "not-available"
            if metric in QUANTILES and own.counted and base.counted:
                why = why or f"{metric} needs {BEYOND} requests beyond it in every sample"
        elif why:
            judgement = "not-judged"
        else:
            judgement = "a/a" if arm.role == "again" else stats.judge(estimate, floor)
            if ruled.bound and judgement == "unresolved" and metric in wanted:
                judgement, why = "not-judged", UNBOUNDED
        primary_here, more = metric in wanted, metric == "rate"
        effects.append(
            Effect(metric, arm.baseline, estimate, floor, judgement, primary_here, why or note, more_is_better=more)
        )
    return tuple(effects)


def _rulings(plan: Plan, arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell]) -> dict[str, Ruling]:
    """Metric → whether it is judged here. An A/A pair's floors are shown where a variant that relies on it is judged."""
    assert arm.baseline is not None, "only arms with a baseline have effects"
    if needs := cells[arm.name, point.name].needs:
        return dict.fromkeys([*RATIOS, "errors"], Ruling(f"needs {needs}"))
    own, base = cells[arm.name, point.name].side, cells[arm.baseline, point.name].side
    found = {metric: ruling(metric, point, own, base, plan.points) for metric in RATIOS}
    for user in _users(plan, arm):
        theirs = _rulings(plan, user, point, cells)
        found |= {metric: Ruling() for metric in RATIOS if not theirs[metric].why}
    return found


def _users(plan: Plan, arm: Arm) -> list[Arm]:
    """The variants that rely on an A/A pair."""
    if arm.role != "again":
        return []
    return [other for other in plan.arms if other.role == "variant" and other.baseline == arm.baseline]


def _wanted(
    plan: Plan, arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell], primary: Mapping[str, str | None]
) -> set[str]:
    """The metrics of the effect column: what carries the arm's primary one; for an A/A pair those of the variants that rely on it."""
    rulings = _rulings(plan, arm, point, cells)
    if arm.role == "variant":
        why = {metric: found.why for metric, found in rulings.items()}
        return {carrier(metric, point, plan.points, why) for metric in [primary.get(arm.name)] if metric}
    users = _users(plan, arm)
    asked = {metric for user in users for metric in _wanted(plan, user, point, cells, primary)}
    judged = {metric for metric in asked if metric in rulings and not rulings[metric].why}
    closed = "cpu_per_request" if rulings["rate"].why == LIMITED else "rate"
    return judged or {closed if point.rate_rps is None else "p99"} | (set() if users else {"cpu_per_request"})


def _paired(own: _Cell, base: _Cell, metric: str) -> stats.Estimate | None:
    mine, theirs = own.values.get(metric, {}), base.values.get(metric, {})
    both = sorted(mine.keys() & theirs.keys())
    return stats.paired([mine[block] for block in both], [theirs[block] for block in both]) if both else None


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


def _row_notes(row: Row, blocks_tried: int) -> tuple[str, ...]:
    notes: list[str] = []
    total = sum(row.invalid.values())
    if total:
        reasons = [reason if len(row.invalid) == 1 else f"{reason} {count}" for reason, count in row.invalid.items()]
        notes.append(f"{total} invalid: {', '.join(reasons)}")
    if blocks_tried < row.planned_blocks:
        notes.append(f"{format_blocks(row.planned_blocks - blocks_tried)} not measured")
    if row.generator_limited and row.arm.role != "reference" and not any(_despite(effect) for effect in row.shown):
        notes.append(LIMITED)
    # p99.9 is mixed up by fewer failures than the others
    if any(effect.note == ERRORS_MIX for effect in row.effects if effect.metric != "p99.9"):
        notes.append(ERRORS_MIX)
    if row.cpu_of == "backend":
        notes.append("no proxy: CPU per request is the backend's")
    for effect in row.shown:
        if effect.note:
            notes.append(effect.note)
        if (estimate := effect.estimate) is None or effect.note:
            continue
        if stats.OUTLIERS in estimate.notes and estimate.has_interval:
            middle = estimate.hodges_lehmann
            beside = format_interval(estimate.hl_low, estimate.hl_high)
            notes.append(
                f"{stats.OUTLIERS} ({about(effect.metric).title}): Hodges–Lehmann {format_percent(middle)} %{beside}"
            )
        if stats.ALL_EQUAL in estimate.notes and estimate.has_interval:
            notes.append(f"{stats.ALL_EQUAL} ({about(effect.metric).title}): the interval has no width")
        if stats.NEED_BLOCKS in estimate.notes:
            notes.append(stats.NEED_BLOCKS)
        elif effect.floor is None and effect.judgement == "unresolved":
            notes.append(f"nothing is claimed without a floor: fewer than {stats.MIN_BLOCKS} valid A/A blocks")
    return tuple(dict.fromkeys(notes))


def _despite(effect: Effect) -> bool:
    """Whether something else than CPU per request carries the effect though a generator was the limit."""
    return effect.metric != "cpu_per_request" and effect.judgement in {"claimed", "no-interval", "a/a"}


def _general_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    notes = {
        f"{row.generator} stood in for {row.stand_in_for}": None for row in rows if row.generator and row.stand_in_for
    }
    notes |= {
        f"{row.generator}: percentiles lie between its printed ones, rounded up": None
        for row in rows
        if row.histogram == "quantiles"
    }
    if any(effect.judgement in {"claimed", "unresolved"} and effect.primary for row in rows for effect in row.effects):
        notes["effect: change against the baseline with its 95 % interval; ~: not wholly beyond the A/A floor"] = None
    if any(effect.judgement == "marked" for row in rows for effect in row.effects):
        notes[f"↑ ↓: differs from the baseline, Holm-adjusted p <= {MARK_P}; only the effect column claims"] = None
    if any(row.valid_blocks and row.latency_s[name] is None for row in rows for name in QUANTILES):
        notes[f"–: fewer than {BEYOND} requests lie beyond it"] = None
    if any(row.errors_invalid for row in rows):
        notes["errors (+n): n more in invalid samples"] = None
    return tuple(notes)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _sum_errors(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update({kind: count for kind, count in sample.errors.items() if count})
    return dict(sorted(total.items()))
