"""Settings: an effect of each target side by side, a verdict in one word, and each measurement counted once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from lab.analysis.evidence import Evidence
from lab.commands import print_page, readme
from lab.model.design import choose_shape
from lab.model.pairs import SIDES
from lab.model.plan import list_arms, plan_samples
from lab.studies import ledger, settings
from lab.studies.claims import Answer, Claim, ClaimTest, Other
from lab.studies.claims.judging import ClaimVerdict, RunFinding
from lab.studies.claims.measuring import MeasuredTest
from lab.studies.settings import TARGETS, Setting, make_settings
from lab.studies.steps import list_steps
from lab.tests.support.factories import make_point
from lab.tests.support.made_runs import evidence_of, made, variant_record

LOG, BASE = "ingress-nginx+access-log-off", "ingress-nginx"
CEILING = make_point("ceiling", generator="wrk", rate_rps=None)


Capture = pytest.CaptureFixture[str]
READ_ONCE = {
    (settings.knobs, "load_knob"): cache(settings.knobs.load_knob),
    (settings.kustomize, "read_yaml"): cache(settings.kustomize.read_yaml),
    (settings.variants, "load_chain"): cache(settings.variants.load_chain),
}
"""What reads the manifests, which no test here changes."""


@pytest.fixture(autouse=True)
def read_manifests_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), function in READ_ONCE.items():
        monkeypatch.setattr(module, name, function)


def run_on(target: str, factor: float, variant: str = LOG, name: str = "", blocks: int = 8) -> Evidence:
    """A committed run in which the variant's requests cost so many times the baseline's."""
    arms = list_arms([(variant, BASE)], None)
    planned = plan_samples(arms, [CEILING], blocks, 1, choose_shape(arms, [CEILING], blocks, SIDES))
    knob = variant.rpartition("+")[2]
    records = {
        BASE: variant_record(BASE),
        variant: variant_record(variant, baseline=BASE, own_knobs=(knob,), primary_metric="cpu_per_request"),
    }
    store = made(name or f"on-{target}", {variant: factor}, planned, target=target, variants=records)
    return evidence_of(store, name or f"on-{target}")


def named(name: str, runs: Sequence[Evidence], verdicts: Sequence[ClaimVerdict] = ()) -> Setting:
    return next(item for item in make_settings(list_steps(runs, ()), verdicts) if item["name"] == name)


def log_off(*runs: Evidence, verdicts: Sequence[ClaimVerdict] = ()) -> Setting:
    return named("access-log-off", runs, verdicts)


def page_about(setting: Setting, capsys: Capture, everything: bool = False) -> list[str]:
    print_page("settings.txt", settings=[setting], everything=everything)
    return capsys.readouterr().out.splitlines()


def index_of(listed: Sequence[Setting], capsys: Capture) -> list[str]:
    print_page("index.txt", settings=listed, left=0, targets=TARGETS)
    return capsys.readouterr().out.splitlines()


def test_a_setting_has_its_effect_on_each_target_at_one_load() -> None:
    setting = log_off(run_on("local", 0.92), run_on("apiserver", 0.93), run_on("kind", 0.6))
    assert [effect["target"] for effect in setting["effects"]] == ["local", "apiserver", "kind"]
    assert [effect["change"][:2] for effect in setting["effects"]] == ["−8", "−7", "−4"]
    assert all(" µs of " in effect["effect"] and "[" in effect["effect"] for effect in setting["effects"])
    assert setting["verdict"] == "better" and "disable-access-log=true" in setting["sets"]
    assert setting["system"] == BASE and setting["command"] == "just bench access-log-off --target apiserver"


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [
        ([("local", 0.8)], "better"),
        ([("local", 0.8), ("apiserver", 1.25)], "worse"),
        ([("local", 1.25), ("apiserver", 0.8), ("kind", 1.25)], "depends"),
        ([("local", 0.8), ("kind", 1.0)], "equivalent"),
        ([], "not measured"),
    ],
)
def test_the_verdict_is_one_word_and_local_decides_only_alone(runs: Sequence[tuple[str, float]], verdict: str) -> None:
    assert log_off(*(run_on(target, factor) for target, factor in runs))["verdict"] == verdict


def test_of_two_runs_on_a_target_the_longer_counts() -> None:
    setting = log_off(run_on("local", 0.8, name="short"), run_on("local", 0.7, name="long", blocks=12))
    assert [effect["run"] for effect in setting["effects"]] == ["long"]


def test_a_page_has_effects_intervals_times_and_the_command_and_no_long_line(capsys: Capture) -> None:
    lines = page_about(log_off(run_on("local", 0.92), run_on("kind", 0.6)), capsys)
    text = "\n".join(lines)
    assert all(len(line) <= 110 for line in lines), text
    assert lines[0].startswith("access-log-off: no access log") and "  BETTER: apply it" in lines
    assert "CPU per request against ingress-nginx, at ceiling: 100 connections, closed loop, 1kB.bin" in text
    kind = next(line for line in lines if line.startswith("  kind "))
    assert "−4" in kind and " µs of " in kind and kind.endswith("better        one boot, on-kind"), text
    assert lines[-1] == "TEST IT    just bench access-log-off"


def test_the_index_has_a_line_for_each_setting_with_the_effects_in_columns(capsys: Capture) -> None:
    runs = [run_on("local", 0.8), run_on("kind", 1.3, "ingress-nginx+proxy-cache"), run_on("kind", 1.0)]
    lines = index_of([item for item in make_settings(list_steps(runs, ()), ()) if item["effects"]], capsys)
    assert lines[0].split() == ["setting", *TARGETS, "verdict", "in"]
    assert [" ".join(line.split()) for line in lines[1:3]] == [
        "proxy-cache – – +30.0 % worse CPU/req at ceiling",
        "access-log-off −20.0 % – (−0.1 %) equivalent CPU/req at ceiling",
    ]


def test_what_is_only_to_measure_by_is_not_advised(capsys: Capture) -> None:
    setting = named("extra-work-80", [run_on("local", 1.5, "ingress-nginx+extra-work-80")])
    assert setting["instrument"] and any("WORSE: only to measure by: " in line for line in page_about(setting, capsys))


# -- claims ------------------------------------------------------------------------------------------------------


def claimed(name: str, arm: str, other: str, metric: str = "rate", answer: Answer = "contradicted") -> ClaimVerdict:
    """A verdict that rests on one measured ratio."""
    test = ClaimTest(metric=metric, ratio_to=Other(variant=other), within=(1.9, 2.1))
    part = MeasuredTest(test, arm, "wrk", 1.31, 1.16, 1.49, 9, answer == "reproduced", other=other)
    given = MeasuredTest(ClaimTest(metric="failed", below=1), arm, "wrk", 0.0, 0.0, 0.0, 9, True)
    finding = RunFinding("run", "run", "kind", answer, "", "", (given, part), given=1)  # type: ignore[arg-type]
    return ClaimVerdict(
        Claim(name, "qinng", "stated", f"says {name}", "2", "x", ""), answer, "", "", "", ("run",), (finding,)
    )  # type: ignore[arg-type]


def test_claims_that_rest_on_one_ratio_are_one_measurement() -> None:
    """Whichever side is first, and not because their loads had to be alike."""
    same = [
        claimed("QN-08", "tuned", "shipped"),
        claimed("QN-09", "tuned", "shipped"),
        claimed("QN-15", "shipped", "tuned"),
    ]
    other = claimed("QN-10", "plain", "shipped")
    assert ledger.count_answers([*same, other]) == "4 claims: 4 contradicted (resting on 2 measurements)"
    held = claimed("QN-16", "plain", "shipped", answer="reproduced")
    assert ledger.count_answers([*same, held]) == (
        "4 claims: 1 reproduced (resting on 1 measurement), 3 contradicted (resting on 1 measurement)"
    )
    both = claimed("QN-17", "plain", "shipped")
    bridge = ClaimVerdict(both.claim, "contradicted", "", "", "", ("run",), (both.findings[0], same[0].findings[0]))
    assert [len(group) for group in ledger.group_by_measurement([*same, other, bridge])] == [5]


def test_a_page_says_which_claims_are_one_measurement(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_concerns", lambda *_: True)
    verdicts = [claimed(f"QN-{number:02}", LOG, BASE) for number in (9, 15)]
    lines = page_about(log_off(run_on("kind", 0.6), verdicts=verdicts), capsys)
    assert "  qinng (2020), QN-09: says QN-09 (2 x): contradicted" in lines, lines
    assert "  qinng (2020), QN-15: says QN-15 (2 x): contradicted, by the same measurement" in lines
    assert "  2 claims were measured, by 1 measurement" in lines


def test_claims_about_a_setting_name_its_parameter_or_judge_its_arm() -> None:
    """The third names another parameter, and its rule judges another arm."""
    setting = log_off(verdicts=[claimed(name, LOG, BASE) for name in ("QN-09", "QN-18", "DO-22")])
    assert [text[: len("qinng (2020), QN-18")] for text in setting["published"] if "says" in text] == [
        "qinng (2020), QN-09",
        "qinng (2020), QN-18",
    ]


# -- the committed file ------------------------------------------------------------------------------------------


@pytest.mark.committed
def test_the_file_is_up_to_date() -> None:
    """`just maintain readme` writes it."""
    assert settings.FILE.read_text("utf-8") == readme.make_settings_text()


def test_every_committed_page_and_the_index_keep_to_their_width(capsys: Capture) -> None:
    everything = settings.read_settings()
    for setting in everything:
        lines = page_about(setting, capsys, everything=True)
        assert [line for line in lines if len(line) > 110 and " " in line.strip() and "just bench" not in line] == []
        assert setting["verdict"] == "not measured" or setting["effects"]
    assert all(len(line) <= 110 for line in index_of(everything, capsys))
