"""`schema`, `readme`: what is generated from the lab's own files."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from lab.base.errors import UsageError
from lab.commands import Adder


def add(adder: Adder) -> None:
    schema = adder("schema", _schema, "print or write the JSON schemas of everything the lab reads and records")
    schema.add_argument("--write", action="store_true")
    readme = adder("readme", _readme, "check or write the generated parts of every README")
    readme.add_argument("--write", action="store_true")


def _schema(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands import schema

    if options.write:
        schema.write()
    else:
        print(json.dumps(schema.schemas(), indent=1))
    return 0


def _readme(options: argparse.Namespace, talk: Console) -> int:
    from lab.commands.readme import parts, texts
    from lab.report.html.picture import picture

    makers, drawn = parts.makers(), picture(parts.judged())
    if options.write:
        for path in texts.files():
            path.write_text(texts.rendered(path, makers))
        parts.PICTURE.write_text(drawn)
        return 0
    stale = [part for path in texts.files() for part in texts.stale(path, makers)]
    stale += [parts.PICTURE.name] if parts.PICTURE.read_text() != drawn else []
    if stale:
        raise UsageError(
            "README.md", f"generated parts are out of date: {', '.join(stale)}", "`just readme` writes them"
        )
    return 0
