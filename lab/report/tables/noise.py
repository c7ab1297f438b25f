"""The page about the noise of a run (the variation of equal measurements): a table, and a sentence of advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from lab.analysis.judge.rulings import LIMITED
from lab.analysis.noise import Noise, describe_null_claims, list_aa_variants
from lab.analysis.past import Past
from lab.analysis.summary import list_null_arms
from lab.model.design import NOISE_FLOOR_BLOCKS, choose_shape
from lab.model.metrics import find_metric
from lab.model.pairs import SIDES
from lab.model.plan import list_arms, plan_samples
from lab.model.run import RunRecord
from lab.report.grid import Grid, Notes, Part, make_columns, make_row, make_sentence
from lab.stats import power
from lab.stats.units import format_blocks, format_duration, format_rate, format_seconds

EFFECTS = (0.02, 0.05, 0.1)
SHOWN = ("rate", "cpu_per_request", "p50", "p90", "p99")


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """The next measurement, as the page about a run's noise proposes it to the user.

    Attributes:
        command: A command of `bench`, with `{}` in place of the effect to find.
        noises: The noise of the metrics and load points that determine how many blocks (repetitions) it needs.

    """

    command: str
    noises: tuple[Noise, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The noise of a run, and how long other runs take on this machine.

    Attributes:
        record: The run.
        noises: The noise of each metric at each load point.
        complete: Whether all blocks (repetitions) of the run are valid.
        once_s: The seconds that a run of one variant and its baseline takes here apart from its blocks.
        block_s: The seconds of each block of such a run.

    """

    record: RunRecord
    noises: tuple[Noise, ...]
    complete: bool
    once_s: float
    block_s: float

    @property
    def judged(self) -> list[Noise]:
        """The noise (variation of equal measurements) of each metric at each load point where the run can judge effects."""
        return [noise for noise in self.noises if not noise.why]

    @property
    def known(self) -> list[Noise]:
        """The noise (variation of equal measurements) of each metric at each load point where it is known.

        In addition to `judged`, the list has throughputs that the load generator limited. The run cannot decide about effects on
        these.
        """
        return [noise for noise in self.noises if not noise.why or _is_limited(noise)]

    def lasts_s(self, blocks: int) -> float:
        """Return the seconds that a run of one variant and its baseline takes here with a number of blocks (repetitions)."""
        return self.once_s + blocks * self.block_s

    def needed(self, noise: Noise, effect: float) -> int | None:
        """Return the number of blocks (repetitions) that a run needs to find an effect; None if it is above the lab's maximum.

        Args:
            noise: The noise of the metric at the load point.
            effect: The effect as a fraction: 0.05 is 5 %.

        """
        return power.count_blocks_for_effect(noise.sd or 0.0, noise.pilot_blocks, effect)


def make_report(record: RunRecord, past: Past, complete: bool) -> Report:
    """Return the report on the noise of a run, with the duration of other runs on this machine.

    Args:
        record: The run.
        past: The noise of the run, and the duration of its bring-ups (starts of the systems).
        complete: Whether all blocks (repetitions) of the run are valid.

    """
    bring_up_s = past.bring_up_s or 0.0  # unknown where nothing came up
    reference = next((arm.name for arm in record.arms if arm.role == "reference"), None)
    arms = list_arms([("variant", "baseline")], reference)
    points = [point for point in record.points if not point.has_outcome]
    sides = SIDES if record.pairs else SIDES[:1]

    def lasts_s(blocks: int) -> float:
        return plan_samples(arms, points, blocks, 0, choose_shape(arms, points, blocks, sides)).lasts_s(bring_up_s)

    few, more = (
        lasts_s(blocks) for blocks in (NOISE_FLOOR_BLOCKS, NOISE_FLOOR_BLOCKS + 1)
    )  # from NOISE_FLOOR_BLOCKS on, each takes equally long
    return Report(record, past.noises, complete, few - NOISE_FLOOR_BLOCKS * (more - few), more - few)


def page(report: Report, advice: str) -> list[Part]:
    """Return the page about a run's noise: the table, notes, and the advice.

    A sentence about the run's comparisons of a variant with itself precedes the advice, if there are any.

    Args:
        report: The noise of the run.
        advice: The advice in words.

    """
    many = len(list_aa_variants(report.record.arms)) > 1
    rows = tuple(make_row(*_yield_cells(report, noise, many)) for noise in report.known if noise.metric in SHOWN)
    null_line = describe_nulls(report)
    ends = (f"{effect:.0%} in" for effect in EFFECTS)
    heads = make_columns(("point", "metric", "level", "CV", "pair sd", "against itself", *ends), left=(0, 1))
    return [
        *([Grid(heads, rows)] if rows else []),
        Notes(tuple(Text(note, "dim") for note in notes(report)), blank=bool(rows)),
        *([make_sentence(null_line)] if null_line else []),
        make_sentence(report.record.id, "dim", blank=True),
        make_sentence(advice, "bold"),
    ]


def _is_limited(noise: Noise) -> bool:
    """Return whether the metric is a throughput that was limited by the load generator instead of the proxy.

    Such a throughput shows no effect of the proxy, however many blocks (repetitions) are measured. The result is True
    only if its variation is known: the baseline was compared with itself (A/A), and the effect has an interval.
    """
    return noise.metric == "rate" and noise.why == LIMITED and noise.aa is not None and noise.aa.has_interval


def _name_metric(noise: Noise) -> str:
    return find_metric(noise.metric).title + ("†" if _is_limited(noise) else "")


def _yield_cells(report: Report, noise: Noise, many: bool) -> Iterator[str]:
    yield f"{noise.variant} {noise.point}" if many else noise.point
    yield _name_metric(noise) + ("*" if noise.outliers else "")
    yield level_text(noise)
    yield f"{noise.cv or 0:.1%}"
    yield f"{noise.sd or 0:.1%}"
    yield describe_aa(noise)
    for effect in EFFECTS:
        blocks = None if noise.why else report.needed(noise, effect)
        beyond = "–" if noise.why else f"> {power.MAX_BLOCKS}"
        yield f"{blocks}, {format_duration(report.lasts_s(blocks))}" if blocks else beyond


def level_text(noise: Noise) -> str:
    """Return a metric's mean over the blocks (repetitions) as text with its unit, for example `2.31 ms`.

    With fewer than six blocks, the text is the range of the blocks.
    """
    if noise.few is not None:
        metric = find_metric(noise.metric)
        return f"{'–'.join(dict.fromkeys(map(metric.coarse, noise.few)))} {metric.unit}"
    return f"{format_rate(noise.level)}/s" if noise.metric == "rate" else format_seconds(noise.level)


def describe_aa(noise: Noise) -> str:
    """Return the effect of the baseline against itself (A/A) with its interval as text; `–` if it was not measured."""
    metric, aa = find_metric(noise.metric), noise.aa
    return f"{metric.change(aa.effect)}{metric.ends(*aa.interval) if aa.interval else ''}" if aa else "–"


def notes(report: Report) -> list[str]:
    """Return the notes below the table of a run's noise, one per line.

    They explain the columns, and list the metrics and load points that are not judged, with the reasons.
    """
    degrees = sorted({noise.pilot_blocks - 1 for noise in report.known})
    lines: list[str] = []
    if degrees:
        nulls = len(list_null_arms(report.record.arms))
        over = f"pooled over {nulls + 1} pairs of the same variant" if nulls else "of the A/A pair"
        freedom = f"{degrees[0]}" if len(degrees) == 1 else f"{degrees[0]} to {degrees[-1]}"
        counts = sorted({noise.aa.n for noise in report.known if noise.aa})  # valid in both arms of the pair
        fewest = f"{counts[0]} to " if len(counts) > 1 else ""
        lines += [
            f"pair sd: of one block's log-ratio, {over} ({freedom} degrees of freedom); against itself: mean of"
            f" {fewest}{format_blocks(counts[-1])} with its 95 % interval",
            "N % in: blocks that find such an effect with 90 % probability, though the sd is only measured; and how long a"
            " variant and its baseline then take here",
        ]
    if any(noise.outliers for noise in report.known):
        lines.append("*: outliers among the blocks, which its sd, and so its blocks, are due to")
    unjudged: dict[tuple[str, str], list[str]] = {}
    for noise in report.noises:
        if noise.why and noise.metric in SHOWN:
            unjudged.setdefault((noise.point, noise.why), []).append(_name_metric(noise))
    lines += [
        f"not judged: {', '.join(dict.fromkeys(metrics))} at {point}: {reason}"
        for (point, reason), metrics in unjudged.items()
    ]
    return lines if report.complete else [*lines, f"not all of its blocks are valid: just table {report.record.id}"]


def describe_nulls(report: Report) -> str:
    """Return how many comparisons of a variant with itself came out as significant, in words; empty if the run has none."""
    return describe_null_claims(report.noises) if list_null_arms(report.record.arms) else ""


def advise(report: Report, example: NextMeasurement, again: str) -> str:
    """Return the advice: how large the noise is here, and which measurement to make next.

    Args:
        report: The noise of the run.
        example: The next measurement to propose.
        again: The command that measures the noise again.

    """
    if not report.judged:
        return f"nothing is known of the noise here yet: {again}"
    sds = ", ".join(f"{noise.sd or 0:.1%} at {noise.point}" for noise in example.noises)
    name = " and ".join(dict.fromkeys(find_metric(noise.metric).title for noise in example.noises))
    head = f"in {name} one block's comparison scatters by {sds} here"
    for effect in (*EFFECTS, 0.2):
        counts = [report.needed(noise, effect) for noise in example.noises]
        if None not in counts:
            blocks = max(filter(None, counts))
            command = example.command.format(f"{effect:.0%}")
            return f"{head}; `{command}` would take {format_blocks(blocks)}, {format_duration(report.lasts_s(blocks))}"
    return f"{head}, and not even 20 % can be resolved at each: quieten this machine, then {again}"
