"""Renders every variant before tests do, each once for all processes: python -m lab.tests.support.renders."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor

from lab.base.errors import LabError
from lab.model.variants.variants import covering_names, load_variant


def rendered(name: str) -> None:
    try:
        load_variant(name)
    except LabError:
        return  # the tests say so


if __name__ == "__main__":
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(rendered, covering_names()))
