"""How long each change took to show in an answer, over the time at which it was made."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import polars as pl

from lab.report.figures.style import axis_title, colours, dressed, gap


def delays(changes: Mapping[str, pl.DataFrame], title: str) -> go.Figure:
    """Arm → its changes in one sample: columns `t_s` (when it was accepted), `delay_s` (null: no answer showed it).

    What no answer showed before the load ended stands on the upper edge.
    """
    present = {name: frame for name, frame in changes.items() if not frame.is_empty()}
    if not present:
        return gap(title, "nothing of this was recorded")
    tops = [float(top) for frame in present.values() if isinstance(top := frame["delay_s"].max(), float)]
    top = 1.15 * max(tops, default=1.0)
    figure = go.Figure()
    for name, colour in colours(list(present)).items():
        frame = present[name]
        for shown in (True, False):
            some = frame.filter(pl.col("delay_s").is_not_null() == shown)
            if some.is_empty():
                continue
            figure.add_trace(
                go.Scatter(
                    x=some["t_s"].to_list(),
                    y=some["delay_s"].fill_null(top).to_list(),
                    mode="markers",
                    marker={"color": colour, "size": 6, "symbol": "circle" if shown else "x-thin-open"},
                    name=name if shown else f"{name}: never seen",
                    hovertemplate=f"made at %{{x:.2f}} s<br>{'first seen after %{y:.3f} s' if shown else 'never seen'}"
                    f"<extra>{name}</extra>",
                )
            )
    dressed(
        figure, title, 400, "a dot per change: from its acceptance to the first answer that shows it or a later one"
    )
    figure.update_xaxes(title=axis_title("change made, since the load began", "s"))
    figure.update_yaxes(title=axis_title("until an answer shows it", "s"), rangemode="tozero")
    return figure
