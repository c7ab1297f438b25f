"""The house stands: imports between packages go down only, modules make no circle, and nothing lies about in `lab/` itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from lab.commands.readme import KEPT_APART
from lab.systems.table import SYSTEMS

LAB = Path(__file__).parents[1]
FLOORS = (
    ("base", "stats"),
    ("model",),
    ("generators", "disturbances"),
    ("systems",),
    ("targets", "records"),
    ("measure", "analysis"),
    ("experiments", "report"),
    ("studies",),
    ("commands",),
    ("__main__",),
)
"""Bottom to top; what shares a floor does not import each other."""
FLOOR = {package: number for number, packages in enumerate(FLOORS) for package in packages}
IN_LAB = {"__init__.py", "__main__.py", "README.md", "tests", "sweeps", "schema", *FLOOR} - {"__main__"}
SHARED = {"manifests"}
"""Packages of `lab/systems` that are no system."""
PACKAGES = {path.parent.name for path in LAB.glob("systems/*/__init__.py")} - SHARED
GENERAL = {"router", "ingress", "gateway", "f5"}
"""Words in systems' names that mean other things, too."""


def modules(lab: Path) -> dict[str, Path]:
    """Every module by its dotted name, without the tests and without programs that are data of one."""
    paths = (path for path in lab.rglob("*.py") if path.relative_to(lab).parts[0] != "tests")
    return {_name(path.relative_to(lab.parent)): path for path in paths if (path.parent / "__init__.py").exists()}


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(name: str, path: Path, known: Iterable[str]) -> Iterator[str]:
    """The modules of ours that a module names in any import: on top, deferred into a function, or for the type checker only."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (up, node.module)))
            named = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for wanted in named:
            found = wanted
            while found and found not in known:
                found = found.rpartition(".")[0]
            if found and found != name:
                yield found


@cache
def graph(lab: Path) -> dict[str, set[str]]:
    known = modules(lab)
    return {name: set(imports(name, path, known)) for name, path in known.items()}


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def wrong_ways(edges: Mapping[str, set[str]]) -> list[str]:
    return sorted(
        f"{importer} imports {imported}"
        for importer, targets in edges.items()
        for imported in targets
        if "." in importer and "." in imported  # `lab` itself holds its docstring only
        if package_of(importer) != package_of(imported) and FLOOR[package_of(imported)] >= FLOOR[package_of(importer)]
    )


def systems_by_name(edges: Mapping[str, set[str]], packages: Iterable[str] = ("model", "targets")) -> list[str]:
    """Imports of one system's package from where only the table of systems may be asked."""
    return sorted(
        f"{importer} imports {imported}"
        for importer, targets in edges.items()
        for imported in targets
        if package_of(importer) in packages and imported.startswith(tuple(f"lab.systems.{name}." for name in PACKAGES))
    )


def circles(edges: Mapping[str, set[str]]) -> list[str]:
    return sorted({" -> ".join(way) for start in edges if (way := _way_back(edges, start))})


def _way_back(edges: Mapping[str, set[str]], start: str) -> list[str]:
    ways, seen = [[start]], {start}
    for way in ways:
        for target in sorted(edges[way[-1]]):
            if target == start:
                return [*way, start]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []


def test_imports_between_packages_go_down_make_no_circle_and_name_no_system() -> None:
    """And analysis and report, on the floor above, know no target either."""
    edges = graph(LAB)
    assert wrong_ways(edges) == []
    assert circles(edges) == []
    assert systems_by_name(edges) == []
    crossed = {(package_of(name), package_of(each)) for name, imported in edges.items() for each in imported}
    assert KEPT_APART & crossed == set()


def test_targets_and_the_model_name_no_proxy() -> None:
    """In code or comment; the backend is an nginx, which must be there and whose image is built."""
    own = {LAB / "targets" / path for path in ("prerequisites.py", "cluster/images.py", "provision/images/Dockerfile")}
    words = {word for system in SYSTEMS for word in system.name.split("-")} - GENERAL
    named = [
        f"{path.relative_to(LAB)}: {line.strip()}"
        for package in ("model", "targets")
        for path in sorted((LAB / package).rglob("*"))
        if path.is_file() and path.suffix not in (".md", ".pyc")
        for line in path.read_text().splitlines()
        for word in words
        if word in line.lower() and not (path in own and word == "nginx")
    ]
    assert named == []


def test_every_package_of_a_system_is_in_the_table_and_there_are_at_most_ten_floors() -> None:
    assert {system.name.replace("-", "_") for system in SYSTEMS} == set(PACKAGES)
    assert len(FLOORS) <= 10
    assert {package_of(name) for name in modules(LAB)} <= {"lab", *FLOOR}


def test_no_module_is_found_by_looking_into_a_folder() -> None:
    """Verbs, targets, generators and all else of which there are several stand in tables, whose rows an editor can follow."""
    searching = {name for name, path in modules(LAB).items() if "pkgutil" in path.read_text()}
    assert searching == set()


def test_nothing_else_lies_in_lab_itself() -> None:
    assert {path.name for path in LAB.iterdir() if path.name != "__pycache__"} <= IN_LAB


BY_NAMES = [f"lab.{name}.one imports lab.systems.caddy.system" for name in ("model", "targets")]
UP = [BY_NAMES[0], "lab.stats.one imports lab.report.two"]
ROUND = ["lab.stats.one -> lab.stats.two -> lab.stats.one", "lab.stats.two -> lab.stats.one -> lab.stats.two"]


@pytest.mark.parametrize(
    ("text", "check", "wrong"),
    [
        ("import lab.report.two\n", wrong_ways, UP),
        ("def late() -> None:\n    from lab.report import two\n", wrong_ways, UP),
        ("if TYPE_CHECKING:\n    from lab.report.two import Two\n", wrong_ways, UP),
        ("from ..report import two\n", wrong_ways, UP),
        ("from lab.base import three\n", wrong_ways, [BY_NAMES[0], "lab.stats.one imports lab.base.three"]),
        ("from lab.stats import two\n", circles, ROUND),
        ("def late():\n    import lab.stats.two\n", circles, ROUND),
        ("", systems_by_name, BY_NAMES),
    ],
)
def test_what_breaks_the_house_is_found(
    tmp_path: Path, text: str, check: Callable[[Mapping[str, set[str]]], list[str]], wrong: list[str]
) -> None:
    """Imports up or sideways, on top, deferred or for types only; circles; and a system that is imported by name."""
    files = {"stats/one": text, "stats/two": "from lab.stats import one\n", "report/two": "", "base/three": ""}
    by_name = "def late() -> None:\n    from lab.systems.caddy import system\n"
    files |= {"systems/caddy/system": "", "model/one": by_name, "targets/one": by_name}
    for name, content in files.items():
        path = tmp_path / "lab" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (each for each in path.parents if each.is_relative_to(tmp_path / "lab")):
            (folder / "__init__.py").touch()
        path.write_text(content)
    assert check(graph(tmp_path / "lab")) == wrong
