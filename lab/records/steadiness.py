"""A sample's usage, second by second → whether it is steady (`lab.stats.steadiness`): the same when it is measured and when it is read again.

What stands for the requests of a second is what the backend sent in it, counted by the kernel; in samples of earlier labs, where nobody
counted, the backend's CPU time. Those are judged whenever they are read, since their stored records stay as they are.

Refuses to judge a load that is a number of requests (its last ones come when most connections have ended), the rate where it is given or
where two systems take turns, and CPU time per request at a given rate by the backend's CPU time: at a few per cent of a CPU that is no
measure of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from lab.model.samples import Reason, Sample
from lab.model.steadiness import Change, Source, Steadiness, find_cause
from lab.model.sweeps import Point
from lab.stats.steadiness import Floats, Seconds, find_change

COLUMNS = ("t_s", "role", "pid", "tid", "cpu_s", "sent_bytes")
"""Of a usage table, what is needed."""
Used = Mapping[tuple[str, str], tuple[Floats, Floats]]
"""(role, column) → (looks, what its processes together had used until then since the first look), each of shape (n,)."""
LEAST_S = 0.5
"""Looks that lie closer together are one: pods are looked at one after the other, and a sample's last look follows a full second's at once."""
LATE_S = 0.1
"""A load may end by so much later than its generator says, counted from the first look: what follows is idle time and no second of it."""
LEAST_CPU_S = 0.005
"""Of a backend, in a second. Less is a few hundred requests on a slow link, and as much is spent on connections and timers."""
PROXY_ONLY = 0.1
"""Where the backend sent less than this share of what the proxy did, the proxy answers by itself (a cache), and its bytes are taken."""
START_UP_S = 1
"""Of a load at a given rate: the generator makes its connections and users, and what it asks for begins late. And of one on a shaped link:
the backend runs ahead of it until what lies between is full."""


def judge(
    point: Point, used: Used, requests: int | None, loaded_s: float | None, in_turns: bool = False
) -> Steadiness | None:
    """Judge whether one sample is steady; None where its load is none that can be judged: a disruption, a number of requests, nothing reported.

    `used`: its usage table as `used_by_sample` reads it; `loaded_s`: how long its load lasted, since the first look; `in_turns`: whether
    another system ran in turns with this one, so that its rate per second says nothing.
    """
    if point.disturbance is not None or point.requests is not None or not requests or not loaded_s:
        return None
    source, seconds, total = _seconds(used, loaded_s)
    if source is None or (point.rate_rps is not None and source == "backend-cpu"):
        return Steadiness(source=None, seconds=0)
    found = find_change(
        seconds,
        judge_rate=point.rate_rps is None and not in_turns,
        least_work=LEAST_CPU_S if source == "backend-cpu" else 0.0,
        start_up=0 if point.rate_rps is None and point.link_mbit is None else START_UP_S,
    )
    if found is None:
        return Steadiness(source=source, seconds=len(seconds.work))
    each = requests / total
    change = Change(
        at_s=found.at_s,
        rate_before_rps=found.work_before * each,
        rate_after_rps=found.work_after * each,
        cpu_before_s=None if found.cpu_before is None else found.cpu_before / each,
        cpu_after_s=None if found.cpu_after is None else found.cpu_after / each,
        rate=found.rate,
        cpu=found.cpu,
    )
    return Steadiness(source=source, seconds=len(seconds.work), change=change)


def loaded_s(sample: Sample) -> float | None:
    """Return how long the load of a sample lasted, without what its generator then waited for late answers; of a side that ran in turns,
    both sides' time together. None: not known.
    """
    if sample.untimed:
        return 2 * sample.pair.own_s if sample.pair and sample.pair.own_s else None
    return min(sample.duration_s, sample.point.duration_s) if sample.duration_s else None


def describe_change(change: Change, lasting: bool = True) -> str:
    """Return the change in words: `11,300 req/s for 2 s, then 340`, or CPU time per request where the rate held.

    `lasting`: with how long the first part lasted.
    """
    lasted = f"for {change.at_s:.0f} s, then" if lasting else "then"
    comma = "" if lasting else ","
    if change.rate or change.cpu_before_s is None or change.cpu_after_s is None:
        return f"{_short(change.rate_before_rps)} req/s{comma} {lasted} {_short(change.rate_after_rps)}"
    before, after = (_short(value * 1e6) for value in (change.cpu_before_s, change.cpu_after_s))
    return f"{before} µs CPU per request{comma} {lasted} {after}"


def _short(value: float) -> str:
    """Two significant digits below 1,000, three from there on: what is read off single seconds has no more."""
    return f"{float(f'{value:.2e}' if value >= 1000 else f'{value:.1e}'):,.12g}"


def with_cause(sample: Sample) -> Sample:
    """Add what the counters show as its cause to the change that a sample records."""
    if sample.steadiness is None or (change := sample.steadiness.change) is None:
        return sample
    end, requests = sample.leftovers.get("end"), sample.requests or 0
    cause = find_cause(sample.counters, end, requests, loaded_s(sample) or 0.0, change.dearer)
    caused = change.model_copy(update={"cause": cause})
    return sample.model_copy(update={"steadiness": sample.steadiness.model_copy(update={"change": caused})})


def judge_usage(
    point: Point, usage: pl.DataFrame, requests: int, loaded_s: float | None, in_turns: bool
) -> Steadiness | None:
    """Judge one sample by its usage table; the arguments are those of `judge`."""
    used = used_by_sample(usage.select(pl.lit("").alias("sample"), *COLUMNS)).get("", {})
    return judge(point, used, requests, loaded_s, in_turns)


# -- samples of earlier labs -------------------------------------------------------------------------------


def judge_again(
    samples: Sequence[Sample],
    looks: Callable[[Sequence[str]], pl.DataFrame],
    known: dict[str, Steadiness | None],
) -> list[Sample]:
    """Judge those samples of a run that count and that nobody has judged; of a pair, both sides by what each of them shows.

    `looks`: called only where anything is to be judged, with the ids of those samples: their usage tables (COLUMNS), with a column `sample`.
    `known`: sample → its judgement, of those that were judged before; filled.
    """
    due = [each for each in samples if each.valid and each.steadiness is None and each.point.disturbance is None]
    due = [each for each in due if each.point.requests is None]
    if new := [each for each in due if each.id not in known]:
        used = used_by_sample(looks([each.id for each in new]))
        for each in new:
            known[each.id] = judge(each.point, used.get(each.id, {}), each.requests, loaded_s(each), each.untimed)
    found = {each.id: with_cause(each.model_copy(update={"steadiness": known[each.id]})) for each in due}
    moved = {_load_of(each): each for each in found.values() if each.steadiness and each.steadiness.change}
    return [_not_steady(found.get(each.id, each), moved) for each in samples]


def _load_of(sample: Sample) -> tuple[int, int, int]:
    """What both sides of a pair have in common, and no other sample of the run."""
    return sample.order, sample.generation, sample.attempt


def _not_steady(sample: Sample, moved: Mapping[tuple[int, int, int], Sample]) -> Sample:
    """The sample as it is, or invalid where it or the other side of its pair changed."""
    other = moved.get(_load_of(sample))
    own = sample.steadiness.change if sample.steadiness else None
    change = own or (other.steadiness.change if other and other.steadiness else None)
    if change is None or not sample.valid or sample.point.sustained:  # that one changes is what --sustained is for
        return sample
    what = f"{'' if own else 'on the other side: '}{describe_change(change)}"
    detail = f"{Reason.NOT_STEADY}: {what}"
    return sample.model_copy(update={"verdict": "invalid", "reason": Reason.NOT_STEADY, "detail": detail})


# -- a usage table as seconds ------------------------------------------------------------------------------


def used_by_sample(usage: pl.DataFrame) -> dict[str, Used]:
    """Read usage tables (COLUMNS, with a column `sample` in front) as cumulative sums by role: sample → Used.

    A process that comes later counts from zero; what a namespace had sent before its first look is not known.
    """
    process = ["sample", "role", "pid"]
    rows = (
        usage.lazy()
        .filter(pl.col("tid").is_null() & pl.col("role").is_in(["proxy", "backend"]))
        .with_columns(late=pl.col("t_s") > pl.col("t_s").min().over("sample", "role") + LEAST_S)
        .with_columns(
            cpu_s=pl.col("cpu_s").diff().over(process).fill_null(pl.when("late").then("cpu_s").otherwise(0.0)),
            sent_bytes=pl.col("sent_bytes").diff().over(process).fill_null(0).cast(pl.Float64),
        )
        .group_by("sample", "role", "t_s")
        .agg(pl.col("cpu_s", "sent_bytes").sum())
        .sort("sample", "role", "t_s")
        .with_columns(pl.col("cpu_s", "sent_bytes").cum_sum().over("sample", "role"))
        .group_by("sample", "role", maintain_order=True)
        .agg("t_s", "cpu_s", "sent_bytes")
        .collect()
    )
    found: dict[str, dict[tuple[str, str], tuple[Floats, Floats]]] = {}
    columns = (rows["t_s"], rows["cpu_s"], rows["sent_bytes"])
    for number, (sample, role) in enumerate(rows.select("sample", "role").iter_rows()):
        looks, cpu_s, sent = (column[number].to_numpy() for column in columns)
        found.setdefault(sample, {}).update({(role, "cpu_s"): (looks, cpu_s), (role, "sent_bytes"): (looks, sent)})
    return dict(found)


def _seconds(used: Used, loaded_s: float) -> tuple[Source | None, Seconds, float]:
    """(what stands for requests, its seconds, all of it in the sample); None where nothing was seen of the backend."""
    sent = {role: _last(used, role, "sent_bytes") for role in ("proxy", "backend")}
    by = "backend" if sent["backend"] >= PROXY_ONLY * sent["proxy"] else "proxy"
    source: Source = "sent-bytes" if sent[by] > 0 else "backend-cpu"
    by, column = (by, "sent_bytes") if source == "sent-bytes" else ("backend", "cpu_s")
    total = _last(used, by, column)
    if total <= 0:
        return None, Seconds(np.empty(0), np.empty(0), np.empty(0)), 0.0
    grid = _full_seconds(used[by, column][0], loaded_s)
    cpu_s = np.diff(np.interp(grid, *used["proxy", "cpu_s"])) if _last(used, "proxy", "cpu_s") > 0 else None
    return source, Seconds(grid[1:], np.diff(grid), np.diff(np.interp(grid, *used[by, column])), cpu_s), total


def _last(used: Used, role: str, column: str) -> float:
    """All of it in the sample; 0 where there is none."""
    return float(used[role, column][1][-1]) if (role, column) in used else 0.0


def _full_seconds(looks: Floats, loaded_s: float) -> Floats:
    """The looks that bound full seconds of the load: the last of those that lie together, and none after the load's end."""
    inside = looks[looks <= looks[0] + loaded_s + LATE_S]
    apart = np.diff(inside, append=np.inf) >= LEAST_S
    apart[0] = True
    kept = inside[apart]
    return kept if len(kept) < 2 or kept[1] - kept[0] >= LEAST_S else kept[1:]
