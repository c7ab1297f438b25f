"""Parsed files → every mapping in them that may be the ConfigMap's settings, and the other objects that its keys may name. Pure.

Looked through are lists, several documents, what `kubectl get` and `helm get values` print, values of Flux, Argo CD, k3s and
charts around this one, texts with such values in them, Kustomizations and patches. Refuses nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from lab.base.errors import UsageError
from lab.experiments.configmap.yaml_text import Scalar, Value, documents
from lab.targets.local.configmap import KEYS

Path: TypeAlias = "tuple[str | int | None, ...]"
"""Keys and places in lists; None: the text there is YAML again."""
Seen: TypeAlias = "dict[int, Value]"
"""What was looked through, by its id; held, so that no other gets that id."""
_FIELDS = {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"}
_SET = "controller.config."
_VALUES = ("values", "valuesObject", "valuesContent", "valuesInline")
_SETS = ("set", "set_list", "set_sensitive", "parameters")
_OF_RELEASE = (*_VALUES, *_SETS)
"""Fields of one release, each over those before it."""
_CHART = {"add-headers": "addHeaders", "proxy-set-headers": "proxySetHeaders"}
"""Key → the chart's mapping that it makes a ConfigMap of, which the key then names."""
_TEXTS = re.compile(r"""controller["']?:|kind["']?: *["']?ConfigMap|path["']?: *["']?/data\b""")
"""What stands in a text that is worth reading as YAML."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A mapping that may be it: where it stands, and the command that prints it alone."""

    where: str
    command: str
    content: Mapping[str, Value]
    helm: bool
    notes: tuple[str, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys that a chart adds by itself."""
    beside: Mapping[tuple[str, str], Mapping[str, str]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, str]]
    )
    """(kind, name) → what these name."""

    @property
    def known(self) -> int:
        return sum(key in KEYS for key in self.content) + len(self.more)


def text_at(value: Value | None, key: str) -> str:
    """Of a mapping; empty where it is something else, or has none there."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found.text if isinstance(found, Scalar) else ""


def maps(doc: Value, number: int | None = None) -> list[Settings]:
    """Every mapping that is a ConfigMap's data or a chart's controller.config. `number`: of the document, where there are several."""
    return list(_maps(doc, (), number, {}))


def hidden(doc: Value, number: int | None = None) -> list[Settings]:
    """Where there are none: every mapping that has a key of the controller's."""
    return list(_hidden(doc, (), number, {}))


def named(value: Value) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
    """Every ConfigMap and Secret below, as texts."""
    if isinstance(value, Mapping):
        kind = text_at(value, "kind")
        items = value.get("items")
        if kind not in ("ConfigMap", "Secret"):
            for item in items if isinstance(items, list) else []:
                yield from named(item)
            return
        plain, coded = (_texts(value.get(name)) for name in ("stringData", "data"))
        yield (
            (kind, text_at(value.get("metadata"), "name")),
            {**(_decoded(coded) if kind == "Secret" else coded), **plain},
        )


def _maps(value: Value, path: Path, number: int | None, seen: Seen) -> Iterator[Settings]:
    if id(value) in seen:  # an anchor's, which may stand in a thousand places
        return
    seen[id(value)] = value
    match value:
        case Scalar(text=text) if _TEXTS.search(text):  # Flux, Argo CD, k3s, patches
            try:
                inner = documents("", text)
            except UsageError:
                return
            for each in inner:
                if not isinstance(each, Scalar):  # it could be itself
                    yield from _maps(each, (*path, None), number, seen)
        case Scalar():
            return
        case Mapping():
            yield from _of_mapping(value, path, number, seen)
        case _:
            given, removed = _set_by(value)
            if given:
                notes = tuple(f"{key}: the patch removes it: the controller's default stays" for key in removed)
                yield Settings(_where(path), _extract(path, number), given, "op" not in _keys(value), notes)
                return
            for place, item in enumerate(value):
                yield from _maps(item, (*path, place), number, seen)


def _of_mapping(value: Mapping[str, Value], path: Path, number: int | None, seen: Seen) -> Iterator[Settings]:
    kind = text_at(value, "kind")
    bare = not path and not kind and isinstance(value.get("data"), Mapping)  # its first lines left out
    if kind == "ConfigMap" or bare:
        yield from _configmap(value, number, seen)
        return
    yield from _literals(value) if kind == "Kustomization" else ()
    if path and (given := {key[len(_SET) :]: item for key, item in value.items() if key.startswith(_SET)}):
        yield Settings(_where(path), _extract(path, number), given, helm=True)
    listed = value.get("items")
    yield from _of_release(value, path, number, seen)
    for key, item in value.items():
        if (
            key in _OF_RELEASE or key == "metadata"
        ):  # which may hold all of it again: as last applied, as Helm was given it
            continue
        below = (*path, key)
        config = item.get("config") if key == "controller" and isinstance(item, Mapping) else None
        if isinstance(config, Mapping) and isinstance(item, Mapping):
            entries = config.get("entries")  # of F5's chart
            at = (*below, "config", *(("entries",) if isinstance(entries, Mapping) else ()))
            more, beside = _of_chart(item)
            content = entries if isinstance(entries, Mapping) else config
            yield Settings(_where(at), _extract(at, number), content, helm=True, more=more, beside=beside)
        elif item is listed and kind == "ConfigMapList" and isinstance(item, list):
            for each in item:
                yield from _configmap(each, number, seen) if isinstance(each, Mapping) else ()
        else:
            yield from _maps(item, below, number, seen)


def _of_release(value: Mapping[str, Value], path: Path, number: int | None, seen: Seen) -> Iterator[Settings]:
    """Of the fields of a release: one for them all where they are of one chart, as Helm takes them together."""
    found = [each for key in _OF_RELEASE if key in value for each in _maps(value[key], (*path, key), number, seen)]
    own = re.escape(_where(path))
    alike = rf"{own}\.?(?:(?:{'|'.join(_VALUES)})(?:\[\d+\])?\.controller\.config|{'|'.join(_SETS)})"
    both = {"values", "valuesObject"} <= value.keys()  # Argo CD takes one of them alone
    if len(found) < 2 or both or not all(re.fullmatch(alike, each.where) for each in found):
        yield from found
        return
    content: dict[str, Value] = {}
    notes: list[str] = []
    for each in found:
        notes += [
            *each.notes,
            *(
                f"{key}: {each.where} is taken over what stands before it"
                for key in each.content.keys() & content.keys()
            ),
        ]
        content |= each.content
    more = {key: text for each in found for key, text in each.more.items()}
    beside = {name: texts for each in found for name, texts in each.beside.items()}
    yield Settings(_where(path) or "the file", _extract(path, number), content, True, tuple(notes), more, beside)


def _hidden(value: Value, path: Path, number: int | None, seen: Seen) -> Iterator[Settings]:
    if id(value) in seen or isinstance(value, Scalar) or text_at(value, "kind") in ("ConfigMap", "Secret"):
        return
    seen[id(value)] = value
    if isinstance(value, Mapping):
        if any(key in KEYS and isinstance(item, Scalar) for key, item in value.items()):
            where = _where(path)
            notes = (f"read from {where}: what makes a ConfigMap of it is not known",) if where else ()
            yield Settings(where or "the file", _extract(path, number), value, helm=True, notes=notes)
            return
        for key, item in value.items():
            yield from _hidden(item, (*path, key), number, seen)
        return
    for place, item in enumerate(value):
        yield from _hidden(item, (*path, place), number, seen)


def _configmap(obj: Mapping[str, Value], number: int | None, seen: Seen) -> Iterator[Settings]:
    meta, data = obj.get("metadata"), obj.get("data")
    name, namespace = text_at(meta, "name"), text_at(meta, "namespace")
    if not isinstance(data, Mapping):
        return
    command = f"kubectl{f' -n {namespace}' if namespace else ''} get configmap {name or 'NAME'} -o yaml"
    where = f"ConfigMap {'/'.join(filter(None, (namespace, name))) or 'without a name'}"
    notes = [
        f"{field.strip()!r} stands beside data, where a ConfigMap has no such field (kubectl refuses it)"
        for field in obj
        if field not in _FIELDS
    ]
    binary = obj.get("binaryData")
    if isinstance(binary, Mapping) and binary:
        notes.append(f"binaryData: {', '.join(binary)}: the controller reads data alone")
    found = Settings(where, command, data, helm=False, notes=tuple(notes))
    inner = (
        [] if found.known else [each for key, item in data.items() for each in _maps(item, ("data", key), number, seen)]
    )
    yield from inner or [found]


def _of_chart(controller: Mapping[str, Value]) -> tuple[dict[str, str], dict[tuple[str, str], Mapping[str, str]]]:
    """Of ingress-nginx's chart: keys that it sets from other values, and the ConfigMaps that it makes for them."""
    found = {key: _texts(controller.get(name)) for key, name in _CHART.items()}
    found = {key: texts for key, texts in found.items() if texts}
    return {key: f"ingress-nginx/custom-{key}" for key in found}, {
        ("ConfigMap", f"custom-{key}"): texts for key, texts in found.items()
    }


def _literals(obj: Mapping[str, Value]) -> Iterator[Settings]:
    """Of a Kustomization: `literals: [keep-alive=300]` of each map that it makes."""
    generators = obj.get("configMapGenerator")
    for item in generators if isinstance(generators, list) else []:
        listed = item.get("literals") if isinstance(item, Mapping) else None
        pairs = (
            [each.text.partition("=") for each in listed or () if isinstance(each, Scalar)]
            if isinstance(listed, list)
            else []
        )
        content: dict[str, Value] = {key: Scalar(_unquoted(value), _unquoted(value)) for key, _, value in pairs}
        elsewhere = [key for key in ("files", "envs", "env") if isinstance(item, Mapping) and item.get(key)]
        notes = [
            f"{key}: what these files hold is not in this one: kubectl kustomize FOLDER prints it" for key in elsewhere
        ]
        if content:
            where, command = f"configMapGenerator {text_at(item, 'name')}", "kubectl kustomize FOLDER"
            yield Settings(where, command, content, helm=False, notes=tuple(notes))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _set_by(items: Value) -> tuple[dict[str, Value], list[str]]:
    """Of a list of a release's parameters (`name: controller.config.x`) or of a JSON patch (`path: /data/x`); and what that removes."""
    found: dict[str, Value] = {}
    removed: list[str] = []
    for item in items if isinstance(items, list) else ():
        name, path, value = (
            text_at(item, "name"),
            text_at(item, "path"),
            item.get("value") if isinstance(item, Mapping) else None,
        )
        if name.startswith(_SET) and value is not None:
            found[name[len(_SET) :].replace("\\", "")] = value
        key = path[6:].replace("~1", "/").replace("~0", "~") if path.startswith("/data/") else ""
        match text_at(item, "op"), value:
            case "add" | "replace", Mapping() if path == "/data":
                found |= value
            case "add" | "replace", _ if key and value is not None:
                found[key] = value
            case "remove", _ if key:
                removed.append(key)
            case _:
                pass
    return found, removed


def _keys(items: Value) -> set[str]:
    return {key for item in items if isinstance(item, Mapping) for key in item} if isinstance(items, list) else set()


def _texts(value: Value | None) -> dict[str, str]:
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {key: item.text for key, item in pairs if isinstance(item, Scalar)}


def _decoded(coded: Mapping[str, str]) -> dict[str, str]:
    """Of a Secret's base64; what is none is left out, as the API server refuses it."""
    found: dict[str, str] = {}
    for key, text in coded.items():
        with suppress(ValueError):
            found[key] = base64.b64decode("".join(text.split()), validate=True).decode()
    return found


def _where(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path if part is not None).lstrip(
        "."
    )


def _extract(path: Path, number: int | None) -> str:
    """By yq, of one document."""
    said = "" if number is None else f"select(di == {number}) | "
    at = ""
    for part in path:
        if part is None:
            said, at = f"{said}{at} | from_yaml | ", ""
        elif isinstance(part, int):
            at += f"[{part}]" if at else f".[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part):
            at += f".{part}"
        else:
            at += f'["{part}"]' if at else f'.["{part}"]'
    return f"yq '{said}{at or '.'}' FILE"
