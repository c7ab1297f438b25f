"""The strict validation of the Kubernetes objects of variants, against Kubernetes' schemas and those of custom kinds.

    direct: Deployment backend-a: /spec/replicas: 'two' is not of type 'integer', 'null'
    direct: Summary: 4 objects - Valid: 3, Invalid: 1, Errors: 0

Kubernetes' kinds are validated by `kubernetes-validate`, whose wheel contains their schemas. Any other kind is validated by
manifests/schemas/<kind>-<group's first word>-<version>.json. No network is used. A field that a schema does not have is a fault, and so is
a kind without a schema.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

from lab.base.errors import UsageError
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import covering_names, load_chain, objects_of

KUBERNETES = "1.34"
"""The version of Kubernetes whose schemas are used."""
FOLDER = f"kubernetes-json-schema/v{KUBERNETES}.0-local-strict"
"""The folder in the package kubernetes-validate with these schemas, which allow no unknown field."""

Status = Literal["Valid", "Invalid", "Errors"]
STATUSES: tuple[Status, ...] = ("Valid", "Invalid", "Errors")


@cache
def _read_definitions() -> Registry[Any]:
    """Return a registry of the definitions to which Kubernetes' JSON schemas refer, such as that of a container.

    Reading them takes longer than any validation.
    """
    contents = schema_contents(f"{FOLDER}/_definitions.json", KUBERNETES)
    return (Resource.from_contents(contents) @ Registry[Any]()).crawl()


@cache
def _make_validator(path: Path) -> Validator:
    """Return a validator for Kubernetes objects of one kind, which refuses unknown fields.

    Args:
        path: The file with the schema of a custom kind. For one of Kubernetes' own kinds the file need not exist: only
            its name is used, to find the schema in the package kubernetes-validate.

    Raises:
        FileNotFoundError: There is no schema of this kind.
        SchemaError: The schema of a custom kind is no JSON schema.

    """
    try:
        schema = schema_contents(f"{FOLDER}/{path.name}", KUBERNETES)
    except FileNotFoundError:
        schema = json.loads(path.read_text(encoding="utf-8"))
        kind_of_schema = validator_for(schema)
        kind_of_schema.check_schema(schema)
        return kind_of_schema(schema, format_checker=jsonschema.FormatChecker())
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ _read_definitions())


@cache
def _validate_object(schemas: Path, text: str) -> tuple[Status, str]:
    """Validate a Kubernetes object against the schema of its kind. Results are cached, as variants share objects.

    Args:
        schemas: The folder with the schemas of kinds that Kubernetes itself does not have.
        text: The object as JSON.

    Returns:
        The status and the fault. The status is "Valid", "Invalid", or "Errors" (there is no readable schema). The fault
        has the place and the message, and is empty for a valid object.

    """
    item = json.loads(text)
    group, _, version = item["apiVersion"].rpartition("/")
    path = schemas / f"{'-'.join([item['kind'].lower(), *filter(None, [group.split('.')[0]]), version])}.json"
    try:
        _make_validator(path).validate(item)
    except jsonschema.ValidationError as error:
        place = "".join(f"/{step}" for step in error.absolute_path)
        return "Invalid", f"{place or '/'}: {error.message}"
    except FileNotFoundError:
        return "Errors", f"could not find schema for {item['kind']}: add manifests/schemas/{path.name}"
    except (OSError, json.JSONDecodeError, jsonschema.SchemaError) as error:
        return "Errors", f"manifests/schemas/{path.name}: not a JSON schema: {error}"
    return "Valid", ""


def find_schema_fault(item: Mapping[str, Any], manifests: Path = MANIFESTS) -> str:
    """Return the first fault of a Kubernetes object with its place: `/spec/replicas: 'two' is not of type 'integer'`.

    The text is empty for a valid object, and for a kind without schema.

    Args:
        item: The object.
        manifests: The folder of the manifests, which has the schemas of kinds that Kubernetes itself does not have.

    """
    status, fault = _validate_object(manifests / "schemas", json.dumps(item, sort_keys=True, default=str))
    return fault if status == "Invalid" else ""


def report(variant: str, manifests: Path = MANIFESTS) -> tuple[list[str], bool]:
    """Validate all Kubernetes objects of a variant.

    Returns:
        (lines to print, whether the variant is free of faults). There is a line for each faulty object, with one of its
        faults, and a summary at the end. If the variant does not build, there is a single line.

    """
    folder = manifests / "overlays" / variant  # which people apply directly
    try:
        items = (
            kustomize.parse_objects(kustomize.render([folder])) if folder.is_dir() else objects_of(variant, manifests)
        )
    except (kustomize.BuildError, UsageError) as error:
        return [f"{variant}: does not build: {error}"], False
    texts = (json.dumps(item, sort_keys=True, default=str) for item in items)
    results = [_validate_object(manifests / "schemas", text) for text in texts]
    lines = [
        f"{variant}: {item['kind']} {item['metadata']['name']}: {fault}"
        for item, (_, fault) in zip(items, results, strict=True)
        if fault
    ]
    counts = Counter(status for status, _ in results)
    summary = ", ".join(f"{status}: {counts[status]}" for status in STATUSES)
    return [*lines, f"{variant}: Summary: {len(items)} objects - {summary}"], not lines


def main(names: Sequence[str]) -> int:
    """Validate the objects of variants, and print the faults and a summary of each.

    Args:
        names: The names of the variants; empty = enough variants to contain every overlay and every component (setting).

    Returns:
        The exit status: 0 if all are valid, 1 if a variant does not build or has an invalid object, 2 for an unknown
        variant.

    """
    try:
        variants = [load_chain(name)[-1].name for name in names]
    except UsageError as error:
        sys.stderr.write(f"validate: {error}\n")
        return 2
    failed = False
    for variant in variants or covering_names():
        lines, valid = report(variant)
        failed |= not valid
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
