"""Findings: over which boots, what is said of one that rests on few, what is to be measured on another, and what was published on its own scale."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from lab.analysis import evidence
from lab.studies.boots import distance_to_bound, part_of
from lab.studies.claims import Claim, Other
from lab.studies.claims import Test as Rule  # a rule's test, none of pytest's
from lab.studies.claims.judging import Verdict
from lab.studies.claims.measuring import Measured, measured
from lab.studies.steps import boots_wanted, findings, published_ratio
from lab.tests.support.boots import ROOT, on_boot


@pytest.mark.parametrize(
    ("unit", "metric", "ratio"),
    [
        ("% (faster)", "rate", 1.5),
        ("% (faster)", "cpu_per_request", 1 / 1.5),
        ("% (faster)", "p50", 1 / 1.5),
        ("% change (about)", "p50", 1.5),
        ("x (about)", "rate", 50),
        ("ms", "p50", None),
    ],
)
def test_what_is_half_as_fast_again_takes_two_thirds_of_the_time(unit: str, metric: str, ratio: float | None) -> None:
    claim = Claim("TF-01", "successors", "stated", "It is faster.", "50", unit, "")
    test = Rule(metric=metric, ratio_to=Other(variant="traefik"), within=(0.5, 2.0))
    part = Measured(test, "traefik+traefik-fast-proxy", "ceiling", 0.7, 0.6, 0.8, 10, True, other="traefik")
    assert published_ratio(Verdict(claim, "reproduced", "", "", "", ()), part) == (ratio and pytest.approx(ratio))


@pytest.mark.committed
def test_a_finding_says_where_it_was_measured_and_what_the_same_step_did_elsewhere() -> None:
    """Kubernetes' own behaviour rests on kind, where there is a kubelet of its own."""
    found = {each.asked.arm: each for each in findings(evidence.references()[0])}
    assert found["grace-period-30+host-port"].target == "kind"
    assert {step.target for step in found["grace-period-30+host-port"].elsewhere} == {"local"}
    assert {step.target for step in found["ingress-nginx+access-log-off"].elsewhere} == {"local", "apiserver"}
    for each in found.values():
        assert each.target not in {step.target for step in each.elsewhere}
        places = [(step.target, step.point, step.metric) for step in each.elsewhere]
        assert len(places) == len(set(places))


RUN = "known-costs"
ARM = "ingress-nginx+extra-work-80"
FINDING = f'[[finding]]\nasks = "Is it so?"\nrun = "{RUN}"\narm = "{ARM}"\npoint = "ceiling"\n'


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "findings.toml").write_text(FINDING)
    (folder / RUN).symlink_to(ROOT / "data" / "reference" / RUN)
    monkeypatch.setenv("LAB_REFERENCE", str(folder))
    monkeypatch.setenv("LAB_RUNS", str(folder.parent / "runs"))
    return folder


def further(top: Path, *costs: float) -> None:
    """The same run on other boots, where the proxy's CPU time of variants is that many times as large."""
    (top / RUN).unlink()
    shutil.copytree(ROOT / "data" / "reference" / RUN, top / RUN)
    for number, cost in enumerate(costs, start=2):
        on_boot(RUN, top / RUN / f"boot-{number}", f"b{number}", cost=cost)


def test_a_finding_of_one_boot_says_so(top: Path) -> None:
    runs = evidence.references()[0]
    (found,) = findings(runs)
    assert "[+79.6, +81.7]" in found.measured and found.measured.endswith("; one boot") and found.boots.agree
    (wanted,) = boots_wanted(runs, [])
    assert wanted.bench == f"just bench {ARM} --points ceiling --sweep known-costs --blocks 40"
    assert wanted.pack == f"just maintain pack RUN --into {RUN}"
    assert len(wanted.boots) == 1 and 1 < wanted.minutes < 60
    names = {ARM, "ingress-nginx", "ingress-nginx-again"}
    record = part_of(runs[0].run.record, {ARM}, ["ceiling"])
    slots = record.plan().slots
    assert {arm.name for arm in record.arms} == names and {slot.point.name for slot in slots} == {"ceiling"}
    there = [slot for slot in runs[0].run.record.plan().slots if slot.point.name == "ceiling"]
    assert len(slots) == sum({slot.arm.name, slot.other} <= names | {""} for slot in there)


@pytest.mark.slow
def test_a_finding_of_three_boots_has_the_interval_over_them(top: Path) -> None:
    further(top, 1.1, 1.25)
    (found,) = findings(evidence.references()[0])
    over = found.boots.over
    assert over is not None and found.boots.boots == 3
    logs = [one.estimate.effect for one in found.boots.effects if one.estimate]
    assert logs[1] - logs[0] == pytest.approx(log(1.1), abs=1e-6)
    assert over.low < min(logs) < max(logs) < over.high
    assert "; over three boots CPU per request at ceiling +" in found.measured
    assert boots_wanted(evidence.references()[0], []) == []


@pytest.mark.slow
def test_a_claims_interval_is_over_boots(top: Path) -> None:
    """Its bound of 1.5 lies below the interval of the first boot, and in the one over three."""
    test = Rule(metric="cpu_per_request", points="ceiling", ratio_to=Other(variant="ingress-nginx"), above=1.5)
    (run,) = evidence.references()[0]
    (one,) = measured(test, ARM, run)
    assert (one.boots, one.holds) == (1, True)
    further(top, 1.1, 0.75)
    (run,) = evidence.references()[0]
    (three,) = measured(test, ARM, run)
    assert (three.boots, three.holds) == (3, None)
    assert three.low is not None and three.high is not None and three.low < 1.36 < 1.98 < three.high
    assert three.text.endswith("over three boots") and "boots" not in one.text


@pytest.mark.parametrize(
    ("bound", "value", "distance"),
    [
        ({"above": 1.5}, 1.8, 1 / 6),
        ({"within": (1.0, 2.0)}, 1.9, 1 / 19),
        ({"above": 1.0}, 1.05, None),
        ({"below": 0.5}, 0.4, 0.25),
    ],
)
def test_how_near_a_bound_is(bound: dict[str, float], value: float, distance: float | None) -> None:
    """A ratio above 1 is a direction, no size."""
    test = Rule(metric="cpu_per_request", ratio_to=Other(variant="ingress-nginx"), **bound)  # type: ignore[arg-type]
    part = Measured(test, ARM, "ceiling", value, value * 0.99, value * 1.01, 10, True)
    assert distance_to_bound(part) == (None if distance is None else pytest.approx(distance))
    assert distance_to_bound(replace(part, holds=None)) is None, "what is open is not decided by another boot"
