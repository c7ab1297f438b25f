"""The noise of a variant that is compared with itself under several names (A/A): how much metrics vary, and false claims.

Every arm of `make_aa_arms` is the same variant: the A/A pair, and null arms that are judged against the baseline like any
variant. So each claim (significant effect) of a null arm is false. Any run with an A/A pair can be read. With fewer than six
blocks a metric is not judged. The module does not know how its results are printed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy import special

from lab.analysis.aggregate.absolute import compute_mean
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.summary import Summary, list_null_arms
from lab.base.grouping import group_values
from lab.model.pairs import Scheme
from lab.model.plan import AGAIN, Arm
from lab.stats import paired as stats
from lab.stats.units import format_blocks

NULL = "-null-"
"""The text before a null arm's number: `ingress-nginx-null-1`."""
BASELINE = "ingress-nginx"
"""The variant that `just aa` measures unless another is named."""
PRIMARY = "cpu_per_request"
"""The primary metric of a null arm whose variant has none of steady loads: it is judged at every point."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of one metric of one baseline at one load point: how much its values and comparisons vary.

    Attributes:
        variant: The baseline's variant.
        point: The load point's name.
        metric: The metric's name.
        scheme: The kind of pair (two arms measured at once) in which the arms were compared; None if each had the
            machine to itself (solo).
        level: The mean of the baseline over the blocks (repetitions), in the metric's own unit; None without a value.
        cv: The standard deviation of the baseline's blocks divided by their mean; None for fewer than two blocks.
        sd: The standard deviation of one block's log-ratio of two arms; None if unknown. For pairs it is pooled over
            all pairs with this baseline.
        pilot_blocks: The degrees of freedom of `sd`, plus 1.
        aa: The effect of the baseline against itself (A/A); None if only variants were measured.
        outliers: True if a comparison that was used has outliers among its blocks.
        compared: The number of effects with a decision that compare the baseline's variant with itself under another
            name (null arms).
        claimed: The number of those effects that were significant, which is an error each time.
        why: The reason why the metric is not judged here; empty if it is judged.
        few: The smallest and the largest value of the baseline if it has fewer than six blocks; otherwise None.

    """

    variant: str
    point: str
    metric: str
    scheme: Scheme | None
    level: float | None
    cv: float | None
    sd: float | None
    pilot_blocks: int
    aa: stats.Estimate | None
    outliers: bool
    compared: int
    claimed: int
    why: str = ""
    few: tuple[float, float] | None = None


def make_aa_arms(variant: str, nulls: int, reference: str | None) -> tuple[Arm, ...]:
    """Make the arms of an A/A run, in which one variant is compared with itself under several names.

    Args:
        variant: The variant of every arm except the direct reference.
        nulls: The number of null arms, ≥ 0. These are further names of the variant, in addition to the baseline and its
            repetition.
        reference: The direct reference (the backend without a proxy), which is added if it is not the variant itself;
            None for no reference.

    """
    names = (f"{variant}{NULL}{number + 1}" for number in range(nulls))
    arms = [Arm(variant, variant, "baseline", None), Arm(variant + AGAIN, variant, "again", variant)]
    arms += [Arm(name, variant, "variant", variant) for name in names]
    return (*arms, *([Arm(reference, reference, "reference", None)] if reference not in (None, variant) else []))


def list_aa_variants(arms: Sequence[Arm]) -> list[str]:
    """Return the variants that a run measures a second time as another arm, to compare them with themselves (A/A)."""
    return [arm.variant for arm in arms if arm.role == "again"]


def measure_noise(summary: Summary) -> tuple[Noise, ...]:
    """Measure the noise of each metric of each baseline at each steady load of a run: how much comparisons vary.

    The noise comes from comparisons of a baseline with arms that have the same settings. These are its second
    measurement (A/A), and null arms, which run the same variant under another name.

    Comparisons with other variants show noise, too: whatever the size of an effect, it varies from block (repetition)
    to block. Those made in pairs (two arms measured at once) are used if the metric also has an A/A pair. Those made by
    solo samples (one arm measured alone) are used only if the metric has no A/A comparison by solo samples.
    """
    names = {arm.name for arm in list_null_arms([row.arm for row in summary.rows])}
    rows = {(row.point.name, row.arm.name): row for row in summary.rows}
    groups = group_values(
        ((row.point.name, row.arm.baseline, effect.metric, effect.scheme), (row, effect))
        for row in sorted(summary.rows, key=lambda row: (row.arm.role != "again", row.arm.name not in names))
        if row.arm.baseline
        for effect in row.effects
    )
    return tuple(
        _measure_noise(rows[point, base], comparisons, names)
        for (point, base, _, scheme), comparisons in groups.items()
        if comparisons[0][0].arm.role == "again" or (comparisons[0][1].estimate and scheme is None)
    )


def _measure_noise(base: SummaryRow, comparisons: Sequence[tuple[SummaryRow, Effect]], names: Collection[str]) -> Noise:
    """Measure the noise of one metric of one baseline at one load point.

    Args:
        base: The baseline's row of the summary.
        comparisons: The rows that are compared with the baseline, each with its effect in the metric. The baseline's
            own repetition (A/A) comes first, if there is one.
        names: The names of the null arms, which are the baseline's variant under other names.

    """
    first, effect = comparisons[0]
    metric, is_aa = effect.metric, first.arm.role == "again"
    values = list(base.cell.known(metric).values())
    nulls = [null_effect for row, null_effect in comparisons if row.arm.name in names]
    only_nulls = is_aa and effect.scheme is None  # a pair's variation is the machine's, whatever its two sides are
    # leave out an A/A pair on one generation (`lab.model.design`), where a value of the other pairs is the mean of several
    not_aa = [comparison for comparison in comparisons if comparison[0].arm.role != "again"]
    several = not_aa and first.point.generations > 1 and not first.point.singly
    used = [effect, *nulls] if only_nulls else [used_effect for _, used_effect in (not_aa if several else comparisons)]
    sd, degrees = pool_deviations(
        [(used_effect.estimate.sd, used_effect.estimate.n - 1) for used_effect in used if used_effect.estimate]
    )
    judged = [
        (null_effect.estimate.p_value or 0.0) <= ALPHA
        for null_effect in nulls
        if null_effect.estimate and null_effect.decision.judged
    ]
    return Noise(
        variant=base.arm.variant,
        point=base.point.name,
        metric=metric,
        scheme=effect.scheme,
        level=compute_mean(values),
        cv=stdev(values) / fmean(values) if len(values) > 1 else None,
        sd=sd,
        pilot_blocks=degrees + 1,
        aa=effect.estimate if is_aa else None,
        outliers=any(
            used_effect.estimate is not None and stats.OUTLIERS in used_effect.estimate.notes for used_effect in used
        ),
        compared=len(judged),
        claimed=sum(judged),
        why=_explain_unjudged(effect),
        few=(min(values), max(values)) if 0 < len(values) < stats.MIN_BLOCKS else None,
    )


def _explain_unjudged(effect: Effect) -> str:
    """Return why an effect gets no decision, such as too few blocks (repetitions); empty if it gets one."""
    if effect.estimate is None or effect.decision is Decision.NOT_JUDGED:
        return effect.note or "no valid block of both arms"
    few = f"{format_blocks(effect.estimate.n)} of both arms valid, {stats.MIN_BLOCKS} are needed"
    return "" if effect.estimate.has_interval else few


def has_too_many_claims(claimed: int, compared: int) -> bool:
    """Return whether more comparisons of a variant with itself were significant (claimed) than chance explains.

    Each such comparison is significant by chance with a probability of 5 %. A number is too large if chance gives as
    many or more with a probability below 2.5 %. Of 40 comparisons, six or more are too many.

    Args:
        claimed: The number of comparisons that were claimed.
        compared: The number of comparisons.

    """
    return float(special.bdtrc(claimed - 1, compared, 0.05)) < 0.025


def pool_deviations(estimates: Iterable[tuple[float | None, int]]) -> tuple[float | None, int]:
    """Pool standard deviations, each with f degrees of freedom: √(Σ f·s² / Σ f).

    (Box, Hunter & Hunter, Statistics for Experimenters, §3.2.)

    Args:
        estimates: Pairs of (standard deviation, its degrees of freedom). An unknown standard deviation is None, and is
            left out.

    Returns:
        (the pooled standard deviation, its degrees of freedom); (None, 0) if no standard deviation is known.

    """
    usable = [(sd, degrees) for sd, degrees in estimates if sd is not None and degrees > 0]
    total = sum(degrees for _, degrees in usable)
    return (sqrt(sum(degrees * sd**2 for sd, degrees in usable) / total), total) if total else (None, 0)


def describe_null_claims(noise: Sequence[Noise]) -> str:
    """Describe how many comparisons of a variant with itself were claimed (significant), and whether that is too many."""
    compared, claimed = count_claims(noise)
    text = f"claimed {claimed} of {compared} null comparisons (a true effect there is none: at most 5 % may be)"
    hint = (
        "; that is more: claim nothing here before the machine is quieter"
        if has_too_many_claims(claimed, compared)
        else ""
    )
    return text + hint if compared else "no null comparison was judged"


def count_claims(noise: Sequence[Noise]) -> tuple[int, int]:
    """Count the comparisons of a variant with itself under another name (null arms).

    Returns:
        (number of comparisons that have a decision, number of these that were claimed, which means significant).

    """
    return sum(item.compared for item in noise), sum(item.claimed for item in noise)
