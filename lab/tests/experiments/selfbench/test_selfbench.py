"""`selfbench`: that it measures, that its accounts add up, and that what is not equal fails. Nothing here asserts a time."""

import io
import json
import math
import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import psutil
import pytest
from rich.console import Console

from lab.__main__ import main
from lab.analysis import known_costs
from lab.analysis import selfbench as report
from lab.analysis.noise import aa_arms
from lab.analysis.summary import summarise_run
from lab.base.errors import MeasuringError, UsageError
from lab.commands.readme import parts, texts
from lab.experiments.selfbench import (
    busy,
    injected,
    neighbour,
    overhead,
    process,
    promise,
    quick,
    reducing,
)
from lab.experiments.selfbench.process import Timed
from lab.experiments.selfbench.reducing import Reduction
from lab.experiments.selfbench.rows import write_log
from lab.model.design import shape_of
from lab.model.pairs import SIDES
from lab.model.plan import Slot, arms_for, plan
from lab.model.samples import Reason, Sample
from lab.records.store import RunStore, run_names
from lab.records.sweep_files import load_sweep
from lab.report.tables.known_costs import page as known_page
from lab.report.tables.selfbench import page
from lab.report.terminal import show
from lab.stats import power
from lab.tests.support.factories import made_invalid, make_plan, make_point, make_run, make_sample
from lab.tests.support.made_runs import MadeStore, made, made_record

# -- a whole run, and pairs ----------------------------------------------------------------------------


def test_an_account_of_a_run_adds_up() -> None:
    """Wall time is bring-ups (once each), planned measuring and warm-up of every attempt, and the lab's own."""
    point = make_point(duration_s=10.0, warmup_s=0.5)
    first = make_sample(point=point, bring_up_s=2.0)
    second = make_sample(point=point, bring_up_s=2.0, order=2)
    again = made_invalid(make_sample(point=point, arm="baseline-again", bring_up_s=3.0), Reason.STEAL)
    never = made_invalid(make_sample(point=point, arm="x", bring_up_s=None), Reason.BRING_UP_FAILED, requests=None)
    found = report.account([first, second, again, never], 40.0)
    assert (found.samples, found.valid) == (3, 2)
    assert (found.bring_up_s, found.measuring_s, found.warm_up_s) == (5.0, 30.0, 3.0)
    assert found.own_s == pytest.approx(2.0)


def test_a_run_that_measured_nothing_is_a_fault() -> None:
    failed = made_invalid(make_sample(), Reason.BRING_UP_FAILED, requests=None, detail="no nginx")
    with pytest.raises(MeasuringError, match="no sample was measured: no nginx"):
        report.account([failed], 3.0)


def test_the_sweep_is_one_that_the_lab_reads(tmp_path: Path) -> None:
    """wrk and k6, for as long as asked."""
    (tmp_path / "selfbench.toml").write_text(overhead.SWEEP.format(duration_s=2.5))
    _, sweep = load_sweep(str(tmp_path / "selfbench.toml"))
    assert [(point.generator, point.duration_s) for point in sweep.expanded()] == [("wrk", 2.5), ("k6", 2.5)]


# -- request rows --------------------------------------------------------------------------------------


def test_both_ways_reduce_the_same_log_to_the_same(tmp_path: Path) -> None:
    """For real, each in a process of its own, with its peak memory."""
    write_log(tmp_path / "log", 3000)
    lab, polars = (reducing.reduced(way, tmp_path / "log", 3000) for way in reducing.WAYS)
    assert reducing.difference(lab, polars) == ""
    assert lab.told["requests"] == 3000 and sum(lab.told["begun"]) == 3000
    assert min(lab.peak_bytes, polars.peak_bytes) > 10e6


TOLD: Mapping[str, Any] = {
    "requests": 10,
    "answered": 9,
    "not_2xx": 1,
    "begun": [5, 5],
    "quantiles_s": {"0.5": 0.001, "0.999": None},
}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, ""),
        ({"quantiles_s": {"0.5": 0.0010004, "0.999": 0.2}}, ""),
        ({"requests": 11}, "requests: 10 and 11"),
        ({"answered": 8}, "answered: 9 and 8"),
        ({"not_2xx": 2}, "not_2xx: 1 and 2"),
        ({"begun": [5, 4, 1]}, "begun: 2 steps and 3 steps"),
        ({"quantiles_s": {"0.5": 0.00101, "0.999": None}}, "p50: 0.001000000 s and"),
    ],
)
def test_what_differs_is_named(changed: Mapping[str, Any], says: str) -> None:
    said = reducing.difference(Reduction(TOLD, 1.0, 1), Reduction({**TOLD, **changed}, 1.0, 1))
    assert said.startswith(says) and bool(said) == bool(says)


@pytest.mark.parametrize("wrong", reducing.WAYS)
def test_unequal_results_fail_whoever_is_wrong(
    wrong: reducing.Way, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then there is no row of them, and the exit status is 1."""

    def run(way: str, log: Path, rows: int) -> Reduction:
        return Reduction({**TOLD, "answered": 9 + (way == wrong)}, 1.0, 10**7)

    monkeypatch.setattr(reducing, "reduced", run)
    assert main(["selfbench", "analysis", "--rows", "1e3", "--json"]) == 1
    found = report.Report.model_validate_json(capsys.readouterr().out)
    assert found.analysis is None and "the lab and polars differ: answered: " in found.faults[0]


def test_a_way_that_fails_is_a_fault(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(reducing.WAYS, "polars", ["-c", "raise SystemExit('out of memory')"])
    assert main(["selfbench", "analysis", "--rows", "1e3"]) == 1
    assert "failed: analysis: k6's log, 1,000 rows: polars: exit status 1: out of memory" in capsys.readouterr().out


def test_room_is_looked_for_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the log will lie."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))
    monkeypatch.setattr(reducing, "write_log", lambda *_: pytest.fail("it began"))
    assert main(["selfbench", "--rows", "1e8"]) == 2
    assert "or set TMPDIR to a folder with more" in " ".join(capsys.readouterr().err.split())


def test_equal_results_are_rows_with_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows per second and peak memory, the lab's against plain polars; six pairs have an interval."""
    seconds = {"lab": 2.0, "polars": 1.0}
    noise = iter(np.linspace(1.0, 1.1, 1000).tolist())
    monkeypatch.setattr(reducing, "reduced", lambda way, *_: Reduction(TOLD, seconds[way] * next(noise), 10**7))
    assert main(["selfbench", "analysis", "--rows", "1e3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(report.Report.model_json_schema()).validate(told)
    speed, memory = told["analysis"]["rows_per_s"], told["analysis"]["peak_bytes"]
    assert (told["analysis"]["rows"], told["analysis"]["pairs"]) == (1000, 6)
    assert speed["ratio"] == pytest.approx(0.5, rel=0.1)
    assert speed["ratio_low"] < speed["ratio"] < speed["ratio_high"]
    assert memory["ratio"] == 1


def test_a_peak_is_the_childs_own_and_not_its_parents(tmp_path: Path) -> None:
    """rusage would say at least the memory of the process that started it."""
    ballast = np.ones(20_000_000)  # 160 MB of ours, twice what the child needs
    write_log(tmp_path / "log", 1000)
    assert reducing.reduced("lab", tmp_path / "log", 1000).peak_bytes < ballast.nbytes


def test_what_takes_long_is_given_the_time_it_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And three times as much, since samples are measured again; what hangs is ended all the same."""
    given: list[float] = []

    def fake(argv: Sequence[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        given.append(timeout)
        return subprocess.CompletedProcess(argv, 2, "", "")

    monkeypatch.setattr(subprocess, "run", fake)
    with pytest.raises(MeasuringError):
        overhead.whole_run(600)
    with pytest.raises(MeasuringError, match="exit status 2"):
        reducing.reduced("lab", tmp_path, 10**9)
    with pytest.raises(MeasuringError):
        injected.measure(tmp_path, ["extra-work-a"], 1000, 1)
    planned_s = [
        2 * (2 * overhead.BLOCKS + 1) * 601.5,
        1e9 * reducing.TAKES_S / 12,
        1000 * (3 * injected.ALONE_S + injected.PAIR_S),
    ]
    assert all(3 * least_s < limit_s < math.inf for least_s, limit_s in zip(planned_s, given, strict=True))


# -- the report ------------------------------------------------------------------------------


WHOLE = report.Overhead(wall_s=40.0, bring_up_s=5.0, measuring_s=30.0, warm_up_s=3.0, samples=4, valid=3)
READING = report.Reading(
    rows=10**6,
    pairs=6,
    rows_per_s=report.against([2e6] * 6, [1e6, 1.1e6, 0.9e6, 1e6, 1.05e6, 0.95e6]),
    peak_bytes=report.against([2e8], [4e9]),
)


def test_what_was_found_is_told_with_ratios_and_intervals() -> None:
    """Values with units, intervals from six pairs on; then faults."""
    found = report.Report(measured_at="", facts={}, analysis=READING, overhead=WHOLE, faults=("overhead: broke",))
    out = io.StringIO()
    show(Console(file=out), page(found))
    assert out.getvalue().splitlines() == [
        "k6's log, 1,000,000 rows, 6 pairs against plain polars",
        "  rows per second: 2,000,000 against 1,000,000: 2.00 [1.86, 2.16]",
        "  peak memory: 200 MB against 4.00 GB: 0.0500",
        "a whole run of 4 samples, 1 of them invalid, 40.0 s",
        "  bring-ups: 5.00 s, measuring: 30.0 s",
        "  the lab's own time: 500 ms per sample, 6.7% of measuring",
        "failed: overhead: broke",
    ]
    assert report.Report.model_validate_json(found.model_dump_json()) == found


def test_the_readmes_table_is_the_committed_one_or_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without run.json among the reference runs, which is none of them."""
    monkeypatch.setattr(parts, "REFERENCE", tmp_path)
    assert parts.makers()["selfbench"](texts.ROOT, []).startswith("Not measured yet: `just selfbench`")
    (tmp_path / "selfbench").mkdir()
    told = report.Report(
        analysis=READING,
        overhead=None,
        faults=(),
        measured_at="2026-11-22T12:00:00Z",
        facts={"cpus": "2", "cpu": "Xeon"},
    )
    path = tmp_path / "selfbench" / "selfbench.json"
    path.write_text(told.model_dump_json())
    shown = parts.makers()["selfbench"](texts.ROOT, [])
    assert "\n  rows per second: 2,000,000 against" in shown and "Measured on 2026-11-22: 2 CPUs, Xeon." in shown
    assert run_names(tmp_path) == []
    path.write_text("{")
    with pytest.raises(UsageError, match=r"selfbench.json: damaged"):
        parts.makers()["selfbench"](texts.ROOT, [])


# -- a noisy neighbour ---------------------------------------------------------------------------------


def busy_children() -> list[psutil.Process]:
    """Those of ours that are the neighbour's, and what starts it."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it may end while we look
            found += [child] if busy.BUSY in child.cmdline() and child.name() != "taskset" else []
    return found


@pytest.mark.slow
def test_a_neighbour_is_busy_about_half_of_the_time_and_gone_afterwards() -> None:
    """It runs on its CPU only, and ends with the block however long its spell."""
    cpu = min(psutil.Process().cpu_affinity() or [0])
    seen: list[list[int]] = []
    with busy.Neighbour(cpu, random.Random(1), spell_s=0.5) as beside:
        began = time.monotonic()
        while time.monotonic() < began + 2.5:
            for child in busy_children():
                with suppress(psutil.Error):
                    seen.append(child.cpu_affinity() or [])
            time.sleep(0.05)
    assert 0 < beside.busy_s < time.monotonic() - began - 0.2 and [cpu] in seen
    assert busy_children() == []


def named(run: MadeStore, name: str) -> MadeStore:
    run.record = run.record.model_copy(update={"id": name})
    return run


def stopped(run: MadeStore, after: int) -> MadeStore:
    """It ended in the middle, after so many blocks."""
    run.take(one for one in run.samples() if one.block <= after)
    return run


def null_run(effect: float, invalid: bool = False) -> MadeStore:
    """An A/A run, in pairs, with a null arm that is truly `effect` times as slow."""
    arms, points = aa_arms("baseline", 1, None), [make_point("ceiling", rate_rps=None)]
    planned = plan(arms, points, 6, 1, shape_of(arms, points, 6, SIDES))
    samples, histograms = make_run(planned, noise=0.01)
    slower = {one.id: one for one in make_run(planned, {"baseline": effect}, 0.01, seed=2)[0]}
    chosen = [slower[one.id] if one.arm.endswith("-null-1") else one for one in samples]
    if invalid:
        lost = {("baseline-again", 1), ("baseline-null-1", 2)}
        hit = [one.pair is not None and (one.arm, one.block) in lost for one in chosen]
        chosen = [made_invalid(one, Reason.UNEVEN) if gone else one for one, gone in zip(chosen, hit, strict=True)]
    record = made_record("aa-1", planned)
    variants = {
        name: one.model_copy(update={"primary_metric": "cpu_per_request"}) for name, one in record.variants.items()
    }
    return MadeStore(record.model_copy(update={"variants": variants}), chosen, histograms)


def test_an_aa_run_is_judged_as_its_table_judges_it() -> None:
    """A null arm that is the same claims nothing, one that is 30 % slower is claimed; invalid samples are counted by reason."""
    same = neighbour.judged(null_run(1.0), 1, 0, 100.0, 50.0)
    other = neighbour.judged(null_run(1.3), 2, 1, 100.0, 50.0)
    assert same.claimed == () and same.compared > 0 and same.valid_blocks == {"ceiling": "6/6"} and same.aa_sd
    assert other.claimed == ("baseline-null-1 cpu_per_request at ceiling",) and other.as_primary >= 1
    few = neighbour.judged(null_run(1.0, invalid=True), 3, 0, 100.0, 50.0)
    assert few.invalid == {"uneven": 2} and few.valid_blocks == {"ceiling": "4/6"} and not few.aa_sd
    assert "CPU 1 busy 50%" in neighbour.line(other) and "claimed: baseline-null-1 cpu_per_request" in neighbour.line(
        other
    )
    assert "only that the noise was noticed" in neighbour.verdict([few])[1]
    assert neighbour.verdict([same, other, few])[0] and not neighbour.verdict([other] * 3)[0]
    for runs, most in ((5, 2), (20, 2), (40, 4)):  # two in twenty, and as many of fewer
        held, above = (neighbour.verdict([other] * n + [same] * (runs - n)) for n in (most, most + 1))
        assert held[0] and not above[0]
        assert all(f"at most {most} in {max(runs, 20)} may be" in text for _, text in (held, above))


def test_what_is_done_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line per run as soon as it is over; going on leaves those out."""
    measured: list[int] = []

    def one(folder: Path, sweep: Path, number: int, cpu: int, beside: busy.Neighbour) -> neighbour.Neighboured:
        if number == 3 and len(measured) == 2:
            raise MeasuringError("selfbench", "interrupted")
        measured.append(number)
        assert ('"rate-500"' in sweep.read_text(), '"ceiling"' in sweep.read_text()) == (
            number % 2 == 1,
            number % 2 == 0,
        )
        return neighbour.judged(null_run(1.0), number, cpu, 10.0, 5.0)

    monkeypatch.setattr(neighbour, "_one", one)
    with pytest.raises(MeasuringError):
        list(neighbour.measured(tmp_path, 4, seed=1))
    assert [found.number for found in neighbour.finished(tmp_path)] == [1, 2]
    measured.append(0)
    list(neighbour.measured(tmp_path, 4, seed=1))
    assert measured == [1, 2, 0, 3, 4] and "4 of them done" in neighbour.plan_text(4, len(neighbour.finished(tmp_path)))
    (tmp_path / neighbour.DONE).write_text("{")
    with pytest.raises(UsageError, match="--into"):
        neighbour.finished(tmp_path)


def found_to_be(monkeypatch: pytest.MonkeyPatch, module: Any, runs: Sequence[MadeStore], status: int = 0) -> None:
    """What the lab measured, one run for each time that it is started."""
    names, stores = list[str](), {run.record.id: run for run in runs}

    def timed(*_: object) -> Timed:
        names.append(runs[len(names)].record.id)
        return Timed(100.0, "", "disk full", status)

    monkeypatch.setattr(process, "timed", timed)
    for each in (module, process):
        monkeypatch.setattr(each, "run_names", lambda _: list(names))
    monkeypatch.setattr(RunStore, "open", lambda path: stores[Path(path).name])


class Beside(busy.Neighbour):
    """Says that it was busy for so long."""

    def __init__(self, busy_s: float) -> None:
        self.busy_s = busy_s

    def __enter__(self) -> busy.Neighbour:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_quick_runs_that_are_done_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a line as soon as it is over, with how long it took and what it claimed, of nothing too."""
    runs = [null_run(1.0), null_run(1.0)]
    for number, run in enumerate(runs, start=1):
        run.record = run.record.model_copy(update={"id": f"run-{number}"})
    found_to_be(monkeypatch, quick, runs)
    (first,) = quick.measured(tmp_path, ["baseline"], 1, seed=1)
    (second,) = quick.measured(tmp_path, ["baseline"], 2, seed=1)
    assert [one.run for one in quick.finished(tmp_path)] == [first.run, second.run] == ["run-1", "run-2"]
    assert (first.number, second.number, first.wall_s, first.null_signs) == (1, 2, 100.0, 0) and first.nulls > 0
    assert quick.verdict([first, second]).startswith("2 runs, the longest 100 s; 0 scattered more than planned; of ")
    monkeypatch.setattr(quick, "measured_run", lambda place, runs, words, *_: pytest.fail(words[2]))
    with pytest.raises(pytest.fail.Exception, match="--target=kind"):
        list(quick.measured(tmp_path, ["baseline"], 1, seed=1, target="kind"))  # elsewhere is another run
    (tmp_path / quick.DONE).write_text("{")
    with pytest.raises(UsageError, match="--into"):
        quick.finished(tmp_path)


def test_without_a_neighbour_nothing_was_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy core that could not be had ends it, and its run is measured again: 0 claims beside nobody are no 0 claims."""
    runs = [named(null_run(1.0), f"aa-{number}") for number in range(3)]
    found_to_be(monkeypatch, neighbour, runs)
    shares = iter([50.0, 3.0, 50.0])

    def beside(cpu: int, lots: random.Random) -> Beside:
        return Beside(next(shares))

    with pytest.raises(MeasuringError, match=r"A/A run 2: had no neighbour: CPU \d+ was kept busy for 3% of its time"):
        list(neighbour.measured(tmp_path, 2, 1, beside))
    assert [one.number for one in neighbour.finished(tmp_path)] == [1]
    assert [one.run for one in neighbour.measured(tmp_path, 2, 1, beside)] == ["aa-2"]


def test_a_stopped_run_beside_a_neighbour_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1 is of cells without a valid sample, and of a full disk."""
    first, second = named(null_run(1.0), "aa-1"), named(null_run(1.0), "aa-2")
    found_to_be(monkeypatch, neighbour, [stopped(first, 2), second], status=1)
    with pytest.raises(MeasuringError, match="(?s)aa-1: stopped with 18 of its 28 cells to go: .*disk full.*goes on"):
        list(neighbour.measured(tmp_path, 1, 1, lambda *_: Beside(50.0)))
    assert neighbour.finished(tmp_path) == []
    assert [one.run for one in neighbour.measured(tmp_path, 1, 1, lambda *_: Beside(50.0))] == ["aa-2"]


def test_a_crash_while_a_run_is_written_down_leaves_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is ever cut."""
    found_to_be(monkeypatch, neighbour, [named(null_run(1.0), f"aa-{number}") for number in range(2)])
    list(neighbour.measured(tmp_path, 1, 1, lambda *_: Beside(50.0)))

    def crash(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.base.files.write_synced", crash)
    with pytest.raises(KeyboardInterrupt):
        list(neighbour.measured(tmp_path, 2, 1, lambda *_: Beside(50.0)))
    assert [one.number for one in neighbour.finished(tmp_path)] == [1]


# -- injected effects ----------------------------------------------------------------------------------

EXTRA = [("extra-work-a", "baseline"), ("extra-work-b", "baseline")]


def long_run(effects: Mapping[str, float], blocks: int = 40, **how: Any) -> MadeStore:
    planned = make_plan(EXTRA, [make_point("ceiling", rate_rps=None)], blocks=blocks)
    run = made("long", effects, planned, noise=0.02, **how)
    variants = {
        name: one.model_copy(update={"primary_metric": "cpu_per_request"}) for name, one in run.record.variants.items()
    }
    run.record = run.record.model_copy(update={"variants": variants})
    return run


def test_tens_of_a_run_are_runs_of_their_own() -> None:
    """What is there is claimed in every ten, what is not in none; the promise says so."""
    _, (large, none) = injected.read(long_run({"extra-work-a": 1.2}))
    assert (large.variant, large.claimed, large.tens) == ("extra-work-a", 4, 4)
    assert large.effect == pytest.approx(0.2, abs=0.02) and large.promised == pytest.approx(1, abs=0.01)
    assert none.claimed == 0 and none.tens == 4 and none.promised is not None and none.promised < 0.3
    assert "claimed in 4 of 4 tens, promised 100%" in injected.line(large)
    held, text = injected.verdict(None, [large, none])
    assert held and "4 of 8 tens" in text and "--resolve" in text and "fewer" not in text
    missed = large.model_copy(update={"claimed": 1})
    held, text = injected.verdict(None, [missed, none])
    assert not held and "fewer than promised: extra-work-a at ceiling:" in text


LINES = {"extra-work-few": 8, "extra-work-half": 40, "extra-work-most": 80}
COSTS = {"extra-work-few": 1.1, "extra-work-half": 1.5, "extra-work-most": 2.0}


def both_ways(costs: Mapping[str, float], shown: float = 1.0) -> MadeStore:
    """Variants of known work as pairs and alone; `shown`: what a pair has of what they truly add."""
    points = load_sweep(injected.SWEEP)[1].expanded()
    arms = arms_for([(name, "baseline") for name in LINES], None)
    planned = plan(arms, points, 40, 1, shape_of(arms, points, 40, SIDES))

    def change(slot: Slot, one: Sample) -> Sample:
        true = costs.get(slot.arm.variant, 1.0)
        if not slot.other:
            return one
        factor = (1 + shown * (true - 1)) / true
        usage = {
            **one.usage,
            "proxy": one.usage["proxy"].model_copy(update={"cpu_s": one.usage["proxy"].cpu_s * factor}),
        }
        return one.model_copy(update={"usage": usage})

    run = made("both-ways", costs, planned, noise=0.02, change=change)
    variants = {
        name: one.model_copy(
            update={
                "primary_metric": "cpu_per_request",
                "knobs": (f"extra-work-{LINES[name]}",) if name in LINES else (),
            }
        )
        for name, one in run.record.variants.items()
    }
    run.record = run.record.model_copy(update={"variants": variants})
    return run


def test_what_pairs_show_of_known_costs_is_held_against_the_arms_alone() -> None:
    """80 lines double the cost, 8 add a tenth, alone and as a pair; the slope is 1, and each is known as well as its blocks tell."""
    known, found = injected.read(both_ways(COSTS))
    assert known is not None and known.slope is not None and known.slope.ratio_interval is not None
    few = known.costs[0]
    assert [one.lines for one in known.costs] == [8, 40, 80] and few.pair.n == 40
    assert all(one.agrees for one in known.costs) and known.whole
    assert known.slope.ratio == pytest.approx(1, abs=0.02)
    assert known.slope.ratio_interval[0] < 1 < known.slope.ratio_interval[1]
    assert few.doubt is not None and few.doubt < 0.2
    told = injected.report("r", known, found)
    assert told.kept and [one.lines for one in told.recovered] == [8, 40, 80]
    assert told.recovered[0].pair.value == pytest.approx(0.1, abs=0.002)


def test_a_pair_that_halves_a_cost_is_told() -> None:
    known, found = injected.read(both_ways(COSTS, shown=0.5))
    assert known is not None and known.slope is not None and known.slope.ratio == pytest.approx(0.5, abs=0.02)
    assert not known.whole and not any(one.agrees for one in known.costs)
    held, text = injected.verdict(known, found)
    assert not held
    assert "other as a pair than alone: extra-work-few; other as a pair than alone: extra-work-half" in text
    assert "what pairs show of a line's cost is not all of it" in text


def test_the_differences_hold_the_truth_together() -> None:
    """Of two hundred runs whose pairs show all, at most 8 % have a variant that is said to differ: 5 % were asked, less what chance leaves."""
    apart = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        measured = [
            known_costs.Measured(
                name,
                count,
                *({block: rng.normal(math.log1p(count / 80), sd) for block in range(40)} for sd in (0.01, 0.1)),
            )
            for name, count in {"a": 2, "b": 4, "c": 8, "d": 40, "e": 80}.items()
        ]
        costs = known_costs.of_measured(measured).costs[:-1]
        assert costs[0].apart.confidence == pytest.approx(0.9875)
        apart += not all(one.agrees for one in costs)
    assert apart <= 16


def test_known_costs_need_both_ways() -> None:
    """A run without arms alone under the same load, or with fewer than six blocks, tells nothing of pairs."""
    assert injected.read(long_run({"extra-work-a": 1.2}))[0] is None
    run = both_ways(COSTS)
    run.take([one for one in run.samples() if one.block <= 5 or one.point.name == "ceiling"])
    assert known_costs.known_costs(run.record, summarise_run(run.record, run.samples(), run.histogram)) is None
    assert "No cost was measured both ways" in str(known_page(None)[0])


def test_half_of_what_was_promised_is_too_few_however_it_is_spread() -> None:
    """Two of four are bad luck once, not six times; and one in six that is short by a little is bad luck, too."""
    _, (large, _) = injected.read(long_run({"extra-work-a": 1.2}))

    def judged(*claimed: int) -> tuple[bool, str]:
        return injected.verdict(
            None,
            [
                large.model_copy(update={"variant": f"v{n}", "claimed": one, "promised": 0.9})
                for n, one in enumerate(claimed)
            ],
        )

    held, text = judged(2, 2, 2, 2, 2, 2)
    assert not held and text.startswith(
        "12 of 24 tens claimed their effect, 21.6 were promised; fewer than promised: in all"
    )
    assert judged(2, 4, 4, 4, 4, 4)[0] and not judged(0, 4, 4, 4, 4, 4)[0]


def test_a_kept_promise_is_seldom_called_broken() -> None:
    """At most one time in twenty, simulated: variants as many as there are, each in four tens."""
    rng, times = np.random.default_rng(1), 1000
    _, (large, _) = injected.read(long_run({"extra-work-a": 1.2}))
    promised = [0.95, 0.9, 0.8, 0.6, 0.3, 0.9]
    broken = 0
    for _ in range(times):
        found = [
            large.model_copy(update={"variant": str(n), "claimed": int(rng.binomial(4, share)), "promised": share})
            for n, share in enumerate(promised)
        ]
        broken += not injected.verdict(None, found)[0]
    assert broken <= 0.05 * times


def test_a_run_that_stopped_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone on with by the same command."""
    run = stopped(long_run({"extra-work-a": 1.2}), 12)
    found_to_be(monkeypatch, injected, [run], status=1)
    with pytest.raises(
        MeasuringError, match=r"(?s)long: stopped with \d+ of its \d+ cells to go: .*disk full.*goes on"
    ):
        injected.measure(tmp_path, ["extra-work-a"], 40, 1)
    found_to_be(monkeypatch, injected, [long_run({"extra-work-a": 1.2})], status=1)
    assert injected.measure(tmp_path, ["extra-work-a"], 40, 1).record.id == "long"


def test_a_promise_does_not_hold_where_nothing_is_known_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an A/A pair nothing was promised, and without a judged ten nothing was kept: said, and exit 1."""
    run = long_run({"extra-work-a": 1.2}, change=lambda slot, one: None if slot.arm.role == "again" else one)
    _, found = injected.read(run)
    assert [one.promised for one in found] == [None] * 2
    _, (large, none) = injected.read(long_run({"extra-work-a": 1.2}))
    for nothing in ([], found, [large.model_copy(update={"claimed": 0, "tens": 0})]):
        held, text = injected.verdict(None, nothing)
        assert not held and text.startswith("nothing is known of what `--resolve` promises")
    held, text = injected.verdict(None, [large, none.model_copy(update={"promised": None})])
    assert held and text.startswith("4 of 4 tens") and "nothing is known of extra-work-b" in text
    monkeypatch.setattr(injected, "measure", lambda *_: run)
    arguments = ["selfbench", "--effects", "40", "--into", str(tmp_path), "--json"]
    assert main(arguments) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["kept"] is False and told["verdict"].startswith("nothing is known")
    monkeypatch.setattr(injected, "measure", lambda *_: long_run({"extra-work-a": 1.2}))
    assert main(arguments) == 0


def test_a_ten_has_its_own_blocks_and_no_others() -> None:
    run = long_run({})
    third = injected.part(run.record, run.samples(), run.histogram, 21)
    row = next(row for row in third.rows if row.arm.name == "extra-work-a")
    assert set(row.cell.known("cpu_per_request")) == set(range(21, 31)) and row.cell.planned_blocks == 10


def test_a_short_run_is_refused_and_odd_blocks_are_left_out() -> None:
    with pytest.raises(MeasuringError, match="ten are needed"):
        injected.read(long_run({}, blocks=9))
    assert {one.tens for one in injected.read(long_run({}, blocks=25))[1]} == {2}


@pytest.mark.parametrize("wanted", [0.5, 0.9])
def test_a_power_is_that_of_the_effect_it_resolves(wanted: float) -> None:
    """The inverse of `power.resolvable`, and more with the effect."""
    needed = power.resolvable(0.03, 10, power=wanted)
    assert needed is not None
    assert promise.power(math.log1p(needed), 0.03, 10) == pytest.approx(wanted, abs=0.01)
    assert promise.power(2 * needed, 0.03, 10) > wanted > promise.power(0.0, 0.03, 10)
    assert promise.power(0.07, 0.003, 10) == promise.power(0.5, 0.003, 10) == pytest.approx(1), "and never no number"


@pytest.mark.parametrize(("claimed", "kept"), [(4, True), (2, True), (1, False)])
def test_fewer_claims_than_promised_are_told_from_bad_luck(claimed: int, kept: bool) -> None:
    """Of four: P(X ≤ 2) = 5.2 %, P(X ≤ 1) = 0.4 %."""
    assert promise.kept(claimed, [0.9] * 4, 0.05) is kept


def test_the_number_of_successes_is_that_of_trials_with_different_chances() -> None:
    """Poisson's binomial distribution by hand: of 0.5 and 0.2 none succeeds with 0.4, one with 0.5."""
    for claimed, chance in ((0, 0.4), (1, 0.9), (2, 1.0)):
        assert promise.kept(claimed, [0.5, 0.2], chance - 1e-9)
        assert not promise.kept(claimed, [0.5, 0.2], chance + 1e-9)


def test_the_variants_of_known_work_are_found() -> None:
    assert all(name.startswith("extra-work-") for name in injected.variants())


# -- the command ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analisys"], "did you mean 'analysis'?"),
        (["--duration", "0"], "expected 1 to 600"),
        (["--rows", "1.5e0"], "expected a whole number from 1e3 to 1e9"),
        (["--rows", "many"], 'got "many"'),
        (["--neighbour", "2", "--effects", "20"], "ask for one of them"),
        (["--neighbour", "2", "overhead"], "no parts"),
        (["overhead", "--into", "x"], "only --neighbour and --effects"),
        (["overhead", "--rows", "1e6"], "only the part `analysis`"),
        (["--effects", "9"], "expected 10 to 1000"),
    ],
)
def test_wrong_usage_starts_nothing(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selfbench", *arguments]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("arguments", [[], ["overhead"], ["--neighbour"], ["--neighbour", "3"], ["--effects"]])
def test_a_plan_says_how_long_and_starts_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    assert main(["selfbench", "--plan", *arguments]) == 0
    told = capsys.readouterr()
    assert not told.out and (" min" in told.err or " h " in told.err) and not (tmp_path / "runs").exists()


def test_a_part_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 1, with what could be measured."""

    def broken(duration_s: float) -> report.Overhead:
        raise MeasuringError("selfbench: lab bench", "exit status 2: no nginx")

    monkeypatch.setattr(overhead, "whole_run", broken)
    monkeypatch.setattr(reducing, "reducing", lambda *_: READING)
    assert main(["selfbench", "overhead", "analysis", "--json"]) == 1
    found = report.Report.model_validate_json(capsys.readouterr().out)
    assert found.analysis == READING and found.overhead is None
    assert found.faults[0].startswith("overhead: selfbench: lab bench: exit status 2: no nginx")
