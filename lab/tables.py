"""Samples and their histograms → one row per arm and point → terminal table, JSON, Markdown, and a verdict per variant.

Refuses to pool different targets, generators or loads, to average percentiles, and to claim anything but the
primary metric. Seconds inside, milliseconds and microseconds only in what is printed. A sample's block, arm
and point name its cell; of a cell's samples the last valid attempt counts, and an interrupted block's never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp, expm1, isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab import stats
from lab.errors import MeasuringError
from lab.histogram import BEYOND, LIMIT_US, UNIT_S, Histogram
from lab.plan import Arm, Plan
from lab.samples import ArmRole, Reason, Sample
from lab.sweeps import Point

if TYPE_CHECKING:
    from lab.store import RunRecord

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
LABELS = {"rate": "rate", "cpu_per_request": "CPU/req"} | {name: name for name in QUANTILES}
"""Metric → its short name in tables. These are the metrics that have effects; errors are counted, never compared."""

MARK_P = 0.05
LIMITED = "generator-limited; only CPU per request carries the effect"
Judged = Literal["claimed", "marked", "unresolved", "no-interval", "a/a", "not-judged", "not-available"]
HistogramOf = Callable[[Sample], Histogram | None]


@dataclass(frozen=True, slots=True)
class Effect:
    """One arm against its baseline in one metric at one point, over the blocks in which both have it.

    `estimate` None: no such block. `floor` is the baseline's A/A δ, a log-ratio; None below six A/A blocks. Judgements:
    claimed        primary, and its interval lies wholly beyond the floor
    marked         not primary: larger than the floor and `holm_p`, adjusted over the whole table, at most 0.05
    unresolved     neither
    no-interval    fewer than six blocks
    a/a            the baseline against itself: what the floor comes from
    not-judged     `note` says why this point cannot show it
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
        """More requests per second, or less of anything else."""
        return self.estimate is not None and (self.estimate.effect > 0) == (self.metric == "rate")


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one point. Rates and CPU are medians over the valid blocks, percentiles those of the merged histogram.

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
    valid_blocks: int
    planned_blocks: int
    invalid: Mapping[Reason, int]
    generator_limited: bool
    effects: tuple[Effect, ...]
    notes: tuple[str, ...]

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

    @property
    def complete(self) -> bool:
        """Whether every cell has all its valid blocks."""
        return all(row.valid_blocks >= row.planned_blocks for row in self.rows)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One variant's sentence. Kind `apply` ends in a colon, and `snippet` is what to apply; else it is empty."""

    arm: str
    kind: Literal["apply", "worse", "mixed", "unresolved", "no-interval", "not-measurable"]
    text: str
    snippet: str = ""


@dataclass(slots=True)
class _Cell:
    """What one arm measured at one point: counted samples by block, each metric's value by block, all latencies."""

    everything: list[Sample] = field(default_factory=list[Sample])
    counted: dict[int, Sample] = field(default_factory=dict[int, Sample])
    values: dict[str, dict[int, float]] = field(default_factory=lambda: {metric: {} for metric in LABELS})
    merged: Histogram | None = None

    def add(self, sample: Sample, histogram: Histogram | None) -> None:
        self.counted[sample.block] = sample
        found = {"rate": sample.achieved_rps, "cpu_per_request": sample.cpu_per_request_s}
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
    def generator_limited(self) -> bool:
        return any(
            sample.point.rate_rps is None and sample.limited_by == "generator" for sample in self.counted.values()
        )


def counted_samples(samples: Iterable[Sample]) -> dict[tuple[int, str, str], Sample]:
    """(block, arm, point) → the sample that counts: the last valid attempt, never one of an interrupted block."""
    found: dict[tuple[int, str, str], Sample] = {}
    for sample in sorted(samples, key=lambda sample: (sample.generation, sample.attempt, sample.id)):
        if sample.valid and sample.reason is not Reason.BLOCK_INTERRUPTED:
            found[sample.block, sample.arm, sample.point.name] = sample
    return found


def summarise_run(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf) -> Summary:
    """`summarise` of a stored run: plan, primary metrics and snippets are those it recorded."""
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.role == "variant"}
    primary = {name: variant.primary_metric for name, variant in variants.items()}
    return summarise(
        record.plan(), samples, histogram_of, primary, {name: variant.snippet for name, variant in variants.items()}
    )


def summarise(
    plan: Plan,
    samples: Sequence[Sample],
    histogram_of: HistogramOf,
    primary: Mapping[str, str | None],
    snippets: Mapping[str, str] | None = None,
) -> Summary:
    """Every cell of the plan as a row, measured or not.

    `primary`: arm → its primary metric; arms without one claim nothing. `histogram_of` is called once per counted
    sample. `snippets`: arm → what to apply, for its verdict. MeasuringError when samples do not belong together.
    """
    _refuse_mixtures(plan, samples)
    cells = {(arm.name, point.name): _Cell() for arm in plan.arms for point in plan.points}
    for sample in samples:
        cells[sample.arm, sample.point.name].everything.append(sample)
    for (_, arm, point), sample in sorted(counted_samples(samples).items()):
        cells[arm, point].add(sample, histogram_of(sample))
    rows = [_row(plan, arm, point, cells, primary) for point in plan.points for arm in _ordered(plan.arms)]
    rows = _with_marks(rows)
    target = next((sample.target for sample in samples), None)
    return Summary(target, plan.blocks, plan.seed, tuple(rows), _general_notes(rows), snippets or {})


def verdicts(summary: Summary) -> tuple[Verdict, ...]:
    """One sentence per variant, in row order: what its primary metric showed, how surely, and what to do about it."""
    by_arm: dict[str, list[tuple[Row, Effect]]] = {}
    for row in summary.rows:
        if row.arm.role == "variant":
            by_arm.setdefault(row.arm.name, []).extend((row, effect) for effect in row.shown)
    found = [_verdict(arm, effects) for arm, effects in by_arm.items()]
    return tuple(
        replace(one, snippet=summary.snippets.get(one.arm, "")) if one.kind == "apply" else one for one in found
    )


def floor_line(summary: Summary) -> str:
    """The A/A floor by metric, the largest where there are several points: what `bench baseline` alone ends with."""
    effects = [effect for row in summary.rows for effect in row.effects if effect.judgement == "a/a"]
    floors = {metric: [e.floor for e in effects if e.metric == metric and e.floor is not None] for metric in LABELS}
    blocks = min((e.estimate.n for e in effects if e.estimate), default=0)
    if not any(floors.values()):
        return f"no floor yet: {_blocks(blocks)} with both baselines, {stats.MIN_BLOCKS} are needed"
    parts = [f"{_name(metric)} {_size(max(values))}" for metric, values in floors.items() if values]
    return f"this machine's floor: {', '.join(parts)} ({_blocks(blocks)}): smaller differences are noise here"


# --- rows ------------------------------------------------------------------------------------------------------------


def _refuse_mixtures(plan: Plan, samples: Sequence[Sample]) -> None:
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


def _ordered(arms: Sequence[Arm]) -> list[Arm]:
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
        achieved_rps=_median(sample.achieved_rps for sample in counted),
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
        valid_blocks=len(counted),
        planned_blocks=1 if arm.role == "reference" else plan.blocks,
        invalid={reason: count for reason in Reason if (count := sum(sample.reason is reason for sample in invalid))},
        generator_limited=_limited(arm, point, cells),
        effects=_effects(plan, arm, point, cells, primary),
        notes=(),
    )
    return replace(row, notes=_row_notes(row, len({sample.block for sample in cell.everything})))


def _limited(arm: Arm, point: Point, cells: Mapping[tuple[str, str], _Cell]) -> bool:
    return any(
        cells[name, point.name].generator_limited
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
    limited = _limited(arm, point, cells)
    whys = {metric: _not_judged(metric, point, limited, plan.points, own.cpu_of == base.cpu_of) for metric in LABELS}
    wanted = _wanted(plan, arm, point, limited, primary, whys)
    effects: list[Effect] = []
    for metric in [*LABELS, *sorted(wanted - LABELS.keys())]:
        why = whys.get(metric, f"{metric} are counted, not compared")
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
        effects.append(Effect(metric, arm.baseline, estimate, floor, judgement, metric in wanted, why))
    return tuple(effects)


def _wanted(
    plan: Plan, arm: Arm, point: Point, limited: bool, primary: Mapping[str, str | None], whys: Mapping[str, str]
) -> set[str]:
    """The metrics of the effect column: the arm's primary one; for an A/A pair those of the variants that rely on it.

    Where the generator was the limit, CPU per request stands for the rate. That is settled by who was the limit, not by
    what the effect looks like, so it stays one metric chosen beforehand.
    """
    if arm.role == "variant":
        asked = {metric for metric in [primary.get(arm.name)] if metric}
        return asked - {"rate"} | {"cpu_per_request"} if limited and "rate" in asked else asked
    users = [other.name for other in plan.arms if other.role == "variant" and other.baseline == arm.baseline]
    asked = {metric for name in users if (metric := primary.get(name)) and not whys.get(metric, metric)}
    default = {"cpu_per_request"} if limited else {"rate" if point.rate_rps is None else "p99"}
    return asked or default | (set() if users else {"cpu_per_request"})


def _paired(own: _Cell, base: _Cell, metric: str) -> stats.Estimate | None:
    mine, theirs = own.values.get(metric, {}), base.values.get(metric, {})
    both = sorted(mine.keys() & theirs.keys())
    return stats.paired([mine[block] for block in both], [theirs[block] for block in both]) if both else None


def _not_judged(metric: str, point: Point, limited: bool, points: Sequence[Point], same_cpu: bool) -> str:
    """Why this point cannot show an effect in this metric; empty if it can."""
    if metric == "rate" and point.rate_rps is not None:
        return "the rate is given here, not measured"
    if metric == "cpu_per_request":
        return "" if same_cpu else "CPU per request of a proxy is not comparable with a backend's"
    if limited:
        return LIMITED
    if metric in QUANTILES and point.rate_rps is None and any(other.rate_rps is not None for other in points):
        return "latency is judged at the points with a rate; a closed loop's follows from its throughput"
    return ""


def _with_marks(rows: Sequence[Row]) -> list[Row]:
    """Holm over all that is not primary in the whole table; a mark also wants an effect larger than the floor."""
    family = [
        (number, place, effect.estimate.p_value)
        for number, row in enumerate(rows)
        for place, effect in enumerate(row.effects)
        if not effect.primary
        and effect.judgement in {"claimed", "unresolved"}
        and effect.estimate
        and effect.estimate.p_value is not None
    ]
    found = list(rows)
    for (number, place, _), adjusted in zip(family, stats.holm([p for _, _, p in family]), strict=True):
        effects = list(found[number].effects)
        old = effects[place]
        beyond = old.estimate is not None and old.floor is not None and abs(old.estimate.effect) > old.floor
        effects[place] = replace(
            old, judgement="marked" if beyond and adjusted <= MARK_P else "unresolved", holm_p=adjusted
        )
        found[number] = replace(found[number], effects=tuple(effects))
    return found


def _row_notes(row: Row, blocks_tried: int) -> tuple[str, ...]:
    notes: list[str] = []
    total = sum(row.invalid.values())
    if total:
        reasons = [reason if len(row.invalid) == 1 else f"{reason} {count}" for reason, count in row.invalid.items()]
        notes.append(f"{total} invalid: {', '.join(reasons)}")
    if blocks_tried < row.planned_blocks:
        notes.append(f"{_blocks(row.planned_blocks - blocks_tried)} not measured")
    if row.generator_limited and row.arm.role != "reference":
        notes.append(LIMITED)
    if row.cpu_of == "backend":
        notes.append("no proxy: CPU per request is the backend's")
    for effect in row.shown:
        if effect.note:
            notes.append(effect.note)
        if (estimate := effect.estimate) is None or effect.note:
            continue
        if stats.OUTLIERS in estimate.notes and estimate.has_interval:
            middle = estimate.hodges_lehmann
            beside = _interval(estimate.hl_low, estimate.hl_high)
            notes.append(f"{stats.OUTLIERS} ({_name(effect.metric)}): Hodges–Lehmann {_percent(middle)} %{beside}")
        if stats.ALL_EQUAL in estimate.notes and estimate.has_interval:
            notes.append(f"{stats.ALL_EQUAL} ({_name(effect.metric)}): the interval has no width")
        if stats.NEED_BLOCKS in estimate.notes:
            notes.append(stats.NEED_BLOCKS)
        elif effect.floor is None and effect.judgement == "unresolved":
            notes.append(f"nothing is claimed without a floor: fewer than {stats.MIN_BLOCKS} valid A/A blocks")
    return tuple(dict.fromkeys(notes))


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


# --- sentences -------------------------------------------------------------------------------------------------------


def _verdict(arm: str, found: Sequence[tuple[Row, Effect]]) -> Verdict:
    judged = [(row, effect) for row, effect in found if effect.judgement in {"claimed", "unresolved"}]
    if not judged:
        short = [effect.estimate.n for _, effect in found if effect.judgement == "no-interval" and effect.estimate]
        if short:
            text = f"no interval ({_blocks(min(short))}, {stats.MIN_BLOCKS} are needed): nothing is claimed"
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
    signs = {effect.better for _, effect in claims}
    if len(signs) > 1:
        return Verdict(
            arm,
            "mixed",
            f"{arm}: {'; '.join(parts)}{rest}: better at some loads, worse at others: decide by the load you have",
        )
    kind: Literal["apply", "worse"] = "apply" if signs == {True} else "worse"
    return Verdict(arm, kind, f"{arm}: {'; '.join(parts)}{rest}: {'apply:' if kind == 'apply' else 'do not apply it'}")


def _finding(row: Row, effect: Effect) -> str:
    estimate = effect.estimate
    assert estimate is not None, "what is claimed has an estimate"
    assert effect.floor is not None, "and a floor"
    beyond = f"beyond the A/A floor of {_size(effect.floor)}"
    return f"{_where(row, effect)} {_percent(estimate.effect)} %{_interval(estimate.low, estimate.high)}, {beyond}"


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
    points = f" nor at {len(judged) - 1} more points" if len(judged) > 1 else ""
    floor = f"floor {_size(effect.floor)}" if effect.floor is not None else "no floor"
    found = f"{_percent(estimate.effect)} %{_interval(estimate.low, estimate.high)}, {floor}"
    more = "; more blocks would narrow it" if expm1(bounds[worst]) > 0.1 else ""
    advice = f"don't bother unless {_size(bounds[worst])} matters to you{more}"
    return f"no difference resolved in {_where(row, effect)} ({found}){points}: {advice}"


def _where(row: Row, effect: Effect) -> str:
    tool = f" ({row.generator} for {row.stand_in_for})" if row.stand_in_for else ""
    limited = " (generator-limited)" if row.generator_limited else ""
    return f"{_name(effect.metric)} at {row.point.name}{tool}{limited}"


def _name(metric: str) -> str:
    return {"cpu_per_request": "CPU per request"}.get(metric, metric)


def _blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def _percent(log_ratio: float) -> str:
    """A log-ratio as a signed percentage with one decimal and a true minus sign: −12.3."""
    return f"{round(100 * expm1(log_ratio), 1) + 0.0:+.1f}".replace("-", "−")


def _size(log_ratio: float) -> str:
    return f"{100 * expm1(log_ratio):.1f} %"


def _interval(low: float | None, high: float | None) -> str:
    return f" [{_percent(low)}, {_percent(high)}]" if low is not None and high is not None else ""


def effect_text(effect: Effect) -> str:
    """The effect column's words for one effect; in brackets what is shown but not judged."""
    label, estimate = LABELS.get(effect.metric, effect.metric), effect.estimate
    if effect.judgement == "a/a" and effect.floor is not None:
        return f"floor {label} {_size(effect.floor)}"
    if estimate is None or (effect.judgement == "not-judged" and effect.metric == "rate"):
        return f"{label} –"
    if not estimate.has_interval:
        return f"{label} no interval ({_blocks(estimate.n)})"
    found = f"{_percent(estimate.effect)} %{_interval(estimate.low, estimate.high)}"
    if effect.judgement == "claimed":
        return f"{label} {found}"
    if effect.judgement == "unresolved":
        floor = f"floor {_size(effect.floor)}" if effect.floor is not None else "no floor"
        return f"{label} ~{_interval(estimate.low, estimate.high)} ({floor})"
    return f"({label} {found})"


# --- printing --------------------------------------------------------------------------------------------------------

HEADERS = (
    "variant",
    "generator",
    "offered",
    "achieved",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "errors",
    "CPU/req",
    "blocks",
    "effect",
)
UNITS = ("", "", "req/s", "req/s", "ms", "ms", "ms", "ms", "ms", "", "µs", "", "")
LEFT = frozenset({0, 1, 12})  # text; everything else is a number and stands right


def print_table(console: Console, summary: Summary, width: int | None = None) -> None:
    """The rows grouped by point, numbered notes, and the verdicts with what to apply (of a baseline alone, its floor).

    One line per row where it fits; else two, the variant with its generator and effect above its numbers. What is not a
    terminal gets one line per row whatever its length, so that logs can be searched.
    """
    limit = width or (console.width if console.is_terminal else None)
    found = verdicts(summary)
    lines = [*table_lines(summary, limit), Text("")]
    for verdict in found:
        lines.append(Text(verdict.text, style="bold" if verdict.kind == "apply" else ""))
        lines += [Text(f"  {line}") for line in verdict.snippet.splitlines()]
    for line in lines if found else [*lines, Text(floor_line(summary))]:
        console.print(line, soft_wrap=limit is None, highlight=False)


def table_lines(summary: Summary, width: int | None) -> list[Text]:
    numbers = _numbered(summary)
    grid = [[Text(text, style="bold") for text in HEADERS], [Text(text, style="dim") for text in UNITS]]
    grid += [_cells(row, numbers) for row in summary.rows]
    for layout, gap in ((_one_line, 2), (_one_line, 1), (_two_lines, 2), (_two_lines, 1)):
        blocks = layout(grid, gap)
        if width is None or max(cell_len(line.plain.rstrip()) for block in blocks for line in block) <= width:
            break
    lines = [*blocks[0], *blocks[1]]
    point = ""
    for row, block in zip(summary.rows, blocks[2:], strict=True):
        if row.point.name != point:
            point = row.point.name
            lines += [Text(""), _heading(row.point)]
        lines += block
    for line in lines:
        line.rstrip()
    notes = [Text(f"{_superscript(number)} {note}", style="dim") for note, number in numbers.items()]
    return [*lines, Text(""), *notes, *(Text(note, style="dim") for note in summary.notes)]


def _numbered(summary: Summary) -> dict[str, int]:
    return {
        note: number for number, note in enumerate(dict.fromkeys(note for row in summary.rows for note in row.notes), 1)
    }


def _one_line(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    return [[line] for line in _aligned(grid, LEFT, gap)]


def _two_lines(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    """Variant, generator and effect above, numbers below."""
    above = _aligned([[*row[:2], *row[12:]] for row in grid], frozenset({0, 1, 2}), gap)
    below = _aligned([[Text(""), *row[2:12]] for row in grid], frozenset(), gap)
    return [[line] if number == 1 else [above[number], line] for number, line in enumerate(below)]


def _aligned(grid: Sequence[Sequence[Text]], left: frozenset[int], gap: int) -> list[Text]:
    widths = [max(cell_len(row[column].plain) for row in grid) for column in range(len(grid[0]))]
    lines: list[Text] = []
    for row in grid:
        line = Text()
        for column, cell in enumerate(row):
            space = " " * (widths[column] - cell_len(cell.plain))
            line.append(" " * gap if column else "")
            line.append_text(Text.assemble(cell, space) if column in left else Text.assemble(space, cell))
        lines.append(line)
    return lines


def _heading(point: Point) -> Text:
    load = f"{point.rate_rps:,g} req/s" if point.rate_rps is not None else "closed loop"
    extra = ["new connection per request"] if not point.keepalive else []
    extra += [f"TLS {point.tls}"] if point.tls != "none" else []
    extra += [f"{point.routes} routes"] if point.routes > 1 else []
    parts = [f"{point.connections:,} connections", load, f"{point.duration_s:g} s", point.page, *extra]
    return Text.assemble((point.name, "bold cyan"), (f"  {', '.join(parts)}", "dim"))


def _cells(row: Row, numbers: Mapping[str, int]) -> list[Text]:
    marks = {
        effect.metric: "↑" if effect.estimate and effect.estimate.effect > 0 else "↓"
        for effect in row.effects
        if effect.judgement == "marked"
    }
    lost, more = sum(row.errors.values()), sum(row.errors_invalid.values())
    refs = ",".join(_superscript(numbers[note]) for note in row.notes)
    colour = {"claimed": "bold green" if all(effect.better for effect in row.shown) else "bold red", "a/a": "cyan"}
    return [
        Text(row.arm.name, style="bold" if row.arm.role == "variant" else ""),
        Text(row.generator_label),
        Text(format_rate(row.offered_rps) if row.offered_rps is not None else "closed"),
        Text(format_rate(row.achieved_rps) + marks.get("rate", "")),
        *(Text(_three(row.latency_s[name], 1e3) + marks.get(name, "")) for name in QUANTILES),
        Text(_three(row.latency_s["max"], 1e3)),
        Text(f"{lost:,}" + (f" (+{more:,})" if more else ""), style="red" if lost else ""),
        Text(_three(row.cpu_per_request_s, 1e6) + marks.get("cpu_per_request", "")),
        Text(
            f"{row.valid_blocks}/{row.planned_blocks}{refs}",
            style="yellow" if row.valid_blocks < row.planned_blocks else "",
        ),
        Text(
            ", ".join(effect_text(effect) for effect in row.shown),
            style=colour.get(row.shown[0].judgement, "dim") if row.shown else "",
        ),
    ]


def format_rate(value: float | None) -> str:
    """Requests per second without the unit: 999.8, 1,000, 23,456; – for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10_000 or float(value).is_integer() else f"{value:,.1f}"


def format_seconds(value_s: float | None) -> str:
    """A latency with three significant digits and its unit: 210 µs, 3.61 ms, 1.20 s; – for None."""
    if value_s is None:
        return "–"
    scale, unit = (1.0, "s") if value_s >= 0.9995 else (1e3, "ms") if value_s >= 0.9995e-3 else (1e6, "µs")
    return f"{_three(value_s, scale)} {unit}"


def format_duration(value_s: float) -> str:
    """How long something takes, for people: 45 s, 5 min 10 s, 2 h 5 min."""
    seconds = round(value_s)
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def _three(value_s: float | None, scale: float) -> str:
    """Three significant digits, whole numbers from 100 on; the histogram's end is a bound, not a value."""
    if value_s is None:
        return "–"
    value = value_s * scale
    bound = "≥" if value_s >= LIMIT_US * UNIT_S else ""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{bound}{value:,.{digits}f}"


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


# --- for programs and for pages --------------------------------------------------------------------------------------


def as_json(summary: Summary) -> dict[str, Any]:
    """Plain data with stable keys, in seconds, requests per second and ratios (variant/baseline); null = not known.

    {schema_version, target, blocks, seed, complete, floor: str, notes: [str],
     verdicts: [{arm, kind, text, snippet}],
     rows: [{arm, variant, role, baseline, point, connections, generator, stand_in_for,
             offered_rps (null = closed loop), achieved_rps, latency_s: {p50, p90, p99, p99.9, max}, histogram,
             requests, errors: {kind: n}, errors_invalid: {kind: n}, cpu_per_request_s, cpu_of,
             valid_blocks, planned_blocks, invalid: {reason: n},
             generator_limited, notes: [str],
             effects: [{metric, against, primary, judgement, blocks, ratio, ratio_low, ratio_high, p_value,
                        holm_p_value, floor_ratio, hodges_lehmann_ratio, hodges_lehmann_low,
                        hodges_lehmann_high, notes: [str]}]}]}
    Intervals and p-values are null below six blocks. `judgement` as in `Effect`, `kind` as in `Verdict`.
    """
    return {
        "schema_version": 1,
        "target": summary.target,
        "blocks": summary.blocks,
        "seed": summary.seed,
        "complete": summary.complete,
        "floor": floor_line(summary),
        "notes": list(summary.notes),
        "verdicts": [asdict(verdict) for verdict in verdicts(summary)],
        "rows": [_row_json(row) for row in summary.rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "arm": row.arm.name,
        "variant": row.arm.variant,
        "role": row.arm.role,
        "baseline": row.arm.baseline,
        "point": row.point.name,
        "connections": row.point.connections,
        "generator": row.generator,
        "stand_in_for": row.stand_in_for,
        "offered_rps": row.offered_rps,
        "achieved_rps": row.achieved_rps,
        "latency_s": dict(row.latency_s),
        "histogram": row.histogram,
        "requests": row.requests,
        "errors": dict(row.errors),
        "errors_invalid": dict(row.errors_invalid),
        "cpu_per_request_s": row.cpu_per_request_s,
        "cpu_of": row.cpu_of,
        "valid_blocks": row.valid_blocks,
        "planned_blocks": row.planned_blocks,
        "invalid": {str(reason): count for reason, count in row.invalid.items()},
        "generator_limited": row.generator_limited,
        "notes": list(row.notes),
        "effects": [_effect_json(effect) for effect in row.effects],
    }


def _effect_json(effect: Effect) -> dict[str, Any]:
    estimate = effect.estimate
    low, high = estimate.interval if estimate and estimate.interval else (None, None)
    return {
        "metric": effect.metric,
        "against": effect.against,
        "primary": effect.primary,
        "judgement": effect.judgement,
        "blocks": estimate.n if estimate else 0,
        "ratio": estimate.ratio if estimate else None,
        "ratio_low": _ratio(low),
        "ratio_high": _ratio(high),
        "p_value": estimate.p_value if estimate and estimate.has_interval else None,
        "holm_p_value": effect.holm_p,
        "floor_ratio": _ratio(effect.floor),
        "hodges_lehmann_ratio": _ratio(estimate.hodges_lehmann) if estimate else None,
        "hodges_lehmann_low": _ratio(estimate.hl_low) if estimate else None,
        "hodges_lehmann_high": _ratio(estimate.hl_high) if estimate else None,
        "notes": [*([effect.note] if effect.note else []), *(estimate.notes if estimate else ())],
    }


def as_markdown(summary: Summary) -> str:
    """One table per point with the terminal's columns, then the same notes and verdicts."""
    numbers = _numbered(summary)
    head = [f"{name} ({unit})" if unit else name for name, unit in zip(HEADERS, UNITS, strict=True)]
    lines: list[str] = []
    point = ""
    for row in summary.rows:
        if row.point.name != point:
            point = row.point.name
            rule = "|".join(" :-- " if column in LEFT else " --: " for column in range(len(head)))
            title = _heading(row.point).plain.replace("  ", "**: ", 1)
            lines += [*([""] if lines else []), f"**{title}", "", f"| {' | '.join(head)} |", f"|{rule}|"]
        lines.append(f"| {' | '.join(cell.plain.replace('|', '/') for cell in _cells(row, numbers))} |")
    notes = [f"{_superscript(number)} {note}" for note, number in numbers.items()]
    lines += ["", *(f"- {note}" for note in [*notes, *summary.notes])]
    found = verdicts(summary)
    for verdict in found:
        lines += ["", verdict.text, *(["", "```", verdict.snippet.rstrip(), "```"] if verdict.snippet else [])]
    return "\n".join([*lines, *([] if found else ["", floor_line(summary)])]) + "\n"


def _ratio(log_ratio: float | None) -> float | None:
    return exp(log_ratio) if log_ratio is not None else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _sum_errors(samples: Iterable[Sample]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for sample in samples:
        total.update({kind: count for kind, count in sample.errors.items() if count})
    return dict(sorted(total.items()))
