"""Parsed files → every mapping in them that may be the ConfigMap's settings, and the other objects that its keys may name. Pure.

Looked through are lists, several documents, what `kubectl get` and `helm get values` print, values of Flux, Argo CD, k3s and
charts around this one, texts with such values in them, Kustomizations and patches. Refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lab.base.errors import UsageError
from lab.experiments.configmap.elsewhere import elsewhere
from lab.experiments.configmap.forms import HELM
from lab.experiments.configmap.named import Named, of_chart
from lab.experiments.configmap.parameters import nested, patched
from lab.experiments.configmap.placeholders import of_sops
from lab.experiments.configmap.yaml_text import Scalar, Value, documents, text_at
from lab.targets.local.configmap import KEYS

Path: TypeAlias = "tuple[str | int | None, ...]"
"""Keys and places in lists; None: the text there is YAML again."""
Seen: TypeAlias = "dict[int, Value]"
"""What was looked through, by its id; held, so that no other gets that id."""
FIELDS = {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"}
_VALUES = ("values", "valuesObject", "valuesContent", "valuesInline")
_SETS = ("set", "set_list", "set_sensitive", "parameters")
_OF_RELEASE = (*_VALUES, *_SETS)
"""Fields of one release, each over those before it."""
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
    beside: Named = field(default_factory=dict[tuple[str, str], Mapping[str, str]])
    """What these name."""

    @property
    def known(self) -> int:
        return sum(key in KEYS for key in self.content) + len(self.more)


def maps(doc: Value, number: int | None = None) -> list[Settings]:
    """Every mapping that is a ConfigMap's data or a chart's controller.config. `number`: of the document, where there are several."""
    return list(_maps(doc, (), number, {}))


def hidden(doc: Value, number: int | None = None) -> list[Settings]:
    """Where there are none: every mapping that has a key of the controller's."""
    return list(_hidden(doc, (), number, {}))


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
            given, removed = patched(value)
            if given:
                notes = tuple(f"{key}: the patch removes it: the controller's default stays" for key in removed)
                yield Settings(_where(path), _extract(path, number), given, helm=False, notes=notes)
                return
            if found := list(_of_parameters(value, path, number)):
                yield from found
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
    yield from _of_parameters(value, path, number) if path else ()
    yield from (own := list(_of_values(value, path, number)))
    listed = value.get("items")
    yield from _of_release(value, path, number, seen)
    for key, item in value.items():
        if (
            key in _OF_RELEASE or key == "metadata"
        ):  # which may hold all of it again: as last applied, as Helm was given it
            continue
        below = (*path, key)
        if own and key == "controller":
            continue
        if item is listed and kind == "ConfigMapList" and isinstance(item, list):
            for each in item:
                yield from _configmap(each, number, seen) if isinstance(each, Mapping) else ()
        else:
            yield from _maps(item, below, number, seen)


def _of_values(value: Mapping[str, Value], path: Path, number: int | None) -> Iterator[Settings]:
    """Of a chart's values: its `controller.config`, with what it makes of others."""
    controller = value.get("controller")
    config = controller.get("config") if isinstance(controller, Mapping) else None
    more, beside = of_chart(value)
    if not isinstance(config, Mapping) and not more:
        return
    content = config if isinstance(config, Mapping) else {}
    entries = content.get("entries")  # of F5's chart
    at = (*path, "controller", "config", *(("entries",) if isinstance(entries, Mapping) else ()))
    content = entries if isinstance(entries, Mapping) else content
    yield Settings(_where(at), _extract(at, number), content, helm=True, more=more, beside=beside)


def _of_parameters(value: Value, path: Path, number: int | None) -> Iterator[Settings]:
    """Of values that are set one by one, for each chart that they are of."""
    found = list(_maps(whole, path, number, {})) if (whole := nested(value)) else []
    for each in found:
        chart = each.where.removeprefix(_where(path)).lstrip(".").removesuffix("config").replace(".", "[.]")
        own = f'select(.name | test("^{chart}"))' if isinstance(value, list) else f'select(.key | test("^{chart}"))'
        alone = f"map({own})" if isinstance(value, list) else f'{{"set": with_entries({own})}}'
        yield replace(each, command=_extract(path, number, f" | {alone}" if len(found) > 1 else ""))


def _of_release(value: Mapping[str, Value], path: Path, number: int | None, seen: Seen) -> Iterator[Settings]:
    """Of the fields of a release: one for all that are of one chart, as Helm takes them together; what is elsewhere is told."""
    found = [each for key in _OF_RELEASE if key in value for each in _maps(value[key], (*path, key), number, seen)]
    both = {"values", "valuesObject"} <= value.keys()  # Argo CD takes one of them alone
    place = re.compile(
        rf"{re.escape(_where(path))}\.?(?:{'|'.join(_OF_RELEASE)})(?:\[\d+\])?((?:\..*)?\.controller\.config)"
    )
    charts: dict[str, list[Settings]] = {}
    for each in found:
        chart = place.fullmatch(each.where)
        charts.setdefault(each.where if both or not chart else chart[1], []).append(each)
    missing = tuple(
        f"{each}: what it holds is not in this file: {HELM} prints all" for each in elsewhere(value, _OF_RELEASE)
    )
    for chart, parts in charts.items():
        whole = parts[0] if len(parts) == 1 else _together(parts, _where(path) or "the file")
        if len(parts) > 1:
            whole = replace(whole, command=_extract(path, number) if len(charts) == 1 else f"{HELM} | yq '{chart}'")
        yield replace(whole, notes=(*whole.notes, *missing))


def _together(parts: list[Settings], where: str) -> Settings:
    """Each over those before it."""
    content: dict[str, Value] = {}
    notes: list[str] = []
    for each in parts:
        notes += each.notes
        notes += [f"{key}: {each.where} is taken over what stands before it" for key in content if key in each.content]
        content |= each.content
    more = {key: text for each in parts for key, text in each.more.items()}
    beside = {name: texts for each in parts for name, texts in each.beside.items()}
    return Settings(where, "", content, True, tuple(notes), more, beside)


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
    command = f"kubectl{f' -n {namespace}' if namespace else ''} get configmap {name} -o yaml"
    command = command if name or number is None else _extract((), number)
    where = f"ConfigMap {'/'.join(filter(None, (namespace, name))) or 'without a name'}"
    notes = [
        f"{field.strip()!r} stands beside data, where a ConfigMap has no such field (kubectl refuses it)"
        for field in obj
        if field not in FIELDS and not of_sops(field, obj[field])
    ]
    binary = obj.get("binaryData")
    if isinstance(binary, Mapping) and binary:
        notes.append(f"binaryData: {', '.join(binary)}: the controller reads data alone")
    found = Settings(where, command, data, helm=False, notes=tuple(notes))
    inner = (
        [] if found.known else [each for key, item in data.items() for each in _maps(item, ("data", key), number, seen)]
    )
    yield from inner or [found]


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
        files = [key for key in ("files", "envs", "env") if isinstance(item, Mapping) and item.get(key)]
        notes = [
            f"{key}: what these files hold is not in this one: kubectl kustomize FOLDER prints it" for key in files
        ]
        if text_at(item, "behavior") == "merge":
            notes.append(
                "behavior: merge: what it is merged into is not in this file: kubectl kustomize FOLDER prints all"
            )
        if content:
            where, command = f"configMapGenerator {text_at(item, 'name')}", "kubectl kustomize FOLDER"
            yield Settings(where, command, content, helm=False, notes=tuple(notes))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _where(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path if part is not None).lstrip(
        "."
    )


def _extract(path: Path, number: int | None, alone: str = "") -> str:
    """By yq, of one document, `alone` what is more to select there; aliases as what they stand for: their anchors may be outside."""
    said = f"{'' if number is None else f'select(di == {number}) | '}explode(.) | "
    at = ""
    for part in path:
        if part is None:
            said, at = f"{said}{at} | from_yaml | explode(.) | ", ""
        elif isinstance(part, int):
            at += f"[{part}]" if at else f".[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", part):
            at += f".{part}"
        else:
            at += f'["{part}"]' if at else f'.["{part}"]'
    return f"yq '{said}{at or '.'}{alone}' FILE"
