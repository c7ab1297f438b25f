"""Mutants: each changes one operator, constant or return, is found again where its line has moved, and dies by a test or survives."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def load_mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts/maintain/mutants.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mutants = load_mutants()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("found = low < high", {("operator", "found = low <= high")}),
        ("found = (µ) is not None", {("operator", "found = (µ) is None")}),
        ("found = not (µ in known)", {("operator", "found = (µ in known)"), ("operator", "found = not (µ not in known)")}),
        ("found = 'µ' in a and b or c", {
            ("operator", "found = 'µ' not in a and b or c"),
            ("operator", "found = 'µ' in a or b or c"),
            ("operator", "found = 'µ' in a and b and c"),
        }),
        ("share = used / 2.5", {("operator", "share = used * 2.5"), ("constant", "share = used / 3.5")}),
        ("call(deep=True, strict=True)", {("constant", "call(deep=False, strict=True)")}),
        ("def f() -> int | None:\n    return x", {("return", "return None")}),
        ("def f() -> None:\n    return None", set()),
        ("x: Literal[1] = y", set()),
        ("@cached(7)\ndef f(): ...", set()),
        ("assert low < high", set()),
        ("name = f'{low + high}' + 'x'", set()),
        ('"""1 < 2"""', set()),
        ("if __name__ == '__main__': main()", set()),
        ("found = (low <\n    high)", set()),
    ],
)  # fmt: skip
def test_a_line_has_these_mutants(source: str, found: set[tuple[str, str]]) -> None:
    assert {(site.kind, site.after) for site in mutants.find_sites(source)} == found


def test_a_line_is_found_where_it_has_moved_and_not_where_it_is_one_of_two(tmp_path: Path) -> None:
    for folder in ("one", "two", "tests"):
        (tmp_path / "lab" / folder).mkdir(parents=True)
    mutant = mutants.Mutant(1, "one", "lab/one/was.py", 1, "operator", "found = low < high", "found = low <= high")
    assert mutants.find_line(tmp_path, mutant) is None
    (tmp_path / "lab/tests/test.py").write_text("found = low < high\n")
    assert mutants.find_line(tmp_path, mutant) is None
    (tmp_path / "lab/two/now.py").write_text("if True:\n    found = low < high\n")
    assert mutants.find_line(tmp_path, mutant) == tmp_path / "lab/two/now.py"
    assert mutants.change_line("if True:\n    found = low < high\n", mutant.before, mutant.after) == (
        "if True:\n    found = low <= high\n"
    )
    (tmp_path / "lab/two/again.py").write_text("found = low < high\n")
    assert mutants.find_line(tmp_path, mutant) is None
    (tmp_path / mutant.file).write_text("found = low < high\n")
    assert mutants.find_line(tmp_path, mutant) == tmp_path / mutant.file


def test_the_drawn_mutants_are_sixty_of_three_kinds_on_as_many_lines() -> None:
    drawn = mutants.read_rows(mutants.DRAWN, mutants.Mutant)
    assert Counter(each.kind for each in drawn) == dict.fromkeys(mutants.KINDS, 20)
    assert len({each.before for each in drawn}) == 60
    assert all(each.before != each.after for each in drawn)


@pytest.mark.slow
def test_mutants_die_by_a_test_or_survive_and_a_stopped_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, results = tmp_path / "checkout", tmp_path / "results.tsv"
    (root / "lab/one").mkdir(parents=True)
    (root / "lab/tests/one").mkdir(parents=True)
    (root / ".cache").mkdir()
    (root / ".gitignore").write_text(".cache\n__pycache__\n")
    (root / "lab/one/sizes.py").write_text(
        "def is_small(size):\n    return size < 10\n\n\nUNUSED_NUMBER_OF_SIZES = 3\n"
    )
    tests = "from lab.one.sizes import is_small\n\n\ndef test_ten_is_not_small():\n    assert not is_small(10)\n"
    (root / "lab/tests/one/test_sizes.py").write_text(f"{tests}\n\ndef test_that_fails_anyway():\n    assert False\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-C", str(root)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "One"]):
        subprocess.run([*git, *words], check=True)
    monkeypatch.setattr(mutants, "ROOT", root)
    rows = [
        (1, "one", "lab/one/sizes.py", 2, "operator", "return size < 10", "return size <= 10"),
        (2, "one", "lab/one/sizes.py", 5, "constant", "UNUSED_NUMBER_OF_SIZES = 3", "UNUSED_NUMBER_OF_SIZES = 4"),
        (3, "one", "lab/one/sizes.py", 9, "return", "return nowhere", "return None"),
    ]
    drawn = [mutants.Mutant(*row) for row in rows]
    mutants.run_all(drawn[:1], results)
    assert [row.number for row in mutants.read_rows(results, mutants.Outcome)] == [1]
    mutants.run_all(drawn, results)
    found = [(row.outcome, row.by) for row in mutants.read_rows(results, mutants.Outcome)]
    assert found == [("killed", "lab/tests/one/test_sizes.py::test_ten_is_not_small"), ("survived", ""), ("gone", "")]
    assert (
        subprocess.run([*git, "worktree", "list"], check=False, capture_output=True, text=True).stdout.count("\n") == 1
    )
