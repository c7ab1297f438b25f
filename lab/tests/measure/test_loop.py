"""The loop: what is measured, what is kept, what is measured again, and what a failure leaves behind."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from lab.base.errors import MeasuringError
from lab.base.files import StoreError
from lab.measure.loop import MeasuringLoop, estimate_end, find_stale_samples
from lab.model.endpoint import Role
from lab.model.samples import Reason, belongs_to_block, is_settled, key_of_measurement, planned_cells
from lab.model.system import Watch
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.model.variants.variants import Check
from lab.records import folders
from lab.records.store import RunStore
from lab.targets.common import sampler
from lab.tests.support.fakes import PAGE, FakeGenerator, FakeSystem, FakeTarget, Silent, bench, going_on, point, variant
from lab.tests.targets.cluster.test_sampling import Seen


def test_every_planned_cell_becomes_one_valid_folder() -> None:
    loop = bench()
    loop.measure()
    samples = loop.store.samples()
    assert [(s.block, s.verdict) for s in samples] == [(block, "valid") for block in (1, 1, 2, 2)]
    assert {s.arm for s in samples} == {"ingress-nginx", "ingress-nginx-again"}
    for sample in samples:
        folder = loop.store.folder / "samples" / sample.id
        assert {p.name for p in folder.iterdir()} == {"sample.json", "raw.zst", "hist.parquet", "usage.parquet"}
        assert sample.achieved_rps == 1000
        histogram = loop.store.histogram(sample)
        assert histogram is not None and histogram.total == 1000


@pytest.mark.parametrize(
    ("generator", "reason", "in_detail"),
    [
        (FakeGenerator(FakeGenerator.script.replace("{}", '{"status": 3}')), Reason.NON_2XX, "3 of 1000"),
        (FakeGenerator(script="print('lorem ipsum')"), Reason.GENERATOR_OUTPUT, "lorem"),
        (FakeGenerator(script="raise SystemExit(3)"), Reason.GENERATOR_FAILED, "exit status 3"),
        (FakeGenerator(script="import os; os.kill(os.getpid(), 11)"), Reason.GENERATOR_FAILED, "exit status -11"),
        (FakeGenerator(binary="/nonexistent/wrk"), Reason.GENERATOR_FAILED, "exit status 127"),
    ],
)
def test_what_the_generator_reports_decides(generator: FakeGenerator, reason: Reason, in_detail: str) -> None:
    loop = bench(blocks=1, generator=generator)
    loop.measure()
    first, second = loop.store.samples()
    assert first.reason is second.reason is reason
    assert in_detail in first.detail


class Restarting(FakeSystem):
    def restarts(self) -> Mapping[str, int]:
        self.restarted += 1
        return {"proxy": self.restarted}


@pytest.mark.parametrize(
    ("system", "reason", "in_detail", "loaded"),
    [
        (FakeSystem(), Reason.KNOB_NOT_APPLIED, "net.core.somaxconn", False),
        (FakeSystem(through_proxy=PAGE[:-1] + b"y"), Reason.WRONG_BACKEND, "", False),
        (FakeSystem(limits=["limits.cpu of proxy"]), Reason.LIMIT_NOT_APPLIED, "limits.cpu of proxy", False),
        (Restarting(), Reason.PROXY_DIED, "last words", True),
    ],
)
def test_what_the_system_does_not_do_is_an_invalid_sample(
    system: FakeSystem, reason: Reason, in_detail: str, loaded: bool
) -> None:
    """A knob that did not take, wrong bytes and what the target did not apply are known before the load, and none is made."""
    unset = [Check(kind="sysctl", name="net.core.somaxconn", value="128")] if reason is Reason.KNOB_NOT_APPLIED else []
    loop = bench(blocks=1, target=FakeTarget(system=system), variants=[variant(readback=unset)])
    loop.measure()
    sample = loop.store.samples()[0]
    assert (sample.reason, sample.requests is not None) == (reason, loaded)
    assert in_detail in sample.detail
    assert len(list((loop.store.folder / "readback").iterdir())) == 2


@dataclass
class RestartedOnce(Restarting):
    """The proxy's container is restarted in the middle of the load."""

    def processes(self, role: Role) -> list[int]:
        return [20 + self.restarted] if role == "proxy" else [10]

    def watch(self) -> Watch:  # type: ignore[override]
        rows = [
            (float(t_s), role, pid, None, "nginx", 1, 0.0, 0.0, 0.1 * t_s, 0, 0, 0, 0, 1000 * t_s)
            for t_s in range(5)
            for role, pid in (("backend", 10), ("proxy", 21 if t_s < 3 else 22))
        ]
        table, counts = pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row"), {"proxy/requests": 7}
        usage = {"proxy": Usage(cpu_s=0.4, rss_bytes=1, processes=1)}
        return Seen(Observation(4.0, usage, table, {}, 0.0, 0.0, counts, 0.0))


@pytest.mark.parametrize("sustained", [True, False])
def test_a_restart_of_the_proxy_under_a_load_of_minutes_is_an_outcome_otherwise_a_fault(sustained: bool) -> None:
    """Ports that are used up make a liveness probe late; what the new process counted contradicts nothing."""
    points = [point().model_copy(update={"sustained": sustained, "duration_s": 4.0})]
    script = FakeGenerator.script.replace('"duration_s": 1.0', '"duration_s": 4.0')
    loop = bench(blocks=1, points=points, target=FakeTarget(system=RestartedOnce()), generator=FakeGenerator(script))
    loop.measure()
    sample, *_ = loop.store.samples()
    assert sample.reason is (Reason.NOT_STEADY if sustained else Reason.PROXY_DIED), sample.detail
    assert (sample.change is not None and sample.change.cause == "restart") == sustained
    assert ("generator-count" in sample.detail) != sustained


class Pinned(FakeTarget):
    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return {"proxy": frozenset(range(4)), "generator": frozenset({4})}


class Working(FakeSystem):
    def processes(self, role: Role) -> list[int]:
        return [1] if role == "proxy" else []

    def watch(self) -> Watch:  # type: ignore[override]
        busy = {0: 0.01, 1: 0.99, 2: 0.98, 3: 0.01, 4: 0.1}
        usage = {"proxy": Usage(cpu_s=1.95, rss_bytes=1, processes=2)}
        return Seen(Observation(1.0, usage, pl.DataFrame(schema=USAGE_SCHEMA), busy, 0.0, 0.0, {}, 0.0))


@pytest.mark.parametrize(("asked", "full", "limit"), [("2", 0.98, "proxy"), (None, 0.01, "waiting")])
def test_a_proxy_of_few_workers_is_the_limit_when_these_are_full(asked: str | None, full: float, limit: str) -> None:
    """However many CPUs it may use; and their work is not somebody else's for being on few of these."""
    data = {"worker-processes": asked} if asked else {}
    few = variant().model_copy(update={"manifests": ({"kind": "ConfigMap", "data": data},)})
    loop = bench(blocks=1, target=Pinned(system=Working()), variants=[few])
    loop.measure()
    sample = loop.store.samples()[0]
    assert (sample.verdict, sample.limited_by) == ("valid", limit), sample.detail
    assert sample.proxy_core == pytest.approx(full)


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_noisy_machine_is_measured_again_up_to_twice_or_as_the_load_says(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that does not come up is recorded, and the run goes on."""
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(sampler, "other_processes_s", lambda: float(next(clock)))

    def fail_first(count: int) -> None:
        if count == 1:
            raise MeasuringError("nginx", "did not answer", "look")

    points = [point().model_copy(update={"attempts": attempts})]
    loop = bench(blocks=1, points=points, target=FakeTarget(on_up=fail_first))
    loop.measure()
    first, *others = loop.store.samples()
    assert (first.reason, first.detail) == (Reason.BRING_UP_FAILED, "nginx: did not answer\n  look")
    assert [s.attempt for s in others] == [*range(1, attempts + 1)]
    assert [is_settled(s) for s in others] == [s.attempt == attempts for s in others]
    assert {s.reason for s in others} == {Reason.OTHER_PROCESSES}


def interrupted() -> MeasuringLoop:
    """A run of two blocks that ended after three of its four samples: the second block is begun."""

    def strike(seen: int) -> None:
        if seen == 3:
            raise KeyboardInterrupt

    loop = bench(observer=Silent(on_measured=strike))
    with pytest.raises(KeyboardInterrupt):
        loop.measure()
    return loop


def test_an_interrupted_run_is_finished_without_repeating_anything() -> None:
    first = interrupted()
    kept = {s.id: s for s in first.store.samples()}
    later = going_on(first)
    assert len(kept) == 3 and find_stale_samples(later.store, {"fake": "yes"}) == []
    later.measure()
    finished = {s.id: s for s in later.store.samples()}
    assert len(finished) == 4 and {id_: finished[id_] for id_ in kept} == kept


def test_an_unfinished_block_is_measured_again_whole_under_other_facts() -> None:
    first = interrupted()
    store = RunStore.open("run-1")
    assert find_stale_samples(store, {"fake": "yes", "cpu_mhz": "2445.4"}) == [], "the clock is another at every moment"
    stale = find_stale_samples(store, {"fake": "no longer"})
    assert [s.block for s in stale] == [2], "the finished block stays"
    store.mark_interrupted(stale)
    store.note_resumed({"fake": "no longer"})
    replace(first, store=store, observer=Silent()).measure()
    samples = store.samples()
    assert [s.reason for s in samples].count(Reason.BLOCK_INTERRUPTED) == 1
    assert len([s for s in samples if belongs_to_block(s) and is_settled(s)]) == 4
    assert len({s.id for s in samples}) == 5


def test_only_a_block_whose_break_is_known_to_be_short_is_gone_on_with() -> None:
    """A clock that went back by hours tells nothing of how long it was."""
    loop = interrupted()
    last = max(estimate_end(sample) for sample in loop.store.samples())
    for minutes, stale in ((0, 0), (9, 0), (11, 1), (-9, 0), (-120, 1)):
        later = last + timedelta(minutes=minutes)
        assert len(find_stale_samples(loop.store, {"fake": "yes"}, lambda now=later: now)) == stale, minutes


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_is_stepped_spoils_the_sample_in_which_it_was(
    step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, real = count(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + (step_s if next(looks) else 0.0))
    loop = interrupted()
    first, *others = loop.store.samples()
    assert first.reason == Reason.CLOCK_STEP, first.detail
    assert [sample.verdict for sample in others] == ["valid"] * 2
    loop.store.mark_interrupted(
        find_stale_samples(loop.store, {"fake": "yes"}, lambda: datetime(1999, 1, 1, tzinfo=UTC))
    )
    later = going_on(loop)
    later.measure()
    done = {key_of_measurement(sample) for sample in later.store.samples() if is_settled(sample)}
    assert planned_cells(later.store.record.plan().slots) <= done


def test_a_full_disk_stops_the_run_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, real = bench(), folders.write_synced

    def full(path: Path, content: bytes | pl.DataFrame) -> None:
        if "-b02-" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, content)

    monkeypatch.setattr(folders, "write_synced", full)
    with pytest.raises(StoreError, match="(?s)No space left.*--resume"):
        loop.measure()
    kept = RunStore.open("run-1")
    assert len(kept.samples()) == 2
    partial = kept.folder / "samples" / ".0009-x.partial"
    partial.mkdir()
    (partial / "raw.zst").write_text("half")
    assert len(kept.samples()) == 2, "half of one does not count"
    kept.clear_partial()
    assert not partial.exists()
