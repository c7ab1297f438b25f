"""How many pods a Deployment has, which it replaces, step by step, and which a PodDisruptionBudget lets go. Pure.

Source of the rules: Kubernetes' pkg/controller/deployment/rolling.go and recreate.go, the order in which
a ReplicaSet deletes (pkg/controller/controller_utils.go, ActivePodsWithRanks), pkg/controller/disruption/disruption.go (shares are
rounded up) and pkg/registry/core/pod/storage/eviction.go (unready pods; two budgets for one pod). Refuses to wait: the caller
asks again when a pod was made, became ready or went.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import MeasuringError, refuse_if
from lab.systems.manifests.fields import Fields, spec_of

Amount = int | str
"""A number of pods, or a share of them such as `25%`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """`recreate`: all old pods go before a new one comes; else by the other two."""

    recreate: bool = False
    surge: Amount = "25%"
    unavailable: Amount = "25%"

    def allowed(self, replicas: int) -> tuple[int, int]:
        """(pods more than wanted, pods fewer than wanted) meanwhile; not both 0."""
        surge, unavailable = amount(self.surge, replicas, up=True), amount(self.unavailable, replicas, up=False)
        return surge, unavailable or int(surge == 0)


@dataclass(frozen=True, slots=True)
class Member:
    """A pod that is not terminating. `current`: of the newest template."""

    name: str
    current: bool
    ready: bool
    created_s: float


@dataclass(frozen=True, slots=True)
class Step:
    create: int = 0
    delete: tuple[str, ...] = ()


def step(replicas: int, strategy: Strategy, members: Sequence[Member], old_ending: int = 0) -> Step:
    """What is to be done now. `old_ending`: pods of an older template that terminate still."""
    ranked = sorted(members, key=lambda member: (member.ready, -member.created_s))
    new, old = [item for item in ranked if item.current], [item for item in ranked if not item.current]
    surplus = tuple(item.name for item in new[: max(0, len(new) - replicas)])
    if not old and not (strategy.recreate and old_ending):
        return Step(max(0, replicas - len(new)), surplus)
    if strategy.recreate:
        return Step(0, tuple(item.name for item in old))
    surge, unavailable = strategy.allowed(replicas)
    create = max(0, min(replicas + surge - len(members), replicas - len(new)))
    least = replicas - unavailable
    coming = create + sum(not item.ready for item in new)
    room = len(members) + create - least - coming
    broken = [item for item in old if not item.ready][: max(0, room)]
    spare = max(0, sum(item.ready for item in members) - least)
    whole = [item for item in old if item.ready][:spare] if room > 0 else []
    return Step(create, (*surplus, *(item.name for item in [*broken, *whole])))


def read_strategy(spec: Fields) -> Strategy:
    """`strategy` of a Deployment's spec. UsageError."""
    with spec.inner("strategy") as fields:
        kind = fields.choice("type", ("RollingUpdate", "Recreate"), "RollingUpdate")
        with fields.inner("rollingUpdate") as rolling:
            given = {"surge": read_amount(rolling, "maxSurge"), "unavailable": read_amount(rolling, "maxUnavailable")}
    return Strategy(kind == "Recreate", **{name: amount for name, amount in given.items() if amount is not None})


def read_amount(fields: Fields, name: str) -> Amount | None:
    """A field that is a number or a percentage; None where it is missing. UsageError."""
    value = fields.any(name)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    fits = value is None or whole or (isinstance(value, str) and re.fullmatch(r"\d+%", value))
    fields.refuse(not fits, name, f"expected a number or a percentage, got {value!r}", "such as 1 or 25%")
    return value


def amount(value: Amount, of: int, up: bool) -> int:
    """In pods; a share is rounded up or down.

    >>> amount("25%", 3, up=True), amount("25%", 3, up=False), amount(2, 3, up=True)
    (1, 0, 2)
    """
    share = value if isinstance(value, int) else int(value.removesuffix("%")) * of / 100
    return math.ceil(share) if up else math.floor(share)


@dataclass(frozen=True, slots=True)
class Budget:
    """One of `least` and `most_out` is given."""

    name: str
    selector: Mapping[str, str]
    least: Amount | None
    most_out: Amount | None

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.selector.items() <= labels.items()

    def refusal(self, ready: bool, healthy: int, expected: int) -> str | None:
        """Why a running pod may not be evicted now, in words; None if it may.

        `ready`: the pod; `healthy`: ready pods that do not terminate; `expected`: replicas asked for.
        """
        wanted = self.healthy_wanted(expected)
        may_go = (not ready and healthy >= wanted > 0) or healthy > wanted
        return None if may_go else f"PodDisruptionBudget {self.name} needs {wanted} healthy pods and has {healthy}"

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
    with spec_of(place, raw) as spec:
        with spec.inner("selector") as selector:
            labels = selector.need("matchLabels", dict[str, str]())
        least, most_out = (read_amount(spec, name) for name in ("minAvailable", "maxUnavailable"))
        spec.choice("unhealthyPodEvictionPolicy", ("IfHealthyBudget",), "IfHealthyBudget", remedy="leave it out")
    fault = "expected one of minAvailable and maxUnavailable"
    refuse_if((least is None) == (most_out is None), f"{place}: spec", fault, "keep one")
    return Budget(str(raw["metadata"]["name"]), labels, least, most_out)


def over(budgets: Sequence[Budget], labels: Mapping[str, str]) -> Budget | None:
    """The budget of a pod with these labels. MeasuringError for two, which the API refuses for good."""
    mine = [budget for budget in budgets if budget.selects(labels)]
    if len(mine) > 1:
        names = " and ".join(budget.name for budget in mine)
        fault = "this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"
        raise MeasuringError(f"PodDisruptionBudget {names}", fault, "keep one")
    return mine[0] if mine else None
