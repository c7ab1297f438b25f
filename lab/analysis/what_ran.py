"""Which programs really ran in a stored run, where others are named, and which of their own defaults they kept: sentences for its tables.

knobs-kind  →  baseline ran with the stand-in's own default --enable-metrics=true, where ingress-nginx 1.15.1 has false (…)
"""

from __future__ import annotations

from lab.base.errors import LabError
from lab.records.store import RunStore
from lab.targets import stand_ins


def describe_programs(run: RunStore) -> list[str]:
    """Return a sentence for each stand-in that ran in a run, and for each costly default of its own that it kept.

    Derived from the manifests that were applied and the facts that were recorded; empty where the manifests cannot be read, which
    whoever needs them reports.
    """
    record = run.record
    arms = {arm.name: arm.variant for arm in record.arms if arm.role in ("baseline", "variant")}
    try:
        manifests = {name: run.manifests(variant) for name, variant in arms.items()}
    except LabError:
        return []
    return stand_ins.describe_run(record.target, record.facts, manifests)
