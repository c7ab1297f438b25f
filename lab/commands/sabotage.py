"""The verb `sabotage`: it tests whether the check of each setting holds in a complete variant, and fails without the setting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lab.base.errors import UsageError
from lab.commands import TARGETED, Options, Verb, variant_name
from lab.commands.measuring import enter_target

if TYPE_CHECKING:
    from lab.experiments.sabotage import Finding
    from lab.targets.base import Target


def _run_sabotage(options: Options, talk: Console) -> int:
    """Run the verb `sabotage`: leave single settings (knobs) out, and see whether the read-backs notice.

    A read-back is a check that a running system has a setting. With `--intact` nothing is left out.

    Returns:
        The exit status: 1 if a check did not notice a missing setting, or a complete variant failed a check; else 0.

    """
    from lab.model.variants.variants import load_chain, variant_names

    if options.record and (options.json or not options.intact):
        raise UsageError("--record", "goes with --intact, and not with --json", "leave --json out, and add --intact")
    for name in options.variants:
        load_chain(name)  # a wrong name is an error before anything starts
    target = enter_target(options, options.target)

    from lab.experiments.sabotage import BAD_OUTCOMES, try_variants

    target.check()
    if options.record:
        return _record_trial(options.variants, talk, target)
    results: list[Finding] = []
    for finding in try_variants(target, options.variants or variant_names(), options.intact):
        results.append(finding)
        if options.json:
            print(json.dumps(asdict(finding)), flush=True)
        else:
            message = f"{finding.variant} {finding.knob or 'as it is'}: {finding.outcome}"
            talk.print(message, markup=False, highlight=False)
    if not options.json:
        _print_table(results, BAD_OUTCOMES)
    return 1 if any(finding.outcome in BAD_OUTCOMES for finding in results) else 0


def _record_trial(names: Sequence[str], talk: Console, target: Target) -> int:
    """Try which variants and sweeps (lists of loads) a target (place to run systems) supports, and record the result.

    Args:
        names: The variants to try; empty = all.
        talk: The console of stderr.
        target: The target.

    Returns:
        The exit status: 1 if a variant did not start with all its settings, or a sweep was refused although the target
        should be able to measure it; else 0.

    """
    from lab.experiments.sabotage import try_all
    from lab.records import trials
    from lab.studies import matrix

    outcomes: set[str] = set()

    def report(name: str, result: trials.TrialResult) -> None:
        outcomes.add(result.outcome)
        talk.print(f"{name}: {result.outcome}: {result.detail}", markup=False, highlight=False)

    trial = try_all(target, report, matrix.map_study_sweeps(), matrix.list_untried_knobs, names)
    talk.print(f"kept in {trials.write_trial(trial)}", markup=False, highlight=False)
    return 1 if "FAILED" in outcomes else 0


def _print_table(results: Sequence[Finding], bad: Collection[str]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("VARIANT", "KNOB", "SABOTAGE", "OUTCOME", "WHAT SAID SO"):
        table.add_column(head, no_wrap=head != "WHAT SAID SO")
    for item in results:
        cells = item.variant, item.knob, item.sabotage or "none", item.outcome, item.detail
        table.add_row(*map(escape, cells), style="bold red" if item.outcome in bad else "")
    out = Console()
    table.width = max(out.width, 180)
    out.print(table, crop=False)
    counts = Counter(item.outcome for item in results)
    out.print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()), highlight=False)


SABOTAGE = Verb(
    "mutation test: leave each setting out of its variants, and check that the read-back notices",
    _run_sabotage,
    {
        "variants": {
            "nargs": "*",
            "type": variant_name,
            "metavar": "VARIANT",
            "help": "the variants to test: variants, knobs alone, or VARIANT+KNOB (default: all that `just list variants --all` lists)",
        },
        "--intact": {
            "action": "store_true",
            "help": "leave nothing out: only start each variant and read every setting back",
        },
        "--json": {"action": "store_true", "help": "print each result as a line of JSON, as soon as it is known"},
        "--record": {
            "action": "store_true",
            "help": "with --intact: also try every study's sweep, and write the results to data/trials, from which the table"
            " of what each target can measure is made",
        },
    },
    (*TARGETED,),
    examples=("just sabotage keepalive", "just sabotage backlog --intact"),
)
