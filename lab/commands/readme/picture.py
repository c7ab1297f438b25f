"""README's picture: the table that `just bench keepalive` ended with, as an SVG that needs nothing from the network."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from lab.analysis.summary import summarise_run
from lab.records.store import RunStore
from lab.report.tables.run import page
from lab.report.terminal import show

REFERENCE = Path(__file__).parents[3] / "data" / "reference"
PICTURE = REFERENCE / "table.svg"
PICTURED = "quick-keepalive"
"""The reference run that it shows."""
COLUMNS = 136
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px;
        line-height: {line_height}px;
        font-variant-east-asian: full-width;
    }}
    .{unique_id}-title {{
        font-size: 18px;
        font-weight: bold;
        font-family: arial;
    }}
    {styles}
    </style>
    <defs>
    <clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
    {lines}
    </defs>
    {chrome}
    <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""
"""As `Console.export_svg` fills it in; no font is fetched."""


def picture() -> str:
    run = RunStore.open(str(REFERENCE / PICTURED))
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    show(console, page(summarise_run(run.record, run.samples(), run.histogram)))
    return console.export_svg(title="just bench keepalive", code_format=TEMPLATE)


def stale() -> bool:
    return not PICTURE.is_file() or PICTURE.read_text() != picture()
