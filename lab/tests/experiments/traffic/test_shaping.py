"""The mix that is made of a log: shares of paths and sizes, arrivals, and nothing of the log itself."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.experiments.traffic.reading import AccessLog, LogLine, read_log
from lab.experiments.traffic.shaping import make_sweep, make_traffic
from lab.model.sweeps import LoadPoint
from lab.model.traffic import MAX_BYTES, MAX_ROUTES, METHODS, Traffic
from lab.records.sweep_files import load_sweep
from lab.tests.support.access_logs import make_log


def log_of(*lines: LogLine, hosts_are: str = "hosts") -> AccessLog:
    return AccessLog("common", hosts_are, lines, 0, 0)


@cache
def made(count: int, seed: int = 0) -> tuple[AccessLog, Traffic]:
    log = read_log("access.log", make_log(count))
    return log, make_traffic(log, seed)


def test_a_mix_has_the_shares_of_the_log_exactly() -> None:
    log, traffic = made(20_000)
    by_path = Counter((line.host, line.path) for line in log.lines)
    counted, methods = Counter[int](), Counter[str]()
    for shape in traffic.shapes:
        counted[shape.path] += shape.count
        methods[shape.method] += shape.count
    assert [count for _, count in by_path.most_common()] == [counted[number] for number in range(1, len(by_path) + 1)]
    assert methods == Counter(line.method for line in log.lines)
    sizes = sum(shape.count * shape.size_bytes for shape in traffic.shapes)
    assert sizes == pytest.approx(sum(line.size_bytes for line in log.lines), rel=0.001)
    mixed = np.repeat([shape.size_bytes for shape in traffic.shapes], [shape.count for shape in traffic.shapes])
    logged = np.array([line.size_bytes for line in log.lines])
    for limit_bytes in np.geomspace(50, 100_000, 60):
        assert np.mean(mixed <= limit_bytes) == pytest.approx(np.mean(logged <= limit_bytes), abs=0.005)


def test_nothing_of_the_log_is_in_the_mix_but_shapes_and_counts() -> None:
    _, traffic = made(3000)
    text = traffic.model_dump_json()
    assert re.search(r"\d+\.\d+\.\d+", text) is None
    assert all(word not in text for word in ("alice", "users", "bill", "token", "curl", "shop", "media"))
    assert traffic.log is not None and (traffic.log.requests, traffic.log.hosts, traffic.log.hosts_are) == (
        3000,
        3,
        "upstreams",
    )


@pytest.mark.parametrize("length", [1000, 1500, 3000, 10_000, 25_000])
def test_however_short_a_load_is_its_paths_and_sizes_have_their_shares(length: int) -> None:
    log, traffic = made(20_000)
    order = traffic.order
    requested = [traffic.shapes[order[number % len(order)]] for number in range(length)]
    paths, hosts = Counter(shape.path for shape in requested), Counter(shape.host for shape in requested)
    by_path = [count for _, count in Counter((line.host, line.path) for line in log.lines).most_common()]
    by_host = [count for _, count in Counter(line.host for line in log.lines).most_common()]
    for counted, logged in ((paths, by_path), (hosts, by_host)):
        for number, count in enumerate(logged, 1):
            assert abs(counted[number] / length - count / len(log.lines)) < max(0.0005, 3 / length)
    for low, high in ((0, 1), (1, 1000), (1000, 10_000), (10_000, 100_000)):
        share = sum(low <= line.size_bytes < high for line in log.lines) / len(log.lines)
        assert sum(low <= shape.size_bytes < high for shape in requested) / length == pytest.approx(share, abs=0.02)
    assert traffic.mean_bytes(length) == round(sum(shape.body_bytes for shape in requested) / length)


def test_another_seed_gives_another_order_of_the_same_mix() -> None:
    (_, first), (_, again), (_, other) = made(3000), made(3000), made(3000, seed=7)
    assert first == again and first.order == again.order and first.waits(25) == again.waits(25)
    assert first != other and first.requests == other.requests
    assert first.order != other.order and Counter(first.order) == Counter(other.order)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.builds(
            LogLine,
            st.integers(0, 500).map(float),
            st.sampled_from(["", *"abcdefghijklmn"]),
            st.sampled_from(METHODS),
            st.sampled_from(["/", "/a", "/a/b", "/c//d", "*"]),
            st.one_of(st.integers(0, 40), st.integers(0, 2 * MAX_BYTES)),
        ),
        min_size=1,
        max_size=200,
    )
)
def test_any_log_makes_a_mix_that_can_be_loaded_and_stored(lines: list[LogLine]) -> None:
    traffic = make_traffic(log_of(*lines), 0)
    assert Traffic.model_validate_json(traffic.model_dump_json()).requests == traffic.requests
    assert sum(shape.count for shape in traffic.shapes) == len(lines) == len(traffic.order)
    assert 1 <= traffic.routes <= MAX_ROUTES
    assert max(shape.size_bytes for shape in traffic.shapes) <= MAX_BYTES
    points = make_sweep(traffic, None).load_points
    assert [point.routes for point in points] == [traffic.routes] * 2
    assert LoadPoint.model_validate_json(points[1].model_dump_json()) == points[1]


def test_without_hosts_the_first_segments_of_the_paths_are_the_routes() -> None:
    lines = [
        LogLine(float(number), "", "GET", f"/{'api' if number % 3 else 'img'}/{number}", 10) for number in range(9)
    ]
    traffic = make_traffic(log_of(*lines), 0)
    assert traffic.log is not None
    assert (traffic.log.hosts, traffic.log.hosts_are, traffic.routes) == (2, "first path segments", 2)
    assert sorted(Counter(shape.host for shape in traffic.shapes).items()) == [(1, 6), (2, 3)]


@pytest.mark.parametrize(
    ("times_s", "rate_rps"),
    [
        ([0.0, 0.0, 1.0, 1.0, 4.0], 1.0),  # whole seconds: five of them, with the last
        ([0.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0], 4.0),  # of whose first and last second a part
        ([0.25, 0.5, 0.75, 1.0], 4.0),
        ([3.0], 1.0),
        ([2.5], 1.0),
    ],
)
def test_the_rate_is_that_of_the_logs_own_times(times_s: list[float], rate_rps: float) -> None:
    traffic = make_traffic(log_of(*(LogLine(time_s, "a", "GET", "/", 10) for time_s in times_s)), 0)
    assert traffic.log is not None and traffic.log.rate_rps == pytest.approx(rate_rps)


def test_arrivals_have_the_logs_gaps_within_blocks_that_keep_the_rate() -> None:
    """Every tenth second is idle: the gaps of a log that arrives in bursts are spread wider."""
    bursts = [
        LogLine(float(second), "a", "GET", "/", 10) for second in range(1000) if second % 10 < 2 for _ in range(20)
    ]
    even = [LogLine(number / 8, "a", "GET", "/", 10) for number in range(8000)]
    waits = make_traffic(log_of(*bursts), 0).waits(20)
    due = np.arange(len(waits)) + waits
    assert len(waits) == 1000 and min(waits) == 0.0 and max(waits) < 2 * 20
    assert np.all(np.diff(due) >= -0.01)
    assert np.std(np.diff(due)) > 0.5
    assert np.ptp((due - np.arange(len(due)))[19::20]) < 0.01
    assert make_traffic(log_of(*even), 0).waits(20) == []


def test_a_rate_is_the_logs_unless_one_is_named_and_lasts_long_enough() -> None:
    _, traffic = made(3000)
    assert traffic.log is not None
    closed, open_ = make_sweep(traffic, None).load_points
    assert (closed.name, closed.rate_rps) == ("ceiling", None)
    assert (open_.name, open_.rate_rps) == (f"rate-{traffic.log.rate_rps:.0f}", traffic.log.rate_rps)
    named = make_sweep(traffic, 40).load_points[1]
    assert (named.name, named.rate_rps, named.duration_s) == ("rate-40", 40, 25)
    assert make_sweep(traffic, 1).load_points[1].duration_s == 60
    slow = make_traffic(log_of(*(LogLine(1e7 * number, "a", "GET", "/", 1) for number in range(3))), 0)
    with pytest.raises(UsageError, match="(?s)mean rate is .*--traffic-rate"):
        make_sweep(slow, None)


def test_the_sweep_has_a_mix_of_its_own_for_those_without_a_log() -> None:
    points = load_sweep("traffic")[1].load_points
    assert {point.generator for point in points} == {"k6"}
    traffic = points[0].traffic
    assert traffic is not None and traffic.routes == 10 and traffic.log is None
    sizes = {shape.size_bytes for shape in traffic.shapes if shape.size_bytes}
    assert (min(sizes), max(sizes)) == (100, 1024 * 1024)
