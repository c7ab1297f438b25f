"""The tables of the settings that each successor of ingress-nginx has as counterparts of ingress-nginx's keys.

The tables lie next to each system's code, so that a person can check them.

    lab/systems/ingress_nginx/leaving.tsv       per key: what it does, how much its loss weighs, what it depends on, and
                                                what holds for every successor that has no row for the key (`elsewhere`)
    lab/systems/SYSTEM/migrate.tsv              per key: the setting, how the value is translated, the successor's own default

A row is for all `keys` of its first column; a name with @ is an annotation's. A row with `-` instead of a key is about a
setting for which ingress-nginx has no key. It is reported unless the file sets one of the keys after the `-`. A row
`*  like  SYSTEM` takes over the rows of that system (those with `-` only if the table has none itself). The first word of
`setting` is how the setting is made:

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
    """What a key of ingress-nginx's ConfigMap, or an annotation, does, and how much its loss weighs.

    Attributes:
        what: What the key does, as words.
        weight: How much the loss of the key weighs.
        when: (key, value) pairs of which one must hold so that this key does anything; an empty value stands for any value
            that is not empty. No pairs: it always does.

    """

    what: str
    weight: Weight
    when: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CounterpartRow:
    """The row of a successor's table: the setting that is its counterpart of some keys of ingress-nginx.

    Attributes:
        keys: The keys of ingress-nginx.
        how: How the setting is made: an argument, a key, a field, by hand, not at all, or by reading the annotation.
        setting: The name or path of the setting.
        value: The template that translates ingress-nginx's value (`lab.analysis.migration.values`).
        default: The successor's own default of the setting.
        weight: How much a difference weighs; None: as much as the loss of the key.
        note: What else a user must know.
        source: Where the facts of the row are from.
        readback: The check that reads the setting back, as YAML text; empty for none.

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
    """The table of one successor of ingress-nginx: its counterparts of ingress-nginx's keys and annotations.

    Attributes:
        system: The name of the successor.
        rows: Key, or annotation with @ → its rows. Every key has some; of annotations only those that are known.
        extras: The rows about settings for which ingress-nginx has no key.

    """

    system: str
    rows: Mapping[str, tuple[CounterpartRow, ...]]
    extras: tuple[CounterpartRow, ...]


def list_successors() -> list[str]:
    """Return the names of the successors of ingress-nginx that have a table, sorted."""
    return sorted(FILES)


@cache
def load_subjects() -> Mapping[str, Subject]:
    """Return name → what it does and how much its loss weighs, for each key of ingress-nginx and known annotation.

    The name of an annotation begins with @.
    """
    return {name: subject for name, subject, _ in _read_leaving()}


@cache
def load_table(system: str) -> Table:
    """Load the table of one successor of ingress-nginx, by the successor's name.

    Raises:
        UsageError: There is no table for this system.

    """
    refuse_unknown(system, list_successors(), "--to", f"there is no successor {system!r}")
    rows, extras = _merge_rows(system)
    elsewhere = {name: (row,) for name, _, row in _read_leaving() if row}
    return Table(system, {**elsewhere, **rows}, tuple(extras))


def _merge_rows(system: str) -> tuple[dict[str, tuple[CounterpartRow, ...]], list[CounterpartRow]]:
    """Return a system's rows, which replace those of the system that its table is `like`.

    Returns:
        (key → its rows, the rows about settings for which ingress-nginx has no key).

    """
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
    """Read the table of all keys of ingress-nginx, and of the known annotations (leaving.tsv).

    Returns:
        For each key: (key, what it does, the row for successors that have none for it; None: there is no such row).

    """
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
    """Yield column → text for every row of a table, given its path below `FOLDER`."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")
