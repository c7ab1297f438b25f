"""The delay until answers show a change of routes or endpoints, and the count of answers that still show an old state.

Both are computed from events and a log of requests. Changes are numbered. The event of a change names the way in which answers show it
(`lab.model.events`): by the port that answered (`endpoints`), by the prefix that the proxy added (`routes`), or by the existence of a good
answer (`status`). Numbers increase, so an answer shows the newest change of its way that had reached the answering side, and a newer change
includes the older ones. Changes that answers cannot show are not counted here, apart from `changes`.

    changes        how many changes were made
    correct_s      median over the changes: from a change to the first answer that shows it or a newer one. A change that no answer showed
                   before the load's end counts as longer than every other; None where the median is such a change
    correct_max_s  the longest of these times; None where one change was never shown
    unseen         changes that no answer showed, neither the change nor a newer one
    superseded     changes of which answers showed only newer ones: several were taken over at once
    old            answers to requests that were sent after a change and do not show it
    stale          the `old` answers to requests that were sent after another answer had shown the change: a client that had
                   already seen the new state got the old one again
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from lab.model.events import FIRST_PORT
from lab.model.requests import good
from lab.stats.histogram import Floats, Ints


@dataclass(frozen=True, slots=True)
class _Way:
    """The changes of a disruption that answers show in one way, such as by the server's port, and these answers.

    Attributes:
        name: The way: `endpoints` (the port that answered), `routes` (a prefix that the proxy added) or `status` (a 2xx
            answer).
        numbers: The numbers of the changes, in the order of time.
        at_s: The times of the changes.
        delay_s: The time from each change to the first answer that shows this change or a newer one; infinite if none
            does.
        sent_s: The times at which the requests of the answers were sent.
        done_s: The times at which the answers arrived.
        shown: The number of the newest change that each answer shows; 0 = the state before the first change.

    """

    name: str
    numbers: Ints
    at_s: Floats
    delay_s: Floats
    sent_s: Floats
    done_s: Floats
    shown: Ints


def compute_propagation(requests: pl.DataFrame, events: pl.DataFrame) -> dict[str, float | None]:
    """Return how fast the changes of a disruption took effect in the answers, and how many answers were outdated.

    The module's docstring defines the numbers.

    Args:
        requests: The log of requests (`REQUESTS_SCHEMA`).
        events: The events of the sample (`EVENTS_SCHEMA`), with the changes.

    Returns:
        name → number. It is empty if there were no changes. If answers can show none of the changes, all numbers except
        `changes` are None.

    """
    changes = events.filter(pl.col("kind") == "Change")
    if changes.is_empty():
        return {}
    delays_s: list[float] = []
    counts = dict.fromkeys(("unseen", "superseded", "old", "stale"), 0)
    for way in _yield_ways(requests, changes):
        delays_s += map(float, way.delay_s)
        visible = np.isfinite(way.delay_s)
        counts["unseen"] += int((~visible).sum())
        counts["superseded"] += int((~np.isin(way.numbers, way.shown) & visible).sum())
        counts["old"] += int((way.shown < _find_newest(way.at_s, way.numbers, way.sent_s)).sum())
        order = np.argsort(way.done_s, kind="stable")
        counts["stale"] += int((way.shown < _find_newest(way.done_s[order], way.shown[order], way.sent_s)).sum())
    numbers: dict[str, float | None] = {"changes": float(changes.height), "correct_s": None, "correct_max_s": None}
    if not delays_s:
        return numbers | dict.fromkeys(counts)
    times = {"correct_s": float(np.median(delays_s)), "correct_max_s": max(delays_s)}
    numbers |= {name: value_s for name, value_s in times.items() if np.isfinite(value_s)}
    return numbers | {name: float(count) for name, count in counts.items()}


def list_delays(requests: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Return how long each change of a disruption took until an answer showed it, as a table in the order of time.

    Its columns are `number` (of the change), `way` (`endpoints`, `routes` or `status`: how answers show it), `at_s` and
    `delay_s` (null = no answer showed it). Changes that answers cannot show are left out.

    Args:
        requests: The log of requests (`REQUESTS_SCHEMA`).
        events: The events of the sample (`EVENTS_SCHEMA`), with the changes.

    """
    schema = {"number": pl.Int64, "way": pl.String, "at_s": pl.Float64, "delay_s": pl.Float64}
    rows = [pl.DataFrame(schema=schema)]
    for way in _yield_ways(requests, events.filter(pl.col("kind") == "Change")):
        delay = pl.Series("delay_s", way.delay_s).replace(float("inf"), None)
        names = [way.name] * way.numbers.size
        rows.append(pl.DataFrame({"number": way.numbers, "way": names, "at_s": way.at_s}).with_columns(delay))
    return pl.concat(rows).sort("at_s")


def _yield_ways(requests: pl.DataFrame, changes: pl.DataFrame) -> Iterator[_Way]:
    parsed = changes.with_columns(
        pl.col("detail").str.split(" ").list.first().alias("way"),
        pl.col("object").cast(pl.Int64, strict=False).alias("number"),
    )
    for name in ("endpoints", "routes", "status"):
        changes_of_way = parsed.filter((pl.col("way") == name) & pl.col("number").is_not_null()).sort("at_s")
        if changes_of_way.is_empty():
            continue
        numbers, at_s = changes_of_way["number"].to_numpy(), changes_of_way["at_s"].to_numpy()
        if name == "status":  # an answer other than a good one shows the state before the change
            number = pl.when(good(requests)).then(int(numbers.max())).otherwise(0)
            frame = requests.with_columns(shown=number).filter(pl.col("error") == "")
        else:
            answer_parts = pl.col("answer").str.split(" ").list
            port, prefix = (
                answer_parts.get(position, null_on_oob=True).cast(pl.Int64, strict=False) for position in (1, 2)
            )
            number = (
                port - FIRST_PORT if name == "endpoints" else pl.when(answer_parts.len() > 2).then(prefix.fill_null(0))
            )
            frame = requests.filter(good(requests)).with_columns(shown=number).filter(pl.col("shown") >= 0)
        sent_s, done_s = frame["sent_s"].to_numpy(), frame["done_s"].to_numpy()
        shown_numbers = frame["shown"].cast(pl.Int64).to_numpy()
        first_s = np.array(
            [min(done_s[shown_numbers >= change], default=np.inf) for change in numbers], dtype=np.float64
        )
        yield _Way(name, numbers, at_s, np.maximum(first_s - at_s, 0), sent_s, done_s, shown_numbers)


def _find_newest(at_s: Floats, numbers: Ints, until_s: Floats) -> Ints:
    """Return, for each point in time, the highest number of all changes made until then; 0 before the first change.

    Args:
        at_s: The times of the changes, in ascending order, shape (n,).
        numbers: The numbers of the changes, shape (n,).
        until_s: The points in time to look up, shape (m,).

    Returns:
        The numbers, shape (m,).

    """
    highest = np.concatenate([[0], np.maximum.accumulate(numbers)])
    return highest[np.searchsorted(at_s, until_s, side="right")]
