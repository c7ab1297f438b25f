"""The outline of a verb: read off the code, in the order in which it calls."""

from __future__ import annotations

import ast
from itertools import pairwise

import pytest

from lab.base.errors import UsageError
from lab.commands.readme import calls, code, imports

INTO = ("commands", "experiments", "measure")


@pytest.mark.slow
def test_a_bench_goes_down_to_where_a_sample_is_made() -> None:
    """Through an imported function, a constructor, `self`, a protocol that is handed in, a base's method, and a helper without a docstring."""
    names = [step.name for step in calls.outline("commands.bench._bench_here", INTO)]
    wanted = [
        "experiments.bench.prepare",
        "measure.loop.Loop.measure",
        "measure.canary.canary",
        "measure.validity.faults",
        "records.store.RunStore.write_sample",
        "commands.measuring.print_result",
    ]
    assert [name for name in names if name in wanted] == wanted
    assert len(names) == len(set(names)), "each once"
    assert not any(name.startswith(("base.", "stats.")) for name in names), "the bottom is left out"


@pytest.mark.slow
def test_packages_that_it_does_not_go_into_are_only_named() -> None:
    steps = calls.outline("commands.bench._bench_here", INTO)
    for step, following in pairwise(steps):
        if step.name.split(".")[0] not in INTO:
            assert following.depth <= step.depth, f"{step.name} calls {following.name}"


@pytest.mark.slow
def test_an_unknown_start_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        UsageError, match=r"no function lab\.commands\.bench\._bnch\n.*lab\.commands\.bench\._bench_here"
    ):
        calls.outline("commands.bench._bnch", INTO)


def test_a_docstrings_first_sentence_is_taken() -> None:
    for text, sentence in [
        ("One. Two.", "One."),
        ("One, over\n    lines. Two.", "One, over lines."),
        ("`a.b`: one", "`a.b`: one"),
    ]:
        assert imports.first_sentence(ast.parse(f'"""{text}"""')) == sentence
    assert imports.first_sentence(ast.parse("x = 1")) == ""


def test_imports_of_a_package_are_seen_wherever_they_stand() -> None:
    """On top, deferred, for the type checker."""
    node = ast.parse("import lab.a\nif TYPE_CHECKING:\n    from lab.b import c\ndef f():\n    from lab.d.e import g\n")
    assert {"lab.a", "lab.b", "lab.b.c", "lab.d.e", "lab.d.e.g"} == set(imports.named_modules(node))


@pytest.mark.slow
def test_every_package_has_its_floor() -> None:
    assert set(imports.floors()) == set(imports.packages())
    picture = code.floors_picture()
    assert all(f"  {name} " in picture for name in imports.packages())


def test_a_folder_says_what_it_may_import_and_what_is_in_it() -> None:
    text = code.folder(imports.LAB / "stats")
    assert text.startswith("Floor 1: `stats` imports nothing of ours")
    assert "| [`histogram.py`](lab/stats/histogram.py) | " in text
    assert code.folder(imports.LAB / "model").startswith("Floor 2: `model` may import `base`, `stats` ")
