"""A stored run whose variants have other names now: it is read under these, and what is added to it has those of its day."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from lab.model.design import PlannedAnew
from lab.model.run import NotMeasured
from lab.model.usage import USAGE_SCHEMA
from lab.records import levels, packing, trials
from lab.records.renamed import find_renamed, rename_run, rename_sample
from lab.records.store import Reparsed, RunStore
from lab.tests.support.factories import make_plan, make_sample, of_slot
from lab.tests.support.made_runs import made_record

OLD = (("log-off", "baseline"), ("backlog-1", "baseline"))
WAS = ("log-off", "backlog-1", "baseline", "baseline-again")
NOW = ["ingress-nginx+access-log-off", "ingress-nginx+somaxconn-1", "ingress-nginx", "ingress-nginx-again"]


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    planned = make_plan(OLD, blocks=1, reference=None)
    lost = (NotMeasured(variant="open-files-1024", what="files", why="few"),)
    record = made_record("20261101-000000-old-0000", planned, not_measurable=lost)
    store = RunStore.create(record, {name: [{"kind": "A", "metadata": {"name": name}}] for name in record.variants})
    usage = pl.DataFrame(schema=USAGE_SCHEMA)
    for slot in planned.slots:
        sample = make_sample(**of_slot(slot), histogram=None)
        store.write_sample(sample, "said", {}, usage)
        store.write_readback(slot.block, slot.arm.name, 0, [{"ok": True, "of": slot.arm.name}])
    return store


def test_a_run_is_read_under_present_names(old: RunStore) -> None:
    run = RunStore.open(str(old.folder))
    record = run.record
    assert [arm.name for arm in record.arms] == NOW
    assert {arm.variant for arm in record.arms} == {*record.variants} == {*NOW} - {"ingress-nginx-again"}
    assert all(variant.name == name for name, variant in record.variants.items())
    assert {arm for _, arm, _ in record.slots} == {*NOW}
    assert record.not_measurable[0].variant == "ingress-nginx+max-worker-open-files-1024"
    samples = run.samples()
    assert {sample.arm for sample in samples} == {*NOW}
    was = dict(zip(NOW, WAS, strict=True))
    for sample in samples:
        assert run.readings(sample) == [{"ok": True, "of": was[sample.arm]}]
        assert run.manifests(sample.variant)[0]["metadata"]["name"] == was[sample.variant]
    assert record.plan().slots[0].arm.name in NOW


def test_what_is_added_to_it_has_the_names_of_its_day(old: RunStore) -> None:
    run = RunStore.open(str(old.folder))
    path = old.folder / "run.json"
    before = json.loads(path.read_text())
    run.note_resumed({"kernel": "another"})
    after = json.loads(path.read_text())
    assert {**after, "resumed": []} == {**before, "resumed": []}
    sample = run.samples()[0]
    again = sample.model_copy(update={"id": "0099-again", "order": 99})
    run.write_sample(again, "said", {}, pl.DataFrame(schema=USAGE_SCHEMA))
    written = json.loads((run.folder / "samples/0099-again/sample.json").read_text())
    assert written["arm"] in WAS
    assert again in run.stored_samples() or again.arm in {each.arm for each in run.stored_samples()}
    run.write_readback(2, again.arm, 0, [])
    assert (run.folder / f"readback/b02-{written['arm']}.json").is_file()


def test_it_is_packed_and_reads_the_same(old: RunStore) -> None:
    run = RunStore.open(str(old.folder))
    before = {sample.id: (sample.arm, run.readings(sample)) for sample in run.samples()}
    packing.pack(run)
    packed = RunStore.open(str(old.folder))
    assert packed.packed
    assert {sample.arm for sample in RunStore(old.folder, old.record).stored_samples()} == {*WAS}
    assert {sample.arm for sample in Reparsed.of(packed).stored_samples()} == {*NOW}
    assert {sample.id: (sample.arm, packed.readings(sample)) for sample in packed.samples()} == before


def test_a_name_that_is_taken_or_did_something_else_then_is_kept() -> None:
    both = (("log-off", "ingress-nginx"), ("ingress-nginx+access-log-off", "ingress-nginx"))
    assert find_renamed(made_record("run", make_plan(both, blocks=1, reference=None))).of("log-off") == "log-off"
    names = find_renamed(made_record("run", make_plan((("metrics-off", "baseline"),), blocks=1, reference=None)))
    assert (names.of("metrics-off"), names.of("baseline")) == ("metrics-off", "ingress-nginx")
    now = made_record("run", make_plan((("keepalive", "ingress-nginx"),), blocks=1, reference=None))
    sample = make_sample(arm="keepalive", variant="keepalive", baseline="ingress-nginx")
    assert rename_run(now, find_renamed(now)) is now and rename_sample(sample, find_renamed(now)) is sample


@pytest.mark.committed
def test_what_is_committed_beside_the_runs_has_present_names() -> None:
    told: set[str] = {one.variant for one in levels.read_components()}
    told |= {name for one in levels.read_pairs() for name in (one.variant, one.baseline)}
    told |= {name for trial in trials.read_trials().values() for name in trial.variants}
    assert "ingress-nginx" in told and "baseline" not in told
    details = [tried.detail for trial in trials.read_trials().values() for tried in trial.sweeps.values()]
    assert not any(detail.endswith(" baseline") for detail in details)


def test_names_lead_there_and_back_and_a_design_has_present_ones() -> None:
    planned = make_plan(OLD, blocks=1, reference=None)
    record, sample = made_record("run", planned), make_sample(**of_slot(planned.slots[0]))
    fresh = PlannedAnew(1, ("baseline at rate-1000",), ("run-0",))
    record = record.model_copy(update={"design": record.designed.model_copy(update={"fresh": fresh})})
    names = find_renamed(record)
    design = rename_run(record, names).design
    assert design is not None and design.fresh.loads == ("ingress-nginx at rate-1000",)
    assert {place.arm for place in design.places} == {*NOW}
    assert rename_run(rename_run(record, names), names.inverse) == record
    assert rename_sample(rename_sample(sample, names), names.inverse) == sample
