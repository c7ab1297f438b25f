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
which {to} stands for the value there.
Refuses a table that leaves out a key, has one twice, or says anything that is not known.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast, get_args

import yaml
from pydantic import ValidationError

import lab.systems
from lab.analysis.migration.values import CONVERSIONS, conversions
from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.model.variants.knobs import Check
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.table import SYSTEMS, refuse_checks

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


@lru_cache(maxsize=4)
def subjects(folder: Path = FOLDER) -> Mapping[str, Subject]:
    """Every key, and the annotations that are known."""
    return {name: subject for name, subject, _ in _leaving(folder)}


@lru_cache(maxsize=32)
def load(system: str, folder: Path = FOLDER) -> Table:
    """UsageError for a system without a table, and for a fault in one."""
    refuse_unknown(system, systems(), "--to", f"there is no successor {system!r}")
    path = folder / FILES[system]
    rows, extras = _merged(system, folder)
    elsewhere = {name: (row,) for name, _, row in _leaving(folder) if row}
    whole = {**elsewhere, **rows}
    if missing := [key for key in KEYS if key not in whole]:
        raise UsageError(str(path), f"says nothing of {', '.join(missing)}", "add a row: a setting, or none and why")
    return Table(system, whole, tuple(extras))


def _merged(system: str, folder: Path) -> tuple[dict[str, tuple[Row, ...]], list[Row]]:
    """Its own rows over those of the system that it is like."""
    path = folder / FILES[system]
    rows: dict[str, tuple[Row, ...]] = {}
    extras: list[Row] = []
    like: dict[str, tuple[Row, ...]] = {}
    inherited: list[Row] = []
    known = subjects(folder)
    for line, cells in enumerate(_lines(path), 2):
        where = f"{path}:{line}"
        if cells["keys"] == ALL:
            like, inherited = _merged(cells["value"], folder)
            continue
        row = _row(where, cells)
        if row.keys[0] == EXTRA:
            extras.append(row)
            continue
        for key in row.keys:
            if key not in known and key.removeprefix(ANNOTATION) not in KEYS:
                raise UsageError(where, f"{key!r} is no key of ingress-nginx", did_you_mean(key, known))
            if any(other.keys != row.keys or other.setting == row.setting for other in rows.get(key, ())):
                raise UsageError(where, f"{key!r} has a row already", "keep one of them")
            rows[key] = (*rows.get(key, ()), row)
    return {**like, **rows}, extras or inherited


def _row(where: str, cells: Mapping[str, str]) -> Row:
    first, _, rest = cells["setting"].partition(" ")
    how = "field" if first[:1].isupper() else first
    if how not in get_args(How):
        raise UsageError(where, f"setting: {first!r} is no way of setting", f"one of {', '.join(get_args(How))}")
    if unknown := conversions(cells["value"]) - CONVERSIONS.keys() - KEYS.keys():
        raise UsageError(
            where, f"value: there is no conversion {min(unknown)!r}", did_you_mean(min(unknown), CONVERSIONS)
        )
    setting = cells["setting"] if how == "field" else rest
    weight = _weight(where, cells["weight"]) if cells["weight"] else None
    return Row(
        tuple(cells["keys"].split()),
        cast("How", how),
        setting,
        cells["value"],
        cells["default"],
        weight,
        cells["note"],
        cells["source"],
        _readback(where, cells.get("readback", "")),
    )


def _readback(where: str, text: str) -> str:
    if text:
        try:
            check = Check.model_validate(yaml.safe_load(text))
        except (yaml.YAMLError, ValidationError) as error:
            raise UsageError(
                where, f"readback: {' '.join(str(error).split())}", "a check as in a component's lab/readback"
            ) from None
        refuse_checks(where, [check])
    return text


@lru_cache(maxsize=4)
def _leaving(folder: Path) -> tuple[tuple[str, Subject, Row | None], ...]:
    path = folder / LEAVING
    found: dict[str, tuple[str, Subject, Row | None]] = {}
    for line, cells in enumerate(_lines(path), 2):
        where = f"{path}:{line}"
        keys = tuple(cells["keys"].split())
        when = tuple((other, value) for other, _, value in (each.partition("=") for each in cells["when"].split()))
        subject = Subject(cells["what"], _weight(where, cells["weight"]), when)
        default, note = cells["default"], cells["elsewhere"]
        row = Row(keys, "none", "", "", default, None, note, "") if note else None
        for key in keys:
            if key in found:
                raise UsageError(where, f"{key!r} has a row already", "keep one of them")
            if not key.startswith(ANNOTATION) and key not in KEYS:
                raise UsageError(where, f"{key!r} is no key of ingress-nginx", did_you_mean(key, KEYS))
            found[key] = key, subject, row
    if missing := [key for key in KEYS if key not in found]:
        raise UsageError(str(path), f"says nothing of {', '.join(missing)}", "add a row")
    return tuple(found.values())


def _lines(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")


def _weight(where: str, word: str) -> Weight:
    if word not in WEIGHTS:
        raise UsageError(where, f"weight: {word!r} is none", f"one of {', '.join(WEIGHTS)}")
    return word
