"""Effects of known work: do pairs show all of them, and as often as promised? One long run of the extra-work variants, read in tens.

Disjoint tens of blocks of one run are as many runs of ten: each is summarised by itself, with a guard of its own. What was promised
is the power that `power.resolvable` gives for ten blocks at the effect and the noise of the whole run; whether that effect is true,
`lab.analysis.known_costs` says. Refuses tens that are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, log1p
from pathlib import Path

from pydantic import Field

from lab.analysis.cells import HistogramOf
from lab.analysis.decision import Decision
from lab.analysis.effects import Effect
from lab.analysis.known_costs import PREFIX, KnownCosts, known_costs
from lab.analysis.rows import Row
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import MeasuringError, UsageError
from lab.base.validation import Record
from lab.experiments.selfbench.process import measured_run
from lab.experiments.selfbench.promise import kept, power
from lab.model.metrics import about
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.variants.naming import split_name
from lab.model.variants.variants import variant_names
from lab.records.store import RunStore, run_names
from lab.stats import paired as stats
from lab.stats.power import resolvable
from lab.stats.units import format_interval, format_percent

TEN = 10
SWEEP = "known-costs"
ALONE_S, PAIR_S = 5.0, 8.0
"""One measurement in it, with its warm-up and a bring-up, about."""
UNLIKELY = 0.05
"""That all is well and yet the promise is said not to hold: half of it for all claims together, the other shared by the variants."""


class Injected(Record):
    """One variant's primary metric over the tens. Effects are fractions (0.05 = 5 %), of `blocks`; `resolvable` of ten blocks."""

    variant: str
    point: str
    metric: str
    effect: float
    low: float | None
    high: float | None
    blocks: int
    resolvable: float | None = Field(description="what ten blocks promise to claim with 90 %; null = no A/A interval")
    promised: float | None = Field(
        description="the chance that ten blocks claim such an effect; null = no A/A interval"
    )
    claimed: int
    tens: int = Field(description="those in which it was judged")

    @property
    def chances(self) -> list[float]:
        """That each of its tens claims it; empty where nothing was promised."""
        return [] if self.promised is None else [self.promised] * self.tens


class Ends(Record):
    """A share (0.05 = 5 %) and the ends of its interval."""

    value: float
    low: float | None
    high: float | None


class Recovered(Record):
    """A known cost as pairs show it beside the arms alone (`lab.analysis.known_costs.KnownCost`), over so many blocks."""

    variant: str
    lines: int
    alone: Ends
    pair: Ends
    apart: Ends = Field(
        description="the pair's ratio over the arms' alone, less 1; its interval is wider (`KnownCost.apart`)"
    )
    blocks: int


class InjectedReport(Record):
    """What `selfbench --effects --json` prints."""

    run: str
    recovered: tuple[Recovered, ...]
    slope: Ends | None = Field(
        description="what pairs show of a line, over what the arms alone show of it, less 1; null = not known"
    )
    effects: tuple[Injected, ...]
    kept: bool = Field(
        description="whether so few claims, in all or of one variant, have a chance of 5 % or more if the promise holds; false also"
        " where nothing is known of it"
    )
    verdict: str


def variants() -> list[str]:
    """The variants of known work. UsageError where there are none."""
    found = [name for name in variant_names() if any(own.startswith(PREFIX) for own in split_name(name)[1])]
    if not found:
        raise UsageError(
            "selfbench --effects", f"no component begins with {PREFIX}", "they are in manifests/components"
        )
    return found


def plan_text(names: Sequence[str], blocks: int, folder: Path) -> str:
    """What is going to happen, before it does; what that folder holds of it is gone on with."""
    begun = run_names(folder / "runs")
    on = f"; goes on with {begun[-1]}" if begun else ""
    hours = _takes_s(names, blocks) / 3600
    return f"{', '.join(names)} against their baselines, alone and as pairs, {blocks} blocks read in tens: {hours:.1f} h at least{on}"


def _takes_s(names: Sequence[str], blocks: int) -> float:
    return blocks * ((len(names) + 2) * ALONE_S + len(names) * PAIR_S)


def verdict(known: KnownCosts | None, found: Sequence[Injected]) -> tuple[bool, str]:
    """(whether the promise holds, in words with what to do). What was not promised or not judged shows neither."""
    promised = [one for one in found if one.chances]
    if not promised:
        return False, (
            "nothing is known of what `--resolve` promises: no effect was both promised and judged in a ten; the run's table says why:"
            " measure again when nothing else runs here, into another folder (--into)"
        )
    claimed, chances = sum(one.claimed for one in promised), [chance for one in promised for chance in one.chances]
    said = f"{claimed} of {len(chances)} tens claimed their effect, {sum(chances):.1f} were promised"
    if silent := [place(one) for one in found if one not in promised]:
        said += f"; nothing is known of {', '.join(silent)}"
    costs = known.costs if known is not None else ()
    wrong = [f"other as a pair than alone: {one.variant}" for one in costs if not one.agrees]
    wrong += ["what pairs show of a line's cost is not all of it"] if known is not None and not known.whole else []
    if wrong:
        return False, f"{said}; {'; '.join(wrong)}: do not trust such effects, and report this"
    few = [place(one) for one in promised if not kept(one.claimed, one.chances, UNLIKELY / 2 / len(promised))]
    if few or not kept(claimed, chances, UNLIKELY / 2):
        return (
            False,
            f"{said}; fewer than promised: {', '.join(few) or 'in all'}: plan with more blocks than `--resolve` says, and report this",
        )
    return True, f"{said}: what `--resolve` promises on this machine holds"


def place(one: Injected) -> str:
    return f"{one.variant} at {one.point}"


def report(run: str, known: KnownCosts | None, found: Sequence[Injected]) -> InjectedReport:
    kept_, text = verdict(known, found)
    recovered = [
        Recovered(
            variant=one.variant,
            lines=one.lines,
            alone=_ends(one.alone),
            pair=_ends(one.pair),
            apart=_ends(one.apart),
            blocks=one.apart.n,
        )
        for one in (known.costs if known else ())
    ]
    slope = _ends(known.slope) if known and known.slope else None
    return InjectedReport(
        run=run, recovered=tuple(recovered), slope=slope, effects=tuple(found), kept=kept_, verdict=text
    )


def _ends(estimate: stats.Estimate) -> Ends:
    low, high = estimate.ratio_interval or (None, None)
    return Ends(value=estimate.ratio - 1, low=None if low is None else low - 1, high=None if high is None else high - 1)


def measure(folder: Path, names: Sequence[str], blocks: int, seed: int) -> RunStore:
    """The run in that folder, begun or gone on with. MeasuringError when it was not finished: then it is resumed next time."""
    runs = folder / "runs"
    begun = run_names(runs)
    if begun and RunStore.open(str(runs / begun[-1])).record.blocks != blocks:
        raise UsageError(str(folder), "holds a run of another number of blocks", "name another folder by --into")
    new = [f"--sweep={SWEEP}", f"--blocks={blocks}", f"--seed={seed}", *names]
    words = ["bench", "--json", *([f"--resume={begun[-1]}"] if begun else new)]
    run, _ = measured_run("selfbench: lab bench", runs, words, _takes_s(names, blocks))
    return run


def read(run: RunStore) -> tuple[KnownCosts | None, list[Injected]]:
    """Of a stored run: what pairs show of known costs, and every variant's primary metric in its tens. MeasuringError for fewer blocks."""
    if run.record.blocks < TEN:
        raise MeasuringError(run.record.id, f"has {run.record.blocks} blocks, ten are needed", "name a longer run")
    samples = run.samples()
    histograms = {one.id: run.histogram(one) for one in samples}  # each is read by the whole and by its ten
    return in_tens(run.record, samples, lambda one: histograms[one.id])


def in_tens(
    record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf
) -> tuple[KnownCosts | None, list[Injected]]:
    """The whole run's effects, and in how many of its tens they are claimed; what the whole run does not judge is left out."""
    whole = summarise_run(record, samples, histogram_of)
    parts = [part(record, samples, histogram_of, first) for first in range(1, record.blocks - TEN + 2, TEN)]
    noise = {
        (row.arm.baseline, row.point.name, effect.metric): effect.estimate
        for row in whole.rows
        if row.arm.role == "again"
        for effect in row.effects
    }
    found: list[Injected] = []
    for row in whole.rows:
        for effect in row.effects if row.arm.role == "variant" else ():
            if (
                effect.primary
                and effect.estimate is not None
                and effect.decision not in (Decision.NOT_JUDGED, Decision.NOT_AVAILABLE)
            ):
                again = noise.get((effect.against, row.point.name, effect.metric))
                tens = [_same(one, row, effect) for one in parts]
                found.append(_injected(row, effect, again, tens))
    return known_costs(record, whole), found


def part(record: RunRecord, samples: Sequence[Sample], histogram_of: HistogramOf, first: int) -> Summary:
    """Ten blocks from `first` on, as a run of their own."""
    mine = range(first, first + TEN)
    kept = [order for order, slot in enumerate(record.slots, start=1) if slot[0] in mine or slot[0] == 0]
    slots = tuple(record.slots[order - 1] for order in kept)
    moved = {order: number for number, order in enumerate(kept, start=1)}
    pairs = tuple(pair.model_copy(update={"order": moved[pair.order]}) for pair in record.pairs if pair.order in moved)
    alone = record.model_copy(update={"blocks": TEN, "slots": slots, "pairs": pairs})
    return summarise_run(alone, [one for one in samples if one.block in mine or one.block == 0], histogram_of)


def _injected(row: Row, effect: Effect, again: stats.Estimate | None, tens: Sequence[Effect | None]) -> Injected:
    estimate = effect.estimate
    assert estimate is not None, "judged effects have one"
    judged = [one for one in tens if one is not None and one.decision.judged]
    low, high = estimate.interval or (None, None)
    sd = again.sd if again is not None and again.has_interval else None
    return Injected(
        variant=row.arm.variant,
        point=row.point.name,
        metric=effect.metric,
        effect=expm1(estimate.effect),
        low=None if low is None else expm1(low),
        high=None if high is None else expm1(high),
        blocks=estimate.n,
        resolvable=None if sd is None else resolvable(sd, TEN),
        promised=None if sd is None else power(estimate.effect, sd, TEN),
        claimed=sum(one.claimed for one in judged),
        tens=len(judged),
    )


def _same(summary: Summary, row: Row, effect: Effect) -> Effect | None:
    rows = (one for one in summary.rows if (one.arm.name, one.point.name) == (row.arm.name, row.point.name))
    return next(
        (
            one
            for found in rows
            for one in found.effects
            if (one.metric, one.against) == (effect.metric, effect.against)
        ),
        None,
    )


def line(one: Injected) -> str:
    """A variant in words: what it does, how often ten blocks claimed it, how often they should."""
    interval = "" if one.low is None or one.high is None else format_interval(log1p(one.low), log1p(one.high))
    promised = "no A/A interval, so nothing was promised"
    if one.promised is not None and one.resolvable is not None:
        promised = f"promised {one.promised:.0%} of tens (ten blocks resolve {one.resolvable:.1%} with 90 %)"
    name = f"{one.variant} {about(one.metric).title} at {one.point}"
    return f"{name}: {format_percent(log1p(one.effect))} %{interval} over {one.blocks} blocks; claimed in {one.claimed} of {one.tens} tens, {promised}"
