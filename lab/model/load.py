"""The request to a generator (`GeneratorLoad`) and its report (`GeneratorResult`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.model.traffic import Traffic
from lab.stats.histogram import Histogram

Encoding = Literal["identity", "gzip", "br"]
SpokenProtocol = Literal["h1", "h2"]
"""The protocol between client and proxy: HTTP/1.1, or HTTP/2 over TLS."""
ErrorKind = Literal["status", "connect", "read", "write", "timeout", "body", "other"]


FORWARDED: Mapping[str, str] = {
    "X-Forwarded-For": "203.0.113.7, 198.51.100.4",
    "X-Forwarded-Host": "shop.example.test",
    "X-Forwarded-Port": "443",
    "X-Forwarded-Proto": "https",
    **dict.fromkeys(("CF-Connecting-IP", "Fastly-Client-IP", "True-Client-IP", "X-Real-IP"), "203.0.113.7"),
}
"""The headers of a request that passed two proxies, the first of which ended TLS.

Every header that proxies use for the client's address is among them.
"""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several proxies that share the routes: its URL, and the hosts that only it serves."""

    url: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GeneratorLoad:
    """The load that a generator makes, in one process or several.

    Attributes:
        url: The URL with the page's path. Names in it resolve on the client's side. With `shards` it is that of the first shard.
        host: The host that requests name.
        connections: The number of connections, kept open or in use at once.
        duration_s: How long to load, in seconds.
        rate_rps: The offered requests per second; None means closed loop.
        threads: The number of threads of the generator.
        requests: The number of requests that ends the run instead of `duration_s` (hey); None = the run ends by time.
        keepalive: False opens a new connection for every request.
        timeout_s: A response later than this counts as an error of kind `timeout`, not as a latency.
        hosts: All hosts that requests are spread over evenly, `host` first. Their names resolve on the client's side.
        sni_per_host: Whether each host needs separate connections, with its name in the TLS handshake.
        shards: The proxies to load where the hosts are split over several.
        gzip: Whether to accept a response that is compressed with gzip.
        brotli: Whether to accept a response that is compressed with brotli.
        forwarded: Whether requests have the headers that a proxy in front would add.
        answers: The statuses that are right; empty = 2xx, or for wrk and wrk2, which see no redirects, all below 400.
        resumption: Whether new TLS connections must resume a session (True) or must not (False); None = either.
        generators: The number of processes that make the load together, each its part of the connections and the rate.
        logged: Whether every request is recorded for `Generator.requests`; only generators with `logs_requests` can.
        timed: Whether the latencies are needed. They are not where the generator is paused between time slices, and wrk then omits them.
        protocol: The only protocol that is spoken to the proxy.
        streams: The number of requests at once on each connection, for HTTP/2 only.
        traffic: The mix of requests, in place of the path in `url`; None = one page.
        every_s: The seconds between two events of a stream or two messages of a WebSocket; None: the load has neither.
        event_bytes: The bytes of padding in each event or message.
        held_s: The seconds for which the backend holds each event after its send time.

    """

    url: str
    host: str
    connections: int
    duration_s: float
    rate_rps: float | None = None
    threads: int = 1
    requests: int | None = None
    keepalive: bool = True
    timeout_s: float = 10.0
    hosts: tuple[str, ...] = ()
    sni_per_host: bool = False
    shards: tuple[Shard, ...] = ()
    gzip: bool = False
    brotli: bool = False
    forwarded: bool = False
    answers: tuple[int, ...] = ()
    resumption: bool | None = None
    generators: int = 1
    logged: bool = False
    timed: bool = True
    protocol: SpokenProtocol = "h1"
    streams: int = 1
    traffic: Traffic | None = None
    every_s: float | None = None
    event_bytes: int = 200
    held_s: float = 0.0

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request of this load, without Host."""
        coding = "gzip" if self.gzip else "br" if self.brotli else ""
        return {**({"Accept-Encoding": coding} if coding else {}), **(FORWARDED if self.forwarded else {})}


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The part of a generator's report that is about streams of events or about WebSockets.

    Delays of events and round trips of messages are in `GeneratorResult.latency`.

    Attributes:
        asked: The number of streams, or of WebSockets.
        refused: Those that were not opened: no connection, or another status than 200 (of a WebSocket 101).
        cut: Those that were ended by another before their last event or message.
        began_s: When the generator began, in seconds since the epoch.
        ended_s: When it ended, in seconds since the epoch.
        coalesced: Events that arrived within 1 ms of the event before them on their stream.
        sent_sum: The sum of all events' send times in µs, each modulo 1000 s, as the backend adds them up; of WebSockets the sum of the round
            trips in µs that messages told the backend.
        first_s: From the opening of each stream to its first event, of the streams that had one; of each WebSocket to its handshake's answer.
        gap_s: The longest time between two events of a stream; 0 without two.
        cut_s: The shortest time from an opening until a stream or WebSocket was cut; None where none was.
        cut_idle_s: The shortest time without an event or message until one was cut; None where none was.
        lost: The messages that were sent and did not come back.
        late_s: How much later than due a message was sent on average.

    """

    asked: int
    refused: int
    cut: int
    began_s: float
    ended_s: float
    coalesced: int
    sent_sum: int
    first_s: tuple[float, ...]
    gap_s: float
    cut_s: float | None
    cut_idle_s: float | None
    lost: int = 0
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """The report of a generator, in seconds and bytes.

    Attributes:
        requests: The requests that were answered, with any status.
        duration_s: The length of the run, with the wait for the last answers.
        latency: The latencies, counted from when a request was due or sent, as the generator's `latency_from` states. Empty, with `timed`
            False, where they were not needed and not reported.
        recorded_s: The part of the run that `latency` covers.
        errors: The number of failures by kind. `status` = answered, but not as expected: part of `requests`; the other kinds are not.
        dropped: The requests that were due and never sent.
        size_bytes: The bytes that were read, as they came (not decompressed).
        size_includes_headers: Whether `size_bytes` includes headers and chunk sizes.
        size_includes_tls: Whether `size_bytes` includes TLS records and handshakes.
        service: The times since sending, where the generator reports both.
        notes: Remarks on the numbers, for people.
        scheduled_s: How long requests fell due, where that is the tool's measure of a rate (see `achieved_rps`); None otherwise.
        least_due: The smallest number of requests that fell due, where each connection has a schedule to itself and the requested rate
            cannot be met to the last request; None = rate × time.
        uncalibrated: Whether the latencies include a start-up that they should have left out, so that they must not count.
        timed: Whether latencies were reported.
        parts: The reports of the single generators, where several made the load.
        streams: The report on streams of events or WebSockets, where the load has them: then `requests` counts events, or messages that
            came back, and `latency` has their delays or round trips.

    """

    requests: int
    duration_s: float
    latency: Histogram
    recorded_s: float
    errors: Mapping[ErrorKind, int] = field(default_factory=dict)
    dropped: int = 0
    size_bytes: int | None = None
    size_includes_headers: bool = True
    size_includes_tls: bool = False
    service: Histogram | None = None
    notes: tuple[str, ...] = ()
    scheduled_s: float | None = None
    least_due: int | None = None
    uncalibrated: bool = False
    timed: bool = True
    parts: tuple[GeneratorResult, ...] = ()
    streams: StreamReport | None = None

    @property
    def achieved_rps(self) -> float:
        """The requests that a load had answered per second of its schedule, or of the run without a schedule.

        A slow last answer in an open loop (a load at an offered rate) counts as latency. It does not change the rate at which requests
        were sent.
        """
        over_s = self.duration_s if self.scheduled_s is None else self.scheduled_s
        return self.requests / over_s if over_s > 0 else 0.0

    @property
    def histograms(self) -> dict[str, Histogram]:
        """The latency histograms of a generator's report, by series: `latency`, and `service` if reported."""
        return {"latency": self.latency} | ({"service": self.service} if self.service is not None else {})


def expect(held: object, fault: str) -> None:
    """Raise OutputError with the message `fault` unless the condition `held` is true."""
    if not held:
        raise OutputError(fault)


def first_broken(*rules: tuple[bool, str]) -> str | None:
    """Return the message of the first broken rule; None where all are kept.

    Args:
        rules: Pairs of whether the rule is broken, and the message.

    """
    return next((message for broken, message in rules if broken), None)


class OutputError(Exception):
    """The error of an output that is not what the generator prints: truncated, garbage, or a run that did not happen.

    Its message states what was expected, and quotes the output that came instead.
    """
