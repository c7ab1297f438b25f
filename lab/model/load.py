"""The load that a load generator has to make (`GeneratorLoad`), and the generator's report about it (`GeneratorResult`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.model.traffic import Traffic
from lab.stats.histogram import Histogram

Encoding = Literal["identity", "gzip", "br"]
SpokenProtocol = Literal["h1", "h2"]
"""The protocol between client and proxy: HTTP/1.1, or HTTP/2 over TLS."""
Transfer = Literal["download", "upload"]
"""The way of large bodies whose speed is measured: from the backend to the client, or from the client to the backend."""
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
        url: The URL with the page's path. Its host name resolves on the client's side. With `shards` it is that of the
            first one.
        host: The Host header of requests.
        connections: The number of connections at the same time. With `keepalive` each stays open; without it, each is
            replaced by a new one after every request.
        duration_s: How long to load, in seconds.
        rate_rps: The offered requests per second; None means closed loop (as fast as answers come).
        threads: The number of threads of the generator.
        requests: The number of requests that ends the run instead of `duration_s` (only hey and h2load); None = the run
            ends by time.
        keepalive: False opens a new connection for every request.
        timeout_s: The time in seconds after which a request without an answer counts as an error of kind `timeout`.
        hosts: All hosts that requests are spread over evenly, `host` first. Their names resolve on the client's side.
        sni_per_host: Whether each host needs separate connections, with its name in the TLS handshake.
        shards: The proxies to load, where several proxies share the hosts.
        gzip: Whether to accept a response that is compressed with gzip.
        brotli: Whether to accept a response that is compressed with brotli.
        forwarded: Whether requests have the headers that a proxy in front would add (`X-Forwarded-For`, …).
        answers: The status codes that are right. Empty = 2xx; for wrk and wrk2, which see no redirects, all below 400.
        resumption: Whether new TLS connections must resume a session (True) or must not (False); None = either.
        generators: The number of generator processes, each with its part of the connections and of the rate.
        logged: Whether every request is recorded for `Generator.requests`; only k6 can.
        timed: Whether latencies are needed. They are not needed if the generator is paused between time slices; wrk
            then omits them.
        protocol: The only protocol that the client speaks to the proxy: `h1` or `h2`.
        streams: The number of requests at once on each connection, for HTTP/2 only.
        traffic: A mix of requests that replaces the path in `url`; None = one page.
        every_s: The seconds between two events of a stream of Server-Sent Events, or between two messages of a
            WebSocket; None = the load has neither.
        event_bytes: The bytes of padding in each event or message.
        held_s: The seconds by which the backend sends each event later than the send time that it writes into the event.
            So every measured delay contains this known delay; 0 = none.
        transfer: The direction of large bodies, if the load measures their speed: `download` or `upload`. None = the load
            measures requests.
        transfer_bytes: The size of each of these bodies; 0 without `transfer`.
        window_bits: The client's HTTP/2 windows, of each stream and of the connection, as a power of two less one; None =
            the generator's own, which never limit.
        messages: The number of messages of the server stream that each gRPC call asks for; 0 = calls are unary.

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
    transfer: Transfer | None = None
    transfer_bytes: int = 0
    window_bits: int | None = None
    messages: int = 0

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that every request of this load has, by name, without Host."""
        coding = "gzip" if self.gzip else "br" if self.brotli else ""
        return {**({"Accept-Encoding": coding} if coding else {}), **(FORWARDED if self.forwarded else {})}


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The part of a generator's report that is about streams of Server-Sent Events or about WebSockets.

    The delays of events, or the round trips of messages, are in `GeneratorResult.latency`.

    Attributes:
        asked: The number of streams or WebSockets that the generator tried to open.
        refused: The number of them that were not opened: no connection, or a status other than 200 (101 for a
            WebSocket).
        cut: The number of them that the other side ended before their last event or message.
        began_s: When the generator began, in seconds since the epoch.
        ended_s: When the generator ended, in seconds since the epoch.
        coalesced: The number of events that arrived within 1 ms of the previous event on their stream.
        sent_sum: The sum of all events' send times in µs, each modulo 1000 s. The backend computes that sum, too. For
            WebSockets it is the sum of the round trips in µs that messages reported to the backend.
        first_s: For each stream that had an event, the seconds from its opening to its first event. For each WebSocket,
            the seconds to the answer to its handshake.
        gap_s: The longest time between two events of a stream, in seconds; 0 if no stream had two events.
        cut_s: The shortest time from the opening of a stream or WebSocket until it was cut, in seconds; None if none
            was cut.
        cut_idle_s: The shortest time for which a stream or WebSocket that was cut had been silent before, in seconds;
            None if none was cut.
        lost: The number of messages that were sent and did not come back.
        late_s: The seconds by which messages were sent later than due, on average.

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
class CallReport:
    """The part of a generator's report about gRPC calls that can be compared with the backend's own counts.

    Attributes:
        messages: The number of messages that arrived on server streams; 0 if the calls were unary.
        told_us: The sum of the latencies in µs that answered calls reported to the backend. Each call reports the
            latency of the call before it.

    """

    messages: int
    told_us: int


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """The report of a load generator about one load, in seconds and bytes.

    Attributes:
        requests: The number of requests that were answered, with any status.
        duration_s: The length of the load, with the wait for the last answers.
        latency: The latencies. They are counted from when a request was due or from when it was sent, as the
            generator's `latency_from` states. Empty where latencies were not requested (`timed` is False).
        recorded_s: The part of the load for which `latency` has the latencies.
        errors: The number of failures by kind. Failures of the kind `status` were answered with a wrong status, and are
            part of `requests`; failures of all other kinds are not.
        dropped: The number of requests that were due and never sent.
        size_bytes: The bytes that were read, as they came (not decompressed).
        size_includes_headers: Whether `size_bytes` includes headers and chunk sizes.
        size_includes_tls: Whether `size_bytes` includes TLS records and handshakes.
        service: The times from sending to the answer, if the generator reports them in addition to `latency`.
        notes: Remarks on the numbers, for people.
        scheduled_s: The time during which requests fell due, for generators whose rate refers to it (see
            `achieved_rps`); of large transfers the time that complete ones took; otherwise None.
        least_due: The number of requests that must have fallen due at least; None = rate × time. Generators with a
            schedule for each connection set it, because their number is lower by a few requests.
        uncalibrated: Whether the latencies include a start-up phase that should have been left out; then they are not
            used.
        timed: Whether latencies were reported.
        parts: The reports of the single generators, if several made the load.
        streams: The report on streams of events or WebSockets, if the load has them. Then `requests` counts events, or
            messages that came back, and `latency` has their delays or round trips.
        calls: The report on gRPC calls, if the load has them. Then `requests` counts calls.

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
    calls: CallReport | None = None

    @property
    def achieved_rps(self) -> float:
        """The answered requests per second, over the time during which requests fell due.

        For generators without a schedule, it is the rate over the whole length of the load. The distinction matters at
        an offered rate: a slow last answer counts as latency, and does not lower the rate at which requests were sent.
        """
        over_s = self.duration_s if self.scheduled_s is None else self.scheduled_s
        return self.requests / over_s if over_s > 0 else 0.0

    @property
    def histograms(self) -> dict[str, Histogram]:
        """The latency histograms in this report, by series: `latency` and, if the generator reports it, `service`.

        `service` is counted from when a request was sent, `latency` possibly from when it was due.
        """
        return {"latency": self.latency} | ({"service": self.service} if self.service is not None else {})


def expect(held: object, fault: str) -> None:
    """Raise an OutputError if a condition is not met.

    Args:
        held: The condition, any value that can be true or false.
        fault: The message of the error.

    """
    if not held:
        raise OutputError(fault)


def first_broken(*rules: tuple[bool, str]) -> str | None:
    """Return the message of the first rule that is broken; None if no rule is broken.

    Args:
        rules: Pairs of whether a rule is broken, and the message for it.

    """
    return next((message for broken, message in rules if broken), None)


class OutputError(Exception):
    """The error that a generator's output does not have its usual form, or shows that nothing was measured.

    The message states what was expected, and quotes the output.
    """
