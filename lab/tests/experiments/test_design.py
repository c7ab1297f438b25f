"""What a run promises and how long it takes: by the newest earlier run that is whole and alike, else by the prior."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.analysis.judge import rulings
from lab.analysis.noise import measure_noise
from lab.analysis.summary import summarise_run
from lab.experiments.bench import with_design
from lab.model.design import Design, Promise, choose_shape, find_solo_places
from lab.model.pairs import SIDES
from lab.model.plan import Plan
from lab.model.run import RunRecord
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.stats import power
from lab.tests.support.factories import make_plan, make_point, make_run
from lab.tests.support.made_runs import made_record

BRING_UP_S = 2.0
ELSEWHERE = "by the variation measured on another 2-core machine; this one has no run of this sweep yet"

OF_KNOB = (("keepalive", "ingress-nginx"),)
PLAN = make_plan((("ingress-nginx", None),), blocks=6, reference=None)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    return tmp_path


def record(name: str, planned: Plan = PLAN, **changed: Any) -> RunRecord:
    return made_record(name, planned, **{"generators": {}, "facts": {"cpu": "one", "boot_id": name}, **changed})


def stored(name: str, **changed: Any) -> RunStore:
    """A finished earlier run whose bring-ups took 0.4 s."""
    run = RunStore.create(record(name, **changed), {})
    samples, histograms = make_run(PLAN)
    for sample in samples:
        run.write_sample(sample, "", {"latency": histograms[sample.id]}, pl.DataFrame(schema=USAGE_SCHEMA))
    return run


def effects(promised: Sequence[Promise]) -> dict[tuple[str, str], float]:
    return {(one.metric, one.point): one.effect for one in promised}


def design_of(kept: RunRecord) -> Design:
    return with_design(kept, BRING_UP_S).designed


def test_the_newest_alike_run_is_the_guide() -> None:
    stored("run-1")
    stored("run-2")
    told = design_of(record("run-3"))
    assert told.promised_by == "from the pairs of run-2 and 1 more" and told.promised
    prior = design_of(record("run-3", facts={"cpu": "other"}))
    assert prior.promised_by == ELSEWHERE
    assert prior.duration_s - told.duration_s == pytest.approx(PLAN.bring_ups * (BRING_UP_S - 0.4))


def test_a_run_with_a_damaged_histogram_is_passed_over() -> None:
    stored("run-1")
    for path in stored("run-2").folder.glob("samples/*/hist.parquet"):
        path.write_bytes(path.read_bytes()[:-20])
    assert design_of(record("run-3")).promised_by == "from the pairs of run-1"


def test_it_promises_what_the_pilot_can_be_trusted_with() -> None:
    """The spread of six blocks is itself measured: what is promised allows for that (power.planned_sd)."""
    run = stored("run-1")
    summary = summarise_run(run.record, run.samples(), run.histogram)
    rate = next(noise for noise in measure_noise(summary) if (noise.metric, noise.point) == ("rate", "ceiling"))
    assert rate.sd is not None and rate.pilot_blocks == 6
    promised = effects(design_of(record("run-2")).promised)
    level = 0.05 / len(promised)
    assert promised["rate", "ceiling"] == power.compute_mde_from_pilot(rate.sd, 6, PLAN.blocks, level)
    raw = power.compute_mde(rate.sd, PLAN.blocks, level)
    assert raw is not None and promised["rate", "ceiling"] > 1.2 * raw


def test_without_a_run_the_committed_scatter_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """By how the effect is come by: of pairs theirs, of arms alone those'. 1 % scatter of 20 rounds, 6 blocks, one effect."""
    scatter = [
        rulings.PairNoise("cpu_per_request", "slices", "slices", 0.01, 20),
        rulings.PairNoise("cpu_per_request", None, "slices", 0.05, 20),
    ]
    monkeypatch.setattr("lab.analysis.past.list_committed_noise", lambda: scatter)
    baseline = record("x").variants["ingress-nginx"]
    ceiling = [make_point("ceiling", rate_rps=None)]
    asked = {"name": "keepalive", "primary_metric": "cpu_per_request"}
    for shared, sd in ((False, 0.01), (True, 0.05)):
        arms = make_plan(OF_KNOB, ceiling, reference=None).arms
        shape = choose_shape(
            arms, ceiling, 6, SIDES, find_solo_places(arms, ceiling, {"keepalive": (shared, "cpu_per_request")})
        )
        planned = make_plan(OF_KNOB, ceiling, blocks=6, reference=None, shape=shape)
        variants = {
            "ingress-nginx": baseline,
            "keepalive": baseline.model_copy(update={**asked, "shared_cost": shared}),
        }
        told = design_of(record("run-1", planned, variants=variants))
        assert told.promised_by == ELSEWHERE
        assert effects(told.promised) == {("cpu_per_request", "ceiling"): power.compute_mde_from_pilot(sd, 20, 6)}
        assert [one.sd for one in told.promised] == [power.compute_planned_sd(sd, 20)], (
            "what the run is held to afterwards"
        )


def test_it_is_about_what_the_planned_variants_are_judged_by() -> None:
    stored("run-1")
    planned = make_plan(OF_KNOB, blocks=6, reference=None)
    baseline = record("x").variants["ingress-nginx"]
    variants = {
        "ingress-nginx": baseline,
        "keepalive": baseline.model_copy(update={"name": "keepalive", "primary_metric": "p90"}),
    }
    told = design_of(record("run-2", planned, variants=variants))
    assert list(effects(told.promised)) == [("p90", "rate-1000")]
