"""Studies: every file holds together, every published cell is measured once, and the tables have the published shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.analysis.judge.effects import Asked
from lab.analysis.summary import Summary, summarise
from lab.base.errors import UsageError
from lab.model.sweeps import Point
from lab.model.variants.variants import load_variant
from lab.records.sweep_files import load_sweep
from lab.stats import paired as stats
from lab.studies import results
from lab.studies import study_files as studies
from lab.studies.study_files import Study, cells, load_study, published, study_keys
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


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def points_of(sweep: str) -> list[Point]:
    return load_sweep(sweep)[1].expanded()


@pytest.mark.parametrize("key", study_keys())
def test_every_study_loads_and_measures_every_variant_of_its_tables(key: str) -> None:
    """All of a table in one run: asked for together, as the baseline of one, or as the direct reference."""
    file = load_study(key).file
    assert all(load_variant(name) for name in file.variants)
    assert all(points_of(sweep) for sweep in (file.sweep, file.quick.sweep))
    for table in file.tables:
        measured = [file.variants, *(change.variants for change in file.changes)]
        arms = ({*each, *(load_variant(name).baseline for name in each), "direct"} for each in measured)
        assert any(set(table.variants) <= each for each in arms), table.title


@pytest.mark.parametrize("key", ["okd", "qinng"])
def test_every_published_cell_is_measured_exactly_once(key: str) -> None:
    file = load_study(key).file
    for table, sweep in ((table, sweep) for table in file.tables for sweep in (file.sweep, file.quick.sweep)):
        found = [cell.key for cell in cells(table, points_of(sweep))]
        assert sorted(found) == sorted(published(table)), table.title


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
    changed(study_file, old, new)
    with pytest.raises(UsageError) as caught:
        cells(load_study("mine").file.tables[0], [make_point("ceiling", rate_rps=None)])
    assert told in str(caught.value)


def filled(noise: float = 0.02, effect: float = 2.0, change: Change = lambda _slot, sample: sample) -> Summary:
    """A made run of the study's variants."""
    run = make_plan((("keepalive", "ingress-nginx"),), [make_point("ceiling", rate_rps=None)], blocks=7)
    samples, histograms = make_run(run, {"keepalive": effect}, noise, change=change)
    return summarise(run, samples, lambda sample: histograms.get(sample.id), Asked())


def printed(study: Study, summary: Summary) -> str:
    return print_page(results.page(results.shaped(study, summary)))


def test_a_cell_has_the_measured_level_with_its_interval_and_the_published_value(study_file: Path) -> None:
    """And is relative to the reference cell on its own machine."""
    (table,) = results.shaped(load_study("mine"), filled())
    edge, none = table.cells["edge", "keep-alive"], table.cells["none", "keep-alive"]
    level, relative = edge.level, edge.relative
    assert level is not None and level.low is not None and level.value is not None and level.high is not None
    assert level.low < level.value < level.high and level.value == pytest.approx(10_000, rel=0.05)
    assert (edge.published, edge.notes) == (22913, ("k6 stood in for wrk2",))
    assert relative is not None and relative[1] is not None and relative[2] is not None
    assert relative[1] < relative[0] < relative[2] and relative[0] == pytest.approx(0.5, rel=0.05)
    assert edge.published_relative == pytest.approx(22913 / 29622) and none.relative is None


def test_a_reference_that_is_measured_once_is_divided_by_without_an_interval(study_file: Path) -> None:
    """`direct` stands before the blocks and has none of its own."""
    changed(study_file, "variants.ingress-nginx =", "variants.direct =")
    (table,) = results.shaped(study := load_study("mine"), filled())
    edge, direct = table.cells["edge", "keep-alive"], table.cells["none", "keep-alive"]
    assert edge.relative is not None and edge.level is not None and direct.level is not None
    assert edge.level.value is not None and direct.level.value is not None
    assert edge.relative[0] == pytest.approx(edge.level.value / direct.level.value, rel=0.02)
    assert edge.relative[1:] == (None, None)
    assert any(f"{edge.relative[0]:.2f}×" in line for line in printed(study, filled()).splitlines())


def test_a_cell_has_the_number_of_the_runs_own_table(study_file: Path) -> None:
    """Percentiles are of all requests together, and never a mean of the blocks' own."""
    changed(study_file, "metrics.rate = {}", "metrics.p99 = {}")
    changed(study_file, "req/s", "ms")
    limited = alter(lambda slot: slot.arm.name == "keepalive", lambda _: {"limited_by": "generator"})
    summary = filled(noise=0.5, effect=1.0, change=limited)
    (table,) = results.shaped(study := load_study("mine"), summary)
    cell = table.cells["edge", "keep-alive"]
    row = next(row for row in summary.rows if row.arm.name == "keepalive")
    p99_s = row.cell.printed("p99")
    assert cell.level is not None and p99_s is not None
    assert cell.level.value == pytest.approx(p99_s * 1e3)
    mean = stats.level(list(row.cell.known("p99").values()))
    assert cell.level.value != pytest.approx(mean.value * 1e3, rel=0.01)
    assert mean.low is not None and cell.level.low == pytest.approx(mean.low * 1e3)
    assert any("generator-limited" in note for note in cell.notes), "of a latency, too"
    assert results.MEASURED in printed(study, summary)


def test_the_table_is_in_the_published_shape_and_says_what_is_not_comparable(study_file: Path) -> None:
    lines = printed(load_study("mine"), filled()).splitlines()
    head = next(number for number, line in enumerate(lines) if "keep-alive" in line)
    assert lines[head].index("keep-alive") < lines[head].index("close")
    assert [line.split()[0] for line in lines[head + 2 : head + 4]] == ["none", "edge"]
    assert results.HONEST in lines
    assert len({line.index("29,622") for line in lines if "29,622" in line}) == 1
