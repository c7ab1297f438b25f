"""A stand-in for a cluster: its `kubectl exec` runs the command on this machine, its one pod is there as long as it is said to be."""

from __future__ import annotations

from typing import Any

EXEC = """\
while [ "$1" != -- ]; do shift; done
shift
[ "$1" = sh ] || exec "$@"
shift
exec {sh} "$@"
"""


class ApiHere:
    """What lab.targets.cluster.shell and client ask of an Api. `sh`: what the pod has as its shell."""

    def __init__(self, sh: str = "sh") -> None:
        self.kubectl: tuple[str, ...] = ("sh", "-c", EXEC.format(sh=sh), "kubectl")
        self.pod: dict[str, Any] | None = {
            "metadata": {"uid": "one", "name": "generator"},
            "spec": {"nodeName": "here"},
            "status": {"phase": "Running"},
        }

    def get(self, *_: Any) -> dict[str, Any] | None:
        return self.pod
