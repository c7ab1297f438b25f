"""One network namespace per pod and one for the client, joined by veth pairs point to point.

An address belongs to a pod, not to a link: it is a /32 on the pod's loopback, reached over whichever pair joins
two places. The lab's own namespace is the node: joined to every pod, it is where probes come from.
`services` puts one more place between client and pods where a Service's NAT is on the way; `shaping` slows links down.
Refuses to change anything of the kernel's defaults, offloads included, save two that a container runtime and a
load generator's host would have changed too (`_SYSCTLS`).
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lab.targets.local.namespaces import set_namespace

T = TypeVar("T")

NODE_ADDRESS = "10.64.0.1"
CLIENT = "client"

_SYSCTLS = {
    # containerd 2 does this in every pod, so that ports below 1024 need no capability
    "": ["net.ipv4.ip_unprivileged_port_start=0"],
    # the client is not what is tested: connections per second must not end at its ports
    CLIENT: ["net.ipv4.ip_local_port_range=1024 65535", "net.ipv4.tcp_tw_reuse=1"],
}


@dataclass(frozen=True, slots=True)
class Place:
    """A network namespace with one address."""

    name: str
    address: str

    @property
    def path(self) -> Path:
        return Path("/run/netns") / self.name

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs what follows in here."""
        return ("nsenter", f"--net={self.path}", "--")


@dataclass(frozen=True, slots=True)
class Network:
    """All places of one bring-up and the pairs that are joined. `build` makes them, `remove` takes them away."""

    places: tuple[Place, ...]
    links: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> Place:
        return next(place for place in self.places if place.name == name)

    def device(self, here: str, there: str) -> str:
        """The name of the interface in one place that leads straight to another."""
        return f"to{[place.name for place in self.places].index(there)}"

    def remove(self) -> None:
        """The node's ends go first: a namespace's own links would outlive this call by the time its cleaning takes."""
        batch(
            ["-force"],  # goes on after an error, so that what a failed bring-up made goes too
            [
                *(f"link del pod{index}" for index, _ in enumerate(self.places)),
                *(f"netns del {place.name}" for place in self.places),
            ],
        )


def build(names: Sequence[str], links: Sequence[tuple[str, str]]) -> Network:
    """Namespaces of these names (the client's added), joined to the node and by `links`. Raises CalledProcessError."""
    places = [
        Place(name, f"10.64.{(index + 2) >> 8}.{(index + 2) & 255}") for index, name in enumerate([CLIENT, *names])
    ]
    number = {place.name: index for index, place in enumerate(places)}
    net = Network(tuple(places), tuple(links))
    root = [f"netns add {place.name}" for place in places]
    within: dict[str, list[str]] = {
        place.name: [
            "link set lo up",
            f"address add {place.address}/32 dev lo",
            "link set node up",
            f"route add {NODE_ADDRESS}/32 dev node src {place.address}",
        ]
        for place in places
    }
    node = [f"address replace {NODE_ADDRESS}/32 dev lo"]
    for place in places:
        device = f"pod{number[place.name]}"
        root.append(f"link add {device} type veth peer name node netns {place.name}")
        node += [f"link set {device} up", f"route add {place.address}/32 dev {device} src {NODE_ADDRESS}"]
    for left, right in links:
        ends = [(places[number[left]], places[number[right]]), (places[number[right]], places[number[left]])]
        devices = [net.device(place.name, other.name) for place, other in ends]
        root.append(f"link add {devices[0]} netns {left} type veth peer name {devices[1]} netns {right}")
        for (place, other), device in zip(ends, devices, strict=True):
            within[place.name] += [
                f"link set {device} up",
                f"route add {other.address}/32 dev {device} src {place.address}",
            ]
    try:
        batch([], root + node)
        for place in places:
            batch(["-n", place.name], within[place.name])
            settings = _SYSCTLS[""] + _SYSCTLS.get(place.name, [])
            write_sysctls(place, dict(item.split("=", 1) for item in settings))
    except BaseException:
        with contextlib.suppress(subprocess.CalledProcessError):
            net.remove()
        raise
    return net


def write_sysctls(place: Place, settings: dict[str, str]) -> None:
    """Write /proc/sys entries as seen from a place. Raises OSError, its filename the entry's."""

    def write() -> None:
        for name, value in settings.items():
            (Path("/proc/sys") / name.replace(".", "/")).write_text(value)

    call_in(place, write)


def connect(place: Place, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A TCP connection from a place. Raises OSError."""
    return call_in(place, lambda: socket.create_connection(address, timeout_s))


def call_in(place: Place, action: Callable[[], T]) -> T:
    """Call `action` in a thread that lives in the place; a socket made there stays there."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            set_namespace(place.path)
            results.append(action())
        except Exception as error:  # noqa: BLE001 - handed to the caller, whatever it is
            errors.append(error)

    # A daemon: an interrupt ends the caller's wait, and the lab must not wait on for a connect that hangs.
    thread = threading.Thread(target=run, name=f"in-{place.name}", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def batch(options: Sequence[str], lines: Sequence[str]) -> None:
    """`ip` commands, one a line. Raises CalledProcessError."""
    subprocess.run(
        ["ip", *options, "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True, capture_output=True
    )
