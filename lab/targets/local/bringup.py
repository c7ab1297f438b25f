"""From objects to running pods: addresses, volumes, what each container is started with, and the way back."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lab.errors import MeasuringError, UsageError, did_you_mean
from lab.targets.base import Role
from lab.targets.local import images, network
from lab.targets.local.containers import Process, Setting, find_program
from lab.targets.local.images import Context, Realisation
from lab.targets.local.kubelet import PodJob
from lab.targets.local.namespaces import STATE
from lab.targets.local.network import Network, Place
from lab.targets.local.objects import Objects
from lab.targets.local.pods import Container, Pod, Volume

PODS = STATE / "pods"


def links(objects: Objects) -> list[tuple[str, str]]:
    """Who talks to whom: the client to every proxy and (direct runs and canaries) backend, every proxy to every backend."""
    proxies, backends = objects.role("proxy"), objects.role("backend")
    client = [(network.CLIENT, pod.name) for pod in proxies + backends]
    return client + [(proxy.name, backend.name) for proxy in proxies for backend in backends]


def vet(objects: Objects, pinned: Mapping[Role, frozenset[int]]) -> None:
    """Everything about the containers that can be told without starting one. UsageError for the first fault."""
    addresses = {pod.name: "192.0.2.1" for pod in objects.pods}
    if len(objects.role("proxy")) > 1:
        raise UsageError(
            objects.role("proxy")[0].place,
            "the local target runs one proxy: nothing here balances over several",
            "set replicas: 1, or use --target kind",
        )
    for pod in objects.pods:
        for volume in pod.volumes.values():
            if volume.configmap is not None and volume.configmap not in objects.configmaps:
                raise UsageError(
                    f"{pod.place}: volume {volume.name}",
                    f"there is no ConfigMap {volume.configmap!r}",
                    did_you_mean(volume.configmap, objects.configmaps),
                )
        for container in pod.init:
            find_program(container.place, _command(container)[0])
        for container in pod.containers:
            find_program(
                container.place,
                _realise(_context(container, pod, objects, addresses, pinned, somaxconn=4096)).command[0],
            )


def job(pod: Pod, objects: Objects, net: Network, pinned: Mapping[Role, frozenset[int]]) -> PodJob:
    """What the kubelet needs to start a pod. Makes its volumes; its containers are made when their turn comes."""
    addresses = {place.name: place.address for place in net.places}
    place = net[pod.name]
    folder = PODS / pod.name
    volumes = {name: _make_volume(folder / "volumes" / name, volume, objects) for name, volume in pod.volumes.items()}
    hosts = _hosts(pod, place, objects, addresses)

    def make(container: Container) -> Process:
        if container in pod.init:
            realisation, stop = Realisation(_command(container), container.env), signal.SIGTERM
        else:
            context = _context(container, pod, objects, addresses, pinned, somaxconn=_somaxconn(place))
            realisation = _realise(context)
            image = images.find(container.repository)
            stop = image.STOP_SIGNAL if image is not None else signal.SIGTERM
        setting = Setting(
            hostname=pod.name,
            place=place,
            cpus=_cpus(pod, pinned),
            hosts=hosts,
            volumes=volumes,
            command=realisation.command,
            env=realisation.env,
            files=realisation.files,
            stop_signal=stop,
        )
        if realisation.pre_stop is not None:
            container = replace(container, pre_stop=realisation.pre_stop)
        return Process(container, setting, folder / "containers" / container.name)

    return PodJob(pod, place, make)


def remove(objects: Objects) -> None:
    """Take the pods' folders away, once nothing runs in them."""
    for pod in objects.pods:
        for volume in pod.volumes.values():
            if volume.size:
                subprocess.run(
                    ["umount", "--lazy", str(PODS / pod.name / "volumes" / volume.name)],
                    check=False,
                    capture_output=True,
                )
        shutil.rmtree(PODS / pod.name, ignore_errors=True)


def _command(container: Container) -> tuple[str, ...]:
    if not container.command:
        raise UsageError(
            container.place, "'command' is missing, and the image's own is not on this machine", "name the command"
        )
    return container.command + container.args


def _realise(context: Context) -> Realisation:
    image = images.find(context.container.repository)
    if image is not None:
        return image.realise(context)
    return Realisation(_command(context.container), context.container.env)


def _context(
    container: Container,
    pod: Pod,
    objects: Objects,
    addresses: Mapping[str, str],
    pinned: Mapping[Role, frozenset[int]],
    somaxconn: int,
) -> Context:
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return Context(container, pod, objects, addresses, len(_cpus(pod, pinned)), somaxconn, open_files)


def _cpus(pod: Pod, pinned: Mapping[Role, frozenset[int]]) -> frozenset[int]:
    return pinned["proxy"] if pod.role == "proxy" else pinned["backend"]


def _somaxconn(place: Place) -> int:
    return network.call_in(place, lambda: int(Path("/proc/sys/net/core/somaxconn").read_text()))


def _hosts(pod: Pod, place: Place, objects: Objects, addresses: Mapping[str, str]) -> str:
    """A Service's names stand for its pods' addresses: there is no cluster IP, and so no NAT, in between."""
    found = ["127.0.0.1 localhost", f"{place.address} {pod.name}"]
    for service in objects.services.values():
        names = f"{service.name} {service.name}.{pod.namespace} {service.name}.{pod.namespace}.svc {service.name}.{pod.namespace}.svc.cluster.local"
        found += [f"{addresses[other.name]} {names}" for other in objects.endpoints(service.name)]
    return "\n".join(found) + "\n"


def _make_volume(folder: Path, volume: Volume, objects: Objects) -> Path:
    folder.mkdir(parents=True)
    if volume.configmap is not None:
        data = objects.configmaps[volume.configmap]
        for key, name in (volume.items or {key: key for key in data}).items():
            if key not in data:
                raise UsageError(
                    f"volume {volume.name}: items",
                    f"ConfigMap {volume.configmap} has no key {key!r}",
                    did_you_mean(key, data),
                )
            (folder / name).write_text(data[key])
    elif volume.size:
        size = _bytes(volume.name, volume.size)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=777", "volume", str(folder)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MeasuringError(
                f"volume {volume.name}", f"cannot be mounted: {done.stderr.strip()}", "remove its sizeLimit"
            )
    return folder


def _bytes(name: str, text: str) -> int:
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9, "": 1}
    number = text.rstrip("KkMGi")
    if not number.isdigit() or text[len(number) :] not in units:
        raise UsageError(f"volume {name}: sizeLimit", f"expected a quantity such as 260Mi, got {text!r}", "correct it")
    return int(number) * units[text[len(number) :]]
