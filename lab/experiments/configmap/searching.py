"""The search for settings of ingress-nginx in a parsed YAML file, and for the other objects that these settings may name.

It also finds settings in lists, in several documents, in objects of Flux, Argo CD, k3s and operators, in Helm charts
that contain the chart of ingress-nginx, and in texts that are YAML themselves. A list of mappings with one key each
counts as one mapping. Nothing is read or written, and no file is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from lab.base.errors import UsageError
from lab.experiments.configmap.yaml_text import Scalar, Value, parse_documents, text_at
from lab.systems.ingress_nginx.configmap import KEYS

Path: TypeAlias = "tuple[str | int | None, ...]"
"""The keys and list indices that lead to a value; None stands for parsing the text there as YAML."""
Named: TypeAlias = "Mapping[tuple[str, str], Mapping[str, str]]"
"""The content of objects by kind and name."""
HELM = "helm -n ingress-nginx get values ingress-nginx -o yaml"
FIELDS = {"apiVersion", "kind", "metadata", "data", "immutable", "sops"}
_ELSEWHERE = re.compile(r"(?:additional)?values?(?:From|Files?|Secrets?)|fileParameters|secrets", re.IGNORECASE)
"""The fields by which a release refers to values elsewhere (of Flux, Argo CD, k3s, Fleet and Kustomize)."""
_FIELDS = ("values", "valuesObject", "valuesContent", "valuesInline", "set", "set_list", "set_sensitive", "parameters")
"""The fields with the values of one release; a later field overrides the earlier ones."""
_PART = re.compile(
    rf"(?P<release>.*\.)?(?P<field>{'|'.join(_FIELDS)})(?:\[\d+\])?(?P<chart>(?:\.[^.\[\]]+)*\.controller\.config)"
)
_CHART = ("addHeaders", "proxySetHeaders", "dhParam")
"""The values of ingress-nginx's chart from which it makes keys and objects in addition to `config`."""
_TEXTS = re.compile(r"""controller["']?:|kind["']?: *["']?ConfigMap""")
"""The pattern of a text that is worth parsing as YAML."""
_PARAMETER = re.compile(r"(?P<chart>(?:.*\.)?controller)\.config\.(?P<key>.+)")


@dataclass(frozen=True, slots=True)
class SettingsMap:
    """A mapping in a user's file that may be the settings of ingress-nginx's controller.

    Attributes:
        where: The place of the mapping in the file, for example `controller.config`.
        command: The shell command that prints the mapping alone.
        content: The mapping.
        helm: True: the values reach the ConfigMap as Helm prints them. False: they reach it as they are written.
        notes: Notes for the user.

    """

    where: str
    command: str
    content: Mapping[str, Value]
    helm: bool
    notes: tuple[str, ...] = ()


def find_settings(docs: Sequence[Value]) -> list[SettingsMap]:
    """Return the mappings in a user's file that may be the settings of ingress-nginx's controller.

    The result is the first of these groups that is not empty: mappings in known places with keys of the controller; mappings
    anywhere with such keys; other mappings in known places; documents that are mappings of unknown meaning.
    """
    numbered = [(doc, number if len(docs) > 1 else None) for number, doc in enumerate(docs)]
    candidates = [settings for doc, number in numbered for settings in _search(doc, (), number, {})]
    if with_keys := [settings for settings in candidates if settings.content.keys() & KEYS.keys()]:
        return _join_parts(with_keys)
    if anywhere := [settings for doc, number in numbered for settings in _search_anywhere(doc, (), number, {})]:
        return anywhere
    return [settings for settings in candidates if settings.content] or [
        SettingsMap("the file", "", doc, helm=True)
        for doc in docs
        if isinstance(doc, Mapping) and not {"kind", "apiVersion", "controller", "data"} & doc.keys()
        if any(isinstance(value, Scalar) for value in doc.values())
    ]


def _join_parts(candidates: list[SettingsMap]) -> list[SettingsMap]:
    """Merge mappings that come from several fields of one Helm release, so that later fields override earlier ones, as in Helm.

    Any other mappings are returned unchanged.
    """
    parts = [(match, settings) for settings in candidates if (match := _PART.fullmatch(settings.where))]
    releases = {(match["release"] or "", match["chart"]) for match, _ in parts}
    if len(candidates) < 2 or len(parts) < len(candidates) or len(releases) > 1:
        return candidates
    content: dict[str, Value] = {}
    notes: list[str] = []
    for _, settings in sorted(parts, key=lambda part: _FIELDS.index(part[0]["field"])):
        over = [key for key in settings.content if key in content]
        notes += [*settings.notes, *(f"{key}: {settings.where} is taken over what stands before it" for key in over)]
        content |= settings.content
    return [
        SettingsMap(next(iter(releases))[0].rstrip(".") or "the file", HELM, content, True, tuple(dict.fromkeys(notes)))
    ]


def find_named(value: Value) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
    """Yield ((kind, name), key → text) for every ConfigMap and Secret in a document.

    In a Secret's `data`, a value that is not base64 is left out, because the API server refuses it.
    """
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
    """Return a parsed YAML value as a mapping; None if it is not one.

    A non-empty list counts as a mapping if each item is a mapping with one key, and all these keys differ: `[{a: 1}, {b: 2}]`.
    """
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list) or not value:
        return None
    merged: dict[str, Value] = {}
    for item in value:
        if not isinstance(item, Mapping) or len(item) != 1 or item.keys() & merged.keys():
            return None
        merged |= item
    return merged


def _search(
    value: Value, path: Path, number: int | None, visited: dict[int, Value], missing: Sequence[str] = ()
) -> Iterator[SettingsMap]:
    """Yield every mapping within a value that is the data of a ConfigMap, or `controller.config` of a Helm chart.

    Args:
        value: The value to search in.
        path: The path from the document to the value.
        number: The number of the document in the file, from 0; None where there is only one.
        visited: id of a value → value, for those already searched. A value with a YAML anchor may occur in a thousand places.
        missing: The names of fields around the value that refer to further values, outside the file.

    """
    if id(value) in visited:
        return
    visited[id(value)] = value
    if isinstance(value, Scalar):
        with suppress(UsageError):
            for doc in parse_documents("", value.text) if _TEXTS.search(value.text) else ():
                if not isinstance(doc, Scalar):  # a scalar could be the text itself
                    yield from _search(doc, (*path, None), number, visited, missing)
        return
    yield from _search_parameters(value, path, missing)
    if not isinstance(value, Mapping):
        for index, item in enumerate(value):
            yield from _search(item, (*path, index), number, visited, missing)
        return
    kind, data, controller = text_at(value, "kind"), _map_of(value.get("data")), value.get("controller")
    if kind == "ConfigMap" or (data is not None and not kind and (not path or "metadata" in value)):
        yield from _search_configmap(value, data or {}, path, number, visited)
        return
    missing = [
        *missing,
        *(key for key, item in value.items() if _ELSEWHERE.fullmatch(key) and isinstance(item, list) and item),
    ]
    config = _map_of(controller.get("config")) if isinstance(controller, Mapping) else None
    if config is not None and isinstance(controller, Mapping):
        config_path = (*path, "controller", "config")
        fields = [name for name in _CHART if controller.get(name) or value.get(name)]
        entries = config.get("entries")  # the chart of F5's controller has its keys one level deeper
        content = entries if isinstance(entries, Mapping) else config
        yield SettingsMap(
            _format_path(config_path), _extract(config_path, number), content, True, _note_fields([*missing, *fields])
        )
    for key, item in value.items():
        # Metadata may contain all of it again: as last applied, or as given to Helm.
        if key != "metadata" and not (key == "controller" and config is not None):
            yield from _search(item, (*path, key), number, visited, missing)


def _note_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """Return a note for each of some fields: the field may contain settings that the lab does not read.

    Args:
        fields: The names of fields of a Helm values file or a manifest that can contain more settings.

    """
    return tuple(
        f"{field}: settings outside this map are not read: {HELM} prints all that are given" for field in fields
    )


def _search_configmap(
    obj: Mapping[str, Value], data: Mapping[str, Value], path: Path, number: int | None, visited: dict[int, Value]
) -> Iterator[SettingsMap]:
    meta = obj.get("metadata")
    name, namespace = text_at(meta, "name"), text_at(meta, "namespace")
    inner = (
        []
        if data.keys() & KEYS.keys()
        else [
            settings for key, item in data.items() for settings in _search(item, (*path, "data", key), number, visited)
        ]
    )
    strays = [field for field in obj if field not in FIELDS and (field != "binaryData" or obj[field])]
    notes = [f"{field.strip()!r} is at the level of data: the controller does not read it" for field in strays]
    where = f"ConfigMap {'/'.join(filter(None, (namespace, name))) or 'without a name'}"
    command = f"kubectl{f' -n {namespace}' if namespace else ''} get configmap {name} -o yaml"
    command = command if name else _extract(path, number)
    yield from inner or [SettingsMap(where, command, data, False, tuple(notes))]


def _search_parameters(
    value: Mapping[str, Value] | Sequence[Value], path: Path, missing: Sequence[str]
) -> Iterator[SettingsMap]:
    """Yield a mapping of settings for each Helm chart whose settings are given one by one, as parameters.

    Such a parameter is `{name: controller.config.KEY, value: 1}` or `controller.config.KEY: 1`.

    Args:
        value: The value that may contain such parameters.
        path: The path from the document to the value.
        missing: The names of fields around the value that refer to further values, outside the file.

    """
    pairs = (
        value.items()
        if isinstance(value, Mapping)
        else [(text_at(item, "name"), item["value"]) for item in value if isinstance(item, Mapping) and "value" in item]
    )
    charts: dict[str, dict[str, Value]] = {}
    for name, item in pairs:
        if match := _PARAMETER.fullmatch(name):
            charts.setdefault(match["chart"], {})[match["key"].replace("\\", "")] = item
    for chart, content in charts.items():
        yield SettingsMap(
            _format_path((*path, *chart.split("."), "config")), HELM, content, True, _note_fields(missing)
        )


def _search_anywhere(value: Value, path: Path, number: int | None, visited: dict[int, Value]) -> Iterator[SettingsMap]:
    """Yield every mapping within a value that has a key of the controller, whatever the field with the mapping is called.

    Args:
        value: The value to search in.
        path: The path from the document to the value.
        number: The number of the document in the file, from 0; None where there is only one.
        visited: id of a value → value, for those already searched.

    """
    if id(value) in visited or isinstance(value, Scalar) or text_at(value, "kind") in ("ConfigMap", "Secret"):
        return
    visited[id(value)] = value
    content = _map_of(value)
    if content and any(key in KEYS and isinstance(item, Scalar) for key, item in content.items()):
        where = _format_path(path)
        notes = (f"read from {where}: what makes a ConfigMap of it is not known",) if where else ()
        yield SettingsMap(where or "the file", _extract(path, number), content, True, notes)
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        yield from _search_anywhere(item, (*path, key), number, visited)


def _format_path(path: Path) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path if part is not None)
    return "".join(parts).lstrip(".")


def _extract(path: Path, number: int | None) -> str:
    """Return the shell command with yq that prints one part of a file's document.

    YAML aliases in it are replaced by their values, since their anchors may lie outside the part.

    Args:
        path: The path from the document to the part.
        number: The number of the document in the file, from 0; None where there is only one.

    """
    expression = f"{'' if number is None else f'select(di == {number}) | '}explode(.) | ."
    for part in path:
        if part is None:
            expression += " | from_yaml | explode(.) | ."
        elif isinstance(part, int):
            expression += f"[{part}]"
        else:
            expression += f'["{part}"]'
    return f"yq '{expression}' FILE"
