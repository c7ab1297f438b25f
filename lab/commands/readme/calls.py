"""What a function calls, in order, as far as names and annotations in the code tell: the outline of a verb.

Pure reading: nothing is imported or run. A call is followed where its function is the lab's own and known by name: imported, of the same
module, a method of `self`, of what an annotation or a constructor says a name is. What is handed in as a value is not followed,
a protocol of the same package to all who implement it.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.commands.readme.imports import LAB, first_sentence, modules, packages, tree

Defined = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an outline: `depth` 0 is the verb's own function."""

    depth: int
    name: str
    """From the package on: `measure.loop.Loop.measure`."""
    says: str


@dataclass(frozen=True, slots=True)
class Code:
    """All functions, classes and methods of the lab by their whole name, and what names mean in each module."""

    defined: dict[str, Defined] = field(default_factory=dict[str, Defined])
    names: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Module → a name there → the whole name that it stands for."""

    def module_of(self, whole: str) -> str:
        while whole and whole not in self.names:
            whole = whole.rpartition(".")[0]
        return whole

    def resolved(self, whole: str) -> str | None:
        """The name under which it is defined: imported ones are looked up where they come from."""
        for _ in range(4):
            if whole in self.defined:
                return whole
            module, _, name = whole.rpartition(".")
            if name not in self.names.get(module, {}):
                return None
            whole = self.names[module][name]
        return None


@cache
def code() -> Code:
    found = Code()
    for path in modules():
        module = _module_name(path)
        found.names[module] = _imported(tree(path))
        for node in tree(path).body:
            if not isinstance(node, Defined):
                continue
            found.defined[f"{module}.{node.name}"] = node
            found.names[module][node.name] = f"{module}.{node.name}"
            for inner in node.body if isinstance(node, ast.ClassDef) else []:
                if isinstance(inner, ast.FunctionDef):
                    found.defined[f"{module}.{node.name}.{inner.name}"] = inner
    return found


def outline(start: str, into: Sequence[str]) -> list[Step]:
    """The calls from `start` on, in order, each function once, under the nearest one that calls it.

    It goes into the packages `into`; of the others it shows what is called and no more. Left out are the bottom packages, which import
    nothing of ours, and what helps within a module and leads to no other package; what has no docstring stands for what it calls.
    UsageError where there is no such function.
    """
    start = f"lab.{start}"
    if start not in code().defined:
        module = start.rpartition(".")[0]
        near = [name for name in code().defined if name.startswith(f"{module}.")] or list(code().names)
        raise UsageError("outline", f"no function {start}", f"there are: {', '.join(near)}")
    bottom = {name for name, below in packages().items() if not below}
    inner: dict[str, list[str]] = {start: []}
    waiting = deque([start])
    while waiting:
        whole = waiting.popleft()
        if _package(whole) not in into:
            continue
        for called in calls(whole):
            if called not in inner and _package(called) not in bottom and _leads_out(called, _package(whole)):
                inner[called] = []
                inner[whole].append(called)
                waiting.append(called)

    def steps(whole: str, depth: int) -> Iterator[Step]:
        says = first_sentence(code().defined[whole])
        if says or depth == 0:
            yield Step(depth, whole.removeprefix("lab."), says)
        for called in inner[whole]:
            yield from steps(called, depth + 1 if says or depth == 0 else depth)

    return list(steps(start, 0))


def _package(whole: str) -> str:
    return whole.split(".")[1]


def _leads_out(called: str, package: str) -> bool:
    """Whether it is of another package, or calls what is, by however many calls."""
    return _package(called) != package or any(_package(other) != package for other in _reached(called))


@cache
def _reached(whole: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [whole]
    while waiting:
        new = {called for called in calls(waiting.pop()) if called not in found}
        found |= new
        waiting += new
    return frozenset(found)


@cache
def calls(whole: str) -> tuple[str, ...]:
    """The functions and methods that this one calls, in the order of its lines, each once; a protocol's method, those that implement it."""
    node = code().defined[whole]
    if isinstance(node, ast.ClassDef):
        return ()
    if implementing := _implementing(whole):
        return implementing
    module = code().module_of(whole)
    owner = whole.rpartition(".")[0] if whole.rpartition(".")[0] in code().defined else None
    names = code().names[module] | _imported(node)
    known = _types(node, names, owner)
    found: dict[str, None] = {}
    for call in _in_order(node):
        target = _called(call.func, names, known)
        if target is not None and target != whole and isinstance(code().defined[target], ast.FunctionDef):
            found[target] = None
    return tuple(found)


def _implementing(whole: str) -> tuple[str, ...]:
    """Of a protocol's method: those of the classes in its package that have all of the protocol's."""
    owner, _, method = whole.rpartition(".")
    protocol = code().defined.get(owner)
    if not isinstance(protocol, ast.ClassDef) or all(ast.unparse(base) != "Protocol" for base in protocol.bases):
        return ()
    classes = [(name, node) for name, node in code().defined.items() if _package(name) == _package(owner)]
    wanted = _methods(protocol)
    return tuple(f"{name}.{method}" for name, node in classes if node is not protocol and wanted <= _methods(node))


def _methods(node: Defined) -> set[str]:
    inner = node.body if isinstance(node, ast.ClassDef) else []
    return {each.name for each in inner if isinstance(each, ast.FunctionDef)}


def _in_order(node: ast.AST) -> Iterator[ast.Call]:
    """Calls as they happen: arguments before the call that takes them."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    if isinstance(node, ast.Call):
        yield node


def _called(func: ast.expr, names: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    if isinstance(func, ast.Name):
        return code().resolved(names.get(func.id, ""))
    if not isinstance(func, ast.Attribute):
        return None
    kind = _kind(func.value, names, known)
    if kind is not None:
        return _method(kind, func.attr)
    if isinstance(func.value, ast.Name):
        return code().resolved(f"{names.get(func.value.id, '')}.{func.attr}")
    return None


def _method(owner: str, name: str) -> str | None:
    """A class's own, or the one that it has of a base."""
    found, node = code().resolved(f"{owner}.{name}"), code().defined.get(owner)
    if found is not None or not isinstance(node, ast.ClassDef):
        return found
    names = code().names[code().module_of(owner)]
    bases = [base for each in node.bases if (base := _named_class(each, names)) is not None]
    return next((found for base in bases if (found := _method(base, name)) is not None), None)


def _kind(value: ast.expr, names: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    """The class that an expression is an object of, as far as can be told."""
    if isinstance(value, ast.Name):
        return known.get(value.id)
    if isinstance(value, ast.Attribute):
        owner = _kind(value.value, names, known)
        return _fields(owner).get(value.attr) if owner else None
    if isinstance(value, ast.Call):
        target = _called(value.func, names, known)
        if target is None:
            return None
        node = code().defined[target]
        return target if isinstance(node, ast.ClassDef) else _annotated(node.returns, code().module_of(target))
    return None


def _types(node: ast.FunctionDef, names: Mapping[str, str], owner: str | None) -> dict[str, str]:
    """Names in a function whose class is known: by annotation, or by what they are first given."""
    known: dict[str, str] = {}
    if owner is not None and node.args.args and node.args.args[0].arg == "self":
        known["self"] = owner
    for argument in [*node.args.args, *node.args.kwonlyargs]:
        kind = _named_class(argument.annotation, names)
        if kind:
            known[argument.arg] = kind
    for inner in ast.walk(node):
        if isinstance(inner, ast.Assign) and len(inner.targets) == 1:
            _learn(inner.targets[0], inner.value, names, known)
        elif isinstance(inner, ast.withitem) and inner.optional_vars is not None:
            _learn(inner.optional_vars, inner.context_expr, names, known)
    return known


def _learn(target: ast.expr, value: ast.expr, names: Mapping[str, str], known: dict[str, str]) -> None:
    kind = _kind(value, names, known)
    if isinstance(target, ast.Name) and kind is not None:
        known.setdefault(target.id, kind)


@cache
def _fields(owner: str) -> Mapping[str, str]:
    """A class's annotated fields → their classes."""
    node, module = code().defined.get(owner), code().module_of(owner)
    if not isinstance(node, ast.ClassDef):
        return {}
    fields = [inner for inner in node.body if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)]
    found = {
        inner.target.id: _annotated(inner.annotation, module) for inner in fields if isinstance(inner.target, ast.Name)
    }
    return {name: kind for name, kind in found.items() if kind is not None}


def _annotated(annotation: ast.expr | None, module: str) -> str | None:
    return _named_class(annotation, code().names[module])


def _named_class(annotation: ast.expr | None, names: Mapping[str, str]) -> str | None:
    """The one class of ours that an annotation names: `X`, `X | None`, `Iterator[X]`, `AbstractContextManager[X]`."""
    if annotation is None:
        return None
    found = [
        whole
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name) and (whole := code().resolved(names.get(node.id, "")))
    ]
    classes = [whole for whole in dict.fromkeys(found) if isinstance(code().defined[whole], ast.ClassDef)]
    return classes[0] if len(classes) == 1 else None


def _imported(node: ast.AST) -> dict[str, str]:
    """Names that imports below a node bring → what of the lab they stand for."""
    found: dict[str, str] = {}
    inner = ast.walk(node) if isinstance(node, ast.FunctionDef) else _top(node)
    for each in inner:
        if isinstance(each, ast.ImportFrom) and each.module and each.module.split(".")[0] == "lab":
            found |= {alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names}
    return found


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """A module's own statements, those under `if TYPE_CHECKING:` too, and none of its functions'."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, ast.If):
            yield from ast.walk(child)


def _module_name(path: Path) -> str:
    parts = path.relative_to(LAB.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
