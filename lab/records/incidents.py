"""What happened inside a system while it was disturbed: events and usage → numbers. Pure; `lab.model.events` has the words.

reloads           how often the proxy served a new configuration, from the load's beginning on; of several proxies the one that did
                  most often: a change reaches each of them
processes         the most processes of the proxy's own program (PROGRAMS) at once, second by second: old ones that still hold
                  connections after a reload are in it; controllers, shells and helpers are none
rss_bytes         the most memory of all of the proxy's processes at once
api_rss_bytes     the most memory of the API server, where it is a process beside the system; without its etcd
restarts          containers that began anew in their pod
probe_failures    attempts that failed; where single attempts are not told, those the kubelet reported
probe_p50_s …     how long attempts took from the disturbance on, failed ones as long as they waited
terminating_s     from a pod's deletion until it was gone, of the pod that took longest
pending_s         from a pod's making until its container ran, of the pod that took longest
replaced_s        from the first deletion (where none was deleted: container's end) until as many were ready again; left out
                  where none was to be made, as in scaling down
refused_evictions how often a PodDisruptionBudget did not allow one
held, cut, cut_s  long-lived connections, also those from before the load; those that ended before they were to; the first of
                  these after the disturbance began
not_opened        such connections that could not be opened
transfers         large bodies that came through whole; those answered with 413 are `too_large`, all others `transfers_lost`,
                  also those that were broken off
transfer_rate     median of their bytes per second
first_byte_s      median time from connecting on to the answer's first byte: of an upload, its sending is in it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import median

import polars as pl

from lab.base.errors import MeasuringError

PROGRAMS = ("nginx", "haproxy")
"""The proxies' own programs, as the kernel calls their processes: `nginx-ingress-c`, `openshift-route` and shells are others."""
API_SERVER = "kube-apiserver"
LOOK_S = 0.3
"""Looks at the processes are a second apart; those of one look, at several pods, are closer together than this."""
_SECONDS = r"\d+(?:\.\d+)?"
_TRANSFER = re.compile(
    rf"(?P<way>upload|download) (?P<size>\d+) bytes (?P<took_s>{_SECONDS}) s"
    rf" first (?:(?P<first_s>{_SECONDS}) s|-) status (?P<status>\d+)(?: .+)?"
)
TRANSFERS_SCHEMA = {
    "at_s": pl.Float64,  # when it was over
    "object": pl.String,
    "way": pl.String,  # upload or download
    "size_bytes": pl.Int64,
    "took_s": pl.Float64,
    "first_s": pl.Float64,  # until the answer's first byte; null: none came
    "status": pl.Int64,  # 0: no answer
}

Outcome = dict[str, float | None]


def outcome(events: pl.DataFrame, usage: pl.DataFrame, began_s: float, begin_s: float) -> Outcome:
    """The numbers above; what a kind of disturbance does not have is left out. `begin_s`: when the disturbance began."""
    since = events.filter(pl.col("at_s") >= began_s)
    reloaded = since.filter(pl.col("kind") == "Reloaded")["object"].value_counts()["count"].max()
    found: Outcome = {"reloads": float(reloaded) if isinstance(reloaded, int) else 0.0}
    seen = looks(usage)
    if not seen.is_empty():
        processes, rss_bytes = seen.select(pl.col("processes").max(), pl.col("rss_bytes").max()).row(0)
        found |= {"processes": float(processes) if processes else None, "rss_bytes": float(rss_bytes)}
    own = (pl.col("role") == "control") & pl.col("tid").is_null() & (pl.col("title") == API_SERVER)
    if not (api_server := usage.filter(own)).is_empty():
        found["api_rss_bytes"] = float(api_server.select(pl.col("rss_bytes").max()).item())
    again = since.filter((pl.col("kind") == "Started") & pl.col("detail").str.starts_with("restart"))
    found["restarts"] = float(again.height)
    return found | _probes(since, begin_s) | _pods(since) | _held(events, begin_s) | _transfers(since)


def looks(usage: pl.DataFrame) -> pl.DataFrame:
    """t_s, processes (of PROGRAMS), rss_bytes (of all of its processes): one row per look at the proxy."""
    rows = usage.filter((pl.col("role") == "proxy") & pl.col("tid").is_null()).sort("t_s")
    if rows.is_empty():
        return pl.DataFrame(schema={"t_s": pl.Float64, "processes": pl.Int64, "rss_bytes": pl.Int64})
    # the last look comes whenever the load ends, and may fall upon the one before it
    early = rows.filter(pl.col("t_s") <= pl.col("t_s").max() - LOOK_S)
    rows = early if not early.is_empty() else rows
    number = (pl.col("t_s").diff().fill_null(0) > LOOK_S).cum_sum()
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


def probes(events: pl.DataFrame) -> pl.DataFrame:
    """Every attempt that was told: at_s, object, probe (liveness, …), took_s, ok."""
    words = pl.col("detail").str.splitn(" ", 3).struct
    return (
        events.filter(pl.col("kind") == "Probe")
        .with_columns(
            words.field("field_0").alias("probe"),
            words.field("field_1").cast(pl.Float64, strict=False).alias("took_s"),
            (words.field("field_2") == "ok").fill_null(value=False).alias("ok"),
        )
        .select("at_s", "object", "probe", "took_s", "ok")
    )


def _probes(events: pl.DataFrame, begin_s: float) -> Outcome:
    told = probes(events)
    if told.is_empty():
        return {"probe_failures": float(events.filter(pl.col("kind") == "Unhealthy").height)}
    took_s = told.filter(pl.col("at_s") >= begin_s)["took_s"].drop_nulls().to_list()
    return {
        "probe_failures": float(told.filter(~pl.col("ok")).height),
        "probe_p50_s": median(took_s) if took_s else None,
        "probe_max_s": max(took_s, default=None),
    }


def _pods(events: pl.DataFrame) -> Outcome:
    kinds = ("Created", "Started", "Deleted", "Gone", "Exited")
    created, started, deleted, gone, exited = (_first(events, kind) for kind in kinds)
    refused = float(events.filter(pl.col("kind") == "EvictionRefused").height)
    found: Outcome = {"refused_evictions": refused} if refused or deleted else {}
    if deleted:
        found["terminating_s"] = _longest(deleted, gone)
    if created:
        found["pending_s"] = _longest(created, started)
    ended, begun = (deleted, created) if deleted else (exited, exited)
    if ended and begun:
        ready = [at_s for pod, since_s in begun.items() if (at_s := _ready_s(events, pod, since_s)) is not None]
        enough = sorted(ready)[: len(ended)]
        whole = len(enough) == len(ended)
        found["replaced_s"] = max(0.0, enough[-1] - min(ended.values())) if whole else None
    return found


def _first(events: pl.DataFrame, kind: str) -> dict[str, float]:
    """Object → when it was first told of it."""
    rows = events.filter(pl.col("kind") == kind).sort("at_s", descending=True)
    return dict(zip(rows["object"].to_list(), rows["at_s"].to_list(), strict=True))


def _longest(begun: Mapping[str, float], ended: Mapping[str, float]) -> float | None:
    """None where one has not ended, or nobody said so."""
    if begun.keys() - ended.keys():
        return None
    return max((ended[name] - at_s for name, at_s in begun.items()), default=None)


def _ready_s(events: pl.DataFrame, pod: str, after_s: float) -> float | None:
    rows = events.filter((pl.col("kind") == "Ready") & (pl.col("object") == pod) & (pl.col("at_s") >= after_s))
    return min(rows["at_s"].to_list(), default=None)


def _held(events: pl.DataFrame, begin_s: float) -> Outcome:
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


def transfers(events: pl.DataFrame) -> pl.DataFrame:
    """Every large body that was over or broken off: columns of TRANSFERS_SCHEMA. MeasuringError for words that `lab.model.events` has not."""
    rows: list[tuple[float, str, str, int, float, float | None, int]] = []
    for at_s, name, detail in (
        events.filter(pl.col("kind") == "Transfer").select("at_s", "object", "detail").iter_rows()
    ):
        if (told := _TRANSFER.fullmatch(detail)) is None:
            raise MeasuringError(f"event Transfer {name}", f"says {detail[:120]!r}", "lab/model/events.py has its form")
        first_s = None if told["first_s"] is None else float(told["first_s"])
        rows.append((at_s, name, told["way"], int(told["size"]), float(told["took_s"]), first_s, int(told["status"])))
    return pl.DataFrame(rows, schema=TRANSFERS_SCHEMA, orient="row")


def _transfers(events: pl.DataFrame) -> Outcome:
    told = transfers(events)
    if told.is_empty():
        return {}
    whole = told.filter(pl.col("status").is_between(200, 299))
    rates = whole.filter(pl.col("took_s") > 0).select(pl.col("size_bytes") / pl.col("took_s")).to_series().to_list()
    firsts = whole["first_s"].drop_nulls().to_list()
    too_large = told.filter(pl.col("status") == 413).height
    return {
        "transfers": float(whole.height),
        "transfer_rate": median(rates) if rates else None,
        "first_byte_s": median(firsts) if firsts else None,
        "too_large": float(too_large),
        "transfers_lost": float(told.height - whole.height - too_large),
    }
