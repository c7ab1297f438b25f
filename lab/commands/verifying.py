"""The option `migrate --verify`: it sends ingress-nginx and its successors the same requests, and prints where answers differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lab.analysis.migration.mapping import MigrationPlan
from lab.base.errors import UsageError
from lab.base.handing import hand_over, piped_command, read_once
from lab.commands import Options, print_answer
from lab.commands.measuring import enter_target, print_plan_line, print_plan_lines

READER = piped_command("migrate --verify", "--requests")
DEFAULT_TARGET = "apiserver"
"""The target on which the real controllers run."""


def run_verification(options: Options, talk: Console, plan: MigrationPlan, files: Sequence[tuple[str, bytes]]) -> int:
    """Send requests to ingress-nginx and to each successor, and print where the answers differ.

    Args:
        options: The parsed options.
        talk: The console of stderr.
        plan: The plan of the migration.
        files: The name and content of each of the user's files, in the order in which they were read.

    Returns:
        The exit status: 1 if a difference may make requests fail, or a system could not be compared; else 0.

    """
    from lab.analysis.verification.requests import read_requests

    place = options.requests
    own = read_requests(place, read_once(place, READER).decode(errors="replace")) if place else []
    with hand_over(*(content for _, content in files)):
        target = enter_target(options, options.target or DEFAULT_TARGET)

    from lab.analysis.verification.compare import add_verified
    from lab.experiments.ablation.folder import new_manifests
    from lab.experiments.verification.verify import VerifiedPair, prepare, verify
    from lab.report.json.verification import make_verification_shape
    from lab.report.tables.verification import differences_page, overview_page
    from lab.targets.local.target import LocalTarget

    if not isinstance(target, LocalTarget):
        fault = f"requests cannot be sent byte by byte on target {target.name}"
        raise UsageError("--verify", fault, "--target apiserver, or --target local")
    with new_manifests("verify") as (manifests, _):
        verification = prepare(plan, files, own, Path(manifests), target)
    systems = (verification.baseline, *verification.systems)
    notes = [*verification.notes, *(f"{system.name}: {note}" for system in systems for note in system.notes)]
    names = [system.name for system in verification.systems]
    text = f"{len(verification.requests)} requests to ingress-nginx and to {', '.join(names)}"
    print_plan_lines(talk, [*(("note", note) for note in notes), ("verify", text)])
    if options.plan:
        return 0
    pairs = list[VerifiedPair]()
    try:
        target.check()
        for pair in verify(verification, options.blocks or 0, lambda line: print_plan_line(talk, "run", line)):
            pairs.append(pair)
            print_plan_line(talk, "run", f"{pair.system}: {len(pair.differences)} differences")
            if options.learn and pair.system in names:
                count = add_verified(pair.system, pair.differences)
                print_plan_line(talk, "learned", f"{pair.system}: {count} differences")
    finally:
        target.close()
    shape = make_verification_shape(VerifiedPair)
    rows = [(pair.system, pair.target, pair.requests, pair.differences, pair.notes) for pair in pairs]
    print_answer(
        options,
        lambda: [
            *(part for name, _, _, found, notes in rows for part in differences_page(name, found, notes)),
            *overview_page(rows),
        ],
        lambda: shape.dumps(requests=len(verification.requests), notes=verification.notes, systems=tuple(pairs)),
    )
    return int(
        any(item.fails for pair in pairs for item in pair.differences) or any(not pair.requests for pair in pairs)
    )
