"""The load generator hey (the successor of boom): a closed loop for a number of requests or for a time.

Latency counts from when a request was sent. A line that the lab's template makes it print:

    0.000772     →  one request took 772 µs, including the time to connect if a connection was opened

This module relies on these facts about hey (source of 0.1.4, and tried):

- `-o csv` leaves failed requests out, and rounds to 0.1 ms. `-o` also accepts any Go template. Its data contain every latency,
  the failures by message, and the total time. So the lab uses a template.
- It keeps the first million results. Longer runs are refused if the number of requests is known before, and get a note
  otherwise.
- A number of requests is divided: n // connections for each worker. The remainder is never sent.
- The size is the sum of Content-Length: of bodies only, and 0 for chunked bodies. In that case no size is reported.
- A body that breaks off, or is cut by `-t`, counts as answered (0.1.4 ignores the error). Latencies at or over the timeout are
  therefore removed and counted as `timeout`. A body that breaks off earlier is not noticed.
- Go sends a GET again if a kept connection closes before the answer: that failure shows as latency only.
- By default it follows redirects and requests gzip; certificates are never verified. If a header of the lab requests gzip, Go
  does not decompress the body, so no time is needed for that.
- SNI is the Host header. TLS sessions are never resumed, because Go has no session cache here: HAProxy counted 1,000 full
  handshakes of 1,000.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np

from lab.generators.base import (
    COUNT,
    Generator,
    clean_output,
    common_refusal,
    error_kind,
    header_arguments,
    make_output_error,
    one_host_rule,
)
from lab.model.load import ErrorKind, GeneratorLoad, GeneratorResult, expect, first_broken
from lab.stats.histogram import Histogram

TEMPLATE = (
    r'{{printf "LAB summary %d %d %d\n" .Total.Nanoseconds .NumRes .SizeTotal}}'
    r'{{range $code, $count := .StatusCodeDist}}{{printf "LAB status %d %d\n" $code $count}}{{end}}'
    r'{{range $what, $count := .ErrorDist}}{{printf "LAB error %d %q\n" $count $what}}{{end}}'
    r'{{printf "LAB latency %d\n" (len .Lats)}}{{range .Lats}}{{printf "%.6f\n" .}}{{end}}LAB end'
)
"""The Go template of its output."""
BLOCK = re.compile(
    rf"^LAB summary ({COUNT}) ({COUNT}) ({COUNT})\n((?:LAB status [0-9]{{3}} {COUNT}\n)*)((?:LAB error {COUNT} \".*\n)*)"
    rf"LAB latency ({COUNT})\n((?:{COUNT}\.[0-9]{{6}}\n)*)LAB end$",
    re.MULTILINE,
)
MAX_RESULTS = 1_000_000
"""The number of results that it keeps."""


class Hey(Generator):
    """The load generator hey, which makes closed loops only (loads without an offered rate)."""

    name = "hey"
    binary = "hey"
    models = frozenset({"closed"})
    version_flag = "-h"
    remedy = "apt-get install hey, or start the lab with scripts/shell"

    def version(self, output: str) -> str | None:
        """Return `unknown` if the output is hey's list of options, and None if another program printed it.

        hey prints no version. It is recognized by an option in its list.
        """
        return "unknown" if "Usage: hey " in output and "-disable-redirects" in output else None

    def refusal(self, load: GeneratorLoad) -> str | None:
        """Return the reason why hey cannot make this load; None if it can."""
        requests = load.requests
        return common_refusal(load) or first_broken(
            (load.rate_rps is not None, "hey is used as a closed loop: its rate is per worker and not kept"),
            (
                requests is not None and requests < load.connections,
                f"hey needs a request for every connection, got {requests} and {load.connections} connections",
            ),
            (
                requests is not None and requests > MAX_RESULTS,
                f"hey keeps {MAX_RESULTS} results, got {requests} requests",
            ),
            (bool(load.resumption), "hey never resumes a TLS session: wrk does"),
            one_host_rule(self.name, load),
        )

    def argv(self, load: GeneratorLoad) -> list[str]:
        """Return the command line by which hey makes this load, with a Go template that determines the form of its output."""
        length = ["-z", f"{load.duration_s:g}s"] if load.requests is None else ["-n", str(load.requests)]
        argv = [self.binary, *length, "-c", str(load.connections), "-cpus", str(load.threads)]
        argv += ["-t", str(math.ceil(load.timeout_s)), "-disable-redirects", "-disable-compression"]
        argv += ["-host", load.host] if load.host else []
        argv += [] if load.keepalive else ["-disable-keepalive"]
        return [*argv, *header_arguments(load), "-o", TEMPLATE, load.url]

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        """Parse hey's output, which has the form that the lab's Go template gives it.

        Raises:
            OutputError: hey failed, no request was answered in time, or the numbers contradict each other.

        """
        stdout = clean_output(stdout)
        block = BLOCK.search(stdout)
        if exit_status != 0 or block is None:
            raise make_output_error("the template's block up to 'LAB end'", stdout, stderr, exit_status)
        total_ns, made, size_bytes, recorded = int(block[1]), int(block[2]), int(block[3]), int(block[6])
        errors = Counter[ErrorKind]()
        failures = re.findall(r'^LAB error ([0-9]+) (".*)$', block[5], re.MULTILINE)
        for count, message in failures:
            errors[error_kind(message)] += int(count)
        answered = made - errors.total()
        reason = max(failures, key=lambda failure: int(failure[0]), default=("", f"{made} were made"))[1]
        expect(answered > 0, f"no request was answered: {reason[:160]}")
        latencies_s = np.array(block[7].split(), dtype=np.float64)
        expected = min(answered, MAX_RESULTS)
        expect(len(latencies_s) == recorded == expected, f"expected {expected} latencies, got {len(latencies_s)}")
        codes = [(int(code), int(count)) for code, count in re.findall(r"LAB status ([0-9]+) ([0-9]+)", block[4])]
        responses = sum(count for _, count in codes)
        expect(responses == recorded, f"expected a status of each of {recorded} responses, got {responses}")
        in_time_s = latencies_s[latencies_s < load.timeout_s]
        late = recorded - len(in_time_s)
        errors["timeout"] += late
        answered -= late
        expect(
            len(in_time_s) > 0,
            f"no request was answered within {load.timeout_s:g} s: {late} were not, and {dict(errors)}",
        )
        errors["status"] = sum(count for code, count in codes if not 200 <= code < 300)
        duration_s = total_ns * 1e-9
        notes: list[str] = []
        if len(in_time_s) < answered:
            notes.append(f"latency of the first {len(in_time_s)} of {answered} responses: hey keeps no more")
        if load.requests not in (None, made):
            notes.append(f"{made} requests made, not {load.requests}: as many for every connection")
        return GeneratorResult(
            requests=answered,
            duration_s=duration_s,
            latency=Histogram.of_values(in_time_s),
            recorded_s=duration_s * len(in_time_s) / answered,
            errors={kind: count for kind, count in errors.items() if count},
            size_bytes=size_bytes or None,
            size_includes_headers=False,
            notes=tuple(notes),
        )
