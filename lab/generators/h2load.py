"""The load generator h2load: HTTP/2 or HTTP/1.1 over TLS, several requests at once per connection, open or closed loop.

Latency counts from when a request was sent. A line of its log has three numbers: the start in µs since the epoch, the status,
and the µs until the end of the response. An example:

    1795648589245161	200	1171      →  one request took 1171 µs

This module relies on these facts about h2load (tried with 1.52):

- Its summary has no percentile, so its log is used, which goes to stderr. The log has a line for every request that ended, as
  many as the summary counts as done. A request that failed has status -1.
- It exits with status 0 and zeros if there is no server. It does nothing for the rest of the time if the server disappears.
  Both are reported as failed here. So is a server that ends connections after some requests (nginx: 1000), if each connection
  has several requests at once: h2load reopens a connection only if it has a single request at a time.
- It prints only once, for its first connection, which protocol the server chose (ALPN). Another protocol than the requested one
  gives no result.
- `--rps` applies to each connection. All connections begin together. A request waits if all `-m` streams of its connection are
  busy. Latency does not include that wait. Requests that are not sent by the end are in no count, so the achieved rate shows
  that they are missing.
- Requests that are under way at the end are neither awaited nor counted. It is given no timeout, because 1.52 crashes with one.
  Responses after the load's timeout are counted as `timeout`. If no request ended for a long time before the end of the load,
  the output is refused.
- Sizes are those of bodies (`data`): headers are compressed, and TLS records are not counted.
- A transfer that is cut off at the end is not in `requests`, but its bytes are in `data`. Its time is in no line. So the speed
  is computed from complete transfers alone: their number and size, by the time that they took.
- It uses one host, opens no new connection for each request, and never verifies a certificate. Every connection does a full TLS
  handshake, because no session is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lab.generators.base import (
    COUNT,
    MAX_COUNT,
    Generator,
    clean_output,
    common_refusal,
    make_output_error,
    one_host_rule,
    scheduled_s,
)
from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, expect, first_broken
from lab.model.pages import UPLOAD_ANSWER_BYTES
from lab.stats.histogram import Histogram, Ints

LOG = "/dev/stderr"
ALPN = {"h1": "http/1.1", "h2": "h2"}
"""The ALPN name of each protocol."""
UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
"""The seconds of each unit in its summary."""
SUMMARY = re.compile(
    rf"^finished in (?P<took>[0-9.]+)(?P<unit>us|ms|s|m|h), .*\n"
    rf"requests: {COUNT} total, {COUNT} started, (?P<done>{COUNT}) done, (?P<succeeded>{COUNT}) succeeded, "
    rf"(?P<failed>{COUNT}) failed, {COUNT} errored, {COUNT} timeout\n"
    rf"status codes: .*\n"
    rf"traffic: .*, \S+ \((?P<data>{COUNT})\) data\n"
    rf"(?: +min .*\n)(?:time .*\n){{3}}req/s +: .*%\n\Z",
    re.MULTILINE,
)
MEAN = re.compile(r"^time for request: +\S+ +\S+ +([0-9.]+)(us|ms|s|m|h) ", re.MULTILINE)
"""The mean time of a request in its summary."""
SPOKEN = re.compile(r"^Application protocol: (\S+)$", re.MULTILINE)
REFUSED = "No supported protocol was negotiated."
"""The line that it prints if the server speaks none of the requested protocols."""
ROW = re.compile(r"^([0-9]{1,16})\t(-1|[0-9]{3})\t([0-9]{1,16})$")
FAILED = -1
"""The status of a failed request in its log."""
MAX_DIFFERENCE_S = 0.25
"""The seconds by which the log's span may differ from the summary's duration: connecting, and requests under way."""
BODY = "body"
"""The file with the body of an upload."""
MEAN_SHARE = 0.01
"""The share by which the mean time in its summary, which has three digits or more, may differ from that of its log."""
LONGEST = 2.0
"""How much longer than the longest complete transfer one that was cut off may have been under way."""


class H2load(Generator):
    """The load generator h2load, for HTTP/2 or HTTP/1.1 over TLS, with or without an offered rate."""

    name = "h2load"
    binary = "h2load"
    models = frozenset({"open", "closed"})
    version_flag = "--version"
    remedy = "apt-get install nghttp2-client, or start the lab with scripts/shell"
    protocols = frozenset({"h1", "h2"})

    def version(self, output: str) -> str | None:
        """Return the version of nghttp2, to which h2load belongs, from h2load's output; None if another program printed it."""
        match = re.search(r"^h2load nghttp2/(\S+)", output, re.MULTILINE)
        return match[1] if match else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why h2load cannot make this load; None if it can."""
        return common_refusal(replace(load, streams=1, transfer=None, window_bits=None)) or first_broken(
            (
                not load.url.startswith("https://"),
                f"h2load is used over TLS alone, where it was tried, got {load.url!r}: wrk, oha and k6 speak HTTP/1.1 without",
            ),
            (
                not load.keepalive,
                "h2load opens each connection once: wrk, oha, k6 and hey open one for every request",
            ),
            (bool(load.resumption), "h2load never resumes a TLS session: wrk does"),
            (
                load.threads > load.connections,
                f"h2load needs a connection for every thread, got {load.threads} and {load.connections} connections",
            ),
            (
                load.requests is not None and load.requests < load.connections,
                f"h2load needs a request for every connection, got {load.requests} and {load.connections} connections",
            ),
            one_host_rule(self.name, load),
        )

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the file with the body of an upload (file name → text); empty for any other load."""
        return {BODY: "x" * load.transfer_bytes} if load.transfer == "upload" else {}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which h2load makes this load.

        An offered rate is divided equally among the connections, since h2load takes a rate per connection.
        """
        length = (
            ["-n", str(load.requests)] if load.requests is not None else ["-D", f"{round(load.duration_s * 1000)}ms"]
        )
        argv = [self.binary, *length, "-c", str(load.connections), "-t", str(load.threads), "-m", str(load.streams)]
        if load.rate_rps is not None:
            argv += ["--rps", f"{load.rate_rps / load.connections:.12g}"]
        argv += ["--h1"] if load.protocol == "h1" else ["--npn-list", ALPN["h2"]]
        argv += ["-w", str(load.window_bits), "-W", str(load.window_bits)] if load.window_bits is not None else []
        argv += ["-d", BODY] if load.transfer == "upload" else []
        argv += [f"--log-file={LOG}"]
        argv += [argument for name, value in load.headers.items() for argument in ("-H", f"{name.lower()}: {value}")]
        return [*argv, load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse h2load's output: its summary from stdout, and the log of its requests from stderr.

        Raises:
            OutputError: h2load failed, no request was answered in time, or summary and log contradict each other.

        """
        summary = SUMMARY.search(clean_output(stdout))
        if exit_status != 0 or summary is None:
            raise make_output_error("h2load's summary", stdout, stderr, exit_status)
        spoken = set(SPOKEN.findall(clean_output(stdout)))
        protocol = ALPN[load.protocol]
        expect(REFUSED not in stdout, f"the server does not speak {protocol}")
        rows = _rows(stderr)
        expect(len(rows) > 0 and len(spoken) > 0, "no request was answered, and no connection was made")
        expect(spoken == {protocol}, f"expected {protocol} to be spoken, got {', '.join(sorted(spoken))}")
        done, failed = int(summary["done"]), int(summary["failed"])
        expect(
            int(summary["succeeded"]) + failed == done == len(rows),
            f"expected {done} requests in its log, got {len(rows)}, {summary['succeeded']} and {failed} failed",
        )
        duration_s = float(summary["took"]) * UNITS_S[summary["unit"]]
        lost = rows[:, 1] == FAILED
        answered = rows[~lost]
        # from the first answered request to the last; a request that was never sent has no beginning
        span_s = float((answered[:, 0] + answered[:, 2]).max() - answered[:, 0].min()) * 1e-6 if len(answered) else 0.0
        turn_s = load.connections / load.rate_rps if load.rate_rps is not None else 0.0
        if load.transfer is not None and len(answered):  # each stream's last one is cut off
            turn_s = LONGEST * float(answered[:, 2].max()) * 1e-6
        difference_s = abs(span_s - duration_s)
        ends = f": {failed} requests failed, and connections that ended were not opened again" if failed else ""
        expect(
            difference_s <= MAX_DIFFERENCE_S + duration_s / 20 + turn_s,
            f"its log spans {difference_s:.2f} s more or less than the {duration_s:g} s that it reports{ends}",
        )
        late = answered[:, 2] >= load.timeout_s * 1e6
        in_time = answered[~late]
        expect(len(in_time) > 0, f"no request was answered within {load.timeout_s:g} s: {len(rows)} were not")
        data_bytes, mean = int(summary["data"]), MEAN.search(summary[0])
        moved_s = _check_transfers(load, rows, duration_s, data_bytes, mean) if load.transfer is not None else None
        counts: dict[ErrorKind, int] = {
            "read": int(np.count_nonzero(lost)),
            "timeout": int(np.count_nonzero(late)),
            "status": int(np.count_nonzero((in_time[:, 1] < 200) | (in_time[:, 1] >= 300))),
        }
        return GeneratorResult(
            requests=len(in_time),
            duration_s=duration_s,
            latency=Histogram.of_values(in_time[:, 2] * 1e-6),
            recorded_s=duration_s,
            errors={kind: int(count) for kind, count in counts.items() if count},
            size_bytes=data_bytes,
            size_includes_headers=False,
            scheduled_s=scheduled_s(load) if moved_s is None else moved_s,
        )


def _check_transfers(
    load: GeneratorLoad, rows: Ints, duration_s: float, data_bytes: int, mean: re.Match[str] | None
) -> float:
    """Check that the bytes and times of large transfers fit their number, and return the seconds that the transfers took.

    The result is the sum of the durations of all complete transfers, divided by the number of transfers that ran at once.
    So the speed is the number of transfers × their size, divided by the result.

    Args:
        load: The load.
        rows: The log of the transfers, as `_rows` returns it.
        duration_s: The length of the load in seconds.
        data_bytes: The bytes of all bodies that were received.
        mean: The match of `MEAN` in the summary, which has the mean time of a transfer; None = the summary lacks it.

    Raises:
        OutputError: The received bodies do not have the planned sizes, the transfers took longer or shorter than the load,
            or the log has other times than the summary.

    """
    many, at_once = len(rows), load.connections * load.streams
    size = load.transfer_bytes if load.transfer == "download" else UPLOAD_ANSWER_BYTES
    good = ((rows[:, 1] >= 200) & (rows[:, 1] < 300)).all()
    expect(
        not good or many * size <= data_bytes <= (many + at_once) * size,
        f"expected {many} to {many + at_once} bodies of {size} bytes, got {data_bytes} bytes",
    )
    moved_s, longest_s = float(rows[:, 2].sum()) * 1e-6 / at_once, float(rows[:, 2].max()) * 1e-6
    mean_s = float(mean[1]) * UNITS_S[mean[2]] if mean is not None else 0.0
    expect(
        abs(mean_s * many - moved_s * at_once) <= MEAN_SHARE * moved_s * at_once,
        f"its log has transfers of {moved_s * at_once / many:.4g} s on average, its summary of {mean_s:.4g} s",
    )
    slack_s = MAX_DIFFERENCE_S + duration_s / 20
    expect(
        -slack_s <= duration_s - moved_s <= LONGEST * longest_s + slack_s,
        f"its transfers took {moved_s:.2f} s of the {duration_s:g} s that it reports",
    )
    return moved_s


def _rows(stderr: str) -> Ints:
    """Parse h2load's log, which has a line for each request, into an array with one row per request.

    Returns:
        An array of shape (n, 3): start in µs since the epoch, HTTP status (-1 = failed), duration in µs.

    Raises:
        OutputError: A line does not have this form, or a number is impossibly large.

    """
    lines = clean_output(stderr).splitlines()
    matches = [match for line in lines if (match := ROW.match(line))]
    wrong = next((line for line in lines if not ROW.match(line)), None)
    expect(wrong is None, f"expected rows of start, status and time in its log, got {str(wrong)[:160]!r}")
    rows = np.array([match.groups() for match in matches], dtype=np.int64).reshape(len(matches), 3)
    expect((rows <= MAX_COUNT).all(), "expected times in its log, got numbers that are none")
    return rows
