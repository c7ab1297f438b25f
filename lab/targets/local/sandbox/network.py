"""Network namespaces for pods and the client, connected by veth pairs, and rate limits on the client's link.

Each pod and the client has a network namespace, which is called a place here. An IP address belongs to a place, not to
a link: it is a /32 on the loopback, reached over the veth pair that connects two places. The lab's own namespace acts
as the node: it is connected to every place, and probes come from it. `services` adds a place between the client and the
proxies if a Service needs a NAT.

The kernel's defaults stay, offloads included. The exceptions are sysctls that a container runtime or the host of a load
generator changes, too (`_SYSCTLS`, `_CLIENT_SYSCTLS`).

A slow link has a token bucket at both ends (tc tbf; not netem, which some kernels lack). The bucket limits the rate and
queues packets beyond it. An idle link gets no delay (`link_delay` adds one). Afterwards the rate that tc shows is
compared with the rate that was set.

    burst   the bytes that are sent at the link's full speed before the limit applies: as many as the rate allows
            between two ticks of the kernel's clock (/proc/net/psched), or in 1 ms if that is more, and at least two
            frames. A larger send (up to 64 KiB with GSO) is first split into frames, as by a network card
    limit   the queue: the bytes of 100 ms at the rate, as in routers, and at least 64 KiB, so that one send fits
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

from lab.base.errors import MeasuringError
from lab.model.pairs import Side
from lab.systems.system import NODE_ADDRESS as NODE_ADDRESS
from lab.targets.local.sandbox.namespaces import set_namespace

T = TypeVar("T")

CLIENT = "client"
"""The name of the client's place."""
HOSTS = Path("/etc/hosts")
"""The file with the machine's host names."""

_SYSCTLS = {"net.ipv4.ip_unprivileged_port_start": "0"}
"""The sysctls of every pod, as containerd 2 sets them, so that ports below 1024 need no capability."""
_CLIENT_SYSCTLS = {"net.ipv4.ip_local_port_range": "1024 65535", "net.ipv4.tcp_tw_reuse": "1"}
"""The sysctls of the client: the client itself is not tested, so its ports must not limit the connections per second."""

FRAME_BYTES = 1514
"""The bytes of a full Ethernet frame, without its checksum."""
QUEUE_S, QUEUE_BYTES = 0.1, 64 * 1024
"""The size of a slow link's queue: so many seconds of its rate, and at least so many bytes."""
_TICK_S = 1e-3
"""The seconds of the rate that a burst contains at least."""
_NEAR = 0.02
"""The relative difference that is accepted, because tc rounds: rates to bytes, bursts to the kernel's time units."""


@dataclass(frozen=True, slots=True)
class SideNames:
    """The prefixes of names and addresses for one side of a pair (two systems that are up at once), which avoid collisions.

    Attributes:
        prefix: The beginning of the names of network namespaces.
        device: The beginning of the names of the node's interfaces to pods; a number follows.
        addresses: The first two numbers of all IP addresses, such as `10.64`.

    """

    prefix: str = ""
    device: str = "pod"
    addresses: str = "10.64"


SIDE_NAMES: Mapping[Side, SideNames] = {"left": SideNames(), "right": SideNames("right-", "right", "10.66")}
"""The names and addresses (lane) of each side of a pair; a system that runs alone is on the left."""


@dataclass(frozen=True, slots=True)
class NetworkPlace:
    """A network namespace with one IP address: that of a pod, of the client or of the node.

    Attributes:
        name: The name of the place, unique within a system.
        address: The IP address.
        prefix: The beginning of the namespace's name (`SideNames.prefix`).

    """

    name: str
    address: str
    prefix: str = ""

    @property
    def namespace(self) -> str:
        """The network namespace's name for `ip netns`, which is unique among all systems that are up."""
        return f"{self.prefix}{self.name}"

    @property
    def path(self) -> Path:
        """The path of the network namespace's file (/run/netns/…), which nsenter and setns(2) take."""
        return Path("/run/netns") / self.namespace

    @property
    def enter(self) -> tuple[str, ...]:
        """The start of a command line; a command that is appended to it runs in this network namespace."""
        return ("nsenter", f"--net={self.path}", "--")


End = tuple[NetworkPlace, str]
"""A place and the name of an interface in it."""


@dataclass(slots=True)
class Network:
    """The network of one bring-up (one start of a system): places (network namespaces) and the links between them.

    `build_network` makes all places, and `remove` removes them. `add` and `drop` do this for a single pod while the
    system is up. A dropped place stays in `places`, because its number there must not be used again: addresses and
    interface names depend on these numbers.

    Attributes:
        places: The places, including dropped ones.
        lane: The prefixes of names and addresses, which differ between two systems that are up at once (a pair).
        borrowed: Name of a pod → name of the place that the pod uses, if it was made for an earlier pod. A pod on the
            host network takes over its predecessor's place, because the network of a node outlives a pod.

    """

    places: tuple[NetworkPlace, ...]
    lane: SideNames = SIDE_NAMES["left"]
    borrowed: Mapping[str, str] = field(default_factory=dict[str, str])

    def __getitem__(self, name: str) -> NetworkPlace:
        return self.places[self._find_number(name)]

    @property
    def addresses(self) -> Mapping[str, str]:
        """Name → IP address, for each place (the network namespace of a pod, the client or the node).

        Dropped places are included. A pod that uses the place of an earlier pod is included by its own name, too.
        """
        return {name: self[name].address for name in (*(place.name for place in self.places), *self.borrowed)}

    def device(self, target: str) -> str:
        """Return the name of the interface that leads directly to the place `target`, such as `to3`.

        The interface has the same name in every place that is linked to `target`.
        """
        return f"to{self._find_number(target)}"

    def add(self, name: str, links: Sequence[tuple[str, str]]) -> None:
        """Create one more place (a network namespace) and its links to existing places.

        Args:
            name: The name of the new place.
            links: Pairs of names of places to link.

        Raises:
            CalledProcessError: `ip` fails.
            OSError: A sysctl cannot be written, or `ip` cannot be started.

        """
        place = _make_place(name, len(self.places), self.lane)
        self.places = (*self.places, place)
        self.make([place], links)

    def borrow(self, name: str, predecessor: str) -> None:
        """Let a new pod use the place (the network namespace) of an earlier pod.

        Args:
            name: The name of the new pod.
            predecessor: The name of the earlier pod.

        """
        self.borrowed = {**self.borrowed, name: self[predecessor].name}

    def drop(self, name: str) -> None:
        """Remove the network namespace of a place, and the place's link to the node; no process may use it any more.

        Raises:
            CalledProcessError: `ip` fails.

        """
        run_ip([], [f"link del {self._name_node_device(name)}", f"netns del {self[name].namespace}"])

    def remove(self) -> None:
        """Remove the network namespaces of all places.

        The links to the node are removed first. Otherwise they would exist for some time after this call, until the
        kernel has cleaned up the namespaces.

        Raises:
            CalledProcessError: `ip` fails for one namespace; the others are removed nevertheless.

        """
        existing = [place for place in self.places if place.path.exists()]
        links = [f"link del {self._name_node_device(place.name)}" for place in existing]
        # -force continues after an error, so that the remains of a failed bring-up are removed, too
        run_ip(["-force"], [*links, *(f"netns del {place.namespace}" for place in existing)])

    def _find_number(self, name: str) -> int:
        return [place.name for place in self.places].index(self.borrowed.get(name, name))

    def _name_node_device(self, name: str) -> str:
        return f"{self.lane.device}{self._find_number(name)}"

    def make(self, new: Sequence[NetworkPlace], links: Sequence[tuple[str, str]]) -> None:
        """Create the network namespaces of new places, connect each place to the node, and create the given links.

        Args:
            new: The places to create, which `places` already contains.
            links: Pairs of names of places to link.

        Raises:
            CalledProcessError: `ip` fails.
            OSError: A sysctl cannot be written, or `ip` cannot be started.

        """
        root, node = list[str](), [f"address replace {NODE_ADDRESS}/32 dev lo"]
        within: dict[str, list[str]] = {}
        for place in new:
            device = self._name_node_device(place.name)
            root.append(f"netns add {place.namespace}")
            root.append(f"link add {device} type veth peer name node netns {place.namespace}")
            node += [f"link set {device} up", f"route add {place.address}/32 dev {device} src {NODE_ADDRESS}"]
            setup = ["link set lo up", f"address add {place.address}/32 dev lo", "link set node up"]
            within[place.namespace] = [*setup, f"route add {NODE_ADDRESS}/32 dev node src {place.address}"]
        for left, right in links:
            near, far = self.device(right), self.device(left)
            ends = f"{near} netns {self[left].namespace} type veth peer name {far} netns {self[right].namespace}"
            root.append(f"link add {ends}")
            for place, peer, device in ((self[left], self[right], near), (self[right], self[left], far)):
                route = f"route add {peer.address}/32 dev {device} src {place.address}"
                within.setdefault(place.namespace, []).extend([f"link set {device} up", route])
        run_ip([], root + node)
        for name, lines in within.items():
            run_ip(["-n", name], lines)
        for place in new:
            write_sysctls(place, _SYSCTLS | (_CLIENT_SYSCTLS if place.name == CLIENT else {}))


def build_network(
    names: Sequence[str], links: Sequence[tuple[str, str]], lane: SideNames = SIDE_NAMES["left"]
) -> Network:
    """Create the network of a system: one place (a network namespace) for each name and one for the client.

    Every place is connected to the node, and to other places by the given links.

    Args:
        names: The names of the places, without the client's.
        links: Pairs of names of places to link.
        lane: The prefixes of names and addresses, which differ between two systems that are up at once (a pair).

    Raises:
        CalledProcessError: `ip` fails; what was made is removed again.
        OSError: A sysctl cannot be written, or `ip` cannot be started.

    """
    net = Network(tuple(_make_place(name, index, lane) for index, name in enumerate([CLIENT, *names])), lane)
    try:
        net.make(net.places, links)
    except BaseException:
        with contextlib.suppress(subprocess.CalledProcessError):
            net.remove()
        raise
    return net


def _make_place(name: str, index: int, lane: SideNames) -> NetworkPlace:
    return NetworkPlace(name, f"{lane.addresses}.{(index + 2) >> 8}.{(index + 2) & 255}", lane.prefix)


def write_sysctls(place: NetworkPlace, settings: Mapping[str, str]) -> None:
    """Write sysctls (files below /proc/sys) inside the network namespace of a place.

    Args:
        place: The place: a network namespace of a pod, the client or the node.
        settings: Name of the sysctl, such as `net.core.somaxconn` → value.

    Raises:
        OSError: A sysctl cannot be written. If its file cannot be opened, the error's `filename` is the file's path. If
            the kernel refuses the value, `filename` is None.

    """
    for name, value in settings.items():
        file = Path("/proc/sys", name.replace(".", "/"))
        call_in(place, lambda file=file, value=value: file.write_text(value))


def open_sink(port: int) -> socket.socket:
    """Open a UDP socket on the node that discards everything sent to its port, and return the socket.

    Nothing reads from the socket. Once its buffer is full, the kernel drops further packets.

    Raises:
        OSError: The socket cannot be opened.

    """
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the two systems of a pair share the port
    receiver.bind((NODE_ADDRESS, port))
    return receiver


def connect(place: NetworkPlace, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Open a TCP connection from inside a place's network namespace, and return its socket.

    Args:
        place: The place.
        address: The host and port to connect to.
        timeout_s: The timeout in seconds of the connecting, and of later operations on the socket.

    Raises:
        OSError: The connection cannot be opened.

    """
    return call_in(place, lambda: socket.create_connection(address, timeout_s))


def call_in(place: NetworkPlace, action: Callable[[], T]) -> T:
    """Call a function in a new thread that is inside a place's network namespace, and return the function's result.

    A socket that the function makes stays in that namespace. An error of the function is raised in the caller.
    """
    result = Future[T]()

    def run() -> None:
        try:
            set_namespace(place.path)
            result.set_result(action())
        except Exception as error:  # noqa: BLE001 - handed to the caller, whatever it is
            result.set_exception(error)

    # A daemon: an interrupt ends the caller's wait, and the lab must not wait longer for a connect that hangs.
    threading.Thread(target=run, name=f"in-{place.name}", daemon=True).start()
    return result.result()


@contextlib.contextmanager
def as_measuring_error() -> Iterator[None]:
    """Convert a CalledProcessError or an OSError raised in the `with` block to a MeasuringError."""
    remedy = "`just doctor` checks what it needs"
    try:
        yield
    except subprocess.CalledProcessError as error:
        fault = f"{' '.join(map(str, error.cmd))} failed: {str(error.stderr).strip()}"
        raise MeasuringError("local target", fault, remedy) from None
    except OSError as error:
        raise MeasuringError("local target", str(error), remedy) from None


def run_ip(options: Sequence[str], lines: Sequence[str]) -> None:
    """Run several commands of the program `ip` at once (`ip -batch`).

    Args:
        options: The options of `ip` for all commands, such as `-n NAMESPACE`.
        lines: The commands, without the word `ip`.

    Raises:
        CalledProcessError: A command fails.
        OSError: `ip` cannot be started.

    """
    argv, text = ["ip", *options, "-batch", "-"], "\n".join(lines) + "\n"
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True)


def make_hosts_command(addresses: Mapping[str, str], folder: Path, hosts_file: Path = HOSTS) -> tuple[str, ...]:
    """Return the start of a command line; for a command appended to it, host names resolve to the given addresses.

    The command gets its own mount namespace, in which a new file covers /etc/hosts. So another system that is up can
    use the same host names. The names in the machine's own hosts file stay.

    Args:
        addresses: Host name → IP address.
        folder: The folder for the new file.
        hosts_file: The file to cover.

    Raises:
        MeasuringError: The machine's hosts file cannot be read.
        OSError: The new file cannot be written.

    """
    try:
        machine_hosts = hosts_file.read_text()
    except OSError as error:
        raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
    cover_file = folder / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    cover_file.write_text(machine_hosts + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    cover_file.chmod(0o644)
    script = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(cover_file), str(hosts_file))


def shape(links: Sequence[tuple[End, End]], mbit: float | None) -> None:
    """Limit the rate of every link in both directions, with a token bucket (tc tbf) at each of its two ends.

    Args:
        links: The two ends of each link. An end is a tuple (network namespace, name of the interface in it).
        mbit: The rate in Mbit/s. None removes the limit.

    Raises:
        MeasuringError: tc fails, or shows another rate afterwards.

    """
    rate_bytes = (mbit or 0.0) * 125_000
    for place, device in chain.from_iterable(links):
        if not rate_bytes and not _read_rate(place, device):
            continue
        link_place = f"client link: {place.name}/{device}"
        setup = ["replace", "dev", device, *_make_bucket(rate_bytes)] if rate_bytes else ["del", "dev", device, "root"]
        done = run_tc(place, "qdisc", *setup)
        if done.returncode:
            raise MeasuringError(link_place, f"tc: {done.stderr.strip()}", "`just doctor` tries tc tbf")
        actual = _read_rate(place, device)
        if not math.isclose(actual, rate_bytes, rel_tol=_NEAR):
            fault = f"asked for {rate_bytes:.0f} bytes/s, tc shows {actual or 'none'}"
            raise MeasuringError(link_place, fault, "see `tc -s qdisc`; iproute2 5.0 or newer is needed")


def link_counters(links: Sequence[tuple[End, End]]) -> Mapping[str, int]:
    """Return how many bytes the client has received and sent over its links so far.

    The bytes are those of Ethernet frames without preamble, gap and checksum. Large sends that the kernel does not
    split into frames (GSO) have the headers of one frame only. So the counts are up to 5 % less than on a wire.

    Args:
        links: The two ends of each link, the client's end first. An end is a tuple (network namespace, name of the
            interface in it).

    Returns:
        `client/rx_bytes` and `client/tx_bytes`, each summed over all links.

    """
    received = sent = 0
    for (client, device), _ in links:
        lines = call_in(client, Path("/proc/thread-self/net/dev").read_text).splitlines()
        counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith(f"{device}:"))
        received, sent = received + int(counts[0]), sent + int(counts[8])
    return {"client/rx_bytes": received, "client/tx_bytes": sent}


def _make_bucket(rate_bytes: float) -> list[str]:
    """Return the options of `tc qdisc replace` for a token bucket with a rate in bytes/s."""
    try:  # the packet scheduler's clock: 1/HZ, or a nanosecond if the kernel has fine timers (psched's 4th number)
        tick_s = 1 / int(Path("/proc/net/psched").read_text().split()[3], 16)
    except (OSError, IndexError, ValueError, ZeroDivisionError):
        tick_s = 0.01
    burst = max(math.ceil(rate_bytes * max(_TICK_S, tick_s)), 2 * FRAME_BYTES)
    queue = max(math.ceil(rate_bytes * QUEUE_S), QUEUE_BYTES)
    return ["root", "tbf", "rate", f"{rate_bytes * 8:.0f}bit", "burst", f"{burst}b", "limit", f"{burst + queue}b"]


def _read_rate(place: NetworkPlace, device: str) -> float:
    """Return the rate in bytes/s of the token bucket at an interface; 0 if there is none.

    Raises:
        MeasuringError: The output of tc cannot be read.

    """
    done = run_tc(place, "-j", "qdisc", "show", "dev", device)
    try:
        rates = (float(item["options"]["rate"]) for item in json.loads(done.stdout) if item["kind"] == "tbf")
        return next(rates, 0.0)
    except (ValueError, LookupError, TypeError):
        fault = f"tc cannot be read: {(done.stderr or done.stdout).strip() or 'it printed nothing'}"
        raise MeasuringError(f"client link: {place.name}/{device}", fault, "iproute2 5.0 or newer") from None


def run_tc(place: NetworkPlace, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tc inside a place's network namespace, and return the completed command.

    The exit status is 127 if tc cannot be started.
    """
    try:
        return subprocess.run(["tc", "-n", place.namespace, *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(["tc"], 127, "", f"{error.filename}: {error.strerror}")
