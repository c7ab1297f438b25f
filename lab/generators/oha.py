"""oha: a fixed rate with correction (latency from when a request was due), or a closed loop.

One row of its CSV (start, DNS, DNS and dial-up, first byte, duration in s, bytes, status), and what it becomes:

    0.010749292,0.000006527,0.000050832,0.000176214,0.000183152,1024,200   →  one request took 183 µs

oha facts this file respects (source of 1.15, tried with 1.16):

- the CSV has every answered request, but no failed one, and no end mark. With a rate or a number of
  requests the number due is known, so what is missing is counted: as failed where all were sent
  (`requests`), as dropped under a rate, where unsent and failed ones look the same. A closed loop by time is
  read from the JSON summary instead, which has the failures by message and nine percentiles.
- with `-w` requests under way at the end are awaited; those due and not begun by then are dropped.
  A rate is counted over the load's own schedule, without that wait.
- "due" is when oha's own ticker released the request: a stall of the server is corrected for, one of oha's is not.
- it asks for compression unless told otherwise, times nothing out unless told so, has no thread option
  (TOKIO_WORKER_THREADS; else one for every core), and counts body bytes only.
- rustls keeps sessions by default, so it resumes where it can (read, not tried): it cannot be told not to.
"""

from __future__ import annotations

import math
import re
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lab.generators._told import MOST, Count, Seconds, Told, rising
from lab.generators.base import Generator, common_refusal, error_kind, one_host_refusal, plain, scheduled_s, unreadable
from lab.model.load import ErrorKind, Load, OutputError, Result
from lab.stats.histogram import Histogram

HEADER = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status"
START, FIRST_BYTE, DURATION, BYTES, STATUS = 0, 3, 4, 5, 6
EARLY_S = 0.1
"""Its ticker makes up for late ticks and begins with a burst; more than so much before its time nothing is sent."""


class Oha(Generator):
    name = "oha"
    binary = "oha"
    models = frozenset({"open", "closed"})
    version_flag = "--version"
    latency_from = "due"
    remedy = "scripts/shell --with oha (built by cargo, which takes minutes)"
    stand_ins = ("k6",)

    def version(self, output: str) -> str | None:
        found = re.search(r"^oha ([0-9]+\.[0-9]+\S*)", output, re.MULTILINE)
        return found[1] if found else None

    def refusal(self, load: Load) -> str | None:
        if (common := common_refusal(load)) is not None:
            return common
        if load.resumption is False:
            return "oha resumes TLS sessions where it can: hey and k6 never do"
        return one_host_refusal(self.name, load)

    def argv(self, load: Load) -> list[str]:
        argv = [self.binary, "--no-tui", "--output-format", "json" if by_summary(load) else "csv"]
        if load.requests is None:
            argv += ["-z", f"{round(load.duration_s * 1000)}ms", "-w"]
        else:
            argv += ["-n", str(load.requests)]
        if load.rate_rps is not None:
            argv += ["-q", f"{load.rate_rps:.12g}", "--latency-correction"]
        argv += ["-c", str(load.connections), "-t", f"{round(load.timeout_s * 1000)}ms"]
        argv += ["--redirect", "0", "--disable-compression", "--insecure"]
        argv += ["--host", load.host] if load.host else []
        argv += [word for name, value in load.headers.items() for word in ("-H", f"{name}: {value}")]
        return [*argv, *([] if load.keepalive else ["--disable-keepalive"]), load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        if exit_status != 0:
            raise unreadable("exit status 0", stdout, stderr, exit_status)
        return _of_summary(stdout, stderr, load) if by_summary(load) else _of_rows(stdout, stderr, load)


class _Totals(Told):
    """Seconds; None where nothing was answered."""

    total: Seconds
    fastest: Seconds | None
    slowest: Seconds | None
    size_bytes: Count = Field(alias="totalData")


class _Json(Told):
    """What of its JSON is read."""

    summary: _Totals
    percentiles: dict[Annotated[str, Field(pattern=r"^p[0-9]{1,2}(\.[0-9]+)?$")], Seconds | None] = Field(
        alias="latencyPercentiles"
    )
    codes: dict[Annotated[str, Field(pattern=r"^[0-9]{3}$")], Count] = Field(alias="statusCodeDistribution")
    failures: dict[str, Count] = Field(alias="errorDistribution")


PERCENTILES = frozenset(("p10", "p25", "p50", "p75", "p90", "p95", "p99"))
"""At which every version tells a latency."""


def by_summary(load: Load) -> bool:
    """Whether it prints no row for each request."""
    return load.rate_rps is None and load.requests is None


def refuse_rows(rows: npt.NDArray[np.float64], load: Load) -> None:
    """OutputError for rows, shape (n, 7), that cannot be: what is no time, no count or no status, and what began before it was due."""
    status = rows[:, STATUS]
    if not ((rows >= 0) & (rows <= MOST)).all() or not ((status >= 100) & (status < 600) & (status % 1 == 0)).all():
        raise OutputError("expected times, bytes and a status in every row, got numbers that are none")
    ordered = rows[np.lexsort((rows[:, DURATION], rows[:, START]))]
    if (ordered[1:] == ordered[:-1]).all(axis=1).any():
        raise OutputError("expected a row for each request, got one of them twice: of a nanosecond, in all its times")
    if load.rate_rps is not None:
        early_s = np.arange(len(rows)) / load.rate_rps - np.sort(rows[:, START])
        if early_s.max() > EARLY_S:
            raise OutputError(f"expected requests from when they were due, one was sent {early_s.max():.3f} s before")


def refuse_marks(rows: bytes) -> None:
    """ValueError for what no number of a row has: Python and numpy would read `1_0`, `+1` and other scripts' digits."""
    if marks := rows.translate(None, b"0123456789.eE-,\n"):
        raise ValueError(f"expected digits, got {marks[:20]!r}")


def ended_s(rows: npt.NDArray[np.float64], first: int, load: Load) -> float:
    """When the last of these answers was there, since the load's beginning; shape (rows >= 1, 7), `first`: how many rows were before.

    A corrected duration counts from when the row was due, which the CSV does not tell: the schedule does.
    """
    began_s = rows[:, START]
    if load.rate_rps is not None:
        began_s = np.minimum(began_s, np.arange(first, first + len(rows)) / load.rate_rps)
    return float(np.maximum(began_s + rows[:, DURATION], rows[:, START] + rows[:, FIRST_BYTE]).max())


def result_of(rows: int, not_2xx: int, latency: Histogram, size_bytes: int, last_s: float, load: Load) -> Result:
    """What is reported, from what is left of the rows; `last_s`: the last one's `ended_s`."""
    due = load.requests if load.requests is not None else math.ceil(load.duration_s * (load.rate_rps or 0) - 1e-6)
    missing = max(0, due - rows)
    errors: dict[ErrorKind, int] = {"status": not_2xx} if not_2xx else {}
    if missing and load.requests is not None:
        errors["other"] = missing
    duration_s = max(last_s, load.duration_s if load.requests is None else 0.0)
    return Result(
        requests=rows,
        duration_s=duration_s,
        latency=latency,
        recorded_s=duration_s,
        errors=errors,
        dropped=missing if load.requests is None else 0,
        size_bytes=size_bytes,
        size_includes_headers=False,
        notes=(f"{missing} requests have no row: oha's CSV does not tell failed from unsent",) if missing else (),
        scheduled_s=scheduled_s(load),
    )


def _of_rows(stdout: str, stderr: str, load: Load) -> Result:
    lines = plain(stdout).splitlines()
    if not lines or lines[0] != HEADER or not stdout.endswith("\n"):
        raise unreadable(f"the CSV columns {HEADER} and whole lines", stdout, stderr)
    if len(lines) == 1:
        raise unreadable("a row for every answered request (none was answered)", stdout, stderr)
    try:
        refuse_marks("".join(lines[1:]).encode())
        rows = np.array([line.split(",") for line in lines[1:]], dtype=np.float64).reshape(len(lines) - 1, 7)
    except ValueError:
        raise unreadable("seven numbers in every row", stdout, stderr) from None
    refuse_rows(rows, load)
    not_2xx = int(np.count_nonzero((rows[:, STATUS] < 200) | (rows[:, STATUS] >= 300)))
    latency, size_bytes = Histogram.of_values(rows[:, DURATION]), int(rows[:, BYTES].sum())
    return result_of(len(rows), not_2xx, latency, size_bytes, ended_s(rows, 0, load), load)


def _of_summary(stdout: str, stderr: str, load: Load) -> Result:
    try:
        told = _Json.model_validate_json(plain(stdout))
    except ValueError:
        raise unreadable("oha's JSON summary, of counts and times", stdout, stderr) from None
    answered = sum(told.codes.values())
    if answered == 0:
        raise OutputError(f"no request was answered: {told.failures}")
    values = [(float(name[1:]) / 100, value) for name, value in told.percentiles.items()]
    values += [(0.0, told.summary.fastest), (1.0, told.summary.slowest)]
    points = [(share, value) for share, value in values if value is not None]
    if len(points) < len(values) or not told.percentiles.keys() >= PERCENTILES:
        raise unreadable("a latency at every percentile", stdout, stderr)
    errors: dict[ErrorKind, int] = {}
    for what, count in told.failures.items():
        errors[kind] = errors.get(kind := error_kind(what), 0) + count
    if not_2xx := sum(count for code, count in told.codes.items() if not 200 <= int(code) < 300):
        errors["status"] = not_2xx
    duration_s = told.summary.total
    return Result(
        requests=answered,
        duration_s=duration_s,
        latency=Histogram.of_quantiles(rising(points), answered),
        recorded_s=duration_s,
        errors=errors,
        size_bytes=told.summary.size_bytes,
        size_includes_headers=False,
        notes=("latency from when sent, by nine percentiles",) if load.rate_rps is None else (),
    )
