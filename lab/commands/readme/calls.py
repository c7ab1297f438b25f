"""What a function calls, in order, as far as names and annotations in the code tell: the outline of a verb.

Nothing is run, but for the imports. A call is followed where its function is the lab's own and known by name: imported, of the same
module, a method of `self`, of what an annotation or a constructor says a name is. What is handed in as a value is not followed,
a protocol of the same package to all who implement it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from textwrap import dedent
from types import FunctionType
from typing import Any

from lab.base.errors import UsageError
from lab.commands.readme.imports import first_sentence, packages

Names = dict[str, Any]
"""A name in the code → what of the lab it stands for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an outline: `depth` 0 is the verb's own function."""

    depth: int
    name: str
    """From the package on: `measure.loop.Loop.measure`."""
    says: str


def outline(start: str, into: Sequence[str]) -> list[Step]:
    """The calls from `start` on, in order, each function once, under the nearest one that calls it.

    It goes into the packages `into`; of the others it shows what is called and no more. Left out are the bottom packages, which import
    nothing of ours, and what helps within a module and leads to no other package; what has no docstring stands for what it calls.
    UsageError where there is no such function.
    """
    module, _, name = f"lab.{start}".rpartition(".")
    try:
        there = vars(import_module(module))
    except ModuleNotFoundError:
        there = {}
    if not isinstance(there.get(name), FunctionType):
        near = [f"{module}.{each}" for each in there if getattr(there[each], "__module__", "") == module]
        raise UsageError("outline", f"no function {module}.{name}", f"there are: {', '.join(near or packages())}")
    bottom = {name for name, below in packages().items() if not below}
    inner: dict[FunctionType, list[FunctionType]] = {there[name]: []}
    waiting = deque(inner)
    while waiting:
        function = waiting.popleft()
        if _package(function) not in into:
            continue
        for called in calls(function):
            if called not in inner and _package(called) not in bottom and _leads_out(called, _package(function)):
                inner[called] = []
                inner[function].append(called)
                waiting.append(called)

    def steps(function: FunctionType, depth: int) -> Iterator[Step]:
        says = first_sentence(_parsed(function))
        if says or depth == 0:
            yield Step(depth, f"{function.__module__}.{function.__qualname__}".removeprefix("lab."), says)
        for called in inner[function]:
            yield from steps(called, depth + 1 if says or depth == 0 else depth)

    return list(steps(there[name], 0))


def _package(function: FunctionType | type) -> str:
    return function.__module__.split(".")[1]


def _leads_out(called: FunctionType, package: str) -> bool:
    """Whether it is of another package, or calls what is, by however many calls."""
    return _package(called) != package or any(_package(other) != package for other in _reached(called))


@cache
def _reached(function: FunctionType) -> frozenset[FunctionType]:
    found: set[FunctionType] = set()
    waiting = [function]
    while waiting:
        new = {called for called in calls(waiting.pop()) if called not in found}
        found |= new
        waiting += new
    return frozenset(found)


@cache
def calls(function: FunctionType) -> tuple[FunctionType, ...]:
    """The functions and methods that this one calls, in the order of its lines, each once; a protocol's method, those that implement it."""
    owner = _owner(function)
    if getattr(owner, "_is_protocol", False):
        return _implementing(owner, function.__name__)
    node = _parsed(function)
    names = _names(function.__module__) | _imported(node)
    known = {"self": owner} if owner else dict[str, Any]()
    for inner in ast.walk(node):  # by annotation, or by what they are first given
        match inner:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                known[name] = _named_class(ast.unparse(annotation), names)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                known.setdefault(name, _class_of(value, names, known))
            case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                known.setdefault(name, _class_of(value, names, known))
            case _:
                pass
    found = [_called(call.func, names, known) for call in _in_order(node)]
    return tuple(each for each in dict.fromkeys(found) if isinstance(each, FunctionType) and each is not function)


def _owner(function: FunctionType) -> Any:
    """The class that it is a method of; None of any other."""
    name = function.__qualname__.rpartition(".")[0]
    return getattr(sys.modules[function.__module__], name) if name else None


def _implementing(protocol: type, method: str) -> tuple[FunctionType, ...]:
    """Of a protocol's method: those of the classes in its package that have all of the protocol's."""
    wanted = {name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[:2] != "__"}
    package = import_module(f"lab.{_package(protocol)}")
    below = (import_module(found.name) for found in walk_packages(package.__path__, f"{package.__name__}."))
    classes = dict.fromkeys(each for module in below for each in vars(module).values() if isinstance(each, type))
    return tuple(vars(each)[method] for each in classes if each is not protocol and wanted <= vars(each).keys())


def _in_order(node: ast.AST) -> Iterator[ast.Call]:
    """Calls as they happen: arguments before the call that takes them."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    if isinstance(node, ast.Call):
        yield node


def _called(func: ast.expr, names: Names, known: Names) -> Any:
    """The function or class of ours that is called; None where that cannot be told."""
    found: Any = None
    match func:
        case ast.Name(id=name):
            found = names.get(name)
        case ast.Attribute(value=value, attr=name):
            owner = _class_of(value, names, known)
            found = getattr(owner or (names.get(value.id) if isinstance(value, ast.Name) else None), name, None)
        case _:
            pass
    found = inspect.unwrap(getattr(found, "__func__", found))
    return found if isinstance(found, FunctionType | type) and found.__module__.startswith("lab.") else None


def _class_of(value: ast.expr, names: Names, known: Names) -> type | None:
    """The class that an expression is an object of, as far as can be told."""
    match value:
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(value=of, attr=name) if owner := _class_of(of, names, known):
            return _named_class(inspect.get_annotations(owner).get(name), _names(owner.__module__))
        case ast.Call(func=func):
            called = _called(func, names, known)
            if isinstance(called, FunctionType):
                return _named_class(called.__annotations__.get("return"), _names(called.__module__))
            return called
        case _:
            return None


def _named_class(annotation: Any, names: Names) -> type | None:
    """The one class of ours that an annotation names: `X`, `X | None`, `Iterator[X]`, `AbstractContextManager[X]`."""
    found = [annotation]
    if isinstance(annotation, str):
        found = [names.get(node.id) for node in ast.walk(ast.parse(annotation)) if isinstance(node, ast.Name)]
    classes = {each for each in found if isinstance(each, type) and each.__module__.startswith("lab.")}
    return classes.pop() if len(classes) == 1 else None


@cache
def _parsed(function: FunctionType) -> ast.FunctionDef:
    (node,) = ast.parse(dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    return node


@cache
def _names(module: str) -> Names:
    """Those of a module, and of what it imports for the type checker or a function."""
    found = import_module(module)
    return _imported(ast.parse(inspect.getsource(found))) | vars(found)


def _imported(node: ast.AST) -> Names:
    """What imports below a node bring of the lab."""
    found: dict[str, Any] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.ImportFrom) and each.module and each.module.startswith("lab"):
            source = import_module(each.module)
            for alias in each.names:
                inner = f"{each.module}.{alias.name}"
                there = hasattr(source, alias.name)
                found[alias.asname or alias.name] = getattr(source, alias.name) if there else import_module(inner)
    return found
