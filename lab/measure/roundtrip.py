"""The TCP round-trip time of the bare network, measured by sockperf from the client to the backend's pod without a proxy.

It is a lower bound of all latencies. On one connection, 14 bytes are sent there and back again and again. (The plan was to use
netperf, which Debian has in non-free only.) A line of sockperf's output, and the field that it becomes:

    sockperf: ---> percentile 99.000 =  105.223     →  p99_s 105.223e-6

Facts about sockperf on which this file relies (3.7, tried):

- It prints half round trips without `--full-rtt`.
- It ends with status 0 even if it could not connect.
- It colours its output, on a terminal or not.
- It keeps about half of the observations of a second; with `--no-rdtsc` it keeps none.

If both ends share a CPU (on a machine with 2 CPUs), no other CPU has to be woken. The round trip then took 6 µs, against 73
µs with two CPUs of the same virtual machine. A failed measurement does not end the run: its reason is recorded.
"""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any

from lab.model.run import RoundTrip
from lab.stats.units import format_seconds
from lab.targets.base import System
from lab.targets.common.scratch import make_scratch_folder

TOOL = "sockperf"
"""The program that measures the round trip."""
PORT = 11111
"""The TCP port on which the server listens."""
SECONDS = 1
"""The seconds for which the client measures."""
LABELS = {
    "p50_s": "percentile 50.000",
    "p90_s": "percentile 90.000",
    "p99_s": "percentile 99.000",
    "max_s": "<MAX> observation",
}
"""The label in sockperf's output for each field of `RoundTrip`."""

_STARTS_WITHIN_S = 1.0
_ENDS_WITHIN_S = SECONDS + 9.0
_COLOUR = re.compile(r"\x1b?\[[0-9;]*m")


def measure_roundtrip(system: System) -> RoundTrip:
    """Measure the TCP round-trip time from the client to the backend's pod without a proxy; this takes 3.5 s.

    If it cannot be measured, the result has only the reason.
    """
    try:
        address = system.pod_address("backend")
        server = system.spawn("backend", [TOOL, "server", "--tcp", "-p", str(PORT)])
        try:
            output = _run_client(system, address)
        finally:
            server.kill()
            server.wait()
        return parse_sockperf(output)
    except (OSError, NotImplementedError, ValueError) as error:
        return RoundTrip(reason=f"{TOOL}: {error}")


def parse_sockperf(output: str) -> RoundTrip:
    """Parse the output of `sockperf ping-pong` into a record of round-trip times in seconds.

    Raises:
        ValueError: The output has no complete result. The message is sockperf's own error message, the end of the output,
            or `it printed nothing`; or it names the value that the output lacks.

    """
    text = _COLOUR.sub("", output)
    version, count = (re.search(form, text) for form in (r"== version #(\S+) ==", r"Total (\d+) observations"))
    if count is None or "Summary: Round trip is" not in text:
        complaint = re.search(r"ERROR: (.+)", text)
        raise ValueError(complaint[1].strip() if complaint else " ".join(text.split())[-160:] or "it printed nothing")
    values = dict(re.findall(r"---> (.+?)\s*=\s*([\d.]+)", text))
    if missing := next((label for label in LABELS.values() if label not in values), None):
        raise ValueError(f"expected '{missing}', found none")
    took_s: dict[str, Any] = {field: float(values[label]) * 1e-6 for field, label in LABELS.items()}
    return RoundTrip(tool=TOOL, version=version[1] if version else None, count=int(count[1]), **took_s)


def describe_roundtrip(roundtrip: RoundTrip) -> str:
    """Return a line about the round-trip times without a proxy, to print below a table.

    Example: `bare network: TCP round trip p50 25 µs, p99 105 µs, max 1.2 ms (sockperf 3.7, 19,000 times)`.
    """
    if roundtrip.p50_s is None or roundtrip.p99_s is None or roundtrip.max_s is None:
        return f"bare network: round trip not measured: {roundtrip.reason}"
    p50, p99, longest = map(format_seconds, (roundtrip.p50_s, roundtrip.p99_s, roundtrip.max_s))
    tool = f"{roundtrip.tool} {roundtrip.version or ''}".strip()
    return f"bare network: TCP round trip p50 {p50}, p99 {p99}, max {longest} ({tool}, {roundtrip.count:,} times)"


def _run_client(system: System, address: str) -> str:
    """Run sockperf's client and return its output; try again for a second while the server does not accept connections.

    Args:
        system: The running system.
        address: The IP address of the backend's pod.

    Raises:
        ValueError: The client did not end in time.

    """
    argv = [TOOL, "ping-pong", "--tcp", "-i", address, "-p", str(PORT), "-t", str(SECONDS), "--full-rtt"]
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while True:
        with make_scratch_folder() as folder, (folder / "output").open("w+b") as output:
            client = system.popen(argv, folder, output, output)
            try:
                client.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                raise ValueError(f"still running after {_ENDS_WITHIN_S:g} s") from None
            finally:
                client.kill()
                client.wait()
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        if "refused" not in text or time.monotonic() > deadline:
            return text
        time.sleep(0.02)
