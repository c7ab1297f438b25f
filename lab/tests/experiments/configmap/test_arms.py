"""Every arm of real files comes up and reads back: this file runs itself again in the local target's namespaces, without privileges."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.base.handing import piped_command
from lab.experiments.ablation import folder as ablation_store
from lab.experiments.configmap import knobs
from lab.experiments.configmap.reading import read_settings
from lab.experiments.configmap.split import split
from lab.model.variants.variants import load_variant
from lab.targets.local.target import LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.inside import INSIDE, clean, inside, run_inside, target

__all__ = ["clean", "target"]  # fixtures

FILES = {
    "behind": """
        use-proxy-protocol: "true"
        ssl-protocols: TLSv1.2
    """,
    "repeated": """
        location-snippet: access_log off;
        server-snippet: gzip off; keepalive_timeout 0;
        http-snippet: map $http_upgrade $connection_upgrade { default upgrade; }
    """,
    "outputs": """
        ssl-session-tickets: "true"
        proxy-buffer-size: 64k
        proxy-buffers-number: "32"
        proxy-busy-buffers-size: 256k
        upstream-keepalive-connections: "0"
    """,
}


@pytest.mark.inside
@pytest.mark.skipif(INSIDE, reason="it is inside")
def test_inside() -> None:
    run_inside(__file__, "nobody" if os.geteuid() == 0 else "this user")


@inside
@pytest.mark.parametrize("name", FILES)
def test_every_arm_comes_up_and_all_that_it_sets_is_found_there(target: LocalTarget, name: str, tmp_path: Path) -> None:
    lines = "\n".join(f"  {line.strip()}" for line in FILES[name].strip().splitlines())
    given = read_settings("mine.yaml", f"kind: ConfigMap\ndata:\n{lines}\n".encode(), piped_command("bench"))
    manifests = tmp_path / "manifests"
    ablation_store.copy_manifests(manifests)
    found, _ = knobs.write_components(split("mine.yaml", given), manifests, lambda _variant, _sweep: None)
    arms = [item.owners[0].name if item.owners else f"{item.root}+{item.knob.name}" for item in found]
    assert {key.strip().split(":")[0] for key in lines.splitlines()} <= {
        key for item in found for key in _keys(manifests / "components" / item.knob.name)
    }
    wrong: list[str] = []
    for arm in arms:
        variant = load_variant(arm, manifests)
        with target.up(variant) as system:
            wrong += [f"{arm}: {reading}" for reading in read_back(system, variant.readback) if not reading.ok]
    assert wrong == []


def _keys(component: Path) -> list[str]:
    return [file.stem for file in component.glob("*.txt")]
