"""A folder like data/reference with runs of disturbances whose answers are known: stored as the lab stores them, measured by nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.model.plan import Arm, Slot, list_arms, plan_samples
from lab.model.requests import good
from lab.model.sweeps import LoadPoint
from lab.model.usage import Usage
from lab.records import outcomes
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.records.tables import join_raw
from lab.tests.support import disturbed
from lab.tests.support.disturbed import ZERO_S
from lab.tests.support.factories import make_sample, of_slot
from lab.tests.support.made_runs import made_record, variant_record
from lab.tests.support.summaries import summary

RATE_RPS = 20.0
"""Instead of the sweeps' own: as much to be seen, less to be written."""

Story = Callable[[Arm, LoadPoint, int], tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]]
"""(arm, point, block) → requests, events and usage of a sample, by `lab.tests.support.disturbed`."""


def run_of(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    sweep: str,
    variants: Sequence[tuple[str, str | None]],
    story: Story,
    blocks: int = 6,
    name: str = "",
    manifests: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    target: str = "local",
    points: Sequence[str] = (),
) -> RunStore:
    """A run of `sweep` (its own points, at RATE_RPS; only those named) in `folder`. Control runs are never disturbed."""
    every = [point for point in load_sweep(sweep)[1].load_points if not points or point.name in points or point.control]
    loads = [point.model_copy(update={"rate_rps": RATE_RPS}) for point in every]
    planned = plan_samples(list_arms(variants, None), loads, blocks, seed=1)
    told = {
        arm.variant: variant_record(
            arm.variant,
            baseline=arm.baseline,
            own_knobs=tuple(arm.variant.split("+")[1:]),
            primary_metric="gap_s",
            hypothesis_sweep=sweep,
        )
        for arm in planned.arms
    }
    record = made_record(
        name or f"reference-{sweep}-{target}",
        planned,
        target=target,
        sweep=sweep,
        variants=told,
        facts={"target": target},
        git_commit=None,
    )
    monkeypatch.setenv("LAB_RUNS", str(folder))
    store = RunStore.create(record, manifests or {})
    for slot in planned.slots:
        _write(store, slot, story, target)
    return store


def _write(store: RunStore, slot: Slot, story: Story, target: str) -> None:
    arm, point = slot.arm, slot.point
    requests, events, usage = story(arm, point, slot.block)
    assert point.disturbance is not None
    outcome = outcomes.compute_outcome(point, requests, events, usage, ZERO_S, 0.0002)
    sample = make_sample(
        **of_slot(slot),
        target=target,
        generator="k6",
        requests=requests.height,
        usage={"proxy": Usage(cpu_s=0.1, rss_bytes=30_000_000, processes=2)},
        outcome=outcome,
        clock_offset_s=0.0,
    )
    store.write_sample(sample, join_raw(*as_k6(requests)), {}, usage, events)


def as_k6(requests: pl.DataFrame) -> tuple[str, str]:
    """(stdout, stderr) with which k6 would have told of these requests."""
    start_ms = int(requests["due_s"][0] * 1000)
    log: list[str] = []
    for number, _, sent_s, done_s, status, error, answer, service_s in requests.rows():
        sent_ms, done_ms = sent_s * 1000 - start_ms, done_s * 1000 - start_ms
        log.append(
            f"request {number} {start_ms} {start_ms + int(done_ms)} {sent_ms:.3f} {done_ms:.3f} {service_s * 1000:.3f}"
            f" {status} {error or '-'} {answer}"
        )
    wrong = requests.filter(~good(requests) & (requests["error"] == "")).height
    failed = dict(requests.filter(pl.col("error") != "")["error"].value_counts().rows())
    told = summary(requests.height, 2.0, duration_ms=1000.0, wrong=wrong, **failed)
    return told, "\n".join([*log, ""])


def nds_story(arm: Arm, point: LoadPoint, block: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """As NDS tells it: its variant is gone for 30 s and a little more in each block; any other for a second."""
    seconds = point.duration_s
    if point.control:
        return disturbed.requests(RATE_RPS, seconds), disturbed.events(), disturbed.usage([2] * int(seconds))
    at_s = point.disturbance.at_s if point.disturbance else 5.0
    gone_s = 30 + block / 10 if arm.variant == "grace-period-30+host-port" else 1 + block / 10
    log = disturbed.requests(RATE_RPS, seconds, out=(at_s, at_s + gone_s))
    return log, disturbed.killed(at_s, gone_s), disturbed.usage([2] * int(seconds))
