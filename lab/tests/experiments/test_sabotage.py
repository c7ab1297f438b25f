"""What a sabotage proves: only a refusal, or a read-back that fails; and trials, of which one machine's takes none of another's. Starts nothing."""

from __future__ import annotations

from typing import Any

import pytest

from lab.base.errors import LabError, MeasuringError, NodeRefusesError, NotMeasurableError, StartError, UsageError
from lab.experiments import sabotage
from lab.experiments.sabotage import Finding
from lab.model.variants.variants import load_variant
from lab.records import trials
from lab.records.trials import TargetTrial, TrialResult
from lab.targets.base import Target
from lab.targets.survey import collect_facts
from lab.tests.support.fakes import FakeTarget


class Failing:
    def __init__(self, error: LabError) -> None:
        self.error = error

    def check_variant(self, variant: Any, points: Any) -> None:
        if isinstance(self.error, UsageError):
            raise self.error

    def up(self, variant: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UsageError("here", "there is no such key"), "caught"),
        (NotMeasurableError("cores", "here", "too many"), "not measurable"),
        (MeasuringError("here", "/1kB.bin is not served"), "FAILED"),
        (StartError("here", "it ends whenever it is started"), "caught"),
    ],
)
def test_a_system_that_does_not_come_up_proves_nothing(error: LabError, outcome: str) -> None:
    target: Any = Failing(error)
    assert sabotage.try_without_knob(target, load_variant("backlog"), "somaxconn-32768", {})[0] == outcome


def test_a_root_with_knobs_is_asked_without_any_of_them_and_another_on_its_baseline() -> None:
    baseline = sabotage._load_baseline  # pyright: ignore[reportPrivateUsage]
    shipped = load_variant("httpd").manifests
    assert [baseline(load_variant(name)).manifests for name in ("httpd-equal", "httpd-log-off")] == [shipped, shipped]


# -- everything once on a target ------------------------------------------------------------------------------

SWEEPS = {"quick": ["baseline"]}


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> dict[str, TargetTrial]:
    """One of this machine, of two variants of which one failed; what is tried now holds."""
    made = TargetTrial(
        target="fake",
        tried_at="2026-01-01",
        git_commit="old",
        facts={
            **{name: value for name, value in collect_facts(FakeTarget()).items() if name in sabotage.EXPLAINING_FACTS},
            "cluster": "another",
        },
        variants={"gzip": TrialResult(outcome="FAILED", detail="no answer"), "keepalive": TrialResult(outcome="holds")},
        sweeps={},
    )
    found = {"fake": made}

    def holds(target: Target, name: str) -> Finding:
        return Finding(name, "", "", "holds", "3 checks")

    monkeypatch.setattr(trials, "read_trials", lambda: found)
    monkeypatch.setattr(sabotage, "try_intact", holds)
    return found


def test_only_what_is_tried_again_changes_and_says_at_which_commit(committed: dict[str, TargetTrial]) -> None:
    told: list[str] = []
    made = sabotage.try_all(FakeTarget(), lambda name, _: told.append(name), SWEEPS, lambda _: [], ["gzip", "gzip"])
    assert made.variants == {
        "gzip": TrialResult(outcome="holds", detail="3 checks"),
        "keepalive": TrialResult(outcome="holds"),
    }
    assert told == ["gzip", "quick"] and list(made.again) == ["gzip"] and made.git_commit == "old"
    assert made.sweeps == {"quick": TrialResult(outcome="accepted", detail="on baseline")}


def test_a_trial_of_another_machine_takes_none(committed: dict[str, TargetTrial]) -> None:
    committed["fake"].facts["cpus"] = "4096"
    with pytest.raises(UsageError, match=r"fake\.json was made with cpus 4096, here it is"):
        sabotage.try_all(FakeTarget(), lambda *_: None, SWEEPS, lambda _: [], ["gzip"])
    committed.clear()
    with pytest.raises(UsageError, match="has no trial of fake yet\n  leave the variants out"):
        sabotage.try_all(FakeTarget(), lambda *_: None, SWEEPS, lambda _: [], ["gzip"])


def test_what_the_node_refuses_it_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise NodeRefusesError("pod n/node-tuning", "tune.sh: net.core.rmem_max: refused by the node")

    monkeypatch.setattr(sabotage, "_bring_up_and_read", refused)
    found = sabotage.try_intact(FakeTarget(), "baseline")
    assert (found.outcome, found.detail) == ("not measurable", "node: tune.sh: net.core.rmem_max: refused by the node")
