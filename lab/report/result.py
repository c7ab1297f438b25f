"""The result of a finished run, its summaries and tables, made once for the terminal, Markdown and the HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from lab.analysis.aggregate.generations import VarianceComponents, compute_variance_components
from lab.analysis.applied import describe_programs
from lab.analysis.judge.thirds import make_totals_reader
from lab.analysis.knee.report import build_report
from lab.analysis.summary import Summary, summarise_run
from lab.measure import roundtrip
from lab.records.references import describe_boot
from lab.records.store import RunStore
from lab.report.grid import Part, make_sentence
from lab.report.tables import gauges, knee
from lab.report.tables.run import make_tables, yield_verdicts


@dataclass(frozen=True)
class RunResult:
    """The result of one run; its properties raise UsageError where a needed part of the run is damaged."""

    run: RunStore

    @cached_property
    def summaries(self) -> tuple[Summary, Summary]:
        """The summaries of the run's steady loads, and of its disrupted ones."""
        samples, seconds = self.run.samples(), make_totals_reader(self.run)
        programs = tuple(describe_programs(self.run))
        summaries = (
            summarise_run(self.run.record, samples, self.run.histogram, is_disturbed, seconds)
            for is_disturbed in (False, True)
        )
        steady, disturbed = (replace(summary, notes=(*summary.notes, *programs)) for summary in summaries)
        return steady, disturbed

    @cached_property
    def levels(self) -> list[VarianceComponents]:
        """The variance components of what was measured on several generations of workers."""
        return compute_variance_components(self.run.record, self.run.samples())

    @property
    def told(self) -> list[Summary]:
        """The summaries that have rows; the summary of steady loads where neither has."""
        steady, disturbed = self.summaries
        return [steady] * (bool(steady.rows) or not disturbed.rows) + [disturbed] * bool(disturbed.rows)

    @property
    def complete(self) -> bool:
        """The completeness of the result: whether both summaries have all samples that their verdicts need."""
        return all(summary.complete for summary in self.summaries)

    def page(self, elsewhere: str = "") -> Iterator[Part]:
        """Yield the page of the run: a sentence per variant, then the tables.

        Args:
            elsewhere: The command that shows all notes, printed where they are many.

        """
        for summary in self.told:
            yield from yield_verdicts(summary)
        if boots := describe_boot(self.run):
            yield make_sentence(boots, "dim", blank=True)
        for summary in self.told:
            yield from make_tables(summary, elsewhere)
        yield from gauges.variance_page(self.levels)

    def tables(self) -> list[list[Part]]:
        """Return all tables without the sentences; for a search for a knee, what it found."""
        if self.run.record.knee is not None:
            return [knee.page(build_report(self.run))]
        return [*map(make_tables, self.told), gauges.variance_page(self.levels), self.more()]

    def more(self) -> list[Part]:
        """Return what explains a table: the gauges of the systems, and the round trip of the bare network."""
        steady, _ = self.summaries
        gauge_table = gauges.gauges_page(steady) if steady in self.told else []
        network = self.run.roundtrip()
        return [*gauge_table, *([make_sentence(roundtrip.describe_roundtrip(network), "dim")] if network else [])]
