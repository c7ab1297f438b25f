"""The loop: what is measured, what is kept, what is measured again, and what a failure leaves behind."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import StoreError
from lab.measure.loop import stale_blocks
from lab.model.endpoint import Role
from lab.model.samples import Reason, Sample, counts, settled
from lab.model.usage import USAGE_SCHEMA, Observation, Usage
from lab.model.variants.variants import Check
from lab.records import folders
from lab.records.store import RunStore
from lab.targets.base import Watch
from lab.targets.common import process, sampler
from lab.tests.support.fakes import PAGE, FakeGenerator, FakeSystem, FakeTarget, Silent, bench, point, variant
from lab.tests.targets.cluster.test_sampling import Seen


def only(samples: list[Sample]) -> Sample:
    assert samples
    return samples[0]


def test_every_planned_cell_becomes_one_valid_folder() -> None:
    """2 blocks × (baseline, again) × 1 point are four folders, each with the four files and a valid record."""
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
        (
            FakeGenerator(FakeGenerator.script.replace('"errors": {}', '"errors": {"status": 3}')),
            Reason.NON_2XX,
            "3 of 1000",
        ),
        (FakeGenerator(script="print('lorem ipsum')"), Reason.GENERATOR_OUTPUT, "lorem"),
        (FakeGenerator(script="raise SystemExit(3)"), Reason.GENERATOR_FAILED, "exit status 3"),
        (FakeGenerator(script="import os; os.kill(os.getpid(), 11)"), Reason.GENERATOR_FAILED, "exit status -11"),
        (FakeGenerator(binary="/nonexistent/wrk"), Reason.GENERATOR_FAILED, "exit status 127"),
    ],
)
def test_what_the_generator_reports_decides(generator: FakeGenerator, reason: Reason, in_detail: str) -> None:
    """Errors, garbage and crashes are invalid samples with their reason, and the output is kept."""
    loop = bench(blocks=1, generator=generator)
    loop.measure()
    samples = loop.store.samples()
    assert {s.reason for s in samples} == {reason}
    assert in_detail in only(samples).detail
    assert len(samples) == 2, "none of these is environmental: nothing is measured again"


@pytest.mark.slow
def test_a_hanging_generator_is_killed_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that does not end in time is killed with its children, and its sample is invalid."""
    monkeypatch.setattr(process, "GRACE_S", 0.2)
    loop = bench(blocks=1, generator=FakeGenerator(script="import time; time.sleep(60)"))
    loop.measure()
    assert only(loop.store.samples()).reason == Reason.GENERATOR_HUNG


def test_a_knob_that_did_not_take_is_never_measured() -> None:
    """A read-back that fails makes every sample of the arm invalid, without a number, and is kept as a file."""
    check = Check(kind="sysctl", name="net.core.somaxconn", value="128")
    loop = bench(blocks=1, variants=[variant(readback=[check])])
    loop.measure()
    sample = only(loop.store.samples())
    assert (sample.reason, sample.requests) == (Reason.KNOB_NOT_APPLIED, None)
    assert "net.core.somaxconn" in sample.detail
    assert len(list((loop.store.folder / "readback").iterdir())) == 2


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (FakeSystem(through_proxy=PAGE[:-1] + b"y"), Reason.WRONG_BACKEND),
        (FakeSystem(limits=["limits.cpu of proxy"]), Reason.LIMIT_NOT_APPLIED),
    ],
)
def test_wrong_bytes_and_what_the_target_did_not_apply_are_never_measured(system: FakeSystem, reason: Reason) -> None:
    """No load is made and no number recorded."""
    loop = bench(blocks=1, target=FakeTarget(system=system))
    loop.measure()
    sample = only(loop.store.samples())
    assert (sample.reason, sample.requests) == (reason, None)


def test_a_restart_during_the_sample_makes_it_invalid() -> None:
    """A container that was restarted while it was loaded is told from one that was not."""
    target = FakeTarget()

    class Restarting(FakeSystem):
        def restarts(self) -> Mapping[str, int]:
            self.restarted += 1
            return {"proxy": self.restarted}

    target.system = Restarting()
    loop = bench(blocks=1, target=target)
    loop.measure()
    sample = only(loop.store.samples())
    assert (sample.reason, "last words" in sample.detail) == (Reason.PROXY_DIED, True)


class Pinned(FakeTarget):
    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return {"proxy": frozenset(range(4)), "generator": frozenset({4})}


class Working(FakeSystem):
    """Whose proxy's CPUs are so busy, by its own work but for a hundredth."""

    def __init__(self, shares: Sequence[float]) -> None:
        super().__init__()
        self.shares = shares

    def processes(self, role: Role) -> list[int]:
        return [1] if role == "proxy" else []

    def watch(self) -> Watch:  # type: ignore[override]
        busy = {**dict(enumerate(self.shares)), 4: 0.1}
        usage = {"proxy": Usage(cpu_s=sum(self.shares) - 0.01 * len(self.shares), rss_bytes=1, processes=2)}
        return Seen(Observation(1.0, usage, pl.DataFrame(schema=USAGE_SCHEMA), busy, 0.0, 0.0, {}, 0.0))


@pytest.mark.parametrize(
    ("asked", "shares", "full", "limit"),
    [
        ("1", [0.01, 0.99, 0.01, 0.01], 0.99, "proxy"),
        ("2", [0.01, 0.99, 0.98, 0.01], 0.98, "proxy"),
        ("2", [0.01, 0.99, 0.5, 0.01], 0.735, "waiting"),
        (None, [0.01, 0.99, 0.98, 0.01], 0.01, "waiting"),
    ],
)
def test_a_proxy_of_few_workers_is_the_limit_when_these_are_full(
    asked: str | None, shares: Sequence[float], full: float, limit: str
) -> None:
    """However many CPUs it may use; and their work is not somebody else's for being on few of these."""
    data = {"worker-processes": asked} if asked else {}
    few = variant().model_copy(update={"manifests": ({"kind": "ConfigMap", "data": data},)})
    loop = bench(blocks=1, target=Pinned(system=Working(shares)), variants=[few])
    loop.measure()
    sample = only(loop.store.samples())
    assert (sample.verdict, sample.limited_by) == ("valid", limit), sample.detail
    assert sample.proxy_core == pytest.approx(full)


def test_a_system_that_does_not_come_up_is_recorded_and_the_run_goes_on() -> None:
    """One failed bring-up costs its arm's samples, not the run."""

    def fail_first(count: int) -> None:
        if count == 1:
            raise MeasuringError("nginx", "did not answer", "look")

    loop = bench(target=FakeTarget(on_up=fail_first))
    loop.measure()
    reasons = [s.reason for s in loop.store.samples()]
    assert sorted(reasons, key=str) == [Reason.BRING_UP_FAILED, None, None, None] or reasons.count(None) == 3


@pytest.mark.parametrize("attempts", [3, 1])
def test_a_noisy_machine_is_measured_again_up_to_twice_or_as_the_load_says(
    attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environmental reasons are worth two more attempts; all attempts stay in the data, and the run is done."""
    monkeypatch.setattr(sampler, "other_processes_s", lambda: float(next(clock)))
    clock = iter(range(0, 10_000, 100))
    loop = bench(blocks=1, points=[point().model_copy(update={"attempts": attempts})])
    loop.measure()
    samples = loop.store.samples()
    assert [s.attempt for s in samples] == [*range(1, attempts + 1)] * 2
    assert [settled(s) for s in samples] == [s.attempt == attempts for s in samples]
    assert {s.reason for s in samples} == {Reason.OTHER_PROCESSES}


def interrupt_after(count: int) -> Silent:
    def strike(seen: int) -> None:
        if seen == count:
            raise KeyboardInterrupt

    return Silent(on_measured=strike)


def test_an_interrupted_run_is_finished_without_repeating_anything() -> None:
    """After Ctrl-C the remaining cells are measured, the recorded ones are untouched."""
    first = bench(observer=interrupt_after(3))
    with pytest.raises(KeyboardInterrupt):
        first.measure()
    kept = {s.id: s for s in first.store.samples()}
    assert len(kept) == 3
    again = RunStore.open("run-1")
    assert stale_blocks(again, {"fake": "yes"}) == []
    type(first)(first.target, first.variants, first.chosen, again, Silent()).measure()
    finished = {s.id: s for s in again.samples()}
    assert len(finished) == 4
    assert {id_: finished[id_] for id_ in kept} == kept


def test_a_block_interrupted_for_long_is_measured_again_whole() -> None:
    """Eleven minutes later (or with other facts) the unfinished block's samples are marked, kept, and measured anew."""
    first = bench(observer=interrupt_after(3))
    with pytest.raises(KeyboardInterrupt):
        first.measure()
    again = RunStore.open("run-1")
    assert stale_blocks(again, {"fake": "yes", "cpu_mhz": "2445.4"}) == [], "the clock is another at every moment"
    stale = stale_blocks(again, {"fake": "no longer"})
    assert [s.block for s in stale] == [2], "the finished block stays"
    again.mark_interrupted(stale)
    again.note_resumed({"fake": "no longer"})
    type(first)(first.target, first.variants, first.chosen, again, Silent()).measure()
    samples = again.samples()
    assert [s.reason for s in samples].count(Reason.BLOCK_INTERRUPTED) == 1
    assert len([s for s in samples if counts(s) and settled(s)]) == 4
    assert len({s.id for s in samples}) == 5


def test_a_full_disk_stops_the_run_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC while storing is an error with a remedy; what was stored before is whole."""
    loop = bench()
    real = folders.write_synced

    def full(path: Path, content: bytes | pl.DataFrame) -> None:
        if "-b02-" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        real(path, content)

    monkeypatch.setattr(folders, "write_synced", full)
    with pytest.raises(StoreError, match="(?s)No space left.*--resume"):
        loop.measure()
    assert len(RunStore.open("run-1").samples()) == 2


def test_damaged_runs_are_named(tmp_path: Path) -> None:
    """A truncated record, a missing file and a folder that is no run are each refused with place and remedy."""
    loop = bench(blocks=1)
    loop.measure()
    folder = loop.store.folder / "samples" / only(loop.store.samples()).id
    whole = (folder / "sample.json").read_text()
    (folder / "sample.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="sample.json: damaged"):
        loop.store.samples()
    (folder / "sample.json").write_text(whole)
    (folder / "raw.zst").unlink()
    with pytest.raises(UsageError, match="raw.zst is missing"):
        loop.store.samples()
    shutil.rmtree(folder)
    assert len(loop.store.samples()) == 1
    (loop.store.folder / "run.json").write_text("{}")
    with pytest.raises(UsageError, match="run.json: damaged"):
        RunStore.open("run-1")
    (loop.store.folder / "run.json").unlink()
    with pytest.raises(UsageError, match="has no run.json"):
        RunStore.open("run-1")
    with pytest.raises(UsageError, match="unknown run"):
        RunStore.open("run-2")


def test_half_written_samples_do_not_count() -> None:
    """What a killed lab left under a temporary name is no sample, and is cleared at resume."""
    loop = bench(blocks=1)
    loop.measure()
    partial = loop.store.folder / "samples" / ".0009-x.partial"
    partial.mkdir()
    (partial / "raw.zst").write_text("half")
    assert len(loop.store.samples()) == 2
    loop.store.clear_partial()
    assert not partial.exists()


def test_two_labs_do_not_write_one_run() -> None:
    """The second lab on a run is refused."""
    loop = bench(blocks=1)
    with (
        loop.store.locked(),
        pytest.raises(UsageError, match="another lab"),
        RunStore.open("run-1").locked(),
    ):
        pass
