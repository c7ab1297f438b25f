"""The generated parts of README.md, between `<!-- generated: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from lab import catalog
from lab.errors import UsageError
from lab.samples import Reason

PART = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def parts() -> Mapping[str, Callable[[], str]]:
    return {"variants": catalog.readme_table, "reasons": _reasons}


def _reasons() -> str:
    return ", ".join(f"`{reason}`" for reason in Reason) + "\n"


def rendered(text: str) -> str:
    """The text with every generated part made anew; UsageError for a part nobody makes."""

    def fill(match: re.Match[str]) -> str:
        if match["name"] not in parts():
            raise UsageError(
                "README.md",
                f"unknown generated part '{match['name']}'",
                f"known: {', '.join(parts())}",
            )
        return match[1] + parts()[match["name"]]().rstrip("\n") + "\n" + match[3]

    return PART.sub(fill, text)


def stale(path: Path) -> list[str]:
    """Names of parts that differ from what would be generated, or are not in the file."""
    text = path.read_text()
    fresh = rendered(text)
    present = {match["name"]: match[0] for match in PART.finditer(text)}
    now = {match["name"]: match[0] for match in PART.finditer(fresh)}
    return [name for name in parts() if present.get(name) is None or present[name] != now[name]]


def write(path: Path) -> None:
    path.write_text(rendered(path.read_text()))
