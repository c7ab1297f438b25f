"""The plan of what is measured again names what there is, once each, and takes about as long as was said."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from lab.base.files import reference_folder
from lab.commands.verbs import parser
from lab.model.variants.variants import load_variant
from lab.records.sweep_files import load_sweep
from lab.studies.study_files import list_studies

ROOT = Path(__file__).parents[3]

with (ROOT / "data/again/plan.tsv").open(encoding="utf-8", newline="") as file:
    PLAN = list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.parametrize("row", PLAN, ids=lambda row: row["name"])
def test_every_row_names_what_there_is(row: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    words = row["command"].split()
    options = parser().parse_args(words)
    if words[0] == "study":
        assert options.key in list_studies()
        return
    for name in filter(None, [*options.variants, options.against]):
        load_variant(name)
    points = load_sweep(options.sweep)[1].load_points if options.sweep else ()
    named: list[str] = options.points.split(",") if options.points else []
    assert set(named) <= {point.name for point in points}


def test_names_and_seeds_are_there_once_and_a_further_boot_is_of_a_reference_that_there_is_or_will_be() -> None:
    for key in ("name", "seed"):
        assert max(Counter(row[key] for row in PLAN).values()) == 1
    made = {row["into"] for row in PLAN if row["how"] != "boot"}
    for row in PLAN:
        assert row["how"] in ("replace", "new", "boot")
        assert row["how"] != "boot" or row["into"] in made or (reference_folder() / row["into"] / "run.json").exists()
    assert 10 <= sum(int(row["minutes"]) for row in PLAN) / 60 <= 22, "about twenty hours of measuring in all"
