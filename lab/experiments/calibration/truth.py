"""The known server's own record, read back: how long each answer really took. Refuses a record that is not whole.

A line of JSON, then an int64 row for every answered request, the columns of `lab.experiments.calibration.known_server.COLUMNS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.experiments.calibration.known_behaviour import SECOND
from lab.experiments.calibration.known_server import COLUMNS
from lab.stats.histogram import Histogram

ARRIVED, PLANNED, WRITTEN = (COLUMNS.index(name) for name in ("arrived_ns", "planned_ns", "written_ns"))


class RecordError(Exception):
    """What the server left is not its record; the message says why."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """`rows`: int64, shape (n, 4), nanoseconds, in the order in which answers were written. Counts are of the whole run.

    `closed`: connections that it closed on purpose; `broken`: answers that could not be written, since the client had gone;
    `unstamped`: arrivals that the kernel had not stamped, so that the moment of reading stands for them.
    """

    rows: npt.NDArray[np.int64]
    connections: int
    closed: int
    broken: int
    unstamped: int
    cpu_s: float

    @property
    def answered(self) -> int:
        return len(self.rows)

    @property
    def span_s(self) -> float:
        """From the first arrival to the last answer; 0 where there was none."""
        if not len(self.rows):
            return 0.0
        return float(self.rows[:, WRITTEN].max() - self.rows[:, ARRIVED].min()) / SECOND

    def after(self, seconds: float) -> ServerRecord:
        """Without the requests of the first `seconds`, which a generator leaves out of its latencies (counts stay)."""
        if not len(self.rows):
            return self
        begin = self.rows[:, ARRIVED].min() + round(seconds * SECOND)
        rows = self.rows[self.rows[:, ARRIVED] >= begin]
        return ServerRecord(rows, self.connections, self.closed, self.broken, self.unstamped, self.cpu_s)

    def service(self) -> Histogram:
        """From when a request's bytes were there to when its answer was handed to the kernel."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, ARRIVED]) / SECOND)

    def late(self) -> Histogram:
        """By how much answers were later than they were to be: the server's own error, which is in `service`, too."""
        return Histogram.of_values((self.rows[:, WRITTEN] - self.rows[:, PLANNED]) / SECOND)


def read(content: bytes) -> ServerRecord:
    """Raises RecordError."""
    line, _, binary = content.partition(b"\n")
    try:
        told: Mapping[str, Any] = json.loads(line)
        if tuple(told["columns"]) != COLUMNS:
            raise RecordError(f"expected the columns {', '.join(COLUMNS)}, got {told['columns']}")
        counts = {name: int(told[name]) for name in ("connections", "closed", "broken", "unstamped")}
        due, cpu_s, order = int(told["requests"]), float(told["cpu_s"]), "<" if told["byteorder"] == "little" else ">"
    except (ValueError, KeyError, TypeError):
        raise RecordError(f"expected a line of JSON, got {line[:80]!r}") from None
    if len(binary) != due * len(COLUMNS) * 8:
        raise RecordError(f"expected {due} rows, got {len(binary)} bytes")
    rows = np.frombuffer(binary, dtype=np.dtype(np.int64).newbyteorder(order)).astype(np.int64)
    return ServerRecord(rows.reshape(-1, len(COLUMNS)), **counts, cpu_s=cpu_s)
