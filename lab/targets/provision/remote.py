"""`just up remote --context NAME`: what the lab needs on a cluster of yours, and `just down remote` takes all of it away.

Refuses to guess the cluster: without a context named there is none. The cluster itself is neither made nor removed.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from lab.targets.cluster.api import Api

ABOUT: str = "a cluster of yours, by the name of its context in your kubeconfig; never the current one"


def up_arguments(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--context", metavar="NAME", help="of your kubeconfig (KUBECONFIG, or ~/.kube/config)")


down_arguments = up_arguments


def up(options: argparse.Namespace, talk: Console) -> None:
    """The client's namespace with the generator's pod, and the kinds that Kubernetes does not have; idempotent."""
    from lab.targets.cluster.steps import say, step

    with step(talk, "reachable") as remarks:
        api = _api(options.context)
        remarks.append(f"Kubernetes {api.version()}")
    from lab.base.errors import UsageError
    from lab.systems.table import DEFINITIONS_OF
    from lab.targets.cluster import images, inventory, rights
    from lab.targets.cluster.api import CLIENT_NAMESPACE
    from lab.targets.cluster.client import ClientPod
    from lab.targets.cluster.lease import Lease, holder, run_id
    from lab.targets.cluster.target import CLIENT_DEADLINE_S

    run, chosen = run_id(), images.load()
    with step(talk, "you may do there what the lab does"):
        if denied := api.denied(rights.EVERY_RUN):
            remedy = "ask for these rights (lab/targets/cluster/README.md names them), or use another context"
            raise UsageError(api.place, f"you may not {'; '.join(denied)}", remedy)
        inventory.claim_namespace(api, CLIENT_NAMESPACE, run)
    lease = Lease(api, holder(run))
    lease.acquire()
    try:
        with step(talk, f"the generator's pod in namespace {CLIENT_NAMESPACE}") as remarks:
            client = ClientPod.ensure(api, chosen, run, time.monotonic() + CLIENT_DEADLINE_S)
            remarks.append(f"on node {client.node}")
            client.close()
        if api.denied(rights.KINDS):
            who = f"the variants of {DEFINITIONS_OF}"
            say(talk, f"  [yellow]–[/] kinds that Kubernetes does not have: you may not add them; only {who} need them")
        else:
            with step(talk, f"kinds of {DEFINITIONS_OF}") as remarks:
                remarks.append(", ".join(inventory.ensure_kinds(api, run)) or "there already")
        for what, wanted in rights.SOME_RUNS.items():
            if denied := api.denied(wanted):
                say(talk, f"  [yellow]–[/] only {what} need it: you may not {'; '.join(denied)}")
    finally:
        lease.release()
    say(talk, f"ready: just bench keepalive --target remote --context {options.context}")


def down(options: argparse.Namespace, talk: Console) -> None:
    """Everything that carries the lab's label; refused while a lab measures there."""
    from lab.targets.cluster import inventory
    from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL
    from lab.targets.cluster.lease import Lease, holder, run_id
    from lab.targets.cluster.steps import say, step

    api = _api(options.context)
    there = api.get("v1", "Namespace", CLIENT_NAMESPACE)
    lease = None
    if there is not None and inventory.is_ours(there) and "deletionTimestamp" not in there["metadata"]:
        lease = Lease(api, holder(run_id()))
        lease.acquire()
    try:
        with step(talk, f"everything with the label {RUN_LABEL} removed from {options.context}"):
            removed = inventory.remove_all(api)
    finally:
        if lease is not None:
            lease.release()
    for line in removed:
        say(talk, f"  {line}")
    say(talk, "nothing of the lab's is left there" if removed else "there was nothing of the lab's")


def _api(context: str | None) -> Api:
    """UsageError without a name: the current context may be anybody's production."""
    from lab.base.errors import UsageError
    from lab.targets.cluster.api import Api
    from lab.targets.cluster.connection import contexts

    if context is None:
        known = ", ".join(contexts()) or "none: KUBECONFIG names no kubeconfig that has any"
        raise UsageError("--context", "the cluster must be named: the current context is never used", f"known: {known}")
    return Api(context)
