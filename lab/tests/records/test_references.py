"""References of several boots: a run of the same design is added, another is refused with every difference; a replaced one leaves its effects."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.__main__ import main
from lab.analysis import evidence, history
from lab.base.errors import UsageError
from lab.commands import print_page
from lab.model.variants.naming import stored_name
from lab.records import references
from lab.records.references import Manifests, add_run, boot_folders
from lab.records.store import RunStore, run_names
from lab.studies.settings import make_settings
from lab.studies.steps import list_steps, list_steps_elsewhere
from lab.tests.support.boots import ROOT, Change, on_boot
from lab.tests.support.unpacked import unpacked

RUN = "keepalive-pairs"


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "reference"
    shutil.copytree(
        ROOT / "data" / "reference" / RUN, folder / RUN, ignore=shutil.ignore_patterns("hist.parquet", "boot-*")
    )
    monkeypatch.setenv("LAB_REFERENCE", str(folder))
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    return folder


def run_on(tmp_path: Path, boot: str, change: Change | None = None) -> RunStore:
    return RunStore.open(str(on_boot(RUN, tmp_path / "runs" / boot, boot, change)))


def as_is(_target: str, _facts: Mapping[str, str], manifests: Manifests) -> Manifests:
    """Take nothing from the manifests, so that none may differ."""
    return manifests


def only_ceiling(record: dict[str, Any]) -> None:
    """As `bench keepalive --points ceiling` would have it: one point, without the arm beside no proxy."""
    slots = record["slots"]
    kept = [order for order, slot in enumerate(slots, 1) if slot[2] == "ceiling" and slot[1] != "direct"]
    place = {order: number for number, order in enumerate(kept, 1)}
    record["slots"] = [slots[order - 1] for order in kept]
    record["pairs"] = [{**pair, "order": place[pair["order"]]} for pair in record["pairs"] if pair["order"] in place]
    record["points"] = [point for point in record["points"] if point["name"] == "ceiling"]
    record["arms"] = [arm for arm in record["arms"] if arm["name"] != "direct"]
    del record["generators"]["rate-1000"]


def test_a_run_of_another_boot_is_added_and_whoever_reads_the_reference_reads_its_first(
    top: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_on(tmp_path, "second")
    assert main(["maintain", "pack", str(run.folder), "--into", RUN]) == 0
    assert f"{top / RUN / 'boot-2'}: " in capsys.readouterr().out
    third = run_on(tmp_path, "third", lambda record: record["facts"].update(cpu="Xeon", kernel="7.0"))
    _, notes = add_run(third, RUN, as_is)
    assert notes == ["cpu: AMD EPYC / Xeon", "kernel: 6.18.44-fc-v509 / 7.0"], "facts that differ are reported"
    assert [path.name for path in boot_folders(top / RUN)] == [RUN, "boot-2", "boot-3"]
    assert run_names(top) == [RUN], "it is one reference"
    (first,), damaged = evidence.load_references()
    assert (first.name, damaged) == (RUN, [])
    assert [each.name for each in evidence.further_boots(first)] == [f"{RUN}/boot-2", f"{RUN}/boot-3"]
    assert [each.record.facts["boot_id"] for each in runs_of(top)][1:] == ["second", "third"]
    assert run.folder.is_dir(), "the run itself stays"
    folder, notes = add_run(run_on(tmp_path, "few", only_ceiling), RUN, as_is)
    assert (folder.name, notes) == ("boot-4", []), "it may have fewer points"


def runs_of(top: Path) -> list[RunStore]:
    return [RunStore.open(str(path)) for name in run_names(top) for path in boot_folders(top / name)]


def _point(key: str, value: object) -> Change:
    return lambda record: record["points"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_point("duration_s", 8.0), "another design than .*point ceiling has duration_s 8.0 instead of 4.0"),
        (lambda record: record.update(sweep="smoke"), "sweep smoke instead of quick"),
        (lambda record: record["arms"][0].update(baseline="baseline-again"), "against ingress-nginx-again instead of keepalive against ingress-nginx"),
        (lambda record: record["generators"]["ceiling"].update(version="5"), "generator at ceiling is wrk 5 instead of wrk debian"),
        (lambda record: record.update(pairs=[]), "keepalive at ceiling is measured alone instead of as a pair"),
        (lambda record: record["facts"].update(boot_id="not visible"), "its boot is not known"),
        (lambda record: record.update(resumed=[{"at": "2026", "boot_id": "c"}]), "was measured on 2 boots: b, c"),
    ],
)  # fmt: skip
def test_another_design_is_refused(top: Path, tmp_path: Path, change: Change, fault: str) -> None:
    run = run_on(tmp_path, "b", change)
    with pytest.raises(UsageError, match=fault) as refused:
        references.refuse_other_design([RunStore.open(str(top / RUN))], run, RUN, as_is)
    assert refused.value.exit_status == 2 and refused.value.remedy


def eight_cpus(record: dict[str, Any]) -> None:
    """As somebody else's machine has it: more CPUs, and the official image's nginx."""
    record["facts"].update(cpus="8", cpu="AMD EPYC 9B14", nginx="1.27.1", boot_id="not visible")


def test_a_run_of_another_machine_or_program_is_kept_apart_and_names_its_machine(
    top: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is neither a boot nor refused, and whatever shows the finding shows it with its machine."""
    run = run_on(tmp_path, "foreign", eight_cpus)
    assert main(["maintain", "pack", str(run.folder), "--into", RUN]) == 0
    printed = capsys.readouterr()
    assert f"{top / RUN / 'elsewhere-1'}: " in printed.out and "cpus: 2 / 8" in printed.err
    assert (
        add_run(run_on(tmp_path, "kind", lambda record: record.update(target="kind")), RUN, as_is)[0].name
        == "elsewhere-2"
    )
    assert boot_folders(top / RUN) == [top / RUN], "no boot"
    (first,), _ = evidence.load_references()
    assert [each.name for each in evidence.runs_elsewhere(first)] == [f"{RUN}/elsewhere-1", f"{RUN}/elsewhere-2"]
    machine, kind = (step.machine for step in list_steps_elsewhere([first]) if step.point == "ceiling")
    assert machine == f"8 CPUs, AMD EPYC 9B14 ({run.record.created_at[:10]})" and kind.startswith("2 CPUs")
    said = references.describe_boot(RunStore.open(str(top / RUN / "elsewhere-1")))
    assert "nginx: 1.22.1 / 1.27.1" in said and "pooled with no other one" in said
    assert list_steps([first], ())[0].boots == "one boot", "nothing is pooled"
    steps = list_steps_elsewhere([first])
    (setting,) = [each for each in make_settings(list_steps([first], ()), (), steps) if each["elsewhere"]]
    print_page("settings.txt", settings=[setting], everything=False)
    page = capsys.readouterr().out
    assert f"  {machine}, local" in page and "ON OTHER MACHINES, pooled with nothing above" in page
    assert max(map(len, page.splitlines())) <= 110


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda record: record["arms"].append({**record["arms"][0], "name": "another"}), "no arm another there"),
        (lambda record: record["arms"][0].update(baseline="baseline-again"), "arm keepalive is another one there"),
        (_point("duration_s", 8.0), "point ceiling has duration_s 8.0 instead of 4.0"),
    ],
)
def test_a_run_of_another_machine_must_answer_the_same_question(
    top: Path, tmp_path: Path, change: Change, fault: str
) -> None:
    def both(record: dict[str, Any]) -> None:
        eight_cpus(record)
        change(record)

    with pytest.raises(UsageError, match=fault) as refused:
        add_run(run_on(tmp_path, "foreign", both), RUN, as_is)
    assert "cpus: 2 / 8" in refused.value.fault


@pytest.mark.slow
def test_a_setting_that_repeats_the_named_releases_default_is_no_other_design(
    top: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On target local nothing stands in for the controller: its own defaults, written out, change nothing there.

    A run that is not packed yet is packed on its way, and itself stays as it is.
    """
    run = run_on(tmp_path, "b", lambda record: record["variants"]["baseline"].update(manifests_sha256="0"))
    folder = unpacked(run.folder, tmp_path / "runs" / "loose")
    path = folder / "manifests" / "baseline.yaml"
    manifests = list(yaml.safe_load_all(path.read_text()))
    (settings,) = [each for each in manifests if each["metadata"]["name"] == "ingress-nginx-controller"]
    own = settings.get("data") or {}
    for data, status in (
        ({"annotations-risk-level": "Critical"}, 2),
        ({"annotations-risk-level": "High", "keep-alive": "5"}, 2),
        ({"annotations-risk-level": "High"}, 0),
    ):
        settings["data"] = own | data
        path.write_text(yaml.safe_dump_all(manifests))
        assert main(["maintain", "pack", str(folder), "--into", RUN]) == status
        said = " ".join(capsys.readouterr().err.split())
        assert ("other manifests of ingress-nginx" in said) == bool(status)
    assert RunStore.open(str(top / RUN / "boot-2")).packed
    assert not RunStore.open(str(folder)).packed


def test_a_boot_that_is_there_and_an_unfinished_or_too_large_run_are_refused(
    top: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(run_on(tmp_path, "b"), RUN, as_is)
    other = on_boot(RUN, tmp_path / "runs" / "more", "b", lambda record: record.update(id="another"))
    assert main(["maintain", "pack", str(other), "--into", RUN]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "was measured on boot b, which keepalive-pairs has already" in said and "booted anew" in said
    run = run_on(tmp_path, "c")
    folder = unpacked(run.folder, tmp_path / "runs" / "cut")
    shutil.rmtree(sorted((folder / "samples").iterdir())[-1])
    with pytest.raises(UsageError, match="is not finished: 1 of "):
        add_run(RunStore.open(str(folder)), RUN, as_is)
    monkeypatch.setattr(references, "MOST_BYTES", 10_000)
    with pytest.raises(UsageError, match="a further boot has 10,000"):
        add_run(run, RUN, as_is)
    assert [path.name for path in boot_folders(top / RUN)] == [RUN, "boot-2"]
    assert [path.name for path in (top / RUN).iterdir() if path.is_dir()] == ["boot-2"]


def test_what_is_replaced_leaves_its_effects(top: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add_run(run_on(tmp_path, "b"), RUN, as_is)
    old = [each.record.id for each in runs_of(top)]
    new = run_on(tmp_path, "c")
    assert main(["maintain", "pack", str(new.folder), "--into", RUN, "--replace"]) == 0
    assert [each.record.id for each in runs_of(top)] == [new.record.id]
    assert [path.name for path in top.iterdir() if path.name.startswith(".")] == []
    with open(top / history.FILE, newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert {row["run"] for row in rows} == set(old)
    assert {row["reference"] for row in rows} == {RUN, f"{RUN}/boot-2"}
    row = next(each for each in rows if (each["arm"], each["point"], each["metric"], each["scheme"]) == ("keepalive", "ceiling", "cpu_per_request", "slices"))  # fmt: skip
    assert 0.99 < float(row["low"]) < float(row["effect"]) < float(row["high"]) < 1.02 and row["blocks"] == "9"
    for words in (["pack", str(new.folder), "--replace"], ["pack", str(new.folder), "--into", "nothing", "--replace"]):
        assert main(["maintain", *words]) == 2
    assert "there is no reference 'nothing'" in capsys.readouterr().err


def test_the_committed_history_has_present_names_and_no_run_that_is_still_a_reference() -> None:
    """So that its rows can be held against the present runs' by arm and baseline, and no effect counts twice."""
    folder = ROOT / "data" / "reference"
    with open(folder / history.FILE, newline="") as handle:
        rows = list(csv.DictReader(handle))
    bases = {row["baseline"] for row in rows}
    assert {name: stored_name(name) for name in bases} == {name: name for name in bases}
    present = {json.loads(path.read_bytes())["id"] for path in folder.glob("**/run.json")}
    assert present.isdisjoint({row["run"] for row in rows})


def test_a_reference_stays_where_its_effects_cannot_be_kept(top: Path, tmp_path: Path) -> None:
    def fail(run: RunStore, name: str) -> None:
        raise UsageError(name, "cannot be kept")

    with pytest.raises(UsageError, match="cannot be kept"):
        references.replace_run(run_on(tmp_path, "b"), RUN, fail)
    assert json.loads((top / RUN / "run.json").read_bytes())["facts"]["boot_id"] != "b"
    assert [path.name for path in top.iterdir()] == [RUN]
    folder, notes = add_run(run_on(tmp_path, "c"), "mine", as_is)
    assert (folder, notes, run_names(top)) == (top / "mine", [], [RUN, "mine"]), (
        "without a reference it is its first run"
    )
    with pytest.raises(UsageError, match=r"'../x' is no name"):
        add_run(run_on(tmp_path, "d"), "../x", as_is)
