"""The house stands: imports between packages go down only, modules make no circle, and nothing lies about in `lab/` itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

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
    """Imports that go up, or sideways to another package."""
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
    """Each module that is reached again from itself, with the way round."""
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
    above = [name for name in edges if package_of(name) in ("analysis", "report")]
    assert [name for name in above if any(package_of(each) == "targets" for each in edges[name])] == []


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


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("import lab.report.two\n", "lab.stats.one imports lab.report.two"),
        ("def late() -> None:\n    from lab.report import two\n", "lab.stats.one imports lab.report.two"),
        ("if TYPE_CHECKING:\n    from lab.report.two import Two\n", "lab.stats.one imports lab.report.two"),
        ("from ..report import two\n", "lab.stats.one imports lab.report.two"),
        ("from lab.base import three\n", "lab.stats.one imports lab.base.three"),
    ],
)
def test_an_import_up_or_sideways_is_found(tmp_path: Path, text: str, wrong: str) -> None:
    lab = _house(tmp_path, {"stats/one": text, "report/two": "", "base/three": ""})
    assert wrong_ways(graph(lab)) == [wrong]


@pytest.mark.parametrize("package", ["model", "targets"])
def test_a_system_that_is_imported_by_name_is_found(tmp_path: Path, package: str) -> None:
    lab = _house(
        tmp_path,
        {
            f"{package}/one": "def late() -> None:\n    from lab.systems.caddy import system\n",
            "systems/caddy/system": "",
        },
    )
    assert systems_by_name(graph(lab)) == [f"lab.{package}.one imports lab.systems.caddy.system"]


@pytest.mark.parametrize("second", ["from lab.stats import one\n", "def late():\n    import lab.stats.one\n"])
def test_a_circle_of_modules_is_found(tmp_path: Path, second: str) -> None:
    lab = _house(tmp_path, {"stats/one": "from lab.stats import two\n", "stats/two": second})
    assert circles(graph(lab)) == [
        "lab.stats.one -> lab.stats.two -> lab.stats.one",
        "lab.stats.two -> lab.stats.one -> lab.stats.two",
    ]


def _house(root: Path, files: Mapping[str, str]) -> Path:
    lab = root / "lab"
    for name, text in files.items():
        path = lab / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (each for each in path.parents if each.is_relative_to(lab)):
            (folder / "__init__.py").touch()
        path.write_text(text)
    return lab
