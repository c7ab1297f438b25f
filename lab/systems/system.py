"""The interface between the lab's targets and a proxy system: what a system's package says of its proxy, and what it is given to work with.

A package `lab/systems/NAME` has a module `system` with one value `SYSTEM`, a `ProxySystem`; `lab.systems.table` lists them. Most fields have
a default that means "nothing of the kind", so that a system says only what is special about it. Refuses to know a target: what runs a
system's processes is seen through `Process`.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from re import Pattern
from typing import Protocol

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, did_you_mean, refuse_unknown
from lab.base.quantities import quantity
from lab.systems.manifests.gateway_api import Backend, Served, rules_of
from lab.systems.manifests.objects import Member, Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.reading import Reader

PRIVATE = ("/tmp", "/srv", "/var/log", "/var/lib", "/var/cache/nginx", "/dev/shm", "/run")
"""Folders that every container has for itself. /run comes last: the sources of all mounts lie below it."""

WRITABLE = ("/var/log/nginx", "/var/lib/nginx")
"""Folders in those of `PRIVATE` that are there from the start: nginx opens its first log and makes its folders there, whatever its configuration says."""

NODE_ADDRESS = "10.64.0.1"
"""The address of the node on the local targets, where logs that a proxy sends to another host are taken in."""

MACHINE = ""
"""`system` and `short` of a controller that runs on the machine's own files: its program is brought as the local target brings it."""

Ask = Callable[[int, str], str]
"""(port, path with its query) → what the proxy's own interface on its pod's loopback answers. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Root:
    """An image's own files, unpacked: what a container sees instead of the machine's, read only but for copies of some folders."""

    folder: Path
    own: tuple[str, ...]
    """Folders that every container has a copy of, in memory."""
    working_dir: str = "/"


@dataclass(frozen=True, slots=True)
class Realisation:
    """What to start instead of the image. `files`: path → text (bytes that are no UTF-8 as surrogates), or `-> target` for a symbolic link."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    pre_stop: tuple[str, ...] | None = None
    """Instead of the manifest's preStop; None = as the manifest says."""
    stop_signal: signal.Signals = signal.SIGTERM
    """The image's STOPSIGNAL."""
    checker: tuple[str, ...] = ()
    """The proxy's own command that says whether it takes its configuration, as `nginx -t`, after a shell perhaps; empty = it has none."""
    waits: tuple[float, float] = (0.0, 0.0)
    """Seconds that the image's own process, which stands here for the container, waits when it is told to end: before it
    passes that on, serving as before, and once what it started has ended. Only where pods come and go."""
    root: Root | None = None
    """None = the machine's own files."""
    programs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Path → a program that the machine's own files lack, or that lies where a container has a folder of its own."""
    about: str = ""
    """What runs that is not the machine's own, with its version: a fact of the run."""


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


class Process(Protocol):
    """A container that runs, or will, as its system may look at it and act on it."""

    container: Container
    stdout: Path

    @property
    def pid(self) -> int | None:
        """The main process, as the lab sees it, while it runs."""

    @property
    def started(self) -> Realisation:
        """What the container is started with."""
        ...

    def processes(self) -> list[int]:
        """The main process and all its descendants that run; empty when it ended."""
        ...

    def inside(self, path: str) -> Path | None:
        """Where a container's path lies for the lab; None if it is not in a folder of the container's own."""

    def tail(self, lines: int = 20, output_too: bool = True) -> str:
        """The last lines of its error output, or (unless told not to) of its output where that is empty."""
        ...

    def ask(self, port: int, path: str) -> str:
        """Return what an interface on the container's loopback answers to a GET. Raises OSError."""
        ...

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start a command inside, on the container's own CPUs, whose output goes to a descriptor. ProcessLookupError if the container ended."""
        ...

    def end_entered(self, popen: subprocess.Popen[bytes]) -> None:
        """SIGKILL what `run_pinned` started, and wait for it."""


Renew = Callable[[Process], None]
"""Ask a proxy for a reload of the configuration that it has, which makes new workers. MeasuringError."""


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

    def serving(self, loading: Loading) -> bool:
        """Whether it serves what it loaded. MeasuringError when it never will. Asked every few milliseconds."""
        ...

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write what a realisation says now and have it loaded. MeasuringError when refused.

        None where nothing is new, or once `over` is set: the system ends, and nobody waits for it.
        """

    def config_bytes(self) -> int:
        """Of the configuration and its maps as they lie there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The programs of a controller's image as they run on the apiserver target: how they are started, and what their log says."""

    image: str
    """The repository's last parts, without registry and tag."""
    realise: Callable[[Context], Realisation]
    """UsageError for anything asked of the image that cannot be honoured there, or files that are not there."""
    proxy: str
    """What the kernel calls the proxy's own processes; all others in its container are the control plane's."""
    system: str = MACHINE
    """Of the folder in scripts/tools/ that its files are made from."""
    short: str = MACHINE
    """Its name in manifests/images."""
    made: bool = False
    """scripts/controllers can make it where its image is not to be had; else LAB_IMAGES names it, or there is none."""
    config: str = ""
    """Where its proxy's configuration lies in the container; empty where it lies nowhere."""
    says: tuple[str, ...] = ("stderr",)
    """Of `stdout` and `stderr`, what its controller logs to."""
    renew: Renew | None = None
    """How a reload of what it has makes new workers of its proxy; None where none does."""
    load_lines: Mapping[str, str] = field(default_factory=dict[str, str])
    """Words in a line of its log → the event that they tell, `Reload` or `Reloaded`."""
    about: Callable[[], str] = lambda: ""
    """Return what it really is: release, and what stands in for what; empty where `realise` tells. UsageError when its files are not there."""
    ignored: Callable[[Sequence[str]], list[str]] = lambda _log: []
    """Return what its log says that it ignores or refuses of what it was given, in its own words."""
    complaints: Callable[[Sequence[str]], list[str]]
    """Return what its log says of why it does not serve, each once."""

    def event_of(self, line: str) -> str | None:
        """Return the event that a line of its log tells; None where it tells none."""
        return next((event for words, event in self.load_lines.items() if words in line), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadbackKind:
    """A kind of check by which a knob is read back: what reads it, which further keys a check of it may have, and how it is put in words."""

    read: Reader
    possible: frozenset[str] = frozenset()
    spoken: str = "{kind}: {name}{context}"
    workers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a check whose value is a number of workers → what these are called. More of them than CPUs cannot be measured."""
    open_files: frozenset[str] = frozenset()
    """Names of checks whose value is a number of open files."""


WorkerRule = Callable[[Fraction | None, int | None], int | None]
"""(CPU limit, CPUs that it may use; None: none, not known) → workers or threads; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many workers or threads a proxy has: by which settings it is told, by which rule it chooses, and how the running ones are counted."""

    rules: Mapping[str, WorkerRule] = field(default_factory=dict[str, WorkerRule])
    """Image, by the last parts of its repository or more, whatever registry it comes from → what it makes of its CPUs where it is told nothing."""
    keys: tuple[str, ...] = ()
    """Keys of its ConfigMap that tell it a number."""
    variables: tuple[str, ...] = ()
    """The same of environment variables."""
    options: tuple[str, ...] = ()
    """The same of options of its command line, each followed by its value."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind of an object of its own → field of its spec that tells it a number."""
    directive: Pattern[str] | None = None
    """What finds the number in a configuration file that a ConfigMap mounts."""
    capped: Callable[[int, Fraction | None], int] | None = None
    """What it makes of a number that it is told, under a CPU limit (None: none); None = that number."""
    count: Callable[[Sequence[tuple[int, str]]], int] | None = None
    """Count the running ones among (threads, command line) of processes, which may be of other systems, too."""
    process: str = ""
    """What the kernel calls a process that is asked in a cluster, too, how many it has; empty: none is."""
    port: int = 0
    page: str = ""
    """Where a proxy that counts its own workers is asked for the number, on its loopback."""
    metric: str = ""
    """What that number is called there, as a regular expression; the number stands behind it, after a colon or a blank. Several are added up."""

    def running(self, process: Process) -> Mapping[str, float]:
        """Return how many run, as the proxy tells it itself, as the gauge `workers`; empty where it does not. Raises OSError, ValueError."""
        if not self.metric:
            return {}
        found = re.findall(rf"^{self.metric}:? (\S+)$", process.ask(self.port, self.page), re.MULTILINE)
        return {"workers": sum(map(float, found))} if found else {}


@dataclass(frozen=True, slots=True)
class Tool:
    """A program of the machine's that some variants of a system want: how it is asked for its version, the least that does, and how to get it."""

    name: str
    argv: tuple[str, ...]
    least: tuple[int, ...]
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySystem:
    """One proxy system. What it leaves out it has not: then a target does what it does for any container."""

    name: str
    """As its folder in manifests/base is called."""
    image: str
    """The last parts of its image's repository, without registry and tag."""
    realise: Callable[[Context], Realisation] | None = None
    """Say what its image stands for where the lab starts its processes itself; None: its command, executed. UsageError for anything that cannot be honoured."""
    note: str = ""
    """How changes reach it on the local target otherwise than in a cluster; empty where they do not."""
    by_tag: bool = False
    """Its image's tag decides what runs on the local target."""
    kinds: frozenset[str] = frozenset()
    """Kinds of its controller's own that it reads from `Objects.others`."""
    proxy: str = ""
    """What the kernel calls the processes that serve, where others in its container are the control plane's; empty: all serve."""
    control: Callable[[Process], Control] | None = None
    """None where it keeps the configuration of its start, its backends' addresses included."""
    renew: Renew | None = None
    """How a reload of what it has makes new workers; None where none does."""
    renew_in_cluster: str = ""
    """What the kernel calls its master, which on a cluster makes new workers when it is told so (SIGHUP); empty: none does."""
    passing: str = ""
    """How the title of a process begins that ends by itself soon after a start, and is none that the proxy must have."""
    counters: Callable[[Process], Mapping[str, int]] | None = None
    """Return what the proxy counts itself, as `proxy/NAME` (`requests`, `requests_h2`, `tls_handshakes`, `tls_resumed`). Raises OSError, ValueError."""
    count_script: str = ""
    """A script for `sh` in a cluster's container that prints what `parse_counts` reads, and does nothing where another proxy runs. It ends the
    shell with 0 once it has told it, or with another status where this proxy runs and does not tell."""
    parse_counts: Callable[[str], Mapping[str, int]] | None = None
    """Return the counters in what `count_script` printed; empty where it printed something else."""
    versions: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """Fact of a run → what tells the version of a program on PATH that stands for the image's. UsageError where it must be there and is not."""
    of_backend: bool = False
    """The backend runs the same program, so that every target that starts processes here needs it."""
    tools: tuple[Tool, ...] = ()
    """What its variants want of the machine beyond that."""
    sinks: Callable[[Objects], set[int]] = lambda _objects: set()
    """Return the ports of the node to which it would log."""
    module: str = ""
    """The Go module that its program is built from, where its image is nothing but that."""
    controllers: tuple[Controller, ...] = ()
    """Its images' own programs, for the apiserver target."""
    config_files: tuple[str, ...] = ()
    """Where its configuration lies in its image's container, as patterns of a shell."""
    interval_variable: str = ""
    """Environment variable that sets the least time between two loads, of which a second one follows the first by itself."""
    definitions: tuple[str, ...] = ()
    """Files in manifests/clusters that define kinds which its variants need on a cluster."""
    definitions_of: str = ""
    """Whose kinds these are, in words."""
    workloads: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind of an object of which its controller makes a Deployment → the path of what is laid over that."""
    migrations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Successor of ingress-nginx, as its folder in manifests/base is called → the file in the system's package that has what stands in the
    place of ingress-nginx's keys."""
    workers: Workers = field(default_factory=Workers)
    readbacks: Mapping[str, ReadbackKind] = field(default_factory=dict[str, ReadbackKind])
    """Kind of check → how it is read back."""


Members = Mapping[Backend, Sequence[Member]]
"""Each Service's port that is led to → its ready endpoints."""
Certificates = Mapping[str, Mapping[str, str]]
"""Secret → its files."""


def configmap_of(place: str, named: str, context: Context) -> tuple[str, Mapping[str, str]]:
    """(its place, its data) of the ConfigMap that an argument names as NAMESPACE/NAME, of the pod's own namespace. UsageError."""
    known = {
        f"{context.pod.namespace}/{name}": (f"ConfigMap/{name}", data)
        for name, data in context.objects.configmaps.items()
    }
    refuse_unknown(named, known, place, f"there is no ConfigMap {named!r}")
    return known[named]


def refuse_workers(place: str, workers: int, context: Context, noun: str = "workers") -> None:
    """NotMeasurableError for more workers (or threads: `noun`) than the container has CPUs: their number would measure the scheduler (README, "How to read a table", 6)."""
    if workers > context.cpus and not context.pod.shares_cpus:
        cpus = "1 CPU" if context.cpus == 1 else f"{context.cpus} CPUs"
        fault = f"asks for {workers} {noun}, the {context.pod.role} has {cpus} here"
        raise NotMeasurableError("cores", place, fault, f"a machine with more CPUs, or {context.cpus} at most")


def refuse_open_files(place: str, files: int, context: Context, asked: str = "") -> None:
    """NotMeasurableError for more open files than a process may have here: nginx would go on with fewer, and only log it.

    `asked`: what takes so many, where they are not asked for themselves.
    """
    if files > context.open_files:
        fault = f"{asked + ' take' if asked else 'asks for'} {files} open files, a container may have {context.open_files} here"
        remedy = "raise the shell's hard limit (ulimit -Hn), as root with CAP_SYS_RESOURCE may"
        raise NotMeasurableError("open files", place, fault, remedy)


def find_program(place: str, program: str) -> None:
    """UsageError when a container's program is not on this machine (a path of its own volumes is not looked at)."""
    if not program.startswith(tuple(f"{prefix}/" for prefix in PRIVATE)) and shutil.which(program) is None:
        remedy = "install it (`just doctor` lists what is missing), or use --target kind"
        raise UsageError(place, f"the program {program!r} is not on this machine", remedy)


def led_to(
    context: Context,
    ports: Sequence[Served],
    proxy: str,
    headers: bool = True,
    never: str = "",
    timeout: bool = False,
) -> tuple[Members, Certificates]:
    """What ports lead to, and the files of their Secrets. UsageError for a Secret that is not there, and for a rule that `proxy` (its name) cannot
    be told: `headers`, `never`, `timeout`, see `Rule.refuse`.
    """
    rules = rules_of(ports).values()
    for rule in rules:
        rule.refuse(proxy, headers, never, timeout)
    backends = dict.fromkeys(rule.backend for rule in rules if rule.backend)
    members = {item: context.objects.members(item.service, item.port, context.addresses) for item in backends}
    names = dict.fromkeys(name for port in ports for name in port.secrets)
    return members, {name: context.objects.certificate(name, "TLS") for name in names}


def expect(container: Container, held: bool, what: str, base: str) -> None:
    """UsageError for a container that does not ask for what the lab's own manifests do. `what`: that, in words; `base`: those manifests."""
    if not held:
        raise UsageError(container.place, f"expected {what}", f"as in manifests/base/{base}")


def served_natively(context: Context, name: str, args: tuple[str, ...]) -> list[Served]:
    """What a proxy without a controller serves, as its base of that name has it. UsageError for another command line."""
    container = context.container
    expect(container, not container.command and container.args == args, f"no command, and args {list(args)}", name)
    return context.objects.served(f"lab.test/{name}")


def arguments(
    container: Container, words: Sequence[str], honoured: Sequence[str], waived: tuple[str, ...] = ()
) -> dict[str, str]:
    """Name → value of arguments `NAME=VALUE`. UsageError for one that is not among those honoured, and does not begin as one that is waived."""
    found = dict[str, str]()
    for word in words:
        name, _, value = word.partition("=")
        if name not in honoured and not word.startswith(waived):
            fault = f"the local target does not honour {word}"
            raise UsageError(f"{container.place}.args", fault, did_you_mean(name, [*honoured, *waived]))
        found[name] = value
    return found


def pid_of(process: Process, missed: str) -> int:
    """A container's main process. MeasuringError where it has ended, before it did what it `missed`, in words."""
    if (pid := process.pid) is None:
        fault = f"ended before it {missed}"
        raise MeasuringError(process.container.place, fault, process.tail(5) or "it printed nothing")
    return pid


def bytes_of(process: Process, paths: Iterable[str]) -> int:
    """How many bytes those of a container's files have that are there."""
    files = (process.inside(path) for path in paths)
    return sum(file.stat().st_size for file in files if file is not None and file.exists())


def write_changed(process: Process, files: Mapping[str, str]) -> bool:
    """Replace those of a container's files that have another text now, each whole. True if there were any.

    Links stay. Raises OSError.
    """
    inside = {process.inside(path): text.encode(errors="surrogateescape") for path, text in files.items()}
    old = [file for file, text in inside.items() if file and file.exists() and file.read_bytes() == text]
    new = {file: text for file, text in inside.items() if file and file not in old and not text.startswith(b"-> ")}
    for file, text in new.items():
        fresh = file.with_name(f".{file.name}.new")
        fresh.write_bytes(text)
        fresh.chmod(0o644)
        fresh.replace(file)
    return bool(new)


KLOG_FAULT = re.compile(r"^[EF]\d{4} \S+\s+\d+ [\w.]+:\d+\] (?P<words>.*)$")
"""An error in the log of a program of Kubernetes': level and date, time, process, place."""


def words_in(log: Iterable[str], *forms: Pattern[str]) -> list[str]:
    """What lines of a log say that have one of these forms: their group `words`, each text once."""
    found = (match["words"] for line in log for form in forms if (match := form.match(line)))
    return list(dict.fromkeys(found))


def is_repository_of(image: str, repository: str) -> bool:
    """Return whether a repository, whatever registry it comes from, ends in an image's name, which is its last parts."""
    return f"/{repository}".endswith(f"/{image}")


def command(container: Container) -> tuple[str, ...]:
    """Of a container as its manifest says. UsageError where it leaves that to an image."""
    if not container.command:
        fault = "'command' is missing, and the image's own is not on this machine"
        raise UsageError(container.place, fault, "name the command")
    return container.command + container.args


Realise = Callable[[Context], Realisation]
"""What a container's image stands for here. UsageError for what cannot be honoured."""


def cores(limit: object) -> Fraction | None:
    """A CPU limit as Kubernetes writes it, in CPUs; None for no limit."""
    return (quantity(str(limit)) or None) if limit is not None else None


def limit_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Rule of workers: the CPU limit, rounded up, however many CPUs there are; without one the CPUs."""
    return ceil(limit) if limit else cpus


def limit_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Rule of workers: the CPU limit, rounded down, but one, however many CPUs there are (automaxprocs); without one the CPUs."""
    return max(1, floor(limit)) if limit else cpus


def all_cpus(_limit: Fraction | None, cpus: int | None) -> int | None:
    """Rule of workers: the CPUs, limit or not."""
    return cpus


def within_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Rule of workers: the CPUs that it may use, and no more than its limit, rounded down, but one."""
    return cpus and min(cpus, max(1, floor(limit)) if limit else cpus)


def within_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Rule of workers: the CPUs that it may use, and no more than its limit, rounded up, but two (Go 1.25)."""
    return cpus and min(cpus, max(2, ceil(limit)) if limit else cpus)
