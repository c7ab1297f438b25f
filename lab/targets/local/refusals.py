"""What this machine cannot do to a variant while it is loaded, said before anything starts.

Refuses to ask of a control run what only its disturbance needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lab.base.errors import NotMeasurableError, refuse_if
from lab.disturbances.backends import Backends
from lab.disturbances.kill import Kill
from lab.disturbances.startup import Startup
from lab.disturbances.starve import Starve
from lab.model.disturbance import Disturbance
from lab.model.endpoint import Role
from lab.model.sweeps import Point
from lab.systems import renewing
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container
from lab.targets.local.sandbox import cgroups

LIMITS = "`just doctor` tries limits; or use --target kind"


def vet(objects: Objects, points: Iterable[Point], fixed: Callable[[Container], bool]) -> None:
    """NotMeasurableError for less CPU where no cgroup can be had, and for moved backends that the proxy would not hear of (`fixed`)."""
    containers = [container for pod in objects.role("proxy") for container in pod.containers]
    deaf = [container.place for container in containers if fixed(container)]
    for point in points:
        if point.disturbance is None:
            continue
        place, fault = f"point {point.name}", "the load balancer in front knows the proxy of its start"
        refuse_if(objects.role("balancer"), place, fault, "a variant without it", what="fixed proxies")
        if point.control:
            continue
        role, moves = touched(point.disturbance)
        for pod in objects.role(role)[:1] if role else ():
            why = cgroups.unheld(pod.containers[0].limits, squeezed=True)
            refuse_if(why, place, f"the {role} cannot be given less CPU here: {why}", LIMITS, what="CPU limits")
        if moves and deaf:
            fault = f"{deaf[0]}: this proxy knows its backends' addresses from its start, not a Service's"
            remedy = "a proxy that reads Ingresses or Routes, or --target kind"
            raise NotMeasurableError("fixed backends", place, fault, remedy)


def vet_limits(objects: Objects) -> None:
    """NotMeasurableError for limits of CPU or memory that would not hold: without them every sample would be of something else."""
    containers = [each for pod in objects.pods for each in pod.containers if each.limits]
    first = {tuple(sorted(each.limits.items())): each for each in reversed(containers)}
    for each in first.values():
        why = cgroups.unheld(each.limits)
        refuse_if(why, each.place, why, LIMITS, what="limits")


def touched(disturbance: Disturbance) -> tuple[Role | None, bool]:
    """Whose CPU is taken away, and whether other backend pods are ready then, or fewer: one that stands still misses its readiness probe, too."""
    match disturbance:
        case Starve(role=role):
            return role, False
        case Startup(cpu=str()):
            return "proxy", False
        case Backends(what="slow"):
            return "backend", False
        case Backends() | Kill(role="backend"):
            return None, True
        case _:
            return None, False


def vet_generations(objects: Objects, points: Sequence[Point], renews: Callable[[Container], bool]) -> None:
    """NotMeasurableError where a point asks for generations of workers, and no reload of the proxy makes new ones."""
    if any(point.generations > 1 for point in points):
        for container in (pod.containers[0] for pod in objects.role("proxy")):
            refuse_if(not renews(container), container.place, *renewing.NONE, what="generations of workers")
