"""The interface between the lab's targets and a proxy system.

It holds what a system's package states about its proxy (`ProxySystem`), and what a target gives the package to work with
(`Context`, `ContainerProcess`). A package `lab/systems/NAME` has a module `system` with one value `SYSTEM`, a `ProxySystem`, and
`lab.systems.table` lists them. Most fields have a default that means "nothing of the kind", so a system states only what is
special about it. This module knows no target: it sees whatever runs a system's processes through `ContainerProcess`.
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
from lab.base.quantities import parse_quantity
from lab.systems.manifests.gateway_api import ServedPort, ServicePort, list_rules
from lab.systems.manifests.objects import Endpoint, Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.reading import Reader

PRIVATE_FOLDERS = ("/tmp", "/srv", "/var/log", "/var/lib", "/var/cache/nginx", "/dev/shm", "/run")
"""The folders that every container has for itself. /run comes last: the sources of all mounts lie below it."""

INITIAL_FOLDERS = ("/var/log/nginx", "/var/lib/nginx")
"""The folders inside those of `PRIVATE_FOLDERS` that exist from the start.

Whatever its configuration, nginx opens its first log and creates its folders there.
"""

NODE_ADDRESS = "10.64.0.1"
"""The address of the node on the local targets, which receives the logs that a proxy sends to another host."""

MACHINE = ""
"""The `system` and `short` of a controller that runs on the machine's own files.

Its program is provided as the local target provides it.
"""

Ask = Callable[[int, str], str]
"""A function that returns what the proxy's interface on its pod's loopback answers.

It takes the port and the path with its query, and raises OSError when the interface does not answer.
"""


@dataclass(frozen=True, slots=True)
class Root:
    """The unpacked files of an image, which a container sees instead of the machine's.

    They are read-only, apart from copies of some folders.

    Attributes:
        own: the folders that every container has a copy of, in memory.

    """

    folder: Path
    own: tuple[str, ...]
    working_dir: str = "/"


@dataclass(frozen=True, slots=True)
class Realisation:
    """A description of what a target starts instead of a container's image."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    """The text of each file by its path, or `-> target` for a symbolic link.

    Bytes that are no UTF-8 are written as surrogates.
    """
    pre_stop: tuple[str, ...] | None = None
    """The preStop command instead of the manifest's; None = as the manifest has it."""
    stop_signal: signal.Signals = signal.SIGTERM
    """The STOPSIGNAL of the image."""
    checker: tuple[str, ...] = ()
    """The proxy's command that checks its configuration, such as `nginx -t`; empty = it has none.

    The command may begin with a shell.
    """
    waits: tuple[float, float] = (0.0, 0.0)
    """The seconds that the image's own process waits when it has to end, where pods come and go.

    The first part is the time before it passes the signal on, during which it serves as before. The second part follows after
    the processes that it started have ended.
    """
    root: Root | None = None
    """The files that the container sees; None = the machine's own."""
    programs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """The programs to mount, by their path in the container.

    These are programs that the machine's own files lack, or that lie where a container has a private folder.
    """
    about: str = ""
    """The name and version of a program that is not the machine's own, which becomes a fact of the run."""


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a realisation may depend on.

    Attributes:
        addresses: pod → IP address.
        cpus: the CPUs of the container.
        somaxconn: the net.core.somaxconn that its process sees.
        open_files: the limit of open files that its process has.

    """

    container: Container
    pod: Pod
    objects: Objects
    addresses: Mapping[str, str]
    cpus: int
    somaxconn: int
    open_files: int


class ContainerProcess(Protocol):
    """A container that runs, or will run, with what its system may observe of it and do to it."""

    container: Container
    stdout: Path

    @property
    def pid(self) -> int | None:
        """The id of the main process in the lab's own namespace; None while it does not run."""

    @property
    def started(self) -> Realisation:
        """The realisation that the container is started with."""
        ...

    def processes(self) -> list[int]:
        """Return the main process and all its running descendants; an empty list when it has ended."""
        ...

    def inside(self, path: str) -> Path | None:
        """Return where the lab finds a container's path; None if it is in no private folder of the container."""

    def tail(self, lines: int = 20, output_too: bool = True) -> str:
        """Return the last lines of its error output.

        Args:
            output_too: whether the standard output is used where the error output is empty.

        """
        ...

    def ask(self, port: int, path: str) -> str:
        """Send a GET request to an interface on the container's loopback, and return the answer.

        Raises:
            OSError: when the interface does not answer.

        """
        ...

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start a command inside the container, on its own CPUs.

        Args:
            output: the file descriptor that receives the command's output.

        Raises:
            ProcessLookupError: when the container has ended.

        """
        ...

    def end_entered(self, popen: subprocess.Popen[bytes]) -> None:
        """Kill (SIGKILL) a command that `run_pinned` started, and wait until it has ended."""


Renew = Callable[[ContainerProcess], None]
"""A function that makes a proxy reload the configuration that it has, so that it starts new workers.

It raises MeasuringError when the proxy cannot.
"""


@dataclass(frozen=True, slots=True)
class Loading:
    """A configuration that a proxy is loading.

    Attributes:
        began_s: when the load began, in seconds since the epoch; None = that was not observed.
        pid: the process that loads it, as the container counts.

    """

    began_s: float | None
    pid: int


class Control(Protocol):
    """The handle by which the lab makes one container's proxy load configurations, as its controller or router does.

    Only one thread uses it.
    """

    interval_s: float
    """The minimum time in seconds between the beginnings of two loads."""
    looks_once_more: bool
    """The fact that a change which arrives while another one waits causes a second look, one interval later."""

    def started(self) -> Loading | None:
        """Return what the container's main process has begun to load; None until that is known.

        The lab calls this every few milliseconds.
        """

    def serving(self, loading: Loading) -> bool:
        """Return whether the proxy serves what it loaded. The lab calls this every few milliseconds.

        Raises:
            MeasuringError: when it never will.

        """
        ...

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write the files of a realisation and make the proxy load them.

        Args:
            files: path → text, as in `Realisation.files`.
            over: an event that is set when the system ends, so that nothing waits for the proxy.

        Returns:
            The load that began; None where no file changed, or once `over` is set.

        Raises:
            MeasuringError: when the proxy refuses the configuration.

        """

    def config_bytes(self) -> int:
        """Return the size in bytes of the configuration and its maps, as they lie in the container."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The programs of a controller's image as they run on the apiserver target.

    It states how they are started, and how their log is read.
    """

    image: str
    """The last parts of the image's repository, without registry and tag."""
    realise: Callable[[Context], Realisation]
    """The function that returns what to start for the image.

    It raises UsageError for anything in the manifest that cannot be honoured there, and when its files are missing.
    """
    proxy: str
    """The kernel's name for the proxy's own processes; all others in its container belong to the control plane."""
    system: str = MACHINE
    """The name of the folder in scripts/tools/ that its files are built from."""
    short: str = MACHINE
    """The name of the image in manifests/images."""
    made: bool = False
    """The fact that scripts/controllers can build it where its image is not available.

    Otherwise LAB_IMAGES has to name it, or it cannot run.
    """
    config: str = ""
    """The path of its proxy's configuration in the container; empty where the configuration is in no file."""
    says: tuple[str, ...] = ("stderr",)
    """The streams that its controller logs to: `stdout`, `stderr` or both."""
    renew: Renew | None = None
    """The function that makes its proxy start new workers by a reload; None where no reload does."""
    load_lines: Mapping[str, str] = field(default_factory=dict[str, str])
    """The event that a line of its log reports (`Reload` or `Reloaded`), by a text that the line contains."""
    about: Callable[[], str] = lambda: ""
    """The function that returns what really runs: the release, and what stands in for what.

    It returns an empty text where `realise` reports it, and raises UsageError when its files are missing.
    """
    ignored: Callable[[Sequence[str]], list[str]] = lambda _log: []
    """The function that returns, from its log, what it ignores or refuses of its configuration, in its own words."""
    complaints: Callable[[Sequence[str]], list[str]]
    """The function that returns, from its log, the distinct reasons why it does not serve."""

    def event_of(self, line: str) -> str | None:
        """Return the event that a line of its log reports; None where it reports none."""
        return next((event for text, event in self.load_lines.items() if text in line), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadbackKind:
    """A kind of check by which a knob is read back."""

    read: Reader
    possible: frozenset[str] = frozenset()
    """The optional keys that a check of this kind may have."""
    spoken: str = "{kind}: {name}{context}"
    """The format of a check's description."""
    workers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The noun for the value, by the name of a check whose value is a number of workers.

    More workers than CPUs cannot be measured.
    """
    open_files: frozenset[str] = frozenset()
    """The names of checks whose value is a number of open files."""


WorkerRule = Callable[[Fraction | None, int | None], int | None]
"""A function from the CPU limit and the usable CPUs to the number of workers or threads.

The limit is None where there is no limit, and the CPUs are None where they are not known. The result is None where it is not
known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The number of workers or threads of a proxy.

    It states which settings configure the number, which rule the proxy uses otherwise, and how the running ones are counted.
    """

    rules: Mapping[str, WorkerRule] = field(default_factory=dict[str, WorkerRule])
    """The rule that the proxy uses where no number is configured, by its image.

    The image is given by the last parts of its repository, or more (a tag), whatever registry it comes from.
    """
    keys: tuple[str, ...] = ()
    """The keys of its ConfigMap that configure the number."""
    variables: tuple[str, ...] = ()
    """The environment variables that configure the number."""
    options: tuple[str, ...] = ()
    """The command-line options that configure the number, each followed by its value."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """The field of the spec that configures the number, by the kind of an object that only this system reads."""
    directive: Pattern[str] | None = None
    """The regular expression that finds the number in a configuration file that a ConfigMap mounts."""
    capped: Callable[[int, Fraction | None], int] | None = None
    """The function from a configured number and the CPU limit (None: no limit) to the number that the proxy uses.

    None = it uses the configured number.
    """
    count: Callable[[Sequence[tuple[int, str]]], int] | None = None
    """The function that counts the running workers among (threads, command line) of processes.

    The processes may also be those of other systems.
    """
    process: str = ""
    """The kernel's name for a process whose interface is queried for the number in a cluster, too; empty: none is."""
    port: int = 0
    page: str = ""
    """The page, on `port` of the loopback, on which the proxy itself reports the number; empty: it does not."""
    metric: str = ""
    """The regular expression for the name of that number on the page.

    The number follows the name after a colon or a blank. Several such numbers are added up.
    """

    def running(self, process: ContainerProcess) -> Mapping[str, float]:
        """Return the number of running workers, as the proxy itself reports it, as the gauge `workers`.

        Returns:
            An empty mapping where the proxy does not report it.

        Raises:
            OSError: when its interface does not answer.
            ValueError: when the answer has no number.

        """
        if not self.metric:
            return {}
        numbers = re.findall(rf"^{self.metric}:? (\S+)$", process.ask(self.port, self.page), re.MULTILINE)
        return {"workers": sum(map(float, numbers))} if numbers else {}


@dataclass(frozen=True, slots=True)
class MachineTool:
    """A program on the machine that some variants of a system need.

    Attributes:
        argv: the arguments by which it prints its version.
        least: the minimum version.
        why: the reason why it is needed, in words.
        remedy: how to install it.

    """

    name: str
    argv: tuple[str, ...]
    least: tuple[int, ...]
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySystem:
    """A proxy system, as its package describes it to the targets.

    Where a field keeps its default, a target treats the system like any other container.
    """

    name: str
    """The name of its folder in manifests/base."""
    image: str
    """The last parts of its image's repository, without registry and tag."""
    realise: Callable[[Context], Realisation] | None = None
    """The function that returns what to start for its image, where the lab starts its processes itself.

    None: the command of the manifest is executed. The function raises UsageError for anything that cannot be honoured.
    """
    note: str = ""
    """The way in which changes reach it on the local target, if it differs from a cluster's; otherwise empty."""
    by_tag: bool = False
    """The fact that the tag of its image decides which version runs on the local target."""
    kinds: frozenset[str] = frozenset()
    """The kinds of objects that only its controller reads, from `Objects.others`."""
    proxy: str = ""
    """The kernel's name for the processes that serve; empty: all processes serve.

    It is set where the other processes in the container are the control plane's.
    """
    control: Callable[[ContainerProcess], Control] | None = None
    """The function that returns the handle for configuration changes.

    None where the proxy keeps the configuration of its start, with the addresses of its backends.
    """
    renew: Renew | None = None
    """The function that makes it start new workers by a reload; None where no reload does."""
    renew_in_cluster: str = ""
    """The kernel's name for its master process, which starts new workers on SIGHUP in a cluster; empty: none does."""
    passing: str = ""
    """The beginning of the title of a process that ends soon after a start, and which the proxy does not need."""
    counters: Callable[[ContainerProcess], Mapping[str, int]] | None = None
    """The function that returns the proxy's own counts, which become the counters `proxy/NAME`.

    The names are `requests`, `requests_h2`, `tls_handshakes` and `tls_resumed`. It raises OSError or ValueError.
    """
    count_script: str = ""
    """The script for `sh` in a cluster's container that prints the input of `parse_counts`.

    It does nothing where another proxy runs. Otherwise it ends the shell: with status 0 once it has printed the counts, or
    with another status where this proxy runs but does not report them.
    """
    parse_counts: Callable[[str], Mapping[str, int]] | None = None
    """The function that parses the counters from the output of `count_script`; empty for any other text."""
    versions: Mapping[str, Callable[[], str]] = field(default_factory=dict[str, Callable[[], str]])
    """The functions that return the version of a program on PATH, by the name of the run's fact.

    The program runs instead of the image's. Such a function raises UsageError where the program is required and missing.
    """
    of_backend: bool = False
    """The fact that the backend runs the same program, so that every target that starts processes here needs it."""
    tools: tuple[MachineTool, ...] = ()
    """The further programs that its variants need on the machine."""
    sinks: Callable[[Objects], set[int]] = lambda _objects: set()
    """The function that returns the ports of the node to which it would log."""
    module: str = ""
    """The Go module that its program is built from, where the image contains only that program."""
    controllers: tuple[Controller, ...] = ()
    """The programs of its images, for the apiserver target."""
    config_files: tuple[str, ...] = ()
    """The paths of its configuration in its image's container, as patterns of a shell."""
    interval_variable: str = ""
    """The environment variable that sets the minimum time between two loads.

    It matters where a second load follows the first without any action of the lab.
    """
    definitions: tuple[str, ...] = ()
    """The files in manifests/clusters that define the kinds which its variants need in a cluster."""
    definitions_of: str = ""
    """The project that defines these kinds, in words."""
    workloads: Mapping[str, str] = field(default_factory=dict[str, str])
    """The path of the settings for a Deployment, by the kind of the object that has them.

    The controller creates the Deployment from that object, and applies these settings to it.
    """
    migrations: Mapping[str, str] = field(default_factory=dict[str, str])
    """The file with the counterparts of ingress-nginx's keys, by the successor of ingress-nginx.

    The successor is named like its folder in manifests/base. The file lies in the system's package.
    """
    workers: Workers = field(default_factory=Workers)
    readbacks: Mapping[str, ReadbackKind] = field(default_factory=dict[str, ReadbackKind])
    """The kinds of checks that this system adds, by their names."""


Members = Mapping[ServicePort, Sequence[Endpoint]]
"""The ready endpoints of each Service's port that a route leads to."""
Certificates = Mapping[str, Mapping[str, str]]
"""The files of each Secret."""


def find_configmap(place: str, reference: str, context: Context) -> tuple[str, Mapping[str, str]]:
    """Return the ConfigMap that an argument names as NAMESPACE/NAME, which must be in the pod's own namespace.

    Args:
        place: the place of the argument, for error messages.
        reference: NAMESPACE/NAME.

    Returns:
        Its place for error messages, and its data.

    Raises:
        UsageError: when there is no such ConfigMap.

    """
    configmaps = {
        f"{context.pod.namespace}/{name}": (f"ConfigMap/{name}", data)
        for name, data in context.objects.configmaps.items()
    }
    refuse_unknown(reference, configmaps, place, f"there is no ConfigMap {reference!r}")
    return configmaps[reference]


def refuse_workers(place: str, workers: int, context: Context, noun: str = "workers") -> None:
    """Refuse more workers than the container has CPUs, as they would measure the scheduler.

    The reason is in the README, "How to read a table", 6.

    Args:
        place: the place of the setting, for the error message.
        noun: `workers` or `threads`.

    Raises:
        NotMeasurableError: when there are more workers than CPUs and the pod does not share its CPUs.

    """
    if workers > context.cpus and not context.pod.shares_cpus:
        cpus = "1 CPU" if context.cpus == 1 else f"{context.cpus} CPUs"
        fault = f"asks for {workers} {noun}, the {context.pod.role} has {cpus} here"
        raise NotMeasurableError("cores", place, fault, f"a machine with more CPUs, or {context.cpus} at most")


def refuse_open_files(place: str, files: int, context: Context, consumer: str = "") -> None:
    """Refuse more open files than a process may have here, as nginx would continue with fewer and only log it.

    Args:
        place: the place of the setting, for the error message.
        consumer: what needs so many open files, such as `400 connections`; empty where the setting is their number.

    Raises:
        NotMeasurableError: when there are more.

    """
    if files > context.open_files:
        fault = f"{consumer + ' take' if consumer else 'asks for'} {files} open files, a container may have {context.open_files} here"
        remedy = "raise the shell's hard limit (ulimit -Hn), as root with CAP_SYS_RESOURCE may"
        raise NotMeasurableError("open files", place, fault, remedy)


def find_program(place: str, program: str) -> None:
    """Refuse a container's program that is not on this machine; a path in the container's volumes is not checked.

    Raises:
        UsageError: when the program is missing.

    """
    if not program.startswith(tuple(f"{prefix}/" for prefix in PRIVATE_FOLDERS)) and shutil.which(program) is None:
        remedy = "install it (`just doctor` lists what is missing), or use --target kind"
        raise UsageError(place, f"the program {program!r} is not on this machine", remedy)


def resolve_targets(
    context: Context,
    ports: Sequence[ServedPort],
    proxy: str,
    headers: bool = True,
    never: str = "",
    timeout: bool = False,
) -> tuple[Members, Certificates]:
    """Return the endpoints that ports lead to, and the files of their Secrets.

    Args:
        ports: the ports that the proxy serves.
        proxy: the proxy's name, for error messages.
        headers: whether it can set request headers, see `Rule.refuse`.
        never: the characters that it cannot write in a header's value, see `Rule.refuse`.
        timeout: whether it can set a timeout of the request, see `Rule.refuse`.

    Raises:
        UsageError: for a Secret that does not exist, and for a rule that the proxy's configuration cannot express.

    """
    rules = list_rules(ports).values()
    for rule in rules:
        rule.refuse(proxy, headers, never, timeout)
    backends = dict.fromkeys(rule.backend for rule in rules if rule.backend)
    members = {item: context.objects.members(item.service, item.port, context.addresses) for item in backends}
    names = dict.fromkeys(name for port in ports for name in port.secrets)
    return members, {name: context.objects.certificate(name, "TLS") for name in names}


def refuse_unexpected(container: Container, held: bool, expectation: str, base: str) -> None:
    """Refuse a container that is not like the one in the lab's own manifests.

    Args:
        held: whether it is like that.
        expectation: what is expected, in words.
        base: the folder in manifests/base that has such a container.

    Raises:
        UsageError: when it is not.

    """
    if not held:
        raise UsageError(container.place, f"expected {expectation}", f"as in manifests/base/{base}")


def list_native_served(context: Context, name: str, args: tuple[str, ...]) -> list[ServedPort]:
    """Return what a proxy without a controller serves, from the Gateways of its class `lab.test/NAME`.

    Args:
        name: the proxy's folder in manifests/base.
        args: the arguments that its container must have.

    Raises:
        UsageError: for another command line, and as `Objects.served`.

    """
    container = context.container
    refuse_unexpected(
        container, not container.command and container.args == args, f"no command, and args {list(args)}", name
    )
    return context.objects.served(f"lab.test/{name}")


def parse_arguments(
    container: Container, argv: Sequence[str], honoured: Sequence[str], waived: tuple[str, ...] = ()
) -> dict[str, str]:
    """Parse arguments of the form `NAME=VALUE`.

    Args:
        honoured: the names that the lab honours.
        waived: the beginnings of arguments that have no meaning here.

    Raises:
        UsageError: for an argument that is neither honoured nor waived.

    """
    values = dict[str, str]()
    for argument in argv:
        name, _, value = argument.partition("=")
        if name not in honoured and not argument.startswith(waived):
            fault = f"the local target does not honour {argument}"
            raise UsageError(f"{container.place}.args", fault, did_you_mean(name, [*honoured, *waived]))
        values[name] = value
    return values


def require_pid(process: ContainerProcess, missed: str) -> int:
    """Return the id of a container's main process.

    Args:
        missed: what the container has not done if it has ended, in words, such as `served`.

    Raises:
        MeasuringError: when it has ended.

    """
    if (pid := process.pid) is None:
        fault = f"ended before it {missed}"
        raise MeasuringError(process.container.place, fault, process.tail(5) or "it printed nothing")
    return pid


def sum_sizes(process: ContainerProcess, paths: Iterable[str]) -> int:
    """Return the total size in bytes of those of a container's files that exist."""
    files = (process.inside(path) for path in paths)
    return sum(file.stat().st_size for file in files if file is not None and file.exists())


def write_changed(process: ContainerProcess, files: Mapping[str, str]) -> bool:
    """Replace those of a container's files whose text has changed, each atomically, and return whether any had.

    Symbolic links stay as they are.

    Raises:
        OSError: when a file cannot be written.

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
"""The form of an error in the log of a Kubernetes program: level and date, time, process, source line, message."""


def extract_messages(log: Iterable[str], *forms: Pattern[str]) -> list[str]:
    """Return the distinct messages of the log lines that have one of these forms.

    Args:
        forms: regular expressions with a group `words`, which is the message.

    """
    messages = (match["words"] for line in log for form in forms if (match := form.match(line)))
    return list(dict.fromkeys(messages))


def is_repository_of(image: str, repository: str) -> bool:
    """Return whether a repository, of any registry, ends in the last parts that an image is known by."""
    return f"/{repository}".endswith(f"/{image}")


def require_command(container: Container) -> tuple[str, ...]:
    """Return a container's command with its arguments, as its manifest has them.

    Raises:
        UsageError: when the manifest leaves the command to the image.

    """
    if not container.command:
        fault = "'command' is missing, and the image's own is not on this machine"
        raise UsageError(container.place, fault, "name the command")
    return container.command + container.args


Realise = Callable[[Context], Realisation]
"""A function that returns what to start for a container's image; it raises UsageError for what cannot be honoured."""


def parse_cpu_limit(limit: object) -> Fraction | None:
    """Convert a CPU limit from Kubernetes' notation to CPUs; return None for no limit."""
    return (parse_quantity(str(limit)) or None) if limit is not None else None


def round_limit_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return the CPU limit rounded up; without a limit the CPUs (a rule of workers).

    The result may be above the CPUs.
    """
    return ceil(limit) if limit else cpus


def limit_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return the CPU limit rounded down, at least 1; without a limit the CPUs (a rule of workers).

    The result may be above the CPUs. This is the rule of automaxprocs.
    """
    return max(1, floor(limit)) if limit else cpus


def all_cpus(_limit: Fraction | None, cpus: int | None) -> int | None:
    """Return the CPUs, whatever the limit (a rule of workers)."""
    return cpus


def within_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return the usable CPUs, at most the CPU limit rounded down (a rule of workers).

    A limit below 1 counts as 1.
    """
    return cpus and min(cpus, max(1, floor(limit)) if limit else cpus)


def within_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return the usable CPUs, at most the CPU limit rounded up (a rule of workers).

    A limit below 2 counts as 2. This is the rule of Go 1.25.
    """
    return cpus and min(cpus, max(2, ceil(limit)) if limit else cpus)
