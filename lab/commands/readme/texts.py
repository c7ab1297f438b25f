"""The Markdown files of this checkout whose parts are generated, and the parts in them, made anew.

A part stands between `<!-- generated: NAME WORDS… -->` and `<!-- end -->`, in whichever file it is wanted: no list says which is where.
What makes it (`parts.makers`) is given the file and the words. Links in it are written as seen from the checkout's top.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lab.base.errors import refuse_unknown

ROOT = Path(__file__).parents[3]
PART = re.compile(
    r"(?P<head><!-- generated: (?P<name>[a-z-]+)(?P<words>[^\n]*?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
LINK = re.compile(r"(?P<text>\[(?:[^\[\]\n]|\[[^\]\n]*\])*\])\((?P<to>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")

Maker = Callable[[Path, Sequence[str]], str]
"""(the file that the part is of, the marker's words) → the part."""


def files(root: Path = ROOT) -> Iterator[Path]:
    """Yield every Markdown file of the checkout, without what was measured or fetched."""
    for pattern in ("*.md", "data/*.md", "data/levels/*.md", "data/published/*.md", "data/reference/*.md"):
        yield from sorted(root.glob(pattern))
    for folder in ("lab", "manifests", "notebooks", "scripts"):
        yield from sorted((root / folder).rglob("README.md"))


def rendered(path: Path, makers: Mapping[str, Maker]) -> str:
    """Return the file's text with every generated part made anew; UsageError for a part that nobody makes."""
    return PART.sub(lambda match: match["head"] + made(path, match, makers) + match["end"], path.read_text())


def made(path: Path, match: re.Match[str], makers: Mapping[str, Maker]) -> str:
    """Return one part, with its links as seen from the file, but for what is pasted (it begins with a fence)."""
    name = match["name"]
    refuse_unknown(name, makers, str(path), f"unknown generated part '{name}'")
    text = makers[name](path, shlex.split(match["words"])).rstrip("\n") + "\n"
    if text.startswith("```"):
        return text
    return LINK.sub(
        lambda link: f"{link['text']}({os.path.relpath(ROOT / link['to'], path.parent)}{link['anchor'] or ''})", text
    )


def stale(path: Path, makers: Mapping[str, Maker]) -> list[str]:
    """Return `NAME in FILE` for every part that differs from what would be generated."""
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [
        f"{match['name']} in {place}"
        for match in PART.finditer(path.read_text())
        if match[0] != match["head"] + made(path, match, makers) + match["end"]
    ]
