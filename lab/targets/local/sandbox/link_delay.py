"""A client's link with a delay: every packet of the client is held for a fixed time, which lengthens each round trip by as much.

Windows of TCP and HTTP/2 limit a transfer only where a round trip takes time. tc netem would make it, but some kernels lack netem. So
packets that arrive at the far end of a link are redirected (tc mirred) to a tap device, and a program holds them (`_hold_packets`).
One direction is enough, because a window depends on the whole round trip alone. It is the client's, since proxies may send bodies in
many small packets, and holding each takes CPU time (74,000 in 4 s were seen, and 9,000 of the client).

The delay is measured before it is believed: round trips over the link must get longer by what was asked for, within `MAX_ERROR_S`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.targets.local.sandbox.network import End, NetworkPlace, connect, run_ip, run_tc

PROGRAM = Path(__file__).with_name("_hold_packets.py")
"""The program that holds packets."""
MAX_ERROR_S = 1e-3
"""The seconds by which the measured delay may differ from the one that was asked for."""
TRIES, ROUNDS = 9, 25
"""The round trips of which the shortest is compared, and how often they are taken again where a busy machine lengthened all."""
CLOSED_PORT = 9
"""A TCP port at which nothing listens: the kernel of the far end refuses a connection at once, so that one round trip passes."""
PLACE, DOCTOR = "client link", "`just doctor` tries tap devices, tc ingress and mirred"
"""The place and the remedy of an error."""
TAP = "delayed"
"""The name of the tap device at the far end of a link."""
TIMEOUT_S = 5.0
"""The seconds within which a connection must be refused."""
MAX_QUEUED = 100_000
"""The packets that may wait for the program; none must be dropped."""


@dataclass(frozen=True, slots=True)
class LinkDelay:
    """The delay that is in force on the links of one client.

    Attributes:
        programs: The programs that hold the packets, one for each link.
        links: The two ends of each link, the client's end first.
        delay_ms: The added time of a round trip in milliseconds.

    """

    programs: Sequence[subprocess.Popen[bytes]]
    links: Sequence[tuple[End, End]]
    delay_ms: float

    def end(self) -> None:
        """Remove the delay.

        Raises:
            MeasuringError: A program had ended by itself, so that the delay was not in force all the time.

        """
        died = [status for program in self.programs if (status := program.poll()) is not None]
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()
        for _, (place, device) in self.links:
            run_tc(place, "qdisc", "del", "dev", device, "ingress")
        if died:
            raise MeasuringError(PLACE, f"the program that holds packets ended with status {died[0]}", DOCTOR)


def begin_delay(links: Sequence[tuple[End, End]], delay_ms: float, pin: Sequence[str] = ()) -> LinkDelay:
    """Hold all packets of the client for a fixed time, and check by round trips that it is so.

    Args:
        links: The two ends of each link, the client's end first. An end is a tuple (network namespace, name of the
            interface in it).
        delay_ms: The time in milliseconds.
        pin: The beginning of a command line that pins the programs to CPUs.

    Raises:
        MeasuringError: The delay cannot be made, or round trips got longer by another time.
        CalledProcessError: `ip` fails.
        OSError: A program cannot be started.

    """
    delay_s, programs = delay_ms * 1e-3, list[subprocess.Popen[bytes]]()
    delay = LinkDelay(programs, links, delay_ms)
    before_s = [min(list_round_trips_s(link)) for link in links]
    try:
        for _, (place, device) in links:
            programs.append(_start_program(place, delay_s, pin))
            _redirect(place, device)
        for link, earlier_s in zip(links, before_s, strict=True):
            added_s = _find_added_s(link, earlier_s, delay_s)
            if abs(added_s - delay_s) > MAX_ERROR_S:
                fault = f"asked for a delay of {delay_ms:g} ms, round trips got longer by {added_s * 1e3:.2f} ms"
                raise MeasuringError(PLACE, fault, "leave the machine to the lab alone")
    except BaseException:
        with contextlib.suppress(MeasuringError):
            delay.end()
        raise
    return delay


def _start_program(place: NetworkPlace, delay_s: float, pin: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the program that holds packets in a network namespace, and return it once its tap device is there.

    Raises:
        MeasuringError: It cannot make its device; the error quotes it.
        OSError: It cannot be started.

    """
    argv = [*place.enter, *pin, sys.executable, "-IS", str(PROGRAM), f"{delay_s:.9g}", TAP]
    pipe = subprocess.PIPE
    program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True)
    if program.stdout is None or program.stdout.readline() != b"ready\n":
        lines = program.communicate()[1].decode(errors="replace").strip().splitlines()
        raise MeasuringError(PLACE, f"no packets can be held: {lines[-1] if lines else 'no output'}", DOCTOR)
    return program


def _redirect(place: NetworkPlace, device: str) -> None:
    """Redirect the IPv4 packets that arrive at an interface to the tap device in its network namespace.

    The tap device gets the interface's address, so that the kernel takes the packets that it brings for its own.

    Raises:
        MeasuringError: tc fails.
        CalledProcessError: `ip` fails.

    """
    argv = ["ip", "-n", place.namespace, "-j", "link", "show", "dev", device]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True)
    address = json.loads(shown.stdout)[0]["address"]
    run_ip(["-n", place.namespace], [f"link set {TAP} address {address} txqueuelen {MAX_QUEUED} up"])
    redirect = ("u32", "match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", TAP)
    for arguments in (
        ("qdisc", "add", "dev", device, "ingress"),
        ("filter", "add", "dev", device, "parent", "ffff:", "protocol", "ip", *redirect),
    ):
        done = run_tc(place, *arguments)
        if done.returncode:
            raise MeasuringError(f"{PLACE}: {place.name}/{device}", f"tc: {done.stderr.strip()}", DOCTOR)


def _find_added_s(link: tuple[End, End], earlier_s: float, delay_s: float) -> float:
    """Return by how many seconds the round trips of a link became longer, with a delay in force.

    The shortest of `TRIES` is compared, because other programs on the machine make single ones longer. Of several such
    differences it is the one that is nearest to the delay.

    Args:
        link: The two ends of the link.
        earlier_s: The shortest round trip before.
        delay_s: The delay that was asked for.

    """
    added_s = list[float]()
    while len(added_s) < ROUNDS and not any(abs(seconds - delay_s) <= MAX_ERROR_S for seconds in added_s):
        added_s.append(min(list_round_trips_s(link)) - earlier_s)
    return min(added_s, key=lambda seconds: abs(seconds - delay_s))


def list_round_trips_s(link: tuple[End, End]) -> list[float]:
    """Return `TRIES` times in seconds until the far end of a link refuses a TCP connection: one round trip each."""
    times_s: list[float] = []
    for _ in range(TRIES):
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionRefusedError):
            connect(link[0][0], (link[1][0].address, CLOSED_PORT), TIMEOUT_S).close()
        times_s.append(time.monotonic() - began_s)
    return times_s
