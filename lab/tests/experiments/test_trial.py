"""Variants tried again go into the committed trial of the same machine, and into no other."""

from __future__ import annotations

import pytest

from lab.base.errors import NodeRefusesError, UsageError
from lab.experiments import sabotage, trial
from lab.experiments.sabotage import Finding
from lab.records import trials
from lab.records.trials import Trial, Tried
from lab.targets.base import Target
from lab.targets.survey import facts_of
from lab.tests.support.fakes import FakeTarget

SWEEPS = {"quick": ["baseline"]}


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Trial]:
    """One of this machine, of two variants of which one failed; what is tried now holds."""
    made = Trial(
        target="fake",
        tried_at="2026-01-01",
        git_commit="old",
        facts={
            **{name: value for name, value in facts_of(FakeTarget()).items() if name in trial.TELLING},
            "cluster": "another",
        },
        variants={"gzip": Tried(outcome="FAILED", detail="no answer"), "keepalive": Tried(outcome="holds")},
        sweeps={},
    )
    found = {"fake": made}

    def holds(target: Target, name: str) -> Finding:
        return Finding(name, "", "", "holds", "3 checks")

    monkeypatch.setattr(trials, "committed", lambda: found)
    monkeypatch.setattr(sabotage, "intact", holds)
    return found


def test_only_what_is_tried_again_changes_and_says_at_which_commit(committed: dict[str, Trial]) -> None:
    told: list[str] = []
    made = trial.tried(FakeTarget(), lambda name, _: told.append(name), SWEEPS, lambda _: [], ["gzip", "gzip"])
    assert made.variants == {"gzip": Tried(outcome="holds", detail="3 checks"), "keepalive": Tried(outcome="holds")}
    assert told == ["gzip", "quick"] and list(made.again) == ["gzip"] and made.git_commit == "old"
    assert made.sweeps == {"quick": Tried(outcome="accepted", detail="on baseline")}


def test_a_trial_of_another_machine_takes_none(committed: dict[str, Trial]) -> None:
    committed["fake"].facts["cpus"] = "4096"
    with pytest.raises(UsageError, match=r"fake\.json was made with cpus 4096, here it is"):
        trial.tried(FakeTarget(), lambda *_: None, SWEEPS, lambda _: [], ["gzip"])
    committed.clear()
    with pytest.raises(UsageError, match="has no trial of fake yet\n  leave the variants out"):
        trial.tried(FakeTarget(), lambda *_: None, SWEEPS, lambda _: [], ["gzip"])


def test_what_the_node_refuses_it_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise NodeRefusesError("pod n/node-tuning", "tune.sh: net.core.rmem_max: refused by the node")

    monkeypatch.setattr(sabotage, "_tried", refused)
    found = sabotage.intact(FakeTarget(), "baseline")
    assert (found.outcome, found.detail) == ("not measurable", "node: tune.sh: net.core.rmem_max: refused by the node")
