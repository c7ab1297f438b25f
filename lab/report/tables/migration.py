"""A migration's plan as people read it: all successors in one table, then each with the file's settings and its traps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from lab.analysis.migration.mapping import Line, Migration, Standing, Trap, Unknown
from lab.analysis.migration.table import WEIGHTS, Weight
from lab.report.grid import Cell, Fold, Grid, Notes, Part, Row, Words, columns, plain, row, title

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
OVERVIEW = columns(
    ("successor", "by itself", "to set", "by hand", "none", *(WEIGHED[each] for each in WEIGHTS[:-1])), left=(0,)
)
SETTINGS = columns(("key", "yours", "there", "setting", "value", "its default"), left=range(6))
TRAPS = columns(("trap", "of", "ingress-nginx", "there by itself", "to do"), left=range(5))
SHOWN = 44
EMPTY = "–"
NO_KEY = "(no key of ingress-nginx's)"


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
    parts = [part for each in found for part in _system(each)]
    return [*head, Grid(OVERVIEW, tuple(map(_overview, found)), blank=True), *parts]


def _overview(found: Migration) -> Row:
    """How the file's own settings stand, and how many traps there are of each weight."""
    stand = [str(found.standings.get(each, 0)) for each in ("same", "set", "hand", "lost")]
    weights = [trap.weight for trap in found.traps]
    return row(found.system, *stand, *(str(weights.count(each)) for each in WEIGHTS[:-1]))


def _system(found: Migration) -> Iterator[Part]:
    yield title(found.system, blank=True)
    given = [*found.settings, *found.annotations]
    if given:
        yield Grid(SETTINGS, tuple(map(_setting, given)), narrow=Fold((0, 1, 2, 5), (3, 4)), indent=2)
    traps = found.traps
    if traps:
        rows = tuple(map(_trap, traps))
        yield Grid(TRAPS, rows, narrow=Fold((0, 1, 2, 3), (4,)), indent=2, blank=True)
    else:
        yield plain("  no trap")
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
    keys = ", ".join(trap.keys)
    line = trap.line
    if line.ingress:
        keys = _key(line)
    return row(
        Cell(WEIGHED[trap.weight], "red" if trap.weight in ("fails", "guards") else "yellow"),
        Cell(_short(keys) if trap.in_file else f"({_short(keys)})" if keys else NO_KEY, notes=_notes(line)),
        _short(line.value) or EMPTY,
        (_short(line.default) if keys else line.default).replace("=", EMPTY) or EMPTY,
        _advice(line),
    )


def _advice(line: Line) -> str:
    if line.standing == "lost":
        return EMPTY
    if line.standing == "hand":
        return f"by hand: {line.setting}" if line.setting else "by hand"
    return f"{line.setting}: {_short(line.to)}"


def _key(line: Line) -> str:
    return f"{line.ingress}: {line.key.rpartition('/')[2]}" if line.ingress else line.key


def _notes(line: Line) -> tuple[str, ...]:
    return (line.note,) if line.note else ()


def _short(text: str) -> str:
    """In one line."""
    words = " ".join(text.split())
    return f"{words[:SHOWN]}…" if len(words) > SHOWN else words
