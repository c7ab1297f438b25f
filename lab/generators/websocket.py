"""The load generator k6-websocket: k6 with a script of the lab that sends messages on WebSockets and measures their round trips.

The backend sends each message back. A line of the log is one WebSocket, with the round trip of each message in µs; the other
times are µs since the run began:

    websocket {"number":1,"wall_ms":1796400000123,"opened_us":512,"answered_us":1021,…,"end":0,…,"trips_us":[412,398]}
        →  opened in 0.5 ms, complete, two messages that came back after 0.41 and 0.40 ms

A round trip counts from right before a message is sent until the script has the message back. Both times are by k6's clock, so
a round trip includes the time that k6 itself needs; `just bench direct --sweep websocket-known` measures that time. Each
WebSocket is opened 2 ms after the one before. It ends when all messages are back, when it is cut, or when a message is missing
for longer than the timeout.

An output is accepted only if its numbers agree with one another, and with k6's own counts in the summary. Each message contains
the round trips that were measured since the message before, and the backend adds them up. The backend's sum and counts are
compared with the generator's in `lab.measure.validity`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import ValidationError

from lab.generators.base import (
    Count,
    OutputModel,
    OutputTime,
    clean_output,
    common_refusal,
    expect_output,
    list_destinations,
    make_output_error,
    one_host_rule,
)
from lab.generators.events import EARLY_US, count_events
from lab.generators.k6 import K6, ScriptedK6
from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, StreamReport, expect, first_broken
from lab.model.sweeps import WEBSOCKET_GENERATOR
from lab.stats.histogram import Histogram

WEBSOCKET_PATH = "websocket/echo"
"""The path of go-httpbin at which messages are sent back."""
OPENING_MS, APART_MS = 1000, 2
"""The least time in which all WebSockets are opened, and the time between two of them, in milliseconds.

They are opened one by one, so that the opening itself is no load.
"""
AFTER_MS = 300
"""The milliseconds that k6 may run on after the last timeout."""
CLOCKS_MS = 1000
"""The milliseconds by which the difference of the two clocks may vary among the lines; they are read one after the other."""
COMPLETE, CUT, REFUSED, SILENT = range(4)
"""The ways in which a WebSocket ends; SILENT: a message did not come back in time."""


class _Row(OutputModel):
    number: Count
    wall_ms: Count
    opened_us: Count
    answered_us: Count
    last_us: Count
    ended_us: Count
    sent: Count
    told_us: Count
    late_us: Count
    end: Literal[0, 1, 2, 3]
    kind: Literal["", "status", "connect", "read", "timeout", "body"]
    fault: str
    trips_us: list[Count]

    def is_possible(self, count: int, every_us: int, run_us: int, timeout_us: int) -> bool:
        """Return whether the times and counts of this WebSocket are possible: whether they agree with each other and the load.

        Args:
            count: The number of messages that were to be sent.
            every_us: The µs between two messages.
            run_us: The µs that the run lasted.
            timeout_us: The µs after which a message counts as lost.

        """
        heard, sums = len(self.trips_us), [0, *np.cumsum(self.trips_us[:-1]).tolist()]
        refused, open_us = self.end == REFUSED, self.ended_us - self.answered_us
        right = [
            heard <= self.sent <= count,
            (self.end == COMPLETE) == (heard == count) == (not self.kind),
            self.end != SILENT or self.kind == "timeout",
            self.opened_us <= self.ended_us <= run_us + EARLY_US,
        ]
        if refused:
            return all(right) and not (self.answered_us or self.last_us or self.sent or self.told_us or self.late_us)
        span_us = self.sent and (self.sent - 1) * every_us
        right += [
            self.sent > 0,
            self.opened_us <= self.answered_us <= self.last_us <= self.ended_us,
            max(self.trips_us, default=0) <= open_us + EARLY_US,
            self.told_us in sums,
            span_us <= open_us + EARLY_US,
            self.last_us >= self.answered_us + span_us - EARLY_US,
            open_us <= (count - 1) * every_us + timeout_us + CLOCKS_MS * 1000,
        ]
        return all(right)


class _Summary(OutputModel):
    """The line that the lab's k6 script for WebSockets prints at the end of a run, with k6's own counts."""

    lab_websocket: Literal[1]
    duration_ms: OutputTime
    sessions: Count
    sent: Count
    received: Count
    received_bytes: Count


class WebSocket(ScriptedK6):
    """The load generator for WebSockets: k6 with a script of the lab, with one connection for each of k6's virtual users."""

    name = WEBSOCKET_GENERATOR
    models = frozenset({"closed"})

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why k6 cannot make this load of WebSockets; None if it can."""
        return common_refusal(replace(load, every_s=None)) or first_broken(
            (load.every_s is None, "needs every_s, the time between two messages"),
            (load.rate_rps is not None, "its messages come at their own rate, one every every_s on each connection"),
            (load.requests is not None, "it runs for a time, not for a number of requests"),
            (not load.keepalive, "a WebSocket is one request: there is no connection to keep"),
            (load.resumption is not None, "it opens every connection once: there is no session to resume"),
            (load.held_s > 0, "the backend sends messages back at once: held_s is for events"),
            one_host_rule(self.name, load),
        )

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the files that k6 needs for this load of WebSockets: the script `k6.js` and an empty configuration `k6.json`."""
        ((url, host),) = list_destinations(load)
        opening_ms, timeout_ms = max(OPENING_MS, APART_MS * load.connections), round(load.timeout_s * 1000)
        planned_ms = opening_ms + round(load.duration_s * 1000)
        settings = {
            "url": url.replace("http", "ws", 1),
            "headers": {**({"Host": host} if host else {}), **load.headers},
            "connections": load.connections,
            "count": count_events(load),
            "every_ms": (load.every_s or load.duration_s) * 1000,
            "size": load.event_bytes,
            "opening_ms": opening_ms,
            "planned_ms": planned_ms,
            "timeout_ms": timeout_ms,
            "scenario": {
                "executor": "per-vu-iterations",
                "vus": load.connections,
                "iterations": 1,
                "maxDuration": f"{planned_ms + timeout_ms + AFTER_MS}ms",
                "gracefulStop": "0s",
            },
        }
        script = Path(__file__).with_name("_websocket.js").read_text("utf-8")
        return {"k6.js": script.replace("@LOAD@", json.dumps(settings)), "k6.json": "{}\n"}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which k6 makes this load of WebSockets.

        It begins with `env` and the environment variables of the Go runtime.
        """
        messages = load.connections * count_events(load) / load.duration_s
        return K6().argv(replace(load, rate_rps=messages, logged=True))

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the lines that k6's script for WebSockets printed: a summary, and a line for each WebSocket.

        In the result, `requests` is the number of messages that came back, and `latency` has their round trips. The
        field `streams` reports on the WebSockets themselves.

        Raises:
            OutputError: k6 failed, a line is faulty, or the numbers contradict each other.

        """
        lines = [line for line in clean_output(stdout).splitlines() if line.startswith('{"lab_websocket":1,')]
        expect_output(
            exit_status == 0 and len(lines) == 1, 'a line that begins {"lab_websocket":1,', stdout, stderr, exit_status
        )
        logged = [line.removeprefix("websocket ") for line in stderr.splitlines() if line.startswith("websocket ")]
        try:
            summary = _Summary.model_validate_json(lines[0])
            rows = [_Row.model_validate_json(line) for line in logged]
        except ValidationError:
            raise make_output_error(
                "a whole summary line and a whole line for every WebSocket", stdout, stderr
            ) from None
        _compare(rows, summary, load)
        opened = [row for row in rows if row.end != REFUSED]
        cut = [row for row in opened if row.end == CUT]
        trips = np.array([trip for row in rows for trip in row.trips_us], dtype=np.float64)
        began_s = max(row.wall_ms * 1000 - row.opened_us for row in rows) / 1e6
        duration_s = summary.duration_ms / 1e3
        kinds = Counter[ErrorKind](row.kind for row in rows if row.kind)
        faults = Counter(row.fault for row in rows if row.fault)
        sent = sum(row.sent for row in rows)
        return GeneratorResult(
            requests=trips.size,
            duration_s=duration_s,
            latency=Histogram.of_values(trips / 1e6),
            recorded_s=duration_s,
            errors={kind: count for kind, count in kinds.items() if kind in ("body", "status")},
            size_bytes=summary.received_bytes,
            size_includes_tls=load.url.startswith("https://"),
            notes=tuple(f"{count} WebSockets: {fault}" for fault, count in sorted(faults.items())[:3]),
            streams=StreamReport(
                asked=len(rows),
                refused=len(rows) - len(opened),
                cut=len(cut),
                began_s=began_s,
                ended_s=began_s + duration_s,
                coalesced=0,
                sent_sum=sum(row.told_us for row in rows),
                first_s=tuple((row.answered_us - row.opened_us) / 1e6 for row in opened),
                gap_s=0.0,
                cut_s=min(((row.ended_us - row.answered_us) / 1e6 for row in cut), default=None),
                cut_idle_s=min(((row.ended_us - row.last_us) / 1e6 for row in cut), default=None),
                lost=sent - trips.size,
                late_s=sum(row.late_us for row in rows) / 1e6 / sent if sent else 0.0,
            ),
        )


def _compare(rows: list[_Row], summary: _Summary, load: GeneratorLoad) -> None:
    """Check that the lines of a log, one for each WebSocket, agree with the load, with each other and with k6's own counts.

    k6's counts may differ in two ways. It also counts the message that closes a WebSocket as sent, and it does not
    count a WebSocket whose handshake it still waits for.

    Raises:
        OutputError: Two numbers contradict each other or the requested load.

    """
    numbers = sorted(row.number for row in rows)
    expect(
        numbers == list(range(1, load.connections + 1)),
        f"expected {load.connections} WebSockets, each once, got {len(numbers)}",
    )
    bounds_us = ((load.every_s or 0.0) * 1e6, summary.duration_ms * 1e3, load.timeout_s * 1e6)
    count, (every_us, run_us, timeout_us) = count_events(load), map(round, bounds_us)
    wrong = [row for row in rows if not row.is_possible(count, every_us, run_us, timeout_us)]
    expect(not wrong, f"expected possible times and counts of every WebSocket, got {wrong[:1]}")
    began_ms = [row.wall_ms - row.opened_us / 1000 for row in rows]
    expect(max(began_ms) - min(began_ms) <= CLOCKS_MS, "expected one beginning of the run by both clocks")
    heard, sent = (sum(len(row.trips_us) for row in rows), sum(row.sent for row in rows))
    other, hung = (sum((row.end, row.kind) == way for row in rows) for way in ((CUT, "body"), (REFUSED, "timeout")))
    expect(
        len(rows) - hung <= summary.sessions <= len(rows),
        f"expected {len(rows)} WebSockets, k6 counts {summary.sessions}",
    )
    expect(
        heard <= summary.received <= heard + other and heard <= summary.sent <= sent + len(rows),
        f"expected {sent} messages sent and {heard} back, k6 counts {summary.sent} and {summary.received}",
    )
