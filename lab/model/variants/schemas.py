"""Variants against Kubernetes' own schemas, strictly: what each renders, and what is wrong in it.

    direct: Deployment backend-a: /spec/replicas: 'two' is not of type 'integer', 'null'
    direct: Summary: 4 objects - Valid: 3, Invalid: 1, Errors: 0

Kubernetes' kinds are validated by `kubernetes-validate`, whose wheel holds their schemas; any other kind by its own,
manifests/schemas/<kind>-<group's first word>-<version>.json. Never asks the network. Refuses a field that a schema does not know,
and a kind without one.
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
import kubernetes_validate

from lab.base.errors import UsageError
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import chain, covering_names, objects_of

KUBERNETES = "1.34"

Status = Literal["Valid", "Invalid", "Errors"]
STATUSES: tuple[Status, ...] = ("Valid", "Invalid", "Errors")


@cache
def _finding(custom: Path, text: str) -> tuple[Status, str]:
    """Return what came of one object as JSON, and its fault: overlays have most of theirs in common.

    `custom`: the folder of the schemas of kinds that Kubernetes does not have.
    """
    item = json.loads(text)
    group, _, version = item["apiVersion"].rpartition("/")
    path = custom / f"{'-'.join([item['kind'].lower(), *filter(None, [group.split('.')[0]]), version])}.json"
    try:
        try:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            schema = json.loads(path.read_text(encoding="utf-8"))
            jsonschema.validate(item, schema, format_checker=jsonschema.FormatChecker())
    except jsonschema.ValidationError as error:
        place = "".join(f"/{step}" for step in error.absolute_path)
        return "Invalid", f"{place or '/'}: {error.message}"
    except FileNotFoundError:
        return "Errors", f"could not find schema for {item['kind']}: add manifests/schemas/{path.name}"
    except (OSError, json.JSONDecodeError, jsonschema.SchemaError) as error:
        return "Errors", f"manifests/schemas/{path.name}: not a JSON schema: {error}"
    return "Valid", ""


def refused(item: Mapping[str, Any], manifests: Path = MANIFESTS) -> str:
    """Why an object is none of its kind, by the place in it; empty where it is one, and of a kind without a schema."""
    status, fault = _finding(manifests / "schemas", json.dumps(item, sort_keys=True, default=str))
    return fault if status == "Invalid" else ""


def report(variant: str, manifests: Path = MANIFESTS) -> tuple[list[str], bool]:
    """(of a variant its faults, then how many objects are what; whether it is without fault)."""
    folder = manifests / "overlays" / variant  # which people apply as it is
    try:
        items = kustomize.objects(kustomize.render([folder])) if folder.is_dir() else objects_of(variant, manifests)
    except (kustomize.BuildError, UsageError) as error:
        return [f"{variant}: does not build: {error}"], False
    texts = (json.dumps(item, sort_keys=True, default=str) for item in items)
    findings = [_finding(manifests / "schemas", text) for text in texts]
    lines = [
        f"{variant}: {item['kind']} {item['metadata']['name']}: {fault}"
        for item, (_, fault) in zip(items, findings, strict=True)
        if fault
    ]
    counts = Counter(status for status, _ in findings)
    told = ", ".join(f"{status}: {counts[status]}" for status in STATUSES)
    return [*lines, f"{variant}: Summary: {len(items)} objects - {told}"], not lines


def main(names: Sequence[str]) -> int:
    """Reports on every one (none named: on those that hold everything); 1 if one does not build or has an object that is not valid."""
    try:
        known = [chain(name)[-1].name for name in names]
    except UsageError as error:
        sys.stderr.write(f"validate: {error}\n")
        return 2
    failed = False
    for variant in known or covering_names():
        lines, holds = report(variant)
        failed |= not holds
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
