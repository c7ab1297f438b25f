"""Bring-ups on clusters: the lab's kind cluster, where there is one, and one at a context that is named. Nothing is made for it,
and what is missing is said.

By hand stands nginx started on this machine (see `bring_up`): not the same work, but what one would wait for without a cluster.
No pairs, so that the ratio is that of the medians and has no interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from lab.analysis.selfbench import Report, Row
from lab.base.errors import LabError
from lab.experiments.selfbench import bring_up
from lab.experiments.selfbench.overhead import VARIANT
from lab.model.variants.variants import load_variant
from lab.targets.base import Target
from lab.targets.cluster import docker, kind

NOTE = "the real controller in pods; by hand: nginx on this machine"


NO_CONTEXT = "it needs a context: just selfbench bring-up --context NAME"


def missing() -> str:
    """Why no kind cluster can be measured on here; empty = one can."""
    try:
        docker.engine()
        nodes = kind.nodes()
    except LabError as error:
        return f"{error.place}: {error.fault}"
    if not nodes or not kind.kubeconfig().is_file():
        return f"there is no cluster {kind.name()} of this checkout: `just up kind` makes it"
    stopped = [f"{name} is {state}" for name, state in nodes.items() if state != "running"]
    return ", ".join(stopped)


def measure(target: Target, count: int, say: Callable[[str], None]) -> list[bring_up.Start]:
    """`count` bring-ups of the baseline on that cluster. MeasuringError or UsageError when there is none to be had."""
    target.check()
    variant = load_variant(VARIANT)
    target.check_variant(variant, [])
    return bring_up.measure(target, variant, count, say, by_hand=False)


def rows_of(target: str, found: Sequence[bring_up.Start], by_hand_s: Sequence[float]) -> Report:
    """One row; `by_hand_s`: what nginx took beside the local target, empty = not measured."""
    lab_s = median(start.lab_s for start in found)
    hand_s = median(by_hand_s) if by_hand_s else None
    ratio = lab_s / hand_s if hand_s else None
    row = Row(part="bring-up", what=target, unit="s", lab=lab_s, by_hand=hand_s, ratio=ratio, n=len(found), note=NOTE)
    return Report(rows=(row,))
