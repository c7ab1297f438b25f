"""Functions that prepare the user's own cluster (`just up remote --context NAME`) and undo this (`just down remote`).

The user must name the kubeconfig context of the cluster. The cluster itself is neither made nor removed.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from rich.console import Console

from lab.base.errors import UsageError
from lab.systems.table import DEFINITIONS_OF
from lab.targets.cluster import images, inventory, rights
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api
from lab.targets.cluster.client import ClientPod
from lab.targets.cluster.connection import list_contexts
from lab.targets.cluster.lease import Lease, format_holder, make_run_id
from lab.targets.cluster.steps import print_line, step
from lab.targets.cluster.target import CLIENT_DEADLINE_S


def up(context: str | None, talk: Console) -> None:
    """Prepare an existing cluster for measurements; a cluster that is prepared already is no error.

    The load generator's namespace and pod are created. If the user may add kinds, the kinds that some variants need
    and Kubernetes lacks (such as Route) are added.

    Args:
        context: The name of the kubeconfig context; None is refused.
        talk: The console for progress.

    Raises:
        UsageError: No context is named, or the user lacks a right that every run needs.

    """
    with step(talk, "reachable") as remarks:
        api = _connect(context)
        remarks.append(f"Kubernetes {api.version()}")
    run, chosen = make_run_id(), images.load_images()
    with step(talk, "you may do there what the lab does"):
        if denied := api.denied(rights.EVERY_RUN):
            remedy = "ask for these rights (lab/targets/cluster/README.md names them), or use another context"
            raise UsageError(api.place, f"you may not {'; '.join(denied)}", remedy)
        inventory.claim_namespace(api, CLIENT_NAMESPACE, run)
    with ExitStack() as leaving:
        _take_lease(api, run, leaving)
        with step(talk, f"the generator's pod in namespace {CLIENT_NAMESPACE}") as remarks:
            client = ClientPod.ensure(api, chosen, run, time.monotonic() + CLIENT_DEADLINE_S)
            remarks.append(f"on node {client.node}")
            client.close()
        if api.denied(rights.KINDS):
            variants = f"the variants of {DEFINITIONS_OF}"
            print_line(
                talk,
                f"  [yellow]–[/] kinds that Kubernetes does not have: you may not add them; only {variants} need them",
            )
        else:
            with step(talk, f"kinds of {DEFINITIONS_OF}") as remarks:
                remarks.append(", ".join(inventory.ensure_kinds(api, run)) or "there already")
        for purpose, needed in rights.BY_FEATURE.items():
            if denied := api.denied(needed):
                print_line(talk, f"  [yellow]–[/] only {purpose} need it: you may not {'; '.join(denied)}")
    print_line(talk, f"ready: just bench keepalive --target remote --context {context}")


def down(context: str | None, talk: Console) -> None:
    """Remove everything in the cluster that has the lab's label.

    Args:
        context: The name of the kubeconfig context; None is refused.
        talk: The console for progress.

    Raises:
        LabError: No context is named, or somebody measures on the cluster now.

    """
    api = _connect(context)
    namespace = api.get("v1", "Namespace", CLIENT_NAMESPACE)
    with ExitStack() as leaving:
        if namespace is not None and inventory.is_labs(namespace) and "deletionTimestamp" not in namespace["metadata"]:
            _take_lease(api, make_run_id(), leaving)
        with step(talk, f"everything with the label {RUN_LABEL} removed from {context}"):
            removed = inventory.remove_all(api)
    for line in removed:
        print_line(talk, f"  {line}")
    print_line(talk, "nothing of the lab's is left there" if removed else "there was nothing of the lab's")


def _take_lease(api: Api, run: str, leaving: ExitStack) -> None:
    """Acquire the cluster's lease, which keeps other lab processes away; it is released when `leaving` is closed."""
    lease = Lease(api, format_holder(run))
    lease.acquire()
    leaving.callback(lease.release)


def _connect(context: str | None) -> Api:
    """Return the client for the API server at a kubeconfig context.

    The context must be named. The kubeconfig's current context is never used, because it may be a production cluster.

    Raises:
        UsageError: The context is None.

    """
    if context is None:
        names = ", ".join(list_contexts()) or "none: KUBECONFIG names no kubeconfig that has any"
        raise UsageError("--context", "the cluster must be named: the current context is never used", f"known: {names}")
    return Api(context)
