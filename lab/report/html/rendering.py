"""The templates of the report's pages, and the one way in which they are filled."""

from __future__ import annotations

import base64
import gzip
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


def packed(text: str) -> str:
    """What `report.js` unpacks: gzip in base64, the same characters from the same text."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
