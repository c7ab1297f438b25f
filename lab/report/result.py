"""What a finished run says, made once and shown on a terminal, as Markdown, JSON or a page: its summaries and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lab.analysis.claims.studies import load_study, study_keys
from lab.analysis.generations import Levels, levels
from lab.analysis.knee.report import report_of
from lab.analysis.summary import Summary, summarise_run
from lab.analysis.thirds import seconds_in
from lab.analysis.what_ran import describe_programs
from lab.measure import roundtrip
from lab.records.references import boots_text
from lab.records.store import RunStore
from lab.report import grid
from lab.report.grid import Part
from lab.report.tables import gauges, generations, knee
from lab.report.tables import study as study_tables
from lab.report.tables.run import sentences, tables


@dataclass(frozen=True)
class Result:
    """Of one run. UsageError where what it needs of the run is damaged, from `study` on where that of its study's file is."""

    run: RunStore

    @cached_property
    def summaries(self) -> tuple[Summary, Summary]:
        """Of steady loads, and of disturbed ones."""
        samples, seconds = self.run.samples(), seconds_in(self.run)
        programs = tuple(describe_programs(self.run))
        steady, disturbed = (
            summarise_run(self.run.record, samples, self.run.histogram, each, seconds) for each in (False, True)
        )
        return (
            replace(steady, notes=(*steady.notes, *programs)),
            replace(disturbed, notes=(*disturbed.notes, *programs)),
        )

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
            yield grid.plain(said, "dim", blank=True)
        for summary in self.told:
            yield from tables(summary, elsewhere)
        yield from generations.page(self.levels)

    def tables(self) -> list[list[Part]]:
        """All, without the sentences; of a search for a knee what it found."""
        if self.run.record.knee is not None:
            return [knee.page(report_of(self.run))]
        return [*map(tables, self.told), generations.page(self.levels), self.more(), self.study()]

    def more(self) -> list[Part]:
        """What the systems hold, and how far the bare network is: what explains a table."""
        steady, _ = self.summaries
        held = gauges.page(steady) if steady in self.told else []
        network = self.run.roundtrip()
        return [*held, *([grid.plain(roundtrip.sentence(network), "dim")] if network else [])]

    @cached_property
    def _shaped(self) -> study_tables.ShapedStudy | None:
        """The run's study with its tables in the published shape."""
        key, (steady, _) = self.run.record.study, self.summaries
        if key not in study_keys() or steady not in self.told:
            return None
        study = load_study(key)
        return study_tables.ShapedStudy(study.key, study.file.question, study_tables.shaped(study, steady))

    def study(self) -> list[Part]:
        """The tables of the run's study in the published shape; empty where it has none."""
        return study_tables.page(self._shaped.tables) if self._shaped else []

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` has it."""
        from lab.report.json.runs import RESULT

        steady, disturbed = self.summaries
        beside = {"roundtrip": self.run.roundtrip(), "study": self._shaped, "levels": tuple(self.levels) or None}
        outcomes = disturbed if disturbed.rows else None
        return RESULT.plain(steady, complete=self.complete, outcomes=outcomes, **beside)
