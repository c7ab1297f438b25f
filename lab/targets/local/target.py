"""The local target: real processes in network namespaces, started from the same manifests as everywhere."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, refuse_if
from lab.disturbances.backends import Backends
from lab.disturbances.kill import Kill
from lab.disturbances.startup import Startup
from lab.disturbances.starve import Starve
from lab.generators import Generator, Installed, find
from lab.model.disturbance import Disturbance
from lab.model.endpoint import Endpoint, Role
from lab.model.events import EventLog
from lab.model.names import BRING_UP_S, INSIDE
from lab.model.pairs import SIDES, Side
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.model.variants.variants import Variant
from lab.systems import renewing, table
from lab.systems.manifests import objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.system import Context, Realisation
from lab.targets.base import nothing
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.control import Control
from lab.targets.local.control_plane.routing import Routes, Routing
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet, Make
from lab.targets.local.sandbox import cgroups, cpus, disk, namespaces, network
from lab.targets.local.system import LocalSystem

DEADLINE_S = 60.0
"""To come up: a gateway with a hundred routes takes 20 s of a CPU that it has for itself."""
HOW_TO_LIMIT = "`just doctor` tries limits; or use --target kind"
TOOLS = ("unshare", "nsenter", "setpriv", "taskset", "mount", "umount", "ip", "ss", "sysctl", "hostname", "env", "sh")
PACKAGES = "apt-get install util-linux iproute2 procps hostname coreutils"
"""What it runs beside the proxies, and where Debian has them; `just doctor` checks the same list."""


class LocalTarget:
    """Works inside the lab's namespaces, which `enter` makes; remembers the CPUs it found before it pinned itself."""

    name = "local"
    bring_up_s = BRING_UP_S["local"]
    sides: Sequence[Side] = SIDES
    deadline_s = DEADLINE_S
    """For a variant to come up."""

    def __init__(self) -> None:
        self._cpus = cpus.available()

    # -- what a target that brings the same processes up otherwise has of its own ---------------------------

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        """What is brought up on a side."""
        return variant.manifests

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> objects.Objects:
        """UsageError for what is not honoured."""
        return objects.read(manifests)

    def realise(self, context: Context) -> Realisation:
        return bringup.realise(context)

    def order(self, wanted: objects.Objects) -> Sequence[Sequence[Pod]]:
        """Pods that are started at once, when those before them are ready."""
        return [wanted.pods]

    def fixed(self, container: Container) -> bool:
        """Whether a proxy keeps the backends of its start."""
        system = table.find(container.repository)
        return system is None or system.control is None

    def renews(self, container: Container) -> bool:
        """Whether a reload of a proxy makes new workers."""
        system = table.find(container.repository)
        return system is not None and system.renew is not None

    def program_versions(self) -> Mapping[str, str]:
        """Of those on PATH that stand for images."""
        return table.program_versions()

    def routes(
        self,
        manifests: Sequence[Mapping[str, Any]],
        wanted: objects.Objects,
        net: network.Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
        side: Side,
    ) -> Routes:
        """Who tells the proxies of routes and endpoints."""
        return Routing(wanted, net.addresses, self.cpus(), log, changing=changing)

    # -- see `lab.targets.base.Target` ----------------------------------------------------------------------

    def enter(self, argv: Sequence[str]) -> int | None:
        """The exit status of `python -m lab ARGV` in namespaces of its own; None if this process is that one."""
        if INSIDE not in os.environ:
            if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
                raise UsageError(f"{self.name} target", f"not on PATH: {', '.join(missing)}", PACKAGES)
            return namespaces.enter(argv)
        namespaces.attach()
        return None

    def at(self, context: str | None) -> Self:
        if context is not None:
            fault = f"the {self.name} target has no cluster"
            raise UsageError("--context", fault, "leave it out, or name --target remote")
        return self

    def check(self) -> None:
        os.sched_setaffinity(0, self.cpus()["lab"])  # and with it every thread and helper from here on
        table.program_versions(of_backend=True)
        if not os.access("/run/lab", os.W_OK):
            raise UsageError(
                f"{self.name} target", "the lab is not inside its namespaces", "start it with `python -m lab`"
            )
        cgroups.sweep()
        disk.sweep()

    def facts(self) -> Mapping[str, str]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {
            "target": "local: directive-equivalent, not the controller (no Lua, no API server)",
            "privilege": "root" if Path("/proc/self/uid_map").read_text().split()[1] == "0" else "user namespace",
            "kernel": platform.release(),
            **self.program_versions(),
            "open_files": f"{soft} (hard {hard})",
            "container_output": "tmpfs, cut to nothing beyond 64 MiB",
            "allocator": "the C library's (the controller's image preloads mimalloc)",
            "pod_sysctls": "net.ipv4.ip_unprivileged_port_start=0",
            "service_nat": f"type LoadBalancer: nftables in a node's namespace, conntrack_max {services.conntrack_max()}",
            "client_sysctls": "net.ipv4.ip_local_port_range=1024 65535, net.ipv4.tcp_tw_reuse=1",
            **{f"cpus_{role}": cpus.as_list(numbers) for role, numbers in self.cpus().items()},
        }

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        found = set[str]().union(
            *(bringup.abouts(self.read(item.manifests), self.cpus(), self.realise) for item in variants)
        )
        return {"proxies": ", ".join(sorted(found))} if found else {}

    def installed(self, generator: Generator) -> Installed | None:
        return find(generator)

    def close(self) -> None: ...

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return cpus.split(self._cpus)

    def generator_cpus(self) -> int:
        return len(self.cpus()["generator"])

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> Mapping[str, Endpoint]:
        """UsageError for anything in a variant's manifests or a point that this target cannot honour; nothing is started."""
        variant.refuse_on(self.name)
        table.refuse_checks(variant.name, variant.readback)
        wanted = self.read(variant.manifests)
        disturbed = {point.disturbance is not None for point in points}
        if False in disturbed:
            services.vet(wanted)  # a NAT that the baseline's way has not would be measured, too
        for changing in disturbed or {False}:
            bringup.vet(services.in_front(wanted, changing), self.cpus(), self.realise)
        bringup.try_out(wanted, self.cpus(), self.realise)
        if many := next((point for point in points if point.generators > 1), None):
            fault = f"asks for {many.generators} generators, and this machine has a place for one"
            raise UsageError(f"point {many.name}", fault, "leave `generators` out, or measure it with --target kind")
        vet_limits(wanted)
        vet_points(wanted, points, self.fixed)
        vet_generations(wanted, points, self.renews)
        routed, routers = hosts.routed(variant.manifests), hosts.routers(variant.manifests)
        proxied = bool(wanted.role("proxy"))
        return {point.name: hosts.expected(routed, proxied, point, routers) for point in points}

    def makes_new_workers(self, variant: Variant) -> bool:
        return all(self.renews(pod.containers[0]) for pod in self.read(variant.manifests).role("proxy"))

    def unpaired(self, variant: Variant) -> str:
        return ""

    @contextmanager
    def up(
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = nothing,
    ) -> Iterator[LocalSystem]:
        manifests = self.manifests(variant, side)
        wanted = services.in_front(self.read(manifests), changing)
        bringup.vet(wanted, self.cpus(), self.realise)
        deadline = time.monotonic() + self.deadline_s
        log = EventLog()
        kubelet = Kubelet(log, each_probe=changing)
        with ExitStack() as undo:
            with network.complaining():
                disks = disk.Disk()
                undo.callback(disks.remove)
                names = [pod.name for pod in wanted.pods] + [services.NODE] * bool(services.balancers(wanted))
                net = network.build(names, bringup.links(wanted), network.LANES[side])
                undo.callback(net.remove)
                services.install(net, wanted)
                for port in table.sinks(wanted):
                    undo.callback(network.sink(port).close)
                routing = self.routes(manifests, wanted, net, kubelet, log, changing, side)
                undo.callback(routing.close)
                routing.begin()

                def realise(context: Context) -> Realisation:
                    return routing.equipped(context, self.realise(context))

                def job(pod: Pod) -> Make:
                    return bringup.job(
                        pod, routing.objects, net, self.cpus(), disks, kubelet.groups, routing.follow, changing, realise
                    )

                control = Control(wanted, net, kubelet, routing, log, job) if changing else None
                undo.callback(lambda: bringup.remove(control.ever if control else wanted.pods, net))
                undo.callback(kubelet.groups.remove)
                undo.callback(control.stop if control else kubelet.stop)
                undo.callback(routing.stop)
                system = LocalSystem(manifests, wanted, net, kubelet, self.cpus(), routing, control, log)
                undo.callback(system.end_helpers)
                stages = self.order(wanted)
                with_proxy = [number for number, pods in enumerate(stages, 1) if any(p.role == "proxy" for p in pods)]
                started = with_proxy[0] if with_proxy else len(stages)
                for number, pods in enumerate(stages, 1):
                    with explained(routing):
                        kubelet.wait(deadline)
                        kubelet.start([(pod, job(pod)) for pod in pods], deadline)
                    if number == started:
                        meanwhile()  # whose faults are not this routing's
                with explained(routing):
                    kubelet.wait(deadline)
                    system.wait(deadline)
                if control is not None:
                    control.adopt()
            yield system


@contextmanager
def explained(routing: Routes) -> Iterator[None]:
    """A system's fault, with what its controllers say of it."""
    try:
        yield
    except MeasuringError as error:
        raise routing.explained(error) from None


def vet_points(wanted: objects.Objects, points: Iterable[Point], fixed: Callable[[Container], bool]) -> None:
    """NotMeasurableError for less CPU where no cgroup can be had, and for moved backends that the proxy would not hear of (`fixed`)."""
    containers = [container for pod in wanted.role("proxy") for container in pod.containers]
    deaf = [container.place for container in containers if fixed(container)]
    for point in points:
        if point.disturbance is None:
            continue
        place, fault = f"point {point.name}", "the load balancer in front knows the proxy of its start"
        refuse_if(wanted.role("balancer"), place, fault, "a variant without it", what="fixed proxies")
        if point.control:
            continue
        role, moves = touched(point.disturbance)
        for pod in wanted.role(role)[:1] if role else ():
            why = cgroups.unheld(pod.containers[0].limits, squeezed=True)
            refuse_if(why, place, f"the {role} cannot be given less CPU here: {why}", HOW_TO_LIMIT, what="CPU limits")
        if moves and deaf:
            fault = f"{deaf[0]}: this proxy knows its backends' addresses from its start, not a Service's"
            remedy = "a proxy that reads Ingresses or Routes, or --target kind"
            raise NotMeasurableError("fixed backends", place, fault, remedy)


def vet_limits(wanted: objects.Objects) -> None:
    """NotMeasurableError for limits of CPU or memory that would not hold: without them every sample would be of something else."""
    containers = [each for pod in wanted.pods for each in pod.containers if each.limits]
    first = {tuple(sorted(each.limits.items())): each for each in reversed(containers)}
    for each in first.values():
        why = cgroups.unheld(each.limits)
        refuse_if(why, each.place, why, HOW_TO_LIMIT, what="limits")


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


def vet_generations(wanted: objects.Objects, points: Sequence[Point], renews: Callable[[Container], bool]) -> None:
    """NotMeasurableError where a point asks for generations of workers, and no reload of the proxy makes new ones."""
    if any(point.generations > 1 for point in points):
        for container in (pod.containers[0] for pod in wanted.role("proxy")):
            refuse_if(not renews(container), container.place, *renewing.NONE, what="generations of workers")
