"""Values of nginx's in other proxies' words: each row of `values.tsv`, in which `there` may be `!refused` or `!left`."""

from __future__ import annotations

import csv
from contextlib import nullcontext
from pathlib import Path

import pytest

from lab.analysis.migration.values import LeaveDefaultError, UntranslatableError, translate

with Path(__file__).with_name("values.tsv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['template']} {row['value']}")
def test_a_value_is_translated_refused_with_the_reason_or_left_to_the_successor(row: dict[str, str]) -> None:
    refused, left = pytest.raises(UntranslatableError, match="."), pytest.raises(LeaveDefaultError)
    with {"!refused": refused, "!left": left}.get(row["there"], nullcontext()):
        assert translate(row["template"], row["value"]) == row["there"]


def test_another_keys_value_may_be_part_of_it() -> None:
    assert translate("{value} {proxy-buffer-size}", "8", {"proxy-buffer-size": "16k"}) == "8 16k"
    assert translate("{{size: {proxy-buffer-size|size}}}", "8", {"proxy-buffer-size": "16384"}) == "{size: 16k}"
