"""Effects of known work: do pairs show all of them, and as often as promised? A long run of the extra-work variants, read in tens.

Disjoint tens of blocks of one run are as many runs of ten: each is summarised by itself, with an A/A noise floor of its own. What was
promised is the power that `power.resolvable` gives for ten blocks at the effect and the noise of the whole run; whether that effect is
true, `lab.analysis.known_costs` says. Refuses tens that are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy import special

from lab.analysis.aggregate.cells import HistogramOf
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.known_costs import KnownCosts, known_costs
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import UsageError
from lab.model.metrics import about
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.records.store import RunStore
from lab.stats.paired import Estimate
from lab.stats.power import resolvable
from lab.stats.units import format_interval, format_percent

TEN = 10
SWEEP = "known-costs"
SURELY = 20.0
"""Standard errors from which on an effect is missed less than once in 1e12 times; of far more scipy's distribution is no number."""


@dataclass(frozen=True, slots=True)
class Injected:
    """One variant's primary metric over the whole run and in its tens; `sd` of the A/A pair, None where that has no interval.

    `tens`: those in which it was judged, in `claimed` of which it was claimed.
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
        """The chance that ten blocks claim such an effect; None without noise to tell it by."""
        return None if self.sd is None else power(self.estimate.effect, self.sd, TEN)


def power(effect: float, sd: float, blocks: int) -> float:
    """Return the chance that `blocks` (>= 6) claim the sign of an effect (log-ratio) at this noise, alone in its family.

    It is that of the noncentral t distribution, as in `power.resolvable`.
    """
    if not sd:
        return float(effect != 0)
    least, expected = special.stdtrit(blocks - 1, 0.975), abs(effect) / sd * sqrt(blocks)
    return float(1 - special.nctdtr(blocks - 1, min(expected, SURELY), least))


def read(run: RunStore) -> tuple[KnownCosts | None, list[Injected]]:
    """Return what pairs show of known costs in a run, and every variant's judged primary metric in its tens.

    UsageError for fewer than ten blocks.
    """
    record, samples = run.record, run.samples()
    if record.blocks < TEN:
        raise UsageError(record.id, f"has {record.blocks} blocks, ten are needed", "name a longer run")
    histograms = {one.id: run.histogram(one) for one in samples}  # each is read by the whole and by its ten
    whole = summarise_run(record, samples, lambda one: histograms[one.id])
    firsts = range(1, record.blocks - TEN + 2, TEN)
    tens = [_effects(part(record, samples, lambda one: histograms[one.id], first), "variant") for first in firsts]
    noise = {key[1:]: one.estimate for key, one in _effects(whole, "again").items()}
    found: list[Injected] = []
    for key, effect in _effects(whole, "variant").items():
        known = effect.decision not in (Decision.NOT_JUDGED, Decision.NOT_AVAILABLE)
        if effect.primary and effect.estimate is not None and known:
            again = noise.get(key[1:])
            judged = [each[key] for each in tens if key in each and each[key].decision.judged]
            sd = again.sd if again is not None and again.has_interval else None
            claimed = sum(one.claimed for one in judged)
            found.append(Injected(key[0], key[1], effect.metric, effect.estimate, sd, claimed, len(judged)))
    return known_costs(record, whole), found


def _effects(summary: Summary, role: str) -> dict[tuple[str, str, str, str], Effect]:
    """Return the effects of arms of that role by arm, point, metric, and what the arm is compared with."""
    return {
        (row.arm.name, row.point.name, effect.metric, effect.against): effect
        for row in summary.rows
        for effect in row.effects
        if row.arm.role == role
    }


def part(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf, first: int) -> Summary:
    """Summarise ten blocks from `first` on as a run of their own."""
    mine = range(first, first + TEN)
    orders = [order for order, slot in enumerate(record.slots, start=1) if slot[0] in mine or slot[0] == 0]
    slots = tuple(record.slots[order - 1] for order in orders)
    moved = {order: number for number, order in enumerate(orders, start=1)}
    pairs = tuple(pair.model_copy(update={"order": moved[pair.order]}) for pair in record.pairs if pair.order in moved)
    alone = record.model_copy(update={"blocks": TEN, "slots": slots, "pairs": pairs})
    return summarise_run(alone, [one for one in samples if one.block in mine or one.block == 0], histogram_of)


def verdict(known: KnownCosts | None) -> str:
    """Return what is wrong with what pairs show of known costs, and what to do; empty where nothing is."""
    if known is None:
        return ""
    wrong = [f"other as a pair than alone: {one.variant}" for one in known.costs if not one.agrees]
    wrong += [] if known.whole else ["what pairs show of a line's cost is not all of it"]
    return f"{'; '.join(wrong)}: do not trust such effects, and report this" if wrong else ""


def line(one: Injected) -> str:
    """Return a variant in words: what it does, how often ten blocks claimed it, how often they should."""
    interval = format_interval(*(one.estimate.interval or (None, None)))
    least = None if one.sd is None else resolvable(one.sd, TEN)
    promised = "no A/A interval, so nothing was promised"
    if one.promised is not None and least is not None:
        promised = f"promised {one.promised:.0%} of tens (ten blocks resolve {least:.1%} with 90 %)"
    name = f"{one.variant} {about(one.metric).title} at {one.point}"
    blocks = f"over {one.estimate.n} blocks; claimed in {one.claimed} of {one.tens} tens"
    return f"{name}: {format_percent(one.estimate.effect)} %{interval} {blocks}, {promised}"
