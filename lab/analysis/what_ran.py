"""Which programs really ran in a stored run, where others are named, and which of their own defaults they kept: sentences for its tables.

knobs-kind  →  baseline ran with the stand-in's own default --enable-metrics=true, where ingress-nginx 1.15.1 has false (…)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lab.base.errors import LabError
from lab.records.store import RunStore
from lab.systems import stand_ins


def describe_programs(run: RunStore) -> list[str]:
    """Return a sentence for each stand-in that ran in a run, and for each costly default of its own that it kept.

    Derived from the manifests that were applied and the facts that were recorded; empty where the manifests cannot be read, which
    whoever needs them reports.
    """
    record = run.record
    return stand_ins.describe_run(record.target, record.facts, _manifests(run))


def describe_kept_defaults(run: RunStore, arms: Collection[str]) -> str:
    """Return one short sentence about the costly defaults that stand-ins kept in some arms of a run; empty where they kept none there."""
    kept = stand_ins.list_kept_defaults(run.record.target, run.record.facts, _manifests(run))
    return "; ".join(
        f"measured with the stand-in's {setting.name}={setting.stand_in}, where {stand_in.named} has {setting.named}: {setting.costs}"
        for stand_in, setting, those in kept
        if not set(arms).isdisjoint(those)
    )


def _manifests(run: RunStore) -> dict[str, list[dict[str, Any]]]:
    """Return what was applied for each arm; empty where that cannot be read."""
    arms = {arm.name: arm.variant for arm in run.record.arms if arm.role in ("baseline", "variant")}
    try:
        return {name: run.manifests(variant) for name, variant in arms.items()}
    except LabError:
        return {}
