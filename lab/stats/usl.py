"""Throughput at several sizes → the Universal Scalability Law, with intervals, its peak and its efficiency.

    X(N) = γN / (1 + σ(N−1) + κN(N−1))        Gunther 1993; Guerrilla Capacity Planning, 2007, ch. 4–6

γ is what one (CPU, worker, thread) serves, σ ≥ 0 what they wait for each other (contention), κ ≥ 0 what they pay to agree
(coherency). Refuses fewer than four distinct sizes, and to be read as a cause: a NIC that is full looks like contention.
Knows no tools and no variants. More than linear growth (caches, a generator that was the limit at first) has no σ or κ:
both end at 0, and the residuals show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
import numpy.typing as npt

NEVER = 1e6
"""A peak so far away is none: κ is 0 but for rounding."""
MIN_SIZES = 4
"""Three coefficients, and one size more for the residuals."""
STEPS, HALVINGS, CONVERGED = 30, 12, 1e-10
"""Of Gauss and Newton; five or six are enough for data that the law fits. Converged: no log X moves by more."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """`se` is the linearised standard error (as if no bound were near), `low` and `high` the 95 % interval of the draws."""

    value: float
    se: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scaling:
    """A fitted law. `residuals` are log-ratios measured/fitted in the order given; `r_squared` is of the logarithms.

    `draws`: shape (draws, 3), γ, σ and κ refitted to simulated data: what else the measurements would have allowed.
    """

    gamma: Coefficient
    sigma: Coefficient
    kappa: Coefficient
    sizes: tuple[float, ...]
    residuals: tuple[float, ...]
    r_squared: float
    draws: Floats
    confidence: float

    @property
    def peak(self) -> float | None:
        """N* = √((1−σ)/κ), beyond which more makes it slower; at least 1; None where there is none to be seen (κ is 0): it only levels off."""
        return _within_sight(float(_peaks(np.array([self.gamma.value, self.sigma.value, self.kappa.value]))))

    @property
    def peak_interval(self) -> tuple[float, float | None]:
        """Of the draws; None: no end to be seen."""
        low, high = _quantiles(_peaks(self.draws), self.confidence)
        return low, _within_sight(high)

    def throughput(self, size: float) -> float:
        """In the unit of what was fitted."""
        return self.gamma.value * size * self.efficiency(size)

    def efficiency(self, size: float) -> float:
        """X(N) / (N · X(1)): 1 is linear growth."""
        return 1 / (1 + (size - 1) * (self.sigma.value + self.kappa.value * size))

    def efficiency_draws(self, size: float) -> Floats:
        """Shape (draws,)."""
        return 1 / (1 + (size - 1) * (self.draws[:, 1] + self.draws[:, 2] * size))


def fit(
    sizes: npt.ArrayLike, throughputs: npt.ArrayLike, draws: int = 2000, seed: int = 1993, confidence: float = 0.95
) -> Scaling:
    """The law nearest to the measurements: least squares of log X, for noise that multiplies, with σ, κ ≥ 0.

    Both of shape (n,): sizes ≥ 1, of which four or more differ, throughputs > 0; else ValueError. A size may stand there
    several times (once for each block).

    Intervals: the quantiles of fits to simulated data, fitted + s*·z with s*² = SSE / χ²(n−3) (a parametric bootstrap,
    Davison & Hinkley 1997, §2.2, whose noise is itself drawn from its confidence distribution, so that for a linear model
    they are Student's: the plain bootstrap of seven residuals would be too narrow). Seeded: the same data, the same interval.
    """
    n_of, x = np.asarray(sizes, dtype=np.float64), np.asarray(throughputs, dtype=np.float64)
    _refuse(n_of, x, confidence)
    y = np.log(x)
    theta = _nearest(n_of, y[None])[0]
    fitted = _model(n_of, theta[None])[0]
    sse, freedom = float(((y - fitted) ** 2).sum()), n_of.size - 3
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((draws, n_of.size)) * np.sqrt(sse / rng.chisquare(freedom, (draws, 1)))
    drawn = _natural(_nearest(n_of, fitted + noise, np.tile(theta, (draws, 1))))
    slopes = _slopes(n_of, theta[None])[0]
    variances = np.diag(np.linalg.pinv(slopes.T @ slopes)) * sse / freedom
    spread = float(((y - y.mean()) ** 2).sum())
    errors = [exp(theta[0]) * sqrt(variances[0]), sqrt(variances[1]), sqrt(variances[2])]
    found = [
        Coefficient(float(value), error, *_quantiles(drawn[:, column], confidence))
        for column, (value, error) in enumerate(zip(_natural(theta[None])[0], errors, strict=True))
    ]
    return Scaling(
        *found,
        sizes=tuple(float(size) for size in n_of),
        residuals=tuple(float(residual) for residual in y - fitted),
        r_squared=1 - sse / spread if spread > 0 else 1.0,
        draws=drawn,
        confidence=confidence,
    )


def _refuse(sizes: Floats, throughputs: Floats, confidence: float) -> None:
    if sizes.ndim != 1 or sizes.shape != throughputs.shape:
        raise ValueError(f"fit: expected two arrays of equal length, got shapes {sizes.shape} and {throughputs.shape}")
    if not bool(np.all(np.isfinite(sizes) & (sizes >= 1) & np.isfinite(throughputs) & (throughputs > 0))):
        raise ValueError("fit: expected sizes >= 1 and throughputs > 0, all finite")
    if np.unique(sizes).size < MIN_SIZES:
        raise ValueError(
            f"fit: expected {MIN_SIZES} or more distinct sizes, got {np.unique(sizes).size}: "
            "three coefficients would pass through anything"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number between 0 and 1, got {confidence}")


def _nearest(sizes: Floats, y: Floats, start: Floats | None = None) -> Floats:
    """(log γ, σ, κ) for each row of y, shape (b, n) → (b, 3): the best of the four faces of σ, κ ≥ 0 (each free or 0).

    By Karush, Kuhn and Tucker the bounded minimum is the unbounded one of its own face: the inner one, where it is allowed,
    else the best of the others that are. `start`: (b, 3), where to look first.
    """
    best = _descend(sizes, y, [0, 1, 2], start)
    outside = np.flatnonzero(np.any(best[:, 1:] < 0, axis=1))
    rest, best_sse = y[outside], np.full(outside.size, np.inf)
    for free in ([0], [0, 1], [0, 2]):
        theta = _descend(sizes, rest, free)
        sse = _sse(sizes, rest, theta)
        better = np.all(theta[:, 1:] >= 0, axis=1) & (sse < best_sse)
        best[outside[better]], best_sse[better] = theta[better], sse[better]
    return best


def _descend(sizes: Floats, y: Floats, free: list[int], start: Floats | None = None) -> Floats:
    """Gauss–Newton in the free coefficients, from linear growth on if no start is given; a step that does not help is halved."""
    theta = np.zeros((len(y), 3)) if start is None else start.copy()
    if start is None:
        theta[:, 0] = (y - np.log(sizes)).mean(axis=1)
    going = np.arange(len(y))
    for _ in range(STEPS if len(free) > 1 else 0):
        at, wanted = theta[going], y[going]
        before = _sse(sizes, wanted, at)
        step = np.zeros_like(at)
        step[:, free] = _step(_slopes(sizes, at)[:, :, free], wanted - _model(sizes, at))
        for _ in range(HALVINGS):
            after = _sse(sizes, wanted, at + step)
            worse = ~(after <= before)
            if not worse.any():
                break
            step[worse] /= 2
        step[~(_sse(sizes, wanted, at + step) <= before)] = 0
        theta[going] = at + step
        going = going[np.abs(step) @ np.array([1, sizes.max(), sizes.max() ** 2]) > CONVERGED]
        if not going.size:
            break
    return theta


def _step(slopes: Floats, rest: Floats) -> Floats:
    """The least-squares solution of each row, (b, n, p) and (b, n) → (b, p), by the normal equations of scaled columns."""
    scale = np.abs(slopes).max(axis=1, keepdims=True)
    scaled = slopes / np.where(scale > 0, scale, 1)
    across = np.swapaxes(scaled, 1, 2)
    solved = np.linalg.solve(across @ scaled + 1e-13 * np.eye(slopes.shape[2]), across @ rest[:, :, None])[:, :, 0]
    return solved / np.where(scale > 0, scale, 1)[:, 0]


def _sse(sizes: Floats, y: Floats, theta: Floats) -> Floats:
    """σ and κ below 0 may leave no logarithm: not a number, and never the least."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((y - _model(sizes, theta)) ** 2).sum(axis=1)


def _model(sizes: Floats, theta: Floats) -> Floats:
    """log X: (b, 3) → (b, n)."""
    return theta[:, :1] + np.log(sizes) - np.log(_costs(sizes, theta))


def _slopes(sizes: Floats, theta: Floats) -> Floats:
    """d log X / d (log γ, σ, κ): (b, n, 3)."""
    costs = _costs(sizes, theta)
    return np.stack([np.ones_like(costs), -(sizes - 1) / costs, -sizes * (sizes - 1) / costs], axis=2)


def _costs(sizes: Floats, theta: Floats) -> Floats:
    return 1 + theta[:, 1:2] * (sizes - 1) + theta[:, 2:3] * sizes * (sizes - 1)


def _natural(theta: Floats) -> Floats:
    return np.column_stack([np.exp(theta[:, 0]), theta[:, 1], theta[:, 2]])


def _peaks(coefficients: Floats) -> Floats:
    """N* of (…, 3); ∞ where κ is 0 and σ below 1."""
    sigma, kappa = coefficients[..., 1], coefficients[..., 2]
    room = np.maximum(1 - sigma, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt(room / kappa)
    return np.maximum(np.where(room > 0, found, 1.0), 1.0)


def _quantiles(values: Floats, confidence: float) -> tuple[float, float]:
    """Without interpolation, which would make ∞ of a neighbour of ∞."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail], method="nearest")
    return float(low), float(high)


def _within_sight(peak: float) -> float | None:
    return peak if peak < NEVER else None
