"""k6: a fixed arrival rate over fixed virtual users (one connection each), or a closed loop. Latency from when sent.

A part of the line that our `handleSummary` prints, and what it becomes (times in ms):

    {"lab":1,…"latency":{"count":202,"p(50)":0.18,"p(51)":0.181,…}…}   →  two of 202 requests took up to 0.181 ms

k6 facts this file respects (tried with 1.8.1; flags common to 1.x and 2.x, source of 2.2.0):

- its Trends keep every value, and the summary prints any quantile: some 150 are asked for. Raw rows would
  cost it the core that it measures from.
- `http_req_duration` counts failed requests (as 0) and leaves connecting out: so a Trend of our own takes
  answered requests only, with connect and TLS time where every request opens a connection.
- Go sends a GET again when a kept connection closes before it answers: that failure shows as latency only.
- a virtual user that is still busy when the next request is due drops that one: `dropped`.
- its duration includes the wait for the last answers, so a rate is counted over the load's own schedule.
- it looks for the network only under load: no usage report, no REST API, no remote import, and an empty
  config file in the place of the user's. K6_* variables of the environment do reach it: start it without.
- every virtual user keeps the host that its number gives it, so hosts share the connections evenly.
- what it received are bytes of the connection: TLS records are in them (41 more for a kilobyte), and in close mode
  handshakes (1,317 more). TLS sessions are never resumed.
- several processes (execution segments, as k6-operator gives them) divide virtual users and rate exactly; every one prints
  a summary of its own part, a line each here, and numbers its virtual users by itself.
- metrics that never occurred are left out of its summary; the counts must add up to the requests made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lab.generators import ErrorKind, Load, OutputError, Result, common_refusal, destinations, scheduled_s, unreadable
from lab.generators._merged import merged
from lab.histogram import Histogram

SCRIPT = """\
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
  systemTags: [],
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

export default function () {
  let response;
  try {
    response = http.get(url, params);
  } catch (error) {
    failed[kindOf(String(error))].add(1);
    if (!told) console.warn(String(error)); // once for every virtual user, not once for every failure
    told = true;
    return;
  }
  const t = response.timings;
  latency.add(load.keepalive ? t.duration : t.duration + t.connecting + t.tls_handshaking);
  if (response.status < 200 || response.status > 299) failed.status.add(1);
}

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
  return { stdout: JSON.stringify(line) + '\\n' };
}
"""
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


@dataclass(frozen=True, slots=True)
class K6:
    name: str = "k6"
    binary: str = "k6"
    aliases: tuple[str, ...] = ()
    models: frozenset[Literal["open", "closed"]] = frozenset({"open", "closed"})
    latency_from: Literal["due", "sent"] = "sent"
    remedy: str = "start the lab with scripts/shell, which builds it"
    stand_ins: tuple[str, ...] = ()

    def version_argv(self) -> list[str]:
        return [self.binary, "version"]

    def version(self, output: str) -> str | None:
        found = re.search(r"^k6(?:\.exe)? v(\d+\.\d+\S*)", output, re.MULTILINE)
        return found[1] if found else None

    def refusal(self, load: Load) -> str | None:
        if (common := common_refusal(replace(load, generators=1))) is not None:
            return common
        if load.requests is not None:
            return "k6 is run for a time here, not for a number of requests"
        if load.rate_rps is not None and round(load.rate_rps * 1000) < 1:
            return f"k6 needs a rate of 0.001 requests per second or more, got {load.rate_rps:g}"
        if load.resumption:
            return "k6 never resumes a TLS session: wrk does"
        if load.connections % max(1, len(load.hosts)):
            return f"{load.connections} connections are not a multiple of {len(load.hosts)} hosts"
        if load.connections % (load.generators * max(1, len(load.hosts))):
            return f"{load.connections} connections cannot be shared evenly by {load.generators} generators" + (
                f" with {len(load.hosts)} hosts" if len(load.hosts) > 1 else ""
            )
        return None

    def calibration_s(self, load: Load) -> float:
        return 0.0

    def files(self, load: Load) -> Mapping[str, str]:
        duration, grace = f"{round(load.duration_s * 1000)}ms", f"{round(load.timeout_s * 1000) + 1000}ms"
        scenario: dict[str, Any] = {"duration": duration, "gracefulStop": grace}
        if load.rate_rps is None:
            scenario |= {"executor": "constant-vus", "vus": load.connections}
        else:
            # Rates are integers: a thousand seconds' worth carries three decimals.
            scenario |= {"executor": "constant-arrival-rate", "rate": round(load.rate_rps * 1000), "timeUnit": "1000s"}
            scenario |= {"preAllocatedVUs": load.connections, "maxVUs": load.connections}
        gzip = {"Accept-Encoding": "gzip"} if load.gzip else {}
        told = {
            "destinations": [(url, ({"Host": host} if host else {}) | gzip) for url, host in destinations(load)],
            "timeout_ms": load.timeout_s * 1000,
            "keepalive": load.keepalive,
            "kinds": KINDS,
            "stats": STATS,
            "scenario": scenario,
        }
        return {"k6.js": SCRIPT.replace("@LOAD@", json.dumps(told)), "k6.json": "{}\n"}

    def argv(self, load: Load) -> list[str]:
        quiet = ["--quiet", "--no-color", "--no-usage-report", "--address", "", "--config", "k6.json"]
        return [self.binary, "run", *quiet, "k6.js"]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        lines = [line for line in stdout.splitlines() if line.startswith('{"lab":1,')]
        if exit_status != 0 or len(lines) < load.generators:
            expected = "the line of the summary" if load.generators == 1 else f"{load.generators} lines of summaries"
            raise unreadable(f'{expected} that begins {{"lab":1,', stdout, stderr, exit_status)
        return merged([self._summary(line, stderr, load) for line in lines[-load.generators :]])

    def _summary(self, line: str, stderr: str, load: Load) -> Result:
        """What one process says: of its own part, where several make a load."""
        try:
            told: dict[str, Any] = json.loads(line)
            made, duration_s = int(told["made"]), float(told["duration_ms"]) * 1e-3
            errors: dict[ErrorKind, int] = {kind: n for kind in KINDS if (n := int(told["errors"][kind]))}
            if told["latency"] is None:
                raise OutputError(f"no request was answered: {made} made, errors {errors}")
            answered = int(told["latency"]["count"])
            points = [(percent / 100, float(told["latency"][f"p({percent})"]) * 1e-3) for percent in PERCENTS]
            points.append((1.0, float(told["latency"]["max"]) * 1e-3))
            dropped, received_bytes = int(told["dropped"]), int(told["received_bytes"])
        except (ValueError, KeyError, TypeError):
            raise unreadable("a whole summary line", line, stderr) from None
        lost = sum(count for kind, count in errors.items() if kind != "status")
        if answered + lost != made:
            raise OutputError(f"expected {made} requests accounted for, got {answered} answered and {lost} failed")
        return Result(
            requests=answered,
            duration_s=duration_s,
            latency=Histogram.of_quantiles(points, answered),
            recorded_s=duration_s,
            errors=errors,
            dropped=dropped,
            size_bytes=received_bytes,
            size_includes_tls=load.url.startswith("https://"),
            scheduled_s=scheduled_s(load),
        )


GENERATOR = K6()
