"""A Kubernetes cluster as a target (a place where variants run and are measured), for the targets kind and remote.

It acquires the right to measure on the cluster once, and then starts each variant through the API server. The two targets
differ in how they reach the cluster, and in how much of its machines can be observed from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError, refuse_if
from lab.base.quantities import parse_quantity
from lab.generators import Generator, Installed
from lab.model.endpoint import Endpoint
from lab.model.names import BRING_UP_S
from lab.model.pairs import SIDES, Side
from lab.model.sweeps import LoadPoint
from lab.model.variants import hosts
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import Variant
from lab.systems import renewing
from lab.systems.table import READBACKS, find, refuse_checks
from lab.targets.base import Target, do_nothing
from lab.targets.cluster import docker, facts, images, objects, rollout
from lab.targets.cluster.api import CLIENT_NAMESPACE, Api, lost_without_right
from lab.targets.cluster.client import ClientPod
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import NODE_SCOPE, Inventory, claim_namespace
from lab.targets.cluster.lease import Lease, format_holder, make_run_id
from lab.targets.cluster.others import Kubelets, OtherUsageSource, sum_sources
from lab.targets.cluster.system import ClusterSystem

DEADLINE_S = 120.0
"""The seconds in which a variant must come up: its images are there, but a node may be slow."""
CLIENT_DEADLINE_S = 180.0
"""The seconds in which the generator's pod must come up, whose image may still have to be pulled."""
WORKER_CHECKS = {(kind, name): noun for kind, readback in READBACKS.items() for name, noun in readback.workers.items()}
"""The noun (workers, threads …) for each check, by (kind, name), whose value is their number."""
OPEN_FILES_CHECKS = {
    ("limit", "Max open files"),
    *((kind, name) for kind, readback in READBACKS.items() for name in readback.open_files),
}
"""The (kind, name) of the checks whose value is a number of open files."""


@dataclass
class _Session:
    """The connections and objects that a target has on a cluster, from `ClusterTarget.check` to `ClusterTarget.close`.

    Attributes:
        api: The client for the cluster's API server.
        images: The images to use.
        lease: The lease, which keeps other processes of the lab away.
        inventories: `left` or `right`, for the two variants that may be up at once (a pair) → the list of the lab's
            objects for this variant.
        client: The generator's pod.
        nodes: The cluster's nodes, as the API server describes them.
        others: The source of the CPU that other people's programs use on the nodes.

    """

    api: Api
    images: Images
    lease: Lease
    inventories: Mapping[Side, Inventory]
    client: ClientPod
    nodes: list[dict[str, Any]]
    others: OtherUsageSource


class ClusterTarget(Target):
    """A Kubernetes cluster as a target; it implements the protocol `lab.targets.base.Target`."""

    bring_up_s = BRING_UP_S["kind"]
    sides: Sequence[Side] = SIDES

    def __init__(
        self,
        name: str,
        connect: Callable[[], Api],
        description: str,
        machine: Callable[[], OtherUsageSource] | None = None,
    ) -> None:
        """Store how to reach the cluster; nothing is connected yet.

        Args:
            name: The name of the target.
            connect: A function that returns the client for the API server. If there is no cluster, it raises a
                UsageError that explains how to get one.
            description: A description of the target, for the facts.
            machine: If the nodes are containers on this machine, a function that returns the source of the CPU that
                other processes of this machine use. None for other clusters.

        """
        self.name = name
        self._connect, self._description, self._machine = connect, description, machine
        self._run = make_run_id()
        self._stamps = count(1)
        self._taken: _Session | None = None
        self._systems: dict[Side, ClusterSystem] = {}

    def check(self) -> None:
        """Acquire the cluster's lease, which excludes other processes of the lab, and start the pod for load generators.

        Everything that an interrupted run has left is removed. A second call only checks that the lease is still held.

        Raises:
            UsageError: A prerequisite is missing, or another process of the lab measures on the cluster.

        """
        if self._taken is not None:
            self._taken.lease.check()
            return
        docker.bring_tool("kubectl")
        chosen = images.load_images()
        api = self._connect()
        claim_namespace(api, CLIENT_NAMESPACE, self._run)
        inventories: dict[Side, Inventory] = {side: Inventory(api, self._run, side) for side in self.sides}
        lease = Lease(api, format_holder(self._run))
        lease.acquire()
        try:
            for inventory in inventories.values():
                inventory.take_over()  # what an interrupted lab left
            client = ClientPod.ensure(api, chosen, self._run, time.monotonic() + CLIENT_DEADLINE_S)
            nodes = api.list("v1", "Node")
            other_usage: OtherUsageSource = Kubelets(api)
            if self._machine is not None:
                other_usage = sum_sources(other_usage, self._machine())
        except BaseException:
            lease.release()
            raise
        self._taken = _Session(api, chosen, lease, inventories, client, nodes, other_usage)

    def installed(self, generator: Generator) -> Installed | None:
        """Return the path and version of a load generator in the generator's pod; None if the pod lacks the generator."""
        return self._session.client.installed(generator)

    def facts(self) -> Mapping[str, str]:
        """Return the facts that describe the cluster in a run's record, by name.

        The uid of the namespace kube-system is included, because it identifies the cluster.
        """
        session = self._session
        system = session.api.get("v1", "Namespace", "kube-system")
        identity = {"cluster": system["metadata"]["uid"]} if system else {}
        return {"target": self._description, **identity, **facts.collect_facts(session.api, session.images)}

    def generator_cpus(self) -> int | None:
        """Return the number of CPUs that a load generator may use in the generator's pod; None = unknown."""
        return self._session.client.cpus

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        """Check that this cluster can run a variant and serve the load points (loads of a sweep), without starting anything.

        Returns:
            Name of the load point → the endpoint that its load will go to.

        Raises:
            NotMeasurableError: A cluster cannot measure the variant, or one of the load points.
            UsageError: The variant's routes cannot serve a load point, or the cluster lacks a kind (such as Route).

        """
        variant.refuse_on(self.name)
        refuse_checks(variant.name, variant.readback)
        session, manifests = self._session, objects.lay_over_for_cluster(variant.manifests)
        for point in points:
            refuse_if(
                point.link_mbit is not None or point.link_delay_ms,
                variant.name,
                f"point {point.name} shapes the client's link, which is not done on a cluster",
                "measure it with --target local",
                what="link",
            )
            refuse_if(
                point.every_s is not None or point.grpc,
                variant.name,
                f"point {point.name} needs the lab's own backend, which is in no registry"
                + ("" if point.grpc else ", and one clock with it"),
                "measure it with --target local or apiserver",
                what="streams",
            )
        refuse_if(
            any(objects.find_role(obj) == "balancer" for obj in manifests),
            variant.name,
            "its load balancer is a process of the lab's, which is no way into a cluster here",
            "measure it with --target local or apiserver",
            what="load balancer",
        )
        refuse_if(
            any(point.disturbance is not None for point in points) and any(map(objects.is_headless, manifests)),
            variant.name,
            "its Service is headless: it has no address that stays when its pods change",
            "a Service with a cluster IP",
            what="disturbances",
        )
        vet_checks(variant, largest_cpus(session.nodes), session.client.open_files)
        objects.vet(session.api, manifests)
        fixed = any(point.generations > 1 for point in points) and not makes_new_workers(manifests)
        refuse_if(fixed, variant.name, *renewing.NOT_RENEWABLE, what="generations of workers")
        routed, routers = hosts.find_hosts(manifests), hosts.find_routers(manifests)
        proxied = any(objects.find_role(obj) == "proxy" for obj in manifests)
        return {point.name: hosts.expect_endpoint(routed, proxied, point, routers) for point in points}

    def makes_new_workers(self, variant: Variant) -> bool:
        """Return whether a reload of the variant's proxy starts new worker processes; True if there is no proxy."""
        return makes_new_workers(objects.lay_over_for_cluster(variant.manifests))

    def unpaired(self, variant: Variant) -> str:
        """Return why this variant cannot be up at the same time as another one (as a pair); empty if there is no reason.

        A reason is that the variant uses something of a node that both sides would share: the kernel's settings or the
        ports.
        """
        for obj in objects.flatten(objects.lay_over_for_cluster(variant.manifests)):
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
        self,
        variant: Variant,
        changing: bool = False,
        side: Side = "left",
        meanwhile: Callable[[], object] = do_nothing,
    ) -> Iterator[ClusterSystem]:
        """Bring a variant up on the cluster, yield its system once it answers, and delete its workloads after the `with` block.

        If the other variant of a pair is already up, the pods are placed on the same nodes as that variant's pods.

        Args:
            variant: The variant.
            changing: Whether pods and routes may change while the variant is up.
            side: `left` or `right`, if two variants are up at once (a pair). A variant that is up alone is on the left.
            meanwhile: A function that is called once during the bring-up, for example to bring up the other variant of
                the pair. On a cluster of one node, it is called as soon as this variant's objects are applied. On a
                larger one, it is called when this variant answers, because the other variant's pods must go to the same
                nodes. An error in the function ends the bring-up.

        Yields:
            The system.

        Raises:
            MeasuringError: The variant does not come up.
            LostError: The cluster or a right is gone, or another process of the lab has the lease.

        """
        session = self._session
        inventory = session.inventories[side]
        session.lease.check()
        stamp = f"{self._run}-{next(self._stamps)}"
        manifests = prepare_for_side(objects.lay_over_for_cluster(variant.manifests), side)
        prepared = objects.prepare(manifests, session.images, self._run, stamp)
        if (other := next(iter(self._systems.values()), None)) is not None:
            objects.bind_to_nodes(prepared, other.nodes())
        pending_s = objects.compute_pending_s(prepared)
        deadline = time.monotonic() + DEADLINE_S + pending_s
        system: ClusterSystem | None = None
        ended_well = False
        with lost_without_right():
            try:
                inventory.apply(prepared)
                if len(session.nodes) == 1:
                    meanwhile()
                rollout.wait_until_ready(session.api, prepared, deadline)
                inventory.await_pods(stamp)  # the last variant's, which have had that time to end
                still_until = time.monotonic() + pending_s
                system = ClusterSystem(
                    session.api,
                    session.images,
                    session.client,
                    prepared,
                    next(obj["metadata"]["namespace"] for obj in prepared if objects.find_role(obj) == "backend"),
                    self._run,
                    session.others,
                    session.lease.check,
                    inventory if changing else None,
                )
                with session.client.resolving(system.addresses()):
                    try:
                        system.wait(deadline, still_until)
                        self._systems[side] = system
                        if len(session.nodes) > 1:
                            meanwhile()  # the other side's pods go where these are
                        yield system
                    finally:
                        self._systems.pop(side, None)
                        session.lease.check()  # LostError: the pod's hosts are another lab's now
                ended_well = True
            except LostError:
                raise
            except LabError:
                # A cluster that is gone, or another lab's now, says nothing about the variant: LostError.
                session.lease.check()
                session.api.version()
                raise
            finally:
                if system is not None:
                    system.close()
                with suppress(*(() if ended_well else (LabError,))):  # the first fault is the one to report
                    session.lease.check()
                    if system is not None and changing:
                        system.settle(system.kill)
                    inventory.end_workloads()

    def close(self) -> None:
        """Remove everything that the lab has made on the cluster, except the generator's pod, and give the lease back.

        Further calls do nothing.

        Raises:
            MeasuringError: Something was not removed.

        """
        session, self._taken = self._taken, None
        if session is None:
            return
        remedy = "another lab may be using what is there: nothing was removed; `just down` takes it all when none does"
        try:
            session.client.close()
            session.lease.check()
            remedy = "what the lab made is still there: the next run there removes it, or `just down` takes all of it"
            for inventory in session.inventories.values():
                inventory.remove()
        except LabError as error:
            raise MeasuringError(error.place, error.fault, remedy) from None
        finally:
            session.lease.release()

    @property
    def _session(self) -> _Session:
        assert self._taken is not None, "check() comes first"
        return self._taken


def vet_checks(variant: Variant, cpus: int, open_files: int | None) -> None:
    """Refuse a variant that needs more CPUs or more open files than the cluster has.

    The numbers are taken from the variant's read-backs (the checks that its settings took effect), for example the
    number of workers. So they are known before anything is started, and it does not matter whether a ConfigMap or an
    environment variable sets them.

    Args:
        variant: The variant.
        cpus: The number of CPUs of the largest node.
        open_files: The number of files that a process in a container may open; None = no limit.

    Raises:
        NotMeasurableError: The variant sets more workers or threads than there are CPUs, or too many open files.

    """
    for check in variant.readback:
        place, identity = f"{variant.name}: {check.name}", (check.kind, check.name or "")
        noun, number = WORKER_CHECKS.get(identity), int(check.value) if check.value.isdecimal() else 0
        refuse_if(
            noun and number > cpus,
            place,
            f"asks for {check.value} {noun}, the largest node has {'1 CPU' if cpus == 1 else f'{cpus} CPUs'}",
            f"a node with more CPUs, or {cpus} at most",
            what="cores",
        )
        refuse_if(
            identity in OPEN_FILES_CHECKS and open_files is not None and number > open_files,
            place,
            f"asks for {check.value} open files, a container may have {open_files} here",
            "raise the nodes' limit (LimitNOFILE of containerd)",
            what="open files",
        )


def prepare_for_side(manifests: Sequence[Mapping[str, Any]], side: Side) -> Sequence[Mapping[str, Any]]:
    """Return a variant's objects, renamed so that both sides of a pair (two variants at once) can be up on one cluster.

    The left side's objects stay unchanged. With TLS, the right side's hosts also get another domain: requests go to
    host names then, and the generator's pod has only one list of the hosts' addresses.
    """
    on_side = objects.rename_for_side(manifests, side)
    if side == "left" or set(hosts.find_hosts(on_side).values()) == {"none"}:
        return on_side
    # A name as long as the left's.
    return [objects.rename_word(obj, objects.DOMAIN, side[0] + objects.DOMAIN[1:]) for obj in on_side]


def makes_new_workers(manifests: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a reload of the proxy in these manifests starts new worker processes; True if there is no proxy."""
    proxies = [obj for obj in objects.flatten(manifests) if objects.find_role(obj) == "proxy"]
    repositories = (images.split_reference(objects.pod_spec(obj)["containers"][0]["image"])[0] for obj in proxies)
    return all(system is not None and system.renew_in_cluster for system in map(find, repositories))


def largest_cpus(nodes: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of CPUs of the largest node on which proxies may run.

    Nodes that are marked for the generator are left out, unless there are no others. All CPUs of a node count, even
    those that pods may not use, because a process in a pod sees them all.
    """
    marked = [node for node in nodes if (node["metadata"].get("labels") or {}).get(ROLE_LABEL) == "generator"]
    unmarked = [node for node in nodes if node not in marked]
    return max(int(parse_quantity(node["status"]["capacity"]["cpu"])) for node in unmarked or marked)
