"""The known server's own record, read back: how long each answer really took. Refuses a record that is not whole.

A line of JSON, then an int64 row for every answered request, the columns of `lab.experiments.calibration.known_server.COLUMNS`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.base.errors import MeasuringError
from lab.experiments.calibration.known_server import COLUMNS, SECOND
from lab.stats.histogram import Histogram

ARRIVED, PLANNED, WRITTEN = (COLUMNS.index(name) for name in ("arrived_ns", "planned_ns", "written_ns"))


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """`rows`: int64, shape (n, 4), nanoseconds, in the order in which answers were written. Counts are of the whole run.

    `broken`: answers that could not be written, since the client had gone; `unstamped`: arrivals that the kernel had not stamped, so that
    the moment of reading stands for them.
    """

    rows: npt.NDArray[np.int64]
    connections: int
    broken: int
    unstamped: int
    cpu_s: float

    @property
    def answered(self) -> int:
        return len(self.rows)

    def after(self, seconds: float) -> ServerRecord:
        """Leave out the requests of the first `seconds`, which a generator leaves out of its latencies (counts stay)."""
        if not len(self.rows):
            return self
        begin = self.rows[:, ARRIVED].min() + round(seconds * SECOND)
        return replace(self, rows=self.rows[self.rows[:, ARRIVED] >= begin])

    def service(self) -> Histogram:
        """Return the times from when a request's bytes were there to when its answer was handed to the kernel."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, ARRIVED]) / SECOND)

    def late(self) -> Histogram:
        """Return by how much answers were later than they were to be: the server's own error, which is in `service`, too."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, PLANNED]) / SECOND)


def read(content: bytes) -> ServerRecord:
    """Parse the record; MeasuringError where it is none, or not whole."""
    line, _, binary = content.partition(b"\n")
    try:
        told: dict[str, Any] = json.loads(line)
        columns = told.pop("columns")
    except (ValueError, KeyError):
        raise MeasuringError("known server", f"expected a line of JSON, got {line[:80]!r}") from None
    if tuple(columns) != COLUMNS:
        raise MeasuringError("known server", f"expected the columns {', '.join(COLUMNS)}, got {columns}")
    due = told.pop("requests")
    if len(binary) != due * len(COLUMNS) * 8:
        raise MeasuringError("known server", f"expected {due} rows, got {len(binary)} bytes")
    return ServerRecord(np.frombuffer(binary, dtype=np.int64).reshape(-1, len(COLUMNS)), **told)
