"""The bare network's round trip, without any proxy: sockperf's TCP ping-pong between the client's place and the backend's pod.

NDS planned it (with netperf, which Debian has in non-free only) as the reference below which no latency can lie: 14 bytes
there and back on one connection, one after the other. One line in, and what it becomes:

    sockperf: ---> percentile 99.000 =  105.223     →  p99_s 105.223e-6

sockperf facts this file respects (3.7, tried): it prints half round trips unless told `--full-rtt`; it ends with 0 when
it could not connect; it colours its output, terminal or not; of a second it keeps about half; `--no-rdtsc` keeps nothing. Where both ends share
a CPU (2 cores) nobody has to be woken on another one: 6 µs, where two CPUs of the same virtual machine made 73 µs.
Refuses to end a run: what cannot be measured is recorded as that, with the reason.
"""

from __future__ import annotations

import re
import subprocess
import time
from typing import Any

from lab.model.run import RoundTrip
from lab.stats.units import format_seconds
from lab.targets.base import System
from lab.targets.common.scratch import scratch

TOOL = "sockperf"
PORT = 11111
SECONDS = 1
LABELS = {
    "p50_s": "percentile 50.000",
    "p90_s": "percentile 90.000",
    "p99_s": "percentile 99.000",
    "max_s": "<MAX> observation",
}
"""Field of what it found → what sockperf calls it."""

_STARTS_WITHIN_S = 1.0
_ENDS_WITHIN_S = SECONDS + 9.0
_COLOUR = re.compile(r"\x1b?\[[0-9;]*m")


def measure(system: System) -> RoundTrip:
    """Start a server in the backend's pod, play ping-pong with it from the client's place, parse. Takes 3.5 s."""
    try:
        address = system.pod_address("backend")
        server = system.spawn("backend", [TOOL, "server", "--tcp", "-p", str(PORT)])
        try:
            output = _play(system, address)
        finally:
            server.kill()
            server.wait()
        return parse(output)
    except (OSError, NotImplementedError, ValueError) as error:
        return RoundTrip(reason=f"{TOOL}: {error}")


def parse(output: str) -> RoundTrip:
    """sockperf's ping-pong output → round trips in seconds. ValueError with its own complaint where it measured none."""
    text = _COLOUR.sub("", output)
    version, count = (re.search(form, text) for form in (r"== version #(\S+) ==", r"Total (\d+) observations"))
    if count is None or "Summary: Round trip is" not in text:
        complaint = re.search(r"ERROR: (.+)", text)
        raise ValueError(complaint[1].strip() if complaint else " ".join(text.split())[-160:] or "it printed nothing")
    told = dict(re.findall(r"---> (.+?)\s*=\s*([\d.]+)", text))
    if missing := next((label for label in LABELS.values() if label not in told), None):
        raise ValueError(f"expected '{missing}', found none")
    took_s: dict[str, Any] = {field: float(told[label]) * 1e-6 for field, label in LABELS.items()}
    return RoundTrip(tool=TOOL, version=version[1] if version else None, count=int(count[1]), **took_s)


def sentence(found: RoundTrip) -> str:
    """One line for below the table."""
    if found.p50_s is None or found.p99_s is None or found.max_s is None:
        return f"bare network: round trip not measured: {found.reason}"
    p50, p99, most = map(format_seconds, (found.p50_s, found.p99_s, found.max_s))
    tool = f"{found.tool} {found.version or ''}".strip()
    return f"bare network: TCP round trip p50 {p50}, p99 {p99}, max {most} ({tool}, {found.count:,} times)"


def _play(system: System, address: str) -> str:
    """The client's output, of its first start after the server listens."""
    argv = [TOOL, "ping-pong", "--tcp", "-i", address, "-p", str(PORT), "-t", str(SECONDS), "--full-rtt"]
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while True:
        with scratch() as folder, (folder / "output").open("w+b") as output:
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
