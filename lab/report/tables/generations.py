"""What one system scatters by and at which level, where its pair was measured on several generations of workers: a small table.

    levels of scatter     load        repeat                generation            bring-up           one start  generations
    baseline              ceiling     0.6 % [0.5, 0.8]      4.1 % [3.1, 6.0]      0 % [0, 2.2]       4.1 %      8 × 4

One system's, though two were measured: their ratio scatters by √2 as much. Claims nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.aggregate.generations import Levels
from lab.report.grid import Grid, Part, columns, plain, row

TITLE = "levels of scatter"
NOTE = (
    "of one system's CPU per request, standard deviation [95 %]: measured again on the same workers, from one generation of workers to the next"
    " (both sides reload, new processes, the old ones gone), from one bring-up to the next; what a single start can be off by (1 sd) is the last two together"
)


def page(found: Sequence[Levels]) -> list[Part]:
    """Empty where nothing was measured on several generations."""
    if not found:
        return []
    names = [TITLE, "load", "repeat", "generation", "bring-up", "one start", "bring-ups × generations"]
    heads = columns(names, left=[0, 1], style="bold cyan")
    return [Grid(heads, tuple(row(*_cells(one)) for one in found), gaps=(3,), blank=True), plain(NOTE, "dim")]


def _cells(one: Levels) -> list[str]:
    """A level that was not repeated is a dash."""
    told = one.found
    parts = (told.repeat, told.generation, told.bring_up) if told else (None, None, None)
    lost = "" if one.whole == one.planned else f" of {one.planned}"
    return [
        one.arm.variant,
        one.point.name,
        *("–" if sd is None else f"{100 * sd.sd:.1f} % [{100 * sd.low:.1f}, {100 * sd.high:.1f}]" for sd in parts),
        "–" if one.start is None else f"{100 * one.start:.1f} %",
        f"{one.whole}{lost} × {one.point.generations}",
    ]


def sentence(one: Levels) -> str:
    """`one start is off by 4.1 % (sd; 32 generations, 8 bring-ups), a repeat by 0.6 %`, for a figure."""
    if one.found is None:
        return "no bring-up of which every measurement counts"
    repeat = f", a repeat by {100 * one.found.repeat.sd:.1f} %" if one.found.repeat else ""
    start = "–" if one.start is None else f"{100 * one.start:.1f} %"
    count = one.whole * one.point.generations
    return f"one start is off by {start} (sd; {count} generations, {one.whole} bring-ups){repeat}"
