"""Whose a name is that a whole cluster shares: made by the lab, or refused. Nothing is written into anybody else's."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from typing import Any

from lab.base.errors import MeasuringError, UsageError
from lab.model.variants.kustomize import read_yaml
from lab.systems.table import DEFINITIONS
from lab.targets.cluster import deletion
from lab.targets.cluster.api import RUN_LABEL, Api, ConflictError, Object
from lab.targets.cluster.objects import CLUSTERS, flat

TERMINATING_S = 90.0
"""For a namespace of the lab's that is still being deleted; 6 to 12 s are usual."""
KINDS = tuple(CLUSTERS / name for name in DEFINITIONS)
"""What variants on a cluster need that Kubernetes does not have."""


def is_ours(found: Mapping[str, Any] | None) -> bool:
    """There, and with the lab's label."""
    return found is not None and RUN_LABEL in (found["metadata"].get("labels") or {})


def claim_namespace(api: Api, name: str, run: str, rendered: Object | None = None) -> None:
    """Make it the lab's: created with RUN_LABEL if it is not there.

    UsageError when somebody else's is there; MeasuringError when one of ours does not end. A namespace that is already
    ours is left as it is.
    """
    deadline = time.monotonic() + TERMINATING_S
    made: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {RUN_LABEL: run}}}
    while True:
        found = api.get("v1", "Namespace", name)
        if found is None:
            try:
                api.create(rendered or made)
            except ConflictError:
                continue  # another lab was faster: look again
            return
        refuse_foreign(api, found)
        if "deletionTimestamp" not in found["metadata"]:
            return
        if time.monotonic() > deadline:
            raise MeasuringError(f"{api.place}: Namespace {name}", *deletion.stuck(found))
        time.sleep(0.2)


def refuse_foreign(api: Api, found: Object) -> None:
    """UsageError unless the object carries the lab's label: says whose it seems to be."""
    if is_ours(found):
        return
    metadata = found["metadata"]
    managers = [field.get("manager", "") for field in metadata.get("managedFields") or ()]
    whose = f", made by {managers[0]}" if managers else ""
    since = metadata.get("creationTimestamp", "an unknown time")
    fault = f"is not the lab's: there since {since}{whose}, without the label {RUN_LABEL}"
    remedy = "use another cluster, or remove it if it is nobody's; the lab writes only to what it made"
    raise UsageError(f"{api.place}: {found['kind']} {metadata['name']}", fault, remedy)


def ensure_kinds(api: Api, run: str) -> list[str]:
    """What variants need that Kubernetes does not have: added to a cluster that lacks them, left alone on one that has them.

    Which had to be added; then they are the lab's, and go with everything of its. What the lab added before is brought
    up to date: an older one may not know a field that a disturbance sets.
    """
    wanted = flat(read_yaml(file, str(file)) for file in KINDS)
    return [each["spec"]["names"]["kind"] for each in wanted if _ensure(api, run, copy.deepcopy(dict(each)))]


def _ensure(api: Api, run: str, wanted: Object) -> bool:
    """Whether it had to be added."""
    metadata = wanted["metadata"]
    found = api.get(wanted["apiVersion"], wanted["kind"], metadata["name"])
    if found is not None:
        if is_ours(found):
            metadata["labels"] = {RUN_LABEL: found["metadata"]["labels"][RUN_LABEL]}
            api.apply(wanted)
        return False
    metadata["labels"] = {RUN_LABEL: run}
    try:
        api.create(wanted)
    except ConflictError:
        return False  # somebody added it just now
    return True
