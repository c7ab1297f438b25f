"""Figures: functions that make a plotly figure from data that others have read and computed.

Seconds and bytes are scaled to readable units. Every figure has a title, axes with units, and hover texts. A figure is legible on
white and on black: text and grid are a middle grey, and the paper is transparent.
"""

from __future__ import annotations

from lab.report.figures.costs import generations, ladder
from lab.report.figures.events import delays, probing, processes, timeline, transfers
from lab.report.figures.intervals import compare_published, intervals, scaling
from lab.report.figures.percentiles import percentiles

__all__ = [
    "compare_published",
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
