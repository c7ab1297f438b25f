"""Bad input (`bad_input.toml`) through the whole command line: place, fault and remedy, exit 2, and nothing written or started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NoReturn

import pytest

from lab.__main__ import main
from lab.records.store import RunStore
from lab.targets.local.target import LocalTarget

ROOT = Path(__file__).parents[3]
GIVEN = tomllib.loads(Path(__file__).with_name("bad_input.toml").read_text("utf-8"))
INPUTS: list[dict[str, str]] = [
    *(
        {**given, "argv": argv}
        for given in GIVEN["input"]
        for argv in ([given["argv"]] if isinstance(given["argv"], str) else given["argv"])
    ),
    *(
        {
            "argv": argv,
            "says": f"{place if (place := argv.split()[-2]).startswith('--') else 'argument variants'}: is empty",
            "remedy": "give it a value, or leave it out: is a variable unset?",
        }
        for argv in GIVEN["empty"]
    ),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the files of the table; where runs would go, too, and no kubeconfig."""
    for name, content in GIVEN["files"].items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    for name, value in {"LAB_RUNS": tmp_path / "runs", "KUBECONFIG": tmp_path / "none", "COLUMNS": 200}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(ROOT)
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process instead of the local target's namespaces, where nothing can be brought up or measured."""

    def started(*_: object, **__: object) -> NoReturn:
        raise AssertionError("something was started")

    monkeypatch.setattr(LocalTarget, "enter", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "check", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "up", started)
    monkeypatch.setattr(RunStore, "create", started)


def refused(given: dict[str, str], folder: Path, status: int, answer: str, talk: str) -> None:
    said = talk.replace(str(folder), "TMP")
    assert status == 2, said
    assert answer == ""
    lines = said.splitlines()
    assert lines[0].startswith(given["says"]), said
    assert len(lines) > 1 and lines[1].startswith(f"  {given['remedy']}"), said
    assert "Traceback" not in said
    assert {path.name for path in folder.rglob("*")} - {"runs"} == set(GIVEN["files"])
    assert {name: (folder / name).read_text("utf-8") for name in GIVEN["files"]} == GIVEN["files"]


@pytest.mark.parametrize("given", INPUTS, ids=lambda given: given["argv"])
@pytest.mark.usefixtures("here")
def test_bad_input_is_refused_before_anything_starts(
    given: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(shlex.split(given["argv"].replace("TMP", str(folder))))
    printed = capsys.readouterr()
    refused(given, folder, status, printed.out, printed.err)


def by_a_shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The verb with its arguments, and what a shell makes of them, in a process of its own."""
    return subprocess.run(
        ["sh", "-c", f"exec {shlex.quote(sys.executable)} -m lab {words.replace('TMP', str(folder))}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )


@pytest.mark.slow
@pytest.mark.parametrize("given", INPUTS[:: len(INPUTS) // 6], ids=lambda given: given["argv"])
def test_and_so_it_is_by_a_shell(given: dict[str, str], folder: Path) -> None:
    """Some of them, as a user types them: in a process of their own, and in the target's namespaces."""
    ended = by_a_shell(given["argv"], folder)
    refused(given, folder, ended.returncode, ended.stdout, ended.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("migrate --configmap - --plan <&-", "standard input: is closed\n  send it the file: … | scripts/shell just migrate"),
        ("list >&-", "standard output: is closed\n  leave `>&-` out"),
    ],
)  # fmt: skip
def test_a_closed_end_of_the_shells_is_told(words: str, said: str, folder: Path) -> None:
    ended = by_a_shell(words, folder)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith(said), ended.stderr
