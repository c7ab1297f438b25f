"""The migration of a ConfigMap's keys and of Ingresses' annotations to a successor of ingress-nginx, and its traps.

Each key gets its counterpart on the successor. A trap is something that would behave differently after the move; the
heaviest come first. Most traps come from keys that the file does NOT have, where the successor's default differs from
ingress-nginx's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lab.analysis.migration.table import ANNOTATION, WEIGHTS, CounterpartRow, Subject, Table, Weight
from lab.analysis.migration.values import LeaveDefaultError, UntranslatableError, list_names, translate
from lab.systems.ingress_nginx.configmap import KEYS, look_up
from lab.systems.ingress_nginx.counterparts import explain_name
from lab.systems.manifests.routes import PREFIX

Standing = Literal["same", "set", "hand", "lost", "off"]
"""The standing of a key on a successor.

same  already equivalent
set   a setting that can be written
hand  manual
lost  unsupported
off   the key does nothing in this file
"""

STANDINGS: tuple[Standing, ...] = ("off", "same", "set", "hand", "lost")

_NOTHING = {"", "off", "false", "none"}
_NONE_THERE = {"", "off", "false", "none", "not sent", "all may", "refused"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of ingress-nginx's ConfigMap with its value in the file that is migrated.

    Attributes:
        name: The name of the key.
        text: The value as the file has it; None if the file does not have the key.
        value: The value that the controller uses; the default if the file does not have the key.
        told: A note about the value, such as that the controller reads it as something else; empty for none.

    """

    name: str
    text: str | None
    value: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The line of a migration about one key of ingress-nginx, or one annotation, and its counterpart on a successor.

    Attributes:
        key: The key, or the annotation with its prefix; empty for a setting for which ingress-nginx has no key.
        text: The value as the file has it; empty if the file does not have the key.
        value: The value that ingress-nginx's controller uses.
        standing: Whether and how the successor can do the same.
        how: How the successor's setting is made: an argument, a key, a field, by hand, not at all, or by reading.
        setting: The name or path of the successor's setting.
        to: The value of the successor's setting; empty if there is none.
        default: The successor's own default of the setting.
        weight: How much a difference weighs.
        what: What the key does.
        note: What else a user must know.
        source: Where the facts of the line are from.
        ingress: The Ingress that has the annotation, as `namespace/name`; empty for a key.

    """

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
    """The check that reads the successor's setting back, as YAML text; empty if its table has none."""

    @property
    def is_trap(self) -> bool:
        """True if a key of ingress-nginx is a trap: something would behave differently after the move to a successor."""
        return self.standing in ("set", "hand", "lost") and self.weight != "nothing"


@dataclass(frozen=True, slots=True)
class Trap:
    """A trap of a migration: something that would behave differently after the move to a successor of ingress-nginx.

    Attributes:
        weight: How much the difference weighs.
        keys: The keys of ingress-nginx with this counterpart; empty if ingress-nginx has no such setting.
        in_file: Whether the file, or an annotation of an Ingress, sets one of these keys.
        line: The line of the migration about the first of these keys.

    """

    weight: Weight
    keys: tuple[str, ...]
    in_file: bool
    line: Line


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of ingress-nginx on one Ingress, which is to be migrated.

    Attributes:
        ingress: The Ingress as `namespace/name`.
        name: The name of the annotation without its prefix.
        text: The value of the annotation.

    """

    ingress: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Migration:
    """The migration of a ConfigMap and of Ingresses from ingress-nginx to one successor.

    Attributes:
        system: The name of the successor.
        settings: The lines about the keys of the file, in the file's order.
        annotations: The lines about the annotations of the Ingresses.
        defaults: The lines about keys that the file does not have, so that defaults are compared.
        extras: The lines about settings of the successor for which ingress-nginx has no key.

    """

    system: str
    settings: tuple[Line, ...]
    annotations: tuple[Line, ...]
    defaults: tuple[Line, ...]
    extras: tuple[Line, ...]

    @property
    def standings(self) -> dict[Standing, int]:
        """The number of keys and annotations of a migration by standing: same, set, hand, lost or off (`Standing`).

        A key with several lines counts once, by its heaviest standing.
        """
        heaviest: dict[tuple[str, str], Standing] = {}
        for line in (*self.settings, *self.annotations):
            before = heaviest.get((line.ingress, line.key), "off")
            heaviest[line.ingress, line.key] = max((before, line.standing), key=STANDINGS.index)
        return dict(Counter(heaviest.values()))

    @property
    def traps(self) -> list[Trap]:
        """The traps of a migration: what would behave differently after the move, the heaviest first.

        Of traps with the same weight, those from keys in the file and from annotations come first.
        """
        groups: dict[tuple[bool, str, str, str, str], list[Line]] = {}
        for line in (*self.settings, *self.annotations, *self.defaults, *self.extras):
            if line.is_trap:
                in_file = line not in self.defaults and line not in self.extras
                groups.setdefault((in_file, line.setting, line.default, line.note, line.ingress), []).append(line)
        traps = [
            Trap(
                WEIGHTS[min(WEIGHTS.index(line.weight) for line in lines)],
                tuple(dict.fromkeys(line.key for line in lines if line.key)),
                in_file,
                lines[0],
            )
            for (in_file, *_), lines in groups.items()
        ]
        return sorted(traps, key=lambda trap: (WEIGHTS.index(trap.weight), not trap.in_file))


FileObjects: TypeAlias = "Mapping[tuple[str, str], Mapping[str, str]]"
"""A mapping of (kind, name) of an object → its content."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in the ConfigMap that is no key of ingress-nginx 1.15.1, so that its controller ignores the name.

    Attributes:
        name: The name.
        text: The value that the file has for it.
        hint: What the user may have meant, or why there is no such key.

    """

    name: str
    text: str
    hint: str


def read_keys(
    data: Mapping[str, str], objects: FileObjects | None = None
) -> tuple[Mapping[str, Key], tuple[Unknown, ...]]:
    """Read the values that a ConfigMap gives to ingress-nginx's keys.

    Args:
        data: The keys and values of the ConfigMap.
        objects: The other objects of the file. If a key names one of them, its content is added to the key's note.

    Returns:
        (name → key with the file's value or the default, for every key of ingress-nginx; the unknown names in the file).

    """
    keys: dict[str, Key] = {}
    for name, key in KEYS.items():
        keys[name] = Key(name, None, key.default)
        if name in data:
            _, value = look_up(name, data[name])
            of_file = (objects or {}) if key.names == "ConfigMap" else {}
            content = of_file.get((key.names, data[name].rpartition("/")[2]), {})
            content_text = (
                f"it holds {', '.join(f'{header}: {text}' for header, text in content.items())}" if content else ""
            )
            note = "; ".join(filter(None, (value.told, content_text)))
            keys[name] = Key(name, data[name], key.default if value.kept else value.value, note)
    return keys, tuple(Unknown(name, text, explain_name(name, text)) for name, text in data.items() if name not in KEYS)


def migrate(
    table: Table,
    subjects: Mapping[str, Subject],
    keys: Mapping[str, Key],
    order: Sequence[str],
    annotations: Iterable[Annotation] = (),
) -> Migration:
    """Find the counterparts that one successor has for ingress-nginx's keys and for annotations.

    Args:
        table: The successor's table.
        subjects: Name of a key or annotation → what it does, and how much its loss weighs.
        keys: Name → key with its value, for every key of ingress-nginx.
        order: The names of the keys that the file has, in the file's order.
        annotations: The annotations of the Ingresses.

    """
    lines = {name: [_map_key(row, subjects[name], key, keys) for row in table.rows[name]] for name, key in keys.items()}
    decided = {line.setting for name in order for line in lines[name] if line.setting}
    return Migration(
        table.system,
        tuple(_resolve_conflicts([line for name in order for line in lines[name]])),
        tuple(line for annotation in annotations for line in _map_annotation(table, subjects, annotation)),
        tuple(
            # a key that the file does not have is equivalent, if a key that it has decides the same setting
            replace(line, standing="same") if line.setting in decided and line.is_trap else line
            for name, key_lines in lines.items()
            if name not in order
            for line in key_lines
        ),
        tuple(_map_extra(row) for row in table.extras if not any(keys[name].text is not None for name in row.keys[1:])),
    )


def _resolve_conflicts(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines with changes so that each setting of the successor has only one value.

    If two keys of ingress-nginx have the same counterpart but ask for different values, the larger value is set. The line
    of the other key becomes manual, with a note.
    """
    largest: dict[str, Line] = {}
    for line in lines:
        before = largest.get(line.setting)
        if line.standing == "set" and (before is None or _measure_magnitude(before.to) <= _measure_magnitude(line.to)):
            largest[line.setting] = line
    for line in lines:
        chosen = largest.get(line.setting, line)
        if line.standing != "set" or chosen.to == line.to:
            yield line
            continue
        note = f"the same setting as {chosen.key}, which asks for {_shorten(chosen.to)}: one of the two can be set"
        yield replace(line, standing="hand", note="; ".join(filter(None, (note, line.note))))


def _measure_magnitude(text: str) -> tuple[float, int]:
    number = re.match(r"\d+(?:\.\d+)?", text)
    return (float(number[0]) if number else 0, len(text))


def _map_key(row: CounterpartRow, subject: Subject, key: Key, keys: Mapping[str, Key]) -> Line:
    changed = key.text is not None and key.value != KEYS[key.name].default
    standing, to, reason = _find_standing(
        row, subject, key.value, changed, {name: candidate.value for name, candidate in keys.items()}
    )
    when = [keys[name].value == value if value else keys[name].value for name, value in subject.when]
    if when and not any(when):
        needed = " or ".join(f"{name}: {value}".removesuffix(": ") for name, value in subject.when)
        standing, reason = "off", f"does nothing without {needed}"
    weight = row.weight or subject.weight
    if weight == "nothing" and changed and standing != "lost":
        weight = subject.weight
    return Line(
        key.name, key.text or "", key.value, standing, row.how, row.setting, to, row.default, weight, subject.what,
        "; ".join(filter(None, (key.told, reason, row.note))), row.source, readback=row.readback.replace("{to}", to),
    )  # fmt: skip


def _find_standing(
    row: CounterpartRow, subject: Subject, value: str, changed: bool, values: Mapping[str, str]
) -> tuple[Standing, str, str]:
    """Find whether and how a successor can do what a key's value does in ingress-nginx.

    Args:
        row: The key's row in the successor's table.
        subject: What the key does, and how much its loss weighs.
        value: The key's value in ingress-nginx.
        changed: Whether the file sets another value than ingress-nginx's default.
        values: Name → value of all keys.

    Returns:
        (standing, value of the successor's setting or empty, why the value cannot be translated or empty).

    """
    if row.how == "read":
        return "same", value, ""
    if row.how == "none":
        silent = not changed and row.weight in (None, "nothing")
        equal = not value or value == row.default or silent or _is_left(row, value, values)
        return "same" if equal or (row.weight or subject.weight) == "nothing" else "lost", "", ""
    if not value or (value == "false" and not list_names(row.value)):
        return "same", "", ""
    try:
        to = translate(row.value, value, values)
    except LeaveDefaultError:
        return "same", row.default, ""
    except UntranslatableError as error:
        return ("hand" if changed else "same"), "", f"{_shorten(value)} {error}"
    if to == row.default or (to in _NOTHING and row.default in _NONE_THERE):
        return "same", to, ""
    if not changed and row.weight == "nothing":
        return "same", to, ""
    return ("hand" if row.how == "hand" else "set"), to, ""


def _is_left(row: CounterpartRow, value: str, values: Mapping[str, str]) -> bool:
    """Return whether a row's template translates a value to the successor's default, so that nothing has to be set."""
    try:
        translate(row.value, value, values)
    except (LeaveDefaultError, UntranslatableError) as error:
        return isinstance(error, LeaveDefaultError)
    return False


def _map_annotation(table: Table, subjects: Mapping[str, Subject], annotation: Annotation) -> list[Line]:
    """Return the lines of a migration about an annotation of one Ingress.

    The annotation's rows of the table are used or, if it has none, the rows of the key that does the same for all Ingresses.
    """
    name = f"{ANNOTATION}{annotation.name}"
    subject = subjects.get(name) or subjects.get(annotation.name)
    rows = table.rows.get(name) or table.rows.get(annotation.name, ())
    key, text = f"{PREFIX}{annotation.name}", annotation.text
    if not subject or not rows:
        message = "the table has no row for this annotation: look it up by hand"
        return [Line(key, text, text, "hand", "hand", "", "", "", "fails", "", message, "", annotation.ingress)]
    lines: list[Line] = []
    for row in rows:
        standing, to, reason = _find_standing(
            row, subject, text, True, {shipped.name: shipped.default for shipped in KEYS.values()}
        )
        if not row.keys[0].startswith(ANNOTATION) and standing == "set":
            standing, reason = "hand", f"set here for all: for this Ingress alone by hand{f', {reason}' * bool(reason)}"
        weight = subject.weight if row.weight in (None, "nothing") else row.weight
        note = "; ".join(filter(None, (reason, row.note)))
        lines.append(
            Line(
                key, text, text, standing, row.how, row.setting, to, row.default, weight, subject.what, note,
                row.source, annotation.ingress,
            )
        )  # fmt: skip
    return lines


def _map_extra(row: CounterpartRow) -> Line:
    standing: Standing = "set" if row.how in ("arg", "key", "field") else "hand" if row.how == "hand" else "lost"
    to = translate(row.value, "")
    return Line(
        "", "", "", standing, row.how, row.setting, to, row.default, row.weight or "nothing", "", row.note, row.source,
        readback=row.readback.replace("{to}", to),
    )  # fmt: skip


def _shorten(value: str) -> str:
    line = " ".join(value.split())
    return f"{line[:40]}…" if len(line) > 40 else line
