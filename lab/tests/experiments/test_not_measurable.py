"""What cannot be shown here: a row with its reason, never a sample, never a fault of the run; and two families that never stand in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.analysis.explain.run import make_verdicts
from lab.analysis.summary import summarise_run
from lab.base.errors import NotMeasurableError, UsageError
from lab.experiments import bench
from lab.experiments.bench import BenchRequest, prepare
from lab.experiments.bench.measurable import NothingMeasurableError
from lab.experiments.bench.request import load_request
from lab.model.endpoint import Endpoint
from lab.model.run import NotMeasured
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant, load_overlay, load_variant, variant_names
from lab.records.store import RunStore
from lab.report.markdown import render_markdown
from lab.studies.results import RESULT
from lab.tests.experiments.test_design import record
from lab.tests.support.factories import make_plan, make_run
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.golden import make_page, print_page, print_planned
from lab.tests.support.sweep_texts import write_sweep

MISSING = NotMeasured(variant="qinng", what="cores", why="asks for 32 workers, the proxy has 1 CPU here")


@dataclass
class SmallTarget(FakeTarget):
    refuses: Sequence[str] = ()

    def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
        if variant.name in self.refuses:
            raise NotMeasurableError("cores", variant.name, "asks for 32 workers", "a machine with more CPUs")
        return super().check_variant(variant, points)


@pytest.fixture(autouse=True)
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return write_sweep(tmp_path, monkeypatch)


def prepared(sweep: str, *variants: str, refuses: Sequence[str]) -> bench.PreparedRun:
    return prepare(BenchRequest(variants, sweep, seed=1), SmallTarget(refuses=refuses), ())


def test_it_is_not_planned_and_its_reason_and_what_would_help_are_told_and_so_is_what_stands_on_it(sweep: str) -> None:
    made = prepared(sweep, "keepalive", "backlog", refuses=["backlog-128"])
    assert {arm.variant for arm in made.plan.arms} == {"keepalive", "ingress-nginx", "direct"}
    missing = {each.variant: each for each in made.record.not_measurable}
    assert (missing["backlog-128"].what, missing["backlog-128"].why) == ("cores", "asks for 32 workers")
    assert "its baseline backlog-128 is not measurable here: asks for 32 workers" in str(missing["backlog"])
    assert {each.remedy for each in missing.values()} == {"a machine with more CPUs"}
    assert print_planned(made, 60).count("a machine with more CPUs") == len(missing)
    summary = summarise_run(made.record, [], lambda _sample: None)
    texts = [verdict.text for verdict in make_verdicts(summary) if verdict.arm == "backlog"]
    assert texts and all(text.endswith("\n  a machine with more CPUs") for text in texts)


def test_nothing_left_to_measure_is_wrong_usage_that_names_each(sweep: str) -> None:
    with pytest.raises(NothingMeasurableError) as caught:
        prepared(sweep, "keepalive", "backlog", refuses=["keepalive", "backlog-128"])
    assert caught.value.exit_status == 2
    assert "keepalive: not measurable here: cores" in str(caught.value)
    assert "backlog: not measurable here: cores: its baseline" in str(caught.value)
    assert caught.value.remedy == "a machine with more CPUs"
    noted = NothingMeasurableError(caught.value.missing, ["keep-alive: 'many' is not a whole number"])
    assert noted.remedy.endswith("more CPUs\n  keep-alive: 'many' is not a whole number")


def test_a_load_that_the_generator_cannot_make_on_a_variants_hosts_is_refused_beforehand(sweep: str) -> None:
    names = tuple(f"r{number}.lab.test" for number in range(5))

    @dataclass
    class Behind(FakeTarget):
        def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
            end = Endpoint(
                f"https://{names[0]}", names[0], names, "passthrough" if variant.name == "keepalive" else "edge"
            )
            return {point.name: end for point in points}

    with pytest.raises(UsageError, match="wrk cannot make this load on 'keepalive': 4 connections are not a multiple"):
        prepare(BenchRequest(("ingress-nginx", "keepalive"), sweep, seed=1), Behind(), ())
    assert prepare(BenchRequest(("ingress-nginx",), sweep, seed=1), Behind(), ()).plan.slots


def test_a_run_is_not_resumed_on_another_cluster(sweep: str) -> None:
    @dataclass
    class Cluster(FakeTarget):
        uid: str = "one"

        def facts(self) -> Mapping[str, str]:
            return {"cluster": self.uid}

    made = prepare(BenchRequest(("keepalive",), sweep, seed=1), Cluster(), ())
    RunStore.create(made.record, {name: variant.manifests for name, variant in made.variants.items()})
    with pytest.raises(UsageError, match="another cluster \\(one; this one is two\\)"):
        bench.resume(made.record.id, Cluster(uid="two"))
    assert bench.resume(made.record.id, Cluster())[0].record.id == made.record.id


def test_it_is_a_row_of_every_table_and_a_verdict_and_does_not_count_against_the_run() -> None:
    run = make_plan((("ingress-nginx", None),), blocks=6)
    samples, histograms = make_run(run)
    told = record("r", run, not_measurable=(MISSING,))
    summary = summarise_run(told, samples, lambda sample: histograms.get(sample.id))
    assert summary.complete
    shown = " ".join(print_page(make_page(summary), 60).split())
    assert "qinng not measurable: cores" in shown
    assert "qinng: not measurable here: cores: asks for 32 workers" in shown
    assert "| qinng | not measurable: cores |" in render_markdown(make_page(summary))
    assert RESULT.plain(summary)["not_measurable"] == [MISSING.model_dump()]
    assert {verdict.kind for verdict in make_verdicts(summary) if verdict.arm == "qinng"} == {"not-measurable"}
    assert "not measurable" not in render_markdown(make_page(replace(summary, not_measurable=())))


# -- systems as they are shipped, and systems made to do the same work ---------------------------------------

EQUAL = [name for name in variant_names() if load_overlay(name).family == "equal work"]


def test_a_variant_is_of_its_roots_family() -> None:
    assert {"ingress-nginx-equal", "envoy-equal", "traefik-equal"} <= set(EQUAL)
    assert load_variant("envoy-equal+envoy-circuit-breakers-65536").family == "equal work"
    assert load_variant("envoy-access-log").family == "as shipped"


@pytest.mark.parametrize(
    ("variants", "against"),
    [
        (("envoy-equal",), ("ingress-nginx",)),
        (("envoy", "traefik-equal"), ()),
        (("envoy-equal", "envoy"), ("ingress-nginx",)),
    ],
)
def test_a_mixed_table_is_refused(variants: tuple[str, ...], against: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="they never stand in one table"):
        load_request(BenchRequest(variants, against=against))


def test_a_family_by_itself_is_measured() -> None:
    loaded = load_request(BenchRequest(("envoy-equal", "traefik-equal")))
    assert set(loaded.variants) == {"envoy-equal", "traefik-equal", "ingress-nginx-equal", "direct"}
