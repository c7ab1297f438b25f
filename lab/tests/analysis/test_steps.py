"""What was published of a measured step, on the step's own scale."""

from __future__ import annotations

import pytest

from lab.analysis.claims import Claim, Other, Test
from lab.analysis.claims.judging import Verdict
from lab.analysis.claims.measuring import Measured
from lab.analysis.steps import published_ratio


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
    part = Measured(test, "traefik-fast-proxy", "ceiling", 0.7, 0.6, 0.8, 10, True, other="traefik")
    assert published_ratio(Verdict(claim, "reproduced", "", "", "", ()), part) == (ratio and pytest.approx(ratio))
