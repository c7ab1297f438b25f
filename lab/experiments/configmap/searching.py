"""Parsed files → every mapping in them that may be the ConfigMap's settings, and the other objects that its keys may name. Pure.

Looked through are lists, several documents, objects of Flux, Argo CD, k3s and of operators, charts around ingress-nginx's, and texts with such
values in them. A list of maps with one key each is one map. Refuses nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from lab.base.errors import UsageError
from lab.experiments.configmap.yaml_text import Scalar, Value, documents, text_at
from lab.systems.ingress_nginx.configmap import KEYS

Path: TypeAlias = "tuple[str | int | None, ...]"
"""Keys and places in lists; None: the text there is YAML again."""
Named: TypeAlias = "Mapping[tuple[str, str], Mapping[str, str]]"
"""(kind, name) → what is in it."""
HELM = "helm -n ingress-nginx get values ingress-nginx -o yaml"
FIELDS = {"apiVersion", "kind", "metadata", "data", "immutable", "sops"}
_ELSEWHERE = re.compile(r"(?:additional)?values?(?:From|Files?|Secrets?)|fileParameters|secrets", re.IGNORECASE)
"""Fields that name what a release takes from other files and objects, as Flux, Argo CD, k3s, Fleet and Kustomize call them."""
_FIELDS = ("values", "valuesObject", "valuesContent", "valuesInline", "set", "set_list", "set_sensitive", "parameters")
"""Of one release, each over those before it."""
_PART = re.compile(
    rf"(?P<release>.*\.)?(?P<field>{'|'.join(_FIELDS)})(?:\[\d+\])?(?P<chart>(?:\.[^.\[\]]+)*\.controller\.config)"
)
_CHART = ("addHeaders", "proxySetHeaders", "dhParam")
"""Values of ingress-nginx's chart of which it makes keys and objects beside `config`."""
_TEXTS = re.compile(r"""controller["']?:|kind["']?: *["']?ConfigMap""")
"""What stands in a text that is worth reading as YAML."""
_PARAMETER = re.compile(r"(?P<chart>(?:.*\.)?controller)\.config\.(?P<key>.+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """A mapping that may be it: where it stands, and the command that prints it alone."""

    where: str
    command: str
    content: Mapping[str, Value]
    helm: bool
    notes: tuple[str, ...] = ()


def find_settings(docs: Sequence[Value]) -> list[Settings]:
    """Return those with keys that the controller knows, else any mapping with such keys, else what holds something."""
    numbered = [(doc, number if len(docs) > 1 else None) for number, doc in enumerate(docs)]
    found = [each for doc, number in numbered for each in _search(doc, (), number, {})]
    if known := [each for each in found if each.content.keys() & KEYS.keys()]:
        return _join_parts(known)
    if plain := [each for doc, number in numbered for each in _search_plain(doc, (), number, {})]:
        return plain
    return [each for each in found if each.content] or [
        Settings("the file", "", doc, helm=True)
        for doc in docs
        if isinstance(doc, Mapping) and not {"kind", "apiVersion", "controller", "data"} & doc.keys()
        if any(isinstance(value, Scalar) for value in doc.values())
    ]


def _join_parts(found: list[Settings]) -> list[Settings]:
    """Return what fields of one release set as one map, each over those before it, as Helm takes them; any others as they are."""
    parts = [(match, each) for each in found if (match := _PART.fullmatch(each.where))]
    releases = {(match["release"] or "", match["chart"]) for match, _ in parts}
    if len(found) < 2 or len(parts) < len(found) or len(releases) > 1:
        return found
    content: dict[str, Value] = {}
    notes: list[str] = []
    for _, each in sorted(parts, key=lambda part: _FIELDS.index(part[0]["field"])):
        over = [key for key in each.content if key in content]
        notes += [*each.notes, *(f"{key}: {each.where} is taken over what stands before it" for key in over)]
        content |= each.content
    return [
        Settings(next(iter(releases))[0].rstrip(".") or "the file", HELM, content, True, tuple(dict.fromkeys(notes)))
    ]


def find_named(value: Value) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
    """Yield every ConfigMap and Secret of a document with its texts; what is no base64 is left out, as the API server refuses it."""
    kind, items = text_at(value, "kind"), value.get("items") if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and kind in ("ConfigMap", "Secret"):
        texts: dict[str, str] = {}
        for field in ("data", "stringData"):
            pairs = value.get(field)
            for key, item in pairs.items() if isinstance(pairs, Mapping) else ():
                with suppress(ValueError):
                    coded = kind == "Secret" and field == "data"
                    text = item.text if isinstance(item, Scalar) else ""
                    texts[key] = base64.b64decode("".join(text.split()), validate=True).decode() if coded else text
        yield (kind, text_at(value.get("metadata"), "name")), texts
    elif isinstance(items, list):
        for item in items:
            yield from find_named(item)


def _map_of(value: Value | None) -> Mapping[str, Value] | None:
    """Return a mapping, or that of a list of maps with one key each, no two the same; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list) or not value:
        return None
    found: dict[str, Value] = {}
    for item in value:
        if not isinstance(item, Mapping) or len(item) != 1 or item.keys() & found.keys():
            return None
        found |= item
    return found


def _search(
    value: Value, path: Path, number: int | None, seen: dict[int, Value], missing: Sequence[str] = ()
) -> Iterator[Settings]:
    """Yield every mapping that is a ConfigMap's data or a chart's controller.config.

    `number`: of the document, where there are several; `seen`: what was looked through, by its id, as an anchor's value may stand in a
    thousand places; `missing`: fields around it that name further values.
    """
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, Scalar):
        with suppress(UsageError):
            for each in documents("", value.text) if _TEXTS.search(value.text) else ():
                if not isinstance(each, Scalar):  # it could be itself
                    yield from _search(each, (*path, None), number, seen, missing)
        return
    yield from _search_parameters(value, path, missing)
    if not isinstance(value, Mapping):
        for place, item in enumerate(value):
            yield from _search(item, (*path, place), number, seen, missing)
        return
    kind, data, controller = text_at(value, "kind"), _map_of(value.get("data")), value.get("controller")
    if kind == "ConfigMap" or (data is not None and not kind and (not path or "metadata" in value)):
        yield from _search_configmap(value, data or {}, path, number, seen)
        return
    missing = [
        *missing,
        *(key for key, item in value.items() if _ELSEWHERE.fullmatch(key) and isinstance(item, list) and item),
    ]
    config = _map_of(controller.get("config")) if isinstance(controller, Mapping) else None
    if config is not None and isinstance(controller, Mapping):
        at = (*path, "controller", "config")
        beside = [name for name in _CHART if controller.get(name) or value.get(name)]
        entries = config.get("entries")  # of F5's chart
        content = entries if isinstance(entries, Mapping) else config
        yield Settings(_where(at), _extract(at, number), content, True, _tell([*missing, *beside]))
    for key, item in value.items():
        # Metadata may hold all of it again: as last applied, as Helm was given it.
        if key != "metadata" and not (key == "controller" and config is not None):
            yield from _search(item, (*path, key), number, seen, missing)


def _tell(fields: Sequence[str]) -> tuple[str, ...]:
    """Return a note for each field that sets something which is not read."""
    return tuple(
        f"{field}: what it sets beside the map is not read: {HELM} prints all that is given" for field in fields
    )


def _search_configmap(
    obj: Mapping[str, Value], data: Mapping[str, Value], path: Path, number: int | None, seen: dict[int, Value]
) -> Iterator[Settings]:
    meta = obj.get("metadata")
    name, namespace = text_at(meta, "name"), text_at(meta, "namespace")
    inner = (
        []
        if data.keys() & KEYS.keys()
        else [each for key, item in data.items() for each in _search(item, (*path, "data", key), number, seen)]
    )
    strays = [field for field in obj if field not in FIELDS and (field != "binaryData" or obj[field])]
    notes = [f"{field.strip()!r} stands beside data: the controller does not read it" for field in strays]
    where = f"ConfigMap {'/'.join(filter(None, (namespace, name))) or 'without a name'}"
    command = f"kubectl{f' -n {namespace}' if namespace else ''} get configmap {name} -o yaml"
    command = command if name else _extract(path, number)
    yield from inner or [Settings(where, command, data, False, tuple(notes))]


def _search_parameters(
    value: Mapping[str, Value] | Sequence[Value], path: Path, missing: Sequence[str]
) -> Iterator[Settings]:
    """Yield what values come to that are set one by one, `{name: controller.config.x, value: 1}` or `controller.config.x: 1`, chart by chart."""
    pairs = (
        value.items()
        if isinstance(value, Mapping)
        else [(text_at(item, "name"), item["value"]) for item in value if isinstance(item, Mapping) and "value" in item]
    )
    charts: dict[str, dict[str, Value]] = {}
    for name, item in pairs:
        if found := _PARAMETER.fullmatch(name):
            charts.setdefault(found["chart"], {})[found["key"].replace("\\", "")] = item
    for chart, content in charts.items():
        yield Settings(_where((*path, *chart.split("."), "config")), HELM, content, True, _tell(missing))


def _search_plain(value: Value, path: Path, number: int | None, seen: dict[int, Value]) -> Iterator[Settings]:
    """Yield every mapping that has a key of the controller's, whatever it is called."""
    if id(value) in seen or isinstance(value, Scalar) or text_at(value, "kind") in ("ConfigMap", "Secret"):
        return
    seen[id(value)] = value
    content = _map_of(value)
    if content and any(key in KEYS and isinstance(item, Scalar) for key, item in content.items()):
        where = _where(path)
        notes = (f"read from {where}: what makes a ConfigMap of it is not known",) if where else ()
        yield Settings(where or "the file", _extract(path, number), content, True, notes)
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _search_plain(item, (*path, key), number, seen)


def _where(path: Path) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path if part is not None)
    return "".join(parts).lstrip(".")


def _extract(path: Path, number: int | None) -> str:
    """Return the command of yq that prints this place of one document; aliases as what they stand for: their anchors may be outside."""
    said = f"{'' if number is None else f'select(di == {number}) | '}explode(.) | ."
    for part in path:
        if part is None:
            said += " | from_yaml | explode(.) | ."
        elif isinstance(part, int):
            said += f"[{part}]"
        else:
            said += f'["{part}"]'
    return f"yq '{said}' FILE"
