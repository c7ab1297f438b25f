"""The run folder: closed, damaged and locked ones are told with place and remedy."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.commands.table import run_and_arm
from lab.disturbances.outage import Outage
from lab.model.events import EVENTS_SCHEMA, EventLog
from lab.model.usage import USAGE_SCHEMA
from lab.records import store
from lab.records.store import RunStore
from lab.records.tables import (
    EVENTS,
    HISTOGRAM_SCHEMA,
    HISTOGRAMS,
    RAW,
    USAGE,
    DamagedError,
    events_frame,
    histogram_frame,
    read_histograms,
    round_to_microseconds,
)
from lab.stats.histogram import Histogram
from lab.tests.support.factories import make_point, make_sample
from lab.tests.support.fakes import bench


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    made = bench().store
    usage = pl.DataFrame(schema=USAGE_SCHEMA)
    made.write_sample(make_sample(), "said", {"latency": Histogram.of_values([0.001] * 100)}, usage)
    return made


def closed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The folder becomes another user's with mode 0700, also for root: everything in it answers EACCES."""
    real: Callable[..., os.stat_result] = os.stat

    def stat(path: str | int | Path, **kwargs: bool) -> os.stat_result:
        if folder in Path(str(path)).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **kwargs)

    monkeypatch.setattr(os, "stat", stat)


def test_a_run_that_is_closed_to_us_is_told(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        closed(patch, run.folder / "samples" / make_sample().id)
        with pytest.raises(UsageError, match="raw.zst: cannot be read: Permission denied"):
            run.samples()
    closed(monkeypatch, run.folder)
    with pytest.raises(UsageError, match="(?s)run-1/run.json: cannot be read: Permission denied.*readable") as caught:
        RunStore.open("run-1")
    assert caught.value.exit_status == 2
    assert store.run_names() == []


def test_runs_that_cannot_be_listed_are_told(run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No list is not an empty list; a folder that does not exist yet is. Nor is a name too long for the file system."""
    with pytest.raises(UsageError, match="File name too long"):
        RunStore.open("x" * 300)
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "none"))
    assert store.run_names() == []
    (tmp_path / "none").write_text("a file")
    with pytest.raises(UsageError, match="(?s)none: cannot be read: Not a directory.*LAB_RUNS"):
        store.run_names()


def test_where_no_run_is_ones_own_a_committed_one_is_named(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it has to be typed; an own one stands before it."""
    monkeypatch.setenv("LAB_REFERENCE", str(run.folder.parent))
    near = run.folder.name[:-1]
    with pytest.raises(UsageError) as found:
        RunStore.open(near)
    assert found.value.remedy == f"did you mean '{run.folder.name}'?"
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "none"))
    monkeypatch.chdir(run.folder.parents[1])
    with pytest.raises(UsageError) as found:
        RunStore.open(near)
    named = f"{run.folder.parent.name}/RUN: did you mean '{run.folder.name}'?"
    assert found.value.remedy == f"none of yours is known; a committed one is named {named}"


NO_RUN = "has no run.json, so it is not a run"


@pytest.mark.parametrize(
    ("name", "fault", "remedy"),
    [
        (
            "mine",
            "is an ablation, not a run",
            "`just table mine` names its runs; go on with `just ablate --resume mine`",
        ),
        *((name, NO_RUN, "name one of the runs in it: run-1") for name in ("", ".", "TOP", "TOP/")),
        *((name, NO_RUN, "name another run") for name in ("empty", "TOP/empty")),
        ("nest", NO_RUN, "name one of the runs in it: TOP/nest/run-1"),
    ],
)
def test_what_is_no_run_is_nothing_to_remove(run: RunStore, tmp_path: Path, name: str, fault: str, remedy: str) -> None:
    """The runs in it are named as they can be given, or the verb that goes on."""
    for folder in ("mine", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mine" / "ablation.json").write_text("{}")
    shutil.copytree(run.folder, tmp_path / "nest" / "run-1")
    with pytest.raises(UsageError) as caught:
        RunStore.open(name.replace("TOP", str(tmp_path)))
    assert (caught.value.fault, caught.value.remedy) == (fault, remedy.replace("TOP", str(tmp_path)))
    assert RunStore.open(f"{tmp_path}/nest/run-1").record == run.record


@pytest.mark.parametrize("label", ["keepalive-my sweep", "keepalive-edge:close", "x" * 400, "a/b", "größe", "a\nb"])
def test_a_runs_name_can_be_pasted(label: str, tmp_path: Path) -> None:
    name = store.new_id(label)
    assert shlex.quote(name) == name and run_and_arm(name) == (name, None)
    (tmp_path / name).mkdir()


def test_a_lock_takes_no_blame_for_what_is_done_under_it(run: RunStore) -> None:
    """A BlockingIOError of the body passes as it is, and the lock is free again."""
    with pytest.raises(BlockingIOError), run.locked():
        raise BlockingIOError
    with run.locked(), pytest.raises(UsageError, match="another lab"), run.locked():
        pass


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"PAR1" + bytes(40) + b"PAR1",
        lambda content: content[:4] + bytes(len(content) - 12) + content[-8:],
    ],
)
def test_a_damaged_histogram_says_what_still_works(run: RunStore, damage: Callable[[bytes], bytes]) -> None:
    (sample,) = run.samples()
    path = run.folder / "samples" / sample.id / "hist.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UsageError, match="(?s)hist.parquet: cannot be read: .*just table run-1 --from-raw` reads"):
        run.histogram(sample)


@pytest.mark.parametrize(
    "rows",
    [
        {"bucket": [-1]},
        {"bucket": [10**9]},
        {"count": [0]},
        {"bucket": [7, 7], "count": [1, 1], "series": ["latency"] * 2},
        {"counts": [1]},
    ],
)
def test_a_histogram_of_other_rows_is_refused(tmp_path: Path, rows: dict[str, list[float]]) -> None:
    """Buckets that there are not, or twice, and other columns are damage, never a number."""
    row = {"series": ["latency"], "bucket": [7], "count": [3], **rows}
    frame = pl.DataFrame(row)
    path = tmp_path / "hist.parquet"
    frame.cast({name: kind for name, kind in HISTOGRAM_SCHEMA.items() if name in frame.columns}).write_parquet(path)
    with pytest.raises(DamagedError):
        read_histograms(path, "exact")


@settings(max_examples=15)
@given(st.lists(st.floats(1e-6, 119), min_size=1, max_size=50), st.lists(st.floats(1e-6, 119), max_size=50))
def test_histograms_survive_storing(latency: list[float], service: list[float]) -> None:
    stored = {"latency": Histogram.of_values(latency), "service": Histogram.of_values(service)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hist.parquet"
        histogram_frame(stored).write_parquet(path)
        for series, wanted in stored.items():
            found = read_histograms(path, "exact").get(series)
            assert (found is None and not wanted.total) or (found and (found.counts == wanted.counts).all())


def test_what_is_damaged_or_missing_is_told_with_what_still_works(run: RunStore) -> None:
    (sample,) = run.samples()
    assert run.raw(sample) == ("said", "")
    path = run.folder / "samples" / sample.id / "raw.zst"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(UsageError, match="(?s)raw.zst: cannot be read.*without --from-raw"):
        run.raw(sample)
    record = path.with_name("sample.json")
    whole = record.read_text()
    record.write_text(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"sample.json: damaged"):
        run.samples()
    record.write_text(whole)
    path.unlink()
    with pytest.raises(UsageError, match=r"raw.zst is missing"):
        run.samples()
    (run.folder / "run.json").write_text("{}")
    with pytest.raises(UsageError, match=r"run.json: damaged"):
        RunStore.open("run-1")


def test_events_are_stored_beside_a_disturbed_sample_and_missing_or_damaged_ones_are_told(run: RunStore) -> None:
    point = make_point("outage", disturbance=Outage())
    sample = make_sample(id="0002-b01-baseline-outage", point=point, outcome={"failed": 0.0}, clock_offset_s=0.5)
    log = EventLog()
    log.add("lab", "Begin", role="proxy")
    run.write_sample(sample, "said", {}, pl.DataFrame(schema=USAGE_SCHEMA), events_frame(log.events))
    assert run.events(sample)["kind"].to_list() == ["Begin"]
    assert dict(run.events(make_sample()).schema) == EVENTS_SCHEMA, "a steady load has none"
    folder = run.folder / "samples" / sample.id
    assert {path.name for path in folder.iterdir()} == {RAW, HISTOGRAMS, USAGE, EVENTS, "sample.json"}
    with pytest.raises(UsageError, match="raw.zst: holds no log of requests"):
        run.requests(sample)
    (folder / EVENTS).write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="events.parquet: cannot be read"):
        run.events(sample)
    (folder / EVENTS).unlink()
    with pytest.raises(UsageError, match="events.parquet is missing"):
        run.samples()


def test_usage_is_kept_to_the_microsecond(run: RunStore) -> None:
    seen = pl.DataFrame(
        {name: [0.123456789] if name in ("t_s", "cpu_s") else [None] for name in USAGE_SCHEMA}, USAGE_SCHEMA
    )
    sample = make_sample(id="0002-b01-baseline-rate-1000")
    run.write_sample(sample, "", {}, seen)
    kept = run.usage(sample)
    assert all(0 < abs(kept[name][0] - seen[name][0]) < 1e-6 for name in ("t_s", "cpu_s"))
    assert kept.equals(round_to_microseconds(kept))


def test_a_committed_run_is_found_by_its_id() -> None:
    committed = RunStore.open("data/reference/quick-keepalive")
    assert RunStore.open(committed.record.id).folder == committed.folder.absolute()
