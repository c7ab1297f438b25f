"""How many pods a Deployment has and which it replaces, step by step: its controller's rules. Pure.

Source of the rules: Kubernetes' pkg/controller/deployment/rolling.go and recreate.go, and the order in which
a ReplicaSet deletes (pkg/controller/controller_utils.go, ActivePodsWithRanks). Refuses to wait: the caller asks again when
a pod was made, became ready or went.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.base.errors import UsageError
from lab.targets.local.fields import Fields

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
    """A pod that is not terminating. `current`: of the newest template; `available`: ready for minReadySeconds."""

    name: str
    current: bool
    ready: bool
    available: bool
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
    coming = create + sum(not item.available for item in new)
    room = len(members) + create - least - coming
    broken = [item for item in old if not item.available][: max(0, room)]
    spare = max(0, sum(item.available for item in members) - least)
    whole = [item for item in old if item.available][:spare] if room > 0 else []
    return Step(create, (*surplus, *(item.name for item in [*broken, *whole])))


def read_strategy(spec: Fields) -> Strategy:
    """`strategy` of a Deployment's spec. UsageError."""
    with spec.inner("strategy") as fields:
        kind = fields.take("type", "RollingUpdate")
        if kind not in ("RollingUpdate", "Recreate"):
            raise UsageError(fields.at("type"), f"expected RollingUpdate or Recreate, got {kind!r}", "correct it")
        with fields.inner("rollingUpdate") as rolling:
            surge, unavailable = (read_amount(rolling, name) for name in ("maxSurge", "maxUnavailable"))
    default = Strategy()
    return Strategy(
        kind == "Recreate",
        default.surge if surge is None else surge,
        default.unavailable if unavailable is None else unavailable,
    )


def read_amount(fields: Fields, name: str) -> Amount | None:
    """A field that is a number or a percentage; None where it is missing. UsageError."""
    value = fields.any(name)
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value is None or whole or (isinstance(value, str) and re.fullmatch(r"\d+%", value)):
        return value
    raise UsageError(fields.at(name), f"expected a number or a percentage, got {value!r}", "such as 1 or 25%")


def amount(value: Amount, of: int, up: bool) -> int:
    """In pods; a share is rounded up or down.

    >>> amount("25%", 3, up=True), amount("25%", 3, up=False), amount(2, 3, up=True)
    (1, 0, 2)
    """
    if isinstance(value, int):
        return value
    share = int(value.removesuffix("%")) * of / 100
    return math.ceil(share) if up else math.floor(share)
