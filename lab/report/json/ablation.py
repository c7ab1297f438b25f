"""What `ablate --json`, and `table --json` of an ablation, print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from lab.records.ablation import AblationRecord, AblationRun, Step
from lab.report.json.effects import DifferenceJson, RatioJson, effect_json
from lab.report.json.printed import Printed
from lab.report.tables.ablation import Ranked


class KnobJson(Step):
    """One knob's line: its step, then what came of it."""

    why: tuple[str, ...] = Field(default=..., description="why it has not")
    point: str | None = Field(description="the load that speaks for it; null = none was measured")
    one_at_a_time: RatioJson | DifferenceJson | None
    cumulatively: RatioJson | DifferenceJson | None
    verdict: str
    snippet: str
    notes: tuple[str, ...]

    @staticmethod
    def of(line: Ranked) -> KnobJson:
        return KnobJson(
            **line.step.model_dump(),
            point=line.point,
            one_at_a_time=effect_json(line.alone) if line.alone else None,
            cumulatively=effect_json(line.cumulative) if line.cumulative else None,
            verdict=line.verdict,
            snippet=line.snippet,
            notes=line.notes,
        )


class AblationJson(Printed):
    """Every knob, alone and cumulatively, in the table's order."""

    model_config = ConfigDict(
        title="What `ablate --json` prints; effects of steady loads are ratios, of disturbed ones differences"
    )

    schema_version: Literal[1]
    id: str
    subject: str
    target: str
    complete: bool
    runs: tuple[AblationRun, ...]
    notes: tuple[str, ...]
    knobs: tuple[KnobJson, ...]


def printed(record: AblationRecord, lines: Sequence[Ranked], complete: bool) -> AblationJson:
    return AblationJson(
        schema_version=1,
        id=record.id,
        subject=record.subject,
        target=record.target,
        complete=complete,
        runs=record.runs,
        notes=record.notes,
        knobs=tuple(map(KnobJson.of, lines)),
    )
