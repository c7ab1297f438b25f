"""The judgement whether the rate and the CPU time per request stayed steady within a sample, from its usage in each second.

`lab.stats.steadiness` has the rule. The judgement is the same when a sample is measured and when it is read again. The requests
of a second are estimated from the bytes that the backend sent in that second. Samples of earlier labs have no such count, and the
CPU time of the backend stands for the requests there. Those samples are judged whenever they are read, since their stored records
do not change.

Four things are not judged: a load with a disruption, streams of events or WebSockets; a load that is a number of
requests (its last ones arrive when most connections have ended); the rate, where it is offered or where two systems run
interleaved; and CPU time per request at an offered rate by the CPU time of the backend, since a few per cent of a CPU
do not measure requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from lab.model.samples import Reason, Sample
from lab.model.steadiness import Change, Source, Steadiness, find_cause
from lab.model.sweeps import LoadPoint
from lab.stats.histogram import Floats
from lab.stats.steadiness import SampleSeconds, find_change

COLUMNS = ("t_s", "role", "pid", "tid", "cpu_s", "sent_bytes")
"""The columns of a usage table that the judgement needs."""
CumulativeUsage = Mapping[tuple[str, str], tuple[Floats, Floats]]
"""The usage of a sample: (role, column) → (times of observation, cumulative sum over all processes).

Both arrays have the shape (n,), and the sum starts at the first observation.
"""
LEAST_DISTANCE_S = 0.5
"""The seconds below which two observations count as one.

Pods are observed one after the other, and the last observation of a sample follows that of a full second at once.
"""
END_TOLERANCE_S = 0.1
"""The seconds by which a load may end later than its generator reports, counted from the first observation.

What follows is idle time and no second of the load.
"""
LEAST_CPU_S = 0.005
"""The least CPU seconds of a backend in a second that show its requests.

Less is a few hundred requests on a slow link, and as much is spent on connections and timers.
"""
PROXY_ONLY = 0.1
"""The share of the proxy's sent bytes below which the bytes of the backend are not used.

There the proxy answers from a cache, and its own bytes stand for the requests.
"""
START_UP_S = 1
"""The seconds that a load at an offered rate, or on a shaped link, takes to begin.

A generator makes its connections and users first, so that the rate that it offers begins late. On a shaped link the backend runs ahead
of the load until the buffers on the way are full.
"""


def judge_sample(
    point: LoadPoint, used: CumulativeUsage, requests: int | None, loaded_s: float | None, in_turns: bool = False
) -> Steadiness | None:
    """Judge whether the rate and the CPU time per request of a sample stayed steady, or changed for good at some time.

    Args:
        point: The load point of the sample.
        used: The cumulative usage of the sample's system, as `accumulate_usage` returns it.
        requests: The number of requests in the sample; None = nothing was reported.
        loaded_s: The length of the load in seconds, from the first observation on; None = nothing was reported.
        in_turns: Whether the sample ran in time slices, alternating with another system. Then the rate is not judged.

    Returns:
        None if the load cannot be judged: it has a disruption, streams of events or WebSockets, ends after a number of
        requests, or reported nothing.

    """
    if point.has_outcome or point.requests is not None or not requests or not loaded_s:
        return None
    source, seconds, total = _split_into_seconds(used, loaded_s)
    if source is None or (point.rate_rps is not None and source == "backend-cpu"):
        return Steadiness(source=None, seconds=0)
    shift = find_change(
        seconds,
        judge_rate=point.rate_rps is None and not in_turns,
        least_work=LEAST_CPU_S if source == "backend-cpu" else 0.0,
        start_up=0 if point.rate_rps is None and point.link_mbit is None else START_UP_S,
    )
    if shift is None:
        return Steadiness(source=source, seconds=len(seconds.work))
    requests_per_unit = requests / total
    change = Change(
        at_s=shift.at_s,
        rate_before_rps=shift.work_before * requests_per_unit,
        rate_after_rps=shift.work_after * requests_per_unit,
        cpu_before_s=None if shift.cpu_before is None else shift.cpu_before / requests_per_unit,
        cpu_after_s=None if shift.cpu_after is None else shift.cpu_after / requests_per_unit,
        rate=shift.rate,
        cpu=shift.cpu,
    )
    return Steadiness(source=source, seconds=len(seconds.work), change=change)


def load_duration_s(sample: Sample) -> float | None:
    """Return how long the load of a sample lasted in seconds, without the wait for late answers; None if unknown.

    For one side of a pair in time slices, it is the time of both sides together.
    """
    if sample.untimed:
        return 2 * sample.pair.own_s if sample.pair and sample.pair.own_s else None
    return min(sample.duration_s, sample.point.duration_s) if sample.duration_s else None


def describe_change(change: Change, lasting: bool = True) -> str:
    """Return a lasting change in words: `11,300 req/s for 2 s, then 340`.

    If only the CPU time per request changed, the text has that: `52 µs CPU per request for 2 s, then 75`.

    Args:
        change: The change.
        lasting: Whether to include the time before the change (`for 2 s`).

    """
    lasted = f"for {change.at_s:.0f} s, then" if lasting else "then"
    comma = "" if lasting else ","
    if change.rate or change.cpu_before_s is None or change.cpu_after_s is None:
        return f"{_round_off(change.rate_before_rps)} req/s{comma} {lasted} {_round_off(change.rate_after_rps)}"
    before, after = (_round_off(value * 1e6) for value in (change.cpu_before_s, change.cpu_after_s))
    return f"{before} µs CPU per request{comma} {lasted} {after}"


def _round_off(value: float) -> str:
    """Return a value with two significant digits if it is below 1,000, otherwise with three: `340`, `11,300`.

    The values are estimated from single seconds, so more digits would mean nothing.
    """
    return f"{float(f'{value:.2e}' if value >= 1000 else f'{value:.1e}'):,.12g}"


def add_cause(sample: Sample) -> Sample:
    """Return a copy of a sample with the cause of its lasting change of rate or CPU time, as the sample's counters show it.

    A sample without such a change, or with a known cause, is returned unchanged.
    """
    if sample.steadiness is None or (change := sample.steadiness.change) is None or change.cause is not None:
        return sample
    end, requests = sample.leftovers.get("end"), sample.requests or 0
    cause = find_cause(sample.counters, end, requests, load_duration_s(sample) or 0.0, change.dearer)
    caused = change.model_copy(update={"cause": cause})
    return sample.model_copy(update={"steadiness": sample.steadiness.model_copy(update={"change": caused})})


def judge_usage(
    point: LoadPoint, usage: pl.DataFrame, requests: int, loaded_s: float | None, in_turns: bool
) -> Steadiness | None:
    """Judge from a usage table whether the rate and the CPU time per request of a sample stayed steady.

    The rules are those of `judge_sample`. The result is None if the load cannot be judged.

    Args:
        point: The load point of the sample.
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
        requests: The number of requests in the sample.
        loaded_s: The length of the load in seconds, from the first observation on; None = unknown.
        in_turns: Whether the sample ran in time slices, alternating with another system.

    """
    used = _accumulate_sample(usage)
    return judge_sample(point, used, requests, loaded_s, in_turns)


def judge_restart(usage: pl.DataFrame, requests: int, loaded_s: float) -> Steadiness | None:
    """Return the change of a sample during which the proxy's container was restarted: the rate until then, and from then on.

    The time of the change is that at which the first of the proxy's processes had ended.

    Args:
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
        requests: The number of requests in the sample.
        loaded_s: The length of the load in seconds, from the first observation on.

    Returns:
        None if no process of the proxy ended between two observations, or if the backend was not observed.

    """
    used = _accumulate_sample(usage)
    source, seconds, total = _split_into_seconds(used, loaded_s)
    processes = usage.filter((pl.col("role") == "proxy") & pl.col("tid").is_null()).group_by("pid")
    last_s = processes.agg(pl.col("t_s").max())["t_s"].min()
    before = seconds.end_s <= last_s if isinstance(last_s, float) else np.zeros(0, dtype=bool)
    if source is None or not before.any() or before.all():
        return None
    works, lengths_s = (
        [float(side[part].sum()) for part in (before, ~before)] for side in (seconds.work, seconds.length_s)
    )
    rates_rps = [work / total * requests / length_s for work, length_s in zip(works, lengths_s, strict=True)]
    change = Change(
        at_s=float(seconds.end_s[before][-1]),
        rate_before_rps=rates_rps[0],
        rate_after_rps=rates_rps[1],
        rate=True,
        cpu=False,
        cause="restart",
    )
    return Steadiness(source=source, seconds=len(seconds.work), change=change)


# -- samples of earlier labs -------------------------------------------------------------------------------


def judge_unjudged(
    samples: Sequence[Sample],
    looks: Callable[[Sequence[str]], pl.DataFrame],
    judgements: dict[str, Steadiness | None],
) -> list[Sample]:
    """Return all samples of a run, after each valid sample without a stored judgement was judged for steadiness.

    Older versions of the lab did not store a judgement. A sample whose rate or CPU time per request changed for good
    becomes invalid, except under a sustained load (`--sustained`). If it is one side of a pair, the other side becomes
    invalid, too. Loads with a disruption, streams of events or WebSockets are not judged. Loads that end after a number
    of requests are not judged either.

    Args:
        samples: The samples of the run.
        looks: Returns the usage of the samples with the given ids as one table, with the columns `sample` and
            `COLUMNS`. It is called only if there is a sample to judge.
        judgements: The judgements from earlier calls, by the sample's id; new ones are added to it.

    """
    unjudged = [
        sample
        for sample in samples
        if sample.valid and sample.steadiness is None and not sample.point.has_outcome and sample.point.requests is None
    ]
    if new := [sample for sample in unjudged if sample.id not in judgements]:
        used = accumulate_usage(looks([sample.id for sample in new]))
        for sample in new:
            judgements[sample.id] = judge_sample(
                sample.point, used.get(sample.id, {}), sample.requests, load_duration_s(sample), sample.untimed
            )
    judged = {
        sample.id: add_cause(sample.model_copy(update={"steadiness": judgements[sample.id]})) for sample in unjudged
    }
    moved = {_load_key(sample): sample for sample in judged.values() if sample.steadiness and sample.steadiness.change}
    return [_invalidate_unsteady(judged.get(sample.id, sample), moved) for sample in samples]


def _load_key(sample: Sample) -> tuple[int, int, int]:
    """Return a key that only the two sides of a pair (two variants at once) have in common, among all samples of a run."""
    return sample.order, sample.generation, sample.attempt


def _invalidate_unsteady(sample: Sample, moved: Mapping[tuple[int, int, int], Sample]) -> Sample:
    """Return a copy of a sample marked as invalid if the sample, or the other side of its pair, was not steady.

    A pair is two variants that are measured at once. Any other sample is returned unchanged, and so is a sample of a
    sustained load (`--sustained`), because that load exists to show such a change.

    Args:
        sample: The sample.
        moved: The samples with a lasting change of rate or CPU time, by `_load_key`.

    """
    changed_side = moved.get(_load_key(sample))
    own_change = sample.steadiness.change if sample.steadiness else None
    change = own_change or (changed_side.steadiness.change if changed_side and changed_side.steadiness else None)
    if change is None or not sample.valid or sample.point.sustained:  # --sustained exists to show such a change
        return sample
    detail = f"{Reason.NOT_STEADY}: {'' if own_change else 'on the other side: '}{describe_change(change)}"
    return sample.model_copy(update={"verdict": "invalid", "reason": Reason.NOT_STEADY, "detail": detail})


# -- a usage table as seconds ------------------------------------------------------------------------------


def _accumulate_sample(usage: pl.DataFrame) -> CumulativeUsage:
    return accumulate_usage(usage.select(pl.lit("").alias("sample"), *COLUMNS)).get("", {})


def accumulate_usage(usage: pl.DataFrame) -> dict[str, CumulativeUsage]:
    """Return the cumulative CPU time and sent bytes of proxy and backend over the time of each sample.

    The values are sums over all processes of the role. A process that starts during the sample counts from zero. Bytes
    that were sent before the first observation are unknown, so counting begins there.

    Args:
        usage: The usage of several samples as one table. It has a column `sample` (the sample's id) and the columns in
            `COLUMNS`.

    Returns:
        sample id → (role, column) → (times in seconds, cumulative values), with the column "cpu_s" or "sent_bytes".

    """
    process = ["sample", "role", "pid"]
    rows = (
        usage.lazy()
        .filter(pl.col("tid").is_null() & pl.col("role").is_in(["proxy", "backend"]))
        .with_columns(late=pl.col("t_s") > pl.col("t_s").min().over("sample", "role") + LEAST_DISTANCE_S)
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
    used: dict[str, dict[tuple[str, str], tuple[Floats, Floats]]] = {}
    columns = (rows["t_s"], rows["cpu_s"], rows["sent_bytes"])
    for number, (sample, role) in enumerate(rows.select("sample", "role").iter_rows()):
        times_s, cpu_s, sent = (column[number].to_numpy() for column in columns)
        used.setdefault(sample, {}).update({(role, "cpu_s"): (times_s, cpu_s), (role, "sent_bytes"): (times_s, sent)})
    return dict(used)


def _split_into_seconds(used: CumulativeUsage, loaded_s: float) -> tuple[Source | None, SampleSeconds, float]:
    """Divide a sample into full seconds, with the requests and the CPU time in each.

    Requests are not counted second by second. So a measure that is proportional to them takes their place: the bytes
    sent by the backend (by the proxy, if it answers from a cache) or, in old samples, the backend's CPU time.

    Args:
        used: The cumulative usage of the sample, as `accumulate_usage` returns it.
        loaded_s: The length of the load in seconds.

    Returns:
        The measure ("sent-bytes" or "backend-cpu"; None if the backend was not observed), the seconds, and the
        measure's sum over the sample.

    """
    sent = {role: _get_total(used, role, "sent_bytes") for role in ("proxy", "backend")}
    role = "backend" if sent["backend"] >= PROXY_ONLY * sent["proxy"] else "proxy"
    source: Source = "sent-bytes" if sent[role] > 0 else "backend-cpu"
    role, column = (role, "sent_bytes") if source == "sent-bytes" else ("backend", "cpu_s")
    total = _get_total(used, role, column)
    if total <= 0:
        return None, SampleSeconds(np.empty(0), np.empty(0), np.empty(0)), 0.0
    grid = _bound_full_seconds(used[role, column][0], loaded_s)
    cpu_s = np.diff(np.interp(grid, *used["proxy", "cpu_s"])) if _get_total(used, "proxy", "cpu_s") > 0 else None
    return source, SampleSeconds(grid[1:], np.diff(grid), np.diff(np.interp(grid, *used[role, column])), cpu_s), total


def _get_total(used: CumulativeUsage, role: str, column: str) -> float:
    """Return the sum of a column over the whole sample; 0 if it was not observed.

    Args:
        used: The cumulative usage of the sample, as `accumulate_usage` returns it.
        role: "proxy" or "backend".
        column: "cpu_s" or "sent_bytes".

    """
    return float(used[role, column][1][-1]) if (role, column) in used else 0.0


def _bound_full_seconds(times_s: Floats, loaded_s: float) -> Floats:
    """Return the times at which the full seconds of a load begin and end, chosen from the times of the observations.

    Each second lies between two neighbouring times of the result, since systems are observed about once a second.
    Observations more than `END_TOLERANCE_S` after the load's end are left out. Of observations that follow each other
    within less than `LEAST_DISTANCE_S`, only the last one is used.

    Args:
        times_s: The times of all observations in ascending order, shape (n,).
        loaded_s: The length of the load in seconds, from the first observation on.

    """
    inside = times_s[times_s <= times_s[0] + loaded_s + END_TOLERANCE_S]
    apart = np.diff(inside, append=np.inf) >= LEAST_DISTANCE_S
    apart[0] = True
    bounds = inside[apart]
    return bounds if len(bounds) < 2 or bounds[1] - bounds[0] >= LEAST_DISTANCE_S else bounds[1:]
