"""A calibration as people read it: its tables, what to do with each generator, and how it was measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from lab.analysis.calibration.findings import Row
from lab.analysis.calibration.records import CalibrationRecord
from lab.analysis.calibration.rows import rows_of
from lab.report.grid import Part, Words
from lab.report.markdown import escaped
from lab.report.tables.calibration_sections import NOISY, sections
from lab.stats.units import three_digits

DUE = (
    "latency from due: the truth is the same, since this server answers any number at once; that a request waited for a"
    " connection is the generator's doing, and in its bias"
)


def page(record: CalibrationRecord) -> list[Part]:
    """The tables of what was measured, what to do with each generator, and how it was measured."""
    rows = rows_of(record)
    tables = sections(rows)
    parts: list[Part] = []
    for name, table in tables:
        head = Words((Text(name, "bold cyan"),), (f"**{name}**",), blank=bool(parts))
        parts += [head, table]
    told, how = advice(rows), notes(record)
    terminal = (*map(Text, told), *(Text(f"- {note}", "dim") for note in how))
    bullets = (*(f"- {line}" for line in told), *(f"- {escaped(note)}" for note in how))
    return [*parts, Words(terminal, bullets, blank=bool(parts))]


def advice(rows: Sequence[Row]) -> list[str]:
    return [f"{row.known.name}: {row.advice}" for row in rows if row.advice]


def notes(record: CalibrationRecord) -> list[str]:
    """How it was measured, how exact the truth is, what was disturbed, what could not be."""
    found = (
        [f"medians of {record.repeats} repeats of {record.duration_s:g} s, ranges in brackets"]
        if record.repeats > 1
        else []
    )
    for known in record.generators:
        longest = max((each.duration_s for each in record.measurements if each.generator == known.name), default=0.0)
        if longest > record.duration_s:
            found.append(f"{known.name} ran for up to {longest:g} s, since it calibrates first")
    server, generator = record.facts.get("cpus_backend"), record.facts.get("cpus_generator")
    if server and generator:
        shared = "shared, as in every sample of the lab here" if server == generator else "their own"
        found.append(f"server on CPU {server}, generators on CPU {generator}: {shared}")
    if any(each.scenario == "ceiling" for each in record.measurements):
        found.append("alone: 1 / CPU per request, what a CPU that nobody shares would give the generator")
    found += _exactness(record)
    rounded = sorted(
        {
            each.generator
            for each in record.measurements
            if each.reported and each.truth and each.reported.latency.kind != "exact"
        }
    )
    if rounded:
        found.append(f"{', '.join(rounded)}: latencies from printed percentiles, those between rounded up")
    if any(known.latency_from == "due" and known.installed for known in record.generators):
        found.append(DUE)
    noisy = [each for each in record.measurements if each.noise]
    if noisy:
        kinds = sorted({text.partition(":")[0] for each in noisy for text in each.noise})
        found.append(
            f"{NOISY} {len(noisy)} of {len(record.measurements)} measurements were disturbed ({', '.join(kinds)}): marked, not left out"
        )
    if len(record.measurements) < record.planned:
        found.append(f"interrupted: {len(record.measurements)} of {record.planned} measurements")
    for row in rows_of(record):
        found += [f"{row.known.name}, {name}: not measured: {why}" for name, why in row.known.refusals.items()]
        found += [f"{row.known.name}, {name}: {why}" for name, why in row.failures.items()]
    return [*found, record.id]


def _exactness(record: CalibrationRecord) -> list[str]:
    """The server's own lateness, at worst over all measurements, and whether the kernel stamped every arrival."""
    truths = [each.truth for each in record.measurements if each.truth]
    if not truths:
        return []
    late = {name: [late_s for truth in truths if (late_s := truth.late_s[name]) is not None] for name in ("p50", "p99")}
    worst = ", ".join(f"{name} {three_digits(max(values), 1e6)} µs" for name, values in late.items() if values)
    stamped = sum(truth.unstamped for truth in truths)
    how = "the kernel stamped every arrival" if not stamped else f"{stamped} arrivals had no stamp of the kernel's"
    return [f"the server's answers were late by {worst or 'an unknown time'} at most, which the truth includes; {how}"]
