"""Knobs side by side on every target that has them in pairs: what each does to a request's cost, in µs and per cent, and what predicts what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.analysis import matrix
from lab.analysis.carrying import METRIC, Carried, Held, Predicted, Shown, predicted
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET, WORTH
from lab.report.grid import Cell, Part, plain, texts
from lab.report.loads import load_text
from lab.stats.units import significant

NONE = (
    "No knob has committed pairs on two targets yet: `just bench KNOB… --target apiserver` measures some, `just pack RUN` and a copy in"
    " data/reference commit them."
)
WHERE = {"process": "in the proxy's process", "shared": "also in what a pair shares"}
NAMES = {"seconds": "µs", "shares": "per cent"}


def page(lines: Sequence[Carried]) -> list[Part]:
    """The table and a sentence for each kind of cost and target; links are as from the checkout's top."""
    if not lines:
        return [plain(NONE)]
    heads = ("knob", "against", "load", "its cost can lie", *matrix.places())
    rows = [(line.variant, line.against, _load(line), WHERE[line.kind], *_cells(line)) for line in lines]
    share = f"{100 * WORTH:g} %"
    rule = (
        f"{about(METRIC).title}: time against the baseline [95 %] of what that costs there, share [95 %]. Two effects are called the same where their"
        f" difference's interval, which has in it how surely the baseline's cost is known, lies within {share} of a request's cost there, others where it excludes 0."
    )
    return [texts(heads, rows), plain(rule), *(plain(sentence(each)) for each in predicted(lines))]


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
