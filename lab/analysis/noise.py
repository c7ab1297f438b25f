"""One variant under several names (A/A) → how much each metric varies here, and what was claimed of differences that are none.

Every arm of `aa_arms` is the same variant: the pair that guards, and null arms that are judged against the baseline like any variant,
so that each of their claims is a false one. Any run with an A/A pair can be read. Refuses to know how it is printed, and to give a
spread from fewer than six blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from scipy import special

from lab.analysis.aggregate.absolute import mean_of
from lab.analysis.judge.decision import SURE_P, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Row
from lab.analysis.summary import Summary, null_arms
from lab.model.pairs import Scheme
from lab.model.plan import AGAIN, Arm
from lab.stats import paired as stats
from lab.stats.units import format_blocks

NULL = "-null-"
"""Before a null arm's number: `ingress-nginx-null-1`."""
BASELINE = "ingress-nginx"
"""What `just aa` measures unless told otherwise."""
PRIMARY = "cpu_per_request"
"""The primary metric of a null arm whose variant has none that steady loads have: it is judged at every point."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How much a metric of one variant varies at one point. Seconds and requests per second; `why` empty = it is judged here.

    `level` is the mean over the blocks of the pair's first arm, `few` the smallest and the largest of them where they are fewer than six, `cv` its standard deviation over its mean. `sd` is that of one block's
    log-ratio of two arms (of pairs: over all of this variant's), from `pilot_blocks` - 1 degrees of freedom; `aa` the baseline against itself, None where only variants tell. `scheme`: how the two were a pair, None: each alone. `outliers`: among the pair's blocks. Of the null arms' effects `compared` were judged and `claimed` claimed.
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


def aa_arms(variant: str, nulls: int, reference: str | None) -> tuple[Arm, ...]:
    """`variant`, its second name, and `nulls` ≥ 0 more, which are compared with it; the direct reference unless it is that itself."""
    names = (f"{variant}{NULL}{number + 1}" for number in range(nulls))
    arms = [Arm(variant, variant, "baseline", None), Arm(variant + AGAIN, variant, "again", variant)]
    arms += [Arm(name, variant, "variant", variant) for name in names]
    return (*arms, *([Arm(reference, reference, "reference", None)] if reference not in (None, variant) else []))


def pairs(arms: Sequence[Arm]) -> list[str]:
    """The variants that were measured twice."""
    return [arm.variant for arm in arms if arm.role == "again"]


def noises(summary: Summary) -> tuple[Noise, ...]:
    """Every metric of what something is compared with, at every steady point, in the table's order and as it was judged there.

    Of the A/A pair and null arms, of pairs those of the variants, too; where a metric was judged as none of them was, of the variants that
    were.
    """
    names = {arm.name for arm in null_arms([row.arm for row in summary.rows])}
    rows = {(row.point.name, row.arm.name): row for row in summary.rows}
    found: dict[tuple[str, str, str, Scheme | None], list[tuple[Row, Effect]]] = {}
    for row in sorted(summary.rows, key=lambda row: (row.arm.role != "again", row.arm.name not in names)):
        for effect in row.effects if row.arm.baseline else ():
            found.setdefault((row.point.name, row.arm.baseline or "", effect.metric, effect.scheme), []).append(
                (row, effect)
            )
    return tuple(
        _noise(rows[point, base], known, names)
        for (point, base, _, scheme), known in found.items()
        if known[0][0].arm.role == "again" or (known[0][1].estimate and scheme is None)
    )


def _noise(base: Row, known: Sequence[tuple[Row, Effect]], names: Collection[str]) -> Noise:
    first, effect = known[0]
    metric, itself = effect.metric, first.arm.role == "again"
    values = list(base.cell.known(metric).values())
    nulls = [one for row, one in known if row.arm.name in names]
    alike = itself and effect.scheme is None  # a pair's scatter is the machine's, whatever its two sides are
    # without a pair that guards on one generation (`lab.model.design`), where a value of the others is the mean of several
    others = [each for each in known if each[0].arm.role != "again"]
    several = others and first.point.generations > 1 and not first.point.singly
    told = [effect, *nulls] if alike else [one for _, one in (others if several else known)]
    sd, degrees = pooled([(one.estimate.sd, one.estimate.n - 1) for one in told if one.estimate])
    judged = [(one.estimate.p_value or 0.0) <= SURE_P for one in nulls if one.estimate and one.decision.judged]
    return Noise(
        variant=base.arm.variant,
        point=base.point.name,
        metric=metric,
        scheme=effect.scheme,
        level=mean_of(values),
        cv=stdev(values) / fmean(values) if len(values) > 1 else None,
        sd=sd,
        pilot_blocks=degrees + 1,
        aa=effect.estimate if itself else None,
        outliers=any(one.estimate is not None and stats.OUTLIERS in one.estimate.notes for one in told),
        compared=len(judged),
        claimed=sum(judged),
        why=_why(effect),
        few=(min(values), max(values)) if 0 < len(values) < stats.MIN_BLOCKS else None,
    )


def _why(effect: Effect) -> str:
    """Why nothing is said of a metric; empty if something is."""
    if effect.estimate is None or effect.decision is Decision.NOT_JUDGED:
        return effect.note or "no valid block of both arms"
    few = f"{format_blocks(effect.estimate.n)} of both arms valid, {stats.MIN_BLOCKS} are needed"
    return "" if effect.estimate.has_interval else few


def suspicious(claimed: int, compared: int) -> bool:
    """Whether so many claims of null arms, or more, have a chance below 2.5 % where each may be false in 5 %: of 40, six."""
    return float(special.bdtrc(claimed - 1, compared, 0.05)) < 0.025


def pooled(found: Iterable[tuple[float | None, int]]) -> tuple[float | None, int]:
    """(standard deviation of one block's log-ratio, its degrees of freedom) of several estimates' own: √(Σ f·s² / Σ f).

    (None, 0) where none has one (Box, Hunter & Hunter, Statistics for Experimenters, §3.2).
    """
    known = [(sd, degrees) for sd, degrees in found if sd is not None and degrees > 0]
    total = sum(degrees for _, degrees in known)
    return (sqrt(sum(degrees * sd**2 for sd, degrees in known) / total), total) if total else (None, 0)


def nulls_text(found: Sequence[Noise]) -> str:
    """The same of any noise from null arms."""
    compared, claimed = counted(found)
    text = f"claimed {claimed} of {compared} null comparisons (a true effect there is none: at most 5 % may be)"
    more = "; that is more: claim nothing here before the machine is quieter" if suspicious(claimed, compared) else ""
    return text + more if compared else "no null comparison was judged"


def counted(found: Sequence[Noise]) -> tuple[int, int]:
    """(null comparisons that were judged, those that were claimed)."""
    return sum(noise.compared for noise in found), sum(noise.claimed for noise in found)
