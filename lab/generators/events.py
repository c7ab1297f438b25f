"""The load generator `events`: the lab's own client (scripts/events/client), which keeps many streams of Server-Sent Events open.

Its output is one JSON object, in which each stream is a row of ten numbers. The first five are times in µs since `began_us`:
when the stream was opened, answered, had its first and its last event, and ended. Then come the number of its events, how many
of them arrived together with the one before, the longest gap in µs, the bytes, and how the stream ended:

    [512, 1021, 1090, 6000913, 6001020, 61, 0, 100410, 14152, 0]   →  complete, first event after 0.6 ms

No other generator can do this. k6 cannot read events while an answer continues. oha, hey, wrk and h2load measure complete
answers. None of them reads a send time out of an event. An event contains the time at which the backend sent it, by the clock
of the machine, which client and backend share. The delay of an event is the time of its arrival minus that time. Delays are
rounded to eleven significant bits, as in the lab's histograms.

An output is accepted only if its numbers agree with one another: rows, sums, and delays by size and by number of the event.
They are compared with the backend's counts in `lab.measure.validity`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from lab.generators.base import (
    PROTOCOL_NAMES,
    Count,
    Generator,
    OutputModel,
    clean_output,
    common_refusal,
    expect_output,
    make_output_error,
    one_host_rule,
)
from lab.model.load import GeneratorLoad, GeneratorResult, StreamReport, expect, first_broken
from lab.stats.histogram import Histogram, compute_bucket_edges_s, find_buckets

EVENTS_PATH = "events"
"""The path of streams of events at the lab's own backend."""
COLUMNS = [
    *("opened_us", "answered_us", "first_us", "last_us", "ended_us"),
    *("events", "coalesced", "gap_us", "bytes", "end"),
]
COMPLETE, CUT, REFUSED = 0, 1, 2
"""The ways in which a stream ends."""
EARLY_US = 2000
"""The µs by which the last event of a complete stream may precede its due time, and two clocks may differ."""

Rows = npt.NDArray[np.int64]


class _Output(OutputModel):
    tool: Literal["events-client"]
    version: str
    began_us: Count
    ended_us: Count
    asked: Count
    count: Count
    events: Count
    sent_sum: Count
    delay_sum_us: Count
    delays: list[tuple[Count, Count]]
    by_event: list[tuple[Count, Count, Count]]
    errors: dict[Literal["status", "connect", "read", "timeout", "body", "other"], Count]
    faults: dict[str, Count]
    protocols: dict[str, Count]
    columns: list[str]
    rows: list[list[Count]]
    done: Literal[True]


class Events(Generator):
    """The load generator `events`: the lab's own client, which holds many streams of Server-Sent Events open.

    It speaks HTTP/1.1 or HTTP/2.
    """

    name = "events"
    binary = "events-client"
    models = frozenset({"closed"})
    version_flag = "-version"
    remedy = "scripts/shell scripts/bring events-client (built from scripts/events by Go)"
    protocols = frozenset({"h1", "h2"})
    own = True
    own_backend = True

    def version(self, output: str) -> str | None:
        """Return the version of the lab's client `events-client` from its output; None if another program printed the output."""
        match = re.search(r"^events-client (\d+)$", output, re.MULTILINE)
        return match[1] if match else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why the client for streams of events cannot make this load; None if it can."""
        return common_refusal(replace(load, every_s=None, streams=1)) or first_broken(
            (load.every_s is None, "needs every_s, the time between two events"),
            (load.rate_rps is not None, "its events come at their own rate"),
            (load.requests is not None, "it runs for a time, not for a number of requests"),
            (not load.keepalive, "a stream is one request: there is no connection to keep"),
            (load.resumption is not None, "it opens every connection once: there is no session to resume"),
            one_host_rule(self.name, load),
        )

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which the lab's client `events-client` makes this load."""
        times = {
            "every": load.every_s or 0.0,
            "duration": load.duration_s,
            "hold": load.held_s,
            "timeout": load.timeout_s,
        }
        argv = [self.binary, "-connections", str(load.connections), "-streams", str(load.streams)]
        argv += [word for name, value in times.items() for word in (f"-{name}", f"{round(value * 1e6)}us")]
        argv += ["-size", str(load.event_bytes), "-protocol", load.protocol]
        return [*argv, *(["-host", load.host] if load.host else []), load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the JSON that the lab's client for streams of events printed.

        In the result, `requests` is the number of events, and `latency` has the delay of each event (the time from its
        sending to its arrival). The field `streams` reports on the streams themselves.

        Raises:
            OutputError: The client failed, or its numbers contradict each other.

        """
        expect_output(exit_status == 0, "exit status 0", stdout, stderr, exit_status)
        try:
            output = _Output.model_validate_json(clean_output(stdout))
        except ValidationError:
            raise make_output_error("the JSON object of events-client", stdout, stderr) from None
        rows = _read_rows(output, load)
        opened = rows[rows[:, 9] != REFUSED]
        heard, lost = opened[opened[:, 5] > 0], opened[opened[:, 9] == CUT]
        silent_from = np.where(lost[:, 5] > 0, lost[:, 3], lost[:, 0])
        duration_s = (output.ended_us - output.began_us) / 1e6
        return GeneratorResult(
            requests=output.events,
            duration_s=duration_s,
            latency=Histogram.of_counts([(delay / 1e6, count) for delay, count in output.delays], "exact"),
            recorded_s=duration_s,
            errors={"body": count} if (count := output.errors.get("body")) else {},
            size_bytes=int(rows[:, 8].sum()),
            size_includes_headers=False,
            notes=tuple(f"{count} streams: {fault}" for fault, count in sorted(output.faults.items())[:3]),
            streams=StreamReport(
                asked=output.asked,
                refused=output.asked - len(opened),
                cut=len(lost),
                began_s=output.began_us / 1e6,
                ended_s=output.ended_us / 1e6,
                coalesced=int(rows[:, 6].sum()),
                sent_sum=output.sent_sum,
                first_s=tuple(((heard[:, 2] - heard[:, 0]) / 1e6).tolist()),
                gap_s=float(rows[:, 7].max()) / 1e6,
                cut_s=float((lost[:, 4] - lost[:, 0]).min()) / 1e6 if len(lost) else None,
                cut_idle_s=float((lost[:, 4] - silent_from).min()) / 1e6 if len(lost) else None,
            ),
        )


def count_events(load: GeneratorLoad) -> int:
    """Return how many events each stream of the load has.

    The first event comes at once, and one more after each further `every_s` seconds up to the load's duration.
    """
    return round(load.duration_s * 1e6) // round((load.every_s or load.duration_s) * 1e6) + 1


def read_event_delays_s(stdout: str) -> list[float]:
    """Return the delay of each event of a stream in seconds, in the order of the events: the median over all streams.

    Args:
        stdout: The client's output, which was accepted when its sample was measured.

    """
    return [delay_us / 1e6 for delay_us, _, _ in _Output.model_validate_json(clean_output(stdout)).by_event]


def _read_rows(output: _Output, load: GeneratorLoad) -> Rows:
    """Check that all numbers in the client's output agree with each other, and return the streams as an integer array.

    Args:
        output: The output of the client for streams of events.
        load: The load that was requested.

    Returns:
        One row per stream, with the columns of `COLUMNS`.

    Raises:
        OutputError: Two numbers contradict each other or the requested load.

    """
    asked, count = load.connections * load.streams, count_events(load)
    expect(output.columns == COLUMNS, f"expected the columns {COLUMNS}, got {output.columns}")
    expect(
        output.asked == asked == len(output.rows) and output.count == count,
        f"expected {asked} streams of {count} events, got {len(output.rows)} of {output.asked}, each of {output.count}",
    )
    expect(all(len(row) == len(COLUMNS) for row in output.rows), "expected ten numbers for every stream")
    rows = np.array(output.rows, dtype=np.int64)
    wrong = _find_wrong_rows(rows, count, output.ended_us - output.began_us, load)
    expect(not wrong.any(), f"expected possible times and counts of every stream, got {rows[wrong][:1].tolist()}")
    _compare_sums(output, rows)
    protocols = {PROTOCOL_NAMES[load.protocol]} if output.protocols else set[str]()
    answered = int((rows[:, 1] > 0).sum())
    expect(
        set(output.protocols) == protocols and sum(output.protocols.values()) == answered,
        f"expected {answered} answers by {PROTOCOL_NAMES[load.protocol]}, got {output.protocols}",
    )
    return rows


def _find_wrong_rows(rows: Rows, count: int, lasted_us: int, load: GeneratorLoad) -> npt.NDArray[np.bool_]:
    """Return, for each stream of events, whether its times or counts are impossible, such as an end before the beginning.

    Args:
        rows: One row per stream, with the columns of `COLUMNS`.
        count: The number of events that a complete stream has.
        lasted_us: The length of the run in µs.
        load: The load that was requested.

    Returns:
        An array of booleans, one for each row; True = impossible.

    """
    opened, answered, first, last, ended, events, coalesced, gap, size, end = rows.T
    every_us, heard = round((load.every_s or 0.0) * 1e6), events > 0
    span = last - first
    ordered = (opened <= answered) & (answered <= first) & (first <= last) & (last <= ended)
    timed = ordered & (gap <= span) & (gap * (events - 1) >= span) & ((gap > 0) == (span > 0))
    late = last >= opened + (count - 1) * every_us - EARLY_US
    right = (
        (end <= REFUSED)
        & (events <= count)
        & ((end == COMPLETE) == (events == count))
        & ((end != REFUSED) | ~heard)
        & (opened <= ended)
        & (ended <= lasted_us + EARLY_US)
        & (coalesced <= np.maximum(events - 1, 0))
        & (size >= events * load.event_bytes)
        & np.where(heard, timed, gap + coalesced == 0)
        & ((end != COMPLETE) | late)
    )
    return ~right


def _compare_sums(output: _Output, rows: Rows) -> None:
    """Check that the totals in the client's output agree with the numbers of the single streams and delays.

    Args:
        output: The output of the client for streams of events.
        rows: One row per stream, with the columns of `COLUMNS`.

    Raises:
        OutputError: Two numbers contradict each other.

    """
    delays = np.array(output.delays, dtype=np.int64).reshape(-1, 2)
    by_event = np.array(output.by_event, dtype=np.int64).reshape(-1, 3)
    totals = {int(rows[:, 5].sum()), int(delays[:, 1].sum()), int(by_event[:, 2].sum()), output.events}
    expect(len(totals) == 1, f"expected one number of events, got {sorted(totals)}")
    failed = int((rows[:, 9] != COMPLETE).sum())
    faults = {failed, sum(output.errors.values()), sum(output.faults.values())}
    expect(len(faults) == 1, f"expected one number of streams that failed, got {sorted(faults)}")
    edges_us = [np.round(edge * 1e6).astype(np.int64) for edge in compute_bucket_edges_s(find_buckets(delays[:, 0]))]
    low, high = (int((edge * delays[:, 1]).sum()) for edge in edges_us)
    expect(low <= output.delay_sum_us <= high, f"expected delays of {low} to {high} µs, got {output.delay_sum_us}")
    if output.events:
        longest = {int(find_buckets(value)) for value in (delays[:, 0].max(), by_event[:, 1].max())}
        expect(len(longest) == 1, "expected one longest delay, got two")
        median = (by_event[:, 0] <= by_event[:, 1]).all() and (by_event[:, 2] <= output.asked).all()
        expect(median, "expected no median above the largest delay, and no event more often than there are streams")
        first = int((rows[:, 5] > 0).sum())
        expect(by_event[0, 2] == first, f"expected {first} first events, got {by_event[0, 2]}")
