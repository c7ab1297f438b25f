"""Programs of the lab's own as images for a cluster: which, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.systems import programs
from lab.systems.programs import Program
from lab.targets.cluster import docker, images
from lab.targets.local import packing


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Reference → the program in it, of those that were built; what is built is held. Nothing is fetched."""
    found: dict[str, str] = {}

    def packed(short: str, version: str, module: str) -> Program | None:
        if short not in ("traefik", "envoy") and not module:
            return None
        (tmp_path / short).write_text(f"{short} {version}")
        return Program(short, version, tmp_path / short)

    def build(short: str, program: Path, reference: str, base: str) -> None:
        found[reference] = program.name

    monkeypatch.setattr(programs, "provide_image_program", packed)
    monkeypatch.setattr(images, "build_program", build)
    monkeypatch.setattr(docker, "find_image_id", found.get)
    return found


@pytest.mark.slow
def test_what_variants_on_kind_run_and_is_one_program_is_built_once(built: dict[str, str]) -> None:
    """Envoy, too, which no manifest of Envoy Gateway names but on a cluster; not what runs on other targets alone."""
    chosen = packing.pack("debian:a")
    assert set(chosen) == {"envoy", "envoy-gateway", "traefik"} and sorted(built) == sorted(chosen.values())
    assert chosen["envoy-gateway"].startswith("lab/envoy-gateway:1.9.1-") and built[chosen["envoy"]] == "envoy"
    built_once = dict(built)
    assert packing.pack("debian:a") == chosen and built == built_once
    assert not set(packing.pack("debian:b").values()) & set(chosen.values())
