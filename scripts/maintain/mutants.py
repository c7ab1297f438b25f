#!/usr/bin/env python3
"""Mutation check: draw small faults in the lab's code, and see whether the tests of the mutated package notice them.

    scripts/shell scripts/maintain/mutants.py draw --seed 39   draws sixty into data/long/mutants.tsv
    scripts/shell scripts/maintain/mutants.py run              runs them; which die is in data/long/mutants-before.tsv
    scripts/shell scripts/maintain/mutants.py run --again      runs those whose line still exists; data/long/mutants-after.tsv

A mutant is one line with one operator, constant or return changed. Its line is the only one in the lab with that text, so that it is
found again where the code has moved to another file. `draw` leaves out the files that match a pattern of data/long/mutants-left-out.txt,
which are expected to go, and whatever breaks the import of its module.

`run` makes a work tree of the commit, runs the everyday tests of each package once as they are (what fails then is left out), and stops
at the first test that fails for a mutant. It can be stopped at any time: called again it goes on, at the same commit. Exit status: 0;
1 where a mutant that died before does not die again; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data/long"
DRAWN, LEFT_OUT = FOLDER / "mutants.tsv", FOLDER / "mutants-left-out.txt"
BEFORE, AFTER = FOLDER / "mutants-before.tsv", FOLDER / "mutants-after.tsv"
EVERYDAY = "not (measures or slow or inside or committed or long)"
KINDS = ("operator", "constant", "return")
SYMBOLS: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
"""What stands in the code for an operator, and what a mutant has instead."""
NOT_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp)
"""Operands of which arithmetic with another operator is a TypeError: no change of behaviour that tests would have to find."""
COSMETIC = frozenset({"strict", "frozen", "slots", "repr", "highlight", "soft_wrap", "markup"})
"""Arguments by name whose change no test has to notice."""
LEAST_CHARACTERS = 20
"""Of a mutant's line: shorter ones may be written anew by accident."""
LONGEST_S = 1800
"""Of a package's tests as they are."""
DIED = ("killed", "timeout")
KILLED = 137
"""What timeout(1) ends with then."""
Row = TypeVar("Row", "Mutant", "Outcome")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One drawn fault. `before` and `after` are the line's text without its indentation."""

    number: int
    package: str
    file: str
    line: int
    kind: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a mutant: killed, survived, timeout, or gone (no line has its text). `by`: the first test that failed."""

    number: int
    outcome: str
    seconds: int
    commit: str
    by: str


# -- drawing ----------------------------------------------------------------------------------------------


def find_sites(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module's source, which does not say yet whose it is."""
    lines = [line.encode() for line in source.splitlines()]

    def change(kind: str, line: int, start: int, end: int, old: str, new: str) -> Iterator[Mutant]:
        """Yield the mutant where `old` stands once between two byte offsets of a line."""
        text = lines[line - 1]
        between = text[start:end]
        if between.count(old.encode()) == 1:
            changed = text[:start] + between.replace(old.encode(), new.encode()) + text[end:]
            yield Mutant(0, "", "", line, kind, text.decode().strip(), changed.decode().strip())

    def change_operator(left: ast.expr, symbol: ast.AST, right: ast.expr) -> Iterator[Mutant]:
        if type(symbol) in SYMBOLS and left.end_lineno == right.lineno and left.end_col_offset is not None:
            yield from change("operator", right.lineno, left.end_col_offset, right.col_offset, *SYMBOLS[type(symbol)])

    for node in walk_code(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[symbol], comparators=[right]):
                if not (isinstance(left, ast.Name) and left.id == "__name__"):
                    yield from change_operator(left, symbol, right)
            case ast.BinOp(left=left, op=symbol, right=right):
                texts = [isinstance(getattr(side, "value", None), str | bytes) for side in (left, right)]
                if not any(texts) and not isinstance(left, NOT_NUMBERS) and not isinstance(right, NOT_NUMBERS):
                    yield from change_operator(left, symbol, right)
            case ast.BoolOp(op=symbol, values=values):
                for left, right in pairwise(values):
                    yield from change_operator(left, symbol, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand) if node.lineno == operand.lineno:
                yield from change("operator", node.lineno, node.col_offset, operand.col_offset, "not ", "")
            case ast.Constant(value=bool() | int() | float() as value) if node.end_col_offset is not None:
                new = str(not value) if isinstance(value, bool) else str(value + 1)
                old = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                yield from change("constant", node.lineno, node.col_offset, node.end_col_offset, old, new)
            case ast.Return(value=ast.expr() as value) if node.lineno == node.end_lineno == value.end_lineno:
                if not (isinstance(value, ast.Constant) and value.value is None):
                    old = lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()
                    yield from change(
                        "return", node.lineno, node.col_offset, node.end_col_offset or 0, old, "return None"
                    )
            case _:
                pass


def walk_code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every node that decides what happens: no annotation, decorator, assertion or f-string (whose places Python 3.11 does not tell)."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            hidden = isinstance(child, ast.JoinedStr | ast.Assert) or (
                isinstance(child, ast.keyword) and child.arg in COSMETIC
            )
            if isinstance(child, ast.AST) and not hidden:
                yield from walk_code(child)


def list_modules(root: Path) -> list[str]:
    """Return the lab's Python files without its tests, as seen from `root`."""
    files = (path.relative_to(root) for path in sorted((root / "lab").rglob("*.py")))
    return [str(path) for path in files if path.parts[1] != "tests"]


def draw(count: int, seed: int, left_out: Sequence[str]) -> list[Mutant]:
    """Draw mutants, as many of each kind, at most one of a line, from files whose package has tests."""
    texts = {file: (ROOT / file).read_text() for file in list_modules(ROOT)}
    counts = Counter(line.strip() for text in texts.values() for line in text.splitlines())
    urns: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for file, text in texts.items():
        package = file.split("/")[1]
        if (ROOT / "lab/tests" / package).is_dir() and not any(fnmatch(file, pattern) for pattern in left_out):
            for site in find_sites(text):
                once = counts[site.before] == 1 and len(site.before) >= LEAST_CHARACTERS
                if once and "\t" not in site.before:
                    urns[site.kind].append(replace(site, package=package, file=file))
    chance = random.Random(seed)
    for kind in KINDS:
        chance.shuffle(urns[kind])
    drawn: dict[str, Mutant] = {}
    while len(drawn) < count:
        site = urns[KINDS[len(drawn) % len(KINDS)]].pop()
        if site.before not in drawn and imports(site.file, change_line(texts[site.file], site.before, site.after)):
            drawn[site.before] = site
    order = sorted(drawn.values(), key=lambda each: (each.file, each.line))
    return [replace(site, number=number) for number, site in enumerate(order, start=1)]


IMPORT = """import sys, importlib.util as util
name, path = sys.argv[1:]
module = sys.modules[name] = util.module_from_spec(util.spec_from_file_location(name, path))
exec(compile(sys.stdin.read(), path, "exec"), vars(module))
"""


def imports(file: str, source: str) -> bool:
    """Return whether a module can still be imported with this source."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORT, name, str(ROOT / file)]
    return subprocess.run(command, check=False, input=source, text=True, env=env, capture_output=True).returncode == 0


def change_line(source: str, before: str, after: str) -> str:
    """Return the source with the one line of that text changed, its indentation kept. ValueError where there is not one."""
    lines = source.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip() == before]
    if len(places) != 1:
        raise ValueError(f"{len(places)} lines are: {before}")
    lines[places[0]] = lines[places[0]].replace(before, after)
    return "".join(lines)


# -- running ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tested:
    """What pytest said of a package's tests: its exit status (None: not ended in time), the tests that failed, and how long it took."""

    status: int | None
    failed: tuple[str, ...]
    seconds: float


def run_tests(tree: Path, package: str, limit_s: float, leave_out: Sequence[str] = (), first: bool = False) -> Tested:
    """Run a package's everyday tests in a work tree, on all CPUs; with `first` until one fails."""
    command = [
        "timeout",
        "--foreground",
        "--signal=KILL",
        f"{limit_s:.0f}",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-rfE",
    ]
    command += ["-p", "no:cacheprovider", "--hypothesis-seed=0", "-n", str(os.cpu_count()), "-m", EVERYDAY]
    command += [*(["-x"] if first else []), *(f"--deselect={each}" for each in leave_out), f"lab/tests/{package}"]
    began = time.monotonic()
    with TemporaryDirectory(prefix="mutants-tests-") as scratch:
        env = os.environ | {"PYTHONPATH": str(tree), "TMPDIR": scratch}
        ended = subprocess.run(command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    printed, seconds = ended.stdout.decode(errors="replace"), time.monotonic() - began
    if ended.returncode == KILLED:
        return Tested(None, (), seconds)
    failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", printed, re.MULTILINE)
    if ended.returncode and not failed:  # pytest itself could not go on
        failed = [printed.strip().rpartition("\n")[2]]
    return Tested(ended.returncode, tuple(failed), seconds)


def run_mutant(mutant: Mutant, tree: Path, known: dict[str, Tested]) -> tuple[str, float, str]:
    """Return (outcome, seconds, by which test) of one mutant. `known`: what a package's tests say as they are, added to."""
    place = find_line(tree, mutant)
    if place is None:
        return "gone", 0.0, ""
    packages = dict.fromkeys([place.relative_to(tree).parts[1], mutant.package])
    packages = [each for each in packages if (tree / "lab/tests" / each).is_dir()]
    for package in packages:
        known[package] = found = known.get(package) or run_tests(tree, package, LONGEST_S)
        if found.status not in (0, 1):
            raise RuntimeError(f"{package}: pytest ended with {found.status} in {found.seconds:.0f} s: {found.failed}")
    source, seconds = place.read_text(), 0.0
    place.write_text(change_line(source, mutant.before, mutant.after))
    try:
        for package in packages:
            before = known[package]
            tested = run_tests(tree, package, 3 * before.seconds + 60, before.failed, first=True)
            seconds += tested.seconds
            if tested.status != 0:
                return ("timeout", seconds, "") if tested.status is None else ("killed", seconds, tested.failed[0])
        return "survived", seconds, ""
    finally:
        place.write_text(source)


def find_line(tree: Path, mutant: Mutant) -> Path | None:
    """Return the file that holds a mutant's line now: its own, or the only other one with that text."""
    files = [mutant.file, *list_modules(tree)]
    holding = [
        tree / file
        for file in dict.fromkeys(files)
        if (tree / file).is_file()
        and [line.strip() for line in (tree / file).read_text().splitlines()].count(mutant.before) == 1
    ]
    return holding[0] if len(holding) == 1 or tree / mutant.file in holding else None


def run_git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run_all(mutants: Sequence[Mutant], results: Path, revision: str = "HEAD") -> None:
    """Run every mutant that `results` does not have yet in a work tree that shares this checkout's tools, and add a row for each as it ends."""
    rows = read_rows(results, Outcome)
    commit = rows[0].commit if rows else run_git("rev-parse", f"{revision}^{{commit}}")
    ran = {row.number for row in rows}
    left = [each for each in mutants if each.number not in ran]
    print(f"{len(left)} of {len(mutants)} mutants to run, of commit {commit[:12]}", file=sys.stderr)
    known: dict[str, Tested] = {}
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder, "tree")
        run_git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            (tree / ".cache").symlink_to((ROOT / ".cache").resolve())
            for mutant in left:
                outcome, seconds, by = run_mutant(mutant, tree, known)
                rows = sorted(
                    [*rows, Outcome(mutant.number, outcome, round(seconds), commit, by)], key=lambda row: row.number
                )
                write_rows(results, rows)
                print(f"{mutant.number} {mutant.file}:{mutant.line} {outcome} in {seconds:.0f} s {by}", file=sys.stderr)
        finally:
            run_git("worktree", "remove", "--force", str(tree))


def print_comparison(mutants: Sequence[Mutant]) -> int:
    """Print what became of each mutant before and after; return how many died before and live now."""
    before, after = ({row.number: row for row in read_rows(path, Outcome)} for path in (BEFORE, AFTER))
    lost = 0
    for mutant in mutants:
        was, now = (rows[mutant.number].outcome if mutant.number in rows else "not run" for rows in (before, after))
        lives = was in DIED and now == "survived"
        lost += lives
        print(f"{mutant.number:3} {mutant.file}:{mutant.line}  {was} → {now}{'  LIVES NOW' if lives else ''}")
    print(f"{lost} of {sum(row.outcome in DIED for row in before.values())} that died before live now")
    return lost


# -- files ------------------------------------------------------------------------------------------------


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read a table; empty where it is not there yet."""
    lines = path.read_text().splitlines()[1:] if path.is_file() else []
    readers: list[Callable[[str], Any]] = [int if field.type == "int" else str for field in fields(kind)]
    return [kind(*(read(cell) for read, cell in zip(readers, line.split("\t"), strict=True))) for line in lines]


def write_rows(path: Path, rows: Sequence[Mutant] | Sequence[Outcome]) -> None:
    """Write a table whole or not at all, so that a stopped run goes on."""
    table = [[field.name for field in fields(rows[0])], *(astuple(row) for row in rows)]
    partial_file = path.with_name(f".{path.name}.partial")
    partial_file.write_text("".join("\t".join(map(str, row)) + "\n" for row in table))
    partial_file.rename(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    drawing = verbs.add_parser("draw", help="draw mutants into data/long/mutants.tsv")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=60)
    running = verbs.add_parser("run", help="run them, or go on with it")
    running.add_argument("--again", action="store_true", help="after the change: compare with what was before")
    running.add_argument(
        "--commit", default="HEAD", help="whose code and tests (default: HEAD; of a run that goes on, its own)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the work tree is removed
    if options.verb == "draw":
        patterns = [line.split()[0] for line in LEFT_OUT.read_text().splitlines() if line and not line.startswith("#")]
        write_rows(DRAWN, draw(options.count, options.seed, patterns))
        return 0
    mutants = read_rows(DRAWN, Mutant)
    if not mutants or (options.again and not BEFORE.is_file()):
        print(f"mutants: {BEFORE if mutants else DRAWN} is missing: draw and run first", file=sys.stderr)
        return 2
    run_all(mutants, AFTER if options.again else BEFORE, options.commit)
    return 1 if options.again and print_comparison(mutants) else 0


if __name__ == "__main__":
    sys.exit(main())
