"""Proxies as pinned wheels: which version an image names, what is fetched, and what is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.targets.local import namespaces, proxies
from lab.targets.local.checker import refusal
from lab.targets.local.pods import Container


def container_of(image: str) -> Container:
    return Container("proxy", "Deployment/proxy", image, (), (), {}, (), {}, {}, False, 101, 101, (), None, None, None)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("docker.io/envoyproxy/envoy:v1.40.0", "1.40.0"),
        ("docker.io/envoyproxy/envoy:distroless-v1.40.0@sha256:0000", "1.40.0"),
        ("localhost:5000/traefik:3.7.15", "3.7.15"),
        ("caddy:latest", None),
        ("localhost:5000/caddy", None),
    ],
)
def test_the_version_is_the_tag_of_the_image(image: str, version: str | None) -> None:
    if version is None:
        with pytest.raises(UsageError, match="names no version by its tag"):
            proxies.tagged(container_of(image))
    else:
        assert proxies.tagged(container_of(image)) == version


def test_a_version_that_is_not_pinned_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="envoy 1.40.1 is not pinned here") as error:
        proxies.program("Deployment/proxy", "envoy", "1.40.1")
    assert "envoy-1.40.0" in error.value.remedy


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that has fetched nothing."""
    monkeypatch.setattr(proxies, "BROUGHT", tmp_path / "proxies")
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

    monkeypatch.setattr(proxies, "run_outside", run)
    for _ in range(2):
        found = proxies.program("Deployment/proxy", "caddy", "2.11.7")
        assert (found.file, found.inside) == (bare / "caddy-2.11.7/pkg/caddy", "/srv/proxy/caddy")
    assert asked == [["proxies", "caddy-2.11.7"]]


def test_what_cannot_be_fetched_is_refused_with_the_command(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "run_outside", lambda script, argv: 2)
    with pytest.raises(UsageError, match="caddy-2.11.7 cannot be fetched") as error:
        proxies.program("Deployment/proxy", "caddy", "2.11.7")
    assert "scripts/proxies caddy-2.11.7" in error.value.remedy


def test_a_script_runs_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its status comes back; the next is asked by the same socket."""
    script = tmp_path / "told"
    script.write_text('#!/bin/sh\necho "$@" >>"$0.said"\nexit 3\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(namespaces, "SCRIPTS", tmp_path)
    with namespaces.serving_scripts() as channel:
        kept = os.dup(channel)
        monkeypatch.setenv(namespaces.OUTSIDE, str(kept))
        assert [namespaces.run_outside("told", ["a", "b c"]), namespaces.run_outside("told", ["d"])] == [3, 3]
    os.close(kept)
    assert (tmp_path / "told.said").read_text() == "a b c\nd\n"


def test_nobody_outside_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = namespaces.socket.socketpair()
    monkeypatch.setenv(namespaces.OUTSIDE, str(theirs.fileno()))
    ours.close()
    with pytest.raises(OSError, match=r"gone|Broken pipe"):
        namespaces.run_outside("proxies", ["caddy-2.11.7"])
    theirs.close()


@pytest.mark.slow
def test_a_checker_finds_its_program_where_a_container_does(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho refused >&2\nexit 1\n")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    assert refusal(["/srv/proxy/program"], {}, programs={"/srv/proxy/program": program}) == "refused"


def test_a_package_that_cannot_be_unpacked_is_refused_and_one_that_is_there_is_not_asked_for(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(proxies, "CACHE", bare)
    monkeypatch.setattr(proxies, "run_outside", lambda script, argv: asked.append([script, *argv]) or 2)
    with pytest.raises(UsageError, match="apache2 is not on PATH, and cannot be unpacked") as error:
        proxies.unpacked("Deployment/proxy", "apache2", ["apache2-bin"], "usr/sbin/apache2")
    assert (
        asked == [["unpack", "apache2", "apache2-bin"]] and "scripts/unpack apache2 apache2-bin" in error.value.remedy
    )
    (bare / "apache2/usr/sbin").mkdir(parents=True)
    (bare / "apache2/usr/sbin/apache2").touch()
    assert proxies.unpacked("", "apache2", ["apache2-bin"], "usr/sbin/apache2") == bare / "apache2" and len(asked) == 1
