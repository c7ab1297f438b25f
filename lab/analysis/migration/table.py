"""The tables of the settings that each successor of ingress-nginx has as counterparts of ingress-nginx's keys.

The tables lie next to each system's code, so that a person can check them.

    lab/systems/ingress_nginx/leaving.tsv       per key: what it does, how much a difference weighs, what it depends on, and
                                                what holds for every successor that has no row for the key (`elsewhere`)
    lab/systems/SYSTEM/migrate.tsv              per key: the setting, how the value is translated, the successor's own default

In leaving.tsv, `weight` is the weight of the loss of a key. The direction of a difference counts: `less` and `more` have a
weight and a sentence for a successor whose value is less (or false) or more (or true) than ingress-nginx's; `differs` has
the sentence for any other difference. In a sentence {there} is the successor's value, {yours} ingress-nginx's, and {KEY} that
of another key.

A row of a successor is for all `keys` of its first column; a name with @ is an annotation's. A row with `-` instead of a key is
about a setting for which ingress-nginx has no key. It is reported unless the file sets one of the keys after the `-`. A row
`*  like  SYSTEM` takes over the rows of that system (those with `-` only if the table has none itself). The row `about` has
the program in the column `setting`, its version in `value`, the day on which the table was checked in `default`, in
`note` where arguments, keys and fields are written, and in `source` the key that holds arguments there
(`sections` if keys are written as SECTION.KEY). The first word of `setting` is how the setting is made:

    arg NAME        an argument of the container            hand TEXT   manually: what to look at
    key NAME        a key of the system's ConfigMap         none        unsupported: `default` is what happens instead
    KIND PATH       a field of an object of that kind       read        the successor reads the annotation as it stands

A NAME with {web,websecure} stands for one setting of each, since a system may have several entry points. `default` is
written as `value` would be, so that both can be compared. For `none`, = means that nothing is lost by
ingress-nginx's default, as does a `value` that leaves the successor's default. Further columns may follow:

    readback   how to see that the setting took, a check as in a component, in which {to} stands for the successor's value
    when       the keys of ingress-nginx (`key=value`) without which the setting does nothing on the successor
    differs    the sentence about the difference, instead of the one in leaving.tsv; -: this setting only goes with another
    claims     the claims of the ledger (lab/studies) about this difference
    seen       what of committed runs shows it: `RUN POINT METRIC`, and the variant to divide by (`read_seen`)
    streams    the kinds of long answers that it is about, by the sweeps that measure them: `events`, `websocket`, `grpc`

A test refuses a wrong table (`tests/analysis/migration/test_table.py`): a key without a row or with two, and any unknown name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import lab.systems
from lab.base.errors import refuse_unknown
from lab.base.files import read_tsv
from lab.systems.table import SYSTEMS

Weight = Literal["fails", "guards", "answers", "costs", "seen", "nothing"]
"""The weight of a difference, the heaviest first.

Requests fail; something open that was guarded; other answers; CPU, memory or time; logs; nothing.
"""
WEIGHTS: tuple[Weight, ...] = get_args(Weight)

How = Literal["arg", "key", "field", "hand", "none", "read"]
ANNOTATION, EXTRA, ALL, ABOUT = "@", "-", "*", "about"
COMPANION = "-"
"""The sentence of a setting that makes no difference, but must be set together with another one of its key."""
FOLDER = Path(lab.systems.__file__).parent
FILES = {
    name: f"{system.name.replace('-', '_')}/{file}" for system in SYSTEMS for name, file in system.migrations.items()
}
"""The name of each successor → its table in `FOLDER`."""
LEAVING = "ingress_nginx/leaving.tsv"
ANNOTATIONS = frozenset((FOLDER / "ingress_nginx" / "annotations.txt").read_text(encoding="utf-8").split())
"""The names of all annotations of ingress-nginx 1.15.1, without their prefix; its controller ignores any other.

Source: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9), docs/user-guide/nginx-configuration/annotations-risk.md, which
its build generates from the code, and the two aliases in internal/ingress/annotations (`AnnotationAliases`).
"""
STREAMS: Mapping[str, str] = {"events": "token streams", "websocket": "WebSockets", "grpc": "gRPC"}
"""Sweep → the kind of long answer that it measures, in words."""
COST = "cost of a request"
"""The name in `read_seen` for the cost of a successor with its defaults, which runs show at two rates."""
README, SEEN = Path(__file__).with_name("README.md"), "seen"
_SEEN_ROW = re.compile(r"^\| (\S+) \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)
_EACH = re.compile(r"\{(\w+(?:,\w+)+)\}")


@dataclass(frozen=True, slots=True)
class Subject:
    """The effect of a key (setting of the ConfigMap) or annotation of ingress-nginx, and how serious its loss is.

    Attributes:
        what: What it does, in words.
        when: The condition for it to have an effect: pairs (key of ingress-nginx, value), of which one must hold. An
            empty value means any value that is not empty. Without pairs it always has an effect.
        sides: Direction → (weight of a difference, sentence about it). The direction is 1 if the successor's value is
            more (or true), -1 if it is less (or false), 0 for any other difference. Only 0 is always present.

    """

    what: str
    when: tuple[tuple[str, str], ...]
    sides: Mapping[int, tuple[Weight, str]]


@dataclass(frozen=True, slots=True)
class CounterpartRow:
    """A row of a successor's table: the setting that corresponds to some keys (settings) of ingress-nginx.

    Attributes:
        keys: The keys of ingress-nginx.
        how: How the setting is made: an argument, a key, a field, by hand, not at all, or by reading the annotation.
        setting: The name or path of the setting.
        value: The template that translates ingress-nginx's value (`lab.analysis.migration.values`).
        default: The successor's own default of the setting.
        weight: How serious a difference is; None if it is as serious as the loss of the key.
        note: Further information for the user.
        source: Where the facts of the row are from.
        readback: The check that reads the setting back, as YAML text; empty for none.
        when: The condition for the setting to have an effect: pairs (key of ingress-nginx, value), of which one must
            hold. Without pairs it always has an effect.
        differs: The sentence about the difference; if it is empty, the sentence of the key is used.
        claims: The ids of claims of published studies about this difference.
        seen: The committed measurement that shows the difference, as the table writes it: `RUN POINT METRIC`; empty for
            none.
        streams: The kinds of long answers that the difference is about, as keys of `STREAMS`.

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
    when: tuple[tuple[str, str], ...] = ()
    differs: str = ""
    claims: tuple[str, ...] = ()
    seen: str = ""
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """The table of one successor of ingress-nginx: its counterparts of ingress-nginx's keys (settings) and annotations.

    Attributes:
        system: The name of the successor.
        about: The row `about`, whose columns have another meaning. `setting` is the program, `value` its version,
            `default` the day on which the table was checked, `note` the place where settings are written, and `source`
            the key that holds arguments there.
        rows: Key, or annotation with `@` in front → its rows. Every key has rows, an annotation only if it is known.
        extras: The rows about settings for which ingress-nginx has no key.

    """

    system: str
    about: CounterpartRow
    rows: Mapping[str, tuple[CounterpartRow, ...]]
    extras: tuple[CounterpartRow, ...]


def list_successors() -> list[str]:
    """Return the names of the successors of ingress-nginx that have a table, sorted."""
    return sorted(FILES)


@cache
def load_subjects() -> Mapping[str, Subject]:
    """Return what each key (setting) and known annotation of ingress-nginx does, and how serious its loss is, by name.

    In the mapping, the name of an annotation begins with `@`.
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
    about = next(
        row for cells in read_tsv(FOLDER / FILES[system]) if cells["keys"] == ABOUT for row in _read_row(cells)
    )
    return Table(system, about, {**elsewhere, **rows}, tuple(extras))


def _merge_rows(system: str) -> tuple[dict[str, tuple[CounterpartRow, ...]], list[CounterpartRow]]:
    """Return the rows of a system's table, merged with those of the system that it names in the row `* like SYSTEM`.

    If both have rows for a key, those of the system itself are kept.

    Returns:
        Two parts: key of ingress-nginx → its rows; and the rows about settings for which ingress-nginx has no key.

    """
    rows, like = dict[str, tuple[CounterpartRow, ...]](), dict[str, tuple[CounterpartRow, ...]]()
    extras, inherited = list[CounterpartRow](), list[CounterpartRow]()
    for cells in read_tsv(FOLDER / FILES[system]):
        if cells["keys"] == ALL:
            like, inherited = _merge_rows(cells["value"])
        elif cells["keys"] != ABOUT:
            made = tuple(_read_row(cells))
            if made[0].keys[0] == EXTRA:
                extras += made
            else:
                rows |= {key: (*rows.get(key, ()), *made) for key in made[0].keys}
    return {**like, **rows}, extras or inherited


def _read_row(cells: Mapping[str, str]) -> Iterator[CounterpartRow]:
    """Yield the rows (settings) that one line in the table of a successor of ingress-nginx describes.

    A setting such as `entryPoints.{web,websecure}.x` gives one row for each name in braces. Any other setting is one
    row.

    Args:
        cells: Column → text of the line.

    """
    first, _, remainder = cells["setting"].partition(" ")
    how, setting = ("field", cells["setting"]) if first[:1].isupper() else (first, remainder)
    each = _EACH.search(setting)
    for name in each[1].split(",") if each else [""]:
        yield CounterpartRow(
            tuple(cells["keys"].split()),
            cast("How", how),
            _EACH.sub(name, setting),
            cells["value"],
            cells["default"],
            cast("Weight | None", cells["weight"] or None),
            cells["note"],
            cells["source"],
            cells.get("readback", ""),
            _read_pairs(cells.get("when", "")),
            cells.get("differs", ""),
            tuple(cells.get("claims", "").split()),
            cells.get("seen", ""),
            tuple(cells.get("streams", "").split()),
        )


def _read_pairs(cell: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, _, value in (pair.partition("=") for pair in cell.split()))


@cache
def _read_leaving() -> tuple[tuple[str, Subject, CounterpartRow | None], ...]:
    """Read the table of all keys (settings) of ingress-nginx and of the known annotations (leaving.tsv).

    Returns:
        For each key: (its name, what it does, the row for successors whose own table has no row for it, or None).

    """
    entries: list[tuple[str, Subject, CounterpartRow | None]] = []
    for cells in read_tsv(FOLDER / LEAVING):
        keys = tuple(cells["keys"].split())
        columns = {0: f"{cells['weight']} {cells['differs']}", -1: cells["less"], 1: cells["more"]}
        sides: dict[int, tuple[Weight, str]] = {
            direction: (cast("Weight", weight), text)
            for direction, cell in columns.items()
            for weight, _, text in [cell.partition(" ")]
            if weight
        }
        subject = Subject(cells["what"], _read_pairs(cells["when"]), sides)
        note = cells["elsewhere"]
        row = CounterpartRow(keys, "none", "", "", cells["default"], None, note, "") if note else None
        entries += [(key, subject, row) for key in keys]
    return tuple(entries)


def read_seen() -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return what measurements show of the differences between ingress-nginx and its successors.

    A difference is included if its row in a successor's table names a run (column `seen`) or a published claim (column
    `claims`). Also included are the kinds of long answers (`STREAMS`) in the runs of the study `streams`, and the cost
    at two rates (`COST`).

    The text is read from a generated part of this folder's README. `just maintain readme` writes it from the runs and
    the claims, so that no number is typed by hand and `just migrate` needs no run.

    Returns:
        (name of the successor, subject of the difference) → (what committed runs show, each with its target; the
        verdicts on the claims). The subject is a key of ingress-nginx, a setting of the successor, a kind of long
        answer, or `COST`. Either text may be empty.

    """
    part = README.read_text(encoding="utf-8").partition(f"<!-- generated: {SEEN} -->")[2].partition("<!-- end -->")[0]
    rows = _SEEN_ROW.findall(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", part))
    return {(system, name): (runs.strip(), ledger.strip()) for system, name, runs, ledger in rows}


def split_path(path: str) -> list[str]:
    """Split the path of a manifest's field at its dots: `spec.rules.0.host` → [`spec`, `rules`, `0`, `host`].

    In `metadata.annotations.example.org/a`, only the first two dots separate, because the rest is an annotation's name.
    """
    return path.split(".", 2 if path.startswith("metadata.") else -1)


def set_path(node: Any, path: Sequence[str], value: Any) -> None:
    """Set the value at a path of nested mappings and lists, creating those that are missing.

    Args:
        node: The mapping or list to change in place.
        path: The keys from the outermost to the innermost; a number is the index of a list item.
        value: The value to set.

    """
    first, *rest = path
    step = int(first) if first.isdigit() else first
    if not rest:
        node[step] = value
        return
    if isinstance(node, dict) and not isinstance(node.get(step), (dict, list)):
        node[step] = [{}] if rest[0].isdigit() else {}
    set_path(node[step], rest, value)
