"""A migration's plan as people read it: all successors in one table, then each with the file's settings and its traps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from lab.analysis.aggregate.absolute import absolute_text
from lab.analysis.explain.notes import outcomes
from lab.analysis.explain.run import effect_text
from lab.analysis.judge.rows import Row as ResultRow
from lab.analysis.judge.rows import Summary, misleading_ratios
from lab.analysis.migration.mapping import Line, Migration, Standing, Trap, Unknown
from lab.analysis.migration.table import WEIGHTS, Weight
from lab.model.metrics import about
from lab.report.grid import Cell, Fold, Grid, Heading, Notes, Part, Row, Words, columns, plain, row, title
from lab.report.loads import load_text
from lab.stats.units import significant

SAID: dict[Standing, str] = {
    "same": "by itself",
    "set": "to set",
    "hand": "by hand",
    "lost": "none",
    "off": "no effect",
}
STYLES: dict[str, str] = {"same": "green", "set": "yellow", "hand": "yellow", "lost": "red", "off": "dim"}
WEIGHED: dict[Weight, str] = {
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
"""Metric → its heading."""
EMPTY = "–"


def page(
    place: str, given: Mapping[str, str], unknown: Sequence[Unknown], notes: Sequence[str], found: Sequence[Migration]
) -> list[Part]:
    """What is wrong with the file, the overview, then each successor."""
    said = f"{len(given)} keys" if len(given) != 1 else "1 key"
    head: list[Part] = [title(f"migrate {place}", said)]
    told = [
        *notes,
        *(f"{each.name}: ingress-nginx 1.15.1 has no such key, and ignores it: {each.hint}" for each in unknown),
    ]
    head += [Words(tuple(Text(f"  {line}") for line in told), tuple(f"- {line}" for line in told))] if told else []
    names = ("successor", "by itself", "to set", "by hand", "none", *(WEIGHED[each] for each in WEIGHTS[:-1]))
    rows: list[Row] = []
    for each in found:  # how the file's own settings stand, and how many traps there are of each weight
        stand = [str(each.standings.get(kind, 0)) for kind in ("same", "set", "hand", "lost")]
        weights = [trap.weight for trap in each.traps]
        rows.append(row(each.system, *stand, *(str(weights.count(weight)) for weight in WEIGHTS[:-1])))
    parts = [part for each in found for part in _system(each)]
    return [*head, Grid(columns(names, left=(0,)), tuple(rows), blank=True), *parts]


def walked(found: Sequence[Migration]) -> list[Part]:
    """Which traps the file walks into, and what to set: what stands below a measurement."""
    return [part for each in found for part in _traps(each)]


def costs(summaries: Sequence[Summary]) -> list[Part]:
    """What the move costs, load by load: beside each number how many times ingress-nginx's it is; CPU per request with its interval."""
    rows: list[Row] = []
    for own in (one for summary in summaries for point in summary.points for one in summary.at(point)):
        if own.arm.role != "reference":
            effect = next((each for each in own.effects if each.metric == "cpu_per_request"), None)
            failed = sum(own.cell.errors.values()) + sum(own.cell.errors_invalid.values())
            told = effect_text(effect) if effect and own.arm.role == "variant" else ""
            under = [Heading(own.point.name, load_text(own.point))]
            rows.append(row(own.arm.name, *(_value(name, own) for name in COSTS), f"{failed:,}", told, under=under))
    names = ("what it costs", *(about(name).short for name in COSTS), "failed", "CPU per request")
    units = ("", *(about(name).unit for name in COSTS), "", "")
    heads = columns(names, {0, len(COSTS) + 2}, units)
    return [Grid(heads, tuple(rows), blank=True), Notes()] if rows else []


def happened(summaries: Sequence[Summary]) -> list[Part]:
    """What the numbers do not show, a line each: who does not hold its rate, after how many seconds and why, and where too few samples count."""
    lines = tuple(outcomes(summaries))
    if not lines:
        return []
    return [
        title("what happened", "in words, where a number would mislead", blank=True),
        Words(tuple(Text(f"  {line}") for line in lines), tuple(f"- {line}" for line in lines)),
    ]


def _value(name: str, own: ResultRow) -> str:
    found = own.cell.absolute(name)
    value, base = own.cell.shown(name), own.base.shown(name) if own.base else None
    apart = name in {each.metric for each in misleading_ratios(own)}
    compared = value is not None and base and own.arm.role == "variant" and not apart
    times = f" ×{significant(value / base, 2)}" if compared and value is not None and base else ""
    return f"{absolute_text(about(name), found)}{times}"


def _system(found: Migration) -> Iterator[Part]:
    yield title(found.system, blank=True)
    given = [*found.settings, *found.annotations]
    if given:
        heads = columns(("key", "yours", "there", "setting", "value", "its default"), left=range(6))
        yield Grid(heads, tuple(map(_setting, given)), narrow=Fold((0, 1, 2, 5), (3, 4)), indent=2)
    yield from _traps(found, named=False)


def _traps(found: Migration, named: bool = True) -> Iterator[Part]:
    if named:
        yield title(found.system, "traps, and what to set", blank=True)
    heads, rows = ("trap", "of", "ingress-nginx", "there by itself", "to do"), tuple(map(_trap, found.traps))
    table = Grid(columns(heads, left=range(5)), rows, narrow=Fold((0, 1, 2, 3), (4,)), indent=2, blank=not named)
    yield table if rows else plain("  no trap")
    yield Notes()


def _setting(line: Line) -> Row:
    return row(
        Cell(_key(line), notes=_notes(line)),
        _short(line.text),
        Cell(SAID[line.standing], STYLES[line.standing]),
        _short(line.setting) or EMPTY,
        _short(line.to) or EMPTY,
        _short(line.default).replace("=", EMPTY) or EMPTY,
    )


def _trap(trap: Trap) -> Row:
    """What is not in the file has its key in brackets."""
    line = trap.line
    keys = _key(line) if line.ingress else ", ".join(trap.keys)
    advice = EMPTY if line.standing == "lost" else f"{line.setting}: {_short(line.to)}"
    if line.standing == "hand":
        advice = f"by hand: {line.setting}" if line.setting else "by hand"
    name = _short(keys) if trap.in_file else f"({_short(keys)})"
    return row(
        Cell(WEIGHED[trap.weight], "red" if trap.weight in ("fails", "guards") else "yellow"),
        Cell(name if keys or trap.in_file else "(no key of ingress-nginx's)", notes=_notes(line)),
        _short(line.value) or EMPTY,
        (_short(line.default) if keys else line.default).replace("=", EMPTY) or EMPTY,
        advice,
    )


def _key(line: Line) -> str:
    return f"{line.ingress}: {line.key.rpartition('/')[2]}" if line.ingress else line.key


def _notes(line: Line) -> tuple[str, ...]:
    return (line.note,) if line.note else ()


def _short(text: str) -> str:
    """In one line."""
    words = " ".join(text.split())
    return f"{words[:44]}…" if len(words) > 44 else words
