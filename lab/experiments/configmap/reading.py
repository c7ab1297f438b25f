"""A file of what people have → the ConfigMap's keys and values in it.

    kind: ConfigMap          or Helm values, of this chart     or the keys alone:
    data:                    or of one around it:                keep-alive: "300"
      keep-alive: "300"        ingress-nginx:                    use-gzip: true
                                 controller:
                                   config:
                                     keep-alive: "300"

Several documents, lists, what `kubectl get -o json` and `helm get values` print, HelmReleases, Applications and Kustomizations are
looked through for it. Refuses a file that holds none, or several, with the command that extracts one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lab.base.errors import UsageError
from lab.experiments.configmap.yaml_text import Scalar, Value, documents, text_of
from lab.targets.local.configmap import KEYS

FORM = "a ConfigMap, Helm values with controller.config, or keys and values"
HOW = "kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml | scripts/shell just bench --configmap -"
_OBJECT = {"kind", "apiVersion", "controller"}
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PRINTED = re.compile(r"^(Name: +\S+$|NAME +DATA +AGE)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Given:
    """What a file sets; `notes`: what it says that no ConfigMap can hold."""

    data: Mapping[str, str]
    notes: tuple[str, ...] = ()
    beside: Mapping[tuple[str, str], Mapping[str, str]] = field(
        default_factory=dict[tuple[str, str], Mapping[str, str]]
    )
    """Of the file's other ConfigMaps and Secrets, which its keys may name: (kind, name) → what is in it."""


@dataclass(frozen=True, slots=True)
class _Map:
    """A mapping that may be it: where it stands, and the command that prints it alone."""

    where: str
    command: str
    content: Mapping[str, Value]
    helm: bool
    known: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", sum(key in KEYS for key in self.content))


def read(place: str, content: bytes) -> Given:
    """The keys and values of a file in any of these forms, as the controller gets them. UsageError otherwise, for all faults at once."""
    text = text_of(place, content)
    if printed := _PRINTED.search(text):
        raise UsageError(place, f"is what kubectl prints for people ({printed[0].split()[0]} …)", f"use: {HOW}")
    docs = documents(place, text)
    found = [each for doc in docs for each in _maps(doc, "")] or [
        _Map("the file", "", doc, helm=True) for doc in docs if isinstance(doc, Mapping) and not _OBJECT & doc.keys()
    ]
    likely = [each for each in found if each.known] or [each for each in found if each.content]
    if not likely:
        kinds = {kind for doc in docs if (kind := _text(doc, "kind")) not in ("", "ConfigMap", "List")}
        fault = "holds no settings" + (
            f": kind: expected ConfigMap, got {', '.join(map(repr, sorted(kinds)))}" if kinds else ""
        )
        raise UsageError(place, fault, f"expected {FORM}; the controller's: {HOW}")
    if len(likely) > 1:
        commands = "\n  ".join(each.command for each in likely)
        fault = f"holds {len(likely)} maps of settings: {'; '.join(each.where for each in likely)}"
        raise UsageError(place, fault, f"give one of them:\n  {commands}")
    beside = {named: data for doc in docs for named, data in _named(doc)}
    return replace(_given(likely[0]), beside=beside)


def _given(found: _Map) -> Given:
    data: dict[str, str] = {}
    notes: list[str] = []
    for key, value in found.content.items():
        if not _KEY.fullmatch(key):
            notes.append(f"{key!r} is no key of a ConfigMap: the API server refuses it")
        match value:
            case Scalar(helm=None):
                notes.append(f"{key}: has no value, and is left out")
            case Scalar(text=text, helm=helm, bare=bare):
                data[key] = str(helm) if found.helm else text
                if bare and not found.helm:
                    notes.append(f'{key}: kubectl refuses it without quotes: write "{text}"')
                elif data[key].lower() != text.lower():
                    notes.append(f"{key}: YAML makes {data[key]} of {text}")
            case Mapping():
                notes.append(f"{key}: a mapping is no value of a ConfigMap: write it as text, after `{key}: |`")
            case _:
                words = ",".join(item.text for item in value if isinstance(item, Scalar))
                notes.append(f'{key}: a list is no value of a ConfigMap (the API server refuses it): write "{words}"')
    return Given({key: value for key, value in data.items() if key}, tuple(notes))


def _maps(value: Value, path: str) -> Iterator[_Map]:
    """Every mapping below that is a ConfigMap's data or a chart's controller.config."""
    match value:
        case Scalar(text=text) if "controller:" in text:  # values written as a text: Flux, Argo CD, k3s
            try:
                inner = documents(path, text)
            except UsageError:
                return
            for each in inner:
                yield from _maps(each, path)
        case Scalar():
            return
        case Mapping():
            kind = _text(value, "kind")
            bare = not path and not kind and isinstance(value.get("data"), Mapping)  # its first lines left out
            if kind == "ConfigMap" or bare:
                yield from _configmap(value)
                return
            yield from _literals(value) if kind == "Kustomization" else ()
            for key, item in value.items():
                below = f"{path}.{key}"
                config = item.get("config") if key == "controller" and isinstance(item, Mapping) else None
                if isinstance(config, Mapping):
                    yield _Map(f"{below.lstrip('.')}.config", _extract(f"{below}.config"), config, helm=True)
                else:
                    yield from _maps(item, below)
        case _:
            for number, item in enumerate(value):
                yield from _maps(item, f"{path}[{number}]")


def _named(value: Value) -> Iterator[tuple[tuple[str, str], Mapping[str, str]]]:
    """Every ConfigMap and Secret below, as texts."""
    if isinstance(value, Mapping):
        kind = _text(value, "kind")
        items = value.get("items")
        if kind not in ("ConfigMap", "Secret"):
            for item in items if isinstance(items, list) else []:
                yield from _named(item)
            return
        plain, coded = (_texts(value.get(name)) for name in ("stringData", "data"))
        yield (
            (kind, _text(value.get("metadata"), "name")),
            {**(_decoded(coded) if kind == "Secret" else coded), **plain},
        )


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


def _configmap(obj: Mapping[str, Value]) -> Iterator[_Map]:
    meta = obj.get("metadata")
    name, namespace = _text(meta, "name"), _text(meta, "namespace")
    data = obj.get("data")
    if not isinstance(data, Mapping):
        return
    command = f"kubectl{f' -n {namespace}' if namespace else ''} get configmap {name or 'NAME'} -o yaml | scripts/shell just bench --configmap -"
    found = _Map(
        f"ConfigMap {'/'.join(filter(None, (namespace, name))) or 'without a name'}", command, data, helm=False
    )
    inner = [] if found.known else [each for item in data.values() for each in _maps(item, ".data")]
    yield from inner or [found]


def _literals(obj: Mapping[str, Value]) -> Iterator[_Map]:
    """Of a Kustomization: `literals: [keep-alive=300]` of each map that it makes."""
    generators = obj.get("configMapGenerator")
    for item in generators if isinstance(generators, list) else []:
        literals = item.get("literals") if isinstance(item, Mapping) else None
        listed = literals if isinstance(literals, list) else []
        pairs = [each.text.partition("=") for each in listed if isinstance(each, Scalar)]
        content: dict[str, Value] = {key: Scalar(value.strip("'\""), value.strip("'\"")) for key, _, value in pairs}
        if content:
            yield _Map(f"configMapGenerator {_text(item, 'name')}", "kustomize build . | …", content, helm=False)


def _text(value: Value | None, key: str) -> str:
    found = value.get(key) if isinstance(value, Mapping) else None
    return found.text if isinstance(found, Scalar) else ""


def _extract(path: str) -> str:
    quoted = "".join(f'["{part}"]' if "-" in part else f".{part}" for part in path.strip(".").split("."))
    return f"yq '{quoted if quoted.startswith('.') else f'.{quoted}'}' FILE | scripts/shell just bench --configmap -"
