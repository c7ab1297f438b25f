"""The plan of a run as lines of text: what is measured, with which programs, how long it takes, and which effects it can detect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from lab.model.design import UNKNOWN, Design
from lab.model.disturbance import Manifests
from lab.model.metrics import find_metric
from lab.model.run import NotMeasured, RunRecord
from lab.model.sweeps import LoadPoint
from lab.report.loads import describe_disruption, describe_load, describe_traffic
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks, format_duration
from lab.systems.stand_ins import list_programs

MAX_NAMED_ARMS, MAX_LEFT_OUT, MAX_LISTED_LOADS = 6, 2, 5
"""The maximum numbers of arms, of variants that are left out, and of loads that a plan names."""
MAX_LISTED_POINTS = 3
"""The maximum number of points whose detectable effects are listed one by one."""
LONG_S = 300.0
"""The duration in seconds from which the plan suggests how to make it shorter."""

Line = tuple[str, str]
"""The type of a line of a plan: (heading, such as `load`; text)."""


def describe_plan(
    record: RunRecord,
    manifests: Mapping[str, Manifests],
    to_probe: Sequence[LoadPoint] = (),
    done: int = 0,
    may_be_less: bool = False,
    *,
    full: bool = False,
) -> Iterator[Line]:
    """Yield the lines of a planned run, each as (heading, text).

    Args:
        record: The record of the run, with its design.
        manifests: Name of a variant → its manifests.
        to_probe: The loads that some seconds of trial must show to be possible before the first sample.
        done: The number of planned measurements that are already done.
        may_be_less: Whether to suggest fewer blocks (repetitions) if the run takes long, because the user did not choose their number.
        full: Whether to name all arms (variants of the run), all loads, and all variants that are left out, instead of the first few.

    """
    design = record.designed
    yield "run", record.id
    yield "compares", _describe_arms(record, design, None if full else MAX_NAMED_ARMS)
    yield from _describe_programs(record, manifests)
    yield from describe_left_out(record.not_measurable, None if full else MAX_LEFT_OUT)
    if record.at_knee is not None:
        yield "knee", str(record.at_knee)
    loads = list(_list_loads(record, design))
    yield from (("load", text) for text in loads[: None if full else MAX_LISTED_LOADS])
    if len(loads) > MAX_LISTED_LOADS and not full:
        yield "load", f"{len(loads) - MAX_LISTED_LOADS} more (--all shows them)"
    yield from describe_mix(record)
    yield from (("probe", str(probe)) for probe in record.probes)
    if to_probe:
        rates = ", ".join(f"{point.rate_rps:,.0f} req/s ({point.name})" for point in to_probe)
        otherwise = "if not, the rate is lowered, or arms are measured one after the other"
        yield (
            "probe",
            f"before the plan is fixed, some seconds show whether two sides at once get {rates} here: {otherwise}",
        )
    alone = [variant for variant in record.variants.values() if full and variant.unpaired]
    yield from (("alone", f"{variant.name} is measured without pairs: {variant.unpaired}") for variant in alone)
    if design.fixed_workers:
        names = ", ".join(design.fixed_workers)
        yield (
            "workers",
            f"every pair is measured on the workers it came up with: no reload makes new ones of {names}",
        )
    yield from _describe_duration(record, design, done, may_be_less)
    yield from _describe_resolution(design)


def describe_left_out(missing: Sequence[NotMeasured], most: int | None = None) -> Iterator[Line]:
    """Yield a line for each variant that cannot be measured here, with the reason and the remedy.

    Args:
        missing: The variants that cannot be measured.
        most: The largest number of variants to name; None = all.

    """
    yield from (("left out", f"{item}; {item.remedy}" if item.remedy else str(item)) for item in missing[:most])
    if most is not None and len(missing) > most:
        yield "left out", f"{len(missing) - most} more (--all shows them)"


def describe_mix(record: RunRecord) -> Iterator[Line]:
    """Yield the lines about the mix of requests of a run's loads, and about the access log from which the mix was made.

    Nothing is yielded for a run whose loads request a single page.
    """
    for text in [] if record.traffic is None else describe_traffic(record.traffic):
        yield "traffic", text


def name_generator(record: RunRecord, point: LoadPoint) -> str:
    """Return the name of a load's generator as a plan has it: `k6`, or `k6 standing in for wrk2`."""
    used = record.generators[point.name]
    return f"{used['name']} standing in for {used['stand_in_for']}" if used["stand_in_for"] else f"{used['name']}"


def _describe_arms(record: RunRecord, design: Design, most: int | None) -> str:
    """Return in words which arms (variants in a run) are compared: `keepalive with ingress-nginx; …`.

    Args:
        record: The record of the run.
        design: The design of the run.
        most: The largest number of arms to name; None = all.

    """
    variants = [arm.name for arm in record.arms if arm.role == "variant"]
    bases = ", ".join(arm.name for arm in record.arms if arm.role == "baseline")
    more = f" and {len(variants) - most} more (--all shows them)" if most and len(variants) > most else ""
    parts = [f"{', '.join(variants[:most])}{more} with {bases}"] if variants else []
    if any(arm.role == "again" for arm in record.arms):
        parts.append("the baseline with itself (noise check)" if variants else f"{bases} with itself (noise check)")
    elif not variants:
        parts.append(bases)
    references = {arm.name for arm in record.arms if arm.role == "reference"}
    if blocks := {block for place in design.places if place.arm in references for block in place.blocks}:
        parts.append(f"the backend without a proxy, in {format_blocks(len(blocks))}")
    return "; ".join(parts)


def _describe_programs(record: RunRecord, manifests: Mapping[str, Manifests]) -> Iterator[Line]:
    """Yield the lines about which programs run as proxies, and which CPUs they, the backend and the generator get."""
    programs = list_programs(record.target, record.facts, {name: given for name, given in manifests.items() if given})
    several = len(programs) > 1
    named = [
        f"{program} ({', '.join(arms[:MAX_LEFT_OUT])}{', …' if len(arms) > MAX_LEFT_OUT else ''})"
        if several
        else program
        for program, arms in programs.items()
    ]
    yield "runs", f"{record.target}: {'; '.join(named) or record.facts.get('target', '')}"
    roles: dict[str, list[str]] = {}
    for key, cpus in record.facts.items():
        if key.startswith("cpus_"):
            roles.setdefault(cpus, []).append(key.removeprefix("cpus_"))
    pinned = "; ".join(f"{', '.join(names)} on CPU {cpus}" for cpus, names in roles.items())
    if text := pinned or record.facts.get("pinning", ""):
        yield "CPUs", text


def _list_loads(record: RunRecord, design: Design) -> Iterator[str]:
    """Yield a text for each load of a planned run: its generator, the load in words, and remarks.

    A remark gives the reason why a load has no pairs (two variants measured at once), or the number of blocks (repetitions)
    with pairs. For a load with a disruption, the text also describes the disruption.
    """
    variants = {arm.name for arm in record.arms if arm.role == "variant"}
    paired: dict[str, int] = {}
    for place in design.places:
        if place.against and place.arm in variants:
            paired[place.point] = max(len(place.blocks), paired.get(place.point, 0))
    for point in record.points:
        disruption = describe_disruption(point) if point.disturbance is not None else ""
        parts = [f"{point.name}: {name_generator(record, point)}, {describe_load(point)}"]
        parts.append("nothing is done (control)" if point.control else disruption)
        parts += [f"measured without pairs: {point.why_alone}"] if record.pairs and point.why_alone else []
        count = paired.get(point.name, design.blocks)
        parts += [f"pairs in {count} of the {design.blocks} blocks"] if count < max(paired.values(), default=0) else []
        yield "; ".join(filter(None, parts))


def _describe_duration(record: RunRecord, design: Design, done: int, may_be_less: bool) -> Iterator[Line]:
    """Yield the lines about how long a run takes, and about systems that are started anew within blocks."""
    slots, pairs = len(record.slots), len(record.pairs)
    counts = {"pairs": pairs, "samples of arms alone" if pairs else "samples": slots - pairs}
    many = " and ".join(f"{count} {unit}" for unit, count in counts.items() if count)
    duration_s = design.duration_s * (1 - done / slots if slots else 0)
    ends = (datetime.now().astimezone() + timedelta(seconds=duration_s)).strftime("%H:%M")
    long = may_be_less and design.duration_s > LONG_S and design.blocks > MIN_BLOCKS
    shorter = f"; less with --blocks, at least {MIN_BLOCKS} for an interval" if long else ""
    begun = f", {done} of them done" if done else ""
    text = f"about {format_duration(duration_s)}, until {ends}: {many} in {format_blocks(design.blocks)}{begun}, seed {record.seed}"
    yield "takes", text + shorter
    if fresh := design.fresh.count:
        reason = f"after {' and '.join(design.fresh.loads)}, which leave too many local ports waiting"
        runs = ", ".join(design.fresh.runs[-3:])
        yield "anew", f"{fresh} more bring-ups within blocks, {reason} (known from {runs})"


def _describe_resolution(design: Design) -> Iterator[Line]:
    """Yield the lines about the smallest effects that a run detects with 90 % probability, and why it has its number of blocks.

    Blocks are repetitions of all measurements.
    """
    if planned_for := design.planned_for:
        effect = f"{100 * planned_for.effect:g}% in {find_metric(planned_for.metric).title} at {planned_for.point}"
        text = f"so many blocks, because then {effect} is found with {planned_for.power:.0%} probability"
        yield "chosen", f"{text}, by the noise of {planned_for.from_run}"
    by_metric: dict[str, list[tuple[float, str]]] = {}
    for promise in design.promised:
        by_metric.setdefault(find_metric(promise.metric).title, []).append((promise.effect, promise.point))
    effects: list[str] = []
    for metric, promises in by_metric.items():
        ends = dict.fromkeys(f"{effect:.1%}" for effect, _ in (min(promises), max(promises)))
        few = ", ".join(f"{effect:.1%} at {point}" for effect, point in promises)
        many = f"{' to '.join(ends)} at {len(promises)} loads"
        effects.append(f"in {metric} from {few if len(promises) <= MAX_LISTED_POINTS else many} on")
    text = f"differences {', '.join(effects)}, 9 times in 10" if effects else "nothing"
    source = design.promised_by
    yield "detects", source if source == UNKNOWN else f"{text} ({source})"
