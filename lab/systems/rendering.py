"""The renderer of the configuration templates, which lie next to the modules that use them.

In a template, a line that begins with `%%` is a Jinja statement. The texts are mostly the same for every variant. This module
is separate from its callers, which lie in several packages, so that all templates use one dialect of Jinja.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_template(template: Path, **values: object) -> str:
    """Render a Jinja template with these values, and return the text.

    Args:
        template: the template's file.
        **values: the values of the names in the template. A name without a value is an error in the lab's code, and Jinja raises
            an exception.

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
