"""The remote target: a cluster of yours, at a kubeconfig context that is always named, never the current one."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from lab.base.errors import UsageError
from lab.targets.cluster.api import Api
from lab.targets.cluster.connection import contexts
from lab.targets.cluster.target import ClusterTarget


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
    raise UsageError(
        "--target remote", "names no context, and the current one is never taken", f"--context NAME; known: {known}"
    )


TARGET = RemoteTarget()
