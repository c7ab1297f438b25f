"""The load generator oha: an open loop with latency counted from when a request was due; it is the first stand-in for wrk2.

A row of its CSV (start, DNS, DNS and dial-up, first byte and duration in s, then bytes and status):

    0.010749292,0.000006527,0.000050832,0.000176214,0.000183152,1024,200   →  one request took 183 µs

This module relies on these facts about oha (source of 1.15, tried with 1.16):

- The CSV has every answered request, but no failed one, and no mark at its end. The number of due requests is known, so missing
  requests are counted as dropped. Failed requests and requests that were never sent cannot be distinguished.
- With `-w`, requests that are under way at the end are awaited. Requests that are due and not begun by then are dropped. The
  rate is computed over the load's schedule, without that wait.
- "Due" is when oha's ticker released the request. So latencies include the wait caused by a server that stalls, but not the
  wait caused by oha itself.
- By default it requests compression and has no timeout. It has no option for threads (it uses TOKIO_WORKER_THREADS, or else one
  for every core). It counts the bytes of bodies only.
- rustls keeps TLS sessions by default, so oha resumes them if it can (read in its source, not tried). No option turns that off.
"""

from __future__ import annotations

import math
import re

import numpy as np

from lab.generators.base import (
    MAX_COUNT,
    Generator,
    clean_output,
    common_refusal,
    expect_output,
    header_arguments,
    make_output_error,
    one_host_rule,
    scheduled_s,
)
from lab.model.load import GeneratorLoad, GeneratorResult, expect, first_broken
from lab.stats.histogram import Floats, Histogram

HEADER = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status"
START, FIRST_BYTE, DURATION, BYTES, STATUS = 0, 3, 4, 5, 6
"""The numbers of the columns that are used."""
EARLY_S = 0.1
"""The seconds by which a request may precede its due time, as the ticker begins with a burst and catches up."""


class Oha(Generator):
    """The load generator oha, which makes open loops only (loads at an offered rate)."""

    name = "oha"
    binary = "oha"
    models = frozenset({"open"})
    version_flag = "--version"
    latency_from = "due"
    remedy = "scripts/shell --with oha (built by cargo, which takes minutes)"
    stand_ins = ("k6",)

    def version(self, output: str) -> str | None:
        """Return oha's version from its output; None if another program printed the output."""
        match = re.search(r"^oha ([0-9]+\.[0-9]+\S*)", output, re.MULTILINE)
        return match[1] if match else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why oha cannot make this load; None if it can."""
        return common_refusal(load) or first_broken(
            (load.rate_rps is None, "oha is used at a rate alone: wrk, hey and k6 make closed loops"),
            (load.requests is not None, "oha is run for a time here, not for a number of requests: hey takes one"),
            (load.resumption is False, "oha resumes TLS sessions where it can: hey and k6 never do"),
            one_host_rule(self.name, load),
        )

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which oha makes this load.

        oha prints CSV, and counts latency from the time when a request was due (`--latency-correction`).
        """
        argv = [self.binary, "--no-tui", "--output-format", "csv", "-z", f"{round(load.duration_s * 1000)}ms", "-w"]
        argv += ["-q", f"{load.rate_rps or 0:.12g}", "--latency-correction"]
        argv += ["-c", str(load.connections), "-t", f"{round(load.timeout_s * 1000)}ms"]
        argv += ["--redirect", "0", "--disable-compression", "--insecure"]
        argv += ["--host", load.host] if load.host else []
        argv += header_arguments(load)
        return [*argv, *([] if load.keepalive else ["--disable-keepalive"]), load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse oha's CSV output.

        The CSV has a row for each answered request. Requests that were due but have no row are reported as `dropped`.

        Raises:
            OutputError: oha failed, or its CSV is faulty or without rows.

        """
        expect_output(exit_status == 0, "exit status 0", stdout, stderr, exit_status)
        rows, rate_rps = _rows(stdout, stderr), load.rate_rps or 0.0
        _refuse_rows(rows, rate_rps)
        # a corrected duration counts from when the row was due, which the CSV does not contain
        began_s = np.minimum(rows[:, START], np.arange(len(rows)) / rate_rps)
        last_s = float(np.maximum(began_s + rows[:, DURATION], rows[:, START] + rows[:, FIRST_BYTE]).max())
        missing = max(0, math.ceil(load.duration_s * rate_rps - 1e-6) - len(rows))
        wrong = int(np.count_nonzero((rows[:, STATUS] < 200) | (rows[:, STATUS] >= 300)))
        duration_s = max(last_s, load.duration_s)
        return GeneratorResult(
            requests=len(rows),
            duration_s=duration_s,
            latency=Histogram.of_values(rows[:, DURATION]),
            recorded_s=duration_s,
            errors={"status": wrong} if wrong else {},
            dropped=missing,
            size_bytes=int(rows[:, BYTES].sum()),
            size_includes_headers=False,
            notes=(f"{missing} requests have no row: oha's CSV does not tell failed from unsent",) if missing else (),
            scheduled_s=scheduled_s(load),
        )


def _rows(stdout: str, stderr: str) -> Floats:
    """Parse the CSV that oha printed, with one row per answered request.

    Args:
        stdout: The standard output, which is the CSV.
        stderr: The error output, which is quoted in an error message.

    Returns:
        An array of shape (n, 7), with the columns of `HEADER`.

    Raises:
        OutputError: The output is not oha's CSV, or has no row.

    """
    lines = clean_output(stdout).splitlines()
    expect_output(
        lines and lines[0] == HEADER and stdout.endswith("\n"),
        f"the CSV columns {HEADER} and whole lines",
        stdout,
        stderr,
    )
    expect_output(len(lines) > 1, "a row for every answered request (none was answered)", stdout, stderr)
    try:
        if marks := "".join(lines[1:]).encode().translate(None, b"0123456789.eE-,"):
            raise ValueError(
                f"expected digits, got {marks[:20]!r}"
            )  # numpy would read `1_0`, `+1`, other scripts' digits
        return np.array([line.split(",") for line in lines[1:]], dtype=np.float64).reshape(len(lines) - 1, 7)
    except ValueError:
        raise make_output_error("seven numbers in every row", stdout, stderr) from None


def _refuse_rows(rows: Floats, rate_rps: float) -> None:
    """Check that the rows of oha's CSV (one per request) are possible.

    Args:
        rows: The rows, with the columns of `HEADER`.
        rate_rps: The offered rate in requests per second.

    Raises:
        OutputError: A row has an impossible time, size or status, a row occurs twice, or a request began well before it was
            due.

    """
    status = rows[:, STATUS]
    possible = ((rows >= 0) & (rows <= MAX_COUNT)).all() and (
        (status >= 100) & (status < 600) & (status % 1 == 0)
    ).all()
    expect(possible, "expected times, bytes and a status in every row, got numbers that are none")
    ordered = rows[np.lexsort((rows[:, DURATION], rows[:, START]))]
    repeated = (ordered[1:] == ordered[:-1]).all(axis=1).any()
    expect(not repeated, "expected a row for each request, got one of them twice: of a nanosecond, in all its times")
    early_s = float((np.arange(len(rows)) / rate_rps - np.sort(rows[:, START])).max())
    expect(early_s <= EARLY_S, f"expected requests from when they were due, one was sent {early_s:.3f} s before")
