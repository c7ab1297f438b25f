"""Variants × points × blocks → the ordered list of samples. Pure: the same seed gives the same order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import UsageError
from lab.model.sweeps import Point

AGAIN = "-again"
"""Suffix of the baseline's second name in the A/A pair."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One bring-up per block: a variant under a name, and the arm it is compared with (None = nothing)."""

    name: str
    variant: str
    role: ArmRole
    baseline: str | None


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned sample."""

    order: int
    block: int
    arm: Arm
    point: Point

    @property
    def bring_up(self) -> tuple[int, str, str]:
        """Slots of one bring-up: block, arm, and, as a disturbance leaves a system changed, the point of one."""
        return self.block, self.arm.name, self.point.name if self.point.disturbance is not None else ""

    def sample_id(self, attempt: int, generation: int = 0) -> str:
        """Folder name: order, block, arm, point; `generation` counts re-measured blocks, `attempt` re-measurements."""
        again = f"-g{generation}" if generation else ""
        retry = f"-try{attempt}" if attempt > 1 else ""
        return f"{self.order:04d}-b{self.block:02d}-{self.arm.name}-{self.point.name}{again}{retry}"


@dataclass(frozen=True, slots=True)
class Plan:
    arms: tuple[Arm, ...]
    points: tuple[Point, ...]
    blocks: int
    seed: int
    slots: tuple[Slot, ...]

    @property
    def measuring_s(self) -> float:
        """Warm-up and measuring, without bring-ups."""
        return sum(slot.point.warmup_s + slot.point.duration_s for slot in self.slots)

    @property
    def bring_ups(self) -> int:
        return len({slot.bring_up for slot in self.slots})


def arms_for(variants: Sequence[tuple[str, str | None]], reference: str | None) -> tuple[Arm, ...]:
    """The run's arms from (variant, its baseline) pairs, in the order asked for.

    Each baseline is measured with its variants, and a second time under another name; a variant without
    a baseline is its own baseline. A baseline that itself is asked for is not measured thrice. UsageError when a
    variant has the name of such a second measurement.
    """
    arms: dict[str, Arm] = {}
    baselines: dict[str, None] = {}
    for name, baseline in variants:
        if baseline is not None and baseline != name:
            arms[name] = Arm(name, name, "variant", baseline)
        baselines.setdefault(baseline or name)
    for name in baselines:
        own = arms.get(name)  # a baseline of one variant that is itself a variant with a baseline
        arms[name] = own or Arm(name, name, "baseline", None)
        if name + AGAIN in arms:
            fault = f"is what the second measurement of '{name}' is called in a run"
            raise UsageError(name + AGAIN, fault, "rename the overlay, or measure it apart from its baseline")
        arms[name + AGAIN] = Arm(name + AGAIN, name, "again", name)
    if reference is not None and all(arm.variant != reference for arm in arms.values()):
        arms[reference] = Arm(reference, reference, "reference", None)
    return tuple(arms.values())


def plan(arms: Sequence[Arm], points: Sequence[Point], blocks: int, seed: int) -> Plan:
    """Split plot: in every block each arm comes up once, in shuffled order, and inside it every point runs once, shuffled.

    The reference arm is block 0, at every point once, before the others.
    """
    shuffle = random.Random(seed)
    slots: list[Slot] = []
    for block in range(blocks + 1):
        chosen = [arm for arm in arms if (arm.role == "reference") == (block == 0)]
        for arm in shuffle.sample(chosen, len(chosen)):
            for point in shuffle.sample(list(points), len(points)):
                slots.append(Slot(len(slots) + 1, block, arm, point))
    return Plan(tuple(arms), tuple(points), blocks, seed, tuple(slots))


ArmRole = Literal["variant", "baseline", "again", "reference"]

TAKES_S = 3.5
"""For forecasts: it measures for a second, and waits for two."""
