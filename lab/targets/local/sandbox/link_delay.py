"""A delay on the client's link: every packet that the client sends is delayed, so each round trip gets longer.

Windows of TCP and HTTP/2 limit a transfer only if a round trip takes time. Some kernels lack tc netem, which would
delay packets. So packets that arrive at the far end of a link are redirected (tc mirred) to a tap device, and a program
(`_hold_packets`) sends each on after a fixed time.

Only packets of the client are delayed, because a window depends only on the time of the whole round trip. Proxies may
send bodies in many small packets, and the delay of each packet takes CPU time. In one test of 4 s a proxy sent 74,000
packets, and the client 9,000.

The delay is then measured: round trips over the link must get longer by the requested time, within `MAX_ERROR_S`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.targets.common.process import kill_group
from lab.targets.local.sandbox.network import End, NetworkPlace, connect, run_ip, run_tc

PROGRAM = Path(__file__).with_name("_hold_packets.py")
"""The program that delays packets."""
MAX_ERROR_S = 1e-3
"""The seconds by which the measured delay may differ from the requested delay."""
TRIES, ROUNDS = 9, 25
"""The number of round trips whose shortest time is compared, and the maximum number of such measurements.

A measurement is repeated because a busy machine may lengthen all of its round trips.
"""
CLOSED_PORT = 9
"""A TCP port at which nothing listens: the kernel of the far end refuses a connection at once, so that one round trip passes."""
PLACE, DOCTOR = "client link", "`just doctor` tries tap devices, tc ingress and mirred"
"""The place and the remedy of an error."""
TAP = "delayed"
"""The name of the tap device at the far end of a link."""
TIMEOUT_S = 5.0
"""The seconds within which a connection must be refused."""
MAX_QUEUED = 100_000
"""The number of packets that may wait for the program, large enough that no packet is dropped."""


@dataclass(frozen=True, slots=True)
class LinkDelay:
    """The present delay on the links of one client.

    Attributes:
        programs: The programs that delay the packets, one for each link.
        links: The two ends of each link, the client's end first.
        delay_ms: The added time of a round trip in milliseconds.

    """

    programs: Sequence[subprocess.Popen[bytes]]
    links: Sequence[tuple[End, End]]
    delay_ms: float

    def end(self) -> None:
        """Remove the delay.

        Raises:
            MeasuringError: A program ended before this call, so there was no delay for a part of the time.

        """
        died = [status for program in self.programs if (status := program.poll()) is not None]
        for program in self.programs:
            kill_group(program)
            program.communicate()
        for _, (place, device) in self.links:
            run_tc(place, "qdisc", "del", "dev", device, "ingress")
        if died:
            raise MeasuringError(PLACE, f"the program that holds packets ended with status {died[0]}", DOCTOR)


def begin_delay(links: Sequence[tuple[End, End]], delay_ms: float, pin: Sequence[str] = ()) -> LinkDelay:
    """Delay all packets of the client by a fixed time, and check that round trips have become longer by this time.

    Args:
        links: The two ends of each link, the client's end first. An end is a tuple (network namespace, name of the
            interface in it).
        delay_ms: The time in milliseconds.
        pin: The beginning of a command line that pins the programs to CPUs.

    Raises:
        MeasuringError: The delay cannot be made, or round trips became longer by another time.
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
    """Start the program that delays packets in a network namespace, and return its process once its tap device exists.

    Raises:
        MeasuringError: The program cannot make its device; the error contains its last line of output.
        OSError: The program cannot be started.

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

    The tap device gets the interface's MAC address. So the kernel accepts the packets that come from the tap device as
    addressed to this namespace.

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
    """Measure how many seconds longer the round trips of a link are with a delay than they were without it.

    The shortest of `TRIES` round trips is compared, because other programs on the machine lengthen some round trips. If
    the difference does not match the delay, the measurement is repeated. Then the difference that is nearest to the
    delay is returned.

    Args:
        link: The two ends of the link.
        earlier_s: The shortest round trip without the delay, in seconds.
        delay_s: The requested delay in seconds.

    """
    added_s = list[float]()
    while len(added_s) < ROUNDS and not any(abs(seconds - delay_s) <= MAX_ERROR_S for seconds in added_s):
        added_s.append(min(list_round_trips_s(link)) - earlier_s)
    return min(added_s, key=lambda seconds: abs(seconds - delay_s))


def list_round_trips_s(link: tuple[End, End]) -> list[float]:
    """Measure `TRIES` round trips over a link, and return their times in seconds.

    A round trip is the attempt to open a TCP connection, which the far end of the link refuses.
    """
    times_s: list[float] = []
    for _ in range(TRIES):
        began_s = time.monotonic()
        with contextlib.suppress(ConnectionRefusedError):
            connect(link[0][0], (link[1][0].address, CLOSED_PORT), TIMEOUT_S).close()
        times_s.append(time.monotonic() - began_s)
    return times_s
