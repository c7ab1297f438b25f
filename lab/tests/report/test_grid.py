"""The parts of a page and their renderings: on a terminal and in Markdown, by small tables whose lines are written out here, and a run's own page in HTML."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from lab.base.errors import UsageError
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Panels,
    Sentences,
    TableCell,
    TableColumn,
    TableRow,
    make_advice,
    make_columns,
    make_row,
    make_sentence,
    make_title,
)
from lab.report.html.run import FILE, make_figure, write_page
from lab.report.markdown import render_markdown
from lab.report.result import RunResult
from lab.report.terminal import print_parts, render_terminal
from lab.tests.support.made_runs import MadeStore, made

NAMES = make_columns(("variant", "rate", "p99", "effect"), (0, 3), ("", "req/s", "ms", ""))
CEILING = Heading("ceiling", "64 connections")
RATE = Heading("rate", "100 req/s")


def _lines(*parts: Grid | Sentences | Notes, limit: int | None = None) -> list[str]:
    return [line.plain for line in render_terminal(parts, limit)]


def test_a_line_break_of_the_text_begins_a_line_of_its_own() -> None:
    """A command on such a line stays whole, whatever stands before it."""
    command = f"  just bench {'x' * 60}"
    sentence = make_sentence(f"{'word ' * 30}end:\n{command}", "")
    printed = io.StringIO()
    print_parts(Console(file=printed, width=80), [sentence], 80)
    assert command in printed.getvalue().splitlines()


def _rows() -> tuple[TableRow, ...]:
    return (
        make_row("baseline", "64,773", "2.31", "", under=[CEILING]),
        make_row("keepalive", "9", TableCell("12.5", tail="↑", notes=("slow",)), "−2.4 %", under=[CEILING]),
        make_row("keepalive", "9", TableCell("3", notes=("few", "slow")), "", under=[RATE]),
    )


def test_a_terminal_folds_into_two_lines_only_where_no_gap_lets_it_fit() -> None:
    grid = Grid(NAMES, _rows()[1:2], Fold((0, 3), (1, 2)), gaps=(2, 1))
    wide = _lines(grid)
    assert len(wide) == 5
    assert _lines(grid, limit=len(wide[-1])) == wide
    assert _lines(grid, limit=len(wide[-1]) - 1)[-1] == "keepalive     9 12.5↑¹ −2.4 %"
    folded = [
        "variant    effect",
        "   rate     p99",
        "  req/s      ms",
        "",
        "ceiling  64 connections",
        "keepalive  −2.4 %",
    ]
    assert _lines(grid, limit=len(wide[-1]) - 4) == [*folded, "      9  12.5↑¹"]
    assert _lines(grid, limit=5)[-1] == "     9 12.5↑¹"  # narrower than it gets: the narrowest all the same

    def shown(console: Console, width: int | None = None) -> str:
        print_parts(console, [Grid(NAMES, _rows()[:1], Fold((0, 3), (1, 2)))], width)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    narrow = Console(file=io.StringIO(), width=20, force_terminal=True, color_system=None)
    log = Console(file=io.StringIO(), width=20)
    assert len(shown(narrow).splitlines()) == 8  # its heading is broken at a word
    assert len(shown(log).splitlines()) == 5
    assert len(shown(Console(file=io.StringIO(), width=200), 20).splitlines()) == 8


def test_panels_repeat_the_first_and_leave_out_what_says_nothing() -> None:
    arms = tuple(TableColumn(name, stands="split", gap=3) for name in ("base", "one", "two"))
    grid = Grid(
        (TableColumn("", stands="left"), *arms),
        (make_row("all", "1", "2", "3"), make_row("late", "", "", "9")),
        Panels(1),
    )
    assert _lines(grid, limit=20) == [
        "      base   one",
        "all   1      2",
        "",
        "       base   two",
        "all    1      3",
        "late          9",
    ]
    assert len(_lines(grid, limit=100)) == 3
    assert len(_lines(grid, limit=1)) == 6  # one beside the first, at least


def test_free_rows_end_the_table_in_markdown_and_cells_there_are_text_not_markup() -> None:
    lost = Heading("not measurable here")
    free = make_row("long-name-of-a-variant", TableCell("not measurable: x", "yellow"), under=[lost], free=True)
    grid = Grid(NAMES, (*_rows()[:1], free, make_row("b", "not measurable: y", under=[lost], free=True)))
    assert _lines(grid)[-4:] == [
        "",
        "not measurable here",
        "long-name-of-a-variant  not measurable: x",
        "b                       not measurable: y",
    ]
    assert _lines(grid)[4] == "baseline  64,773  2.31"
    assert render_markdown([grid]).splitlines()[-2:] == [
        "| long-name-of-a-variant | not measurable: x | | |",
        "| b | not measurable: y | | |",
    ]
    grid = Grid(make_columns(("n",)), (make_row("a|b*"), make_row(TableCell("~ [1]", strong=True))))
    assert render_markdown([grid]).splitlines()[2:] == [r"| a\|b\* |", "| **~ [1]** |"]
    wide = Grid(make_columns(("m", "floor")), (make_row(TableCell("5", notes=("why",)), "1 %"),))
    grid = Grid(make_columns(("m",)), (make_row(TableCell("5", notes=("why",))),), wide=wide)
    assert _lines(grid, Notes()) == [" m", "5¹", "¹ why"]
    assert render_markdown([grid, Notes()]).splitlines() == [
        "| m | floor |",
        "| --: | --: |",
        "| 5¹ | 1 % |",
        "",
        "- ¹ why",
    ]


def test_what_columns_have_in_common_stands_over_the_first_of_them() -> None:
    grid = Grid(
        (TableColumn("", stands="left"), TableColumn("here", over="1 core"), TableColumn("there")),
        (make_row("p50", "1", "2"),),
    )
    assert _lines(grid) == ["     1 core", "       here  there", "p50       1      2"]
    assert render_markdown([grid]).splitlines()[0] == "|  | 1 core here | there |"
    parts = [
        make_title("knee", "local"),
        make_sentence("it is so", blank=True),
        make_advice("apply it", "a:\n  b: 1\n", bold=True),
    ]
    assert _lines(*parts) == ["knee  local", "", "it is so", "apply it", "  a:", "    b: 1"]
    assert render_markdown(parts) == "**knee**: local\n\nit is so\n\napply it\n\n```\na:\n  b: 1\n```\n"
    assert render_markdown([]) == ""


def test_notes_count_from_one_after_each_notes_part() -> None:
    one, two = (Grid(make_columns(("n",)), (make_row(TableCell("5", notes=(text,))),)) for text in ("first", "second"))
    notes = Notes((Text("before"),), (Text("after"),), blank=True)
    assert _lines(one, two, notes, one, Notes()) == [
        *(" n", "5¹", " n", "5²", "", "before", "¹ first", "² second", "after"),
        *(" n", "5¹", "¹ first"),
    ]
    assert render_markdown([two, notes]).splitlines()[3:] == ["", "- before", "- ¹ second", "- after"]
    few, many = (
        Notes(tuple(Text(f"note {number}") for number in range(count)), elsewhere="just table R --notes")
        for count in (5, 6)
    )
    assert len(_lines(few)) == 5
    assert _lines(many) == ["6 notes: just table R --notes"]
    assert render_markdown([many]).count("- note") == 6


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> MadeStore:
    found = made("mine")
    monkeypatch.setattr(MadeStore, "roundtrip", lambda self: None)
    return found


def test_it_says_what_the_terminal_says_and_what_is_larger_stands_farther_to_the_right(
    run: MadeStore, tmp_path: Path
) -> None:
    """Every effect as an interval with the same words, on one axis with no change in its middle and marks that do not meet."""
    result = RunResult(run)
    text = write_page(result, tmp_path / "new" / "folder").read_text()
    (summary,) = result.shown_summaries
    figure = make_figure([summary])
    assert figure is not None and len(figure.lines) >= 2
    for line in figure.lines:
        assert line.text in text and line.low <= line.at <= line.high
        assert line.low >= 0 and line.high <= 100
    assert "just bench" in text and run.record.id in text and run.record.facts["kernel"] in text
    assert not re.search(r"<script|https?://|@import", text), "it asks nobody for anything"
    assert figure.margin[0] < 50 < figure.margin[1]
    places = sorted(place for place, _ in figure.ticks)
    assert 50 in places and all(after - before >= 11 for before, after in pairwise(places))
    signs = [(line.at > 50, "−" not in line.text.partition("%")[0]) for line in figure.lines if line.at != 50]
    assert all(right is more for right, more in signs)


def test_what_cannot_be_written_is_refused_and_leaves_the_old_one(run: MadeStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="--output: .* cannot be written"):
        write_page(RunResult(run), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / FILE).write_text("old")
    assert write_page(RunResult(run), tmp_path).read_text() != "old"
