"""Annotated: a `kustomization.yaml` of ours → its content, and its `metadata.annotations` as a model's fields.

    lab/primary-metric: p99        →   {"primary_metric": "p99"}

A field is an annotation unless its JSON Schema says `"annotation": False`. Refuses keys it does not know, with
the nearest known one, and values that are no text. Knows nothing of knobs and variants but that they are models.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.config import JsonDict

from lab.base.errors import UsageError, refuse_unknown
from lab.base.validation import faults
from lab.model.variants import kustomize

NOT_AN_ANNOTATION: JsonDict = {"annotation": False}
"""`json_schema_extra` of a field that comes from elsewhere: the folder's name, the lists of the kustomization."""
COMPONENTS = "components"
"""The folder of knobs, beside that of overlays."""
FORM = "see a folder beside it for the form"
LISTS = {
    "readback": ("checks", "- {kind: sysctl, name: net.core.somaxconn, value: 128}"),
    "parameters": ("texts", "- digitalocean/net.core.somaxconn"),
    "openshift": ("patches", "- {apiVersion: operator.openshift.io/v1, kind: IngressController, metadata: …, spec: …}"),
}
"""Annotation that holds a list, as YAML text → of what, and an element of it."""

Model = TypeVar("Model", bound=BaseModel)


def folders(parent: Path) -> list[str]:
    """Names of the folders in `parent`, hidden ones aside."""
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:  # which knows what is a folder: one call instead of one an entry
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def place(folder: Path) -> str:
    """What messages call a folder's file: `manifests/components/somaxconn-128/kustomization.yaml`."""
    return str(Path("manifests", folder.parent.name, folder.name, "kustomization.yaml"))


def read(folder: Path, model: type[BaseModel], keys: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of a folder's kustomization.yaml, which may have lists under these keys, and its annotations by the model's field names.

    UsageError for another kind of file, for a key that is not known, and for an annotation that is missing or no text.
    """
    where = place(folder)
    kind = "Component" if folder.parent.name == COMPONENTS else "Kustomization"
    content = kustomize.read_yaml(folder / "kustomization.yaml", where)
    if not isinstance(content, dict):
        raise UsageError(where, "is no mapping", FORM)
    if content.get("kind") != kind:
        fault = f"kind: expected {kind}, got {content.get('kind')!r}"
        raise UsageError(where, fault, "a knob is a Component, a variant a Kustomization")
    for name, value in content.items():
        refuse_unknown(name, {"apiVersion", "kind", "metadata", *keys}, where, f"unknown key '{name}'")
        if name in keys and not isinstance(value, list):
            raise UsageError(where, f"{name}: expected a list, got {value!r}", FORM)
    metadata = content.get("metadata")
    given = (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}
    known = {key(field): field for field in _fields(model)}
    if not isinstance(given, dict):
        raise UsageError(where, "metadata.annotations: is no mapping", f"known keys: {', '.join(known)}")
    for name, value in given.items():
        refuse_unknown(name, known, where, f"metadata.annotations: unknown key '{name}'")
        if not isinstance(value, str):
            raise UsageError(where, f"metadata.annotations: {name}: expected text, got {value!r}", "put it in quotes")
    for name, field in known.items():
        if name not in given and model.model_fields[field].is_required():
            said = f"it says {model.model_fields[field].description}"
            raise UsageError(where, f"metadata.annotations: {name} is missing", said)
    values: dict[str, Any] = {known[name]: value for name, value in given.items()}
    return content, values | {field: _list_in(field, values[field], where) for field in LISTS if field in values}


def _list_in(field: str, text: str, where: str) -> list[Any]:
    what, element = LISTS[field]
    form = f"write a list, as in {element}"
    try:
        found = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(where, f"{key(field)}: not YAML: {' '.join(str(error).split())}", form) from None
    if not isinstance(found, list) or not found:
        raise UsageError(where, f"{key(field)}: expected a list of {what}, got {found!r}", form)
    return found


def validated(model: type[Model], values: dict[str, Any], where: str, *inner: type[BaseModel]) -> Model:
    """The model of these values. UsageError in the annotations' own names; `inner` are the models of nested keys."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        told = [key(fault.partition(":")[0]) + ":" + fault.partition(":")[2] for fault in faults(error, *inner)]
        raise UsageError(where, "; ".join(told), "lab/schema/annotations.json lists every key") from None


def schema(model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema of the annotations that this model is read from: all of them text."""
    shown = {"description", "pattern", "enum", "minLength"}
    fields = model.model_json_schema()["properties"]
    properties: dict[str, dict[str, Any]] = {}
    for field in _fields(model):
        # An optional field is `anyOf` its type and null; an annotation that is not there is not there.
        merged = {
            name: value for part in [*fields[field].get("anyOf", []), fields[field]] for name, value in part.items()
        }
        properties[key(field)] = {"type": "string"} | {name: value for name, value in merged.items() if name in shown}
        if merged.get("type") == "boolean":
            properties[key(field)]["enum"] = ["true", "false"]
    return {
        "type": "object",
        "description": (model.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": [key(field) for field in _fields(model) if model.model_fields[field].is_required()],
        "additionalProperties": False,
    }


def key(field: str) -> str:
    """`primary_metric` → `lab/primary-metric`; of a path such as `readback.0.value` the first part only changes."""
    return f"lab/{field.replace('_', '-')}"


def _fields(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.json_schema_extra != NOT_AN_ANNOTATION]
