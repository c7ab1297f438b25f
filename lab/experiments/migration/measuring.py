"""A plan → the variants of one run: ingress-nginx with the file, and each successor as shipped and with its settings."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lab.base.errors import NotMeasurableError, UsageError
from lab.experiments.ablation.folder import refusal_in
from lab.experiments.configmap import knobs
from lab.experiments.configmap.reading import Given
from lab.experiments.configmap.split import BASELINE, split
from lab.experiments.migration.folder import as_far_as_taken, has_manifests
from lab.experiments.migration.plan import Plan
from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.targets.base import Target
from lab.targets.survey import checked


def variants(found: Plan, manifests: Path, target: Target) -> tuple[str, list[str], list[str]]:
    """(ingress-nginx with the file, the successors, notes), in a copy of the manifests, to which their overlays are added.

    UsageError when none of the successors can be measured.
    """
    ours, notes = _ours(found, manifests)
    refusal = partial(refusal_in, manifests, target)
    names: list[str] = []
    for each in found.migrations:
        if not has_manifests(each.system, manifests):
            notes.append(f"{each.system}: the lab has no manifests of it yet: not measured")
            continue
        if told := refusal(each.system):
            notes.append(f"{each.system}: not measured here: {told}")
            continue
        if (why := _not_here(each.system, manifests, target)) and (other := _stand_in(each.system, manifests)):
            names.append(other)
            notes.append(f"{each.system}: {why}; {other} stands in for it, which takes none of its settings")
            continue
        yours, told = as_far_as_taken(manifests, each, refusal)
        names += [each.system, *([yours] if yours else [])]
        notes += told
    if not names:
        raise UsageError("migrate", "no successor can be measured here", "\n  ".join(notes))
    return ours, names, notes


def _not_here(name: str, manifests: Path, target: Target) -> str:
    """Why this target cannot show a variant; empty if it can."""
    try:
        checked(load_variant(name, manifests), target, [])
    except NotMeasurableError as error:
        return f"{error.fault} ({error.remedy})"
    return ""


def _stand_in(system: str, manifests: Path) -> str | None:
    """The overlay that is measured in a system's place where that cannot run."""
    overlays = (load_overlay(name, manifests) for name in variant_names(manifests))
    return next((overlay.name for overlay in overlays if overlay.stands_in_for == system), None)


def _ours(found: Plan, manifests: Path) -> tuple[str, list[str]]:
    """The baseline itself where the file changes nothing that can be measured."""
    try:
        parts = split(found.place, Given(found.given, found.notes))
    except UsageError as error:
        return BASELINE, [f"{found.place}: {error.fault}: ingress-nginx is measured as it is shipped"]
    return knobs.whole(parts, manifests), list(parts.notes)
