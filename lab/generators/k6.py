"""The load generator k6: an open loop over a fixed number of virtual users (one connection each), or a closed loop.

Latency counts from when a request was sent. A part of the line that the lab's `handleSummary` prints (times in ms):

    {"lab":1,…"latency":{"count":202,"p(50)":0.18,"p(51)":0.181,…}…}   →  two of 202 requests took up to 0.181 ms

This module relies on these facts about k6 (tried with 1.8.1; flags common to 1.x and 2.x, source of 2.2.0):

- Its Trends keep every value, and the summary prints any quantile: the lab requests some 150. k6's own rows for each request
  would need the CPU from which it measures. The lab's line for every request of a `logged` load costs a fifth more CPU (0.6
  against 0.5 ms at 500 requests per second). A thousand virtual users need 0.3 s to start, and 300 MB.
- Its garbage collection affects latencies. On one CPU, Go's collector scans a thousand virtual users for half a second every
  few seconds. Answers that take 0.1 ms are then reported with a p99 of 3 to 3.5 ms; without the collector it is 0.5 ms. So the
  collector is off until the heap is larger than a sample needs (`make_environment`). This also halves the start-up time of
  virtual users.
- `http_req_duration` counts failed requests (as 0), and leaves the time to connect out. So a Trend of the lab's script records
  answered requests only. It adds the time for TCP and TLS connections if every request opens a connection.
- Go sends a GET again if a kept connection closes before the answer. That failure shows as latency only. So a load whose every
  request is logged opens a connection for each request.
- If a virtual user is still busy when its next request is due, k6 does not send that request: `dropped`.
- Its duration includes the wait for the last answers, so the rate is computed over the load's schedule.
- It uses the network only for the load: no usage report, no REST API, no remote import, and an empty configuration file instead
  of the user's. K6_* variables of the environment would affect it, so targets start it without them.
- Over TLS it speaks HTTP/2 if the server offers it and its environment does not forbid it (GODEBUG, which k6 itself reads). An
  answer by another protocol than the requested one is an error.
- Every virtual user always requests the host that its number selects, so the connections are shared evenly by the hosts.
- The received bytes are those of the connection. They include TLS records (41 bytes more for a kilobyte), and handshakes if
  each request opens a connection (1,317 bytes more). TLS sessions are never resumed.
- Several processes (execution segments, as k6-operator assigns them) divide virtual users and rate exactly. Each process prints
  a summary of its part, which is one line here, and numbers its virtual users separately.
- Metrics that never occurred are left out of its summary. The counts must add up to the requests made.
- Its outputs (`--out`) have some ten rows for every request. k6 itself compresses them if the file's name ends in .gz. By
  default, times in CSV are whole seconds, and without system tags no row has the status. They are requested on demand only
  (`K6.out`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import polars as pl

from lab.generators._k6_log import parse_requests
from lab.generators.base import (
    PROTOCOL_NAMES,
    Count,
    Generator,
    OutputModel,
    OutputTime,
    clean_output,
    common_refusal,
    expect_output,
    list_destinations,
    make_output_error,
    scheduled_s,
    sort_rising,
)
from lab.model.bottleneck import count_unanswered
from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, OutputError, expect, first_broken
from lab.stats.histogram import Histogram

SCRIPT = """\
import exec from 'k6/execution';
import http from 'k6/http';
import { sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const load = @LOAD@;
const mix = load.mix;
const latency = new Trend('lab_latency', true);
const failed = {};
for (const kind of load.kinds) failed[kind] = new Counter('lab_' + kind);
// throw: k6 would log a line for every failed request, megabytes a second from a dead server.
const [url, headers] = load.destinations[(__VU || 1) % load.destinations.length];
const params = { throw: true, redirects: 0, timeout: load.timeout_ms, headers: headers };

export const options = {
  discardResponseBodies: true,
  insecureSkipTLSVerify: true,
  noConnectionReuse: !load.keepalive,
  summaryTrendStats: load.stats,
  systemTags: load.tags,
  scenarios: { load: load.scenario },
};

function kindOf(message) {
  const said = message.replace(/https?:[^ ]*/, '').toLowerCase();
  if (/timeout|deadline|timed out/.test(said)) return 'timeout';
  if (/dial|tls|lookup/.test(said)) return 'connect';
  if (/broken pipe|write/.test(said)) return 'write';
  if (/eof|reset|read/.test(said)) return 'read';
  return 'other';
}

let told = false;

function once(error) {
  if (!told) console.warn(String(error)); // once for every virtual user, not once for every failure
  told = true;
}

function count(response, kind) {
  if (kind) return failed[kind].add(1);
  if (load.proto && response.proto !== load.proto) return failed.other.add(1);
  const t = response.timings;
  latency.add(load.keepalive ? t.duration : t.duration + t.connecting + t.tls_handshaking);
  const status = response.status;
  const right = load.answers.length ? load.answers.includes(status) : status >= 200 && status <= 299;
  if (!right) failed.status.add(1);
}

function unlogged() {
  try {
    count(http.get(url, params), '');
  } catch (error) {
    count(null, kindOf(String(error)));
    once(error);
  }
}

function logged() {
  const wall = Date.now(); // before `sent`, so that it never seems later
  const sent = exec.instance.currentTestRunDuration;
  let response = null;
  let kind = '';
  try {
    response = http.get(url, params);
  } catch (error) {
    kind = kindOf(String(error));
    once(error);
  }
  const done = exec.instance.currentTestRunDuration;
  count(response, kind);
  const t = kind ? null : response.timings;
  const answer = kind ? '' : response.headers['X-Lab-Answer'] || response.headers['X-Lab-Backend'] || '';
  const service = kind ? done - sent : t.duration + t.connecting + t.tls_handshaking;
  const times = [wall, sent.toFixed(3), done.toFixed(3), service.toFixed(3)].join(' ');
  const { iterationInTest, startTime } = exec.scenario;
  console.log(`request ${iterationInTest} ${startTime} ${times} ${kind ? 0 : response.status} ${kind || '-'} ${answer}`);
}

const places = mix ? load.destinations.map(([base, headers]) => [base, Object.assign({}, params, { headers: headers })]) : [];

// An answer of another length than the mix asks for is an error; one that comes in chunks states none.
function mixed() {
  const number = exec.scenario.iterationInTest;
  const index = mix.order.charCodeAt(number % mix.order.length) - mix.first;
  const [method, place, path, size] = mix.shapes[index].split(' ');
  const [base, itsParams] = places[place];
  if (mix.waits_s.length) sleep(mix.waits_s[number % mix.waits_s.length]);
  try {
    const response = http.request(method, base + path, null, itsParams);
    const length = response.headers['Content-Length'];
    count(response, response.status === 200 && length && length !== size ? 'other' : '');
  } catch (error) {
    count(null, kindOf(String(error)));
    once(error);
  }
}

export default mix ? mixed : load.logged ? logged : unlogged;

export function handleSummary(data) {
  const values = (name) => (data.metrics[name] ? data.metrics[name].values : null);
  const count = (name) => (values(name) ? values(name).count : 0);
  const errors = {};
  for (const kind of load.kinds) errors[kind] = count('lab_' + kind);
  const line = {
    lab: 1,
    duration_ms: data.state.testRunDurationMs,
    made: count('http_reqs'),
    dropped: count('dropped_iterations'),
    received_bytes: count('data_received'),
    errors: errors,
    latency: values('lab_latency'),
  };
  const told = { stdout: JSON.stringify(line) + '\\n' };
  if (load.summary) told[load.summary] = JSON.stringify(data);
  return told;
}
"""
Out = Literal["summary", "csv", "json"]
SUMMARY = "k6-summary.json"
"""The name of the file with everything that k6 passes to `handleSummary`."""
OUTPUTS: Mapping[Out | None, tuple[str, str]] = {
    "csv": ("k6.csv.gz", "csv=fileName=k6.csv.gz,timeFormat=unix_micro"),
    "json": ("k6.json.gz", "json=k6.json.gz"),
}
"""The file that k6 writes for each output, and the value of `--out`."""
TAGS = ("proto", "status", "error", "error_code", "expected_response", "scenario", "tls_version")
"""The tags of every row of such a file."""
COLLECTOR = "GOGC"
"""The environment variable of Go's garbage collector."""
CLOSED_RPS = 30_000.0
"""An upper limit of the rate that a closed loop of k6 reaches on a few CPUs."""
KINDS: tuple[ErrorKind, ...] = ("status", "connect", "read", "write", "timeout", "other")
PERCENTS = (
    *(0.1, 0.5),
    *range(1, 99),
    *(round(99 + step / 10, 1) for step in range(9)),
    *(round(99.9 + step / 100, 2) for step in range(9)),
    *(round(99.99 + step / 1000, 3) for step in range(10)),
    *(99.9995, 99.9999),
)
FIRST_CHARACTER = 32
"""The code of the character for the first kind of request in the order of a mix.

The order is a text, because a text exists once for all virtual users, unlike a list.
"""
STATS = ["count", "min", "max", *(f"p({percent})" for percent in PERCENTS)]


class Summary(OutputModel):
    """The counts that k6's scripts for HTTP and for gRPC print in a line at the end of a run (`handleSummary`)."""

    duration_ms: OutputTime
    made: Count
    dropped: Count
    received_bytes: Count
    errors: dict[ErrorKind, Count]


class _HttpSummary(Summary):
    """The line with the counts and latencies of a run that k6's script for HTTP prints at the end."""

    latency: dict[str, OutputTime] | None
    """The values of a Trend: `count`, `min`, `max`, and its percentiles; null where no request was answered."""

    @property
    def answered(self) -> int:
        """The number of requests that one k6 process made and that were answered."""
        return 0 if self.latency is None else int(self.latency["count"])

    @property
    def points_ms(self) -> list[tuple[float, float]]:
        """The latency percentiles in k6's summary, as pairs (probability from 0 to 1, latency in ms).

        Reading this property raises KeyError if the summary lacks one of the percentiles.
        """
        if self.latency is None:
            return []
        inside = [(percent / 100, self.latency[f"p({percent})"]) for percent in PERCENTS]
        return [(0.0, self.latency["min"]), *inside, (1.0, self.latency["max"])]


@dataclass(frozen=True)
class K6(Generator):
    """The load generator k6.

    The field `out` selects which of k6's own output files are kept, in addition to the numbers that the lab reads.
    """

    name = "k6"
    binary = "k6"
    models = frozenset({"open", "closed"})
    version_flag = "version"
    remedy = "start the lab with scripts/shell, which builds it"
    protocols = frozenset({"h1", "h2"})
    out: Out | None = None
    """The outputs that k6 leaves in its working directory; None = none.

    They are the summary alone, or the summary with rows as CSV or JSON, which cost CPU.
    """

    @property
    def left(self) -> tuple[str, ...]:
        """The names of the output files that k6 itself writes to its working directory; empty if none are kept."""
        rows = [OUTPUTS[self.out][0]] if self.out in OUTPUTS else []
        return (SUMMARY, *rows) if self.out else ()

    def version(self, output: str) -> str | None:
        """Return k6's version and the setting of Go's garbage collector (`1.4.0, GOGC=off`); None for another program's output.

        The setting changes k6's numbers. So results with and without the setting are never compared as those of one
        generator.
        """
        match = re.search(r"^k6(?:\.exe)? v(\d+\.\d+\S*)", output, re.MULTILINE)
        return f"{match[1]}, {COLLECTOR}=off" if match else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why k6 cannot make this load; None if it can."""
        rate_rps, hosts = load.rate_rps, 1 if load.traffic else max(1, len(load.hosts))
        plain = replace(load, generators=1, logged=False, answers=(), traffic=None)
        return common_refusal(plain) or first_broken(
            (load.requests is not None, "k6 is run for a time here, not for a number of requests"),
            (
                rate_rps is not None and round(rate_rps * 1000) < 1,
                f"k6 needs a rate of 0.001 requests per second or more, got {rate_rps or 0:g}",
            ),
            (bool(load.resumption), "k6 never resumes a TLS session: wrk does"),
            (
                load.connections % hosts > 0,
                f"{load.connections} connections are not a multiple of {len(load.hosts)} hosts",
            ),
            (
                load.connections % (load.generators * hosts) > 0,
                f"{load.connections} connections cannot be shared evenly by {load.generators} generators"
                + (f" with {hosts} hosts" if hosts > 1 else ""),
            ),
            (
                self.out is not None and load.generators != 1,
                f"k6's own outputs of {load.generators} generators stay in as many pods: leave --k6-out out",
            ),
            (
                load.logged and rate_rps is None,
                "a logged load needs a rate: in a closed loop no request is ever due",
            ),
            (
                load.logged and load.keepalive,
                "a logged load needs keepalive = false: k6 sends a request again, in silence, when a kept connection was closed",
            ),
            (
                load.logged and load.generators != 1,
                f"a logged load is made by one generator, got {load.generators}: each would number its own requests",
            ),
        )

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the files that k6 needs for a load, by file name: the script `k6.js`, and an empty configuration `k6.json`.

        The script contains the settings of the load. The empty configuration keeps k6 from reading the user's own.
        """
        settings = {
            "destinations": [
                (url, {**({"Host": host} if host else {}), **load.headers}) for url, host in list_destinations(load)
            ],
            "timeout_ms": load.timeout_s * 1000,
            "keepalive": load.keepalive,
            "answers": load.answers,
            "proto": PROTOCOL_NAMES[load.protocol] if load.url.startswith("https://") else "",
            "kinds": KINDS,
            "stats": STATS,
            "scenario": make_scenario(load),
            "logged": load.logged,
            "mix": make_mix(load),
            "summary": SUMMARY if self.out else "",
            "tags": TAGS if self.out in OUTPUTS else (),
        }
        return {"k6.js": SCRIPT.replace("@LOAD@", json.dumps(settings)), "k6.json": "{}\n"}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which k6 makes this load.

        It begins with `env` and the environment variables of the Go runtime (see `make_environment`).
        """
        quiet = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--config", "k6.json"]
        bare = ["--log-format", "raw"] if load.logged else []  # lines without a time and a level before them
        out = ["--out", OUTPUTS[self.out][1]] if self.out in OUTPUTS else []
        variables = [f"{name}={value}" for name, value in make_environment(load).items()]
        return ["env", *variables, self.binary, "run", *quiet, *bare, *out, "k6.js"]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the summary lines that k6 printed, one per k6 process, and merge them into one result.

        Raises:
            OutputError: k6 failed, or a summary line is missing or faulty.

        """
        lines = [line for line in clean_output(stdout).splitlines() if line.startswith('{"lab":1,')]
        expected = "the line of the summary" if load.generators == 1 else f"{load.generators} lines of summaries"
        expect_output(
            exit_status == 0 and len(lines) >= load.generators,
            f'{expected} that begins {{"lab":1,',
            stdout,
            stderr,
            exit_status,
        )
        parts = [self._parse_summary(line, stderr, load) for line in lines[-load.generators :]]
        return merge_results(parts) if len(parts) > 1 else parts[0]

    def _parse_summary(self, line: str, stderr: str, load: GeneratorLoad) -> GeneratorResult:
        """Parse the summary line of a single k6 process.

        If several processes make the load together, the result is that of the process's part.

        Args:
            line: The line, which is a JSON object.
            stderr: The error output, which is quoted in an error message.
            load: The whole load.

        Raises:
            OutputError: The line is faulty, or its counts do not add up. For a load that is not `logged`: no request was answered.

        """
        try:
            summary = _HttpSummary.model_validate_json(line)
            answered, points_ms = summary.answered, summary.points_ms
        except (ValueError, KeyError):
            raise make_output_error("a whole summary line, of counts and times", line, stderr) from None
        errors: dict[ErrorKind, int] = {kind: count for kind in KINDS if (count := summary.errors[kind])}
        # a logged load without an answer is a valid outcome
        expect(
            summary.latency is not None or load.logged,
            f"no request was answered: {summary.made} made, errors {errors}",
        )
        lost = sum(count for kind, count in errors.items() if kind != "status")
        expect(
            answered + lost == summary.made,
            f"expected {summary.made} requests accounted for, got {answered} answered and {lost} failed",
        )
        points = [(share, value_ms * 1e-3) for share, value_ms in sort_rising(points_ms)]
        duration_s = summary.duration_ms * 1e-3
        return GeneratorResult(
            requests=answered,
            duration_s=duration_s,
            latency=Histogram.of_quantiles(points, answered),
            recorded_s=duration_s,
            errors=errors,
            dropped=summary.dropped,
            size_bytes=summary.received_bytes,
            size_includes_tls=load.url.startswith("https://"),
            scheduled_s=scheduled_s(load),
        )

    def requests(self, stdout: str, stderr: str, load: GeneratorLoad) -> pl.DataFrame:
        """Parse k6's log of every single request from stderr, and return a table with one row per request.

        Raises:
            OutputError: The load has no offered rate, or the log is not complete.

        """
        if load.rate_rps is None:
            raise OutputError("a closed loop has no rate: when its requests were due nobody can know")
        result = self.parse(stdout, stderr, 0, load)
        rate_rps = round(load.rate_rps * 1000) / 1000  # the rate that k6 gets has three decimals
        return parse_requests(stderr, result.requests + count_unanswered(result), rate_rps, result.dropped > 0)


class ScriptedK6(Generator):
    """The common part of the generators that are k6 with another script of the lab; they need the lab's own backend."""

    binary = K6.binary
    version_flag = K6.version_flag
    remedy = K6.remedy
    own_backend = True

    def version(self, output: str) -> str | None:
        """Return k6's version and the setting of Go's garbage collector, such as `1.4.0, GOGC=off`; None for another program's output."""
        return K6().version(output)


def make_mix(load: GeneratorLoad) -> Mapping[str, Any] | None:
    """Return the part of the k6 script's settings that describes a mix of different requests; None for a load of one page.

    The keys are:

    - `shapes`: the kinds of requests, each as a text `METHOD HOST_INDEX PATH BYTES`.
    - `order`: the order of the requests, with one character for each. The character's code is `first` plus an index of
      `shapes`.
    - `first`: the code of the character for the first of the `shapes`.
    - `waits_s`: the seconds that each request waits before it is sent; empty for evenly spaced requests. At most half of
      k6's virtual users wait at once, so that the other half can send.
    """
    if load.traffic is None:
        return None
    traffic, hosts = load.traffic, max(1, len(load.hosts))
    waits = [] if load.rate_rps is None else traffic.waits(load.connections // 4)
    return {
        "shapes": [
            f"{shape.method} {(shape.host - 1) % hosts} {shape.url_path} {shape.size_bytes}" for shape in traffic.shapes
        ],
        "order": "".join(chr(FIRST_CHARACTER + index) for index in traffic.order),
        "first": FIRST_CHARACTER,
        "waits_s": [round(wait / (load.rate_rps or 1.0), 6) for wait in waits],
    }


def make_scenario(load: GeneratorLoad) -> dict[str, Any]:
    """Return the scenario by which k6 makes a load: a fixed number of virtual users, at a rate or as fast as answers come."""
    duration, grace = f"{round(load.duration_s * 1000)}ms", f"{round(load.timeout_s * 1000) + 1000}ms"
    scenario: dict[str, Any] = {"duration": duration, "gracefulStop": grace}
    if load.rate_rps is None:
        return scenario | {"executor": "constant-vus", "vus": load.connections}
    # Rates are integers: a thousand seconds' worth carries three decimals.
    scenario |= {"executor": "constant-arrival-rate", "rate": round(load.rate_rps * 1000), "timeUnit": "1000s"}
    return scenario | {"preAllocatedVUs": load.connections, "maxVUs": load.connections}


def make_environment(load: GeneratorLoad) -> Mapping[str, str]:
    """Return the environment variables (name → value) that k6 gets for a load.

    They are settings of the Go runtime in which k6 runs. They select the version of HTTP, and turn garbage collection off
    as long as the heap is below a limit. The limit is far above what k6 keeps during a sample (a single measurement). So
    garbage collection never disturbs a sample.
    """
    requests = (load.rate_rps or CLOSED_RPS) * load.duration_s
    memory = {COLLECTOR: "off", "GOMEMLIMIT": f"{512 + load.connections // 2 + int(requests / 5000)}MiB"}
    return {**memory, **({"GODEBUG": "http2client=0"} if load.protocol == "h1" else {})}


def merge_results(results: Sequence[GeneratorResult]) -> GeneratorResult:
    """Merge the results of several k6 processes that ran concurrently and each made a part of one load.

    Counts, bytes and latency histograms are added. So percentiles are computed from all latencies together. The duration
    is that of the longest process.
    """
    return replace(
        results[0],
        requests=sum(result.requests for result in results),
        duration_s=max(result.duration_s for result in results),
        latency=reduce(Histogram.merge, (result.latency for result in results)),
        recorded_s=max(result.recorded_s for result in results),
        errors=dict(sum((Counter(result.errors) for result in results), Counter[ErrorKind]())),
        dropped=sum(result.dropped for result in results),
        size_bytes=sum(result.size_bytes or 0 for result in results),
        notes=(f"{len(results)} generators made {' + '.join(str(result.requests) for result in results)} requests",),
        parts=tuple(results),
    )
