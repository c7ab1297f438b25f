"""Figures: a frame in, a plotly Figure out. Nothing is saved, read or judged here; seconds and bytes become readable units.

Every figure has a title, axes with units and hover texts, and is legible on white and on black: text and grid are a middle
grey, the paper is left transparent.
"""

from __future__ import annotations

from lab.figures.beside import beside
from lab.figures.buckets import buckets
from lab.figures.delays import delays
from lab.figures.intervals import intervals
from lab.figures.law import law
from lab.figures.percentiles import percentiles
from lab.figures.probing import probing
from lab.figures.processes import processes
from lab.figures.scaling import scaling
from lab.figures.timeline import timeline
from lab.figures.transfers import transfers
from lab.figures.watched import watched

__all__ = [
    "beside",
    "buckets",
    "delays",
    "intervals",
    "law",
    "percentiles",
    "probing",
    "processes",
    "scaling",
    "timeline",
    "transfers",
    "watched",
]
