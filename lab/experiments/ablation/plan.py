"""Ablation: which knobs of a variant or a study are measured one at a time, which cumulatively, and in which runs.

Every knob is measured in the sweep that its hypothesis names, against what its hypothesis is about:

- one at a time: in the overlay that adds this knob and no other, else on the root alone. An overlay of the subject comes
  first; of the others the nearest to the root counts, if at most one knob lies between (`backlog` on `backlog-128`);
- cumulatively: the root with all knobs up to this one, in the overlays' own order. Measured one at a time only is what adds
  nothing there or is not measurable here; what a study has only to compare its own knobs with (a slow disk); and knobs that
  set the same thing to different values (their read-backs have one subject), but for one that is compared with the other:
  it stays, the other leaves.

One run per sweep. Pure but for reading overlays and knobs: what a variant needs and whether it can be is asked of its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.errors import UsageError
from lab.model.variants.knobs import Knob, load_knob
from lab.model.variants.variants import Overlay, chain, load_overlay, variant_names
from lab.records.ablation import Step


@dataclass(frozen=True, slots=True)
class Owned:
    """A knob of the subject on its root, and the overlays of the subject that list it."""

    knob: Knob
    root: str
    owners: tuple[Overlay, ...] = ()
    beside: bool = False
    """Whether it is there for others to be compared with, and no part of what adds up."""
    cumulative: bool = True
    """Whether it is measured with those before it, too, and other overlays may say what it is compared with."""


@dataclass(frozen=True, slots=True)
class Cumulative:
    """A variant that has these knobs on its root, and the sweep of the last."""

    name: str
    root: str
    knobs: tuple[str, ...]
    sweep: str


Refusal = Callable[[str, str], str | None]
"""(variant, sweep) → why it cannot be there, or be measured here; None if it can."""
FirstRefused = Callable[[Sequence[Cumulative]], tuple[str, str] | None]
"""Of all these together: the first that cannot be or be measured here, and why. It makes them, where they have no folder."""


def knobs_of(names: Iterable[str], manifests: Path, study: bool = False) -> list[Owned]:
    """Every knob in the chains of these variants once per root, in the chains' order. UsageError if there is none.

    `study`: knobs that belong to none are only there for its own to be compared with.
    """
    found: dict[tuple[str, str], Owned] = {}
    asked = list(names)
    for name in asked:
        overlays = chain(name, manifests)
        for overlay in overlays:
            for knob in overlay.own_knobs:
                key = (overlays[0].name, knob)
                known = found.get(key) or Owned(load_knob(knob, manifests), overlays[0].name)
                owners = {owner.name: owner for owner in (*known.owners, overlay)}
                beside = study and known.knob.study is None
                found[key] = Owned(known.knob, known.root, tuple(owners.values()), beside=beside)
    if not found:
        raise UsageError("ablate", f"no knobs: {', '.join(asked)}", "name a variant that has some: `just list`")
    return list(found.values())


def alone_in(owned: Owned, overlays: Sequence[Overlay]) -> Overlay | None:
    """The overlay that adds this knob and no other: the subject's first, else the nearest to its root; None = put it on the root."""
    for overlay in owned.owners:
        if overlay.own_knobs == (owned.knob.name,):
            return overlay
    known = {each.name: each for each in overlays}
    ranked: list[tuple[int, Overlay]] = []
    for overlay in overlays if owned.cumulative else ():
        between, name = 0, overlay.baseline or overlay.name  # knobs on the way down to its root
        while (parent := known.get(name)) is not None and parent.baseline is not None:
            between += len(parent.own_knobs)
            name = parent.baseline
        if overlay.own_knobs == (owned.knob.name,) and name == owned.root and between <= 1:
            ranked.append((between, overlay))
    return min(ranked, key=lambda item: item[0], default=(0, None))[1]


def plan_steps(
    found: Sequence[Owned],
    overlays: Sequence[Overlay],
    refusal: Refusal,
    unmeasurable: Refusal,
    first_refused: FirstRefused,
) -> tuple[Step, ...]:
    """Every knob's two measurements, in order; `overlays` are all there are."""
    clashes = _contradictions(found, overlays)
    steps: list[Step] = []
    for owned in found:
        knob, root, why = owned.knob, owned.root, list[str]()
        overlay = alone_in(owned, overlays)
        alone = overlay.name if overlay else f"{root}+{knob.name}"
        told = refusal(alone, knob.sweep)
        if told:
            why.append(f"alone: {told}")
        only = "one at a time only: " if owned.cumulative else ""
        if owned.beside:
            why.append(f"{only}it is there for others to be compared with")
        elif owned.cumulative and (others := clashes.get((root, knob.name))):
            why.append(f"{only}the same thing is set by {', '.join(others)}")
        elif not told and (cannot := unmeasurable(alone, knob.sweep)):
            why.append(f"{only}{cannot}")
        step = Step(
            knob=knob.name,
            title=knob.title,
            sweep=knob.sweep,
            metric=(overlay.primary_metric if overlay else None) or knob.primary_metric,
            root=root,
            against=overlay.baseline if overlay and overlay.baseline else root,
            alone=None if told else alone,
            cumulative=None,
            why=tuple(why),
        )
        steps.append(step)
    return _together(steps, first_refused, {(owned.root, owned.knob.name) for owned in found if not owned.cumulative})


def _together(
    steps: Sequence[Step], first_refused: FirstRefused, apart: Collection[tuple[str, str]]
) -> tuple[Step, ...]:
    """With the cumulative variants; a knob that is refused among the others is left out of all of them, as those `apart` are."""
    out: dict[tuple[str, str], tuple[str, ...]] = {
        (step.root, step.knob): step.why
        for step in steps
        if (step.root, step.knob) in apart or any("one at a time only" in text for text in step.why)
    }
    while True:
        grown: dict[str, tuple[str, ...]] = {}
        wanted: dict[tuple[str, str], Cumulative] = {}
        for step in (step for step in steps if (step.root, step.knob) not in out):
            knobs = grown[step.root] = (*grown.get(step.root, ()), step.knob)
            alone = step.alone if step.alone and step.against == step.root else f"{step.root}+{step.knob}"
            name = f"{step.root}-upto-{step.knob}" if len(knobs) > 1 else alone
            wanted[step.root, step.knob] = Cumulative(name, step.root, knobs, step.sweep)
        refused = first_refused(list(wanted.values()))
        if refused is None:
            break
        name, why = refused
        step = next(step for step in steps if (made := wanted.get((step.root, step.knob))) and made.name == name)
        out[step.root, step.knob] = (*step.why, f"{'one at a time only' if step.alone else 'nor with others'}: {why}")
    return tuple(
        step.model_copy(update={"cumulative": wanted[step.root, step.knob].name})
        if (step.root, step.knob) in wanted
        else step.model_copy(update={"why": out[step.root, step.knob]})
        for step in steps
    )


def runs_of(steps: Sequence[Step]) -> dict[str, tuple[str, ...]]:
    """Sweep → the variants of its run: those measured alone, then the cumulative ones that end in such a knob."""
    found: dict[str, dict[str, None]] = {}
    for step in steps:
        if step.alone:
            found.setdefault(step.sweep, {})[step.alone] = None
    for step in steps:
        if step.cumulative:
            found.setdefault(step.sweep, {})[step.cumulative] = None
    return {sweep: tuple(names) for sweep, names in found.items()}


def overlays_of(manifests: Path) -> list[Overlay]:
    return [load_overlay(name, manifests) for name in variant_names(manifests)]


def _contradictions(found: Sequence[Owned], overlays: Sequence[Overlay]) -> dict[tuple[str, str], list[str]]:
    """(root, knob) → the others of that root that set what it sets, to another value, and that it is not compared with."""
    known = {overlay.name: overlay for overlay in overlays}
    clashes: dict[tuple[str, str], list[str]] = {}
    for owned in found:
        mine = {check.subject: check.value for check in owned.knob.readback}
        alone = alone_in(owned, overlays)
        parent = known.get(alone.baseline) if alone and alone.baseline else None
        below = parent.own_knobs if parent else ()
        for other in found:
            if other.root != owned.root or other.beside or other.knob.name in below:
                continue
            if any(mine.get(check.subject, check.value) != check.value for check in other.knob.readback):
                clashes.setdefault((owned.root, owned.knob.name), []).append(other.knob.name)
    return clashes
