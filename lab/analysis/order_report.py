"""The order tests of all committed runs, adjusted together: whether a metric depends on what was measured before."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.analysis.aggregate.cells import build_cells
from lab.analysis.aggregate.order import OrderTest, adjust_p_values, find_missing_by_order, run_order_tests
from lab.analysis.judge.decision import ALPHA
from lab.base.errors import LabError
from lab.base.files import reference_folder
from lab.base.validation import Record
from lab.records.store import RunStore, run_names


class RunOrder(Record):
    """The order tests of one committed run: whether its metrics depend on what was measured before a sample."""

    run: str
    samples: int = Field(description="valid samples of steady loads")
    tests: int = Field(description="0: no arm has two labels with two blocks each")
    smallest_p: float | None = Field(default=None, description="before any adjustment; null = there was no test")
    missing: tuple[str, ...] = Field(
        default=(), description="points whose invalid samples depend on what was measured before, with the shares"
    )
    fault: str = Field(default="", description="why the run could not be read; empty = it could")


class OrderReport(Record):
    """The output of `selfbench order --json`: the order tests of all committed runs, adjusted together."""

    schema_version: Literal[1] = 1
    runs: tuple[RunOrder, ...]
    tests: int
    below_5_percent: int = Field(description="tests with p < 0.05 before adjustment; by chance a twentieth")
    smallest_holm_p: float | None
    dependent: tuple[str, ...] = Field(description="what depends on the order at a Holm-adjusted p of at most 0.05")


def report_order_tests() -> OrderReport:
    """Test all committed runs for order effects: whether metrics depend on what was measured before a sample.

    Invalid samples are left out, as in every table. These include samples that were not steady, and samples that began
    while an earlier load's connections or work were left. A run that cannot be read has its error in `fault`.
    """
    runs: list[RunOrder] = []
    all_tests: list[tuple[str, OrderTest]] = []
    folder = reference_folder()
    for name in run_names(folder):
        try:
            store = RunStore.open(str(folder / name))
            samples = store.samples()
            tests = run_order_tests(build_cells(store.record.plan(), samples, store.histogram, False), samples)
        except LabError as error:
            runs.append(RunOrder(run=name, samples=0, tests=0, fault=str(error)))
            continue
        steady = sum(sample.valid and not sample.point.has_outcome for sample in samples)
        missing = tuple(f"{point.point}: {point.text}" for point in find_missing_by_order(samples).values())
        smallest = tests[0].p_value if tests else None
        runs.append(RunOrder(run=name, samples=steady, tests=len(tests), smallest_p=smallest, missing=missing))
        all_tests += [(name, test) for test in tests]
    all_tests.sort(key=lambda item: item[1].p_value)
    adjusted = adjust_p_values([test for _, test in all_tests])
    return OrderReport(
        runs=tuple(runs),
        tests=len(all_tests),
        below_5_percent=sum(test.p_value < ALPHA for test in adjusted),
        smallest_holm_p=adjusted[0].holm_p if adjusted else None,
        dependent=tuple(
            f"{name}: {test.text}" for (name, _), test in zip(all_tests, adjusted, strict=True) if test.holm_p <= ALPHA
        ),
    )
