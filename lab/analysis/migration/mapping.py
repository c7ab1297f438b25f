"""A file's keys, and the annotations of Ingresses → per successor: what stands in their place, and which traps lie in between.

A trap is what would be otherwise after the move, the heaviest first. Most come from what the file does NOT say, where the
successor's default is another one than ingress-nginx's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lab.analysis.migration.table import ANNOTATION, WEIGHTS, Row, Subject, Table, Weight
from lab.analysis.migration.values import LeaveError, UntranslatableError, conversions, translated
from lab.systems.ingress_nginx.configmap import KEYS, look_up
from lab.systems.ingress_nginx.counterparts import hint
from lab.systems.manifests.routes import PREFIX

Standing = Literal["same", "set", "hand", "lost", "off"]
"""The successor does it by itself; a setting that can be written; one that must be made by hand; there is none; it does nothing in this file."""

STANDINGS: tuple[Standing, ...] = ("off", "same", "set", "hand", "lost")

_NOTHING = {"", "off", "false", "none"}
_NONE_THERE = {"", "off", "false", "none", "not sent", "all may", "refused"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key's value in ingress-nginx: as the controller takes it. `text`: as the file has it, None where it does not."""

    name: str
    text: str | None
    value: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One key, or an annotation of `ingress`, on one successor. `to`: the value there; `default`: the successor's own."""

    key: str
    text: str
    value: str
    standing: Standing
    how: str
    setting: str
    to: str
    default: str
    weight: Weight
    what: str
    note: str
    source: str
    ingress: str = ""
    readback: str = ""
    """How to see that `to` took, where its table says it: a check's YAML text."""

    @property
    def is_trap(self) -> bool:
        return self.standing in ("set", "hand", "lost") and self.weight != "nothing"


@dataclass(frozen=True, slots=True)
class Trap:
    """What is otherwise. `keys`: with the same counterpart; none where ingress-nginx has no such setting. `in_file`: set there."""

    weight: Weight
    keys: tuple[str, ...]
    in_file: bool
    line: Line


@dataclass(frozen=True, slots=True)
class Annotation:
    """Of one Ingress, `namespace/name`. `name`: without the prefix."""

    ingress: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """To one successor. `settings`: every key of the file in its order; `defaults`: what else would be otherwise, file or not."""

    system: str
    settings: tuple[Line, ...]
    annotations: tuple[Line, ...]
    defaults: tuple[Line, ...]
    extras: tuple[Line, ...]

    @property
    def standings(self) -> dict[Standing, int]:
        """How many of the file's own settings stand so; a key with several rows counts as its heaviest."""
        heaviest: dict[tuple[str, str], Standing] = {}
        for line in (*self.settings, *self.annotations):
            before = heaviest.get((line.ingress, line.key), "off")
            heaviest[line.ingress, line.key] = max((before, line.standing), key=STANDINGS.index)
        return dict(Counter(heaviest.values()))

    @property
    def traps(self) -> list[Trap]:
        """The heaviest first; of the same weight what is in the file first."""
        found: dict[tuple[bool, str, str, str, str], list[Line]] = {}
        for line in (*self.settings, *self.annotations, *self.defaults, *self.extras):
            if line.is_trap:
                in_file = line not in self.defaults and line not in self.extras
                found.setdefault((in_file, line.setting, line.default, line.note, line.ingress), []).append(line)
        traps = [
            Trap(
                WEIGHTS[min(WEIGHTS.index(line.weight) for line in lines)],
                tuple(dict.fromkeys(line.key for line in lines if line.key)),
                in_file,
                lines[0],
            )
            for (in_file, *_), lines in found.items()
        ]
        return sorted(traps, key=lambda trap: (WEIGHTS.index(trap.weight), not trap.in_file))


Beside: TypeAlias = "Mapping[tuple[str, str], Mapping[str, str]]"
"""(kind, name) of an object → what is in it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in the file that is no key of ingress-nginx 1.15.1, which ignores it."""

    name: str
    text: str
    hint: str


def keys_of(data: Mapping[str, str], beside: Beside | None = None) -> tuple[Mapping[str, Key], tuple[Unknown, ...]]:
    """Every key that ingress-nginx has, with the file's value or its default; and those of the file that it has not.

    `beside`: the objects of the file that keys may name, whose content is told with the key.
    """
    found: dict[str, Key] = {}
    for name, key in KEYS.items():
        found[name] = Key(name, None, key.default)
        if name in data:
            _, value = look_up(name, data[name])
            of_file = (beside or {}) if key.names == "ConfigMap" else {}
            named = of_file.get((key.names, data[name].rpartition("/")[2]), {})
            held = f"it holds {', '.join(f'{header}: {text}' for header, text in named.items())}" if named else ""
            told = "; ".join(filter(None, (value.told, held)))
            found[name] = Key(name, data[name], key.default if value.kept else value.value, told)
    return found, tuple(Unknown(name, text, hint(name, text)) for name, text in data.items() if name not in KEYS)


def migration(
    table: Table,
    subjects: Mapping[str, Subject],
    keys: Mapping[str, Key],
    order: Sequence[str],
    annotations: Iterable[Annotation] = (),
) -> Migration:
    """`order`: of the file's own keys."""
    lines = {name: [_line(row, subjects[name], key, keys) for row in table.rows[name]] for name, key in keys.items()}
    said = {line.setting for name in order for line in lines[name] if line.setting}
    return Migration(
        table.system,
        tuple(_one_each([line for name in order for line in lines[name]])),
        tuple(line for each in annotations for line in _annotated(table, subjects, each)),
        tuple(
            # of a key that the file does not have: where one that it has decides the same setting, that one does
            replace(line, standing="same") if line.setting in said and line.is_trap else line
            for name, own in lines.items()
            if name not in order
            for line in own
        ),
        tuple(_extra(row) for row in table.extras if not any(keys[name].text is not None for name in row.keys[1:])),
    )


def _one_each(lines: Sequence[Line]) -> Iterator[Line]:
    """Where two keys are one setting there and ask for different things, the larger is set, and of the other that is told."""
    largest: dict[str, Line] = {}
    for line in lines:
        before = largest.get(line.setting)
        if line.standing == "set" and (before is None or _magnitude(before.to) <= _magnitude(line.to)):
            largest[line.setting] = line
    for line in lines:
        chosen = largest.get(line.setting, line)
        if line.standing != "set" or chosen.to == line.to:
            yield line
            continue
        told = f"the same setting as {chosen.key}, which asks for {_short(chosen.to)}: one of the two can be set"
        yield replace(line, standing="hand", note="; ".join(filter(None, (told, line.note))))


def _magnitude(text: str) -> tuple[float, int]:
    number = re.match(r"\d+(?:\.\d+)?", text)
    return (float(number[0]) if number else 0, len(text))


def _line(row: Row, subject: Subject, key: Key, keys: Mapping[str, Key]) -> Line:
    own = key.text is not None and key.value != KEYS[key.name].default
    standing, to, reason = _standing(row, subject, key.value, own, {name: each.value for name, each in keys.items()})
    when = [keys[name].value == value if value else keys[name].value for name, value in subject.when]
    if when and not any(when):
        needed = " or ".join(f"{name}: {value}".removesuffix(": ") for name, value in subject.when)
        standing, reason = "off", f"does nothing without {needed}"
    weight = row.weight or subject.weight
    if weight == "nothing" and own and standing != "lost":
        weight = subject.weight
    return Line(
        key.name, key.text or "", key.value, standing, row.how, row.setting, to, row.default, weight, subject.what,
        "; ".join(filter(None, (key.told, reason, row.note))), row.source, readback=row.readback.replace("{to}", to),
    )  # fmt: skip


def _standing(
    row: Row, subject: Subject, value: str, own: bool, others: Mapping[str, str]
) -> tuple[Standing, str, str]:
    """(standing, the value there, why it has none)."""
    if row.how == "read":
        return "same", value, ""
    if row.how == "none":
        silent = not own and row.weight in (None, "nothing")
        kept = not value or value == row.default or silent or _left(row, value, others)
        return "same" if kept or (row.weight or subject.weight) == "nothing" else "lost", "", ""
    if not value or (value == "false" and not conversions(row.value)):
        return "same", "", ""
    try:
        to = translated(row.value, value, others)
    except LeaveError:
        return "same", row.default, ""
    except UntranslatableError as error:
        return ("hand" if own else "same"), "", f"{_short(value)} {error}"
    if to == row.default or (to in _NOTHING and row.default in _NONE_THERE):
        return "same", to, ""
    if not own and row.weight == "nothing":
        return "same", to, ""
    return ("hand" if row.how == "hand" else "set"), to, ""


def _left(row: Row, value: str, others: Mapping[str, str]) -> bool:
    """Whether the row says of this value that nothing is lost by it."""
    try:
        translated(row.value, value, others)
    except (LeaveError, UntranslatableError) as error:
        return isinstance(error, LeaveError)
    return False


def _annotated(table: Table, subjects: Mapping[str, Subject], given: Annotation) -> list[Line]:
    """Of one Ingress: the annotation's own rows, else those of the key that does the same for all."""
    name = f"{ANNOTATION}{given.name}"
    subject = subjects.get(name) or subjects.get(given.name)
    rows = table.rows.get(name) or table.rows.get(given.name, ())
    key, text = f"{PREFIX}{given.name}", given.text
    if not subject or not rows:
        told = "the table has no row for this annotation: look it up by hand"
        return [Line(key, text, text, "hand", "hand", "", "", "", "fails", "", told, "", given.ingress)]
    lines: list[Line] = []
    for row in rows:
        standing, to, reason = _standing(row, subject, text, True, {each.name: each.default for each in KEYS.values()})
        if not row.keys[0].startswith(ANNOTATION) and standing == "set":
            standing, reason = "hand", f"set here for all: for this Ingress alone by hand{f', {reason}' * bool(reason)}"
        weight = subject.weight if row.weight in (None, "nothing") else row.weight
        note = "; ".join(filter(None, (reason, row.note)))
        lines.append(
            Line(
                key, text, text, standing, row.how, row.setting, to, row.default, weight, subject.what, note,
                row.source, given.ingress,
            )
        )  # fmt: skip
    return lines


def _extra(row: Row) -> Line:
    standing: Standing = "set" if row.how in ("arg", "key", "field") else "hand" if row.how == "hand" else "lost"
    to = translated(row.value, "")
    return Line(
        "", "", "", standing, row.how, row.setting, to, row.default, row.weight or "nothing", "", row.note, row.source,
        readback=row.readback.replace("{to}", to),
    )  # fmt: skip


def _short(value: str) -> str:
    line = " ".join(value.split())
    return f"{line[:40]}…" if len(line) > 40 else line
