"""`--traffic` through the command line: what is planned, from a file, a pipe or a run, and what a run keeps of it."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.analysis import rerun
from lab.base.handing import TRAFFIC_VARIABLE, inherited_descriptors
from lab.commands import migrate
from lab.commands.traffic import hand_over_traffic
from lab.experiments import bench
from lab.experiments.bench import BenchRequest, PreparedRun, prepare
from lab.experiments.traffic.reading import read_log
from lab.experiments.traffic.shaping import make_sweep, make_traffic
from lab.generators.k6 import K6
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.report.loads import describe_traffic
from lab.targets.local.target import LocalTarget
from lab.tests.support.access_logs import make_log
from lab.tests.support.factories import make_sample
from lab.tests.support.fakes import FakeTarget

LOG = make_log(2000)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An access log with a line that is none; nothing is started, and runs would go beside it."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setattr(LocalTarget, "enter", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "check", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    lines = LOG.split(b"\n")
    (tmp_path / "access.log").write_bytes(b"\n".join([*lines[:6], b"W1201 starting", *lines[6:]]))
    return tmp_path / "access.log"


@pytest.mark.parametrize("verb", ["bench", "knee"])
@pytest.mark.parametrize("piped", [False, True])
def test_the_plan_says_what_is_read_and_what_is_kept(
    verb: str, piped: bool, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if piped:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    assert main([verb, "ingress-nginx", "--traffic", "-" if piped else str(log), "--plan"]) == 0
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines() if line.startswith("traffic ")]
    told_of = ["2,000 requests in the format ingress-nginx, ", ": 3 upstreams, 190 paths"]
    told_of += [
        "3 routes, 190 paths",
        "1 line could not be read, the first is line 7",
        "nothing else of the log is kept",
    ]
    assert [part for part in told_of if part not in err] == [], err
    assert max(map(len, told)) <= 110
    assert out == "" and list((log.parent / "runs").rglob("*")) == []
    if verb == "bench":
        assert "load       ceiling: k6, 100 connections, closed loop, 5 s, mix of requests " in err
        assert "load       rate-30" in err or "load       rate-29" in err
    assert TRAFFIC_VARIABLE not in os.environ


def test_the_plan_as_json_has_the_mix_once(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ingress-nginx", "--traffic", str(log), "--traffic-rate", "80", "--plan", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["runs"][0]
    traffic = make_traffic(read_log("x", LOG), 0)
    assert run["traffic"]["requests"] == list(traffic.requests)
    assert run["traffic"]["log"]["unread"] == 1
    assert [load["point"]["traffic"] for load in run["loads"]] == [traffic.digest] * 2
    assert run["loads"][1]["point"]["rate_rps"] == 80


def test_a_child_process_gets_the_mix_and_not_the_log(log: Path) -> None:
    options = argparse.Namespace(argv=["bench"], traffic=str(log), traffic_rate=None, sweep=None, seed=None)
    with hand_over_traffic(options) as made:
        assert made is not None and made.traffic is not None
        assert inherited_descriptors() == [int(os.environ[TRAFFIC_VARIABLE])]
        handed = os.pread(int(os.environ[TRAFFIC_VARIABLE]), 10**7, 0)
        assert b"users" not in handed and b"10.0." not in handed
        log.unlink()
        with hand_over_traffic(options) as again:
            assert again is not None and again.traffic == made.traffic and again.points == made.points


def planned(made_from: bytes, command: tuple[str, ...] = ()) -> PreparedRun:
    made = make_sweep(make_traffic(read_log("access.log", made_from), 0), None)
    target = FakeTarget()
    return prepare(BenchRequest(("keepalive",), "traffic", blocks=1, seed=1, made=made), target, command)


def test_a_run_goes_on_and_is_measured_again_without_the_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepared = planned(LOG, ("lab", "bench", f"--traffic={log}", "--traffic-rate=80", "--", "keepalive"))
    store = RunStore.create(prepared.record, {name: variant.manifests for name, variant in prepared.variants.items()})
    log.unlink()
    text = (store.folder / "run.json").read_text()
    assert text.count(" GET h1 p1 ") >= 1 and text.count(f'"{prepared.record.points[0].traffic.digest}"') == 2  # type: ignore[union-attr]
    again = RunStore.open(prepared.record.id).record
    assert again == prepared.record
    assert [point.traffic and point.traffic.requests for point in again.points] == [
        again.traffic and again.traffic.requests
    ] * 2
    resumed, _ = bench.resume(prepared.record.id, FakeTarget())
    assert resumed.plan == prepared.plan and resumed.record.points[1].traffic is not None
    place = f" --traffic={again.id} --traffic-rate=80 --target fake"
    assert rerun.load(again) == place and rerun.measure_command(again, "keepalive") == f"just bench keepalive{place}"
    assert main(["bench", "ingress-nginx", "--traffic", again.id, "--plan"]) == 0
    assert "2,000 requests in the format ingress-nginx" in capsys.readouterr().err


def test_a_sample_has_the_digest_alone_and_is_of_its_runs_load(log: Path) -> None:
    record = planned(LOG).record
    sample = make_sample(point=record.points[0])
    text = sample.model_dump_json()
    assert len(text) < 4000 and "h1 p1" not in text
    assert Sample.model_validate_json(text).point == record.points[0]
    other = planned(make_log(2000, seed=2)).record
    assert Sample.model_validate_json(text).point != other.points[0]
    assert RunRecord.model_validate_json(record.model_dump_json()).points[0].traffic == record.traffic


def test_every_line_about_a_mix_fits_and_a_mix_without_a_log_has_one() -> None:
    from lab.records.sweep_files import load_sweep

    traffic = load_sweep("traffic")[1].traffic
    assert traffic is not None
    assert describe_traffic(traffic) == [
        "GET 95.5%, POST 4.0%, HEAD 0.5%; answers of up to 1.05 MB, 25.8 kB on average; 10 routes, 65 paths"
    ]


@pytest.mark.slow
def test_a_migration_is_measured_under_the_mix(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fixture in the manifests of the run's own, for ingress-nginx and the successor alike."""
    (tmp_path / "mine.yaml").write_text("kind: ConfigMap\ndata: {keep-alive: '300'}\n")
    measured: list[PreparedRun] = []
    monkeypatch.setattr(migrate, "measure", lambda talk, prepared, *rest: measured.append(prepared))  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(migrate, "enter_target", lambda *_: FakeTarget("apiserver"))  # pyright: ignore[reportUnknownLambdaType]
    given = [
        "migrate",
        "--configmap",
        str(tmp_path / "mine.yaml"),
        "--to",
        "traefik-ingress-nginx",
        "--measure",
        "--traffic",
        str(log),
    ]
    assert main(given) == 1
    (prepared,) = measured
    assert prepared.record.traffic is not None and prepared.record.sweep == "traffic"
    assert {point.routes for point in prepared.record.points} == {3}
    for variant in prepared.variants.values():
        backend = next(
            obj for obj in variant.manifests if obj["metadata"]["name"] == "backend" and obj["kind"] == "Deployment"
        )
        assert backend["spec"]["replicas"] == 3, variant.name


def test_k6_gets_the_mix_in_its_script_and_waits_at_a_rate_alone(log: Path) -> None:
    def script_of(point: LoadPoint) -> dict[str, object]:
        from lab.generators import make_load
        from lab.model.endpoint import Endpoint

        hosts = ("a.test", "b.test", "c.test")
        load = make_load(point, Endpoint("http://192.0.2.1:80", hosts[0], hosts))
        text = K6().files(load)["k6.js"]
        return json.loads(text.split("const load = ")[1].split(";\nconst mix")[0])

    closed, open_ = map(script_of, planned(LOG).record.points)
    assert closed["destinations"] == [["http://192.0.2.1:80/", {"Host": f"{name}.test"}] for name in "abc"]
    mix, waiting = closed["mix"], open_["mix"]
    assert isinstance(mix, dict) and isinstance(waiting, dict)
    assert mix["waits_s"] == [] and len(waiting["waits_s"]) == 1000 and min(waiting["waits_s"]) == 0
    assert len(mix["order"]) == 2000 and {ord(letter) - mix["first"] for letter in mix["order"]} <= set(
        range(len(mix["shapes"]))
    )
    assert mix["shapes"][0].split()[0] == "GET" and mix["shapes"][0].split()[2].startswith("traffic/p")
