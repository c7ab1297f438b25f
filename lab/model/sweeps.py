"""The model of sweeps: TOML files that each define a named list of load points.

Unknown keys, impossible numbers and values of another type are refused (`"5"` and `true` are no numbers). `connections`, `rate_rps`,
`of_knee` and `page` may be lists: all combinations are expanded. With `rate_rps = "connections"` the rate is the number of connections
instead, and `requests_per_connection` makes the number of requests grow with them. Each generator decides whether it can make a
load (`Generator.refusal`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lab.base.errors import did_you_mean
from lab.base.validation import Record, refuse_broken_rules
from lab.model.disturbance import AnyDisturbance, Disturbance
from lab.model.endpoint import Tls
from lab.model.load import Encoding, SpokenProtocol, Transfer, first_broken
from lab.model.pages import OTHER_PATHS, PAGES
from lab.model.pairs import Scheme
from lab.model.traffic import PointTraffic, Traffic

FOLDER = Path(__file__).parents[1] / "sweeps"
"""The folder of the sweep files."""
DEFAULT_SWEEP = "quick"
CONTROL = "control"
"""The name, or the end of the name, of a point that is a control run."""

SUSTAINED_S = 180.0
"""The shortest load of `--sustained`, in seconds.

It is three times the life of a TIME_WAIT socket, so that ports that ran out come back twice.
"""
MAX_PAIR_SHARE = 0.4
"""The largest fraction of the knee (the highest rate within the latency bound) at which a pair is measured.

A pair offers the rate twice, to two proxies on the same CPUs.
"""
SPARE = 1.2
"""The connections that a load with a disruption needs, per request that may hang at once.

A timeout ends a little later than it should. Without spare connections some requests were never sent (measured: 995 of 13,500 at 300 per
second and 2 s).
"""

LEAST_TRANSFER_BYTES = 1024 * 1024
"""The least size of a body whose speed is measured: of smaller ones it is the time for a request that counts."""
WEBSOCKET_GENERATOR = "k6-websocket"
"""The generator whose loads are WebSockets."""
GRPC_GENERATOR = "k6-grpc"
"""The generator whose loads are gRPC calls."""
OWN_RATE = ("events", WEBSOCKET_GENERATOR)
"""The generators of events and messages, of which one comes every `every_s` on each connection."""

Blocks = Annotated[int, Field(ge=1, le=1000)]
Connections = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=10_000_000)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Subject = Literal["errors", "listen-overflow"]

DISTURBANCE = "what is done to the system meanwhile (lab/disturbances); every request is logged, errors are the outcome"


class LoadPoint(Record, strict=True):
    """A load point: the generator, its load, the duration and the page, with single values only.

    `PointSpec` is its form in a sweep's file, where keys may be lists; it documents the keys of both.
    """

    name: str = Field(description="unique in the sweep; part of sample ids")
    generator: str = Field(description="the generator asked for; a stand-in is recorded in the sample")
    connections: int
    rate_rps: float | None
    of_knee: float | None = None
    duration_s: float
    warmup_s: float
    threads: int
    threads_at_most: int | None = Field(default=None, description="null once they are settled")
    page: str
    requests: int | None = None
    keepalive: bool = True
    tls: Tls | Literal["routed"] = "routed"
    routes: int | Literal["all"] = 1
    resumption: bool | None = None
    accept_encoding: Encoding = "identity"
    forwarded: bool = False
    answers: tuple[int, ...] = ()
    protocol: SpokenProtocol = "h1"
    streams: int = 1
    every_s: float | None = None
    event_bytes: int = 200
    held_s: float = 0.0
    messages: int = 0
    link_mbit: float | None = None
    link_delay_ms: float = 0.0
    transfer: Transfer | None = None
    window_bits: int | None = None
    generators: int = 1
    subject: tuple[Subject, ...] = ()
    timeout_s: float = 10.0
    alone: str = ""
    generations: int = 1
    repeats: int = 1
    attempts: int = 3
    singly: bool = Field(
        default=False,
        description="statistics are over generations, not bring-ups: those of one bring-up are known to share little (data/levels)",
    )
    sustained: bool = Field(
        default=False,
        description="whether `--sustained` made it as long as it is: that it changes within is its subject, and its effects are shown by thirds",
    )
    disturbance: AnyDisturbance | None = None
    control: bool = Field(default=False, description="the same without doing it: nothing may fail then")
    traffic: PointTraffic | None = Field(
        default=None, description="the digest of the mix of requests, which run.json has; null = one page"
    )

    def with_traffic(self, traffic: Traffic | None) -> LoadPoint:
        """Return this load point with a mix of requests in place of its page, spread over the hosts of the mix.

        Args:
            traffic: The mix of requests; None returns the point unchanged.

        """
        if traffic is None:
            return self
        return self.model_copy(update={"traffic": traffic, "page": traffic.page, "routes": traffic.routes})

    @property
    def kept_connections(self) -> int:
        """The largest number of connections that the load keeps open at once.

        A load with a mix of requests needs separate connections to each of its hosts.
        """
        return self.connections * (int(self.routes) if self.traffic is not None else 1)

    def at_rate(self, knee_rps: float) -> LoadPoint:
        """Return this load point with its rate computed from the knee: `of_knee` × `knee_rps`, in whole requests per second.

        The knee is the highest rate that a proxy serves within the latency bound. wrk2 accepts only whole rates. A
        point without `of_knee` is returned unchanged.

        Args:
            knee_rps: The knee in requests per second.

        """
        if self.of_knee is None:
            return self
        return self.model_copy(update={"rate_rps": float(max(1, round(self.of_knee * knee_rps)))})

    def on_cpus(self, cpus: int | None) -> LoadPoint:
        """Return this load point with as many generator threads as there are CPUs for them, at most `threads_at_most`.

        If the connections cannot be divided evenly among the threads, there are fewer threads. A point without
        `threads_at_most` is returned unchanged.

        Args:
            cpus: The number of the generator's CPUs; None = unknown, which counts as one.

        """
        if self.threads_at_most is None:
            return self
        limit = min(self.threads_at_most, cpus or 1)
        threads = next(count for count in range(limit, 0, -1) if self.connections % count == 0)
        return self.model_copy(update={"threads": threads, "threads_at_most": None})

    def for_minutes(self) -> LoadPoint:
        """Return this load point as the option `--sustained` changes it: it then lasts 180 s (`SUSTAINED_S`) or longer.

        The new point has no warm-up, because the first seconds are measured, too. It is not measured in pairs, because
        each side of a pair would run only half of the time. A load that ends after a number of requests is returned
        unchanged, and so is one with a disruption, streams of events or WebSockets.
        """
        if self.requests is not None or self.has_outcome:
            return self
        length_s = max(SUSTAINED_S, self.duration_s)
        changes = {"duration_s": length_s, "warmup_s": 0.0, "generations": 1, "repeats": 1, "sustained": True}
        return self.model_copy(update=changes)

    @property
    def scheme(self) -> Scheme:
        """The way in which the two sides of a pair (two variants at once) are loaded at this load point: "slices" or "together".

        In a closed loop the sides alternate in time slices. A load at an offered rate cannot pause, so both sides run
        at once.
        """
        return "slices" if self.rate_rps is None else "together"

    @property
    def concurrent(self) -> bool:
        """True if both sides of a pair (two variants) run at the same time; False if they take turns or no pair is possible."""
        return self.scheme == "together" and not self.why_alone

    def counting(self, blocks: int) -> int:
        """Return the number of values over which the statistics of a pair (two variants at once) are computed.

        It is one value per block (a repetition of all measurements). Where `singly` is set, it is one value per worker
        generation (workers between two reloads).

        Args:
            blocks: The number of blocks.

        """
        return blocks * self.generations if self.singly else blocks

    @property
    def shared_cost(self) -> bool:
        """True if every request of this load opens a new connection, which is mostly work of the kernel's network stack.

        Both sides of a pair (two variants measured at once) share this work. So a pair underestimates its cost.
        """
        return not self.keepalive

    @property
    def has_outcome(self) -> bool:
        """True if this load has a disruption, streams of events or WebSockets; its results are then in `Sample.outcome`."""
        return self.disturbance is not None or self.every_s is not None

    @property
    def websocket(self) -> bool:
        """True if the connections of this load are WebSockets, on which messages are sent back."""
        return self.generator == WEBSOCKET_GENERATOR

    @property
    def grpc(self) -> bool:
        """True if the requests of this load are gRPC calls."""
        return self.generator == GRPC_GENERATOR

    @property
    def why_alone(self) -> str:
        """The reason, in words, why no pair (two variants at once) can be measured under this load; empty if one can."""
        reasons = {
            "what is done to a system is bound to it alone": self.disturbance is not None or self.control,
            "streams and WebSockets are held through one system at a time": self.every_s is not None,
            "queues, ports or files run out": bool(self.subject),
            "a number of requests has no slices": self.requests is not None,
            "a large transfer does not end with its time slice": self.transfer is not None,
            "several generators make it": self.generators > 1,
            "what runs out over minutes runs out half as fast for half of the time": self.sustained,
            "two such rates are more than one proxy serves": self.of_knee is not None and self.of_knee > MAX_PAIR_SHARE,
        }
        return self.alone or next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def load(self) -> tuple[LoadPoint, tuple[object, ...]]:
        """The key that disrupted load points must have in common to share a control run (the load without the disruption).

        Its first part is this load point without its name, its disruption and `of_knee` (its rate as a fraction of the
        highest rate within a latency bound). Its second part is the host and the additional manifests that the
        disruption needs.
        """
        prepared = () if self.disturbance is None else self.disturbance.prepared
        return self.model_copy(update={"name": "", "of_knee": None, "disturbance": None, "control": False}), prepared


def find_control(points: Iterable[LoadPoint], point: LoadPoint) -> LoadPoint | None:
    """Return the control run of a disrupted load point: the load point with an equal load but no disruption.

    Args:
        points: The load points to search.
        point: The disrupted load point.

    Returns:
        None if `point` has no disruption, is a control run itself, or no control run is among `points`.

    """
    if point.disturbance is None or point.control:
        return None
    return next((candidate for candidate in points if candidate.control and candidate.load == point.load), None)


class PointSpec(Record, strict=True):
    """A `[[points]]` table of a sweep's file. Some of its keys may be lists, so it expands to one or more load points."""

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$",
        description="lower-case name; a list appends its value",
    )
    generator: str
    connections: Connections | Annotated[list[Connections], Field(min_length=1)]
    rate_rps: Rate | Annotated[list[Rate], Field(min_length=1)] | Literal["connections"] | None = Field(
        default=None,
        description="offered requests per second; null = closed loop; `connections` = as many as there are connections",
    )
    of_knee: Fraction | Annotated[list[Fraction], Field(min_length=1)] | None = Field(
        default=None,
        description="the rate, as a fraction of the knee that `just knee` found; which one is settled when the sweep is measured; a list appends its percentage",
    )
    duration_s: float = Field(
        ge=1,
        le=86_400,
        description="how long to load; with `requests` the deadline: a generator still running well after it is killed",
    )
    warmup_s: float = Field(
        default=1.0,
        ge=0,
        le=600,
        description="the same load before it, not recorded, for this long, at least 1 s of all generators but a single wrk; 0 = none",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=256,
        description="threads of the generator, for those that have them; no more than it has CPUs",
    )
    threads_at_most: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None,
        description="instead of `threads`: as many as the generator has CPUs, so many at most, each with as many connections",
    )
    page: str | Annotated[list[str], Field(min_length=1)] = "1kB.bin"
    requests: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="end after so many requests instead of after `duration_s` (hey, h2load); null = by time",
    )
    keepalive: bool = Field(default=True, description="false = a new connection for every request")
    requests_per_connection: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="`requests` as a multiple of the connections, where both grow together"
    )
    tls: Tls | Literal["routed"] = Field(
        default="routed",
        description="the routes the load goes to, by where TLS ends; `routed` = whatever the variant's routes say",
    )
    routes: Annotated[int, Field(ge=1, le=10_000)] | Literal["all"] = Field(
        default=1, description="how many routes (hosts) the load is spread over; `all` = as many as the variant has"
    )
    resumption: bool | None = Field(
        default=None,
        description="whether new TLS connections must resume a session (true), must not (false); null = recorded only",
    )
    accept_encoding: Encoding = Field(
        default="identity", description="what the client accepts: `gzip` or `br` lets the proxy compress"
    )
    forwarded: bool = Field(
        default=False,
        description="requests come as from a proxy in front: with X-Forwarded-For of two hops, -Host, -Port and -Proto",
    )
    answers: list[Annotated[int, Field(ge=200, le=599)]] = Field(
        default_factory=list[int],
        description="the statuses that may be the answer (k6, wrk); any other is an error, and a page is whole where it is 200; empty = 200 alone",
    )
    protocol: SpokenProtocol = Field(
        default="h1",
        description="what the client speaks to the proxy: `h1`, HTTP/1.1, or `h2`, HTTP/2 over TLS (h2load, k6), of gRPC without TLS, too (k6-grpc)",
    )
    streams: int = Field(
        default=1, ge=1, le=1000, description="requests at once on each connection of HTTP/2 (h2load, events)"
    )
    every_s: Annotated[float, Field(ge=0.01, le=3600)] | None = Field(
        default=None,
        description="each connection (of HTTP/2 each of its `streams`) is a stream of Server-Sent Events, one every so many seconds (events), or a WebSocket with such messages (k6-websocket)",
    )
    event_bytes: int = Field(default=200, ge=1, le=16_000, description="bytes of padding in each event or message")
    held_s: float = Field(
        default=0.0,
        ge=0,
        le=60,
        description="for so long the backend holds each event after its send time: a known delay",
    )
    messages: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="each gRPC call asks for a server stream of so many messages, each as long as the page; 0 = a unary call (k6-grpc)",
    )
    link_mbit: Annotated[float, Field(ge=0.1, le=100_000)] | None = Field(
        default=None,
        description="the client's link, shaped to so many Mbit/s in both directions; null = as fast as it goes",
    )
    link_delay_ms: float = Field(
        default=0.0, ge=0, le=1000, description="a round trip over the client's link takes so many ms longer (local)"
    )
    transfer: Transfer | None = Field(
        default=None,
        description="the speed of bodies as large as `page` is measured, in MB/s: each a `download`, or an `upload` that the backend takes whole (h2load)",
    )
    window_bits: Annotated[int, Field(ge=16, le=30)] | None = Field(
        default=None,
        description="the client's HTTP/2 windows, of each stream and of the connection, of 2^N - 1 bytes (h2load); null = so large that they never limit",
    )
    generators: int = Field(
        default=1,
        ge=1,
        le=100,
        description="how many generators make it together, each its part; more than one: k6, on a cluster",
    )
    subject: list[Subject] = Field(
        default_factory=list[Subject],
        description="faults that are this load's subject: counted as outcome, never a reason against a sample",
    )
    timeout_s: float = Field(default=10.0, gt=0, le=600, description="an answer later than this is an error")
    alone: str = Field(
        default="",
        description="why this load does not support pairing, so that arms are measured one after the other; empty = it does, as far as its keys show",
    )
    generations: int = Field(
        default=1,
        ge=1,
        le=200,
        description="on how many generations of workers a pair is measured in each bring-up: between two of them both sides reload",
    )
    repeats: int = Field(
        default=1, ge=1, le=20, description="how often a pair is measured on each of its generations of workers"
    )
    attempts: int = Field(
        default=3,
        ge=1,
        le=9,
        description="how often it is measured at most where it is the machine that was to blame; 1 = once: where nothing is compared",
    )
    disturbance: AnyDisturbance | None = Field(default=None, description=DISTURBANCE)

    @property
    def pages(self) -> list[str]:
        """The names of the pages that a `[[points]]` table lists, as a list even if the table names a single page."""
        return self.page if isinstance(self.page, list) else [self.page]

    @property
    def fault(self) -> str | None:
        """The first fault in the combination of this table's keys, such as `page: unknown page 'x'`; None if it has none.

        The limits of the single generators are not checked here; each generator checks its limits itself.
        """
        pages = [*PAGES, *(OTHER_PATHS if self.answers else ())]
        unknown = next((page for page in self.pages if page not in pages), None)
        several = self.generations > 1 or self.repeats > 1
        return first_broken(
            (unknown is not None, f"page: unknown page {unknown!r}: {did_you_mean(str(unknown), pages)}"),
            (self.of_knee is not None and self.rate_rps is not None, "of_knee: so is rate_rps given: keep one"),
            (
                self.threads_at_most is not None and "threads" in self.model_fields_set,
                "threads_at_most: so is threads given: keep one",
            ),
            (
                self.requests is not None and self.requests_per_connection is not None,
                "requests: so is requests_per_connection given: keep one",
            ),
            (
                self.resumption is not None and self.tls == "none",
                'resumption: there is no TLS to resume: leave it out, or leave out tls = "none"',
            ),
            (
                self.protocol == "h2" and self.tls == "none" and self.generator != GRPC_GENERATOR,
                'protocol: h2 is HTTP/2 over TLS: leave out tls = "none"',
            ),
            (
                self.streams > 1 and self.protocol != "h2",
                'streams: HTTP/1.1 has one request at a time on a connection: leave it out, or protocol = "h2"',
            ),
            (
                self.generators > 1 and self.generator != "k6",
                f"generators: only k6 is run as several at once, not {self.generator}",
            ),
            (
                (self.every_s is not None) is not (self.generator in OWN_RATE),
                'every_s: streams of events are made by generator = "events", messages by "k6-websocket", and neither by another',
            ),
            (
                self.every_s is not None
                and bool(self.rate_rps or self.of_knee or self.requests or self.disturbance or self.generators > 1),
                "every_s: events and messages come at their own rate: leave out rate_rps, of_knee, requests, disturbance and generators",
            ),
            (
                self.window_bits is not None and self.protocol != "h2",
                'window_bits: HTTP/1.1 has no windows of its own: leave it out, or protocol = "h2"',
            ),
            (
                self.transfer is not None
                and (
                    self.generator != "h2load"
                    or bool(self.rate_rps or self.of_knee or self.requests)
                    or self.accept_encoding != "identity"
                ),
                "transfer: h2load makes transfers as fast as they go: leave out rate_rps, of_knee, requests, accept_encoding and other generators",
            ),
            (
                self.transfer is not None and any(PAGES.get(page, 0) < LEAST_TRANSFER_BYTES for page in self.pages),
                f"page: a transfer is of {LEAST_TRANSFER_BYTES:,} bytes or more, such as 10MB.bin",
            ),
            (
                several and bool(self.alone or self.subject or self.requests or self.transfer),
                "generations: they are a pair's, and this load is of arms alone: leave them out",
            ),
            (
                len(set(self.subject)) < len(self.subject),
                f"subject: {next(iter(self.subject), None)!r} stands there twice",
            ),
        )

    def fault_under(self, disturbance: Disturbance) -> str | None:
        """Return the first reason why a disruption cannot be combined with this load; None if the two fit.

        The reason names the key of the load that must be changed, and its remedy. Example: `duration_s: 30 or more, as
        long as the disturbance may matter`.
        """
        if not isinstance(self.rate_rps, (int, float)):
            return "rate_rps: a disturbance needs one rate, well below what the proxy can do"
        hanging = SPARE * self.rate_rps * self.timeout_s
        matters_s = disturbance.at_s + disturbance.lasts_s
        return first_broken(
            (
                not isinstance(self.connections, int) or self.connections < hanging,
                f"connections: {ceil(hanging)} or more, so that all that hang until timeout_s leave one free for the next",
            ),
            (
                self.duration_s < matters_s,
                f"duration_s: {matters_s:g} or more, as long as the disturbance may matter",
            ),
            (
                self.link_mbit is not None or bool(self.link_delay_ms),
                "link_mbit: during a disturbance the client's link is not shaped: leave it out, and link_delay_ms",
            ),
            (
                self.generations > 1 or self.repeats > 1,
                "generations: what is done to a system is done once: leave them out",
            ),
            (
                disturbance.host is not None and self.routes != 1,
                f"routes: the load asks for one host alone, {disturbance.host}: leave it out",
            ),
        )

    def fault_with_traffic(self, disturbance: Disturbance | None) -> str | None:
        """Return the first fault that this load has with a mix of requests in place of one page; None if they fit.

        Example: `generator: only k6 makes a mix of requests, not wrk`.

        Args:
            disturbance: The disruption of the load, which a mix does not allow; None = it has none.

        """
        given = {"page", "routes", "answers", "streams", "generators"} & self.model_fields_set
        return first_broken(
            (self.generator != "k6", f"generator: only k6 makes a mix of requests, not {self.generator}"),
            (
                disturbance is not None,
                "disturbance: with a mix of requests nothing is done to the system: leave it out",
            ),
            (bool(given), f"{min(given, default='')}: a mix of requests has its own: leave it out"),
        )

    def expand(self) -> Iterator[LoadPoint]:
        """Yield a load point for every combination of the values of `connections`, `rate_rps`, `of_knee` and `page`.

        Each value of a list is appended to the point's name: `connections = [10, 100]` makes `NAME-c10` and
        `NAME-c100`. A list with one value appends nothing. If the rate is the word `connections`, it becomes the number
        of connections. `requests` is computed from `requests_per_connection` if that is given. All other keys of a load
        point are copied, except `disturbance`: `Sweep.load_points` adds the disruption.
        """
        connections = self.connections if isinstance(self.connections, list) else [self.connections]
        rates = self.rate_rps if isinstance(self.rate_rps, list) else [self.rate_rps]
        shares = self.of_knee if isinstance(self.of_knee, list) else [self.of_knee]
        common = PointSpec.model_fields.keys() & LoadPoint.model_fields.keys()
        lists = {"name", "connections", "rate_rps", "of_knee", "page", "requests", "subject", "answers", "disturbance"}
        fixed = self.model_dump(include=common - lists)
        for clients, rate, share, page in product(connections, rates, shares, self.pages):
            labels = [
                self.name,
                *([f"c{clients}"] if len(connections) > 1 else []),
                *([f"r{rate:g}"] if len(rates) > 1 and isinstance(rate, float) else []),
                *([f"{100 * share:g}"] if len(shares) > 1 and share is not None else []),
                *([page.lower()] if len(self.pages) > 1 else []),
            ]
            per_connection = self.requests_per_connection
            yield LoadPoint(
                **fixed,
                name="-".join(labels),
                connections=clients,
                rate_rps=float(clients) if isinstance(rate, str) else rate,
                of_knee=share,
                page=page,
                requests=self.requests if per_connection is None else per_connection * clients,
                subject=tuple(self.subject),
                answers=tuple(self.answers),
            )


class SweepForm(Record, strict=True):
    """A `[forms.NAME]` table of a sweep's file: the changes that make another form of the sweep, called FILE-NAME.

    Most forms are shorter than the sweep, with fewer load points or repetitions.
    """

    title: str | None = None
    question: str | None = None
    blocks: Blocks | None = None
    points: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None, description="the points of the file that it has; null = all"
    )
    without: list[str] = Field(default_factory=list[str], description="keys of points that go back to their defaults")
    each: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="other values for keys of every point; of `disturbance` key by key"
    )
    point: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]], description="the same for one point, by its name in the file"
    )

    def fault(self, points: Collection[str]) -> str | None:
        """Return the first unknown name in this form, as `key: fault`; None if all names are known.

        Values are checked later, when the load points of the form are made.

        Args:
            points: The names of the load points in the sweep's file.

        """
        for key, names, valid in (
            ("points", self.points or (), points),
            ("point", self.point, points),
            ("without", self.without, PointSpec.model_fields),
        ):
            if (unknown := next((name for name in names if name not in valid), None)) is not None:
                return f"{key}: unknown name {unknown!r}: {did_you_mean(unknown, valid)}"
        return None


class Sweep(Record, strict=True):
    """The content of a sweep's file: a named list of load points.

    `blocks` is the default number of blocks (repetitions of all measurements); fewer than six give no confidence
    interval.
    """

    title: str
    question: str
    blocks: Blocks
    study: str | None = None
    disturbance: AnyDisturbance | None = Field(
        default=None, description=f"{DISTURBANCE}; of every point without one of its own"
    )
    itself: bool = Field(
        default=False, description="each variant is compared with itself: the question is by how much it varies"
    )
    traffic: Traffic | None = Field(
        default=None,
        description="a mix of requests in place of every point's page (k6); --traffic makes one of an access log",
    )
    points: list[PointSpec] = Field(min_length=1)
    forms: dict[Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")], SweepForm] = Field(
        default_factory=dict[str, SweepForm],
        exclude=True,
        description="other forms of this sweep, each called FILE-NAME",
    )

    @model_validator(mode="after")
    def _check(self) -> Sweep:
        for spec in self.points:
            disturbance = spec.disturbance or self.disturbance
            if disturbance is not None and (fault := spec.fault_under(disturbance)):
                raise ValueError(f"points.{spec.name}.{fault}")
        some_disturbed = len({spec.disturbance is None and self.disturbance is None for spec in self.points}) > 1
        refuse_broken_rules((some_disturbed, "points: some are disturbed and some are not: write two sweeps"))
        names = [point.name for point in self.load_points]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        faults = ((spec.name, spec.fault) for spec in self.points)
        refuse_broken_rules(
            (bool(duplicates), f"points: two points are called {next(iter(duplicates), None)!r}"),
            *((fault is not None, f"points.{name}.{fault}") for name, fault in faults),
        )
        if self.traffic is not None:
            for spec in self.points:
                if (fault := spec.fault_with_traffic(spec.disturbance or self.disturbance)) is not None:
                    raise ValueError(f"points.{spec.name}.{fault}")
            needed = "needs at least one line: COUNT METHOD hHOST pPATH BYTES"
            refuse_broken_rules((not self.traffic.requests, f"traffic.requests: {needed}"))
        for name, form in self.forms.items():
            if (fault := form.fault([spec.name for spec in self.points])) is not None:
                raise ValueError(f"forms.{name}.{fault}")
        return self

    @property
    def load_points(self) -> list[LoadPoint]:
        """All load points of the sweep, followed by a control run for each different disrupted load.

        A control run is the load without the disruption. Disrupted points with equal loads share one.
        """
        traffic = self.traffic if self.traffic is not None and self.traffic.requests else None
        points = [
            point.model_copy(update={"disturbance": spec.disturbance or self.disturbance}).with_traffic(traffic)
            for spec in self.points
            for point in spec.expand()
        ]
        disturbed = [point for point in points if point.disturbance is not None]
        firsts = list({point.load: point for point in reversed(disturbed)}.values())[::-1]
        names = [CONTROL] if len(firsts) == 1 else [f"{point.name}-{CONTROL}" for point in firsts]
        controls = zip(firsts, names, strict=True)
        return [*points, *(point.model_copy(update={"name": name, "control": True}) for point, name in controls)]


def form_table(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the complete table of one form of a sweep, as if it were read from a separate file.

    A form is a variation of a sweep, such as a shorter one. The sweep's file lists only its changes.

    Args:
        table: The table of the sweep's file, which is already checked.
        name: The name of the form.

    """
    form: Mapping[str, Any] = table["forms"][name]
    points: list[dict[str, Any]] = []
    for point in table["points"]:
        if point["name"] in form.get("points", [point["name"]]):
            changed = {key: value for key, value in point.items() if key not in form.get("without", ())}
            for change in (form.get("each", {}), form.get("point", {}).get(point["name"], {})):
                old, new = changed.get("disturbance", table.get("disturbance", {})), change.get("disturbance")
                changed |= change | ({"disturbance": old | new} if isinstance(new, dict) else {})
            points.append(changed)
    header = {key: form[key] for key in ("title", "question", "blocks") if key in form}
    return {key: value for key, value in table.items() if key != "forms"} | header | {"points": points}


def find_file_of_form(path: Path) -> tuple[Path, str] | None:
    """Return the file that defines a sweep as a form (a variation of the file's own sweep), and the form's name.

    A file defines a form in a table `[forms.NAME]`. For example, `lab/sweeps/okd.toml` has a table `[forms.quick]`. So
    for `lab/sweeps/okd-quick.toml` the result is (`lab/sweeps/okd.toml`, "quick"). It is None if no file has the form.

    Args:
        path: The path that the sweep would have as a separate file.

    """
    parts = path.stem.split("-")
    for cut in reversed(range(1, len(parts))):
        file, form = path.with_name(f"{'-'.join(parts[:cut])}.toml"), "-".join(parts[cut:])
        if form in _form_names(file):
            return file, form
    return None


def sweep_names() -> list[str]:
    """Return the sorted names of all sweeps (lists of loads) in `lab/sweeps/`, including the forms that files define."""
    files = list(FOLDER.glob("*.toml"))
    return sorted(
        [*(path.stem for path in files), *(f"{path.stem}-{form}" for path in files for form in _form_names(path))]
    )


@cache
def _form_names(path: Path) -> tuple[str, ...]:
    """Return the names of the forms in a sweep's file: variations of the sweep, in tables `[forms.NAME]`.

    The result is empty if the file does not exist, cannot be read or is not valid TOML. An invalid file is reported
    elsewhere, when its sweep is read.
    """
    try:
        forms = tomllib.loads(path.read_text("utf-8")).get("forms", {})
    except (OSError, ValueError):
        return ()
    return tuple(forms) if isinstance(forms, dict) else ()
