"""Texts that are mostly the same for every variant, as templates in `templates/`: a line that begins with `%%` is a statement of Jinja's."""

from __future__ import annotations

import shlex
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    autoescape=False,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
    line_statement_prefix="%%",
)
_TEMPLATES.filters["quote"] = lambda value: shlex.quote(str(value))


def rendered(name: str, **values: object) -> str:
    """The template of that name with these values, its last line ended. A name that it does not know is an error of ours."""
    return _TEMPLATES.get_template(name).render(values)
