"""What was published of a measured step, on the step's own scale."""

from __future__ import annotations

import pytest

from lab.analysis import evidence
from lab.studies.claims import Claim, Other, Test
from lab.studies.claims.judging import Verdict
from lab.studies.claims.measuring import Measured
from lab.studies.steps import findings, published_ratio


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
    test = Test(metric=metric, ratio_to=Other(variant="traefik"), within=(0.5, 2.0))
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
