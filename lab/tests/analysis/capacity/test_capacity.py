"""Capacity: prices from stored runs whose costs are known, numbers of proxies by hand, intervals by simulation."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
import yaml

from lab.__main__ import main
from lab.analysis.capacity.answer import (
    Answer,
    PricedLoad,
    RequestCost,
    RequestKind,
    Wanted,
    choose_price,
    compute_capacity,
    compute_cost,
    compute_size,
    draw_medians,
    interval_of_draws,
    list_priced_loads,
    make_snippet,
    round_up,
)
from lab.base.errors import UsageError
from lab.commands.capacity import parse_rate
from lab.model.plan import Arm, Slot, list_arms, plan_samples
from lab.model.sweeps import LoadPoint
from lab.model.usage import USAGE_SCHEMA, Usage
from lab.records.store import RunStore
from lab.report.json.answers import CAPACITY
from lab.tests.support.factories import make_point, make_sample, of_slot
from lab.tests.support.made_runs import made_record

FACTS = {"target": "local: directive-equivalent, not the controller", "cpu": "Fake", "kernel": "6.1", "cpus_proxy": "0"}
SHARED = {name: value for name, value in FACTS.items() if name != "cpus_proxy"}
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
    letters = len(slot.arm.name.replace("ingress-nginx", "baseline"))  # as when the numbers below were computed
    noise = 1 + 0.01 * np.sin(slot.block + 3 * letters)
    if slot.arm.role == "reference":
        return told(slot, 5e-6, 0.5, usage={"backend": Usage(cpu_s=1, rss_bytes=1, processes=1)})
    offered = slot.point.rate_rps
    busy = 0.98 if offered is None else offered * (S + W) / (1 + offered * W)
    return told(slot, (S + W * (1 - busy)) * noise, busy)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders `runs`, of one's own, and `reference` are, which is empty."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path / "reference"))
    return tmp_path


def stored(
    name: str = "20261122-000000-mine",
    variants: Sequence[tuple[str, str | None]] = (("keepalive", "ingress-nginx"),),
    points: Sequence[LoadPoint] = (CEILING, RATE),
    story: Story = woken,
    blocks: int = 1,
    facts: Mapping[str, str] = FACTS,
    manifests: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    created: str = "2026-11-22",
) -> RunStore:
    planned = plan_samples(list_arms(variants, "direct"), points, blocks, 1)
    given = {arm.variant: (manifests or {}).get(arm.variant, nginx()) for arm in planned.arms}
    record = made_record(name, planned, created_at=f"{created}T00:00:00.000+00:00", facts=dict(facts))
    store = RunStore.create(record, given)
    for slot in planned.slots:
        sample = make_sample(**of_slot(slot), generator=slot.point.generator, histogram=None, **story(slot))
        store.write_sample(sample, "", {}, pl.DataFrame(schema=USAGE_SCHEMA))
    return store


def nginx(workers: str | None = None) -> list[dict[str, Any]]:
    data = {"worker-processes": workers} if workers else {}
    return [{"kind": "ConfigMap", "metadata": {"name": "ingress-nginx-controller"}, "data": data}]


def route(tls: str | None) -> list[dict[str, Any]]:
    spec: dict[str, Any] = {"host": "a.test"} | ({"tls": {"termination": tls}} if tls else {})
    return [{"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "a"}, "spec": spec}]


def wanted(**fields: Any) -> Wanted:
    usual: dict[str, Any] = {"rate_rps": 1e6, "tls": "none", "keepalive": True, "page": "1kB.bin", "utilisation": 0.7}
    return Wanted(**usual | fields)


def found(run: str | None = None, **fields: Any) -> Answer:
    return compute_capacity(run, wanted(**fields), None)


def load(cost_s: float | Sequence[float], busy: float | None = 0.98) -> PricedLoad:
    costs_s = tuple(cost_s) if isinstance(cost_s, Sequence) else (cost_s,) * 6
    arm, point = Arm("ingress-nginx", "ingress-nginx", "baseline", None), make_point(f"p-{busy}", rate_rps=None)
    return PricedLoad(arm, point, RequestKind("none", True, None), costs_s, busy, "wrk")


def cost(*loads: PricedLoad, utilisation: float = 0.7) -> RequestCost:
    return compute_cost(loads, utilisation)


def test_a_price_near_the_wanted_utilisation_is_the_blocks_median() -> None:
    near = cost(load([20e-6, 21e-6, 22e-6, 23e-6, 24e-6, 30e-6], busy=0.72))
    assert near.value_s == pytest.approx(22.5e-6)
    assert near.interval_s is not None
    assert 20e-6 <= near.interval_s[0] < 21e-6
    assert 24e-6 < near.interval_s[1] <= 30e-6
    assert (near.blocks, near.caution, near.bound) == (6, "", "")
    assert cost(load([20e-6] * 5), utilisation=0.98).interval_s is None


def test_between_two_loads_the_price_is_linear_in_the_idle_share() -> None:
    far, near = ([load(S + W * (1 - busy), busy) for busy in each] for each in ((0.05, 0.98), (0.6, 0.78)))
    wide, narrow = cost(*far), cost(*far, *near)
    assert wide.value_s == pytest.approx(S + W * 0.3)
    assert "its interval is all between them" in wide.caution
    assert wide.interval_s == pytest.approx((S + W * 0.02, S + W * 0.95), rel=0.1)
    assert [each.busy for each in narrow.loads] == [0.6, 0.78]
    assert narrow.interval_s == pytest.approx((S + W * 0.22, S + W * 0.4), rel=0.02)
    assert cost(*far, *near, load(25e-6, busy=0.72)).interval_s == pytest.approx((25e-6, 25e-6))
    short = cost(far[0], load([20e-6] * 5))
    assert (short.interval_s, short.blocks) == (None, 5)


def test_between_two_rates_the_price_follows_from_idle_cost_and_marginal_cost() -> None:
    """A proxy that uses 0.1 cores at rest and 20 µs for each request, of one core: 70 % busy at 30,000 requests a second."""
    rates = (5_000, 40_000)
    loads = [
        replace(load(0.1 / rate + 20e-6, busy=0.1 + 20e-6 * rate), point=make_point(f"rate-{rate}", rate_rps=rate))
        for rate in rates
    ]
    between = cost(*loads)
    assert between.value_s == pytest.approx(0.1 / 30_000 + 20e-6)
    assert between.interval_s == pytest.approx((between.value_s, between.value_s))
    assert "idle cost and marginal cost" in between.caution


def test_beyond_the_measured_loads_the_nearest_price_is_a_bound() -> None:
    busy, idle = (cost(load(20e-6, at), load(30e-6, 2 * at - 0.7)) for at in (0.98, 0.1))
    assert busy.value_s == idle.value_s == pytest.approx(20e-6)
    assert (busy.bound, idle.bound) == ("at least", "at most")
    assert "AT LEAST" in busy.caution and "AT MOST" in idle.caution


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_prices_interval_holds_the_true_median_as_often_as_it_says(n: int) -> None:
    rng = np.random.default_rng(n)
    runs, hits = 3000, 0
    for seed in range(runs):
        draws = draw_medians(list(np.exp(rng.normal(0, 0.05, n))), seed)
        assert draws is not None
        low, high = interval_of_draws(draws)
        hits += low <= 1 <= high
    assert 0.93 <= hits / runs <= 0.975, hits / runs


def test_the_number_of_proxies_is_that_of_the_utilisation_law() -> None:
    """1 M × 20 µs / 0.7 = 28.6 cores: 29 of one, 8 of four; each serves 0.7 / 20 µs a core."""
    one, four = (compute_size(cost(load(20e-6, busy=0.7)), wanted(), cores) for cores in (1, 4))
    assert (one.proxies, four.proxies, four.advised) == (29, 8, 9)
    assert (one.serves_rps, four.serves_rps) == pytest.approx((35_000, 140_000))
    assert four.proxies_interval == (8, 8)
    assert [round_up(value) for value in (2.0, 2.0 + 1e-15, 2.01, 0.001)] == [2, 2, 3, 1]


def test_an_answer_of_a_stored_run() -> None:
    """The baseline's price at 70 %: S + 0.3 W = 25.8 µs; 36.9 cores."""
    stored(blocks=6)
    told = found()
    assert told.cost.value_s == pytest.approx(S + 0.3 * W, rel=0.01)
    assert told.cores == pytest.approx(36.9, rel=0.01)
    assert [size.cores for size in told.sizes] == [1, 2, 4, 8, 16]
    assert told.advised.cores == 4
    assert told.snippet.endswith(f"replicaCount: {told.advised.advised}")
    assert told.runs == ("20261122-000000-mine",)
    for words in ("LINEAR IN CORES", "not the controller", "Fake", told.cost.caution):
        assert any(words in line for line in told.assumptions)
    assert compute_capacity(None, wanted(), 8).sizes == told.sizes[3:4]


def test_what_is_applied_makes_proxies_of_the_size_that_is_advised() -> None:
    run = stored("2026-nginx")
    values = yaml.safe_load(make_snippet(run, "ingress-nginx", 9, 8))["controller"]
    assert values == {"config": {"worker-processes": "8"}, "resources": {"requests": {"cpu": 8}}, "replicaCount": 9}
    run = stored("2026-okd", variants=[("okd", None)], manifests={"okd": route("edge")})
    for cores, threads in ((8, 8), (128, 64)):
        patch = json.loads(shlex.split(make_snippet(run, "okd", 9, cores))[-1])
        assert patch == {"spec": {"replicas": 9, "tuningOptions": {"threadCount": threads}}}
    other = [{"kind": "Deployment", "metadata": {"name": "other"}}]
    run = stored("2026-other", variants=[("other", None)], manifests={"other": other})
    comment, command = make_snippet(run, "other", 9, 8).splitlines()
    assert comment.startswith("# each needs 8 CPUs")
    assert json.loads(shlex.split(command)[-1]) == {"spec": {"replicas": 9}}


def test_what_is_no_price_of_a_good_answer_is_left_out() -> None:
    closed: dict[str, Any] = {"rate_rps": None}
    points = [make_point("burst", subject=("errors",), **closed), make_point("zip", accept_encoding="gzip", **closed)]
    assert not list(list_priced_loads(stored(points=points)))
    backend = {"usage": {"backend": Usage(cpu_s=1, rss_bytes=1, processes=1)}}
    assert not list(list_priced_loads(stored("two", story=lambda slot: told(slot, 5e-6, 0.5, **backend))))
    with pytest.raises(UsageError, match="no price for TLS none, keep-alive was measured with 1kB.bin"):
        found("two")


def test_tls_is_where_the_variants_routes_end_it() -> None:
    def costly(slot: Slot) -> dict[str, Any]:
        return told(slot, 40e-6 if slot.arm.variant == "okd-edge" else 20e-6, 0.98)

    routes = {"okd": route(None), "okd-edge": route("edge")}
    points = [make_point("keep-alive", rate_rps=None, tls="routed")]
    stored(variants=[("okd-edge", "okd")], points=points, story=costly, manifests=routes)
    edge, none = (found(tls=tls) for tls in ("edge", "none"))
    assert (edge.cost.value_s, none.cost.value_s) == pytest.approx((40e-6, 20e-6), rel=1e-3)
    assert f'"replicas":{edge.advised.advised},"tuningOptions":{{"threadCount":4}}' in edge.snippet
    with pytest.raises(UsageError) as error:
        found(tls="passthrough")
    assert "okd-edge: TLS edge, keep-alive, 1kB.bin" in error.value.remedy
    assert "just bench okd-passthrough" in error.value.remedy


def test_full_and_resumed_handshakes_are_never_one_price() -> None:
    def costly(slot: Slot) -> dict[str, Any]:
        return told(slot, 100e-6 if slot.point.resumption else 900e-6, 0.98)

    usual: dict[str, Any] = {"rate_rps": None, "tls": "routed", "keepalive": False}
    points = [make_point("full", resumption=False, **usual), make_point("resumed", resumption=True, **usual)]
    routes = {"okd-edge": route("edge")}
    stored(variants=[("okd-edge", None)], points=points, story=costly, manifests=routes)
    for resumption, cost_s in ((False, 900e-6), (True, 100e-6)):
        told_of = found(tls="edge", keepalive=False, resumption=resumption)
        assert told_of.cost.value_s == pytest.approx(cost_s, rel=1e-3)
    with pytest.raises(UsageError, match="--handshakes"):
        found(tls="edge", keepalive=False)


def test_the_latest_run_with_an_interval_goes_before_a_later_one_without() -> None:
    stored("2026-c")
    assert found().runs == ("2026-c",)
    for name in ("2026-a", "2026-b"):
        stored(name, blocks=6)
    stored("2026-d", variants=[("okd-edge", None)], manifests={"okd-edge": route("edge")})
    assert found().runs == ("2026-b",)


def test_committed_runs_serve_where_there_are_none_of_yours(home: Path) -> None:
    """Damaged ones are passed over; of the committed ones the usual variants serve, and of these the latest on CPUs of its own."""
    stored("aa", created="2026-01-02")
    stored("mine", created="2026-01-03")
    stored("old", created="2026-01-01")
    stored("routes", variants=[("okd", None)], created="2026-01-04")
    stored("shared", facts=SHARED, created="2026-01-05")
    shutil.move(home / "runs", home / "reference")
    for name, file in (("2026-b", "samples"), ("2026-c", "")):
        broken = home / "runs" / name
        shutil.copytree(home / "reference" / "aa", broken)
        (next((broken / file).iterdir()) / "sample.json" if file else broken / "run.json").write_text("{")
        with pytest.raises(UsageError, match="damaged"):
            found(name)
    assert found().runs == ("mine",)
    assert found(variant="okd").runs == ("routes",)


def test_of_several_arms_the_baseline_the_usual_or_the_named_one_has_the_price() -> None:
    def dear(slot: Slot) -> dict[str, Any]:
        return told(slot, 50e-6 if slot.arm.variant == "keepalive" else 20e-6, 0.98)

    stored("pair", story=dear)
    for variant, cost_s in (("keepalive", 50e-6), (None, 20e-6)):
        assert found("pair", variant=variant).cost.value_s == pytest.approx(cost_s, rel=1e-3)
    with pytest.raises(UsageError, match="no price of 'nope'"):
        found(variant="nope")
    both = list(list_priced_loads(stored("systems", variants=[("nginx", None), ("ingress-nginx", None)])))
    assert choose_price(both, wanted()).loads[0].arm.variant == "ingress-nginx"


def test_without_cpus_of_its_own_the_fullest_loads_price_is_taken() -> None:
    stored(facts=SHARED)
    told_of = found()
    assert (told_of.cost.loads[0].point.name, told_of.cost.bound) == ("ceiling", "at least")
    assert any("AT LEAST: how busy the proxy" in line for line in told_of.assumptions)


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
    asked: str | None, busy: Sequence[float], mean: float
) -> None:
    def uneven(slot: Slot) -> dict[str, Any]:
        shares = {str(cpu): share for cpu, share in enumerate(busy)}
        return {**told(slot, 20e-6, sum(busy)), "proxy_core": min(busy), "busy": shares}

    facts, manifests = {**FACTS, "cpus_proxy": "0-3"}, {"keepalive": nginx(asked), "ingress-nginx": nginx(asked)}
    run = stored(points=[CEILING], story=uneven, facts=facts, manifests=manifests)
    assert [each.busy for each in list_priced_loads(run)] == [pytest.approx(mean)] * 2


def test_rates_are_read_as_people_write_them() -> None:
    read = {"1M": 1e6, "250k": 250e3, "1.5M": 1.5e6, "12_000": 12e3, "12,000": 12e3, "7": 7, "2G": 2e9}
    assert {text: parse_rate(text) for text in read} == read
    for text in ("", "many", "-1", "0", "1MM", "1e400", "1m", "1 M", "k", "nan", "9999G", None):
        with pytest.raises(UsageError, match="--rate"):
            parse_rate(text)


def test_json_says_what_the_table_says_and_is_as_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*asked: str) -> str:
        assert main(["capacity", "--rate", "1M", *asked]) == 0
        return capsys.readouterr().out

    data: dict[str, Any] = {}
    for blocks in (1, 6):
        stored(f"2026-{blocks}", blocks=blocks)
        data = json.loads(printed("--run", f"2026-{blocks}", "--page", "1kB", "--json"))
        jsonschema.Draft202012Validator(CAPACITY.schema()).validate(data)
    four = next(size for size in data["sizes"] if size["cores"] == 4)
    snippet = data["advised"]["snippet"]
    assert data["advised"] == {"cores": 4, "proxies": four["advised"], "snippet": snippet}
    text = printed()
    assert text.startswith(f"run {four['advised']} proxies of 4 cores: {four['proxies']} [")
    assert snippet.splitlines()[-1].strip() in text
    assert f"| 4 | {four['serves_rps']:,.0f} |" in printed("--markdown")
