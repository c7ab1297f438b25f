"""The kind target: the cluster that `just up kind` makes on this machine, through a kubeconfig of its own."""

from __future__ import annotations

from lab.base.errors import UsageError
from lab.targets.cluster import kind
from lab.targets.cluster.api import Api
from lab.targets.cluster.others import Others, host_watch
from lab.targets.cluster.target import ClusterTarget


def _connect() -> Api:
    if not kind.kubeconfig().is_file():
        raise UsageError(
            "--target kind", f"there is no cluster {kind.name()} of this checkout", "`just up kind` makes it"
        )
    return kind.connect()


def _machine() -> Others:
    return host_watch(kind.container_ids())


TARGET = ClusterTarget("kind", _connect, "kind: the real controllers, in containers of this machine", _machine)
