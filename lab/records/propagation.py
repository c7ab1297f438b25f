"""When a change reached the answers: numbered changes and a log of requests → delays, and answers of an old state.

A change's event says how answers show it (`lab.model.events`): by the port that answered (`endpoints`), by the prefix that the
proxy put in (`routes`), or by there being an answer (`status`). Changes are numbered upwards, so an answer shows the
newest of its way that had reached who answered; newer ones include it. Refuses to count a change that answers cannot show.

    changes        how many were made
    correct_s      median over the changes: from the change to the first answer that shows it or a newer one. A change that
                   nobody saw until the load's end took longer than any other; None where the median is such a one
    correct_max_s  the longest; None where one was not seen
    unseen         changes that no answer showed, neither they nor a newer one
    superseded     changes of which only newer ones were seen: several were taken over at once
    old            answers to requests that were sent after a change and do not show it
    stale          of those, the ones sent after another answer had shown it: somebody who knew the new state got the old one
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from lab.model.events import FIRST_PORT
from lab.model.requests import good

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Way:
    """Changes that answers show in one way, in the order of time, and the answers that show one (0 = the state before the first).

    `delay_s`: from each change to the first answer that shows it or a newer one; infinite = never.
    """

    name: str
    numbers: Ints
    at_s: Floats
    delay_s: Floats
    sent_s: Floats
    done_s: Floats
    shown: Ints


def outcome(requests: pl.DataFrame, events: pl.DataFrame) -> dict[str, float | None]:
    """The numbers above, empty without changes. Where answers show none of them all but `changes` are None."""
    changes = events.filter(pl.col("kind") == "Change")
    if changes.is_empty():
        return {}
    delays_s: list[float] = []
    counts = dict.fromkeys(("unseen", "superseded", "old", "stale"), 0)
    for way in _ways(requests, changes):
        delays_s += map(float, way.delay_s)
        seen = np.isfinite(way.delay_s)
        counts["unseen"] += int((~seen).sum())
        counts["superseded"] += int((~np.isin(way.numbers, way.shown) & seen).sum())
        counts["old"] += int((way.shown < _newest(way.at_s, way.numbers, way.sent_s)).sum())
        order = np.argsort(way.done_s, kind="stable")
        counts["stale"] += int((way.shown < _newest(way.done_s[order], way.shown[order], way.sent_s)).sum())
    found: dict[str, float | None] = {"changes": float(changes.height), "correct_s": None, "correct_max_s": None}
    if not delays_s:
        return found | dict.fromkeys(counts)
    times = {"correct_s": float(np.median(delays_s)), "correct_max_s": max(delays_s)}
    found |= {name: value_s for name, value_s in times.items() if np.isfinite(value_s)}
    return found | {name: float(count) for name, count in counts.items()}


def delays(requests: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """One row per change that answers can show: number, way, at_s, delay_s (null = never seen), in the order of time."""
    schema = {"number": pl.Int64, "way": pl.String, "at_s": pl.Float64, "delay_s": pl.Float64}
    rows = [pl.DataFrame(schema=schema)]
    for way in _ways(requests, events.filter(pl.col("kind") == "Change")):
        delay = pl.Series("delay_s", way.delay_s).replace(float("inf"), None)
        names = [way.name] * way.numbers.size
        rows.append(pl.DataFrame({"number": way.numbers, "way": names, "at_s": way.at_s}).with_columns(delay))
    return pl.concat(rows).sort("at_s")


def _ways(requests: pl.DataFrame, changes: pl.DataFrame) -> Iterator[_Way]:
    told = changes.with_columns(
        pl.col("detail").str.split(" ").list.first().alias("way"),
        pl.col("object").cast(pl.Int64, strict=False).alias("number"),
    )
    for name in ("endpoints", "routes", "status"):
        made = told.filter((pl.col("way") == name) & pl.col("number").is_not_null()).sort("at_s")
        if made.is_empty():
            continue
        numbers, at_s = made["number"].to_numpy(), made["at_s"].to_numpy()
        if name == "status":  # not there yet is an answer, too
            number = pl.when(good(requests)).then(int(numbers.max())).otherwise(0)
            frame = requests.with_columns(shown=number).filter(pl.col("error") == "")
        else:
            words = pl.col("answer").str.split(" ").list
            port, prefix = (words.get(place, null_on_oob=True).cast(pl.Int64, strict=False) for place in (1, 2))
            number = port - FIRST_PORT if name == "endpoints" else pl.when(words.len() > 2).then(prefix.fill_null(0))
            frame = requests.filter(good(requests)).with_columns(shown=number).filter(pl.col("shown") >= 0)
        sent_s, done_s = frame["sent_s"].to_numpy(), frame["done_s"].to_numpy()
        shown = frame["shown"].cast(pl.Int64).to_numpy()
        first_s = np.array([min(done_s[shown >= each], default=np.inf) for each in numbers], dtype=np.float64)
        yield _Way(name, numbers, at_s, np.maximum(first_s - at_s, 0), sent_s, done_s, shown)


def _newest(at_s: Floats, numbers: Ints, when_s: Floats) -> Ints:
    """The highest of `numbers` (at `at_s`, in the order of time) up to each time; 0 before the first."""
    highest = np.concatenate([[0], np.maximum.accumulate(numbers)])
    return highest[np.searchsorted(at_s, when_s, side="right")]
