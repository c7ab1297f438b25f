"""The rules by which a Deployment creates and replaces its pods, and a PodDisruptionBudget allows or forbids evictions.

Source of the rules, in Kubernetes:

- pkg/controller/deployment/rolling.go and recreate.go
- pkg/controller/controller_utils.go (ActivePodsWithRanks): the order in which a ReplicaSet deletes
- pkg/controller/disruption/disruption.go: shares are rounded up
- pkg/registry/core/pod/storage/eviction.go: unready pods; two budgets for one pod

The module does no I/O and does not wait: the caller calls `plan_step` again when a pod was created, became ready or ended.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import MeasuringError, refuse_if
from lab.systems.manifests.fields import Fields, open_spec

Amount = int | str
"""A number of pods, or a share of them such as `25%`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """The strategy by which a Deployment replaces its pods during a rollout.

    Attributes:
        recreate: whether all old pods are deleted before a new one is created; `surge` and `unavailable` then have no meaning.
        surge: the number of pods that may exist in addition to the replicas: a number, or a percentage such as `25%`.
        unavailable: the number of replicas that may be missing: a number, or a percentage such as `25%`.

    """

    recreate: bool = False
    surge: Amount = "25%"
    unavailable: Amount = "25%"

    def allowed(self, replicas: int) -> tuple[int, int]:
        """Return (surge, unavailable) as numbers of pods, for a Deployment with the given number of replicas.

        Surge is the number of pods that may exist in addition to the replicas. Unavailable is the number of replicas that may be
        missing. At least one of the two is above 0, since a rollout could not proceed otherwise.
        """
        surge, unavailable = (
            resolve_amount(self.surge, replicas, up=True),
            resolve_amount(self.unavailable, replicas, up=False),
        )
        return surge, unavailable or int(surge == 0)


@dataclass(frozen=True, slots=True)
class ReplicaPod:
    """A pod of a Deployment that is not terminating, with the facts by which a rollout is planned.

    Attributes:
        name: the name of the pod.
        current: whether the pod was made from the Deployment's newest template.
        ready: whether the pod is ready.
        created_s: the time in seconds at which the pod was created; all pods use the same clock.

    """

    name: str
    current: bool
    ready: bool
    created_s: float


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The next step of a Deployment's rollout.

    Attributes:
        create: the number of pods to create.
        delete: the names of the pods to delete.

    """

    create: int = 0
    delete: tuple[str, ...] = ()


def plan_step(replicas: int, strategy: Strategy, members: Sequence[ReplicaPod], old_ending: int = 0) -> RolloutStep:
    """Return the next step of a Deployment's rollout: how many pods it creates, and which pods it deletes.

    The aim is the required number of replicas, all made from the Deployment's newest pod template.

    Args:
        replicas: the number of pods that the Deployment should have.
        strategy: the strategy of the Deployment.
        members: the Deployment's pods that are not terminating.
        old_ending: the number of pods of an older template that are still terminating.

    """
    ranked = sorted(members, key=lambda member: (member.ready, -member.created_s))
    new, old = [item for item in ranked if item.current], [item for item in ranked if not item.current]
    surplus = tuple(item.name for item in new[: max(0, len(new) - replicas)])
    if not old and not (strategy.recreate and old_ending):
        return RolloutStep(max(0, replicas - len(new)), surplus)
    if strategy.recreate:
        return RolloutStep(0, tuple(item.name for item in old))
    surge, unavailable = strategy.allowed(replicas)
    create = max(0, min(replicas + surge - len(members), replicas - len(new)))
    minimum = replicas - unavailable
    coming = create + sum(not item.ready for item in new)
    room = len(members) + create - minimum - coming
    broken = [item for item in old if not item.ready][: max(0, room)]
    spare = max(0, sum(item.ready for item in members) - minimum)
    healthy = [item for item in old if item.ready][:spare] if room > 0 else []
    return RolloutStep(create, (*surplus, *(item.name for item in [*broken, *healthy])))


def read_strategy(spec: Fields) -> Strategy:
    """Read the rollout strategy from the `spec` of a Deployment.

    Args:
        spec: the fields of the `spec`.

    Raises:
        UsageError: when the strategy is not valid in Kubernetes.

    """
    with spec.inner("strategy") as fields:
        kind = fields.choice("type", ("RollingUpdate", "Recreate"), "RollingUpdate")
        with fields.inner("rollingUpdate") as rolling:
            amounts = {"surge": read_amount(rolling, "maxSurge"), "unavailable": read_amount(rolling, "maxUnavailable")}
    return Strategy(kind == "Recreate", **{name: amount for name, amount in amounts.items() if amount is not None})


def read_amount(fields: Fields, name: str) -> Amount | None:
    """Read a field that is a number of pods, or a percentage of them such as `25%`; return None if the field is missing.

    Args:
        fields: the fields of the mapping that contains the field.
        name: the field.

    Raises:
        UsageError: when the field is neither a number nor a percentage.

    """
    value = fields.any(name)
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    fits = value is None or number or (isinstance(value, str) and re.fullmatch(r"\d+%", value))
    fields.refuse(not fits, name, f"expected a number or a percentage, got {value!r}", "such as 1 or 25%")
    return value


def resolve_amount(value: Amount, replicas: int, up: bool) -> int:
    """Convert an amount of pods, which may be a percentage of the replicas, to a number of pods.

    >>> resolve_amount("25%", 3, up=True), resolve_amount("25%", 3, up=False), resolve_amount(2, 3, up=True)
    (1, 0, 2)

    Args:
        value: a number of pods, or a percentage.
        replicas: the number of replicas, of which the percentage is taken.
        up: whether to round up; otherwise the result is rounded down.

    """
    share = value if isinstance(value, int) else int(value.removesuffix("%")) * replicas / 100
    return math.ceil(share) if up else math.floor(share)


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget, which limits how many pods may be evicted at once.

    An amount is a number of pods, or a percentage such as `50%`.

    Attributes:
        name: the name of the budget.
        selector: the labels of the pods that the budget is for.
        least: the amount in `minAvailable`; None if the budget has `maxUnavailable` instead.
        most_out: the amount in `maxUnavailable`; None if the budget has `minAvailable` instead.

    """

    name: str
    selector: Mapping[str, str]
    least: Amount | None
    most_out: Amount | None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether the PodDisruptionBudget applies to a pod with these labels."""
        return self.selector.items() <= labels.items()

    def refusal(self, ready: bool, healthy: int, expected: int) -> str | None:
        """Return the reason why the PodDisruptionBudget forbids the eviction of a running pod; None if it allows the eviction.

        Args:
            ready: whether the pod is ready.
            healthy: the number of pods of the budget that are ready and do not terminate.
            expected: the number of replicas that these pods' Deployments should have.

        """
        if self.least is not None:
            minimum = resolve_amount(self.least, expected, up=True)
        else:
            minimum = max(0, expected - resolve_amount(self.most_out or 0, expected, up=True))
        may_go = (not ready and healthy >= minimum > 0) or healthy > minimum
        return None if may_go else f"PodDisruptionBudget {self.name} needs {minimum} healthy pods and has {healthy}"

    def shown(self) -> Mapping[str, Any]:
        """Return the PodDisruptionBudget in the form of the Kubernetes API: name in `metadata`, selector and amount in `spec`."""
        least, most_out = {"minAvailable": self.least}, {"maxUnavailable": self.most_out}
        selector = {"selector": {"matchLabels": dict(self.selector)}}
        return {"metadata": {"name": self.name}, "spec": selector | (most_out if self.least is None else least)}


def read_budget(place: str, raw: Mapping[str, Any]) -> Budget:
    """Read a PodDisruptionBudget from its manifest.

    Args:
        place: the budget, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a field that the lab does not support, and for a budget that does not have exactly one of minAvailable
            and maxUnavailable.

    """
    with open_spec(place, raw) as spec:
        with spec.inner("selector") as selector:
            labels = selector.need("matchLabels", dict[str, str]())
        least, most_out = (read_amount(spec, name) for name in ("minAvailable", "maxUnavailable"))
        spec.choice("unhealthyPodEvictionPolicy", ("IfHealthyBudget",), "IfHealthyBudget", remedy="leave it out")
    fault = "expected one of minAvailable and maxUnavailable"
    refuse_if((least is None) == (most_out is None), f"{place}: spec", fault, "keep one")
    return Budget(str(raw["metadata"]["name"]), labels, least, most_out)


def find_budget(budgets: Sequence[Budget], labels: Mapping[str, str]) -> Budget | None:
    """Return the PodDisruptionBudget that applies to a pod; None if there is none.

    Args:
        budgets: all budgets.
        labels: the labels of the pod.

    Raises:
        MeasuringError: when two budgets apply; Kubernetes refuses to evict such a pod.

    """
    matches = [budget for budget in budgets if budget.selects(labels)]
    if len(matches) > 1:
        names = " and ".join(budget.name for budget in matches)
        fault = "this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"
        raise MeasuringError(f"PodDisruptionBudget {names}", fault, "keep one")
    return matches[0] if matches else None
