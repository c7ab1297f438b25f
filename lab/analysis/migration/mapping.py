"""The migration of a ConfigMap's keys and of Ingresses' annotations to a successor of ingress-nginx, and its traps.

Each key gets its counterpart on the successor. A trap is something that would behave differently after the move; the
heaviest come first. Most traps come from keys that the file does NOT have, where the successor's default differs from
ingress-nginx's. The weight of a difference depends on its direction: a longer timeout breaks nothing, and a stricter
default weakens no protection.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.analysis.migration.table import (
    ANNOTATION,
    ANNOTATIONS,
    COMPANION,
    STREAMS,
    WEIGHTS,
    CounterpartRow,
    Subject,
    Table,
    Weight,
)
from lab.analysis.migration.values import (
    TRUTH,
    LeaveDefaultError,
    UntranslatableError,
    compare_amounts,
    list_names,
    translate,
)
from lab.base.grouping import group_values
from lab.systems.ingress_nginx.configmap import KEYS, look_up
from lab.systems.ingress_nginx.counterparts import explain_name
from lab.systems.manifests.routes import PREFIX

Standing = Literal["same", "set", "hand", "lost", "off"]
"""The standing of a key on a successor.

same  already equivalent
set   a setting that can be written
hand  manual
lost  unsupported
off   the key does nothing in this file, or ingress-nginx ignores the annotation
"""

STANDINGS: tuple[Standing, ...] = ("off", "same", "set", "hand", "lost")

_NOTHING = {"", "off", "false", "none"}
_NONE_THERE = {"", "off", "false", "none", "not sent", "all may", "refused"}
_TRUSTING = {"use-forwarded-headers", "enable-real-ip", "proxy-real-ip-cidr", "use-proxy-protocol"}
"""The keys by which somebody's word on the client's address is believed."""
_EVERYBODY = re.compile(r"(?<![\w.:])(?:0\.0\.0\.0|::)/0(?!\w)")
_LONG = "600s"
"""The read timeout from which on a file shows that answers go on; no single answer is awaited for so long."""
_UPGRADE = re.compile(r"\bupgrade\b", re.IGNORECASE)
_NAME = re.compile(r"\{([\w-]+)\}")
_UNITS = {"header_kb": " KiB", "header_bytes": " bytes", "bytes": " bytes", "seconds": "s", "whole_seconds": "s"}
"""Conversion of a template → the unit of the successor's number."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key (setting) of ingress-nginx's ConfigMap, with its value in the file that is migrated.

    Attributes:
        name: The name of the key.
        text: The value as the file has it; None if the file does not have the key.
        value: The value that the controller uses: the one in the file as the controller reads it, or else the default.
        remark: A note about the value, such as that the controller reads it as something else; empty for none.

    """

    name: str
    text: str | None
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """The result of a migration for one key or annotation of ingress-nginx: its counterpart on one successor.

    A key is a setting of ingress-nginx's ConfigMap; a successor is a proxy that replaces ingress-nginx.

    Attributes:
        key: The key, or the annotation with its prefix; empty for a setting for which ingress-nginx has no key.
        text: The value as the file has it; empty if the file does not have the key.
        value: The value that ingress-nginx's controller uses.
        standing: Whether and how the successor can do the same: `same` (already equivalent), `set` (a setting), `hand`
            (manual), `lost` (unsupported), or `off` (the key does nothing).
        how: How the successor's setting is made: an argument, a key, a field, by hand, not at all, or by reading the
            annotation.
        setting: The name or path of the successor's setting.
        to: The value of the successor's setting; empty if there is none.
        default: The successor's own default of the setting.
        weight: How serious a difference is, from `fails` (requests fail) to `nothing` (see `Weight`).
        what: What the key does.
        note: Further information for the user.
        source: Where the facts of the line are from.
        there: The successor's default, expressed as a value of ingress-nginx's key if possible: `true` if the
            successor's `disableX` is false.
        differs: The difference in a sentence; empty if there is none.
        warning: The reason to choose another value, although this one is what ingress-nginx does; empty for none.
        row: The row of the successor's table; None for an annotation that ingress-nginx does not have.
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
    there: str = ""
    differs: str = ""
    warning: str = ""
    row: CounterpartRow | None = None
    ingress: str = ""
    readback: str = ""
    """The check that reads the successor's setting back, as YAML text; empty if its table has none."""

    @property
    def unverified(self) -> bool:
        """True if nobody has checked the facts about this counterpart of an ingress-nginx setting (`unverified` in the table)."""
        return "unverified" in f"{self.default} {self.note} {self.source}"

    @property
    def is_trap(self) -> bool:
        """True if the key or annotation is a trap: something would behave differently after the move from ingress-nginx."""
        return self.standing in ("set", "hand", "lost") and self.weight != "nothing"

    @property
    def difference(self) -> tuple[object, ...]:
        """What is equal for all keys and annotations that cause one trap (a different behaviour after the move).

        The rows of several entry points differ in their settings alone.
        """
        row = self.row
        what = (self.differs,) if row is None or row.differs else (row.keys, row.default, self.note)
        return self.weight, bool(self.ingress), *what


@dataclass(frozen=True, slots=True)
class Trap:
    """A trap of a migration: something that would behave differently after the move to a successor of ingress-nginx.

    Attributes:
        weight: How serious the difference is, from `fails` (requests fail) to `seen` (only logs differ).
        keys: The keys (settings) of ingress-nginx that cause it; empty if ingress-nginx has no such setting.
        in_file: True if the file, or an annotation of an Ingress, sets one of these keys.
        lines: The results of the migration for these keys, and for these annotations on all Ingresses.

    """

    weight: Weight
    keys: tuple[str, ...]
    in_file: bool
    lines: tuple[Line, ...]

    @property
    def line(self) -> Line:
        """The result of the migration for the first key that causes this trap (a different behaviour after the move)."""
        return self.lines[0]


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

    A `Line` is the result for one key (setting) or annotation.

    Attributes:
        system: The name of the successor.
        about: The row `about` of the successor's table (`Table.about`), with the program and its version.
        settings: The lines about the keys of the file, in the file's order.
        annotations: The lines about the annotations of the Ingresses.
        defaults: The lines about keys that the file does not have, so that the defaults of both systems are compared.
        extras: The lines about settings of the successor for which ingress-nginx has no key.

    """

    system: str
    about: CounterpartRow
    settings: tuple[Line, ...]
    annotations: tuple[Line, ...]
    defaults: tuple[Line, ...]
    extras: tuple[Line, ...]

    @property
    def standings(self) -> dict[Standing, int]:
        """Standing (whether the successor can do the same) → number of the migration's keys and annotations with it.

        The standings are `same` (already equivalent), `set` (a setting), `hand` (manual), `lost` (unsupported) and
        `off` (the key does nothing). A key with several standings is counted once, under the one that is last in
        `STANDINGS`.
        """
        heaviest: dict[tuple[str, str], Standing] = {}
        for line in (*self.settings, *self.annotations):
            before = heaviest.get((line.ingress, line.key), "off")
            heaviest[line.ingress, line.key] = max((before, line.standing), key=STANDINGS.index)
        return dict(Counter(heaviest.values()))

    @property
    def traps(self) -> list[Trap]:
        """The traps of the migration (what would behave differently after the move), the most serious first.

        Among equally serious traps, those from keys in the file and from annotations come first.
        """
        groups = group_values(
            ((in_file, line.difference), line)
            for in_file, lines in ((True, (*self.settings, *self.annotations)), (False, (*self.defaults, *self.extras)))
            for line in lines
            if line.is_trap
        )
        traps = [
            Trap(lines[0].weight, tuple(dict.fromkeys(line.key for line in lines if line.key)), in_file, tuple(lines))
            for (in_file, _), lines in groups.items()
        ]
        return sorted(traps, key=lambda trap: (WEIGHTS.index(trap.weight), not trap.in_file))


def find_streams(plan: MigrationPlan) -> Mapping[str, Sequence[str]]:
    """Return kind of long answer (`events`, `websocket`, `grpc`) → the settings in the user's files that point to it.

    Long answers are token streams, WebSockets and gRPC (`lab.analysis.migration.table.STREAMS`). A setting is a text such
    as `proxy-buffering: off (shop/web)`. A kind without such a setting is left out.
    """
    annotations = ((line.key.removeprefix(PREFIX), line.text, line.ingress) for line in plan.migrations[0].annotations)
    reasons = group_values(
        (kind, f"{name}: {shorten(value)}{f' ({ingress})' * bool(ingress)}")
        for name, value, ingress in (*((name, value, "") for name, value in plan.given.items()), *annotations)
        for kind in _list_kinds(name, value)
    )
    return {kind: reasons[kind] for kind in STREAMS if kind in reasons}


def _list_kinds(name: str, value: str) -> Sequence[str]:
    """Return the kinds of long answers that a setting points to, by its name and value: `events`, `websocket` or `grpc`."""
    long = name in ("proxy-read-timeout", "proxy-send-timeout") and compare_amounts(_LONG, value) in (0, 1)
    upgrade = "snippet" in name and bool(_UPGRADE.search(value))
    signs = {
        "events": long or (name == "proxy-buffering" and value.lower() == "off"),
        "websocket": long or upgrade or "websocket" in name,
        "grpc": name == "backend-protocol" and value.upper().startswith("GRPC"),
    }
    return [kind for kind, is_shown in signs.items() if is_shown]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name in the ConfigMap that is not a key of ingress-nginx 1.15.1, so that its controller ignores the name.

    Attributes:
        name: The name.
        text: The value that the file has for it.
        hint: What the user may have meant, or why there is no such key.

    """

    name: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The plan of a migration from ingress-nginx to its successors, made from a user's files.

    Attributes:
        place: The name of the file with the ConfigMap; empty if there is none.
        given: Key that the file sets → its value, as text.
        unknown: The names in the ConfigMap that are not keys of ingress-nginx.
        ingresses: The Ingresses in all files, as `namespace/name`.
        notes: Notes about everything else in the files.
        migrations: The migration to each successor.

    """

    place: str
    given: Mapping[str, str]
    unknown: tuple[Unknown, ...]
    ingresses: tuple[str, ...]
    notes: tuple[str, ...]
    migrations: tuple[Migration, ...]


def read_keys(
    data: Mapping[str, str], objects: Mapping[tuple[str, str], Mapping[str, str]] | None = None
) -> tuple[Mapping[str, Key], tuple[Unknown, ...]]:
    """Read the values that a ConfigMap gives to ingress-nginx's keys (settings).

    Args:
        data: The keys and values of the ConfigMap.
        objects: (kind, name) → content of the other objects in the file. If a key names a ConfigMap among them, its
            content is added to the key's note. The content of a Secret is never added.

    Returns:
        Two parts: name → key with the value that the controller uses, for every key of ingress-nginx; and the names in
        the file that are not keys.

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
            note = "; ".join(filter(None, (value.remark, content_text)))
            keys[name] = Key(name, data[name], key.default if value.kept else value.value, note)
    return keys, tuple(Unknown(name, text, explain_name(name, text)) for name, text in data.items() if name not in KEYS)


def migrate(
    table: Table,
    subjects: Mapping[str, Subject],
    keys: Mapping[str, Key],
    order: Sequence[str],
    annotations: Iterable[Annotation] = (),
) -> Migration:
    """Find the counterparts that one successor has for ingress-nginx's keys (settings) and annotations.

    Args:
        table: The successor's table.
        subjects: Name of a key or annotation → what it does, and how serious its loss is.
        keys: Name → key with its value, for every key of ingress-nginx.
        order: The names of the keys that the file has, in the file's order.
        annotations: The annotations of the Ingresses.

    """
    values = {name: key.value for name, key in keys.items()}
    lines = {name: [_map_row(row, subjects[name], keys[name], values) for row in table.rows[name]] for name in keys}
    decided = {line.setting for name in order for line in lines[name] if line.setting}
    return Migration(
        table.system,
        table.about,
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
    """Yield the lines of a migration (one per key of ingress-nginx) so that each setting of the successor has one value.

    Two keys of ingress-nginx may have the same counterpart but request different values. The larger value is then set.
    The line of the other key becomes manual, with a note.
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
        note = f"the same setting as {chosen.key}, which asks for {shorten(chosen.to)}: one of the two can be set"
        yield replace(line, standing="hand", note="; ".join(filter(None, (note, line.note))))


def _measure_magnitude(text: str) -> tuple[float, int]:
    number = re.match(r"\d+(?:\.\d+)?", text)
    return (float(number[0]) if number else 0, len(text))


def _map_row(row: CounterpartRow, subject: Subject, key: Key, values: Mapping[str, str], ingress: str = "") -> Line:
    """Return the result of a migration for one key (setting) or annotation, made from one row of the successor's table.

    Args:
        row: The row.
        subject: What the key does, and how serious its loss is.
        key: The key, or the annotation in the form of a key.
        values: Name → value, for all keys of ingress-nginx.
        ingress: The Ingress that has the annotation; empty for a key.

    """
    changed = bool(ingress) or (key.text is not None and key.value != KEYS[key.name].default)
    standing, to, reason = _find_standing(row, subject, key.value, changed, values)
    if ingress and standing == "set" and not row.keys[0].startswith(ANNOTATION):
        standing, reason = "hand", f"set here for all: for this Ingress alone by hand{f', {reason}' * bool(reason)}"
    elif not ingress and (needed := _find_missing(subject.when, values)):
        standing, reason = "off", f"does nothing without {needed}"
    elif not ingress and standing in ("set", "hand", "lost") and (needed := _find_missing(row.when, values)):
        standing, reason = "same", f"the successor uses it only with {needed}"
    there = _read_default(row, key.value, values)
    direction = _find_direction(row, key.value, to, there)
    weight, text = subject.sides.get(direction, subject.sides[0])
    # that ingress-nginx's default may be left out on the successor says nothing of another value
    if row.weight and not (row.weight == "nothing" and changed and standing != "lost" and row.differs != COMPANION):
        one_sided = direction and direction in subject.sides  # then the lighter of the two
        weight = WEIGHTS[max(map(WEIGHTS.index, (row.weight, weight if one_sided else row.weight)))]
    seconds = "s" * key.name.endswith(("timeout", "keep-alive"))
    unit = next((unit for name, unit in _UNITS.items() if name in list_names(row.value)), seconds) * there.isdigit()
    shown = "no limit" if direction > 0 and there in ("0", "0s", "-1") else f"{there}{unit}" or "not set"
    yours = f"{shorten(key.value)}{seconds * key.value.isdigit()}"
    words = {**values, "there": shown, "yours": yours}
    sentence = _NAME.sub(lambda name: words.get(name[1], name[0]), row.differs.removeprefix(COMPANION) or text)
    for_ingress = f"{there} (you: {yours})" if row.how == "none" else f"{subject.what}: set anew"
    sentence = sentence or (for_ingress if ingress else f"{key.name}: {shown} (you: {yours})")
    trusting = key.name.removeprefix(PREFIX) in _TRUSTING and TRUTH.get(key.value, True)
    everybody = _EVERYBODY.search(f"{to} {values['proxy-real-ip-cidr']}") or "insecure" in row.setting
    warned = standing in ("set", "hand") and trusting and everybody
    return Line(
        key.name, key.text or "", key.value, standing, row.how, row.setting, to, row.default, weight, subject.what,
        "; ".join(filter(None, (key.remark, reason, row.note))), row.source, there,
        sentence if standing in ("set", "hand", "lost") else "",
        "trusts everybody, as you do today; better: the addresses of your load balancer" if warned else "",
        row, ingress, row.readback.replace("{to}", to),
    )  # fmt: skip


def _find_missing(pairs: Sequence[tuple[str, str]], values: Mapping[str, str]) -> str:
    """Return the condition that a setting lacks to have an effect, such as `use-gzip: true or enable-brotli: true`.

    The result is empty if the condition is met: at least one of the pairs holds, or there are no pairs.

    Args:
        pairs: Pairs (key of ingress-nginx, value that it must have). An empty value means any value that is not empty.
        values: Key of ingress-nginx → its value, for all keys.

    """
    if not pairs or any(values[name] == value if value else values[name] for name, value in pairs):
        return ""
    return " or ".join(f"{name}: {value}".removesuffix(": ") for name, value in pairs)


def _read_default(row: CounterpartRow, value: str, values: Mapping[str, str]) -> str:
    """Return the successor's default of a setting, expressed as a value of ingress-nginx's key (setting) if possible.

    Example: ingress-nginx has a key `x`, and the successor has the setting `disableX`, which is false by default. This
    has the same effect as `x: true`, so the result is `true`.

    If no value of the key has the same effect, the result is the default itself. But if the key is true or false (or on
    or off), and the default means that nothing is done, the result is `false` (or `off`). A default number of retries
    or reuses is raised by one, because ingress-nginx counts the first request, too.

    Args:
        row: The row of the successor's table, which has the default and the template of the translation.
        value: The value of the key in ingress-nginx.
        values: Name → value, for all keys of ingress-nginx.

    """
    names, default = list_names(row.value), row.note if row.default == "=" else row.default
    if default.isdigit() and names & {"retries", "reuses"}:  # which leave out the first
        return str(int(default) + 1)
    words = next((pair for pair in (("on", "off"), ("true", "false")) if value in pair), ())
    otherwise = words[1] if words and default.lower() in _NONE_THERE else default
    return next((word for word in words if names and _gives_default(row, word, values)), otherwise)


def _find_direction(row: CounterpartRow, value: str, to: str, there: str) -> int:
    """Compare the successor's default with ingress-nginx's value: 1 if it is more (or true), -1 if less (or false), else 0.

    Args:
        row: The row of the successor's table.
        value: The value in ingress-nginx.
        to: The value translated for the successor; empty if there is none.
        there: The successor's default, expressed as a value of ingress-nginx's key.

    """
    truths = [TRUTH[text.lower()] for text in (there, value) if text.lower() in TRUTH]
    if len(truths) == 2:
        return truths[0] - truths[1]
    texts = (value, there) if list_names(row.value) & {"retries", "reuses"} else (to or value, row.default)
    if "tls_min" in list_names(row.value):  # TLSv1_2
        return compare_amounts(*(re.sub(r"\D", "", text) for text in texts)) or 0
    return compare_amounts(*texts) or 0


def _find_standing(
    row: CounterpartRow, subject: Subject, value: str, changed: bool, values: Mapping[str, str]
) -> tuple[Standing, str, str]:
    """Find whether and how a successor can do what a key (setting) does in ingress-nginx.

    Args:
        row: The key's row in the successor's table.
        subject: What the key does, and how serious its loss is.
        value: The key's value in ingress-nginx.
        changed: True if the file sets another value than ingress-nginx's default, and for every annotation.
        values: Name → value, for all keys of ingress-nginx.

    Returns:
        Three parts: `same` (already equivalent), `set`, `hand` (manual) or `lost` (unsupported); the value of the
        successor's setting, or empty; and the reason why the value cannot be translated, or empty.

    """
    if row.how == "read":
        return "same", value, ""
    if row.how == "none":
        silent = not changed and row.weight in (None, "nothing")
        equal = not value or _is_equal(value, row.default) or silent or _gives_default(row, value, values)
        return "same" if equal or (row.weight or subject.sides[0][0]) == "nothing" else "lost", "", ""
    if not value or (value == "false" and not list_names(row.value)):
        return "same", "", ""
    try:
        to = translate(row.value, value, values)
    except LeaveDefaultError:
        return "same", row.default, ""
    except UntranslatableError as error:
        return ("hand" if changed else "same"), "", f"{shorten(value)} {error}"
    if _is_equal(to, row.default) or (not changed and row.weight == "nothing" and row.differs != COMPANION):
        return "same", to, ""
    return ("hand" if row.how == "hand" else "set"), to, ""


def _is_equal(to: str, default: str) -> bool:
    """Return whether a value of a setting equals its default, on the proxy that replaces ingress-nginx.

    Equal are: the same text, the same amount in other units (`60s` and `1m`), and two texts that both mean nothing
    (`off` and `none`).
    """
    alike = to not in ("0", "0s") and compare_amounts(to, default) == 0  # 0 may mean none, or no limit
    return to == default or alike or (to in _NOTHING and default in _NONE_THERE)


def _gives_default(row: CounterpartRow, value: str, values: Mapping[str, str]) -> bool:
    """Return whether a value of ingress-nginx translates to the successor's default, so that nothing has to be set.

    Args:
        row: The row of the successor's table, which has the template of the translation and the default.
        value: The value in ingress-nginx.
        values: Name → value, for all keys of ingress-nginx.

    """
    try:
        return translate(row.value, value, values) == row.default
    except LeaveDefaultError:
        return True
    except UntranslatableError:
        return False


def _map_annotation(table: Table, subjects: Mapping[str, Subject], annotation: Annotation) -> list[Line]:
    """Return the results of a migration for an annotation of one Ingress.

    They come from the annotation's rows of the successor's table. If it has none, they come from the rows of the key
    that does the same for all Ingresses. An annotation that ingress-nginx does not have gets a single result, with the
    advice to delete it.
    """
    name, key = f"{ANNOTATION}{annotation.name}", Key(f"{PREFIX}{annotation.name}", annotation.text, annotation.text)
    if annotation.name not in ANNOTATIONS:
        similar = "".join(difflib.get_close_matches(annotation.name, sorted(ANNOTATIONS), n=1, cutoff=0.7)) or "none"
        hint = "a key of the ConfigMap only" if annotation.name in KEYS else f"similar: {similar}"
        note = f"ingress-nginx has no such annotation and ignores it today: delete it ({hint})"
        return [
            Line(key.name, key.value, key.value, "off", "none", "", "", "", "nothing", "", note, "", ingress=annotation.ingress)
        ]  # fmt: skip
    values = {shipped.name: shipped.default for shipped in KEYS.values()}
    subject = subjects.get(name) or subjects[annotation.name]
    return [
        _map_row(row, subject, key, values, annotation.ingress)
        for row in table.rows.get(name) or table.rows[annotation.name]
    ]


def _map_extra(row: CounterpartRow) -> Line:
    standing: Standing = "set" if row.how in ("arg", "key", "field") else "hand" if row.how == "hand" else "lost"
    to = translate(row.value, "")
    return Line(
        "", "", "", standing, row.how, row.setting, to, row.default, row.weight or "nothing", "", row.note, row.source,
        row.default, (row.differs or row.default).replace("{there}", row.default), "", row, "", row.readback.replace("{to}", to),
    )  # fmt: skip


def shorten(value: str) -> str:
    """Return a value on one line, cut after 40 characters, with `…` if something was cut off."""
    line = " ".join(value.split())
    return f"{line[:40]}…" if len(line) > 40 else line
