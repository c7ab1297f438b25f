"""One network namespace per pod and one for the client, joined by veth pairs point to point; and the client's link, slowed down.

An address belongs to a pod, not to a link: it is a /32 on the pod's loopback, reached over whichever pair joins
two places. The lab's own namespace is the node: joined to every pod, it is where probes come from.
`services` puts one more place between client and pods where a Service's NAT is on the way.
Refuses to change anything of the kernel's defaults, offloads included, save two that a container runtime and a
load generator's host would have changed too (`_SYSCTLS`).

A slow link is a token bucket on both of its ends (tc tbf; no netem, which some kernels lack): it limits the rate and queues what is over it, it
adds no delay to an idle link. Refuses to believe tc: what it says afterwards is compared.

    burst   what goes at the link's full speed before the rate holds: what the rate brings between two ticks of the
            kernel's clock (/proc/net/psched; at most 1 ms, kernels with fine timers need less), and two frames at least.
            A send larger than it (GSO gives up to 64 KiB) is cut into its frames first, as a network card would.
    limit   the queue: 100 ms of the rate, as routers are built, and 64 KiB at least, so that one send fits.
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
HOSTS = Path("/etc/hosts")

# containerd 2 does this in every pod, so that ports below 1024 need no capability
_SYSCTLS = {"net.ipv4.ip_unprivileged_port_start": "0"}
# the client is not what is tested: connections per second must not end at its ports
_CLIENT_SYSCTLS = {"net.ipv4.ip_local_port_range": "1024 65535", "net.ipv4.tcp_tw_reuse": "1"}

FRAME_BYTES = 1514
QUEUE_S, QUEUE_BYTES = 0.1, 64 * 1024
_TICK_S = 1e-3
_NEAR = 0.02
"""tc rounds: rates to bytes, bursts to the kernel's time units."""


@dataclass(frozen=True, slots=True)
class Lane:
    """What two systems side by side do not share: the names of their namespaces and interfaces, and their addresses."""

    prefix: str = ""
    device: str = "pod"
    """Of the node's end of a pod's pair, before its number."""
    addresses: str = "10.64"


LANES: Mapping[Side, Lane] = {"left": Lane(), "right": Lane("right-", "right", "10.66")}
"""A system that is alone is on the left."""


@dataclass(frozen=True, slots=True)
class Place:
    """A network namespace with one address."""

    name: str
    address: str
    prefix: str = ""

    @property
    def namespace(self) -> str:
        """Its name for the kernel: unique among all systems that are up."""
        return f"{self.prefix}{self.name}"

    @property
    def path(self) -> Path:
        return Path("/run/netns") / self.namespace

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs what follows in here."""
        return ("nsenter", f"--net={self.path}", "--")


End = tuple[Place, str]
"""A place and its interface's name."""


@dataclass(slots=True)
class Network:
    """All places of one bring-up. `build` makes them, `remove` takes them away; pods that come and go, `add` and `drop`.

    A place that has gone keeps its number, which its address and the names of interfaces are made of.
    """

    places: tuple[Place, ...]
    lane: Lane = LANES["left"]
    borrowed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pod → the place of another that it is in: what is on the host network is in the node's own, which outlives it."""

    def __getitem__(self, name: str) -> Place:
        return self.places[self._number(name)]

    @property
    def addresses(self) -> Mapping[str, str]:
        """Place, or pod in a borrowed one → IP."""
        return {name: self[name].address for name in (*(place.name for place in self.places), *self.borrowed)}

    def device(self, there: str) -> str:
        """The name of the interface that leads straight to a place, in any other."""
        return f"to{self._number(there)}"

    def add(self, name: str, links: Sequence[tuple[str, str]]) -> Place:
        """One more place, joined by `links` to places that are there. Raises CalledProcessError, OSError."""
        place = _place(name, len(self.places), self.lane)
        self.places = (*self.places, place)
        self.make([place], links)
        return place

    def borrow(self, name: str, of: str) -> None:
        """A pod that is in the place of another, now gone."""
        self.borrowed = {**self.borrowed, name: self[of].name}

    def drop(self, name: str) -> None:
        """A place that nothing lives in any more. Raises CalledProcessError."""
        batch([], [f"link del {self._node_device(name)}", f"netns del {self[name].namespace}"])

    def remove(self) -> None:
        """The node's ends go first: a namespace's own links would outlive this call by the time its cleaning takes."""
        there = [place for place in self.places if place.path.exists()]
        links = [f"link del {self._node_device(place.name)}" for place in there]
        # goes on after an error, so that what a failed bring-up made goes too
        batch(["-force"], [*links, *(f"netns del {place.namespace}" for place in there)])

    def _number(self, name: str) -> int:
        return [place.name for place in self.places].index(self.borrowed.get(name, name))

    def _node_device(self, name: str) -> str:
        return f"{self.lane.device}{self._number(name)}"

    def make(self, new: Sequence[Place], links: Sequence[tuple[str, str]]) -> None:
        """These of the places, joined to the node and by `links`. Raises CalledProcessError, OSError."""
        root, node = list[str](), [f"address replace {NODE_ADDRESS}/32 dev lo"]
        within: dict[str, list[str]] = {}
        for place in new:
            device = self._node_device(place.name)
            root.append(f"netns add {place.namespace}")
            root.append(f"link add {device} type veth peer name node netns {place.namespace}")
            node += [f"link set {device} up", f"route add {place.address}/32 dev {device} src {NODE_ADDRESS}"]
            own = ["link set lo up", f"address add {place.address}/32 dev lo", "link set node up"]
            within[place.namespace] = [*own, f"route add {NODE_ADDRESS}/32 dev node src {place.address}"]
        for left, right in links:
            here, there = self.device(right), self.device(left)
            ends = f"{here} netns {self[left].namespace} type veth peer name {there} netns {self[right].namespace}"
            root.append(f"link add {ends}")
            for place, other, device in ((self[left], self[right], here), (self[right], self[left], there)):
                route = f"route add {other.address}/32 dev {device} src {place.address}"
                within.setdefault(place.namespace, []).extend([f"link set {device} up", route])
        batch([], root + node)
        for name, lines in within.items():
            batch(["-n", name], lines)
        for place in new:
            write_sysctls(place, _SYSCTLS | (_CLIENT_SYSCTLS if place.name == CLIENT else {}))


def build(names: Sequence[str], links: Sequence[tuple[str, str]], lane: Lane = LANES["left"]) -> Network:
    """Namespaces of these names (the client's added), joined to the node and by `links`. Raises CalledProcessError."""
    net = Network(tuple(_place(name, index, lane) for index, name in enumerate([CLIENT, *names])), lane)
    try:
        net.make(net.places, links)
    except BaseException:
        with contextlib.suppress(subprocess.CalledProcessError):
            net.remove()
        raise
    return net


def _place(name: str, index: int, lane: Lane) -> Place:
    return Place(name, f"{lane.addresses}.{(index + 2) >> 8}.{(index + 2) & 255}", lane.prefix)


def write_sysctls(place: Place, settings: Mapping[str, str]) -> None:
    """Write /proc/sys entries as seen from a place. Raises OSError, its filename the entry's."""
    for name, value in settings.items():
        file = Path("/proc/sys", name.replace(".", "/"))
        call_in(place, lambda file=file, value=value: file.write_text(value))


def sink(port: int) -> socket.socket:
    """Takes what is sent to the node as UDP, which nobody reads: what does not fit is dropped by the kernel. Raises OSError."""
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # two systems of a pair share it
    taken.bind((NODE_ADDRESS, port))
    return taken


def connect(place: Place, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A TCP connection from a place. Raises OSError."""
    return call_in(place, lambda: socket.create_connection(address, timeout_s))


def call_in(place: Place, action: Callable[[], T]) -> T:
    """Call `action` in a thread that lives in the place; a socket made there stays there."""
    came = Future[T]()

    def run() -> None:
        try:
            set_namespace(place.path)
            came.set_result(action())
        except Exception as error:  # noqa: BLE001 - handed to the caller, whatever it is
            came.set_exception(error)

    # A daemon: an interrupt ends the caller's wait, and the lab must not wait on for a connect that hangs.
    threading.Thread(target=run, name=f"in-{place.name}", daemon=True).start()
    return came.result()


@contextlib.contextmanager
def complaining() -> Iterator[None]:
    """A program that failed and what the kernel refused, as a MeasuringError."""
    remedy = "`just doctor` checks what it needs"
    try:
        yield
    except subprocess.CalledProcessError as error:
        fault = f"{' '.join(map(str, error.cmd))} failed: {str(error.stderr).strip()}"
        raise MeasuringError("local target", fault, remedy) from None
    except OSError as error:
        raise MeasuringError("local target", str(error), remedy) from None


def batch(options: Sequence[str], lines: Sequence[str]) -> None:
    """`ip` commands, one a line. Raises CalledProcessError."""
    argv, text = ["ip", *options, "-batch", "-"], "\n".join(lines) + "\n"
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True)


def resolving(addresses: Mapping[str, str], folder: Path, hosts_file: Path = HOSTS) -> tuple[str, ...]:
    """The command that runs what follows where each host has its address, beside what is known anyway. MeasuringError.

    A mount namespace of its own covers the file: another system's hosts may have the same names.
    """
    try:
        known = hosts_file.read_text()
    except OSError as error:
        raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
    own = folder / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    own.write_text(known + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    own.chmod(0o644)
    cover = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", cover, str(own), str(hosts_file))


def shape(links: Sequence[tuple[End, End]], mbit: float | None) -> None:
    """Shape every end to a rate (Mbit/s), or not at all. MeasuringError when it did not take."""
    wanted = (mbit or 0.0) * 125_000
    for place, device in chain.from_iterable(links):
        if not wanted and not _rate(place, device):
            continue
        where = f"client link: {place.name}/{device}"
        words = ["replace", "dev", device, *_bucket(wanted)] if wanted else ["del", "dev", device, "root"]
        done = _tc(place, "qdisc", *words)
        if done.returncode:
            raise MeasuringError(where, f"tc: {done.stderr.strip()}", "`just doctor` tries tc tbf")
        found = _rate(place, device)
        if not math.isclose(found, wanted, rel_tol=_NEAR):
            fault = f"asked for {wanted:.0f} bytes/s, tc shows {found or 'none'}"
            raise MeasuringError(where, fault, "see `tc -s qdisc`; iproute2 5.0 or newer is needed")


def link_counters(links: Sequence[tuple[End, End]]) -> Mapping[str, int]:
    """`client/rx_bytes`, `client/tx_bytes` of all pairs, cumulative: frames as the client's interfaces count them.

    Ethernet frames without preamble, gap and checksum; a send that is not cut on the way (GSO) has one frame's headers: at most 5 % less than on a
    wire.
    """
    received = sent = 0
    for (client, device), _ in links:
        lines = call_in(client, Path("/proc/thread-self/net/dev").read_text).splitlines()
        counts = next(line.split(":")[1].split() for line in lines if line.strip().startswith(f"{device}:"))
        received, sent = received + int(counts[0]), sent + int(counts[8])
    return {"client/rx_bytes": received, "client/tx_bytes": sent}


def _bucket(rate_bytes: float) -> list[str]:
    try:  # the packet scheduler's clock: 1/HZ, or a nanosecond where the kernel has fine timers (psched's 4th number)
        tick_s = 1 / int(Path("/proc/net/psched").read_text().split()[3], 16)
    except (OSError, IndexError, ValueError, ZeroDivisionError):
        tick_s = 0.01
    burst = max(math.ceil(rate_bytes * max(_TICK_S, tick_s)), 2 * FRAME_BYTES)
    queue = max(math.ceil(rate_bytes * QUEUE_S), QUEUE_BYTES)
    return ["root", "tbf", "rate", f"{rate_bytes * 8:.0f}bit", "burst", f"{burst}b", "limit", f"{burst + queue}b"]


def _rate(place: Place, device: str) -> float:
    """Of an interface's token bucket in bytes/s, 0 without one. MeasuringError if tc says neither."""
    done = _tc(place, "-j", "qdisc", "show", "dev", device)
    try:
        found = (float(item["options"]["rate"]) for item in json.loads(done.stdout) if item["kind"] == "tbf")
        return next(found, 0.0)
    except (ValueError, LookupError, TypeError):
        fault = f"tc cannot be read: {(done.stderr or done.stdout).strip() or 'it printed nothing'}"
        raise MeasuringError(f"client link: {place.name}/{device}", fault, "iproute2 5.0 or newer") from None


def _tc(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["tc", "-n", place.namespace, *words], capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(["tc"], 127, "", f"{error.filename}: {error.strerror}")
