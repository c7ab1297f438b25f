"""The load generator wrk: a closed loop with latency counted from when a request was sent.

A line of the block that the Lua `done` hook prints:

    4 3          →  three requests took 4 µs longer than those of the line before

Outputs that were recorded until 23 November 2026 have the latencies themselves, under `LAB latency`. Compressed, they have at
least twice the bytes. Outputs of generators that were paused in between (in pairs) have latencies until 26 November 2026; these
are nine tenths of the bytes of such an output.

This module relies on these facts about wrk (source of 4.1.0, and tried):

- wrk adds invented counts to its latencies before it prints them (`stats_correct`). For every latency beyond twice the mean
  interval, it adds the shorter latencies that a fixed schedule would have seen. The sums are integers and the interval is
  known, so they are subtracted again. The remainder must add up to the number of responses, else the output is refused.
- `--timeout` stops nothing. Responses after the timeout are left out of the latencies and counted as `timeout`. A connection
  that never answers is not counted anywhere.
- `status` counts 400 and above. To see redirects, a `response` hook would have to copy every header and body. So a redirect is
  detected only by the checks of bytes per response and of the body.
- Latency does not include the time to connect. Each thread gets connections/threads connections, and the remainder is dropped.
  Durations are whole seconds. Bytes are counted without TLS, as they came: compressed, with chunk sizes.
- It calls a script's `request` for every request, and sends the returned text. To return prepared texts has no measurable cost
  (100 hosts against one: 5.8 and 6.0 µs of CPU per request).
- SNI and address come from the URL, one for each process. Several processes are needed if every host needs its own TLS name, or
  if several proxies share the hosts (each process then requests the hosts of one proxy). A shell starts these processes, each
  with one thread. It releases them together when all are ready (a hundred of them need a second of CPU time in total). Then it
  prints their outputs one after the other, after `LAB processes 2`.
- A connection that closes keeps its SSL object, so TLS sessions are resumed from its second handshake on (HAProxy counted 20
  full handshakes and 12,401 resumed). No option turns that off.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import numpy as np

from lab.generators.base import (
    COUNT,
    Generator,
    clean_output,
    common_refusal,
    expect_output,
    header_arguments,
    list_destinations,
)
from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, expect, first_broken
from lab.stats.histogram import UNIT_S, Histogram, Ints

COUNTS = """\
-- Prints wrk's exact counts.
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("\\nLAB summary %.0f %.0f %.0f\\n", summary.duration, summary.requests, summary.bytes))
  io.write(string.format("LAB errors %.0f %.0f %.0f %.0f %.0f\\n", e.connect, e.read, e.write, e.status, e.timeout))
"""
STEPS = """\
  -- One line for every latency that occurred: by how many µs it is above the last one, and its count.
  local lines = #latency
  io.write(string.format("LAB steps %d\\n", lines))
  local last = 0
  local function say(value, count)
    io.write(string.format("%.0f %.0f\\n", value - last, count))
    last = value
  end
  -- latency(i) walks the table from its start for every i, which takes minutes for slow answers: read the
  -- table itself where LuaJIT lets us and it is what we think it is.
  local counts
  local ok, ffi = pcall(require, "ffi")
  if ok and lines > 0 then
    ffi.cdef("typedef struct { uint64_t count, limit, min, max; uint64_t data[]; } lab_stats;")
    local stats = ffi.cast("lab_stats **", latency)[0]
    if tonumber(stats.min) == latency.min and tonumber(stats.max) == latency.max then counts = stats.data end
  end
  if counts then
    for value = latency.min, latency.max do
      local count = tonumber(counts[value])
      if count > 0 then say(value, count) end
    end
  else
    for i = 1, lines do say(latency(i)) end
  end
"""
END = """\
  io.write("LAB end\\n")
end
"""
PER_HOST = "per-host.sh"
SHELL = """\
# Starts the command that its arguments are once for every line of `destinations` (URL, host), lets all go at once, and
# prints their outputs one after the other. Fails with the status of one that failed.
rm -f go ready
mkfifo go ready
exec 3<>go 4<>ready
number=0 started= status=0
while read -r url host; do
  number=$((number + 1))
  {
    exec 3>&-
    "$@" -H "Host: $host" "$url" >"$number.out" 2>"$number.err" </dev/null
    status=$?
    echo >&4 # one that failed before it was ready keeps nobody waiting
    exit "$status"
  } &
  started="$started $number:$!"
done <destinations
waiting=$number
while [ "$waiting" -gt 0 ]; do
  read -r _ <&4
  waiting=$((waiting - 1))
done
exec 3>&-
echo "LAB processes $number"
for one in $started; do
  wait "${one#*:}" || status=$?
  cat "${one%:*}.out"
  cat "${one%:*}.err" >&2
done
exit "$status"
"""
TOGETHER = """\
-- Called when all is set up but the connections: says so, and waits until nobody holds `go` open for writing.
function setup(thread)
  local ready, go = io.open("ready", "w"), io.open("go")
  ready:write("\\n")
  ready:close()
  go:read("*a")
  go:close()
end
"""
HOSTS = """\
local requests, turn = {}, 0
function init(args)
  for i, host in ipairs(@HOSTS@) do
    wrk.headers["Host"] = host
    requests[i] = wrk.format()
  end
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
"""
ERROR = 400
"""The lowest status that it counts as an error, even if it was expected; the lab's canary checks the exact status."""
BLOCK = re.compile(
    rf"^LAB summary ({COUNT}) ({COUNT}) ({COUNT})\nLAB errors ({COUNT}) ({COUNT}) ({COUNT}) ({COUNT}) ({COUNT})\n"
    rf"(?:LAB (latency|steps) ({COUNT})\n((?:{COUNT} {COUNT}\n)*))?LAB end$",
    re.MULTILINE,
)
NO_LATENCIES = np.zeros((0, 2), dtype=np.int64)
"""An empty table of latencies."""
SPREAD = 0.8
"""The smallest ratio of the shortest to the longest run of several processes: below it they were not one load."""


class Wrk(Generator):
    """The load generator wrk, which makes closed loops only (loads without an offered rate)."""

    name = "wrk"
    binary = "wrk"
    models = frozenset({"closed"})
    version_flag = "-v"
    remedy = "apt-get install wrk, or start the lab with scripts/shell"

    def version(self, output: str) -> str | None:
        """Return wrk's version from its output; None if another program (such as wrk2) printed the output."""
        match = re.search(r"^wrk (\S+) \[\w+\] Copyright", output, re.MULTILINE)
        return match[1] if match and "--rate" not in output else None  # wrk2 calls itself wrk, too

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why wrk cannot make this load; None if it can."""
        many = count_processes(load)
        return common_refusal(replace(load, answers=())) or first_broken(
            (load.rate_rps is not None, "wrk has no rate: it is closed loop"),
            (load.requests is not None, "wrk runs for a time, not for a number of requests"),
            (
                load.sni_per_host and bool(load.shards),
                "one wrk for each host's name in the handshake, and one for each proxy that shares the hosts: not both",
            ),
            (
                load.connections % many > 0,
                f"{load.connections} connections are not a multiple of {many} {'proxies' if load.shards else 'hosts'},"
                " one wrk for each",
            ),
            *list_wrk_rules(self.name, load),
        )

    def ends_on_interrupt(self, load: GeneratorLoad) -> bool:
        """Return whether wrk ends at once on SIGINT, and still reports everything up to that moment.

        That is so if a single wrk process makes the load.
        """
        return count_processes(load) == 1

    def files(self, load: GeneratorLoad) -> Mapping[str, str]:
        """Return the files that wrk needs for a load: file name → text.

        One file is the Lua script `wrk.lua`. wrk requests a single URL, so a load on several proxies or TLS names needs a
        wrk process for each. Such a load has two more files: a shell script that starts all processes and lets them begin
        at once, and `destinations`, which has a line `URL HOST` for each process.
        """
        script = COUNTS + (STEPS if load.timed else "") + END
        if count_processes(load) == 1:
            return {"wrk.lua": script + make_turns_script(load)}
        turns = make_turns_script(load) if load.shards else ""
        addresses = [(shard.url, shard.hosts[0]) for shard in load.shards] or list_destinations(load)
        destinations = "".join(f"{url} {host}\n" for url, host in addresses)
        return {"wrk.lua": script + TOGETHER + turns, PER_HOST: SHELL, "destinations": destinations}

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which wrk makes this load.

        If the load needs several wrk processes, the command is the shell script that starts them.
        """
        if (count := count_processes(load)) > 1:
            part = replace(load, host="", threads=1, connections=load.connections // count)
            return ["sh", PER_HOST, self.binary, *common_arguments(part), "-s", "wrk.lua"]
        return [self.binary, *common_arguments(load), "-s", "wrk.lua", load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse the counts and latencies that the lab's Lua script printed, summed over all wrk processes.

        Raises:
            OutputError: wrk failed, no request was answered in time, or the numbers contradict each other.

        """
        stdout = clean_output(stdout)
        blocks, count = read_blocks(stdout, load.timed), processes(stdout)
        expected = "the block of counts up to 'LAB end'" + (f" of each of {count} processes" if count > 1 else "")
        expect_output(exit_status == 0 and len(blocks) == count, expected, stdout, stderr, exit_status)
        errors = sum((Counter(block.errors) for block in blocks), Counter[ErrorKind]())
        answered = sum(block.answered for block in blocks)
        expect(answered > 0, f"no request was answered within {load.timeout_s:g} s: {dict(errors)}")
        if load.answers and max(load.answers) >= ERROR:
            errors["status"] = 0 if min(load.answers) < ERROR else answered - errors["status"]
        durations_s = [block.duration_us * UNIT_S for block in blocks]
        shortest_s, duration_s = min(durations_s), max(durations_s)
        expect(
            shortest_s >= SPREAD * duration_s,
            f"expected processes that ran together, they took {shortest_s:.1f} to {duration_s:.1f} s",
        )
        timed_blocks = blocks if load.timed else []
        tables = [block.measured(load.connections // count, load.timeout_s) for block in timed_blocks]
        return GeneratorResult(
            requests=answered,
            duration_s=duration_s,
            latency=histogram_of(np.concatenate([NO_LATENCIES, *tables])),
            recorded_s=duration_s if load.timed else 0.0,
            timed=load.timed,
            errors=errors,
            size_bytes=sum(block.size_bytes for block in blocks),
            notes=(
                *connect_note(load),
                *((f"{count} wrk processes, one for each {'proxy' if load.shards else 'host'}",) if count > 1 else ()),
            ),
        )


@dataclass(frozen=True, slots=True)
class WrkBlock:
    """The counts and latencies of one wrk or wrk2 process, as the lab's Lua script prints them at the end of the run.

    Attributes:
        duration_us: The length of the run in µs.
        complete: The number of responses, including those after the timeout.
        size_bytes: The number of bytes read.
        errors: The number of errors of each kind.
        announced: The number of rows of `table` that the script announced before it printed them.
        table: The latencies as rows (latency in µs, number of responses), an int64 array of shape (n, 2).

    """

    duration_us: int
    complete: int
    size_bytes: int
    errors: Mapping[ErrorKind, int]
    announced: int
    table: Ints

    @property
    def answered(self) -> int:
        """The number of responses that one process received within the timeout."""
        return self.complete - self.errors.get("timeout", 0)

    def measured(self, connections: int, timeout_s: float) -> Ints:
        """Return the latencies of one wrk process, without those that wrk invented (see `remove_corrections`).

        Responses after the timeout are not included.

        Args:
            connections: The number of connections of the process.
            timeout_s: The timeout of the load in seconds.

        Returns:
            Rows (latency in µs, number of responses), shape (n, 2).

        Raises:
            OutputError: Rows are missing, or the counts do not add up to the number of responses.

        """
        expect(
            len(self.table) == self.announced, f"expected {self.announced} lines of latencies, got {len(self.table)}"
        )
        values_us = self.table[:, 0]
        expect(
            ((values_us >= 0) & (values_us <= math.ceil(timeout_s) / UNIT_S)).all(),
            f"expected latencies up to the timeout, {timeout_s:g} s, got {values_us.max(initial=0)} µs",
        )
        interval_us = self.duration_us // max(1, self.complete // max(1, connections))
        return remove_corrections(self.table, self.answered, interval_us)


def read_blocks(stdout: str, timed: bool = True) -> list[WrkBlock]:
    """Parse the counts and latencies that the lab's Lua script printed, as one block of output for each wrk process.

    Args:
        stdout: The standard output of wrk or wrk2.
        timed: If True, blocks without latencies are left out.

    """
    return [_parse_block(match) for match in BLOCK.finditer(stdout) if match[9] or not timed]


def _parse_block(match: re.Match[str]) -> WrkBlock:
    duration_us, complete, size_bytes, connect, read, write, status, timeout = map(int, match.groups()[:8])
    kinds: tuple[ErrorKind, ...] = ("connect", "read", "write", "status", "timeout")
    counts = zip(kinds, (connect, read, write, status, timeout), strict=True)
    errors: dict[ErrorKind, int] = {kind: count for kind, count in counts if count}
    table = np.array((match[11] or "").split(), dtype=np.int64).reshape(-1, 2)
    if match[9] == "steps":
        table[:, 0] = np.cumsum(table[:, 0])
    return WrkBlock(duration_us, complete, size_bytes, errors, int(match[10] or 0), table)


def histogram_of(table: Ints) -> Histogram:
    """Return a latency histogram from rows (latency in µs, number of responses), an array of shape (n, 2)."""
    return Histogram.of_counts(table * np.array([UNIT_S, 1.0]), "exact")


def remove_corrections(table: Ints, answered: int, interval_us: int) -> Ints:
    """Return the latencies that wrk really measured, without those that it invented.

    wrk adds latencies that were never measured (`stats_correct` in its source). If a latency n is at least twice the interval
    between two requests, wrk also counts n - interval, n - 2 × interval, … as long as the result is above the interval. Each
    such addition comes from a longer latency. So this function goes from the longest latency down, and subtracts the additions.

    Args:
        table: Rows (latency in µs, count) as wrk printed them, shape (n, 2).
        answered: The number of responses, which the counts must add up to once the additions are removed.
        interval_us: The mean time in µs between two requests of a connection.

    Returns:
        The corrected rows, in the form of `table`.

    Raises:
        OutputError: The corrected counts do not add up to `answered`, or one is negative.

    """
    if int(table[:, 1].sum()) == answered:
        return table  # no count was invented (or this wrk does not do it)
    expect(interval_us > 0 and table.size > 0, f"expected latencies of {answered} responses, got {table[:, 1].sum()}")
    counts = np.zeros(int(table[:, 0].max()) + 1, dtype=np.int64)
    counts[table[:, 0]] = table[:, 1]
    for value in np.sort(table[table[:, 0] >= 2 * interval_us, 0])[::-1].tolist():
        counts[value - interval_us : interval_us : -interval_us] -= counts[value]
    expect(
        int(counts.sum()) == answered and not (counts < 0).any(),
        f"expected latencies of {answered} responses, got {counts.sum()} once corrections are out",
    )
    values = np.flatnonzero(counts)
    return np.column_stack((values, counts[values]))


def list_wrk_rules(name: str, load: GeneratorLoad) -> tuple[tuple[bool, str], ...]:
    """Return the rules that a load must keep for wrk and for wrk2, as pairs (True if the load breaks the rule, message).

    Both programs need a duration in whole seconds, and an equal number of connections in each thread. The rules of
    `common_refusal` (for all generators) are not among them.

    Args:
        name: The name of the generator, for the messages.
        load: The load.

    """
    return (
        (load.resumption is False, f"{name} resumes TLS sessions wherever it can: hey and k6 never do"),
        (load.duration_s != int(load.duration_s), f"wrk takes whole seconds, got {load.duration_s:g} s"),
        (
            load.connections < load.threads,
            f"needs a connection for every thread, got {load.connections} and {load.threads} threads",
        ),
        (
            load.connections % load.threads > 0,
            f"{load.connections} connections are not a multiple of {load.threads} threads: it would drop the rest",
        ),
    )


def common_arguments(load: GeneratorLoad) -> list[str]:
    """Return the command-line arguments for a load that wrk and wrk2 have in common, such as threads and duration."""
    argv = [f"-t{load.threads}", f"-c{load.connections}", f"-d{int(load.duration_s)}s"]
    argv.append(f"--timeout={math.ceil(load.timeout_s)}s")
    argv += ["-H", f"Host: {load.host}"] if load.host else []
    argv += header_arguments(load)
    return argv + ([] if load.keepalive else ["-H", "Connection: close"])


def connect_note(load: GeneratorLoad) -> tuple[str, ...]:
    """Return the remark that latencies do not include the time to connect, for a load with a new connection per request.

    It is empty for any other load.
    """
    return () if load.keepalive else ("the latency leaves out the connect time",)


# -- many hosts --------------------------------------------------------------------------------------------


def make_turns_script(load: GeneratorLoad) -> str:
    """Return Lua code that makes wrk send requests to all hosts of the load in turn.

    The code is empty if there is only one host, because wrk needs no script for that.
    """
    if load.shards:
        by_address = (f"[{json.dumps(urlsplit(shard.url).netloc)}] = {_to_lua(shard.hosts)}" for shard in load.shards)
        return HOSTS.replace("@HOSTS@", f'({{{", ".join(by_address)}}})[wrk.host .. ":" .. wrk.port]')
    return HOSTS.replace("@HOSTS@", _to_lua(load.hosts)) if len(load.hosts) > 1 else ""


def count_processes(load: GeneratorLoad) -> int:
    """Return how many wrk processes make a load together.

    One process is the normal case. A load has one process per proxy if several proxies share the hosts. It has one process
    per host if each host needs its own name in the TLS handshake.
    """
    return len(load.shards) or (len(load.hosts) if load.sni_per_host else 1)


def _to_lua(hosts: Sequence[str]) -> str:
    """Return a Lua table of host names as Lua source code.

    >>> _to_lua(["a.test", "b.test"])
    '{"a.test", "b.test"}'
    """
    return "{" + ", ".join(map(json.dumps, hosts)) + "}"


def processes(stdout: str) -> int:
    """Return how many wrk processes printed an output: the number in its first line `LAB processes N`, or else 1."""
    match = re.match(r"LAB processes ([0-9]+)\n", stdout)
    return int(match[1]) if match else 1
