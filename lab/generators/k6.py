"""k6: a fixed arrival rate over fixed virtual users (one connection each), or a closed loop. Latency from when sent.

A part of the line that our `handleSummary` prints, and what it becomes (times in ms):

    {"lab":1,…"latency":{"count":202,"p(50)":0.18,"p(51)":0.181,…}…}   →  two of 202 requests took up to 0.181 ms

k6 facts this file respects (tried with 1.8.1; flags common to 1.x and 2.x, source of 2.2.0):

- its Trends keep every value, and the summary prints any quantile: some 150 are asked for. k6's own raw rows would
  cost it the core that it measures from; our line for every request of a `logged` load takes a fifth more than none (0.6
  against 0.5 ms of CPU at 500 requests per second), and a thousand virtual users take 0.3 s to start, and 300 MB.
- what it does for its own memory shows as latency: on one CPU, Go's collector goes over a thousand virtual users for half a second
  every few seconds, and answers that take 0.1 ms are told with a p99 of 3 to 3.5 ms, 0.5 ms without it. So it waits until
  the heap has outgrown what a sample needs (`environment`), which also halves the time that they take to start.
- `http_req_duration` counts failed requests (as 0) and leaves connecting out: so a Trend of our own takes
  answered requests only, with connect and TLS time where every request opens a connection.
- Go sends a GET again when a kept connection closes before it answers: that failure shows as latency only, so that a
  load whose every request is logged opens a connection for each.
- a virtual user that is still busy when the next request is due drops that one: `dropped`.
- its duration includes the wait for the last answers, so a rate is counted over the load's own schedule.
- it looks for the network only under load: no usage report, no REST API, no remote import, and an empty
  config file in the place of the user's. K6_* variables of the environment would reach it: targets start it without.
- over TLS it speaks HTTP/2 where the server offers it, unless told not to by its environment (GODEBUG, read by k6 itself); an answer
  by another protocol than was asked for is an error.
- every virtual user keeps the host that its number gives it, so hosts share the connections evenly.
- what it received are bytes of the connection: TLS records are in them (41 more for a kilobyte), and in close mode
  handshakes (1,317 more). TLS sessions are never resumed.
- several processes (execution segments, as k6-operator gives them) divide virtual users and rate exactly; every one prints
  a summary of its own part, a line each here, and numbers its virtual users by itself.
- metrics that never occurred are left out of its summary; the counts must add up to the requests made.
- its own outputs (`--out`) hold some ten rows for every request, gzipped by k6 itself where the file's name ends in .gz; times are whole
  seconds in CSV unless told otherwise, and without system tags no row tells the status. They are only asked for on demand (`K6.out`).
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

from lab.generators._k6_log import requests_of
from lab.generators.base import (
    Count,
    Generator,
    Seconds,
    Told,
    common_refusal,
    destinations,
    plain,
    rising,
    scheduled_s,
    unreadable,
)
from lab.model.bottleneck import unanswered
from lab.model.load import ErrorKind, Load, OutputError, Result, expect, first_broken
from lab.stats.histogram import Histogram

PROTO = {"h1": "HTTP/1.1", "h2": "HTTP/2.0"}
"""As it names what was spoken."""

SCRIPT = """\
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';

const load = @LOAD@;
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

export default load.logged ? logged : unlogged;

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
"""What k6 hands to `handleSummary`, whole."""
OUTPUTS: Mapping[Out | None, tuple[str, str]] = {
    "csv": ("k6.csv.gz", "csv=fileName=k6.csv.gz,timeFormat=unix_micro"),
    "json": ("k6.json.gz", "json=k6.json.gz"),
}
"""File that k6 leaves, and how `--out` says so."""
TAGS = ("proto", "status", "error", "error_code", "expected_response", "scenario", "tls_version")
"""What every row of such a file says beside its number."""
COLLECTOR = "GOGC"
CLOSED_RPS = 30_000.0
"""More than a closed loop of k6 makes on a few CPUs."""
KINDS: tuple[ErrorKind, ...] = ("status", "connect", "read", "write", "timeout", "other")
PERCENTS = (
    *(0.1, 0.5),
    *range(1, 99),
    *(round(99 + step / 10, 1) for step in range(9)),
    *(round(99.9 + step / 100, 2) for step in range(9)),
    *(round(99.99 + step / 1000, 3) for step in range(10)),
    *(99.9995, 99.9999),
)
STATS = ["count", "min", "max", *(f"p({percent})" for percent in PERCENTS)]


class _Summary(Told):
    """The line that `handleSummary` prints."""

    duration_ms: Seconds
    made: Count
    dropped: Count
    received_bytes: Count
    errors: dict[ErrorKind, Count]
    latency: dict[str, Seconds] | None
    """A Trend's values: `count`, `min`, `max`, and its percentiles; null where nothing was answered."""

    @property
    def answered(self) -> int:
        return 0 if self.latency is None else int(self.latency["count"])

    @property
    def points_ms(self) -> list[tuple[float, float]]:
        """(probability, latency). KeyError without one of the percentiles."""
        if self.latency is None:
            return []
        inside = [(percent / 100, self.latency[f"p({percent})"]) for percent in PERCENTS]
        return [(0.0, self.latency["min"]), *inside, (1.0, self.latency["max"])]


@dataclass(frozen=True)
class K6(Generator):
    name = "k6"
    binary = "k6"
    models = frozenset({"open", "closed"})
    version_flag = "version"
    latency_from = "sent"
    logs_requests = True
    remedy = "start the lab with scripts/shell, which builds it"
    protocols = frozenset({"h1", "h2"})
    out: Out | None = None
    """What of its own outputs it leaves in its working directory: the summary alone, or rows too. They cost it CPU."""

    @property
    def left(self) -> tuple[str, ...]:
        """Names of the files it leaves."""
        rows = [OUTPUTS[self.out][0]] if self.out in OUTPUTS else []
        return (SUMMARY, *rows) if self.out else ()

    def version(self, output: str) -> str | None:
        """With what makes other numbers of the same program: runs without it are another generator's."""
        found = re.search(r"^k6(?:\.exe)? v(\d+\.\d+\S*)", output, re.MULTILINE)
        return f"{found[1]}, {COLLECTOR}=off" if found else None

    def refusal(self, load: Load) -> str | None:
        common = common_refusal(replace(load, generators=1, logged=False, answers=()))
        if common is not None:
            return common
        rate_rps, hosts = load.rate_rps, max(1, len(load.hosts))
        return first_broken(
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

    def files(self, load: Load) -> Mapping[str, str]:
        duration, grace = f"{round(load.duration_s * 1000)}ms", f"{round(load.timeout_s * 1000) + 1000}ms"
        scenario: dict[str, Any] = {"duration": duration, "gracefulStop": grace}
        if load.rate_rps is None:
            scenario |= {"executor": "constant-vus", "vus": load.connections}
        else:
            # Rates are integers: a thousand seconds' worth carries three decimals.
            scenario |= {"executor": "constant-arrival-rate", "rate": round(load.rate_rps * 1000), "timeUnit": "1000s"}
            scenario |= {"preAllocatedVUs": load.connections, "maxVUs": load.connections}
        told = {
            "destinations": [
                (url, {**({"Host": host} if host else {}), **load.headers}) for url, host in destinations(load)
            ],
            "timeout_ms": load.timeout_s * 1000,
            "keepalive": load.keepalive,
            "answers": load.answers,
            "proto": PROTO[load.protocol] if load.url.startswith("https://") else "",
            "kinds": KINDS,
            "stats": STATS,
            "scenario": scenario,
            "logged": load.logged,
            "summary": SUMMARY if self.out else "",
            "tags": TAGS if self.out in OUTPUTS else (),
        }
        return {"k6.js": SCRIPT.replace("@LOAD@", json.dumps(told)), "k6.json": "{}\n"}

    def argv(self, load: Load) -> list[str]:
        quiet = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--config", "k6.json"]
        bare = ["--log-format", "raw"] if load.logged else []  # a line as it is, without a time and a level before it
        out = ["--out", OUTPUTS[self.out][1]] if self.out in OUTPUTS else []
        setting = [f"{name}={value}" for name, value in environment(load).items()]
        return ["env", *setting, self.binary, "run", *quiet, *bare, *out, "k6.js"]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        lines = [line for line in plain(stdout).splitlines() if line.startswith('{"lab":1,')]
        if exit_status != 0 or len(lines) < load.generators:
            expected = "the line of the summary" if load.generators == 1 else f"{load.generators} lines of summaries"
            raise unreadable(f'{expected} that begins {{"lab":1,', stdout, stderr, exit_status)
        parts = [self._summary(line, stderr, load) for line in lines[-load.generators :]]
        return merged(parts) if len(parts) > 1 else parts[0]

    def _summary(self, line: str, stderr: str, load: Load) -> Result:
        """What one process says: of its own part, where several make a load."""
        try:
            told = _Summary.model_validate_json(line)
            answered, points_ms = told.answered, told.points_ms
        except (ValueError, KeyError):
            raise unreadable("a whole summary line, of counts and times", line, stderr) from None
        errors: dict[ErrorKind, int] = {kind: count for kind in KINDS if (count := told.errors[kind])}
        # of a logged load that nobody answered that is its outcome
        nobody = told.latency is None and not load.logged
        expect(not nobody, f"no request was answered: {told.made} made, errors {errors}")
        lost = sum(count for kind, count in errors.items() if kind != "status")
        expect(
            answered + lost == told.made,
            f"expected {told.made} requests accounted for, got {answered} answered and {lost} failed",
        )
        points = [(share, value_ms * 1e-3) for share, value_ms in rising(points_ms)]
        duration_s = told.duration_ms * 1e-3
        return Result(
            requests=answered,
            duration_s=duration_s,
            latency=Histogram.of_quantiles(points, answered),
            recorded_s=duration_s,
            errors=errors,
            dropped=told.dropped,
            size_bytes=told.received_bytes,
            size_includes_tls=load.url.startswith("https://"),
            scheduled_s=scheduled_s(load),
        )

    def requests(self, stdout: str, stderr: str, load: Load) -> pl.DataFrame:
        if load.rate_rps is None:
            raise OutputError("a closed loop has no rate: when its requests were due nobody can tell")
        result = self.parse(stdout, stderr, 0, load)
        rate_rps = round(load.rate_rps * 1000) / 1000  # as it is told, with three decimals
        return requests_of(stderr, result.requests + unanswered(result), rate_rps, result.dropped > 0)


def environment(load: Load) -> Mapping[str, str]:
    """What Go's runtime is told: which HTTP it may speak, and to collect no garbage below a heap that no sample should reach, so that it never thrashes either.

    Far above what k6 keeps: a quarter of a MiB for a virtual user, 100 bytes in its Trends for a request.
    """
    requests = (load.rate_rps or CLOSED_RPS) * load.duration_s
    memory = {COLLECTOR: "off", "GOMEMLIMIT": f"{512 + load.connections // 2 + int(requests / 5000)}MiB"}
    return {**memory, **({"GODEBUG": "http2client=0"} if load.protocol == "h1" else {})}


def merged(results: Sequence[Result]) -> Result:
    """One load made by several processes at once, each a part of it: their results as one.

    Counts and bytes are added, histograms too (percentiles come from the sum, never from an average); of durations the longest.
    The parts ran side by side, so a rate is the sum of the requests over that.
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
