"""The generated parts of README.md, between `<!-- generated: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from lab.analysis.calibration import tables as calibration_tables
from lab.analysis.calibration.folder import CalibrationFolder
from lab.analysis.claims import ledger
from lab.analysis.summary import summarise_run
from lab.base.errors import UsageError
from lab.base.files import read_record
from lab.commands import parser
from lab.experiments.selfbench import report as selfbench_report
from lab.model.samples import Reason
from lab.records.store import RunStore
from lab.report import catalog
from lab.report.tables import steady as tables

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
PICTURE = REFERENCE / "table.svg"
PICTURED = "quick-keepalive"
"""The reference run that the README's picture shows, and that its examples are of."""
EXAMPLES = ("aa {}", "compare {}", "gate {} --max-regression 5%", "capacity --rate 1M --run {}")
"""Commands whose answer is a part of the verb's name; {} is that run."""
PICTURE_COLUMNS = 136
OPTIONAL = frozenset({"calibration", "selfbench"})
"""Parts that the text may leave out."""
PART = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def parts() -> Mapping[str, Callable[[], str]]:
    return {
        "variants": catalog.readme_table,
        "studies": catalog.readme_studies,
        "disturbances": catalog.readme_disturbances,
        "reasons": _reasons,
        "claims": _claims,
        "calibration": _calibration,
        "selfbench": _selfbench,
        **{command.split()[0]: partial(_example, command) for command in EXAMPLES},
    }


def _reasons() -> str:
    """Every reason with its meaning, in the order in which they apply."""
    again = " Measured again, up to twice."
    rows = [f"| `{reason}` | {reason.meaning}{again if reason.environmental else ''} |" for reason in Reason]
    return "\n".join(["| reason | meaning |", "| --- | --- |", *rows]) + "\n"


def _claims() -> str:
    """The ledger as the committed runs have it."""
    return ledger.as_markdown(ledger.ledger(), ledger.checks(), linked=True)


def _calibration() -> str:
    """The committed calibration's tables; how to make them as long as there is none."""
    folder = REFERENCE / "calibration"
    if not (folder / "calibration.json").is_file():
        return "Not measured yet: `just calibrate` measures it on your machine.\n"
    return calibration_tables.as_markdown(CalibrationFolder.open(str(folder)).record)


def _example(command: str) -> str:
    """A verb's answer about the pictured run, as it is printed."""
    options = parser().parse_args([word.format(REFERENCE / PICTURED) for word in command.split()])
    with redirect_stdout(io.StringIO()) as printed:
        options.verb(options, Console(quiet=True))
    answer = Text.from_ansi(printed.getvalue()).plain.rstrip()
    return f"```console\n$ just {command.format(f'data/reference/{PICTURED}')}\n{answer}\n```\n"


def _selfbench() -> str:
    """The committed table; how to make it as long as there is none."""
    path = REFERENCE / "selfbench" / "selfbench.json"
    if not path.is_file():
        return "Not measured yet: `just selfbench` measures it on your machine.\n"
    return selfbench_report.as_markdown(read_record(path, selfbench_report.Report, "restore it from a copy"))


def rendered(text: str) -> str:
    """The text with every generated part made anew; UsageError for a part nobody makes."""

    def fill(match: re.Match[str]) -> str:
        if match["name"] not in parts():
            raise UsageError(
                "README.md",
                f"unknown generated part '{match['name']}'",
                f"known: {', '.join(parts())}",
            )
        return match[1] + parts()[match["name"]]().rstrip("\n") + "\n" + match[3]

    return PART.sub(fill, text)


def stale(path: Path) -> list[str]:
    """Names of parts that differ from what would be generated, or are not in the file; the picture by its file's."""
    return stale_parts(path) + stale_picture()


def stale_parts(path: Path) -> list[str]:
    """The text's part of `stale`."""
    text = path.read_text()
    fresh = rendered(text)
    present = {match["name"]: match[0] for match in PART.finditer(text)}
    now = {match["name"]: match[0] for match in PART.finditer(fresh)}
    wanted = [name for name in parts() if name in present or name not in OPTIONAL]
    return [name for name in wanted if present.get(name) is None or present[name] != now[name]]


def stale_picture() -> list[str]:
    """The picture's part of `stale`."""
    return [] if PICTURE.is_file() and PICTURE.read_text() == picture() else [PICTURE.name]


def write(path: Path) -> None:
    path.write_text(rendered(path.read_text()))
    PICTURE.write_text(picture())


def picture() -> str:
    """The pictured run's table as an SVG that needs nothing from the network."""
    run = RunStore.open(str(REFERENCE / PICTURED))
    console = Console(record=True, width=PICTURE_COLUMNS, file=io.StringIO(), force_terminal=True)
    tables.print_table(console, summarise_run(run.record, run.samples(), run.histogram))
    plain = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="just bench keepalive", code_format=plain)
