"""The model of variants: kustomize overlays with their Kubernetes objects, their checks, and the effects that they claim.

    manifests/overlays/keepalive/    a variant: its baseline (another overlay) or its bases, and a list of knobs
    <root>+<knob>+<knob>             a variant without a folder (`naming` has the rules, and the former names)

Variants that would measure nothing are refused: knobs that change nothing, patches that match nothing, containers
that exist in a patch only. Whether a knob takes effect is read back from the running system, elsewhere.
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

from lab.base.errors import NotMeasurableError, UsageError, did_you_mean, refuse_first, refuse_if
from lab.base.validation import Record
from lab.model.metrics import Primary
from lab.model.names import DEFAULT_TARGET
from lab.model.traffic import ENDPOINTS, FIXTURE, MAX_ROUTES
from lab.model.variants import annotations as annotated
from lab.model.variants import diff, kustomize, openshift
from lab.model.variants.hosts import add_routes
from lab.model.variants.knobs import KEYS as KNOB_KEYS
from lab.model.variants.knobs import MANIFESTS, CostPlace, Knob, knob_names, load_knob, parse_patch_targets
from lab.model.variants.knobs import Check as Check  # the type of a variant's read-backs, for importers
from lab.model.variants.naming import (
    AT,
    aliases,
    find_present_name,
    is_variant,
    join_name,
    name_in,
    overlay_names,
    split_name,
)

KEYS = {"resources", "components"}
"""The keys that an overlay's kustomization.yaml may have besides apiVersion, kind and metadata.

Patches are not among them: only knobs make changes.
"""

KNOWN_AS = "lab/known-as"
"""The annotation of a base's Deployment with the names that users know: `deployment/container`."""


Family = Literal["as shipped", "equal work"]
"""The families of systems that are compared only among themselves."""
AS_SHIPPED: Family = "as shipped"
"""The family of systems with their defaults.

In the other family all have the same TLS, log, headers, buffering and workers.
"""


class Overlay(Record):
    """An overlay: the lists and annotations of its kustomization.yaml. Nothing of it is rendered yet.

    A variant without a folder, such as `overlay+knob` (a knob is a single setting), has an Overlay with what its file
    would contain.
    """

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
    cost: CostPlace = Field(
        default="process",
        description="of a root that is another system: where the cost of its difference from others can lie, as a knob's",
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
    """A variant: the Kubernetes objects that kustomize rendered for an overlay, with its knobs and read-backs.

    A knob is a single setting. A read-back is a check that the running system has a value.

    - `baseline`: the name of the parent overlay; None for a root, which has no parent.
    - `knobs`: the knobs of all overlays from the root to this one.
    - `own_knobs`: the names of the knobs that this overlay adds to its baseline.
    - `manifests`: the rendered objects.
    - `readback`: the checks of all these overlays and knobs; of two checks of one setting, the later one counts.
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
    root_cost: CostPlace = Field(default="process", description="what its root's lab/cost says")
    base: str = Field(default="", description="the folder in manifests/base that its root stands on; empty = none")
    only_to_measure_by: str = Field(
        default="", description="why nobody should apply it, by itself and its own knobs; empty = they may"
    )

    def refuse_on(self, target: str) -> None:
        """Raise an error if a target (a place to run systems) cannot run this variant or lacks what one of its knobs sets.

        Args:
            target: The name of the target, such as "local" or "kind".

        Raises:
            NotMeasurableError: The target is not one of `only_on`.

        """
        if self.only_on and target not in self.only_on:
            kind = "a controller" if "apiserver" in self.only_on else "a cluster"
            needs = f"target {' or '.join(self.only_on)}" if DEFAULT_TARGET in self.only_on else kind
            raise NotMeasurableError("target", self.name, f"needs {needs}", f"add --target {self.only_on[0]}")

    @property
    def compared_with(self) -> str | None:
        """The name of the variant that this variant is compared with; None if it is compared with nothing.

        It is the baseline. A root, which has no baseline, may name another system instead.
        """
        return self.baseline or self.compare_with

    @property
    def sweep(self) -> str | None:
        """The name of the sweep (list of loads) in which an effect of this variant could show.

        The last knob (single setting) that the variant adds to its baseline names it; None if it adds none.
        """
        return self.knobs[-1].sweep if self.own_knobs else None

    @property
    def primary_metric(self) -> Primary | None:
        """The metric in which this variant's hypothesis is decided, such as "p99"; None if it has none.

        The overlay states it, or else the last knob (single setting) that the variant adds to its baseline. A variant
        that is compared with nothing has none.
        """
        if self.compared_with is None:
            return None
        return self.stated_metric or (self.knobs[-1].primary_metric if self.own_knobs else None)

    @property
    def shared_cost(self) -> bool:
        """True if a part of this variant's cost can lie in what both sides of a pair share, such as local ports and queues.

        A pair (two variants measured at once) then underestimates the effect. The knobs (settings) that the variant
        adds to its baseline state it, or the overlay if it is a root.
        """
        shared_by_root = self.baseline is None and self.root_cost == "shared"
        return shared_by_root or any(knob.cost == "shared" for knob in self.knobs if knob.name in self.own_knobs)

    @property
    def dose(self) -> float:
        """The size of a known, artificial cost that the variant adds to its baseline, in multiples of a fixed amount.

        It is for variants that test the lab's measuring; 0 for all others.
        """
        return sum(knob.dose or 0.0 for knob in self.knobs if knob.name in self.own_knobs)

    @property
    def manifests_sha256(self) -> str:
        """The SHA-256 digest of the variant's rendered manifests, by which a resumed run detects that they have changed."""
        return hashlib.sha256(json.dumps(self.manifests, sort_keys=True).encode()).hexdigest()

    @property
    def needs(self) -> str:
        """What must happen during a load for this variant to have an effect, if no load of the lab's sweeps causes it yet.

        A sweep is a list of loads. The text is empty if at least one of the knobs (settings) that the variant adds has
        an effect under the existing loads, or if it adds none.
        """
        needs = [knob.needs for knob in self.knobs if knob.name in self.own_knobs]
        return "; ".join(dict.fromkeys(filter(None, needs))) if all(needs) else ""


def variant_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return the sorted names of all listed variants: the overlays, and each component (setting) on the parents that it names.

    A component names parents in its annotation `lab/on`; each makes a variant PARENT+COMPONENT.
    """
    files = sorted(manifests.glob("components/*/kustomization.yaml"))
    times = tuple(path.stat().st_mtime_ns for path in files)
    return sorted({*overlay_names(manifests), *_list_components(manifests, times)})


@lru_cache(maxsize=8)
def _list_components(manifests: Path, times_ns: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the variants PARENT+COMPONENT, for each component (setting) and each parent in its `lab/on`.

    Args:
        manifests: The folder of the manifests.
        times_ns: The times of the components' files. They are only part of the cache's key, so that changed files are
            read anew.

    """
    names: list[str] = []
    for component in knob_names(manifests):
        _, values = annotated.read(manifests / annotated.COMPONENTS / component, Knob, KNOB_KEYS)
        parents: str = values.get("on", "")
        names += [join_name(find_present_name(parent, manifests), [component], manifests) for parent in parents.split()]
    return tuple(names)


def covering_names(manifests: Path = MANIFESTS) -> list[str]:
    """Return a small list of variants that together contain every overlay and every component (setting).

    It has all overlays, and one more variant for each component that no overlay contains. This variant adds the
    component to one of the parents that its annotation `lab/on` names, or else to the root of its system (`root_of`).
    """
    used = {knob for name in overlay_names(manifests) for knob in load_overlay(name, manifests).own_knobs}
    unused = [knob for knob in knob_names(manifests) if knob not in used]
    variant_of = map_components(manifests)
    return [*overlay_names(manifests), *(variant_of[knob] for knob in unused)]


def map_components(manifests: Path = MANIFESTS) -> dict[str, str]:
    """Return a variant that adds a component (setting) to a parent, for every component, by the component's name.

    The parent is one that the component's annotation `lab/on` names, or else the root of its system (`root_of`).
    """
    roots = {knob: find_present_name(knob, manifests) for knob in knob_names(manifests)}
    names = [name for name in reversed(variant_names(manifests)) if split_name(name)[1]]
    return roots | {split_name(name)[1][-1]: name for name in names}


def objects_of(name: str, manifests: Path = MANIFESTS) -> kustomize.Objects:
    """Render a variant and return its Kubernetes objects, without the checks of `load_variant`.

    Args:
        name: The name of the variant.
        manifests: The folder of the manifests.

    Raises:
        UsageError: There is no such variant, a file is faulty, or kustomize fails.

    """
    return kustomize.parse_objects(_render(load_overlay(name, manifests), manifests))


def reference_name(manifests: Path = MANIFESTS) -> str | None:
    """Return the name of the overlay for the direct reference (the backend without a proxy), as its annotation marks it.

    Returns:
        None if no overlay is marked as the reference.

    Raises:
        UsageError: Two overlays are marked.

    """
    names = [
        name for name in overlay_names(manifests) if _read_overlay(manifests / "overlays" / name, manifests).reference
    ]
    refuse_if(
        len(names) > 1, "manifests/overlays", f"{' and '.join(names)} are both annotated lab/reference", "keep one"
    )
    return names[0] if names else None


def load_overlay(name: str, manifests: Path = MANIFESTS) -> Overlay:
    """Read the file of an overlay, or derive the overlay from a name such as `overlay+knob+knob`. Nothing is rendered.

    Args:
        name: The present name or a former one.
        manifests: The folder of the manifests.

    Raises:
        UsageError: There is no such variant, or a file is faulty.

    """
    name = find_present_name(name, manifests) if manifests == MANIFESTS else name_in(name, manifests)
    if name in (folders := overlay_names(manifests)):
        return _read_overlay(manifests / "overlays" / name, manifests)
    parent, added = split_name(name)
    if not added:
        raise UsageError("variant", f"unknown variant '{name}'", _suggest_name(name, manifests))
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


def _suggest_name(name: str, manifests: Path) -> str:
    """Return a remedy for an unknown variant's name: a hint at the most similar known name, or a list of names."""
    former = aliases(manifests)
    names = {*variant_names(manifests), *knob_names(manifests), *former.variants, *former.components, *former.gone}
    hint = did_you_mean(name, names)
    return hint if hint.startswith("did") else f"known: {', '.join(overlay_names(manifests))}; `just list` has all"


def load_chain(name: str, manifests: Path = MANIFESTS) -> tuple[Overlay, ...]:
    """Return an overlay's chain of baselines, with the root first and the overlay itself last.

    Each overlay in the chain is the baseline of the next one.

    Args:
        name: The name of the overlay.
        manifests: The folder of the manifests.

    Raises:
        UsageError: There is no such variant, the baselines form a circle, or a knob is listed twice.

    """
    overlays = [load_overlay(name, manifests)]
    while (parent := overlays[0].baseline) is not None:
        if parent in [overlay.name for overlay in overlays]:
            place = annotated.describe_file(manifests / "overlays" / parent)
            raise UsageError(place, f"resources: a circle of baselines through '{parent}'", "let one of them be a root")
        overlays.insert(0, load_overlay(parent, manifests))
    owner: dict[str, str] = {}
    for overlay in overlays:
        for knob in overlay.own_knobs:
            if knob in owner:
                repetition = "twice" if owner[knob] == overlay.name else f"again, which '{owner[knob]}' has"
                raise UsageError("variant", f"'{overlay.name}' lists knob '{knob}' {repetition}", "name it once")
            owner[knob] = overlay.name
    return tuple(overlays)


def sets_node(name: str) -> bool:
    """Return whether a variant has a knob that changes a setting of the whole node, such as a sysctl outside the pod.

    Only a cluster can measure such a variant. The result is False for a variant that no longer exists.
    """
    try:
        return any(
            check.kind == "node"
            for overlay in load_chain(name)
            for knob in overlay.own_knobs
            for check in load_knob(knob).readback
        )
    except UsageError:
        return False


def load_variant(name: str, manifests: Path = MANIFESTS, fixtures: Sequence[str] = ()) -> Variant:
    """Render a variant and check it; return it with its knobs (settings) and read-backs (checks that these took effect).

    Args:
        name: The name of its folder, or `overlay+knob+knob`; with `@COMMIT` at the end, the variant as of that commit.
        manifests: The folder of the manifests.
        fixtures: Components of manifests/fixtures to apply on top, such as one by which a disruption can be observed.

    Raises:
        UsageError: The variant is unknown or faulty. The message has place, fault and remedy.

    """
    stem, at, ref = name.partition(AT)
    if at:
        return load_variant(stem, manifests / f"at-{ref}", fixtures).model_copy(update={"name": name})
    overlays = load_chain(name, manifests)
    overlay = overlays[-1]
    added = [load_knob(knob, manifests) for knob in overlay.own_knobs]
    knobs = (*(load_knob(knob, manifests) for parent in overlays[:-1] for knob in parent.own_knobs), *added)
    _refuse_contradiction(overlay, added)
    objects = kustomize.parse_objects(_render(overlay, manifests))
    _refuse_idle_knobs(overlay, objects, manifests)
    if fixtures:
        objects = kustomize.parse_objects(_render(overlay, manifests, fixtures=fixtures))
    if FIXTURE in fixtures:
        objects = _spread(objects)
    _refuse_incomplete(overlay, objects)
    return Variant(
        name=find_present_name(overlay.name),  # of older manifests, too
        title=overlay.title,
        study=overlay.study,
        reference=overlay.reference,
        baseline=overlay.baseline and find_present_name(overlay.baseline),
        knobs=knobs,
        own_knobs=overlay.own_knobs,
        manifests=objects,
        stated_metric=overlay.primary_metric,
        compare_with=overlay.compare_with and find_present_name(overlay.compare_with),
        only_on=_only_on(name, [overlays[0].only_on, *(knob.only_on for knob in knobs)]),
        family=overlays[0].family,
        root_cost=overlays[0].cost,
        base=overlays[0].resources[-1].name if overlays[0].resources else "",
        only_to_measure_by="; ".join(filter(None, (part.only_to_measure_by for part in (overlay, *added)))),
        readback=tuple({check.subject: check for part in (*overlays, *knobs) for check in part.readback}.values()),
    )


def _spread(objects: kustomize.Objects) -> kustomize.Objects:
    """Return objects prepared for a mix of requests: with routes for `MAX_ROUTES` hosts, and `ENDPOINTS` backend pods.

    Objects without a route get none. A number of pods other than 1, which a knob has set, is kept.
    """
    several = [
        obj | {"spec": obj["spec"] | {"replicas": ENDPOINTS}}
        if obj["metadata"].get("labels", {}).get("lab/role") == "backend" and obj["spec"].get("replicas") == 1
        else obj
        for obj in objects
    ]
    return add_routes(several, MAX_ROUTES)


def _only_on(name: str, stated: Sequence[str]) -> tuple[str, ...]:
    """Return the targets (places to run systems) that every given `lab/only-on` annotation allows; empty = every target.

    Args:
        name: The name of the variant, for the error message.
        stated: The texts of the annotations, each with targets separated by spaces; an empty text allows every target.

    Raises:
        UsageError: The annotations have no target in common.

    """
    lists = [text.split() for text in stated if text]
    common = tuple(target for target in lists[0] if all(target in targets for targets in lists)) if lists else ()
    fault = f"lab/only-on: no target has all of it: {'; '.join(map(' '.join, lists))}"
    refuse_if(lists and not common, "variant", f"'{name}': {fault}", "leave one of its knobs out")
    return common


def render_without(variant: Variant, *knobs: str, manifests: Path = MANIFESTS, fixtures: Sequence[str] = ()) -> Variant:
    """Return a variant rendered without some of its knobs (settings), but still with the checks for these knobs.

    The checks must then fail on the running system. This tests the checks themselves (mutation testing).

    Args:
        variant: The variant.
        knobs: The names of the knobs to leave out, among those that the variant adds to its baseline.
        manifests: The folder of the manifests.
        fixtures: Components of manifests/fixtures to apply on top.

    Raises:
        UsageError: kustomize fails without the knobs.

    """
    remaining = [knob for knob in variant.own_knobs if knob not in knobs]
    rendered = _render(load_overlay(variant.name, manifests), manifests, remaining, fixtures)
    return variant.model_copy(update={"manifests": kustomize.parse_objects(rendered)})


def diff_against_baseline(variant: Variant, manifests: Path = MANIFESTS) -> str:
    """Return a unified diff of a variant's Kubernetes objects against those of its baseline; empty without a baseline."""
    if variant.baseline is None:
        return ""
    return diff.unified(objects_of(variant.baseline, manifests), variant.manifests, (variant.baseline, variant.name))


def config_snippet(variant: Variant, manifests: Path = MANIFESTS) -> str:
    """Return the commands and patches with which users apply a variant's own settings to their clusters.

    Settings that have patches for OpenShift (annotation `lab/openshift`) are `oc` commands. The others are patches as
    YAML, with the names of objects that users know. The text is empty for a variant without baseline, and for one that
    exists only for measuring.
    """
    if variant.baseline is None or variant.only_to_measure_by:
        return ""
    knobs = [knob for knob in variant.knobs if knob.name in variant.own_knobs]
    commands = openshift.snippet(openshift_patches(variant))
    patched = [knob.name for knob in knobs if not knob.openshift]
    if not patched:
        return commands
    # The variant's own objects may have fixtures, which only the lab's loads need.
    rendered = _render(load_overlay(variant.name, manifests), manifests, patched if commands else None)
    objects = kustomize.parse_objects(rendered)
    user_names = {diff.label(obj): obj["metadata"].get("annotations", {}).get(KNOWN_AS) for obj in objects}
    parts = [commands] if commands else []
    for patch in diff.patches(objects_of(variant.baseline, manifests), objects):
        if known_as := user_names[diff.label(patch)]:
            lab_name = patch["metadata"]["name"]
            patch["metadata"]["name"], container = known_as.split("/")
            for item in patch.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
                item["name"] = container if item["name"] == lab_name else item["name"]
        parts.append(diff.dump(patch))
    return "---\n".join(parts)


def openshift_patches(variant: Variant) -> list[dict[str, Any]]:
    """Return the patches that apply, on OpenShift, the settings that a variant adds to its baseline.

    A patch is one of OpenShift's IngressController, or of the Deployment of its router. Settings without the annotation
    `lab/openshift` are left out.
    """
    return [patch for knob in variant.knobs if knob.name in variant.own_knobs for patch in knob.openshift]


def annotation_schema() -> dict[str, Any]:
    """Return the JSON Schema of the annotations of components and overlays, the content of `lab/schema/annotations.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "metadata.annotations of manifests/components (component) and manifests/overlays (overlay); check: one of the list in lab/readback",
        "$defs": {
            "component": annotated.make_schema(Knob),
            "overlay": annotated.make_schema(Overlay),
            "check": Check.model_json_schema(),
        },
    }


def _read_overlay(folder: Path, manifests: Path) -> Overlay:
    place = annotated.describe_file(folder)
    content, values = annotated.read(folder, Overlay, KEYS)
    root = manifests.resolve()
    resources, components = (
        [(folder / str(entry)).resolve() for entry in content.get(key, [])] for key in ("resources", "components")
    )
    object_files = [path for path in resources if path.parent == folder.resolve() and path.is_file()]
    for key, paths, kind, parent_folders in (
        (
            "resources",
            [path for path in resources if path not in object_files],
            "overlay or base",
            (root / "overlays", root / "base"),
        ),
        ("components", components, "knob", (root / annotated.COMPONENTS,)),
    ):
        for path in paths:
            if path.parent not in parent_folders or not path.is_dir():
                names = [name for parent_folder in parent_folders for name in annotated.list_folders(parent_folder)]
                raise UsageError(place, f"{key}: there is no {kind} '{path.name}'", did_you_mean(path.name, names))
    parents = [path.name for path in resources if path.parent == root / "overlays"]
    parent = parents[0] if parents else None
    refuse_first(
        (not resources, place, "resources: missing or empty", "name a baseline (../NAME) or bases (../../base/NAME)"),
        (
            object_files and components,
            place,
            "components: together with objects of its own",
            f"leave them out: {folder.name}+COMPONENT is the variant with one",
        ),
        (
            len(parents) > 1,
            place,
            f"resources: two baselines, {' and '.join(parents)}",
            "a variant has one; chain them",
        ),
        (
            parent is not None and len(resources) > 1,
            place,
            f"resources: a base together with the baseline '{parent}'",
            "leave it out: the baseline brings its own",
        ),
        (
            parent is not None and not components,
            place,
            f"components: none, so that it is its baseline '{parent}' again",
            "list a knob",
        ),
        (
            parent is not None and "compare_with" in values,
            place,
            "metadata.annotations: lab/compare-with: it has a baseline",
            "leave it out: a variant is compared with its baseline",
        ),
    )
    for key in ("compare_with", "stands_in_for"):
        rival = values.get(key)
        if rival is not None and (rival == folder.name or not is_variant(rival, manifests)):
            rivals = [name for name in overlay_names(manifests) if name != folder.name]
            fault = f"there is no other variant '{rival}'"
            raise UsageError(
                f"{place}: metadata.annotations: {annotated.annotation_key(key)}", fault, did_you_mean(rival, rivals)
            )
    render_paths = [folder.resolve()] if object_files else resources
    lists = {"baseline": parent, "resources": render_paths, "own_knobs": [path.name for path in components]}
    return annotated.validate_annotations(Overlay, {"name": folder.name, **values, **lists}, place, Check)


def _render(
    overlay: Overlay, manifests: Path, only: Sequence[str] | None = None, fixtures: Sequence[str] = ()
) -> bytes:
    """Render the Kubernetes objects of an overlay, and return them as YAML.

    An overlay that adds knobs (settings) is built from its parts instead of its folder, so that overlays with common
    parts share cached results. An overlay that adds no knobs is built from its folder.

    Args:
        overlay: The overlay.
        manifests: The folder of the manifests.
        only: The knobs of `own_knobs` to apply; None = all.
        fixtures: Components of manifests/fixtures to apply on top.

    Raises:
        UsageError: kustomize fails.

    """
    applied = overlay.own_knobs if only is None else only
    fixture_paths = [manifests / "fixtures" / fixture for fixture in fixtures]
    try:
        if not overlay.own_knobs:
            return kustomize.render([manifests / "overlays" / overlay.name], fixture_paths)
        knobs = (manifests / "components" / knob for knob in (*overlay.below, *applied))
        return kustomize.render(overlay.resources, [*knobs, *fixture_paths])
    except kustomize.BuildError as error:
        fault = f"kustomize: {error}".replace(f"{manifests}/", "manifests/")
        remedy = "a knob that names what this base does not have ends so, too"
        raise UsageError(overlay.name, fault, remedy) from None


def _refuse_contradiction(overlay: Overlay, knobs: Sequence[Knob]) -> None:
    values: dict[tuple[object, ...], tuple[str, str]] = {}
    for knob in knobs:
        for check in knob.readback:
            first, value = values.setdefault(check.subject, (knob.name, check.value))
            fault = f"'{overlay.name}': knobs '{first}' and '{knob.name}' set the same thing, to {value} and to {check.value}"
            refuse_if(value != check.value, "variant", fault, "keep one, or make one the baseline")


def _refuse_idle_knobs(overlay: Overlay, objects: kustomize.Objects, manifests: Path) -> None:
    """Raise an error if one of the knobs (settings) that an overlay adds has no effect on the rendered objects.

    A knob has an effect if at least one of the changes that it made is present in the objects with all knobs, or if the
    objects change when the knob is removed. The targets of a knob's patches must exist, too.

    Args:
        overlay: The overlay.
        objects: The objects that the overlay renders.
        manifests: The folder of the manifests.

    Raises:
        UsageError: A target does not exist, or a knob changes nothing.

    """
    knobs = overlay.own_knobs
    with ThreadPoolExecutor() as pool:
        renders = list(pool.map(lambda count: _render(overlay, manifests, knobs[:count]), range(len(knobs))))
    stages = [*map(kustomize.parse_objects, renders), objects]
    for knob, before, after in zip(knobs, stages, stages[1:], strict=False):
        folder = manifests / "components" / knob
        place = annotated.describe_file(folder)
        old_labels = {diff.label(obj) for obj in before}  # a patch may delete its target
        all_objects = (*before, *(obj for obj in after if diff.label(obj) not in old_labels))
        content, _ = annotated.read(folder, Knob, KNOB_KEYS)
        for target in parse_patch_targets(content, place):
            count = sum(map(target.means, all_objects))
            if count == 0 or (target.name and count > 1):
                fault = f"patches.target: there is no {target} in '{overlay.name}'"
                remedy = did_you_mean(str(target), {diff.label(obj) for obj in all_objects})
                raise UsageError(place, fault, remedy)
        lasting = diff.changes(before, after).items() & diff.changes(before, objects).items()
        remaining = [name for name in knobs if name != knob]
        if not lasting and _render(overlay, manifests, remaining) == _render(overlay, manifests):
            fault = f"changes nothing: '{overlay.name}' renders the same without it"
            raise UsageError(place, fault, "see that it names what exists and sets what was not so before")


def _refuse_incomplete(overlay: Overlay, objects: kustomize.Objects) -> None:
    """Raise an error if rendered Kubernetes objects have one of the faults that kustomize itself accepts.

    The faults are a container without image, an image without registry, and a sysctl that is set twice.

    Args:
        overlay: The overlay, for the error message.
        objects: The objects that the overlay renders.

    Raises:
        UsageError: An object has such a fault.

    """
    for obj in objects:
        pod = obj.get("spec", {}).get("template", {}).get("spec", {})
        place = f"{overlay.name}: {diff.label(obj)}"
        containers = [*pod.get("initContainers", []), *pod.get("containers", [])]
        for item in containers:
            if "image" not in item:
                names = [container["name"] for container in containers if "image" in container]
                fault = f"container '{item['name']}' has no image: a patch made it up"
                raise UsageError(place, fault, did_you_mean(item["name"], names))
            if "/" not in item["image"]:
                fault = f"container '{item['name']}': image '{item['image']}' names no registry"
                remedy = "list it in manifests/images and end the component with `transformers: [../../images]`"
                raise UsageError(place, fault, remedy)
        sysctls = [item["name"] for item in pod.get("securityContext", {}).get("sysctls", [])]
        if repeated := [name for name in sysctls if sysctls.count(name) > 1]:
            raise UsageError(place, f"sysctl {repeated[0]} is set twice", "keep one of the knobs that set it")
