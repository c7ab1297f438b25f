"""The one rule of decision: what is resolved, by which of its two ways, and what is none."""

from __future__ import annotations

import pytest

from lab.analysis.decision import MARK_P, Decision, adjusted, decide
from lab.stats import paired as stats

BASE = [1.0, 1.01, 0.99, 1.0, 1.01, 0.99]
FASTER = stats.paired([0.8 * value * (1 + step / 1000) for step, value in enumerate(BASE)], BASE)


@pytest.mark.parametrize("more_is_better", [True, False])
@pytest.mark.parametrize(("primary", "adjusted_p"), [(True, None), (False, MARK_P)])
def test_less_is_worse_where_more_is_better(more_is_better: bool, primary: bool, adjusted_p: float | None) -> None:
    found = decide(FASTER, 0.1, more_is_better=more_is_better, primary=primary, adjusted_p=adjusted_p)
    assert found is (Decision.WORSE if more_is_better else Decision.BETTER) and found.resolved and found.judged


def test_a_primary_metric_is_held_to_its_interval_and_any_other_to_its_p_and_size() -> None:
    """At a floor that the effect is beyond and the near end of its interval is not."""
    assert FASTER.interval is not None
    floor = (-FASTER.effect - FASTER.interval[1]) / 2
    assert decide(FASTER, floor, more_is_better=False, primary=True, adjusted_p=0.0) is Decision.CANNOT_TELL
    assert decide(FASTER, floor, more_is_better=False, adjusted_p=MARK_P) is Decision.BETTER
    assert decide(FASTER, -FASTER.effect, more_is_better=False, adjusted_p=0.0) is Decision.CANNOT_TELL


@pytest.mark.parametrize("adjusted_p", [None, MARK_P + 1e-9])
def test_what_is_not_primary_needs_a_p(adjusted_p: float | None) -> None:
    assert decide(FASTER, 0.0, more_is_better=False, adjusted_p=adjusted_p) is Decision.CANNOT_TELL


@pytest.mark.parametrize("primary", [True, False])
def test_nothing_is_resolved_without_a_floor_or_an_interval(primary: bool) -> None:
    without = decide(FASTER, None, more_is_better=False, primary=primary, adjusted_p=0.0)
    assert without is Decision.CANNOT_TELL and without.judged and not without.resolved
    few = decide(
        stats.paired(BASE[:5], BASE[1:]), 0.0, more_is_better=False, primary=primary, adjusted_p=0.0, bound=True
    )
    assert few is Decision.NO_INTERVAL and not few.judged


@pytest.mark.parametrize("primary", [True, False])
def test_a_bound_that_is_not_resolved_is_not_judged(primary: bool) -> None:
    """What may be any larger shows nothing by not being seen."""
    near, far = (
        decide(FASTER, floor, more_is_better=False, primary=primary, adjusted_p=0.0, bound=True) for floor in (0.1, 1.0)
    )
    assert near is Decision.BETTER
    assert far is Decision.NOT_JUDGED and not far.judged


def test_holm_is_over_what_has_a_p() -> None:
    assert adjusted([0.01, None, 0.04, 0.03, None, 0.005]) == [
        None if p is None else pytest.approx(p) for p in (0.03, None, 0.06, 0.06, None, 0.02)
    ]
    assert adjusted([None]) == [None]
