"""What each successor has in the place of ingress-nginx's keys: tables that a person can check, beside each system's code.

    lab/systems/ingress_nginx/leaving.tsv        per key: what it does, how much its loss weighs, what it depends on; and what is said
                                                of every successor that does not say otherwise (`elsewhere`)
    lab/systems/SYSTEM/migrate.tsv               per key: the setting, how the value is translated, the successor's own default

A row is for all `keys` of its first column; a name with @ is an annotation's. A row without a key (`-`) is what ingress-nginx has no
key for, and is told unless the file sets one of those after it; `*  like  SYSTEM` takes over that one's rows
(those without a key: if it has none itself). The first word of `setting` says how it is set:

    arg NAME        an argument of the container            hand TEXT   not by the lab: what to look at
    key NAME        a key of the system's ConfigMap         none        not at all: `default` says what happens instead
    KIND PATH       a field of an object of that kind       read        it reads the annotation as it stands

`default` as `value` would be written, so that both can be compared; of `none`, = means that nothing is lost by ingress-nginx's default, and
so does a `value` that leaves it. A table may have a column `readback`: how to see that the setting took, a check as a component's, in
which {to} stands for the value there. What is wrong in a table a test finds (`tests/analysis/migration/test_table.py`): a key without a row or with two,
and anything that is not known.
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
"""The heaviest first: requests fail; something open that was guarded; other answers; CPU, memory, time; logs; nothing."""
WEIGHTS: tuple[Weight, ...] = get_args(Weight)

How = Literal["arg", "key", "field", "hand", "none", "read"]
ANNOTATION, EXTRA, ALL = "@", "-", "*"
FOLDER = Path(lab.systems.__file__).parent
FILES = {
    name: f"{system.name.replace('-', '_')}/{file}" for system in SYSTEMS for name, file in system.migrations.items()
}
"""Successor → its table in `FOLDER`."""
LEAVING = "ingress_nginx/leaving.tsv"


@dataclass(frozen=True, slots=True)
class Subject:
    """A key of ingress-nginx's. `when`: (key, value) of which one must be so, or it does nothing; an empty value: any but an empty one."""

    what: str
    weight: Weight
    when: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in the place of `keys`. `weight`: where it is not the key's own."""

    keys: tuple[str, ...]
    how: How
    setting: str
    value: str
    default: str
    weight: Weight | None
    note: str
    source: str
    readback: str = ""
    """A check's YAML text."""


@dataclass(frozen=True, slots=True)
class Table:
    """One successor: rows of each key, which all keys have, and of annotations, as far as they are known; `extras`: rows without a key."""

    system: str
    rows: Mapping[str, tuple[Row, ...]]
    extras: tuple[Row, ...]


def systems() -> list[str]:
    """The successors that have a table."""
    return sorted(FILES)


@cache
def subjects() -> Mapping[str, Subject]:
    """Every key, and the annotations that are known."""
    return {name: subject for name, subject, _ in _leaving()}


@cache
def load(system: str) -> Table:
    """UsageError for a system without a table."""
    refuse_unknown(system, systems(), "--to", f"there is no successor {system!r}")
    rows, extras = _merged(system)
    elsewhere = {name: (row,) for name, _, row in _leaving() if row}
    return Table(system, {**elsewhere, **rows}, tuple(extras))


def _merged(system: str) -> tuple[dict[str, tuple[Row, ...]], list[Row]]:
    """Its own rows over those of the system that it is like."""
    rows, like = dict[str, tuple[Row, ...]](), dict[str, tuple[Row, ...]]()
    extras, inherited = list[Row](), list[Row]()
    for cells in lines(FILES[system]):
        if cells["keys"] == ALL:
            like, inherited = _merged(cells["value"])
            continue
        first, _, rest = cells["setting"].partition(" ")
        field = first[:1].isupper()
        row = Row(
            tuple(cells["keys"].split()),
            cast("How", "field" if field else first),
            cells["setting"] if field else rest,
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
def _leaving() -> tuple[tuple[str, Subject, Row | None], ...]:
    found: list[tuple[str, Subject, Row | None]] = []
    for cells in lines(LEAVING):
        keys = tuple(cells["keys"].split())
        when = tuple((other, value) for other, _, value in (each.partition("=") for each in cells["when"].split()))
        subject = Subject(cells["what"], cast("Weight", cells["weight"]), when)
        note = cells["elsewhere"]
        row = Row(keys, "none", "", "", cells["default"], None, note, "") if note else None
        found += [(key, subject, row) for key in keys]
    return tuple(found)


def lines(name: str) -> Iterator[Mapping[str, str]]:
    """Column → text of every row of one of these tables."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")
