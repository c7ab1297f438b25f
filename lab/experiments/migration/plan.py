"""A ConfigMap's file, and files of Ingresses → the plan of a migration to each successor. Nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.migration import table
from lab.analysis.migration.mapping import Annotation, Migration, Unknown, keys_of, migration
from lab.base.errors import UsageError
from lab.base.handing import again
from lab.experiments.configmap import reading
from lab.experiments.configmap.split import refuse_f5
from lab.experiments.configmap.yaml_text import Scalar, Value, documents, text_of
from lab.targets.local.routes import PREFIX

INTO, INGRESS_INTO = again("migrate"), again("migrate --configmap FILE", "--ingress")
_CLASSES = ("kubernetes.io/", "kubectl.kubernetes.io/")
"""Annotations that are nobody's settings."""


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
    notes = list(given.notes)
    annotations = [each for name, text in ingresses for each in _annotations(name, text, notes)]
    if not given.data and not annotations:
        raise UsageError(place, "nothing to migrate", "\n  ".join(notes) or "it holds no settings")
    keys, unknown = keys_of(given.data)
    order = [name for name in given.data if name in keys]
    found = (migration(each, table.subjects(), keys, order, annotations) for each in tables)
    return Plan(place, given.data, unknown, tuple(notes), tuple(found))


def _annotations(place: str, content: bytes, notes: list[str]) -> Iterator[Annotation]:
    """Of every Ingress in a file; what is no Ingress, and no annotation of ingress-nginx's, is told in `notes`."""
    seen = False
    for value in documents(place, text_of(place, content, INGRESS_INTO)):
        for kind, name, found in _objects(value):
            if kind != "Ingress":
                notes.append(f"{place}: {kind} {name} is no Ingress, and is passed over")
                continue
            seen = True
            for annotation, item in found.items():
                own = annotation.removeprefix(PREFIX)
                if own != annotation:
                    yield Annotation(name, own, item.text if isinstance(item, Scalar) else str(item))
                elif not annotation.startswith(_CLASSES):
                    notes.append(f"{place}: Ingress {name}: {annotation} is none of ingress-nginx's annotations")
    if not seen:
        raise UsageError(place, "holds no Ingress", "kubectl get ingress -A -o yaml prints all")


def _objects(value: Value) -> Iterator[tuple[str, str, Mapping[str, Value]]]:
    """(kind, namespace/name, annotations) of every object in a document, of those in a list, too."""
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _objects(item)
        return
    kind, metadata = value.get("kind"), value.get("metadata")
    meta = metadata if isinstance(metadata, Mapping) else {}
    names = [found.text for key in ("namespace", "name") if isinstance(found := meta.get(key), Scalar)]
    annotations = meta.get("annotations")
    yield (
        kind.text if isinstance(kind, Scalar) else "an object without a kind",
        "/".join(names) or "without a name",
        annotations if isinstance(annotations, Mapping) else {},
    )
