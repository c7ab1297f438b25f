"""How sure the numbers are: what the generators err by, and how noisy it was.

All of it is read from where the lab itself has it; nothing is typed again here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.analysis.evidence import Evidence
from lab.analysis.noise import Noise, noises, nulls_text, pairs
from lab.base.errors import LabError
from lab.base.files import reference_folder
from lab.records.calibration import REFERENCE, CalibrationFolder
from lab.report.html.rendering import html
from lab.report.markdown import markdown
from lab.report.tables.calibration import page as calibration_page

NO_CALIBRATION = (
    "no calibration is committed: `just selfbench calibrate` measures what every generator reports of a known server"
)


@dataclass(frozen=True, slots=True)
class Methods:
    """`calibration`: HTML, or what is missing. `noises`: run and what it knows of its noise; `untold`: runs that know nothing, and why.

    `nulls`: what was claimed of null arms; empty without.
    """

    calibration: str
    calibrated: bool
    noises: tuple[tuple[str, Noise], ...]
    untold: tuple[tuple[str, str], ...]
    nulls: str


def methods(runs: Sequence[Evidence]) -> Methods:
    """Of the lab, and of these runs."""
    known = {run.run.record.id: _noises(run) for run in runs}
    compared = [noise for found, _ in known.values() for noise in found if noise.compared]
    return Methods(
        *_calibration(),
        tuple((run, noise) for run, (found, _) in known.items() for noise in found if not noise.why),
        tuple((run, why) for run, (_, why) in known.items() if why),
        nulls_text(compared) if compared else "",
    )


def _calibration() -> tuple[str, bool]:
    """(HTML, whether there is one that can be read)"""
    try:
        record = CalibrationFolder.open(f"{reference_folder()}/{REFERENCE}").record
        return html(markdown(calibration_page(record)), below=2), True
    except LabError as error:
        why = f"{NO_CALIBRATION} ({error.fault})" if "unknown calibration" not in error.fault else NO_CALIBRATION
        return html(why), False


def _noises(run: Evidence) -> tuple[tuple[Noise, ...], str]:
    """(its noise, why it knows nothing of it)"""
    record = run.run.record
    if not pairs(record.arms):
        return (), "nothing in it was measured twice"
    if all(point.disturbance is not None for point in record.points):
        return (), "a disturbance: what varies there is in the metrics' own units, beside each effect"
    try:
        found = noises(run.summary())
    except LabError as error:
        return (), f"cannot be read: {error.fault}"
    return found, "" if any(not noise.why for noise in found) else "too few valid blocks"
