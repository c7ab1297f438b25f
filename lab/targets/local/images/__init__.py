"""What an image stands for on this machine. One file per image that needs more than its command executed.

Such a file has what `Image` asks for: IMAGE (the repository's last parts, without registry and tag), NOTE, `realise`, and `control`, which handles what changes while it runs. `table` lists them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab.base.errors import NotMeasurableError, UsageError, refuse_unknown
from lab.targets.local.admin import Ask
from lab.targets.local.containers import Process, Realisation
from lab.targets.local.gateway_api import Backend, Served
from lab.targets.local.objects import Member, Objects
from lab.targets.local.pods import Container, Pod


@dataclass(frozen=True, slots=True)
class Context:
    """What a realisation may know. `addresses`: pod → IP; `somaxconn`, `open_files`: as its own process finds them."""

    container: Container
    pod: Pod
    objects: Objects
    addresses: Mapping[str, str]
    cpus: int
    somaxconn: int
    open_files: int


def is_repository_of(image: str, repository: str) -> bool:
    """Return whether a repository, whatever registry it comes from, ends in an image's name, which is its last parts."""
    return f"/{repository}".endswith(f"/{image}")


def configmap_of(place: str, named: str, context: Context) -> tuple[str, Mapping[str, str]]:
    """(its place, its data) of the ConfigMap that an argument names as NAMESPACE/NAME, of the pod's own namespace. UsageError."""
    known = {f"{context.pod.namespace}/{name}": name for name in context.objects.configmaps}
    refuse_unknown(named, known, place, f"there is no ConfigMap {named!r}")
    return f"ConfigMap/{known[named]}", context.objects.configmaps[known[named]]


def refuse_workers(place: str, workers: int, context: Context, noun: str = "workers") -> None:
    """NotMeasurableError for more workers (or threads: `noun`) than the container has CPUs: their number would measure the scheduler (README, "How to read a table", 6)."""
    if workers > context.cpus and not context.pod.shares_cpus:
        cpus = "1 CPU" if context.cpus == 1 else f"{context.cpus} CPUs"
        fault = f"asks for {workers} {noun}, the {context.pod.role} has {cpus} here"
        raise NotMeasurableError("cores", place, fault, f"a machine with more CPUs, or {context.cpus} at most")


def refuse_nginx_workers(place: str, workers: int, context: Context) -> None:
    """The same of nginx's, which takes a 0: a UsageError."""
    if workers == 0:
        fault = "nginx takes 0 and starts no worker: nothing would be served"
        raise UsageError(place, fault, "auto, or a number from 1 on")
    refuse_workers(place, workers, context)


def refuse_open_files(place: str, files: int, context: Context, asked: str = "") -> None:
    """NotMeasurableError for more open files than a process may have here: nginx would go on with fewer, and only log it.

    `asked`: what takes so many, where they are not asked for themselves.
    """
    if files > context.open_files:
        fault = f"{asked + ' take' if asked else 'asks for'} {files} open files, a container may have {context.open_files} here"
        remedy = "raise the shell's hard limit (ulimit -Hn), as root with CAP_SYS_RESOURCE may"
        raise NotMeasurableError("open files", place, fault, remedy)


@dataclass(frozen=True, slots=True)
class Loading:
    """A configuration that a proxy loads: since when (seconds since the epoch, None = it was not seen), and by which process.

    `pid` as the container counts.
    """

    began_s: float | None
    pid: int


class Control(Protocol):
    """The proxy in one container, as its controller or router handles it. One thread uses it."""

    interval_s: float
    """Two loads never begin closer together."""
    looks_once_more: bool
    """A change that came while one waited for its turn makes the controller look again, one turn later."""

    def started(self) -> Loading | None:
        """What the container's main process has begun to load; None until it can be told. Asked every few milliseconds."""
        ...

    def serving(self, loading: Loading) -> bool:
        """Whether it serves what it loaded. MeasuringError when it never will. Asked every few milliseconds."""
        ...

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write what a realisation says now and have it loaded. MeasuringError when refused.

        None where nothing is new, or once `over` is set: the system ends, and nobody waits for it.
        """
        ...

    def config_bytes(self) -> int:
        """Of the configuration and its maps as they lie there."""
        ...


class Image(Protocol):
    IMAGE: str
    NOTE: str
    """How changes reach it here otherwise than in a cluster; empty where they do not."""

    def realise(self, context: Context) -> Realisation:
        """UsageError for anything asked of the image that cannot be honoured here."""
        ...

    BY_TAG: bool
    """Its tag decides what runs here; left out where it does not."""
    KINDS: frozenset[str]
    """Kinds of its controller's own that it reads from `Objects.others`; left out where there are none."""
    PROXY: str
    """What the kernel calls the processes that serve, where others in its container are the control plane's; left out where all do."""
    control: Callable[[Process], Control] | None
    """None where it keeps the configuration of its start, its backends' addresses included."""


Members = Mapping[Backend, Sequence[Member]]
"""Each Service's port that is led to → its ready endpoints."""
Certificates = Mapping[str, Mapping[str, str]]
"""Secret → its files."""


def led_to(
    context: Context, controller: str, proxy: str, can: Collection[str], never: str = ""
) -> tuple[Sequence[Served], Members, Certificates]:
    """What the Gateways of a controller's classes serve, and what that takes. UsageError for a Secret that is not there, and for a rule
    that `proxy` (its name) cannot be told: `can`, `never`, see `Rule.refuse`.
    """
    objects = context.objects
    ports = objects.served(controller)
    for rule in {
        id(entry.rule): entry.rule for port in ports for found in port.hosts.values() for entry in found
    }.values():
        rule.refuse(proxy, can, never)
    backends = dict.fromkeys(backend for port in ports for backend in port.backends)
    members = {item: objects.members(item.service, item.port, context.addresses) for item in backends}
    names = dict.fromkeys(name for port in ports for name in port.secrets)
    return ports, members, {name: objects.certificate(name, "Gateway: spec.listeners") for name in names}


class Telling(Protocol):
    """An image whose file also has what its running proxy counts, and says of itself: names as in `proxy/NAME`. Both raise OSError, ValueError."""

    def counters(self, ask: Ask) -> Mapping[str, int]:
        """As `lab.targets.base.System.counters`."""
        ...

    def gauges(self, ask: Ask) -> Mapping[str, float]:
        """As `lab.targets.base.System.gauges`."""
        ...


def write_changed(process: Process, files: Mapping[str, str]) -> bool:
    """Replace those of a container's files that have another text now, each whole. True if there were any.

    Links stay. Raises OSError.
    """
    changed = False
    for path, text in files.items():
        file = process.inside(path)
        if (
            file is None
            or text.startswith("-> ")
            or (file.exists() and file.read_bytes() == text.encode(errors="surrogateescape"))
        ):
            continue
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_text(text, errors="surrogateescape")
        fresh.chmod(0o644)
        fresh.replace(file)
        changed = True
    return changed


def command(container: Container) -> tuple[str, ...]:
    """Of a container as its manifest says. UsageError where it leaves that to an image."""
    if not container.command:
        raise UsageError(
            container.place, "'command' is missing, and the image's own is not on this machine", "name the command"
        )
    return container.command + container.args


Realise = Callable[[Context], Realisation]
"""What a container's image stands for here. UsageError for what cannot be honoured."""
