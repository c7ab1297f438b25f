"""The result of a finished run, its summaries and tables, made once for the terminal, Markdown and the HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from rich.text import Text

from lab.analysis.aggregate.generations import VarianceComponents, compute_variance_components
from lab.analysis.applied import list_notes_on_defaults, list_programs
from lab.analysis.explain.conclusion import conclude_run
from lab.analysis.judge.thirds import make_totals_reader
from lab.analysis.knee.report import build_report
from lab.analysis.rate_costs import RateCost, compute_rate_costs
from lab.analysis.summary import Summary, summarise_run
from lab.measure import roundtrip
from lab.records.references import describe_boot
from lab.records.store import RunStore
from lab.report.grid import Part, Sentences, make_advice, make_sentence
from lab.report.tables import gauges, knee
from lab.report.tables.run import make_tables

MOST_NAMED = 3
"""The most variants or places with missing samples that a page or a line names; of more, the number is given or nothing."""


@dataclass(frozen=True)
class RunResult:
    """The result of one run: its summaries, tables and page.

    A property raises UsageError if a part of the run that it needs is damaged.
    """

    run: RunStore

    @cached_property
    def summaries(self) -> tuple[Summary, Summary]:
        """Two summaries of the run: of its steady loads, and of its disrupted loads."""
        samples, seconds = self.run.samples(), make_totals_reader(self.run)
        defaults = tuple(list_notes_on_defaults(self.run))
        summaries = (
            summarise_run(self.run.record, samples, self.run.histogram, is_disturbed, seconds)
            for is_disturbed in (False, True)
        )
        steady, disturbed = (replace(summary, notes=(*summary.notes, *defaults)) for summary in summaries)
        return steady, disturbed

    @cached_property
    def levels(self) -> list[VarianceComponents]:
        """The variance components, by variant and load: how much the CPU cost varies between repeats, reloads and restarts.

        Only variants that were measured at once with themselves (as a pair) have them, at load points that were measured
        with several repeats, or before and after a reload. Empty if the run has neither.
        """
        return list(compute_variance_components(self.run.record, self.run.samples()))

    @cached_property
    def rate_costs(self) -> list[RateCost]:
        """The idle cost (CPU at rate 0) and the marginal cost (CPU of each additional request) of each variant.

        Only variants that were measured at two offered rates are in the list.
        """
        return compute_rate_costs(self.summaries[0])

    @property
    def shown_summaries(self) -> list[Summary]:
        """The summaries that have rows: first that of the run's steady loads, then that of its disrupted loads.

        If neither summary has rows, the list contains only the summary of the steady loads.
        """
        steady, disturbed = self.summaries
        return [steady] * (bool(steady.rows) or not disturbed.rows) + [disturbed] * bool(disturbed.rows)

    @property
    def complete(self) -> bool:
        """True if both tables of the run are complete, of its steady and of its disrupted loads (`Summary.complete`)."""
        return all(summary.complete for summary in self.summaries)

    @property
    def missing(self) -> str:
        """The places of the run that lack planned samples, in words; empty if no place lacks any.

        A place is an arm (variant) at a load, solo or as one side of its pair. Example: `keepalive at ceiling has 4 of 6
        (not measured)`. At most three places (`MOST_NAMED`) are named, and the others are counted. The reason in brackets
        is the most frequent one of the place's invalid samples, or `not measured` if it has none.

        If the run is not complete, `just bench`, `study` and `migrate` print the text in their last line on stderr, and
        end with exit status 1.
        """
        cells = [
            cell
            for summary in self.summaries
            for row in summary.rows
            if row.arm.role != "reference" and row.missing is None
            for cell in (None if row.cell.complete else row.cell, row.pair.lacking if row.pair else None)
            if cell is not None
        ]
        texts: dict[str, None] = {}  # a baseline is in the pairs of several arms
        for cell in cells:
            why = max(cell.invalid, key=cell.invalid.__getitem__, default="not measured")
            texts[f"{cell.arm.name} at {cell.point.name} has {cell.valid_blocks} of {cell.planned_blocks} ({why})"] = (
                None
            )
        parts = list(texts)
        more = f", and {len(parts) - MOST_NAMED} more" if len(parts) > MOST_NAMED else ""
        return "; ".join(parts[:MOST_NAMED]) + more

    def page(self, elsewhere: str = "", report: str = "", absolute: bool = True, every: bool = True) -> Iterator[Part]:
        """Yield the parts of the run's page: the programs that ran, the conclusion, what to apply, then the tables.

        Args:
            elsewhere: The command that shows all rows and notes. If it is given, a terminal prints it instead of many notes.
            report: The address of the run's HTML page, to be printed; empty: none.
            absolute: Whether to show absolute values in all metrics, and of variants with an inconclusive difference, too.
            every: Whether to show every row.

        """
        record = self.run.record
        if boots := describe_boot(self.run):
            yield make_sentence(boots, "dim")
        yield make_sentence(describe_programs(self.run), "dim")
        variants = [arm for arm in record.arms if arm.role == "variant"]
        for arm in variants if len(variants) <= MOST_NAMED else ():
            yield make_sentence(f"{arm.name}: {record.variants[arm.variant].title}", "dim")
        snippets: list[Part] = []
        for number, summary in enumerate(self.shown_summaries):
            for place, (line, verdicts) in enumerate(conclude_run(summary, record)):
                style = {"apply": "bold green", "worse": "bold red"}.get(verdicts[0].kind, "bold") if verdicts else ""
                markdown = f"- {line.strip()}" if line[:1] == " " else line
                yield Sentences((Text(line, style),), (markdown,), blank=not place and not number)
                snippets += [
                    make_advice(f"To apply {verdict.arm}:", verdict.snippet, bold=False, blank=True)
                    for verdict in verdicts
                    if verdict.snippet
                ]
        if report:
            yield Sentences((Text(f"report: {report}"),), None)
        yield from snippets
        for summary in self.shown_summaries:
            yield from make_tables(summary, elsewhere, absolute, every)
        yield from gauges.rate_costs_page(self.rate_costs)
        yield from gauges.variance_page(self.levels)

    def tables(self) -> list[list[Part]]:
        """Return all tables of the run, in groups, without the sentences that begin the run's page.

        If the run is a search for the knee (the highest rate that a variant serves within the latency bound), the only group is
        the page of this search.
        """
        if self.run.record.knee is not None:
            return [knee.page(build_report(self.run))]
        costs = gauges.rate_costs_page(self.rate_costs)
        return [*map(make_tables, self.shown_summaries), costs, gauges.variance_page(self.levels), self.more()]

    def more(self) -> list[Part]:
        """Return further information about the run's systems: their gauges, and the round trip of the network without a proxy.

        A gauge is a value that a system reports about itself, such as the size of its configuration.
        """
        steady, _ = self.summaries
        gauge_table = gauges.gauges_page(steady) if steady in self.shown_summaries else []
        network = self.run.roundtrip()
        return [*gauge_table, *([make_sentence(roundtrip.describe_roundtrip(network), "dim")] if network else [])]


def describe_programs(run: RunStore) -> str:
    """Return a line about a run: its target, and the programs that really ran as the proxy, with their versions.

    If there were several programs, each is followed by the arms (variants of the run) that it ran for, or by their number
    if they are more than three (`MOST_NAMED`).
    """
    programs = list_programs(run)
    named = (
        program
        if len(programs) == 1
        else f"{program} ({', '.join(arms) if len(arms) <= MOST_NAMED else f'{len(arms)} variants'})"
        for program, arms in programs.items()
    )
    return f"on {run.record.target}: {'; '.join(named) or 'which programs ran is not recorded'}"
