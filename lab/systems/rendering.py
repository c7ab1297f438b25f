"""Texts that are mostly the same for every variant, as templates beside who writes them: a line that begins with `%%` is a statement of Jinja's.

Apart from its callers, which lie in several packages, since all templates are read by one dialect.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def rendered(template: Path, **values: object) -> str:
    """Return a template with these values, its last line ended. A name in it that has no value is an error of ours."""
    return _templates(template.parent).get_template(template.name).render(values)


@cache
def _templates(folder: Path) -> Environment:
    found = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        line_statement_prefix="%%",
    )
    found.filters["quote"] = lambda value: shlex.quote(str(value))
    return found
