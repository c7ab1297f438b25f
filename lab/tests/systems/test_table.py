"""The table of systems and what stands beside it: workers asked for and running; programs fetched, built and refused; stand-ins, and that no output
names a program that did not run.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import unquote

import pytest
from pydantic import ValidationError

from lab.analysis.applied import list_notes_on_defaults, list_programs
from lab.analysis.migration import table as migrations
from lab.base.errors import UsageError
from lab.base.files import reference_folder
from lab.model.names import BRING_UP_S
from lab.model.variants.knobs import Check, knob_names, load_knob
from lab.model.variants.labels import ROLE_LABEL
from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.records.store import RunStore
from lab.systems import inside, programs, stand_ins, table, workers
from lab.systems.checker import find_refusal
from lab.systems.envoy import system as envoy
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.manifests.pods import Container
from lab.systems.settings import merge_settings, read_settings
from lab.systems.stand_ins import StandInSetting, load_stand_ins
from lab.systems.system import parse_cpu_limit, round_limit_up
from lab.systems.traefik import system as traefik
from lab.systems.workers import count_running, list_script, parse_processes, parse_reported_count
from lab.targets import TARGETS
from lab.targets.cluster import images as references
from lab.targets.local.sandbox import namespaces
from lab.targets.readback import read_back
from lab.tests.support.answering import telling
from lab.tests.support.factories import limited, plain_systems
from lab.tests.support.inside import changed


def test_every_check_of_every_knob_is_of_a_kind_that_there_is_and_forecasts_know_every_target() -> None:
    for name in knob_names():
        table.refuse_checks(name, load_knob(name).readback)
    assert {*BRING_UP_S} == {*TARGETS}


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (Check(kind="sysctrl", name="a", value="1"), "there is no kind 'sysctrl'\n.*did you mean 'sysctl'"),
        (Check(kind="traefik", name="a", value="1", context="b"), "a check of kind 'traefik' has no context"),
    ],
)
def test_another_kind_or_key_is_refused(check: Check, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        table.refuse_checks("here", [check])


def test_an_image_is_its_systems_by_the_longest_name() -> None:
    for image, name in (
        ("ghcr.io/nginx/nginx-gateway-fabric/nginx", "nginx-ngf"),
        ("docker.io/library/nginx", "nginx"),
        ("docker.io/nginx/nginx-ingress", "nginx-f5"),
        ("docker.io/library/debian", ""),
    ):
        assert getattr(table.find(image), "name", "") == name
    for image in ("registry.k8s.io/ingress-nginx/controller", "mirror.example:5000/x/ingress-nginx/controller"):
        assert table.find_controller(image) is not None
    assert table.find_controller("docker.io/library/nginx") is None


PARTS = ("cluster", "listener")


def test_each_key_is_set_in_its_part_and_what_was_there_stays() -> None:
    data = {
        "cluster.circuit_breakers.thresholds.0.max_connections": "65536",
        "cluster.circuit_breakers.thresholds.0.max_requests": "7",
        "cluster.connect_timeout": "1s",
        "listener.filters": "[{name: a}]",
        "cluster.common": "{idle_timeout: 5s}",
    }
    found = read_settings("ConfigMap/envoy", data, PARTS)
    before = {"name": "a", "common": {"max": 1}}
    assert merge_settings(before, found["cluster"]) == {
        "name": "a",
        "circuit_breakers": {"thresholds": [{"max_connections": 65536, "max_requests": 7}]},
        "connect_timeout": "1s",
        "common": {"max": 1, "idle_timeout": "5s"},
    }
    assert before == {"name": "a", "common": {"max": 1}}
    assert merge_settings({}, found["listener"]) == {"filters": [{"name": "a"}]}
    found = read_settings("ConfigMap/envoy", {"cluster.a.1.b": "2", "cluster.a.0.b": "1"}, PARTS)
    assert merge_settings({"a": [{"b": 0, "c": 3}]}, found["cluster"]) == {"a": [{"b": 1, "c": 3}, {"b": 2}]}


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
        merge_settings({"name": "a"}, read_settings("ConfigMap/envoy", {key: value}, PARTS)["cluster"])
    assert error.value.place == f"ConfigMap/envoy: data.{key}" and fault in error.value.fault


CONTROLLER = "registry.k8s.io/ingress-nginx/controller:v1.15.1"
LIMITS = ("10m", "300m", "1", "1001m", "1500m", "2", "2500m", "7.5", "0", None)


def deployment(limit: object = None, replicas: int = 1, image: str = CONTROLLER, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"limits": {"cpu": limit, "memory": "1Gi"}}
    containers = [{"name": "controller", "image": image, "resources": limits, **more}]
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return {"kind": "Deployment", "metadata": {"labels": {ROLE_LABEL: "proxy"}}, "spec": spec}


def configmap(**data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "data": {key.replace("_", "-"): text for key, text in data.items()}}


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
    proxies = [each for each in limited(variant, None) if each["metadata"].get("labels", {}).get(ROLE_LABEL) == "proxy"]
    pods = [each["spec"]["template"]["spec"] for each in proxies if each["kind"] == "Deployment"]
    assert [each for pod in pods for each in pod["containers"] if workers.find_rule(each["image"])]
    rows = migrations.load_table(name).rows["worker-processes"] if name in migrations.list_successors() else []
    for cpus, limit in product((1, 2, 8, 64), LIMITS):
        counted = workers.count_configured(limited(variant, limit), cpus)
        for words in (row.default for row in rows):
            expected = WORDS[words](parse_cpu_limit(limit), cpus) if words in WORDS else None
            assert counted == expected, (words, limit, cpus)


def test_a_count_is_of_the_quota_the_machines_cpus_or_the_configuration_that_the_proxy_mounts() -> None:
    """Of ingress-nginx 1.15.1, also where the quota is more than the machine has; Envoy looked at no limit in 1.36."""
    for cpus, limit in product((1, 2, 8, 64), LIMITS):
        asked = parse_cpu_limit(limit)
        count = ceil(asked) if asked else cpus
        assert round_limit_up(asked, cpus) == workers.count_configured([deployment(limit)], cpus) == count
    proxy = deployment(image="nginx")
    proxy["spec"]["template"]["spec"]["volumes"] = [{"name": "conf", "configMap": {"name": "conf"}}]
    own, other = (
        {"kind": "ConfigMap", "metadata": {"name": name}, "data": {"nginx.conf": f"worker_processes {count};\n"}}
        for name, count in (("conf", 3), ("backend", 1))
    )
    assert workers.count_configured([other, own, proxy]) == 3
    assert workers.count_configured([other, proxy], 8) == 8
    assert workers.count_configured([deployment("1", image="docker.io/envoyproxy/envoy:v1.36.4")], 8) == 8
    assert workers.count_configured([deployment("1", image="docker.io/envoyproxy/envoy:v1.40.0")], 8) == 1


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
    assert workers.count_configured(objects) == asked


MASTER, WORKER = (1, "nginx: master process nginx -c /tmp/nginx/nginx.conf"), (33, "nginx: worker process")
LEAVING, MANAGER = (33, "nginx: worker process is shutting down"), (1, "nginx: cache manager process")


@pytest.mark.parametrize(
    ("processes", "count"),
    [
        ([MASTER, WORKER, WORKER, LEAVING, MANAGER], 2),
        ([(1, "bash /var/lib/haproxy/router.bash"), (4, "haproxy -f /var/lib/haproxy/conf")], 4),
        ([(2, "/usr/sbin/haproxy -f haproxy.config"), (2, "haproxy -f haproxy.config")], 4),
        ([(1, "haproxy -W -db -f h.cfg"), (2, "haproxy -W -db -f h.cfg")], 2),
        ([], None),
        ([(8, "envoy -c envoy.yaml"), (1, "sh -c nginx: worker process")], None),
        (
            parse_processes(
                "1 nginx: master process nginx \n33 nginx: worker process \n1 sh -c for p in /proc/[0-9]* \n\nno\n"
            ),
            1,
        ),
    ],
)
def test_running_workers_are_counted_and_nothing_else(processes: list[tuple[int, str]], count: int | None) -> None:
    """nginx's that shut down serve no new connection, and a cache's manager none at all; HAProxy works in threads, and its master serves nobody."""
    assert count_running(processes) == count


def test_a_traefik_in_a_container_tells_of_itself(tmp_path: Path) -> None:
    """By its metrics, asked where one runs and nowhere else: what the kernel calls its threads says nothing of Go's."""
    program = tmp_path / "traefik"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    page = b"# TYPE go_sched_gomaxprocs_threads gauge\ngo_sched_gomaxprocs_threads 3\ngo_threads 9\n"
    with telling(page) as (port, asked), subprocess.Popen([program, "60"]) as running:
        try:
            script = list_script().replace(str(traefik.PORT), str(port))
            text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
        finally:
            running.kill()
    assert asked == [traefik.METRICS] and parse_reported_count(text) == 3
    assert f"{program} 60" in [title for _, title in parse_processes(text)]


@pytest.mark.parametrize("program", ["curl", "bash", "wget"])
def test_an_interface_is_asked_by_what_there_is(program: str, tmp_path: Path) -> None:
    """A path keeps what a shell and curl would read otherwise."""
    if which(program) is None:
        pytest.skip(f"no {program} here")
    for name in (program, "cat"):
        (tmp_path / name).symlink_to(which(name) or "")
    with telling(b"server.concurrency: 2\n") as (port, asked):
        command, env = ["/bin/sh", "-c", inside.compose_query(port, envoy.COUNTS)], {"PATH": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0 and "server.concurrency: 2\n" in done.stdout
    assert list(map(unquote, asked)) == [unquote(envoy.COUNTS)]


def test_where_nothing_answers_it_fails_without_an_answer() -> None:
    done = subprocess.run(["sh", "-c", inside.compose_query(1, "/")], capture_output=True, text=True, check=False)
    assert done.returncode and not done.stdout


CONFIG = "/tmp/nginx/nginx.conf"
CHECKER = ("nginx", "-t", "-q", "-c", CONFIG)
HEAD = "pid /tmp/nginx/nginx.pid; events {}\n"


def refused(http: str, files: Mapping[str, str] | None = None, beside: Mapping[str, str] | None = None) -> str:
    text = f"{HEAD}http {{\n{http}\n}}\n"
    return find_refusal(CHECKER, {CONFIG: text, **(files or {})}, {"/srv/conf": beside or {}})


def test_nginxs_check_refuses_in_its_words_and_takes_files_beside_it() -> None:
    """Ports below 1024 and log files are its own there."""
    assert not refused("server { listen 80; access_log /var/log/nginx/a.log; }")
    said = '"client_max_body_size" directive invalid value in `client_max_body_size 10q;`'
    assert refused("client_max_body_size 10q;") == said
    assert refused("log_format a '$nothing';") == 'unknown "nothing" variable'
    assert "keepalive_time_out" in refused("include /srv/conf/*.conf;", beside={"a.conf": "keepalive_time_out 1;"})
    with pytest.raises(UsageError, match="not in a folder of the container's own"):
        refused("", {"/etc/nginx/x": ""})


def container_of(image: str) -> Container:
    return Container("proxy", "Deployment/proxy", image, (), (), {}, (), {}, {}, False, 101, 101, (), None, None, None)


def test_a_version_is_the_tag_of_a_pinned_image_the_module_of_a_program_or_what_it_prints(tmp_path: Path) -> None:
    for image, version in (
        ("docker.io/envoyproxy/envoy:v1.40.0", "1.40.0"),
        ("docker.io/envoyproxy/envoy:distroless-v1.40.0@sha256:0000", "1.40.0"),
        ("localhost:5000/traefik:3.7.15", "3.7.15"),
    ):
        assert programs.read_tag_version(container_of(image)) == version
    for unnamed in ("caddy:latest", "localhost:5000/caddy"):
        with pytest.raises(UsageError, match="names no version by its tag"):
            programs.read_tag_version(container_of(unnamed))
    with pytest.raises(UsageError, match="envoy 1.40.1 is not pinned here") as error:
        programs.provide_wheel_program("Deployment/proxy", "envoy", "1.40.1")
    assert "envoy-1.40.0" in error.value.remedy
    program = tmp_path / "envoy-gateway"
    program.write_bytes(b"\x7fELF\0\0dep\tgithub.com/envoyproxy/gateway\tv1.9.1\th1:x\n")
    assert programs.read_module_version(program, "github.com/envoyproxy/gateway") == "1.9.1"
    assert programs.read_module_version(program, "github.com/other/module") == ""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho of $LD_LIBRARY_PATH, version 1.2 >&2\n")
    program.chmod(0o755)
    assert programs.read_version(program, r"of (\S+), version", (tmp_path / "a.so",)) == str(tmp_path)
    assert (
        programs.read_version(program, r"version (\S+)") == "1.2"
        and programs.read_version(program, "x(y)") == "unknown"
    )
    assert programs.read_version("no-such-program", "(x)") == ""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that has fetched nothing."""
    monkeypatch.setattr(programs, "WHEELS", tmp_path / "proxies")
    return tmp_path / "proxies"


def test_a_program_is_fetched_once_or_refused_with_the_command(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of several files of its name the program is meant."""
    asked: list[Sequence[str]] = []

    def run(script: str, argv: Sequence[str]) -> int:
        asked.append([script, *argv])
        for path, content in (("bin/caddy", b"#!/usr/bin/python3\n"), ("pkg/caddy", b"\x7fELF")):
            (bare / argv[0] / path).parent.mkdir(parents=True)
            (bare / argv[0] / path).write_bytes(content)
        return 0

    monkeypatch.setattr(programs, "run_outside", lambda script, argv: 2)
    with pytest.raises(UsageError, match="caddy-2.11.7 cannot be fetched") as error:
        programs.provide_wheel_program("Deployment/proxy", "caddy", "2.11.7")
    assert "scripts/proxies caddy-2.11.7" in error.value.remedy
    monkeypatch.setattr(programs, "run_outside", run)
    for _ in range(2):
        found = programs.provide_wheel_program("Deployment/proxy", "caddy", "2.11.7")
        assert (found.file, found.inside) == (bare / "caddy-2.11.7/pkg/caddy", "/srv/proxy/caddy")
    assert asked == [["proxies", "caddy-2.11.7"]]


def test_a_script_runs_outside_and_nobody_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status comes back; the next is asked by the same socket."""
    script = tmp_path / "told"
    script.write_text('#!/bin/sh\necho "$@" >>"$0.said"\nexit 3\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(namespaces, "SCRIPTS", tmp_path)
    with namespaces.serving_scripts() as channel:
        kept = os.dup(channel)
        monkeypatch.setenv(programs.OUTSIDE, str(kept))
        assert [programs.run_outside("told", ["a", "b c"]), programs.run_outside("told", ["d"])] == [3, 3]
    os.close(kept)
    assert (tmp_path / "told.said").read_text() == "a b c\nd\n"
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(programs.OUTSIDE, str(theirs.fileno()))
    ours.close()
    with pytest.raises(OSError, match=r"gone|Broken pipe"):
        programs.run_outside("proxies", ["caddy-2.11.7"])
    theirs.close()


def test_an_interrupted_command_needs_no_status_of_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread outside ends without a traceback, after the script that was under way."""
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\ntouch "$0.ran"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(namespaces, "SCRIPTS", tmp_path)
    errors = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", errors.append)
    with namespaces.serving_scripts() as channel:
        thread = [thread for thread in threading.enumerate() if thread.name == "outside"][-1]
        os.write(channel, b'["script"]\n')
    thread.join(10)
    assert (not thread.is_alive(), (tmp_path / "script.ran").exists(), errors) == (True, True, [])


def test_a_package_is_unpacked_once_or_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, packages = list[list[str]](), ("apache2", ["apache2-bin"], "usr/sbin/apache2")
    monkeypatch.setattr(programs, "CACHE", bare)
    monkeypatch.setattr(programs, "run_outside", lambda script, argv: asked.append([script, *argv]) or 2)
    with pytest.raises(UsageError, match="apache2 is not on PATH, and cannot be unpacked") as error:
        programs.unpack_packages("Deployment/proxy", *packages)
    assert asked == [["unpack", "apache2", "apache2-bin"]]
    assert "scripts/unpack apache2 apache2-bin" in error.value.remedy
    (bare / "apache2/usr/sbin").mkdir(parents=True)
    (bare / "apache2/usr/sbin/apache2").touch()
    assert programs.unpack_packages("", *packages) == bare / "apache2" and len(asked) == 1


STAND_IN = next(each for each in load_stand_ins() if each.image == "ingress-nginx/controller" and each.setting)
CONFIGMAP = "ingress-nginx-controller"
RISK = Check(kind="configmap", name="annotations-risk-level", value="High")
MODULE = {
    "controllers": "ingress-nginx: program: k8s.io/ingress-nginx v0.0.0-20240708192948-52c50467d67d; on: Debian nginx 1.26.3"
}


@dataclass
class Controller:
    """A controller's container as `/proc/1/cmdline` and the API server show it."""

    words: Sequence[str]
    data: Mapping[str, str] = field(default_factory=dict[str, str])

    def exec(self, _role: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        printed = "\0".join(self.words) + "\0" if argv[-1] == "/proc/1/cmdline" else ""
        return subprocess.CompletedProcess(list(argv), 0, printed, "")

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        assert (namespace, name) == ("ingress-lab", CONFIGMAP)
        return self.data


def controller(without: str = "") -> Any:
    """Return a controller that runs with what the base's manifests say, less one setting."""
    objects = {(each["kind"], each["metadata"]["name"]): each for each in load_variant("ingress-nginx").manifests}
    (container,) = objects["Deployment", "proxy"]["spec"]["template"]["spec"]["containers"]
    words = [word.replace("$(POD_NAMESPACE)", "ingress-lab") for word in container["args"]]
    return Controller(
        [word for word in words if word.partition("=")[0] != without],
        {key: value for key, value in objects["ConfigMap", CONFIGMAP]["data"].items() if key != without},
    )


@pytest.mark.parametrize("setting", STAND_IN.setting, ids=lambda setting: setting.name)
def test_the_base_has_the_named_releases_default_and_it_is_read_back(setting: StandInSetting) -> None:
    """On every target where the stand-in may run; with it left out of the manifests, the read-back fails."""
    manifests = load_variant("ingress-nginx").manifests
    assert setting.value_in(manifests) == setting.named
    own = setting.checks[0]
    for target in ("apiserver", "kind"):
        assert set(setting.checks) <= set(stand_ins.list_checks(manifests, target))
    (reading,) = read_back(controller(), [own])
    assert reading.ok, str(reading)
    (reading,) = read_back(controller(without=setting.name), [own])
    assert (reading.ok, reading.observed) == (False, "absent")


def test_a_setting_that_is_left_out_is_still_asked_for_and_one_that_a_knob_sets_is_the_knobs_own() -> None:
    """Else the check would vanish together with what it checks."""
    bare = changed("ingress-nginx", lambda each: each.update(data={}), "ConfigMap", CONFIGMAP)
    assert RISK in stand_ins.list_checks(bare.manifests, "kind")
    metrics, equal = (
        {check.name for check in stand_ins.list_checks(load_variant(name).manifests, "apiserver")}
        for name in ("metrics-on", "ingress-nginx-equal")
    )
    assert "--enable-metrics" not in metrics and "--enable-annotation-validation" in metrics
    assert not equal & {"ssl-ciphers", "ssl_ciphers"}


def test_the_tables_defaults_are_the_local_targets_and_every_stand_in_is_in_it() -> None:
    """But for images whose tag decides what runs. No title names a release that need not have run."""
    keys = {setting.key: setting.named for setting in STAND_IN.setting if setting.key}
    assert len(keys) == 4 and keys == {key: KEYS[key].default for key in keys}
    there = {each.image for each in load_stand_ins() if "local" in each.targets}
    for system in filter(None, map(table.find, references.read_pinned().values())):
        itself = system.realise is None or system.by_tag
        assert itself or any(each.endswith(system.image) for each in there), system.image
    assert [name for name in variant_names() if "ingress-nginx 1.15.1" in load_overlay(name).title] == []


@pytest.mark.parametrize(
    ("run", "ran"),
    [
        ("knobs-kind", "ingress-nginx at 52c5046 (July 2024, 1.11.0) on Debian's nginx"),
        ("knobs-apiserver", "ingress-nginx at 52c5046 (July 2024, 1.11.0) on Debian's nginx 1.26.3"),
        ("nds-apiserver", "ingress-nginx at 52c5046 (July 2024, 1.11.0) on Debian's nginx"),
        ("knobs-local", "nginx 1.22.1 with the directives that ingress-nginx 1.15.1 writes"),
    ],
)
def test_a_stored_run_says_what_ran_and_which_default_it_kept(run: str, ran: str) -> None:
    """Its manifests are those of its own time: the ones that say nothing of metrics left it to the program."""
    stored = RunStore.open(f"data/reference/{run}")
    (program,) = list_programs(stored)
    assert program.startswith(f"{ran}, ") and ", in place of ingress-nginx 1.15.1" in program
    assert ("whose image could not be had" in program) is (run != "knobs-local")
    said = " ".join(list_notes_on_defaults(stored))
    baseline = str(stored.manifests("ingress-nginx"))
    assert ("--enable-metrics=true" in said) is (run != "knobs-local" and "--enable-metrics" not in baseline)


def test_what_a_stand_ins_default_costs_is_left_to_the_runs_that_measured_it() -> None:
    """A number in the table would stay as it is when its runs are measured again."""
    costs = [setting.costs for stand_in in load_stand_ins() for setting in stand_in.setting if setting.costs]
    assert costs and not any(re.search(r"\d", text) for text in costs)
    assert all((reference_folder() / name).is_dir() for text in costs for name in re.findall(r"\w+-\w+", text))


def test_an_image_of_ones_own_is_no_stand_in_and_a_setting_is_a_flag_or_a_key() -> None:
    """`LAB_IMAGES` named it, and the facts say so. What did run kept no default where the base is as it is."""
    baseline = {"ingress-nginx": load_variant("ingress-nginx").manifests}
    (ran,) = stand_ins.list_programs("apiserver", MODULE, baseline)
    assert ran.endswith(", in place of ingress-nginx 1.15.1, whose image could not be had")
    official = {"controllers": "ingress-nginx: the files of registry.k8s.io/ingress-nginx/controller:v1.15.1"}
    assert stand_ins.list_programs("apiserver", official, baseline) == {"controller 1.15.1": ["ingress-nginx"]}
    named = {"image_ingress-nginx-controller": "registry.k8s.io/ingress-nginx/controller:v1.15.1"}
    assert stand_ins.list_programs("kind", named, baseline) == {"controller 1.15.1": ["ingress-nginx"]}
    either: tuple[dict[str, Any], ...] = {}, {"flag": "--a", "key": "a"}
    for given in either:
        with pytest.raises(ValidationError, match="expected either flag or key"):
            StandInSetting(**given, stand_in="true", named="false", changes="nothing")
    system: Any = Controller(["/nginx-ingress-controller"])
    (reading,) = read_back(system, [RISK])
    assert (reading.observed, reading.ok) == ("unreadable", False)
