#!/usr/bin/env python3
"""Mutation testing: draw small faults in the lab's code, and see whether the tests of their packages detect them.

    scripts/shell scripts/maintain/mutants.py draw --seed 39   draws sixty into data/long/mutants.tsv
    scripts/shell scripts/maintain/mutants.py run              runs them; which die is in data/long/mutants-before.tsv
    scripts/shell scripts/maintain/mutants.py run --again      runs those whose line still exists; data/long/mutants-after.tsv

A mutant is one line with one operator, constant or return changed. No other line of the lab has the same text, so the line is found again
after the code has moved to another file. `draw` leaves out the files that match a pattern of data/long/mutants-left-out.txt, which are
expected to go, and every change that breaks the import of its module.

`run` makes a work tree of the commit and runs the everyday tests of each package once without a mutant; tests that fail then are left out.
For each mutant it stops at the first test that fails. You can stop it at any time: called again, it continues at the same commit. The
exit status is 0; 1 where a mutant that died before survives now; 2 for wrong usage.
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
"""The text of each operator in the code, and its replacement in a mutant."""
NOT_NUMBERS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.ListComp)
"""The operands for which another arithmetic operator is a TypeError, which no test has to find."""
COSMETIC = frozenset({"strict", "frozen", "slots", "repr", "highlight", "soft_wrap", "markup"})
"""The keyword arguments whose change no test has to detect."""
LEAST_CHARACTERS = 20
"""The shortest line of a mutant: a shorter line may be written again by accident."""
LONGEST_S = 1800
"""The time limit in seconds of a package's tests without a mutant."""
DIED = ("killed", "timeout")
KILLED = 137
"""The exit status of timeout(1) after it has killed the tests."""
Row = TypeVar("Row", "Mutant", "Outcome")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutant: a small fault for the lab's code, in which one operator, constant or return of one line is changed.

    Attributes:
        number: The number of the mutant, from 1.
        package: The package of the lab in which the line was when the mutant was drawn.
        file: The file in which the line was, relative to the checkout.
        line: The number of the line in that file.
        kind: What is changed: `operator`, `constant` or `return`.
        before: The text of the line without the fault, without indentation.
        after: The text of the line with the fault, without indentation.

    """

    number: int
    package: str
    file: str
    line: int
    kind: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the tests for one mutant (a small fault in the lab's code): whether they detected it.

    Attributes:
        number: The number of the mutant.
        outcome: `killed` (a test failed), `survived` (no test failed), `timeout`, or `gone` (the mutant's line is not
            in the code any more).
        seconds: The duration of the tests in seconds.
        commit: The commit of the lab that was tested.
        by: The name of the first test that failed; empty if none did.

    """

    number: int
    outcome: str
    seconds: int
    commit: str
    by: str


# -- drawing ----------------------------------------------------------------------------------------------


def find_sites(source: str) -> Iterator[Mutant]:
    """Yield all possible mutants (small faults) of a module.

    The attributes `number`, `package` and `file` of the mutants are not set yet.

    Args:
        source: The source text of the module.

    """
    lines = [line.encode() for line in source.splitlines()]

    def change(kind: str, line: int, start: int, end: int, old: str, new: str) -> Iterator[Mutant]:
        """Yield the mutant that replaces a text in one line of the module.

        Nothing is yielded unless the text occurs exactly once in the given part of the line.

        Args:
            kind: The kind of the mutant: `operator`, `constant` or `return`.
            line: The number of the line, from 1.
            start: The byte offset at which the part of the line begins.
            end: The byte offset at which the part of the line ends.
            old: The text to replace.
            new: The replacement.

        """
        text = lines[line - 1]
        section = text[start:end]
        if section.count(old.encode()) == 1:
            changed = text[:start] + section.replace(old.encode(), new.encode()) + text[end:]
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
    """Yield the nodes of a syntax tree in which a fault can change what the code does.

    Annotations, decorators, assertions and cosmetic keyword arguments (COSMETIC) are left out. So are f-strings,
    because Python 3.11 does not give the positions of their parts.
    """
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
    """Return the paths of all Python files of the lab except its tests, relative to the checkout `root`."""
    files = (path.relative_to(root) for path in sorted((root / "lab").rglob("*.py")))
    return [str(path) for path in files if path.parts[1] != "tests"]


def draw(count: int, seed: int, left_out: Sequence[str]) -> list[Mutant]:
    """Draw mutants (small faults in the lab's code) at random.

    There are equally many of each kind (if `count` is a multiple of three), and at most one per line. A line is eligible
    if its package has tests, its text occurs only once in the lab, and it has at least `LEAST_CHARACTERS` characters and
    no tab. Mutants that break the import of their module are not drawn.

    Args:
        count: The number of mutants.
        seed: The seed of the random choice.
        left_out: Patterns such as `lab/report/*` for the paths of files to leave out.

    """
    texts = {file: (ROOT / file).read_text() for file in list_modules(ROOT)}
    counts = Counter(line.strip() for text in texts.values() for line in text.splitlines())
    urns: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for file, text in texts.items():
        package = file.split("/")[1]
        if (ROOT / "lab/tests" / package).is_dir() and not any(fnmatch(file, pattern) for pattern in left_out):
            for site in find_sites(text):
                is_unique = counts[site.before] == 1 and len(site.before) >= LEAST_CHARACTERS
                if is_unique and "\t" not in site.before:
                    urns[site.kind].append(replace(site, package=package, file=file))
    chance = random.Random(seed)
    for kind in KINDS:
        chance.shuffle(urns[kind])
    drawn: dict[str, Mutant] = {}
    while len(drawn) < count:
        site = urns[KINDS[len(drawn) % len(KINDS)]].pop()
        if site.before not in drawn and imports(site.file, change_line(texts[site.file], site.before, site.after)):
            drawn[site.before] = site
    order = sorted(drawn.values(), key=lambda site: (site.file, site.line))
    return [replace(site, number=number) for number, site in enumerate(order, start=1)]


IMPORT = """import sys, importlib.util as util
name, path = sys.argv[1:]
module = sys.modules[name] = util.module_from_spec(util.spec_from_file_location(name, path))
exec(compile(sys.stdin.read(), path, "exec"), vars(module))
"""


def imports(file: str, source: str) -> bool:
    """Return whether a module of the lab can still be imported when its source is changed.

    Args:
        file: The path of the module's file, relative to the checkout.
        source: The changed source.

    """
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", IMPORT, name, str(ROOT / file)]
    return subprocess.run(command, check=False, input=source, text=True, env=env, capture_output=True).returncode == 0


def change_line(source: str, before: str, after: str) -> str:
    """Return a source text in which one line is replaced; the line keeps its indentation.

    Args:
        source: The source text.
        before: The line to replace, without indentation.
        after: The new line, without indentation.

    Raises:
        ValueError: The source does not have the line exactly once.

    """
    lines = source.splitlines(keepends=True)
    matches = [number for number, line in enumerate(lines) if line.strip() == before]
    if len(matches) != 1:
        raise ValueError(f"{len(matches)} lines are: {before}")
    lines[matches[0]] = lines[matches[0]].replace(before, after)
    return "".join(lines)


# -- running ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackageResult:
    """The result of running the tests of one package of the lab.

    Attributes:
        status: The exit status of pytest; None if pytest did not end in time.
        failed: The names of the tests that failed. If pytest itself failed without naming a test, the last line of its
            output.
        seconds: The duration in seconds.

    """

    status: int | None
    failed: tuple[str, ...]
    seconds: float


def run_tests(
    tree: Path, package: str, limit_s: float, leave_out: Sequence[str] = (), first: bool = False
) -> PackageResult:
    """Run the tests of one package in a work tree, on all CPUs, without the slow ones.

    Args:
        tree: The folder of the work tree.
        package: The name of the package of the lab.
        limit_s: The time limit in seconds.
        leave_out: The names of tests to leave out.
        first: Whether to stop at the first test that fails.

    """
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
    command += [*(["-x"] if first else []), *(f"--deselect={test}" for test in leave_out), f"lab/tests/{package}"]
    began = time.monotonic()
    with TemporaryDirectory(prefix="mutants-tests-") as scratch:
        env = os.environ | {"PYTHONPATH": str(tree), "TMPDIR": scratch}
        ended = subprocess.run(command, cwd=tree, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    printed, seconds = ended.stdout.decode(errors="replace"), time.monotonic() - began
    if ended.returncode == KILLED:
        return PackageResult(None, (), seconds)
    failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", printed, re.MULTILINE)
    if ended.returncode and not failed:  # pytest itself could not continue
        failed = [printed.strip().rpartition("\n")[2]]
    return PackageResult(ended.returncode, tuple(failed), seconds)


def run_mutant(mutant: Mutant, tree: Path, unmutated: dict[str, PackageResult]) -> tuple[str, float, str]:
    """Insert one mutant (small fault) into a work tree, and run the tests that may detect it.

    They are the tests of the package that has the mutant's line now, and of the package that had it when the mutant was
    drawn.

    Args:
        mutant: The mutant.
        tree: The folder of the work tree. The changed file is restored at the end.
        unmutated: The result of each package's tests without a mutant. Packages that are missing are tested first, and
            are added.

    Returns:
        The outcome (as in `Outcome`), the duration of the tests in seconds, and the name of the first test that failed
        (empty if none did).

    Raises:
        RuntimeError: The tests of a package did not run to their end without a mutant.

    """
    place = find_line(tree, mutant)
    if place is None:
        return "gone", 0.0, ""
    packages = dict.fromkeys([place.relative_to(tree).parts[1], mutant.package])
    packages = [package for package in packages if (tree / "lab/tests" / package).is_dir()]
    for package in packages:
        unmutated[package] = result = unmutated.get(package) or run_tests(tree, package, LONGEST_S)
        if result.status not in (0, 1):
            raise RuntimeError(
                f"{package}: pytest ended with {result.status} in {result.seconds:.0f} s: {result.failed}"
            )
    source, seconds = place.read_text(), 0.0
    place.write_text(change_line(source, mutant.before, mutant.after))
    try:
        for package in packages:
            before = unmutated[package]
            tested = run_tests(tree, package, 3 * before.seconds + 60, before.failed, first=True)
            seconds += tested.seconds
            if tested.status != 0:
                return ("timeout", seconds, "") if tested.status is None else ("killed", seconds, tested.failed[0])
        return "survived", seconds, ""
    finally:
        place.write_text(source)


def find_line(tree: Path, mutant: Mutant) -> Path | None:
    """Return the file of a work tree that has the line of a mutant, which may have moved since the mutant was drawn.

    Only files that have the line exactly once are considered. The file from which the mutant was drawn is preferred.

    Returns:
        None if no file has the line, or if several other files have it.

    """
    files = [mutant.file, *list_modules(tree)]
    matches = [
        tree / file
        for file in dict.fromkeys(files)
        if (tree / file).is_file()
        and [line.strip() for line in (tree / file).read_text().splitlines()].count(mutant.before) == 1
    ]
    return matches[0] if len(matches) == 1 or tree / mutant.file in matches else None


def run_git(*arguments: str) -> str:
    """Run a git command in the checkout, and return its output without whitespace at both ends."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def run_all(mutants: Sequence[Mutant], results: Path, revision: str = "HEAD") -> None:
    """Run the tests for every mutant that has no outcome yet, and store each outcome as soon as it is known.

    The tests run in a temporary work tree that shares the tools of this checkout.

    Args:
        mutants: The mutants.
        results: The file with the table of outcomes.
        revision: The commit to test. If the table has outcomes already, their commit is tested instead.

    """
    rows = read_rows(results, Outcome)
    commit = rows[0].commit if rows else run_git("rev-parse", f"{revision}^{{commit}}")
    ran = {row.number for row in rows}
    remaining = [mutant for mutant in mutants if mutant.number not in ran]
    print(f"{len(remaining)} of {len(mutants)} mutants to run, of commit {commit[:12]}", file=sys.stderr)
    unmutated: dict[str, PackageResult] = {}
    with TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder, "tree")
        run_git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            (tree / ".cache").symlink_to((ROOT / ".cache").resolve())
            for mutant in remaining:
                outcome, seconds, by = run_mutant(mutant, tree, unmutated)
                rows = sorted(
                    [*rows, Outcome(mutant.number, outcome, round(seconds), commit, by)], key=lambda row: row.number
                )
                write_rows(results, rows)
                print(f"{mutant.number} {mutant.file}:{mutant.line} {outcome} in {seconds:.0f} s {by}", file=sys.stderr)
        finally:
            run_git("worktree", "remove", "--force", str(tree))


def print_comparison(mutants: Sequence[Mutant]) -> int:
    """Print the outcome of each mutant before and after a change of the lab's code.

    Returns:
        The number of mutants that the tests detected before the change, and that survive the tests after it. Mutants whose
        line is gone or that were not run are not among them.

    """
    before, after = ({row.number: row for row in read_rows(path, Outcome)} for path in (BEFORE, AFTER))
    lost = 0
    for mutant in mutants:
        old, new = (rows[mutant.number].outcome if mutant.number in rows else "not run" for rows in (before, after))
        is_lost = old in DIED and new == "survived"
        lost += is_lost
        print(f"{mutant.number:3} {mutant.file}:{mutant.line}  {old} → {new}{'  LIVES NOW' if is_lost else ''}")
    print(f"{lost} of {sum(row.outcome in DIED for row in before.values())} that died before live now")
    return lost


# -- files ------------------------------------------------------------------------------------------------


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read a table of mutants or outcomes from a file of tab-separated values; a missing file is an empty table.

    Args:
        path: The file.
        kind: The class of the rows: Mutant or Outcome.

    """
    lines = path.read_text().splitlines()[1:] if path.is_file() else []
    readers: list[Callable[[str], Any]] = [int if field.type == "int" else str for field in fields(kind)]
    return [kind(*(read(cell) for read, cell in zip(readers, line.split("\t"), strict=True))) for line in lines]


def write_rows(path: Path, rows: Sequence[Mutant] | Sequence[Outcome]) -> None:
    """Write a table of mutants or outcomes into a file of tab-separated values, which appears complete or not at all.

    Args:
        path: The file.
        rows: The rows of the table, at least one.

    """
    table = [[field.name for field in fields(rows[0])], *(astuple(row) for row in rows)]
    partial_file = path.with_name(f".{path.name}.partial")
    partial_file.write_text("".join("\t".join(map(str, row)) + "\n" for row in table))
    partial_file.rename(path)


def main() -> int:
    """Run the program with the arguments of the command line.

    Returns:
        The exit status: 0; 1 if a mutant that was detected before survives now (`run --again`); 2 if a file is missing.

    """
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
