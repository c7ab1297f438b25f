"""The report: the same bytes from the same data, nothing from elsewhere, every gap counted, and a cell that raises named."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from plotly.offline import get_plotlyjs

from lab.base.errors import UsageError
from lab.report.html import rendering as markdown
from lab.studies.claims import read_claims
from lab.studies.site import notebooks, site
from lab.studies.site.notebooks import CellOutput, NotebookError, execute_all, execute_notebook
from lab.tests.support.committed import nds_story, run_of

pytestmark = pytest.mark.committed

SHELF = (
    "from lab.analysis import evidence\nfrom lab.studies.exhibits import exhibits\n\n"
    "shelf = evidence.shelf()\nkill = shelf.of('kill', variant='grace-period-30+host-port')"
)
TIMELINE = "exhibits.timeline(kill, 'The pod is <i>deleted</i>', 'grace-period-30+host-port', 'held')"
PLOTS = "exhibits.percentiles({name: shelf.of('digitalocean', variant=name) for name in ('ingress-nginx', 'backlog')}, 'Plots', 'original')"
DRAIN = "exhibits.intervals(shelf.of('drain', variant='proxy-replicas-2+pod-disruption-budget'), 'Drained', 'gap_s')"
VOID = {"meta", "link", "br", "hr", "img", "input", "option"}


def notebook(folder: Path, name: str, *sources: str) -> Path:
    cells: list[Any] = [new_markdown_cell("# Is it so?\n\nND-11 says that it is.", id=f"{name}-00")]
    cells += [new_code_cell(source, id=f"{name}-{number:02}") for number, source in enumerate(sources, 1)]
    path = folder / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


class Page(HTMLParser):
    """What a browser would see: ids, links, what is loaded, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        self.ids += [told["id"]] if "id" in told else []
        self.links += [told["href"]] if tag == "a" and "href" in told else []
        self.loaded += [told[name] for name in ("src", "href", "srcset", "data") if name in told and tag != "a"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def arranged(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, reference = place / "notebooks", place / "reference"
    folder.mkdir()
    reference.mkdir()
    monkeypatch.setattr(notebooks, "FOLDER", folder)
    monkeypatch.setenv("LAB_REFERENCE", str(reference))
    monkeypatch.setenv("LAB_RUNS", str(place / "own"))
    return folder


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return arranged(tmp_path, monkeypatch)


def part(books: Path, last: str) -> CellOutput:
    """What a cell shows whose last line this is."""
    told = "import plotly.graph_objects as go\nfrom IPython.display import Markdown\nfrom lab.report.figures.style import make_empty_figure"
    (found,) = execute_notebook(notebook(books, "okd", f"{told}\n{last}")).cells[1].parts
    return found


def test_a_figure_is_its_data_its_title_a_caption_and_without_a_trace_a_gap(books: Path) -> None:
    """Its JSON can end no script; what the title took above the plot is given back. A gap has its reason, and stands in a table's place, too."""
    layout = {
        "title": {"text": "Reloads<br><span>per 100 ms; 2 &lt; 3</span>"},
        "meta": {"runs": ["r-1"], "gaps": ["a: steal", "no run:<br>just bench b"]},
        "height": 400,
        "margin": {"t": 84, "l": 80},
    }
    told = part(books, f"go.Figure([go.Scatter(x=[1], y=[2], name='</script>')], {layout!r})")
    assert (told.kind, told.title, told.below, told.runs) == ("figure", "Reloads", "per 100 ms; 2 < 3", ("r-1",))
    assert "<" not in told.text and told.height == 364 and told.needs == ("a: steal", "no run: just bench b")
    shown = json.loads(told.text)["layout"]
    assert (shown["height"], shown["margin"]) == (364, {"t": 48, "l": 80}) and not shown.keys() & {"title", "meta"}
    found = part(books, "make_empty_figure('Reloads', 'no run:<br>just bench okd')")
    assert found == CellOutput("gap", "no run: just bench okd", "Reloads", needs=("no run: just bench okd",))
    needs = ("no run: nothing of it", "nothing to show: a at r1: 0 of 6 blocks: steal", "nothing to compare: x")
    table, (one, two, three) = "| a |\n| --- |\n\n", (f"*{need}*\n\n" for need in needs)
    found = part(books, f"Markdown({one + table + two + three!r})")
    assert (found.kind, found.needs, found.text.count("<blockquote>")) == ("prose", needs, 3)


def test_markdown_sinks_headings_links_runs_and_obeys_no_html() -> None:
    found = markdown.render_html("# T\n\n<script>x</script> `r-1` `r-2`\n\n| a |\n| --- |\n| b |\n", ["r-1"])
    assert "<h2>T</h2>" in found and "<script>" not in found
    assert '<a href="#run/r-1"><code>r-1</code></a> <code>r-2</code>' in found
    assert re.search(r'<div class="scroll"[^>]*><table>', found) and found.count("</table></div>") == 1


def test_a_cell_that_raises_is_named(books: Path) -> None:
    path = notebook(books, "okd", "1 + 1", "assert 1 == 2, 'it is\\nnot'", "3")
    said = r"notebooks/okd.ipynb: cell okd-02: AssertionError: it is not\n"
    for run in (lambda: execute_notebook(path), lambda: list(execute_all([path]))):
        with pytest.raises(NotebookError, match=said) as raised:
            run()
        assert raised.value.exit_status == 1


def test_a_cell_shows_what_it_printed_and_its_last_line_and_no_run_of_ones_own_is_seen(
    books: Path, tmp_path: Path
) -> None:
    """Text, claims by their ids; nothing for a line that is no expression, and names go on from cell to cell."""
    told = "from lab.studies.exhibits import exhibits\nname = 'x'"
    path = notebook(books, "okd", told, "print(name)\nname + 'y'", "exhibits.claims([], known=[])")
    _, texts, claimed = execute_notebook(path).cells
    assert texts.parts == (CellOutput("text", "x"), CellOutput("text", "xy")) and texts.source.startswith(told)
    assert claimed.parts == (CellOutput("claims", ""),)
    (tmp_path / "own" / "mine").mkdir(parents=True)
    (tmp_path / "own" / "mine" / "run.json").write_text("{}")
    (found,) = execute_all([notebook(books, "okd", "from lab.records.store import run_names\nrun_names()")])
    assert found.cells[1].parts == (CellOutput("text", "[]"),)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[site.Site, str]]:
    """Of a run, a damaged one and a small notebook; and the file's text without plotly.js."""
    place = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as monkeypatch:
        books, reference = arranged(place, monkeypatch), place / "reference"
        variants = [("grace-period-30+host-port", "ingress-nginx+grace-period-30")]
        run_of(reference, monkeypatch, "kill", variants, nds_story, 6, "r-kill", points=["held"])
        monkeypatch.setenv("LAB_RUNS", str(place / "own"))
        (reference / "broken").mkdir()
        (reference / "broken" / "run.json").write_text("{")
        claimed = "from lab.studies import ledger\nexhibits.claims(ledger.judge_claims('nds'), 'ND-12')"
        notebook(books, "nds", SHELF, TIMELINE, DRAIN, claimed, PLOTS)
        found = site.build_site(place / "out")
        text = found.path.read_text()
        (held,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', text)
        assert gzip.decompress(base64.b64decode(held, validate=True)).decode() == get_plotlyjs()
        yield found, text.replace(held, "")


@pytest.mark.long
def test_two_builds_are_the_same_byte_for_byte(built: tuple[site.Site, str], tmp_path: Path) -> None:
    again = site.build_site(tmp_path / "again")
    assert again.path.read_bytes() == built[0].path.read_bytes()


def test_it_loads_nothing_every_link_leads_somewhere_and_what_is_missing_is_counted(
    built: tuple[site.Site, str],
) -> None:
    page = Page(built[1])
    assert page.open == [] and page.loaded == ["data:,"]
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= set(page.ids)
    assert "default-src 'none'" in built[1] and not re.search(r"@import|url\(|fetch\(", built[1])
    found, text = built
    assert found.gaps == {"nds": 3, "methods": 1, "damaged runs": 1} and found.figures == 2
    needs = text.partition('id="gaps"')[2].partition("</ul>")[0]
    assert "5 figures, panels or rows have no data" in needs and "broken is damaged" in text
    assert "just bench proxy-replicas-2+pod-disruption-budget --sweep drain" in needs


def test_every_claim_is_a_row_with_its_run_and_cell_and_what_a_figure_rests_on_folds_out(
    built: tuple[site.Site, str],
) -> None:
    """Its run and its code, with what earlier cells made of it without showing anything."""
    text = built[1]
    assert all(f'id="claim/{claim.id}"' in text for claim in read_claims())
    own, told = (text.partition(f'id="claim/{name}"')[2].partition("</tr>")[0] for name in ("ND-11", "ND-12"))
    assert "reproduced" in own and 'href="#run/r-kill"' in own and 'href="#nds/nds-04"' in told
    assert re.search(r'role="img" aria-label="[^"]+ s \[', own)
    assert "ND-12" in text.partition('id="nds/nds-04"')[2].partition("</section>")[0]
    cell, alone = (built[1].partition(f'id="nds/nds-{at}"')[2].partition("</section>")[0] for at in ("02", "05"))
    rests = cell.partition("<details")[2]
    assert "<figcaption>The pod is deleted" in cell and 'href="#run/r-kill"' in rests
    assert "exhibits.timeline(kill, " in rests and "shelf = evidence.shelf()" in rests
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', cell)
    assert json.loads(data)["data"] and "what was published, alone" not in cell
    assert "<figcaption>Plots" in alone and "no run: what was published, alone" in alone


def test_nothing_is_written_when_a_cell_raises(books: Path, tmp_path: Path) -> None:
    notebook(books, "nds", "1 / 0")
    with pytest.raises(NotebookError, match="cell nds-01: ZeroDivisionError"):
        site.build_site(tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "file").touch()
    (tmp_path / "out" / "index.html").mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "out", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="--output: ") as raised:
            site.build_site(folder)
        assert "--resume" not in str(raised.value)
