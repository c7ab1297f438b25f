"""The READMEs of this checkout: one for each folder, nothing in them that is not there, and their generated parts as they would be generated now (`just maintain readme` writes them)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from lab.analysis import levels
from lab.analysis.judge.decision import ALPHA
from lab.base.errors import UsageError
from lab.commands import readme
from lab.commands.readme import Maker, starts
from lab.commands.verbs import OLD_SPELLINGS, parser
from lab.model.names import EQUIVALENCE_MARGIN
from lab.records.levels import SystemComponents
from lab.stats.histogram import LEAST_BEYOND
from lab.stats.paired import MIN_BLOCKS
from lab.studies.site.rows import draw_findings

ROOT = readme.ROOT
FILES = list(readme.markdown_files())
README = ROOT / "README.md"
LINK = re.compile(r"\]\(([^)\s]*)\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
IN_CODE = re.compile(r"`([^`\n]+)`")

MAKERS: dict[str, Maker] = {
    "words": lambda _path, words: f"{'+'.join(words)}\n",
    "linked": lambda *_: "[+1 % [0, 2], b](data/published/README.md#sources), [that](https://example.org/a)\n",
    "pasted": lambda _path, _words: "```text\n[no link](data)\n```\n",
}

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


@cache
def by_hand(path: Path) -> str:
    """The text without what is generated."""
    return readme.PART.sub("", path.read_text())


def links(path: Path) -> Iterator[str]:
    for to in LINK.findall(FENCED.sub("", path.read_text())):
        if "://" not in to:
            yield to


def anchors(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_file
def test_every_link_leads_somewhere(path: Path) -> None:
    for to in links(path):
        name, _, anchor = to.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), to
        assert not anchor or anchor in anchors(target), to


@each_file
def test_every_path_that_it_names_is_there(path: Path) -> None:
    for word in IN_CODE.findall(FENCED.sub("", by_hand(path))):
        path_like = re.fullmatch(r"(lab|manifests|notebooks|scripts|data)/[\w./-]*", word)
        label = re.fullmatch(r"lab/[a-z-]+", word)  # of a manifest: `lab/role`
        made = word.startswith(("data/runs", "data/long", "manifests/components/server-tokens-on"))
        assert not path_like or label or made or (ROOT / word).exists(), word


def test_every_one_is_reached_from_the_first() -> None:
    found, waiting = {README}, [README]
    while waiting:
        path = waiting.pop()
        for to in links(path):
            target = (path.parent / to.partition("#")[0]).resolve()
            target = target / "README.md" if target.is_dir() else target
            if target.suffix == ".md" and target.exists() and target not in found:
                found.add(target)
                waiting.append(target)
    assert [str(path.relative_to(ROOT)) for path in FILES if path not in found] == []


def test_every_package_has_one_which_says_what_is_in_it_and_how_to_add_one_more() -> None:
    folders = {path.parent for path in readme.LAB.rglob("__init__.py")} - {readme.LAB}
    folders -= {
        folder for folder in folders if folder.parent == readme.LAB / "systems"
    }  # each is one more of what that one describes
    for folder in sorted(folders):
        path = folder / "README.md"
        assert path.exists(), path
        assert "<!-- generated: folder -->" in path.read_text(), path
        assert re.search(r"\*\*(One|A) more\b", path.read_text(), re.IGNORECASE), path


def test_every_part_that_is_made_has_its_place() -> None:
    assert {match["name"] for path in FILES for match in readme.PART.finditer(path.read_text())} == set(
        readme.part_makers()
    )


def test_the_picture_of_the_code_has_every_package_on_its_floor() -> None:
    picture = next(
        block for block in FENCED.findall((readme.LAB / "README.md").read_text()) if block.startswith("```text")
    )
    floors = readme.floors()
    lines = [[word for word in line.split() if word in floors] for line in picture.splitlines()[1:-1]]
    assert sorted(name for line in lines for name in line) == sorted(floors)
    for line, below in pairwise(lines):
        assert len({floors[name] for name in line}) == 1, line
        assert floors[line[0]] == floors[below[0]] + 1, (line, below)


def test_a_command_is_pasted_without_its_answer() -> None:
    """What a command prints is generated, or not there: it would change with the run it is of."""
    blocks = [
        block
        for path in FILES
        for block in re.findall(r"^```(?:console)?\n(\$ .*?)^```", by_hand(path), re.DOTALL | re.MULTILINE)
    ]
    assert len(blocks) > 3
    assert [line for block in blocks for line in block.splitlines() if not line.startswith("$ ")] == []


def commands(text: str) -> Iterator[list[str]]:
    """The words of every `just …` of a text, in a console block or in backticks; with an ellipsis or brackets it is no whole command."""
    typed = re.findall(r"^\$ (.*)$", text, re.MULTILINE) + IN_CODE.findall(FENCED.sub("", text))
    for line in typed:
        found = re.sub(r"\s+#.*$", "", line).removeprefix("scripts/shell ")
        if found.startswith("just ") and not re.search(r"[…\[\]]", found):
            lexer = shlex.shlex(found, posix=True, punctuation_chars="|&")
            lexer.whitespace_split = True
            words = list(lexer)
            ends = [-1, *(number for number, word in enumerate(words) if set(word) <= set("|&")), len(words)]
            parts = [words[start + 1 : end] for start, end in pairwise(ends)]
            yield from (part[1:] for part in parts if part[0] == "just")


@each_file
def test_every_command_that_it_names_is_understood(path: Path) -> None:
    """It is a recipe of the justfile, and the lab's own verbs take its arguments as they stand; a verb alone is only named."""
    recipes = dict(
        re.findall(r"^([a-z]+)\b[^\n:=]*:[^\n=]*\n\s+@?(.*)$", (ROOT / "justfile").read_text(), re.MULTILINE)
    )
    for words in commands(by_hand(path)):
        if words[0] == "VERB":
            continue
        assert words[0] in recipes and words[0] not in OLD_SPELLINGS, words
        if len(words) > 1 and f"python -m lab {words[0]}" in recipes[words[0]]:
            assert callable(parser().parse_args(words).verb), words


def test_the_rules_are_those_of_the_code() -> None:
    """Numbers that a reader of a table needs, and that the code has in one place."""
    words = {6: "six", 10: "ten"}
    text = " ".join(README.read_text().split())
    for said in (
        f"within ±{100 * EQUIVALENCE_MARGIN:g} % (`--margin` sets another margin)",
        f"significant at {100 * ALPHA:g} %",
        f"Fewer than {words[MIN_BLOCKS]} blocks give no interval",
        f"fewer than {words[LEAST_BEYOND]} requests beyond it",
    ):
        assert said in text


# -- generated parts in a text: found by their markers, made anew, their links as seen from the file -----------


def test_a_part_is_written_anew_or_refused_with_the_nearest_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("# T\n\n<!-- generated: words a 'b c' -->\nold\n<!-- end -->\n\nmine\n")
    anew = "# T\n\n<!-- generated: words a 'b c' -->\na+b c\n<!-- end -->\n\nmine\n"
    assert readme.render_file(path, MAKERS) == anew
    path.write_text("<!-- generated: wrds -->\n<!-- end -->\n")
    with pytest.raises(UsageError, match=r"README.md: unknown generated part 'wrds'\n.*did you mean 'words'"):
        readme.render_file(path, MAKERS)


def test_links_are_as_seen_from_the_file() -> None:
    """Also one whose text has brackets, as an interval has; other sites' and what is pasted stay."""
    path = readme.ROOT / "lab" / "base" / "README.md"
    match = readme.PART.search("<!-- generated: linked -->\n<!-- end -->")
    assert match is not None
    assert readme.make_part(path, match, MAKERS) == (
        "[+1 % [0, 2], b](../../data/published/README.md#sources), [that](https://example.org/a)\n"
    )
    match = readme.PART.search("<!-- generated: pasted -->\n<!-- end -->")
    assert match is not None
    assert readme.make_part(path, match, MAKERS) == "```text\n[no link](data)\n```\n"


@pytest.mark.committed
@each_file
def test_the_parts_are_up_to_date(path: Path) -> None:
    assert path.read_text() == readme.render_file(path, readme.part_makers())


@pytest.mark.committed
def test_the_picture_is_up_to_date_and_fetches_nothing() -> None:
    """It has no font, style or image from elsewhere: the one address in it is the name of SVG itself."""
    drawn = readme.PICTURE.read_text()
    assert drawn == draw_findings(readme.judged_claims())
    assert set(re.findall(r"https?://[^\"']+", drawn)) == {"http://www.w3.org/2000/svg"}


def test_what_one_start_is_off_by_is_its_workers_and_its_bring_up_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was not repeated nothing is said; bring-ups are the longest line's, which has no row of its own."""
    one = SystemComponents(
        run="r", target="apiserver", variant="baseline", point="ceiling", scheme="slices",
        repeat=0.006, generation=0.04, bring_up=0.03, bring_ups=8, generations=6, load_s=4.0,
    )  # fmt: skip
    long = one.model_copy(update={"repeat": None, "bring_up": 0.03, "bring_ups": 30, "generations": 24})
    few = one.model_copy(update={"bring_up": 0.0})
    known = [few, one.model_copy(update={"variant": "x", "generation": None}), long]
    monkeypatch.setattr(levels, "read_components", lambda: tuple(known))
    *_, first, second = starts(known).splitlines()
    assert first == "| `baseline` on apiserver, ceiling | 5.0 % | 4.0 % | 3.0 % | 0.6 % | 8 × 6, 30 × 24 |"
    assert second == "| `x` on apiserver, ceiling | 3.0 % | – | 3.0 % | 0.6 % | 8 × 6 |"
