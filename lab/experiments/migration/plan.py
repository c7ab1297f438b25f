"""A ConfigMap's file, and files of Ingresses → the plan of a migration to each successor. Nothing is measured.

What else such files hold that is a setting of ingress-nginx's is told: its TCP and UDP services, arguments of its controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.migration import table
from lab.analysis.migration.mapping import Annotation, Migration, Unknown, keys_of, migration
from lab.base.errors import UsageError
from lab.base.handing import again
from lab.experiments.configmap import reading
from lab.experiments.configmap.split import refuse_f5
from lab.experiments.configmap.yaml_text import Scalar, Value, documents, text_at, text_of
from lab.systems.manifests.routes import PREFIX

INTO, INGRESS_INTO = again("migrate"), again("migrate --configmap FILE", "--ingress")
_CLASSES = ("kubernetes.io/", "kubectl.kubernetes.io/")
"""Annotations that are nobody's settings."""
_PORT = re.compile(r"\d+")
_BY_HAND = "TCP and UDP are routes of their own there (TCPRoute, UDPRoute or its like)"


@dataclass(frozen=True, slots=True)
class Plan:
    """`place`: whose ConfigMap. `given`: what it sets, key → text."""

    place: str
    given: Mapping[str, str]
    unknown: tuple[Unknown, ...]
    notes: tuple[str, ...]
    migrations: tuple[Migration, ...]


def plan(place: str, content: bytes, ingresses: Sequence[tuple[str, bytes]] = (), to: Sequence[str] = ()) -> Plan:
    """Of all successors, or those named. UsageError for what `bench --configmap` refuses while it reads, for files without an Ingress, and where nothing is set."""
    tables = [table.load(system) for system in dict.fromkeys(to or table.systems())]
    given = reading.read(place, content, INTO)
    refuse_f5(place, given)
    beside, besides = list[str](), list[str]()
    annotations = [each for value in given.documents for each in _annotations(place, value, beside)]
    for name, text in ingresses:
        annotations += _of_file(name, text, besides)
    notes = [*given.notes, *(note for value in given.documents for note in _elsewhere(place, value)), *beside, *besides]
    if not given.data and not annotations:
        raise UsageError(place, "nothing to migrate", "\n  ".join(notes) or "it holds no settings")
    keys, unknown = keys_of(given.data, given.beside)
    order = [name for name in given.data if name in keys]
    found = (migration(each, table.subjects(), keys, order, annotations) for each in tables)
    return Plan(place, given.data, unknown, tuple(notes), tuple(found))


def _of_file(place: str, content: bytes, notes: list[str]) -> list[Annotation]:
    """Of every Ingress in a file, in which there must be one; what is none is told in `notes`."""
    found, seen = list[Annotation](), False
    for value in documents(place, text_of(place, content, INGRESS_INTO)):
        for kind, name, _ in _objects(value):
            seen = seen or kind == "Ingress"
            if kind != "Ingress":
                notes.append(f"{place}: {kind} {name} is no Ingress, and is passed over")
        notes += _elsewhere(place, value)
        found += _annotations(place, value, notes)
    if not seen:
        raise UsageError(place, "holds no Ingress", "kubectl get ingress -A -o yaml prints all")
    return found


def _annotations(place: str, value: Value, notes: list[str]) -> Iterator[Annotation]:
    """Of every Ingress in a document; what is no annotation of ingress-nginx's, or none at all, is told in `notes`."""
    for kind, name, meta in _objects(value):
        if kind != "Ingress":
            continue
        given = meta.get("annotations")
        if given is not None and not isinstance(given, Mapping | Scalar):
            raise UsageError(
                place, f"Ingress {name}: annotations is a list", "write `name: value`, as kubectl takes it"
            )
        for annotation, item in given.items() if isinstance(given, Mapping) else ():
            own = annotation.removeprefix(PREFIX)
            if own == annotation:
                if not annotation.startswith(_CLASSES):
                    notes.append(f"{place}: Ingress {name}: {annotation} is none of ingress-nginx's annotations")
            elif isinstance(item, Scalar):
                yield Annotation(name, own, item.text)
            else:
                told = "is no text, as annotations are: give what is in the cluster (kubectl get ingress -A -o yaml)"
                notes.append(f"{place}: Ingress {name}: {annotation} {told}")


def _objects(value: Value, listed: str = "") -> Iterator[tuple[str, str, Mapping[str, Value]]]:
    """(kind, namespace/name, metadata) of every object in a document, of those in a list, too, which may say the kind for all."""
    if not isinstance(value, Mapping):
        return
    kind = text_at(value, "kind") or listed
    items = value.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _objects(item, kind.removesuffix("List"))
        return
    metadata = value.get("metadata")
    meta = metadata if isinstance(metadata, Mapping) else {}
    names = [text_at(meta, "namespace"), text_at(meta, "name")]
    yield kind or "an object without a kind", "/".join(filter(None, names)) or "without a name", meta


def _elsewhere(place: str, value: Value) -> Iterator[str]:
    """What is set outside of the ConfigMap and of Ingresses: by objects, and by values of ingress-nginx's chart, however deep."""
    if not isinstance(value, Mapping):
        for item in value if isinstance(value, list) else []:
            yield from _elsewhere(place, item)
        return
    kind, data, chart = text_at(value, "kind"), value.get("data"), value.get("controller")
    if kind == "ConfigMap" and isinstance(data, Mapping) and data and all(map(_PORT.fullmatch, data)):
        name = text_at(value.get("metadata"), "name")
        yield f"{place}: ConfigMap {name}: TCP or UDP services on {', '.join(data)}: {_BY_HAND}"
    if isinstance(chart, Mapping):
        for protocol in ("tcp", "udp"):
            if isinstance(ports := value.get(protocol), Mapping) and ports:
                yield f"{place}: {protocol}: services on {', '.join(ports)}: {_BY_HAND}"
        if isinstance(given := chart.get("extraArgs"), Mapping) and given:
            yield _arguments(f"{place}: controller.extraArgs", given)
    found = value.get("args")
    words = [item.text for item in found if isinstance(item, Scalar)] if isinstance(found, list) else []
    if words and words[0].endswith("nginx-ingress-controller"):
        yield _arguments(f"{place}: args of the controller", [word.lstrip("-") for word in words[1:]])
    for key, item in value.items():
        if key not in ("metadata", "data"):
            yield from _elsewhere(place, item)


def _arguments(where: str, given: Iterable[str]) -> str:
    return (
        f"{where}: {', '.join(given)}: arguments of ingress-nginx's controller, in no table here: look each up by hand"
    )
