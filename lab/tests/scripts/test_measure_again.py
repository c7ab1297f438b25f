"""The plan of what is measured again names what there is, once each, and takes about as long as was said."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from lab.base.files import reference_folder
from lab.model.variants.variants import load_variant
from lab.records.sweep_files import load_sweep
from lab.studies.study_files import study_keys

ROOT = Path(__file__).parents[3]
HOURS = (10, 22)
"""About twenty hours of measuring in all."""

with (ROOT / "data/again/plan.tsv").open(encoding="utf-8", newline="") as file:
    PLAN = list(csv.DictReader(file, delimiter="\t"))


def named(row: dict[str, str]) -> list[str]:
    words = row["command"].split()
    values = {
        at + 1 for at, word in enumerate(words) if word.startswith("--") and word not in ("--quick", "--sustained")
    }
    return [word for at, word in enumerate(words) if at and at not in values and not word.startswith("--")]


def option(row: dict[str, str], name: str) -> str | None:
    words = row["command"].split()
    return words[words.index(name) + 1] if name in words else None


@pytest.mark.parametrize("row", PLAN, ids=lambda row: row["name"])
def test_every_row_names_what_there_is(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    sweep = option(row, "--sweep")
    if row["command"].startswith("study"):
        assert set(named(row)) <= set(study_keys())
        return
    for name in (*named(row), *filter(None, [option(row, "--against")])):
        load_variant(name)
    if sweep is not None:
        names = {point.name for point in load_sweep(sweep)[1].expanded()}
        assert set((option(row, "--points") or "").split(",")) - {""} <= names


def test_names_and_seeds_are_there_once_and_a_further_boot_is_of_a_reference_that_there_is_or_will_be() -> None:
    for key in ("name", "seed"):
        assert max(Counter(row[key] for row in PLAN).values()) == 1
    made = {row["into"] for row in PLAN if row["how"] != "boot"}
    for row in PLAN:
        assert row["how"] in ("replace", "new", "boot")
        assert row["how"] != "boot" or row["into"] in made or (reference_folder() / row["into"] / "run.json").exists()
    assert HOURS[0] <= sum(int(row["minutes"]) for row in PLAN) / 60 <= HOURS[1]
