"""The Universal Scalability Law against known answers, scipy's own minimiser, and by simulation."""

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy import optimize

from lab.stats import usl as scalability

Floats = npt.NDArray[np.float64]
WORKERS = np.array([1, 2, 4, 8, 16, 24, 32], dtype=float)
SPEC_LOAD = [1, 18, 36, 72, 108, 144, 216]
SPEC_X = [64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2]
"""SPEC SDM91 on a SPARCcenter 2000: Gunther's example (Guerrilla Capacity Planning, ch. 5), data set specsdm91 of R's package usl."""


def law(sizes: npt.ArrayLike, gamma: float, sigma: float, kappa: float) -> Floats:
    n = np.asarray(sizes, dtype=float)
    return gamma * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


@pytest.mark.parametrize(
    ("gamma", "sigma", "kappa"), [(5534.0, 0.02, 0.0007), (20.0, 0.05, 0.0), (1.0, 0.0, 0.001), (100.0, 0.0, 0.0)]
)
def test_exact_data_give_the_law_they_were_made_by(gamma: float, sigma: float, kappa: float) -> None:
    found = scalability.fit(WORKERS, law(WORKERS, gamma, sigma, kappa), draws=50)
    assert found.gamma.value == pytest.approx(gamma, rel=1e-6)
    assert (found.sigma.value, found.kappa.value) == pytest.approx((sigma, kappa), abs=1e-8)
    assert found.r_squared == pytest.approx(1)
    assert np.abs(found.residuals).max() < 1e-7


def test_the_peak_is_where_gunther_says() -> None:
    found = scalability.fit(WORKERS, law(WORKERS, 1, 0.02, 0.0007), draws=50)
    assert found.peak == pytest.approx(np.sqrt(0.98 / 0.0007), rel=1e-4)
    assert found.throughput(found.peak or 0) > max(found.throughput(36), found.throughput(39))


def test_without_coherency_there_is_no_peak() -> None:
    found = scalability.fit(WORKERS, law(WORKERS, 1, 0.1, 0.0), draws=50)
    assert found.peak is None
    assert found.peak_interval[1] is None
    assert found.efficiency(8) == pytest.approx(1 / 1.7, rel=1e-4)


def test_more_contention_than_work_peaks_at_one() -> None:
    found = scalability.fit(WORKERS, law(WORKERS, 1, 1.5, 0.01), draws=50)
    assert found.peak == 1.0


def test_gunthers_example_peaks_where_published_though_its_errors_are_weighed_otherwise() -> None:
    """R's usl 3.0 minimises absolute residuals: σ 0.0277285, κ 0.0001044, γ 89.995, peak 96.5.

    That law misses one processor by a third, which is nothing in requests and much as a ratio: ours misses it by less.
    """
    found = scalability.fit(SPEC_LOAD, SPEC_X)
    low, high = found.peak_interval
    assert high is not None
    assert low < np.sqrt((1 - 0.0277285) / 0.0001044) < high
    assert found.kappa.low < 0.0001044 < found.kappa.high
    published = law(SPEC_LOAD, 89.9952330, 0.0277285, 0.0001044)
    assert np.log(64.9 / published[0]) < -0.3 < -0.1 < found.residuals[0]
    assert np.sum(np.square(found.residuals)) < np.sum(np.log(np.array(SPEC_X) / published) ** 2)
    again = scalability.fit(SPEC_LOAD, published, draws=50)
    assert again.peak == pytest.approx(96.5, abs=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_no_other_coefficients_are_nearer(seed: int) -> None:
    """scipy.optimize, bounded, from several starts."""
    rng = np.random.default_rng(seed)
    truth = (100.0, rng.choice([0.0, 0.03, 0.3]), rng.choice([0.0, 0.0005, 0.01]))
    x = law(WORKERS, *truth) * np.exp(rng.normal(0, 0.05, WORKERS.size))

    def residuals(theta: Floats) -> Floats:
        return np.log(law(WORKERS, np.exp(theta[0]), theta[1], theta[2])) - np.log(x)

    starts = [[4.6, 0.0, 0.0], [4.6, 0.1, 0.001], [4.6, 1.0, 0.0], [4.6, 0.0, 0.02]]
    bounds = ([-np.inf, 0, 0], [np.inf, np.inf, np.inf])
    best = min(
        (optimize.least_squares(residuals, start, bounds=bounds, xtol=1e-14, ftol=1e-14) for start in starts),
        key=lambda r: r.cost,
    )
    found = scalability.fit(WORKERS, x, draws=50)
    assert np.sum(np.square(found.residuals)) <= 2 * best.cost * (1 + 1e-6)
    assert (found.sigma.value, found.kappa.value) == pytest.approx(tuple(best.x[1:]), abs=1e-3)


def test_published_workers_grow_at_least_linearly_and_then_bend() -> None:
    """qinng, 1 to 32 workers: more than linear up to 16, so no contention is left over; 32 serve less than 32 times one."""
    with (Path(__file__).parents[3] / "data" / "published" / "qinng_workers.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = scalability.fit([float(row["worker_cpus"]) for row in rows], [float(row["requests_per_s"]) for row in rows])
    assert found.sigma.value == 0
    assert found.kappa.value > 0
    assert found.r_squared > 0.99
    assert found.efficiency(32) < 0.95 < found.efficiency(4)
    assert found.residuals[3] > 0  # 8 workers: more than any law without a bonus explains
    assert max(map(abs, found.residuals)) < 0.15


@pytest.mark.parametrize(
    ("sizes", "throughputs", "fault"),
    [
        ([1, 2, 4], [1, 2, 4], "4 or more distinct sizes, got 3"),
        ([1, 1, 2, 2, 4, 4], [1, 1, 2, 2, 4, 4], "got 3"),
        ([1, 2, 4], [1, 2], "equal length"),
        ([0, 2, 4, 8], [1, 2, 4, 8], "sizes >= 1"),
        ([1, 2, 4, 8], [1, 2, 0, 8], "throughputs > 0"),
        ([1, 2, 4, 8], [1, 2, float("nan"), 8], "finite"),
        ([], [], "got 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sizes: list[float], throughputs: list[float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        scalability.fit(sizes, throughputs)


def test_the_same_data_have_the_same_interval() -> None:
    one, two = (scalability.fit(SPEC_LOAD, SPEC_X, draws=200) for _ in range(2))
    assert one.sigma == two.sigma


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 6])
def test_the_intervals_hold_the_truth_as_often_as_they_say(repeats: int) -> None:
    """σ, κ, the efficiency of 8 and of 16 and the peak, 93 to 97 % of 500 runs (less two standard errors); one or six measurements of each size, noise of 3 %."""
    sizes = np.repeat(WORKERS, repeats)
    truth = (100.0, 0.03, 0.002)
    rng = np.random.default_rng(7)
    hits = {"sigma": 0, "kappa": 0, "eff8": 0, "eff16": 0, "peak": 0}
    runs = 500
    for number in range(runs):
        found = scalability.fit(
            sizes, law(sizes, *truth) * np.exp(rng.normal(0, 0.03, sizes.size)), draws=400, seed=number
        )
        hits["sigma"] += found.sigma.low <= truth[1] <= found.sigma.high
        hits["kappa"] += found.kappa.low <= truth[2] <= found.kappa.high
        for size in (8, 16):
            low, high = np.quantile(found.efficiency_draws(size), [0.025, 0.975])
            hits[f"eff{size}"] += low <= 1 / (1 + (size - 1) * (truth[1] + truth[2] * size)) <= high
        low, high = found.peak_interval
        hits["peak"] += low <= np.sqrt((1 - truth[1]) / truth[2]) <= (high or np.inf)
    for name, count in hits.items():
        assert 0.93 <= count / runs <= 0.97, (name, count)


@pytest.mark.slow
def test_at_the_bound_the_intervals_are_no_narrower_than_they_say() -> None:
    """Neither contention nor coherency: both intervals reach 0 at least 95 times of 100 (less three standard errors)."""
    rng = np.random.default_rng(11)
    found = [
        scalability.fit(WORKERS, law(WORKERS, 1, 0, 0) * np.exp(rng.normal(0, 0.03, 7)), draws=400, seed=number)
        for number in range(200)
    ]
    for coefficient in ("sigma", "kappa"):
        assert sum(getattr(one, coefficient).low == 0 for one in found) / 200 > 0.95 - 3 * 0.0154
