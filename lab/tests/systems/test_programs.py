"""Proxies as pinned wheels: which version an image names, what is fetched, and what is refused."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from urllib.parse import unquote

import pytest

from lab.base.errors import UsageError
from lab.systems import inside, programs
from lab.systems.checker import refusal
from lab.systems.envoy import system as envoy
from lab.systems.manifests.pods import Container
from lab.targets.local.sandbox import namespaces
from lab.tests.support.answering import telling


@pytest.mark.parametrize("program", ["curl", "bash", "wget"])
def test_an_interface_is_asked_by_what_there_is(program: str, tmp_path: Path) -> None:
    """A path keeps what a shell and curl would read otherwise."""
    if which(program) is None:
        pytest.skip(f"no {program} here")
    for name in (program, "cat"):
        (tmp_path / name).symlink_to(which(name) or "")
    with telling(b"server.concurrency: 2\n") as (port, asked):
        command, env = ["/bin/sh", "-c", inside.asked(port, envoy.COUNTS)], {"PATH": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0 and "server.concurrency: 2\n" in done.stdout
    assert list(map(unquote, asked)) == [unquote(envoy.COUNTS)]


def test_where_nothing_answers_it_fails_without_an_answer() -> None:
    done = subprocess.run(["sh", "-c", inside.asked(1, "/")], capture_output=True, text=True, check=False)
    assert done.returncode and not done.stdout


CONFIG = "/tmp/nginx/nginx.conf"
CHECKER = ("nginx", "-t", "-q", "-c", CONFIG)
HEAD = "pid /tmp/nginx/nginx.pid; events {}\n"


def refused(http: str, files: Mapping[str, str] | None = None, beside: Mapping[str, str] | None = None) -> str:
    text = f"{HEAD}http {{\n{http}\n}}\n"
    return refusal(CHECKER, {CONFIG: text, **(files or {})}, {"/srv/conf": beside or {}})


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


def test_the_version_is_the_tag_of_the_image_and_must_be_pinned() -> None:
    for image, version in (
        ("docker.io/envoyproxy/envoy:v1.40.0", "1.40.0"),
        ("docker.io/envoyproxy/envoy:distroless-v1.40.0@sha256:0000", "1.40.0"),
        ("localhost:5000/traefik:3.7.15", "3.7.15"),
    ):
        assert programs.tagged(container_of(image)) == version
    for unnamed in ("caddy:latest", "localhost:5000/caddy"):
        with pytest.raises(UsageError, match="names no version by its tag"):
            programs.tagged(container_of(unnamed))
    with pytest.raises(UsageError, match="envoy 1.40.1 is not pinned here") as error:
        programs.program("Deployment/proxy", "envoy", "1.40.1")
    assert "envoy-1.40.0" in error.value.remedy


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that has fetched nothing."""
    monkeypatch.setattr(programs, "BROUGHT", tmp_path / "proxies")
    return tmp_path / "proxies"


def test_what_is_there_is_not_fetched_again(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of several files of its name the program is meant."""
    asked: list[Sequence[str]] = []

    def run(script: str, argv: Sequence[str]) -> int:
        asked.append([script, *argv])
        for path, content in (("bin/caddy", b"#!/usr/bin/python3\n"), ("pkg/caddy", b"\x7fELF")):
            (bare / argv[0] / path).parent.mkdir(parents=True)
            (bare / argv[0] / path).write_bytes(content)
        return 0

    monkeypatch.setattr(programs, "run_outside", run)
    for _ in range(2):
        found = programs.program("Deployment/proxy", "caddy", "2.11.7")
        assert (found.file, found.inside) == (bare / "caddy-2.11.7/pkg/caddy", "/srv/proxy/caddy")
    assert asked == [["proxies", "caddy-2.11.7"]]


def test_what_cannot_be_fetched_is_refused_with_the_command(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "run_outside", lambda script, argv: 2)
    with pytest.raises(UsageError, match="caddy-2.11.7 cannot be fetched") as error:
        programs.program("Deployment/proxy", "caddy", "2.11.7")
    assert "scripts/proxies caddy-2.11.7" in error.value.remedy


def test_a_script_runs_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_nobody_outside_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(programs.OUTSIDE, str(theirs.fileno()))
    ours.close()
    with pytest.raises(OSError, match=r"gone|Broken pipe"):
        programs.run_outside("proxies", ["caddy-2.11.7"])
    theirs.close()


def test_a_package_that_cannot_be_unpacked_is_refused_and_one_that_is_there_is_not_asked_for(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, packages = list[list[str]](), ("apache2", ["apache2-bin"], "usr/sbin/apache2")
    monkeypatch.setattr(programs, "CACHE", bare)
    monkeypatch.setattr(programs, "run_outside", lambda script, argv: asked.append([script, *argv]) or 2)
    with pytest.raises(UsageError, match="apache2 is not on PATH, and cannot be unpacked") as error:
        programs.unpacked("Deployment/proxy", *packages)
    assert asked == [["unpack", "apache2", "apache2-bin"]]
    assert "scripts/unpack apache2 apache2-bin" in error.value.remedy
    (bare / "apache2/usr/sbin").mkdir(parents=True)
    (bare / "apache2/usr/sbin/apache2").touch()
    assert programs.unpacked("", *packages) == bare / "apache2" and len(asked) == 1


def test_a_program_tells_the_module_that_it_was_built_from_and_its_version(tmp_path: Path) -> None:
    program = tmp_path / "envoy-gateway"
    program.write_bytes(b"\x7fELF\0\0dep\tgithub.com/envoyproxy/gateway\tv1.9.1\th1:x\n")
    assert programs.built_from(program, "github.com/envoyproxy/gateway") == "1.9.1"
    assert programs.built_from(program, "github.com/other/module") == ""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho of $LD_LIBRARY_PATH, version 1.2 >&2\n")
    program.chmod(0o755)
    assert programs.version_of(program, r"of (\S+), version", (tmp_path / "a.so",)) == str(tmp_path)
    assert programs.version_of(program, r"version (\S+)") == "1.2" and programs.version_of(program, "x(y)") == "unknown"
    assert programs.version_of("no-such-program", "(x)") == ""
