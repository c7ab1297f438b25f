"""The plan of an ablation: which knobs (settings) of a subject are measured one at a time or cumulatively, and in which runs.

The subject is a variant or a study. Every knob is measured in the sweep (list of load points) that its hypothesis names:

- one at a time: in a variant that adds only this knob to its baseline. This is an overlay of the subject, or else
  another overlay with at most one knob between its baseline and the root (such as `backlog` on `backlog-128`), or else
  the root with this knob;
- cumulatively: in a variant that adds all knobs up to this one to the root, in the order of the overlays.

Some knobs are measured only one at a time: knobs that are refused in the cumulative variant or not measurable here;
knobs that a study needs only for comparison with its own (a slow disk); and knobs that set the same thing to different
values. If the baseline of such a knob has the other knob, the former is measured cumulatively, too, and the latter is not.

There is one run for each sweep. The module reads overlays and knobs, and has no other effects. Its caller decides
whether a variant is possible and measurable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import refuse_if
from lab.model.variants.knobs import Knob, load_knob
from lab.model.variants.variants import Overlay, load_chain, load_overlay, variant_names
from lab.records.ablation import Step


@dataclass(frozen=True, slots=True)
class OwnedKnob:
    """A knob (setting) that an ablation measures, with the overlays (variants) that contain it.

    An ablation measures the knobs of a subject, which is a variant or a study.
    """

    knob: Knob
    root: str
    """The variant without a baseline that the knob is put on."""
    owners: tuple[Overlay, ...] = ()
    """The overlays of the subject that list the knob."""
    for_comparison: bool = False
    """The mark of a knob that is only present for comparison with others, and excluded from cumulative variants."""
    cumulative: bool = True
    """The mark of a knob that is also measured cumulatively; overlays besides its owners may then measure it alone."""


@dataclass(frozen=True, slots=True)
class CumulativeVariant:
    """A cumulative variant, which an ablation measures: a root with a certain knob (setting) and all knobs that come before it.

    Attributes:
        name: The name of the variant.
        root: The name of the root: the variant without a baseline to which the knobs are added.
        knobs: The names of the knobs, in their order.
        sweep: The name of the sweep (list of load points) to measure in, which is that of the last knob.

    """

    name: str
    root: str
    knobs: tuple[str, ...]
    sweep: str


Refusal = Callable[[str, str], str | None]
"""The type of functions that return why a variant is impossible or not measurable in a sweep, or None."""
FirstRefused = Callable[[Sequence[CumulativeVariant]], tuple[str, str] | None]
"""The type of functions that return the first variant that is impossible or not measurable, and why; None for none.

Such a function writes the overlays of the variants that have no folder.
"""


def knobs_of(names: Iterable[str], manifests: Path, study: bool = False) -> list[OwnedKnob]:
    """Return the knobs (settings) of some variants: those that each adds to its baseline, those of this baseline, and so on.

    Each variant is the last of a chain of variants, in which each has the one before it as its baseline. The first of them is
    the root, which has no baseline. A knob appears once for each root. For each variant, knobs nearest to the root come first.

    Args:
        names: The names of the variants.
        manifests: The folder of manifests.
        study: Whether the variants are those of a study. A knob that belongs to no study is then marked as present for comparison only.

    Raises:
        UsageError: The variants have no knobs.

    """
    knobs: dict[tuple[str, str], OwnedKnob] = {}
    subjects = list(names)
    for name in subjects:
        overlays = load_chain(name, manifests)
        for overlay in overlays:
            for knob in overlay.own_knobs:
                key = (overlays[0].name, knob)
                owned = knobs.get(key) or OwnedKnob(load_knob(knob, manifests), overlays[0].name)
                owners = {owner.name: owner for owner in (*owned.owners, overlay)}
                for_comparison = study and owned.knob.study is None
                knobs[key] = OwnedKnob(owned.knob, owned.root, tuple(owners.values()), for_comparison=for_comparison)
    refuse_if(not knobs, "ablate", f"no knobs: {', '.join(subjects)}", "name a variant that has some: `just list`")
    return list(knobs.values())


def find_solo_overlay(owned: OwnedKnob, overlays: Sequence[Overlay]) -> Overlay | None:
    """Return an overlay (a variant with manifests of its own) that adds only the given knob to its baseline; None if there is none.

    The first suitable overlay among the knob's owners is returned. Otherwise it is the suitable overlay that is nearest
    to the root (the variant at the beginning of its chain of baselines), with at most one other knob between them. If
    the knob is not measured cumulatively (`OwnedKnob.cumulative`), only its owners are searched.

    Args:
        owned: The knob.
        overlays: All overlays.

    """
    for overlay in owned.owners:
        if overlay.own_knobs == (owned.knob.name,):
            return overlay
    by_name = {overlay.name: overlay for overlay in overlays}
    ranked: list[tuple[int, Overlay]] = []
    for overlay in overlays if owned.cumulative else ():
        count, name = 0, overlay.baseline or overlay.name  # the number of knobs between the overlay and its root
        while (parent := by_name.get(name)) is not None and parent.baseline is not None:
            count += len(parent.own_knobs)
            name = parent.baseline
        if overlay.own_knobs == (owned.knob.name,) and name == owned.root and count <= 1:
            ranked.append((count, overlay))
    return min(ranked, key=lambda item: item[0], default=(0, None))[1]


def plan_steps(
    knobs: Sequence[OwnedKnob],
    overlays: Sequence[Overlay],
    refusal: Refusal,
    unmeasurable: Refusal,
    first_refused: FirstRefused,
) -> tuple[Step, ...]:
    """Plan an ablation: for each knob (setting), in order, the two variants to measure it with.

    One variant adds the knob alone to its baseline. The other, cumulative one has all knobs up to this one.

    Args:
        knobs: The knobs of the ablation's subject.
        overlays: All overlays (variants with manifests of their own).
        refusal: Returns why a variant is impossible; None if it is possible.
        unmeasurable: Returns why a variant is not measurable here; None if it is.
        first_refused: Returns the first of several cumulative variants that is impossible or not measurable, and why.

    """
    clashes = _find_clashes(knobs, overlays)
    steps: list[Step] = []
    for owned in knobs:
        knob, root, reasons = owned.knob, owned.root, list[str]()
        overlay = find_solo_overlay(owned, overlays)
        alone = overlay.name if overlay else f"{root}+{knob.name}"
        refused = refusal(alone, knob.sweep)
        if refused:
            reasons.append(f"alone: {refused}")
        prefix = "one at a time only: " if owned.cumulative else ""
        if owned.for_comparison:
            reasons.append(f"{prefix}it is there for others to be compared with")
        elif owned.cumulative and (rivals := clashes.get((root, knob.name))):
            reasons.append(f"{prefix}the same thing is set by {', '.join(rivals)}")
        elif not refused and (reason := unmeasurable(alone, knob.sweep)):
            reasons.append(f"{prefix}{reason}")
        step = Step(
            knob=knob.name,
            title=knob.title,
            sweep=knob.sweep,
            metric=(overlay.primary_metric if overlay else None) or knob.primary_metric,
            root=root,
            against=overlay.baseline if overlay and overlay.baseline else root,
            alone=None if refused else alone,
            cumulative=None,
            why=tuple(reasons),
        )
        steps.append(step)
    return _add_cumulative(
        steps, first_refused, {(owned.root, owned.knob.name) for owned in knobs if not owned.cumulative}
    )


def _add_cumulative(
    steps: Sequence[Step], first_refused: FirstRefused, excluded: Collection[tuple[str, str]]
) -> tuple[Step, ...]:
    """Add to each step of an ablation (the measurements of one knob) its cumulative variant: the root with all knobs up to this one.

    If a cumulative variant is refused, its last knob is left out of all cumulative variants of the same root. The step
    of a knob that is left out gets the reason instead.

    Args:
        steps: The steps, one for each knob (setting).
        first_refused: Returns the first of several cumulative variants that is impossible or not measurable, and why.
        excluded: (root, knob) for each knob to leave out from the beginning.

    """
    out: dict[tuple[str, str], tuple[str, ...]] = {
        (step.root, step.knob): step.why
        for step in steps
        if (step.root, step.knob) in excluded or any("one at a time only" in text for text in step.why)
    }
    while True:
        grown: dict[str, tuple[str, ...]] = {}
        planned: dict[tuple[str, str], CumulativeVariant] = {}
        for step in (step for step in steps if (step.root, step.knob) not in out):
            knobs = grown[step.root] = (*grown.get(step.root, ()), step.knob)
            alone = step.alone if step.alone and step.against == step.root else f"{step.root}+{step.knob}"
            name = f"{step.root}-upto-{step.knob}" if len(knobs) > 1 else alone
            planned[step.root, step.knob] = CumulativeVariant(name, step.root, knobs, step.sweep)
        refused = first_refused(list(planned.values()))
        if refused is None:
            break
        name, reason = refused
        step = next(step for step in steps if (variant := planned.get((step.root, step.knob))) and variant.name == name)
        out[step.root, step.knob] = (
            *step.why,
            f"{'one at a time only' if step.alone else 'nor with others'}: {reason}",
        )
    return tuple(
        step.model_copy(update={"cumulative": planned[step.root, step.knob].name})
        if (step.root, step.knob) in planned
        else step.model_copy(update={"why": out[step.root, step.knob]})
        for step in steps
    )


def runs_of(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Return the runs of an ablation: name of a sweep → the names of the variants to measure in it.

    A sweep is a named list of load points. Variants with a single knob (setting) come first, then the cumulative ones, which have several.
    """
    runs: dict[str, dict[str, None]] = {}
    alone = [(step.sweep, step.alone) for step in steps]
    cumulative = [(step.sweep, step.cumulative) for step in steps]
    for sweep, name in (*alone, *cumulative):
        if name:
            runs.setdefault(sweep, {})[name] = None
    return {sweep: tuple(names) for sweep, names in runs.items()}


def overlays_of(manifests: Path) -> list[Overlay]:
    """Return all overlays (variants with manifests of their own) in a folder of manifests."""
    return [load_overlay(name, manifests) for name in variant_names(manifests)]


def _find_clashes(knobs: Sequence[OwnedKnob], overlays: Sequence[Overlay]) -> dict[tuple[str, str], list[str]]:
    """Return which knobs (settings) cannot be combined: (root, knob) → the other knobs that set the same thing to another value.

    A knob does not clash with the knobs of its own baseline, since it is compared with exactly this baseline.

    Args:
        knobs: The knobs of the ablation's subject.
        overlays: All overlays (variants with manifests of their own).

    """
    by_name = {overlay.name: overlay for overlay in overlays}
    clashes: dict[tuple[str, str], list[str]] = {}
    for owned in knobs:
        values = {check.subject: check.value for check in owned.knob.readback}
        alone = find_solo_overlay(owned, overlays)
        parent = by_name.get(alone.baseline) if alone and alone.baseline else None
        compared = parent.own_knobs if parent else ()
        for rival in knobs:
            if rival.root != owned.root or rival.for_comparison or rival.knob.name in compared:
                continue
            if any(values.get(check.subject, check.value) != check.value for check in rival.knob.readback):
                clashes.setdefault((owned.root, owned.knob.name), []).append(rival.knob.name)
    return clashes
