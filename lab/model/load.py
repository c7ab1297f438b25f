"""What a generator is asked for (`Load`) and what it says afterwards (`Result`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab.stats.histogram import Histogram

Encoding = Literal["identity", "gzip", "br"]
Spoken = Literal["h1", "h2"]
"""HTTP/1.1, or HTTP/2 over TLS."""
ErrorKind = Literal["status", "connect", "read", "write", "timeout", "body", "other"]


FORWARDED: Mapping[str, str] = {
    "X-Forwarded-For": "203.0.113.7, 198.51.100.4",
    "X-Forwarded-Host": "shop.example.test",
    "X-Forwarded-Port": "443",
    "X-Forwarded-Proto": "https",
    **dict.fromkeys(("CF-Connecting-IP", "Fastly-Client-IP", "True-Client-IP", "X-Real-IP"), "203.0.113.7"),
}
"""What a request has on it that came by two proxies, the first of which ended TLS, and told the client by whichever header."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of several ways in, and the hosts that are reached by it alone."""

    url: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """What one generator process is told to do.

    `rate_rps` None means closed loop. `requests` ends the run after so many requests instead of after
    `duration_s` (hey). `keepalive` False opens a new connection for every request. A response
    later than `timeout_s` counts as an error of kind `timeout`, not as a latency.

    `hosts` are all hosts that requests are spread over evenly, `host` first; names in `url` and `hosts` resolve in the
    client's place. `sni_per_host`: each host needs connections of its own, with its own name in the TLS handshake.
    `shards`: the ways in where the hosts have several, each with its own; `url` is the first one's then.
    `generators`: how many processes make it together, each its part of the connections and the rate.
    `logged`: every request is told, for `Generator.requests`; those with `logs_requests` alone can.
    `timed`: its latencies are wanted; of a generator that is stopped in between they are not, and wrk then leaves them out.
    `protocol`: what is spoken to the proxy, and nothing else; `streams`: requests at once on each connection, of HTTP/2 alone.
    `gzip`, `brotli`: accept a response that is compressed so. `answers`: the statuses that are right; empty: 2xx. `forwarded`: come as from a proxy in front, by the headers that it would add. `resumption`: new TLS connections must (not) resume a session; None = either.
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
    protocol: Spoken = "h1"
    streams: int = 1

    @property
    def headers(self) -> Mapping[str, str]:
        """Of every request, beside its host."""
        coding = "gzip" if self.gzip else "br" if self.brotli else ""
        return {**({"Accept-Encoding": coding} if coding else {}), **(FORWARDED if self.forwarded else {})}


@dataclass(frozen=True, slots=True)
class Result:
    """What a generator reported. Seconds and bytes.

    `requests` were answered (with whatever status) in `duration_s`, the waiting for the last answers included;
    `scheduled_s` is how long requests fell due where that is the tool's measure of a rate (see `scheduled_s`
    below), None otherwise. `errors` counts what was not right by kind (`status` = answered, but not as expected, part of `requests`; the others are not); `dropped` are
    requests that were due and never sent. `latency` covers `recorded_s` of the run, counted from when
    the request was due or sent, as the generator's `latency_from` says; empty, with `timed` False, where it was not wanted and not told. `service` is the time since
    sending where the generator gives both; `uncalibrated` says that it holds a start-up which it was to leave
    out, so that it must not count. `least_due` is how many requests fell due at the least, where each connection has a schedule of its own
    and the rate asked for cannot be met to the last request; None: rate × time. `size_bytes` is what was read, as it came (not decompressed): headers and chunk
    sizes included where `size_includes_headers`, and TLS records and handshakes where `size_includes_tls`. `parts`: of a load that several
    generators made, what each of them reported of its own.
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
    parts: tuple[Result, ...] = ()

    @property
    def achieved_rps(self) -> float:
        """Requests answered per second of the schedule, or of the whole run where there is none.

        A slow last answer to an open loop is latency: the rate it was asked at does not change by it.
        """
        over_s = self.duration_s if self.scheduled_s is None else self.scheduled_s
        return self.requests / over_s if over_s > 0 else 0.0

    @property
    def histograms(self) -> dict[str, Histogram]:
        """Series → histogram."""
        return {"latency": self.latency} | ({"service": self.service} if self.service is not None else {})


def expect(held: object, fault: str) -> None:
    """OutputError with this fault where it does not hold."""
    if not held:
        raise OutputError(fault)


def first_broken(*rules: tuple[bool, str]) -> str | None:
    """What the first broken rule says, of (whether it is broken, what to say); None where all are kept."""
    return next((said for broken, said in rules if broken), None)


class OutputError(Exception):
    """The output is not what this generator prints: truncated, garbage, or a run that did not happen.

    The message says what was expected and quotes what stood there instead.
    """
