"""The load generator k6-grpc: k6 with a script of the lab that makes gRPC calls, on one lasting connection per virtual user.

A part of the line that the script prints at the end (times of calls in ms):

    {"lab_grpc":1,…"made":12161,…"told_us":79080127,…"latency":{"count":12161,"avg":6.518,…}}   →  12,161 calls

A call is unary, or it is a server stream of `messages` messages. Every message has the size of the load's page. The latency of
a call begins right before the script makes the call. It ends when the script has the answer, or the end of the stream, so it
includes the time that k6 itself needs. If the proxy ends a connection (GOAWAY), k6 opens a new one by itself; the time for this
is part of the next call's latency.

An output is accepted only if its numbers agree with one another, and with k6's own counts. Every call reports the latency of
the previous call on its connection to the backend. The backend's counts, and its sum of these latencies, are compared with the
generator's in `lab.measure.streamed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import ValidationError

from lab.generators.base import (
    Count,
    OutputTime,
    clean_output,
    common_refusal,
    expect_output,
    list_destinations,
    make_output_error,
    one_host_rule,
    scheduled_s,
    sort_rising,
)
from lab.generators.k6 import K6, KINDS, PERCENTS, STATS, ScriptedK6, Summary, make_scenario
from lab.model.load import (
    CallReport,
    ErrorKind,
    GeneratorLoad,
    GeneratorResult,
    expect,
    first_broken,
)
from lab.model.pages import PAGES
from lab.model.sweeps import GRPC_GENERATOR
from lab.stats.histogram import Histogram

SERVICE = "grpc.testing.TestService"
"""The service of gRPC's interoperability suite, which the backend serves."""
CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""The names of gRPC's status codes, by their number."""
FAILED = "failed: "
"""The beginning of a line of the log, which a virtual user writes at its first failure."""
ROUNDING_US = 1.0
"""The µs by which the sum of latencies may differ for each call: the script rounds them."""


class _GrpcSummary(Summary):
    """The line that the script prints at the end of the run, with k6's own counts."""

    lab_grpc: Literal[1]
    messages: Count
    told_us: Count
    codes: list[Count]
    latency: dict[str, OutputTime]
    """The values of a Trend: `count`, `min`, `max`, `avg` and percentiles; empty where no call was answered."""

    @property
    def answered(self) -> int:
        """The number of calls that were answered, with any status."""
        return int(self.latency.get("count", 0))

    @property
    def points_ms(self) -> list[tuple[float, float]]:
        """The latency percentiles as pairs (probability from 0 to 1, latency in ms), which rise together.

        Reading this property raises KeyError if the summary lacks a percentile, and OutputError if the latencies do not rise.
        """
        inside = [(percent / 100, self.latency[f"p({percent})"]) for percent in PERCENTS]
        return sort_rising([(0.0, self.latency["min"]), *inside, (1.0, self.latency["max"])])


class Grpc(ScriptedK6):
    """The load generator for gRPC: k6 with a script of the lab, with one connection for each of k6's virtual users."""

    name = GRPC_GENERATOR
    models = frozenset({"open", "closed"})
    protocols = frozenset({"h2"})

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why k6 cannot make this load of gRPC calls; None if it can."""
        plain = replace(load, protocol="h1", messages=0)  # gRPC is HTTP/2 with TLS or without
        return common_refusal(plain) or first_broken(
            (load.requests is not None, "it runs for a time, not for a number of calls"),
            (not load.keepalive, "each connection makes many calls: leave keepalive out"),
            (load.resumption is not None, "it never resumes a TLS session: leave resumption out"),
            (load.gzip or load.brotli or load.forwarded, "its calls have no further headers"),
            (urlsplit(load.url).path[1:] not in PAGES, "its messages have the size of a page: name one of the lab's"),
            one_host_rule(self.name, load),
        )

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the files that k6 needs for a load of gRPC calls: file name → text.

        They are the script, which contains the load, the definition of the gRPC service, and an empty configuration.
        """
        ((url, host),) = list_destinations(load)
        parts = urlsplit(url)
        size = PAGES[parts.path[1:]]
        stream = {"response_parameters": [{"size": size}] * load.messages}
        settings = {
            "address": parts.netloc if parts.port else f"{parts.netloc}:{443 if parts.scheme == 'https' else 80}",
            "plaintext": parts.scheme == "http",
            "authority": host,
            "method": f"{SERVICE}/{'StreamingOutputCall' if load.messages else 'UnaryCall'}",
            "request": stream if load.messages else {"response_size": size},
            "messages": load.messages,
            "timeout_ms": load.timeout_s * 1000,
            "kinds": KINDS,
            "stats": [*STATS, "avg"],
            "scenario": make_scenario(load),
        }
        script, service = (Path(__file__).with_name(name).read_text("utf-8") for name in ("_grpc.js", "_grpc.proto"))
        return {"k6.js": script.replace("@LOAD@", json.dumps(settings)), "grpc.proto": service, "k6.json": "{}\n"}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which k6 makes this load of gRPC calls.

        It begins with `env` and the environment variables of the Go runtime.
        """
        return K6().argv(replace(load, logged=True))

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the summary line that k6's script for gRPC printed; in the result, each answered call is a request.

        Raises:
            OutputError: k6 failed, no call was answered, or two numbers contradict each other.

        """
        lines = [line for line in clean_output(stdout).splitlines() if line.startswith('{"lab_grpc":1,')]
        expect_output(
            exit_status == 0 and len(lines) == 1, 'a line that begins {"lab_grpc":1,', stdout, stderr, exit_status
        )
        failures = [line for line in clean_output(stderr).splitlines() if line.startswith(FAILED)]
        try:
            summary = _GrpcSummary.model_validate_json(lines[0])
            errors: dict[ErrorKind, int] = {kind: count for kind in KINDS if (count := summary.errors[kind])}
            answered = summary.answered
            expect(answered > 0, f"no call was answered: errors {errors}, {next(iter(failures), 'none was made')}")
            points_ms, average_us = summary.points_ms, summary.latency["avg"] * 1e3
        except (ValidationError, KeyError):
            raise make_output_error("a whole summary line, of counts and times", stdout, stderr) from None
        _compare_counts(summary, errors, load)
        _compare_latencies(summary, points_ms, average_us, load)
        duration_s = summary.duration_ms * 1e-3
        codes = zip(CODES, summary.codes, strict=True)
        return GeneratorResult(
            requests=answered,
            duration_s=duration_s,
            latency=Histogram.of_quantiles([(share, value_ms * 1e-3) for share, value_ms in points_ms], answered),
            recorded_s=duration_s,
            errors=errors,
            dropped=summary.dropped,
            size_bytes=summary.received_bytes,
            size_includes_tls=load.url.startswith("https://"),
            notes=(*(f"{count} calls: {code}" for code, count in codes if count), *failures[:1]),
            scheduled_s=scheduled_s(load),
            calls=CallReport(messages=summary.messages, told_us=summary.told_us),
        )


def _compare_counts(summary: _GrpcSummary, errors: Mapping[ErrorKind, int], load: GeneratorLoad) -> None:
    """Check that the counts of calls, failures, status codes and messages agree with one another.

    Raises:
        OutputError: Two counts contradict each other.

    """
    failed = sum(count for kind, count in errors.items() if kind != "connect")
    status = errors.get("status", 0)
    expect(
        summary.answered + failed - status == summary.made,
        f"expected {summary.made} calls accounted for, got {summary.answered} answered and {failed - status} failed",
    )
    expect(
        len(summary.codes) == len(CODES) and sum(summary.codes) == failed and not summary.codes[0],
        f"expected a status for each of {failed} calls, got {summary.codes}",
    )
    good, most = (count * load.messages for count in (summary.answered - status, summary.made))
    expect(good <= summary.messages <= most, f"expected {good} messages of streams or more, got {summary.messages}")


def _compare_latencies(
    summary: _GrpcSummary, points_ms: list[tuple[float, float]], average_us: float, load: GeneratorLoad
) -> None:
    """Check that the latencies agree: the percentiles, the mean, and the sum of the latencies that were sent to the backend.

    The latency of the last call on each connection is not in that sum, because no further call reports it. The percentiles
    give limits for the mean: each call took at least as long as the percentile below it, and at most as long as the one
    above it. A small tolerance is allowed, because k6 interpolates between two latencies.

    Raises:
        OutputError: Two numbers contradict each other.

    """
    slowest_us, rounding_us = summary.latency["max"] * 1e3, ROUNDING_US * summary.answered
    total_us = average_us * summary.answered
    expect(
        total_us - load.connections * slowest_us - rounding_us <= summary.told_us <= total_us + rounding_us,
        f"expected calls to report {total_us:.0f} µs but for their last, got {summary.told_us}",
    )
    steps = [(high - low, fast, slow) for (low, fast), (high, slow) in pairwise(points_ms)]
    least_us, most_us = (sum(step[0] * step[side] for step in steps) * 1e3 for side in (1, 2))
    slack_us = slowest_us / summary.answered + ROUNDING_US
    expect(
        least_us - slack_us <= average_us <= most_us + slack_us,
        f"expected a mean of {least_us:.0f} to {most_us:.0f} µs by its percentiles, got {average_us:.0f}",
    )
