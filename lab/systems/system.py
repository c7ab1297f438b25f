"""The interface between the lab's targets (places where systems run) and the packages of the proxy systems.

A package `lab/systems/NAME` has a module `system` with one value `SYSTEM`, a `ProxySystem` that describes its proxy.
`lab.systems.table` lists these values. Most fields of a `ProxySystem` have a default that means "nothing of the kind", so a
system sets only the fields that it needs. A target passes the facts about a container to the package (`Context`), and an
interface to the running container (`ContainerProcess`). This module depends on no target.
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

from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.base.quantities import parse_quantity
from lab.systems.manifests.gateway_api import ServedPort, ServicePort, list_rules
from lab.systems.manifests.objects import Endpoint, Objects
from lab.systems.manifests.pods import Container, Pod
from lab.systems.reading import Reader

PRIVATE_FOLDERS = ("/tmp", "/srv", "/var/log", "/var/lib", "/var/cache/nginx", "/dev/shm", "/run")
"""The folders of which every container has its own. /run comes last, because the sources of all mounts are below it."""

INITIAL_FOLDERS = ("/var/log/nginx", "/var/lib/nginx")
"""The folders inside those of `PRIVATE_FOLDERS` that exist from the start.

Whatever its configuration, nginx opens its first log and creates its folders there.
"""

NODE_ADDRESS = "10.64.0.1"
"""The address of the node on the local targets, which receives the logs that a proxy sends to another host."""

MACHINE = ""
"""The value of `Controller.system` and `Controller.short` for a controller that runs on the machine's own files.

The lab provides the program of such a controller in the same way as on the local target.
"""


@dataclass(frozen=True, slots=True)
class Root:
    """The unpacked files of a container image, which a container sees in place of the machine's own files.

    The container cannot change these files. It gets a writable copy of some folders.

    Attributes:
        folder: the folder on the machine with the unpacked files.
        own: the paths of the folders that each container gets a writable copy of, in memory.
        working_dir: the working directory of the image.

    """

    folder: Path
    own: tuple[str, ...]
    working_dir: str = "/"


@dataclass(frozen=True, slots=True)
class Realisation:
    """The process that the lab starts in place of a container's image: its command, environment, files and programs.

    Every field that is not listed here has its own docstring.

    Attributes:
        command: the command line.
        env: the environment variables, by name.

    """

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
    """The seconds that the main process of the image waits when it has to end; the lab imitates these waits where pods come and go.

    The first number is the time before this process passes the stop signal on to the proxy. The proxy still serves during that
    time. The second number is the time after the proxy has ended.
    """
    root: Root | None = None
    """The files that the container sees; None = the machine's own."""
    programs: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """The programs to mount, by their path in the container.

    These are programs that the machine's own files lack, or whose place on the machine is hidden by a private folder.
    """
    about: str = ""
    """The name and version of a program that is not the machine's own, which becomes a fact of the run."""


@dataclass(frozen=True, slots=True)
class Context:
    """The facts about one container from which the lab decides what to start in place of the container's image.

    Attributes:
        container: the container, as its manifest describes it.
        pod: the pod of the container.
        objects: all Kubernetes objects of the variant (the configuration that is measured).
        addresses: name of a pod → IP address.
        cpus: the number of CPUs that the container may use.
        somaxconn: the value of net.core.somaxconn that the container's process sees.
        open_files: the limit of open files that the container's process has.

    """

    container: Container
    pod: Pod
    objects: Objects
    addresses: Mapping[str, str]
    cpus: int
    somaxconn: int
    open_files: int


class ContainerProcess(Protocol):
    """The interface to a container that the lab has started or is about to start.

    A proxy's package uses it to find the container's processes and files, and to query the proxy.
    """

    container: Container
    stdout: Path

    @property
    def pid(self) -> int | None:
        """The id of a container's main process, as numbered outside the container; None while this process does not run."""

    @property
    def started(self) -> Realisation:
        """The command, environment and files with which the lab started a container in place of the container's image."""
        ...

    def processes(self) -> list[int]:
        """Return the ids of the container's main process and all its descendants; empty if the main process has ended."""
        ...

    def inside(self, path: str) -> Path | None:
        """Return the path on the machine of a file in one of the container's private folders (`PRIVATE_FOLDERS`, such as /tmp).

        Args:
            path: the file's path in the container.

        Returns:
            The file's path on the machine. None if the file is outside of these folders.

        """

    def tail(self, lines: int = 20, output_too: bool = True) -> str:
        """Return the last lines of the container's error output, as one text.

        Args:
            lines: the number of lines at most.
            output_too: whether to use the standard output if the error output is empty.

        """
        ...

    def ask(self, port: int, path: str) -> str:
        """Send a GET request to a port on the container's loopback, and return the body of the answer.

        Args:
            port: the port.
            path: the path to request, with its query.

        Raises:
            OSError: when nothing answers.

        """
        ...

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        """Start a command inside the container, on the container's own CPUs, and return its process.

        Args:
            argv: the command and its arguments.
            output: the file descriptor that receives the command's output and error output.

        Raises:
            ProcessLookupError: when the container has ended.

        """
        ...

    def end_entered(self, popen: subprocess.Popen[bytes]) -> None:
        """Kill (SIGKILL) a command that `run_pinned` started, and wait until it has ended."""


Renew = Callable[[ContainerProcess], None]
"""A function that makes a proxy reload its unchanged configuration, so that the proxy starts new workers.

The function raises MeasuringError when the proxy cannot do that.
"""


@dataclass(frozen=True, slots=True)
class Loading:
    """The loading of a configuration by a proxy, at its start or by a reload.

    Attributes:
        began_s: the time at which the loading began, in seconds since the epoch; None = nobody observed that time.
        pid: the id of the process that loads the configuration, as it is numbered inside the container.

    """

    began_s: float | None
    pid: int


class Control(Protocol):
    """The handle by which the lab makes one container's proxy load new configurations.

    The lab thereby imitates the proxy's controller or router. Only one thread uses a handle.
    """

    interval_s: float
    """The minimum time in seconds between the beginnings of two loads."""
    looks_once_more: bool
    """True if a change that arrives while an earlier change waits causes one more check for changes, one interval later."""

    def started(self) -> Loading | None:
        """Return when and in which process the proxy began to load its first configuration; None while it has not begun.

        The lab calls this method every few milliseconds.
        """

    def serving(self, loading: Loading) -> bool:
        """Return whether the proxy already serves the configuration that it began to load.

        The lab calls this method every few milliseconds.

        Args:
            loading: the loading of the configuration, as `started` or `load` returned it.

        Raises:
            MeasuringError: when the proxy will never serve the configuration.

        """
        ...

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        """Write new configuration files into the container, and make the proxy load them.

        Args:
            files: path in the container → text, as in `Realisation.files`.
            over: an event that is set when the system ends; the method then stops waiting for the proxy.

        Returns:
            The loading that began. None if no file has changed, or if `over` was set first.

        Raises:
            MeasuringError: when the proxy refuses the configuration.

        """

    def config_bytes(self) -> int:
        """Return the total size in bytes of the proxy's configuration files in the container, including map files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The description of a controller whose own program runs on the target `apiserver`.

    On this target, the real controller runs against an API server. The fields state how the lab starts the controller from the
    files of its image, and how it reads the controller's log. Each field has its own docstring.
    """

    image: str
    """The last parts of the image's repository, without registry and tag."""
    realise: Callable[[Context], Realisation]
    """The function that returns what to start for the image.

    The function raises UsageError for anything in the manifest that cannot be honoured there, and when files of the image are missing.
    """
    proxy: str
    """The kernel's name for the proxy's own processes; all other processes in the container belong to the control plane."""
    system: str = MACHINE
    """The name of the folder in scripts/tools/ from which the controller's files are built."""
    short: str = MACHINE
    """The name of the image in manifests/images."""
    made: bool = False
    """True if scripts/controllers can build the controller where its image is not available.

    Otherwise LAB_IMAGES has to name the image, or the controller cannot run.
    """
    config: str = ""
    """The path of the proxy's configuration in the container; empty where the configuration is in no file."""
    says: tuple[str, ...] = ("stderr",)
    """The streams that the controller logs to: `stdout`, `stderr` or both."""
    renew: Renew | None = None
    """The function that makes the proxy start new workers by a reload; None where a reload starts no workers."""
    load_lines: Mapping[str, str] = field(default_factory=dict[str, str])
    """Text in a line of the controller's log → the event that such a line reports: `Reload` or `Reloaded`."""
    about: Callable[[], str] = lambda: ""
    """The function that returns a text about the program that really runs, with its release.

    The function returns an empty text where `realise` reports that, and raises UsageError when files of the image are missing.
    """
    ignored: Callable[[Sequence[str]], list[str]] = lambda _log: []
    """The function that returns, from the controller's log, what it ignores or refuses of its configuration."""
    complaints: Callable[[Sequence[str]], list[str]]
    """The function that returns, from the controller's log, the distinct reasons why it does not serve."""

    def event_of(self, line: str) -> str | None:
        """Return the event that a line of the controller's log reports.

        Returns:
            `Reload` when a reload of the proxy begins, `Reloaded` when it has succeeded, None for any other line.

        """
        return next((event for text, event in self.load_lines.items() if text in line), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadbackKind:
    """A kind of read-back check, which reads from the running system whether a setting took effect.

    Every field that is not listed here has its own docstring.

    Attributes:
        read: the function that performs a check of this kind.

    """

    read: Reader
    possible: frozenset[str] = frozenset()
    """The optional keys that a check of this kind may have."""
    spoken: str = "{kind}: {name}{context}"
    """The format of a check's description."""
    workers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of a check whose value is a number of workers → the noun for that number, such as `threads`.

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
    """The way in which a proxy system decides on its number of worker processes or threads.

    The fields name the settings that configure the number, and the proxy's own rule where nothing configures it. They also state
    how to count the running workers. Each field has its own docstring.
    """

    rules: Mapping[str, WorkerRule] = field(default_factory=dict[str, WorkerRule])
    """Image of the proxy → the rule for the number where none is configured.

    The image is given by the last parts of its repository, or more (a tag), whatever registry it comes from.
    """
    keys: tuple[str, ...] = ()
    """The keys of the proxy's ConfigMap that configure the number."""
    variables: tuple[str, ...] = ()
    """The environment variables that configure the number."""
    options: tuple[str, ...] = ()
    """The command-line options that configure the number, each followed by its value."""
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind of an object that only this system reads → the field of its spec that configures the number."""
    directive: Pattern[str] | None = None
    """The regular expression that finds the number in a configuration file that a ConfigMap mounts."""
    capped: Callable[[int, Fraction | None], int] | None = None
    """The function from a configured number and the CPU limit (None: no limit) to the number that the proxy uses.

    None = the proxy uses the configured number.
    """
    count: Callable[[Sequence[tuple[int, str]]], int] | None = None
    """The function that counts the running workers in a list of processes, each as (threads, command line).

    The list may also have processes of other systems.
    """
    process: str = ""
    """The kernel's name for the process whose interface reports the number in a cluster, too; empty: no process does."""
    port: int = 0
    """The port on the pod's loopback of the interface that reports the number."""
    page: str = ""
    """The page of that interface with the number of running workers; empty: the proxy does not report the number."""
    metric: str = ""
    """The regular expression for the name of that number on the page.

    The number follows the name after a colon or a blank. Several such numbers are added up.
    """

    def running(self, process: ContainerProcess) -> Mapping[str, float]:
        """Request the number of running workers from the proxy's own interface.

        Args:
            process: the proxy's container.

        Returns:
            `{"workers": number}`; empty if this proxy does not report the number.

        Raises:
            OSError: when the proxy's interface does not answer.
            ValueError: when the proxy's answer has a text in the number's place.

        """
        if not self.metric:
            return {}
        numbers = re.findall(rf"^{self.metric}:? (\S+)$", process.ask(self.port, self.page), re.MULTILINE)
        return {"workers": sum(map(float, numbers))} if numbers else {}


@dataclass(frozen=True, slots=True)
class MachineTool:
    """A program that must be installed on the machine for some variants (measured configurations) of a proxy system.

    Attributes:
        name: the name of the program.
        argv: the arguments by which the program prints its version.
        least: the minimum version.
        why: the reason why the program is needed, in words.
        remedy: how to install the program.

    """

    name: str
    argv: tuple[str, ...]
    least: tuple[int, ...]
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySystem:
    """The description of a proxy system, such as ingress-nginx or Envoy, by which the lab's targets run and observe it.

    A target is a place where systems run, such as local processes or a cluster. If a field keeps its default, targets treat the
    system like any other container. Each field has its own docstring.
    """

    name: str
    """The name of the system.

    Its package in `lab.systems` is called so, with underscores, and so is its folder in manifests/base, if it has one.
    """
    image: str
    """The last parts of the repository of the system's image, without registry and tag."""
    realise: Callable[[Context], Realisation] | None = None
    """The function that returns what to start for the image, where the lab starts the system's processes itself.

    None: the command of the manifest is executed. The function raises UsageError for anything that cannot be honoured.
    """
    note: str = ""
    """How changes reach the system on the local target, where that differs from a cluster; otherwise empty."""
    by_tag: bool = False
    """True if the tag of the image decides which version runs on the local target."""
    kinds: frozenset[str] = frozenset()
    """The kinds of objects in `Objects.others` that only this system's controller reads."""
    proxy: str = ""
    """The kernel's name for the processes that serve; empty: all processes serve.

    The name is set where the other processes in the container are the control plane's.
    """
    control: Callable[[ContainerProcess], Control] | None = None
    """The function that returns the handle for configuration changes.

    None where the proxy keeps the configuration of its start, with the addresses of its backends.
    """
    renew: Renew | None = None
    """The function that makes the proxy start new workers by a reload; None where a reload starts no workers."""
    renew_in_cluster: str = ""
    """The kernel's name for the master process that starts new workers on SIGHUP in a cluster; empty: no process does."""
    passing: str = ""
    """The beginning of the title of a process that ends soon after a start and that the proxy does not need."""
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
    """Name of a run's fact → the function that returns the version of a program on PATH.

    The program runs instead of the image's own. Such a function raises UsageError where the program is required and missing.
    """
    of_backend: bool = False
    """True if the lab's backend runs the same program, so every target that starts processes here needs it."""
    tools: tuple[MachineTool, ...] = ()
    """The further programs that the system's variants need on the machine."""
    sinks: Callable[[Objects], set[int]] = lambda _objects: set()
    """The function that returns the ports of the node to which the proxy would send its log."""
    module: str = ""
    """The Go module from which the program is built, where the image contains only that program."""
    controllers: tuple[Controller, ...] = ()
    """The programs of the system's controller images, for the apiserver target."""
    config_files: tuple[str, ...] = ()
    """The paths of the proxy's configuration in a container of the image, as patterns of a shell."""
    interval_variable: str = ""
    """The environment variable that sets the minimum time between two loads.

    It matters where a second load follows the first without any action of the lab.
    """
    definitions: tuple[str, ...] = ()
    """The files in manifests/clusters that define the kinds of objects that the variants need in a cluster."""
    definitions_of: str = ""
    """The project that defines these kinds, in words."""
    workloads: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind of object from which the controller creates a Deployment → path in the object to the Deployment's settings."""
    migrations: Mapping[str, str] = field(default_factory=dict[str, str])
    """Successor of ingress-nginx → the file with that successor's counterparts of ingress-nginx's keys.

    The successor is named like its folder in manifests/base. The file lies in the system's package.
    """
    workers: Workers = field(default_factory=Workers)
    """The way in which the number of the proxy's workers or threads is decided and counted."""
    readbacks: Mapping[str, ReadbackKind] = field(default_factory=dict[str, ReadbackKind])
    """Name → kind of read-back check, for the kinds that this system adds."""


Members = Mapping[ServicePort, Sequence[Endpoint]]
"""Port of a Service → its ready endpoints, for the ports that routes lead to."""
Certificates = Mapping[str, Mapping[str, str]]
"""Name of a Secret → its files, by their names."""


def find_configmap(place: str, reference: str, context: Context) -> tuple[str, Mapping[str, str]]:
    """Return the ConfigMap that a command-line argument of a container names.

    Args:
        place: the place of the argument, for error messages.
        reference: the argument's value, `NAMESPACE/NAME`; the namespace must be that of the container's pod.
        context: the facts about the container.

    Returns:
        (the ConfigMap's place for error messages, its data).

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
    """Refuse a number of workers that is larger than the container's number of CPUs.

    With more workers than CPUs, a run would measure the kernel's scheduler. A pod whose annotation allows it may have more.

    Args:
        place: the place of the setting, for the error message.
        workers: the configured number of workers.
        context: the facts about the container.
        noun: `workers` or `threads`, for the error message.

    Raises:
        NotMeasurableError: when there are too many workers.

    """
    if workers > context.cpus and not context.pod.shares_cpus:
        cpus = "1 CPU" if context.cpus == 1 else f"{context.cpus} CPUs"
        fault = f"asks for {workers} {noun}, the {context.pod.role} has {cpus} here"
        raise NotMeasurableError("cores", place, fault, f"a machine with more CPUs, or {context.cpus} at most")


def refuse_open_files(place: str, files: int, context: Context, consumer: str = "") -> None:
    """Refuse a setting that needs more open files than a process of the container may have on this machine.

    Without this check, nginx would run with fewer open files and only log that.

    Args:
        place: the place of the setting, for the error message.
        files: the number of open files that the setting needs.
        context: the facts about the container, with its limit of open files.
        consumer: what needs so many open files, such as `400 connections`; empty where the setting is the number of files.

    Raises:
        NotMeasurableError: when `files` exceeds the limit.

    """
    fault = f"{consumer + ' take' if consumer else 'asks for'} {files} open files, a container may have {context.open_files} here"
    remedy = "raise the shell's hard limit (ulimit -Hn), as root with CAP_SYS_RESOURCE may"
    refuse_if(files > context.open_files, place, fault, remedy, "open files")


def find_program(place: str, program: str) -> None:
    """Check that a container's program exists on this machine.

    A program in one of the folders that each container has for itself is not checked.

    Args:
        place: the place of the container, for the error message.
        program: the name or path of the program.

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
    grpc: bool = False,
) -> tuple[Members, Certificates]:
    """Return the endpoints to which a proxy's routes lead, and the files of the certificates that it serves.

    Args:
        context: the facts about the proxy's container.
        ports: the ports that the proxy serves, with their routes.
        proxy: the proxy's name, for error messages.
        headers: whether the proxy can set request headers, see `RouteRule.refuse`.
        never: the characters that the proxy cannot write in a header's value, see `RouteRule.refuse`.
        timeout: whether the proxy can set a timeout of the request, see `RouteRule.refuse`.
        grpc: whether the proxy can pass requests on by gRPC as a route states, see `RouteRule.refuse`.

    Returns:
        (port of a Service → its ready endpoints, name of a TLS Secret → its files).

    Raises:
        UsageError: for a Secret that does not exist, and for a route that the proxy's configuration cannot express.

    """
    rules = list_rules(ports).values()
    for rule in rules:
        rule.refuse(proxy, headers, never, timeout, grpc)
    backends = dict.fromkeys(rule.backend for rule in rules if rule.backend)
    members = {item: context.objects.members(item.service, item.port, context.addresses) for item in backends}
    names = dict.fromkeys(name for port in ports for name in port.secrets)
    return members, {name: context.objects.certificate(name, "TLS") for name in names}


def refuse_unexpected(container: Container, held: bool, expectation: str, base: str) -> None:
    """Raise UsageError if a container's command line differs from the one that the lab expects.

    Args:
        container: the container.
        held: whether the command line is the expected one; the caller has compared them.
        expectation: the expected command line in words, such as `no command`.
        base: the folder in manifests/base with an example of such a container; the error's remedy names it.

    Raises:
        UsageError: when `held` is False.

    """
    refuse_if(not held, container.place, f"expected {expectation}", f"as in manifests/base/{base}")


def list_native_served(context: Context, name: str, args: tuple[str, ...]) -> list[ServedPort]:
    """Return the ports that a proxy without a controller serves, with their routes.

    They are the ports of all Gateways whose GatewayClass has the controller `lab.test/NAME`. The function also checks the
    container's command line.

    Args:
        context: the facts about the proxy's container.
        name: the proxy's name in GatewayClasses; the remedy of an error names the folder manifests/base/NAME.
        args: the arguments that the container must have; it must have no command.

    Raises:
        UsageError: when the container has another command line, and as `Objects.served`.

    """
    container = context.container
    refuse_unexpected(
        container, not container.command and container.args == args, f"no command, and args {list(args)}", name
    )
    return context.objects.served(f"lab.test/{name}")


def parse_arguments(
    container: Container, argv: Sequence[str], honoured: Sequence[str], waived: tuple[str, ...] = ()
) -> dict[str, str]:
    """Parse a container's arguments of the form `NAME=VALUE`, and return name → value.

    Args:
        container: the container, for error messages.
        argv: the arguments.
        honoured: the names of the arguments that the lab understands.
        waived: the beginnings of arguments that may be there, but have no effect on this target.

    Raises:
        UsageError: for any other argument.

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
    """Return the id of a container's main process; raise an error if the process has ended.

    Args:
        process: the container.
        missed: what the container should have done before it ended, for the error message "ended before it …", such as `served`.

    Raises:
        MeasuringError: when the main process has ended.

    """
    if (pid := process.pid) is None:
        fault = f"ended before it {missed}"
        raise MeasuringError(process.container.place, fault, process.tail(5) or "it printed nothing")
    return pid


def sum_sizes(process: ContainerProcess, paths: Iterable[str]) -> int:
    """Return the total size in bytes of some files of a container; a missing file counts 0."""
    files = (process.inside(path) for path in paths)
    return sum(file.stat().st_size for file in files if file is not None and file.exists())


def write_changed(process: ContainerProcess, files: Mapping[str, str]) -> bool:
    """Write files into a container, except files that already have the given text. Each file is replaced atomically.

    Symbolic links are not written.

    Args:
        process: the container.
        files: path in the container → text, or `-> target` for a symbolic link (as in `Realisation.files`).

    Returns:
        Whether any file was written.

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
    """Return the messages of those log lines that match one of some regular expressions, each message once.

    Args:
        log: the lines of the log.
        forms: the regular expressions; the group `words` of each is the message.

    """
    return list(dict.fromkeys(match["words"] for line in log for form in forms if (match := form.match(line))))


def is_repository_of(image: str, repository: str) -> bool:
    """Return whether a container image's repository belongs to a known image, whatever registry the image comes from.

    >>> is_repository_of("library/httpd", "docker.io/library/httpd")
    True

    Args:
        image: the last parts of the known image's repository, such as `library/httpd`.
        repository: the repository to compare, which must end in these parts.

    """
    return f"/{repository}".endswith(f"/{image}")


def require_command(container: Container) -> tuple[str, ...]:
    """Return a container's command and arguments, as its manifest has them.

    Raises:
        UsageError: when the manifest has no command: the image's own command is not on this machine.

    """
    fault = "'command' is missing, and the image's own is not on this machine"
    refuse_if(not container.command, container.place, fault, "name the command")
    return container.command + container.args


Realise = Callable[[Context], Realisation]
"""A function that returns what to start for a container's image; it raises UsageError for anything that cannot be honoured."""


def parse_cpu_limit(limit: object) -> Fraction | None:
    """Convert a CPU limit in Kubernetes notation to CPUs (`'500m'` → 1/2); return None for no limit, or a limit of 0."""
    return (parse_quantity(str(limit)) or None) if limit is not None else None


def round_limit_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return a proxy's number of workers by this rule: the CPU limit, rounded up.

    If there is no limit, the result is the number of usable CPUs. With a limit, the result may exceed that number.

    Args:
        limit: the container's CPU limit; None = no limit.
        cpus: the number of CPUs that the container may use; None = not known.

    Returns:
        The number of workers. None if it depends on `cpus`, which is not known.

    """
    return ceil(limit) if limit else cpus


def limit_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return a proxy's number of workers by this rule: the CPU limit, rounded down, but at least 1.

    If there is no limit, the result is the number of usable CPUs. With a limit, the result may exceed that number. The Go
    library automaxprocs uses this rule.

    Args:
        limit: the container's CPU limit; None = no limit.
        cpus: the number of CPUs that the container may use; None = not known.

    Returns:
        The number of workers. None if it depends on `cpus`, which is not known.

    """
    return max(1, floor(limit)) if limit else cpus


def all_cpus(_limit: Fraction | None, cpus: int | None) -> int | None:
    """Return a proxy's number of workers by this rule: one for each usable CPU, whatever the CPU limit.

    Args:
        _limit: the container's CPU limit, which is ignored.
        cpus: the number of CPUs that the container may use; None = not known. The result is then None, too.

    """
    return cpus


def within_down(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return a proxy's number of workers by this rule: one for each usable CPU, but at most the CPU limit rounded down.

    A limit below 1 counts as 1. If there is no limit, the result is the number of usable CPUs.

    Args:
        limit: the container's CPU limit; None = no limit.
        cpus: the number of CPUs that the container may use; None = not known. The result is then None, too.

    """
    return cpus and min(cpus, max(1, floor(limit)) if limit else cpus)


def within_up(limit: Fraction | None, cpus: int | None) -> int | None:
    """Return a proxy's number of workers by this rule: one for each usable CPU, but at most the CPU limit rounded up.

    A limit below 2 counts as 2. If there is no limit, the result is the number of usable CPUs. Go 1.25 uses this rule.

    Args:
        limit: the container's CPU limit; None = no limit.
        cpus: the number of CPUs that the container may use; None = not known. The result is then None, too.

    """
    return cpus and min(cpus, max(2, ceil(limit)) if limit else cpus)
