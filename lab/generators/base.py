"""The interface of a load generator, and what generators share: checks of a load, addresses, and reading of outputs.

A generator turns a `GeneratorLoad` into a command line, and the program's verbatim output into a `GeneratorResult`. It knows no paths
except the names of the files that it needs in its scratch folder, no target, no variant, no cluster.

A program's counts and seconds are accepted only if they are possible, and its percentiles only if they rise. Otherwise the output is refused:

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

from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, OutputError, SpokenProtocol, expect, first_broken

MAX_COUNT = 2**53
"""The largest count: up to it JSON, Lua and numpy represent the same number, and no run reaches it."""
COUNT = r"[0-9]{1,16}"
"""A count in a regular expression; longer digits are no count."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
OutputTime = Annotated[float, Field(ge=0)]
"""The type of a time, in seconds, milliseconds or any other unit of a program."""


class OutputModel(BaseModel):
    """The base of models for a program's JSON, or the part of it that is read.

    Text is no number, and neither are NaN and infinity.
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Generator(Protocol):
    """A load generator; subclasses replace the defaults that do not fit."""

    name: str
    """The name in sweeps and tables: k6, wrk2, wrk, oha, hey, h2load."""
    binary: str
    """The program's name, which is looked up on PATH and occurs once in `argv`."""
    version_flag: str
    """The option that makes the program print its version."""
    aliases: tuple[str, ...] = ()
    """Other names of the program, tried when `binary` is missing or another program (wrk2 as `wrk`)."""
    models: frozenset[Literal["open", "closed"]]
    """The kinds of load that it makes: open loop, closed loop or both."""
    latency_from: Literal["due", "sent"]
    """The moment from which its latency counts: when a request was due, or when it was sent."""
    remedy: str
    """A sentence on how to get it when it is missing."""
    protocols: frozenset[SpokenProtocol] = frozenset({"h1"})
    """The protocols that it can be limited to."""
    logs_requests: bool = False
    """Whether it can report every request (`GeneratorLoad.logged`)."""
    own: bool = False
    """Whether it is the lab's own program, which scripts/bring builds when it is first needed."""
    own_backend: bool = False
    """Whether it speaks to a backend of its own alone, which `lab.experiments.bench` lays over every variant."""
    stand_ins: tuple[str, ...] = ()
    """The generators that may replace it for open loops, the best first (lab/generators/README.md, "Limits")."""

    def version(self, output: str) -> str | None:
        """Return the version in the output (stdout and stderr) of `version_flag`, or None for another program."""
        ...

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return why this generator cannot make a load exactly as described, as a sentence; None if it can.

        The sentence does not say where the load is defined; the caller's error adds that.
        """
        ...

    def calibration_s(self, load: GeneratorLoad) -> float:
        """Return the seconds at the start of a run that the generator's latencies leave out.

        For wrk2 they are 10 s + 5 ms per connection and thread.
        """
        return 0.0

    def ends_on_interrupt(self, load: GeneratorLoad) -> bool:
        """Return whether SIGINT ends this load at once, with a full report of everything up to then."""
        return False

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the text of each script that the generator needs in its working directory, by file name."""
        return {}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command, with file names relative to the working directory.

        `binary` is first in it, or follows a shell and its script.
        """
        ...

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Return the numbers of the verbatim output, never invented zeros.

        Raises:
            OutputError: The output is not that of a complete run.

        """
        ...

    def requests(self, stdout: str, stderr: str, load: GeneratorLoad) -> pl.DataFrame:
        """Return every request of a `logged` load, with the columns of `lab.model.requests.REQUESTS_SCHEMA`.

        Raises:
            OutputError: The log is not complete, or the generator has none.

        """
        raise OutputError(f"{self.name} does not tell of every request: k6 does")


def list_destinations(load: GeneratorLoad) -> list[tuple[str, str]]:
    """Return the URL and the Host header of every host of the load.

    With TLS the URL names the host, as the handshake's SNI is taken from it.
    """
    hosts = load.hosts or (load.host,)
    if len(hosts) == 1 or not load.url.startswith("https://"):
        by_host = {host: shard.url for shard in load.shards for host in shard.hosts}
        return [(by_host.get(host, load.url), host) for host in hosts]
    parts = urlsplit(load.url)
    port = f":{parts.port}" if parts.port else ""
    return [(parts._replace(netloc=f"{host}{port}").geturl(), host) for host in hosts]


def header_arguments(load: GeneratorLoad) -> list[str]:
    """Return `-H` options for every header of the load's requests, in the form of most generators."""
    return [argument for name, value in load.headers.items() for argument in ("-H", f"{name}: {value}")]


def scheduled_s(load: GeneratorLoad) -> float | None:
    """Return the seconds in which requests of an open loop fall due; None for a closed one, which has no schedule."""
    if load.rate_rps is None:
        return None
    return load.duration_s if load.requests is None else load.requests / load.rate_rps


def common_refusal(load: GeneratorLoad) -> str | None:
    """Return why no generator can make this load, or None.

    Options that a single generator supports are refused here, too; that generator passes the load without them.
    """
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
        (bool(load.answers), "only k6 and wrk can be given which answers are expected"),
        (
            load.protocol == "h2" and not secure,
            f"HTTP/2 is spoken over TLS here, got {load.url!r}: ask for routes with TLS",
        ),
        (load.streams != 1, f"only h2load has several requests at once on a connection, got {load.streams}"),
        (load.logged, "only k6 logs every request, which a disturbance needs"),
        (load.traffic is not None, "only k6 makes a mix of requests"),
        (
            load.every_s is not None,
            "only the generators events and k6-websocket have a time between two events or messages",
        ),
        (
            not _is_positive(load.duration_s),
            f"the duration must be a positive number of seconds, got {load.duration_s:g}",
        ),
        (not _is_positive(rate_rps), f"the rate must be a positive number of requests per second, got {rate_rps:g}"),
        (
            load.requests is not None and load.requests < 1,
            f"the number of requests must be positive, got {load.requests}",
        ),
        (
            load.sni_per_host and not secure,
            f"a name for every host in the TLS handshake needs an https:// URL, got {load.url!r}",
        ),
        (
            not _is_positive(load.timeout_s),
            f"the timeout must be a positive number of seconds, got {load.timeout_s:g}",
        ),
    )


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def one_host_rule(name: str, load: GeneratorLoad) -> tuple[bool, str]:
    """Return the rule for generators that know one host only: whether it is broken, and the message."""
    return len(load.hosts) > 1, f"{name} knows one host only, got {len(load.hosts)}: wrk, wrk2 and k6 take many"


def make_output_error(expected: str, stdout: str, stderr: str, exit_status: int = 0) -> OutputError:
    """Return the OutputError for output without what was expected.

    The message quotes the end of the output, its beginning if it has several lines, and the first line of stderr.
    """
    end = " ".join(stdout[-1000:].strip().splitlines()[-2:])[-160:]
    message = next((line.strip() for line in stderr.splitlines() if line.strip()), "")[:160]
    parts = [f"exit status {exit_status}"] if exit_status else []
    parts.append(f"output ends {end!r}" if end else "no output")
    if len(lines := stdout.strip().splitlines()) > 2:
        parts.append(f"begins {lines[0][:80]!r}")
    if message:
        parts.append(f"stderr begins {message!r}")
    return OutputError(f"expected {expected}: {'; '.join(parts)}")


def clean_output(stdout: str) -> str:
    """Return the output without what copying a file may add: a byte order mark, and carriage returns at line ends."""
    return stdout.removeprefix("\ufeff").replace("\r\n", "\n")


def sort_rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return quantiles (probability, latency) in ascending order.

    Raises:
        OutputError: A higher quantile has a shorter latency.

    """
    ordered = sorted(points)
    for (low, fast), (high, slow) in pairwise(ordered):
        expect(fast <= slow, f"expected latencies that rise, got {fast:g} at {low:.4%} and {slow:g} at {high:.4%}")
    return ordered


def error_kind(text: str) -> ErrorKind:
    """Return the kind of a failed request from a generator's message (hey and oha print those of Go and hyper)."""
    message = re.sub(r"https?:\S+", "", text).lower()  # a page may be called /timeout
    kinds: tuple[tuple[ErrorKind, tuple[str, ...]], ...] = (
        ("timeout", ("timeout", "deadline exceeded", "timed out")),
        ("connect", ("dial ", "connect: ", "connection refused", "tcp connect", "client error (connect)", "handshake")),
        ("write", ("broken pipe", "write: ", "write tcp")),
        ("read", ("eof", "reset by peer", "connection closed", "read: ", "read tcp", "incomplete")),
    )
    for kind, marks in kinds:
        if any(mark in message for mark in marks):
            return kind
    return "other"
