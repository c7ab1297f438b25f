"""How wrong the lab may be, by simulation: coverage, false claims, power as planned, and a noisy neighbour.

At numbers of blocks from 6 to 40, and by the lab's own rule of decision.
A number of `RUNS` errs by half a hundredth (one standard error at 95 %); whatever is counted exactly is not simulated more closely.
"""

from collections.abc import Callable, Iterable, Sequence
from math import log1p

import numpy as np
import numpy.typing as npt
import pytest

from lab.analysis.judge.decision import ALPHA, Decision, Thresholds, adjust_p_values, compute_noise_floor, decide
from lab.stats import paired as stats
from lab.stats import power, unpaired

BLOCKS = (6, 7, 8, 10, 12, 15, 20, 30, 40)
EVERYDAY = (6, 12, 40)
RUNS = 2000
Floats = npt.NDArray[np.float64]
Bounds = tuple[float | None, float | None]


def of_blocks(numbers: Iterable[int]) -> pytest.MarkDecorator:
    """A test at each of these numbers of blocks, of which those that are not for every day come with --long."""
    return pytest.mark.parametrize(
        "n", [pytest.param(n, marks=() if n in EVERYDAY else pytest.mark.long) for n in numbers]
    )


def covered(truth: float, bounds: Sequence[Bounds]) -> float:
    """The share of intervals that hold the truth; one that is missing does not."""
    return float(np.mean([low is not None and high is not None and low <= truth <= high for low, high in bounds]))


def measured(rng: np.random.Generator, arms: int, n: int, noise: float = 0.05, runs: int = RUNS) -> Floats:
    """Values as a load has them, shape (arms, runs, n): blocks that differ by far more than one measurement does."""
    return np.exp(rng.normal(0, 0.3, (runs, n)) + rng.normal(0, noise, (arms, runs, n)))


@of_blocks(BLOCKS)
def test_intervals_of_effects_and_levels_cover_93_to_97_times_in_100(n: int) -> None:
    truth = log1p(0.04)
    base, other = measured(np.random.default_rng(100 + n), 2, n)
    found = [stats.estimate_ratio(v * 1.04, b) for v, b in zip(other, base, strict=True)]
    assert 0.93 <= covered(truth, [(e.low, e.high) for e in found]) <= 0.97
    assert 0.93 <= covered(truth, [(e.hl_low, e.hl_high) for e in found]) <= 0.975, "96.9 % at six, in truth"
    assert 0.93 <= covered(1.0, [(e.low, e.high) for e in map(stats.estimate_geometric_mean, base)]) <= 0.97


@of_blocks(BLOCKS)
def test_hodges_lehmanns_interval_has_a_coverage_of_95_to_97_whatever_the_noise(n: int) -> None:
    """What the chosen rank gives is counted, not simulated: P(T⁺ ≥ k) on both sides, over all signs of the ranks 1…n."""
    chance = np.ones(1)
    for rank in range(1, n + 1):
        chance = np.convolve(chance, [0.5, *[0] * (rank - 1), 0.5])
    d = 2.0 ** np.arange(n)  # no two averages are equal
    walsh = np.sort([(d[i] + d[j]) / 2 for i in range(n) for j in range(i + 1)])
    k = int(np.flatnonzero(walsh == stats.estimate_hodges_lehmann(d)[1])[0]) + 1
    assert 0.03 < 2 * float(chance[:k].sum()) <= 0.05 < 2 * float(chance[: k + 1].sum())


@of_blocks(range(6, 41))
def test_the_interval_of_a_middle_covers_93_to_97_times_in_100(n: int) -> None:
    rng = np.random.default_rng(300 + n)
    for draws, median in ((measured(rng, 1, n)[0], 1.0), (skewed(rng, n), np.log(2)), (cauchy(rng, n), 0.0)):
        assert 0.93 <= covered(median, [(e.low, e.high) for e in map(stats.estimate_median, draws)]) <= 0.97


@pytest.mark.parametrize(("mean", "median"), [(0.3, 0), (0.68, 0), (0.7, 1), (3, 3), (30, 30)])
@pytest.mark.parametrize("n", [6, 7, 9, 12])
def test_the_interval_of_a_middle_of_counts_covers_94_times_in_100_or_more(n: int, mean: float, median: int) -> None:
    draws = np.random.default_rng(310 + n).poisson(mean, (RUNS, n)).astype(float)
    assert covered(median, [(e.low, e.high) for e in map(stats.estimate_median, draws)]) >= 0.94


@of_blocks(BLOCKS)
def test_the_interval_of_a_difference_where_one_side_alone_waits_misses_only_larger_ones(n: int) -> None:
    """A kill, an outage, a reload: the baseline takes 10 s and an exponential wait, the variant 0.1 s in every block.

    Student's t misses the mean of such skewed differences more often than it says, and then says too little.
    """
    base = 10 + np.random.default_rng(800 + n).exponential(2.0, (RUNS, n))
    bounds = [
        (e.low or 0.0, e.high or 0.0) for e in (stats.estimate_difference(np.full(n, 0.1), each) for each in base)
    ]
    truth = 0.1 - 12.0
    assert covered(truth, bounds) >= (0.91 if n >= 30 else 0.87)
    assert np.mean([high < truth for _, high in bounds]) <= 0.015, "these say too much"


def cauchy(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_cauchy((RUNS, n))


def skewed(rng: np.random.Generator, n: int) -> Floats:
    return rng.exponential(1, (RUNS, n))


def test_unpaired_intervals_cover_93_to_97_times_in_100_whatever_the_noise() -> None:
    for noise, m, n in ((cauchy, 8, 8), (skewed, 8, 6), (skewed, 6, 40)):
        rng = np.random.default_rng(m + n)
        other, base = noise(rng, m), noise(rng, n)
        found = [unpaired.estimate_unpaired_difference(v + 3, b) for v, b in zip(other, base, strict=True)]
        assert 0.93 <= covered(3.0, [(e.low, e.high) for e in found]) <= 0.97


def told(effects: Iterable[Floats], again: Floats, margin: float = 0.0) -> list[Decision]:
    """What a run says of its primary effects, shape (n,) each, log-ratios by block; `again`: of the baseline against itself."""
    found, guard = [estimated(each) for each in effects], compute_noise_floor(estimated(again))
    sure = adjust_p_values([one.p_value for one in found])
    return [decide(one, Thresholds(margin, guard), p, more_is_better=True) for one, p in zip(found, sure, strict=True)]


def estimated(log_ratios: Floats) -> stats.Estimate:
    return stats.estimate_ratio(np.exp(log_ratios), np.ones(log_ratios.size))


def gaussian(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """A pair's log-ratios in units of their scatter, shape (runs, n)."""
    return rng.normal(0, 1, (runs, n))


def outlying(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """One value in twenty is ten too large, of the one side or the other."""
    hit = (rng.random((runs, n)) < 0.05) * rng.choice([-10, 10], (runs, n))
    return gaussian(rng, runs, n) + hit


def drifting(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """One of the two places becomes slower by two over the run; whose place it is, is half and half (`plan`)."""
    return gaussian(rng, runs, n) + halves(rng, runs, n) * np.linspace(0, 2, n)


def neighboured(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """Somebody takes five from one place, in half of the blocks."""
    return gaussian(rng, runs, n) + halves(rng, runs, n) * 5 * (halves(rng, runs, n) > 0)


def halves(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """As many 1 as −1 in each run, in an order drawn by lot."""
    return rng.permuted(np.tile(np.arange(n) % 2 * 2.0 - 1, (runs, 1)), axis=1)


Noise = Callable[[np.random.Generator, int, int], Floats]
NOISES: tuple[Noise, ...] = (gaussian, outlying, drifting, neighboured)
PER_SCATTER = 0.01
"""A log-ratio; what is counted does not depend on it."""
GUARDS = 6
"""Blocks with the pair that guards."""


def short(share: float, runs: int) -> float:
    """What so few runs err by at most: three standard errors; ten thousand are let off nothing."""
    return 0.0 if runs >= 10_000 else 3 * (share * (1 - share) / runs) ** 0.5


SOME = [*((n, 300) for n in (6, 12, 40)), *(pytest.param(n, 10_000, marks=pytest.mark.long) for n in BLOCKS)]
"""(blocks, runs): every day a few runs, enough to tell 5 in 100 from 10, with what so few err by."""


@pytest.mark.parametrize(("n", "runs"), SOME)
@pytest.mark.parametrize("noise", NOISES)
def test_of_nothing_a_run_claims_a_sign_5_times_in_100_and_covers_as_promised(noise: Noise, n: int, runs: int) -> None:
    """At most 5.7 of 100, with Gaussian noise 3 at least: fewer would be resolution thrown away. A run is as `quick`: two points, and the guard."""
    rng = np.random.default_rng(1000 + n)
    effects = PER_SCATTER * np.stack([noise(rng, runs, n) for _ in range(2)])
    again = PER_SCATTER * noise(rng, runs, GUARDS)
    wrong = sum(any(word.resolved for word in told(effects[:, run], again[run])) for run in range(runs)) / runs
    covers = covered(0.0, [(one.low, one.high) for one in map(estimated, effects[0])])
    assert wrong <= 0.057 + short(0.057, runs)
    assert covers >= 0.935 - short(0.935, runs)
    if noise is gaussian:
        assert wrong >= 0.03 - short(0.03, runs)
        assert 0.94 - short(0.94, runs) <= covers <= 0.96 + short(0.96, runs)


@pytest.mark.parametrize(("n", "runs"), SOME)
@pytest.mark.parametrize("noise", NOISES)
def test_what_is_worth_knowing_is_hardly_ever_called_the_same(noise: Noise, n: int, runs: int) -> None:
    """What is just as large as that: thirty scatters of a run's mean."""
    rng = np.random.default_rng(1100 + n)
    margin = PER_SCATTER * 30.0 / n**0.5
    values, again = margin + PER_SCATTER * noise(rng, runs, n), PER_SCATTER * noise(rng, runs, GUARDS)
    same = [Decision.EQUIVALENT in told([one], by, margin) for one, by in zip(values, again, strict=True)]
    assert np.mean(same) <= 0.05 + short(0.05, runs)


@pytest.mark.parametrize("blocks", [6, 12])
def test_counts_without_a_difference_are_claimed_no_more_often_than_promised(blocks: int) -> None:
    """Many zeros among them; the conditional p-value of two runs is exact with ties, and their interval covers at least as often."""
    runs = 300
    for mean in (0.3, 3.0, 300.0):
        drawn = np.random.default_rng(2024).poisson(mean, (runs, 2, blocks)).astype(float)
        for within in (stats.estimate_difference, unpaired.estimate_unpaired_difference):
            found = [within(own, base) for own, base in drawn]
            assert np.mean([(one.p_value or 0) <= ALPHA for one in found]) <= 0.05 + short(0.05, runs)
            assert covered(0.0, [(one.low, one.high) for one in found]) >= 0.95 - short(0.95, runs)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6, *(pytest.param(n, marks=pytest.mark.long) for n in (10, 20))])
def test_two_runs_of_the_same_claim_nothing_in_a_table_of_twelve_rows(n: int) -> None:
    """1000 tables: by Holm's p alone at most 5 of 100 hold any claim (a table in which one row is wrong counts as wrong).

    Rows are metrics of the same blocks, so they move together, and every third is a percentile of few digits: ties.
    """
    rng = np.random.default_rng(600 + n)
    runs, rows = 1000, 12
    shared = rng.normal(0, 0.04, (2, runs, n, 1))
    values = np.exp(shared + rng.normal(0, 0.03, (2, runs, n, rows)))
    values[..., ::3] = np.round(values[..., ::3], 2)
    wrong = 0
    for other, base in zip(*values, strict=True):
        p_values = [unpaired.estimate_unpaired_ratio(other[:, row], base[:, row]).p_value for row in range(rows)]
        wrong += min(stats.adjust_by_holm([1.0 if p is None else p for p in p_values])) <= 0.05
    assert wrong / runs <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("pilot", [6, 10, 20])
@pytest.mark.parametrize(("effect", "noise"), [(0.02, 0.012), (0.05, 0.02), (0.10, 0.03)])
def test_what_is_planned_from_a_pilot_is_found_9_times_in_10(pilot: int, effect: float, noise: float) -> None:
    """Every run plans from an A/A pilot of its own, so that the error of the pilot is in; three standard errors are let off."""
    rng = np.random.default_rng(round(1e4 * effect) + pilot)
    claimed, lengths, runs = 0, list[int](), 1000
    for _ in range(runs):
        once, again = measured(rng, 2, pilot, noise, 1)[:, 0]
        sd = stats.estimate_ratio(again, once).sd
        blocks = power.count_blocks_for_effect(sd or 0.0, pilot, effect)
        assert blocks is not None
        lengths.append(blocks)
        base, own = measured(rng, 2, blocks, noise, 1)[:, 0]
        claimed += (stats.estimate_ratio(own * (1 + effect), base).p_value or 0) <= ALPHA
    assert claimed / runs >= 0.9 - short(0.9, runs)
    known = next(n for n in range(6, 999) if (power.compute_mde(noise * 2**0.5, n) or 1) <= effect)
    assert known <= np.median(lengths) <= 2 * known, "the price of a pilot's error: less than twice the blocks"


@pytest.mark.parametrize("n", [6, 10])
@pytest.mark.parametrize("whose", ["block", "measurement"])
def test_a_noisy_neighbour_leads_to_at_most_two_claims_in_20_runs(n: int, whose: str) -> None:
    """The machine is 30 % slower in random halves: of the blocks, or of the measurements, whichever arm that hits.

    A/A runs with two points each, on the assumption that no check of a sample noticed anything.
    """
    rng, runs = np.random.default_rng(700 + n), 300
    values = measured(rng, 3, n, 0.02, 2 * runs)
    shape = (1, *values.shape[1:]) if whose == "block" else values.shape
    base, again, own = np.log(values * np.where(rng.random(shape) < 0.5, 1.3, 1.0))
    effects, guards = own - base, again - base
    words = [told([effects[at], effects[runs + at]], guards[at]) for at in range(runs)]
    assert 20 * np.mean([any(word.resolved for word in each) for each in words]) < 2
