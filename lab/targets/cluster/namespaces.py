"""Namespaces and other shared names on a cluster: made by the lab, or refused. Nothing is written into anybody else's."""

from __future__ import annotations

import time
from typing import Any

from lab.base.errors import MeasuringError, UsageError
from lab.targets.cluster.api import Api, ConflictError
from lab.targets.cluster.names import RUN_LABEL

TERMINATING_S = 90.0
"""For a namespace of the lab's that is still being deleted; 6 to 12 s are usual."""


def claim(api: Api, name: str, run: str, rendered: dict[str, Any] | None = None) -> bool:
    """Make it the lab's: created with RUN_LABEL if it is not there. True when it was created.

    UsageError when somebody else's is there; MeasuringError when one of ours does not end. A namespace that is already
    ours is left as it is.
    """
    deadline = time.monotonic() + TERMINATING_S
    while True:
        found = api.get("v1", "Namespace", name)
        if found is None:
            metadata: dict[str, Any] = {"name": name, "labels": {RUN_LABEL: run}}
            try:
                api.create(rendered or {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            except ConflictError:
                continue  # another lab was faster: look again
            return True
        refuse_foreign(api, found)
        if "deletionTimestamp" not in found["metadata"]:
            return False
        if time.monotonic() > deadline:
            raise MeasuringError(f"{api.place}: Namespace {name}", *stuck(found))
        time.sleep(0.2)


def refuse_foreign(api: Api, found: dict[str, Any]) -> None:
    """UsageError unless the object carries the lab's label: says whose it seems to be."""
    metadata = found["metadata"]
    if RUN_LABEL in (metadata.get("labels") or {}):
        return
    managers = [field.get("manager", "") for field in metadata.get("managedFields") or ()]
    whose = f", made by {managers[0]}" if managers else ""
    since = metadata.get("creationTimestamp", "an unknown time")
    fault = f"is not the lab's: there since {since}{whose}, without the label {RUN_LABEL}"
    remedy = "use another cluster, or remove it if it is nobody's; the lab writes only to what it made"
    raise UsageError(f"{api.place}: {found['kind']} {metadata['name']}", fault, remedy)


def stuck(namespace: dict[str, Any]) -> tuple[str, str]:
    """(fault, remedy) of one that is being deleted and does not end."""
    conditions = namespace.get("status", {}).get("conditions") or ()
    why = [item["message"] for item in conditions if item.get("status") == "True" and item.get("message")]
    fault = "is being deleted and does not end" + (f": {'; '.join(why)}" if why else "")
    return fault, f"`kubectl describe namespace {namespace['metadata']['name']}` says more"
