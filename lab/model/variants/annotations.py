"""The reader of the lab's `kustomization.yaml` files: their content, and their annotations as fields of a model.

    lab/primary-metric: p99        →   {"primary_metric": "p99"}

A field is an annotation unless its JSON Schema has `"annotation": False`. Unknown keys are refused with the nearest valid one, and so are
values that are no text. The module knows nothing of knobs and variants except that they are models.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.config import JsonDict

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.base.validation import Model, format_faults
from lab.model.variants import kustomize

NOT_AN_ANNOTATION: JsonDict = {"annotation": False}
"""The `json_schema_extra` of a field with another source: the folder's name, the lists of the kustomization."""
COMPONENTS = "components"
"""The folder of knobs, next to that of overlays."""
FORM = "see a neighbouring folder for the form"
LISTS = {
    "readback": ("checks", "- {kind: sysctl, name: net.core.somaxconn, value: 128}"),
    "parameters": ("texts", "- digitalocean/net.core.somaxconn"),
    "openshift": ("patches", "- {apiVersion: operator.openshift.io/v1, kind: IngressController, metadata: …, spec: …}"),
}
"""The annotations that contain a list as YAML text: the plural name of the elements, and an example element."""


def list_folders(parent: Path) -> list[str]:
    """Return the sorted names of the folders in `parent`, without hidden ones; empty if `parent` is no folder."""
    if not parent.is_dir():
        return []
    with os.scandir(parent) as entries:  # it knows which entries are folders: a single call instead of one per entry
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def describe_file(folder: Path) -> str:
    """Return the path of a folder's kustomization.yaml for messages: `manifests/components/somaxconn-128/kustomization.yaml`."""
    return str(Path("manifests", folder.parent.name, folder.name, "kustomization.yaml"))


def read(folder: Path, model: type[BaseModel], keys: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the kustomization.yaml of a folder, and check its keys and annotations.

    Args:
        folder: The folder.
        model: The pydantic model with a field for each annotation that the file may have.
        keys: The keys that the file may have besides apiVersion, kind and metadata. The value of each must be a list.

    Returns:
        The content of the file, and the values of its annotations by the names of the model's fields.

    Raises:
        UsageError: The file is of another kind, has an unknown key, or an annotation is missing or not text.

    """
    location = describe_file(folder)
    kind = "Component" if folder.parent.name == COMPONENTS else "Kustomization"
    content = kustomize.read_yaml(folder / "kustomization.yaml", location)
    if not isinstance(content, dict):
        raise UsageError(location, "is no mapping", FORM)
    fault = f"kind: expected {kind}, got {content.get('kind')!r}"
    refuse_if(content.get("kind") != kind, location, fault, "a knob is a Component, a variant a Kustomization")
    for name, value in content.items():
        refuse_unknown(name, {"apiVersion", "kind", "metadata", *keys}, location, f"unknown key '{name}'")
        wrong = name in keys and not isinstance(value, list)
        refuse_if(wrong, location, f"{name}: expected a list, got {value!r}", FORM)
    metadata = content.get("metadata")
    annotations = (metadata.get("annotations") if isinstance(metadata, dict) else None) or {}
    fields = {annotation_key(field): field for field in _fields(model)}
    if not isinstance(annotations, dict):
        raise UsageError(location, "metadata.annotations: is no mapping", f"known keys: {', '.join(fields)}")
    for name, value in annotations.items():
        refuse_unknown(name, fields, location, f"metadata.annotations: unknown key '{name}'")
        if not isinstance(value, str):
            raise UsageError(
                location, f"metadata.annotations: {name}: expected text, got {value!r}", "put it in quotes"
            )
    for name, field in fields.items():
        if name not in annotations and model.model_fields[field].is_required():
            remedy = f"it says {model.model_fields[field].description}"
            raise UsageError(location, f"metadata.annotations: {name} is missing", remedy)
    values: dict[str, Any] = {fields[name]: value for name, value in annotations.items()}
    return content, values | {field: _parse_list(field, values[field], location) for field in LISTS if field in values}


def _parse_list(field: str, text: str, location: str) -> list[Any]:
    elements, example = LISTS[field]
    form = f"write a list, as in {example}"
    try:
        items = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(location, f"{annotation_key(field)}: not YAML: {' '.join(str(error).split())}", form) from None
    if not isinstance(items, list) or not items:
        raise UsageError(location, f"{annotation_key(field)}: expected a list of {elements}, got {items!r}", form)
    return items


def validate_annotations(model: type[Model], values: dict[str, Any], location: str, *inner: type[BaseModel]) -> Model:
    """Validate the values of a file's annotations, and return them as an instance of the model.

    Args:
        model: The pydantic model.
        values: The values by the names of the model's fields.
        location: The file's name for the error message.
        inner: The models of nested values, whose keys the error message may name.

    Raises:
        UsageError: The values do not fit the model. The message has the names of the annotations, not of the fields.

    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        messages = [
            annotation_key(fault.partition(":")[0]) + ":" + fault.partition(":")[2]
            for fault in format_faults(error, *inner)
        ]
        raise UsageError(location, "; ".join(messages), "lab/schema/annotations.json lists every key") from None


def make_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of the annotations that a model's fields are read from; every annotation is text."""
    keywords = {"description", "pattern", "enum", "minLength"}
    fields = model.model_json_schema()["properties"]
    properties: dict[str, dict[str, Any]] = {}
    for field in _fields(model):
        # An optional field is `anyOf` its type and null; an optional annotation is simply absent.
        merged = {
            name: value for part in [*fields[field].get("anyOf", []), fields[field]] for name, value in part.items()
        }
        properties[annotation_key(field)] = {"type": "string"} | {
            name: value for name, value in merged.items() if name in keywords
        }
        if merged.get("type") == "boolean":
            properties[annotation_key(field)]["enum"] = ["true", "false"]
    return {
        "type": "object",
        "description": (model.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": [annotation_key(field) for field in _fields(model) if model.model_fields[field].is_required()],
        "additionalProperties": False,
    }


def annotation_key(field: str) -> str:
    """Return the name of the annotation that a model's field is read from: `primary_metric` → `lab/primary-metric`.

    A path to a nested value is converted, too: `readback.0.value` → `lab/readback.0.value`.
    """
    return f"lab/{field.replace('_', '-')}"


def _fields(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if field.json_schema_extra != NOT_AN_ANNOTATION]
