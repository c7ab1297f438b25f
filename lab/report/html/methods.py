"""How the numbers came about: what a verdict means, how sure an effect is, what the generators err by, and how noisy it was.

All of it is read from where the lab itself has it; nothing is typed again here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.calibration.folder import REFERENCE, CalibrationFolder
from lab.analysis.claims import ANSWERS, KINDS, Answer
from lab.analysis.claims.evidence import Evidence
from lab.analysis.claims.publications import OWN_ANSWERS, OwnAnswer
from lab.analysis.decision import MARK_P
from lab.analysis.noise import Noise, noises, nulls_text, pairs
from lab.analysis.summary import summarise_run
from lab.base.errors import LabError
from lab.base.files import reference_folder
from lab.model.metrics import about
from lab.report.html import markdown
from lab.report.markdown import markdown as as_markdown
from lab.report.tables.calibration import page as calibration_page
from lab.stats import paired as stats
from lab.stats.units import format_rate, format_seconds, format_size

NO_CALIBRATION = "no calibration is committed: `just calibrate` measures what every generator reports of a known server"


@dataclass(frozen=True, slots=True)
class Floor:
    """One metric's noise in a run's A/A pair, in words."""

    run: str
    variant: str
    point: str
    metric: str
    level: str
    cv: str
    floor: str
    blocks: int


@dataclass(frozen=True, slots=True)
class Methods:
    """`calibration`: HTML, or what is missing. `untold`: runs without a floor, and why. `nulls`: what was claimed of null arms; empty without."""

    answers: Mapping[Answer, str]
    own_answers: Mapping[OwnAnswer, str]
    kinds: Mapping[str, str]
    least_blocks: int
    mark_p: float
    calibration: str
    calibrated: bool
    floors: tuple[Floor, ...]
    untold: tuple[tuple[str, str], ...]
    nulls: str

    @property
    def gaps(self) -> int:
        return 0 if self.calibrated else 1


def methods(runs: Sequence[Evidence]) -> Methods:
    """Of the lab, and of these runs."""
    calibration, calibrated = _calibration()
    floors: list[Floor] = []
    untold: list[tuple[str, str]] = []
    compared: list[Noise] = []
    for run in runs:
        found, why = _noises(run)
        floors += _told(run, found)
        compared += [noise for noise in found if noise.compared]
        if why:
            untold.append((run.run.record.id, why))
    return Methods(
        answers=ANSWERS,
        own_answers=OWN_ANSWERS,
        kinds=KINDS,
        least_blocks=stats.MIN_BLOCKS,
        mark_p=MARK_P,
        calibration=calibration,
        calibrated=calibrated,
        floors=tuple(floors),
        untold=tuple(untold),
        nulls=nulls_text(compared) if compared else "",
    )


def _calibration() -> tuple[str, bool]:
    """(HTML, whether there is one that can be read)"""
    try:
        record = CalibrationFolder.open(f"{reference_folder()}/{REFERENCE}").record
        return markdown.html(as_markdown(calibration_page(record)), below=2), True
    except LabError as error:
        why = f"{NO_CALIBRATION} ({error.fault})" if "unknown calibration" not in error.fault else NO_CALIBRATION
        return markdown.html(why), False


def _noises(run: Evidence) -> tuple[tuple[Noise, ...], str]:
    """(its noise, why it has no floors)"""
    record = run.run.record
    if not pairs(record.arms):
        return (), "nothing in it was measured twice"
    if all(point.disturbance is not None for point in record.points):
        return (), "a disturbance: its floors are in the metrics' own units, beside each effect"
    try:
        found = noises(summarise_run(record, run.samples, run.run.histogram))
    except LabError as error:
        return (), f"cannot be read: {error.fault}"
    return found, "" if any(not noise.why for noise in found) else "too few valid blocks"


def _told(run: Evidence, found: Sequence[Noise]) -> Iterator[Floor]:
    for noise in found:
        if not noise.why and noise.floor is not None:
            level = f"{format_rate(noise.level)}/s" if noise.metric == "rate" else format_seconds(noise.level)
            yield Floor(
                run=run.run.record.id,
                variant=noise.variant,
                point=noise.point,
                metric=about(noise.metric).title,
                level=level,
                cv=f"{noise.cv or 0:.1%}",
                floor=format_size(noise.floor),
                blocks=noise.floor_blocks,
            )
