#!/usr/bin/env python3
"""Count the lab's functions on the way from the verb to the first load of a bench: how much there is to read to understand one.

    scripts/shell scripts/maintain/trace_bench.py [VARIANT] [--all]      VARIANT: baseline, unless another is named

A real bench (`--sweep smoke`) runs under `sys.setprofile` until its first load would start, and is stopped there. Each function that was
called is counted once, in its main thread, from the verb's own function on, after the lab has entered its namespaces.

Not counted: whatever is called below `Target.up` (which differs from target to target), while a module is imported, or by pydantic to
validate; properties; lambdas, comprehensions and functions within functions; methods with a name in double underscores; packages
that import nothing of the lab (errors, files, numbers). `--all` lists these as well, with why each is not counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType, FunctionType

ROOT = Path(__file__).resolve().parents[2]
LAB = f"{ROOT}/lab/"
INTO = "LAB_TRACE_INTO"
"""Environment variable of the bench's processes: the file for the calls; set = they are traced."""
GENERATORS = frozenset({"wrk", "wrk2", "k6", "hey", "h2load", "oha"})
DERIVED = frozenset({"property", "cached_property", "computed_field", "setter"})
BOTTOM = frozenset({"base", "stats"})
HIDING = ("below Target.up", "at import", "by pydantic")
"""Why whatever a function calls is not counted either."""


class Tracer:
    """A profile function that notes each of the lab's functions at its first call, with why it is not counted, if it is not.

    Attributes:
        calls: code → why it is not counted; empty for what is counted.

    """

    def __init__(self, into: Path) -> None:
        self.calls: dict[CodeType, str] = {}
        self._into = into
        self._verbs: set[CodeType] = set()
        self._begun = False
        self._hidden: list[tuple[FrameType, str]] = []

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if event == "return":
            if code.co_name == "parse_args" and isinstance(result, argparse.Namespace):
                self._verbs = {each.__code__ for each in vars(result).values() if isinstance(each, FunctionType)}
            if self._hidden and self._hidden[-1][0] is frame:
                self._hidden.pop()
        if event != "call" or not (code.co_filename.startswith(LAB) and code.co_filename.endswith(".py")):
            return
        self._begun = self._begun or code in self._verbs
        if self._begun:
            hiding = "" if self._hidden else why_hiding(frame)
            inherited = self._hidden[-1][1] if self._hidden else ""
            why = inherited or (hiding if hiding == HIDING[2] else why_not_counted(code))
            if self.calls.get(code, "not called yet"):  # what is called once where it counts is counted
                self.calls[code] = why
            if hiding:
                self._hidden.append((frame, hiding))

    def stop_at_load(self, event: str, arguments: tuple[object, ...]) -> None:
        """Write the calls and end the bench where a generator is about to be started; an audit hook."""
        if event == "subprocess.Popen" and is_load(arguments[1]):
            sys.setprofile(None)
            found = [(code.co_filename.removeprefix(LAB), code.co_qualname, why) for code, why in self.calls.items()]
            self._into.write_text(json.dumps(found))
            raise KeyboardInterrupt


def is_load(command: object) -> bool:
    """Return whether a command is a generator that is to load something, and not one that is asked for its version."""
    words = [str(word) for word in command] if isinstance(command, list | tuple) else [str(command)]
    return not GENERATORS.isdisjoint(Path(word).name for word in words) and ("run" in words or "://" in " ".join(words))


def why_hiding(frame: FrameType) -> str:
    """Return why what a function calls is not counted; empty where it is."""
    code = frame.f_code
    if code.co_qualname.endswith(".up") and code.co_filename.startswith(f"{LAB}targets/"):
        return HIDING[0]
    if code.co_name == "<module>":
        return HIDING[1]
    if frame.f_back is not None and "/pydantic/" in frame.f_back.f_code.co_filename:
        return HIDING[2]
    return ""


def why_not_counted(code: CodeType) -> str:
    """Return why a function itself is not counted; empty where it is."""
    package = code.co_filename.removeprefix(LAB).split("/")[0]
    if package in BOTTOM:
        return "of a package at the bottom"
    if code.co_name.startswith("<") or "<locals>" in code.co_qualname:
        return "within a function"
    if code.co_name.startswith("__"):
        return "double underscores"
    decorators = read_decorators(code.co_filename).get(code.co_firstlineno, frozenset())
    if decorators & DERIVED:
        return "property"
    return "validator" if any("validator" in name or "serializer" in name for name in decorators) else ""


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
        sys.addaudithook(tracer.stop_at_load)
        sys.setprofile(tracer)


def run_bench(variant: str) -> list[tuple[str, str, str]]:
    """Return (file below lab/, function, why it is not counted or empty) of each function that a bench calls before its first load."""
    with TemporaryDirectory(prefix="trace-") as folder:
        into = Path(folder) / "calls.json"
        (Path(folder) / "sitecustomize.py").write_text("import trace_bench\n\ntrace_bench.begin_trace()\n")
        places = os.pathsep.join([folder, str(Path(__file__).parent), str(ROOT)])
        env = os.environ | {"PYTHONPATH": places, INTO: str(into), "LAB_RUNS": f"{folder}/runs"}
        command = [sys.executable, "-m", "lab", "bench", variant, "--sweep", "smoke", "--seed", "1"]
        ended = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True)
        if not into.is_file():
            print(f"trace_bench: {' '.join(command)} came to no load:\n{ended.stderr}", file=sys.stderr)
            sys.exit(2)
        return [(file, name, why) for file, name, why in json.loads(into.read_text())]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", default="baseline")
    parser.add_argument("--all", action="store_true", help="list what is not counted, too")
    options = parser.parse_args()
    calls = run_bench(options.variant)
    counted = [(file, name) for file, name, why in calls if not why]
    print(f"{len(counted)} functions in {len({file for file, _ in counted})} modules")
    for file, name, why in calls:
        if options.all or not why:
            print(f"{file:44} {name}{f'  ({why})' if why else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
