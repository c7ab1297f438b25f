"""The mix of requests of a traffic load: what is requested how often, in which order, and after which waits.

    "312 GET h1 p12 4821"   →   312 of the mix's requests are GETs of the twelfth path on the first host, answered by 4,821 bytes

A mix is made from an access log, whose hosts and paths are stored only as numbers. The order of the requests is the same in every
sample. It follows from the seed, and is even: however short a load is, each path has its share of the requests, and each path's
sizes have theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import sqrt
from random import Random
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from lab.base.validation import Record
from lab.model.pages import PAGES

FIXTURE = "traffic"
"""The component of manifests/fixtures with which the backend serves any size."""
MAX_ROUTES = 10
"""The largest number of hosts of a mix, and so of the routes that a variant needs."""
ENDPOINTS = 3
"""The number of the backend's pods under a mix, unless a knob sets it."""
SERVED = "100MB.bin"
"""The page whose end the backend serves as a body of a requested size."""
MAX_BYTES = PAGES[SERVED]
FLV_BYTES = 13
"""The bytes that the backend puts before the end of a file: the header of a Flash video (manifests/fixtures/traffic)."""
ORDER_LENGTH = 10_000
"""The requests after which the order begins anew, at most."""
WAITS_LENGTH = 1000
"""The approximate number of waits after which they begin anew."""
GOLDEN = (sqrt(5) - 1) / 2
"""The step, in a circle of length 1, whose multiples are spread most evenly, however many there are."""

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
METHODS: tuple[Method, ...] = get_args(Method)
Line = Annotated[str, Field(pattern=rf"^[1-9]\d* ({'|'.join(METHODS)}) h([1-9]|{MAX_ROUTES}) p[1-9]\d* \d+$")]


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of request in a mix of requests: how often it is made, its method, host, path and the size of its answer.

    Hosts and paths are numbers from 1.
    """

    count: int
    method: Method
    host: int
    path: int
    size_bytes: int

    @property
    def url_path(self) -> str:
        """The URL's path without its first slash, such as `traffic/p12?start=104852792`; its answer has a body of `size_bytes`.

        The test backend answers with a header of 13 bytes (`FLV_BYTES`) and the end of a large file, from the offset
        `start` in the query. If the body must have 13 bytes or less, the path has a query of that length, which the
        backend sends back.
        """
        if self.size_bytes > FLV_BYTES:
            return f"traffic/p{self.path}?start={MAX_BYTES + FLV_BYTES - self.size_bytes}"
        return f"traffic/p{self.path}" + (f"?{'x' * self.size_bytes}" if self.size_bytes else "")

    @property
    def body_bytes(self) -> int:
        """The number of bytes in the answer's body; 0 for HEAD requests, whose answers have no body."""
        return 0 if self.method == "HEAD" else self.size_bytes


class LogCounts(Record):
    """The counts of the access log from which a mix of requests was made."""

    format: str = Field(description="which of the known formats the log has")
    requests: int = Field(description="the lines that were read")
    unread: int = Field(description="the lines that could not be read, or have no request with a known method")
    first_unread: int = Field(description="the number of the first of them, from 1; 0 = none")
    hosts: int = Field(description="the different hosts, or what the log has in their place")
    hosts_are: str = Field(
        description="what counts as a host: `hosts`, `upstreams`, `routers`, `backends` or `first path segments`"
    )
    paths: int = Field(description="the different paths, without their queries")
    cut: int = Field(description="the answers that were longer than the largest that the backend serves")
    span_s: float = Field(description="the time between the first request and the last")
    rate_rps: float = Field(description="the mean rate over this time")


class Traffic(Record):
    """A mix of requests: the kinds of requests with their counts, the waits between them, and the seed of their order.

    Mixes are compared by their digests. So a sample needs to store only the digest.
    """

    requests: tuple[Line, ...] = Field(
        default=(), description="the kinds of requests, each as `COUNT METHOD hHOST pPATH BYTES`"
    )
    gaps: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(), description="quantiles of the time between two requests, over its mean; empty = always the same"
    )
    seed: int = Field(default=0, ge=0, description="seed of the order and of the waits")
    log: LogCounts | None = Field(default=None, description="the access log's counts; null = of no log")
    key: str = Field(default="", description="the digest, where nothing else is stored")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traffic) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        return f"mix of requests {self.digest[:8]}"

    @cached_property
    def digest(self) -> str:
        """The digest of requests, waits and seed: 16 hexadecimal digits that identify this mix."""
        content = repr((self.requests, self.gaps, self.seed))
        return self.key or hashlib.sha256(content.encode()).hexdigest()[:16]

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The kinds of requests, parsed from lines such as `312 GET h1 p12 4821`."""
        fields = (line.split() for line in self.requests)
        return tuple(
            Shape(int(count), cast("Method", method), int(host[1:]), int(path[1:]), int(size))
            for count, method, host, path, size in fields
        )

    @property
    def routes(self) -> int:
        """The number of hosts that a load of this mix needs."""
        return max(shape.host for shape in self.shapes)

    @property
    def page(self) -> str:
        """The URL's path of the most frequent GET request whose answer has a body; `1kB.bin` if no GET has one.

        The canary, a checked request before and after a load, requests this path.
        """
        shapes = [shape for shape in self.shapes if shape.method == "GET" and shape.size_bytes]
        return max(shapes, key=lambda shape: shape.count).url_path if shapes else "1kB.bin"

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The order in which a load makes the requests, as indices into `shapes`; after the last one it begins anew.

        Each kind of request occurs in proportion to its count, in every part of the order, more evenly than by chance.
        To this end, the kinds are listed by host, path and size, and the order goes around this list in steps of the
        golden ratio (the additive recurrence of Niederreiter, Random Number Generation and Quasi-Monte Carlo Methods,
        1992, theorem 3.3).
        """
        random, shapes = Random(self.seed), self.shapes
        lots = {place: random.random() for place in sorted({(shape.host, shape.path) for shape in shapes})}
        sort_keys = [(shape.host, lots[shape.host, shape.path], shape.size_bytes) for shape in shapes]
        listed = sorted(range(len(shapes)), key=lambda index: sort_keys[index])
        counts = list(accumulate(shapes[index].count for index in listed))
        length, start = min(counts[-1], ORDER_LENGTH), random.random()
        ends = [round(count * length / counts[-1]) for count in counts]
        entries = [
            index for index, first, end in zip(listed, [0, *ends], ends, strict=False) for _ in range(end - first)
        ]
        turns = sorted(range(length), key=lambda turn: (start + turn * GOLDEN) % 1)
        return tuple(index for _, index in sorted(zip(turns, entries, strict=True)))

    @cached_property
    def _sums(self) -> Sequence[int]:
        return list(accumulate((self.shapes[index].body_bytes for index in self.order), initial=0))

    def mean_bytes(self, requests: int) -> int:
        """Return the mean size, in bytes, of the answers' bodies to the first requests of a load with this mix.

        Args:
            requests: The number of these requests.

        """
        rounds, rest = divmod(max(1, requests), len(self.order))
        return round((rounds * self._sums[-1] + self._sums[rest]) / max(1, requests))

    def waits(self, block: int) -> list[float]:
        """Return the delay of each request against an evenly spaced schedule, as a multiple of the mean gap between requests.

        A block is a number of successive requests. It takes as long as in the even schedule. Within it, the gaps are
        drawn at random from those of the access log.

        Args:
            block: The number of requests in a block. Delays do not add up beyond a block, so a larger block allows
                longer delays.

        Returns:
            The delays, the smallest of them 0. Empty if the log's gaps are all equal, or if a block has fewer than two
            requests.

        """
        if len(set(self.gaps)) < 2 or block < 2:
            return []
        random, late = Random(self.seed), list[float]()
        for _ in range(max(1, WAITS_LENGTH // block)):
            gaps = [random.choice(self.gaps) for _ in range(block)]
            scale = block / sum(gaps) if any(gaps) else 0.0
            late += [due * scale - number for number, due in enumerate(accumulate(gaps), 1)]
        return [round(value - min(late), 3) for value in late]


def _read_key(value: Any) -> Any:
    return {"key": value} if isinstance(value, str) else value


PointTraffic = Annotated[
    Traffic,
    BeforeValidator(_read_key),
    PlainSerializer(lambda traffic: traffic.digest, return_type=str),
    WithJsonSchema({"type": "string"}),
]
"""The mix of a load point, which is stored as its digest: run.json has the mix itself once."""
