"""Settings as paths in a proxy's own configuration."""

from __future__ import annotations

import pytest

from lab.base.errors import UsageError
from lab.systems.settings import merged, read

PARTS = ("cluster", "listener")


def test_each_key_is_set_in_its_part_and_what_was_there_stays() -> None:
    data = {
        "cluster.circuit_breakers.thresholds.0.max_connections": "65536",
        "cluster.circuit_breakers.thresholds.0.max_requests": "7",
        "cluster.connect_timeout": "1s",
        "listener.filters": "[{name: a}]",
        "cluster.common": "{idle_timeout: 5s}",
    }
    found = read("ConfigMap/envoy", data, PARTS)
    before = {"name": "a", "common": {"max": 1}}
    assert merged(before, found["cluster"]) == {
        "name": "a",
        "circuit_breakers": {"thresholds": [{"max_connections": 65536, "max_requests": 7}]},
        "connect_timeout": "1s",
        "common": {"max": 1, "idle_timeout": "5s"},
    }
    assert before == {"name": "a", "common": {"max": 1}}
    assert merged({}, found["listener"]) == {"filters": [{"name": "a"}]}


def test_a_place_in_a_list_is_changed_or_added() -> None:
    found = read("ConfigMap/envoy", {"cluster.a.1.b": "2", "cluster.a.0.b": "1"}, PARTS)
    assert merged({"a": [{"b": 0, "c": 3}]}, found["cluster"]) == {"a": [{"b": 1, "c": 3}, {"b": 2}]}


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("clutser.a", "1", "there is no part 'clutser'"),
        ("cluster.a", "[", "not YAML"),
        ("cluster.a.2.b", "1", "2 is a place in a list, and there is a list of 0"),
        ("cluster.name.0", "1", "0 is a place in a list, and there is no list"),
        ("cluster.name.x", "1", "x is a name, and there is 'a'"),
    ],
)
def test_a_path_that_does_not_fit_is_refused_at_its_key(key: str, value: str, fault: str) -> None:
    with pytest.raises(UsageError) as error:
        merged({"name": "a"}, read("ConfigMap/envoy", {key: value}, PARTS)["cluster"])
    assert error.value.place == f"ConfigMap/envoy: data.{key}" and fault in error.value.fault
