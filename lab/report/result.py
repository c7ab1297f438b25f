"""What a finished run says, made once and shown on a terminal, as Markdown or a page: its summaries and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from lab.analysis.aggregate.generations import Levels, levels
from lab.analysis.applied import describe_programs
from lab.analysis.judge.thirds import seconds_in
from lab.analysis.knee.report import report_of
from lab.analysis.summary import Summary, summarise_run
from lab.measure import roundtrip
from lab.records.references import boots_text
from lab.records.store import RunStore
from lab.report.grid import Part, plain
from lab.report.tables import gauges, knee
from lab.report.tables.run import sentences, tables


@dataclass(frozen=True)
class Result:
    """Of one run. UsageError where what it needs of the run is damaged."""

    run: RunStore

    @cached_property
    def summaries(self) -> tuple[Summary, Summary]:
        """Of steady loads, and of disturbed ones."""
        samples, seconds = self.run.samples(), seconds_in(self.run)
        programs = tuple(describe_programs(self.run))
        found = (summarise_run(self.run.record, samples, self.run.histogram, each, seconds) for each in (False, True))
        steady, disturbed = (replace(summary, notes=(*summary.notes, *programs)) for summary in found)
        return steady, disturbed

    @cached_property
    def levels(self) -> list[Levels]:
        """Where scatter lies, of what was measured on several generations of workers."""
        return levels(self.run.record, self.run.samples())

    @property
    def told(self) -> list[Summary]:
        """Those that have anything to say: the first where neither has."""
        steady, disturbed = self.summaries
        return [steady] * (bool(steady.rows) or not disturbed.rows) + [disturbed] * bool(disturbed.rows)

    @property
    def complete(self) -> bool:
        return all(summary.complete for summary in self.summaries)

    def page(self, elsewhere: str = "") -> Iterator[Part]:
        """A sentence per variant, then the tables. `elsewhere`: the command that shows all notes, where they are many."""
        for summary in self.told:
            yield from sentences(summary)
        if said := boots_text(self.run):
            yield plain(said, "dim", blank=True)
        for summary in self.told:
            yield from tables(summary, elsewhere)
        yield from gauges.levels_page(self.levels)

    def tables(self) -> list[list[Part]]:
        """All, without the sentences; of a search for a knee what it found."""
        if self.run.record.knee is not None:
            return [knee.page(report_of(self.run))]
        return [*map(tables, self.told), gauges.levels_page(self.levels), self.more()]

    def more(self) -> list[Part]:
        """What the systems hold, and how far the bare network is: what explains a table."""
        steady, _ = self.summaries
        held = gauges.page(steady) if steady in self.told else []
        network = self.run.roundtrip()
        return [*held, *([plain(roundtrip.sentence(network), "dim")] if network else [])]
