"""Does it carry over? What each knob does to a request's cost on every target on which its pairs are committed, and what `local` says of the others.

    ingress-nginx+access-log-off  local −3.1 µs of 16.7, −18.6 %;  apiserver −4.6 µs of 37.2, −12.4 %   →   another time, another share

Everything is of data/reference: no list says which knobs. Refuses to pool targets or loads, and to take what was not measured in pairs. By
the lab's one rule: two effects are the same where their difference's 95 % interval lies within what is worth knowing of a request there,
others where it excludes 0, else nobody can tell.

Where a knob's time on a target is another than on `local`, the ladder's steps explain it: a step is a committed pair of the sweep `ladder`;
steps of one cause are multiplied, as each is a share of what the step before left. Where no step is about a knob, `local`'s time is
multiplied by what the same known work costs there. Refuses to guess beyond that. Of the undecided ones it says how many blocks would tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from typing import Literal

from lab.analysis.evidence import Evidence
from lab.analysis.judge.decision import worth_of
from lab.analysis.judge.effects import Cost, Interval, apart, cost_of
from lab.analysis.judge.rows import Row
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET, WORTH
from lab.model.sweeps import Point
from lab.model.variants.knobs import Cost as Kind
from lab.report.grid import Cell, Part, plain, texts
from lab.report.loads import load_text
from lab.stats.paired import middle
from lab.stats.power import MAX_BLOCKS
from lab.stats.units import format_micros, significant
from lab.studies import matrix
from lab.studies.steps import summaries

METRIC = "cpu_per_request"
"""What pairs tell at every load, and what is a time and a share at once."""
Held = Literal["same", "other", "open"]
KNOWN_WORK = "ingress-nginx+extra-work-80"
"""The knob that adds the same known work on every target."""
SURE = 1.65
"""A difference so many times as large as half its 95 % interval is found nine times in ten: (1.96 + 1.28) / 1.96."""
LadderStep = tuple[str, tuple[str, ...], str]
"""Target, names of the variant, the present one first (`lab.model.variants.naming`), and what it is in words."""
CAUSES: Mapping[tuple[str, str], tuple[Sequence[LadderStep], str]] = {
    ("ingress-nginx+access-log-off", "kind"): (
        [
            ("kind", ("pod-address+access-log-memory",), "the log to a file, not a pipe"),
            ("apiserver", ("ingress-nginx+access-log-off", "metrics-log-off"), "no access log"),
        ],
        "on kind a log line goes through a pipe that the node's runtime empties, on local into a file in memory",
    ),
    ("ingress-nginx+crowded-workers-1", "kind"): (
        [("kind", ("pod-address+access-log-memory++one-worker",), "one worker")],
        "on kind the baseline has two workers, which share that pipe, on local it has one, so that the knob changes nothing",
    ),
}
"""(knob, target) → the ladder's steps that are about what it takes away or adds there beside what it does on `local`, and what that is."""
WHERE = {"process": "in the proxy's process", "shared": "also in what a pair shares"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A knob's effect on one target, by one run. `doubt`: half the width of its level's 95 % interval, as a share of it; of fewer blocks than
    have one, all that they range over.
    """

    run: str
    pairs: int
    cost: Cost
    doubt: float

    @property
    def seconds(self) -> Interval:
        """As `Cost.seconds`, wider by what is not known of the level."""
        value, low, high = self.cost.seconds
        more = abs(value) * self.doubt
        return value, value - hypot(value - low, more), value + hypot(high - value, more)


@dataclass(frozen=True, slots=True)
class Carried:
    """One knob at one load. `kind`: where its cost can lie, as annotated; `why`: target → why it has nothing in `shown`."""

    variant: str
    against: str
    kind: Kind
    point: Point
    shown: Mapping[str, Shown]
    why: Mapping[str, str]

    def seconds(self, target: str) -> Held:
        """Whether `local`'s seconds are the target's."""
        there = self.shown[target]
        return _held(there.seconds, self.shown[DEFAULT_TARGET].seconds, there.cost.level_s * WORTH)

    def shares(self, target: str) -> Held:
        """Whether `local`'s share is the target's."""
        return _held(self.shown[target].cost.change, self.shown[DEFAULT_TARGET].cost.change, worth_of(WORTH))


def _held(there: Interval, here: Interval, worth: float) -> Held:
    gap, half = apart(there, here)
    if abs(gap) + half <= worth:
        return "same"
    return "other" if abs(gap) > half else "open"


def carried(runs: Sequence[Evidence]) -> list[Carried]:
    """Every knob with committed pairs on two targets or more at one load, by name: at the load that most targets have, closed loops first."""
    found: dict[tuple[str, str], dict[Point, dict[str, Shown]]] = {}
    kinds: dict[tuple[str, str], Kind] = {}
    for run in runs:
        for knob, kind, point, shown in _of(run):
            kinds.setdefault(knob, kind)
            targets = found.setdefault(knob, {}).setdefault(point, {})
            known = targets.get(run.run.record.target)
            if known is None or shown.pairs > known.pairs:  # else the newest, which comes first
                targets[run.run.record.target] = shown
    lines: list[Carried] = []
    for knob, loads in sorted(found.items()):
        point = max(loads, key=lambda each: (len(loads[each]), each.rate_rps is None))
        if len(loads[point]) > 1:
            why: dict[str, str] = {}
            for target in (each for each in matrix.places() if each not in loads[point]):
                cell = matrix.of_variants(target, [knob[0]])
                told = {
                    "works": "it comes up there",
                    "measured": "not in pairs at this load",
                    "not possible": cell.said,
                }
                why[target] = told.get(cell.kind, "not measured there")
            lines.append(Carried(*knob, kinds[knob], point, loads[point], why))
    return lines


def _of(run: Evidence) -> Iterator[tuple[tuple[str, str], Kind, Point, Shown]]:
    """(variant and its baseline, kind, load, effect) of what is a knob, was measured in pairs and has an interval.

    The load is less what says for how long and how often it is made: that changes how surely something is known, and not what.
    """
    record = run.run.record
    how_long = {"duration_s": 0.0, "warmup_s": 0.0, "generations": 1, "repeats": 1, "singly": False}
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.variant in record.variants}
    steady = summaries(run)[:1] if record.pairs else ()
    for row in (row for summary in steady for row in summary.rows if row.pair is not None):
        variant, base = variants[row.arm.name], variants.get(row.arm.baseline or "")
        if row.arm.role != "variant" or not variant.own_knobs or base is None or base.name != variant.baseline:
            continue
        effect = next((each for each in row.effects if each.metric == METRIC), None)
        cost = cost_of(effect) if effect is not None else None
        if effect is not None and effect.estimate is not None and cost is not None:
            load = row.point.model_copy(update={"threads": 1, "threads_at_most": None, **how_long})
            shown = Shown(run.name, effect.estimate.n, cost, _doubt(row))
            yield (variant.name, base.name), "shared" if variant.shared_cost else "process", load, shown


def _doubt(row: Row) -> float:
    alone = list(row.base.known(METRIC).values()) if row.base else []
    level = middle(alone) if alone else None
    if level is not None and level.low is not None and level.high is not None:
        return (level.high - level.low) / 2 / level.value
    several = alone if len(alone) > 1 or row.pair is None else list(row.pair.base.known(METRIC).values())
    return log(max(several) / min(several)) if several else 0.0


def sentences(lines: Sequence[Carried]) -> Iterator[str]:
    """Of the knobs of each kind that `local` and another target have both: how many of `local`'s effects are those there, as times and as
    shares, and which predict more. What holds for more knobs than it fails predicts; better, where it does so more often.
    """
    named: Mapping[Held, str] = {"same": "is that there for", "other": "is another for", "open": "cannot be told for"}
    kinds: set[tuple[Kind, str]] = {(line.kind, target) for line in lines for target in line.shown}
    for kind, target in sorted(kinds):
        both = _both(lines, target, kind)
        if not both or target == DEFAULT_TARGET:
            continue
        counts = {
            "µs": Counter(each.seconds(target) for each in both),
            "per cent": Counter(each.shares(target) for each in both),
        }
        time, share = (
            ", ".join(f"{said} {each[held]}" for held, said in named.items() if each[held]) for each in counts.values()
        )
        worth = {name: (each["same"] - each["other"], -each["other"]) for name, each in counts.items()}
        better = max(worth, key=lambda name: worth[name])
        so = f"{DEFAULT_TARGET}'s {better} predict {target} better"
        if worth[better] == min(worth.values()):
            so = f"which of the two predicts {target}, this does not tell"
        elif worth[better][0] <= 0:
            so = f"neither predicts {target}"
        of = f"of {len(both)} knob{'s' if len(both) > 1 else ''} whose cost can lie {WHERE[kind]}"
        yield f"{target}: {of} {DEFAULT_TARGET}'s time {time}; its share {share}: {so}."


def _both(lines: Sequence[Carried], target: str, kind: Kind = "process") -> list[Carried]:
    return [line for line in lines if line.kind == kind and {DEFAULT_TARGET, target} <= line.shown.keys()]


# -- why a knob does something else there ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Explained:
    """A knob whose time on a target is another than on `local`. `predicted`: by `by`, in the unit of `measured`; None where nothing predicts.

    Both are log-ratios where `share`, else seconds; each a value and its 95 % interval.
    """

    variant: str
    measured: Interval
    predicted: Interval | None
    share: bool
    by: str

    @property
    def fits(self) -> bool:
        """Whether the interval of the difference between measured and predicted holds 0."""
        if self.predicted is None:
            return False
        gap, half = apart(self.measured, self.predicted)
        return abs(gap) <= half

    def text(self, interval: Interval) -> str:
        value, low, high = interval
        if self.share:
            return f"{about(METRIC).change(value)}{about(METRIC).ends(low, high)}"
        return f"{format_micros(value)} µs [{format_micros(low)}, {format_micros(high)}]"


def explain_differences(lines: Sequence[Carried], runs: Sequence[Evidence], target: str) -> list[Explained]:
    """Return every knob in the proxy's process whose time on a target is another than on `local`, with what explains it."""
    both = _both(lines, target)
    work = next((each for each in both if each.variant == KNOWN_WORK), None)
    return [_explained(line, work, runs, target) for line in both if line.seconds(target) == "other"]


def _explained(line: Carried, work: Carried | None, runs: Sequence[Evidence], target: str) -> Explained:
    there, here = line.shown[target].cost, line.shown[DEFAULT_TARGET].cost
    predicted = None
    if (line.variant, target) in CAUSES:
        steps, words = CAUSES[line.variant, target]
        changes = [_step_change(at, variants, runs) for at, variants, _ in steps]
        known = [change for change in changes if change is not None]
        if len(known) == len(changes):  # log-ratios that were measured apart: their squares add up
            value, half = sum(change[0] for change in known), hypot(*((change[2] - change[1]) / 2 for change in known))
            predicted = value, value - half, value + half
        by = f"{' and '.join(f'{said} ({at})' for at, _, said in steps)}: {words}"
        return Explained(line.variant, there.change, predicted, share=True, by=by)
    by = f"what the same known work ({KNOWN_WORK}) costs there, times {DEFAULT_TARGET}'s time; no step of the ladder is about it"
    if line.variant == KNOWN_WORK:
        by = "it is the known work itself: what it costs is what CPU time is worth there"
    elif work is not None:  # the log-ratio of what it costs there to what it costs on local, with its interval
        costs, own = ([log(each) for each in work.shown[at].cost.seconds] for at in (target, DEFAULT_TARGET))
        half = hypot((costs[2] - costs[1]) / 2, (own[2] - own[1]) / 2)
        seconds = here.seconds
        value, relative = seconds[0] * exp(costs[0] - own[0]), hypot((seconds[2] - seconds[1]) / 2 / seconds[0], half)
        predicted = value, value - abs(value) * relative, value + abs(value) * relative
    return Explained(line.variant, there.seconds, predicted, share=False, by=by)


def _step_change(target: str, variants: Sequence[str], runs: Sequence[Evidence]) -> Interval | None:
    """Return the log-ratio of a step with its interval, of the newest run that has it under the first of its names; None without one."""
    ladders = [run for run in runs if (run.run.record.sweep, run.run.record.target) == ("ladder", target)]
    for variant in variants:
        rows = (row for run in ladders for summary in summaries(run) for row in summary.rows if row.arm.name == variant)
        for effect in (each for row in rows for each in row.effects if each.metric == METRIC):
            if effect.estimate is not None and effect.estimate.interval is not None:
                return effect.estimate.effect, *effect.estimate.interval
    return None


def list_undecided(lines: Sequence[Carried], target: str) -> Iterator[tuple[str, int, int | None, bool]]:
    """Yield every knob in the proxy's process of which nobody can tell whether `local`'s time is a target's: its name, the blocks that were
    measured there, those that would decide it nine times in ten, if both effects are what they were measured to be (None: more than any plan
    takes, or none), and whether `local`'s own interval is too wide for any.
    """
    for line in (each for each in _both(lines, target) if each.seconds(target) == "open"):
        there, here = line.shown[target], line.shown[DEFAULT_TARGET]
        gap, _ = apart(there.seconds, here.seconds)
        wide_there, wide_here = ((each.seconds[2] - each.seconds[1]) / 2 for each in (there, here))
        allowed = max(abs(gap), there.cost.level_s * WORTH - abs(gap)) / SURE
        needed = MAX_BLOCKS + 1
        if wide_here < allowed:
            needed = round(there.pairs * wide_there**2 / (allowed**2 - wide_here**2) + 0.5)
        yield line.variant, there.pairs, needed if needed <= MAX_BLOCKS else None, wide_here >= allowed


# -- as tables ------------------------------------------------------------------------------------------------


def page(lines: Sequence[Carried], runs: Sequence[Evidence] = ()) -> list[Part]:
    """The table and a sentence for each kind of cost and target; links are as from the checkout's top.

    With `runs`, those whose ladders explain: what makes a knob's effect another on a target, and what would decide the undecided ones.
    """
    if not lines:
        none = (
            "No knob has committed pairs on two targets yet: `just bench KNOB… --target apiserver` measures some, `just maintain pack RUN` and a copy in"
            " data/reference commit them."
        )
        return [plain(none)]
    targets = matrix.places()
    rows: list[tuple[str | Cell, ...]] = []
    for line in lines:
        connections, how, _, *rest = load_text(line.point).split(", ")
        load = ", ".join([f"{line.point.name}: {connections}", how, *rest])
        cells = (
            _cell(line.shown[each]) if each in line.shown else Cell("–", tail=f" {line.why[each]}") for each in targets
        )
        rows.append((line.variant, line.against, load, WHERE[line.kind], *cells))
    rule = (
        f"{about(METRIC).title}: time against the baseline [95 %] of what that costs there, share [95 %]. Two effects are called the same where their"
        f" difference's interval, which has in it how surely the baseline's cost is known, lies within {100 * WORTH:g} % of a request's cost there, others where it excludes 0."
    )
    heads = ("knob", "against", "load", "its cost can lie", *targets)
    parts: list[Part] = [texts(heads, rows), plain(rule), *map(plain, sentences(lines))]
    for target in targets if runs else ():
        if target != DEFAULT_TARGET:
            parts += _why_there(lines, runs, target)
    return parts


def _cell(shown: Shown) -> Cell:
    value, low, high = shown.cost.change
    share = f"{about(METRIC).change(value)}{about(METRIC).ends(low, high)}"
    level = significant(shown.cost.level_s * 1e6, 2)  # mostly of two solo blocks
    return Cell(f"[{shown.cost.text} of {level}; {share}](data/reference/{shown.run})")


def _why_there(lines: Sequence[Carried], runs: Sequence[Evidence], target: str) -> Iterator[Part]:
    """Why knobs have another effect on a target, and how many blocks there would decide the others; empty where all are the same."""
    why: list[tuple[str, ...]] = []
    for each in explain_differences(lines, runs, target):
        made = "–" if each.predicted is None else each.text(each.predicted)
        so = "explained" if each.fits else "in part" if each.predicted is not None and each.share else "not explained"
        why.append((each.variant, each.text(each.measured), each.by, made, so))
    if why:
        yield texts((f"another effect on {target}", "measured there", "explained by", "which makes", "so"), why)
    none = f"none there alone: {DEFAULT_TARGET}'s own interval is too wide"
    blocks = [
        (variant, str(measured), str(needed) if needed else none if too_wide else f"more than {MAX_BLOCKS}")
        for variant, measured, needed, too_wide in list_undecided(lines, target)
    ]
    if blocks:
        heads = (f"undecided on {target}", "blocks measured", "blocks that would decide it, nine times in ten")
        yield texts(heads, blocks)
