"""A calibration printed: for a terminal, as Markdown and as JSON; what to do with each generator, and how it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from lab.analysis.calibration.findings import Row
from lab.analysis.calibration.records import STRICT, CalibrationRecord
from lab.analysis.calibration.rows import rows_of
from lab.analysis.calibration.sections import NOISY, sections
from lab.base.text import aligned
from lab.stats.units import three_digits

GAP = 2
DUE = (
    "latency from due: the truth is the same, since this server answers any number at once; that a request waited for a"
    " connection is the generator's doing, and in its bias"
)


class Printed(BaseModel):
    """What `calibrate --json` prints."""

    model_config = STRICT

    schema_version: int = 1
    record: CalibrationRecord
    complete: bool
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def as_json(record: CalibrationRecord) -> dict[str, Any]:
    printed = Printed(record=record, complete=record.complete, rows=tuple(rows_of(record)), notes=tuple(notes(record)))
    return printed.model_dump(mode="json")


def print_tables(console: Console, record: CalibrationRecord) -> None:
    rows = rows_of(record)
    for section in sections(rows):
        grid = [[Text(cell, style="dim") for cell in section.head]]
        grid += [[Text(cell) for cell in row] for row in section.rows]
        console.print(Text(section.title, style="bold cyan"), soft_wrap=True)
        for line in aligned(grid, section.left, GAP):
            line.rstrip()
            console.print(line, soft_wrap=True)
        console.print()
    for line in advice(rows):
        console.print(Text(line), soft_wrap=True)
    for note in notes(record):
        console.print(Text(f"- {note}", style="dim"), soft_wrap=True)


def as_markdown(record: CalibrationRecord) -> str:
    rows = rows_of(record)
    lines: list[str] = []
    for section in sections(rows):
        rule = "|".join(" :-- " if column in section.left else " --: " for column in range(len(section.head)))
        lines += [f"**{section.title}**", "", f"| {' | '.join(section.head)} |", f"|{rule}|"]
        lines += [
            f"| {' | '.join(cell.replace('|', '/').replace('*', chr(92) + '*') for cell in row)} |"
            for row in section.rows
        ]
        lines.append("")
    lines += [
        *(f"- {line}" for line in advice(rows)),
        *(f"- {note.replace('*', chr(92) + '*')}" for note in notes(record)),
    ]
    return "\n".join(lines) + "\n"


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
