"""What `gate --json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from lab.analysis.decision import Decision
from lab.analysis.gate.gate import Gate, Gated, Verdict, worse_by
from lab.report.json.printed import Count, Printed, Share
from lab.report.tables.gate import conclusion


class GatedJson(Printed):
    """A gated row; `just compare --json` has all others too."""

    point: str
    metric: str
    base_arm: str
    other_arm: str
    verdict: Verdict
    relative: bool = Field(
        description="bound and worse_by are fractions; else in the metric's own unit: seconds, bytes, counts"
    )
    bound: float
    worse_by: float | None = Field(description="negative = better")
    worse_by_at_most: float | None = Field(description="the worse end of the 95 % interval; null below six blocks")
    holm_p_value: Share | None = Field(description="as in the comparison")
    blocks: Count
    decision: Decision
    decides: bool = Field(description="false: its minimum detectable effect in the planned blocks is above the bound")
    close: bool = Field(description="a regression less than 1 % above its bound, to be measured a second time")
    said: str
    do: str
    notes: tuple[str, ...]

    @staticmethod
    def of(one: Gated) -> GatedJson:
        row = one.row
        base, other = row.pair
        return GatedJson(
            point=row.point.name,
            metric=row.metric,
            base_arm=base,
            other_arm=other,
            verdict=one.verdict,
            relative=row.relative,
            bound=one.limit,
            worse_by=worse_by(row, row.estimate.effect) if row.estimate else None,
            worse_by_at_most=one.worst,
            holm_p_value=row.holm_p,
            blocks=row.estimate.n if row.estimate else 0,
            decision=row.decision,
            decides=one.decides,
            close=one.close,
            said=one.said,
            do=one.do,
            notes=row.notes,
        )


class GateJson(Printed):
    """Rows are the gated ones only."""

    model_config = ConfigDict(title="What `gate --json` prints; null = not known")

    schema_version: Literal[2]
    base: str = Field(description="the run that it is held against")
    other: str = Field(description="the run that is judged; of one run the same")
    paired: bool
    strict: bool = Field(description="whether `cannot-tell` ends with exit status 2")
    max_regression: Annotated[float, Field(gt=0, lt=1)] | None = Field(description="a fraction, of steady loads")
    max_more: dict[str, Annotated[float, Field(ge=0)]] = Field(
        description="by metric, in its own unit, of disturbed loads"
    )
    verdict: Verdict
    exit_status: Annotated[int, Field(ge=0, le=2)]
    conclusion: str
    missing: tuple[str, ...] = Field(description="asked for, and not in the other run: arms, points, metrics, loads")
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    rows: tuple[GatedJson, ...] = Field(min_length=1)


class GateUnchangedJson(Printed):
    """What `gate --against REF --json` prints where no rendered manifest changed and nothing was measured."""

    schema_version: Literal[2]
    verdict: Verdict
    exit_status: Annotated[int, Field(ge=0, le=2)]
    conclusion: str
    unchanged: tuple[str, ...] = Field(description="variants whose rendered manifests are the same at the ref")


def printed(gate: Gate, strict: bool) -> GateJson:
    return GateJson(
        schema_version=2,
        base=gate.comparison.base.id,
        other=gate.comparison.other.id,
        paired=gate.comparison.paired,
        strict=strict,
        max_regression=gate.bounds.regression,
        max_more=dict(gate.bounds.more),
        verdict=gate.verdict,
        exit_status=gate.exit_status(strict),
        conclusion=conclusion(gate, strict),
        missing=gate.missing,
        left_out=gate.left_out,
        notes=gate.comparison.notes,
        rows=tuple(map(GatedJson.of, gate.rows)),
    )
