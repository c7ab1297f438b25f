"""Timelines of logs with known answers: bins, marks, processes, probes, transfers."""

from __future__ import annotations

import polars as pl
import pytest

from lab.analysis import timelines
from lab.tests.support.disturbed import ZERO_S, events, killed, requests


def test_an_outage_is_in_its_bins_and_nowhere_else() -> None:
    """Two seconds at 100 req/s from 5 s on: 20 bins of 10 failed requests, all others with 10 good ones."""
    found = timelines.bins(requests(out=(5.0, 7.0)), ZERO_S)
    hit = found.filter(pl.col("connect") > 0)
    assert hit["t_s"].round(3).to_list() == pytest.approx([5 + n / 10 for n in range(20)])
    assert set(hit["connect"]) == {10}
    assert found["due_rps"].to_list() == pytest.approx([100.0] * 200)
    assert found["good_rps"].sum() * timelines.BIN_S == pytest.approx(1800)
    assert hit["p50_s"].is_null().all()
    assert hit["max_s"].is_null().all()


def test_what_is_right_has_not_failed_and_is_no_good_answer_either() -> None:
    """404 for a host that has no route yet; a wrong status counts as `status`, not as an error of the connection."""
    log = requests(out=(1.0, 1.5), status=404)
    found = timelines.bins(log, ZERO_S, right=(log["status"] == 200) | (log["due_s"] < ZERO_S + 1.2495))
    assert found["status"].sum() == 25
    every = timelines.bins(log, ZERO_S)
    assert every["status"].sum() == 50 and sum(every[kind].sum() for kind in timelines.NO_ANSWER) == 0
    assert found["good_rps"].to_list() == every["good_rps"].to_list()


def test_answers_count_when_they_arrive() -> None:
    """Requests that hang for 3 s make a bin without answers and one full of them, and a latency of up to 3 s where they were due."""
    log = requests(duration_s=6.0).with_columns(
        done_s=pl.when(pl.col("due_s").is_between(ZERO_S + 1.999, ZERO_S + 2.0995))
        .then(ZERO_S + 5.0)
        .otherwise("done_s")
    )
    found = timelines.bins(log, ZERO_S)
    at = {round(t_s, 1): row for t_s, *row in found.select("t_s", "good_rps", "max_s").rows()}
    assert at[2.0] == [0.0, pytest.approx(3.0)]
    assert at[5.0][0] == pytest.approx(200.0)


def test_empty_bins_are_there_and_the_band_holds_every_block() -> None:
    log = requests(duration_s=2.0)
    found = timelines.bins(pl.concat([log.head(50), log.tail(50)]), ZERO_S)
    assert found.height == 20
    assert found.filter(pl.col("due_rps") == 0).height == 10
    nothing = timelines.bins(requests(duration_s=0), ZERO_S)
    assert nothing.is_empty() and dict(nothing.schema) == timelines.BINS_SCHEMA
    several = [timelines.bins(requests(out=out), ZERO_S) for out in (None, (5.0, 6.0), (5.5, 6.5))]
    at = {round(t_s, 1): (low, high) for t_s, low, high in timelines.find_range(several).rows()}
    assert (at[5.2], at[4.0]) == ((0.0, 100.0), (100.0, 100.0))


def test_every_event_but_single_probes_is_a_mark() -> None:
    told = killed()
    found = timelines.marks(told, ZERO_S)
    assert found.height == told.height
    assert found.row(1) == (pytest.approx(5.01), "pods", "Deleted", "proxy proxy-1: grace 30 s (kubelet)")
    probes = events(
        (1.0, "kubelet", "proxy", "p", "Probe", "readiness 0.0031 ok"),
        (2.0, "kubelet", "proxy", "p", "Probe", "liveness 1.0004 no answer within 1 s"),
    )
    assert timelines.marks(probes, ZERO_S).is_empty()
    read = [(1.0, "p", "readiness", 0.0031, True), (2.0, "p", "liveness", 1.0004, False)]
    assert timelines.probes(probes, ZERO_S).rows() == read


def test_transfers_are_read() -> None:
    told = events(
        (3.0, "lab", "", "1", "Transfer", "upload 10485760 bytes 1.2500 s first 0.0113 s status 413"),
        (4.0, "lab", "", "1", "Transfer", "upload 10485760 bytes 1.2500 s first - status 0 EOF of a kind"),
    )
    assert timelines.transfers(told, ZERO_S).rows() == [
        (1.75, 3.0, "upload", 10485760, 1.25, 0.0113, 413),
        (2.75, 4.0, "upload", 10485760, 1.25, None, 0),
    ]
