"""From objects to running pods: addresses, volumes, what each container is started with, and the way back."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from lab.base.errors import MeasuringError, NotMeasurableError, refuse_if, refuse_unknown
from lab.base.quantities import quantity
from lab.model.endpoint import Role
from lab.systems import checker
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container, Pod, Volume
from lab.systems.system import Context, Realisation, Realise, command, find_program
from lab.systems.table import find
from lab.targets.cluster import images as references
from lab.targets.local.control_plane import services
from lab.targets.local.kubelet.containers import Process, Setting
from lab.targets.local.kubelet.kubelet import Make
from lab.targets.local.sandbox import disk, network
from lab.targets.local.sandbox.cgroups import Groups
from lab.targets.local.sandbox.namespaces import STATE, real_root
from lab.targets.local.sandbox.network import Network, Place

PODS = STATE / "pods"


def realise(context: Context) -> Realisation:
    """By its system, or its command executed. UsageError for another version than what stands for the image here."""
    system = find(context.container.repository)
    # whatever a balancer runs, it serves no route
    if system is None or system.realise is None or context.pod.role == "balancer":
        return Realisation(command(context.container), context.container.env)
    if context.pod.role == "proxy" and not system.by_tag:
        refuse_other_version(context.container)
    return system.realise(context)


def refuse_other_version(container: Container) -> None:
    """UsageError for a tag that changes nothing here: its effect would be none."""
    if not references.PINNED.exists():
        return  # an ablation that goes on has manifests of its own, which were held to it when it began
    system, tag = find(container.repository), references.split(container.image)[1]
    pinned = map(references.split, references.pinned().values())
    tags = [other for repository, other in pinned if find(repository) is system]
    there = f"what stands for it here is the same for every tag ({', '.join(tags)} is pinned)"
    remedy = "use --target kind, where the image itself runs"
    refuse_if(tags and tag not in tags, container.place, f"image {container.image}: {there}", remedy)


def links(objects: Objects) -> list[tuple[str, str]]:
    """Who talks to whom: the client to every proxy and (direct runs and canaries) backend, every proxy to every backend.

    Between client and proxies there is a load balancer where there is one, or a node where their Service has one.
    """
    proxies, backends = objects.role("proxy"), objects.role("backend")
    client = [(network.CLIENT, pod.name) for pod in backends]
    if in_front := objects.role("balancer"):
        client += [(network.CLIENT, pod.name) for pod in in_front]
        client += [(pod.name, proxy.name) for pod in in_front for proxy in proxies]
    elif not services.balancers(objects):
        client += [(network.CLIENT, pod.name) for pod in proxies]
    else:
        client += [(network.CLIENT, services.NODE), *((services.NODE, pod.name) for pod in proxies)]
    return client + [(proxy.name, backend.name) for proxy in proxies for backend in backends]


def vet(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> None:
    """Everything about the containers that can be told without starting one. UsageError for the first fault."""
    systems = [find(container.repository) for pod in objects.pods for container in pod.containers]
    kinds = frozenset[str]().union(*(system.kinds for system in systems if system is not None))
    for raw in objects.others:
        fault = f"the local target does not know objects of kind {raw['kind']}"
        place = f"{raw['kind']}/{raw['metadata']['name']}"
        refuse_if(raw["kind"] not in kinds, place, fault, "remove it, or use --target kind")
    services.vet(objects)
    for service in objects.services.values():
        if service.selector:
            objects.endpoints(service.name)
    for name, (place, asked) in objects.node_settings.items():
        fault = f"{name} is the whole machine's, which the lab never changes; the variant asks for {asked}"
        raise NotMeasurableError("host-wide", place, fault, "use --target kind")
    for pod in objects.pods:
        for container in pod.init + pod.containers:
            text = "\n".join(container.command + container.args)
            devices = container.privileged and "/sys/class/net" in text and not real_root()
            fault = "writes to /sys/class/net, which the kernel refuses in a user namespace"
            refuse_if(devices, container.place, fault, "run the lab as root (sudo), or use --target kind", what="root")
        for volume in pod.volumes.values():
            if volume.on_disk:
                disk.check()
            _keys(f"{pod.place}: volume {volume.name}", volume, objects)
        for container in pod.init:
            find_program(container.place, command(container)[0])
    for context in _contexts(objects, pinned):
        started = realise(context)
        if started.root is None:
            find_program(context.container.place, started.command[0])


def try_out(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> None:
    """Every proxy's configuration by its own checker. UsageError, in the proxy's own words, for one that it would refuse."""
    for context in _contexts(objects, pinned):
        pod, started = context.pod, realise(context)
        if pod.role != "proxy" or not started.checker:
            continue
        hosts = "\n".join([*_names(pod, objects, context.addresses), ""])
        folders = {mount.path: _texts(pod.volumes[mount.volume], objects) for mount in context.container.mounts}
        told = checker.refusal(started.checker, started.files, folders, hosts, started.programs)
        known = (word for word in reversed(started.checker) if word in started.programs or shutil.which(word))
        program = Path(next(known, started.command[0])).name  # which a shell may start
        fault = f"{program} refuses this configuration: {told}"
        refuse_if(told, context.container.place, fault, "correct what it names")


def abouts(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> set[str]:
    """What its containers run that is not the machine's own, with versions."""
    return {realise(context).about for context in _contexts(objects, pinned)} - {""}


def _texts(volume: Volume, objects: Objects) -> Mapping[str, str]:
    """File → text of a volume that has a source; nothing for any other."""
    if volume.source is None:
        return {}
    kind, source = volume.source
    texts = objects.configmaps[source] if kind == "ConfigMap" else objects.secrets[source].files()
    return {name: texts[key] for key, name in _keys(f"volume {volume.name}", volume, objects).items()}


def job(
    pod: Pod,
    objects: Objects,
    net: Network,
    pinned: Mapping[Role, frozenset[int]],
    disks: disk.Disk,
    groups: Groups,
    made: Callable[[Pod, Process], None],
    changing: bool = False,
    realise: Realise = realise,
) -> Make:
    """What the kubelet needs to start a pod. Writes its sysctls and makes its volumes; its containers are made when their turn comes.

    `made` is told of each container, but for those that initialise, before it starts. `changing`: its containers have a cgroup for CPU, limited or not,
    so that they can be squeezed, and end as slowly as their images do.
    """
    addresses, place, folder = net.addresses, net[pod.name], pod_folder(pod, net)
    _write_sysctls(pod, place)
    volumes: dict[str, Path] = {}
    for name, volume in pod.volumes.items():
        volumes[name] = disks.folder(pod.name, name) if volume.on_disk else folder / "volumes" / name
        if not volume.on_disk:
            _make_volume(volumes[name], volume, objects)
    hosts = "\n".join([f"{place.address} {pod.name}", *_names(pod, objects, addresses), ""])

    def make(container: Container) -> Process:
        if container in pod.init:
            started = Realisation(command(container), container.env)
        else:
            started = realisation(container, pod, place, objects, addresses, pinned, realise)
        own = f"{net.lane.prefix}{pod.name}-{container.name}"
        group = groups.make(pod.role, own, container.place, container.limits, room=changing)
        started = started if changing else replace(started, waits=(0.0, 0.0))
        setting = Setting(pod.name, place, _cpus(pod, pinned), hosts, volumes, started, group)
        process = Process(container, setting, folder / "containers" / container.name)
        if container not in pod.init:
            made(pod, process)
        return process

    return make


def realisation(
    container: Container,
    pod: Pod,
    place: Place,
    objects: Objects,
    addresses: Mapping[str, str],
    pinned: Mapping[Role, frozenset[int]],
    realise: Realise = realise,
) -> Realisation:
    """What a running container would be started with now: its configuration is that of these objects."""
    somaxconn = network.call_in(place, lambda: int(Path("/proc/sys/net/core/somaxconn").read_text()))
    cpus = len(_cpus(pod, pinned))
    return realise(Context(container, pod, objects, addresses, cpus, somaxconn, _open_files()))


def pod_folder(pod: Pod, net: Network) -> Path:
    """Its volumes and its containers' files."""
    return PODS / f"{net.lane.prefix}{pod.name}"


def _write_sysctls(pod: Pod, place: Place) -> None:
    for name, value in pod.sysctls.items():
        try:
            network.write_sysctls(place, {name: value})
        except OSError as error:
            if not str(error.filename).startswith("/proc/sys/"):
                raise
            where = f"{pod.place}: spec.template.spec.securityContext.sysctls[{name}]"
            fault = f"cannot be written in a pod: {error.strerror}"
            raise MeasuringError(where, fault, "only namespaced sysctls can; the others are the node's") from None


def remove(pods: Iterable[Pod], net: Network) -> None:
    """Take the pods' folders away, once nothing runs in them."""
    for pod in pods:
        folder = pod_folder(pod, net)
        for mounted in (folder / "volumes" / volume.name for volume in pod.volumes.values() if volume.size):
            if mounted.is_mount():
                subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _contexts(objects: Objects, pinned: Mapping[Role, frozenset[int]]) -> Iterator[Context]:
    """Of every container, before there is an address."""
    addresses = {pod.name: "192.0.2.1" for pod in objects.pods}
    for pod in objects.pods:
        for container in pod.containers:
            yield Context(container, pod, objects, addresses, len(_cpus(pod, pinned)), 4096, _open_files())


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _cpus(pod: Pod, pinned: Mapping[Role, frozenset[int]]) -> frozenset[int]:
    return pinned["proxy"] if pod.role == "proxy" else pinned["backend"]


def _names(pod: Pod, objects: Objects, addresses: Mapping[str, str]) -> list[str]:
    """Lines of its /etc/hosts. A Service's names stand for its pods' addresses: there is no cluster IP, and so no NAT, in between."""
    found = ["127.0.0.1 localhost"]
    for service in objects.services.values():
        names = f"{service.name} {service.name}.{pod.namespace} {service.name}.{pod.namespace}.svc {service.name}.{pod.namespace}.svc.cluster.local"
        endpoints = filter(service.selects, objects.pods if objects.ready is None else objects.ready)
        found += [f"{addresses[other.name]} {names}" for other in endpoints]
    return found


def _make_volume(folder: Path, volume: Volume, objects: Objects) -> None:
    folder.mkdir(parents=True)
    for name, text in _texts(volume, objects).items():
        (folder / name).write_text(text)
    if volume.source is None and volume.size:
        options = f"size={int(quantity(volume.size))},mode=777"
        argv = ["mount", "-t", "tmpfs", "-o", options, "volume", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            fault = f"cannot be mounted: {done.stderr.strip()}"
            raise MeasuringError(f"volume {volume.name}", fault, "remove its sizeLimit")


def _keys(place: str, volume: Volume, objects: Objects) -> Mapping[str, str]:
    """Key → file of a ConfigMap's or Secret's volume, empty for any other. UsageError for what is not there."""
    if volume.source is None:
        return {}
    kind, name = volume.source
    secrets = {key: item.keys for key, item in objects.secrets.items()}
    all_of_them: Mapping[str, Collection[str]] = objects.configmaps if kind == "ConfigMap" else secrets
    refuse_unknown(name, all_of_them, place, f"there is no {kind} {name!r}")
    known = all_of_them[name]
    wanted = volume.items or {key: key for key in known}
    for key in wanted:
        refuse_unknown(key, known, f"{place}: items", f"{kind} {name} has no key {key!r}")
    return wanted
