"""The check of a user's file without a measurement: which keys do nothing, which are defaults, and which can be measured.

The keys are divided by `split`, so that the check lists the same settings that `bench --config` would measure. Nothing
is rendered by kustomize, and no target is used. The durations are those of a plan for the default target on a machine
without earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from lab.analysis.generations import estimate_duration_s
from lab.experiments.configmap import loads, split
from lab.experiments.configmap.reading import FileSettings
from lab.model import names, plan, run
from lab.records import sweep_files

REFERENCE = "direct"
"""The name of the direct reference (the backend without a proxy), which is measured together with variants on plain HTTP."""
Compared = tuple[str, str, bool]
"""The baseline of a variant, its primary metric, and whether it can have a shared-resource cost."""


def describe_parts(place: str, given: FileSettings, parts: split.Split) -> dict[str, Any]:
    """Return the result of a check of a user's ConfigMap, as JSON data; nothing is measured.

    Args:
        place: The name of the file.
        given: The settings in the file.
        parts: The same settings as `split.sort_keys` returns them.

    Returns:
        A mapping with these keys:
        `settings`: the number of settings in the file;
        `keys`: the keys with a remark, whose `kind` is that of `split.KeyNote`;
        `needs_controller`: the keys that only the real controller can put into effect;
        `notes`: notes about the file;
        `can_be_measured`: the keys that can be measured;
        `measurable`: the settings that can be measured, each with its load and duration, the whole file first;
        `duration_s`: the seconds to measure the whole file (`whole`), each key by itself (`each`), and both (`both`).

    """
    testable = list(dict.fromkeys(key for item in parts.singles for key in item.values))
    plans = [(item, *loads.choose_load(item)) for item in [*parts.together(), *parts.singles]]
    singles = [entry for entry in plans if entry[0] in parts.singles]
    return {
        "schema_version": 1,
        "file": place,
        "settings": len(given.data),
        "keys": [
            {"key": key, "value": given.data[key], "kind": kind, "why": text}
            for kind, key, text in parts.remarks
            if key in given.data and not (kind == "here" and key in testable)
        ],
        "needs_controller": list(parts.of_controller),
        "notes": list(given.notes),
        "can_be_measured": testable,
        "measurable": [
            {
                "keys": list(entry[0].values),
                "needs": list(entry[0].needs),
                "whole": entry[0].whole,
                "sweep": entry[1],
                "metric": entry[2],
                "duration_s": _estimate_s([entry]),
            }
            for entry in plans
        ],
        "duration_s": {
            "whole": _estimate_s([entry for entry in plans if entry[0].whole] or singles[:1]),
            "each": _estimate_s(singles),
            "both": _estimate_s(plans),
        },
    }


def _estimate_s(plans: Iterable[tuple[split.KeySetting, str, str, str, str]]) -> float:
    """Return the approximate seconds that measuring some settings takes, with one run for each sweep (list of load points).

    Args:
        plans: (setting, sweep, metric, place of the cost: `process` or `shared`, name of a shipped component or empty) for each setting.

    """
    by_sweep: dict[str, list[Compared]] = {}
    for item, sweep, metric, cost, _ in plans:
        by_sweep.setdefault(sweep, []).append(("-with-".join([item.root, *item.needs]), metric, cost == "shared"))
    return sum(estimate_run_s(sweep, tuple(compared)) for sweep, compared in by_sweep.items())


@cache
def estimate_run_s(sweep_name: str, compared: tuple[Compared, ...]) -> float:
    """Return the approximate seconds that a run of a sweep (list of load points) takes on the default target.

    The result is cached.

    Args:
        sweep_name: The name of the sweep.
        compared: For each variant of the run: (its baseline, its primary metric, whether it can have a shared-resource cost).

    """
    name, sweep = sweep_files.load_sweep(sweep_name)
    points = tuple(point.on_cpus(None) for point in sweep.load_points)
    by_variant = {f"{entry[0]}+{number}": entry for number, entry in enumerate(compared)}
    plain = all(point.disturbance is None and point.tls in ("none", "routed") for point in points)
    arms = plan.list_arms([(variant, entry[0]) for variant, entry in by_variant.items()], REFERENCE if plain else None)
    variants: dict[str, run.VariantRecord] = {}
    for arm in arms:
        base, metric, shared = by_variant.get(arm.variant, (None, None, False))
        facts: dict[str, Any] = {
            "name": arm.variant,
            "baseline": base,
            "primary_metric": metric,
            "shared_cost": shared,
            "base": name,
        }
        variants[arm.variant] = run.VariantRecord.model_construct(**facts, knobs=(), unpaired="")
    # Only what a plan needs: a stored record has an id, a commit and facts, too.
    record = run.RunRecord.model_construct(target=names.DEFAULT_TARGET, arms=arms, points=points, variants=variants)
    return estimate_duration_s(record, sweep.blocks)
