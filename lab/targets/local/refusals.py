"""What this machine cannot do to a variant while it is loaded, said before anything starts.

Refuses to ask of a control run what only its disturbance needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lab.base.errors import NotMeasurableError
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


def vet(objects: Objects, points: Iterable[Point], fixed: Callable[[Container], bool]) -> None:
    """NotMeasurableError for less CPU where no cgroup can be had, and for moved backends that the proxy would not hear of (`fixed`)."""
    for point in points:
        if point.disturbance is not None and objects.role("balancer"):
            fault = "the load balancer in front knows the proxy of its start"
            raise NotMeasurableError("fixed proxies", f"point {point.name}", fault, "a variant without it")
        if point.disturbance is not None and not point.control:
            place, role = f"point {point.name}", squeezed(point.disturbance)
            for pod in objects.role(role)[:1] if role else ():
                if why := cgroups.no_room(pod.containers[0].limits):
                    fault = f"the {role} cannot be given less CPU here: {why}"
                    raise NotMeasurableError(
                        "CPU limits", place, fault, "`just doctor` tries limits; or use --target kind"
                    )
            containers = [container for pod in objects.role("proxy") for container in pod.containers]
            if moves_backends(point.disturbance) and (deaf := [each for each in containers if fixed(each)]):
                fault = f"{deaf[0].place}: this proxy knows its backends' addresses from its start, not a Service's"
                remedy = "a proxy that reads Ingresses or Routes, or --target kind"
                raise NotMeasurableError("fixed backends", place, fault, remedy)


def vet_limits(objects: Objects) -> None:
    """NotMeasurableError for limits of CPU or memory that would not hold: without them every sample would be of something else."""
    containers = [each for pod in objects.pods for each in pod.containers if each.limits]
    for limits in {tuple(sorted(each.limits.items())): None for each in containers}:
        if why := cgroups.unheld(dict(limits)):
            place = next(each.place for each in containers if tuple(sorted(each.limits.items())) == limits)
            raise NotMeasurableError("limits", place, why, "`just doctor` tries limits; or use --target kind")


def squeezed(disturbance: Disturbance) -> Role | None:
    """Whose CPU is taken away."""
    match disturbance:
        case Starve(role=role):
            return role
        case Startup(cpu=str()):
            return "proxy"
        case Backends(what="slow"):
            return "backend"
        case _:
            return None


def moves_backends(disturbance: Disturbance) -> bool:
    """Whether other backend pods are ready then, or fewer: one that stands still misses its readiness probe, too."""
    match disturbance:
        case Backends(what=what):
            return what != "slow"
        case Kill(role=role):
            return role == "backend"
        case _:
            return False


def vet_generations(objects: Objects, points: Sequence[Point], renews: Callable[[Container], bool]) -> None:
    """NotMeasurableError where a point asks for generations of workers, and no reload of the proxy makes new ones."""
    if all(point.generations == 1 for point in points):
        return
    containers = [pod.containers[0] for pod in objects.role("proxy")]
    if fixed := [container for container in containers if not renews(container)]:
        raise NotMeasurableError("generations of workers", fixed[0].place, *renewing.NONE)
