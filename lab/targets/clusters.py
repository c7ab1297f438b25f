"""The targets `kind` and `remote`: the cluster that `just up kind` made on this machine, and one of yours, at a context that is always named."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from lab.base.errors import UsageError
from lab.targets.cluster import kind
from lab.targets.cluster.api import Api
from lab.targets.cluster.connection import contexts
from lab.targets.cluster.others import Others, host_watch
from lab.targets.cluster.target import ClusterTarget


def _connect() -> Api:
    if not kind.kubeconfig().is_file():
        fault = f"there is no cluster {kind.name()} of this checkout"
        raise UsageError("--target kind", fault, "`just up kind` makes it")
    return kind.connect()


def _machine() -> Others:
    return host_watch(kind.container_ids())


class RemoteTarget(ClusterTarget):
    """`at` gives the target proper; this one is no cluster yet."""

    def __init__(self) -> None:
        super().__init__("remote", _unnamed, "")

    def at(self, context: str | None) -> ClusterTarget:
        """UsageError without a context: nothing is asked of any cluster yet."""
        if context is None:
            _unnamed()
        return ClusterTarget("remote", partial(Api, context), f"remote: the real controllers on context {context}")


def _unnamed() -> NoReturn:
    known = ", ".join(contexts()) or "none are in your kubeconfig"
    fault = "names no context, and the current one is never taken"
    raise UsageError("--target remote", fault, f"--context NAME; known: {known}")


KIND = ClusterTarget("kind", _connect, "kind: the real controllers, in containers of this machine", _machine)
REMOTE = RemoteTarget()
