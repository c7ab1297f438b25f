"""The doctor's judgement, apart from the machine it runs on."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from lab.commands import look
from lab.model.names import OUTPUT_WIDTH
from lab.targets import prerequisites
from lab.targets.local.sandbox import cpus
from lab.targets.local.target import TOOLS
from lab.targets.prerequisites import Need, PrerequisiteFinding, RequiredTool
from lab.tests.records.test_store import closed


def _finding(name: str, ok: bool, *needed_by: Need) -> PrerequisiteFinding:
    return PrerequisiteFinding(name, needed_by, ok, "found", "remedy")


def _shown(
    findings: Sequence[PrerequisiteFinding], monkeypatch: pytest.MonkeyPatch, everything: bool = False
) -> tuple[int, str]:
    monkeypatch.setattr(prerequisites, "make_checks", lambda: list(findings))
    out = io.StringIO()
    return look.doctor(Console(file=out, width=200), False, everything), out.getvalue()


def test_fails_only_for_the_default_target(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [_finding("a", True, "local"), _finding("b", False, "kind"), _finding("c", False, "optional")]
    status, text = _shown(others, monkeypatch)
    assert status == 0 and "--target local: ready" in text and "--target kind: not ready, for want of b" in text
    status, text = _shown([*others, _finding("d", False, "local", "kind", "remote")], monkeypatch)
    assert status == 2 and "--target remote: not ready, for want of d" in text


def test_the_answer_comes_first_then_disks_then_what_is_missing_in_at_most_25_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    findings = [
        _finding("fine", True, "local"),
        _finding("disk for data/runs", True, "local"),
        *(_finding(f"{'lost-' * 40}{number}", False, "kind") for number in range(20)),
        _finding("extra", False, "optional"),
    ]
    status, text = _shown([*findings[:3], findings[-1]], monkeypatch)
    heads = [line.split(" (")[0] for line in text.splitlines() if not line.startswith(" ")]
    targets = ["--target local: ready", "--target apiserver: ready"]
    assert status == 0 and heads[:2] == targets
    assert heads[4] == "ok: disk for data/runs" and heads[5].startswith("missing: lost-")
    assert "fine" not in text and text.splitlines()[-1].startswith("optional, and not here: extra; ")
    _, text = _shown(findings, monkeypatch)
    lines = text.splitlines()
    assert len(lines) == 25 and re.fullmatch(r"… \d+ more lines: just doctor --all", lines[-1])
    assert max(map(len, lines)) <= OUTPUT_WIDTH
    _, text = _shown(findings, monkeypatch, everything=True)
    assert "ok: fine (for local): found" in text and "optional: extra (for optional): found – remedy" in text


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
