"""What a verb that measures prints: its loads in words beforehand, and the same facts in every form afterwards."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import jsonschema
import pytest
from rich.console import Console

from lab.__main__ import StderrConsole, main
from lab.commands import schema
from lab.commands.measuring import answer_plan, resume_command
from lab.commands.progress import RunTerminal
from lab.experiments.bench import BenchRequest, PreparedRun, prepare
from lab.model.design import PlannedAnew
from lab.model.plan import Shape
from lab.model.samples import Reason
from lab.model.usage import Usage
from lab.records.store import RunStore
from lab.tests.support.factories import make_plan, make_point, make_sample
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.golden import print_planned
from lab.tests.support.sweep_texts import TINY, write_sweep

SWEEP = f"""{TINY}
[[points]]
name = "full"
generator = "wrk"
connections = 40
duration_s = 1
keepalive = false
tls = "edge"
routes = 4
resumption = true
accept_encoding = "gzip"
link_mbit = 10
"""


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedRun:
    return prepare(
        BenchRequest(("ingress-nginx",), write_sweep(tmp_path, monkeypatch, SWEEP), seed=1), FakeTarget(), ()
    )


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", buffering=1)
    yield stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), writer)
    stream.close()


def changed(prepared: PreparedRun, **fields: object) -> PreparedRun:
    """Return the run with other fields of its design."""
    design = prepared.design.model_copy(update=fields)
    return replace(prepared, record=prepared.record.model_copy(update={"design": design}))


def test_the_plan_says_everything_of_a_load_that_makes_it_another(prepared: PreparedRun) -> None:
    """And counts the fresh bring-ups that are certain."""
    loads = print_planned(prepared).replace("\n           ", " ").splitlines()
    lines = {line.split()[1]: line for line in loads if line.startswith("load ")}
    told = "40 connections, closed loop, 1 s, 1kB.bin, new connection per request, TLS edge, client link 10 Mbit/s"
    assert f"{told}, accepts gzip, 4 routes, TLS sessions resumed" in lines["full:"]
    assert lines["ceiling:"].endswith("ceiling: wrk, 4 connections, closed loop, 1 s, 1kB.bin")
    anew = PlannedAnew(3, ("caddy at beyond",), ("run-1",))
    said = "3 more bring-ups within blocks, after caddy at beyond, which leave too many local ports waiting (known from run-1)"
    assert said in print_planned(changed(prepared, fresh=anew)).replace("\n           ", " ")
    assert "more bring-ups" not in print_planned(prepared)


@pytest.mark.parametrize(("blocks", "duration_s", "asked", "told"), [
    (9, 301.0, False, True), (6, 301.0, False, False), (9, 299.0, False, False), (9, 301.0, True, False),
])  # fmt: skip
def test_who_is_to_wait_long_is_told_how_not_to(blocks: int, duration_s: float, asked: bool, told: bool) -> None:
    made = prepare(BenchRequest(("ingress-nginx+access-log-off",), "quick", blocks=blocks, seed=1), FakeTarget(), ())
    said = " ".join(print_planned(changed(made, duration_s=duration_s), may_be_less=not asked).split())
    assert ("less with --blocks, at least 6 for an interval" in said) is told


@pytest.mark.parametrize("done", [False, True])
def test_the_plan_is_data_too(done: bool, prepared: PreparedRun, capsys: pytest.CaptureFixture[str]) -> None:
    """By the stored schema: every load as it is made, every sample counted; what is done already is no part of the time."""
    slots = len(prepared.plan.slots)
    assert answer_plan(argparse.Namespace(json=True), [(prepared, done * slots)]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json.loads((schema.FOLDER / "plan.json").read_text())).validate(told)
    (run,) = told["runs"]
    assert run["pairs"] + run["alone"] == slots and run["done"] == done * slots
    left_s = 0.0 if done else prepared.design.duration_s
    assert told["duration_s"] == run["duration_s"] == pytest.approx(left_s)
    load = next(each for each in run["loads"] if each["point"]["name"] == "full")
    assert (load["generator"]["name"], load["point"]["connections"], load["point"]["link_mbit"]) == ("wrk", 40, 10)
    assert [arm["name"] for arm in run["arms"]] == [arm.name for arm in prepared.plan.arms]
    answer_plan(argparse.Namespace(json=False), [(prepared, 0)])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)])
def test_an_incomplete_run_is_exit_1_whether_its_table_was_read_or_not(
    form: tuple[str, ...], prepared: PreparedRun, unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunStore.create(prepared.record, {})
    monkeypatch.setattr(sys, "stdout", unread)
    assert main(["table", run.record.id, *form]) == 1


def test_who_talks_to_nobody_goes_on(unread: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `bench 2>&1 | head` does: the run is measured to its end."""
    monkeypatch.setattr(sys, "stderr", unread)
    talk = StderrConsole(stderr=True)
    for line in ("block 1", "block 2"):
        talk.print(line)
    assert talk.quiet


def test_what_goes_on_with_a_run_names_it_as_it_was_named() -> None:
    named = argparse.Namespace(context="prod", resume="/mnt/old runs/RUN")
    assert resume_command(named, "bench", "RUN") == "just bench --resume '/mnt/old runs/RUN' --context prod"
    assert resume_command(argparse.Namespace(context=None), "bench", "RUN") == "just bench --resume RUN"


def test_what_pairs_have_shown_so_far_has_a_value_for_each_bring_up_as_the_table_has() -> None:
    """Three bring-ups of two generations: ±10 % within each, and nothing between them. Six values would have had an interval."""
    point = make_point("ceiling", rate_rps=None, generations=2)
    plan = make_plan(
        [("baseline", None)], [point], 3, reference=None, shape=Shape({"baseline-again": 3}, frozenset({"ceiling"}))
    )
    text = io.StringIO()
    with RunTerminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        for slot in (slot for slot in plan.slots if slot.against):
            cost = 1.1 if slot.reload else 1 / 1.1
            own, base = (
                make_sample(point=point, usage={"proxy": Usage(cpu_s=each, rss_bytes=1, processes=1)})
                for each in (cost, 1.0)
            )
            watching.begins(slot, 1)
            watching.paired(slot, own, base, last=True)
    first, second, third = text.getvalue().splitlines()
    assert "block 1 of 3  2 of 2 valid  " in first and "block 2 of 3  4 of 4 valid  " in second, "not before the third"
    effect = third.removeprefix("block 3 of 3  ").replace("−0.0", "+0.0")
    assert effect.startswith("baseline-again at ceiling +0.0 % [+0.0, +0.0]") and third.endswith(" left")


def test_what_is_measured_again_or_given_up_says_why_and_whether_a_verdict_needs_it() -> None:
    plan, text = make_plan(), io.StringIO()
    slots = {slot.arm.role: slot for slot in plan.slots}
    with RunTerminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        for role, attempt, last in (("baseline", 1, False), ("baseline", 3, True), ("reference", 3, True)):
            busy = make_sample(reason=Reason.OTHER_PROCESSES, detail="cc1 used 9 % of a core", attempt=attempt)
            watching.begins(slots[role], attempt)
            watching.measured(slots[role], busy, None, last)
    said = [line.partition(": ")[2] for line in text.getvalue().splitlines() if "other-processes" in line]
    reason = "other-processes: cc1 used 9 % of a core"
    assert said == [
        f"repeated, {reason}", f"gave up after 3 tries, {reason}", f"gave up after 3 tries, {reason}; the verdict does not need it",
    ]  # fmt: skip


def test_a_fresh_bring_up_is_said_with_its_reason() -> None:
    plan, text = make_plan(), io.StringIO()
    slot = next(slot for slot in plan.slots if slot.arm.role != "reference")
    with RunTerminal(Console(file=text, width=200), plan, 60.0, 0) as watching:
        watching.bringing_up_anew(slot, ["1,500 local ports wait", "2 old workers run"])
    said = f"{slot.arm.name} is brought up anew before {slot.point.name}: 1,500 local ports wait; 2 old workers run"
    assert said in text.getvalue()
