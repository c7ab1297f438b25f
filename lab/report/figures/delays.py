"""How long each change took to show in an answer, over the time at which it was made."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import axis, colours, drawn


def delays(changes: Mapping[str, pl.DataFrame], title: str) -> go.Figure:
    """Arm → its changes in one sample: columns `t_s` (when it was accepted), `delay_s` (null: no answer showed it).

    What no answer showed before the load ended stands on the upper edge.
    """
    present = {name: frame for name, frame in changes.items() if not frame.is_empty()}
    tops = [float(top) for frame in present.values() if isinstance(top := frame["delay_s"].max(), float)]
    traces = [
        _dots(some, name, colour, shown, 1.15 * max(tops, default=1.0))
        for name, colour in colours(list(present)).items()
        for shown in (True, False)
        if not (some := present[name].filter(pl.col("delay_s").is_not_null() == shown)).is_empty()
    ]
    return drawn(
        traces,
        title,
        400,
        "a dot per change: from its acceptance to the first answer that shows it or a later one",
        axis("change made, since the load began", "s"),
        axis("until an answer shows it", "s", rangemode="tozero"),
    )


def _dots(changes: pl.DataFrame, arm: str, colour: str, shown: bool, edge_s: float) -> go.Scatter:
    return go.Scatter(
        x=changes["t_s"].to_list(),
        y=changes["delay_s"].fill_null(edge_s).to_list(),
        mode="markers",
        marker={"color": colour, "size": 6, "symbol": "circle" if shown else "x-thin-open"},
        name=arm if shown else f"{arm}: never seen",
        hovertemplate=f"made at %{{x:.2f}} s<br>{'first seen after %{y:.3f} s' if shown else 'never seen'}"
        f"<extra>{arm}</extra>",
    )
