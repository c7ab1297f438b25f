"""A check of the lab: how often ten blocks (repetitions) of a run detect the effect of a variant that does known extra work.

A long run is divided into groups of ten consecutive blocks ("tens"). Each ten is judged alone, as if it were a separate
run, with the noise of its own A/A pairs. The observed frequency is compared with the promised one: the statistical power
of ten blocks, computed from the effect and the noise of the whole run. `lab.analysis.known_costs` judges whether this
effect is true. An incomplete ten at the end of the run is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy import special

from lab.analysis.aggregate.cells import HistogramOf
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.known_costs import KnownCosts, compare_known_costs
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import refuse_if
from lab.model.metrics import find_metric
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.records.store import RunStore
from lab.stats.paired import Estimate
from lab.stats.power import compute_mde
from lab.stats.units import format_interval, format_percent

TEN = 10
SWEEP = "known-costs"
MAX_EXPECTED = 20.0
"""The largest effect, in standard errors, for which the power is computed; larger effects get the same power.

Such an effect is missed less than once in 1e12 times. For far larger values, scipy's distribution returns NaN.
"""


@dataclass(frozen=True, slots=True)
class Injected:
    """The measured effect of a variant that does a known extra work, in its primary metric.

    The effect is estimated over the whole run, and also in groups of ten blocks (repetitions), as if each group were a run.

    Attributes:
        variant: The name of the arm (variant of the run).
        point: The name of the load point.
        metric: The metric's name.
        estimate: The effect over the whole run.
        sd: The standard deviation of the A/A pair (the baseline against itself), as a log-ratio; None where it has no interval.
        claimed: The number of groups in which the effect was significant after adjustment for all comparisons.
        tens: The number of groups in which the effect was judged at all.

    """

    variant: str
    point: str
    metric: str
    estimate: Estimate
    sd: float | None
    claimed: int
    tens: int

    @property
    def promised(self) -> float | None:
        """The probability that ten blocks (repetitions) detect an effect as large as the measured one; None if not known."""
        return None if self.sd is None else power(self.estimate.effect, self.sd, TEN)


def power(effect: float, sd: float, blocks: int) -> float:
    """Return the statistical power: the probability that a run detects an effect, if it is the only effect that the run tests.

    It follows from the noncentral t distribution, as in `power.compute_mde`.

    Args:
        effect: The effect, as a log-ratio.
        sd: The standard deviation of one block, as a log-ratio.
        blocks: The number of blocks (repetitions), six or more.

    """
    if not sd:
        return float(effect != 0)
    critical_t, expected = special.stdtrit(blocks - 1, 0.975), abs(effect) / sd * sqrt(blocks)
    return float(1 - special.nctdtr(blocks - 1, min(expected, MAX_EXPECTED), critical_t))


def read_effects(run: RunStore) -> tuple[KnownCosts | None, list[Injected]]:
    """Return the known costs in a run (costs of variants that do known extra work), and the effects of all its variants.

    Each effect also has the number of groups of ten blocks (repetitions) that detect it.

    Returns:
        (known costs, effects). The known costs are compared between pairs (two variants measured at once) and solo samples (one
        variant has the machine alone); None if no variant with a known cost was measured in both ways. The effects are those of
        the variants in their primary metrics, as far as the run has judged them.

    Raises:
        UsageError: The run has fewer than ten blocks.

    """
    record, samples = run.record, run.samples()
    refuse_if(record.blocks < TEN, record.id, f"has {record.blocks} blocks, ten are needed", "name a longer run")
    histograms = {
        sample.id: run.histogram(sample) for sample in samples
    }  # each is read twice: for the run, for its ten
    summary = summarise_run(record, samples, lambda sample: histograms[sample.id])
    firsts = range(1, record.blocks - TEN + 2, TEN)
    tens = [
        _list_effects(summarise_ten(record, samples, lambda sample: histograms[sample.id], first), "variant")
        for first in firsts
    ]
    noise = {key[1:]: effect.estimate for key, effect in _list_effects(summary, "again").items()}
    injected: list[Injected] = []
    for key, effect in _list_effects(summary, "variant").items():
        is_judged = effect.decision not in (Decision.NOT_JUDGED, Decision.NOT_AVAILABLE)
        if effect.primary and effect.estimate is not None and is_judged:
            again = noise.get(key[1:])
            judged = [ten[key] for ten in tens if key in ten and ten[key].decision.judged]
            sd = again.sd if again is not None and again.has_interval else None
            claimed = sum(ten_effect.claimed for ten_effect in judged)
            injected.append(Injected(key[0], key[1], effect.metric, effect.estimate, sd, claimed, len(judged)))
    return compare_known_costs(record, summary), injected


def _list_effects(summary: Summary, role: str) -> dict[tuple[str, str, str, str], Effect]:
    """Return the effects of all arms (variants of a run) that have one role in the run.

    Args:
        summary: The summary of the run.
        role: `variant`, or `again` for a baseline that is measured a second time.

    Returns:
        (arm, load point, metric, arm that it is compared with) → effect.

    """
    return {
        (row.arm.name, row.point.name, effect.metric, effect.against): effect
        for row in summary.rows
        for effect in row.effects
        if row.arm.role == role
    }


def summarise_ten(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf, first: int) -> Summary:
    """Summarise ten blocks (repetitions) of a run as if they were an entire run.

    Block 0 is added to every ten, since old runs have the direct reference (the backend without a proxy) there.

    Args:
        record: The run's record.
        samples: The run's samples.
        histogram_of: Returns the latency histogram of a sample.
        first: The number of the first of the ten blocks.

    """
    blocks = range(first, first + TEN)
    orders = [order for order, slot in enumerate(record.slots, start=1) if slot[0] in blocks or slot[0] == 0]
    slots = tuple(record.slots[order - 1] for order in orders)
    new_orders = {order: number for number, order in enumerate(orders, start=1)}
    pairs = tuple(
        pair.model_copy(update={"order": new_orders[pair.order]}) for pair in record.pairs if pair.order in new_orders
    )
    part_record = record.model_copy(update={"blocks": TEN, "slots": slots, "pairs": pairs})
    return summarise_run(
        part_record, [sample for sample in samples if sample.block in blocks or sample.block == 0], histogram_of
    )


def find_faults(costs: KnownCosts | None) -> str:
    """Return a warning for people that names the known costs for which pairs give a wrong result; empty if there are none.

    A known cost is that of a variant with known extra work. It should be as large in pairs (two variants measured at once)
    as in solo samples (one variant has the machine alone).

    Args:
        costs: The known costs, measured in both ways; None: there are none.

    """
    if costs is None:
        return ""
    faults = [f"other as a pair than alone: {cost.variant}" for cost in costs.costs if not cost.agrees]
    faults += [] if costs.whole else ["what pairs show of a line's cost is not all of it"]
    return f"{'; '.join(faults)}: do not trust such effects, and report this" if faults else ""


def format_injected(injected: Injected) -> str:
    """Return a line for people about an effect: its size, and how often groups of ten blocks (repetitions) detected it.

    The line also has the expected share of groups that detect it.
    """
    interval = format_interval(*(injected.estimate.interval or (None, None)))
    resolution = None if injected.sd is None else compute_mde(injected.sd, TEN)
    promised = "no A/A interval, so nothing was promised"
    if injected.promised is not None and resolution is not None:
        promised = f"promised {injected.promised:.0%} of tens (ten blocks resolve {resolution:.1%} with 90 %)"
    name = f"{injected.variant} {find_metric(injected.metric).title} at {injected.point}"
    blocks = f"over {injected.estimate.n} blocks; claimed in {injected.claimed} of {injected.tens} tens"
    return f"{name}: {format_percent(injected.estimate.effect)} %{interval} {blocks}, {promised}"
