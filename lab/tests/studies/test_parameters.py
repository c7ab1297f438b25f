"""Every parameter that a study sets or recommends is a knob of the lab, or the study's file says why it is none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import pytest

from lab.model.variants.knobs import knob_names, load_knob
from lab.model.variants.variants import load_variant
from lab.records import published as publications
from lab.studies.study_files import load_study, study_keys

STUDIES = study_keys()
UNITS = {None: 1, "k": 1024, "MB": 1024**2}
SHIPPED = {"okd/number of routes"}


def published() -> list[str]:
    """STUDY/PARAMETER of every row of parameters.csv."""
    return [f"{row['source']}/{row['parameter']}" for row in _read()]


def rows() -> dict[str, Mapping[str, str]]:
    return dict(zip(published(), _read(), strict=True))


def _read() -> Sequence[Mapping[str, str]]:
    return publications.texts("parameters")


@cache
def realised() -> tuple[tuple[str, str], ...]:
    """(STUDY/PARAMETER, knob)"""
    return tuple((parameter, name) for name in knob_names() for parameter in load_knob(name).parameters)


@cache
def reasons() -> dict[str, str]:
    return {
        f"{key}/{parameter}": row.why for key in STUDIES for parameter, row in load_study(key).file.not_a_knob.items()
    }


@pytest.mark.parametrize("row", published())
def test_every_published_parameter_is_a_knob_or_has_a_reason_why_not(row: str) -> None:
    """And never both."""
    knobs = [knob for parameter, knob in realised() if parameter == row]
    reason = reasons().get(row)
    assert knobs or reason, "no component's lab/parameters names it, and no [not_a_knob] of its study"
    assert not (knobs and reason), f"{', '.join(knobs)} and a reason why there is none: {reason}"


def numbers(text: str) -> tuple[int, ...]:
    """What a value begins with: `15s (example)` → 15, `8 MB` → 8388608, `1024 65000` → both, `auto` → nothing."""
    found = re.match(r"(\d+(?: \d+)*) ?(k|MB)?(?![\w.])|(\d+)s\b", text)
    if found is None:
        return ()
    return tuple(int(number) * UNITS[found[2]] for number in (found[1] or found[3]).split())


@pytest.mark.parametrize("row", [row for row in published() if any(parameter == row for parameter, _ in realised())])
def test_a_published_number_is_what_a_knob_reads_back(row: str) -> None:
    """Or what its study's variants have from the start."""
    read = [
        numbers(check.value) for parameter, knob in realised() if parameter == row for check in load_knob(knob).readback
    ]
    for column in ("recommended_value", "value_used_in_test"):
        wanted = numbers(rows()[row][column])
        assert not wanted or wanted in read or row in SHIPPED, f"{column} {wanted}, read back {read}"


def test_the_number_of_routes_that_okd_published_is_the_shipped_one() -> None:
    kinds = [item["kind"] for item in load_variant("okd").manifests]
    assert (kinds.count("Route"),) == numbers(rows()["okd/number of routes"]["value_used_in_test"])


def test_no_knob_and_no_reason_names_a_parameter_that_was_not_published() -> None:
    rows = set(published())
    assert [(parameter, knob) for parameter, knob in realised() if parameter not in rows] == []
    assert sorted(set(reasons()) - rows) == []


def test_a_knob_of_a_study_says_which_of_its_parameters_it_realises() -> None:
    """Its own study's, or several; a knob of no published parameter names its study by nothing but its words."""
    strangers = [
        name
        for name in knob_names()
        if (knob := load_knob(name)).parameters and knob.study not in {row.partition("/")[0] for row in knob.parameters}
    ]
    assert strangers == []
