"""Capacity: prices from stored runs whose costs are known, numbers of proxies by hand, intervals by simulation."""

from __future__ import annotations

import json
import shlex
import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
import yaml

from lab.__main__ import main
from lab.analysis.capacity import (
    advice as capacity_advice,
)
from lab.analysis.capacity import (
    answer as capacity_answer,
)
from lab.analysis.capacity import (
    cells as capacity_cells,
)
from lab.analysis.capacity import (
    costs as capacity_costs,
)
from lab.analysis.capacity import (
    size as capacity,
)
from lab.analysis.capacity.cells import Kind, Load
from lab.analysis.capacity.size import Wanted
from lab.base.errors import UsageError
from lab.commands.capacity import page_bytes, rate, share
from lab.model.pages import PAGES
from lab.model.plan import Arm, Slot, arms_for, plan
from lab.model.run import KneeSearch, RunRecord, VariantRecord
from lab.model.sweeps import Point, PointSpec
from lab.model.usage import USAGE_SCHEMA, Usage
from lab.model.variants import workers
from lab.records.store import RunStore
from lab.records.sweep_files import load_sweep
from lab.report.json.answers import CAPACITY
from lab.tests.support.factories import make_point, make_sample, of_slot

FACTS = {"target": "local: directive-equivalent, not the controller", "cpu": "Fake", "kernel": "6.1", "cpus_proxy": "0"}
CEILING = make_point("ceiling", generator="wrk", rate_rps=None, connections=64)
RATE = make_point("rate-1000", generator="k6", connections=50)
S, W = 15e-6, 36e-6
"""What a request costs a proxy that never sleeps, and what waking it adds."""

Story = Callable[[Slot], dict[str, Any]]


def told(slot: Slot, cost_s: float, busy: float, **more: Any) -> dict[str, Any]:
    """A sample's fields: so much CPU per request, the proxy's CPU so full."""
    achieved = slot.point.rate_rps or busy / cost_s
    requests = round(achieved * slot.point.duration_s)
    usage = {"proxy": Usage(cpu_s=cost_s * requests, rss_bytes=1, processes=1)}
    return {"achieved_rps": achieved, "requests": requests, "usage": usage, "proxy_core": busy, **more}


def woken(slot: Slot) -> dict[str, Any]:
    """c(ρ) = S + W(1 − ρ), ceilings at 98 %, a given rate at what it takes; a little noise by block and arm."""
    noise = 1 + 0.01 * np.sin(slot.block + 3 * len(slot.arm.name))
    if slot.arm.role == "reference":
        return told(slot, 5e-6, 0.5, usage={"backend": Usage(cpu_s=1, rss_bytes=1, processes=1)})
    offered = slot.point.rate_rps
    busy = 0.98 if offered is None else offered * (S + W) / (1 + offered * W)
    return told(slot, (S + W * (1 - busy)) * noise, busy)


def stored(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str = "20261122-000000-mine",
    variants: Sequence[tuple[str, str | None]] = (("keepalive", "baseline"),),
    points: Sequence[Point] = (CEILING, RATE),
    story: Story = woken,
    blocks: int = 6,
    facts: Mapping[str, str] = FACTS,
    manifests: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    created: str = "2026-11-22",
    sweep: str = "quick",
    target: str = "local",
) -> RunStore:
    """A run in tmp_path/runs, which LAB_RUNS names; there are no committed ones."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    planned = plan(arms_for(variants, "direct"), points, blocks, 1)
    given = {arm.variant: (manifests or {}).get(arm.variant, nginx()) for arm in planned.arms}
    record = RunRecord(
        id=name,
        created_at=f"{created}T00:00:00.000+00:00",
        command=("lab", "bench"),
        target=target,
        sweep=sweep,
        seed=1,
        blocks=blocks,
        arms=planned.arms,
        points=tuple(points),
        slots=tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots),
        variants={arm.variant: variant_record(arm) for arm in planned.arms},
        generators={point.name: {"name": point.generator, "version": "1", "stand_in_for": None} for point in points},
        facts=dict(facts),
        git_commit=None,
    )
    store = RunStore.create(record, given)
    for slot in planned.slots:
        sample = make_sample(
            **of_slot(slot),
            target=target,
            generator=slot.point.generator,
            histogram=None,
            **story(slot),
        )
        store.write_sample(sample, "", {}, pl.DataFrame(schema=USAGE_SCHEMA))
    return store


def variant_record(arm: Arm) -> VariantRecord:
    return VariantRecord(
        name=arm.variant,
        title=arm.variant,
        baseline=arm.baseline,
        knobs=(),
        own_knobs=(),
        primary_metric=None,
        hypothesis_sweep=None,
        manifests_sha256=arm.variant,
    )


def nginx(workers: str | None = None) -> list[dict[str, Any]]:
    data = {"worker-processes": workers} if workers else {}
    return [{"kind": "ConfigMap", "metadata": {"name": "ingress-nginx-controller"}, "data": data}]


def router(threads: str | None, replicas: int = 1, role: str = "proxy") -> list[dict[str, Any]]:
    env = [{"name": "A", "value": "1"}, *([{"name": "ROUTER_THREADS", "value": threads}] if threads else [])]
    template = {"spec": {"containers": [{"name": role, "env": env}]}}
    metadata = {"name": role, "labels": {"lab/role": role}}
    return [{"kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas, "template": template}}]


def route(tls: str | None) -> list[dict[str, Any]]:
    spec: dict[str, Any] = {"host": "a.test"} | ({"tls": {"termination": tls}} if tls else {})
    return [{"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "a"}, "spec": spec}]


def wanted(**fields: Any) -> Wanted:
    usual: dict[str, Any] = {"rate_rps": 1e6, "tls": "none", "keepalive": True, "page": "1kB.bin", "page_bytes": 1024}
    fields = {**usual, "utilisation": 0.7, **fields}
    return Wanted(**fields)


def load(cost_s: float | Sequence[float], page: str = "1kB.bin", busy: float | None = 0.98, **fields: Any) -> Load:
    costs = list(cost_s) if isinstance(cost_s, Sequence) else [cost_s] * 6
    arm = Arm("baseline", "baseline", "baseline", None)
    point = make_point(f"p-{page}-{busy}", rate_rps=None, page=page)
    usual: dict[str, Any] = {
        "arm": arm,
        "point": point,
        "kind": Kind("none", True, None),
        "page_bytes": PAGES[page],
        "costs_s": tuple(costs),
        "busy": busy,
        "generator": "wrk",
    }
    return Load(**{**usual, **fields})


# -- what is asked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("1M", 1e6), ("250k", 250e3), ("1.5M", 1.5e6), ("12_000", 12e3), ("12,000", 12e3), ("7", 7), ("2G", 2e9)],
)
def test_rates_are_read_as_people_write_them(text: str, value: float) -> None:
    assert rate(text) == value


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "1MM", "1e400", "1m", "1 M", "k", "nan", "9999G"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        rate(text)


@pytest.mark.parametrize(("text", "value"), [("70%", 0.7), ("0.7", 0.7), ("100%", 1), ("1", 1), ("12.5%", 0.125)])
def test_shares_are_percentages_or_fractions(text: str, value: float) -> None:
    assert share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["70", "0", "0%", "0.9%", "1e-320", "-5%", "101%", "half", "nan", "%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--utilisation"):
        share(text)


@pytest.mark.parametrize(
    ("text", "value"), [("8kB.bin", 8192), ("20kB", 20480), ("500B", 500), ("1MB.txt", 1024**2), ("1.5kB", 1536)]
)
def test_pages_are_names_or_sizes(text: str, value: int) -> None:
    assert page_bytes(text) == value


@pytest.mark.parametrize("text", ["8", "8kb", "0B", "0.1B", "big", "8kB.html", "-1kB", f"{'9' * 310}MB", "2000000MB"])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--page"):
        page_bytes(text)


# -- prices --------------------------------------------------------------------------------------------------


def test_a_price_near_the_wanted_utilisation_is_the_blocks_median() -> None:
    cost = capacity_costs.cost_of([load([20e-6, 21e-6, 22e-6, 23e-6, 24e-6, 30e-6], busy=0.72)], 1024, 0.7)
    assert cost.value_s == pytest.approx(22.5e-6)
    assert cost.interval_s is not None
    assert 20e-6 <= cost.interval_s[0] < 21e-6
    assert 24e-6 < cost.interval_s[1] <= 30e-6
    assert (cost.blocks, cost.how, cost.cautions) == (6, "measured", ())


def test_between_two_loads_the_price_is_linear_in_the_idle_share() -> None:
    loads = [load(S + W * (1 - busy), busy=busy) for busy in (0.05, 0.98)]
    cost = capacity_costs.cost_of(loads, 1024, 0.7)
    assert cost.value_s == pytest.approx(S + W * 0.3)
    assert "its interval is all between them" in cost.cautions[0]
    assert cost.interval_s is not None
    assert cost.interval_s == pytest.approx((S + W * 0.02, S + W * 0.95), rel=0.1)


def test_a_nearer_load_narrows_the_interval() -> None:
    loads = [load(S + W * (1 - busy), busy=busy) for busy in (0.05, 0.6, 0.78, 0.98)]
    cost = capacity_costs.cost_of(loads, 1024, 0.7)
    assert [found.busy for found in cost.loads] == [0.6, 0.78]
    assert cost.interval_s == pytest.approx((S + W * 0.22, S + W * 0.4), rel=0.02)
    at = capacity_costs.cost_of([*loads, load(25e-6, busy=0.72)], 1024, 0.7)
    assert at.interval_s == pytest.approx((25e-6, 25e-6))


def test_beyond_the_measured_loads_the_nearest_price_stands_and_says_on_which_side_it_errs() -> None:
    busy, idle = (capacity_costs.cost_of([load(20e-6, busy=at)], 1024, 0.7) for at in (0.98, 0.1))
    assert busy.value_s == idle.value_s == pytest.approx(20e-6)
    assert (busy.bound, idle.bound) == ("at least", "at most")
    assert "AT LEAST" in busy.cautions[0]
    assert "AT MOST" in idle.cautions[0]


def test_below_six_blocks_there_is_no_interval() -> None:
    assert capacity_costs.cost_of([load([20e-6] * 5)], 1024, 0.98).interval_s is None


def test_a_page_between_measured_ones_lies_on_their_line() -> None:
    sizes = ("1kB.bin", "4kB.bin", "16kB.bin", "64kB.bin")
    loads = [load(10e-6 + 1e-9 * PAGES[page], page) for page in sizes]
    cost = capacity_costs.cost_of(loads, 8192, 0.98)
    assert cost.value_s == pytest.approx(10e-6 + 1e-9 * 8192)
    assert cost.how == "between sizes"
    beyond = capacity_costs.cost_of(loads, 128 * 1024, 0.98)
    assert beyond.value_s == pytest.approx(10e-6 + 1e-9 * 128 * 1024)
    assert beyond.how == "beyond sizes"


def test_a_line_that_does_not_fit_has_a_wider_interval_that_stays_between_its_neighbours() -> None:
    costs = {"1kB.bin": 10e-6, "4kB.bin": 16e-6, "16kB.bin": 18e-6, "64kB.bin": 60e-6}
    bent = capacity_costs.cost_of([load(cost, page) for page, cost in costs.items()], 8192, 0.98)
    straight = capacity_costs.cost_of([load(10e-6 + 1e-9 * PAGES[page], page) for page in costs], 8192, 0.98)
    assert bent.interval_s is not None
    assert straight.interval_s is not None
    assert bent.interval_s[1] - bent.interval_s[0] > 10 * (straight.interval_s[1] - straight.interval_s[0])
    assert bent.interval_s[0] >= 16e-6 * (1 - 1e-9)
    assert bent.interval_s[1] <= 18e-6 * (1 + 1e-9)


def test_of_two_sizes_all_between_them_is_possible_and_beyond_them_nothing_is_said() -> None:
    loads = [load(10e-6, "1kB.bin"), load(30e-6, "64kB.bin")]
    cost = capacity_costs.cost_of(loads, 16384, 0.98)
    assert cost.interval_s == pytest.approx((10.5e-6, 29.5e-6), rel=0.02)
    with pytest.raises(capacity_costs.OutOfRangeError, match="two sizes"):
        capacity_costs.cost_of(loads, 100 * 1024, 0.98)


@pytest.mark.parametrize(("size", "fault"), [(64 * 1024 + 1, "twice the largest"), (511, "half of the smallest")])
def test_no_price_far_from_what_was_measured(size: int, fault: str) -> None:
    loads = [load(10e-6, "1kB.bin"), load(11e-6, "8kB.bin"), load(12e-6, "16kB.bin")]
    size = size if size < 1024 else 2 * 16 * 1024 + 1
    with pytest.raises(capacity_costs.OutOfRangeError, match=fault):
        capacity_costs.cost_of(loads, size, 0.98)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_prices_interval_holds_the_true_median_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    runs, hits = 3000, 0
    for seed in range(runs):
        draws = capacity_costs.median_draws(list(np.exp(rng.normal(0, 0.05, n))), seed)
        assert draws is not None
        low, high = capacity_costs.interval(draws)
        hits += low <= 1 <= high
    assert 0.93 <= hits / runs <= 0.975, hits / runs


@pytest.mark.slow
def test_the_lines_interval_holds_a_page_that_was_not_measured_as_often_as_it_says() -> None:
    """Five sizes, 3 % of error each in how straight the line is, two orders of magnitude apart: one between and one beyond."""
    rng = np.random.default_rng(3)
    pages = ("1kB.bin", "2kB.bin", "4kB.bin", "16kB.bin", "64kB.bin")
    runs, hits = 600, {8192: 0, 100 * 1024: 0}
    for _ in range(runs):
        loads = [load(float((10e-6 + 1e-9 * PAGES[page]) * np.exp(rng.normal(0, 0.03))), page) for page in pages]
        for size in hits:
            found = capacity_costs.cost_of(loads, size, 0.98).interval_s
            assert found is not None
            hits[size] += found[0] <= (10e-6 + 1e-9 * size) * np.exp(rng.normal(0, 0.03)) <= found[1]
    assert all(0.92 <= count / runs <= 0.99 for count in hits.values()), hits


# -- sizes ---------------------------------------------------------------------------------------------------


def test_the_number_of_proxies_is_that_of_the_utilisation_law() -> None:
    """1 M × 20 µs / 0.7 = 28.6 cores: 29 of one, 8 of four; each serves 0.7 / 20 µs a core."""
    cost = capacity_costs.cost_of([load(20e-6, busy=0.7)], 1024, 0.7)
    one, four = (capacity.size(cost, wanted(), cores) for cores in (1, 4))
    assert (one.proxies, four.proxies, four.advised) == (29, 8, 9)
    assert (one.serves_rps, four.serves_rps) == pytest.approx((35_000, 140_000))
    assert four.proxies_interval == (8, 8)
    assert capacity.cores_needed(cost, wanted())[0] == pytest.approx(28.571, abs=1e-3)


def test_a_whole_number_of_proxies_is_not_rounded_up() -> None:
    assert [capacity.whole(value) for value in (2.0, 2.0 + 1e-15, 2.01, 0.001)] == [2, 2, 3, 1]


# -- runs ----------------------------------------------------------------------------------------------------


def test_an_answer_of_a_stored_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline's price at 70 %: S + 0.3 W = 25.8 µs; 36.9 cores."""
    stored(tmp_path, monkeypatch)
    found = capacity_answer.answer([], wanted(), None)
    assert found.cost.value_s == pytest.approx(S + 0.3 * W, rel=0.01)
    assert found.cores == pytest.approx(36.9, rel=0.01)
    assert [size.cores for size in found.sizes] == [1, 2, 4, 8, 16]
    assert found.advised.cores == 4
    assert found.snippet.endswith(f"replicaCount: {found.advised.advised}")
    assert found.runs == ("20261122-000000-mine",)
    assert any("LINEAR IN CORES" in line for line in found.assumptions)
    assert any("not the controller" in line for line in found.assumptions)
    assert any("Fake" in line for line in found.assumptions)
    assert any("27," in line and "req/s for each of its CPUs" in line for line in found.narrow)


def test_what_is_applied_makes_proxies_of_the_size_that_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only so many of them; OpenShift takes at most 64 threads."""
    run = stored(tmp_path, monkeypatch, "2026-nginx")
    values = yaml.safe_load(capacity_answer.snippet(run, "baseline", 9, 8))["controller"]
    assert values == {"config": {"worker-processes": "8"}, "resources": {"requests": {"cpu": 8}}, "replicaCount": 9}
    run = stored(tmp_path, monkeypatch, "2026-okd", variants=[("okd", None)], manifests={"okd": route("edge")})
    for cores, threads in ((8, 8), (128, 64)):
        patch = json.loads(shlex.split(capacity_answer.snippet(run, "okd", 9, cores))[-1])
        assert patch == {"spec": {"replicas": 9, "tuningOptions": {"threadCount": threads}}}
    other = [{"kind": "Deployment", "metadata": {"name": "other"}}]
    run = stored(tmp_path, monkeypatch, "2026-other", variants=[("other", None)], manifests={"other": other})
    comment, command = capacity_answer.snippet(run, "other", 9, 8).splitlines()
    assert comment.startswith("# each needs 8 CPUs") and json.loads(shlex.split(command)[-1]) == {
        "spec": {"replicas": 9}
    }


def test_a_backends_cpu_is_no_proxys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(slot: Slot) -> dict[str, Any]:
        return told(slot, 5e-6, 0.5, usage={"backend": Usage(cpu_s=1, rss_bytes=1, processes=1)})

    stored(tmp_path, monkeypatch, story=nowhere)
    with pytest.raises(UsageError, match="no price for TLS none, keep-alive was measured"):
        capacity_answer.answer([], wanted(), None)


def test_tls_is_where_the_variants_routes_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def costly(slot: Slot) -> dict[str, Any]:
        return told(slot, 40e-6 if slot.arm.variant == "okd-edge" else 20e-6, 0.98)

    routes = {"okd": route(None), "okd-edge": route("edge")}
    points = [make_point("keep-alive", rate_rps=None, tls="routed")]
    stored(tmp_path, monkeypatch, variants=[("okd-edge", "okd")], points=points, story=costly, manifests=routes)
    edge, none = (capacity_answer.answer([], wanted(tls=tls), 4) for tls in ("edge", "none"))
    assert (edge.cost.value_s, none.cost.value_s) == pytest.approx((40e-6, 20e-6), rel=1e-3)
    assert edge.snippet.startswith("oc -n openshift-ingress-operator patch ingresscontroller/default")
    assert f'"replicas":{edge.advised.advised},"tuningOptions":{{"threadCount":4}}' in edge.snippet
    with pytest.raises(UsageError) as error:
        capacity_answer.answer([], wanted(tls="passthrough"), None)
    assert "okd-edge: TLS edge, keep-alive" in error.value.remedy
    assert "just bench okd-passthrough" in error.value.remedy


def test_full_and_resumed_handshakes_are_never_one_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def costly(slot: Slot) -> dict[str, Any]:
        return told(slot, 100e-6 if slot.point.resumption else 900e-6, 0.98)

    usual: dict[str, Any] = {"rate_rps": None, "tls": "routed", "keepalive": False}
    points = [make_point("full", resumption=False, **usual), make_point("resumed", resumption=True, **usual)]
    routes = {"okd-edge": route("edge")}
    stored(tmp_path, monkeypatch, variants=[("okd-edge", None)], points=points, story=costly, manifests=routes)
    close = {"tls": "edge", "keepalive": False}
    for resumption, cost_s in ((False, 900e-6), (True, 100e-6)):
        found = capacity_answer.answer([], wanted(**close, resumption=resumption), None)
        assert found.cost.value_s == pytest.approx(cost_s, rel=1e-3)
    run = RunStore.open("20261122-000000-mine")
    with pytest.raises(UsageError, match="--handshakes"):
        capacity.price(capacity_cells.loads_of([run]), wanted(**close))


def test_loads_whose_subject_is_errors_have_no_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        make_point("burst", rate_rps=None, subject=("errors",)),
        make_point("zip", rate_rps=None, accept_encoding="gzip"),
    ]
    run = stored(tmp_path, monkeypatch, points=points)
    assert capacity_cells.loads_of([run]) == []


def test_runs_made_alike_add_their_blocks_and_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, monkeypatch, "one", blocks=3)
    stored(tmp_path, monkeypatch, "two", blocks=3, facts={**FACTS, "boot_id": "other"})
    stored(tmp_path, monkeypatch, "three", blocks=3, facts={**FACTS, "cpu": "Other"})
    stored(tmp_path, monkeypatch, "four", blocks=3, points=[CEILING.model_copy(update={"connections": 8}), RATE])
    assert capacity_answer.answer(["one"], wanted(), None).cost.interval_s is None
    both = capacity_answer.answer(["one", "two", "one"], wanted(), None)
    assert both.cost.blocks == 6
    assert both.cost.interval_s is not None
    with pytest.raises(UsageError, match="one and three differ in cpu"):
        capacity_answer.answer(["one", "three"], wanted(), None)
    with pytest.raises(UsageError, match="point ceiling"):
        capacity_answer.answer(["one", "four"], wanted(), None)


def test_the_latest_run_with_an_interval_goes_before_a_later_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, monkeypatch, "2026-a")
    stored(tmp_path, monkeypatch, "2026-b")
    stored(tmp_path, monkeypatch, "2026-c", blocks=1)
    stored(tmp_path, monkeypatch, "2026-d", variants=[("okd-edge", None)], manifests={"okd-edge": route("edge")})
    found = capacity_answer.answer([], wanted(), None)
    assert found.runs == ("2026-b",)
    assert found.passed_over == ()


def test_committed_runs_serve_where_there_are_none_of_yours_and_damaged_ones_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, monkeypatch, "2026-a")
    shutil.move(tmp_path / "runs", tmp_path / "reference")
    broken = tmp_path / "runs" / "2026-b"
    shutil.copytree(tmp_path / "reference" / "2026-a", broken)
    next((broken / "samples").iterdir()).joinpath("sample.json").write_text("{")
    found = capacity_answer.answer([], wanted(), None)
    assert found.runs == ("2026-a",)
    assert len(found.passed_over) == 1
    assert "2026-a: " in found.passed_over[0]  # its record says so


def test_of_the_committed_ones_the_usual_variants_serve_and_of_these_the_latest_on_cpus_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names are no times: a new one with a later letter changes nothing."""
    shared = {name: value for name, value in FACTS.items() if name != "cpus_proxy"}
    stored(tmp_path, monkeypatch, "aa", created="2026-01-02")
    stored(tmp_path, monkeypatch, "mine", created="2026-01-03")
    stored(tmp_path, monkeypatch, "old", created="2026-01-01")
    stored(tmp_path, monkeypatch, "routes", variants=[("okd", None)], created="2026-01-04")
    stored(tmp_path, monkeypatch, "shared", facts=shared, created="2026-01-05")
    shutil.move(tmp_path / "runs", tmp_path / "reference")
    assert capacity_answer.answer([], wanted(), None).runs == ("mine",)
    assert capacity_answer.answer([], wanted(variant="okd"), None).runs == ("routes",)


def test_of_several_systems_the_usual_one_has_the_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path, monkeypatch, variants=[("nginx", None), ("baseline", None)])
    assert capacity_answer.answer([], wanted(), None).cost.loads[0].arm.variant == "baseline"


def test_a_variant_that_is_named_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dear(slot: Slot) -> dict[str, Any]:
        return told(slot, 50e-6 if slot.arm.variant == "keepalive" else 20e-6, 0.98)

    stored(tmp_path, monkeypatch, story=dear)
    assert capacity_answer.answer([], wanted(variant="keepalive"), None).cost.value_s == pytest.approx(50e-6, rel=1e-3)
    assert capacity_answer.answer([], wanted(), None).cost.value_s == pytest.approx(20e-6, rel=1e-3)
    with pytest.raises(UsageError, match="no price of 'nope'"):
        capacity_answer.answer([], wanted(variant="nope"), None)


@pytest.mark.parametrize(
    ("tls", "resumption"), [("none", None), ("edge", None), ("edge", True), ("edge", False), ("reencrypt", False)]
)
def test_a_price_that_is_missing_is_measured_in_a_sweep_that_has_it(
    tls: str, resumption: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections, with the handshakes that were asked for, on no more routes than any variant has."""
    stored(tmp_path, monkeypatch)
    with pytest.raises(UsageError, match="was measured") as error:
        capacity_answer.answer([], wanted(tls=tls, keepalive=False, resumption=resumption), None)
    command, _, sweep = error.value.remedy.rpartition(" --sweep ")
    assert command.endswith(f"just bench okd{'' if tls == 'none' else f'-{tls}'}")
    points = [point for point in load_sweep(sweep)[1].expanded() if not point.keepalive]
    assert all(point.routes in (1, "all") and point.disturbance is None and not point.subject for point in points)
    assert resumption in {None, *(point.resumption for point in points)}
    assert tls == "none" or None not in {point.resumption for point in points}


# -- what would narrow it ------------------------------------------------------------------------------------

SHARED = {name: value for name, value in FACTS.items() if name != "cpus_proxy"}
KEPT = {"rate_rps": None, "generator": "wrk", "connections": 64}


def unsure(slot: Slot) -> dict[str, Any]:
    """A price that is 30 % up and down by block, of a full proxy."""
    return told(slot, 20e-6 * (1 + 0.3 * np.sin(3 * slot.block)), 0.98)


@pytest.mark.parametrize(("blocks", "more"), [(3, 6), (6, 20)])
def test_more_blocks_are_of_the_variant_the_sweep_and_the_target_that_the_price_came_from(
    blocks: int, more: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of the usual variant, nor of the default sweep, nor here: runs that differ in these are never mixed."""
    nginx_alone: dict[str, Any] = {"variants": [("nginx", None)], "story": unsure, "blocks": blocks}
    stored(tmp_path, monkeypatch, "one", **nginx_alone)
    pages = [make_point(f"small-{page.lower()}", page=page, **KEPT) for page in ("1kB.bin", "64kB.bin")]
    stored(tmp_path, monkeypatch, "sizes", **nginx_alone, points=pages, sweep="page-sizes")
    stored(tmp_path, monkeypatch, "there", **nginx_alone, facts=SHARED, target="kind")
    for run, page, options in (
        ("one", "1kB.bin", ""),
        ("sizes", "64kB.bin", " --sweep page-sizes"),
        ("there", "1kB.bin", " --target kind"),
    ):
        asked = wanted(page=page, page_bytes=PAGES[page], utilisation=0.98)
        [line] = capacity_answer.answer([run], asked, None).narrow
        assert line.endswith(f"just bench nginx{options} --blocks {more}"), line


def test_of_two_runs_the_one_that_has_the_load_says_how_to_measure_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, monkeypatch, "one", story=unsure)
    large = [make_point("large", page="1MB.bin", **KEPT)]
    stored(tmp_path, monkeypatch, "two", story=unsure, points=large, sweep="page-sizes")
    asked = wanted(page="1MB.bin", page_bytes=PAGES["1MB.bin"], utilisation=0.98)
    [line] = capacity_answer.answer(["one", "two"], asked, None).narrow
    assert line.endswith("just bench baseline --sweep page-sizes --blocks 20")


def test_a_search_has_no_blocks_to_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = stored(tmp_path, monkeypatch, blocks=1).record
    asked = {"p99_s": 0.05, "min_achieved": 0.99, "max_generator_core": 0.9, "precision": 0.05}
    search = record.model_copy(update={"knee": KneeSearch(**asked, start_rps=100, least_rps=1)})
    cost = capacity_costs.cost_of([load([20e-6] * 2, busy=0.7)], 1024, 0.7)
    [line] = capacity_advice.narrow(cost, wanted(), search)
    assert "a search tries each rate too seldom" in line and "just" not in line


@pytest.mark.parametrize(
    ("measured", "asked", "offered"),
    [
        (("1kB.bin", "64kB.bin"), "20kB", ["16kB.bin"]),
        (("1kB.bin", "64kB.bin"), "5kB", ["4kB.bin", "8kB.bin"]),
        (("1kB.bin", "64kB.bin"), "8kB.bin", ["8kB.bin"]),
        (("16kB.bin", "64kB.bin"), "20kB", None),
        (("1MB.bin", "100MB.bin"), "30MB", ["10MB.bin"]),
    ],
)
def test_pages_that_are_offered_are_served_and_were_not_measured(
    measured: Sequence[str], asked: str, offered: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [make_point(f"p-{page.lower()}", page=page, **KEPT) for page in measured]
    stored(tmp_path, monkeypatch, "here", points=points, blocks=6)
    stored(tmp_path, monkeypatch, "there", points=points, facts=SHARED, target="kind")
    for run in ("here", "there"):
        question = wanted(page=asked, page_bytes=page_bytes(asked), utilisation=0.98)
        found = capacity_answer.answer([run], question, None).narrow
        lines = [line for line in found if "page = " in line]
        assert len(lines) == (offered is not None)
        for line in lines:
            keys, _, command = line.partition("a sweep of yours with ")[2].partition(", or ")
            page = tomllib.loads(keys)["page"]
            assert page == offered
            assert PointSpec(name="p", generator="wrk", connections=1, duration_s=1, page=page).fault is None
            shaped = "just bench baseline --sweep page-sizes" if run == "here" else ""
            assert command == shaped, "the link is shaped on this machine only"


def test_a_page_that_page_sizes_has_not_is_no_reason_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are new connections, which it does not make."""
    sizes = ("1kB.bin", "1MB.bin", "10MB.bin")
    for run, keepalive, asked in (("kept", True, "20MB"), ("new", False, "8kB.bin")):
        points = [make_point(f"p-{page.lower()}", page=page, keepalive=keepalive, **KEPT) for page in sizes]
        stored(tmp_path, monkeypatch, run, points=points)
        question = wanted(page=asked, page_bytes=page_bytes(asked), keepalive=keepalive, utilisation=0.98)
        found = capacity_answer.answer([run], question, None).narrow
        assert any("page = " in line for line in found)
        assert not any("just" in line for line in found)


@pytest.mark.parametrize(
    ("page", "keepalive", "fits"), [("1kB.bin", True, True), ("64kB.bin", True, False), ("1kB.bin", False, False)]
)
def test_the_load_below_the_knee_is_offered_where_it_is_the_same_load(
    page: str, keepalive: bool, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [make_point("full", page=page, keepalive=keepalive, **KEPT)]
    stored(tmp_path, monkeypatch, points=points)
    asked = wanted(page=page, page_bytes=PAGES[page], keepalive=keepalive)
    [line] = capacity_answer.answer(["20261122-000000-mine"], asked, None).narrow
    assert line.endswith("a sweep of yours with that rate_rps")
    assert ("just bench baseline --sweep at-knee" in line) == fits


# -- checks --------------------------------------------------------------------------------------------------


def test_without_cpus_of_its_own_the_fullest_loads_price_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {name: value for name, value in FACTS.items() if name != "cpus_proxy"}
    stored(tmp_path, monkeypatch, facts=facts)
    found = capacity_answer.answer([], wanted(), None)
    assert any("price of the fullest load" in line for line in found.assumptions)


@pytest.mark.parametrize(
    ("listed", "count"), [("0", 1), ("0-3", 4), ("0,2", 2), ("0-1,4-5", 4), ("", None), ("all", None)]
)
def test_the_kernels_lists_of_cpus_are_counted(
    listed: str, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path, monkeypatch, blocks=1, facts={**FACTS, "cpus_proxy": listed})
    assert len(capacity_cells.proxy_cpus(run)) == (count or 0)


@pytest.mark.parametrize(
    ("asked", "busy", "mean"),
    [
        (None, [1.0, 1.0, 1.0, 0.6], 0.9),  # the least busy one is not how busy the proxy was
        ("2", [0.9, 0.7, 0.0, 0.0], 0.8),
        ("1", [0.3, 0.3, 0.2, 0.1], 0.9),  # not bound to a CPU
        ("8", [0.5, 0.5, 0.5, 0.5], 0.5),
    ],
)
def test_how_busy_a_proxy_was_is_the_mean_of_what_its_workers_can_fill(
    asked: str | None, busy: Sequence[float], mean: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the utilisation law gives back what was measured, whoever of them had more to do."""

    def uneven(slot: Slot) -> dict[str, Any]:
        shares = {str(cpu): share for cpu, share in enumerate(busy)}
        return {**told(slot, 20e-6, sum(busy)), "proxy_core": min(busy), "busy": shares}

    facts, manifests = {**FACTS, "cpus_proxy": "0-3"}, {"keepalive": nginx(asked), "baseline": nginx(asked)}
    run = stored(tmp_path, monkeypatch, points=[CEILING], story=uneven, facts=facts, manifests=manifests)
    loads = capacity_cells.loads_of([run])
    assert [each.busy for each in loads] == [pytest.approx(mean)] * 2
    assert capacity_answer.answer([], wanted(), 4).cores == pytest.approx(1e6 * 20e-6 / 0.7)


def test_workers_are_counted_over_all_the_proxys_pods() -> None:
    """A backend's pods are none of the proxy's; where nothing is asked nothing is known."""
    assert workers.asked(nginx("4")) == 4
    assert [workers.asked(objects) for objects in (nginx(), nginx("auto"), [])] == [None] * 3
    assert workers.asked(router("4", replicas=2)) == 8
    assert workers.asked([*router("4"), *router(None, replicas=3, role="backend")]) == 4


# -- the command ---------------------------------------------------------------------------------------------


def test_json_says_what_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(tmp_path, monkeypatch)
    assert main(["capacity", "--rate", "1M", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main(["capacity", "--rate", "1M"]) == 0
    text = capsys.readouterr().out
    four = next(size for size in data["sizes"] if size["cores"] == 4)
    assert text.startswith(f"run {four['advised']} proxies of 4 cores: {four['proxies']} [")
    assert data["advised"] == {"cores": 4, "proxies": four["advised"], "snippet": data["advised"]["snippet"]}
    assert data["advised"]["snippet"].splitlines()[-1].strip() in text
    assert main(["capacity", "--rate", "1M", "--markdown"]) == 0
    assert f"| 4 | {four['serves_rps']:,.0f} |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "--rate: is missing"),
        (["--rate", "lots"], "expected a rate"),
        (["--rate", "1M", "--tls", "egde"], "did you mean 'edge'?"),
        (["--rate", "1M", "--close", "--keepalive"], "not allowed with"),
        (["--rate", "1M", "--handshakes", "full"], "--handshakes: is for new TLS connections"),
        (["--rate", "1M", "--cores", "0"], "--cores: expected 1 to 1024"),
        (["--rate", "1M", "--run", "nope"], "unknown run 'nope'"),
        (["--rate", "1M", "--page", "100MB"], "only one size was measured"),
        (["--rate", "1M", "--close"], "measure it: just bench okd --sweep route-scale"),
    ],
)
def test_bad_input_exits_2_with_what_to_do(
    arguments: list[str],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored(tmp_path, monkeypatch, blocks=1)
    assert main(["capacity", *arguments]) == 2
    out, err = capsys.readouterr()
    assert fault in err
    assert out == ""


def test_json_is_as_its_schema_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for blocks in (6, 1):
        stored(tmp_path, monkeypatch, f"2026-{blocks}", blocks=blocks)
        assert main(["capacity", "--rate", "1M", "--run", f"2026-{blocks}", "--json"]) == 0
        jsonschema.Draft202012Validator(CAPACITY.schema()).validate(json.loads(capsys.readouterr().out))
