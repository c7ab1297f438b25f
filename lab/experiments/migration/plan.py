"""The plan of a migration to each successor, from the file of a ConfigMap and files of Ingresses.

The plan also notes other settings of ingress-nginx in these files: TCP and UDP services, and arguments of its
controller. Nothing is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.migration import table
from lab.analysis.migration.mapping import Annotation, Migration, Unknown, migrate, read_keys
from lab.base.errors import UsageError
from lab.base.handing import piped_command
from lab.experiments.configmap import reading
from lab.experiments.configmap.split import refuse_f5
from lab.experiments.configmap.yaml_text import Scalar, Value, decode_text, parse_documents, text_at
from lab.systems.manifests.routes import PREFIX

READER, INGRESS_READER = piped_command("migrate"), piped_command("migrate --configmap FILE", "--ingress")
_CLASSES = ("kubernetes.io/", "kubectl.kubernetes.io/")
"""The prefixes of annotations that are settings of no controller."""
_PORT = re.compile(r"\d+")
_BY_HAND = "TCP and UDP are routes of their own there (TCPRoute, UDPRoute or its like)"


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The plan of a migration from ingress-nginx to its successors, made from a user's files.

    Attributes:
        place: The name of the file with the ConfigMap.
        given: The keys that the file sets, and their texts.
        unknown: The keys that ingress-nginx does not have.
        notes: Notes about everything else in the files.
        migrations: The migration to each successor.

    """

    place: str
    given: Mapping[str, str]
    unknown: tuple[Unknown, ...]
    notes: tuple[str, ...]
    migrations: tuple[Migration, ...]


def plan_migration(
    place: str, content: bytes, ingresses: Sequence[tuple[str, bytes]] = (), to: Sequence[str] = ()
) -> MigrationPlan:
    """Plan the migration to all successors, or to those named.

    Args:
        place: The name of the file with the ConfigMap.
        content: The file with the ConfigMap.
        ingresses: The names and contents of files with Ingresses.
        to: The successors; empty for all.

    Raises:
        UsageError: `bench --configmap` would refuse the file, a file of Ingresses has none, or nothing is set.

    """
    tables = [table.load_table(system) for system in dict.fromkeys(to or table.list_successors())]
    given = reading.read_settings(place, content, READER)
    refuse_f5(place, given)
    notes_inside, notes_of_files = list[str](), list[str]()
    annotations = [item for value in given.documents for item in _find_annotations(place, value, notes_inside)]
    for name, text in ingresses:
        annotations += _read_ingresses(name, text, notes_of_files)
    notes = [
        *given.notes,
        *(note for value in given.documents for note in _note_other_settings(place, value)),
        *notes_inside,
        *notes_of_files,
    ]
    if not given.data and not annotations:
        raise UsageError(place, "nothing to migrate", "\n  ".join(notes) or "it holds no settings")
    keys, unknown = read_keys(given.data, given.beside)
    order = [name for name in given.data if name in keys]
    migrations = (migrate(system_table, table.load_subjects(), keys, order, annotations) for system_table in tables)
    return MigrationPlan(place, given.data, unknown, tuple(notes), tuple(migrations))


def _read_ingresses(place: str, content: bytes, notes: list[str]) -> list[Annotation]:
    """Return the annotations of all Ingresses in a file; `notes` receives a note for every other object.

    Raises:
        UsageError: The file has no Ingress.

    """
    annotations, has_ingress = list[Annotation](), False
    for value in parse_documents(place, decode_text(place, content, INGRESS_READER)):
        for kind, name, _ in _find_objects(value):
            has_ingress = has_ingress or kind == "Ingress"
            if kind != "Ingress":
                notes.append(f"{place}: {kind} {name} is no Ingress, and is passed over")
        notes += _note_other_settings(place, value)
        annotations += _find_annotations(place, value, notes)
    if not has_ingress:
        raise UsageError(place, "holds no Ingress", "kubectl get ingress -A -o yaml prints all")
    return annotations


def _find_annotations(place: str, value: Value, notes: list[str]) -> Iterator[Annotation]:
    """Yield the ingress-nginx annotations of all Ingresses in a document; add a note for any other annotation."""
    for kind, name, meta in _find_objects(value):
        if kind != "Ingress":
            continue
        given = meta.get("annotations")
        if given is not None and not isinstance(given, Mapping | Scalar):
            raise UsageError(
                place, f"Ingress {name}: annotations is a list", "write `name: value`, as kubectl takes it"
            )
        for annotation, item in given.items() if isinstance(given, Mapping) else ():
            short_name = annotation.removeprefix(PREFIX)
            if short_name == annotation:
                if not annotation.startswith(_CLASSES):
                    notes.append(f"{place}: Ingress {name}: {annotation} is none of ingress-nginx's annotations")
            elif isinstance(item, Scalar):
                yield Annotation(name, short_name, item.text)
            else:
                fault = "is no text, as annotations are: give what is in the cluster (kubectl get ingress -A -o yaml)"
                notes.append(f"{place}: Ingress {name}: {annotation} {fault}")


def _find_objects(value: Value, list_kind: str = "") -> Iterator[tuple[str, str, Mapping[str, Value]]]:
    """Yield the kind, the name with its namespace, and the metadata of every object in a document, lists included.

    `list_kind` is the kind that the list gives to all its items; empty where it gives none.
    """
    if not isinstance(value, Mapping):
        return
    kind = text_at(value, "kind") or list_kind
    items = value.get("items")
    if isinstance(items, list):
        for item in items:
            yield from _find_objects(item, kind.removesuffix("List"))
        return
    metadata = value.get("metadata")
    meta = metadata if isinstance(metadata, Mapping) else {}
    names = [text_at(meta, "namespace"), text_at(meta, "name")]
    yield kind or "an object without a kind", "/".join(filter(None, names)) or "without a name", meta


def _note_other_settings(place: str, value: Value) -> Iterator[str]:
    """Yield a note for settings outside of the ConfigMap and of Ingresses: in objects, and in values of the chart."""
    if not isinstance(value, Mapping):
        for item in value if isinstance(value, list) else []:
            yield from _note_other_settings(place, item)
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
            yield _note_arguments(f"{place}: controller.extraArgs", given)
    args = value.get("args")
    texts = [item.text for item in args if isinstance(item, Scalar)] if isinstance(args, list) else []
    if texts and texts[0].endswith("nginx-ingress-controller"):
        yield _note_arguments(f"{place}: args of the controller", [text.lstrip("-") for text in texts[1:]])
    for key, item in value.items():
        if key not in ("metadata", "data"):
            yield from _note_other_settings(place, item)


def _note_arguments(place: str, names: Iterable[str]) -> str:
    return (
        f"{place}: {', '.join(names)}: arguments of ingress-nginx's controller, in no table here: look each up by hand"
    )
