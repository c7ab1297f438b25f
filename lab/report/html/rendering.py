"""The templates of the report's pages, and the one way in which they are filled."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def rendered(name: str, **values: object) -> str:
    """The template of that name with these values; a name that it does not know is an error of ours."""
    return _TEMPLATES.get_template(name).render(values)
