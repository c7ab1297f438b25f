"""The forecast: from the newest earlier run that is whole and alike, else from the prior."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.analysis.forecast import forecast
from lab.analysis.noise import noises
from lab.analysis.summary import summarise_run
from lab.base.errors import UsageError
from lab.model.plan import Plan
from lab.model.run import RunRecord, VariantRecord
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.stats import paired as stats
from lab.stats import power
from lab.tests.support.factories import make_plan, make_run

BRING_UP_S = 2.0

PLAN = make_plan((("baseline", None),), blocks=6, reference=None)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    return tmp_path


def record(name: str, planned: Plan = PLAN, **changed: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "id": name,
        "created_at": "2026-11-21T12:00:00Z",
        "command": ("lab", "bench"),
        "target": "local",
        "sweep": "quick",
        "seed": 1,
        "blocks": planned.blocks,
        "arms": planned.arms,
        "points": planned.points,
        "slots": tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots),
        "variants": {
            "baseline": VariantRecord(
                name="baseline",
                title="",
                baseline=None,
                knobs=(),
                own_knobs=(),
                primary_metric=None,
                hypothesis_sweep=None,
                manifests_sha256="",
            )
        },
        "generators": {},
        "facts": {"cpu": "one", "boot_id": name},
        "git_commit": None,
    }
    return RunRecord(**{**fields, **changed})


def stored(name: str, **changed: Any) -> RunStore:
    """A finished earlier run whose bring-ups took 0.4 s."""
    run = RunStore.create(record(name, **changed), {})
    samples, histograms = make_run(PLAN)
    for sample in samples:
        run.write_sample(sample, "", {"latency": histograms[sample.id]}, pl.DataFrame(schema=USAGE_SCHEMA))
    return run


def damage(run: RunStore) -> None:
    for path in run.folder.glob("samples/*/hist.parquet"):
        path.write_bytes(path.read_bytes()[:-20])


def test_the_newest_alike_run_is_the_guide() -> None:
    """Its A/A pairs say what can be resolved, its bring-ups how long it takes."""
    stored("run-1")
    stored("run-2")
    told = forecast(record("run-3"), BRING_UP_S)
    assert told.source == "from the A/A pairs of run-2" and told.resolves
    prior = forecast(record("run-3", facts={"cpu": "other"}), BRING_UP_S)
    assert prior.source.startswith("measured on another") and prior.resolves
    assert prior.duration_s - told.duration_s == pytest.approx(PLAN.bring_ups * (BRING_UP_S - 0.4))


def test_a_run_with_a_damaged_histogram_is_passed_over() -> None:
    """The one before it is used; without one, the prior."""
    stored("run-1")
    newest = stored("run-2")
    damage(newest)
    (sample, *_) = newest.samples()
    with pytest.raises(UsageError):
        newest.histogram(sample)
    assert forecast(record("run-3"), BRING_UP_S).source == "from the A/A pairs of run-1"
    damage(RunStore.open("run-1"))
    assert forecast(record("run-3"), BRING_UP_S).source.startswith("measured on another")


@pytest.mark.parametrize("name", ["run.json", "samples/{}/sample.json", "samples/{}/raw.zst"])
def test_any_other_damage_is_passed_over_too(name: str) -> None:
    """A half record or a missing file of a newer run stops no new run."""
    stored("run-1")
    run = stored("run-2")
    path = run.folder / name.format(run.samples()[0].id)
    path.write_bytes(b"{") if path.suffix == ".json" else path.unlink()
    assert forecast(record("run-3"), BRING_UP_S).source == "from the A/A pairs of run-1"


def test_too_few_blocks_promise_nothing() -> None:
    """Fewer than the least number of blocks give no interval, whatever was measured before."""
    few = make_plan((("baseline", None),), blocks=2, reference=None)
    assert forecast(record("run-3", few), BRING_UP_S).resolves == ()


def test_it_promises_what_the_pilot_can_be_trusted_with() -> None:
    """The spread of six blocks is itself measured: what is promised allows for that (power.planned_sd)."""
    run = stored("run-1")
    summary = summarise_run(run.record, run.samples(), run.histogram)
    rate = next(noise for noise in noises(summary) if (noise.metric, noise.point) == ("rate", "ceiling"))
    assert rate.sd is not None and rate.pilot_blocks == 6
    promised = dict(forecast(record("run-2"), BRING_UP_S).resolves)
    assert promised["rate at ceiling"] == power.resolvable_now(rate.sd, 6, PLAN.blocks)
    raw = stats.resolvable(rate.sd, PLAN.blocks)
    assert raw is not None and promised["rate at ceiling"] > 1.2 * raw


def test_it_is_about_what_the_planned_variants_are_judged_by() -> None:
    """Not about what the earlier run happened to compare."""
    stored("run-1")
    planned = make_plan(blocks=6, reference=None)
    baseline = record("x").variants["baseline"]
    variants = {
        "baseline": baseline,
        "keepalive": baseline.model_copy(update={"name": "keepalive", "primary_metric": "p90"}),
    }
    told = forecast(record("run-2", planned, variants=variants), BRING_UP_S)
    assert [label for label, _ in told.resolves] == ["p90 at rate-1000"]


def test_an_interrupted_newer_run_is_passed_over_for_one_that_knows_more() -> None:
    """Two blocks tell no noise."""
    stored("run-1")
    run = stored("run-2")
    for sample in run.samples():
        if sample.block > 2:
            shutil.rmtree(run.folder / "samples" / sample.id)
    assert forecast(record("run-3"), BRING_UP_S).source == "from the A/A pairs of run-1"
