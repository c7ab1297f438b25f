#!/usr/bin/env python3
"""Count the lab's functions from the verb to the first request of a bench: what one must read to understand it.

    scripts/shell scripts/maintain/trace_bench.py [VARIANT]      VARIANT: ingress-nginx, unless another is named

A real bench (`--sweep smoke`) runs under `sys.setprofile` until its first request through the proxy (that of the canary), and is stopped
there. The program prints the number of functions, and the functions in the order of their calls. Each function counts once, in the main
thread, from the verb's own function on, after the lab has entered its namespaces.

A function counts if it is called from the packages `commands`, `experiments` or `measure`, and is in another package or leads to a call of
a function in one. Not counted are:

- calls below `Target.up` (which differ between targets), during the import of a module, or by pydantic for validation;
- properties, lambdas, comprehensions, functions within functions, and methods with a name in double underscores;
- packages that import nothing of the lab (errors, files, numbers).
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
"""The environment variable that has the file for the calls; processes of the bench are traced where it is set."""
DERIVED = frozenset({"property", "cached_property", "computed_field", "setter"})
BOTTOM = frozenset({"base", "stats"})
MAIN = "__main__.py"
FOLLOWED = frozenset({"commands", "experiments", "measure"})
"""The packages whose calls are counted.

Calls from other packages are details, which the READMEs of those packages explain.
"""


Function = tuple[str, str]
"""The type of a function: (file below lab/, name within it)."""
Call = tuple[Function, Function, bool]
"""The type of a call: (caller, called function, whether the called function may be counted)."""


class Tracer:
    """A profile function for `sys.setprofile`: it records which functions of the lab call which, until a bench's first request.

    Attributes:
        calls: (code of the caller, code of the called function) → whether the called function may be counted. The
            caller of an inner function is the nearest function that is not an inner one.

    """

    def __init__(self, output: Path) -> None:
        self.calls: dict[tuple[CodeType, CodeType], bool] = {}
        self._output = output
        self._verbs: set[CodeType] = set()
        self._begun = False
        self._hidden: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        """Record a call of one of the lab's functions; Python calls this method at each call and return.

        Recording begins with the function that runs the verb `bench`. This function is recognized because the parsed
        arguments hold it.

        Args:
            frame: The frame of the called or returning function.
            event: "call", "return", or another event, which is ignored.
            result: At a return, the returned value.

        """
        code = frame.f_code
        if event == "return":
            if code.co_name == "parse_args" and isinstance(result, argparse.Namespace):
                self._verbs = {option.__code__ for option in vars(result).values() if isinstance(option, FunctionType)}
            if self._hidden and self._hidden[-1] is frame:
                self._hidden.pop()
        if event == "call" and is_ours(code):
            self._begun = self._begun or code in self._verbs
            if self._begun:
                by_pydantic = frame.f_back is not None and "/pydantic/" in frame.f_back.f_code.co_filename
                call, counts = (caller_of(frame), code), not self._hidden and not by_pydantic and may_count(code)
                if not self.calls.get(call):
                    self.calls.pop(call, None)  # its position is that of the first call that counts
                    self.calls[call] = counts
                below_up = code.co_qualname.endswith(".up") and code.co_filename.startswith(f"{LAB}targets/")
                if by_pydantic or below_up or code.co_name == "<module>":
                    self._hidden.append(frame)

    def stop_at_request(self, event: str, _: object) -> None:
        """Write the recorded calls into the output file and end the bench, as soon as it sends its first HTTP request.

        Python calls this method (an audit hook) for each audited event.

        Args:
            event: The name of the event; all but `http.client.send` are ignored.

        """
        if event == "http.client.send" and self._begun and not self._hidden:
            sys.setprofile(None)
            calls = [(function_of(caller), function_of(code), counts) for (caller, code), counts in self.calls.items()]
            self._output.write_text(json.dumps(calls))
            raise KeyboardInterrupt


def is_ours(code: CodeType) -> bool:
    """Return whether code belongs to a Python file of the lab; code of compiled templates does not."""
    return code.co_filename.startswith(LAB) and code.co_filename.endswith(".py")


def caller_of(frame: FrameType) -> CodeType:
    """Return the code of the nearest caller that is a function of the lab, but not an inner function.

    Args:
        frame: The frame of the called function.

    """
    while frame.f_back is not None:
        frame = frame.f_back
        if is_ours(frame.f_code) and not is_within(frame.f_code):
            break
    return frame.f_code


def is_within(code: CodeType) -> bool:
    """Return whether code belongs to an inner function, a lambda or a comprehension."""
    return code.co_name.startswith("<") or "<locals>" in code.co_qualname


def function_of(code: CodeType) -> Function:
    """Return the file (relative to lab/) and the qualified name of the function that code belongs to."""
    return code.co_filename.removeprefix(LAB), code.co_qualname


def may_count(code: CodeType) -> bool:
    """Return whether a function may be counted among the functions that one must read to understand a bench.

    Not counted are functions of the packages in `BOTTOM`, inner functions, properties, validators, serializers, and
    methods with a name in double underscores.

    Args:
        code: The code of the function.

    """
    if code.co_filename.removeprefix(LAB).split("/")[0] in BOTTOM or is_within(code) or code.co_name.startswith("__"):
        return False
    decorators = read_decorators(code.co_filename).get(code.co_firstlineno, frozenset())
    return not decorators & DERIVED and not any("validator" in name or "serializer" in name for name in decorators)


@cache
def read_decorators(file: str) -> Mapping[int, frozenset[str]]:
    """Return the decorators of all decorated functions in a Python file.

    Args:
        file: The path of the file.

    Returns:
        The line number of a function's first decorator → the names of the function's decorators. Of a dotted name such
        as `functools.cache` only the last part is kept.

    """
    decorators: dict[int, frozenset[str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text())):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            functions = [
                decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list
            ]
            names = frozenset(ast.unparse(function).rpartition(".")[2] for function in functions)
            decorators[node.decorator_list[0].lineno] = names
    return decorators


def begin_trace() -> None:
    """Begin to trace this process if it runs the bench; every Python process of the bench calls this when it starts."""
    if sys.orig_argv[1:3] == ["-m", "lab"] and (output := os.environ.get(INTO)):
        tracer = Tracer(Path(output))
        sys.addaudithook(tracer.stop_at_request)
        sys.setprofile(tracer)


def list_counted(calls: Sequence[Call]) -> list[Function]:
    """Return the functions that one must read to understand a bench, in the order in which they are first called.

    Args:
        calls: All recorded calls.

    """
    called: dict[Function, set[Function]] = {}
    for caller, function, _ in calls:
        called.setdefault(caller, set()).add(function)

    def leads_out(function: Function, package: str) -> bool:
        """Return whether a function is outside of a package, or calls such a function, directly or through others.

        Args:
            function: The function.
            package: The name of the package.

        """
        reached, waiting = {function}, [function]
        while waiting:
            new = called.get(waiting.pop(), set()) - reached
            reached |= new
            waiting += new
        return any(package_of(callee) not in {package, *BOTTOM} for callee in reached)

    return list(
        dict.fromkeys(
            function
            for caller, function, counts in calls
            if counts and package_of(caller) in {*FOLLOWED, MAIN} and leads_out(function, package_of(caller))
        )
    )


def package_of(function: Function) -> str:
    """Return the package of a function, which is the first part of its file's path."""
    return function[0].split("/")[0]


def run_bench(variant: str) -> list[Call]:
    """Run a bench of a variant until it sends its first request, and return the calls of the lab's functions so far.

    If the bench sends no request, this program exits with status 2.
    """
    with TemporaryDirectory(prefix="trace-") as folder:
        output = Path(folder) / "calls.json"
        (Path(folder) / "sitecustomize.py").write_text("import trace_bench\n\ntrace_bench.begin_trace()\n")
        paths = os.pathsep.join([folder, str(Path(__file__).parent), str(ROOT)])
        env = os.environ | {"PYTHONPATH": paths, INTO: str(output), "LAB_RUNS": f"{folder}/runs"}
        command = [sys.executable, "-m", "lab", "bench", variant, "--sweep", "smoke", "--seed", "1"]
        ended = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True)
        if not output.is_file():
            print(f"trace_bench: {' '.join(command)} came to no request:\n{ended.stderr}", file=sys.stderr)
            sys.exit(2)
        return [(tuple(caller), tuple(function), counts) for caller, function, counts in json.loads(output.read_text())]


def main() -> int:
    """Print the functions that a bench calls before its first request, and return the exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variant", nargs="?", default="ingress-nginx")
    functions = list_counted(run_bench(parser.parse_args().variant))
    print(
        f"{len(functions)} functions in {len({file for file, _ in functions})} modules before the first request (the canary)"
    )
    for file, name in functions:
        print(f"{file:44} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
