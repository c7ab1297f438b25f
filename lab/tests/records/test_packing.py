"""A finished run packed into few files, and read as if it had not been; interrupted anywhere it is whole in one form or the other."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.__main__ import main
from lab.analysis import evidence
from lab.base.errors import UsageError
from lab.experiments import bench
from lab.model.events import EVENTS_SCHEMA
from lab.model.plan import list_arms, plan_samples
from lab.model.run import RoundTrip
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records import packed, packing
from lab.records.packing import PARTIAL, REPLACED_PARTS, FolderSize, pack
from lab.records.store import RunStore
from lab.records.tables import (
    EVENTS,
    HISTOGRAMS,
    ROUNDTRIP,
    SMALL_LOG,
    USAGE,
    DamagedError,
    join_tables,
    read_joined_tables,
)
from lab.stats.histogram import Histogram
from lab.targets import choose_target
from lab.tests.support.committed import nds_story, run_of
from lab.tests.support.factories import make_point, make_sample, of_slot
from lab.tests.support.made_runs import made_record
from lab.tests.support.recorded import case

MANIFESTS = {
    "grace-period-30+host-port": [
        {"kind": "ConfigMap", "data": {"hide-headers": "Größe\n# variant: x\n---\n"}},
        {"kind": "Service"},
    ]
}
VARIANTS = [("grace-period-30+host-port", "ingress-nginx+grace-period-30")]
WRK = case("wrk/slow")[1]
NO_USAGE = pl.DataFrame(schema=USAGE_SCHEMA)
NETWORK = RoundTrip(tool="sockperf", version="3.7", count=7465, p50_s=2.5e-05, p99_s=7.5e-05)


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A finished run of disturbances: logs of requests, events, manifests, read-backs."""
    folder = tmp_path_factory.mktemp("once") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        made = run_of(folder, patch, "kill-quick", VARIANTS, nds_story, blocks=1, manifests=MANIFESTS)
    for path in made.folder.glob(f"samples/*/{HISTOGRAMS}"):
        path.unlink()  # nothing was counted while this was made: they are read off the outputs
    for sample in made.samples():
        readings: list[dict[str, Any]] = [{"check": sample.arm, "found": "9", "holds": True}]
        place = sample.block, sample.arm, sample.generation
        made.write_readback(*place, readings, sample.point.name, deployed=[{"pod": sample.arm}])
    made.write(ROUNDTRIP, NETWORK)
    return made


@pytest.fixture
def run(measured_once: RunStore, tmp_path: Path) -> RunStore:
    return RunStore.open(str(shutil.copytree(measured_once.folder, tmp_path / "runs" / measured_once.folder.name)))


def steady(
    folder: Path,
    outputs: Sequence[str],
    usage: pl.DataFrame = NO_USAGE,
    left: Mapping[str, bytes] | None = None,
    histogram: str | None = None,
) -> RunStore:
    """A finished steady run of a block for each output of wrk's; a sample says nothing of its histogram unless told."""
    point = make_point("ceiling", generator="wrk", rate_rps=None, connections=64)
    planned = plan_samples(list_arms([("keepalive", "baseline")], None), [point], max(1, len(outputs)), seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_RUNS", str(folder))
        made = RunStore.create(made_record("steady", planned), {})
    for number, slot in enumerate(planned.slots):
        sample = make_sample(**of_slot(slot), generator="wrk", histogram=histogram)
        made.write_sample(sample, outputs[number % len(outputs)] if outputs else "", {}, usage, None, left)
    return made


def told(run: RunStore) -> list[Any]:
    found: list[Any] = []
    for sample in run.samples():
        histograms = [run.histogram(sample, series) for series in ("latency", "service")]
        found.append((sample, run.raw(sample), [None if each is None else each.counts.tolist() for each in histograms]))
        found.append((run.usage(sample).rows(), run.events(sample).rows(), dict(run.events(sample).schema)))
        if sample.outcome:
            found.append((run.readings(sample), run.requests(sample).rows()))
    names = [name for name in run.record.variants if name in MANIFESTS]
    return [*found, [run.manifests(name) for name in names], run.roundtrip()]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def opened(run: RunStore) -> RunStore:
    return RunStore.open(str(run.folder))


def test_a_packed_run_is_the_same_run(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, stored = told(run), len(run.samples())
    other = run.folder.parents[1] / "other" / run.folder.name
    shutil.copytree(run.folder, other)
    was, now = pack(run)
    pack(RunStore.open(str(other)))
    assert files(run.folder) == files(other), "the same run packs to the same bytes"
    assert was.files > 4 * stored and now.files == len(files(run.folder)) <= 8
    assert now.bytes < was.bytes
    assert told(run) == before == told(opened(run))
    assert opened(run).packed
    assert {path.name for path in run.folder.iterdir()} >= {"run.json", packed.SAMPLES, packed.RAW, USAGE, EVENTS}
    assert not any((run.folder / name).exists() for name in (*REPLACED_PARTS, PARTIAL))
    monkeypatch.setenv("LAB_REFERENCE", str(run.folder.parent))
    assert evidence.shelf().damaged == ()


def test_anybody_reads_a_packed_runs_files_without_the_lab(run: RunStore) -> None:
    """Tables have a column that says whose row it is, the others as ever; outputs come out of the zip, logs as differences.

    Whatever was kept of a bring-up is there, also of a block that was begun anew; and what lies beside the parts stays.
    """
    kept = [(kind, path.stem) for kind in ("readback", "deployed") for path in (run.folder / kind).iterdir()]
    run.write_readback(1, "grace-period-30+host-port", 0, [{"again": 1.25}], "delete")
    (run.folder / "notes.txt").write_text("mine")
    pack(run)
    for file, schema, of in ((USAGE, USAGE_SCHEMA, run.usage), (EVENTS, EVENTS_SCHEMA, run.events)):
        frame = pl.read_parquet(f"{run.folder.parent}/*/{file}")
        assert dict(frame.schema) == {"sample": pl.String, **schema}
        for sample in run.samples():
            assert frame.filter(pl.col("sample") == sample.id).drop("sample").equals(of(sample))
    with zipfile.ZipFile(run.folder / packed.RAW) as whole:
        assert {name.partition("/")[2] for name in whole.namelist()} == {SMALL_LOG}
        assert {name.partition("/")[0] for name in whole.namelist()} == {sample.id for sample in run.samples()}
        assert whole.testzip() is None
    form = packed.PackedForm(run.folder)
    assert kept and all(form.brought_up(*key) for key in kept)
    assert form.brought_up("readback", "b01-grace-period-30+host-port-delete.2") == [{"again": 1.25}]
    assert (run.folder / "notes.txt").read_text() == "mine"


lines = st.text(st.characters(codec="utf-8"), max_size=60)
rows = st.fixed_dictionaries(
    {"t_s": st.floats(0, 1e6), "role": st.sampled_from(["proxy", "lab"]), "pid": st.integers(1, 99)}
)


@settings(max_examples=4)
@given(
    outputs=st.lists(lines, max_size=3),
    usage=st.lists(rows, max_size=4),
    left=st.dictionaries(st.sampled_from(["k6.csv.gz", "k6-summary.json"]), st.binary(max_size=50)),
)
def test_whatever_a_generator_said_comes_back(
    outputs: list[str], usage: list[dict[str, Any]], left: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    said = [text.encode().decode("utf-8", "surrogateescape") + "\udcff=1\n" for text in outputs]
    run = steady(folder, said, pl.DataFrame(usage, schema=USAGE_SCHEMA), left)
    before = told(run)
    pack(run)
    assert told(run) == before
    for sample in run.samples():
        assert {name: run.left(sample, name) for name in left} == left
        assert run.left(sample, "none") is None


@pytest.mark.parametrize("values", [{}, {"a": [3]}, {"b": [1, 1], "a": [0, 9, 4], "ab": [2]}])
def test_a_joined_table_comes_apart_as_it_was(values: dict[str, list[int]], tmp_path: Path) -> None:
    schema = {"count": pl.Int64()}
    frames = {name: pl.DataFrame({"count": counts}, schema=schema) for name, counts in values.items()}
    join_tables(frames, schema).write_parquet(tmp_path / "joined.parquet")
    found = read_joined_tables(tmp_path / "joined.parquet", schema)
    assert found.keys() == frames.keys() and all(found[name].equals(frames[name]) for name in frames)
    pl.DataFrame({"sample": ["a", "b", "a"], "count": np.arange(3)}).write_parquet(tmp_path / "joined.parquet")
    with pytest.raises(DamagedError, match="do not lie together"):
        read_joined_tables(tmp_path / "joined.parquet", schema)


@pytest.fixture
def measured(tmp_path: Path) -> RunStore:
    """A packed run with histograms, read off wrk's own output; without its cache."""
    made = steady(tmp_path / "runs", [WRK, WRK], histogram="exact")
    for each in made.folder.glob(f"samples/*/{HISTOGRAMS}"):
        each.unlink()
    pack(made)
    (made.folder / HISTOGRAMS).unlink(missing_ok=True)
    return opened(made)


def counts(run: RunStore) -> list[list[int]]:
    found = [run.histogram(sample) for sample in run.samples()]
    return [each.counts.tolist() for each in found if each is not None]


def test_histograms_are_read_once_and_kept_until_another_parser_reads_them(
    measured: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = counts(measured)
    assert len(first) == 6 and (measured.folder / HISTOGRAMS).is_file()
    monkeypatch.setattr(RunStore, "result", lambda *_: pytest.fail("read again"))
    assert counts(opened(measured)) == first
    monkeypatch.setattr(packed, "digest_parsers", lambda: "another")
    with pytest.raises(pytest.fail.Exception, match="read again"):
        counts(opened(measured))


@pytest.mark.parametrize(
    "change",
    [
        b"",
        b"PAR1" + bytes(40) + b"PAR1",
        pl.col("state").str.replace("^.", "x"),
        pl.lit([-1], pl.List(pl.Int64)).alias("bucket"),
        pl.lit(None, pl.List(pl.Int64)).alias("count"),
        pl.col("series").alias("other"),
    ],
)
def test_a_cache_that_is_damaged_or_of_another_output_is_not_believed(measured: RunStore, change: Any) -> None:
    """Nor one of other parsers, nor rows that no histogram has: the output itself tells, and it is written anew."""
    first, path = counts(measured), measured.folder / HISTOGRAMS
    good = pl.read_parquet(path)
    path.write_bytes(change) if isinstance(change, bytes) else good.with_columns(change).write_parquet(path)
    assert counts(opened(measured)) == first
    assert pl.read_parquet(path).select(good.columns).equals(good)


def test_where_nothing_may_be_written_histograms_are_read_all_the_same(
    measured: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    first = counts(opened(measured))
    assert not (measured.folder / HISTOGRAMS).exists()
    monkeypatch.undo()

    def full(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(packed, "write_synced", full)
    assert counts(opened(measured)) == first
    assert not list(measured.folder.glob(f".{HISTOGRAMS}*")) and not (measured.folder / HISTOGRAMS).exists()


def refused(run: RunStore, fault: str) -> UsageError:
    before = files(run.folder)
    with pytest.raises(UsageError, match=fault) as caught:
        pack(run)
    assert caught.value.remedy and caught.value.exit_status == 2
    assert files(run.folder) == before
    return caught.value


def test_an_unfinished_or_changed_run_is_refused(run: RunStore) -> None:
    one, other = sorted(run.folder.glob("samples/*/raw.zst"))[:2]
    whole = one.read_bytes()
    one.write_bytes(other.read_bytes())
    refused(run, "not what sample.json has the digest of")
    one.write_bytes(whole)
    shutil.rmtree(one.parent)
    error = refused(run, "is not finished: 1 of 6 are not measured")
    assert f"just bench --resume {run.record.id}" in error.remedy


def test_a_run_in_use_or_packed_already_is_refused(run: RunStore) -> None:
    with run.locked():
        refused(opened(run), "another lab is measuring this run")
    pack(run)
    refused(run, "is packed already")
    with pytest.raises(UsageError, match="is packed, so it is finished") as caught:
        bench.resume(str(run.folder), choose_target("local", None))
    assert "just table" in caught.value.remedy


def test_a_file_without_a_place_and_a_damaged_run_are_refused(run: RunStore) -> None:
    sample = run.samples()[0].id
    for place in ("manifests/notes.txt", "readback/x.txt", f"samples/{sample}/more/x"):
        path = run.folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        refused(run, "has no place in a packed run")
        path.unlink()
    (run.folder / "samples" / sample / "more").rmdir()
    for file in ("raw.zst", USAGE, EVENTS, "sample.json"):
        path = run.folder / "samples" / sample / file
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        refused(run, file)
        path.write_bytes(whole)


def test_histograms_that_are_not_the_outputs_are_refused(tmp_path: Path) -> None:
    """Packed they would be read off it, and the run would say something else."""
    run = steady(tmp_path, [WRK])
    sample = run.samples()[0]
    shutil.rmtree(run.folder / "samples" / sample.id)
    other = {"latency": Histogram.of_values([0.5] * 3)}
    run.write_sample(sample.model_copy(update={"histogram": "exact"}), WRK, other, NO_USAGE)
    refused(run, "the histogram of .* would not read back as it was")


def test_the_verb_says_what_it_did(run: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    was = FolderSize.of(run.folder)
    assert main(["maintain", "pack", str(run.folder)]) == 0
    assert capsys.readouterr().out == f"{run.folder}: {was} → {FolderSize.of(run.folder)}\n"


class Killed(BaseException):
    """What no handler takes for an error: as if the lab had ended here."""


@pytest.mark.parametrize("step", [0, 4, 5, 6, 8])
def test_ended_anywhere_it_is_a_whole_run(run: RunStore, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after each file takes its place, and while the old ones go: it says the same, and packing once more does the rest."""
    before, left = told(run), [step]
    with monkeypatch.context() as patch:
        for owner, name in ((Path, "rename"), (packing.shutil, "rmtree"), (Path, "unlink")):
            real: Callable[..., Any] = getattr(owner, name)

            def counted(*args: Any, real: Callable[..., Any] = real, **kwargs: Any) -> Any:
                if str(args[0]).endswith(PARTIAL):
                    return real(*args, **kwargs)
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return real(*args, **kwargs)

            patch.setattr(owner, name, counted)
        with pytest.raises(Killed):
            pack(run)
    found = opened(run)
    assert told(found) == before
    pack(found)
    assert told(opened(run)) == before
    assert not any((run.folder / name).exists() for name in (*REPLACED_PARTS, PARTIAL))


READS: Mapping[str, Callable[[RunStore, Sample], object]] = {
    packed.SAMPLES: lambda run, _: run.samples(),
    packed.RAW: lambda run, sample: (run.samples(), run.raw(sample)),
    USAGE: lambda run, sample: (run.samples(), run.usage(sample)),
    EVENTS: lambda run, sample: (run.samples(), run.events(sample)),
    packed.BRINGUPS: lambda run, sample: (run.roundtrip(), run.readings(sample)),
    packed.MANIFESTS: lambda run, _: run.manifests("grace-period-30+host-port"),
}


@pytest.mark.parametrize("file", READS)
def test_a_damaged_file_is_named_with_a_remedy(run: RunStore, file: str) -> None:
    """However it is damaged: never a number. Without its records it is no packed run, and has no samples either."""
    sample = run.samples()[0]
    pack(run)
    path = run.folder / file
    for damaged in (path.read_bytes()[:-5], b"", b"none of it", None):
        path.write_bytes(damaged or b"")
        if damaged is None and file != packed.SAMPLES:
            path.unlink()
        with pytest.raises(UsageError) as caught:
            READS[file](opened(run), sample)
        assert file in str(caught.value) and "restore it" in caught.value.remedy
        assert caught.value.exit_status == 2


def test_a_byte_changed_in_an_output_makes_the_run_a_gap(run: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(run)
    monkeypatch.setenv("LAB_REFERENCE", str(run.folder.parent))
    path, beside = run.folder / packed.RAW, run.folder / "whole.zip"
    content = path.read_bytes()
    path.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])
    (damaged,) = evidence.shelf().damaged
    assert "raw.zip/" in damaged.said and "not what sample.json has the digest of" in damaged.said
    beside.write_bytes(content)
    with zipfile.ZipFile(path, "w") as whole, zipfile.ZipFile(beside) as old:
        one, other, *_ = old.infolist()
        for member in old.infolist():
            changed = zipfile.ZipInfo(member.filename)
            changed.comment = other.comment if member is one else member.comment
            whole.writestr(changed, old.read(other if member is one else member))
    (damaged,) = evidence.shelf().damaged
    assert f"{one.filename}: not what sample.json has the digest of" in damaged.said
