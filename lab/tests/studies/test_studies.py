"""Studies: every file holds together, every published cell is measured once, tables have the published shape; findings and the boots they rest on."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from lab.analysis import evidence
from lab.analysis.judge.effects import RunQuestions
from lab.analysis.summary import Summary, summarise
from lab.base.errors import UsageError
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import load_variant
from lab.records.sweep_files import load_sweep
from lab.report.markdown import render_markdown
from lab.stats import paired as stats
from lab.studies import results
from lab.studies import study_files as studies
from lab.studies.boots import compute_distance_to_bound, make_lengths_page, select_part
from lab.studies.claims import Claim, Other
from lab.studies.claims import ClaimTest as Rule  # a rule's test, none of pytest's
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.claims.measuring import MeasuredTest, measure_test
from lab.studies.steps import list_boot_tasks, list_findings, read_published_ratio
from lab.studies.study_files import StudyFile, list_cells, list_studies, load_study, read_published
from lab.tests.support.boots import ROOT, on_boot
from lab.tests.support.factories import Change, alter, make_plan, make_point, make_run
from lab.tests.support.golden import print_page

OKD = """
title = "OKD"
source = "OKD documentation"
question = "What does TLS cost?"
variants = ["ingress-nginx", "keepalive"]
sweep = "quick"
quick = {sweep = "smoke", blocks = 6}

[not_a_knob]
"router sharding" = {why = "one router only"}

[[tables]]
title = "Transactions per second"
published = "okd_router_throughput.csv"
value = "transactions_per_s"
unit = "req/s"
rows = ["route_encryption"]
columns = ["http_mode"]
filters = {endpoint_publishing = ["HostNetwork"], route_encryption = ["none", "edge"]}
reference = {route_encryption = "none"}
metrics.rate = {}
points.ceiling = {http_mode = "keep-alive"}
variants.ingress-nginx = {route_encryption = "none"}
variants.keepalive = {route_encryption = "edge"}
"""


@pytest.fixture
def study_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study called `mine`, alone in its folder."""
    monkeypatch.setattr(studies, "FOLDER", tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(OKD)
    return path


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def points_of(sweep: str) -> list[LoadPoint]:
    return load_sweep(sweep)[1].load_points


@pytest.mark.parametrize("key", list_studies())
def test_every_study_loads_and_measures_every_variant_of_its_tables(key: str) -> None:
    """All of a table in one run: asked for together, as the baseline of one, or as the direct reference."""
    file = load_study(key)
    assert all(load_variant(name) for name in file.variants)
    assert all(points_of(sweep) for sweep in (file.sweep, file.quick.sweep))
    for table in file.tables:
        measured = [file.variants, *(change.variants for change in file.changes)]
        arms = ({*each, *(load_variant(name).baseline for name in each), "direct"} for each in measured)
        assert any(set(table.variants) <= each for each in arms), table.title


@pytest.mark.parametrize("key", ["okd", "qinng"])
def test_every_published_cell_is_measured_exactly_once(key: str) -> None:
    file = load_study(key)
    for table, sweep in ((table, sweep) for table in file.tables for sweep in (file.sweep, file.quick.sweep)):
        found = [cell.key for cell in list_cells(table, points_of(sweep))]
        assert sorted(found) == sorted(read_published(table)), table.title


CHANGES = (
    '[[changes]]\nquestion = "q"\nvariants = ["ingress-nginx"]\nagainst = "nginks"\nsweep = "quick"\nquick = "quick"\n'
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("question =", "qestion =", "qestion: unknown key: did you mean 'question'?"),
        ("columns =", "colums =", "unknown key: did you mean 'columns'?"),
        ("blocks = 6", 'blocks = "6"', "quick.blocks"),
        ('"keepalive"]', '"keepalvie"]', "there is no 'keepalvie'\n  did you mean 'keepalive'?"),
        ('sweep = "smoke"', 'sweep = "smok"', "did you mean 'smoke'?"),
        (
            "[not_a_knob]",
            f"{CHANGES}[not_a_knob]",
            "changes.0: variants: there is no 'nginks'\n  did you mean 'nginx'?",
        ),
        ("okd_router_throughput", "okd_router_troughput", "did you mean 'okd_router_throughput.csv'?"),
        ('"transactions_per_s"', '"transactions"', "did you mean 'transactions_per_s'?"),
        ('["HostNetwork"]', '["Hostnetwork"]', "no row of okd_router_throughput.csv has these values"),
        ('nginx = {route_encryption = "none"}', 'nginx = {route = "none"}', "'route' is neither in rows nor in"),
        ('alive = {route_encryption = "edge"}', 'alive = {route_encryption = "none"}', "are both none / keep-alive"),
        ('ceiling = {http_mode = "keep-alive"}', "ceiling = {}", "nothing says its http_mode"),
    ],
)
def test_what_a_study_file_has_wrong_is_named_with_a_remedy(study_file: Path, old: str, new: str, told: str) -> None:
    edited(study_file, old, new)
    with pytest.raises(UsageError) as caught:
        list_cells(load_study("mine").tables[0], [make_point("ceiling", rate_rps=None)])
    assert told in str(caught.value)


def filled(noise: float = 0.02, effect: float = 2.0, change: Change = lambda _slot, sample: sample) -> Summary:
    """A made run of the study's variants."""
    run = make_plan((("keepalive", "ingress-nginx"),), [make_point("ceiling", rate_rps=None)], blocks=7)
    samples, histograms = make_run(run, {"keepalive": effect}, noise, change=change)
    return summarise(run, samples, lambda sample: histograms.get(sample.id), RunQuestions())


def printed(study: StudyFile, summary: Summary) -> str:
    return print_page(results.page(results.shape_tables(study, summary)))


def test_a_cell_is_relative_to_the_reference_with_an_interval_unless_that_is_measured_once(study_file: Path) -> None:
    """`direct` stands before the blocks and has no interval of its own."""
    (table,) = results.shape_tables(load_study("mine"), filled())
    edge, none = table.cells["edge", "keep-alive"], table.cells["none", "keep-alive"]
    level, relative = edge.level, edge.relative
    assert level is not None and level.low is not None and level.value is not None and level.high is not None
    assert level.low < level.value < level.high and level.value == pytest.approx(10_000, rel=0.05)
    assert (edge.published, edge.notes) == (22913, ("k6 stood in for wrk2",))
    assert relative is not None and relative[1] is not None and relative[2] is not None
    assert relative[1] < relative[0] < relative[2] and relative[0] == pytest.approx(0.5, rel=0.05)
    assert edge.published_relative == pytest.approx(22913 / 29622) and none.relative is None
    edited(study_file, "variants.ingress-nginx =", "variants.direct =")
    (table,) = results.shape_tables(study := load_study("mine"), filled())
    edge, direct = table.cells["edge", "keep-alive"], table.cells["none", "keep-alive"]
    assert edge.relative is not None and edge.level is not None and direct.level is not None
    assert edge.level.value is not None and direct.level.value is not None
    assert edge.relative[0] == pytest.approx(edge.level.value / direct.level.value, rel=0.02)
    assert edge.relative[1:] == (None, None)
    assert any(f"{edge.relative[0]:.2f}×" in line for line in printed(study, filled()).splitlines())


def test_the_table_is_in_the_published_shape_with_the_numbers_of_the_runs_own_table(study_file: Path) -> None:
    """Percentiles are of all requests together, and never a mean of the blocks' own."""
    lines = printed(load_study("mine"), filled()).splitlines()
    head = next(number for number, line in enumerate(lines) if "keep-alive" in line)
    assert lines[head].index("keep-alive") < lines[head].index("close")
    assert [line.split()[0] for line in lines[head + 2 : head + 4]] == ["none", "edge"]
    assert results.NOTE_OTHER_MACHINES in lines
    assert len({line.index("29,622") for line in lines if "29,622" in line}) == 1
    edited(study_file, "metrics.rate = {}", "metrics.p99 = {}")
    edited(study_file, "req/s", "ms")
    limited = alter(lambda slot: slot.arm.name == "keepalive", lambda _: {"limited_by": "generator"})
    summary = filled(noise=0.5, effect=1.0, change=limited)
    (table,) = results.shape_tables(study := load_study("mine"), summary)
    cell = table.cells["edge", "keep-alive"]
    row = next(row for row in summary.rows if row.arm.name == "keepalive")
    p99_s = row.cell.shown("p99")
    assert cell.level is not None and p99_s is not None
    assert cell.level.value == pytest.approx(p99_s * 1e3)
    mean = stats.estimate_geometric_mean(list(row.cell.known("p99").values()))
    assert cell.level.value != pytest.approx(mean.value * 1e3, rel=0.01)
    assert mean.low is not None and cell.level.low == pytest.approx(mean.low * 1e3)
    assert any("generator-limited" in note for note in cell.notes), "of a latency, too"
    assert " ".join(results.MEASURED.split()) in " ".join(printed(study, summary).split())


@pytest.mark.parametrize(
    ("unit", "metric", "ratio"),
    [
        ("% (faster)", "rate", 1.5),
        ("% (faster)", "cpu_per_request", 1 / 1.5),
        ("% (faster)", "p50", 1 / 1.5),
        ("% change (about)", "p50", 1.5),
        ("x (about)", "rate", 50),
        ("ms", "p50", None),
    ],
)
def test_what_is_half_as_fast_again_takes_two_thirds_of_the_time(unit: str, metric: str, ratio: float | None) -> None:
    claim = Claim("TF-01", "successors", "stated", "It is faster.", "50", unit, "")
    test = Rule(metric=metric, ratio_to=Other(variant="traefik"), within=(0.5, 2.0))
    part = MeasuredTest(test, "traefik+traefik-fast-proxy", "ceiling", 0.7, 0.6, 0.8, 10, True, other="traefik")
    assert read_published_ratio(ClaimVerdict(claim, "reproduced", "", "", "", ()), part) == (
        ratio and pytest.approx(ratio)
    )


@pytest.mark.committed
def test_a_finding_says_where_it_was_measured_and_what_the_same_step_did_elsewhere() -> None:
    """Kubernetes' own behaviour rests on kind, where there is a kubelet of its own."""
    found = {each.asked.arm: each for each in list_findings(evidence.load_references()[0])}
    assert found["grace-period-30+host-port"].target == "kind"
    assert {step.target for step in found["grace-period-30+host-port"].elsewhere} == {"local"}
    logs = found["ingress-nginx+access-log-off"].elsewhere
    assert {step.target for step in logs} == {"local", "apiserver"}
    assert {step.load for step in logs} == {"64 connections, closed loop, 1kB.bin"}, "as of the finding's own run"
    for each in found.values():
        assert each.target not in {step.target for step in each.elsewhere}
        places = [(step.target, step.point, step.metric) for step in each.elsewhere]
        assert len(places) == len(set(places))


RUN = "known-costs"
ARM = "ingress-nginx+extra-work-80"
FINDING = f'[[finding]]\nasks = "Is it so?"\nrun = "{RUN}"\narm = "{ARM}"\npoint = "ceiling"\n'


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "findings.toml").write_text(FINDING)
    (folder / RUN).symlink_to(ROOT / "data" / "reference" / RUN)
    monkeypatch.setenv("LAB_REFERENCE", str(folder))
    monkeypatch.setenv("LAB_RUNS", str(folder.parent / "runs"))
    return folder


def further(top: Path, *costs: float) -> None:
    """The same run on other boots, where the proxy's CPU time of variants is that many times as large."""
    (top / RUN).unlink()
    shutil.copytree(ROOT / "data" / "reference" / RUN, top / RUN)
    for number, cost in enumerate(costs, start=2):
        on_boot(RUN, top / RUN / f"boot-{number}", f"b{number}", cost=cost)


@pytest.mark.committed
def test_a_finding_of_one_boot_says_so(top: Path) -> None:
    runs = evidence.load_references()[0]
    (found,) = list_findings(runs)
    assert "[+79.6, +81.7]" in found.measured and found.measured.endswith("; one boot") and found.boots.agree
    (wanted,) = list_boot_tasks(runs, [])
    assert wanted.bench == f"just bench {ARM} --points ceiling --sweep known-costs --blocks 40"
    assert wanted.pack == f"just maintain pack RUN --into {RUN}"
    assert len(wanted.boots) == 1 and 1 < wanted.minutes < 60
    names = {ARM, "ingress-nginx", "ingress-nginx-again"}
    record = select_part(runs[0].run.record, {ARM}, ["ceiling"])
    slots = record.plan().slots
    assert {arm.name for arm in record.arms} == names and {slot.point.name for slot in slots} == {"ceiling"}
    there = [slot for slot in runs[0].run.record.plan().slots if slot.point.name == "ceiling"]
    assert len(slots) == sum({slot.arm.name, slot.other} <= names | {""} for slot in there)


@pytest.mark.committed
def test_the_known_costs_difference_is_divided_between_the_boot_and_the_samples_length(top: Path) -> None:
    """The sentence's own numbers multiply: what the length changes, times what the boot does, is the ratio of both runs' costs."""
    assert "takes two boots with both lengths" not in (text := render_lengths()) and "`just bench" in text
    for name in ("knobs-local", "known-cost-lengths"):
        (top / name).symlink_to(ROOT / "data" / "reference" / name)
    text = render_lengths().replace("−", "-")
    numbers = re.search(
        r"is \+([\d.]+) % .* boot, \+([\d.]+) % .* is ([\d.]+) % .* by ([-+][\d.]+) % .* other ([\d.]+) %", text
    )
    assert numbers is not None, text
    first, second, gap, length, rest = (1 + float(number) / 100 for number in numbers.groups())
    assert gap == pytest.approx(second / first, abs=2e-3) and gap == pytest.approx(length * rest, abs=2e-3)
    assert "three boots had 3 different processors" in text


def render_lengths() -> str:
    return render_markdown(make_lengths_page(evidence.load_references()[0]))


@pytest.mark.slow
def test_a_finding_of_three_boots_has_the_interval_over_them(top: Path) -> None:
    further(top, 1.1, 1.25)
    (found,) = list_findings(evidence.load_references()[0])
    over = found.boots.over
    assert over is not None and found.boots.boots == 3
    logs = [one.estimate.effect for one in found.boots.effects if one.estimate]
    assert logs[1] - logs[0] == pytest.approx(log(1.1), abs=1e-6)
    assert over.low < min(logs) < max(logs) < over.high
    assert "; over three boots CPU per request at ceiling +" in found.measured
    assert list_boot_tasks(evidence.load_references()[0], []) == []


@pytest.mark.slow
def test_a_claims_interval_is_over_boots(top: Path) -> None:
    """Its bound of 1.5 lies below the interval of the first boot, and in the one over three."""
    test = Rule(metric="cpu_per_request", points="ceiling", ratio_to=Other(variant="ingress-nginx"), above=1.5)
    (run,) = evidence.load_references()[0]
    (one,) = measure_test(test, ARM, run)
    assert (one.boots, one.holds) == (1, True)
    further(top, 1.1, 0.75)
    (run,) = evidence.load_references()[0]
    (three,) = measure_test(test, ARM, run)
    assert (three.boots, three.holds) == (3, None)
    assert three.low is not None and three.high is not None and three.low < 1.36 < 1.98 < three.high
    assert three.text.endswith("over three boots") and "boots" not in one.text


@pytest.mark.parametrize(
    ("bound", "value", "distance"),
    [
        ({"above": 1.5}, 1.8, 1 / 6),
        ({"within": (1.0, 2.0)}, 1.9, 1 / 19),
        ({"above": 1.0}, 1.05, None),
        ({"below": 0.5}, 0.4, 0.25),
    ],
)
def test_how_near_a_bound_is(bound: dict[str, float], value: float, distance: float | None) -> None:
    """A ratio above 1 is a direction, no size."""
    test = Rule(metric="cpu_per_request", ratio_to=Other(variant="ingress-nginx"), **bound)  # type: ignore[arg-type]
    part = MeasuredTest(test, ARM, "ceiling", value, value * 0.99, value * 1.01, 10, True)
    assert compute_distance_to_bound(part) == (None if distance is None else pytest.approx(distance))
    assert compute_distance_to_bound(replace(part, holds=None)) is None, "what is open is not decided by another boot"
