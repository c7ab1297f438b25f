"""The tables of what each successor has in place of ingress-nginx's keys.

They lie next to each system's code, so that a person can check them.

    lab/systems/ingress_nginx/leaving.tsv       per key: what it does, how much its loss weighs, what it depends on, and
                                                what holds for every successor without a row for it (`elsewhere`)
    lab/systems/SYSTEM/migrate.tsv              per key: the setting, how the value is translated, the successor's own default

A row is for all `keys` of its first column; a name with @ is an annotation's. A row without a key (`-`) is what
ingress-nginx has no key for. It is reported unless the file sets one of the keys after the `-`. `*  like  SYSTEM` takes over
the rows of that system (those without a key only if the table has none itself). The first word of `setting` is how it is set:

    arg NAME        an argument of the container            hand TEXT   manually: what to look at
    key NAME        a key of the system's ConfigMap         none        unsupported: `default` is what happens instead
    KIND PATH       a field of an object of that kind       read        the successor reads the annotation as it stands

`default` is written as `value` would be, so that both can be compared. For `none`, = means that nothing is lost by
ingress-nginx's default, as does a `value` that leaves the successor's default. A table may have a column `readback`: how to
see that the setting took, a check as in a component, in which {to} stands for the successor's value. A test refuses a
wrong table (`tests/analysis/migration/test_table.py`): a key without a row or with two, and any unknown name.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast, get_args

import lab.systems
from lab.base.errors import refuse_unknown
from lab.systems.table import SYSTEMS

Weight = Literal["fails", "guards", "answers", "costs", "seen", "nothing"]
"""The weight of a difference, the heaviest first.

Requests fail; something open that was guarded; other answers; CPU, memory or time; logs; nothing.
"""
WEIGHTS: tuple[Weight, ...] = get_args(Weight)

How = Literal["arg", "key", "field", "hand", "none", "read"]
ANNOTATION, EXTRA, ALL = "@", "-", "*"
FOLDER = Path(lab.systems.__file__).parent
FILES = {
    name: f"{system.name.replace('-', '_')}/{file}" for system in SYSTEMS for name, file in system.migrations.items()
}
"""The name of each successor → its table in `FOLDER`."""
LEAVING = "ingress_nginx/leaving.tsv"


@dataclass(frozen=True, slots=True)
class Subject:
    """A key of ingress-nginx, or an annotation.

    Attributes:
        what: What it does.
        weight: How much its loss weighs.
        when: (key, value) pairs of which one must hold for it to do anything. An empty value: any but an empty one.

    """

    what: str
    weight: Weight
    when: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CounterpartRow:
    """The counterpart that a successor has for some keys.

    Attributes:
        keys: The keys.
        how: How it is set.
        setting: What is set.
        value: The template of its value.
        default: The successor's own default.
        weight: How much a difference weighs; None: as much as the key's loss.
        note: What else is to be known.
        source: Where this is from.
        readback: A check's YAML text.

    """

    keys: tuple[str, ...]
    how: How
    setting: str
    value: str
    default: str
    weight: Weight | None
    note: str
    source: str
    readback: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The table of one successor.

    Attributes:
        system: The successor.
        rows: The rows of each key (every key has some), and of those annotations that are known.
        extras: The rows without a key.

    """

    system: str
    rows: Mapping[str, tuple[CounterpartRow, ...]]
    extras: tuple[CounterpartRow, ...]


def list_successors() -> list[str]:
    """Return the successors that have a table."""
    return sorted(FILES)


@cache
def load_subjects() -> Mapping[str, Subject]:
    """Return every key, and the annotations that are known, by name."""
    return {name: subject for name, subject, _ in _read_leaving()}


@cache
def load_table(system: str) -> Table:
    """Load the table of a successor; UsageError for a system without one."""
    refuse_unknown(system, list_successors(), "--to", f"there is no successor {system!r}")
    rows, extras = _merge_rows(system)
    elsewhere = {name: (row,) for name, _, row in _read_leaving() if row}
    return Table(system, {**elsewhere, **rows}, tuple(extras))


def _merge_rows(system: str) -> tuple[dict[str, tuple[CounterpartRow, ...]], list[CounterpartRow]]:
    """Return (rows by key, extra rows): the system's rows over those of the system that it is like."""
    rows, like = dict[str, tuple[CounterpartRow, ...]](), dict[str, tuple[CounterpartRow, ...]]()
    extras, inherited = list[CounterpartRow](), list[CounterpartRow]()
    for cells in read_rows(FILES[system]):
        if cells["keys"] == ALL:
            like, inherited = _merge_rows(cells["value"])
            continue
        first, _, remainder = cells["setting"].partition(" ")
        field = first[:1].isupper()
        row = CounterpartRow(
            tuple(cells["keys"].split()),
            cast("How", "field" if field else first),
            cells["setting"] if field else remainder,
            cells["value"],
            cells["default"],
            cast("Weight | None", cells["weight"] or None),
            cells["note"],
            cells["source"],
            cells.get("readback", ""),
        )
        extras += [row] if row.keys[0] == EXTRA else []
        rows |= {key: (*rows.get(key, ()), row) for key in row.keys if row.keys[0] != EXTRA}
    return {**like, **rows}, extras or inherited


@cache
def _read_leaving() -> tuple[tuple[str, Subject, CounterpartRow | None], ...]:
    """Return (key, what it does, the row for successors without a row for it), of every key."""
    entries: list[tuple[str, Subject, CounterpartRow | None]] = []
    for cells in read_rows(LEAVING):
        keys = tuple(cells["keys"].split())
        when = tuple((key, value) for key, _, value in (pair.partition("=") for pair in cells["when"].split()))
        subject = Subject(cells["what"], cast("Weight", cells["weight"]), when)
        note = cells["elsewhere"]
        row = CounterpartRow(keys, "none", "", "", cells["default"], None, note, "") if note else None
        entries += [(key, subject, row) for key in keys]
    return tuple(entries)


def read_rows(name: str) -> Iterator[Mapping[str, str]]:
    """Yield column → text for every row of one of these tables."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")
