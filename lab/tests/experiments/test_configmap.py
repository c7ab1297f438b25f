"""A user's own ConfigMap: read in three forms, split into knobs that are read back by the directives they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.experiments import configmap as configmaps
from lab.experiments.ablation import folder as ablation_store
from lab.experiments.configmap import read, split, write_knobs
from lab.model.variants.knobs import load_knob
from lab.model.variants.variants import load_variant

KEYS = 'keep-alive-requests: "5000"\nuse-gzip: true\n'


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A copy to which knobs can be added."""
    ablation_store.copy_manifests(tmp_path / "manifests")
    return tmp_path / "manifests"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        KEYS,
        "kind: ConfigMap\nmetadata: {name: x}\ndata:\n  keep-alive-requests: '5000'\n  use-gzip: 'true'\n",
        "controller:\n  replicaCount: 2\n  config:\n    keep-alive-requests: 5000\n    use-gzip: 'true'\n",
    ],
)
def test_a_configmap_helm_values_and_bare_keys_are_read_alike(tmp_path: Path, text: str) -> None:
    assert read(written(tmp_path, text)) == {"keep-alive-requests": "5000", "use-gzip": "true"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Secret\ndata: {}\n", "expected ConfigMap, got 'Secret'"),
        ("- a\n", "holds no settings"),
        ("kind: ConfigMap\n", "holds no settings"),
        ("controller: {}\n", "holds no settings"),
        ("use-gzip: [1]\n", "use-gzip: expected text"),
        ("a: b: c\n", "not YAML"),
    ],
)
def test_what_holds_no_settings_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read(written(tmp_path, text))


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.yaml")


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'keep-alive-requests'"):
        split("mine.yaml", {"keep-alive-request": "5000"})


def test_a_wrong_value_is_refused_with_what_is_expected() -> None:
    with pytest.raises(UsageError, match="expected a whole number"):
        split("mine.yaml", {"keep-alive-requests": "many"})


def test_a_default_is_nothing_to_measure() -> None:
    """Compared as the controller reads it: 'False' is false."""
    found, notes = split("mine.yaml", {"keep-alive": "75", "use-gzip": "False"})
    assert found == []
    assert [note.partition(":")[0] for note in notes] == ["keep-alive", "use-gzip"]
    assert all("is the default" in note for note in notes)


def test_keys_without_meaning_and_keys_that_are_not_here_are_named_with_the_reason() -> None:
    found, notes = split("mine.yaml", {"hsts": "false", "enable-brotli": "true", "load-balance": "round_robin"})
    assert found == []
    assert "changes nothing for what the lab sends" in notes[0]
    assert "not measurable on the local target: it needs a module" in notes[1]
    assert "it is the default" in notes[2]


def test_checks_are_the_directives_that_a_key_changes() -> None:
    (setting,), _ = split("mine.yaml", {"keep-alive-requests": "5000"})
    (check,) = setting.checks
    assert (check.kind, check.name, check.context, check.value) == ("nginx", "keepalive_requests", "http", "5000")


def test_a_directive_that_goes_away_must_be_absent() -> None:
    (setting,), _ = split("mine.yaml", {"upstream-keepalive-connections": "0"})
    told = {(check.name, check.context): check.value for check in setting.checks}
    assert told["keepalive_requests", "http/upstream"] == "absent"


def test_what_depends_on_the_machine_is_no_check() -> None:
    """0 open files means three quarters of the limit, so that the number of connections is nobody's to say beforehand."""
    found, notes = split("mine.yaml", {"max-worker-connections": "0"})
    assert found == []
    assert "depends on the machine" in notes[0]


def test_the_number_of_workers_is_a_check_on_any_machine() -> None:
    (setting,), _ = split("mine.yaml", {"worker-processes": "2"})
    assert [(check.name, check.value) for check in setting.checks] == [("worker_processes", "2")]


def test_a_key_that_needs_another_comes_after_it_and_is_compared_with_it(manifests: Path) -> None:
    found, _ = split("mine.yaml", {"gzip-level": "5", "use-gzip": "true"})
    assert [(item.key, item.needs) for item in found] == [("use-gzip", None), ("gzip-level", "use-gzip")]
    gzip, level = write_knobs(found, manifests)
    alone = load_variant(f"{level}-alone", manifests)
    assert alone.baseline is not None
    assert load_variant(alone.baseline, manifests).own_knobs == (gzip,)


def test_a_shipped_knob_that_needs_another_is_compared_with_it_too(manifests: Path) -> None:
    """`gzip-level: 6` is a component already; on the baseline alone nginx.conf would be the same with it."""
    found, _ = split("mine.yaml", {"use-gzip": "true", "gzip-level": "6"})
    gzip, level = write_knobs(found, manifests)
    assert level == "gzip-level-6"
    assert load_variant(f"{level}-alone", manifests).baseline == f"baseline-with-{gzip}"


def test_a_key_that_changes_nothing_by_itself_is_nothing_to_measure() -> None:
    found, notes = split("mine.yaml", {"gzip-level": "5"})
    assert found == []
    assert "by itself it changes no directive" in notes[0]


def test_keys_that_share_a_directive_contradict_each_other() -> None:
    found, _ = split("mine.yaml", {"proxy-buffer-size": "16k", "proxy-buffers-number": "8"})
    size, number = ({check.subject: check.value for check in item.checks} for item in found)
    assert any(size[subject] != number[subject] for subject in size.keys() & number.keys())


def test_a_new_knob_takes_sweep_and_metric_of_the_one_that_sets_the_same_key_but_not_its_hypothesis(
    manifests: Path,
) -> None:
    """That is about its own value: `worker-processes: 3` is no matter of one worker."""
    found, _ = split("mine.yaml", {"keep-alive-requests": "5000"})
    (name,) = write_knobs(found, manifests)
    made, like = load_knob(name, manifests), load_knob("keep-alive-requests-10000")
    assert (made.sweep, made.primary_metric) == (like.sweep, like.primary_metric)
    assert made.hypothesis == "In sweep quick, CPU per request changes against the shipped keep-alive-requests."
    assert name == "keep-alive-requests-5000"


def test_a_shipped_knob_that_sets_just_this_is_used_as_it_is(manifests: Path) -> None:
    found, _ = split("mine.yaml", {"keep-alive-requests": "10000"})
    assert write_knobs(found, manifests) == ["keep-alive-requests-10000"]


def test_quotes_and_lines_of_a_value_arrive_in_the_configmap(manifests: Path) -> None:
    snippet = 'map $a $b {\n  default "x=y";\n}\n'
    found, _ = split("mine.yaml", {"http-snippet": snippet})
    (name,) = write_knobs(found, manifests)
    objects = load_variant(f"{configmaps.BASELINE}+{name}", manifests).manifests
    maps = {obj["metadata"]["name"]: obj.get("data") for obj in objects if obj["kind"] == "ConfigMap"}
    data = maps[configmaps.CONFIGMAP]
    assert data == {"http-snippet": snippet}
