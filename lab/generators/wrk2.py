"""The load generator wrk2: an open loop over a fixed number of connections, with latency from when a request was due.

A second histogram (`service`) has the latency from when a request was sent. An output has a percentile spectrum (ms, cumulative
share, cumulative count), and the lines of a block that the Lua `done` hook prints. A line of each:

       1.211     0.500000         9753         2.00   →  9753 requests took up to 1.211 ms (`service`, by `-U`)
    1211 7                                            →  seven requests took 1211 µs (`latency`, exact)

This module relies on these facts about wrk2 (source of 44a94c1, the same for nixpkgs' e0109df; tried):

- The hook receives only the latencies from when requests were due. Those from when requests were sent come from the spectrum
  that `-U` prints, so they are `quantiles`. An output without the hook's block (a Lua fault) is refused.
- Latencies are recorded only after a calibration of 10 s + 5 ms × connections/thread. Requests and rate cover the complete
  run. A shorter run keeps the start-up in its latencies and prints -nan rates, so such loads are refused beforehand. If a
  thread of a longer run never calibrated, the result has a note and is `uncalibrated`.
- The connections of a thread begin 5 ms apart, each with a separate schedule. Until the last has begun, fewer requests are due
  than the requested rate, and wrk2's Requests/sec is lower (with 900 connections 840 of 900 in 30 s). The achieved rate is
  therefore computed over the average time in which the requests of a connection were due. Whether one more request of a
  connection is due before the end depends on when the connection really began. At one request per second and connection, 97.5
  to 101 of 100 in 30 s are all that was due (observed).
- Every 2 s, `timeout` counts the connections whose last request began earlier than the timeout allows. No request is given up.
- `status` counts 400 and above, and those responses are in the latencies. Without keep-alive, the next connection opens right
  after a response, before it is due: hardly any time to connect is in the latency.
- It requests many hosts in turn, like wrk. It cannot use a separate TLS name for each host: that would need several processes,
  each with its own calibration and spectrum. It resumes TLS sessions like wrk, whose code it shares (not tried).
- Its clock is gettimeofday. If that clock is set, wrk2 prints a warning about a negative latency, and the run is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.generators.base import COUNT, Generator, clean_output, common_refusal, make_output_error
from lab.generators.wrk import (
    common_arguments,
    connect_note,
    histogram_of,
    list_wrk_rules,
    make_turns_script,
    read_blocks,
)
from lab.model.load import GeneratorLoad, GeneratorResult, expect, first_broken
from lab.stats.histogram import UNIT_S, Histogram

SCRIPT = """\
-- Prints wrk2's exact counts of corrected latencies: µs (top of its bucket) and count.
-- latency[i] is the i-th shortest; steps that double find where a value ends in few calls.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("\\nLAB summary %.0f %.0f %.0f\\n", summary.duration, summary.requests, summary.bytes))
  io.write(string.format("LAB errors %.0f %.0f %.0f %.0f %.0f\\n", e.connect, e.read, e.write, e.status, e.timeout))
  local total, first = #latency, 1
  io.write(string.format("LAB latency %.0f\\n", total))
  while first <= total do
    local value, last, step = latency[first], first, 1
    while last + step <= total and latency[last + step] == value do
      last, step = last + step, step * 2
    end
    local beyond = math.min(last + step, total + 1)
    while beyond - last > 1 do
      local middle = math.floor((last + beyond) / 2)
      if latency[middle] == value then last = middle else beyond = middle end
    end
    io.write(string.format("%.0f %.0f\\n", value, last - first + 1))
    first = last + 1
  end
  io.write("LAB end\\n")
end
"""
SPECTRUM = re.compile(r"\(HdrHistogram - Uncorrected Latency.*?\n *#\[Mean.*?Total count\s*=\s*([0-9]+)\]", re.DOTALL)
POINT = re.compile(rf"^ *({COUNT}\.[0-9]{{3}}) +[0-9.]+ +({COUNT}) +(?:[0-9.]+|inf)$", re.MULTILINE)
TOTALS = re.compile(rf"^ +({COUNT}) requests in {COUNT}\.[0-9]+(?:us|ms|s|m|h), .*B read$", re.MULTILINE)
END = re.compile(r"^ *Transfer/sec:", re.MULTILINE)
MINIMUM_S = 30
"""The shortest load in seconds."""
CALIBRATION_S = 10
"""The seconds of calibration with a single connection per thread."""
STAGGER_S = 0.005
"""The seconds by which each connection of a thread delays the next one and calibration (wrk.c: thread_main)."""


class Wrk2(Generator):
    """The load generator wrk2, which makes open loops only (loads at an offered rate)."""

    name = "wrk2"
    binary = "wrk2"
    aliases = ("wrk",)  # its own Makefile builds it under this name
    models = frozenset({"open"})
    version_flag = "-v"
    latency_from = "due"
    remedy = "start the lab from its flake (nix, Linux x86-64), or put a wrk2 on PATH"
    stand_ins = ("oha", "k6")

    def version(self, output: str) -> str | None:
        """Return wrk2's version from its output; None if another program (such as wrk) printed the output."""
        match = re.search(r"^wrk (\S+) \[\w+\] Copyright", output, re.MULTILINE)
        return match[1] if match and "--rate" in output and "--u_latency" in output else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why wrk2 cannot make this load; None if it can."""
        if (common := common_refusal(load)) is not None:
            return common
        rate_rps, calibration_s = load.rate_rps or 0.0, self.calibration_s(load)
        return first_broken(
            (load.rate_rps is None, "wrk2 needs a rate: it is open loop"),
            (load.requests is not None, "wrk2 runs for a time, not for a number of requests"),
            (rate_rps != int(rate_rps), f"wrk2 takes whole requests per second, got {rate_rps:g}"),
            (
                rate_rps < load.connections,
                f"wrk2 needs a request per second for every connection, got {rate_rps:g} and {load.connections}",
            ),
            (
                load.duration_s < MINIMUM_S,
                f"wrk2 needs {MINIMUM_S} s or more: it calibrates for {calibration_s:g} s, got {load.duration_s:g} s",
            ),
            (
                load.duration_s < 2 * calibration_s,
                f"wrk2 calibrates for {calibration_s:g} s here: half of {load.duration_s:g} s or less would count",
            ),
            (bool(load.shards), "wrk2 knows one way in, and several proxies share the hosts: wrk and k6 take many"),
            (
                load.sni_per_host,
                "wrk2 takes one name for the TLS handshake from its URL: wrk and k6 take one for each host",
            ),
            *list_wrk_rules(self.name, load),
        )

    def calibration_s(self, load: GeneratorLoad) -> float:
        """Return for how many seconds at the start of a run wrk2 calibrates itself; it records no latencies in this time."""
        return CALIBRATION_S + STAGGER_S * (load.connections // load.threads)

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the files that wrk2 needs for a load, by file name: the Lua script `wrk2.lua`."""
        return {"wrk2.lua": SCRIPT + make_turns_script(load)}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which wrk2 makes this load.

        With the option `-U`, wrk2 also prints latencies counted from when a request was sent, not from when it was due.
        """
        rate = int(load.rate_rps or 0)
        return [self.binary, *common_arguments(load), f"-R{rate}", "-U", "-s", "wrk2.lua", load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse wrk2's output: its summary, the counts that the lab's Lua script printed, and the percentile spectrum.

        Raises:
            OutputError: wrk2 failed, no request was answered, or the three parts contradict each other.

        """
        stdout = clean_output(stdout)
        totals = TOTALS.search(stdout)
        if exit_status != 0 or totals is None or not END.search(stdout):
            raise make_output_error("a summary up to 'Transfer/sec'", stdout, stderr, exit_status)
        expect(
            "recoridng a negative #" not in stdout, "wrk2 saw a negative latency: the clock was stepped during the run"
        )
        requests, summary = int(totals[1]), totals[0].strip()
        expect(requests > 0, f"no request was answered: {summary!r}")
        if (block := next(iter(read_blocks(stdout)), None)) is None:
            raise make_output_error("the block of counts up to 'LAB end'", stdout, stderr)
        if (spectrum := SPECTRUM.search(stdout)) is None:
            raise make_output_error(
                "a percentile spectrum of uncorrected latency up to its total count", stdout, stderr
            )
        counted = int(block.table[:, 1].sum())
        expect(counted == block.announced, f"expected {block.announced} counts, got {counted}")
        expect(
            block.complete == requests,
            f"expected {requests} requests as in the summary, the script counts {block.complete}",
        )
        latency, duration_s = histogram_of(block.table), block.duration_us * UNIT_S
        expect(latency.total > 0, f"no latency was recorded after calibration: {summary!r}")
        notes = list(connect_note(load))
        calibrated = stdout.count("  Thread calibration: ")
        if calibrated < load.threads:
            notes.append(
                f"{load.threads - calibrated} of {load.threads} threads never calibrated: start-up is in the latency"
            )
        per_thread = load.connections // load.threads
        # complete requests of each connection's schedule, from when it begins to the end
        connection_rps = (load.rate_rps or 0.0) / load.connections
        counts = (int(max(0.0, load.duration_s - STAGGER_S * index) * connection_rps) for index in range(per_thread))
        return GeneratorResult(
            requests=requests,
            duration_s=duration_s,
            latency=latency,
            recorded_s=duration_s - (self.calibration_s(load) if calibrated else 0.0),
            errors=block.errors,
            size_bytes=block.size_bytes,
            service=_parse_spectrum(spectrum[0], int(spectrum[1])),
            notes=tuple(notes),
            scheduled_s=duration_s - STAGGER_S * (per_thread - 1) / 2,
            least_due=load.threads * sum(counts),
            uncalibrated=calibrated < load.threads,
        )


def _parse_spectrum(text: str, total: int) -> Histogram:
    """Parse the percentile spectrum that wrk2 printed, into a histogram of latencies.

    A line of the spectrum has a latency, and how many requests took at most that long.

    Args:
        text: The spectrum.
        total: The number of latencies, which the last count must equal.

    Raises:
        OutputError: A line cannot be parsed, or the last count is not `total`.

    """
    points = [(float(value_ms) * 1e-3, int(count)) for value_ms, count in POINT.findall(text)]
    printed = text.partition("1/(1-Percentile)")[2].partition("#[")[0].split("\n")
    lines = sum(bool(line.strip()) for line in printed)
    expect(len(points) >= lines, f"expected a spectrum of {lines} lines of numbers, got {len(points)}")
    counts = [0, *(count for _, count in points)]
    expect(counts[-1] == total, f"expected a spectrum of {total} latencies, its last line counts {counts[-1]}")
    steps = zip(points, counts, strict=False)
    return Histogram.of_counts(((value_s, count - before) for (value_s, count), before in steps), "quantiles")
