"""What `--json` prints of a pair that was measured on several generations of workers: every generation, and the levels of scatter."""

from __future__ import annotations

from pydantic import Field

from lab.analysis.generations import Generation, Levels
from lab.base.validation import Record
from lab.stats.components import Component


class GenerationJson(Record):
    """Both sides' workers between two reloads. Seconds of CPU a request of each side; `log_ratios`: one for each repeat."""

    block: int = Field(description="the bring-up")
    reload: int = Field(description="how many reloads of both sides before it")
    log_ratios: tuple[float, ...]
    own_s: float
    base_s: float

    @classmethod
    def of(cls, one: Generation) -> GenerationJson:
        return cls(block=one.block, reload=one.reload, log_ratios=one.ratios, own_s=one.own_s, base_s=one.base_s)


class LevelJson(Record):
    """A standard deviation of one system's log CPU per request, with its 95 % interval and degrees of freedom."""

    sd: float
    low: float
    high: float
    degrees: int

    @classmethod
    def of(cls, one: Component | None) -> LevelJson | None:
        return one and cls(sd=one.sd, low=one.low, high=one.high, degrees=one.degrees)


class LevelsJson(Record):
    """One variant at one point; null = a level that was not repeated."""

    variant: str
    point: str
    planned: int = Field(description="bring-ups")
    whole: int = Field(description="bring-ups of which every measurement counts: what the levels are of")
    repeat: LevelJson | None
    generation: LevelJson | None
    bring_up: LevelJson | None
    one_start: float | None = Field(
        description="sd of what a single start is off by: of generation and bring-up together"
    )
    generations: tuple[GenerationJson, ...]

    @classmethod
    def of(cls, one: Levels) -> LevelsJson:
        told = one.found
        repeat, generation, bring_up = (told.repeat, told.generation, told.bring_up) if told else (None, None, None)
        return cls(
            variant=one.arm.variant,
            point=one.point.name,
            planned=one.planned,
            whole=one.whole,
            repeat=LevelJson.of(repeat),
            generation=LevelJson.of(generation),
            bring_up=LevelJson.of(bring_up),
            one_start=one.start,
            generations=tuple(map(GenerationJson.of, one.generations)),
        )
