"""Parts about the code itself: the floors of its packages, what lies in a folder, the outline of a verb."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lab.base.errors import UsageError
from lab.commands.readme import calls
from lab.commands.readme.imports import LAB, first_sentence, floors, packages, tree


def floors_picture() -> str:
    """The packages by floor, the highest first, each with what it imports."""
    imports = packages()
    at = floors()
    width = max(map(len, imports))
    lines = ["```text"]
    for floor in sorted(set(at.values()), reverse=True):
        names = sorted(name for name in imports if at[name] == floor)
        for name in names:
            head = str(floor) if name == names[0] else " "
            below = ", ".join(sorted(imports[name], key=lambda other: (-at[other], other))) or "nothing of ours"
            lines.append(f"{head}  {name:<{width}}  imports {below}")
    return "\n".join([*lines, "```", ""])


def folder(path: Path) -> str:
    """What a folder of the code may import and imports, and its folders and modules, each with its first sentence."""
    rows = ["| here | what it is |", "| --- | --- |"]
    for inner in sorted(path.iterdir()):
        if (inner / "__init__.py").is_file() and inner != LAB / "tests":
            name = (
                f"[`{inner.name}/`]({_from_top(inner / 'README.md')})"
                if (inner / "README.md").is_file()
                else f"`{inner.name}/`"
            )
            rows.append(f"| {name} | {_says(inner / '__init__.py')} |")
    rows += [
        f"| [`{module.name}`]({_from_top(module)}) | {_says(module)} |"
        for module in sorted(path.glob("*.py"))
        if module.name != "__init__.py"
    ]
    return "\n".join([*_imports(path), *rows, ""])


def outline(start: str, into: Sequence[str]) -> str:
    """A verb call by call, each indented under its caller, with the first sentence of what it says of itself."""
    steps = calls.outline(start, into)
    shown = [f"{'  ' * step.depth}{step.name}" for step in steps]
    width = max(map(len, shown))
    lines = [f"{name:<{width}}  {step.says}".rstrip() for name, step in zip(shown, steps, strict=True)]
    return "\n".join(["```text", *lines, "```", ""])


def _imports(path: Path) -> list[str]:
    if path == LAB:
        return []
    package = path.relative_to(LAB).parts[0]
    at = floors()
    if package not in at:
        raise UsageError(str(path), f"{package} is no package of the lab", f"there are: {', '.join(at)}")
    below = sorted((name for name in at if at[name] < at[package]), key=lambda name: (at[name], name))
    may = f"may import {', '.join(f'`{name}`' for name in below)}" if below else "imports nothing of ours"
    return [f"Floor {at[package]}: `{package}` {may} ([the floors](lab/README.md#the-floors)).", ""]


def _says(module: Path) -> str:
    return first_sentence(tree(module)).replace("|", r"\|")


def _from_top(path: Path) -> str:
    return str(path.relative_to(LAB.parent))
