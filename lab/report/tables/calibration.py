"""The page of a calibration (a test of the load generators): its tables, advice on each generator, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.text import Text

from lab.analysis.calibration import Bias, GeneratorResult, PauseResult, Spread, summarise_generators
from lab.records.calibration import OVER_S, PERCENTILES, CalibrationRecord
from lab.report.grid import Grid, Part, Sentences, make_columns, make_row
from lab.report.markdown import escape
from lab.stats.units import format_three_digits

NONE = "–"
NOISY = "*"
"""The mark after the name of a generator where some of its measurements in the row were disturbed."""


def page(record: CalibrationRecord) -> list[Part]:
    """Return the page of a calibration, which tested the load generators on a server that answers at known times.

    The page has tables of the results, advice on each generator, and notes about the measurements.
    """
    rows = summarise_generators(record)
    parts: list[Part] = []
    for name, table in _make_sections(rows):
        head = Sentences((Text(name, "bold cyan"),), (f"**{name}**",), blank=bool(parts))
        parts += [head, table]
    advice, notes = (
        [f"{row.known.name}: {row.advice}" for row in rows if row.advice],
        [*_list_notes(record), record.id],
    )
    terminal = (*map(Text, advice), *(Text(f"- {note}", "dim") for note in notes))
    bullets = (*(f"- {line}" for line in advice), *(f"- {escape(note)}" for note in notes))
    return [*parts, Sentences(terminal, bullets, blank=bool(parts))]


def _list_notes(record: CalibrationRecord) -> Iterator[str]:
    """Yield notes about a calibration: how it was measured, how exact the server was, what was disturbed, and what is missing."""
    if record.repeats > 1:
        yield f"medians of {record.repeats} repeats of {record.duration_s:g} s, ranges in brackets"
    for generator in record.generators:
        longest = max(
            (measurement.duration_s for measurement in record.measurements if measurement.generator == generator.name),
            default=0.0,
        )
        if longest > record.duration_s:
            yield f"{generator.name} ran for up to {longest:g} s, since it calibrates first"
    server_cpus, generator_cpus = record.facts.get("cpus_backend"), record.facts.get("cpus_generator")
    if server_cpus and generator_cpus:
        shared = "shared, as in every sample of the lab here" if server_cpus == generator_cpus else "their own"
        yield f"server on CPU {server_cpus}, generators on CPU {generator_cpus}: {shared}"
    if any(measurement.scenario == "ceiling" for measurement in record.measurements):
        yield "alone: 1 / CPU per request, what a CPU that nobody shares would give the generator"
    truths = [measurement.truth for measurement in record.measurements if measurement.truth]
    if (
        truths
    ):  # the server's own lateness, at worst over all measurements, and whether the kernel stamped every arrival
        late = {name: [truth.late_s[name] for truth in truths] for name in ("p50", "p99")}
        recorded = {name: [late_s for late_s in values if late_s is not None] for name, values in late.items()}
        worst = ", ".join(f"{name} {_format_us(max(values))} µs" for name, values in recorded.items() if values)
        unstamped = sum(truth.unstamped for truth in truths)
        stamps = (
            f"{unstamped} arrivals had no stamp of the kernel's" if unstamped else "the kernel stamped every arrival"
        )
        yield f"the server's answers were late by {worst or 'an unknown time'} at most, which the truth includes; {stamps}"
    results = [
        (measurement.generator, measurement.reported)
        for measurement in record.measurements
        if measurement.reported and measurement.truth
    ]
    if rounded := sorted({name for name, reported in results if reported.latency.kind != "exact"}):
        yield f"{', '.join(rounded)}: latencies from printed percentiles, those between rounded up"
    if any(generator.latency_from == "due" and generator.installed for generator in record.generators):
        yield (
            "latency from due: the truth is the same, since this server answers any number at once; that a request waited for a"
            " connection is the generator's doing, and in its bias"
        )
    if noisy := [measurement for measurement in record.measurements if measurement.noise]:
        kinds = ", ".join(sorted({text.partition(":")[0] for measurement in noisy for text in measurement.noise}))
        count = f"{NOISY} {len(noisy)} of {len(record.measurements)} measurements"
        yield f"{count} were disturbed ({kinds}): marked, not left out"
    if len(record.measurements) < record.planned:
        yield f"interrupted: {len(record.measurements)} of {record.planned} measurements"
    for row in summarise_generators(record):
        yield from (f"{row.known.name}, {name}: not measured: {reason}" for name, reason in row.known.refusals.items())
        yield from (f"{row.known.name}, {name}: {reason}" for name, reason in row.failures.items())


def _make_sections(rows: Sequence[GeneratorResult]) -> list[tuple[str, Grid]]:
    """Return (title, table) for each section of a calibration's page; a section without rows is left out.

    Generators that are not installed appear in the first table only.
    """
    measured = [row for row in rows if row.measurements]
    bias_heads = (
        f"{prefix} {name}{unit}" for name in PERCENTILES for prefix, unit in (("true", " ms"), ("bias", " µs"))
    )
    tables = [
        (
            "generators: floor (server answers at once), ceiling, CPU per request at 1,000 req/s",
            (
                "generator",
                "version",
                "model",
                "latency from",
                "floor p50 µs",
                "p99 µs",
                "ceiling req/s",
                "alone",
                "CPU/req µs",
                "CPU/req at rate µs",
            ),
            (0, 1, 2, 3),
            [_make_generator_line(row) for row in rows],
        ),
        (
            "bias: reported minus the server's own record; the way through the network is in it",
            ("generator", "scenario", *bias_heads),
            (0, 1),
            [line for row in measured for line in _make_bias_lines(row)],
        ),
        (
            f"coordinated omission: of a pause of 1 s, the requests that took more than {OVER_S:g} s",
            ("generator", "reported %", "true %", "dropped", "the pause is"),
            (0, 4),
            [_make_pause_line(row, pause) for row in measured if (pause := row.pause)],
        ),
    ]
    return [
        (title, Grid(make_columns(heads, left, style="dim"), tuple(make_row(*cells) for cells in lines)))
        for title, heads, left, lines in tables
        if lines
    ]


def _make_generator_line(row: GeneratorResult) -> tuple[str, ...]:
    generator = row.known
    model = "/".join(sorted(generator.models, reverse=True))
    if not generator.installed:
        return (generator.name, "not installed", model, generator.latency_from, *([NONE] * 6))
    floor: Mapping[str, Bias] = row.bias.get("floor", {})
    p50, p99 = (floor[name].reported_s if name in floor else None for name in ("p50", "p99"))
    ceiling = row.ceiling
    return (
        generator.name + _mark_noise(row, "floor", "ceiling", "fixed"),
        generator.version or NONE,
        model,
        generator.latency_from,
        _format_spread(p50, _format_us),
        _format_spread(p99, _format_us),
        _format_spread(ceiling.achieved_rps if ceiling else None, _format_count),
        # three significant digits: 1 / CPU per request is an estimate
        _format_spread(ceiling.alone_rps if ceiling else None, lambda rate: _format_count(float(f"{rate:.3g}"))),
        _format_spread(ceiling.cpu_per_request_s if ceiling else None, _format_us),
        _format_spread(row.cpu_per_request_s, _format_us),
    )


def _make_bias_lines(row: GeneratorResult) -> Iterator[tuple[str, ...]]:
    for name, biases in row.bias.items():
        cells: list[str] = []
        for bias in biases.values():
            share = f" {100 * bias.bias_share.median:+.1f} %".replace("-", "−") if bias.bias_share else ""
            true_text = _format_spread(bias.true_s, lambda value_s: format_three_digits(value_s, 1e3))
            bias_text = _format_spread(
                bias.bias_s, lambda value_s: f"{'−' if value_s < 0 else '+'}{_format_us(abs(value_s))}"
            )
            cells += [true_text, bias_text + share]
        yield (row.known.name + _mark_noise(row, name), name, *cells)


def _make_pause_line(row: GeneratorResult, pause: PauseResult) -> tuple[str, ...]:
    shares = (
        _format_spread(spread, lambda share: f"{100 * share:.2f}")
        for spread in (pause.reported_share, pause.true_share)
    )
    return (
        row.known.name + _mark_noise(row, "pause"),
        *shares,
        _format_spread(pause.dropped, _format_count),
        pause.sight,
    )


def _mark_noise(row: GeneratorResult, *scenarios: str) -> str:
    return NOISY if any(name in row.noisy for name in scenarios) else ""


def _format_spread(spread: Spread | None, format_value: Callable[[float], str]) -> str:
    if spread is None:
        return NONE
    low, high = format_value(spread.low), format_value(spread.high)
    return format_value(spread.median) + (f" ({low}…{high})" if low != high else "")


def _format_us(value_s: float) -> str:
    return format_three_digits(value_s, 1e6)


def _format_count(value: float) -> str:
    return f"{value:,.0f}"
