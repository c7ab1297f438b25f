"""A cluster as a target: it takes its place there once, and brings each variant up with the API server's own means.

Kind and remote differ in how they find the cluster, and in what can be seen of its machines from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError, NotMeasurableError, UsageError
from lab.base.quantities import quantity
from lab.generators import Generator, Installed
from lab.model.endpoint import Endpoint, Role
from lab.model.names import BRING_UP_S
from lab.model.pairs import SIDES, Side
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import Variant
from lab.systems import renewing
from lab.systems.table import READBACKS, find, refuse_checks
from lab.targets.base import nothing
from lab.targets.cluster import docker, facts, images, objects, rollout
from lab.targets.cluster.api import CLIENT_NAMESPACE, Api, right
from lab.targets.cluster.client import ClientPod
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import NODE_SCOPE, Inventory, claim_namespace
from lab.targets.cluster.lease import Lease, holder, run_id
from lab.targets.cluster.others import Kubelets, Others, together
from lab.targets.cluster.system import ClusterSystem

DEADLINE_S = 120.0
"""For a variant: images are there, but a node may be slow."""
CLIENT_DEADLINE_S = 180.0
"""For the generator's pod, whose image may still have to be pulled."""
CORES = {(kind, name): noun for kind, how in READBACKS.items() for name, noun in how.workers.items()}
FILES = {("limit", "Max open files"), *((kind, name) for kind, how in READBACKS.items() for name in how.open_files)}
"""(kind, name) of the checks whose value is a number of workers or threads, and of open files."""


@dataclass
class _Place:
    """What `check` took."""

    api: Api
    images: Images
    lease: Lease
    inventories: Mapping[Side, Inventory]
    client: ClientPod
    nodes: list[dict[str, Any]]
    others: Others


class ClusterTarget:
    """See `lab.targets.base.Target`. `connect` gives the API server, or a UsageError that says how to get a cluster.

    `machine`: who sees what else runs on the nodes' machine, where that is this one.
    """

    bring_up_s = BRING_UP_S["kind"]
    sides: Sequence[Side] = SIDES

    def __init__(
        self, name: str, connect: Callable[[], Api], about: str, machine: Callable[[], Others] | None = None
    ) -> None:
        self.name = name
        self._connect, self._about, self._machine = connect, about, machine
        self._run = run_id()
        self._stamps = count(1)
        self._taken: _Place | None = None
        self._there: dict[Side, ClusterSystem] = {}

    def at(self, context: str | None) -> ClusterTarget:
        if context is not None:
            fault = f"belongs to --target remote; --target {self.name} has a cluster of its own"
            raise UsageError("--context", fault, "leave it out, or name --target remote")
        return self

    def enter(self, argv: Sequence[str]) -> int | None:
        return None

    def check(self) -> None:
        if self._taken is not None:
            self._taken.lease.check()
            return
        docker.bring("kubectl")
        chosen = images.load()
        api = self._connect()
        claim_namespace(api, CLIENT_NAMESPACE, self._run)
        inventories: dict[Side, Inventory] = {side: Inventory(api, self._run, side) for side in self.sides}
        lease = Lease(api, holder(self._run))
        lease.acquire()
        try:
            for inventory in inventories.values():
                inventory.take_over()  # what a lab left that ended in the middle
            client = ClientPod.ensure(api, chosen, self._run, time.monotonic() + CLIENT_DEADLINE_S)
            nodes = api.list("v1", "Node")
            others: Others = Kubelets(api)
            if self._machine is not None:
                others = together(others, self._machine())
        except BaseException:
            lease.release()
            raise
        self._taken = _Place(api, chosen, lease, inventories, client, nodes, others)

    def installed(self, generator: Generator) -> Installed | None:
        return self._place.client.installed(generator)

    def brought(self, variants: Iterable[Variant]) -> Mapping[str, str]:
        return {}  # the images are what runs

    def facts(self) -> Mapping[str, str]:
        taken = self._place
        system = taken.api.get("v1", "Namespace", "kube-system")
        known = {"cluster": system["metadata"]["uid"]} if system else {}
        return {"target": self._about, **known, **facts.facts(taken.api, taken.images)}

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return {}

    def generator_cpus(self) -> int | None:
        return self._place.client.cpus

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> Mapping[str, Endpoint]:
        """UsageError for what the variant's routes cannot serve, or this cluster cannot show."""
        variant.refuse_on(self.name)
        refuse_checks(variant.name, variant.readback)
        taken, there = self._place, objects.on_cluster(variant.manifests)
        for point in points:
            if point.link_mbit is not None:
                why = f"point {point.name} shapes the client's link, which is not done on a cluster"
                raise NotMeasurableError("link", variant.name, why, "measure it with --target local")
        if any(objects.role(obj) == "balancer" for obj in there):
            why = "its load balancer is a process of the lab's, which is no way into a cluster here"
            raise NotMeasurableError("load balancer", variant.name, why, "measure it with --target local or apiserver")
        if any(point.disturbance is not None for point in points) and any(map(objects.headless, there)):
            fault = "its Service is headless: it has no address that stays when its pods change"
            raise NotMeasurableError("disturbances", variant.name, fault, "a Service with a cluster IP")
        vet(variant, largest_cpus(taken.nodes), taken.client.open_files)
        objects.vet(taken.api, there)
        if any(point.generations > 1 for point in points) and not renews(there):
            raise NotMeasurableError("generations of workers", variant.name, *renewing.NONE)
        routed, routers = hosts.routed(there), hosts.routers(there)
        proxied = any(objects.role(obj) == "proxy" for obj in there)
        return {point.name: hosts.expected(routed, proxied, point, routers) for point in points}

    def makes_new_workers(self, variant: Variant) -> bool:
        return renews(objects.on_cluster(variant.manifests))

    def unpaired(self, variant: Variant) -> str:
        for obj in objects.flat(objects.on_cluster(variant.manifests)):
            if objects.pod_template(obj) is None:
                continue
            spec = objects.pod_spec(obj)
            if NODE_SCOPE in objects.pod_labels(obj).items():
                return "it sets the node's kernel, which both sides have"
            if spec.get("hostNetwork"):
                return "its proxy has the node's own ports"
            if any(port.get("hostPort") for container in spec["containers"] for port in container.get("ports") or ()):
                return "its proxy has ports of the node's"
        return ""

    @contextmanager
    def up(
        self, variant: Variant, changing: bool = False, side: Side = "left", meanwhile: Callable[[], object] = nothing
    ) -> Iterator[ClusterSystem]:
        taken = self._place
        inventory = taken.inventories[side]
        taken.lease.check()
        stamp = f"{self._run}-{next(self._stamps)}"
        there = placed(objects.on_cluster(variant.manifests), side)
        wanted = objects.prepare(there, taken.images, self._run, stamp)
        if (other := next(iter(self._there.values()), None)) is not None:
            objects.beside(wanted, other.nodes())
        pending_s = objects.pending_s(wanted)
        deadline = time.monotonic() + DEADLINE_S + pending_s
        system: ClusterSystem | None = None
        ended_well = False
        with right():
            try:
                inventory.apply(wanted)
                if len(taken.nodes) == 1:
                    meanwhile()
                rollout.wait(taken.api, wanted, deadline)
                inventory.await_pods(stamp)  # the last variant's, which have had that time to end
                still_until = time.monotonic() + pending_s
                system = ClusterSystem(
                    taken.api,
                    taken.images,
                    taken.client,
                    wanted,
                    next(obj["metadata"]["namespace"] for obj in wanted if objects.role(obj) == "backend"),
                    self._run,
                    taken.others,
                    taken.lease.check,
                    inventory if changing else None,
                )
                with taken.client.resolving(system.addresses()):
                    try:
                        system.wait(deadline, still_until)
                        self._there[side] = system
                        if len(taken.nodes) > 1:
                            meanwhile()  # the other side's pods go where these are
                        yield system
                    finally:
                        self._there.pop(side, None)
                        taken.lease.check()  # LostError: the pod's hosts are another lab's now
                ended_well = True
            except LostError:
                raise
            except LabError:
                # A cluster that is gone, or another lab's now, says nothing about the variant: LostError.
                taken.lease.check()
                taken.api.version()
                raise
            finally:
                if system is not None:
                    system.close()
                with suppress(*(() if ended_well else (LabError,))):  # the first fault is the one to tell
                    taken.lease.check()
                    if system is not None and changing:
                        system.settle(system.kill)
                    inventory.end_workloads()

    def close(self) -> None:
        taken, self._taken = self._taken, None
        if taken is None:
            return
        remedy = "another lab may be using what is there: nothing was removed; `just down` takes it all when none does"
        try:
            taken.client.close()
            taken.lease.check()
            remedy = "what the lab made is still there: the next run there removes it, or `just down` takes all of it"
            for inventory in taken.inventories.values():
                inventory.remove()
        except LabError as error:
            raise MeasuringError(error.place, error.fault, remedy) from None
        finally:
            taken.lease.release()

    @property
    def _place(self) -> _Place:
        assert self._taken is not None, "check() comes first"
        return self._taken


def vet(variant: Variant, cpus: int, open_files: int | None) -> None:
    """NotMeasurableError for more workers or threads than the largest node has CPUs, or more open files than a pod may have.

    Told by the variant's read-backs, before anything starts: they say what the running system must show, so whatever sets it
    (a ConfigMap's key, an environment variable) is found.
    """
    for check in variant.readback:
        place, what = f"{variant.name}: {check.name}", (check.kind, check.name or "")
        if (noun := CORES.get(what)) and check.value.isdigit() and int(check.value) > cpus:
            has = "1 CPU" if cpus == 1 else f"{cpus} CPUs"
            fault = f"asks for {check.value} {noun}, the largest node has {has}"
            raise NotMeasurableError("cores", place, fault, f"a node with more CPUs, or {cpus} at most")
        if what in FILES and open_files is not None and check.value.isdigit() and int(check.value) > open_files:
            fault = f"asks for {check.value} open files, a container may have {open_files} here"
            raise NotMeasurableError("open files", place, fault, "raise the nodes' limit (LimitNOFILE of containerd)")


def placed(manifests: Sequence[Mapping[str, Any]], side: Side) -> Sequence[Mapping[str, Any]]:
    """As they are brought up on a side: one list of addresses serves the clients of both, so TLS, which needs names, needs two."""
    own = objects.on_side(manifests, side)
    if side == "left" or set(hosts.routed(own).values()) == {"none"}:
        return own
    # As long as the left's.
    return [objects.renamed(obj, objects.DOMAIN, side[0] + objects.DOMAIN[1:]) for obj in own]


def renews(manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a reload makes new workers of the proxy, if there is one."""
    proxies = [obj for obj in objects.flat(manifests) if objects.role(obj) == "proxy"]
    named = (images.split(objects.pod_spec(obj)["containers"][0]["image"])[0] for obj in proxies)
    return all(system is not None and system.renew_in_cluster for system in map(find, named))


def largest_cpus(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Of the nodes that proxies may run on: one marked for the generator counts only where there is no other.

    Its capacity, not what is left of it for pods: that is how many a process there finds.
    """
    marked = [node for node in nodes if (node["metadata"].get("labels") or {}).get(ROLE_LABEL) == "generator"]
    others = [node for node in nodes if node not in marked]
    return max(int(quantity(node["status"]["capacity"]["cpu"])) for node in others or marked)
