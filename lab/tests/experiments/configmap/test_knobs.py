"""Settings → components and overlays of an ablation's own manifests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.experiments.ablation import folder as ablation_store
from lab.experiments.ablation.plan import OwnedKnob
from lab.experiments.configmap.knobs import CONFIGMAP, write_components
from lab.experiments.configmap.reading import FileSettings
from lab.experiments.configmap.split import WHOLE, split
from lab.model.variants.knobs import load_knob
from lab.model.variants.variants import load_variant


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    ablation_store.copy_manifests(tmp_path / "manifests")
    return tmp_path / "manifests"


def knobs(manifests: Path, data: dict[str, str], cannot: str = "") -> tuple[dict[str, OwnedKnob], str]:
    """By name, and the notes; what is called `cannot` cannot be measured here."""
    found, notes = write_components(
        split("mine.yaml", FileSettings(data)),
        manifests,
        lambda name, _sweep: "cores" if cannot and cannot in name else None,
    )
    return {owned.knob.name: owned for owned in found}, "\n".join(notes)


def test_a_new_knob_takes_sweep_and_metric_of_one_that_sets_the_same_key_but_not_its_hypothesis(
    manifests: Path,
) -> None:
    found, _ = knobs(manifests, {"keep-alive-requests": "5000"})
    made, like = found["keep-alive-requests-5000"].knob, load_knob("keep-alive-requests-10000")
    assert (made.sweep, made.primary_metric) == (like.sweep, like.primary_metric)
    assert made.hypothesis == "In sweep quick, CPU per request changes against the shipped keep-alive-requests."


def test_the_number_of_streams_on_a_connection_is_measured_by_more_streams_over_tls(manifests: Path) -> None:
    found, _ = knobs(manifests, {"http2-max-concurrent-streams": "4"})
    (owned,) = found.values()
    assert (owned.root, owned.knob.sweep) == ("tls", load_knob("http2-max-concurrent-streams-8").sweep)


def configmap(manifests: Path, name: str = "ingress-nginx") -> dict[str, str]:
    """What a variant's has; the baseline's: defaults of 1.15.1, written out."""
    objects = load_variant(name, manifests).manifests
    return next(obj["data"] for obj in objects if obj["kind"] == "ConfigMap" and obj["metadata"]["name"] == CONFIGMAP)


def test_the_whole_file_comes_first_and_holds_every_key(manifests: Path) -> None:
    found, _ = knobs(manifests, {"keep-alive-requests": "10000", "keep-alive": "10"})
    assert next(iter(found)) == WHOLE and not any(owned.cumulative for owned in found.values())
    data = configmap(manifests, f"ingress-nginx+{WHOLE}")
    assert data == {**configmap(manifests), "keep-alive-requests": "10000", "keep-alive": "10"}


def test_a_key_that_needs_others_is_compared_with_them(manifests: Path) -> None:
    found, _ = knobs(manifests, {"use-gzip": "true", "gzip-level": "6"})
    (alone,) = found["gzip-level-6"].owners
    assert alone.baseline is not None
    assert load_variant(alone.baseline, manifests).own_knobs == ("use-gzip",)
    assert load_variant(alone.name, manifests).own_knobs == ("gzip-level-6",)


def test_what_cannot_be_shown_here_by_itself_is_left_out_of_the_whole_file(manifests: Path) -> None:
    data = {"worker-processes": "4096", "keep-alive": "10", "gzip-min-length": "1", "use-gzip": "true"}
    found, notes = knobs(manifests, data, cannot="worker-processes")
    assert f"{WHOLE}: without worker-processes, which this machine cannot show" in notes
    assert "worker_processes" not in {check.name for check in found[WHOLE].knob.readback}
    assert "worker-processes-4096" in found


def test_quotes_and_lines_of_a_value_arrive_in_the_configmap(manifests: Path) -> None:
    snippet = 'map $host $b {\n  default "x=y";\n}\n'
    found, _ = knobs(manifests, {"http-snippet": snippet})
    (name,) = found
    assert configmap(manifests, f"ingress-nginx+{name}") == {**configmap(manifests), "http-snippet": snippet}
