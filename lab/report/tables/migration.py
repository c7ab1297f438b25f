"""The pages of a migration: a table of all successors, then each successor's settings and traps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from lab.analysis.aggregate.absolute import format_absolute
from lab.analysis.explain.notes import describe_misleading
from lab.analysis.explain.run import format_effect
from lab.analysis.judge.rows import Summary, compute_misleading_gaps
from lab.analysis.judge.rows import SummaryRow as ResultRow
from lab.analysis.migration.mapping import Line, Migration, Standing, Trap, Unknown
from lab.analysis.migration.table import WEIGHTS, Weight
from lab.model.metrics import find_metric
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Part,
    Sentences,
    TableCell,
    TableRow,
    make_columns,
    make_row,
    make_sentence,
    make_title,
)
from lab.report.loads import describe_load
from lab.stats.units import format_significant

STANDING_TEXTS: dict[Standing, str] = {
    "same": "by itself",
    "set": "to set",
    "hand": "by hand",
    "lost": "none",
    "off": "no effect",
}
STYLES: dict[str, str] = {"same": "green", "set": "yellow", "hand": "yellow", "lost": "red", "off": "dim"}
WEIGHT_TEXTS: dict[Weight, str] = {
    "fails": "requests fail",
    "guards": "guards fall",
    "answers": "other answers",
    "costs": "costs",
    "seen": "logs, traces",
    "nothing": "nothing",
}
COSTS: Mapping[str, str] = {
    "cpu_per_request": "CPU/request",
    "rate": "rate",
    "p99": "p99",
    "memory_bytes": "memory",
    "opened_per_request": "upstream conns. per 1000",
}
"""The metrics in the table of costs, with their headings."""
EMPTY = "–"


def page(
    place: str,
    given: Mapping[str, str],
    unknown: Sequence[Unknown],
    notes: Sequence[str],
    migrations: Sequence[Migration],
) -> list[Part]:
    """Return the page of a migration's plan: the faults of the file, the overview, then each successor.

    Args:
        place: The name of the file.
        given: The keys of the file with their values.
        unknown: The keys that ingress-nginx does not have.
        notes: Further remarks about the file.
        migrations: The migrations, one per successor.

    """
    count = f"{len(given)} keys" if len(given) != 1 else "1 key"
    head: list[Part] = [make_title(f"migrate {place}", count)]
    remarks = [
        *notes,
        *(f"{key.name}: ingress-nginx 1.15.1 has no such key, and ignores it: {key.hint}" for key in unknown),
    ]
    head += (
        [Sentences(tuple(Text(f"  {line}") for line in remarks), tuple(f"- {line}" for line in remarks))]
        if remarks
        else []
    )
    names = ("successor", "by itself", "to set", "by hand", "none", *(WEIGHT_TEXTS[weight] for weight in WEIGHTS[:-1]))
    rows: list[TableRow] = []
    for migration in migrations:  # the standing of the file's settings, and the number of traps of each weight
        standings = [str(migration.standings.get(kind, 0)) for kind in ("same", "set", "hand", "lost")]
        weights = [trap.weight for trap in migration.traps]
        rows.append(make_row(migration.system, *standings, *(str(weights.count(weight)) for weight in WEIGHTS[:-1])))
    parts = [part for migration in migrations for part in _yield_system(migration)]
    return [*head, Grid(make_columns(names, left=(0,)), tuple(rows), blank=True), *parts]


def traps_page(migrations: Sequence[Migration]) -> list[Part]:
    """Return the traps of a file on each successor, and what to set; they follow the tables of a measurement."""
    return [part for migration in migrations for part in _yield_traps(migration)]


def costs_page(summaries: Sequence[Summary]) -> list[Part]:
    """Return the table of what the migration costs, load by load; empty without rows.

    Each number has its ratio to that of ingress-nginx, and CPU per request also has its interval.
    """
    rows: list[TableRow] = []
    for result in (result for summary in summaries for point in summary.points for result in summary.at(point)):
        if result.arm.role != "reference":
            effect = next((effect for effect in result.effects if effect.metric == "cpu_per_request"), None)
            failed = sum(result.cell.errors.values()) + sum(result.cell.errors_invalid.values())
            change = format_effect(effect) if effect and result.arm.role == "variant" else ""
            under = [Heading(result.point.name, describe_load(result.point))]
            rows.append(
                make_row(
                    result.arm.name,
                    *(_format_cost(name, result) for name in COSTS),
                    f"{failed:,}",
                    change,
                    under=under,
                )
            )
    names = ("what it costs", *(find_metric(name).short for name in COSTS), "failed", "CPU per request")
    units = ("", *(find_metric(name).unit for name in COSTS), "", "")
    heads = make_columns(names, {0, len(COSTS) + 2}, units)
    return [Grid(heads, tuple(rows), blank=True), Notes()] if rows else []


def warnings_page(summaries: Sequence[Summary]) -> list[Part]:
    """Return a line for each arm and load whose numbers would mislead; empty without any.

    A line says after how many seconds an arm does not hold its rate, and why, or that too few of its samples count.
    """
    lines = tuple(describe_misleading(summaries))
    if not lines:
        return []
    return [
        make_title("what happened", "in words, where a number would mislead", blank=True),
        Sentences(tuple(Text(f"  {line}") for line in lines), tuple(f"- {line}" for line in lines)),
    ]


def _format_cost(name: str, result: ResultRow) -> str:
    """Return an absolute value with its ratio to the baseline, where the ratio is not misleading."""
    absolute = result.cell.absolute(name)
    value, base = result.cell.shown(name), result.base.shown(name) if result.base else None
    apart = name in compute_misleading_gaps(result)
    compared = value is not None and base and result.arm.role == "variant" and not apart
    times = f" ×{format_significant(value / base, 2)}" if compared and value is not None and base else ""
    return f"{format_absolute(find_metric(name), absolute)}{times}"


def _yield_system(migration: Migration) -> Iterator[Part]:
    yield make_title(migration.system, blank=True)
    settings = [*migration.settings, *migration.annotations]
    if settings:
        heads = make_columns(("key", "yours", "there", "setting", "value", "its default"), left=range(6))
        yield Grid(heads, tuple(map(_make_setting_row, settings)), narrow=Fold((0, 1, 2, 5), (3, 4)), indent=2)
    yield from _yield_traps(migration, named=False)


def _yield_traps(migration: Migration, named: bool = True) -> Iterator[Part]:
    if named:
        yield make_title(migration.system, "traps, and what to set", blank=True)
    heads, rows = (
        ("trap", "of", "ingress-nginx", "there by itself", "to do"),
        tuple(map(_make_trap_row, migration.traps)),
    )
    table = Grid(make_columns(heads, left=range(5)), rows, narrow=Fold((0, 1, 2, 3), (4,)), indent=2, blank=not named)
    yield table if rows else make_sentence("  no trap")
    yield Notes()


def _make_setting_row(line: Line) -> TableRow:
    return make_row(
        TableCell(_format_key(line), notes=_list_notes(line)),
        _shorten(line.text),
        TableCell(STANDING_TEXTS[line.standing], STYLES[line.standing]),
        _shorten(line.setting) or EMPTY,
        _shorten(line.to) or EMPTY,
        _shorten(line.default).replace("=", EMPTY) or EMPTY,
    )


def _make_trap_row(trap: Trap) -> TableRow:
    """Return the table row of a trap: something that would behave differently after the move to another controller.

    The row names the trap's keys of ingress-nginx, in brackets if neither the migrated file nor an Ingress annotation sets one.
    """
    line = trap.line
    keys = _format_key(line) if line.ingress else ", ".join(trap.keys)
    advice = EMPTY if line.standing == "lost" else f"{line.setting}: {_shorten(line.to)}"
    if line.standing == "hand":
        advice = f"by hand: {line.setting}" if line.setting else "by hand"
    name = _shorten(keys) if trap.in_file else f"({_shorten(keys)})"
    return make_row(
        TableCell(WEIGHT_TEXTS[trap.weight], "red" if trap.weight in ("fails", "guards") else "yellow"),
        TableCell(name if keys or trap.in_file else "(no key of ingress-nginx's)", notes=_list_notes(line)),
        _shorten(line.value) or EMPTY,
        (_shorten(line.default) if keys else line.default).replace("=", EMPTY) or EMPTY,
        advice,
    )


def _format_key(line: Line) -> str:
    return f"{line.ingress}: {line.key.rpartition('/')[2]}" if line.ingress else line.key


def _list_notes(line: Line) -> tuple[str, ...]:
    return (line.note,) if line.note else ()


def _shorten(text: str) -> str:
    """Return a text on one line, cut after 44 characters."""
    text_on_one_line = " ".join(text.split())
    return f"{text_on_one_line[:44]}…" if len(text_on_one_line) > 44 else text_on_one_line
