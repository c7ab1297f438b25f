"""Every arm of real files, brought up and asked whether it took: runs inside the local target's namespaces, started by `test_arms.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.base.handing import again
from lab.experiments.ablation import folder as ablation_store
from lab.experiments.configmap import knobs
from lab.experiments.configmap.reading import read
from lab.experiments.configmap.split import split
from lab.model.variants.variants import load_variant
from lab.targets.local import LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.inside import clean, target

if "LAB_TEST_INSIDE" not in os.environ:
    pytest.skip("runs inside the namespaces: see test_arms.py", allow_module_level=True)

__all__ = ["clean", "target"]  # fixtures

HEADERS = """
---
kind: ConfigMap
metadata: {name: headers}
data: {X-Request-Start: "t=${msec}", X-From: 'the "edge" \\ here', X-Forwarded-Host: ""}
---
kind: ConfigMap
metadata: {name: answers}
data: {X-Frame-Options: DENY}
---
kind: Secret
metadata: {name: dh}
stringData:
  dhparam.pem: |
    -----BEGIN DH PARAMETERS-----
    MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
    +8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
    87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
    YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
    7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
    ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
    -----END DH PARAMETERS-----
"""
FILES = {
    "forwarded": """
        use-forwarded-headers: "true"
        compute-full-forwarded-for: "true"
        forwarded-for-header: CF-Connecting-IP
        forwarded-host-header: X-Host
        proxy-real-ip-cidr: 10.0.0.0/8,198.51.100.0/24
        proxy-add-original-uri-header: "true"
        proxy-set-headers: ingress-nginx/headers
    """,
    "hops": """
        enable-real-ip: "true"
        proxy-real-ip-cidr: 10.0.0.0/8,198.51.100.0/24
        add-headers: ingress-nginx/answers
    """,
    "behind": """
        use-proxy-protocol: "true"
        use-forwarded-headers: "true"
        compute-full-forwarded-for: "true"
        forwarded-for-proxy-protocol-header: X-Real-Client
        ssl-protocols: TLSv1.2
    """,
    "redirected": """
        force-ssl-redirect: "true"
        http-redirect-code: "301"
        preserve-trailing-slash: "true"
        use-port-in-redirects: "true"
        app-root: /app
        custom-http-errors: 404,503
        disable-proxy-intercept-errors: "true"
    """,
    "repeated": """
        location-snippet: access_log off;
        server-snippet: gzip off; keepalive_timeout 0;
        http-snippet: map $http_upgrade $connection_upgrade { default upgrade; }
        block-cidrs: 192.0.2.0/24,198.51.100.7
        block-user-agents: ~*spider
    """,
    "outputs": """
        enable-brotli: "true"
        brotli-level: "6"
        enable-syslog: "true"
        syslog-host: logs.example.com
        syslog-port: "1514"
        ssl-dh-param: ingress-nginx/dh
        ssl-session-ticket-key: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLf7/
        ssl-session-tickets: "true"
    """,
}


@pytest.mark.parametrize("name", FILES)
def test_every_arm_comes_up_and_all_that_it_sets_is_found_there(target: LocalTarget, name: str, tmp_path: Path) -> None:
    lines = "\n".join(f"  {line.strip()}" for line in FILES[name].strip().splitlines())
    given = read("mine.yaml", f"kind: ConfigMap\ndata:\n{lines}\n{HEADERS}".encode(), again("bench"))
    manifests = tmp_path / "manifests"
    ablation_store.copy_manifests(manifests)
    found, _ = knobs.written(split("mine.yaml", given), manifests, lambda _variant, _sweep: None)
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
