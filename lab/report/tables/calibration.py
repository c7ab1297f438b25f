"""A calibration as people read it: its tables, what to do with each generator, and how it was measured. Units are scaled here only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.text import Text

from lab.analysis.calibration import Bias, Pause, Row, Spread, rows_of
from lab.records.calibration import OVER_S, TOLD, CalibrationRecord
from lab.report.grid import Grid, Part, Words, columns
from lab.report.grid import row as row_of
from lab.report.markdown import escaped
from lab.stats.units import three_digits

NONE = "–"
NOISY = "*"
"""Beside the name of a generator some of whose measurements here were disturbed."""


def page(record: CalibrationRecord) -> list[Part]:
    """Return the tables of what was measured, what to do with each generator, and how it was measured."""
    rows = rows_of(record)
    parts: list[Part] = []
    for name, table in _sections(rows):
        head = Words((Text(name, "bold cyan"),), (f"**{name}**",), blank=bool(parts))
        parts += [head, table]
    told, how = [f"{row.known.name}: {row.advice}" for row in rows if row.advice], [*_notes(record), record.id]
    terminal = (*map(Text, told), *(Text(f"- {note}", "dim") for note in how))
    bullets = (*(f"- {line}" for line in told), *(f"- {escaped(note)}" for note in how))
    return [*parts, Words(terminal, bullets, blank=bool(parts))]


def _notes(record: CalibrationRecord) -> Iterator[str]:
    """Yield how it was measured, how exact the truth is, what was disturbed, what could not be."""
    if record.repeats > 1:
        yield f"medians of {record.repeats} repeats of {record.duration_s:g} s, ranges in brackets"
    for known in record.generators:
        longest = max((each.duration_s for each in record.measurements if each.generator == known.name), default=0.0)
        if longest > record.duration_s:
            yield f"{known.name} ran for up to {longest:g} s, since it calibrates first"
    server, generator = record.facts.get("cpus_backend"), record.facts.get("cpus_generator")
    if server and generator:
        shared = "shared, as in every sample of the lab here" if server == generator else "their own"
        yield f"server on CPU {server}, generators on CPU {generator}: {shared}"
    if any(each.scenario == "ceiling" for each in record.measurements):
        yield "alone: 1 / CPU per request, what a CPU that nobody shares would give the generator"
    truths = [each.truth for each in record.measurements if each.truth]
    if (
        truths
    ):  # the server's own lateness, at worst over all measurements, and whether the kernel stamped every arrival
        late = {name: [truth.late_s[name] for truth in truths] for name in ("p50", "p99")}
        told = {name: [late_s for late_s in each if late_s is not None] for name, each in late.items()}
        worst = ", ".join(f"{name} {_us(max(values))} µs" for name, values in told.items() if values)
        stamped = sum(truth.unstamped for truth in truths)
        how = f"{stamped} arrivals had no stamp of the kernel's" if stamped else "the kernel stamped every arrival"
        yield f"the server's answers were late by {worst or 'an unknown time'} at most, which the truth includes; {how}"
    both = [(each.generator, each.reported) for each in record.measurements if each.reported and each.truth]
    if rounded := sorted({name for name, reported in both if reported.latency.kind != "exact"}):
        yield f"{', '.join(rounded)}: latencies from printed percentiles, those between rounded up"
    if any(known.latency_from == "due" and known.installed for known in record.generators):
        yield (
            "latency from due: the truth is the same, since this server answers any number at once; that a request waited for a"
            " connection is the generator's doing, and in its bias"
        )
    if noisy := [each for each in record.measurements if each.noise]:
        kinds = ", ".join(sorted({text.partition(":")[0] for each in noisy for text in each.noise}))
        count = f"{NOISY} {len(noisy)} of {len(record.measurements)} measurements"
        yield f"{count} were disturbed ({kinds}): marked, not left out"
    if len(record.measurements) < record.planned:
        yield f"interrupted: {len(record.measurements)} of {record.planned} measurements"
    for row in rows_of(record):
        yield from (f"{row.known.name}, {name}: not measured: {why}" for name, why in row.known.refusals.items())
        yield from (f"{row.known.name}, {name}: {why}" for name, why in row.failures.items())


def _sections(rows: Sequence[Row]) -> list[tuple[str, Grid]]:
    """Return (title, table) of what was measured; generators that are not installed have a row in the first."""
    here = [row for row in rows if row.measurements]
    both = (f"{what} {name}{unit}" for name in TOLD for what, unit in (("true", " ms"), ("bias", " µs")))
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
            [_generator(row) for row in rows],
        ),
        (
            "bias: reported minus the server's own record; the way through the network is in it",
            ("generator", "scenario", *both),
            (0, 1),
            [line for row in here for line in _bias(row)],
        ),
        (
            f"coordinated omission: of a pause of 1 s, the requests that took more than {OVER_S:g} s",
            ("generator", "reported %", "true %", "dropped", "the pause is"),
            (0, 4),
            [_pause(row, found) for row in here if (found := row.pause)],
        ),
    ]
    return [
        (title, Grid(columns(head, left, style="dim"), tuple(row_of(*cells) for cells in lines)))
        for title, head, left, lines in tables
        if lines
    ]


def _generator(row: Row) -> tuple[str, ...]:
    known = row.known
    model = "/".join(sorted(known.models, reverse=True))
    if not known.installed:
        return (known.name, "not installed", model, known.latency_from, *([NONE] * 6))
    floor: Mapping[str, Bias] = row.bias.get("floor", {})
    p50, p99 = (floor[name].reported_s if name in floor else None for name in ("p50", "p99"))
    ceiling = row.ceiling
    return (
        known.name + _mark(row, "floor", "ceiling", "fixed"),
        known.version or NONE,
        model,
        known.latency_from,
        _spread(p50, _us),
        _spread(p99, _us),
        _spread(ceiling.achieved_rps if ceiling else None, _count),
        # three significant digits: 1 / CPU per request is an estimate
        _spread(ceiling.alone_rps if ceiling else None, lambda rate: _count(float(f"{rate:.3g}"))),
        _spread(ceiling.cpu_per_request_s if ceiling else None, _us),
        _spread(row.cpu_per_request_s, _us),
    )


def _bias(row: Row) -> Iterator[tuple[str, ...]]:
    for name, found in row.bias.items():
        cells: list[str] = []
        for each in found.values():
            share = f" {100 * each.bias_share.median:+.1f} %".replace("-", "−") if each.bias_share else ""
            true = _spread(each.true_s, lambda value_s: three_digits(value_s, 1e3))
            bias = _spread(each.bias_s, lambda value_s: f"{'−' if value_s < 0 else '+'}{_us(abs(value_s))}")
            cells += [true, bias + share]
        yield (row.known.name + _mark(row, name), name, *cells)


def _pause(row: Row, found: Pause) -> tuple[str, ...]:
    shares = (_spread(each, lambda share: f"{100 * share:.2f}") for each in (found.reported_share, found.true_share))
    return (row.known.name + _mark(row, "pause"), *shares, _spread(found.dropped, _count), found.sight)


def _mark(row: Row, *scenarios: str) -> str:
    return NOISY if any(name in row.noisy for name in scenarios) else ""


def _spread(found: Spread | None, shown: Callable[[float], str]) -> str:
    if found is None:
        return NONE
    low, high = shown(found.low), shown(found.high)
    return shown(found.median) + (f" ({low}…{high})" if low != high else "")


def _us(value_s: float) -> str:
    return three_digits(value_s, 1e6)


def _count(value: float) -> str:
    return f"{value:,.0f}"
