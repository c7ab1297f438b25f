"""What a summary has of each arm at each point: its cell, the effects against its baseline, and what has to be said with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import expm1
from statistics import fmean, median

from lab.analysis.absolute import clusters_text
from lab.analysis.cells import Cell, Pair, paired
from lab.analysis.decision import SURE_P, Decision
from lab.analysis.effects import Effect
from lab.analysis.exhaustion import Exhaustion
from lab.analysis.judging import ERRORS_MIX, LIMITED, limited
from lab.analysis.order import MissingByOrder
from lab.analysis.recovery import usual_gap
from lab.analysis.thirds import Thirds, lasting_change
from lab.analysis.unsteady import UnsteadyArm
from lab.model.design import CONCURRENT
from lab.model.metrics import COLUMNS, QUANTILES, WINDOWED, about
from lab.model.plan import Arm
from lab.model.samples import TLS_FACTS, Sample
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND
from lab.stats.units import format_blocks

BACKEND = "backend_cpu_per_request"
"""The negative control of a pair."""
WHY_NO_MORE = {
    "limit": "limited by a container's CPU limit",
    "link": "limited by the shaped link",
    "errors": "limited by what failed",
    "waiting": "no CPU was full: what it waited for was the limit",
}
"""Notes of closed-loop rows in which every sample had this limit."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm at one point, which may be a control run. `base`: the cell that it is compared with; None = it is compared with nothing.
    `pair`: the two as a pair; None = they were none.
    """

    cell: Cell
    base: Cell | None
    effects: tuple[Effect, ...]
    pair: Pair | None = None
    exhaustion: Exhaustion | None = None
    """Where this load would use up the proxy's local ports: how soon."""
    thirds: Thirds | None = None
    """Of a sustained load: its effects within the sample."""
    missing: MissingByOrder | None = None
    """Where samples of the arm or its baseline are invalid by what was measured before: this is the row's outcome."""

    @property
    def arm(self) -> Arm:
        return self.cell.arm

    @property
    def point(self) -> Point:
        return self.cell.point

    @property
    def unsteady(self) -> UnsteadyArm | None:
        """What makes an effect here impossible: that this arm, or what it is compared with, is not steady; None: both are."""
        return self.cell.unsteady or (self.base.unsteady if self.base is not None else None)

    @property
    def samples(self) -> list[Sample]:
        """The samples of a steady load that count: of the arm alone, or where there are none, of its pair."""
        cells = [self.cell, *([self.pair.own] if self.pair else [])]
        counted = (list(cell.counted.values()) for cell in cells if self.point.disturbance is None)
        return next((samples for samples in counted if samples), [])

    @property
    def change(self) -> UnsteadyArm | None:
        """How the arm's sustained samples, which count all the same, change for good; None where they do not, or are not sustained."""
        return lasting_change(list(self.cell.counted.values())) if self.point.sustained else None

    @property
    def shown(self) -> tuple[Effect, ...]:
        """What the effect column carries: the primary metric's effect, or the baseline against itself."""
        return tuple(effect for effect in self.effects if effect.primary)

    @property
    def generator_limited(self) -> bool:
        """At a closed loop: whether any valid sample of the arm or its baseline was."""
        return any(True in limited(cell.counted.values()) for cell in (self.cell, self.base) if cell)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_notes(self)))


def _notes(row: Row) -> Iterator[str]:
    cell = row.cell
    if total := sum(cell.invalid.values()):
        reasons = [reason if len(cell.invalid) == 1 else f"{reason} {count}" for reason, count in cell.invalid.items()]
        yield f"{total} invalid: {', '.join(reasons)}"
    if cell.lost:
        yield f"{format_blocks(len(cell.lost))} not counted: no valid control run of this arm in it"
    if cell.tried < cell.planned_blocks:
        yield f"{format_blocks(cell.planned_blocks - cell.tried)} not measured"
    if cell.unsteady is not None:
        yield f"not steady: {cell.unsteady.sentence()}"
    if row.change is not None:
        yield f"within the sample {row.change.sentence()}"
    if row.exhaustion is not None:
        yield row.exhaustion.note
    for effect in row.shown if row.arm.role == "variant" else ():
        estimate = effect.estimate
        if row.thirds and estimate and (said := row.thirds.sentence(effect.metric, estimate.effect)):
            yield f"{about(effect.metric).title}: {said}"
    if row.missing is not None:
        yield row.missing.text
    if row.pair is not None:
        yield from _of_pair(row.pair)
    if row.generator_limited and row.arm.role != "reference" and not any(_despite(effect) for effect in row.shown):
        yield LIMITED
    # p99.9 is mixed up by fewer failures than the others
    if any(effect.note == ERRORS_MIX for effect in row.effects if effect.metric != "p99.9"):
        yield ERRORS_MIX
    if cell.cpu_of == "backend":
        yield "no proxy: CPU per request is the backend's"
    if row.point.disturbance is None:
        yield from _cluster_notes(cell)
    for effect in row.shown:
        yield from _effect_notes(effect, row.point.disturbance is None, own=cell.unsteady is not None)
    limits = {sample.limited_by for sample in cell.counted.values()}
    if len(limits) == 1 and (why := WHY_NO_MORE.get(limits.pop() or "")):
        yield why
    yield from cell.notes


def _of_pair(pair: Pair) -> Iterator[str]:
    """What of it does not count, and whether the backends, which no knob of the process reaches, cost the same on both sides."""
    own = pair.own
    if lost := sum(own.invalid.values()):
        yield f"{lost} pairs invalid: {', '.join(f'{reason} {count}' for reason, count in own.invalid.items())}"
    if own.tried < own.planned_blocks:
        yield f"{own.planned_blocks - own.tried} pairs not measured"
    gaps = [
        side.unexplained for sample in own.counted.values() if (side := sample.pair) and side.unexplained is not None
    ]
    usual = usual_gap()
    if gaps and usual is not None and median(gaps) > usual:
        yield f"{median(gaps):.1%} of the CPUs' busy time was nobody's (usually at most {usual:.1%}): kernel's work, or a process that was not seen"
    control = paired(own, pair.base, BACKEND)
    if control is not None and control.interval and not control.interval[0] <= 0 <= control.interval[1]:
        metric = about("cpu_per_request")
        yield f"{about(BACKEND).title}: {metric.change(control.effect)}{metric.ends(*control.interval)}: the knob reaches it, or the sides differ"


def _cluster_notes(cell: Cell) -> Iterator[str]:
    """Return a sentence for each column whose blocks fall into two clusters."""
    for name in COLUMNS:
        found = cell.absolute(name) if about(name).ratio else None
        if found is not None and found.clusters:
            yield f"{about(name).title} in two clusters: {clusters_text(about(name), found.clusters, found.blocks)}"


def _effect_notes(effect: Effect, steady: bool, own: bool = False) -> Iterator[str]:
    """`own`: the arm itself is not steady, which its row says already."""
    metric, estimate = about(effect.metric), effect.estimate
    if effect.note and not (own and effect.estimate is None):
        named = effect.decision is Decision.BIMODAL or not steady
        yield f"{metric.title}: {effect.note}" if named else effect.note
    if estimate is not None and effect.note == CONCURRENT and stats.NEED_BLOCKS in estimate.notes:
        yield stats.NEED_BLOCKS
    if estimate is None or effect.note:
        return
    if stats.OUTLIERS in estimate.notes and estimate.has_interval:
        middle = metric.change(estimate.hodges_lehmann) if steady else metric.text(estimate.hodges_lehmann, signed=True)
        beside = metric.ends(estimate.hl_low, estimate.hl_high)
        yield f"{stats.OUTLIERS} ({metric.title}): Hodges–Lehmann {middle}{beside}"
    if stats.ALIKE in estimate.notes:
        yield f"{metric.title}: {stats.ALIKE}, so that its interval is narrower than it should be"
    if stats.ALL_EQUAL in estimate.notes and estimate.has_interval and steady:
        yield f"{stats.ALL_EQUAL} ({metric.title}): the interval has no width"
    if stats.NEED_BLOCKS in estimate.notes:
        yield stats.NEED_BLOCKS
    elif effect.decision is Decision.CANNOT_TELL and effect.holm_p is not None and effect.holm_p <= SURE_P:
        yield f"{metric.title}: surer than chance, but the baseline against itself shows up to {metric.size(effect.size.guard)}"


def _despite(effect: Effect) -> bool:
    """Whether something else than CPU per request carries the effect though a generator was the limit."""
    told = effect.decision.resolved or effect.decision in {Decision.NO_INTERVAL, Decision.A_A}
    return effect.metric != "cpu_per_request" and told


def slowed_by(rows: Sequence[Row]) -> str | None:
    """p99, or p50 where an arm has too few answers for it: what is compared with before the disturbance. None in control runs."""
    told = [set(row.cell.slowdowns) for row in rows if row.cell.valid_blocks and not row.point.control]
    return next((name for name in reversed(WINDOWED) if told and all(name in names for names in told)), None)


def general_notes(rows: Sequence[Row], disturbed: bool) -> tuple[str, ...]:
    """How to read the rows' table, as far as it holds for what stands in it."""
    stood_in = (f"{row.cell.generator} stood in for {row.cell.stand_in_for}" for row in rows if row.cell.stand_in_for)
    others = _of_disturbances(rows) if disturbed else _of_steady_loads(rows)
    return tuple(dict.fromkeys((*stood_in, *_of_handshakes(rows), *others)))


def _of_handshakes(rows: Sequence[Row]) -> Iterator[str]:
    """What the canaries' TLS came to: once where it is the same for all that had any, else with the arms that it is of."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for tls in (sample.tls for sample in row.cell.counted.values() if sample.tls):
            found.setdefault(", ".join(tls[name] for name in TLS_FACTS if name in tls), {})[row.arm.name] = None
    for agreed, arms in found.items():
        whose = f" of {', '.join(arms)}" if len(found) > 1 else ""
        yield f"TLS{whose}, as a canary's handshake came to it: {agreed}"


def _of_steady_loads(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row.cell.histogram == "quantiles":
            yield f"{row.cell.generator}: percentiles lie between its printed ones, rounded up"
    yield from _of_absolute_values(rows)
    if _judged(rows):
        yield from _of_effects(rows)
    if _marked(rows):
        yield f"↑ ↓: differs from the baseline, Holm-adjusted p <= {SURE_P}; only the effect column claims"
    if any(row.cell.valid_blocks and row.cell.shown(name) is None for row in rows for name in QUANTILES):
        yield f"–: fewer than {BEYOND} requests lie beyond it"
    if any(row.cell.errors_invalid for row in rows):
        yield "errors (+n): n more in invalid samples"


def _of_absolute_values(rows: Sequence[Row]) -> Iterator[str]:
    """How to read the columns of rates, latencies and CPU per request, as far as the rows have each kind."""
    shown = [row.cell.absolute(name) for row in rows for name in COLUMNS if about(name).ratio]
    known = [found for found in shown if found is not None]
    if any(found.value is not None for found in known):
        yield "rate and CPU/req: geometric mean of the blocks, as effects are; percentiles: of all blocks' requests together"
    if any(found.value is None and not found.clusters for found in known):
        yield f"19–24: the smallest and the largest of fewer than {stats.MIN_BLOCKS} blocks, with two digits"
    if any(found.clusters for found in known):
        yield "370|59,000: the blocks fall into two clusters with these means; no mean of all describes them"


def _of_effects(rows: Sequence[Row]) -> Iterator[str]:
    shown = [effect for row in rows for effect in row.shown if effect.decision.judged]
    worth = next(expm1(effect.size.worth) for effect in shown)
    yield (
        f"effect: change against the baseline with its 95 % interval, and the p of its sign, Holm-adjusted over {len(shown)};"
        f" same: it lies within ±{100 * worth:g} %, which is not worth knowing; ?: cannot tell"
    )
    if any(effect.scheme for effect in shown):
        yield "effects are of pairs, which share the machine's noise; rate, latencies and CPU/req are of the arms alone"
        yield from _of_sides([row.pair for row in rows if row.pair])


def _of_sides(pairs: Sequence[Pair]) -> Iterator[str]:
    """The left side against the right one, whatever arm was there: half and half, so that no effect has it; it is not taken out."""
    metric, found = "cpu_per_request", list[float]()
    for pair in pairs:
        logs = pair.log_ratios(metric)
        for block, each in logs.items():
            side = pair.own.counted[block].pair
            if side is not None and len(logs) > 1:
                away = each - fmean(logs.values())
                found.append(away if side.side == "left" else -away)
    if len(found) >= stats.MIN_BLOCKS:
        estimate = stats.difference(found, [0.0] * len(found))
        ends = about(metric).ends(*estimate.interval) if estimate.interval else ""
        yield f"the left side against the right one, whoever was there: {about(metric).title} {about(metric).change(estimate.effect)}{ends}"


def _of_disturbances(rows: Sequence[Row]) -> Iterator[str]:
    measured = [row for row in rows if row.cell.valid_blocks]
    if any(row.cell.valid_blocks >= stats.MIN_BLOCKS for row in measured):
        yield "median of the blocks [95 % interval of the median]"
    if any(1 < row.cell.valid_blocks < stats.MIN_BLOCKS for row in measured):
        yield f"19–24: the smallest and the largest of fewer than {stats.MIN_BLOCKS} blocks, with two digits; nothing is claimed"
    if _judged(rows):
        yield f"against the baseline: the blocks' mean difference with its 95 % interval; ~: cannot tell (Holm-adjusted p > {SURE_P})"
    if _marked(rows):
        yield f"↑ ↓: differs from the baseline, Holm-adjusted p <= {SURE_P}; only a variant's primary metric claims"
    if measured:
        yield "p50, p99, largest: of good answers, from when they were due; during: from the disturbance's begin to its end"
        points = {row.point.name for row in measured}
        if any(slowed_by([row for row in measured if row.point.name == name]) for name in points):
            yield f"during against before: geometric mean of the blocks' ratios [95 % interval from {stats.MIN_BLOCKS} blocks on]"
        error_s = max(row.cell.clock_error_s for row in measured)
        yield f"clocks of generator and events: their offset is known to {error_s * 1e3:.3g} ms and taken out"


def _judged(rows: Sequence[Row]) -> bool:
    return any(effect.decision.judged for row in rows for effect in row.shown)


def _marked(rows: Sequence[Row]) -> bool:
    return any(effect.marked for row in rows for effect in row.effects)
