"""The content of `run.json`: a run as it is fixed before its first sample. Unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, model_validator

from lab.base.validation import Record
from lab.model.design import Design, PlannedFor, Promise, choose_shape, derive_design, find_solo_places
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.pairs import Layout, Side
from lab.model.plan import Arm, ArmAndPoint, Plan, Slot, plan_samples
from lab.model.sweeps import LoadPoint
from lab.model.traffic import Traffic
from lab.model.variants.variants import AS_SHIPPED, AT, Family, Variant, config_snippet

SCHEMA = 1
K6_OUT = "out"
"""The key of a point's generator in run.json that names which of k6's outputs is kept; absent = none."""


class VariantRecord(Record):
    """The record of a variant in `run.json`: its name, its settings, its baseline and its primary metric.

    The variant's manifests are stored separately.
    """

    name: str
    title: str
    baseline: str | None
    knobs: tuple[str, ...]
    own_knobs: tuple[str, ...]
    primary_metric: str | None
    hypothesis_sweep: str | None
    manifests_sha256: str
    snippet: str = Field(default="", description="what to apply on a real cluster for its own knobs")
    shared_cost: bool = Field(
        default=False, description="its cost can lie in what a pair shares: the solo samples decide"
    )
    unpaired: str = Field(
        default="", description="why no other system could be up at the same time on this target; empty = one could"
    )
    needs: str = Field(
        default="", description="what its effect needs and no sweep does: nothing is judged; empty = nothing"
    )
    family: Family = Field(default=AS_SHIPPED, description="systems of different families are never compared")
    only_to_measure_by: str = Field(default="", description="why nobody should apply it; empty = they may")
    base: str = Field(default="", description="the folder in manifests/base that it stands on; empty = not recorded")

    @classmethod
    def of(cls, variant: Variant, manifests: Path, **changed: Any) -> VariantRecord:
        """Build the record of a variant for `run.json`.

        Args:
            variant: The variant.
            manifests: The folder of manifests that it was rendered from.
            changed: Fields of the record whose values replace those of the variant.

        """
        fields: dict[str, Any] = {
            "name": variant.name,
            "title": variant.title,
            "baseline": variant.compared_with,
            "knobs": tuple(knob.name for knob in variant.knobs),
            "own_knobs": variant.own_knobs,
            "primary_metric": variant.primary_metric,
            "hypothesis_sweep": variant.sweep,
            "manifests_sha256": variant.manifests_sha256,
            "snippet": "" if AT in variant.name else config_snippet(variant, manifests),
            "shared_cost": variant.shared_cost,
            "needs": variant.needs,
            "family": variant.family,
            "only_to_measure_by": variant.only_to_measure_by,
            "base": variant.base,
        }
        return cls(**(fields | changed))


class NotMeasured(Record):
    """A requested variant that cannot be measured on this machine or target, with the reason and a remedy."""

    variant: str
    what: str = Field(description="in a word or two: cores, open files, host-wide")
    why: str
    remedy: str = Field(default="", description="what would make it measurable; empty = nobody said")

    def __str__(self) -> str:
        needs = self.why.startswith("needs ")
        return (
            f"{self.variant} {self.why}" if needs else f"{self.variant}: not measurable here: {self.what}: {self.why}"
        )

    @property
    def advised(self) -> str:
        """The message that a variant cannot be measured here and why, with the remedy on a second line if there is one."""
        return f"{self}\n  {self.remedy}" if self.remedy else str(self)


class RoundTrip(Record):
    """The content of `roundtrip.json`: the TCP round-trip times between client and backend without a proxy, once per run."""

    tool: str | None = None
    version: str | None = None
    count: int | None = Field(default=None, description="round trips measured")
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    reason: str = Field(default="", description="why it was not measured; empty = it was")


class KneeSearch(Record):
    """The settings of a search for the knee (the highest rate that keeps a latency bound), fixed before it begins."""

    p99_s: float = Field(description="p99 is at most this")
    min_achieved: float = Field(description="achieved / offered is at least this; no errors, no dropped requests")
    max_generator_core: float = Field(description="the generator's CPU is less busy than this")
    start_rps: int
    least_rps: int
    precision: float = Field(description="the lowest rate that fails is at most 1 + this times the knee")


class AtKnee(Record):
    """The knee (the highest rate that keeps a latency bound) from which the rates of a run's loads were derived.

    A load with `of_knee = 0.4` is offered at 0.4 × `rate_rps`.
    """

    rate_rps: float
    run: str | None = Field(description="the search that found it; null = the rate was named")
    variant: str | None = Field(description="whose knee it is; null = the rate was named")
    at_least: bool = Field(default=False, description="the proxy was not the limit: its own knee is no lower")

    def __str__(self) -> str:
        origin = f"of {self.variant}, found by {self.run}" if self.run else "as named"
        return f"{'at least ' if self.at_least else ''}{self.rate_rps:,g} req/s, {origin}"


class ProbeTrial(Record):
    """The result of a short trial before a run is planned: whether two systems at once serve an offered rate."""

    rate_rps: float = Field(description="of each side")
    achieved_rps: float | None = Field(description="of the slower side; null = nothing was measured")
    dropped: int = Field(description="requests of both sides that were due and never sent")
    generator_core: float | None = Field(description="busiest CPU of either generator: busy fraction")
    carried: bool
    why: str = Field(default="", description="why it was not carried; empty = it was")


class Probe(Record):
    """The rate that a target can serve at one load point on both sides of a pair at once, and the decision that followed.

    A pair is two variants measured at once, each at the offered rate. `decided` is "as-asked" (that rate), "lowered"
    (pairs at a lower rate) or "solo" (no pairs).
    """

    point: str = Field(description="as the sweep calls it")
    rate_rps: float = Field(description="that the sweep asks for")
    carried_rps: float | None = Field(default=None, description="of each side; null = no rate that was tried")
    decided: Literal["as-asked", "lowered", "solo"]
    trials: tuple[ProbeTrial, ...] = ()
    from_run: str | None = Field(default=None, description="the earlier run that found it out; null = this one")
    why: str = Field(default="", description="why nothing was tried; empty = something was")

    def __str__(self) -> str:
        """Return what was decided about the rate, as a sentence.

        Example: `rate-1000: 1,000 req/s on two sides at once are not carried (412 requests dropped): pairs at 500
        req/s`
        """
        if self.why:
            return f"{self.point}: {self.why}"
        rate = f"{self.rate_rps:,.0f} req/s on two sides at once are"
        source = f", as {self.from_run} found" if self.from_run else ""
        if self.decided == "as-asked":
            return f"{self.point}: {rate} carried{source}"
        lost = f"{self.point}: {rate} not carried ({self.trials[0].why}){source}"
        if self.decided == "lowered":
            return f"{lost}: pairs at {self.carried_rps:,.0f} req/s"
        return f"{lost}, nor are {self.trials[-1].rate_rps:,.0f}: arms are measured one after the other, at that rate"


class PairSlot(Layout):
    """The record of a planned pair (two variants at once) in `run.json`: number, other variant, and layout."""

    order: int = Field(description="of the slot in the plan, from 1")
    against: str = Field(description="the arm on the other side")
    reload: int = Field(
        default=0,
        description="which generation of workers of this point in its bring-up; 0 = those that were there when it began",
    )
    repeat: int = Field(default=0, description="which measurement of that generation, from 0")


class RunRecord(Record):
    """The content of `run.json`: everything about a run that is fixed before its first sample.

    In addition, it records when the run was resumed after an interruption.
    """

    schema_version: int = SCHEMA
    id: str
    created_at: str
    command: tuple[str, ...]
    target: str
    sweep: str
    seed: int
    blocks: int
    arms: tuple[Arm, ...]
    points: tuple[LoadPoint, ...]
    slots: tuple[tuple[int, str, str], ...] = Field(description="the plan in order: (block, arm, point)")
    pairs: tuple[PairSlot, ...] = Field(default=(), description="which of the slots are measured beside another arm")
    margin: float = Field(
        default=EQUIVALENCE_MARGIN,
        validation_alias=AliasChoices("margin", "worth"),  # its name in runs before December 2026
        description="the equivalence margin, named before the first sample",
    )
    variants: dict[str, VariantRecord]
    generators: dict[str, dict[str, str | None]] = Field(
        description="point → name, version and stand_in_for of its generator"
    )
    facts: dict[str, str]
    git_commit: str | None
    not_measurable: tuple[NotMeasured, ...] = Field(
        default=(), description="what was asked for and cannot be shown here; not part of the plan"
    )
    study: str | None = Field(default=None, description="the key of the study whose variants these are")
    manifests: str | None = Field(
        default=None, description="the manifests' folder, relative to the run's parent folder; null = the checkout's"
    )
    planned_for: PlannedFor | None = Field(
        default=None, description="of runs without `design`: what the number of blocks was chosen for"
    )
    knee: KneeSearch | None = Field(
        default=None, description="a search: its plan grew with every trial; blocks are trials; null = an ordinary run"
    )
    at_knee: AtKnee | None = Field(default=None, description="where loads were placed at a knee: at which")
    probes: tuple[Probe, ...] = Field(
        default=(), description="what this target was found to carry for two sides at once, before the plan was fixed"
    )
    promised: tuple[Promise, ...] = Field(
        default=(), description="of runs without `design`: what they were planned to find"
    )
    design: Design | None = Field(
        default=None, description="what was decided before the first sample; null = of an earlier lab"
    )
    traffic: Traffic | None = Field(
        default=None, description="the mix of requests of the points that name its digest; null = they request one page"
    )
    resumed: tuple[dict[str, str], ...] = Field(
        default=(), description="when, and which facts had changed, the lab's git_commit among them"
    )

    @model_validator(mode="after")
    def _give_points_their_traffic(self) -> RunRecord:
        """Replace the stored digest of a mix of requests in each load point by the mix itself.

        `run.json` has the mix once, in `traffic`, and its load points have only the digest.
        """
        points = (point.with_traffic(self.traffic if point.traffic == self.traffic else None) for point in self.points)
        self.__dict__["points"] = tuple(points)
        return self

    def k6_out(self, point: str) -> str | None:
        """Return which additional output of the load generator k6 is stored for a load point: "summary", "csv" or "json".

        Args:
            point: The name of the load point.

        Returns:
            None if no such output is stored.

        """
        return self.generators.get(point, {}).get(K6_OUT)

    @property
    def systems(self) -> frozenset[str]:
        """The names of the arms that differ from their baselines as whole systems, not by knobs (single settings).

        The variant of such an arm has no setting that could be applied elsewhere.
        """
        variant_arms = ((arm.name, self.variants[arm.variant]) for arm in self.arms if arm.role == "variant")
        knobs = {name: variant.knobs for name, variant in self.variants.items()}
        return frozenset(
            name
            for name, variant in variant_arms
            if not variant.snippet and {*variant.own_knobs} <= {*knobs.get(variant.baseline or "", ())}
        )

    @property
    def different_systems(self) -> frozenset[str]:
        """The names of the arms that run another system than the arm that they are compared with.

        Two arms run different systems if their manifests come from different folders (`VariantRecord.base`). Older runs
        did not record these folders. In such a run, a variant is another system if it is not its baseline with added
        settings, and has no setting that could be applied elsewhere.
        """
        variants = {arm.name: self.variants[arm.variant] for arm in self.arms}
        compared = (
            (arm.name, variants[arm.name], variants[arm.baseline])
            for arm in self.arms
            if arm.role == "variant" and arm.baseline in variants
        )
        return frozenset(
            name
            for name, variant, baseline in compared
            if (baseline.base not in ("", variant.base) if variant.base else _is_different_system(variant, baseline))
        )

    @property
    def solo(self) -> dict[ArmAndPoint, str]:
        """The arms and load points for which the effect is computed from solo samples: (arm, point) → the reason in words.

        A solo sample measures one arm (a variant in the run) alone. For all other arms and points, the effect is
        computed from pairs, in which two arms are measured at once. `find_solo_places` has the rules.
        """
        variants = {name: (variant.shared_cost, variant.primary_metric) for name, variant in self.variants.items()}
        return find_solo_places(self.arms, self.points, variants, self.different_systems)

    @property
    def designed(self) -> Design:
        """The design of this run. In older runs, which do not record it, the design is derived from the plan."""
        if self.design is not None:
            return self.design
        variant_of = {arm.name: self.variants[arm.variant] for arm in self.arms}
        unpaired = {
            (arm.name, point.name): variant_of[name].unpaired
            for arm in self.arms
            for name in (arm.baseline, arm.name)
            if name in variant_of and variant_of[name].unpaired
            for point in self.points
        }
        return derive_design(
            self.plan(),
            self.solo | unpaired,
            self.different_systems,
            planned_for=self.planned_for,
            promised=self.promised,
        )

    def plan(self) -> Plan:
        """Return the plan of this run (its measurements in order), restored from the record's `slots` and `pairs`."""
        arms = {arm.name: arm for arm in self.arms}
        points = {point.name: point for point in self.points}
        pairs = {pair.order: pair for pair in self.pairs}
        slots: list[Slot] = []
        for order, (block, arm, point) in enumerate(self.slots, start=1):
            slot, pair = Slot(order, block, arms[arm], points[point]), pairs.get(order)
            if pair is not None:
                layout = Layout(
                    side=pair.side, first_up=pair.first_up, first_slice=pair.first_slice, longer=pair.longer
                )
                slot = replace(slot, against=arms[pair.against], layout=layout, reload=pair.reload, repeat=pair.repeat)
            slots.append(slot)
        return Plan(self.arms, self.points, self.blocks, self.seed, tuple(slots))

    def planned(
        self, blocks: int, seed: int, sides: Sequence[Side], solo: Mapping[ArmAndPoint, str], once: int | None
    ) -> RunRecord:
        """Return a copy of the run with a newly drawn plan, with pairs (two variants at once) where they are possible.

        Args:
            blocks: The number of blocks (repetitions of all measurements).
            seed: The seed of all random choices.
            sides: The sides ("left", "right") on which the target can run a system; fewer than two allow no pair.
            solo: (arm, point) → the reason why the effect is computed from solo samples there, and not from pairs.
            once: The number of blocks for the pairs at a point with a single worker generation (see `choose_shape`);
                None = all.

        """
        unpaired = [name for name, variant in self.variants.items() if variant.unpaired]
        shape = choose_shape(self.arms, self.points, blocks, sides, solo, unpaired, once)
        return self.with_plan(plan_samples(self.arms, self.points, blocks, seed, shape))

    def with_plan(self, planned: Plan) -> RunRecord:
        """Return a copy of the run in which the recorded measurements are those of a plan.

        The method `plan` of the copy returns an equal plan.
        """
        pairs = tuple(
            PairSlot(
                order=slot.order, against=slot.other, reload=slot.reload, repeat=slot.repeat, **slot.layout.model_dump()
            )
            for slot in planned.slots
            if slot.layout is not None
        )
        slots = tuple((slot.block, slot.arm.name, slot.point.name) for slot in planned.slots)
        changes = {"seed": planned.seed, "blocks": planned.blocks, "arms": planned.arms, "points": planned.points}
        return self.model_copy(update={**changes, "slots": slots, "pairs": pairs})


def _is_different_system(variant: VariantRecord, baseline: VariantRecord) -> bool:
    """Return whether a variant runs another system than its baseline, for runs that did not record their manifests' folders.

    The result is False for the baseline with added settings, for the baseline at another commit, and for a variant that
    exists only for measuring. It is also False for a variant with a setting that could be applied elsewhere.
    """
    at_other_commit = variant.name.partition(AT)[0] == baseline.name.partition(AT)[0]
    if variant.snippet or variant.only_to_measure_by or at_other_commit:
        return False
    return not variant.own_knobs or variant.knobs != (*baseline.knobs, *variant.own_knobs)


def format_now() -> str:
    """Return the current UTC time in ISO 8601 form with milliseconds: `2026-11-28T09:30:00.123+00:00`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
