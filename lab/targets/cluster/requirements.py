"""What a variant asks of a cluster's nodes beyond what they have: told by its read-backs, before anything starts.

The checks say what the running system must show, so whatever sets it (a ConfigMap's key, an environment variable) is found. Apart from the
target, which asks more of a cluster than its nodes.
"""

from __future__ import annotations

from lab.base.errors import NotMeasurableError
from lab.model.variants.variants import Variant
from lab.systems.table import READBACKS

CORES = {(kind, name): noun for kind, how in READBACKS.items() for name, noun in how.workers.items()}
FILES = {("limit", "Max open files"), *((kind, name) for kind, how in READBACKS.items() for name in how.open_files)}


def vet(variant: Variant, cpus: int, open_files: int | None) -> None:
    """NotMeasurableError for more workers or threads than the largest node has CPUs, or more open files than a pod may have."""
    for check in variant.readback:
        place, what = f"{variant.name}: {check.name}", (check.kind, check.name or "")
        if (noun := CORES.get(what)) and check.value.isdigit() and int(check.value) > cpus:
            has = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
            fault = f"asks for {check.value} {noun}, the largest node has {has}"
            raise NotMeasurableError("cores", place, fault, f"a node with more CPUs, or {cpus} at most")
        if what in FILES and open_files is not None and check.value.isdigit() and int(check.value) > open_files:
            fault = f"asks for {check.value} open files, a container may have {open_files} here"
            raise NotMeasurableError("open files", place, fault, "raise the nodes' limit (LimitNOFILE of containerd)")
