"""Variants: kustomize overlays → what to apply, what to read back, and what they claim to change.

    manifests/overlays/keepalive/    a variant: its baseline (another overlay) or its bases, and a list of knobs
    <root>+<knob>+<knob>             a variant without a folder (`naming` has the rules, and the names of before)

Refuses variants that would measure nothing: knobs that change nothing, patches that match nothing, containers
that exist in a patch only. Whether a knob *takes* is read back from the running system, elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from lab.base.errors import NotMeasurableError, UsageError, did_you_mean
from lab.base.validation import Record
from lab.model.metrics import Primary
from lab.model.variants import annotations as annotated
from lab.model.variants import diff as differences
from lab.model.variants import kustomize, openshift
from lab.model.variants.knobs import KEYS as KNOB_KEYS
from lab.model.variants.knobs import MANIFESTS, Cost, Knob, knob_names, load_knob, targets
from lab.model.variants.knobs import Check as Check  # what a variant is read back by
from lab.model.variants.naming import (
    AT,
    aliases,
    is_variant,
    join_name,
    name_in,
    overlay_names,
    present_name,
    split_name,
)

KEYS = {"resources", "components"}
"""What an overlay's kustomization.yaml may hold beside apiVersion, kind and metadata: a change is a knob's."""

KNOWN_AS = "lab/known-as"
"""Annotation of a base's Deployment: `deployment/container`, the names under which users have it."""


Family = Literal["as shipped", "equal work"]
AS_SHIPPED: Family = "as shipped"
"""Each system with its own defaults; in the other family all have the same TLS, log, headers, buffering and workers."""


class Overlay(Record):
    """One overlay's annotations and lists, or what `overlay+knob` would say in a file; not rendered."""

    name: str = Field(description="the overlay's folder", json_schema_extra=annotated.NOT_AN_ANNOTATION)
    title: str = Field(min_length=1, description="what it is, against its baseline")
    study: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$", description="the key of the study it belongs to")
    reference: bool = Field(default=False, description="measured in some blocks of every run as the direct reference")
    primary_metric: Primary | None = Field(
        default=None, description="the one metric that may claim, where it is not its last knob's"
    )
    compare_with: str | None = Field(
        default=None,
        description="of a root that is another system: the overlay it is compared with, for no baseline is its own",
    )
    cost: Cost = Field(
        default="process",
        description="of a root that is another system: where the cost of what tells it from others can lie, as a knob's",
    )
    stands_in_for: str | None = Field(
        default=None,
        description="the overlay of a system that it is measured in the place of, where a target cannot run that",
    )
    only_on: str = Field(
        default="", description="of a root: the targets that can run it, with blanks between; empty = every one"
    )
    family: Family = Field(
        default=AS_SHIPPED,
        description="of a root: in which family of comparisons it is; systems of different families are never compared",
    )
    only_to_measure_by: str | None = Field(
        default=None,
        min_length=20,
        description="what is learnt by it, of what nobody should choose, where its knobs do not say it",
    )
    readback: tuple[Check, ...] = Field(
        default=(), description="how to see that what its bases set took: YAML text, a list of checks"
    )
    baseline: str | None = Field(
        default=None, description="the parent overlay", json_schema_extra=annotated.NOT_AN_ANNOTATION
    )
    resources: tuple[Path, ...] = Field(default=(), json_schema_extra=annotated.NOT_AN_ANNOTATION)
    below: tuple[str, ...] = Field(
        default=(),
        description="knobs of a parent without a folder, which lie under its own",
        json_schema_extra=annotated.NOT_AN_ANNOTATION,
    )
    own_knobs: tuple[str, ...] = Field(default=(), json_schema_extra=annotated.NOT_AN_ANNOTATION)


class Variant(Record):
    """One overlay, rendered.

    `baseline` is the parent overlay's name, None for a root. `knobs` are those of the whole chain, root
    first; `own_knobs` those that this overlay adds to its baseline. `manifests` are the objects that
    `kustomize build` printed. `readback` is the union of the checks of all overlays of the chain and of all
    knobs, later ones replacing earlier ones that read the same thing.
    """

    name: str
    title: str
    study: str | None
    reference: bool = Field(default=False, description="measured in some blocks of every run as the direct reference")
    baseline: str | None
    knobs: tuple[Knob, ...]
    own_knobs: tuple[str, ...]
    manifests: tuple[dict[str, Any], ...]
    readback: tuple[Check, ...]
    stated_metric: Primary | None = Field(default=None, description="what its overlay's lab/primary-metric says")
    compare_with: str | None = Field(default=None, description="what a root says it is compared with")
    only_on: tuple[str, ...] = Field(default=(), description="the targets that can run it; empty = every one")
    family: Family = AS_SHIPPED
    root_cost: Cost = Field(default="process", description="what its root's lab/cost says")
    base: str = Field(default="", description="the folder in manifests/bases that its root stands on; empty = none")
    only_to_measure_by: str = Field(
        default="", description="why nobody should apply it, by itself and its own knobs; empty = they may"
    )

    def refuse_on(self, target: str) -> None:
        """NotMeasurableError for a target that cannot run its system, or has nothing of what a knob sets."""
        if self.only_on and target not in self.only_on:
            where = " and ".join(self.only_on)
            raise NotMeasurableError(
                "target", self.name, f"it runs on target {where} alone", f"--target {self.only_on[0]}"
            )

    @property
    def compared_with(self) -> str | None:
        """Its baseline, or the other system that a root names; None for a root that stands alone."""
        return self.baseline or self.compare_with

    @property
    def sweep(self) -> str | None:
        """The sweep that its last own knob names; None without knobs of its own."""
        return self.knobs[-1].sweep if self.own_knobs else None

    @property
    def primary_metric(self) -> Primary | None:
        """What its overlay says, or what its last own knob's hypothesis is about; None where it is compared with nothing."""
        if self.compared_with is None:
            return None
        return self.stated_metric or (self.knobs[-1].primary_metric if self.own_knobs else None)

    @property
    def shared_cost(self) -> bool:
        """Whether the cost of one of its own knobs, or of the system that it is, can lie in what a pair shares."""
        if self.baseline is None and self.root_cost == "shared":
            return True
        return any(knob.cost == "shared" for knob in self.knobs if knob.name in self.own_knobs)

    @property
    def dose(self) -> float:
        """Units of a known cost that its own knobs add."""
        return sum(knob.dose or 0.0 for knob in self.knobs if knob.name in self.own_knobs)

    @property
    def manifests_sha256(self) -> str:
        """By which a run knows again what it applied."""
        return hashlib.sha256(json.dumps(self.manifests, sort_keys=True).encode()).hexdigest()

    @property
    def needs(self) -> str:
        """What no sweep does and every own knob needs for an effect to show; empty where one of them needs nothing."""
        own = [knob.needs for knob in self.knobs if knob.name in self.own_knobs]
        return "; ".join(dict.fromkeys(filter(None, own))) if all(own) else ""


def variant_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return every variant that is listed: the overlays' folders, and each component on the parents that its `lab/on` names."""
    files = sorted(manifests.glob("components/*/kustomization.yaml"))
    times = tuple(path.stat().st_mtime_ns for path in files)
    return sorted({*overlay_names(manifests), *_listed(manifests, times)})


@lru_cache(maxsize=8)
def _listed(manifests: Path, times_ns: tuple[int, ...]) -> tuple[str, ...]:
    """`times_ns`: of the components' files, so that they are read anew when one changes."""
    names: list[str] = []
    for component in knob_names(manifests):
        _, values = annotated.read(manifests / annotated.COMPONENTS / component, Knob, KNOB_KEYS)
        parents: str = values.get("on", "")
        names += [join_name(present_name(parent, manifests), [component], manifests) for parent in parents.split()]
    return tuple(names)


def covering_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the fewest variants that hold every overlay and every component: the overlays, and one more for each component of none of them.

    That is the first on which it is listed, else its own system's root.
    """
    own = {knob for name in overlay_names(manifests) for knob in load_overlay(name, manifests).own_knobs}
    listed = {split_name(name)[1][-1]: name for name in reversed(variant_names(manifests)) if split_name(name)[1]}
    left = [knob for knob in knob_names(manifests) if knob not in own]
    return [*overlay_names(manifests), *(listed.get(knob, present_name(knob, manifests)) for knob in left)]


def objects_of(name: str, manifests: Path = MANIFESTS) -> kustomize.Objects:
    """Return what a variant renders, without any of the checks of `load_variant`. UsageError where it does not build."""
    return kustomize.objects(_render(load_overlay(name, manifests), manifests))


def reference_name(manifests: Path = MANIFESTS) -> str | None:
    """The overlay annotated as the direct reference. UsageError when there are two."""
    found = [
        name for name in overlay_names(manifests) if _read_overlay(manifests / "overlays" / name, manifests).reference
    ]
    if len(found) > 1:
        raise UsageError("manifests/overlays", f"{' and '.join(found)} are both annotated lab/reference", "keep one")
    return found[0] if found else None


def load_overlay(name: str, manifests: Path = MANIFESTS) -> Overlay:
    """One overlay's file, or what `parent+knob+knob` would say in one, by any of its names. UsageError; renders nothing."""
    name = present_name(name, manifests) if manifests == MANIFESTS else name_in(name, manifests)
    if name in (folders := overlay_names(manifests)):
        return _read_overlay(manifests / "overlays" / name, manifests)
    parent, added = split_name(name)
    if not added:
        raise UsageError("variant", f"unknown variant '{name}'", _nearest(name, manifests))
    base = load_overlay(parent, manifests)
    knobs = [load_knob(knob, manifests) for knob in added]
    has_folder = base.name in folders
    return Overlay(
        name=name,
        title="; ".join(knob.title for knob in knobs),
        study=knobs[0].study if len({knob.study for knob in knobs}) == 1 else None,
        baseline=base.name,
        resources=(manifests / "overlays" / base.name,) if has_folder else base.resources,
        below=() if has_folder else (*base.below, *base.own_knobs),
        own_knobs=added,
    )


def _nearest(name: str, manifests: Path) -> str:
    """A remedy: the variant or component whose name, of now or of before, is nearest."""
    former = aliases(manifests)
    known = {*variant_names(manifests), *knob_names(manifests), *former.variants, *former.components, *former.gone}
    near = did_you_mean(name, known)
    return near if near.startswith("did") else f"known: {', '.join(overlay_names(manifests))}; `just list` has all"


def chain(name: str, manifests: Path = MANIFESTS) -> tuple[Overlay, ...]:
    """The overlay with all its baselines, root first. UsageError for a circle and for a knob that comes twice."""
    found = [load_overlay(name, manifests)]
    while (parent := found[0].baseline) is not None:
        if parent in [overlay.name for overlay in found]:
            where = annotated.place(manifests / "overlays" / parent)
            raise UsageError(where, f"resources: a circle of baselines through '{parent}'", "let one of them be a root")
        found.insert(0, load_overlay(parent, manifests))
    owner: dict[str, str] = {}
    for overlay in found:
        for knob in overlay.own_knobs:
            if knob in owner:
                whose = "twice" if owner[knob] == overlay.name else f"again, which '{owner[knob]}' has"
                raise UsageError("variant", f"'{overlay.name}' lists knob '{knob}' {whose}", "name it once")
            owner[knob] = overlay.name
    return tuple(found)


def of_the_node(name: str) -> bool:
    """Whether a variant sets what is the node's own, which only a cluster's can be; False for one that there is not any more."""
    try:
        return any(
            check.kind == "node"
            for each in chain(name)
            for knob in each.own_knobs
            for check in load_knob(knob).readback
        )
    except UsageError:
        return False


def load_variant(name: str, manifests: Path = MANIFESTS, fixtures: Sequence[str] = ()) -> Variant:
    """One variant by its folder or as `overlay+knob+knob`, rendered and checked. UsageError with place, fault and remedy.

    `fixtures`: components of manifests/fixtures that its objects are laid over with, for a disturbance to be seen by.
    """
    stem, at, ref = name.partition(AT)
    if at:
        return load_variant(stem, manifests / f"at-{ref}", fixtures).model_copy(update={"name": name})
    overlays = chain(name, manifests)
    overlay = overlays[-1]
    own = [load_knob(knob, manifests) for knob in overlay.own_knobs]
    knobs = (*(load_knob(knob, manifests) for each in overlays[:-1] for knob in each.own_knobs), *own)
    _refuse_contradiction(overlay, own)
    objects = kustomize.objects(_render(overlay, manifests))
    _refuse_idle_knobs(overlay, objects, manifests)
    if fixtures:
        objects = kustomize.objects(_render(overlay, manifests, fixtures=fixtures))
    _refuse_incomplete(overlay, objects)
    return Variant(
        name=present_name(overlay.name),  # of older manifests, too
        title=overlay.title,
        study=overlay.study,
        reference=overlay.reference,
        baseline=overlay.baseline and present_name(overlay.baseline),
        knobs=knobs,
        own_knobs=overlay.own_knobs,
        manifests=objects,
        stated_metric=overlay.primary_metric,
        compare_with=overlay.compare_with and present_name(overlay.compare_with),
        only_on=_only_on(name, [overlays[0].only_on, *(knob.only_on for knob in knobs)]),
        family=overlays[0].family,
        root_cost=overlays[0].cost,
        base=overlays[0].resources[-1].name if overlays[0].resources else "",
        only_to_measure_by="; ".join(filter(None, (each.only_to_measure_by for each in (overlay, *own)))),
        readback=tuple({check.subject: check for each in (*overlays, *knobs) for check in each.readback}.values()),
    )


def _only_on(name: str, stated: Sequence[str]) -> tuple[str, ...]:
    """The targets that each of these has that names any; empty = every one. UsageError where no target is left."""
    named = [words.split() for words in stated if words]
    left = tuple(target for target in named[0] if all(target in words for words in named)) if named else ()
    if named and not left:
        fault = f"lab/only-on: no target has all of it: {'; '.join(map(' '.join, named))}"
        raise UsageError("variant", f"'{name}': {fault}", "leave one of its knobs out")
    return left


def without(variant: Variant, *knobs: str, manifests: Path = MANIFESTS) -> Variant:
    """The variant less some of its own knobs, but read back as if it had them: a sabotage that must be caught. UsageError."""
    others = [own for own in variant.own_knobs if own not in knobs]
    rendered = _render(load_overlay(variant.name, manifests), manifests, others)
    return variant.model_copy(update={"manifests": kustomize.objects(rendered)})


def diff(variant: Variant, manifests: Path = MANIFESTS) -> str:
    """A unified diff of the rendered objects against the baseline's; empty for a root."""
    if variant.baseline is None:
        return ""
    return differences.unified(
        objects_of(variant.baseline, manifests), variant.manifests, (variant.baseline, variant.name)
    )


def config_snippet(variant: Variant, manifests: Path = MANIFESTS) -> str:
    """What applies the own knobs to a cluster of one's own. Empty for a root, and for what is only to measure by.

    `oc` commands for the knobs that OpenShift's operator has a field for; for the others patches as YAML, under the names
    that users know.
    """
    if variant.baseline is None or variant.only_to_measure_by:
        return ""
    own = [knob for knob in variant.knobs if knob.name in variant.own_knobs]
    commands = openshift.snippet(openshift_patches(variant))
    others = [knob.name for knob in own if not knob.openshift]
    if not others:
        return commands
    objects = variant.manifests
    if commands:
        objects = kustomize.objects(_render(load_overlay(variant.name, manifests), manifests, others))
    labelled = {differences.label(obj): obj["metadata"].get("annotations", {}).get(KNOWN_AS) for obj in objects}
    found = [commands] if commands else []
    for patch in differences.patches(objects_of(variant.baseline, manifests), objects):
        if known_as := labelled[differences.label(patch)]:
            lab_name = patch["metadata"]["name"]
            patch["metadata"]["name"], container = known_as.split("/")
            for item in patch.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                item["name"] = container if item["name"] == lab_name else item["name"]
        found.append(differences.dump(patch))
    return "---\n".join(found)


def openshift_patches(variant: Variant) -> list[dict[str, Any]]:
    """What sets its own knobs on OpenShift, as far as its operator has a field for them."""
    return [patch for knob in variant.knobs if knob.name in variant.own_knobs for patch in knob.openshift]


def annotation_schema() -> dict[str, Any]:
    """JSON Schema of what `metadata.annotations` may hold, as `lab/schema/annotations.json` has it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metadata.annotations of manifests/components (component) and manifests/overlays (overlay); check: one of the list in lab/readback",
        "$defs": {
            "component": annotated.schema(Knob),
            "overlay": annotated.schema(Overlay),
            "check": Check.model_json_schema(),
        },
    }


def _read_overlay(folder: Path, manifests: Path) -> Overlay:
    where = annotated.place(folder)
    content, values = annotated.read(folder, Overlay, KEYS)
    root = manifests.resolve()
    resources, listed = (
        [(folder / str(entry)).resolve() for entry in content.get(key, [])] for key in ("resources", "components")
    )
    own = [path for path in resources if path.parent == folder.resolve() and path.is_file()]
    for key, paths, what, places in (
        (
            "resources",
            [path for path in resources if path not in own],
            "overlay or base",
            (root / "overlays", root / "base"),
        ),
        ("components", listed, "knob", (root / annotated.COMPONENTS,)),
    ):
        for path in paths:
            if path.parent not in places or not path.is_dir():
                known = [name for each in places for name in annotated.folders(each)]
                raise UsageError(where, f"{key}: there is no {what} '{path.name}'", did_you_mean(path.name, known))
    parents = [path.name for path in resources if path.parent == root / "overlays"]
    parent = parents[0] if parents else None
    rules = (
        (not resources, "resources: missing or empty", "name a baseline (../NAME) or bases (../../base/NAME)"),
        (
            own and listed,
            "components: beside objects of its own",
            f"leave them out: {folder.name}+COMPONENT is the variant with one",
        ),
        (
            len(parents) > 1,
            f"resources: two baselines, {' and '.join(parents)}",
            "a variant has one; chain them",
        ),
        (
            parent is not None and len(resources) > 1,
            f"resources: a base beside the baseline '{parent}'",
            "leave it out: the baseline brings its own",
        ),
        (
            parent is not None and not listed,
            f"components: none, so that it is its baseline '{parent}' again",
            "list a knob",
        ),
        (
            parent is not None and "compare_with" in values,
            "metadata.annotations: lab/compare-with: it has a baseline",
            "leave it out: a variant is compared with its baseline",
        ),
    )
    for broken, fault, remedy in rules:
        if broken:
            raise UsageError(where, fault, remedy)
    for key in ("compare_with", "stands_in_for"):
        other = values.get(key)
        if other is not None and (other == folder.name or not is_variant(other, manifests)):
            others = [name for name in overlay_names(manifests) if name != folder.name]
            fault = f"there is no other variant '{other}'"
            raise UsageError(f"{where}: metadata.annotations: {annotated.key(key)}", fault, did_you_mean(other, others))
    shown = [folder.resolve()] if own else resources
    found = {"baseline": parent, "resources": shown, "own_knobs": [path.name for path in listed]}
    return annotated.validated(Overlay, {"name": folder.name, **values, **found}, where, Check)


def _render(
    overlay: Overlay, manifests: Path, only: Sequence[str] | None = None, fixtures: Sequence[str] = ()
) -> bytes:
    """With these of its own knobs only. By what it lists, not by its folder, so that overlays which begin alike share builds."""
    own = overlay.own_knobs if only is None else only
    laid_over = [manifests / "fixtures" / fixture for fixture in fixtures]
    try:
        if not overlay.own_knobs:
            return kustomize.render([manifests / "overlays" / overlay.name], laid_over)
        knobs = (manifests / "components" / knob for knob in (*overlay.below, *own))
        return kustomize.render(overlay.resources, [*knobs, *laid_over])
    except kustomize.BuildError as error:
        fault = f"kustomize: {error}".replace(f"{manifests}/", "manifests/")
        remedy = "a knob that names what this base does not have ends so, too"
        raise UsageError(overlay.name, fault, remedy) from None


def _refuse_contradiction(overlay: Overlay, own: Sequence[Knob]) -> None:
    said: dict[tuple[object, ...], tuple[str, str]] = {}
    for knob in own:
        for check in knob.readback:
            first, value = said.setdefault(check.subject, (knob.name, check.value))
            if value != check.value:
                fault = f"'{overlay.name}': knobs '{first}' and '{knob.name}' set the same thing, to {value} and to {check.value}"
                raise UsageError("variant", fault, "keep one, or make one the baseline")


def _refuse_idle_knobs(overlay: Overlay, objects: kustomize.Objects, manifests: Path) -> None:
    """Each own knob must matter: its targets exist, and a change that it makes lasts, or the render is another one without it."""
    own = overlay.own_knobs
    with ThreadPoolExecutor() as pool:
        renders = list(pool.map(lambda count: _render(overlay, manifests, own[:count]), range(len(own))))
    grown = [*map(kustomize.objects, renders), objects]
    for knob, before, after in zip(own, grown, grown[1:], strict=False):
        folder = manifests / "components" / knob
        where = annotated.place(folder)
        known = {differences.label(obj) for obj in before}  # a patch may delete what it is for
        known_objects = (*before, *(obj for obj in after if differences.label(obj) not in known))
        content, _ = annotated.read(folder, Knob, KNOB_KEYS)
        for target in targets(content, where):
            count = sum(map(target.means, known_objects))
            if count == 0 or (target.name and count > 1):
                fault = f"patches.target: there is no {target} in '{overlay.name}'"
                remedy = did_you_mean(str(target), {differences.label(obj) for obj in known_objects})
                raise UsageError(where, fault, remedy)
        lasting = differences.changes(before, after).items() & differences.changes(before, objects).items()
        others = [other for other in own if other != knob]
        if not lasting and _render(overlay, manifests, others) == _render(overlay, manifests):
            fault = f"changes nothing: '{overlay.name}' renders the same without it"
            raise UsageError(where, fault, "see that it names what exists and sets what was not so before")


def _refuse_incomplete(overlay: Overlay, objects: kustomize.Objects) -> None:
    """What kustomize lets through: containers without an image, images without a registry, a sysctl given twice."""
    for obj in objects:
        pod = obj.get("spec", {}).get("template", {}).get("spec", {})
        place = f"{overlay.name}: {differences.label(obj)}"
        containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
        for item in containers:
            if "image" not in item:
                real = [each["name"] for each in containers if "image" in each]
                fault = f"container '{item['name']}' has no image: a patch made it up"
                raise UsageError(place, fault, did_you_mean(item["name"], real))
            if "/" not in item["image"]:
                fault = f"container '{item['name']}': image '{item['image']}' names no registry"
                remedy = "list it in manifests/images and end the component with `transformers: [../../images]`"
                raise UsageError(place, fault, remedy)
        sysctls = [item["name"] for item in pod.get("securityContext", {}).get("sysctls", [])]
        if twice := [name for name in sysctls if sysctls.count(name) > 1]:
            raise UsageError(place, f"sysctl {twice[0]} is set twice", "keep one of the knobs that set it")
