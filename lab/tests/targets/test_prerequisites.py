"""The doctor's judgement, apart from the machine it runs on."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from lab.commands import look
from lab.targets import prerequisites
from lab.targets.local.sandbox import cpus
from lab.targets.local.target import TOOLS
from lab.targets.prerequisites import Need, PrerequisiteFinding, RequiredTool
from lab.tests.records.test_store import closed


def _finding(name: str, ok: bool, *needed_by: Need) -> PrerequisiteFinding:
    return PrerequisiteFinding(name, needed_by, ok, "found", "remedy")


def _shown(findings: Sequence[PrerequisiteFinding], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.setattr(prerequisites, "make_checks", lambda: list(findings))
    out = io.StringIO()
    return look.doctor(Console(file=out, width=200), False), out.getvalue()


def test_fails_only_for_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [_finding("a", True, "local"), _finding("b", False, "kind"), _finding("c", False, "optional")]
    status, text = _shown(others, monkeypatch)
    assert status == 0 and "--target local: ready" in text and "--target kind: not here, for want of b" in text
    status, text = _shown([*others, _finding("d", False, "local", "kind", "remote")], monkeypatch)
    assert status == 2 and "--target remote: not here, for want of d" in text


def test_versions_are_compared_as_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for says, ok, found in (
        ("tool 2.10.0", True, "2.10.0"),
        ("tool 2.8.9", False, "2.8.9, at least 2.9 (reason) wanted"),
        ("Segmentation fault", False, "prints no version: Segmentation fault"),
        ("", False, "prints no version"),
    ):
        program = tmp_path / "tool"
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        finding = prerequisites.check_tool(RequiredTool("tool", ["--version"], (2, 9), ("local",), "reason"))
        assert finding.ok is ok
        assert found in finding.found


def test_everything_the_local_target_runs_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own list is the doctor's: what `bench` would refuse to start without is in the table."""
    found = prerequisites.make_checks()
    assert {*TOOLS} <= {finding.check for finding in found if "local" in finding.needed_by}
    (steal,) = (finding.found for finding in found if finding.check == "hypervisor steal")
    assert steal.endswith(" %")
    finding = prerequisites.check_tool(RequiredTool("no-such-tool", [], (1,), ("kind",), "", "get it"))
    assert (finding.status, finding.found, finding.remedy) == ("missing", "not on PATH", "get it")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cpus.list_available() == list(range(os.cpu_count() or 1))


@pytest.mark.parametrize("where", ["file", "file/runs", "closed/runs"])
def test_runs_that_cannot_be_written_are_a_finding(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "closed").mkdir()
    closed(monkeypatch, tmp_path / "closed")
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / where))
    (finding,) = prerequisites._check_disk()  # pyright: ignore[reportPrivateUsage]
    assert finding.ok is where.startswith("closed")
    assert "LAB_RUNS" in finding.remedy and str(tmp_path / where.split("/")[0]) in finding.found


def test_what_forbids_user_namespaces_is_named_with_what_lifts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value, remedy in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ):
        files = {Path("/proc/sys", setting): f"{value}\n"}
        monkeypatch.setattr(prerequisites, "read_text_if_readable", lambda path, files=files: files.get(Path(path), ""))
        assert vars(prerequisites)["_userns_remedy"]().startswith(f"sudo sysctl -w {remedy}; or ")
