"""Figures: a frame in, a plotly Figure out. Nothing is saved, read or judged here; seconds and bytes become readable units.

Every figure has a title, axes with units and hover texts, and is legible on white and on black: text and grid are a middle
grey, the paper is left transparent.
"""

from __future__ import annotations

from lab.report.figures.beside import beside
from lab.report.figures.events import delays, probing, transfers
from lab.report.figures.generations import generations
from lab.report.figures.intervals import intervals
from lab.report.figures.ladder import ladder
from lab.report.figures.percentiles import percentiles
from lab.report.figures.processes import processes
from lab.report.figures.scaling import scaling
from lab.report.figures.timeline import timeline

__all__ = [
    "beside",
    "delays",
    "generations",
    "intervals",
    "ladder",
    "percentiles",
    "probing",
    "processes",
    "scaling",
    "timeline",
    "transfers",
]
