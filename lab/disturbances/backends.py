"""The disruption of the pods behind the proxy: one is added, removed, killed or frozen, or all are slowed or replaced.

add, remove   one pod more, one pod less (`remove` starts with an extra pod, so that the usual number is left)
fail          SIGKILL to the first container of a pod; the kubelet starts it again
freeze        the processes of a pod are stopped: the kernel accepts connections, and nothing answers
slow          the CPU of every pod is limited
roll          a rolling update of the Deployment to the same containers, by its strategy
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from lab.base.validation import refuse_broken_rules
from lab.disturbances._asked import await_answers, deployment, reload_interval_s, replicas, status_fault
from lab.disturbances.starve import CPU
from lab.model.disturbance import Disturbance, DisturbanceContext, Manifests
from lab.model.endpoint import Response

Action = Literal["add", "remove", "fail", "freeze", "slow", "roll"]
PASSING: frozenset[Action] = frozenset({"freeze", "slow"})
"""The actions that the lab undoes after `for_s` seconds; the other actions happen once."""
READY_S = 60.0


class Backends(Disturbance):
    """The disruption of the backend pods behind the proxy.

    The field `what` names the action: `add` or `remove` a pod, `fail` (kill a container), `freeze` a pod, `slow` (limit the
    CPU of every pod), or `roll` (a rolling update of all pods).
    """

    kind: Literal["backends"] = "backends"
    what: Action
    for_s: float | None = Field(default=None, ge=1, le=3600, description="freeze, slow: how long")
    cpu: str | None = Field(default=None, pattern=CPU, description="slow: what each pod is left with, as 20m")
    recovers_s: float = Field(default=10.0, ge=1, le=3600, description="how long it may still matter afterwards")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        refuse_broken_rules(
            (
                (self.for_s is not None) != (self.what in PASSING),
                f"disturbance.for_s: it belongs to {' and '.join(sorted(PASSING))}",
            ),
            ((self.cpu is not None) != (self.what == "slow"), "disturbance.cpu: it belongs to slow"),
        )
        return self

    @property
    def lasts_s(self) -> float:
        """The seconds from the beginning of the disruption until the system should have recovered, plus one second."""
        return (self.for_s or 0.0) + self.recovers_s + 1

    @property
    def acts_s(self) -> float:
        """The seconds for which the disruption of the backend pods acts.

        A freeze or slowdown acts until it is undone. Any other action is momentary, and counts as acting until the system should
        have recovered.
        """
        return self.for_s or self.recovers_s

    def vet(self, manifests: Manifests) -> None:
        """Refuse a variant without a backend Deployment."""
        deployment(manifests, "backend")

    @property
    def prepared(self) -> tuple[object, ...]:
        """A tuple that identifies what the disruption sets up before the load; it includes whether there is an extra backend pod.

        Only the action `remove` needs the extra pod. Load points (loads of a sweep) with equal tuples share their
        control runs, which are runs without the disruption.
        """
        return *super().prepared, self.what == "remove"

    def prepare(self, context: DisturbanceContext) -> None:
        """Add a backend pod for the action `remove`, and wait until every backend pod has answered a request.

        The action `remove` later removes one pod, so that the usual number is left. For any other action do nothing.
        """
        if self.what != "remove":
            return
        count = replicas(context.manifests, "backend") + 1
        context.system.scale("backend", count)
        pods: set[str] = set()

        def check(answer: Response) -> str:
            if answer.status == 200:
                pods.add(answer.headers["x-lab-backend"])
            return "" if len(pods) >= count else status_fault(answer) or f"{len(pods)} of {count} did"

        within_s = READY_S + reload_interval_s(context.manifests)
        await_answers(
            context, context.system.entry(), check, within_s, f"not all backend pods answered in {within_s:g} s"
        )

    def disturb(self, context: DisturbanceContext) -> None:
        """Apply the action (the field `what`) to the backend pods, and wait until the system should have recovered.

        A freeze or slowdown is undone after `for_s` seconds.
        """
        system, count = context.system, replicas(context.manifests, "backend")
        acted_s = self.at_s + (self.for_s or 0.0)
        context.say("Begin", detail=self.what, role="backend")
        try:
            match self.what:
                case "add":
                    system.scale("backend", count + 1)
                case "remove":
                    system.scale("backend", count)
                case "fail":
                    system.end_pod("backend", "crash")
                case "freeze":
                    system.freeze("backend", True)
                case "slow":
                    system.squeeze("backend", self.cpu)
                case "roll":
                    system.roll("backend")
            context.wait_until(acted_s)
        finally:
            if self.what == "freeze":
                system.freeze("backend", False)
            elif self.what == "slow":
                system.squeeze("backend", None)
        if self.what not in PASSING:
            context.wait_until(acted_s + self.recovers_s)
        context.say("End", detail=self.what, role="backend")
        context.wait_until(acted_s + self.recovers_s)
