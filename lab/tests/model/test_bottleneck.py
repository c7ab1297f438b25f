"""Who was the limit of a closed loop, and the rules for loads whose subject are errors or resumed TLS sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lab.measure import validity
from lab.model.bottleneck import compute_fullness, compute_link_share, limited_by
from lab.model.load import GeneratorResult
from lab.model.samples import Reason
from lab.model.sweeps import LoadPoint
from lab.stats.histogram import Histogram
from lab.tests.measure.test_validity import CALM, GOOD
from lab.tests.support.fakes import point

CLOSED = point().model_copy(update={"duration_s": 5.0})
ERRORS = CLOSED.model_copy(update={"subject": ("errors",)})


def limit(
    load: LoadPoint = CLOSED,
    result: GeneratorResult = GOOD,
    counters: Mapping[str, int] | None = None,
    proxy: float | None = 0.97,
    core: float = 0.5,
) -> str | None:
    return limited_by(load, result, counters or {}, proxy, core)


def test_a_ceiling_belongs_to_whose_cpu_was_full() -> None:
    assert limit(core=0.90) == "proxy"
    assert limit(core=0.96) == "generator"
    assert limit(proxy=0.80, core=0.90) == "generator"
    assert limit(proxy=None) is None
    assert limit(point(rate_rps=1000.0)) is None
    assert limit(proxy=0.80, core=0.50) == "waiting", "a slow disk or a full queue leaves both CPUs idle"
    assert limit(proxy=0.80, core=0.80) == "generator"


@pytest.mark.parametrize(
    ("shares", "workers", "used", "full"),
    [
        ([0.01, 0.99, 0.98, 0.02], 1, 0.99, 0.99),
        ([0.01, 0.99, 0.98, 0.02], 2, 1.96, 0.98),
        ([0.01, 0.99, 0.98, 0.02], 3, 1.96, 1.96 / 3),
        ([0.5, 0.3, 0.1, 0.1], 1, 0.97, 0.97),
        ([0.5, 0.3, 0.1, 0.1], 1, 1.02, 1.0),
        ([0.99, 0.99, 0.99, 0.6], None, 3.5, 0.6),
        ([0.99, 0.99, 0.99, 0.6], 8, 3.5, 0.6),
        ([], 2, 1.0, None),
    ],
)
def test_a_proxy_is_full_when_its_workers_are(
    shares: Sequence[float], workers: int | None, used: float, full: float | None
) -> None:
    """Two cannot fill four CPUs; bound ones fill their own, others are as full as their own time says."""
    found = compute_fullness(shares, workers, used)
    assert found is None if full is None else found == pytest.approx(full)


def test_a_throttled_container_a_full_link_and_errors_that_are_the_subject_were_the_limit() -> None:
    """A tenth of the periods; 20 Mbit/s carry 12.5 MB in five seconds, in either direction; a hundredth of the requests."""
    throttled = {"backend/cpu_periods": 50, "backend/cpu_throttled_periods": 5}
    assert limit(counters=throttled) == "limit"
    assert limit(counters=throttled, proxy=None) == "limit"
    assert limit(counters=throttled | {"backend/cpu_throttled_periods": 4}) == "proxy"
    assert limit(counters={"proxy/cpu_periods": 0, "proxy/cpu_throttled_periods": 0}) == "proxy"
    shaped = CLOSED.model_copy(update={"link_mbit": 20.0})
    full = {"client/rx_bytes": 12_000_000, "client/tx_bytes": 100_000}
    assert compute_link_share(shaped, GOOD, full) == pytest.approx(0.96)
    assert limit(shaped, counters=full) == "link"
    assert limit(shaped, counters={"client/rx_bytes": 1, "client/tx_bytes": 12_000_000}) == "link"
    assert limit(shaped, counters={"client/rx_bytes": 11_000_000}) == "proxy"
    assert limit(counters=full) == "proxy", "a link that is not shaped has no rate to be full at"
    failing = replace(GOOD, errors={"read": 60})
    assert limit(ERRORS, failing, core=1.0) == "errors", "a generator that is busy with failing is no limit then"
    assert limit(ERRORS, replace(GOOD, errors={"read": 40}), core=1.0) == "generator"
    assert limit(CLOSED, failing, core=1.0) == "generator"


def reasons(load: LoadPoint, result: GeneratorResult, core: float = 0.3) -> list[Reason]:
    return [reason for reason, _ in validity.find_faults(load, result, CALM, core, 1024)]


def test_errors_are_an_outcome_where_they_are_the_subject() -> None:
    """Refused, reset and wrong answers count against nothing, as long as some answers are right."""
    half = replace(GOOD, errors={"status": 2500, "connect": 9000, "timeout": 3}, size_bytes=2500 * 1270 + 2500 * 300)
    assert reasons(ERRORS, half) == []
    assert reasons(CLOSED, half) == [Reason.NON_2XX, Reason.ERRORS]
    assert reasons(ERRORS, replace(half, errors={"status": 5000})) == [Reason.TOO_SHORT]
    assert reasons(ERRORS, replace(half, dropped=1)) == [Reason.DROPPED]


def test_at_a_rate_what_failed_was_tried_where_errors_are_the_subject() -> None:
    rate = ERRORS.model_copy(update={"rate_rps": 1000.0})
    latency = Histogram.of_values([0.001] * 4000)
    answered = replace(GOOD, requests=4000, size_bytes=4000 * 1270, latency=latency)
    assert reasons(rate, replace(answered, errors={"connect": 1000})) == []
    assert reasons(rate, replace(answered, errors={"connect": 900})) == [Reason.RATE_NOT_ACHIEVED]


@pytest.mark.parametrize(
    ("changes", "mean", "right"),
    [
        ({}, 41, True),  # k6, kept connections: 41 bytes of TLS records and 254 of headers
        ({"keepalive": False}, 1317, True),
        ({"keepalive": False}, 20_000, False),
        ({}, 3_500, False),
        ({}, -1300, False),
    ],
)
def test_tls_explains_some_bytes_and_no_more(changes: dict[str, Any], mean: int, right: bool) -> None:
    load = CLOSED.model_copy(update=changes)
    told = replace(GOOD, size_bytes=5000 * (1024 + 254 + mean), size_includes_tls=True)
    assert (reasons(load, told) == []) is right


@pytest.mark.parametrize(
    ("asked", "handshakes", "resumed", "right"),
    [
        (True, 1000, 900, True),
        (True, 1000, 899, False),
        (False, 1000, 10, True),
        (False, 1000, 11, False),
        (False, 0, 0, False),
        (False, None, 0, False),
    ],
)
def test_tls_sessions_are_resumed_as_asked(asked: bool, handshakes: int | None, resumed: int, right: bool) -> None:
    """Nine tenths at least, or a hundredth at most, of the handshakes that the proxy counted; none, and none counted, is neither."""
    counted = {} if handshakes is None else {"proxy/tls_handshakes": handshakes, "proxy/tls_resumed": resumed}
    assert [reason for reason, _ in validity.check_resumption(asked, counted)] == [Reason.RESUMPTION] * (not right)


def test_a_run_of_a_tenth_of_a_second_is_not_thrown_away_for_two_clock_ticks() -> None:
    """hey with n requests takes what it takes: 20 ms of somebody else's are below what the clock can tell."""
    short = replace(CALM, elapsed_s=0.1, others=0.2, steal=0.1, busy={0: 0.5, 1: 0.5})
    latency = Histogram.of_values([0.0007] * 100)
    quick = replace(GOOD, requests=100, size_bytes=100 * 1270, duration_s=0.08, recorded_s=0.08, latency=latency)
    counted = CLOSED.model_copy(update={"requests": 100})
    assert validity.find_faults(counted, quick, short, 0.9, 1024) == []
    longer = replace(short, elapsed_s=1.0)
    found = {reason for reason, _ in validity.find_faults(counted, quick, longer, 0.9, 1024)}
    assert found == {Reason.STEAL, Reason.OTHER_PROCESSES}
