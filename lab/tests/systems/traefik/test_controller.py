"""What is read in Traefik's log, as it really writes it, and what its image may be asked on a target with an API server, and without."""

from __future__ import annotations

from typing import Any

import pytest

from lab.base.errors import NotMeasurableError, UsageError
from lab.model.endpoint import Role
from lab.model.variants.variants import load_variant
from lab.systems.manifests import objects
from lab.systems.traefik import system as traefik
from lab.targets.apiserver.target import ApiserverTarget
from lab.targets.local import LocalTarget
from lab.targets.local.kubelet import bringup
from lab.tests.support.factories import make_point
from lab.tests.support.inside import changed

CPUS = frozenset({0})
PINNED: dict[Role, frozenset[int]] = {"lab": CPUS, "proxy": CPUS, "backend": CPUS, "generator": CPUS}
NO_SECRET = (
    "\x1b[90m2026-11-26T02:10:14Z\x1b[0m \x1b[31mERR\x1b[0m \x1b[1mCannot resolve auth secret, skipping ingress\x1b[0m "
    '\x1b[36merror=\x1b[0m\x1b[31m"getting secret nope: secret \\"nope\\" not found"\x1b[0m '
    '\x1b[36mingress=\x1b[0m"ingress-lab/bench rule-0 path-0" \x1b[36mproviderName=\x1b[0mkubernetesingressnginx'
)
NO_FORMAT = (
    '\x1b[90m2026-11-26T02:06:21Z\x1b[0m \x1b[31mERR\x1b[0m \x1b[1mUnsupported access log format: "bogus"\x1b[0m'
)
FORBIDDEN = (
    'E1126 01:56:20.560355       1 reflector.go:227] "Failed to watch" err="failed to list *v1.ConfigMap: '
    'configmaps is forbidden" type="*v1.ConfigMap"'
)
REFUSED = (
    '{"level":"error","error":"command traefik error: failed to decode configuration from flags: field not found, '
    'node: acesslog","time":"2026-11-26T02:06:19Z","message":"Command error"}'
)
ANSWERED = '10.64.0.2 - - [26/Nov/2026:02:06:21 +0000] "GET /ingress=ERR HTTP/1.1" 404 19 "-" "-" 1 "-" "-" 0ms'


def test_its_log_is_told_in_its_words_each_once() -> None:
    log = [ANSWERED, NO_SECRET, NO_SECRET, NO_FORMAT, FORBIDDEN, REFUSED]
    told = traefik.complaints(log)
    assert [words.split()[0] for words in told] == ["Cannot", "Unsupported", '"Failed', "failed"]
    assert "secret nope" in told[0] and "\x1b" not in "".join(told)
    assert traefik.ignored(log) == told[:1]


@pytest.mark.parametrize(
    ("variant", "target", "needed"),
    [
        ("traefik-ingress", LocalTarget(), "apiserver"),
        ("traefik-ingress-nginx+traefik-access-log", LocalTarget(), "apiserver"),
        ("traefik", ApiserverTarget(), "local"),
    ],
)
def test_what_has_no_routes_on_a_target_is_refused_with_the_target_that_has(
    variant: str, target: LocalTarget, needed: str
) -> None:
    with pytest.raises(NotMeasurableError) as caught:
        target.check_variant(load_variant(variant), [make_point()])
    assert caught.value.remedy == f"--target {needed}"


def test_a_controller_without_a_provider_is_refused() -> None:
    def edit(deployment: dict[str, Any]) -> None:
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        container["args"] = [arg for arg in container["args"] if "providers" not in arg]

    wanted = objects.read(changed("traefik-ingress", edit).manifests)
    with pytest.raises(UsageError, match="a Kubernetes provider among the arguments"):
        bringup.vet(wanted, PINNED, ApiserverTarget().realise)


@pytest.mark.slow
def test_a_command_line_that_it_does_not_take_is_refused_in_its_words_before_anything_starts() -> None:
    def edit(deployment: dict[str, Any]) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].append(
            "--serverstransport.maxidleconnsperhot=2"
        )

    bringup.try_out(objects.read(load_variant("traefik-ingress").manifests), PINNED, ApiserverTarget().realise)
    with pytest.raises(UsageError, match=r"traefik refuses this configuration: .*, node: maxidleconnsperhot\n"):
        bringup.try_out(objects.read(changed("traefik-ingress", edit).manifests), PINNED, ApiserverTarget().realise)
