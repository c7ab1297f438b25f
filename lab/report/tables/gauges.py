"""The small tables next to the table of steady loads: gauges of arms, variance components, usage of processes, and warnings.

    what it holds          configuration      loaded in   workers         memory
    okd                         61.2 kB         42.1 ms         1        18.3 MB
    okd-routes-1000           612 kB ×10.0    303 ms ×7.2    1 ×1.00    41.9 MB ×2.3

    levels of scatter     load        repeat                generation            bring-up           one start  generations
    baseline              ceiling     0.6 % [0.5, 0.8]      4.1 % [3.1, 6.0]      0 % [0, 2.2]       4.1 %      8 × 4

A gauge is a value that a system reports about itself. The first table has medians of gauges, means of memory and connections, and
the ratios to the baseline. With fewer than six blocks (repetitions) it has the smallest and the largest value. The table has no
verdicts, since only primary metrics have verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import polars as pl
from rich.text import Text

from lab.analysis import pidstat
from lab.analysis.aggregate.generations import VarianceComponents
from lab.analysis.explain.notes import describe_misleading
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.analysis.rate_costs import RateCost, format_cost, format_even_rate
from lab.model.metrics import METRICS
from lab.model.plan import Arm
from lab.report.grid import Fold, Grid, Part, Sentences, TableRow, make_columns, make_row, make_sentence, make_title
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_bytes, format_seconds, format_significant

# -- what an arm holds, and how long it took to load it --------------------------------------------------------

MEMORY, OPENED = "memory", "opened_per_request"
LEAST_OPENED = 0.01
"""The upstream connections per good answer from which on they are shown; below, the proxy keeps those that it has."""
COLUMNS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "proxy/config_bytes": ("configuration", lambda value: "–" if value is None else format_bytes(value)),
    "proxy/load_s": ("loaded in", format_seconds),
    "proxy/workers": ("workers", lambda count: "–" if count is None else f"{count:g}"),
    OPENED: ("opened per answer", lambda share: "–" if share is None else f"{share:.2f}"),
    MEMORY: (MEMORY, lambda value: "–" if value is None else format_bytes(value)),
}
"""The columns of the first table: gauge → its heading and the function that formats it.

`memory` is the most that the processes held during a load. `opened per answer` has the upstream connections at the point with the most, with
the interval of the blocks' median there.
"""
OF_METRICS = {MEMORY: "memory_bytes", OPENED: OPENED}
"""The columns that are a metric of the run's rows, and not a gauge."""


def gauges_page(summary: Summary) -> list[Part]:
    """Return the table of gauges (values that systems report about themselves), with a row for each arm (variant of the run) that has any.

    The result is empty if no arm has any. Rows are never broken, whatever the width of the terminal.
    """
    rows_of = {arm: [row for row in summary.rows if row.arm == arm] for arm in (row.arm for row in summary.rows)}
    values_of = {arm.name: _collect_values(rows) for arm, rows in rows_of.items()}
    often = any(values.get(OPENED, 0.0) >= LEAST_OPENED for values in values_of.values())
    names = [
        name for name in COLUMNS if any(name in values for values in values_of.values()) and (name != OPENED or often)
    ]
    heads = make_columns(["what it holds", *(COLUMNS[name][0] for name in names)], left=[0], style="bold cyan")
    rows = [
        make_row(arm.name, *(_format_value(name, arm, values_of, arm_rows) for name in names))
        for arm, arm_rows in rows_of.items()
        if values_of[arm.name]
    ]
    return [Grid(heads, tuple(rows), gaps=(3,), blank=True)] if names else []


def _collect_values(rows: Sequence[SummaryRow]) -> dict[str, float]:
    """Return the values of one arm (variant of a run) for the table of gauges: name → value; empty for an arm without gauges.

    The value of a gauge is its median over the load points. Some metrics (`OF_METRICS`) are in the table, too; their value is the largest
    one of any load point.

    Args:
        rows: The rows of the arm, one for each load point.

    """
    names = dict.fromkeys(name for row in rows for name in row.cell.gauges)
    values = {name: median(row.cell.gauges[name] for row in rows if name in row.cell.gauges) for name in names}
    largest = {
        name: max(of_points)
        for name, metric in OF_METRICS.items()
        if (of_points := [value for row in rows if (value := row.cell.shown(metric)) is not None])
    }
    return values | largest if values else values


def _format_value(name: str, arm: Arm, values_of: Mapping[str, Mapping[str, float]], rows: Sequence[SummaryRow]) -> str:
    """Return a cell of the table of gauges: the value of an arm (variant of the run), followed by its ratio to the baseline's value.

    Opened upstream connections also have their interval. With few blocks (repetitions), the value is a range.

    Args:
        name: The name of the gauge or metric.
        arm: The arm.
        values_of: Arm → name → value.
        rows: The rows of the arm, one for each load point.

    """
    value, base = values_of[arm.name].get(name), values_of.get(arm.baseline or "", {}).get(name)
    text, few = COLUMNS[name][1](value) + (_format_interval(rows) if name == OPENED else ""), _find_range(name, rows)
    if few is not None and value is not None and few[0] < few[1]:
        metric = METRICS[OF_METRICS.get(name, name)]
        text = f"{'–'.join(dict.fromkeys(map(metric.coarse, few)))} {metric.unit}".rstrip()
    if value is None or not base or arm.role != "variant":
        return text
    return f"{text} ×{value / base:.2f}" if few is None else f"{text} ×{format_significant(value / base, 2)}"


def _format_interval(rows: Sequence[SummaryRow]) -> str:
    """Return the interval of the upstream connections opened per answer, with a leading space: ` [0.93, 0.97]`.

    The interval is that of the load point with the most such connections. The text is empty if these are few, or have no
    interval.

    Args:
        rows: The rows of an arm (variant of the run), one for each load point.

    """
    values = [value for row in rows if (value := row.cell.absolute(OPENED)) is not None and value.value is not None]
    largest = max(values, key=lambda value: value.value or 0.0, default=None)
    if (
        largest is None
        or (largest.value or 0.0) < LEAST_OPENED
        or (largest.interval is None and largest.low < largest.high)
    ):
        return ""  # without an interval, no connection was opened in some block
    low, high = largest.interval or (largest.low, largest.high)
    return f" [{low:.2f}, {high:.2f}]"


def _find_range(name: str, rows: Sequence[SummaryRow]) -> tuple[float, float] | None:
    """Return (smallest value, largest value) of a gauge or metric with too few blocks for an interval; None with six blocks or more.

    A block is one repetition. For a metric, the range is that of the load point with the largest value.

    Args:
        name: The name of the gauge or metric.
        rows: The rows of an arm (variant of the run), one for each load point.

    """
    if name in OF_METRICS:
        values = [value for row in rows if (value := row.cell.absolute(OF_METRICS[name])) is not None]
        largest = max(values, key=lambda value: value.high, default=None)
        return (largest.low, largest.high) if largest is not None and largest.blocks < MIN_BLOCKS else None
    samples = [sample for row in rows for sample in row.cell.counted.items() if name in sample[1].gauges]
    gauges = [sample.gauges[name] for _, sample in samples]
    return (min(gauges), max(gauges)) if 0 < len({block for block, _ in samples}) < MIN_BLOCKS else None


# -- variance components of one system -------------------------------------------------------------------------


def rate_costs_page(costs: Sequence[RateCost]) -> list[Part]:
    """Return the table of idle costs (CPU at rate 0) and marginal costs (CPU of each additional request); empty without any.

    Both costs are computed from measurements at two offered rates. A baseline has rows with its costs. Any other variant has rows
    with the differences of its costs from those of the baseline.
    """
    if not costs:
        return []
    rows: list[TableRow] = []
    for cost in costs:
        changes = cost.idle_change, cost.marginal_change
        idle, marginal = changes if None not in changes else (cost.idle, cost.marginal)
        for name, estimate in (("idle cost", idle), ("marginal cost", marginal)):
            assert estimate is not None
            text, ends = format_cost(estimate, estimate is marginal, estimate in changes)
            role = f"against {cost.against}" if estimate in changes else "itself"
            rows.append(make_row(cost.arm, role, name, text, ends, str(estimate.n)))
    low, high = costs[0].rates
    even = next((cost.even_rate for cost in costs if cost.even_rate is not None), None)
    note = f"idle cost: CPU at rate 0; marginal cost: CPU of each additional request; from {low:,.0f} and {high:,.0f} req/s."
    if even is not None:
        note += f" A difference in idle cost matters below some {format_even_rate(even)} req/s for each proxy, one in marginal cost above."
    heads = make_columns(("variant", "", "cost at two rates", "CPU", "95 % interval", "n"), left=(0, 1, 2, 4))
    return [
        Grid(heads, tuple(rows), Fold((0, 1), (2, 3, 4, 5), indent=2), gaps=(2, 1), blank=True),
        make_sentence(note, "dim"),
    ]


def variance_page(all_levels: Sequence[VarianceComponents]) -> list[Part]:
    """Return the table of variance components: how much the CPU cost varies between repeats, worker generations and bring-ups.

    A worker generation is the worker processes between two reloads. A bring-up is a start of the system. The table has standard
    deviations of one system's cost.

    Args:
        all_levels: The variance components of each variant and load; empty: the page is empty, too.

    """
    if not all_levels:
        return []
    rows: list[TableRow] = []
    for levels in all_levels:
        components = (
            (levels.found.repeat, levels.found.generation, levels.found.bring_up)
            if levels.found
            else (None, None, None)
        )
        lost = "" if levels.whole == levels.planned else f" of {levels.planned}"
        rows.append(
            make_row(
                levels.arm.variant,
                levels.point.name,
                # a dash for a component that was not repeated
                *(
                    "–" if sd is None else f"{100 * sd.sd:.1f} % [{100 * sd.low:.1f}, {100 * sd.high:.1f}]"
                    for sd in components
                ),
                "–" if levels.start is None else f"{100 * levels.start:.1f} %",
                f"{levels.whole}{lost} × {levels.point.generations}",
            )
        )
    names = ["levels of scatter", "load", "repeat", "generation", "bring-up", "one start", "bring-ups × generations"]
    note = (
        "of one system's CPU per request, standard deviation [95 %]: measured again on the same workers, from one generation of workers to the next"
        " (both sides reload, new processes, the old ones gone), from one bring-up to the next; what a single start can be off by (1 sd) is the last two together"
    )
    heads = make_columns(names, left=[0, 1], style="bold cyan")
    return [Grid(heads, tuple(rows), gaps=(3,), blank=True), make_sentence(note, "dim")]


def describe_variance(levels: VarianceComponents) -> str:
    """Return in words how much the CPU cost of one variant at one load varies between starts of the system, and between repeats.

    Example: `one start varies by 4.1 % (sd; 32 generations, 8 bring-ups), a repeat by 0.6 %`. A bring-up is a start of the
    system. A generation is the worker processes between two reloads.
    """
    if levels.found is None:
        return "no bring-up of which every measurement counts"
    repeat = f", a repeat by {100 * levels.found.repeat.sd:.1f} %" if levels.found.repeat else ""
    start = "–" if levels.start is None else f"{100 * levels.start:.1f} %"
    count = levels.whole * levels.point.generations
    return f"one start varies by {start} (sd; {count} generations, {levels.whole} bring-ups){repeat}"


# -- what a sample's processes used ----------------------------------------------------------------------------

HEADINGS = {
    "t_s": "s",
    "role": "role",
    "pid": "PID",
    "tid": "TID",
    "title": "Command",
    "usr_percent": "%usr",
    "system_percent": "%system",
    "guest_percent": "%guest",
    "cpu_percent": "%CPU",
    "minflt_per_s": "minflt/s",
    "majflt_per_s": "majflt/s",
    "vsz_kib": "VSZ",
    "rss_kib": "RSS",
    "mem_percent": "%MEM",
}
"""The columns of `lab.analysis.pidstat`, each with the heading that pidstat itself has (`pidstat -u -r -h`)."""


def usage_page(usage: pl.DataFrame, memory_bytes: int | None, every_second: bool) -> list[Part]:
    """Return the tables of what the processes of one sample used, as pidstat prints them; a value that is not known is `–`.

    The table of averages comes last.

    Args:
        usage: The usage table of the sample.
        memory_bytes: The memory of the machine; None: not known.
        every_second: Whether tables of CPU and memory for every second precede the averages.

    """
    average: list[Part] = [make_sentence("average", "bold"), _make_usage_grid(pidstat.summary(usage, memory_bytes))]
    if not every_second:
        return average
    tables = (pidstat.build_cpu_table(usage), pidstat.memory_table(usage, memory_bytes))
    return [*(part for table in tables for part in (_make_usage_grid(table), make_sentence(""))), *average]


def _make_usage_grid(frame: pl.DataFrame) -> Grid:
    selected = frame.select([name for name in HEADINGS if name in frame.columns])
    rows: list[TableRow] = []
    for line in selected.iter_rows(named=True):
        texts: list[str] = []
        for name, value in line.items():
            digits = 1 if name == "t_s" else 2
            texts.append("–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value))
        rows.append(make_row(*texts))
    left = [number for number, name in enumerate(selected.columns) if name in ("role", "title")]
    return Grid(make_columns([HEADINGS[name] for name in selected.columns], left), tuple(rows))


# -- what happened -----------------------------------------------------------------------------------------------


def warnings_page(summaries: Sequence[Summary]) -> list[Part]:
    """Return a line for each arm (variant of a run) and load whose numbers would mislead a reader; empty if there are none.

    A line says what is wrong with the samples, for example that they are not steady, or that too few of them are valid.
    """
    lines = tuple(describe_misleading(summaries))
    sentences = Sentences(tuple(Text(f"  {line}") for line in lines), tuple(f"- {line}" for line in lines))
    title = make_title("what happened", "in words, where a number would mislead", blank=True)
    return [title, sentences] if lines else []
