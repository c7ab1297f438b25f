"""The notes of rows and runs: what is printed below the table of a run, and below the comparison of two runs.

Notes do not decide, and they do not recommend anything: the verdicts of the modules `run`, `comparison` and `gate` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from statistics import fmean, median

from scipy import special

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import format_clusters
from lab.analysis.aggregate.cells import CellPair, estimate_effect
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.meeting import FIRST, SECOND, TWO_MACHINES, ComparedRuns, RunCells, describe_unmatched_points
from lab.analysis.judge.rows import BACKEND, Summary, SummaryRow, choose_slowdown_percentile
from lab.analysis.judge.rulings import ERRORS_MIX, LIMITED, find_usual_gap
from lab.base.grouping import group_values
from lab.model.design import CONCURRENT
from lab.model.facts import EVERY_BOOT, list_differences
from lab.model.metrics import COLUMNS, DELAY_RESOLUTION_S, find_metric
from lab.model.run import RunRecord
from lab.model.samples import TLS_FACTS
from lab.stats import paired as stats
from lab.stats.units import format_blocks

LIMIT_NOTES = {
    "limit": "limited by a container's CPU limit",
    "link": "limited by the shaped link",
    "errors": "limited by what failed",
    "waiting": "no CPU was full: what it waited for was the limit",
}
"""Limit → the note of a closed-loop row in which every sample had it."""
FEW_BLOCKS = f"a–b: the smallest and the largest of fewer than {stats.MIN_BLOCKS} blocks, with two digits"
LEAST_SAMPLES = 4
"""The least number of valid samples of an arm at a load from which a migration shows its numbers without a note."""
BEYOND_P = 0.05
MACHINE = ("cpu", "cpus", "hypervisor")
MEMORY_DIFFERS = 0.02
"""The smallest share by which the memory of two machines differs.

On one machine, memory differs by less: a kernel or a balloon takes a part of it.
"""


# -- of a row ------------------------------------------------------------------------------------------------


def list_row_notes(row: SummaryRow) -> Iterator[str]:
    """Yield the notes to print with a row of a run's table: invalid samples, limits of the rate, remarks about effects."""
    cell, steady = row.cell, not row.point.has_outcome
    total, missing = sum(cell.invalid.values()), cell.planned_blocks - cell.tried
    reasons = [reason if len(cell.invalid) == 1 else f"{reason} {count}" for reason, count in cell.invalid.items()]
    of_samples = [
        f"{total} invalid: {', '.join(reasons)}" if total else "",
        f"{format_blocks(len(cell.lost))} not counted: no valid control run of this arm in it" if cell.lost else "",
        f"{format_blocks(missing)} not measured" if missing > 0 else "",
        f"not steady: {cell.unsteady.sentence()}" if cell.unsteady else "",
        f"within the sample {row.change.sentence()}" if row.change else "",
        row.exhaustion.note if row.exhaustion else "",
    ]
    yield from filter(None, of_samples)
    for effect in row.shown if row.arm.role == "variant" else ():
        estimate = effect.estimate
        if row.thirds and estimate and (sentence := row.thirds.sentence(effect.metric, estimate.effect)):
            yield f"{find_metric(effect.metric).title}: {sentence}"
    if row.missing is not None:
        yield row.missing.text
    if row.pair is not None:
        yield from _list_pair_notes(row.pair)
    carried = (  # by another metric than CPU per request, though a generator was the limit
        effect.metric != "cpu_per_request"
        and (effect.decision.resolved or effect.decision in {Decision.NO_INTERVAL, Decision.A_A})
        for effect in row.shown
    )
    limited = row.generator_limited and row.arm.role != "reference" and not any(carried)
    # p99.9 is mixed up by fewer failures than the other metrics
    mixed = any(effect.note == ERRORS_MIX for effect in row.effects if effect.metric != "p99.9")
    of_load = [
        LIMITED if limited else "",
        ERRORS_MIX if mixed else "",
        "no proxy: CPU per request is the backend's" if cell.cpu_of == "backend" else "",
    ]
    yield from filter(None, of_load)
    for name in COLUMNS if steady else ():
        absolute = cell.absolute(name) if find_metric(name).ratio else None
        if absolute is not None and absolute.clusters:
            yield f"{find_metric(name).title} in two clusters: {format_clusters(find_metric(name), absolute.clusters, absolute.blocks)}"
    for effect in row.shown:
        yield from _list_effect_notes(effect, steady, arm_unsteady=cell.unsteady is not None)
    limits = {sample.limited_by for sample in cell.counted.values()}
    if len(limits) == 1 and (limit := LIMIT_NOTES.get(limits.pop() or "")):
        yield limit
    yield from cell.notes


def _list_pair_notes(pair: CellPair) -> Iterator[str]:
    """Yield the notes about a pair (two arms measured at once).

    They report invalid samples, blocks (repetitions) that were not measured, and CPU time of unknown processes. One
    note reports a difference in the backends' CPU time between the sides, which settings of a proxy should not change.
    """
    cell = pair.own
    if lost := sum(cell.invalid.values()):
        yield f"{lost} pairs invalid: {', '.join(f'{reason} {count}' for reason, count in cell.invalid.items())}"
    if cell.tried < cell.planned_blocks:
        yield f"{cell.planned_blocks - cell.tried} pairs not measured"
    gaps = [
        side.unexplained for sample in cell.counted.values() if (side := sample.pair) and side.unexplained is not None
    ]
    usual = find_usual_gap()
    if gaps and usual is not None and median(gaps) > usual:
        yield f"{median(gaps):.1%} of the CPUs' busy time was nobody's (usually at most {usual:.1%}): kernel's work, or a process that was not seen"
    control = estimate_effect(cell, pair.base, BACKEND)
    if control is not None and control.interval and control.excludes_zero:
        metric = find_metric("cpu_per_request")
        yield f"{find_metric(BACKEND).title}: {metric.change(control.effect)}{metric.ends(*control.interval)}: the knob reaches it, or the sides differ"


def _list_effect_notes(effect: Effect, steady: bool, arm_unsteady: bool) -> Iterator[str]:
    """Yield the notes about one effect of a table's row, such as outliers among its blocks (repetitions).

    Args:
        effect: The effect.
        steady: True for a steady load, False for one with a disruption, streams of events or WebSockets.
        arm_unsteady: True if the arm's samples are not steady (rate or CPU time changes midway). Another note of the
            row reports that, so this function does not repeat it.

    """
    metric, estimate = find_metric(effect.metric), effect.estimate
    if effect.remark and not (arm_unsteady and effect.estimate is None):
        with_title = effect.decision is Decision.BIMODAL or not steady or not effect.note
        yield f"{metric.title}: {effect.remark}" if with_title else effect.remark
    if estimate is not None and effect.note == CONCURRENT and stats.NEED_BLOCKS in estimate.notes:
        yield stats.NEED_BLOCKS
    if estimate is None or effect.note:
        return
    if stats.OUTLIERS in estimate.notes and estimate.has_interval:
        middle = metric.change(estimate.hodges_lehmann) if steady else metric.text(estimate.hodges_lehmann, signed=True)
        ends = metric.ends(estimate.hl_low, estimate.hl_high)
        yield f"{stats.OUTLIERS} ({metric.title}): Hodges–Lehmann {middle}{ends}"
    alike = f"{metric.title}: {stats.AUTOCORRELATED}, so that its interval is narrower than it should be"
    no_width = f"{stats.ALL_EQUAL} ({metric.title}): the interval has no width"
    floor = f"the baseline against itself shows up to {metric.size(effect.size.noise_floor)}"
    is_surer = effect.decision is Decision.INCONCLUSIVE and effect.holm_p is not None and effect.holm_p <= ALPHA
    of_blocks = [
        alike if stats.AUTOCORRELATED in estimate.notes else "",
        no_width if stats.ALL_EQUAL in estimate.notes and estimate.has_interval and steady else "",
        stats.NEED_BLOCKS if stats.NEED_BLOCKS in estimate.notes else "",
        f"{metric.title}: surer than chance, but {floor}" if is_surer else "",
    ]
    yield from filter(None, of_blocks)


# -- of a table ----------------------------------------------------------------------------------------------


def list_table_notes(rows: Sequence[SummaryRow], disturbed: bool) -> tuple[str, ...]:
    """Return the notes on how to read a run's table, each only if the table has what the note explains.

    Args:
        rows: The rows of the table.
        disturbed: True for the table of disrupted loads, False for that of steady loads.

    """
    stood_in = (f"{row.cell.generator} stood in for {row.cell.stand_in_for}" for row in rows if row.cell.stand_in_for)
    of_loads = _list_disturbance_notes(rows) if disturbed else _list_steady_notes(rows)
    return tuple(dict.fromkeys((*stood_in, *_list_handshake_notes(rows), *of_loads)))


def _list_handshake_notes(rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield the notes on what TLS handshakes with the proxies agreed on, such as version and cipher.

    The handshakes are those of the canaries, which are the checked requests before a load. There is one note if all
    arms (variants) with TLS agreed on the same. Otherwise there is one for each agreement, with the names of its arms.
    """
    arms_by_tls = group_values(
        (", ".join(tls[name] for name in TLS_FACTS if name in tls), row.arm.name)
        for row in rows
        for tls in (sample.tls for sample in row.cell.counted.values() if sample.tls)
    )
    for agreed, arms in arms_by_tls.items():
        of_arms = f" of {', '.join(dict.fromkeys(arms))}" if len(arms_by_tls) > 1 else ""
        yield f"TLS{of_arms}, as a canary's handshake came to it: {agreed}"


def _list_steady_notes(rows: Sequence[SummaryRow]) -> Iterator[str]:
    quantiles = (row.cell.generator for row in rows if row.cell.histogram == "quantiles")
    yield from (f"{generator}: percentiles lie between its printed ones, rounded up" for generator in quantiles)
    absolutes = (row.cell.absolute(name) for row in rows for name in COLUMNS if find_metric(name).ratio)
    if any(absolute is not None and absolute.value is not None for absolute in absolutes):
        yield "rate and CPU/req: geometric mean of the blocks, as effects are; percentiles: of all blocks' requests together"
    if any(effect.scheme for row in rows for effect in row.shown if effect.decision.judged):
        yield from _list_side_notes([row.pair for row in rows if row.pair])
    if any(row.cell.errors_invalid for row in rows):
        yield "errors (+n): n more in invalid samples"


def _list_side_notes(pairs: Sequence[CellPair]) -> Iterator[str]:
    """Yield a note on how the left place of a pair differs from the right one, over all pairs.

    A pair is two arms (variants) measured at once, one in each place. Each arm is in either place in half of the blocks
    (repetitions), so no effect contains the difference, and it is not subtracted. With fewer than six values (one for
    each pair and block) there is no note. A pair with only one block gives no value.
    """
    metric, deviations = "cpu_per_request", list[float]()
    for pair in pairs:
        logs = pair.log_ratios(metric)
        for block, ratio in logs.items():
            side = pair.own.counted[block].pair
            if side is not None and len(logs) > 1:
                deviation = ratio - fmean(logs.values())
                deviations.append(deviation if side.side == "left" else -deviation)
    if len(deviations) >= stats.MIN_BLOCKS:
        estimate = stats.estimate_difference(deviations, [0.0] * len(deviations))
        ends = find_metric(metric).ends(*estimate.interval) if estimate.interval else ""
        yield f"the left side against the right one, whoever was there: {find_metric(metric).title} {find_metric(metric).change(estimate.effect)}{ends}"


def _list_disturbance_notes(rows: Sequence[SummaryRow]) -> Iterator[str]:
    measured = [row for row in rows if row.cell.valid_blocks]
    counts = [row.cell.valid_blocks for row in measured]
    against = f"the blocks' mean difference with its 95 % interval; ~: inconclusive (Holm-adjusted p > {ALPHA})"
    differs = f"differs from the baseline, Holm-adjusted p <= {ALPHA}; only a variant's primary metric claims"
    of_numbers = [
        "median of the blocks [95 % interval of the median]" if max(counts, default=0) >= stats.MIN_BLOCKS else "",
        f"{FEW_BLOCKS}; nothing is claimed" if any(1 < count < stats.MIN_BLOCKS for count in counts) else "",
        f"against the baseline: {against}"
        if any(effect.decision.judged for row in rows for effect in row.shown)
        else "",
        f"↑ ↓: {differs}" if any(effect.marked for row in rows for effect in row.effects) else "",
    ]
    yield from filter(None, of_numbers)
    if any(row.point.websocket for row in measured):
        yield from _list_websocket_notes(measured)
    elif any(row.point.every_s is not None for row in measured):
        yield "delay: from the backend's send time to the arrival; coalesced: within 1 ms of the event before; differences below 1 ms are not resolved"
        yield "memory per open stream: the proxy's at its peak, less that before the streams, divided by their number"
        yield from describe_direct_streams(measured)
    elif measured:
        yield "p50, p99, largest: of good answers, from when they were due; during: from the disturbance's begin to its end"
        points = {row.point.name for row in measured}
        if any(choose_slowdown_percentile([row for row in measured if row.point.name == name]) for name in points):
            yield f"during against before: geometric mean of the blocks' ratios [95 % interval from {stats.MIN_BLOCKS} blocks on]"
        error_s = max(row.cell.clock_error_s for row in measured)
        yield f"clocks of generator and events: their offset is known to {error_s * 1e3:.3g} ms and taken out"


def describe_direct_streams(rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield sentences about streams of events that were measured without a proxy; nothing for rows with a proxy.

    They show what client and backend do by themselves. If the backend held events back for a time, there is a sentence
    with how late they arrive. Another sentence has the number of streams at once up to which the p99 delay of an event
    is below 1 ms.
    """
    direct = [row for row in rows if row.cell.cpu_of == "backend" and row.arm.role != "again"]
    p99_s: dict[int, float] = {}
    for row in direct:
        point, median, high = row.point, row.cell.level("delay_p50_s"), row.cell.level("delay_p99_s")
        if point.held_s and median is not None:
            yield f"without a proxy: events held for {point.held_s * 1e3:g} ms arrive after {median.value * 1e3:.2f} ms at the median"
        elif high is not None:
            p99_s[point.connections * point.streams] = high.value
    kept, missed = (
        {many for many, value in p99_s.items() if (value < DELAY_RESOLUTION_S) is good} for good in (True, False)
    )
    below = [many for many in kept if many < min(missed, default=inf)]
    if p99_s:
        most = (
            f"{max(below):,} streams at once have a p99 delay below 1 ms"
            if below
            else "no number of streams that was tried has a p99 delay below 1 ms"
        )
        yield f"without a proxy: {most}{f'; {min(missed):,} have {p99_s[min(missed)] * 1e3:.2g} ms' if missed else ''}"


def _list_websocket_notes(rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield the notes about WebSockets: how to read them, and what generator and backend take without a proxy."""
    yield "round trip: from sending a message until k6 has it back, with what k6 takes; lost: sent, and not back within the timeout"
    yield "memory per open WebSocket: the proxy's at its peak, less that before, divided by their number"
    for row in rows:
        median, high = (row.cell.level(name) for name in ("round_trip_p50_s", "round_trip_p99_s"))
        if row.cell.cpu_of == "backend" and row.arm.role != "again" and median is not None and high is not None:
            rate = row.point.connections / (row.point.every_s or inf)
            times = f"p50 {median.value * 1e3:.2f} ms, p99 {high.value * 1e3:.2f} ms"
            yield f"without a proxy: {row.point.connections:,} WebSockets, {rate:,.0f} messages a second: {times}"


# -- of a run ------------------------------------------------------------------------------------------------


def describe_resumptions(record: RunRecord) -> list[str]:
    """Return a note for each time that an interrupted run was resumed with changed facts of the machine, such as its kernel."""
    return [
        f"resumed with other facts ({', '.join(changed)}): blocks before and after were not measured under the same conditions"
        for resumption in record.resumed
        if (changed := [name for name in resumption if name != "at" and name not in EVERY_BOOT])
    ]


def list_exceeded_promises(record: RunRecord, rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield a note for each effect of a variant whose blocks varied significantly more than the run's plan assumed.

    The run then detects only larger effects than the plan promised. Only effects that the table's effect column shows are
    tested. The test is the one-sided χ² test of a variance at 5 %.
    """
    for promise in record.designed.promised:
        at_point = [row for row in rows if row.point.name == promise.point and row.arm.role == "variant"]
        for estimate in (
            effect.estimate for row in at_point for effect in row.shown if effect.metric == promise.metric
        ):
            if estimate is None or not estimate.sd or not estimate.has_interval or not promise.sd:
                continue
            if special.chdtrc(estimate.n - 1, (estimate.n - 1) * (estimate.sd / promise.sd) ** 2) < BEYOND_P:
                place = f"{find_metric(promise.metric).title} at {promise.point}"
                yield f"{place} varied by {estimate.sd:.1%} a block, planned were {promise.sd:.1%}: it resolved less than promised"


# -- of a migration's runs -----------------------------------------------------------------------------------


def describe_misleading(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield sentences for each arm and load of a migration's runs whose numbers would mislead a reader.

    An arm is a variant in a run; the direct reference (no proxy) is left out. Numbers mislead in three cases:

    - The samples are not steady: their rate or CPU time changes midway.
    - The load uses up the proxy's local ports, during the samples or later.
    - Fewer than `LEAST_SAMPLES` usable samples remain, solo samples and sides of pairs (two variants at once) together.

    An arm may have a sentence for more than one case. The sentences are in the order of the tables.
    """
    for row in (row for summary in summaries for row in summary.rows if row.arm.role != "reference"):
        place, cells = f"{row.arm.name} at {row.point.name}", [row.cell, *([row.pair.own] if row.pair else [])]
        if row.cell.unsteady is not None:
            yield f"{place}: {row.cell.unsteady.sentence()}"
            continue
        counted = sum(cell.valid_blocks for cell in cells)
        invalid = [item for cell in cells for item in cell.invalid.items()]
        reasons = ", ".join(f"{reason} {count} ({reason.meaning.removesuffix('.')})" for reason, count in invalid)
        few = f"too few samples for a number, {counted} count: {reasons or 'not measured'}"
        of_row = [
            row.change.sentence() if row.change else "",
            few if counted < LEAST_SAMPLES else "",
            row.exhaustion.label if row.exhaustion else "",
        ]
        yield from (f"{place}: {text}" for text in of_row if text)


# -- of two runs ---------------------------------------------------------------------------------------------


def list_run_differences(meeting: ComparedRuns) -> Iterator[str]:
    """Yield notes about what differs between two runs: recorded facts, commit, sweep, load points and arms (variants).

    If the runs are of two different machines, a note about all facts that show this comes first. The notes about each run
    as a whole (`list_run_notes`) are included, too.
    """
    first, second = meeting.base, meeting.other
    base, other = first.record, second.record
    facts = {
        name: f"{name}: {base.facts.get(name, 'not recorded')} / {other.facts.get(name, 'not recorded')}"
        for name in list_differences(base.facts, other.facts)
    }
    machine = [name for name in facts if _differs_by_machine(name, base, other)]
    commits = [shorten_commit(record.git_commit or "unknown") for record in (base, other)]
    same_id = f"both are called {base.id}: if one is a copy of the other, what differs was changed by hand"
    differences = [
        f"{TWO_MACHINES}: {'; '.join(facts[name] for name in machine)}" if machine else "",
        same_id if base.id == other.id else "",
        *(fact for name, fact in facts.items() if name not in machine),
        f"the lab's commit: {' / '.join(commits)}" if base.git_commit != other.git_commit else "",
        f"sweep: {base.sweep} / {other.sweep}" if base.sweep != other.sweep else "",
        *(f"{name} is called {point.name} in {SECOND}" for name, point in meeting.points.items() if point.name != name),
        *(f"not compared: {apart}" for apart in describe_unmatched_points(first, second)),
    ]
    yield from filter(None, differences)
    for run, counterpart, label in ((first, second, FIRST), (second, first, SECOND)):
        if unmatched := [arm.name for arm in run.record.arms if arm.name not in counterpart.arms]:
            yield f"in {label} only: {', '.join(unmatched)}"
        yield from (f"{label}: {note}" for note in list_run_notes(run))


def list_run_notes(run: RunCells) -> Iterator[str]:
    """Yield the notes about a run as a whole: resumed on a changed machine, variants not measurable, blocks not measured."""
    yield from describe_resumptions(run.record)
    yield from map(str, run.record.not_measurable)
    if not run.complete:
        yield f"not all of it was measured: {rerun.resume(run.record)} goes on"


def _differs_by_machine(name: str, base: RunRecord, other: RunRecord) -> bool:
    """Return whether a fact that differs between two runs shows that they were measured on two machines."""
    before, after = base.facts.get(name), other.facts.get(name)
    if before is not None and after is not None and name == "nodes":  # `1 × 2 CPUs, 23.5 GiB, amd64, Linux …`
        return before.split(", ")[:3] != after.split(", ")[:3]
    if before is not None and after is not None and name == "memory_bytes":
        return abs(int(before) - int(after)) > MEMORY_DIFFERS * max(int(before), int(after))
    return name in MACHINE and None not in (before, after)


def shorten_commit(commit: str) -> str:
    """Return the first twelve characters of a commit's hash, and a suffix such as `+changes` unchanged."""
    name, plus, changes = commit.partition("+")
    return f"{name[:12]}{plus}{changes}"
