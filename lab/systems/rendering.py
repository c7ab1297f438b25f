"""The renderer of the proxies' configuration templates, which use Jinja.

Each template is in the folder of the module that uses the template. A line of a template that begins with `%%` is a Jinja
statement. This module is separate from its callers so that all templates use one dialect of Jinja.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_template(template: Path, **values: object) -> str:
    """Render a Jinja template with the given values, and return the resulting text.

    Args:
        template: the template's file.
        **values: the values of the names in the template. Jinja raises an exception for a name without a value.

    """
    return _load_environment(template.parent).get_template(template.name).render(values)


@cache
def _load_environment(folder: Path) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        line_statement_prefix="%%",
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    return environment
