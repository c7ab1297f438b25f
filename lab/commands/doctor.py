"""`just doctor`: every prerequisite of every target in one table, with the remedy for what is missing.

Refuses to repair anything. Fails only for what the default target needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lab.report.terminal import hung
from lab.targets.prerequisites import TARGETS, Finding, Need, checks

WIDTH = 240
LEAST_WIDTH = 160
"""Columns that the table needs."""
STYLES = {"ok": "green", "missing": "bold red", "optional": "yellow"}


def doctor(console: Console, as_json: bool = False) -> int:
    """Show every finding; 0 when the default target can run here, else 2."""
    findings = checks()
    if as_json:
        console.print_json(data=[{**asdict(finding), "status": finding.status} for finding in findings])
    else:
        # A pipe has no width to fold to, and whoever reads its end wants whole lines.
        if not console.is_terminal:
            console.width = WIDTH
        if console.width < LEAST_WIDTH:
            print_entries(console, findings)
        else:
            console.print(table(findings))
        console.print(*verdicts(findings), sep="\n", soft_wrap=True, highlight=False)
    return 2 if missing(findings, "local") else 0


def print_entries(console: Console, findings: Sequence[Finding]) -> None:
    """Where there is no room for columns: what was found, and the remedy, on lines of their own where they are long."""
    wide = max(len(finding.check) for finding in findings)
    console.print(f"{'status':<8}  {'check':<{wide}}  needed by: found", style="bold", soft_wrap=True)
    for finding in findings:
        head = f"{finding.status:<8}  {finding.check:<{wide}}  {_needed(finding)}"
        told = [finding.found] + [finding.remedy] * (not finding.ok)
        if len(told) == 1 and len(head) + len(told[0]) + 2 <= console.width:
            head, told = f"{head}: {told[0]}", []
        line = Text(head)
        line.stylize(STYLES[finding.status], 0, len(finding.status))
        console.print(line, soft_wrap=True, highlight=False)
        for text in filter(None, told):
            console.print(hung(console, f"          {text}", 12), soft_wrap=True, highlight=False)


def _needed(finding: Finding) -> str:
    return "all" if set(finding.needed_by) == set(TARGETS) else ", ".join(finding.needed_by)


def missing(findings: Iterable[Finding], target: Need) -> list[Finding]:
    return [finding for finding in findings if not finding.ok and target in finding.needed_by]


def table(findings: Sequence[Finding]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("check", "needed by", "status", "found", "remedy"):
        shown.add_column(column, overflow="fold")
    for finding in findings:
        status = f"[{STYLES[finding.status]}]{finding.status}[/]"
        remedy = "" if finding.ok else finding.remedy
        shown.add_row(finding.check, _needed(finding), status, escape(finding.found), escape(remedy))
    return shown


def verdicts(findings: Sequence[Finding]) -> list[str]:
    """One line per target: can it run here, and if not, for want of what."""
    lines = [""]
    for target in TARGETS:
        wanting = ", ".join(finding.check for finding in missing(findings, target))
        lines.append(
            f"--target {target}: " + (f"[bold red]not here[/], for want of {wanting}" if wanting else "[green]ready[/]")
        )
    return lines
