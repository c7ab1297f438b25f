"""`python -m lab.tests.support.overlay_knobs NAME…`: does each overlay differ from its baseline by exactly its knobs?

A root that lists knobs is held against the root of the same bases without any. One line each, `NAME<tab>ok` or
`NAME<tab>fault`, in one process, so that what overlays have in common is rendered once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab.base.errors import LabError
from lab.model.variants import diff as differences
from lab.model.variants import kustomize
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.naming import join_name, overlay_names
from lab.model.variants.variants import load_variant


def fault(name: str) -> str:
    """What the overlay changes must be what its knobs change one by one on the same baseline, no more and no less."""
    variant = load_variant(name)
    if variant.baseline is None and not variant.own_knobs:
        return ""
    baseline = variant.baseline or plain_root(name)
    if baseline is None:
        return f"a root with knobs {variant.own_knobs}, and none of the same bases without"
    before = load_variant(baseline).manifests
    single: dict[tuple[str, str], differences.ValueChange] = {}
    for knob in variant.own_knobs:
        alone = differences.changes(before, load_variant(join_name(baseline, [knob])).manifests)
        if not alone:
            return f"{knob} changes nothing"
        if both := set(alone) & set(single):
            return f"{knob} changes what another one changes: {both}"
        single |= alone
    together = differences.changes(before, variant.manifests)
    for key in {*together, *single}:
        if together.get(key) != single.get(key):
            return f"{key}: the overlay changes {together.get(key)}, its knobs {single.get(key)}"
    return ""


def plain_root(name: str) -> str | None:
    """The overlay of the same bases that lists no knob."""
    bases = _file(name)["resources"]
    roots = ((each, _file(each)) for each in overlay_names())
    return next((each for each, file in roots if file["resources"] == bases and "components" not in file), None)


def _file(name: str) -> Any:
    return kustomize.read_yaml(MANIFESTS / "overlays" / name / "kustomization.yaml", "")


def line(name: str) -> str:
    try:
        return f"{name}\t{fault(name) or 'ok'}"
    except LabError as error:
        return f"{name}\t{error.place}: {error.fault}"


def main(names: Iterable[str]) -> None:
    with ThreadPoolExecutor() as pool:
        for found in pool.map(line, names):
            sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
