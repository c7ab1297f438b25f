"""The interface of a load generator (such as wrk or k6), and functions that several generators share.

A generator converts a load (`GeneratorLoad`) to a command line, and the program's unchanged output to a result
(`GeneratorResult`). It depends on no target, variant or cluster, and on no paths except the names of files in its working
directory.

The numbers in an output are checked: counts and seconds must be possible, and percentiles must rise. Otherwise the output is
refused. For example, none of these is a count:

    18446744073709551616, -1, 1,024, NaN
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Annotated, Literal, Protocol
from urllib.parse import urlsplit

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, OutputError, SpokenProtocol, expect, first_broken

MAX_COUNT = 2**53
"""The largest count: up to it JSON, Lua and numpy represent the same number, and no run reaches it."""
PROTOCOL_NAMES = {"h1": "HTTP/1.1", "h2": "HTTP/2.0"}
"""The name of each protocol in programs that are written in Go: k6 and the lab's own client."""
COUNT = r"[0-9]{1,16}"
"""A count in a regular expression; longer digits are no count."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
OutputTime = Annotated[float, Field(ge=0)]
"""The type of a time, in seconds, milliseconds or any other unit of a program."""


class OutputModel(BaseModel):
    """The base class of the pydantic models for the JSON output of a load generator.

    Numbers written as text are refused, and so are NaN and infinity.
    """

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Generator(Protocol):
    """The interface of a load generator (such as wrk or k6), with defaults that its subclasses may override."""

    name: str
    """The name in sweeps and tables: k6, wrk2, wrk, oha, hey, h2load, events, k6-websocket, k6-grpc."""
    binary: str
    """The program's name, which is looked up on PATH and occurs once in `argv`."""
    version_flag: str
    """The option that makes the program print its version."""
    aliases: tuple[str, ...] = ()
    """Other names of the program, tried when `binary` is missing or another program (wrk2 as `wrk`)."""
    models: frozenset[Literal["open", "closed"]]
    """The kinds of load that it makes: open loop, closed loop or both."""
    latency_from: Literal["due", "sent"] = "sent"
    """The moment from which its latency counts: when a request was due, or when it was sent."""
    remedy: str
    """A sentence on how to get it when it is missing."""
    protocols: frozenset[SpokenProtocol] = frozenset({"h1"})
    """The protocols that it can be limited to."""
    own: bool = False
    """Whether it is the lab's own program, which scripts/bring builds when it is first needed."""
    own_backend: bool = False
    """Whether it works only with a special backend, which `lab.experiments.bench` then puts into every variant."""
    stand_ins: tuple[str, ...] = ()
    """The generators that may replace it for open loops, the best first (lab/generators/README.md, "Limits")."""

    def version(self, output: str) -> str | None:
        """Return the version under which results are recorded; None if the output is from another program.

        Usually it is what the program prints. k6 adds a setting that changes its numbers; hey, which prints no version,
        returns `unknown`.

        Args:
            output: What the program printed to stdout and stderr when it was called with its version option.

        """
        ...

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why this load generator cannot make a load exactly as described; None if it can.

        The reason is a sentence. It does not name the file that defines the load; the caller adds that to its error.
        """
        ...

    def calibration_s(self, load: GeneratorLoad) -> float:
        """Return for how many seconds at the start of a run the generator records no latencies.

        For wrk2 that is 10 s, and 5 ms for each connection of a thread. For all other generators it is 0.
        """
        return 0.0

    def ends_on_interrupt(self, load: GeneratorLoad) -> bool:
        """Return whether the generator ends at once on SIGINT, and still reports everything up to that moment."""
        return False

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the scripts that the generator needs in its working directory for a load: file name → text."""
        return {}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which the generator makes a load.

        File names in it are relative to the generator's working directory. The first word is the generator's program, or a
        program that starts it (`env`, `sh`).
        """
        ...

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the output of a finished run, and return the counts and latencies in it.

        A number that the output does not have is never replaced by a zero.

        Args:
            stdout: The standard output, unchanged.
            stderr: The error output, unchanged.
            exit_status: The exit status of the command.
            load: The load that the generator made.

        Raises:
            OutputError: The output is not that of a complete run.

        """
        ...

    def requests(self, stdout: str, stderr: str, load: GeneratorLoad) -> pl.DataFrame:
        """Parse the generator's log of every single request, and return a table with one row per request.

        The table has the columns of `lab.model.requests.REQUESTS_SCHEMA`. Only k6 writes such a log.

        Args:
            stdout: The standard output, unchanged.
            stderr: The error output, unchanged.
            load: The load that the generator made; its `logged` is True.

        Raises:
            OutputError: The log is not complete, or this generator writes none.

        """
        raise OutputError(f"{self.name} does not log every request: k6 does")


def list_destinations(load: GeneratorLoad) -> list[tuple[str, str]]:
    """Return a pair (URL, Host header) for every host that the load requests pages from.

    With TLS and several hosts, each URL contains its host's name, because generators take the SNI from the URL.
    """
    hosts = load.hosts or (load.host,)
    if len(hosts) == 1 or not load.url.startswith("https://"):
        by_host = {host: shard.url for shard in load.shards for host in shard.hosts}
        return [(by_host.get(host, load.url), host) for host in hosts]
    parts = urlsplit(load.url)
    port = f":{parts.port}" if parts.port else ""
    return [(parts._replace(netloc=f"{host}{port}").geturl(), host) for host in hosts]


def header_arguments(load: GeneratorLoad) -> list[str]:
    """Return the command-line arguments for all headers of the load's requests, in the form `-H`, `NAME: VALUE`.

    Most generators take headers in this form.
    """
    return [argument for name, value in load.headers.items() for argument in ("-H", f"{name}: {value}")]


def scheduled_s(load: GeneratorLoad) -> float | None:
    """Return for how many seconds requests fall due in a load at an offered rate; None for a load without a rate."""
    if load.rate_rps is None:
        return None
    return load.duration_s if load.requests is None else load.requests / load.rate_rps


def common_refusal(load: GeneratorLoad) -> str | None:
    """Return the reason why a load is impossible whatever load generator makes it; None if it is possible.

    An option that only one generator supports is refused here, too. That generator therefore calls this function with a
    copy of the load without the option.
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
        (
            load.transfer is not None or load.window_bits is not None,
            "only h2load measures the speed of large transfers, and sets HTTP/2 windows",
        ),
        (load.logged, "only k6 logs every request, which a disturbance needs"),
        (load.traffic is not None, "only k6 makes a mix of requests"),
        (load.messages > 0, "only k6-grpc makes calls whose answers are streams of messages"),
        (
            load.every_s is not None,
            "only the generators events and k6-websocket have a time between two events or messages",
        ),
        (
            not 0 < load.duration_s < inf,
            f"the duration must be a positive number of seconds, got {load.duration_s:g}",
        ),
        (not 0 < rate_rps < inf, f"the rate must be a positive number of requests per second, got {rate_rps:g}"),
        (
            load.requests is not None and load.requests < 1,
            f"the number of requests must be positive, got {load.requests}",
        ),
        (
            load.sni_per_host and not secure,
            f"a name for every host in the TLS handshake needs an https:// URL, got {load.url!r}",
        ),
        (
            not 0 < load.timeout_s < inf,
            f"the timeout must be a positive number of seconds, got {load.timeout_s:g}",
        ),
    )


def one_host_rule(name: str, load: GeneratorLoad) -> tuple[bool, str]:
    """Return the rule for generators that can request only one host: (whether the load breaks the rule, message).

    Args:
        name: The name of the generator, for the message.
        load: The load.

    """
    return len(load.hosts) > 1, f"{name} knows one host only, got {len(load.hosts)}: wrk, wrk2 and k6 take many"


def make_output_error(expected: str, stdout: str, stderr: str, exit_status: int = 0) -> OutputError:
    """Return an error about a generator's output that lacks what was expected.

    The message quotes the end of the output and the first line of stderr. If the output has more than two lines, the
    message also quotes its beginning.

    Args:
        expected: What was expected, in words, such as `exit status 0`.
        stdout: The standard output.
        stderr: The error output.
        exit_status: The exit status of the generator.

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


def expect_output(held: object, expected: str, stdout: str, stderr: str, exit_status: int = 0) -> None:
    """Raise an OutputError about a generator's output if a condition is not met.

    Args:
        held: The condition, any value that can be true or false.
        expected: What was expected, in words, such as `exit status 0`.
        stdout: The standard output.
        stderr: The error output.
        exit_status: The exit status of the generator.

    Raises:
        OutputError: The condition is not met; the message is that of `make_output_error`.

    """
    if not held:
        raise make_output_error(expected, stdout, stderr, exit_status)


def clean_output(stdout: str) -> str:
    """Return the output without what copying a file may add: a byte order mark, and carriage returns at line ends."""
    return stdout.removeprefix("\ufeff").replace("\r\n", "\n")


def sort_rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Sort pairs (probability, latency) by probability, and check that the latencies rise with it.

    Raises:
        OutputError: A higher probability has a shorter latency.

    """
    ordered = sorted(points)
    for (low, fast), (high, slow) in pairwise(ordered):
        expect(fast <= slow, f"expected latencies that rise, got {fast:g} at {low:.4%} and {slow:g} at {high:.4%}")
    return ordered


def error_kind(text: str) -> ErrorKind:
    """Classify a failed request by the error message that the load generator printed for it.

    >>> error_kind("dial tcp 10.0.0.1:80: connect: connection refused")
    'connect'

    Returns:
        `timeout`, `connect`, `write`, `read` or `other`.

    """
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
