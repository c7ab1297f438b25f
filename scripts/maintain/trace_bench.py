#!/usr/bin/env python3
"""Count the lab's functions on the way from the verb to the first request of a bench: how much there is to read to understand one.

    scripts/shell scripts/maintain/trace_bench.py [VARIANT]      VARIANT: ingress-nginx, unless another is named

A real bench (`--sweep smoke`) runs under `sys.setprofile` until its first request through the proxy (the canary's), and is stopped there.
Printed are their number and the functions in the order in which they are called. Each is counted once, in the main thread, from the verb's
own function on, after the lab has entered its namespaces.

What is counted: a function that is called from the packages `commands`, `experiments` or `measure`, and is of another package or calls
one that is, by however many calls. Not counted: whatever is called below `Target.up` (which differs from target to target), while a
module is imported, or by pydantic to validate; properties; lambdas, comprehensions and functions within functions; methods with a name
in double underscores; packages that import nothing of the lab (errors, files, numbers).
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType

ROOT = Path(__file__).resolve().parents[2]
LAB = f"{ROOT}/lab/"
INTO = "LAB_TRACE_INTO"
"""Environment variable of the bench's processes: the file for the calls; set = they are traced."""
DERIVED = frozenset({"property", "cached_property", "computed_field", "setter"})
BOTTOM = frozenset({"base", "stats"})
MAIN = "__main__.py"
FOLLOWED = frozenset({"commands", "experiments", "measure"})
"""Packages whose functions' calls are counted; those of others are how these do it, as their own READMEs tell."""


Function = tuple[str, str]
"""(file below lab/, name within it)"""
Call = tuple[Function, Function, bool]
"""(caller, called, whether the called one may be counted)"""


class Tracer:
    """A profile function that notes which of the lab's functions called which, until the first request is sent.

    Attributes:
        calls: (caller, called) → whether the called one may be counted. Of a call that is made from a function within a function,
            the caller is who called that.

    """

    def __init__(self, into: Path) -> None:
        self.calls: dict[tuple[CodeType, CodeType], bool] = {}
        self._into = into
        self._verbs: set[CodeType] = set()
        self._begun = False
        self._hidden: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if event == "return":
            if code.co_name == "parse_args" and isinstance(result, argparse.Namespace):
                self._verbs = {each.__code__ for each in vars(result).values() if isinstance(each, FunctionType)}
            if self._hidden and self._hidden[-1] is frame:
                self._hidden.pop()
        if event == "call" and is_ours(code):
            self._begun = self._begun or code in self._verbs
            if self._begun:
                by_pydantic = frame.f_back is not None and "/pydantic/" in frame.f_back.f_code.co_filename
                call, counts = (caller_of(frame), code), not self._hidden and not by_pydantic and may_count(code)
                if not self.calls.get(call):
                    self.calls.pop(call, None)  # what counts stands where it is first called so that it counts
                    self.calls[call] = counts
                below_up = code.co_qualname.endswith(".up") and code.co_filename.startswith(f"{LAB}targets/")
                if by_pydantic or below_up or code.co_name == "<module>":
                    self._hidden.append(frame)

    def stop_at_request(self, event: str, _: object) -> None:
        """Write the calls and end the bench where it sends its first request. An audit hook."""
        if event == "http.client.send" and self._begun and not self._hidden:
            sys.setprofile(None)
            calls = [(function_of(caller), function_of(code), counts) for (caller, code), counts in self.calls.items()]
            self._into.write_text(json.dumps(calls))
            raise KeyboardInterrupt


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(LAB) and code.co_filename.endswith(".py")  # and no template


def caller_of(frame: FrameType) -> CodeType:
    """Return the nearest function that called, of ours and not within another; at the verb itself that of `__main__`."""
    while frame.f_back is not None:
        frame = frame.f_back
        if is_ours(frame.f_code) and not is_within(frame.f_code):
            break
    return frame.f_code


def is_within(code: CodeType) -> bool:
    return code.co_name.startswith("<") or "<locals>" in code.co_qualname


def function_of(code: CodeType) -> Function:
    return code.co_filename.removeprefix(LAB), code.co_qualname


def may_count(code: CodeType) -> bool:
    """Return whether a function is one that there is to read: of no package at the bottom, not within another, no property or validator."""
    if code.co_filename.removeprefix(LAB).split("/")[0] in BOTTOM or is_within(code) or code.co_name.startswith("__"):
        return False
    decorators = read_decorators(code.co_filename).get(code.co_firstlineno, frozenset())
    return not decorators & DERIVED and not any("validator" in name or "serializer" in name for name in decorators)


@cache
def read_decorators(file: str) -> Mapping[int, frozenset[str]]:
    """Return the line at which a decorated function begins → the names of its decorators, without what stands before a dot."""
    found: dict[int, frozenset[str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            calls = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            names = frozenset(ast.unparse(each).rpartition(".")[2] for each in calls)
            found[node.decorator_list[0].lineno] = names
    return found


def begin_trace() -> None:
    """Trace this process if it is one of the bench's own; called as every Python starts."""
    if sys.orig_argv[1:3] == ["-m", "lab"] and (into := os.environ.get(INTO)):
        tracer = Tracer(Path(into))
        sys.addaudithook(tracer.stop_at_request)
        sys.setprofile(tracer)


def count(calls: Sequence[Call]) -> list[Function]:
    """Return the functions that are counted, in the order in which they are first called so that they are."""
    called: dict[Function, set[Function]] = {}
    for caller, function, _ in calls:
        called.setdefault(caller, set()).add(function)

    def leads_out(function: Function, package: str) -> bool:
        """Return whether a function is of another package, or calls one that is, by however many calls."""
        seen, waiting = {function}, [function]
        while waiting:
            new = called.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return any(package_of(each) not in {package, *BOTTOM} for each in seen)

    return list(
        dict.fromkeys(
            function
            for caller, function, counts in calls
            if counts and package_of(caller) in {*FOLLOWED, MAIN} and leads_out(function, package_of(caller))
        )
    )


def package_of(function: Function) -> str:
    return function[0].split("/")[0]


def run_bench(variant: str) -> list[Call]:
    """Return what a bench calls before the first request of its own."""
    with TemporaryDirectory(prefix="trace-") as folder:
        into = Path(folder) / "calls.json"
        (Path(folder) / "sitecustomize.py").write_text("import trace_bench\n\ntrace_bench.begin_trace()\n")
        places = os.pathsep.join([folder, str(Path(__file__).parent), str(ROOT)])
        env = os.environ | {"PYTHONPATH": places, INTO: str(into), "LAB_RUNS": f"{folder}/runs"}
        command = [sys.executable, "-m", "lab", "bench", variant, "--sweep", "smoke", "--seed", "1"]
        ended = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True)
        if not into.is_file():
            print(f"trace_bench: {' '.join(command)} came to no request:\n{ended.stderr}", file=sys.stderr)
            sys.exit(2)
        return [(tuple(caller), tuple(function), counts) for caller, function, counts in json.loads(into.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", default="ingress-nginx")
    found = count(run_bench(parser.parse_args().variant))
    print(f"{len(found)} functions in {len({file for file, _ in found})} modules before the first request (the canary)")
    for file, name in found:
        print(f"{file:44} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
