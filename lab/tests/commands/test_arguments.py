"""What a run's record has of the command line, and what an old command line is answered."""

from __future__ import annotations

import argparse
import re

import pytest

from lab.__main__ import main
from lab.commands import recorded
from lab.commands.verbs import OLD_SPELLINGS, VERBS, parser
from lab.model.facts import ROOT


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "bench --json keepalive okd --blocks 3 --target=remote --context mine",
            "lab bench --target=remote --blocks=3 --json -- keepalive okd",
        ),
        ("bench --bloc 3 keepalive", "lab bench --blocks=3 -- keepalive"),
        ("bench --configmap=-odd.yaml --seed 0", "lab bench --configmap=-odd.yaml --seed=0"),
        ("study --quick okd --resolve 5%", "lab study --resolve=5% --quick -- okd"),
        ("aa", "lab aa"),
        ("ablate keepalive --variant", "lab ablate --variant -- keepalive"),
        ("selfbench calibrate --generator k6 --generator wrk", "lab selfbench --generator=k6 --generator=wrk"),
        ("knee --p99 20ms --close -- nginx", "lab knee --p99=20ms --close -- nginx"),
    ],
)
def test_the_record_has_one_form_of_a_command_line(typed: str, told: str) -> None:
    argv = typed.split()
    options = parser().parse_args(argv, argparse.Namespace(argv=argv))
    names = {"bench": "variants", "study": "key", "aa": "subject", "ablate": "subject", "knee": "variants"}
    assert " ".join(recorded(options, names.get(argv[0], ""))) == told


@pytest.mark.parametrize(("old", "new"), OLD_SPELLINGS.items())
def test_an_old_spelling_is_answered_with_the_new_one(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line and exit 2; what the line names is a verb that there is."""
    assert main([old, "RUN", "--arm", "a"]) == 2
    assert capsys.readouterr() == ("", f"just {old}: is `just {new} RUN --arm a` now\n")
    assert new == "lint --fix" or new.split()[0] in VERBS


def test_the_tables_are_those_of_the_justfile() -> None:
    """Every verb has a recipe, and every old spelling a hidden one."""
    text = (ROOT / "justfile").read_text()
    assert set(re.findall(r'^(\w+) \*ARGS: \(_old "\1" ARGS\)$', text, re.MULTILINE)) == set(OLD_SPELLINGS)
    assert set(re.findall(r"^    @python -m lab (\w+) ", text, re.MULTILINE)) == set(VERBS)


def test_notebooks_are_opened_with_options_of_jupyters_own() -> None:
    typed = ["--no-browser", "--port", "1", "--help"]
    assert parser().parse_args(["maintain", "notebook", *typed]).arguments == typed
