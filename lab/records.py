"""What `run.json` holds: a run as it is known before its first sample. Refuses unknown keys."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from lab.plan import Arm, Plan, Slot
from lab.sweeps import Point

SCHEMA = 1


class VariantRecord(BaseModel):
    """What a run keeps of each variant beside its manifests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    baseline: str | None
    knobs: tuple[str, ...]
    own_knobs: tuple[str, ...]
    primary_metric: str | None
    hypothesis_sweep: str | None
    manifests_sha256: str
    snippet: str = Field(default="", description="what to apply on a real cluster for its own knobs")


class RunRecord(BaseModel):
    """`run.json`: everything about a run that is known before the first sample, and how it was resumed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = SCHEMA
    id: str
    created_at: str
    command: tuple[str, ...]
    target: str
    sweep: str
    seed: int
    blocks: int
    arms: tuple[Arm, ...]
    points: tuple[Point, ...]
    slots: tuple[tuple[int, str, str], ...] = Field(description="the plan in order: (block, arm, point)")
    variants: dict[str, VariantRecord]
    generators: dict[str, dict[str, str | None]] = Field(
        description="point → name, version and stand_in_for of its generator"
    )
    facts: dict[str, str]
    git_commit: str | None
    resumed: tuple[dict[str, str], ...] = Field(default=(), description="when, and which facts had changed")

    def plan(self) -> Plan:
        arms = {arm.name: arm for arm in self.arms}
        points = {point.name: point for point in self.points}
        slots = tuple(
            Slot(order, block, arms[arm], points[point])
            for order, (block, arm, point) in enumerate(self.slots, start=1)
        )
        return Plan(self.arms, self.points, self.blocks, self.seed, slots)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
