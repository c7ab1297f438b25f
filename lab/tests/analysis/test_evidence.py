"""The committed runs as evidence: found by what they measured, with what is missing or damaged told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
import pytest

from lab.analysis import evidence
from lab.analysis.aggregate.cells import select_counted_solo_samples
from lab.analysis.evidence import Evidence, Log, Missing, Shelf, probe_timeouts_s
from lab.model.samples import Reason
from lab.records import outcomes
from lab.records.sweep_files import load_sweep
from lab.studies.exhibits import exhibits
from lab.studies.exhibits.reproduction import explain_absence
from lab.tests.support import disturbed
from lab.tests.support.committed import nds_story, run_of
from lab.tests.support.disturbed import ZERO_S
from lab.tests.support.factories import make_sample

VARIANT, BASE = "grace-period-30+host-port", "ingress-nginx+grace-period-30"
VARIANTS = [(VARIANT, BASE)]
CONTAINER = {
    "name": "proxy",
    "env": [{"name": "RELOAD_INTERVAL", "value": "1m30s"}],
    "startupProbe": {"periodSeconds": 1, "failureThreshold": 120, "timeoutSeconds": 5},
    "livenessProbe": {"httpGet": {"path": "/healthz"}},
}
PROXY: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "proxy", "labels": {"lab/role": "proxy"}},
    "spec": {"template": {"spec": {"containers": [CONTAINER]}}},
}
ROUTE = {"apiVersion": "route.openshift.io/v1", "kind": "Route"}
ROUTES = [{**ROUTE, "metadata": {"name": f"r{n}"}, "spec": {"host": f"r{n}.lab.test"}} for n in range(7)]


def told(figure: go.Figure) -> Any:
    return json.loads(figure.to_json() or "")


def annotation(figure: go.Figure) -> str:
    return told(figure)["layout"]["annotations"][0]["text"].replace("<br>", " ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reference")
    manifests = {VARIANT: [PROXY, *ROUTES], BASE: [PROXY]}
    with pytest.MonkeyPatch.context() as monkeypatch:
        for target in ("kind", "local"):
            run_of(made, monkeypatch, "kill-quick", VARIANTS, nds_story, blocks=2, manifests=manifests, target=target)
    return made


@pytest.fixture
def shelf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setenv("LAB_REFERENCE", str(folder))
    return evidence.shelf()


@pytest.fixture
def copied(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a copy of the run on local by a name, in a folder that stands for data/reference."""
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    return lambda name: Path(shutil.copytree(folder / "reference-kill-quick-local", tmp_path / name))


def sample_of(run: Path, block: int) -> Path:
    (found,) = (run / "samples").glob(f"*-b0{block}-{VARIANT}-delete")
    return found


def one(shelf: Shelf) -> Evidence:
    found = shelf.of("kill", "kill-quick", variant=VARIANT)
    assert isinstance(found, Evidence)
    return found


def test_a_run_is_chosen_by_sweep_variant_and_target_and_where_there_is_none_it_says_how_to_get_one(
    shelf: Shelf,
) -> None:
    """Local ones first, unless another target is asked for; the command has the target where it is no default."""
    on_kind = shelf.of("kill-quick", target="kind")
    assert isinstance(on_kind, Evidence)
    assert (one(shelf).run.record.target, on_kind.run.record.target) == ("local", "kind")
    asked: list[tuple[str, dict[str, Any]]] = [("reload", {}), ("kill-quick", {"variant": "okd"})]
    asked.append(("kill-quick", {"target": "remote"}))
    for sweep, wanted in asked:
        found = shelf.of(sweep, **wanted)
        assert isinstance(found, Missing)
        assert f"just bench {wanted.get('variant', 'VARIANT')} --sweep {sweep}" in found.said
        assert ("--target remote" in found.said) == ("target" in wanted)


def test_a_damaged_run_is_named_where_it_was_meant(copied: Callable[[str], Path]) -> None:
    run = copied("hurt")
    path = sample_of(run, 2) / "sample.json"
    path.write_bytes(path.read_bytes()[:500])
    shelf = evidence.shelf()
    assert shelf.runs == ()
    found = shelf.of("kill", "kill-quick", variant=VARIANT)
    assert isinstance(found, Missing) and f"; hurt is damaged: {path}: damaged: " in found.why
    assert found.why.endswith(
        "restore data/reference/hurt from a copy (git restore brings a committed one back), or measure it again"
    )
    others = shelf.of("reload"), shelf.of("kill-quick", variant="okd"), shelf.of("kill-quick", target="kind")
    assert not any("hurt" in other.said for other in others)
    broken = copied("whole").with_name("broken")
    broken.mkdir()
    (broken / "run.json").write_text("{}")  # what it measured is not known
    shelf = evidence.shelf()
    assert ([each.name for each in shelf.runs], len(shelf.damaged)) == (["whole"], 2)
    for said in (one(shelf).said, shelf.of("reload").said):
        assert ("; hurt is damaged: " in said, "; broken is damaged: " in said) == ("no run" not in said, True)


def test_a_run_is_read_once_and_again_when_it_changes(copied: Callable[[str], Path]) -> None:
    run = copied("mine")
    (first,), _ = evidence.load_references()
    (second,), _ = evidence.load_references()
    assert first is second and first.summary(True) is second.summary(True)
    (sample_of(run, 2) / "sample.json").write_text("{")
    whole, damaged = evidence.load_references()
    assert whole == [] and [each.name for each in damaged] == ["mine"]


def test_what_another_run_of_the_sweep_could_not_show_is_told(copied: Callable[[str], Path]) -> None:
    copied("taken")
    path = copied("other") / "run.json"
    told = json.loads(path.read_text()) | {"created_at": "2026-01-01T00:00:00.000+00:00"}
    lacks = [{"variant": name, "what": "cores", "why": f"{name} asks for 32"} for name in ("workers-32", VARIANT)]
    path.write_text(json.dumps(told | {"not_measurable": lacks}))
    run = one(evidence.shelf())
    assert run.name == "taken"
    assert explain_absence(run, "workers-32") == "not measurable here (cores: workers-32 asks for 32)"
    assert explain_absence(run, VARIANT) == ""
    assert explain_absence(run, "okd") == "not part of this run: just bench okd --sweep kill-quick"
    assert explain_absence(run, "aws-a1-node").endswith("just bench aws-a1-node --sweep kill-quick --target kind")


def test_a_baseline_that_is_a_variant_too_has_a_pair_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path, monkeypatch, "kill-quick", [(BASE, "ingress-nginx"), *VARIANTS], nds_story, blocks=1)
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    run = one(evidence.shelf())
    assert run.twin(BASE) == run.twin(VARIANT) == (BASE, f"{BASE}-again")
    assert run.twin("ingress-nginx") == ("ingress-nginx", "ingress-nginx-again")


def test_metrics_are_those_of_the_outcome_by_block(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    run = one(shelf)
    gone = run.values(VARIANT, "delete", "terminating_s")
    assert gone == {1: pytest.approx(30.09, abs=0.02), 2: pytest.approx(30.19, abs=0.02)}
    wanted = {"startup_allowance_s": 120, "reload_interval_s": 90, "routes": 7, "answered_while_failing": 0}
    for metric, value in {**wanted, "least_reload_spacing_s": None}.items():
        assert run.values(VARIANT, "delete", metric) == {1: value, 2: value}
    assert run.values(VARIANT, "delete", "correct_s") == {}
    assert probe_timeouts_s(run.run, VARIANT) == {"liveness": 1.0, "startup": 5.0}
    # of two proxies that reload a tenth of a second apart, each every 5 s
    at_s = [("a", 1.0), ("b", 1.1), ("a", 6.0), ("b", 6.3), ("a", 11.5)]
    reloads = disturbed.events(*((at, "proxy", "proxy", pod, "Reload", "") for pod, at in at_s))
    monkeypatch.setattr(type(run.run), "events", lambda _run, _sample: reloads)
    assert run.values(VARIANT, "delete", "least_reload_spacing_s") == dict.fromkeys((1, 2), pytest.approx(5.0))


def test_a_log_begins_with_its_load_and_that_with_its_first_request(shelf: Shelf) -> None:
    """As `lab.records.outcomes` counts, however late the disturbance began; requests come back as they were written, to k6's millisecond, and
    usage is moved by what the generator took to begin.
    """
    log = one(shelf).log(VARIANT, "delete", 2)
    assert log is not None
    assert log.zero_s == pytest.approx(ZERO_S, abs=2e-3)
    assert log.sample.block == 2
    assert log.bins["connect"].sum() == pytest.approx(20 * 30.2, abs=1)
    assert log.marks.filter(log.marks["kind"] == "Gone")["t_s"][0] == pytest.approx(35.2, abs=0.01)
    assert one(shelf).log(VARIANT, "delete", 9) is None
    requests, usage = disturbed.requests(duration_s=1), disturbed.usage([2] * 3)
    assert (evidence.zero_s(requests), evidence.zero_s(requests.clear())) == (ZERO_S, 0)
    late = evidence.since_load(make_sample(load_after_s=0.75), usage)
    assert late["t_s"].unique().sort().to_list() == [-0.75, 0.25, 1.25]
    assert evidence.since_load(make_sample(), usage)["t_s"].to_list() == usage["t_s"].to_list()


def test_what_the_table_does_not_count_as_failed_is_no_failure_in_the_timeline() -> None:
    """A new route: 404 until it is there, and once after that."""
    point = next(point for point in load_sweep("new-route")[1].load_points if not point.control)
    once = disturbed.requests(1.0, 1.0, out=(0.0, 1.0), status=404)
    once = once.with_columns(pl.col("due_s", "sent_s", "done_s") + 12.0)
    log = pl.concat([disturbed.requests(out=(0.0, 8.0), status=404), once])
    sample = make_sample(point=point)
    shown = Log(sample, ZERO_S, log, disturbed.events(), disturbed.usage([1])).bins
    assert (~outcomes.mark_right_answers(point, log)).sum() == shown["status"].sum() == 1
    assert shown.filter(shown["t_s"] < 7.9)["good_rps"].sum() == 0


def test_another_raw_file_makes_the_run_a_gap(copied: Callable[[str], Path]) -> None:
    """Whole, readable and of the same load, but another block's: no number of the run's was read off it."""
    run = copied("swapped")
    own, other = (sample_of(run, block) / "raw.zst" for block in (1, 2))
    shutil.copy(other, own)
    shelf = evidence.shelf()
    assert shelf.runs == ()
    assert f"{own}: not what sample.json has the digest of" in shelf.damaged[0].said
    own.unlink()
    own.mkdir()
    assert "raw.zst" in evidence.shelf().damaged[0].said


def test_what_has_intervals_comes_before_what_has_a_shape_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path, monkeypatch, "kill", VARIANTS, nds_story, blocks=1, points=["delete"])
    run_of(tmp_path, monkeypatch, "kill-quick", VARIANTS, nds_story, blocks=6)
    run_of(tmp_path, monkeypatch, "kill-quick", VARIANTS, nds_story, blocks=1, name="a-newer-one")
    monkeypatch.setenv("LAB_REFERENCE", str(tmp_path))
    shelf = evidence.shelf()
    found = [shelf.of("kill", "kill-quick", variant=VARIANT, shape=shape) for shape in (False, True)]
    named = [each.run.record.id for each in found if isinstance(each, Evidence)]
    assert named == ["reference-kill-quick-local", "reference-kill-local"]


def test_what_is_lost_is_told(copied: Callable[[str], Path]) -> None:
    run = copied("cut")
    for lost in [sample_of(run, 2), *(run / "samples").glob(f"*-{BASE}-delete")]:
        shutil.rmtree(lost)
    found = one(evidence.shelf())
    assert f", 3 of {len(found.run.record.slots)} planned not measured" in found.said
    some = f"{VARIANT} at delete: 1 of 2 blocks: not measured"
    none = f"{BASE} at delete: 0 of 2 blocks: not measured: just bench {BASE} --sweep kill-quick"
    for text in (exhibits.table(found, ["gap_s"]), exhibits.effects(found)):
        assert f"*nothing to show: {none}*\n\n" in text
        assert text.splitlines()[-1].endswith(f"; {some}")
    figure = told(exhibits.intervals(found, "T", "gap_s"))["layout"]
    assert f"{none}; {some}".replace(" ", "") in figure["title"]["text"].replace("<br>", "").replace(" ", "")
    assert figure["meta"]["gaps"] == [none]
    assert "0 of 2 blocks" in annotation(exhibits.timeline(found, "T", BASE))


def test_reasons_for_lost_blocks_are_named(shelf: Shelf) -> None:
    run = one(shelf)
    control = {key: each for key, each in run.counted.items() if not (key[0] == 1 and each.point.control)}
    assert replace(run, counted=control).lost(VARIANT, "delete") == "1 of 2 blocks: no valid control run"
    bad = {"reason": Reason.STEAL, "verdict": "invalid"}
    invalid = [each.model_copy(update=bad if each.block == 2 else {}) for each in run.all_samples]
    left = replace(run, all_samples=tuple(invalid), counted=select_counted_solo_samples(invalid))
    assert (left.lost(VARIANT, "delete"), run.lost(VARIANT, "delete")) == ("1 of 2 blocks: steal", "")


def test_what_is_misspelt_is_a_gap(shelf: Shelf) -> None:
    run = one(shelf)
    unknown = "kill-nsd is not part of this run: just bench kill-nsd --sweep kill-quick"
    cases: list[tuple[dict[str, Any], str]] = [({"point": "no*"}, "no load of this run is called `no*`")]
    cases.append(({"variants": ["kill-nsd"]}, unknown))
    for asked, why in cases:
        assert exhibits.table(run, ["gap_s"], **asked).startswith(f"*nothing to show: {why}*\n")
        assert exhibits.effects(run, **asked).startswith(f"*nothing to show: {why}*\n")
        assert why in told(exhibits.intervals(run, "T", "gap_s", **asked))["layout"]["annotations"][0]["text"]
    none = "*nothing to show: reference-kill-quick-local has none of gab_s*\n"
    assert exhibits.table(run, ["gab_s"]).startswith(none)


def test_a_damaged_log_is_a_gap(copied: Callable[[str], Path]) -> None:
    """The figure says what is wrong; the others still show. (Samples of earlier labs have no digest of it.)"""
    for path in copied("old").glob("samples/*/raw.zst"):
        path.write_bytes(b"none")
        sample = json.loads(path.with_name("sample.json").read_text())
        assert len(sample.pop("raw_sha256")) == 64
        path.with_name("sample.json").write_text(json.dumps(sample))
    run = one(evidence.shelf())
    assert "raw.zst: cannot be read" in annotation(exhibits.timeline(run, "T", VARIANT))
    assert told(exhibits.intervals(run, "T", "gap_s"))["data"]
