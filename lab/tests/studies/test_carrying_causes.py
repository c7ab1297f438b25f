"""Why a knob does something else on kind than on `local`, and what would decide the undecided ones, on the committed runs and on made ones."""

from __future__ import annotations

from math import log
from typing import Literal

import pytest

from lab.analysis import evidence
from lab.analysis.judge.effects import Cost
from lab.records.sweep_files import load_sweep
from lab.studies.carrying import Carried, Shown, carried, explain_differences, list_undecided

POINT = load_sweep("ladder")[1].expanded()[0]


def shown(level_us: float, change: float, half: float, pairs: int = 9) -> Shown:
    """Return an effect: a share of what a request costs, with half the width of its interval as a log-ratio."""
    value = log(1 + change)
    return Shown("run", pairs, Cost(level_us * 1e-6, (value, value - half, value + half)), doubt=0.0)


def line(variant: str, local: Shown, kind: Shown, cost: Literal["process", "shared"] = "process") -> Carried:
    return Carried(variant, "baseline", cost, POINT, {"local": local, "kind": kind}, {})


@pytest.mark.committed
def test_the_committed_ladders_explain_what_the_logs_pipe_costs_on_kind() -> None:
    """In shares: the pipe and the log itself, each measured by a step of its own; whether they fit is the runs' to say."""
    runs = evidence.references()[0]
    found = {each.line.variant: each for each in explain_differences(carried(runs), runs, "kind")}
    assert found["ingress-nginx+access-log-off"].share
    predicted = found["ingress-nginx+access-log-off"].predicted
    assert predicted is not None
    assert predicted[1] < predicted[0] < predicted[2] < 0


@pytest.mark.committed
def test_the_committed_ones_that_are_undecided_say_what_would_decide_them() -> None:
    lines = carried(evidence.references()[0])
    undecided = list_undecided(lines, "kind")
    assert {each.line.variant for each in undecided}.isdisjoint(
        each.line.variant for each in explain_differences(lines, [], "kind")
    )
    assert all(each.blocks is None or each.blocks > each.measured for each in undecided)


def test_four_times_the_blocks_halve_what_is_needed_of_an_interval() -> None:
    """An interval twice as wide takes four times the blocks."""
    narrow = line("a", shown(20, 0.10, 0.001), shown(100, 0.05, 0.04))
    wide = line("b", shown(20, 0.10, 0.001), shown(100, 0.05, 0.08))
    one, four = list_undecided([narrow, wide], "kind")
    assert one.blocks is not None
    assert four.blocks is not None
    assert 3.7 < four.blocks / one.blocks < 4.3


def test_known_work_tells_what_time_is_worth_there() -> None:
    """Twice as dear on kind; a knob that is twice as dear, too, is explained, one that is four times as dear is not."""
    work = line("ingress-nginx+extra-work-80", shown(20, 1.0, 0.01), shown(100, 0.4, 0.01))
    alike = line("gzip", shown(20, 0.5, 0.01), shown(100, 0.2, 0.01))
    dearer = line("tls", shown(20, 0.5, 0.01), shown(100, 0.4, 0.01))
    found = {each.line.variant: each.fits for each in explain_differences([work, alike, dearer], [], "kind")}
    assert found == {"ingress-nginx+extra-work-80": False, "gzip": True, "tls": False}
