"""A search as a run: its samples, its bring-ups, what is kept when it is interrupted, who was the limit, and loads placed at the knee."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.analysis.knee.report import build_report, classify_trial, find_limiter
from lab.base.errors import MeasuringError, UsageError
from lab.experiments import bench
from lab.experiments import knee as seeking
from lab.experiments.bench.measurable import place_at_knee
from lab.measure.measurement import ChosenGenerator
from lab.model import sweeps
from lab.model.load import GeneratorLoad, GeneratorResult
from lab.model.plan import Arm
from lab.model.run import KneeSearch, format_now
from lab.model.samples import Reason, Sample
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.report.markdown import render_markdown
from lab.report.tables.knee import describe_knee, page
from lab.stats import knee_search as knee
from lab.stats.histogram import Histogram
from lab.targets.common import sampler
from lab.tests.support.factories import made_invalid, make_plan, make_sample
from lab.tests.support.fakes import FakeGenerator, FakeTarget, Silent, point, variant
from lab.tests.support.golden import print_page
from lab.tests.support.made_runs import made_record

QUIET = {0: sampler.CpuTimes(1.0, 0.0, 10.0)}


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(sampler, "other_processes_s", float)
    monkeypatch.setattr(sampler, "cpu_times", lambda: QUIET)


@dataclass
class Paced(FakeGenerator):
    """A load on a system that answers so many requests per second, and one in fifty slowly from `slow_rps` on."""

    binary: str = "true"
    capacity_rps: float = 1000.0
    slow_rps: float = 1e9

    def parse(self, stdout: str, stderr: str, exit_status: int, load: GeneratorLoad) -> GeneratorResult:
        rate = load.rate_rps or 0.0
        requests = round(min(rate, self.capacity_rps) * load.duration_s)
        took_s = np.full(requests, 0.001)
        if rate >= self.slow_rps:
            took_s[::50] = 0.2
        return GeneratorResult(requests, load.duration_s, Histogram.of_values(took_s), load.duration_s)


SEARCH = KneeSearch(p99_s=0.05, min_achieved=0.99, max_generator_core=0.8, start_rps=100, least_rps=1, precision=0.1)
COARSE = SEARCH.model_copy(update={"start_rps": 400, "precision": 0.5})
"""Fewer trials."""


@dataclass
class Search:
    target: FakeTarget
    variants: Mapping[str, Variant]
    chosen: ChosenGenerator
    store: RunStore
    observer: Silent

    def run(self) -> None:
        seeking.search(self.target, self.variants, self.chosen, self.store, self.observer)


def seeker(
    generator: FakeGenerator | None = None,
    target: FakeTarget | None = None,
    observer: Silent | None = None,
    names: tuple[str, ...] = ("ingress-nginx",),
    search: KneeSearch = SEARCH,
) -> Search:
    used = target or FakeTarget()
    first = point(seeking.point_name(search.start_rps), float(search.start_rps))
    arms = tuple(Arm(name, name, "baseline", None) for name in names)
    record = made_record(
        f"search-{next(NUMBER):03d}",
        make_plan([(name, None) for name in names], [first], 1, reference=None),
        created_at=format_now(),
        command=("lab", "knee"),
        target=used.name,
        sweep="knee",
        arms=arms,
        slots=((1, arms[0].name, first.name),),
        pairs=(),
        generators={first.name: {"name": "fake", "version": "1", "stand_in_for": None}},
        facts={"fake": "yes", "boot_id": "1"},
        git_commit=None,
        knee=search,
    )
    made = generator or Paced()
    chosen = ChosenGenerator(made, made.binary, "1", None)
    variants = {name: variant(name) for name in names}
    return Search(used, variants, chosen, RunStore.create(record, {}), observer or Silent())


NUMBER = itertools.count(1)


def searched(**how: Any) -> RunStore:
    search = seeker(**how)
    search.run()
    return RunStore.open(search.store.record.id)


def reopened(search: Search) -> Search:
    return replace(search, store=RunStore.open(search.store.record.id), observer=Silent())


def rates(run: RunStore) -> list[float | None]:
    return [sample.point.rate_rps for sample in run.samples()]


def test_a_search_is_a_run_whose_plan_holds_every_trial_as_a_block_of_its_own() -> None:
    """A knee of 1000 (achieved 99 % of 1010): samples, points and slots agree, and the report has it in its interval.

    Of the four last trials (the failing side once more, three confirmations) each is brought up for.
    """
    target = FakeTarget()
    run = searched(target=target)
    samples = run.samples()
    assert [(s.block, s.arm, s.point.name) for s in samples] == list(run.record.slots)
    assert [s.block for s in samples] == list(range(1, len(samples) + 1)) and run.record.blocks == len(samples)
    assert {s.point.name: s.point for s in samples} == {p.name: p for p in run.record.points}
    assert rates(run)[:6] == [100, 200, 400, 800, 1600, 1600]
    assert all(s.verdict == ("valid" if (s.point.rate_rps or 0) <= 1010 else "invalid") for s in samples)
    report = build_report(run)
    (knee,) = report.knees
    assert report.complete and knee.rate_rps is not None and knee.fails_rps is not None
    assert knee.rate_rps <= 1010 < knee.fails_rps <= 1.1 * knee.rate_rps + 1
    assert (knee.why, knee.limited_by, knee.trials) == ("rate-not-achieved", "unknown", len(samples))
    assert [rate.rate_rps for rate in knee.rates] == sorted({r for r in rates(run) if r})
    assert len(target.ups) == len(list((run.folder / "readback").iterdir())) == 1 + 1 + 3


@pytest.mark.parametrize("after", [1, 5])
def test_an_interrupted_search_goes_on_where_it_was(after: int) -> None:
    whole = searched(search=COARSE)

    def interrupt(count: int) -> None:
        if count == after:
            raise KeyboardInterrupt

    search = seeker(observer=Silent(on_measured=interrupt), search=COARSE)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    (knee,) = build_report(RunStore.open(search.store.record.id)).knees
    assert knee.rate_rps is None and f"just knee --resume {search.store.record.id}" in knee.why
    again = reopened(search)
    again.run()
    assert rates(again.store) == rates(whole)
    assert build_report(again.store).knees == build_report(whole).knees


def test_a_trial_that_was_planned_and_not_measured_is_measured_first() -> None:
    """The lab was killed between writing the plan and the sample; and a sample that was moved away later is made again."""
    search = seeker(search=COARSE, names=("ingress-nginx", "keepalive"))
    search.run()
    run = search.store
    arms = [sample.arm for sample in run.samples()]
    assert set(arms) == {"ingress-nginx", "keepalive"} and arms == sorted(arms), "one variant after the other"
    first, second = build_report(run).knees
    assert (first.variant, second.variant) == ("ingress-nginx", "keepalive") and first.rate_rps == second.rate_rps
    known = run.samples()
    shutil.rmtree(run.folder / "samples" / known[-1].id)
    shutil.rmtree(run.folder / "samples" / known[3].id)
    again = reopened(search)
    again.run()
    assert sorted(s.id for s in again.store.samples()) == sorted(s.id for s in known)
    assert build_report(again.store).knees[0].rate_rps == first.rate_rps


def test_a_machine_that_is_busy_all_the_time_gets_no_knee_and_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial is measured three times; three of them that cannot be told end it. Resumed when it is quiet, it goes on."""
    search = seeker()
    clock = iter(range(0, 10_000, 2))
    quiet_until = 4

    def others_s() -> float:
        return float(next(clock)) if len(search.store.samples()) >= quiet_until else 0.0

    monkeypatch.setattr(sampler, "other_processes_s", others_s)
    search.run()
    samples = search.store.samples()
    assert [sample.reason for sample in samples[4:]] == [Reason.OTHER_PROCESSES] * 9
    assert [(sample.point.rate_rps, sample.attempt) for sample in samples[4:]] == [
        (rate, attempt) for rate in (1600, 1440, 1760) for attempt in (1, 2, 3)
    ]
    report = build_report(search.store)
    (knee,) = report.knees
    assert not report.complete
    assert (knee.rate_rps, knee.passes_rps, knee.fails_rps) == (None, 800, None)
    assert knee.why == "above 800: not resolved: other-processes"
    assert f"just knee --resume {search.store.record.id}" in describe_knee(report, knee)
    monkeypatch.setattr(sampler, "other_processes_s", float)
    search.store.note_resumed({})
    again = reopened(search)
    again.run()
    (knee,) = build_report(again.store).knees
    assert knee.rate_rps is not None and knee.rate_rps <= 1010 < (knee.fails_rps or 0)


def test_a_system_that_does_not_come_up_ends_the_search_with_its_reason() -> None:
    def fail(count: int) -> None:
        raise MeasuringError("proxy", "did not come up", "look at its log")

    observer = Silent()
    search = seeker(target=FakeTarget(on_up=fail), observer=observer)
    search.run()
    (sample,) = search.store.samples()
    assert sample.reason is Reason.BRING_UP_FAILED and len(observer.failures) == 1
    (knee,) = build_report(search.store).knees
    assert knee.rate_rps is None and "did not come up" in knee.why


# -- who was the limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "proxy", "generator", "backend", "limit"),
    [
        (Reason.RATE_NOT_ACHIEVED, 0.99, 0.70, 0.3, "proxy"),
        (Reason.RATE_NOT_ACHIEVED, 0.99, 0.90, 0.3, "proxy"),
        (Reason.RATE_NOT_ACHIEVED, 0.99, 0.99, 0.3, "generator"),
        (Reason.RATE_NOT_ACHIEVED, 0.94, 0.80, 0.3, "generator"),
        (Reason.DROPPED, 0.60, 0.97, 0.3, "generator"),
        (Reason.GENERATOR_SATURATED, 0.60, 0.85, 0.3, "generator"),
        (Reason.GENERATOR_SATURATED, 0.97, 0.85, 0.3, "generator"),
        (Reason.GENERATOR_HUNG, None, None, 0.3, "generator"),
        (Reason.DROPPED, 0.60, 0.40, 0.3, "unknown"),
        (Reason.DROPPED, None, None, 0.3, "unknown"),
        (Reason.RATE_NOT_ACHIEVED, 0.60, 0.40, 0.99, "backend"),
        (None, 0.60, 0.40, 0.3, "p99"),
        (None, 0.99, 0.40, 0.3, "proxy"),
        (Reason.ERRORS, 0.98, 0.40, 0.3, "proxy"),
    ],
)
def test_who_was_full_was_the_limit(
    reason: Reason | None, proxy: float | None, generator: float | None, backend: float, limit: str
) -> None:
    sample = make_sample(reason=reason, proxy_core=proxy, generator_core=generator, busy={"2": backend, "0": 1.0})
    assert find_limiter(sample, ["2"]) == limit


@pytest.mark.parametrize(
    ("reason", "passed", "outcome"),
    [
        (Reason.STEAL, True, "unclear"),
        (Reason.OTHER_PROCESSES, False, "unclear"),
        (Reason.KNOB_NOT_APPLIED, True, "broken"),
        (Reason.BRING_UP_FAILED, True, "broken"),
        (Reason.GENERATOR_FAILED, False, "broken"),
        (Reason.GENERATOR_FAILED, True, "fail"),
        (Reason.WRONG_BACKEND, False, "broken"),
        (Reason.WRONG_BACKEND, True, "fail"),
        (Reason.NON_2XX, False, "fail"),
        (Reason.DROPPED, False, "fail"),
        (Reason.PROXY_DIED, True, "fail"),
        (Reason.LISTEN_OVERFLOW, True, "fail"),
    ],
)
def test_what_a_fault_says_of_a_rate(reason: Reason, passed: bool, outcome: str) -> None:
    record = seeker().store.record
    sample = made_invalid(make_sample(), reason)
    assert classify_trial(record.plan().slots[0], sample, None, record, passed).outcome == outcome


def test_where_the_generator_was_the_limit_the_answer_is_at_least_and_names_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In words, and with what to do about it; the failing samples are changed before anybody judges them."""
    keep = RunStore.write_sample
    full = {"reason": Reason.DROPPED, "proxy_core": 0.6, "generator_core": 0.97, "generator": "k6"}

    def saturated(self: RunStore, sample: Sample, *others: Any) -> None:
        keep(self, sample if sample.valid else sample.model_copy(update=full), *others)

    monkeypatch.setattr(RunStore, "write_sample", saturated)
    report = build_report(searched())
    (knee,) = report.knees
    assert (knee.limited_by, knee.at_least) == ("generator", True)
    text = describe_knee(report, knee.model_copy(update={"generator": "k6"}))
    assert "at least" in text and "the generator (k6), not the proxy, was the limit" in text
    assert "wrk2: " in text and "oha: scripts/shell --with oha" in text and "more CPUs" in text
    assert "k6: " not in text
    for text in (print_page(page(report), 140), render_markdown(page(report))):
        assert "limited by" in text and "p99 at most 50.0 ms" in text and "generator below 80 % of its CPU" in text
        assert "dropped" in text and "1,600" in text
    load = report.load.model_copy(update={"connections": 100})
    assert f"just bench ingress-nginx --sweep at-knee --target fake --knee {report.run}" in describe_knee(
        report.model_copy(update={"load": load}), knee
    )


def test_what_contradicts_itself_is_searched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knee, "MAX_TRIALS", 7)
    report = build_report(searched(target=FakeTarget(name="remote")))
    text = describe_knee(report, report.knees[0])
    assert "7 trials contradict each other" in text and "--resume" not in text
    assert text.endswith("wider --precision: just knee ingress-nginx --target remote --context NAME")


# -- preparing --------------------------------------------------------------------------------------------


@dataclass
class Only(FakeTarget):
    names: tuple[str, ...] = ("k6",)
    kernel: str = "1"

    def facts(self) -> dict[str, str]:
        return {"kernel": self.kernel}

    def installed(self, generator: Any) -> Any:
        return super().installed(generator) if generator.name in self.names else None


def prepare(target: FakeTarget, **asked: Any) -> bench.PreparedRun:
    return seeking.prepare(("ingress-nginx",), target, (), **asked)


def test_where_wrk2_is_missing_its_stand_in_makes_short_trials_too() -> None:
    """What only wrk2 needs does not bind k6; the sample names both."""
    prepared = prepare(Only(), duration_s=2.0, connections=200)
    (chosen,) = prepared.chosen.values()
    assert (chosen.generator.name, chosen.stand_in_for) == ("k6", "wrk2")
    assert prepared.record.points[0].duration_s == 2.0
    assert prepared.record.generators["rate-100"]["stand_in_for"] == "wrk2"
    (chosen,) = prepare(Only(names=("k6", "oha")), duration_s=2.0, connections=200).chosen.values()
    assert chosen.generator.name == "oha"


def test_wrk2_itself_gets_trials_that_outlast_its_calibration() -> None:
    """Unless told otherwise; told otherwise it refuses, as does a start below a request per second and connection."""
    wrk2 = Only(names=("wrk2", "k6"))
    prepared = prepare(wrk2)
    assert prepared.record.points[0].duration_s >= 30
    assert prepared.record.knee is not None and prepared.record.knee.least_rps == 100
    for asked, says in (
        ({"duration_s": 10.0}, "wrk2 needs 30 s or more"),
        ({"start_rps": 50}, "request per second for every connection"),
    ):
        with pytest.raises(UsageError, match=says):
            prepare(wrk2, **asked)


def test_a_search_is_not_resumed_as_a_bench_nor_a_bench_as_a_search() -> None:
    store = seeker().store
    with pytest.raises(UsageError, match="just knee --resume"):
        bench.resume(store.record.id, FakeTarget())


def test_a_search_is_not_resumed_under_other_facts() -> None:
    """Its trials are no pairs: of two places they make no knee. The boot is no place."""
    target = Only()
    words = ("lab", "knee", "--p99=20ms", "--json", "--", "ingress-nginx")
    made = seeking.prepare(("ingress-nginx",), target, words, p99_s=0.02)
    record = made.record.model_copy(update={"facts": made.record.facts | {"boot_id": "another"}})
    RunStore.create(record, {})
    assert seeking.resume(record.id, target)[1].record == record
    target.kernel = "2"
    with pytest.raises(
        UsageError, match=r"other facts \(kernel\).*\n.*just knee ingress-nginx --p99=20ms --target fake"
    ):
        seeking.resume(record.id, target)


# -- loads at the knee ------------------------------------------------------------------------------------


def at_knee(**changed: Any) -> list[LoadPoint]:
    table = {"name": "knee", "generator": "k6", "connections": 1, "duration_s": 5, "of_knee": [0.5, 0.8]} | changed
    file = {"title": "t", "question": "q", "blocks": 1, "points": [table]}
    return sweeps.Sweep.model_validate(file).load_points


def test_loads_are_placed_at_the_knee_of_the_baseline_or_at_the_only_one_or_at_a_rate() -> None:
    """At whole requests per second; which knee it was is told. Of one of another target or load the remedy is the search that would find it."""
    run = searched(search=COARSE).record.id
    rate = build_report(RunStore.open(run)).knees[0].rate_rps or 0.0
    for baselines in (("nginx", "ingress-nginx"), ("nginx",)):
        points, used = place_at_knee(at_knee(), run, baselines, "fake")
        assert [(p.name, p.rate_rps, p.of_knee) for p in points] == [
            ("knee-50", round(0.5 * rate), 0.5),
            ("knee-80", round(0.8 * rate), 0.8),
        ]
        assert (used.run, used.variant, used.rate_rps) == (run, "ingress-nginx", rate)
    points, used = place_at_knee(at_knee(), "2,001", ["ingress-nginx"], "fake")
    assert [p.rate_rps for p in points] == [1000, 1601]
    assert (used.run, used.rate_rps) == (None, 2001)
    refused: list[tuple[str | None, str, dict[str, Any], str]] = [
        (None, "fake", {}, "just knee ingress-nginx --target fake --connections 1`, or name a rate"),
        ("inf", "fake", {}, "1 to 10,000,000"),
        ("0.5", "fake", {}, "1 to 10,000,000"),
        (run, "kind", {}, "is of target 'fake'"),
        (run, "fake", {"connections": 50}, "connections 1, the sweep's 50"),
        (run, "fake", {"connections": 50}, "--connections 50"),
        (run, "fake", {"page": "8kB.bin"}, "--page 8kB.bin"),
        (run, "fake", {"tls": "edge"}, "--tls edge"),
        (run, "fake", {"accept_encoding": "gzip"}, "--accept-encoding gzip"),
        (run, "fake", {"keepalive": False}, "--close"),
    ]
    for knee_of, target, changed, says in refused:
        with pytest.raises(UsageError) as caught:
            place_at_knee(at_knee(**changed), knee_of, ["ingress-nginx"], target)
        assert says in str(caught.value)
