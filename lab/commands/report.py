"""The verbs `report` (an HTML file of the committed runs, or pages of single runs) and `ledger` (published claims).

The HTML file has an overview, the ledger, the studies, the methods and the runs.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from lab.base.errors import UsageError, refuse_unknown
from lab.base.files import runs_folder
from lab.commands import Options, Verb, print_answer, print_page

OUTPUT = Path(__file__).resolve().parents[2] / ".cache" / "report"
"""The folder of the report in this checkout, which git ignores."""


def _run_report(options: Options, talk: Console) -> None:
    if options.run:
        _write_pages(options)
        return

    from lab.studies.site import site

    def say(text: str) -> None:
        talk.print(text, style="dim", highlight=False, soft_wrap=True)

    result = site.build_site(Path(options.output or OUTPUT), say=say)
    gaps = ", ".join(f"{name} {count}" for name, count in result.gaps.items())
    print(result.path)
    print(f"{result.counts}; {result.figures} figures, {sum(result.gaps.values())} gaps{f': {gaps}' if gaps else ''}")


def _write_pages(options: Options) -> None:
    """Write an HTML page for each run that `--run` names, and print the pages' paths.

    With `--output FOLDER`, the page of a single run goes into FOLDER, and the pages of several runs into `FOLDER/RUN`.
    Without it, the location depends on where the run is stored:

    - A run in the folder of the user's runs (usually `data/runs`) gets the page in its own folder.
    - Any other run, such as a committed one, gets the page in `.cache/report/RUN` of this checkout.
    """
    from lab.records.store import RunStore
    from lab.report.html.run import write_page
    from lab.report.result import RunResult
    from lab.studies.results import make_study_page

    runs: list[RunStore] = []
    for name in dict.fromkeys(options.run):
        try:
            runs.append(RunStore.open(name))
        except UsageError as error:
            raise UsageError("--run", f"{name}: {error.fault}", error.remedy) from None
    for run in runs:
        is_users = run.folder.parent == runs_folder()
        folder = Path(options.output) if options.output else run.folder if is_users else OUTPUT
        several = (not is_users and not options.output) or (len(runs) > 1 and options.output)
        result = RunResult(run)
        print(write_page(result, folder / run.folder.name if several else folder, [make_study_page(result)]))


def _run_ledger(options: Options, talk: Console) -> None:
    from lab.analysis import evidence
    from lab.report.json.shape import dumps
    from lab.studies import boots, ledger
    from lab.studies.steps import list_boot_tasks
    from lab.studies.study_files import list_studies

    if options.study is not None:
        refuse_unknown(options.study, list_studies(), "study", f"unknown study '{options.study}'")
    verdicts = ledger.judge_claims(options.study)
    if options.boots:
        boots_needed = list_boot_tasks(evidence.load_references()[0], verdicts)
        print_answer(options, lambda: boots.make_boots_page(boots_needed), lambda: dumps(boots_needed))
        return
    checks = ledger.judge_checks(options.study)
    if options.json or options.markdown:
        verdicts_json = ledger.list_verdicts(verdicts, checks)
        print_answer(options, lambda: ledger.page(verdicts, checks, linked=True), lambda: dumps(verdicts_json))
    else:
        print_page("ledger.txt", ledger=ledger, verdicts=verdicts, checks=checks, rules=options.rules)


REPORT = Verb(
    "write the committed runs as one HTML file, with all findings, claims and figures; or a page per run",
    _run_report,
    {
        "--output": {
            "metavar": "FOLDER",
            "help": "folder to write to (default: .cache/report; for a run of yours the folder of the run)",
        },
        "--run": {
            "metavar": "RUN",
            "action": "append",
            "default": [],
            "help": "write only the page of this run, report.html; can be repeated",
        },
    },
    examples=("just report", "just report --run data/reference/quick-keepalive"),
)
LEDGER = Verb(
    "list what published studies claim, and whether the committed runs and the studies' own data support it",
    _run_ledger,
    {
        "study": {
            "metavar": "STUDY",
            "nargs": "?",
            "help": "show only this study's claims: aws-a1, digitalocean, nds, okd, qinng, streams or successors (default: all)",
        },
        "--rules": {"action": "store_true", "help": "also show the rule by which each claim is judged"},
        "--boots": {
            "action": "store_true",
            "help": "list instead what to measure after a reboot, for findings and claims that rest on too few boots",
        },
    },
    ("--json", "--markdown"),
    examples=("just ledger digitalocean", "just ledger qinng --rules"),
)
