"""wrk: closed loop, as fast as the connections answer. Latency from when a request was sent.

One line of the block that the Lua `done` hook prints, and what it becomes:

    4 3          →  three requests took 4 µs longer than those of the line before

Outputs recorded until 23 November 2026 hold the latencies themselves, under `LAB latency`: twice the bytes once packed, or more. Those of
generators that were stopped in between have them until 26 November 2026, nine tenths of such an output's bytes.

wrk facts this file respects (source of 4.1.0, and tried):

- wrk adds made-up counts to its latencies before it prints them (`stats_correct`: for every latency
  beyond twice the mean interval also the shorter ones a fixed schedule would have seen). The sums are
  integers and the interval is known, so they are taken out again; what remains must add up to the
  number of responses, else the output is refused.
- `--timeout` stops nothing: later responses are left out of the latencies and counted as `timeout`,
  and a connection that never answers is not counted anywhere.
- `status` counts 400 and above. A `response` hook that saw redirects would copy every header and body,
  so a redirect is left to the checks of bytes per response and of the body.
- connect time is not in the latency, threads get connections/threads each and the remainder is dropped,
  durations are whole seconds. Bytes are counted above TLS, as they came: compressed, with chunk sizes.
- SNI and address come from the URL: where every host needs its own name there, or several proxies share the hosts, one
  process of one thread runs for each host or proxy.
- a connection that closes keeps its SSL object, so TLS sessions are resumed from its second handshake on (HAProxy
  counted 20 full ones and 12,401 resumed), and nothing tells it not to.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lab.generators._wrk_hosts import PER_HOST, TOGETHER, processes, separate, separate_files, taking_turns
from lab.generators.base import COUNT, Generator, common_refusal, first_broken, header_arguments, plain, unreadable
from lab.model.load import ErrorKind, Load, OutputError, Result
from lab.stats.histogram import UNIT_S, Histogram

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
ERROR = 400
"""From this status on it counts an answer as an error, whatever was expected; which one came, the lab's canary tells."""
BLOCK = re.compile(
    rf"^LAB summary ({COUNT}) ({COUNT}) ({COUNT})\nLAB errors ({COUNT}) ({COUNT}) ({COUNT}) ({COUNT}) ({COUNT})\n"
    rf"(?:LAB (latency|steps) ({COUNT})\n((?:{COUNT} {COUNT}\n)*))?LAB end$",
    re.MULTILINE,
)
NONE = np.zeros((0, 2), dtype=np.int64)
"""No latency."""
SPREAD = 0.8
"""The shortest run of several processes, of the longest: below it they were not one load."""


class Wrk(Generator):
    name = "wrk"
    binary = "wrk"
    models = frozenset({"closed"})
    version_flag = "-v"
    latency_from = "sent"
    remedy = "apt-get install wrk, or start the lab with scripts/shell"

    def version(self, output: str) -> str | None:
        found = re.search(r"^wrk (\S+) \[\w+\] Copyright", output, re.MULTILINE)
        return found[1] if found and "--rate" not in output else None  # wrk2 calls itself wrk, too

    def refusal(self, load: Load) -> str | None:
        many = separate(load)
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
            *common_rules(self.name, load),
        )

    def ends_on_interrupt(self, load: Load) -> bool:
        return separate(load) == 1

    def files(self, load: Load) -> Mapping[str, str]:
        script = COUNTS + (STEPS if load.timed else "") + END
        if separate(load) == 1:
            return {"wrk.lua": script + taking_turns(load)}
        turns = taking_turns(load) if load.shards else ""
        return {"wrk.lua": script + TOGETHER + turns} | separate_files(load)

    def argv(self, load: Load) -> list[str]:
        if (count := separate(load)) > 1:
            each = replace(load, host="", threads=1, connections=load.connections // count)
            return ["sh", PER_HOST, self.binary, *common_arguments(each), "-s", "wrk.lua"]
        return [self.binary, *common_arguments(load), "-s", "wrk.lua", load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        stdout = plain(stdout)
        blocks, count = read_blocks(stdout, load.timed), processes(stdout)
        if exit_status != 0 or len(blocks) != count:
            expected = "the block of counts up to 'LAB end'" + (f" of each of {count} processes" if count > 1 else "")
            raise unreadable(expected, stdout, stderr, exit_status)
        errors: Counter[ErrorKind] = Counter()
        for block in blocks:
            errors.update(block.errors)
        answered = sum(block.answered for block in blocks)
        if answered <= 0:
            raise OutputError(f"no request was answered within {load.timeout_s:g} s: {dict(errors)}")
        if load.answers and max(load.answers) >= ERROR:
            errors["status"] = 0 if min(load.answers) < ERROR else answered - errors["status"]
        durations_us = [block.duration_us for block in blocks]
        if min(durations_us) < SPREAD * max(durations_us):
            spread = f"{min(durations_us) * UNIT_S:.1f} to {max(durations_us) * UNIT_S:.1f} s"
            raise OutputError(f"expected processes that ran together, they took {spread}")
        wanted = blocks if load.timed else []
        tables = [block.measured(load.connections // count, load.timeout_s) for block in wanted]
        duration_s = max(durations_us) * UNIT_S
        return Result(
            requests=answered,
            duration_s=duration_s,
            latency=histogram_of(np.concatenate([NONE, *tables])),
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
class Block:
    """What the `done` hook printed. `table`: int64 rows of (µs, count), shape (n, 2); `announced`: what it says of them."""

    duration_us: int
    complete: int
    size_bytes: int
    errors: Mapping[ErrorKind, int]
    announced: int
    table: npt.NDArray[np.int64]

    @property
    def answered(self) -> int:
        return self.complete - self.errors.get("timeout", 0)

    def measured(self, connections: int, timeout_s: float) -> npt.NDArray[np.int64]:
        """The table without wrk's corrections, of a process with so many connections; later answers are in none."""
        if len(self.table) != self.announced:
            raise OutputError(f"expected {self.announced} lines of latencies, got {len(self.table)}")
        limit_us = math.ceil(timeout_s) / UNIT_S
        if not ((self.table[:, 0] >= 0) & (self.table[:, 0] <= limit_us)).all():
            raise OutputError(f"expected latencies up to the timeout, {timeout_s:g} s, got {self.table[:, 0].max()} µs")
        interval_us = self.duration_us // max(1, self.complete // max(1, connections))
        return measured_only(self.table, self.answered, interval_us)


def read_blocks(stdout: str, timed: bool = True) -> list[Block]:
    """Those with latencies, or, not `timed`, all."""
    return [_block(found) for found in BLOCK.finditer(stdout) if found[9] or not timed]


def _block(found: re.Match[str]) -> Block:
    duration_us, complete, size_bytes, connect, read, write, status, timeout = map(int, found.groups()[:8])
    kinds: tuple[ErrorKind, ...] = ("connect", "read", "write", "status", "timeout")
    counted = zip(kinds, (connect, read, write, status, timeout), strict=True)
    errors: dict[ErrorKind, int] = {kind: count for kind, count in counted if count}
    table = np.array((found[11] or "").split(), dtype=np.int64).reshape(-1, 2)
    if found[9] == "steps":
        table[:, 0] = np.cumsum(table[:, 0])
    return Block(duration_us, complete, size_bytes, errors, int(found[10] or 0), table)


def histogram_of(table: npt.NDArray[np.int64]) -> Histogram:
    return Histogram.of_counts(table * np.array([UNIT_S, 1.0]), "exact")


def measured_only(table: npt.NDArray[np.int64], answered: int, interval_us: int) -> npt.NDArray[np.int64]:
    """The (µs, count) rows without those that wrk's `stats_correct` made up, shape (n, 2).

    wrk walks up from 2 × interval and adds the count at n to n - interval, n - 2 × interval … down to above
    the interval. What it adds at n comes from above n only, so walking down takes all of it out again.
    """
    if int(table[:, 1].sum()) == answered:
        return table  # nothing was made up (or a wrk that does not)
    if not interval_us or not table.size:
        raise OutputError(f"expected latencies of {answered} responses, got {table[:, 1].sum()}")
    counts = np.zeros(int(table[:, 0].max()) + 1, dtype=np.int64)
    counts[table[:, 0]] = table[:, 1]
    for value in np.sort(table[table[:, 0] >= 2 * interval_us, 0])[::-1].tolist():
        counts[value - interval_us : interval_us : -interval_us] -= counts[value]
    if int(counts.sum()) != answered or (counts < 0).any():
        raise OutputError(f"expected latencies of {answered} responses, got {counts.sum()} once corrections are out")
    kept = np.flatnonzero(counts)
    return np.column_stack((kept, counts[kept]))


def common_rules(name: str, load: Load) -> tuple[tuple[bool, str], ...]:
    """What wrk and wrk2 cannot do, of a load that `common_refusal` takes: they want whole seconds, and as many connections in each thread."""
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


def common_arguments(load: Load) -> list[str]:
    """Arguments that wrk and wrk2 share."""
    argv = [f"-t{load.threads}", f"-c{load.connections}", f"-d{int(load.duration_s)}s"]
    argv.append(f"--timeout={math.ceil(load.timeout_s)}s")
    argv += ["-H", f"Host: {load.host}"] if load.host else []
    argv += header_arguments(load)
    return argv + ([] if load.keepalive else ["-H", "Connection: close"])


def connect_note(load: Load) -> tuple[str, ...]:
    return () if load.keepalive else ("the latency leaves out the connect time",)
