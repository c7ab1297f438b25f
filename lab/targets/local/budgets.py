"""PodDisruptionBudgets: read, and asked whether a pod may be evicted. Pure; a field that is not honoured is an error.

Source of the rules: Kubernetes' pkg/controller/disruption/disruption.go (shares are rounded up) and
pkg/registry/core/pod/storage/eviction.go (unready pods; two budgets for one pod).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import MeasuringError, UsageError
from lab.targets.local.fields import Fields
from lab.targets.local.replicas import Amount, amount, read_amount


@dataclass(frozen=True, slots=True)
class Budget:
    """One of `least` and `most_out` is given. `always`: unready pods may be evicted whatever it says."""

    name: str
    selector: Mapping[str, str]
    least: Amount | None
    most_out: Amount | None
    always: bool = False

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.selector.items() <= labels.items()

    def refusal(self, ready: bool, healthy: int, expected: int) -> str | None:
        """Why a running pod may not be evicted now, in words; None if it may.

        `ready`: the pod; `healthy`: ready pods that do not terminate; `expected`: replicas asked for.
        """
        wanted = self.healthy_wanted(expected)
        if not ready and (self.always or healthy >= wanted > 0):
            return None
        if healthy - 1 < wanted:
            return f"PodDisruptionBudget {self.name} needs {wanted} healthy pods and has {healthy}"
        return None

    def shown(self) -> Mapping[str, Any]:
        """As Kubernetes would show it."""
        least, most_out = {"minAvailable": self.least}, {"maxUnavailable": self.most_out}
        selector = {"selector": {"matchLabels": dict(self.selector)}}
        return {"metadata": {"name": self.name}, "spec": selector | (most_out if self.least is None else least)}

    def healthy_wanted(self, expected: int) -> int:
        """How many of the expected pods must stay healthy."""
        if self.least is not None:
            return amount(self.least, expected, up=True)
        return max(0, expected - amount(self.most_out or 0, expected, up=True))


def read_budget(place: str, raw: Mapping[str, Any]) -> Budget:
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        with fields.inner("spec") as spec:
            with spec.inner("selector") as selector:
                labels = selector.need("matchLabels", dict[str, str]())
            least, most_out = (read_amount(spec, name) for name in ("minAvailable", "maxUnavailable"))
            policy = spec.take("unhealthyPodEvictionPolicy", "IfHealthyBudget")
            if policy not in ("IfHealthyBudget", "AlwaysAllow"):
                fault = f"expected IfHealthyBudget or AlwaysAllow, got {policy!r}"
                raise UsageError(spec.at("unhealthyPodEvictionPolicy"), fault, "correct it")
    if (least is None) == (most_out is None):
        raise UsageError(f"{place}: spec", "expected one of minAvailable and maxUnavailable", "keep one")
    return Budget(str(raw["metadata"]["name"]), labels, least, most_out, policy == "AlwaysAllow")


def over(budgets: Sequence[Budget], labels: Mapping[str, str]) -> Budget | None:
    """The budget of a pod with these labels. MeasuringError for two, which the API refuses for good."""
    mine = [budget for budget in budgets if budget.selects(labels)]
    if len(mine) > 1:
        names = " and ".join(budget.name for budget in mine)
        fault = "this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"
        raise MeasuringError(f"PodDisruptionBudget {names}", fault, "keep one")
    return mine[0] if mine else None
