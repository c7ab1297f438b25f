"""scripts/maintain: mutants, what committed runs print, and the trace of a bench."""

from __future__ import annotations

import importlib.util
import shutil
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


@pytest.mark.long
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


PROGRAM = [sys.executable, str(ROOT / "scripts/maintain/dump_published.py")]
RUN = "quick-keepalive"


def run_program(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], check=False, capture_output=True, text=True)


def write_dump(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "SHA256SUMS").touch()
    (folder / "table.txt").write_text(text)


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [("ingress-nginx  1.0\n", 0, "0 of 1 files differ\n"), ("ingress-nginx  1.1\n", 1, "+ingress-nginx  1.1\n1 of 1 files")],
)  # fmt: skip
def test_a_difference_is_shown_line_by_line(tmp_path: Path, after: str, status: int, said: str) -> None:
    write_dump(tmp_path / "before", "ingress-nginx  1.0\n")
    write_dump(tmp_path / "after", after)
    ended = run_program("--diff", str(tmp_path / "before"), str(tmp_path / "after"))
    assert ended.returncode == status
    assert said in ended.stdout


def test_a_file_of_one_dump_alone_is_a_difference(tmp_path: Path) -> None:
    write_dump(tmp_path / "before", "")
    write_dump(tmp_path / "after", "")
    (tmp_path / "after" / "more.txt").touch()
    ended = run_program("--diff", str(tmp_path / "before"), str(tmp_path / "after"))
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (1, f"more.txt: not in {tmp_path / 'before'}")


@pytest.mark.parametrize("words", [[], [str(ROOT / "data/dump")], ["/tmp"], ["/nowhere/x", "--code", "/nowhere"]])
def test_a_dump_goes_into_a_new_folder_outside_of_the_checkout(words: list[str]) -> None:
    ended = run_program(*words)
    assert ended.returncode == 2
    assert ended.stderr.startswith("dump_published: ")


@pytest.mark.long
def test_two_dumps_of_a_run_are_equal_and_one_by_a_copy_of_the_code(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for folder in ("lab", "manifests", "data/published"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    for name, more in (("one", []), ("two", ["--code", str(copy)])):
        ended = run_program(str(tmp_path / name), "--only", RUN, *more)
        assert ended.returncode == 0, ended.stderr
    sums = [(tmp_path / name / "SHA256SUMS").read_text() for name in ("one", "two")]
    assert sums[0] == sums[1]
    table = (tmp_path / "one" / RUN / "table.txt").read_text()
    assert table.startswith(f"$ lab table data/reference/{RUN}\nexit status 0\n--- stderr\n--- stdout\n")
    assert "export_what_usage_output_usage_parquet.usage.parquet" in sums[0]
    assert str(ROOT) not in table


@pytest.mark.slow
def test_a_bench_is_traced_from_its_verb_to_its_first_request() -> None:
    command = [sys.executable, str(ROOT / "scripts/maintain/trace_bench.py")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    said, first, *others = ended.stdout.splitlines()
    files = {line.split()[0] for line in [first, *others]}
    assert said == f"{len(others) + 1} functions in {len(files)} modules before the first request (the canary)"
    assert first.split() == ["commands/bench.py", "_run_bench"]
    assert "measure/canary.py" in files
    assert not any(file.startswith("report/html") for file in files)
    assert [line for line in others if line.endswith(" LocalTarget.up")]
    assert "targets/local/kubelet/kubelet.py" not in files
