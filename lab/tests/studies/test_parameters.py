"""Every parameter that a study sets or recommends is a knob of the lab, or the study's file says why it is none."""

from __future__ import annotations

import re

import pytest

from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_variant
from lab.records import published as publications
from lab.studies.study_files import load_study, study_keys

UNITS = {None: 1, "k": 1024, "MB": 1024**2}
SHIPPED = {"okd/number of routes"}


ROWS = {f"{row['source']}/{row['parameter']}": row for row in publications.texts("parameters")}
"""STUDY/PARAMETER → row of parameters.csv."""
REALISED = [(parameter, name) for name in knob_names() for parameter in load_knob(name).parameters]
REASONS = {f"{key}/{name}": row.why for key in study_keys() for name, row in load_study(key).file.not_a_knob.items()}


def test_every_published_parameter_is_a_knob_or_has_a_reason_why_not() -> None:
    """And never both; a reason or a knob that names another parameter is refused."""
    knobs = {parameter for parameter, _ in REALISED}
    assert [row for row in ROWS if (row in knobs) == bool(REASONS.get(row))] == []
    assert sorted((knobs | REASONS.keys()) - ROWS.keys()) == []


def numbers(text: str) -> tuple[int, ...]:
    """What a value begins with: `15s (example)` → 15, `8 MB` → 8388608, `1024 65000` → both, `auto` → nothing."""
    found = re.match(r"(\d+(?: \d+)*) ?(k|MB)?(?![\w.])|(\d+)s\b", text)
    if found is None:
        return ()
    return tuple(int(number) * UNITS[found[2]] for number in (found[1] or found[3]).split())


@pytest.mark.parametrize("row", sorted({parameter for parameter, _ in REALISED}))
def test_a_published_number_is_what_a_knob_reads_back(row: str) -> None:
    """Or what its study's variants have from the start."""
    knobs = [load_knob(knob) for parameter, knob in REALISED if parameter == row]
    read = [numbers(check.value) for knob in knobs for check in knob.readback]
    for column in ("recommended_value", "value_used_in_test"):
        wanted = numbers(ROWS[row][column])
        assert not wanted or wanted in read or row in SHIPPED, f"{column} {wanted}, read back {read}"


def test_the_number_of_routes_that_okd_published_is_the_shipped_one() -> None:
    kinds = [item["kind"] for item in load_variant("okd").manifests]
    assert (kinds.count("Route"),) == numbers(ROWS["okd/number of routes"]["value_used_in_test"])


def test_a_knob_of_a_study_says_which_of_its_parameters_it_realises() -> None:
    """Its own study's, or several; a knob of no published parameter names its study by nothing but its words."""
    for knob in map(load_knob, knob_names()):
        assert not knob.parameters or knob.study in {row.partition("/")[0] for row in knob.parameters}, knob.name
