r"""HTML of templates, and of Markdown, which can hold no script: raw HTML in it is shown, not obeyed.

    "# Why?\n\n| a |\n| - |\n| 1 |"  →  '<h2>Why?</h2>\n<div class="scroll" …><table>…'

Headings stand one level below the page's own; tables scroll by themselves where a screen is narrow. A module of its own, because a run's page
and the report of all have nothing else in common.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

TEMPLATES = Path(__file__).parent / "templates"
GAP = re.compile(r"^\*(?=no run: |nothing to )(.*)\*$", re.MULTILINE)
"""What stands in the place of a table, or of some of its rows, where there is nothing (`lab.studies.exhibits`)."""
TABLE = '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


def rendered(name: str, folder: Path = TEMPLATES, /, **values: object) -> str:
    """Fill the template of that name in a folder; it may include those of this package. A name that it does not know is an error of ours."""
    templates = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(name).render(values)


def kind_of(word: str) -> str:
    """Return a decision as a class of CSS."""
    return word.replace(" ", "-").replace("/", "")


def html(text: str, runs: Collection[str] = (), below: int = 1) -> str:
    """`runs`: ids that link to their own place in the report. `below`: by how many levels headings sink."""
    tokens = _PARSER.parse(GAP.sub(r"> \1", text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + below)}"
    found = _PARSER.renderer.render(tokens, _PARSER.options, {})
    found = found.replace("<th></th>", "<td></td>").replace("<table>", TABLE).replace("</table>", "</table></div>")
    for run in runs:
        found = found.replace(f"<code>{run}</code>", f'<a href="#run/{run}"><code>{run}</code></a>')
    return found


def gaps(text: str) -> tuple[str, ...]:
    """Of tables, or rows of them, that have nothing to show: why."""
    return tuple(GAP.findall(text))
