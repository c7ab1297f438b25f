"""The client's link to the entry: shaped to a rate in both directions (tc tbf on both ends), and its bytes counted.

A token bucket, no netem (some kernels have none): it limits the rate and queues what is over it, it adds no delay to an
idle link. Counted are Ethernet frames without preamble, gap and checksum, of big sends as they will be cut.

    burst   what goes at the link's full speed before the rate holds: what the rate brings between two ticks of the
            kernel's clock (/proc/net/psched; at most 1 ms, kernels with fine timers need less), and two frames at least.
            A send larger than it (GSO gives up to 64 KiB) is cut into its frames first, as a network card would.
    limit   the queue: 100 ms of the rate, as routers are built, and 64 KiB at least, so that one send fits.

Refuses to believe tc: what it says afterwards is compared.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.base.errors import MeasuringError
from lab.systems.manifests.objects import Objects
from lab.targets.local.control_plane import services
from lab.targets.local.sandbox import network
from lab.targets.local.sandbox.network import Network, Place

FRAME_BYTES = 1514
QUEUE_S = 0.1
QUEUE_BYTES = 64 * 1024
_TICK_S = 1e-3
_NEAR = 0.02
"""tc rounds: rates to bytes, bursts to the kernel's time units."""

End = tuple[Place, str]
"""A place and its interface's name."""


def ends(net: Network, objects: Objects) -> list[tuple[End, End]]:
    """(client's end, far end) of every pair between the client and where its requests go in."""
    far = [services.NODE] if services.balancers(objects) else [pod.name for pod in objects.entry]
    here = network.CLIENT
    return [((net[here], net.device(here, name)), (net[name], net.device(name, here))) for name in far]


def shape(links: Sequence[tuple[End, End]], mbit: float | None) -> None:
    """Shape every end to a rate (Mbit/s), or not at all. MeasuringError when it did not take."""
    for place, device in (end for link in links for end in link):
        there = _tbf(place, device)
        if mbit is None and there is None:
            continue
        where = f"client link: {place.name}/{device}"
        wanted = ["del", "dev", device, "root"] if mbit is None else ["replace", "dev", device, *_bucket(mbit)]
        done = _tc(place, "qdisc", *wanted)
        if done.returncode:
            raise MeasuringError(where, f"tc: {done.stderr.strip()}", "`just doctor` tries tc tbf")
        rate_bytes = None if mbit is None else mbit * 125_000
        found = _tbf(place, device)
        if (found is None) != (rate_bytes is None) or abs((found or 0) / (rate_bytes or 1) - bool(found)) > _NEAR:
            fault = f"asked for {rate_bytes or 0:.0f} bytes/s, tc shows {found or 'none'}"
            raise MeasuringError(where, fault, "see `tc -s qdisc`; iproute2 5.0 or newer is needed")


def counters(links: Sequence[tuple[End, End]]) -> Mapping[str, int]:
    """`client/rx_bytes`, `client/tx_bytes` of all pairs, cumulative: frames as the client's interfaces count them.

    A send that is not cut on the way (GSO) has one frame's headers: at most 5 % less than on a wire.
    """
    found = {"client/rx_bytes": 0, "client/tx_bytes": 0}
    for (client, device), _ in links:
        text = network.call_in(client, Path("/proc/thread-self/net/dev").read_text)
        fields = next(
            line.partition(":")[2].split() for line in text.splitlines() if line.strip().startswith(f"{device}:")
        )
        found["client/rx_bytes"] += int(fields[0])
        found["client/tx_bytes"] += int(fields[8])
    return found


def _bucket(mbit: float) -> list[str]:
    rate_bytes = mbit * 125_000
    burst = max(math.ceil(rate_bytes * max(_TICK_S, _clock_tick_s())), 2 * FRAME_BYTES)
    queue = max(math.ceil(rate_bytes * QUEUE_S), QUEUE_BYTES)
    return ["root", "tbf", "rate", f"{mbit * 1e6:.0f}bit", "burst", f"{burst}b", "limit", f"{burst + queue}b"]


def _clock_tick_s() -> float:
    """Of the packet scheduler's clock: 1/HZ, or a nanosecond where the kernel has fine timers (psched's 4th number)."""
    try:
        return 1 / int(Path("/proc/net/psched").read_text().split()[3], 16)
    except (OSError, IndexError, ValueError, ZeroDivisionError):
        return 0.01


def _tbf(place: Place, device: str) -> float | None:
    """The rate of an interface's token bucket in bytes/s, None without one. MeasuringError if tc says neither."""
    done = _tc(place, "-j", "qdisc", "show", "dev", device)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return next((float(item["options"]["rate"]) for item in found if item["kind"] == "tbf"), None)
    except (ValueError, LookupError, TypeError):
        fault = f"tc cannot be read: {(done.stderr or done.stdout).strip() or 'it printed nothing'}"
        raise MeasuringError(f"client link: {place.name}/{device}", fault, "iproute2 5.0 or newer") from None


def _tc(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["tc", "-n", place.namespace, *words], capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(["tc"], 127, "", f"{error.filename}: {error.strerror}")
