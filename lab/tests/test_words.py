"""The project's words: docstrings that are sentences, names that are nouns, no private dialect, class names used once."""

from __future__ import annotations

import ast
import collections
import re
import statistics
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAGMENT_STARTS = frozenset(
    """of what whether as those by in on for from with to where how why which who whose until because none each both all
    one only here there if and or not nothing empty that this these its their at than up between behind beside beyond
    after before like so such more less most least else other others another any some no""".split()  # noqa: SIM905
)
"""Words with which a docstring continues the name of its function instead of saying what the function does."""
VAGUE_NAMES = frozenset(
    """found told said each one own known wanted asked shown led there here what why whose other others mine theirs both
    thing things seen made kept rest beside below above more most whole word words bearing named meant sought due ahead at
    of about then thus else where who everybody somebody anybody nobody nothing""".split()  # noqa: SIM905
)
"""Participles, pronouns and adverbs: they say how a value came about, not what it is."""
DIALECT = re.compile(
    r"\b(told|tells?|bears?|borne|beside|by itself|by turns|drawn by lot|in the place of|worth knowing|is off by|of its own"
    r"|gone on with|on their own|is asked (?:for|of)|says so|and says|nobody can tell|cannot be told|whoever)\b",
    re.IGNORECASE,
)


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listed.stdout.splitlines() if "tests" not in Path(line).parts]
    return [path for path in paths if path.exists()]


@cache
def modules() -> dict[Path, ast.Module]:
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in tracked("*.py")}


def definitions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, str]]:
    """Yield place, definition and docstring of every function and class that has one."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                docstring = ast.get_docstring(node)
                if docstring:
                    yield f"{path}:{node.lineno} {node.name}", node, docstring


def bound_names() -> Iterator[tuple[str, str]]:
    """Yield place and name of every local variable and parameter."""
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield f"{path}:{node.lineno}", node.id
            elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
                yield f"{path}:{node.lineno}", node.arg


def sentences(markdown: str) -> list[str]:
    """Return the sentences of a page's prose: no code, tables, generated parts or headings."""
    text = re.sub(r"<!-- generated:.*?<!-- end -->|```.*?```", "", markdown, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not re.match(r"\s*(\||#|<!--|!\[)", line)]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines))
    prose = [re.sub(r"\s+", " ", re.sub(r"\]\([^)]*\)", "]", part)).strip() for part in paragraphs]
    parts = [sentence for part in prose for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[])", part)]
    return [sentence for sentence in parts if len(sentence.split()) > 3]


@cache
def prose() -> list[tuple[Path, str]]:
    return [(path.relative_to(ROOT), sentence) for path in tracked("*.md") for sentence in sentences(path.read_text())]


def assert_few(places: list[str], total: int, most: float) -> None:
    """Assert that at most a share of all are such places; the message lists them."""
    assert len(places) <= most * total, f"{len(places)} of {total}, at most {most:.1%} may be:\n" + "\n".join(places)


def test_docstrings_of_functions_are_no_fragments() -> None:
    functions = [(place, text) for place, node, text in definitions() if not isinstance(node, ast.ClassDef)]
    begins = [(place, re.sub(r"[^a-z']", "", text.split()[0].lower()), text) for place, text in functions]
    fragments = [f"{place}: {text.splitlines()[0]}" for place, first, text in begins if first in FRAGMENT_STARTS]
    assert_few(fragments, len(functions), 0.05)


def test_local_names_are_nouns() -> None:
    names = list(bound_names())
    vague = [f"{place} {name}" for place, name in names if name.lstrip("_") in VAGUE_NAMES]
    assert_few(vague, len(names), 0.015)


def test_docstrings_are_free_of_dialect() -> None:
    texts = [(place, text) for place, _, text in definitions()]
    texts += [(str(path), ast.get_docstring(tree) or "") for path, tree in modules().items()]
    hits = [f"{place}: {match}" for place, text in texts for match in DIALECT.findall(text)]
    assert_few(hits, sum(len(text.split()) for _, text in texts), 0.0005)


def test_pages_are_free_of_dialect() -> None:
    hits = [f"{path}: {match} in: {sentence}" for path, sentence in prose() for match in DIALECT.findall(sentence)]
    assert_few(hits, sum(len(sentence.split()) for _, sentence in prose()), 0.0005)


def test_sentences_of_pages_are_short() -> None:
    lengths = sorted((len(sentence.split()), f"{path}: {sentence}") for path, sentence in prose())
    counts = [count for count, _ in lengths]
    longest = "\n".join(text for _, text in lengths[-60:])
    assert statistics.median(counts) <= 18, longest
    assert counts[int(0.9 * (len(counts) - 1))] <= 32, longest


def test_class_names_are_used_once_and_function_names_few_times() -> None:
    classes = collections.Counter(
        node.name for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    functions = collections.Counter(
        node.name
        for tree in modules().values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert len(twice := sorted(name for name, count in classes.items() if count > 1)) <= 10, twice
    assert len(often := sorted(name for name, count in functions.items() if count >= 5)) <= 25, often
