"""An ablation's folder: the runs of its steps."""

from __future__ import annotations

from pydantic import Field

from lab.base.validation import Record
from lab.model.run import NotMeasured
from lab.model.variants.naming import aliases, stored_name


class Step(Record):
    """One knob: the variant that has it alone and what that is compared with, the one that has all up to it; `why` not."""

    knob: str
    title: str
    sweep: str
    metric: str
    root: str
    against: str
    alone: str | None = Field(description="the variant that has this knob alone; null = there is none")
    cumulative: str | None = Field(description="the variant that has all knobs up to it; null = there is none")
    why: tuple[str, ...] = ()


class AblationRun(Record):
    """One sweep's run. `run` is null until it begins; it never does where nothing of it is measurable here."""

    sweep: str
    variants: tuple[str, ...]
    run: str | None = None
    not_measurable: tuple[NotMeasured, ...] = ()
    skipped: bool = Field(default=False, description="nothing of it is measurable here")


class AblationRecord(Record):
    """`ablation.json`."""

    schema_version: int = 1
    id: str
    created_at: str
    command: tuple[str, ...]
    subject: str
    target: str
    blocks: int | None = Field(description="null = as many as each sweep says")
    seed: int
    steps: tuple[Step, ...]
    runs: tuple[AblationRun, ...]
    notes: tuple[str, ...] = ()

    def with_present_names(self) -> AblationRecord:
        """Return the record with the names that its variants have now, as its runs are read."""
        former, variants = aliases().components, ("root", "against", "alone", "cumulative")
        steps = tuple(
            step.model_copy(
                update={key: name and stored_name(name) for key in variants for name in [getattr(step, key)]}
                | {"knob": former.get(step.knob, step.knob)}
            )
            for step in self.steps
        )
        runs = tuple(
            run.model_copy(
                update={
                    "variants": tuple(map(stored_name, run.variants)),
                    "not_measurable": tuple(
                        each.model_copy(update={"variant": stored_name(each.variant)}) for each in run.not_measurable
                    ),
                }
            )
            for run in self.runs
        )
        return self.model_copy(update={"steps": steps, "runs": runs})
