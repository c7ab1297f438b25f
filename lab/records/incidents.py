"""Numbers about a system during a disruption, such as reloads, restarts and failed probes, from its events and its usage.

`lab.model.events` defines the events. Nothing here reads or writes files.

reloads           how often the proxy served a new configuration, from the load's beginning on; of several proxies the one that did so
                  most often, since a change reaches each of them
processes         the largest number of processes of the proxy's program (PROGRAMS) at once, second by second: it includes old ones that
                  still hold connections after a reload, but no controllers, shells and helpers
rss_bytes         the largest memory of all processes of the proxy at once
api_rss_bytes     the largest memory of the API server, where it is a process next to the system; without its etcd
restarts          containers that started again in their pod
probe_failures    attempts that failed; where single attempts are not recorded, the failures that the kubelet reported
probe_p50_s …     how long attempts took from the disruption on; a failed attempt counts as long as it waited
terminating_s     from a pod's deletion until it was gone, of the pod that took longest
pending_s         from a pod's creation until its container ran, of the pod that took longest
replaced_s        from the first deletion (where no pod was deleted: the end of a container) until as many were ready again; left out
                  where no pod was to be created, as in scaling down
refused_evictions how often a PodDisruptionBudget did not allow an eviction
held, cut, cut_s  long-lived connections, including those from before the load; those that ended too early; the time of the first cut
                  after the disruption began
not_opened        long-lived connections that could not be opened
transfers         large bodies that arrived complete; those answered with 413 are `too_large`, all others `transfers_lost`,
                  including those that were broken off
transfer_rate     median of their bytes per second
first_byte_s      median time from connecting to the first byte of the answer: for an upload it includes the sending
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import median

import polars as pl

from lab.base.errors import MeasuringError

PROGRAMS = ("nginx", "haproxy")
"""The programs of the proxies, as the kernel names their processes.

Controllers (`nginx-ingress-c`, `openshift-route`) and shells have other names.
"""
API_SERVER = "kube-apiserver"
OBSERVATION_S = 0.3
"""The longest time between observations that count as one, in seconds.

Processes are observed once a second; the observations of several pods at that time lie closer together than this.
"""
_SECONDS = r"\d+(?:\.\d+)?"
_TRANSFER = re.compile(
    rf"(?P<way>upload|download) (?P<size>\d+) bytes (?P<took_s>{_SECONDS}) s"
    rf" first (?:(?P<first_s>{_SECONDS}) s|-) status (?P<status>\d+)(?: .+)?"
)
TRANSFER_EVENTS_SCHEMA = {
    "at_s": pl.Float64,  # when it was over
    "object": pl.String,
    "way": pl.String,  # upload or download
    "size_bytes": pl.Int64,
    "took_s": pl.Float64,
    "first_s": pl.Float64,  # until the answer's first byte; null: none came
    "status": pl.Int64,  # 0: no answer
}

Outcome = dict[str, float | None]


def compute_incidents(events: pl.DataFrame, usage: pl.DataFrame, began_s: float, begin_s: float) -> Outcome:
    """Return numbers about what happened inside a system during a disrupted load, such as reloads and restarts.

    The module's docstring defines the numbers. Numbers that do not apply to the kind of disruption are left out.

    Args:
        events: The events of the sample (`EVENTS_SCHEMA`).
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).
        began_s: When the load began, in seconds since the epoch.
        begin_s: When the disruption began, in seconds since the epoch.

    Returns:
        name → number; None = unknown.

    """
    since = events.filter(pl.col("at_s") >= began_s)
    reloaded = since.filter(pl.col("kind") == "Reloaded")["object"].value_counts()["count"].max()
    numbers: Outcome = {"reloads": float(reloaded) if isinstance(reloaded, int) else 0.0}
    if not (observed := summarise_processes(usage)).is_empty():
        processes, rss_bytes = observed.select(pl.col("processes").max(), pl.col("rss_bytes").max()).row(0)
        numbers |= {"processes": float(processes) if processes else None, "rss_bytes": float(rss_bytes)}
    is_api_server = (pl.col("role") == "control") & pl.col("tid").is_null() & (pl.col("title") == API_SERVER)
    if not (api_server := usage.filter(is_api_server)).is_empty():
        numbers["api_rss_bytes"] = float(api_server.select(pl.col("rss_bytes").max()).item())
    restarts = since.filter((pl.col("kind") == "Started") & pl.col("detail").str.starts_with("restart"))
    numbers["restarts"] = float(restarts.height)
    return (
        numbers
        | _summarise_probes(since, begin_s)
        | _summarise_pods(since)
        | _summarise_held(events, begin_s)
        | _summarise_transfers(since)
    )


def summarise_processes(usage: pl.DataFrame) -> pl.DataFrame:
    """Return how many processes the proxy had, and their memory, over the time of a sample.

    Args:
        usage: The CPU and memory of each process, second by second (`USAGE_SCHEMA`).

    Returns:
        A table with one row per observation, in the order of time. Its columns are `t_s`, `processes` (the number of
        processes whose program is in PROGRAMS) and `rss_bytes` (of all the proxy's processes).

    """
    rows = usage.filter((pl.col("role") == "proxy") & pl.col("tid").is_null()).sort("t_s")
    if rows.is_empty():
        return pl.DataFrame(schema={"t_s": pl.Float64, "processes": pl.Int64, "rss_bytes": pl.Int64})
    # the last observation is made whenever the load ends, and may coincide with the one before it
    early = rows.filter(pl.col("t_s") <= pl.col("t_s").max() - OBSERVATION_S)
    rows = early if not early.is_empty() else rows
    number = (pl.col("t_s").diff().fill_null(0) > OBSERVATION_S).cum_sum()
    return (
        rows.with_columns(look=number)
        .group_by("look")
        .agg(
            pl.col("t_s").min(),
            pl.col("title").is_in(PROGRAMS).sum().cast(pl.Int64).alias("processes"),
            pl.col("rss_bytes").sum(),
        )
        .sort("t_s")
        .drop("look")
    )


def list_probes(events: pl.DataFrame) -> pl.DataFrame:
    """Return a table of all recorded probe attempts of the kubelet.

    Its columns are `at_s`, `object` (the pod), `probe` ("liveness", "readiness", …), `took_s` and `ok`.

    Args:
        events: The events of a sample (`EVENTS_SCHEMA`).

    """
    detail_parts = pl.col("detail").str.splitn(" ", 3).struct
    return (
        events.filter(pl.col("kind") == "Probe")
        .with_columns(
            detail_parts.field("field_0").alias("probe"),
            detail_parts.field("field_1").cast(pl.Float64, strict=False).alias("took_s"),
            (detail_parts.field("field_2") == "ok").fill_null(value=False).alias("ok"),
        )
        .select("at_s", "object", "probe", "took_s", "ok")
    )


def _summarise_probes(events: pl.DataFrame, begin_s: float) -> Outcome:
    if (attempts := list_probes(events)).is_empty():
        return {"probe_failures": float(events.filter(pl.col("kind") == "Unhealthy").height)}
    took_s = attempts.filter(pl.col("at_s") >= begin_s)["took_s"].drop_nulls().to_list()
    return {
        "probe_failures": float(attempts.filter(~pl.col("ok")).height),
        "probe_p50_s": median(took_s) if took_s else None,
        "probe_max_s": max(took_s, default=None),
    }


def _summarise_pods(events: pl.DataFrame) -> Outcome:
    kinds = ("Created", "Started", "Deleted", "Gone", "Exited")
    created, started, deleted, gone, exited = (_find_first_times(events, kind) for kind in kinds)
    refused = float(events.filter(pl.col("kind") == "EvictionRefused").height)
    numbers: Outcome = {"refused_evictions": refused} if refused or deleted else {}
    if deleted:
        numbers["terminating_s"] = _find_longest(deleted, gone)
    if created:
        numbers["pending_s"] = _find_longest(created, started)
    ended, begun = (deleted, created) if deleted else (exited, exited)
    if ended and begun:
        ready = [at_s for pod, since_s in begun.items() if (at_s := _find_ready_s(events, pod, since_s)) is not None]
        enough = sorted(ready)[: len(ended)]
        complete = len(enough) == len(ended)
        numbers["replaced_s"] = max(0.0, enough[-1] - min(ended.values())) if complete else None
    return numbers


def _find_first_times(events: pl.DataFrame, kind: str) -> dict[str, float]:
    """Return the time of the first event of a kind for each object (pod), by the object's name."""
    rows = events.filter(pl.col("kind") == kind).sort("at_s", descending=True)
    return dict(zip(rows["object"].to_list(), rows["at_s"].to_list(), strict=True))


def _find_longest(begun: Mapping[str, float], ended: Mapping[str, float]) -> float | None:
    """Return the longest time between begin and end over all objects; None if the end of one of them is missing.

    Args:
        begun: The time at which each object began, by its name.
        ended: The time at which each object ended, by its name.

    """
    if begun.keys() - ended.keys():
        return None
    return max((ended[name] - at_s for name, at_s in begun.items()), default=None)


def _find_ready_s(events: pl.DataFrame, pod: str, after_s: float) -> float | None:
    rows = events.filter((pl.col("kind") == "Ready") & (pl.col("object") == pod) & (pl.col("at_s") >= after_s))
    return min(rows["at_s"].to_list(), default=None)


def _summarise_held(events: pl.DataFrame, begin_s: float) -> Outcome:
    held, cut, refused = (events.filter(pl.col("kind") == kind) for kind in ("Held", "Cut", "Refused"))
    if held.is_empty() and refused.is_empty():
        return {}
    first = min(cut.filter(pl.col("at_s") >= begin_s)["at_s"].to_list(), default=None)
    return {
        "held": float(held.height),
        "cut": float(cut.height),
        "not_opened": float(refused.height),
        "cut_s": None if first is None else first - begin_s,
    }


def list_transfers(events: pl.DataFrame) -> pl.DataFrame:
    """Return a table of all transfers of large bodies, complete or broken off (`TRANSFER_EVENTS_SCHEMA`).

    Args:
        events: The events of a sample (`EVENTS_SCHEMA`).

    Raises:
        MeasuringError: The detail of an event does not have the form that `lab.model.events` defines.

    """
    rows: list[tuple[float, str, str, int, float, float | None, int]] = []
    for at_s, name, detail in (
        events.filter(pl.col("kind") == "Transfer").select("at_s", "object", "detail").iter_rows()
    ):
        if (match := _TRANSFER.fullmatch(detail)) is None:
            raise MeasuringError(f"event Transfer {name}", f"says {detail[:120]!r}", "lab/model/events.py has its form")
        first_s = None if match["first_s"] is None else float(match["first_s"])
        rows.append(
            (at_s, name, match["way"], int(match["size"]), float(match["took_s"]), first_s, int(match["status"]))
        )
    return pl.DataFrame(rows, schema=TRANSFER_EVENTS_SCHEMA, orient="row")


def _summarise_transfers(events: pl.DataFrame) -> Outcome:
    if (bodies := list_transfers(events)).is_empty():
        return {}
    complete = bodies.filter(pl.col("status").is_between(200, 299))
    rates = complete.filter(pl.col("took_s") > 0).select(pl.col("size_bytes") / pl.col("took_s")).to_series().to_list()
    firsts = complete["first_s"].drop_nulls().to_list()
    too_large = bodies.filter(pl.col("status") == 413).height
    return {
        "transfers": float(complete.height),
        "transfer_rate": median(rates) if rates else None,
        "first_byte_s": median(firsts) if firsts else None,
        "too_large": float(too_large),
        "transfers_lost": float(bodies.height - complete.height - too_large),
    }
