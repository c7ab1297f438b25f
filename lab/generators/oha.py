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
from collections import Counter
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from lab.generators.base import (
    MOST,
    Count,
    Generator,
    Seconds,
    Told,
    common_refusal,
    error_kind,
    first_broken,
    header_arguments,
    one_host_rule,
    plain,
    rising,
    scheduled_s,
    unreadable,
)
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
        return common_refusal(load) or first_broken(
            (load.resumption is False, "oha resumes TLS sessions where it can: hey and k6 never do"),
            one_host_rule(self.name, load),
        )

    def argv(self, load: Load) -> list[str]:
        argv = [self.binary, "--no-tui", "--output-format", "json" if _by_summary(load) else "csv"]
        if load.requests is None:
            argv += ["-z", f"{round(load.duration_s * 1000)}ms", "-w"]
        else:
            argv += ["-n", str(load.requests)]
        if load.rate_rps is not None:
            argv += ["-q", f"{load.rate_rps:.12g}", "--latency-correction"]
        argv += ["-c", str(load.connections), "-t", f"{round(load.timeout_s * 1000)}ms"]
        argv += ["--redirect", "0", "--disable-compression", "--insecure"]
        argv += ["--host", load.host] if load.host else []
        argv += header_arguments(load)
        return [*argv, *([] if load.keepalive else ["--disable-keepalive"]), load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: Load) -> Result:
        if exit_status != 0:
            raise unreadable("exit status 0", stdout, stderr, exit_status)
        return _of_summary(stdout, stderr, load) if _by_summary(load) else _of_rows(stdout, stderr, load)


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


def _by_summary(load: Load) -> bool:
    """Whether it prints no row for each request."""
    return load.rate_rps is None and load.requests is None


def _of_rows(stdout: str, stderr: str, load: Load) -> Result:
    rows = _rows(stdout, stderr)
    _refuse_rows(rows, load)
    began_s = rows[:, START]
    if load.rate_rps is not None:  # a corrected duration counts from when the row was due, which the CSV does not tell
        began_s = np.minimum(began_s, np.arange(len(rows)) / load.rate_rps)
    last_s = float(np.maximum(began_s + rows[:, DURATION], rows[:, START] + rows[:, FIRST_BYTE]).max())
    by_number = load.requests is not None
    due = load.requests if by_number else math.ceil(load.duration_s * (load.rate_rps or 0) - 1e-6)
    missing = max(0, (due or 0) - len(rows))
    errors: dict[ErrorKind, int] = {
        "status": int(np.count_nonzero((rows[:, STATUS] < 200) | (rows[:, STATUS] >= 300))),
        "other": missing if by_number else 0,
    }
    duration_s = max(last_s, 0.0 if by_number else load.duration_s)
    return Result(
        requests=len(rows),
        duration_s=duration_s,
        latency=Histogram.of_values(rows[:, DURATION]),
        recorded_s=duration_s,
        errors={kind: int(count) for kind, count in errors.items() if count},
        dropped=0 if by_number else missing,
        size_bytes=int(rows[:, BYTES].sum()),
        size_includes_headers=False,
        notes=(f"{missing} requests have no row: oha's CSV does not tell failed from unsent",) if missing else (),
        scheduled_s=scheduled_s(load),
    )


def _rows(stdout: str, stderr: str) -> npt.NDArray[np.float64]:
    """Its CSV, shape (n, 7). OutputError for anything else, and for no row."""
    lines = plain(stdout).splitlines()
    if not lines or lines[0] != HEADER or not stdout.endswith("\n"):
        raise unreadable(f"the CSV columns {HEADER} and whole lines", stdout, stderr)
    if len(lines) == 1:
        raise unreadable("a row for every answered request (none was answered)", stdout, stderr)
    try:
        if marks := "".join(lines[1:]).encode().translate(None, b"0123456789.eE-,"):
            raise ValueError(
                f"expected digits, got {marks[:20]!r}"
            )  # numpy would read `1_0`, `+1`, other scripts' digits
        return np.array([line.split(",") for line in lines[1:]], dtype=np.float64).reshape(len(lines) - 1, 7)
    except ValueError:
        raise unreadable("seven numbers in every row", stdout, stderr) from None


def _refuse_rows(rows: npt.NDArray[np.float64], load: Load) -> None:
    """OutputError for rows that cannot be: what is no time, no count or no status, and what began before it was due."""
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
    errors = Counter[ErrorKind]()
    for what, count in told.failures.items():
        errors[error_kind(what)] += count
    errors["status"] = sum(count for code, count in told.codes.items() if not 200 <= int(code) < 300)
    duration_s = told.summary.total
    return Result(
        requests=answered,
        duration_s=duration_s,
        latency=Histogram.of_quantiles(rising(points), answered),
        recorded_s=duration_s,
        errors={kind: count for kind, count in errors.items() if count},
        size_bytes=told.summary.size_bytes,
        size_includes_headers=False,
        notes=("latency from when sent, by nine percentiles",),
    )
