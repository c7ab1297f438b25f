"""OpenShift's kind Route, which the OKD router's variants need: added to a cluster that lacks it, left alone on one that has it.

What the lab added before is brought up to date: an older one may not know a field that a disturbance sets.
"""

from __future__ import annotations

from pathlib import Path

from lab.model.variants.kustomize import read_yaml
from lab.targets.cluster.api import Api, ConflictError
from lab.targets.cluster.names import RUN_LABEL

CRD = Path(__file__).parents[3] / "manifests" / "clusters" / "route-crd.yaml"


def ensure(api: Api, run: str) -> bool:
    """Whether it had to be added; then it is the lab's, and goes with everything of its."""
    wanted = read_yaml(CRD, str(CRD))
    wanted["metadata"]["labels"] = {RUN_LABEL: run}
    if (found := api.get(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"])) is not None:
        labels = found["metadata"].get("labels") or {}
        if RUN_LABEL in labels:
            api.apply({**wanted, "metadata": {**wanted["metadata"], "labels": {RUN_LABEL: labels[RUN_LABEL]}}})
        return False
    try:
        api.create(wanted)
    except ConflictError:
        return False  # somebody added it just now
    return True
