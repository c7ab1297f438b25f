"""A run's noise as a table, and as one sentence that says what to do about it. Milliseconds and microseconds only here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from lab.analysis.judge.rulings import LIMITED
from lab.analysis.noise import Noise, nulls_text, pairs
from lab.analysis.past import Past
from lab.analysis.summary import null_arms
from lab.model.design import GUARD, shape_of
from lab.model.metrics import about
from lab.model.pairs import SIDES
from lab.model.plan import arms_for, plan
from lab.model.run import RunRecord
from lab.report.grid import Grid, Notes, Part, columns, plain, row
from lab.stats import power
from lab.stats.units import format_blocks, format_duration, format_rate, format_seconds

EFFECTS = (0.02, 0.05, 0.1)
SHOWN = ("rate", "cpu_per_request", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class Example:
    """What somebody could measure next: a variant as `bench` takes it, and the noise that counts for it."""

    command: str
    noises: tuple[Noise, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`once_s` and `block_s`: what one variant against its baseline takes here, before its first block and for each."""

    record: RunRecord
    noises: tuple[Noise, ...]
    complete: bool
    once_s: float
    block_s: float

    @property
    def judged(self) -> list[Noise]:
        return [noise for noise in self.noises if not noise.why]

    @property
    def known(self) -> list[Noise]:
        """Judged or not, how much they vary is known."""
        return [noise for noise in self.noises if not noise.why or _limited(noise)]

    def lasts_s(self, blocks: int) -> float:
        return self.once_s + blocks * self.block_s

    def needed(self, noise: Noise, effect: float) -> int | None:
        """How many blocks find an effect of that size (fraction); None: more than the lab measures."""
        return power.blocks_for(noise.sd or 0.0, noise.pilot_blocks, effect)


def report(record: RunRecord, past: Past, complete: bool) -> Report:
    """What `past` taught of `record`, and how long others will take by it."""
    each_s = past.bring_up_s or 0.0  # where nothing came up, nothing is said
    reference = next((arm.name for arm in record.arms if arm.role == "reference"), None)
    arms = arms_for([("variant", "baseline")], reference)
    points = [point for point in record.points if point.disturbance is None]
    sides = SIDES if record.pairs else SIDES[:1]

    def lasts_s(blocks: int) -> float:
        return plan(arms, points, blocks, 0, shape_of(arms, points, blocks, sides)).lasts_s(each_s)

    few, more = (lasts_s(blocks) for blocks in (GUARD, GUARD + 1))  # from there on every block holds the same
    return Report(record, past.noises, complete, few - GUARD * (more - few), more - few)


def page(found: Report, advice: str) -> list[Part]:
    """The table, what is not judged and why, the null comparisons, and what to do."""
    many = len(pairs(found.record.arms)) > 1
    rows = tuple(row(*_cells(found, noise, many)) for noise in found.known if noise.metric in SHOWN)
    told = nulls_line(found)
    ends = (f"{effect:.0%} in" for effect in EFFECTS)
    heads = columns(("point", "metric", "level", "CV", "pair sd", "against itself", *ends), left=(0, 1))
    return [
        *([Grid(heads, rows)] if rows else []),
        Notes(tuple(Text(note, "dim") for note in notes(found)), blank=bool(rows)),
        *([plain(told)] if told else []),
        plain(found.record.id, "dim", blank=True),
        plain(advice, "bold"),
    ]


def _limited(noise: Noise) -> bool:
    """A ceiling's rate that was the generator's: it varies so much here, but no number of blocks makes an effect of it."""
    return noise.metric == "rate" and noise.why == LIMITED and noise.aa is not None and noise.aa.has_interval


def _name(noise: Noise) -> str:
    return about(noise.metric).title + ("†" if _limited(noise) else "")


def _cells(found: Report, noise: Noise, many: bool) -> Iterator[str]:
    yield f"{noise.variant} {noise.point}" if many else noise.point
    yield _name(noise) + ("*" if noise.outliers else "")
    yield level_text(noise)
    yield f"{noise.cv or 0:.1%}"
    yield f"{noise.sd or 0:.1%}"
    yield itself_text(noise)
    for effect in EFFECTS:
        blocks = None if noise.why else found.needed(noise, effect)
        beyond = "–" if noise.why else f"> {power.MAX_BLOCKS}"
        yield f"{blocks}, {format_duration(found.lasts_s(blocks))}" if blocks else beyond


def level_text(noise: Noise) -> str:
    """The blocks' mean with its unit; of fewer than six the smallest and the largest."""
    if noise.few is not None:
        metric = about(noise.metric)
        return f"{'–'.join(dict.fromkeys(map(metric.coarse, noise.few)))} {metric.unit}"
    return f"{format_rate(noise.level)}/s" if noise.metric == "rate" else format_seconds(noise.level)


def itself_text(noise: Noise) -> str:
    """The baseline against itself; – where only variants tell."""
    metric, aa = about(noise.metric), noise.aa
    return f"{metric.change(aa.effect)}{metric.ends(*aa.interval) if aa.interval else ''}" if aa else "–"


def notes(found: Report) -> list[str]:
    """What the columns are, and for each point what is not judged and why."""
    degrees = sorted({noise.pilot_blocks - 1 for noise in found.known})
    lines: list[str] = []
    if degrees:
        nulls = len(null_arms(found.record.arms))
        over = f"pooled over {nulls + 1} pairs of the same variant" if nulls else "of the A/A pair"
        freedom = f"{degrees[0]}" if len(degrees) == 1 else f"{degrees[0]} to {degrees[-1]}"
        counts = sorted({noise.aa.n for noise in found.known if noise.aa})  # valid in both arms of the pair
        fewest = f"{counts[0]} to " if len(counts) > 1 else ""
        lines += [
            f"pair sd: of one block's log-ratio, {over} ({freedom} degrees of freedom); against itself: mean of"
            f" {fewest}{format_blocks(counts[-1])} with its 95 % interval",
            "N % in: blocks that find such an effect with 90 % probability, though the sd is only measured; and how long a"
            " variant and its baseline then take here",
        ]
    if any(noise.outliers for noise in found.known):
        lines.append("*: outliers among the blocks, which its sd, and so its blocks, are due to")
    silent: dict[tuple[str, str], list[str]] = {}
    for noise in found.noises:
        if noise.why and noise.metric in SHOWN:
            silent.setdefault((noise.point, noise.why), []).append(_name(noise))
    lines += [
        f"not judged: {', '.join(dict.fromkeys(metrics))} at {point}: {why}" for (point, why), metrics in silent.items()
    ]
    return lines if found.complete else [*lines, f"not all of its blocks are valid: just table {found.record.id}"]


def nulls_line(found: Report) -> str:
    """How many of the null comparisons were claimed; empty without null arms."""
    return nulls_text(found.noises) if null_arms(found.record.arms) else ""


def advise(found: Report, example: Example, again: str) -> str:
    """What is noise here, and what to run next. `again`: the command that measures the noise anew."""
    if not found.judged:
        return f"nothing is known of the noise here yet: {again}"
    sds = ", ".join(f"{noise.sd or 0:.1%} at {noise.point}" for noise in example.noises)
    name = " and ".join(dict.fromkeys(about(noise.metric).title for noise in example.noises))
    head = f"in {name} one block's comparison scatters by {sds} here"
    for effect in (*EFFECTS, 0.2):
        counts = [found.needed(noise, effect) for noise in example.noises]
        if None not in counts:
            blocks = max(filter(None, counts))
            command = example.command.format(f"{effect:.0%}")
            return f"{head}; `{command}` would take {format_blocks(blocks)}, {format_duration(found.lasts_s(blocks))}"
    return f"{head}, and not even 20 % can be resolved at each: quieten this machine, then {again}"
