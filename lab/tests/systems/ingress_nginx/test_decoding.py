"""What the controller makes of a value, held against what its own decoder answered.

testdata/controller-decoded.jsonl: [key, text, what `ReadConfig` of controller-v1.15.1, built and run, held for it]; lists joined by commas.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.systems.ingress_nginx.configmap import KEYS, decoded, items, look_up

ANSWERED = [
    json.loads(line) for line in (Path(__file__).parent / "testdata/controller-decoded.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize(("name", "text", "held"), ANSWERED)
def test_a_value_is_decoded_as_by_the_controller(name: str, text: str, held: str) -> None:
    key, found = look_up(name, text)
    assert (",".join(items(found.value)) if key.kind == "list" else found.value) == held


def test_what_keeps_the_default_is_told_as_that() -> None:
    """So is what becomes another number, or leaves a directive out."""
    assert decoded("int", "75s", "60").told == "'75s' is not a whole number: the controller logs that and keeps '60'"
    assert decoded("bool", "yes", "true").kept
    assert decoded("int", "0o74", "60").told == "'0o74' is read as 60"
    assert decoded("int", "-1", "60").told and decoded("int", "", "60").told and not decoded("int", "60", "60").told
    assert decoded("codes", "404,abc", "").told.endswith("codes from 300 to 599")


@pytest.mark.parametrize("kind", ["int", "redirect", "codes"])
def test_digits_without_end_are_no_number(kind: str) -> None:
    """More of them than Python reads at once, and than any number has that the controller can hold."""
    found = decoded(kind, "9" * 5000, "75")
    assert found.value == ("" if kind == "codes" else "75") and len(found.told) < 200
    assert decoded("int", "0" * 5000 + "7", "75").value == "7"
    assert decoded("redirect", "0" * 5000 + "301", "308").value == "301"
    assert decoded("codes", "0" * 5000 + "404,-404", "").value == "404"


@pytest.mark.parametrize(("text", "value"), [("10g", "10g"), (" 5m ", " 5m "), ("10 GB", ""), ("", "")])
def test_a_size_that_the_controller_does_not_write_leaves_the_directive_out(text: str, value: str) -> None:
    found = decoded("offset", text, "1m")
    assert found.value == value and bool(found.told) == (value != text)


def test_every_key_has_a_default_of_its_own_kind() -> None:
    """An empty one stands for none."""
    assert all(not decoded(key.kind, key.default, "?").kept for key in KEYS.values())
    assert len(KEYS) == 197
