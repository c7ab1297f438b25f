"""Functions that prepare pods from Kubernetes objects: checks, network links, volumes, commands, and the removal."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from lab.base.errors import MeasuringError, NotMeasurableError, refuse_if, refuse_unknown
from lab.base.quantities import parse_quantity
from lab.model.endpoint import Role
from lab.systems import checker, programs
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Container, Pod, Volume
from lab.systems.system import Context, Realisation, Realise, find_program, is_repository_of, require_command
from lab.systems.table import find
from lab.targets.cluster import images as references
from lab.targets.local.control_plane import services
from lab.targets.local.kubelet.containers import ContainerSetting, LocalContainerProcess
from lab.targets.local.kubelet.kubelet import MakeContainer
from lab.targets.local.sandbox import disk, network
from lab.targets.local.sandbox.cgroups import Groups
from lab.targets.local.sandbox.namespaces import STATE, is_real_root

PODS = STATE / "pods"
"""The folder of all pods' folders."""
OWN_IMAGES = ("lab/events-backend", "lab/grpc-backend", "lab/websocket-backend")
"""The images of the lab's own backends for streams of events, gRPC calls and WebSockets.

No registry has these images; on this machine the programs themselves run.
"""


def realise(context: Context) -> Realisation:
    """Return the command, environment and files to start instead of a container's image.

    For the image of a proxy system, the proxy system provides them. For one of the lab's own backends (OWN_IMAGES), the
    command is the backend's program. For any other image, and for a load balancer's pod, they come from the container's
    manifest.

    Raises:
        UsageError: The image has another version than the program that runs instead of it, or a manifest that is needed
            has no command.

    """
    own = next((image for image in OWN_IMAGES if is_repository_of(image, context.container.repository)), None)
    if own is not None:
        program = programs.provide_own_program(Path(own).name)
        return Realisation((program.inside,), context.container.env, programs={program.inside: program.file})
    system = find(context.container.repository)
    # A load balancer serves no routes, whatever program it runs.
    if system is None or system.realise is None or context.pod.role == "balancer":
        return Realisation(require_command(context.container), context.container.env)
    if context.pod.role == "proxy" and not system.by_tag:
        refuse_other_version(context.container)
    return system.realise(context)


def refuse_other_version(container: Container) -> None:
    """Refuse a container whose image has a tag that differs from the tag of the pinned image.

    On this target the same program runs instead of the image, whatever the tag is. So a different tag would have no
    effect. Nothing is refused if the list of pinned images is missing or has no image of this proxy system.

    Raises:
        UsageError: The tag differs from the pinned ones.

    """
    if not references.PINNED.exists():
        return  # a resumed ablation reads copies of the manifests, which were checked when it began
    system, tag = find(container.repository), references.split_reference(container.image)[1]
    pinned = map(references.split_reference, references.read_pinned().values())
    tags = [pinned_tag for repository, pinned_tag in pinned if find(repository) is system]
    reason = f"what stands for it here is the same for every tag ({', '.join(tags)} is pinned)"
    remedy = "use --target kind, where the image itself runs"
    refuse_if(tags and tag not in tags, container.place, f"image {container.image}: {reason}", remedy)


def list_links(objects: Objects) -> list[tuple[str, str]]:
    """Return the pairs of names of places (network namespaces) that must be linked, because they talk to each other.

    - The client is linked to every backend, for runs without a proxy and for canaries (checked requests).
    - Every proxy is linked to every backend.
    - The client is linked to every proxy. If there is a load balancer's pod or a node's NAT in front, the client is
      linked to this pod or node instead, which is linked to every proxy.
    """
    proxies, backends = objects.role("proxy"), objects.role("backend")
    client = [(network.CLIENT, pod.name) for pod in backends]
    if in_front := objects.role("balancer"):
        client += [(network.CLIENT, pod.name) for pod in in_front]
        client += [(pod.name, proxy.name) for pod in in_front for proxy in proxies]
    elif not services.list_balancers(objects):
        client += [(network.CLIENT, pod.name) for pod in proxies]
    else:
        client += [(network.CLIENT, services.NODE), *((services.NODE, pod.name) for pod in proxies)]
    return client + [(proxy.name, backend.name) for proxy in proxies for backend in backends]


def check_objects(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> None:
    """Check a variant's objects as far as that is possible without starting a program.

    The proxies' own configuration checkers are not run; `try_out` does that.

    Args:
        objects: The objects of the variant.
        pinned: Role → the CPUs to which it is pinned.
        realise: The function that returns what a container is started with.

    Raises:
        UsageError: The first fault. It is a NotMeasurableError if only this target or machine cannot measure the
            variant.

    """
    systems = [find(container.repository) for pod in objects.pods for container in pod.containers]
    kinds = frozenset[str]().union(*(system.kinds for system in systems if system is not None))
    for raw in objects.others:
        fault = f"the local target does not know objects of kind {raw['kind']}"
        place = f"{raw['kind']}/{raw['metadata']['name']}"
        refuse_if(raw["kind"] not in kinds, place, fault, "remove it, or use --target kind")
    services.check_way(objects)
    for service in objects.services.values():
        if service.selector:
            objects.endpoints(service.name)
    for name, (place, value) in objects.node_settings.items():
        fault = f"{name} is the whole machine's, which the lab never changes; the variant asks for {value}"
        raise NotMeasurableError("host-wide", place, fault, "use --target kind")
    for pod in objects.pods:
        for container in pod.init + pod.containers:
            text = "\n".join(container.command + container.args)
            devices = container.privileged and "/sys/class/net" in text and not is_real_root()
            fault = "writes to /sys/class/net, which the kernel refuses in a user namespace"
            refuse_if(devices, container.place, fault, "run the lab as root (sudo), or use --target kind", what="root")
        for volume in pod.volumes.values():
            if volume.on_disk:
                disk.check()
            _map_keys(f"{pod.place}: volume {volume.name}", volume, objects)
        for container in pod.init:
            find_program(container.place, require_command(container)[0])
    for context in _make_contexts(objects, pinned):
        started = realise(context)
        if started.root is None:
            find_program(context.container.place, started.command[0])


def try_out(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> None:
    """Check every proxy's configuration with the proxy's own configuration checker.

    Args:
        objects: The objects of the variant.
        pinned: Role → the CPUs to which it is pinned.
        realise: The function that returns what a container is started with.

    Raises:
        UsageError: A proxy would refuse its configuration; the message contains the proxy's own words.

    """
    for context in _make_contexts(objects, pinned):
        pod, started = context.pod, realise(context)
        if pod.role != "proxy" or not started.checker:
            continue
        hosts = "\n".join([*_list_host_lines(pod, objects, context.addresses), ""])
        folders = {mount.path: _read_texts(pod.volumes[mount.volume], objects) for mount in context.container.mounts}
        refusal = checker.find_refusal(started.checker, started.files, folders, hosts, started.programs)
        programs = (name for name in reversed(started.checker) if name in started.programs or shutil.which(name))
        program = Path(next(programs, started.command[0])).name  # a shell may start the program
        fault = f"{program} refuses this configuration: {refusal}"
        refuse_if(refusal, context.container.place, fault, "correct what it names")


def list_programs(objects: Objects, pinned: Mapping[Role, frozenset[int]], realise: Realise = realise) -> set[str]:
    """Return the descriptions (each its name and its version) of those programs that run in containers and that the lab has fetched.

    Args:
        objects: The objects of the variant.
        pinned: Role → the CPUs to which it is pinned.
        realise: The function that returns what a container is started with.

    """
    return {realise(context).about for context in _make_contexts(objects, pinned)} - {""}


def _read_texts(volume: Volume, objects: Objects) -> Mapping[str, str]:
    """Return file name → text for the files of a volume made from a ConfigMap or Secret; empty for any other volume."""
    if volume.source is None:
        return {}
    kind, source = volume.source
    texts = objects.configmaps[source] if kind == "ConfigMap" else objects.secrets[source].files()
    return {name: texts[key] for key, name in _map_keys(f"volume {volume.name}", volume, objects).items()}


def prepare_pod(
    pod: Pod,
    objects: Objects,
    net: network.Network,
    pinned: Mapping[Role, frozenset[int]],
    disks: disk.DiskVolumes,
    groups: Groups,
    follow: Callable[[Pod, LocalContainerProcess], None],
    changing: bool = False,
    realise: Realise = realise,
) -> MakeContainer:
    """Write a pod's sysctls, make its volumes, and return the function that makes its containers.

    The kubelet calls that function for each container just before the container's start.

    Args:
        pod: The pod.
        objects: The objects of its variant.
        net: The network, in which the pod's network namespace exists.
        pinned: Role → the CPUs to which it is pinned.
        disks: The volumes on disk.
        groups: The cgroups of this start of the system.
        follow: A function that is called with the pod and each container, except init containers, before the container
            starts.
        changing: Whether pods may come and go. Then every container, even without a CPU limit, gets a cgroup for CPU,
            so that a limit can be set later. And when it has to end, it waits as long as the image's own process would
            (`Realisation.waits`). Otherwise it does not wait.
        realise: The function that returns what a container is started with: its command, environment and files.

    """
    addresses, place, folder = net.addresses, net[pod.name], pod_folder(pod, net)
    _write_sysctls(pod, place)
    volumes: dict[str, Path] = {}
    for name, volume in pod.volumes.items():
        volumes[name] = disks.folder(pod.name, name) if volume.on_disk else folder / "volumes" / name
        if not volume.on_disk:
            _make_volume(volumes[name], volume, objects)
    hosts = "\n".join([f"{place.address} {pod.name}", *_list_host_lines(pod, objects, addresses), ""])

    def make(container: Container) -> LocalContainerProcess:
        if container in pod.init:
            started = Realisation(require_command(container), container.env)
        else:
            started = realise_now(container, pod, place, objects, addresses, pinned, realise)
        group_name = f"{net.lane.prefix}{pod.name}-{container.name}"
        group = groups.make(pod.role, group_name, container.place, container.limits, room=changing)
        started = started if changing else replace(started, waits=(0.0, 0.0))
        setting = ContainerSetting(pod.name, place, _select_cpus(pod, pinned), hosts, volumes, started, group)
        process = LocalContainerProcess(container, setting, folder / "containers" / container.name)
        if container not in pod.init:
            follow(pod, process)
        return process

    return make


def realise_now(
    container: Container,
    pod: Pod,
    place: network.NetworkPlace,
    objects: Objects,
    addresses: Mapping[str, str],
    pinned: Mapping[Role, frozenset[int]],
    realise: Realise = realise,
) -> Realisation:
    """Return the command, environment and files to start a container with now.

    The files contain the proxy's configuration for the present state of the objects.

    Args:
        container: The container.
        pod: The container's pod.
        place: The pod's network namespace.
        objects: The objects as they are now.
        addresses: Name of the pod → IP address.
        pinned: Role → the CPUs to which it is pinned.
        realise: The function that returns what a container is started with.

    """
    somaxconn = network.call_in(place, lambda: int(Path("/proc/sys/net/core/somaxconn").read_text()))
    cpus = len(_select_cpus(pod, pinned))
    return realise(Context(container, pod, objects, addresses, cpus, somaxconn, _get_open_files_limit()))


def pod_folder(pod: Pod, net: network.Network) -> Path:
    """Return the path of the folder for a pod's volumes and its containers' files."""
    return PODS / f"{net.lane.prefix}{pod.name}"


def _write_sysctls(pod: Pod, place: network.NetworkPlace) -> None:
    """Write a pod's sysctls inside its network namespace.

    Raises:
        MeasuringError: A sysctl's file cannot be opened there, for example because it is the whole machine's.
        OSError: The kernel refuses the value; this error has no file name.

    """
    for name, value in pod.sysctls.items():
        try:
            network.write_sysctls(place, {name: value})
        except OSError as error:
            if not str(error.filename).startswith("/proc/sys/"):
                raise
            field_place = f"{pod.place}: spec.template.spec.securityContext.sysctls[{name}]"
            fault = f"cannot be written in a pod: {error.strerror}"
            raise MeasuringError(field_place, fault, "only namespaced sysctls can; the others are the node's") from None


def remove(pods: Iterable[Pod], net: network.Network) -> None:
    """Remove the folders of pods, and unmount the volumes in them; no process of the pods may run any more."""
    for pod in pods:
        folder = pod_folder(pod, net)
        for mounted in (folder / "volumes" / volume.name for volume in pod.volumes.values() if volume.size):
            if mounted.is_mount():
                subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _make_contexts(objects: Objects, pinned: Mapping[Role, frozenset[int]]) -> Iterator[Context]:
    """Yield a `Context` (the facts that decide how a container is started) for each container.

    The contexts are for checks before anything is started. Every IP address in them is a placeholder, because the
    network does not exist yet.
    """
    addresses = {pod.name: "192.0.2.1" for pod in objects.pods}
    for pod in objects.pods:
        for container in pod.containers:
            yield Context(
                container, pod, objects, addresses, len(_select_cpus(pod, pinned)), 4096, _get_open_files_limit()
            )


def _get_open_files_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def _select_cpus(pod: Pod, pinned: Mapping[Role, frozenset[int]]) -> frozenset[int]:
    return pinned["proxy"] if pod.role == "proxy" else pinned["backend"]


def _list_host_lines(pod: Pod, objects: Objects, addresses: Mapping[str, str]) -> list[str]:
    """Return the lines for a pod's /etc/hosts, which make the names of all Services resolve.

    The name of a Service leads to the IP addresses of its pods, because Services have no cluster IP here. Once the
    ready pods are known, the name leads only to ready pods.
    """
    lines = ["127.0.0.1 localhost"]
    for service in objects.services.values():
        names = f"{service.name} {service.name}.{pod.namespace} {service.name}.{pod.namespace}.svc {service.name}.{pod.namespace}.svc.cluster.local"
        endpoints = filter(service.selects, objects.pods if objects.ready is None else objects.ready)
        lines += [f"{addresses[endpoint.name]} {names}" for endpoint in endpoints]
    return lines


def _make_volume(folder: Path, volume: Volume, objects: Objects) -> None:
    """Make a folder in memory for a volume, with the files of its ConfigMap or Secret if it has one.

    Raises:
        MeasuringError: The volume has a size limit, and a tmpfs of this size cannot be mounted.

    """
    folder.mkdir(parents=True)
    for name, text in _read_texts(volume, objects).items():
        (folder / name).write_text(text)
    if volume.source is None and volume.size:
        options = f"size={int(parse_quantity(volume.size))},mode=777"
        argv = ["mount", "-t", "tmpfs", "-o", options, "volume", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            fault = f"cannot be mounted: {done.stderr.strip()}"
            raise MeasuringError(f"volume {volume.name}", fault, "remove its sizeLimit")


def _map_keys(place: str, volume: Volume, objects: Objects) -> Mapping[str, str]:
    """Return which files a volume from a ConfigMap or Secret contains: key of the object → file name.

    The result is empty for any other volume.

    Args:
        place: The text that names the volume in error messages.
        volume: The volume.
        objects: The objects, with all ConfigMaps and Secrets.

    Raises:
        UsageError: The ConfigMap, the Secret or one of its keys does not exist.

    """
    if volume.source is None:
        return {}
    kind, name = volume.source
    secrets = {key: item.keys for key, item in objects.secrets.items()}
    sources: Mapping[str, Collection[str]] = objects.configmaps if kind == "ConfigMap" else secrets
    refuse_unknown(name, sources, place, f"there is no {kind} {name!r}")
    keys = sources[name]
    files = volume.items or {key: key for key in keys}
    for key in files:
        refuse_unknown(key, keys, f"{place}: items", f"{kind} {name} has no key {key!r}")
    return files
