"""Which package of the lab imports which, read from the code's own import statements: deferred and type-checking ones, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

LAB = Path(__file__).parents[2]


def modules(folder: Path = LAB) -> Iterator[Path]:
    """Every module below a folder but the tests', in order."""
    tests = LAB / "tests"
    yield from (path for path in sorted(folder.rglob("*.py")) if not path.is_relative_to(tests))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def first_sentence(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """Of its docstring, on one line; empty where there is none."""
    head = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    sentence, stop, _ = head.partition(". ")
    return f"{sentence}." if stop else head


def named_modules(node: ast.AST) -> Iterator[str]:
    """Every module that imports below a node name: `a.b` and, of `from a.b import c`, also `a.b.c`, which may be one."""
    for found in ast.walk(node):
        if isinstance(found, ast.Import):
            yield from (alias.name for alias in found.names)
        elif isinstance(found, ast.ImportFrom) and found.module is not None:
            yield found.module
            yield from (f"{found.module}.{alias.name}" for alias in found.names)


@cache
def packages() -> Mapping[str, frozenset[str]]:
    """Each package directly in `lab/` → the others that it imports."""
    names = [path.parent.name for path in sorted(LAB.glob("*/__init__.py")) if path.parent.name != "tests"]
    found: dict[str, frozenset[str]] = {}
    for name in names:
        imported = {
            module.split(".")[1]
            for path in modules(LAB / name)
            for module in named_modules(tree(path))
            if module.startswith("lab.")
        }
        found[name] = frozenset(imported & set(names) - {name})
    return found


def floors() -> Mapping[str, int]:
    """The floor of each package, 1 at the bottom, as `lab/tests/test_house.py` holds every import to it."""
    (declared,) = (
        node.value
        for node in tree(LAB / "tests" / "test_house.py").body
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "FLOORS" for to in node.targets)
    )
    order: tuple[tuple[str, ...], ...] = ast.literal_eval(declared)
    return {name: number for number, names in enumerate(order, start=1) for name in names if (LAB / name).is_dir()}
