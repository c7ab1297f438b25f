"""How many workers a proxy is asked for, what each system makes of being asked for none, and how many run, by the titles of processes."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import ceil, floor
from pathlib import Path
from typing import Any

import pytest

from lab.analysis.migration import table
from lab.base.quantities import quantity
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import load_variant
from lab.systems import workers
from lab.systems.system import limit_up
from lab.systems.traefik import system as traefik
from lab.systems.workers import list_script, listed, started, told
from lab.tests.support.factories import limited, plain_systems

CONTROLLER = "registry.k8s.io/ingress-nginx/controller:v1.15.1"
LIMITS = ("10m", "300m", "1", "1001m", "1500m", "2", "2500m", "7.5", "0", None)


def deployment(limit: object = None, replicas: int = 1, image: str = CONTROLLER, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit, "memory": "1Gi"}}
    container = {"name": "controller", "image": image, "resources": limits, **more}
    labels = {ROLE_LABEL: "proxy"}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return {"kind": "Deployment", "metadata": {"labels": labels}, "spec": spec}


def configmap(**data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {key.replace("_", "-"): text for key, text in data.items()}}


def _cores(limit: str | None) -> Fraction | None:
    return (quantity(limit) or None) if limit else None


WORDS: Mapping[str, Callable[[Fraction | None, int], int]] = {
    "CPU limit rounded down, at least 1": lambda limit, cpus: max(1, floor(limit)) if limit else cpus,
    "CPU limit rounded up, at least 2": lambda limit, cpus: min(cpus, max(2, ceil(limit)) if limit else cpus),
    "the CPUs of its affinity and quota, rounded down, at least 1": lambda limit, cpus: min(
        cpus, max(1, floor(limit)) if limit else cpus
    ),
    "the CPUs of its affinity, whatever the quota": lambda _limit, cpus: cpus,
    "auto": lambda _limit, cpus: cpus,
}
"""What `migrate` tells of a successor's workers, as arithmetic; ingress-nginx's own are in a test of their own."""


@pytest.mark.parametrize("name", plain_systems())
def test_every_system_has_a_rule_and_it_is_what_migrate_tells(name: str) -> None:
    """On machines of 1, 2, 8 and 64 CPUs, without a limit and with each."""
    variant = load_variant(name)
    images = [
        container["image"]
        for obj in limited(variant, None)
        if obj["kind"] == "Deployment" and obj["metadata"]["labels"][ROLE_LABEL] == "proxy"
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    assert [image for image in images if workers.rule(image)], images
    said = [row.default for row in table.load(name).rows["worker-processes"]] if name in table.systems() else []
    for cpus in (1, 2, 8, 64):
        for limit in LIMITS:
            counted = workers.asked(limited(variant, limit), cpus)
            for words in said:
                expected = WORDS[words](_cores(limit), cpus) if words in WORDS else None
                assert counted == expected, (words, limit, cpus)


@pytest.mark.parametrize("cpus", [1, 2, 8, 64])
@pytest.mark.parametrize("limit", LIMITS)
def test_ingress_nginx_takes_its_quota_rounded_up_and_else_its_cpus(limit: str | None, cpus: int) -> None:
    """Of 1.15.1, also where the quota is more than the machine has."""
    cores = _cores(limit)
    count = ceil(cores) if cores else cpus
    assert limit_up(_cores(limit), cpus) == workers.asked([deployment(limit)], cpus) == count


@pytest.mark.parametrize(
    ("objects", "asked"),
    [
        ([deployment()], None),
        ([deployment("300m")], 1),
        ([deployment(2)], 2),
        ([deployment("1500m", replicas=3)], 6),
        ([configmap(worker_processes="auto"), deployment("300m")], 1),
        ([configmap(worker_processes="4"), deployment("300m")], 4),
        ([deployment("300m", image="example.org/mine:1")], None),
        ([deployment("300m", image="docker.io/library/nginx:1.28.0-alpine@sha256:00")], None),
        ([deployment("2500m", image="caddy")], 2),
        ([deployment(replicas=2, image="envoy", args=["-c", "/srv/envoy.json", "--concurrency", "3"])], 6),
        ([deployment(image="envoy"), {"kind": "EnvoyProxy", "spec": {"concurrency": 2}}], 2),
        ([deployment(image="nginx"), {"kind": "NginxProxy", "spec": {"workerProcesses": 3}}], 3),
        ([configmap(nbthread="4"), deployment(image="haproxytech/kubernetes-ingress:3.2")], 4),
        ([configmap(nbthread="4"), deployment("2500m", image="haproxytech/kubernetes-ingress:3.2")], 2),
        ([configmap(nbthread="4"), deployment("2500m", image="library/haproxy:2.6")], 4),
    ],
)
def test_what_the_manifests_say_whatever_the_machine(objects: list[dict[str, Any]], asked: int | None) -> None:
    """Where it is the CPUs', too, they do not."""
    assert workers.asked(objects) == asked


def test_a_number_in_a_configuration_that_the_proxy_mounts_is_one_that_is_asked_for() -> None:
    """The backend has one of its own."""
    proxy = deployment(image="nginx")
    proxy["spec"]["template"]["spec"]["volumes"] = [{"name": "conf", "configMap": {"name": "conf"}}]
    own, other = (
        {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"nginx.conf": f"worker_processes {count};\n"}}
        for name, count in (("conf", 3), ("backend", 1))
    )
    assert workers.asked([other, own, proxy]) == 3
    assert workers.asked([other, proxy], 8) == 8


def test_envoy_looked_at_no_limit_in_1_36() -> None:
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.36.4")], 8) == 8
    assert workers.asked([deployment("1", image="docker.io/envoyproxy/envoy:v1.40.0")], 8) == 1


@pytest.mark.parametrize(("name", "asked"), [("baseline", None), ("baseline+proxy-cpu-300m", 1), ("nginx", None)])
def test_real_variants(name: str, asked: int | None) -> None:
    assert workers.asked(load_variant(name).manifests) == asked


MASTER, WORKER = (1, "nginx: master process nginx -c /tmp/nginx/nginx.conf"), (33, "nginx: worker process")


def test_nginx_workers_are_counted_and_nothing_else_of_it() -> None:
    """A worker that shuts down serves no new connection, and a cache's manager none at all; its pool of threads serves files."""
    leaving, manager = (33, "nginx: worker process is shutting down"), (1, "nginx: cache manager process")
    assert started([MASTER, WORKER, WORKER, leaving, manager]) == 2


def test_haproxy_works_in_threads() -> None:
    assert started([(1, "bash /var/lib/haproxy/router.bash"), (4, "haproxy -f /var/lib/haproxy/conf")]) == 4
    assert started([(2, "/usr/sbin/haproxy -f haproxy.config"), (2, "haproxy -f haproxy.config")]) == 4, "of two pods"
    assert started([(1, "haproxy -W -db -f h.cfg"), (2, "haproxy -W -db -f h.cfg")]) == 2, "a master serves nobody"


def test_of_what_is_not_known_here_nothing_is_told() -> None:
    assert started([]) is started([(8, "envoy -c envoy.yaml"), (1, "sh -c nginx: worker process")]) is None


def test_a_container_lists_its_processes() -> None:
    said = "1 nginx: master process nginx \n33 nginx: worker process \n1 sh -c for p in /proc/[0-9]* \n\nnonsense\n"
    assert started(listed(said)) == 1


def test_a_traefik_in_a_container_tells_of_itself(tmp_path: Path) -> None:
    """By its metrics, asked where one runs and nowhere else: what the kernel calls its threads says nothing of Go's."""
    asked: list[str] = []

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"# TYPE go_sched_gomaxprocs_threads gauge\ngo_sched_gomaxprocs_threads 3\ngo_threads 9\n")

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = list_script().replace(str(traefik.PORT), str(server.server_port))
    program = tmp_path / "traefik"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    try:
        with subprocess.Popen([program, "60"]) as running:
            try:
                text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
            finally:
                running.kill()
        assert asked == [traefik.METRICS] and told(text) == 3
        assert f"{program} 60" in [title for _, title in listed(text)]
    finally:
        server.shutdown()
        server.server_close()
