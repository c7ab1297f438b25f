"""The targets `kind` (the cluster that `just up kind` makes on this machine) and `remote` (any cluster of the user).

For `remote` the user must name the kubeconfig context; the current context is never used.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from lab.base.errors import UsageError
from lab.targets.cluster import kind
from lab.targets.cluster.api import Api
from lab.targets.cluster.connection import list_contexts
from lab.targets.cluster.others import OtherUsageSource, watch_host
from lab.targets.cluster.target import ClusterTarget


def _connect() -> Api:
    if not kind.kubeconfig().is_file():
        fault = f"there is no cluster {kind.cluster_name()} of this checkout"
        raise UsageError("--target kind", fault, "`just up kind` makes it")
    return kind.connect()


def _watch_machine() -> OtherUsageSource:
    return watch_host(kind.container_ids())


class UnnamedRemoteTarget(ClusterTarget):
    """The target `remote` before a kubeconfig context is named, so that its cluster is unknown.

    Every attempt to connect raises a UsageError. The method `at` takes the name of a context, and returns the target
    for the cluster of that context.
    """

    def __init__(self) -> None:
        super().__init__("remote", _refuse_unnamed, "")

    def at(self, context: str | None) -> ClusterTarget:
        """Return the target for the cluster at a kubeconfig context; nothing is sent to the cluster yet.

        Raises:
            UsageError: The context is None.

        """
        if context is None:
            _refuse_unnamed()
        return ClusterTarget("remote", partial(Api, context), f"remote: the real controllers on context {context}")


def _refuse_unnamed() -> NoReturn:
    names = ", ".join(list_contexts()) or "none are in your kubeconfig"
    fault = "names no context, and the current one is never taken"
    raise UsageError("--target remote", fault, f"--context NAME; known: {names}")


KIND = ClusterTarget("kind", _connect, "kind: the real controllers, in containers of this machine", _watch_machine)
REMOTE = UnnamedRemoteTarget()
