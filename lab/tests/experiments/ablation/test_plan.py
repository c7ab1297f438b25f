"""Ablation: which variants are measured, in which runs, and how the knobs are ranked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from lab.analysis.judge.effects import RunQuestions
from lab.analysis.summary import Summary, summarise
from lab.base.errors import NotMeasurableError, UsageError
from lab.disturbances.kill import Kill
from lab.experiments.ablation import folder as ablation_store
from lab.experiments.ablation.folder import AblationStore
from lab.experiments.ablation.plan import CumulativeVariant, OwnedKnob, knobs_of, overlays_of, plan_steps, runs_of
from lab.model.endpoint import Endpoint
from lab.model.run import NotMeasured
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import MANIFESTS, Check, Knob
from lab.model.variants.variants import Overlay, Variant, load_chain, load_variant
from lab.records.ablation import AblationRecord, AblationRun, Step
from lab.report.markdown import render_markdown
from lab.report.tables import ablation as ablation_table
from lab.studies.study_files import list_studies, load_study, resolve_variants
from lab.tests.support.factories import make_plan, make_point, make_run
from lab.tests.support.fakes import FakeTarget
from lab.tests.support.golden import print_page


def knob(name: str, sweep: str = "quick", sets: str | None = None, value: str = "1") -> Knob:
    return Knob(
        name=name,
        title=f"title of {name}",
        hypothesis="something changes under some load",
        sweep=sweep,
        primary_metric="cpu_per_request",
        readback=(Check(kind="sysctl", name=sets or name, value=value),),
    )


def overlay(name: str, baseline: str | None = None, *knobs: str) -> Overlay:
    return Overlay(name=name, title=name, baseline=baseline, own_knobs=knobs)


def never(*_: object) -> None: ...


def steps_of(
    found: Sequence[OwnedKnob],
    overlays: Sequence[Overlay] = (),
    refusal: Callable[[str, str], str | None] = never,
    unmeasurable: Callable[[str, str], str | None] = never,
    first_refused: Callable[[Sequence[CumulativeVariant]], tuple[str, str] | None] = never,
) -> dict[str, Step]:
    steps = plan_steps(found, [overlay("root"), *overlays], refusal, unmeasurable, first_refused)
    return {step.knob: step for step in steps}


def owned(*knobs: Knob) -> list[OwnedKnob]:
    return [OwnedKnob(each, "root") for each in knobs]


def test_each_knob_is_measured_alone_and_with_all_before_it_in_order() -> None:
    asked: dict[str, tuple[str, ...]] = {}
    steps = steps_of(
        owned(knob("b"), knob("a"), knob("c")),
        first_refused=lambda wanted: asked.update({each.name: each.knobs for each in wanted}),
    )
    assert [step.alone for step in steps.values()] == ["root+b", "root+a", "root+c"]
    assert [step.cumulative for step in steps.values()] == list(asked)
    assert asked == {"root+b": ("b",), "root-upto-a": ("b", "a"), "root-upto-c": ("b", "a", "c")}


def test_knobs_that_set_the_same_thing_differently_are_measured_one_at_a_time_only() -> None:
    steps = steps_of(owned(knob("one", sets="x"), knob("z"), knob("two", sets="x", value="2")))
    assert steps["one"].cumulative is None
    assert steps["two"].cumulative is None
    assert steps["two"].why == ("one at a time only: the same thing is set by one",)
    assert steps["z"].cumulative == "root+z"


def test_a_handicap_leaves_the_others_together_and_what_is_compared_with_it_stays() -> None:
    overlays = [overlay("low", "root", "bad"), overlay("high", "low", "good")]
    found = owned(knob("bad", sets="x"), knob("z"), knob("good", sets="x", value="2"))
    steps = steps_of(found, overlays)
    assert (steps["bad"].alone, steps["bad"].cumulative) == ("low", None)
    assert (steps["good"].against, steps["good"].cumulative) == ("low", "root-upto-good")
    third = steps_of([*found, *owned(knob("other", sets="x", value="3"))], overlays)
    assert third["good"].why == ("one at a time only: the same thing is set by other",)


def test_what_is_refused_together_or_not_measurable_here_leaves_the_others_together() -> None:
    def first_refused(wanted: Sequence[CumulativeVariant]) -> tuple[str, str] | None:
        return next(((each.name, "changes nothing") for each in wanted if each.knobs[1:] and "b" in each.knobs), None)

    found = owned(knob("a"), knob("b"), knob("c"))
    refused = steps_of(found, first_refused=first_refused)
    assert refused["b"].why == ("one at a time only: changes nothing",)
    unmeasurable = steps_of(found, unmeasurable=lambda name, _: "cores" if name == "root+b" else None)
    assert unmeasurable["b"].why == ("one at a time only: cores",)
    for steps in (refused, unmeasurable):
        assert (steps["b"].alone, steps["b"].cumulative) == ("root+b", None)
        assert steps["c"].cumulative == "root-upto-c"


def test_the_subjects_own_overlay_says_what_a_knob_is_compared_with() -> None:
    on_parent = overlay("child", "parent", "b")
    found = [
        OwnedKnob(knob("a"), "root", (overlay("parent", "root", "a"),)),
        OwnedKnob(knob("b"), "root", (on_parent,)),
    ]
    steps = steps_of(found, [overlay("parent", "root", "a"), on_parent])
    assert (steps["b"].alone, steps["b"].against) == ("child", "parent")
    assert (steps["b"].cumulative, steps["a"].alone) == ("root-upto-b", "parent")


@cache
def every_overlay() -> Sequence[Overlay]:
    return overlays_of(MANIFESTS)


@pytest.mark.parametrize("key", list_studies())
def test_a_study_is_ablated_with_every_variant_of_its_systems_that_is_annotated_with_it(key: str) -> None:
    """Those it lists come first; knobs of no study are there to be compared with."""
    names, study = resolve_variants(key, as_variant=False)
    listed = load_study(key).variants
    assert list(names[: len(listed)]) == listed
    roots = {load_chain(name)[0].name for name in names}
    annotated = (each.name for each in every_overlay() if each.study == key)
    assert {name for name in annotated if load_chain(name)[0].name in roots} <= set(names)
    found = knobs_of(names, MANIFESTS, study)
    assert [each.for_comparison for each in found] == [each.knob.study is None for each in found]


def test_another_overlay_says_so_if_at_most_one_knob_lies_between() -> None:
    near = [overlay("p", "root", "x"), overlay("near", "p", "b")]
    far = [overlay("q", "root", "x", "y"), overlay("far", "q", "b")]
    assert steps_of(owned(knob("b")), near)["b"].against == "p"
    assert steps_of(owned(knob("b")), far)["b"].alone == "root+b"
    assert steps_of([OwnedKnob(knob("b"), "root", cumulative=False)], near)["b"].alone == "root+b"


def test_there_is_one_run_per_sweep_with_every_variant_once() -> None:
    steps = steps_of(owned(knob("a"), knob("b", "smoke"), knob("c")))
    assert runs_of(list(steps.values())) == {
        "quick": ("root+a", "root+c", "root-upto-c"),
        "smoke": ("root+b", "root-upto-b"),
    }


def test_cumulative_overlays_are_written_into_the_ablations_own_manifests_only(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    ablation_store.copy_manifests(manifests)
    knobs = ("keep-alive-requests-10000", "somaxconn-128")
    made = [
        CumulativeVariant("ingress-nginx-upto-x", "ingress-nginx", knobs, "quick"),
        CumulativeVariant("keepalive", "ingress-nginx", (), "quick"),
    ]
    ablation_store.write_overlays(manifests, made)
    assert ablation_store.find_refusal(manifests, FakeTarget(), "ingress-nginx-upto-x") is None
    variant = load_variant("ingress-nginx-upto-x", manifests)
    assert (variant.baseline, variant.own_knobs) == ("ingress-nginx", knobs)
    assert not (MANIFESTS / "overlays" / "ingress-nginx-upto-x").exists()
    ablation_store.write_overlays(manifests, [])
    assert not (manifests / "overlays" / "ingress-nginx-upto-x").exists()
    assert (manifests / "overlays" / "keepalive").exists()


def test_what_the_target_refuses_cannot_be_and_what_this_machine_cannot_show_can() -> None:
    """`access-log-sync` needs the volume of `access-log-disk`: alone it is a row with a reason, not the end of the plan."""

    class Refusing(FakeTarget):
        error: UsageError = UsageError("log-sync", "there is no volume", "")

        def check_variant(self, variant: Variant, points: Sequence[LoadPoint]) -> Mapping[str, Endpoint]:
            raise self.error

    target = Refusing()
    assert ablation_store.find_refusal(MANIFESTS, target, "keepalive") == "log-sync: there is no volume"
    target.error = NotMeasurableError("cores", "keepalive", "asks for 32 workers")
    assert ablation_store.find_refusal(MANIFESTS, target, "keepalive") is None


# -- the store and the table --------------------------------------------------------------------------------


def record(*steps: Step, **more: object) -> AblationRecord:
    fields: dict[str, object] = {
        "id": "20261121-120000-ablate-x-0000",
        "created_at": "",
        "command": (),
        "subject": "x",
        "target": "local",
        "blocks": None,
        "seed": 1,
        "steps": steps,
        "runs": tuple(AblationRun(sweep=sweep, variants=names) for sweep, names in runs_of(steps).items()),
    }
    return AblationRecord.model_validate(fields | more)


def summary_of(effects: Mapping[str, float], names: Sequence[str], blocks: int = 8, noise: float = 0.02) -> Summary:
    run = make_plan([(name, "root") for name in names], [make_point("ceiling", rate_rps=None)], blocks=blocks)
    samples, histograms = make_run(run, effects=effects, noise=noise)
    primary = dict.fromkeys(names, "cpu_per_request")
    snippets = {name: f"set: {name}" for name in names}
    return summarise(run, samples, lambda sample: histograms.get(sample.id), RunQuestions(primary), snippets)


def lines_of(effects: Mapping[str, float], blocks: int = 8, noise: float = 0.02) -> list[ablation_table.Ranked]:
    steps = list(steps_of(owned(knob("a"), knob("b"), knob("c"))).values())
    summary = summary_of(effects, ["root+a", "root+b", "root+c", "root-upto-b", "root-upto-c"], blocks, noise)
    return list(ablation_table.rank_knobs(record(*steps), {"quick": summary}))


def test_knobs_are_ranked_by_effect_the_claimed_ones_first_and_only_what_helped_is_to_be_applied() -> None:
    lines = lines_of({"root+b": 0.7, "root+c": 1.2})
    assert [(line.step.knob, line.verdict) for line in lines] == [
        ("b", "apply"),
        ("c", "do not apply"),
        ("a", "inconclusive"),
    ]
    cumulative = lines_of({"root+b": 0.7, "root-upto-b": 0.5})[0].cumulative
    assert cumulative is not None and cumulative.estimate is not None
    assert cumulative.estimate.ratio == pytest.approx(0.5, rel=0.05), "the cumulative effect beside the knob's own"
    text = print_page(ablation_table.page(record(), lines), 60)
    assert "set: root+b" in text and "set: root+c" not in text


def test_a_knob_that_is_not_measurable_is_a_row_with_the_reason() -> None:
    steps = list(steps_of(owned(knob("a"), knob("b"))).values())
    missing = NotMeasured(variant="root+b", what="cores", why="asks for 8 workers")
    runs = (AblationRun(sweep="quick", variants=("root+a", "root+b"), not_measurable=(missing,)),)
    told = record(*steps, runs=runs)
    lines = ablation_table.rank_knobs(told, {"quick": summary_of({}, ["root+a"])})
    assert (lines[-1].step.knob, lines[-1].verdict) == ("b", "not measurable")
    assert "cores: asks for 8 workers" in lines[-1].notes[0]
    assert "b | root | quick" in render_markdown(ablation_table.page(told, lines))


def test_an_ablation_is_found_again_and_remembers_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    told = record(*steps_of(owned(knob("a"))).values())
    store = AblationStore(tmp_path / told.id, told)
    store.folder.mkdir()
    store.write(told)
    store.note_run("quick", "run-1")
    again = AblationStore.open(told.id).record
    assert [run.run for run in again.runs] == ["run-1"]
    with pytest.raises(UsageError, match="did you mean '20261121-120000-ablate-x-0000'"):
        AblationStore.open(told.id[:-1] + "1")


# -- where something is done to the system ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "alone"),
    [(UsageError("disturbance", "too late for this sweep", ""), None), (NotMeasurableError("proxy", "x", "none"), "c")],
)
def test_what_a_disturbance_cannot_be_done_to_is_left_out_with_its_reason(
    error: UsageError, alone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vet(self: Kill, manifests: object) -> None:
        raise error

    monkeypatch.setattr(Kill, "vet", vet)
    target = FakeTarget()
    told = ablation_store.find_refusal(MANIFESTS, target, "kill-replicas-2", "kill-quick")
    assert (told is None) == isinstance(error, NotMeasurableError)
    assert ablation_store.find_unmeasurable(target, MANIFESTS, "kill-replicas-2", "kill-quick")
    assert ablation_store.find_refusal(MANIFESTS, target, "keepalive", "quick") is None
    steps = steps_of(
        owned(knob("a"), knob("c", "kill-quick")), refusal=lambda _, sweep: told if sweep != "quick" else None
    )
    assert steps["a"].alone == "root+a"
    assert steps["c"].alone == (f"root+{alone}" if alone else None)
    assert alone or steps["c"].why == ("alone: ingress-nginx+proxy-replicas-2: disturbance: too late for this sweep",)
