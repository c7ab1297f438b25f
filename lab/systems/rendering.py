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
    """Render a template with these values; the text ends with a line feed.

    A name in the template that has no value raises an exception of Jinja: it is an error in the lab's code.
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
