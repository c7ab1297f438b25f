r"""The rendering of HTML from templates and from Markdown, where raw HTML is shown as text and cannot run a script.

    "# Why?\n\n| a |\n| - |\n| 1 |"  →  '<h2>Why?</h2>\n<div class="scroll" …><table>…'

Headings of the Markdown are one level lower in the HTML. Each table scrolls separately on a narrow screen. Both the page of a run
and the report of all runs use this module.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt

TEMPLATES = Path(__file__).parent / "templates"
GAP = re.compile(r"^\*(?=no run: |nothing to )(.*)\*$", re.MULTILINE)
"""A line of Markdown with the reason why a table, or some of its rows, has no data: `*no run: …*` (`lab.studies.exhibits`)."""
TABLE = '<div class="scroll" tabindex="0" role="group" aria-label="table"><table>'
_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table")


def fill_template(name: str, folder: Path = TEMPLATES, /, **values: object) -> str:
    """Fill a Jinja template with values, and return the text. Values are escaped for HTML.

    Args:
        name: The name of the template.
        folder: The folder of the template, which may include templates of this package, too.
        **values: The values by name. The template raises an error for a name that is missing here.

    """
    templates = Environment(
        loader=FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(name).render(values)


def css_class_of(decision: str) -> str:
    """Return a decision as a CSS class name: spaces become hyphens, and slashes are removed."""
    return decision.replace(" ", "-").replace("/", "")


def render_html(text: str, runs: Collection[str] = (), below: int = 1) -> str:
    """Convert Markdown to HTML.

    Args:
        text: The Markdown.
        runs: The ids of runs. Where the text has one of them as code, it becomes a link to the run's place in the report.
        below: The number of levels by which headings are lowered: 1 makes a heading of the first level one of the second.

    """
    tokens = _PARSER.parse(GAP.sub(r"> \1", text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + below)}"
    page = _PARSER.renderer.render(tokens, _PARSER.options, {})
    page = page.replace("<th></th>", "<td></td>").replace("<table>", TABLE).replace("</table>", "</table></div>")
    for run in runs:
        page = page.replace(f"<code>{run}</code>", f'<a href="#run/{run}"><code>{run}</code></a>')
    return page


def find_gaps(text: str) -> tuple[str, ...]:
    """Return the reasons for missing data that a Markdown text states.

    These are its lines in italics that begin with `no run: ` or `nothing to `, without the asterisks.
    """
    return tuple(GAP.findall(text))
