"""The record of one measurement (`sample.json`) and the fixed list of reasons that make one invalid."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field

from lab.base.validation import Record
from lab.model.bottleneck import Limit
from lab.model.leftovers import Leftovers, Moment
from lab.model.pairs import MAX_IN_FLIGHT, PairSide
from lab.model.plan import ArmRole, CellKey, Slot
from lab.model.steadiness import Change, Steadiness
from lab.model.sweeps import LoadPoint
from lab.model.usage import Usage

SCHEMA = 1
TLS_FACTS = ("version", "cipher", "group", "key")
"""The keys of `Response.tls` that a sample records."""


class Reason(StrEnum):
    """The reasons why a sample is invalid. If several apply, the first one in this order is recorded.

    Faults of the machine come before their possible consequences, such as a rate that was not reached.
    """

    meaning: str
    """The reason as a sentence."""

    def __new__(cls, value: str, meaning: str) -> Self:
        """Create a member from the word that samples record and the sentence that explains it."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    BRING_UP_FAILED = "bring-up-failed", "The system never answered; nothing was measured."
    KNOB_NOT_APPLIED = "knob-not-applied", "A read-back found another value than the variant sets."
    LIMIT_NOT_APPLIED = "limit-not-applied", "The manifests ask for something that this target did not apply."
    WRONG_BACKEND = "wrong-backend", "The canary, one request before and after, did not bring the backend's own bytes."
    CARRY_OVER = (
        "carry-over",
        "What earlier loads left was still beyond its bounds after two fresh bring-ups, or no fresh system came up.",
    )
    PROXY_DIED = "proxy-died", "A container ended or was restarted during the sample."
    GENERATOR_FAILED = "generator-failed", "The load generator crashed or refused to run."
    GENERATOR_HUNG = "generator-hung", "The load generator did not end in time and was killed."
    GENERATOR_OUTPUT = "generator-output", "The load generator ended well and printed something that is not its output."
    TOO_SHORT = "too-short", "It lasted no longer than the generator's calibration, or nothing was recorded."
    NON_2XX = "non-2xx", "Some responses had a status other than 2xx."
    ERRORS = "errors", "Some requests were refused, reset, timed out or got no usable answer."
    WRONG_SIZE = "wrong-size", "The bytes per response are not those of the page."
    CLOCK_STEP = "clock-step", "The wall clock jumped during the sample."
    STEAL = "steal", "The hypervisor took 1 % or more of the CPU time."
    OTHER_PROCESSES = "other-processes", "What is not the lab's used 5 % of a core or more."
    GENERATOR_TIME = (
        "generator-time",
        "The generator's own time is not what was planned, not what passed, or too short for the CPU time it used.",
    )
    GENERATOR_COUNT = "generator-count", "The generator counts requests or latencies that cannot have been."
    DROPPED = "dropped", "Requests were due and never sent."
    RATE_NOT_ACHIEVED = "rate-not-achieved", "The achieved rate was below 99 % of the offered one."
    GENERATOR_SATURATED = "generator-saturated", "At a given rate the generator's CPU was 80 % busy or more."
    UNEVEN = "uneven", "One side of a pair had more time than the other, or who ran when is not known."
    RESUMPTION = "resumption", "TLS sessions were resumed, or not, other than the load asks for."
    PROTOCOL = "protocol", "The proxy counted requests of another version of HTTP than the load asks for."
    LISTEN_OVERFLOW = "listen-overflow", "Connections were dropped at a full accept queue that is not the subject."
    CONNTRACK_OVERFLOW = "conntrack-overflow", "The kernel's connection tracking dropped packets."
    NOT_STEADY = (
        "not-steady",
        "The rate or the CPU time per request changed for good within the sample, or the proxy was restarted in a load of minutes.",
    )
    REQUEST_LOG = "request-log", "The generator's log of requests has gaps, or does not agree with its summary."
    EVENT_LOG = "event-log", "What happened to the system was not recorded as a whole."
    CLOCKS = "clocks", "The clocks of generator and lab differ by an amount that is not known to within 20 ms."
    DISTURBANCE_FAILED = "disturbance-failed", "What was to be done to the system could not be done, or not in time."
    CONTROL_FAILED = (
        "control-failed",
        "Requests or probes failed, answers stopped or connections were cut, though nothing was done to the system.",
    )
    BLOCK_INTERRUPTED = "block-interrupted", "After an interruption its block was measured again as a whole."

    @property
    def environmental(self) -> bool:
        """True if the machine caused the fault that this reason names, so that measuring again may help."""
        return self in {
            Reason.CLOCK_STEP,
            Reason.STEAL,
            Reason.OTHER_PROCESSES,
            Reason.UNEVEN,
            Reason.EVENT_LOG,
            Reason.CLOCKS,
        }

    @property
    def broken(self) -> bool:
        """True if this reason names a failure of the measured system, such as errors or a wrong answer.

        It is False for faults of the machine and the generator, and for a system that was only too slow for the offered
        rate.
        """
        return self in {
            Reason.BRING_UP_FAILED,
            Reason.KNOB_NOT_APPLIED,
            Reason.WRONG_BACKEND,
            Reason.PROXY_DIED,
            Reason.NON_2XX,
            Reason.ERRORS,
            Reason.WRONG_SIZE,
        }

    @property
    def unserved(self) -> bool:
        """True if this reason means that the offered rate was missed: the system or the generator was too slow."""
        return self in {Reason.RATE_NOT_ACHIEVED, Reason.DROPPED}


class Sample(Record):
    """The record of one measurement of one arm (a variant in a run) at one load point (`sample.json`), in seconds and bytes."""

    schema_version: int = SCHEMA
    id: str
    order: int = Field(description="position in the plan, counted over the whole run")
    block: int = Field(description="1…N; 0 in older runs: the direct reference, measured once before the others")
    generation: int = Field(default=0, description="how often this block was begun anew after an interruption")
    attempt: int = Field(description="1, or 2 and 3 for re-measurements after an environmental reason")
    arm: str = Field(description="name within the run: a variant, or a baseline's second name (A/A)")
    role: ArmRole
    variant: str
    baseline: str | None = Field(description="the arm this arm is compared with")
    target: str
    point: LoadPoint
    generator: str = Field(description="the generator that was used")
    generator_version: str | None
    stand_in_for: str | None = Field(
        default=None, description="the generator the sweep asked for, where another stood in"
    )
    argv: tuple[str, ...]
    latency_from: Literal["due", "sent"] = Field(description="what latencies are counted from")
    notes: tuple[str, ...] = Field(default=(), description="what the generator's numbers leave out or cannot show")
    started_at: str = Field(description="UTC, ISO 8601")
    bring_up_s: float | None = Field(
        description="how long this arm took to come up in this block; of a pair, which comes up side by side, half of what both took"
    )
    prepared_s: float | None = Field(
        default=None,
        description="after that, until the system was as its disturbance needs it: a first change may wait for a reload interval",
    )
    offered_rps: float | None = Field(description="null = closed loop")
    achieved_rps: float | None
    requests: int | None
    duration_s: float | None = Field(description="the generator's own measure of its run")
    recorded_s: float | None = Field(description="the part its latencies cover")
    errors: dict[str, int] = Field(default_factory=dict, description="by kind; empty = none")
    dropped: int | None = None
    size_bytes: int | None = None
    histogram: Literal["exact", "quantiles"] | None = None
    usage: dict[str, Usage] = Field(
        default_factory=dict,
        description="by role: proxy, backend, generator, lab, and where it is counted apart, control",
    )
    busy: dict[str, float] = Field(
        default_factory=dict,
        description="CPU number (of a cluster's second machine from 10000 on, …) → busy fraction over the sample",
    )
    generator_core: float | None = Field(
        default=None,
        description="busiest CPU of the generator: busy fraction; not pinned: its fullest node or its busiest thread",
    )
    proxy_core: float | None = Field(
        default=None,
        description="least busy CPU of the proxy, of as many as it has workers: busy fraction; not pinned: its least full node",
    )
    steal: float | None = Field(default=None, description="fraction of all CPU time taken by the hypervisor")
    others: float | None = Field(
        default=None,
        description="cores used by what is not the lab's (processes, or clock ticks nobody of ours explains)",
    )
    counters: dict[str, int] = Field(default_factory=dict, description="kernel counters' increase, by role/name")
    tls: dict[str, str] | None = Field(
        default=None,
        description=f"of the canary's TLS connection: {', '.join(TLS_FACTS)} (group: of the key exchange, X25519, …); null = no TLS",
    )
    limited_by: Limit | None = Field(
        default=None,
        description="closed loop: who was the limit (limit: a container's CPU limit throttled it; link: the shaped link"
        " was full; errors: they are the subject, and >= 1 % of the requests failed; proxy: proxy_core >= 95 % busy and the"
        " generator's < 95 %; waiting: the generator's < 80 % and the proxy's not full; generator: else)",
    )
    clock_offset_s: float | None = Field(
        default=None,
        description="of a logged load: what the generator's clock was ahead of the lab's; its log of requests is by its own clock",
    )
    load_after_s: float | None = Field(
        default=None,
        description="of a logged load: how long after the usage's zero its first request was due",
    )
    gauges: dict[str, float] = Field(
        default_factory=dict, description="what the system said of itself before the load, by role/name (System.gauges)"
    )
    leftovers: dict[Moment, Leftovers] = Field(
        default_factory=dict[Moment, Leftovers],
        description="what earlier loads had left behind; empty in samples of earlier labs, and where it cannot be seen",
    )
    fresh_bring_ups: int = Field(
        default=0,
        description="how often this system had been brought up anew in its block before this load, because of what earlier loads had left",
    )
    warmed_up: bool | None = Field(
        default=None,
        description="whether the load ran for the point's warmup_s before; false where it alone would have taken 5 % of the local ports,"
        " or the point has none; null = not recorded: nothing was loaded, or an earlier lab warmed up as the point says",
    )
    steadiness: Steadiness | None = Field(
        default=None,
        description="whether rate and CPU time per request changed for good within it; null = nobody looked, as in samples of earlier labs",
    )
    pair: PairSide | None = Field(default=None, description="of a pair's side; null = this arm was alone")
    outcome: dict[str, float | None] = Field(
        default_factory=dict,
        description="of a logged load: what came of the disturbance; of streams of events: their delays, cuts and costs"
        " (lab/records/outcomes.py has the metrics); null = unknown",
    )
    raw_sha256: str = Field(
        default="",
        description="of the generator's verbatim output, unpacked (earlier labs: as packed); empty in older samples",
    )
    verdict: Literal["valid", "invalid"]
    reason: Reason | None
    detail: str = Field(default="", description="every fault found, for people")

    @property
    def valid(self) -> bool:
        """True if the verdict of this sample is `valid`, so that its numbers can be used."""
        return self.verdict == "valid"

    @property
    def logged(self) -> bool:
        """True if the log of single requests and the log of events are stored with this sample, as for a disrupted load."""
        return self.point.disturbance is not None and bool(self.outcome)

    @property
    def change(self) -> Change | None:
        """The lasting change of rate or CPU time per request that made this sample invalid; None if there is none.

        It is also None if the sample is invalid because the other side of its pair (two variants at once) changed, or
        for any other reason.
        """
        return self.steadiness.change if self.steadiness is not None and self.reason is Reason.NOT_STEADY else None

    @property
    def untimed(self) -> bool:
        """True if the generator of this sample was paused between the time slices of a pair (two alternating variants).

        In that case, the time, the rate and the latencies that the generator reports are not used.
        """
        return self.pair is not None and self.pair.scheme == "slices"

    @property
    def goodput_rps(self) -> float | None:
        """The requests per second of this sample that were answered with a right status; None if no rate was measured.

        For one side of a pair (two variants at once) in time slices, it is the rate within that side's slices. It is
        None if too many answers may have arrived in the slices of the other side (`MAX_IN_FLIGHT`).
        """
        rate_rps = self.achieved_rps
        if self.pair is not None and self.pair.own_s and self.requests:
            reliable = self.pair.in_flight is not None and self.pair.in_flight <= MAX_IN_FLIGHT
            rate_rps = self.requests / self.pair.own_s if reliable else None
        if rate_rps is None or not self.requests:
            return rate_rps
        return rate_rps * (1 - self.errors.get("status", 0) / self.requests)

    def per_good_request(self, amount: float | None) -> float | None:
        """Divide an amount by the number of requests of this sample that were answered with a right status.

        Args:
            amount: The amount, such as the CPU seconds of the whole sample; None = unknown.

        Returns:
            The amount per request; None if the amount is unknown or there was no such request.

        """
        good = (self.requests or 0) - self.errors.get("status", 0)
        return amount / good if amount is not None and good > 0 else None

    @property
    def cpu_per_request_s(self) -> float | None:
        """The proxy's CPU seconds per request that was answered with a right status; None if unknown.

        Without a proxy it is the backend's CPU time. The CPU time for failed requests is included in the cost of the
        good ones.
        """
        usage = self.usage.get("proxy") or self.usage.get("backend")
        return self.per_good_request(usage.cpu_s if usage else None)


def key_of_measurement(item: Slot | Sample) -> CellKey:
    """Return the key of a measurement (`CellKey`), by which a planned measurement and its samples are matched.

    The key consists of the block, the arm (a variant in the run), the load point, the other arm of a pair, and the
    numbers of reload and repeat. A planned pair (two variants at once) has two keys; the result is that of `item.arm`.
    """
    if isinstance(item, Slot):
        return item.cells[0]
    if item.pair is None:
        return item.block, item.arm, item.point.name, "", 0, 0
    return item.block, item.arm, item.point.name, item.pair.against, item.pair.reload, item.pair.repeat


def planned_cells(slots: Iterable[Slot]) -> set[CellKey]:
    """Return a key (`CellKey`) for each planned sample: one for a solo measurement, two for a pair (two variants at once)."""
    return {key for slot in slots for key in slot.cells}


def belongs_to_block(sample: Sample) -> bool:
    """Return whether a sample still belongs to its block (a repetition of all measurements).

    The result is False if the block was interrupted, and later measured again from its beginning.
    """
    return sample.reason != Reason.BLOCK_INTERRUPTED


def is_settled(sample: Sample) -> bool:
    """Return whether a planned measurement is complete with this sample (True), or must be repeated (False).

    It is complete if the sample is valid, if its fault would occur again, or if it was the last attempt
    (`LoadPoint.attempts`). A pair (two variants at once) that missed its offered rate is repeated: the rates of pairs
    are low enough for their proxies, so the machine must have been busy. A sample of an interrupted block (repetition)
    never completes a measurement.
    """
    reason, pair = sample.reason, sample.pair is not None
    final = reason is not None and not reason.environmental and not (pair and reason.unserved)
    return belongs_to_block(sample) and (sample.valid or final or sample.attempt >= sample.point.attempts)


def list_bring_ups_s(samples: Iterable[Sample]) -> list[float]:
    """Return the duration of each start of a system, in seconds, as the samples record it.

    The two systems of a pair start together: their durations are added up and are one start. If the same planned
    measurements had several starts (a repeated disrupted load, a resumed block), only the last one is included.
    """
    ups: dict[tuple[int, int, frozenset[str], str, int], dict[str, float]] = {}
    for sample in samples:
        if sample.bring_up_s is not None:
            sides = frozenset({sample.arm, sample.pair.against} if sample.pair else {sample.arm})
            disturbed_point = sample.point.name if sample.point.has_outcome else ""
            bring_up = (sample.block, sample.generation, sides, disturbed_point, sample.fresh_bring_ups)
            ups.setdefault(bring_up, {})[sample.arm] = sample.bring_up_s
    return [sum(by_arm.values()) for by_arm in ups.values()]
