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


def tried(
    target: Target,
    told: Callable[[str, Tried], None],
    sweeps: Mapping[str, Sequence[str]],
    more: Callable[[Mapping[str, Tried]], Sequence[str]],
) -> Trial:
    """Of a target that was checked; each as it comes is `told`. `sweeps`: each of the studies', with the variants that are measured with it;
    `more`: what came of every variant → the further ones to try.
    """
    variants: dict[str, Tried] = {}
    for names in (variant_names, lambda: more(variants)):
        for name in names():
            variants[name] = _intact(target, name, told)
    return Trial(
        target=target.name,
        tried_at=now(),
        git_commit=facts.git_commit(),
        facts=telling_facts(facts_of(target)),
        variants=variants,
        sweeps=_sweeps(target, told, sweeps),
    )


def tried_again(
    target: Target,
    names: Sequence[str],
    told: Callable[[str, Tried], None],
    sweeps: Mapping[str, Sequence[str]],
) -> Trial:
    """The committed trial with these variants, and every sweep, tried anew. UsageError where there is none, or it was made on another machine."""
    committed = trials.committed().get(target.name)
    if committed is None:
        fault = f"{trials.TOP} has no trial of {target.name} yet"
        raise UsageError("--record", fault, "leave the variants out: it tries every one")
    here = telling_facts(facts_of(target))
    for name, was in committed.facts.items():
        if name != "cluster" and was != here.get(name):
            fault = f"{committed.place} was made with {name} {was}, here it is {here.get(name)}"
            raise UsageError("--record", fault, "leave the variants out: it tries every one")
    found = {name: _intact(target, name, told) for name in dict.fromkeys(names)}
    again = dict.fromkeys(found, facts.git_commit())
    return committed.model_copy(
        update={
            "variants": {**committed.variants, **found},
            "sweeps": _sweeps(target, told, sweeps),
            "again": {**committed.again, **again},
        }
    )


def _intact(target: Target, name: str, told: Callable[[str, Tried], None]) -> Tried:
    finding = sabotage.intact(target, name)
    found = Tried(outcome=finding.outcome, detail=finding.detail)
    told(name, found)
    return found


def _sweeps(
    target: Target, told: Callable[[str, Tried], None], sweeps: Mapping[str, Sequence[str]]
) -> dict[str, Tried]:
    found: dict[str, Tried] = {}
    for name, on in sweeps.items():
        found[name] = _accepted(target, name, on)
        told(name, found[name])
    return found


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


def telling_facts(known: Mapping[str, str]) -> dict[str, str]:
    """Those that say why something is not possible there."""
    wanted = (
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
    return {name: known[name] for name in wanted if name in known}
