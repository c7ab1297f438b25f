"""Knobs side by side on every target that has them in pairs: what each does to a request's cost, in µs and per cent, and what predicts what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.analysis import matrix
from lab.analysis.carrying import METRIC, Carried, Held, Predicted, Shown, predicted
from lab.analysis.carrying_causes import Explained, Undecided, explain_differences, list_undecided
from lab.analysis.claims.evidence import Evidence
from lab.analysis.costs import Interval
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET, WORTH
from lab.report.grid import Cell, Part, plain, texts
from lab.report.loads import load_text
from lab.stats.power import MAX_BLOCKS
from lab.stats.units import format_micros, significant

NONE = (
    "No knob has committed pairs on two targets yet: `just bench KNOB… --target apiserver` measures some, `just maintain pack RUN` and a copy in"
    " data/reference commit them."
)
WHERE = {"process": "in the proxy's process", "shared": "also in what a pair shares"}
NAMES = {"seconds": "µs", "shares": "per cent"}


def page(lines: Sequence[Carried], runs: Sequence[Evidence] = ()) -> list[Part]:
    """The table and a sentence for each kind of cost and target; links are as from the checkout's top.

    With `runs`, those whose ladders explain: what makes a knob's effect another on a target, and what would decide the undecided ones.
    """
    if not lines:
        return [plain(NONE)]
    heads = ("knob", "against", "load", "its cost can lie", *matrix.places())
    rows = [(line.variant, line.against, _load(line), WHERE[line.kind], *_cells(line)) for line in lines]
    share = f"{100 * WORTH:g} %"
    rule = (
        f"{about(METRIC).title}: time against the baseline [95 %] of what that costs there, share [95 %]. Two effects are called the same where their"
        f" difference's interval, which has in it how surely the baseline's cost is known, lies within {share} of a request's cost there, others where it excludes 0."
    )
    found = [texts(heads, rows), plain(rule), *(plain(sentence(each)) for each in predicted(lines))]
    targets = [each for each in matrix.places() if runs and any(each in line.shown for line in lines)]
    return found + [part for target in targets if target != DEFAULT_TARGET for part in _why_there(lines, runs, target)]


def _why_there(lines: Sequence[Carried], runs: Sequence[Evidence], target: str) -> list[Part]:
    """Why knobs have another effect on a target, and how many blocks there would decide the others; empty where all are the same."""
    explained = explain_differences(lines, runs, target)
    undecided = list_undecided(lines, target)
    why = [(each.line.variant, *_told(each)) for each in explained]
    parts: list[Part] = []
    if why:
        heads = (f"another effect on {target}", "measured there", "explained by", "which makes", "so")
        parts.append(texts(heads, why))
    if undecided:
        blocks = [(each.line.variant, str(each.measured), _needed(each)) for each in undecided]
        parts.append(
            texts(
                (f"undecided on {target}", "blocks measured", "blocks that would decide it, nine times in ten"), blocks
            )
        )
    return parts


def _told(found: Explained) -> tuple[str, str, str, str]:
    """What was measured, by what it is explained, what that makes, and whether it fits."""
    made = "–" if found.predicted is None else _interval(found, found.predicted)
    if found.predicted is None:
        so = "not explained"
    elif found.fits:
        so = "explained"
    else:
        so = "in part" if found.share else "not explained"
    return _interval(found, found.measured), found.by, made, so


def _interval(found: Explained, interval: Interval) -> str:
    value, low, high = interval
    metric = about(METRIC)
    if found.share:
        return f"{metric.change(value)}{metric.ends(low, high)}"
    return f"{format_micros(value)} µs [{format_micros(low)}, {format_micros(high)}]"


def _needed(found: Undecided) -> str:
    if found.blocks is not None:
        return str(found.blocks)
    if found.local_too_wide:
        return f"none there alone: {DEFAULT_TARGET}'s own interval is too wide"
    return f"more than {MAX_BLOCKS}"


def _load(line: Carried) -> str:
    connections, how, _, *rest = load_text(line.point).split(", ")
    return ", ".join([f"{line.point.name}: {connections}", how, *rest])


def _cells(line: Carried) -> list[Cell]:
    targets = matrix.places()
    return [_cell(line.shown[each]) if each in line.shown else Cell("–", tail=f" {line.why[each]}") for each in targets]


def _cell(shown: Shown) -> Cell:
    value, low, high = shown.cost.change
    metric = about(METRIC)
    share = f"{metric.change(value)}{metric.ends(low, high)}"
    level = significant(shown.cost.level_s * 1e6, 2)  # mostly of two solo blocks
    return Cell(f"[{shown.cost.text} of {level}; {share}](data/reference/{shown.run})")


def sentence(found: Predicted) -> str:
    """How many of `local`'s effects are those there, as times and as shares, and which predict more."""
    of = f"of {found.knobs} knob{'s' if found.knobs > 1 else ''} whose cost can lie {WHERE[found.kind]}"
    told = f"{DEFAULT_TARGET}'s time {_counted(found.seconds)}; its share {_counted(found.shares)}"
    return f"{found.target}: {of} {told}: {_so(found)}."


def _counted(counts: Mapping[Held, int]) -> str:
    named: Mapping[Held, str] = {"same": "is that there for", "other": "is another for", "open": "cannot be told for"}
    return ", ".join(f"{said} {counts[held]}" for held, said in named.items() if counts.get(held))


def _so(found: Predicted) -> str:
    """In words. What holds for more knobs than it fails predicts; better, where it does so more often."""
    worth = {name: _worth(counts) for name, counts in (("seconds", found.seconds), ("shares", found.shares))}
    better = max(worth, key=lambda name: worth[name])
    least = min(worth.values())
    if worth[better] == least:
        return f"which of the two predicts {found.target}, this does not tell"
    if worth[better][0] <= 0:
        return f"neither predicts {found.target}"
    return f"{DEFAULT_TARGET}'s {NAMES[better]} predict {found.target} better"


def _worth(counts: Mapping[Held, int]) -> tuple[int, int]:
    return counts.get("same", 0) - counts.get("other", 0), -counts.get("other", 0)
