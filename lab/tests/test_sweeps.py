"""Sweeps: every file in the folder loads, and every kind of bad file is refused with place, fault and remedy."""

from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.sweeps import load_sweep, sweep_names

GOOD = """
title = "t"
question = "q"
blocks = 2

[[points]]
name = "a"
generator = "wrk"
connections = 10
duration_s = 5
"""


@pytest.mark.parametrize("name", sweep_names())
def test_every_sweep_loads(name: str) -> None:
    """Every TOML file in lab/sweeps is a sweep with at least one point."""
    _, sweep = load_sweep(name)
    assert sweep.expanded()


def test_lists_are_crossed_and_named(tmp_path: Path) -> None:
    """connections × page gives one point each, with the values in its name."""
    text = GOOD.replace("connections = 10", 'connections = [10, 20]\npage = ["1kB.bin", "8kB.txt"]')
    (tmp_path / "s.toml").write_text(text)
    _, sweep = load_sweep(str(tmp_path / "s.toml"))
    assert [p.name for p in sweep.expanded()] == [
        "a-c10-1kb.bin",
        "a-c10-8kb.txt",
        "a-c20-1kb.bin",
        "a-c20-8kb.txt",
    ]


def test_digitalocean_offers_as_many_requests_as_connections() -> None:
    """The study's sweep has ten points whose rate equals their connections, 60 s each."""
    _, sweep = load_sweep("digitalocean")
    points = sweep.expanded()
    assert [(p.connections, p.rate_rps) for p in points] == [(n, float(n)) for n in range(100, 1001, 100)]
    assert {p.duration_s for p in points} == {60.0}


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("connections = 10", "connections = 0", "points.0.connections"),
        ("connections = 10", "connections = -5", "points.0.connections"),
        ("connections = 10", 'connections = "many"', "many"),
        ("connections = 10", "connections = 99999999", "points.0.connections"),
        ("connections = 10", "conections = 10", "did you mean 'connections'?"),
        ("duration_s = 5", "duration_s = 0", "points.0.duration_s"),
        ("duration_s = 5", "duration_s = nan", "points.0.duration_s"),
        ("duration_s = 5", "duration_s = 5\nrate_rps = -1", "points.0.rate_rps"),
        ("duration_s = 5", "duration_s = 5\nrate_rps = inf", "points.0.rate_rps"),
        ("duration_s = 5", 'duration_s = 5\npage = "3kB.bin"', "unknown page"),
        ("duration_s = 5", "duration_s = 5\nconnections = [1, 1]", "Cannot overwrite"),
        ("connections = 10", "connections = [10, 10]", "two points"),
        ("connections = 10", "connections = []", "connections"),
        ("blocks = 2", "blocks = 0", "blocks"),
        ("blocks = 2", "blocks = 2.5", "blocks"),
        ("blocks = 2", "", "blocks"),
        ('name = "a"', 'name = "A b/../c"', "points.0.name"),
        ('title = "t"', 'title = "t"\ndisturb = 1', "disturb: unknown key"),
        ("[[points]]", "[points]", "points"),
        ("connections = 10", "connections = ", "not TOML"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path: Path, was: str, becomes: str, says: str) -> None:
    """One fault in a good file gives a UsageError that names the file and the fault."""
    assert was in GOOD
    path = tmp_path / "bad.toml"
    path.write_text(GOOD.replace(was, becomes))
    with pytest.raises(UsageError) as caught:
        load_sweep(str(path))
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.exit_status == 2


def test_unknown_sweep_names_the_nearest() -> None:
    """A misspelt sweep is answered with the one that was meant."""
    with pytest.raises(UsageError, match="did you mean 'quick'"):
        load_sweep("quik")
