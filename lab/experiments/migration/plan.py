"""The plan of a migration from ingress-nginx to its successors, made from a user's ConfigMap and Ingresses.

The plan also has notes about other settings of ingress-nginx in the user's files: TCP and UDP services, and arguments
of its controller. Nothing is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from lab.analysis.migration import table
from lab.analysis.migration.mapping import Annotation, MigrationPlan, migrate, read_keys
from lab.base.errors import UsageError, refuse_if
from lab.base.handing import piped_command
from lab.experiments.configmap import reading
from lab.experiments.configmap.searching import find_settings
from lab.experiments.configmap.split import refuse_f5
from lab.experiments.configmap.yaml_text import Scalar, Value, decode_text, parse_documents, text_at
from lab.systems.manifests.routes import PREFIX

READER, INGRESS_READER = piped_command("migrate"), piped_command("migrate --configmap FILE", "--ingress")
_CLASSES = ("kubernetes.io/", "kubectl.kubernetes.io/")
"""The prefixes of annotations that are settings of no controller."""
_PORT = re.compile(r"\d+")
_BY_HAND = "a successor needs routes of their own for TCP and UDP (TCPRoute, UDPRoute or alike)"


def plan_migration(
    place: str, content: bytes | None, ingresses: Sequence[tuple[str, bytes]] = (), to: Sequence[str] = ()
) -> MigrationPlan:
    """Plan the migration of a user's files from ingress-nginx to some of its successors, or to all of them.

    Args:
        place: The name of the file with the ConfigMap.
        content: The content of that file; None: there is none, so ingress-nginx's defaults are migrated.
        ingresses: (name, content) of each file with Ingresses.
        to: The names of the successors; empty: all.

    Raises:
        UsageError: The ConfigMap's file is one that `bench --config` refuses, too; or a file for Ingresses has no Ingress; or no
            file has a setting.

    """
    tables = [table.load_table(system) for system in dict.fromkeys(to or table.list_successors())]
    given = reading.FileSettings({}) if content is None else reading.read_settings(place, content, READER)
    refuse_f5(place, given)
    names, notes_inside, notes_of_files = list[str](), list[str](), list[str]()
    annotations = [item for value in given.documents for item in _find_annotations(place, value, notes_inside, names)]
    for name, text in ingresses:
        annotations += _read_ingresses(name, text, notes_of_files, names)
    notes = [
        *given.notes,
        *(note for value in given.documents for note in _note_other_settings(place, value)),
        *notes_inside,
        *notes_of_files,
    ]
    if content is not None and not given.data and not annotations:
        raise UsageError(place, "nothing to migrate", "\n  ".join(notes) or "it holds no settings")
    keys, unknown = read_keys(given.data, given.named_objects)
    order = [name for name in given.data if name in keys]
    migrations = tuple(migrate(one_table, table.load_subjects(), keys, order, annotations) for one_table in tables)
    return MigrationPlan(place, given.data, unknown, tuple(names), tuple(notes), migrations)


def sort_files(
    files: Sequence[tuple[str, bytes]], named: Sequence[tuple[str, bytes]] = ()
) -> tuple[tuple[str, bytes] | None, list[tuple[str, bytes]]]:
    """Find the file with the ConfigMap among several files; all other files must have only Ingresses.

    Args:
        files: (name, content) of each file.
        named: (name, content) of the file that the user declared to be the ConfigMap; empty if there is none.

    Returns:
        (the file with the ConfigMap, or None without one; the other files).

    Raises:
        UsageError: More than one file has settings of the controller.

    """
    configmaps = [*named, *(file for file in files if not _holds_ingresses_alone(*file))]
    if len(configmaps) > 1:
        fault = f"{configmaps[0][0]} has settings of the controller, too"
        raise UsageError(configmaps[1][0], fault, "name one ConfigMap; every other file must have Ingresses")
    return (configmaps or [None])[0], [file for file in files if file not in configmaps]


def _holds_ingresses_alone(place: str, content: bytes) -> bool:
    with suppress(UsageError):  # a form that only the reader of ConfigMaps knows, or can refuse
        documents = parse_documents(place, decode_text(place, content, READER))
        kinds = {kind for value in documents for kind, _, _ in _find_objects(value)}
        return "Ingress" in kinds and not find_settings(documents)
    return False


def _read_ingresses(place: str, content: bytes, notes: list[str], names: list[str]) -> list[Annotation]:
    """Return the annotations of all Ingresses in a file.

    Args:
        place: The name of the file.
        content: The content of the file.
        notes: Receives a note for every other object.
        names: Receives the names of the Ingresses.

    Raises:
        UsageError: The file has no Ingress.

    """
    annotations, has_ingress = list[Annotation](), False
    for value in parse_documents(place, decode_text(place, content, INGRESS_READER)):
        for kind, name, _ in _find_objects(value):
            has_ingress = has_ingress or kind == "Ingress"
            if kind != "Ingress":
                notes.append(f"{place}: {kind} {name} is no Ingress, and is left out")
        notes += _note_other_settings(place, value)
        annotations += _find_annotations(place, value, notes, names)
    refuse_if(not has_ingress, place, "holds no Ingress", "kubectl get ingress -A -o yaml prints all")
    return annotations


def _find_annotations(place: str, value: Value, notes: list[str], names: list[str]) -> Iterator[Annotation]:
    """Yield the annotations for ingress-nginx of all Ingresses in a document.

    Args:
        place: The name of the file, for notes.
        value: The document.
        notes: Receives a note for any other annotation.
        names: Receives the names of the Ingresses.

    """
    for kind, name, meta in _find_objects(value):
        if kind != "Ingress":
            continue
        names.append(name)
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
    """Yield (kind, name, metadata) of every Kubernetes object in a document, also of those in lists.

    A name is preceded by its namespace: `shop/web`.

    Args:
        value: The document.
        list_kind: The kind that the surrounding list gives to all its items; empty where it gives none.

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
    """Yield a note for each setting of ingress-nginx outside of its ConfigMap and of Ingresses.

    Such settings are the ConfigMaps of TCP and UDP services, and arguments of the controller, in objects and in values of the Helm chart.
    """
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
        f"{place}: {', '.join(names)}: arguments of ingress-nginx's controller, which no table here has: look each up"
    )
