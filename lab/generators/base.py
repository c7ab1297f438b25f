"""What a load generator can do, and what the generators share: whether a load is one, where it goes, what output says.

A generator turns a `Load` into an argv and the verbatim output into a `Result`. It knows no paths
beyond the file names it asks for in its scratch folder, no target, no variant, no cluster.

Of what a program says counts and seconds are believed that can be, and percentiles that rise; else its output is no output:

    18446744073709551616, -1, 1,024, NaN      →  none of these is a count
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Literal, Protocol
from urllib.parse import urlsplit

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from lab.model.load import ErrorKind, Load, OutputError, Result, Spoken, expect, first_broken

MOST = 2**53
"""Up to here a count is the same number as JSON, Lua and numpy have it; no run counts so far."""
COUNT = r"[0-9]{1,16}"
"""A count in a regular expression. Longer ones are none."""

Count = Annotated[int, Field(ge=0, le=MOST)]
Seconds = Annotated[float, Field(ge=0)]
"""Or milliseconds: whatever unit a program has."""


class Told(BaseModel):
    """A program's JSON, or the part of it that is read. Text is no number, and neither are NaN and infinity."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Generator(Protocol):
    """One load generator; its class says what is not as here."""

    name: str
    """As in sweeps and tables: k6, wrk2, wrk, oha, hey, h2load."""
    binary: str
    """What is looked for on PATH, and once in its argv."""
    version_flag: str
    """What it is started with to tell its version."""
    aliases: tuple[str, ...] = ()
    """Other names it may be installed under, tried when `binary` is missing or another program (wrk2 as `wrk`)."""
    models: frozenset[Literal["open", "closed"]]
    latency_from: Literal["due", "sent"]
    remedy: str
    """How to get it when it is missing."""
    protocols: frozenset[Spoken] = frozenset({"h1"})
    """What it can be made to speak, and then speaks nothing else."""
    logs_requests: bool = False
    """Whether it can tell every request (`Load.logged`)."""
    stand_ins: tuple[str, ...] = ()
    """Generators that may take its open-loop loads when it is not installed, the best first (lab/generators/README.md, "Limits")."""

    def version(self, output: str) -> str | None:
        """The version in the output (stdout and stderr) of `version_flag`, or None if that is another program."""
        ...

    def refusal(self, load: Load) -> str | None:
        """Why this generator cannot make this load truthfully (place-less sentence), or None."""
        ...

    def calibration_s(self, load: Load) -> float:
        """Seconds at the start of the run that its latencies leave out (wrk2: 10 s + 5 ms per connection and thread)."""
        return 0.0

    def ends_on_interrupt(self, load: Load) -> bool:
        """Whether SIGINT ends this load at once and all that came until then is told, as if its time were over."""
        return False

    def files(self, load: Load) -> Mapping[str, str]:
        """Scripts it needs, file name → text, laid into the working directory before it starts."""
        return {}

    def argv(self, load: Load) -> list[str]:
        """The command, `binary` first in it or after a shell and its script; file names relative to the working directory."""
        ...

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        """Numbers from the verbatim output. Raises OutputError; never returns made-up zeros."""
        ...

    def requests(self, stdout: str, stderr: str, load: Load) -> pl.DataFrame:
        """Every request of a `logged` load, the columns of `lab.model.requests.REQUESTS_SCHEMA`. Raises OutputError."""
        raise OutputError(f"{self.name} does not tell of every request: k6 does")


def destinations(load: Load) -> list[tuple[str, str]]:
    """(URL, Host header) of every host of the load. Under TLS the URL names the host, as the handshake's SNI comes from it."""
    hosts = load.hosts or (load.host,)
    if len(hosts) == 1 or not load.url.startswith("https://"):
        by_host = {host: shard.url for shard in load.shards for host in shard.hosts}
        return [(by_host.get(host, load.url), host) for host in hosts]
    parts = urlsplit(load.url)
    port = f":{parts.port}" if parts.port else ""
    return [(parts._replace(netloc=f"{host}{port}").geturl(), host) for host in hosts]


def header_arguments(load: Load) -> list[str]:
    """`-H` for every header of the load's requests, as most of them take it."""
    return [word for name, value in load.headers.items() for word in ("-H", f"{name}: {value}")]


def scheduled_s(load: Load) -> float | None:
    """How long requests fall due under an open loop (seconds); None for a closed one, which ends when it ends."""
    if load.rate_rps is None:
        return None
    return load.duration_s if load.requests is None else load.requests / load.rate_rps


def common_refusal(load: Load) -> str | None:
    """What no generator can do: loads that are not a load."""
    secure, rate_rps = load.url.startswith("https://"), 1.0 if load.rate_rps is None else load.rate_rps
    return first_broken(
        (
            not (secure or load.url.startswith("http://")),
            f"the URL must start with http:// or https://, got {load.url!r}",
        ),
        (
            load.connections < 1 or load.threads < 1,
            f"needs at least one connection and one thread, got {load.connections} and {load.threads}",
        ),
        (load.generators != 1, f"only k6 is run as several generators at once, got {load.generators}"),
        (bool(load.answers), "only k6 and wrk are told which answers are expected"),
        (
            load.protocol == "h2" and not secure,
            f"HTTP/2 is spoken over TLS here, got {load.url!r}: ask for routes with TLS",
        ),
        (load.streams != 1, f"only h2load has several requests at once on a connection, got {load.streams}"),
        (load.logged, "only k6 tells of every request, which a disturbance needs"),
        (
            not _positive(load.duration_s),
            f"the duration must be a positive number of seconds, got {load.duration_s:g}",
        ),
        (not _positive(rate_rps), f"the rate must be a positive number of requests per second, got {rate_rps:g}"),
        (
            load.requests is not None and load.requests < 1,
            f"the number of requests must be positive, got {load.requests}",
        ),
        (
            load.sni_per_host and not secure,
            f"a name for every host in the TLS handshake needs an https:// URL, got {load.url!r}",
        ),
        (not _positive(load.timeout_s), f"the timeout must be a positive number of seconds, got {load.timeout_s:g}"),
    )


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def one_host_rule(name: str, load: Load) -> tuple[bool, str]:
    """For generators that cannot spread requests."""
    return len(load.hosts) > 1, f"{name} knows one host only, got {len(load.hosts)}: wrk, wrk2 and k6 take many"


def unreadable(expected: str, stdout: str, stderr: str, exit_status: int = 0) -> OutputError:
    """The OutputError for output that lacks what was expected: quotes how it ended and, of several lines, began (and stderr's first line)."""
    ended = " ".join(stdout[-1000:].strip().splitlines()[-2:])[-160:]
    said = next((line.strip() for line in stderr.splitlines() if line.strip()), "")[:160]
    parts = [f"exit status {exit_status}"] if exit_status else []
    parts.append(f"output ends {ended!r}" if ended else "no output")
    if len(lines := stdout.strip().splitlines()) > 2:
        parts.append(f"begins {lines[0][:80]!r}")
    if said:
        parts.append(f"stderr begins {said!r}")
    return OutputError(f"expected {expected}: {'; '.join(parts)}")


def plain(stdout: str) -> str:
    """Without what a file that was carried about may have got: a mark at its beginning, carriage returns at its lines' ends."""
    return stdout.removeprefix("\ufeff").replace("\r\n", "\n")


def rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Quantiles (probability, latency) in their order. OutputError where a higher one is the shorter latency."""
    ordered = sorted(points)
    for (low, below), (high, above) in pairwise(ordered):
        expect(below <= above, f"expected latencies that rise, got {below:g} at {low:.4%} and {above:g} at {high:.4%}")
    return ordered


def error_kind(text: str) -> ErrorKind:
    """Kind of a failed request from a generator's message (hey and oha print what Go and hyper say)."""
    said = re.sub(r"https?:\S+", "", text).lower()  # a page may be called /timeout
    kinds: tuple[tuple[ErrorKind, tuple[str, ...]], ...] = (
        ("timeout", ("timeout", "deadline exceeded", "timed out")),
        ("connect", ("dial ", "connect: ", "connection refused", "tcp connect", "client error (connect)", "handshake")),
        ("write", ("broken pipe", "write: ", "write tcp")),
        ("read", ("eof", "reset by peer", "connection closed", "read: ", "read tcp", "incomplete")),
    )
    for kind, marks in kinds:
        if any(mark in said for mark in marks):
            return kind
    return "other"
