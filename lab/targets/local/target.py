"""The target `local`: real processes in network namespaces, started from the same manifests as on the other targets."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, refuse_if
from lab.base.files import read_text_if_readable
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
from lab.model.sweeps import LoadPoint
from lab.model.variants import hosts
from lab.model.variants.variants import Variant
from lab.systems import programs, renewing, table
from lab.systems.manifests import objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.system import Context, Realisation
from lab.targets.base import do_nothing
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.control import ControlPlane
from lab.targets.local.control_plane.routing import FileRouting, Routes
from lab.targets.local.kubelet import bringup
from lab.targets.local.kubelet.kubelet import Kubelet, MakeContainer
from lab.targets.local.sandbox import cgroups, cpus, disk, namespaces, network
from lab.targets.local.system import LocalSystem

DEADLINE_S = 60.0
"""The seconds within which a variant must come up.

A gateway with a hundred routes takes 20 s on a CPU that no other process uses.
"""
HOW_TO_LIMIT = "`just doctor` tries limits; or use --target kind"
"""The remedy of an error for a limit that cannot be applied."""
TOOLS = ("unshare", "nsenter", "setpriv", "taskset", "mount", "umount", "ip", "ss", "sysctl", "hostname", "env", "sh")
"""The programs that the target runs in addition to the proxies; `just doctor` checks the same list."""
PACKAGES = "apt-get install util-linux iproute2 procps hostname coreutils"
"""The command that installs these programs on Debian."""


class LocalTarget:
    """The target `local`: a system's programs run as processes on this machine, inside the lab's namespaces.

    `enter` makes the namespaces. The object remembers which CPUs the lab could use at first, because `check` later
    pins the lab to some of them.
    """

    name = "local"
    bring_up_s = BRING_UP_S["local"]
    sides: Sequence[Side] = SIDES

    def __init__(self) -> None:
        self._cpus = cpus.list_available()

    # -- methods that a target overrides if it brings up the same processes in another way --

    def manifests(self, variant: Variant, side: Side) -> Sequence[Mapping[str, Any]]:
        """Return the manifests of a variant, for one side of a pair (two systems that are up at once).

        On this target they are the same for both sides.
        """
        return variant.manifests

    def read(self, manifests: Sequence[Mapping[str, Any]]) -> objects.Objects:
        """Parse manifests into the objects from which the lab starts processes.

        Raises:
            UsageError: A field is not supported.

        """
        return objects.read_objects(manifests)

    def realise(self, context: Context) -> Realisation:
        """Return the command, environment and files to start instead of a container's image.

        Raises:
            UsageError: The image has another version than the program that runs instead of it.

        """
        return bringup.realise(context)

    def order(self, objects: objects.Objects) -> Sequence[Sequence[Pod]]:
        """Return the pods in stages: a stage is started when all pods of the stages before it are ready.

        On this target there is a single stage.
        """
        return [objects.pods]

    def fixed(self, container: Container) -> bool:
        """Return whether the proxy in a container always uses the backends that existed at its start."""
        system = table.find(container.repository)
        return system is None or system.control is None

    def renews(self, container: Container) -> bool:
        """Return whether a reload of the proxy in a container starts new worker processes."""
        system = table.find(container.repository)
        return system is not None and system.renew is not None

    def program_versions(self) -> Mapping[str, str]:
        """Return program → version for those programs on PATH that the lab runs in place of container images."""
        return table.program_versions()

    def routes(
        self,
        manifests: Sequence[Mapping[str, Any]],
        objects: objects.Objects,
        net: network.Network,
        kubelet: Kubelet,
        log: EventLog,
        changing: bool,
        side: Side,
    ) -> Routes:
        """Return the component that passes routes and endpoints to a system's proxies.

        Args:
            manifests: The manifests that `objects` were read from.
            objects: The objects of the variant.
            net: The network of the system.
            kubelet: The kubelet with the system's pods.
            log: The log for events.
            changing: Whether pods and routes may change while the system is up.
            side: `left` or `right`, if the system is one of a pair (two systems that are up at once).

        """
        return FileRouting(objects, net.addresses, self.cpus(), log, changing=changing)

    # -- methods of `lab.targets.base.Target` --

    def enter(self, argv: Sequence[str]) -> int | None:
        """Run `python -m lab ARGV` inside new namespaces, and return its exit status.

        If this process is inside the namespaces already, it is prepared for measurements, and the result is None.

        Raises:
            UsageError: A program is missing, or the machine does not allow the namespaces.

        """
        if INSIDE not in os.environ:
            if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
                raise UsageError(f"{self.name} target", f"not on PATH: {', '.join(missing)}", PACKAGES)
            return namespaces.enter(argv)
        namespaces.attach()
        return None

    def check(self) -> None:
        """Check the prerequisites, pin the lab to its CPUs, and remove what ended lab processes have left on this machine.

        Raises:
            UsageError: A prerequisite is missing.

        """
        os.sched_setaffinity(0, self.cpus()["lab"])  # and with it every later thread and helper process
        table.program_versions(of_backend=True)
        refuse_if(
            not os.access("/run/lab", os.W_OK),
            f"{self.name} target",
            "the lab is not inside its namespaces",
            "start it with `python -m lab`",
        )
        cgroups.sweep()
        disk.sweep()

    def facts(self) -> Mapping[str, str]:
        """Return the facts that describe this target in a run's record, by name: versions, limits, and the CPUs of each role."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The kernel shows the size of the table once anything has used connection tracking.
        conntrack_max = read_text_if_readable(services.CONNTRACK_MAX).strip() or "unknown"
        return {
            "target": "local: directive-equivalent, not the controller (no Lua, no API server)",
            "privilege": "root" if namespaces.is_real_root() else "user namespace",
            "kernel": platform.release(),
            **self.program_versions(),
            "open_files": f"{soft} (hard {hard})",
            "container_output": "tmpfs, cut to nothing beyond 64 MiB",
            "allocator": "the C library's (the controller's image preloads mimalloc)",
            "pod_sysctls": "net.ipv4.ip_unprivileged_port_start=0",
            "service_nat": f"type LoadBalancer: nftables in a node's namespace, conntrack_max {conntrack_max}",
            "client_sysctls": "net.ipv4.ip_local_port_range=1024 65535, net.ipv4.tcp_tw_reuse=1",
            **{f"cpus_{role}": cpus.format_list(numbers) for role, numbers in self.cpus().items()},
        }

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        """Return the fact `proxies`: the names and versions of programs that the variants run and that the lab has fetched.

        The result is empty if the variants run only programs that are installed on this machine.
        """
        programs = set[str]().union(
            *(bringup.list_programs(self.read(item.manifests), self.cpus(), self.realise) for item in variants)
        )
        return {"proxies": ", ".join(sorted(programs))} if programs else {}

    def installed(self, generator: Generator) -> Installed | None:
        """Return the program (path and version) of a load generator on this machine; None if it is not installed.

        A generator that is part of the lab is built first.
        """
        if generator.own:
            programs.provide_own_program(generator.binary)
        return find(generator)

    def close(self) -> None:
        """Do nothing, because the target itself has nothing to release; each system cleans up when it ends."""

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        """Return the numbers of the CPUs to which each role is pinned."""
        return cpus.split(self._cpus)

    def generator_cpus(self) -> int:
        """Return the number of CPUs that a load generator may use."""
        return len(self.cpus()["generator"])

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Check that this target can run a variant and serve the load points (loads of a sweep), without starting anything.

        Returns:
            Name of the load point → the endpoint that its load will go to.

        Raises:
            UsageError: The manifests or a point contain something that this target does not support. It is a
                NotMeasurableError if only this target or machine cannot measure the variant.

        """
        variant.refuse_on(self.name)
        table.refuse_checks(variant.name, variant.readback)
        objects = self.read(variant.manifests)
        disturbed = {point.disturbance is not None for point in points}
        if False in disturbed:
            services.check_way(objects)  # else several proxies would get a node's NAT, which the baseline lacks
        for changing in disturbed or {False}:
            bringup.check_objects(services.add_node_nat(objects, changing), self.cpus(), self.realise)
        bringup.try_out(objects, self.cpus(), self.realise)
        for point in points:
            refuse_if(
                point.generators > 1,
                f"point {point.name}",
                f"asks for {point.generators} generators, and this machine has a place for one",
                "leave `generators` out, or measure it with --target kind",
            )
        vet_limits(objects)
        check_points(objects, points, self.fixed)
        vet_generations(objects, points, self.renews)
        routed, routers = hosts.find_hosts(variant.manifests), hosts.find_routers(variant.manifests)
        proxied = bool(objects.role("proxy"))
        return {point.name: hosts.expect_endpoint(routed, proxied, point, routers) for point in points}

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload of the variant's proxy starts new worker processes; True if there is no proxy."""
        return all(self.renews(pod.containers[0]) for pod in self.read(variant.manifests).role("proxy"))

    def unpaired(self, variant: Variant) -> str:
        """Return an empty text, because here any two variants can be up at once (as a pair).

        On other targets the text is the reason why a variant cannot.
        """
        return ""

    @contextmanager
    def up(
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = do_nothing,
    ) -> Iterator[LocalSystem]:
        """Start a variant's processes, yield the system once it serves, and remove the system after the `with` block.

        Args:
            variant: The variant.
            changing: Whether pods and routes may change while the system is up.
            side: `left` or `right`, if two variants are up at once (a pair). A variant that is up alone is on the left.
            meanwhile: A function that is called once, after the proxy was started and before the wait for its
                readiness. An error in the function ends the bring-up.

        Raises:
            MeasuringError: The variant does not come up.

        """
        manifests = self.manifests(variant, side)
        objects = services.add_node_nat(self.read(manifests), changing)
        bringup.check_objects(objects, self.cpus(), self.realise)
        deadline = time.monotonic() + DEADLINE_S
        log = EventLog()
        kubelet = Kubelet(log, each_probe=changing)
        with ExitStack() as undo:
            with network.as_measuring_error():
                disks = disk.DiskVolumes()
                undo.callback(disks.remove)
                names = [pod.name for pod in objects.pods] + [services.NODE] * bool(services.list_balancers(objects))
                net = network.build_network(names, bringup.list_links(objects), network.SIDE_NAMES[side])
                undo.callback(net.remove)
                services.install(net, objects)
                for port in table.list_sinks(objects):
                    undo.callback(network.open_sink(port).close)
                routing = self.routes(manifests, objects, net, kubelet, log, changing, side)
                undo.callback(routing.close)
                routing.begin()

                def realise(context: Context) -> Realisation:
                    return routing.equipped(context, self.realise(context))

                def job(pod: Pod) -> MakeContainer:
                    return bringup.prepare_pod(
                        pod, routing.objects, net, self.cpus(), disks, kubelet.groups, routing.follow, changing, realise
                    )

                control = ControlPlane(objects, net, kubelet, routing, log, job) if changing else None
                undo.callback(lambda: bringup.remove(control.ever if control else objects.pods, net))
                undo.callback(kubelet.groups.remove)
                undo.callback(control.stop if control else kubelet.stop)
                undo.callback(routing.stop)
                system = LocalSystem(manifests, objects, net, kubelet, self.cpus(), routing, control, log)
                undo.callback(system.end_helpers)
                stages = self.order(objects)
                with_proxy = [number for number, pods in enumerate(stages, 1) if any(p.role == "proxy" for p in pods)]
                started = with_proxy[0] if with_proxy else len(stages)
                for number, pods in enumerate(stages, 1):
                    with explained(routing):
                        kubelet.wait(deadline)
                        kubelet.start([(pod, job(pod)) for pod in pods], deadline)
                    if number == started:
                        meanwhile()  # outside `explained`, because its faults are not the controllers' matter
                with explained(routing):
                    kubelet.wait(deadline)
                    system.wait(deadline)
                if control is not None:
                    control.adopt()
            yield system


@contextmanager
def explained(routing: Routes) -> Iterator[None]:
    """Add the controllers' own error messages to a MeasuringError that is raised in the `with` block.

    The `with` block waits for a system to come up. Without such messages the error stays as it is.

    Args:
        routing: The component that passes routes to the proxies and can read the controllers' messages.

    Raises:
        MeasuringError: The error that the `with` block raised, with the messages.

    """
    try:
        yield
    except MeasuringError as error:
        raise routing.explained(error) from None


def check_points(objects: objects.Objects, points: Iterable[LoadPoint], fixed: Callable[[Container], bool]) -> None:
    """Refuse load points (loads of a sweep) with a disruption, such as a deleted pod, that this target cannot make.

    Args:
        objects: The objects of the variant.
        points: The load points.
        fixed: The function that returns whether a proxy always uses the backends that it had at its start.

    Raises:
        NotMeasurableError: A load balancer is in front of the proxy. Or the disruption limits CPU, and no cgroup for
            CPU can be made here. Or the disruption changes the backends, and the proxy would not notice.

    """
    fixed_places = [
        container.place for pod in objects.role("proxy") for container in pod.containers if fixed(container)
    ]
    for point in points:
        if point.disturbance is None:
            continue
        place, fault = f"point {point.name}", "the load balancer in front knows the proxy of its start"
        refuse_if(objects.role("balancer"), place, fault, "a variant without it", what="fixed proxies")
        if point.control:
            continue
        role, moves = find_needs(point.disturbance)
        for pod in objects.role(role)[:1] if role else ():
            reason = cgroups.find_limit_fault(pod.containers[0].limits, squeezed=True)
            refuse_if(
                reason, place, f"the {role} cannot be given less CPU here: {reason}", HOW_TO_LIMIT, what="CPU limits"
            )
        if moves and fixed_places:
            fault = f"{fixed_places[0]}: this proxy knows its backends' addresses from its start, not a Service's"
            remedy = "a proxy that reads Ingresses or Routes, or --target kind"
            raise NotMeasurableError("fixed backends", place, fault, remedy)


def vet_limits(objects: objects.Objects) -> None:
    """Refuse a variant whose CPU and memory limits cannot be applied on this machine.

    Without the limits, every sample would measure something else. Each combination of limits is tried once.

    Raises:
        NotMeasurableError: A limit cannot be applied.

    """
    containers = [container for pod in objects.pods for container in pod.containers if container.limits]
    first = {tuple(sorted(container.limits.items())): container for container in reversed(containers)}
    for container in first.values():
        reason = cgroups.find_limit_fault(container.limits)
        refuse_if(reason, container.place, reason, HOW_TO_LIMIT, what="limits")


def find_needs(disturbance: Disturbance) -> tuple[Role | None, bool]:
    """Return the role whose CPU a disruption limits, and whether the disruption changes which backend pods are ready.

    Returns:
        The role, or None if the disruption limits no CPU. And True if the ready backend pods change. A backend pod that
        is only stopped counts, too, because its readiness probe then fails.

    """
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


def vet_generations(objects: objects.Objects, points: Sequence[LoadPoint], renews: Callable[[Container], bool]) -> None:
    """Refuse loads that need several worker generations if no reload of the proxy starts new worker processes.

    A worker generation is the worker processes between two reloads.

    Args:
        objects: The objects of the variant.
        points: The load points (the loads of a sweep).
        renews: The function that returns whether a reload of the proxy in a container starts new workers.

    Raises:
        NotMeasurableError: There is such a load point, and the proxy's reloads start no new workers.

    """
    if any(point.generations > 1 for point in points):
        for container in (pod.containers[0] for pod in objects.role("proxy")):
            refuse_if(not renews(container), container.place, *renewing.NOT_RENEWABLE, what="generations of workers")
