"""What `just export` hands to other tools: nothing is missing, every number is the record's, and the formats are what they are called."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
from prometheus_client import parser as prometheus
from prometheus_client.openmetrics import parser as openmetrics_parser

from lab.__main__ import main
from lab.analysis.sample_frames import flatten_sample, make_samples_frame
from lab.base.errors import UsageError
from lab.commands import K6_OUT
from lab.disturbances.outage import Outage
from lab.experiments import bench
from lab.generators import find, get_generator
from lab.generators.k6 import K6, OUTPUTS, SUMMARY, Out
from lab.model.events import EventLog
from lab.model.load import GeneratorLoad
from lab.model.samples import Reason, Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records.store import RunStore
from lab.records.tables import events_frame
from lab.report.export import openmetrics
from lab.report.export import tables as export
from lab.stats.histogram import Histogram
from lab.targets.common import sampler
from lab.tests.support import disturbed
from lab.tests.support.committed import RATE_RPS, as_k6
from lab.tests.support.factories import made_invalid, make_point, make_sample
from lab.tests.support.fakes import FakeGenerator, FakeTarget
from lab.tests.support.fakes import bench as bench_of
from lab.tests.support.fakes import point as fake_point

LATENCIES_S = [*[0.00004] * 50, *[0.001] * 30, *[0.0011] * 15, *[0.3] * 4, 110.0]
"""Of which 50 lie at or below 0.1 ms, 80 at or below 1 ms, 95 at or below 2.5 ms, 99 at or below 0.5 s, 100 at all."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A run with a valid sample, one that does not count and has no histogram, and a disturbed one."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    made = bench_of().store
    usage = pl.DataFrame(
        [[0.0, "proxy", 1, None, "nginx", 1, 0.0, 0.0, 0.0, 0, 0, 0, 0, None]], schema=USAGE_SCHEMA, orient="row"
    )
    counters = {"proxy/ListenDrops": 3, "proxy.ListenDrops": 4}
    valid = make_sample(id="0001-a", errors={"status": 2}, counters=counters, notes=("a, b", 'c "d"'))
    made.write_sample(valid, "said\n\udcff", {"latency": Histogram.of_values(LATENCIES_S)}, usage)
    unknown = dict.fromkeys(("requests", "achieved_rps", "histogram", "dropped"))
    lost = made_invalid(make_sample(id="0002-a", order=2), Reason.BRING_UP_FAILED, **unknown)
    made.write_sample(lost, "", {}, usage)
    requests = disturbed.requests(RATE_RPS, 10.0, out=(2.0, 3.0))
    log = EventLog()
    log.add("lab", "Begin", role="proxy", detail="it\nbegan")
    load = {"keepalive": False, "generator": "k6", "rate_rps": RATE_RPS, "duration_s": 10.0}
    point, outcome = make_point("outage", disturbance=Outage(), **load), {"failed": 20.0, "gap_s": 1.0, "cut_s": None}
    told = {"point": point, "requests": requests.height, "outcome": outcome, "clock_offset_s": 0.5}
    gone = make_sample(id="0003-a", order=3, **told)
    stdout, stderr = as_k6(requests)
    made.write_sample(gone, f"{stdout}\n#lab stderr\n{stderr}", {}, usage, events_frame(log.events))
    return made


def written(run: RunStore, what: str, form: export.Format) -> bytes:
    out = io.BytesIO()
    export.write(export.yield_tables(run, what, run.samples()), form, out)
    return out.getvalue()


def test_every_sample_is_a_row_with_every_scalar_of_its_record_in_columns_that_are_always_there(run: RunStore) -> None:
    """Also one that does not count: with its reason. What is nested has a column of its own."""
    samples = run.samples()
    frame = make_samples_frame([flatten_sample(run.record.id, sample, run.histogram(sample)) for sample in samples])
    first, lost, gone = rows = frame.to_dicts()
    assert [row["sample"] for row in rows] == ["0001-a", "0002-a", "0003-a"]
    assert [(row["reason"], row["valid"]) for row in rows] == [(None, True), ("bring-up-failed", False), (None, True)]
    for sample, row in zip(samples, rows, strict=True):
        told = sample.model_dump(mode="json")
        scalars = {name: told[name] for name in told.keys() - {"id", "tls"} if not isinstance(told[name], (list, dict))}
        assert {name: row[name] for name in scalars} == scalars
        assert row["usage_proxy_cpu_s"] == sample.usage["proxy"].cpu_s
        assert row["point_rate_rps"] == sample.point.rate_rps
        assert row["cpu_per_request_s"] == sample.cpu_per_request_s
    assert (first["errors_status"], first["errors_read"]) == (2, 0), "a kind that did not occur is 0, not unknown"
    assert lost["errors_read"] is None, "of a sample that reported nothing it is unknown"
    listened = (first["counters_proxy_ListenDrops"], first["counters_proxy.ListenDrops"])
    assert listened == (3, 4), "of two names that would be one, both are kept"
    assert first["notes"] == 'a, b; c "d"'
    assert (first["latency_p50_s"], first["latency_max_s"]) == pytest.approx((0.00004, 110.0), rel=1e-3)
    assert [row["outcome_gap_s"] for row in rows] == [None, None, 1.0]
    assert json.loads(gone["point_disturbance"])["kind"] == "outage"
    some = make_samples_frame([flatten_sample("r", samples[0], None)]).schema
    none = make_samples_frame([]).schema
    nested = {"id", "errors", "usage", "busy", "counters", "gauges", "outcome", "tls"}
    assert set(none) >= set(Sample.model_fields) - nested
    assert {name: none[name] for name in none} == {name: some[name] for name in none}
    assert (none["achieved_rps"], none["requests"], none["valid"]) == (pl.Float64, pl.Int64, pl.Boolean)


@pytest.mark.parametrize("what", ["samples", "histograms", "requests", "events", "usage"])
def test_all_formats_hold_the_same_rows(run: RunStore, what: str) -> None:
    whole = pl.read_parquet(io.BytesIO(written(run, what, "parquet")))
    lines = written(run, what, "json").decode().splitlines()
    assert [json.loads(line) for line in lines] == whole.to_dicts()
    csv = pl.read_csv(
        io.BytesIO(written(run, what, "csv")), schema_overrides=whole.schema, missing_utf8_is_empty_string=False
    )
    assert csv.columns == whole.columns
    filled = [pl.col(pl.String).fill_null("")]  # CSV does not tell an empty text from none
    assert csv.with_columns(filled).equals(whole.with_columns(filled))


def test_a_histogram_comes_back_count_by_count(run: RunStore) -> None:
    """Buckets with both ends, and the sum of the counts is the sample's. By the lab's clock: half a second before the generator's."""
    frame = pl.read_parquet(io.BytesIO(written(run, "histograms", "parquet")))
    assert frame.columns[:9] == list(export.LABELS)
    found = Histogram.of_counts(zip(frame["upper_s"], frame["count"], strict=True), "exact")
    assert (found.counts == Histogram.of_values(LATENCIES_S).counts).all()
    assert (frame["lower_s"] <= frame["upper_s"]).all()
    requests = pl.read_parquet(io.BytesIO(written(run, "requests", "parquet")))
    assert requests["sample"].unique().to_list() == ["0003-a"]
    sample = run.samples()[2]
    assert requests["due_s"].to_list() == run.requests(sample)["due_s"].to_list()
    assert requests.filter(pl.col("error") != "").height == 20
    assert pl.read_parquet(io.BytesIO(written(run, "events", "parquet")))["detail"].to_list() == ["it\nbegan"]


def test_what_a_run_has_not_is_told(run: RunStore, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run.folder / "samples" / "0003-a")
    for what in ("requests", "events"):
        with pytest.raises(UsageError, match=f"(?s)has no {what}: .*--sweep kill"):
            written(run, what, "csv")
    for arguments, said in (
        (["--format", "openmetrics", "--what", "usage"], "openmetrics has no usage"),
        (["--what", "k6", "--format", "csv", "--sample", "0001-a"], "in no format of the lab's"),
    ):
        assert main(["export", "run-1", *arguments]) == 2
        out, err = capfd.readouterr()
        assert said in err and not out and "Traceback" not in err


def test_openmetrics_is_of_its_format_and_its_numbers_are_the_records(run: RunStore) -> None:
    """By the client library's strict reader, and by that of Prometheus' older format; no type or timestamp that the latter does not know.
    Every sample has its own points, also one that does not count; unknown numbers have none.
    """
    text = openmetrics.render_openmetrics(run.record, run.samples(), run.histogram).decode()
    families = {family.name: family for family in openmetrics_parser.text_string_to_metric_families(text)}
    assert {family.name for family in prometheus.text_string_to_metric_families(text)} == set(families)
    assert {family.type for family in families.values()} == {"gauge", "histogram"}
    assert all(point.timestamp is None for family in families.values() for point in family.samples)
    assert families["lab_latency_seconds"].unit == "seconds"
    assert "lab_outcome_gap_seconds" in families and "lab_outcome_failed" in families
    rates = {point.labels["sample"]: point for point in families["lab_achieved_requests_per_second"].samples}
    assert set(rates) == {"0001-a", "0003-a"} and rates["0001-a"].value == 1000.0
    told = {"run": "run-1", "arm": "baseline", "block": "1", "valid": "true", "reason": ""}
    assert told.items() <= rates["0001-a"].labels.items()
    valid = {point.labels["sample"]: point for point in families["lab_sample_valid"].samples}
    assert (valid["0002-a"].value, valid["0002-a"].labels["reason"]) == (0.0, "bring-up-failed")
    assert [point.labels["kind"] for point in families["lab_errors"].samples] == ["status"]


def test_histogram_buckets_are_cumulative_and_known(run: RunStore) -> None:
    """Counts at or below each bound, in the format's own order. In the place of bytes that are no text stands a question mark."""
    below, sum_s = openmetrics.accumulate(Histogram.of_values(LATENCIES_S))
    known = {0.0001: 50, 0.0005: 50, 0.001: 80, 0.0025: 95, 0.1: 95, 0.25: 95, 0.5: 99, 60.0: 99}
    assert known.items() <= dict(zip(openmetrics.BOUNDS_S, below, strict=True)).items()
    assert sum_s == pytest.approx(sum(LATENCIES_S), rel=1e-3)
    facts = {"fact": 'a\\b "c"\nd, é', "bytes": "\udcff"}
    made = openmetrics.render_openmetrics(run.record.model_copy(update={"facts": facts}), [], run.histogram).decode()
    (family,) = openmetrics_parser.text_string_to_metric_families(made)
    assert {point.labels["fact"]: point.labels["value"] for point in family.samples} == facts | {"bytes": "?"}


def test_raw_and_k6s_own_output_are_printed_as_they_came(
    run: RunStore, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    """Also bytes that are no text; unpacked, or packed into a file that is called so; of a k6 that was killed as far as it goes."""
    assert main(["export", "run-1", "--what", "raw", "--sample", "0001-a"]) == 0
    assert capfdbinary.readouterr() == (b"said\n\xff", b"")
    assert main(["export", "run-1", "--what", "raw", "--sample", "0003-a"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b'{"lab":1,') and b"#lab" not in out and err.startswith(b"request 0 ")
    folder, mine = run.folder / "samples" / "0003-a", tmp_path / "mine.csv.gz"
    text = b"metric_name,timestamp\n" + b"http_reqs,1\n" * 5000
    rows = gzip.compress(text, mtime=0)
    (folder / "k6.csv.gz").write_bytes(rows)
    (folder / SUMMARY).write_text('{"metrics":{}}')

    def exported(*more: str, what: str = "k6", status: int = 0) -> tuple[bytes, bytes]:
        assert main(["export", "run-1", "--what", what, "--sample", "0003-a", *more]) == status
        return capfdbinary.readouterr()

    assert exported()[0] == text and exported(what="k6-summary")[0] == b'{"metrics":{}}'
    exported("--output", str(mine))
    assert mine.read_bytes() == rows
    (folder / "k6.csv.gz").write_bytes(rows[: len(rows) // 2])
    cut, _ = exported()
    assert cut and text.startswith(cut)
    assert len(run.samples()) == 3, "the store takes samples with and without it"
    (folder / "k6.csv.gz").write_bytes(b"no gzip")
    assert b"k6's own output cannot be read" in exported(status=2)[1]


def test_a_file_is_replaced_by_a_whole_one(run: RunStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("mine")
    (run.folder / "samples" / "0001-a" / "hist.parquet").write_bytes(b"PAR1")
    assert main(["export", "run-1", "--what", "histograms", "--output", str(path)]) == 2
    assert path.read_text() == "mine" and "hist.parquet: cannot be read" in capfd.readouterr().err
    assert main(["export", "run-1", "--what", "events", "--output", str(path)]) == 0
    assert pl.read_parquet(path)["kind"].to_list() == ["Begin"]
    assert not list(tmp_path.glob(".*.partial"))
    for place in (tmp_path / "none" / "x.csv", path / "x.csv", tmp_path / ("x" * 250), tmp_path / ("x" * 300)):
        assert main(["export", "run-1", "--output", str(place)]) == 2
        err = capfd.readouterr().err
        assert "--output: " in err and "defect" not in err


def test_k6_is_told_what_to_leave() -> None:
    load = GeneratorLoad("http://127.0.0.1/", "h", connections=2, duration_s=1.0, rate_rps=10.0)
    plain, csv = K6(), K6(out="csv")
    assert plain.left == () and "--out" not in plain.argv(load)
    assert "systemTags: load.tags" in plain.files(load)["k6.js"] and '"tags": []' in plain.files(load)["k6.js"]
    assert csv.left == (SUMMARY, "k6.csv.gz")
    assert csv.argv(load)[-3:] == ["--out", "csv=fileName=k6.csv.gz,timeFormat=unix_micro", "k6.js"]
    assert K6(out="json").argv(load)[-3:-1] == ["--out", "json=k6.json.gz"]
    assert K6(out="summary").left == (SUMMARY,) and K6(out="summary").argv(load) == plain.argv(load)
    assert "stay in as many pods" in (csv.refusal(GeneratorLoad("http://h/", "h", 2, 1.0, generators=2)) or "")
    assert get_args(Out) == K6_OUT
    assert set(OUTPUTS) < set(K6_OUT)


LEAVES = (
    "import json, os, pathlib\n"
    "path = pathlib.Path('rows.gz')\n"
    "path.write_text(('again ' if path.exists() else '') + 'rows')\n"
    'print(\'{"requests": 1000, "duration_s": 1.0, "bytes": 1100000, "errors": {}}\')\n'
)


def test_what_a_generator_leaves_is_kept_beside_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(sampler, "other_processes_s", float)
    warm = fake_point().model_copy(update={"warmup_s": 1.0})
    loop = bench_of(blocks=1, points=[warm], generator=FakeGenerator(LEAVES))
    chosen = {name: replace(used, keep=("rows.gz", "never.json")) for name, used in loop.chosen.items()}
    replace(loop, chosen=chosen).measure()
    kept = loop.store.samples()
    assert kept and all(loop.store.left(sample, "rows.gz") == b"rows" for sample in kept)
    assert all(loop.store.left(sample, "never.json") is None for sample in kept)
    assert not list((tmp_path / "runs").rglob("never.json"))


def test_a_run_keeps_k6s_output_as_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded in run.json, told to k6 again on --resume; refused where no load is k6's, and in a cluster's pod."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    target = FakeTarget(name="local")
    own = tmp_path / "own.toml"
    own.write_text(
        'title = "t"\nquestion = "q"\nblocks = 1\n[[points]]\nname = "p"\ngenerator = "k6"\nconnections = 20\nrate_rps = 200\nduration_s = 1\n'
    )
    prepared = bench.prepare(bench.BenchRequest(("baseline",), str(own), k6_out="csv"), target, ("lab",))
    assert prepared.record.generators["p"] == {"name": "k6", "version": "1", "stand_in_for": None, "out": "csv"}
    RunStore.create(prepared.record, {})
    again, _ = bench.resume(prepared.record.id, target)
    assert again.chosen["p"].keep == (SUMMARY, "k6.csv.gz")
    assert again.chosen["p"].generator == K6(out="csv")
    without = bench.prepare(bench.BenchRequest(("baseline",), str(own)), target, ("lab",))
    assert without.record.generators["p"] == {"name": "k6", "version": "1", "stand_in_for": None}
    theirs = tmp_path / "theirs.toml"
    theirs.write_text(own.read_text().replace('"k6"', '"oha"'))
    for sweep, place, said in (
        (theirs, target, "(?s)--k6-out: no load of sweep 'theirs' is made by k6 here, all by oha.*leave"),
        (own, FakeTarget(name="kind"), "(?s)k6 runs in a pod.*--target local"),
    ):
        with pytest.raises(UsageError, match=said):
            bench.prepare(bench.BenchRequest(("baseline",), str(sweep), k6_out="json"), place, ("lab",))


@pytest.mark.slow
@pytest.mark.skipif(find(get_generator("k6")) is None, reason="k6 is not on PATH")
@pytest.mark.parametrize("out", K6_OUT)
def test_k6_leaves_its_own_output(tmp_path: Path, out: Out) -> None:
    """The real one, against nobody: rows with tags, and a summary whose requests are those that the lab's own line tells."""
    installed = find(get_generator("k6"))
    assert installed
    k6 = K6(out=out)
    load = GeneratorLoad("http://127.0.0.1:1/", "h", connections=1, duration_s=1.0, rate_rps=5.0)
    for name, text in k6.files(load).items():
        (tmp_path / name).write_text(text)
    argv = [installed.path if part == "k6" else part for part in k6.argv(load)]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith(b'{"lab":1,')))
    summary = json.loads((tmp_path / SUMMARY).read_text())
    assert summary["metrics"]["http_reqs"]["values"]["count"] == told["made"] >= 4
    if out == "csv":
        rows = pl.read_csv(gzip.decompress((tmp_path / "k6.csv.gz").read_bytes()))
        assert rows.filter(pl.col("metric_name") == "http_reqs").height == told["made"]
        assert rows["error_code"].drop_nulls().len() > 0
    elif out == "json":
        rows = [json.loads(line) for line in gzip.decompress((tmp_path / "k6.json.gz").read_bytes()).splitlines()]
        assert len([row for row in rows if row["type"] == "Point" and row["metric"] == "http_reqs"]) == told["made"]
