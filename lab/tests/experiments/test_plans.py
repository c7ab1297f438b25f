"""What requests of every kind plan: each slot (as a digest), what `--plan` says, and what `--plan --json` has of it, as golden text.

`LAB_GOLDEN=write` before the test accepts a difference.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.commands.measuring import answer_plan
from lab.experiments import knee
from lab.experiments.bench import BenchRequest, PreparedRun, prepare
from lab.experiments.bench.request import Resolve
from lab.model.pairs import SIDES
from lab.tests.experiments.test_resolve import measured
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.golden import print_planned

GOLDEN = Path(__file__).parent / "testdata/plans.txt"
RUN = re.compile(r"\d{8}-\d{6}-[\w.+-]+-[0-9a-f]{4}")
KEYS = [
    "blocks",
    "pairs",
    "alone",
    "planned_for",
    "promised",
    "promised_by",
    "fresh_bring_ups",
    "unpaired",
    "duration_s",
]


class Two(FakeTarget):
    def generator_cpus(self) -> int | None:
        return 2


def two(name: str = "fake", fixed: str = "", alone: str = "") -> Two:
    """Return a target that can have pairs; `fixed`: a variant of whose proxy no reload makes new workers; `alone`: one without pairs."""
    return Two(name, sides=SIDES, fixed=frozenset({fixed}), alone={alone: "it has the node's ports"} if alone else {})


def planned(target: FakeTarget, *variants: str, **asked: object) -> PreparedRun:
    return prepare(BenchRequest(variants, seed=1, **asked), target, ())  # type: ignore[arg-type]


def by_an_earlier_run() -> PreparedRun:
    measured(planned(FakeTarget(), "ingress-nginx", sweep="quick", blocks=10, label="ingress-nginx-aa", nulls=1))
    return planned(FakeTarget(), "ingress-nginx+access-log-off", sweep="quick", resolve=Resolve(0.05))


PLANS: dict[str, Callable[[], PreparedRun]] = {
    "one-place": lambda: planned(FakeTarget(), "keepalive"),
    "pairs": lambda: planned(two(), "keepalive", "backlog"),
    "local": lambda: planned(two("local"), "keepalive", "caddy", against=("ingress-nginx",)),
    "another-system": lambda: planned(two(), "nginx", "keepalive", against=("ingress-nginx",)),
    "another-system-alone": lambda: planned(two(), "nginx", against=("ingress-nginx",), only=("rate-1000",)),
    "shared-cost": lambda: planned(two(), "log-disk", "upstream-close"),
    "unpaired": lambda: planned(two(alone="keepalive"), "keepalive", "ingress-nginx+access-log-off"),
    "against-itself": lambda: planned(two(), "ingress-nginx", sweep="quick", blocks=10, nulls=2),
    "shared-cost-against-itself": lambda: planned(two(), "upstream-close", sweep="quick", blocks=10, nulls=1),
    "disturbed": lambda: planned(two(), "ingress-nginx", sweep="kill-quick"),
    "sustained": lambda: planned(two(), "keepalive", sustained=True),
    "two-blocks": lambda: planned(two(), "keepalive", blocks=2),
    "at-knee": lambda: planned(two(), "keepalive", sweep="at-knee", knee="2000"),
    "study": lambda: planned(two(), "okd", "okd-edge", "okd-threads-1", sweep="okd-quick", study="okd"),
    "generations": lambda: planned(two("apiserver"), "keepalive"),
    "generations-named-blocks": lambda: planned(two("apiserver"), "keepalive", blocks=20),
    "generations-fixed": lambda: planned(two("apiserver", fixed="traefik"), "traefik", against=("ingress-nginx",)),
    "generations-itself": lambda: planned(two("apiserver"), "ingress-nginx", "workers-1", sweep="generations"),
    "resolve-by-levels": lambda: planned(two("apiserver"), "ingress-nginx+access-log-off", resolve=Resolve(0.03)),
    "resolve-by-an-earlier-run": by_an_earlier_run,
    "knee": lambda: knee.prepare(("ingress-nginx", "nginx"), Two(), ()),
}


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))


def described(made: PreparedRun, printed: str) -> str:
    """Return the lines of the plan, its numbers as data, and a digest over its slots and the loads in them."""
    told = json.loads(printed)["runs"][0]
    data = json.loads(json.dumps({key: told[key] for key in KEYS}), parse_float=lambda text: round(float(text), 9))
    loads = [
        (one.name, one.rate_rps, one.duration_s, one.warmup_s, one.generations, one.repeats, one.singly)
        for one in made.plan.points
    ]
    slots = [
        (slot.order, slot.block, slot.arm.name, slot.other, slot.point.name, str(slot.layout), slot.reload, slot.repeat)
        for slot in made.plan.slots
    ]
    digest = hashlib.sha256(repr([made.plan.arms, loads, slots]).encode()).hexdigest()
    return RUN.sub(
        "RUN",
        f"{print_planned(made, done=3, may_be_less=True)}{json.dumps(data)}\n{len(slots)} slots, SHA-256 {digest}\n",
    )


def agreed() -> dict[str, str]:
    found = re.split(r"^## (.+)\n", GOLDEN.read_text() if GOLDEN.exists() else "", flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_a_request_plans_what_was_agreed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = PLANS[name]()
    answer_plan(argparse.Namespace(json=True), [(made, 0)])
    got = described(made, capsys.readouterr().out)
    if os.environ.get("LAB_GOLDEN") == "write":
        texts = agreed() | {name: got}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("".join(f"## {each}\n{texts[each]}" for each in PLANS if each in texts))
    assert got.splitlines() == agreed()[name].splitlines()
