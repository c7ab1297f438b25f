"""The targets `kind` (the cluster that `just up kind` makes on this machine) and `remote` (any cluster of the user).

For `remote` the user must name the kubeconfig context; the current context is never used.
"""

from __future__ import annotations

from functools import partial

from lab.base.errors import UsageError, refuse_if
from lab.targets.cluster import kind
from lab.targets.cluster.api import Api
from lab.targets.cluster.connection import list_contexts
from lab.targets.cluster.others import watch_host
from lab.targets.cluster.target import ClusterTarget


def _connect() -> Api:
    fault = f"there is no cluster {kind.cluster_name()} of this checkout"
    refuse_if(not kind.kubeconfig().is_file(), "--target kind", fault, "`just up kind` makes it")
    return kind.connect()


def make_remote(context: str | None) -> ClusterTarget:
    """Return the target `remote` for the cluster at a kubeconfig context; nothing is sent to the cluster yet.

    Raises:
        UsageError: The context is None.

    """
    if context is None:
        names = ", ".join(list_contexts()) or "none are in your kubeconfig"
        fault = "names no context, and the current one is never taken"
        raise UsageError("--target remote", fault, f"--context NAME; known: {names}")
    return ClusterTarget("remote", partial(Api, context), f"remote: the real controllers on context {context}")


KIND = ClusterTarget(
    "kind",
    _connect,
    "kind: the real controllers, in containers of this machine",
    machine=lambda: watch_host(kind.container_ids()),
)
