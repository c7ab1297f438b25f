"""Everything once on a target, without measuring: each variant comes up and is read back, each study's sweep is held against it.

What it finds is evidence for the matrix (`lab.studies.matrix`), committed as `lab.records.trials` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lab.base.errors import LabError, NotMeasurableError, UsageError
from lab.experiments import sabotage
from lab.model import facts
from lab.model.run import now
from lab.model.variants.variants import load_variant, variant_names
from lab.records import trials
from lab.records.sweep_files import load_sweep
from lab.records.trials import Trial, Tried
from lab.targets.base import Target
from lab.targets.survey import checked, facts_of

TELLING = (
    "cpus",
    "kernel",
    "os",
    "cgroup",
    "privilege",
    "nginx",
    "haproxy",
    "controllers",
    "kubernetes",
    "provider",
    "nodes",
    "cluster",
)
"""Facts that say why something is not possible there."""


def tried(
    target: Target,
    told: Callable[[str, Tried], None],
    sweeps: Mapping[str, Sequence[str]],
    more: Callable[[Mapping[str, Tried]], Sequence[str]],
    names: Sequence[str] = (),
) -> Trial:
    """Try every variant and sweep on a target that was checked; or these variants and the sweeps anew, for the committed trial.

    Args:
        target: Where.
        told: Called with each as it comes.
        sweeps: Each of the studies', with the variants that are measured with it.
        more: What came of every variant → the further ones to try.
        names: The variants that are tried anew; none: every one is.

    Raises:
        UsageError: There is no committed trial to try some of, or it was made on another machine.

    """
    known = facts_of(target)
    here = {name: known[name] for name in TELLING if name in known}
    committed = trials.committed().get(target.name) if names else None
    if names:
        remedy = "leave the variants out: it tries every one"
        if committed is None:
            raise UsageError("--record", f"{trials.TOP} has no trial of {target.name} yet", remedy)
        for name, was in committed.facts.items():
            if name != "cluster" and was != here.get(name):
                fault = f"{committed.place} was made with {name} {was}, here it is {here.get(name)}"
                raise UsageError("--record", fault, remedy)
    found: dict[str, Tried] = {}

    def bring_up(wanted: Sequence[str]) -> None:
        for name in dict.fromkeys(wanted):
            finding = sabotage.intact(target, name)
            found[name] = Tried(outcome=finding.outcome, detail=finding.detail)
            told(name, found[name])

    bring_up(names or variant_names())
    if not names:
        bring_up(more(found))
    accepted: dict[str, Tried] = {}
    for name, on in sweeps.items():
        accepted[name] = _accepted(target, name, on)
        told(name, accepted[name])
    if committed is not None:
        again = {**committed.again, **dict.fromkeys(found, facts.git_commit())}
        changes = {"variants": {**committed.variants, **found}, "sweeps": accepted, "again": again}
        return committed.model_copy(update=changes)
    commit = facts.git_commit()
    return Trial(target=target.name, tried_at=now(), git_commit=commit, facts=here, variants=found, sweeps=accepted)


def _accepted(target: Target, sweep: str, on: Sequence[str]) -> Tried:
    """By the first of its variants that the target can load so; why not, of the last, where there is none."""
    found = Tried(outcome="FAILED", detail="no variant is measured with it")
    points = [point.on_cpus(target.generator_cpus()) for point in load_sweep(sweep)[1].expanded()]
    for name in on:
        try:
            checked(load_variant(name), target, points)
        except NotMeasurableError as error:
            found = Tried(outcome="not measurable", detail=f"{error.what}: {error.why}")
        except LabError as error:
            found = Tried(outcome="FAILED", detail=f"{error.place}: {error.fault}")
        else:
            return Tried(outcome="accepted", detail=f"on {name}")
    return found
