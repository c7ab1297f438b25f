"""A dump of what committed runs print is the same wherever and whenever it is made, and two dumps are compared by what they say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
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


@pytest.mark.committed
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
