"""A verification of a migration: it brings up ingress-nginx and each successor in turn, and sends all of them the same requests.

`prepare` converts the user's files for each system, and leaves out what a system refuses; it starts no system. `verify`
runs the systems and compares their answers. A successor that cannot run on the named target runs on the target `local`,
or another program runs in its place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.analysis.migration.mapping import Migration, MigrationPlan
from lab.analysis.verification.compare import Difference, find_differences, list_aspects
from lab.analysis.verification.requests import generate, make_catalogue, parse_size, unique
from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, refuse_if
from lab.experiments.ablation.folder import find_refusal
from lab.experiments.configmap import reading
from lab.experiments.configmap.split import BASELINE
from lab.experiments.migration.folder import has_manifests, map_stand_ins, write_accepted
from lab.experiments.migration.plan import READER
from lab.experiments.verification.objects import (
    CONTROL_PORT,
    OWN,
    UserIngresses,
    make_manifests,
    read_ingresses,
    realise_configmap,
)
from lab.model.exchanges import Exchange, RawRequest, Received
from lab.model.variants.variants import Variant, load_overlay, load_variant
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.table import find_controller
from lab.targets.common import wire
from lab.targets.local.sandbox import network
from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget

SETTLE_S, SETTLED_S, EMPTY_S = 30.0, 0.4, 3.0
"""Three times in seconds: the longest wait until a system has loaded all routes; the time for which its answers must stay
equal; and this time if some routes are still answered as if they were missing, since a controller may not have loaded them."""
_NO_ROUTE = (0, 404, 502, 503)
"""The statuses of an answer that a missing route may have; 0 stands for no answer."""
_PLAIN = ("plain", "plain-tls", "exact-path", "prefix-path", "specific-path", "regex-path")
"""The ends of the names of requests that request a route exactly as the Ingress defines it."""


@dataclass(frozen=True, slots=True)
class VerifiedPair:
    """The result of one comparison: how a system's answers differ from those of ingress-nginx.

    As a noise check, a system may also be brought up twice, and its second answers are compared with its first ones.

    Attributes:
        system: The name of the system; when compared with itself, `NAME against itself NUMBER`.
        target: The name of the target that it ran on.
        requests: The number of requests whose answers were compared; 0 if the system did not come up.
        took_s: The seconds from the system's first bring-up to the end of this comparison.
        differences: The differences.
        notes: The parts of the user's files that the system did not get, and how it ran.

    """

    system: str
    target: str
    requests: int
    took_s: float
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class VerifiedSystem:
    """A system that is ready to be brought up for a verification (a comparison of its answers with those of ingress-nginx).

    Attributes:
        name: The name of the successor, or `ingress-nginx`.
        target: The target that it runs on.
        variant: The system's variant, with the user's routes.
        notes: The parts of the user's files that the system does not get, and how it runs.
        migration: The migration to the system; None for ingress-nginx.

    """

    name: str
    target: LocalTarget
    variant: Variant
    notes: list[str]
    migration: Migration | None = None

    def pair(self, name: str, requests: int, began_s: float, differences: Sequence[Difference]) -> VerifiedPair:
        """Return the result of a comparison of this system's answers with other answers, as a `VerifiedPair`.

        Args:
            name: The name of the result: that of the system, or `NAME against itself NUMBER`.
            requests: The number of compared requests.
            began_s: The time when the system's bring-up began (`time.monotonic`).
            differences: The differences.

        """
        took_s = time.monotonic() - began_s
        return VerifiedPair(name, self.target.name, requests, took_s, tuple(differences), tuple(self.notes))


@dataclass(slots=True)
class Verification:
    """A verification that can start: it sends the same requests to ingress-nginx and to its successors, and compares the answers.

    Attributes:
        baseline: ingress-nginx with the user's ConfigMap and Ingresses.
        systems: The successors.
        requests: The requests.
        services: Port of the recording backend → the Service whose requests arrive there, as `name:port`.
        notes: The parts of the user's files that no system gets, and the successors that are left out.

    """

    baseline: VerifiedSystem
    systems: list[VerifiedSystem]
    requests: list[RawRequest]
    services: Mapping[int, str]
    notes: list[str]


def prepare(
    plan: MigrationPlan,
    files: Sequence[tuple[str, bytes]],
    own: Sequence[RawRequest],
    manifests: Path,
    target: LocalTarget,
) -> Verification:
    """Prepare a verification: convert the user's files for each system, and collect the requests to send. No system is started.

    Args:
        plan: The plan of the migration.
        files: (name, content) of each of the user's files.
        own: The user's own requests, in addition to those that the lab makes.
        manifests: A copy of the lab's manifests.
        target: The target that the user named.

    Raises:
        UsageError: ingress-nginx, or every successor, cannot be brought up with the user's files.

    """
    user = read_ingresses([(place, reading.decode_text(place, content, READER)) for place, content in files])
    content = dict(files).get(plan.place)
    settings = reading.FileSettings({}) if content is None else reading.read_settings(plan.place, content, READER)
    data, extras, notes = realise_configmap(settings.data, settings.named_objects)
    limit = parse_size(data.get("proxy-body-size", KEYS["proxy-body-size"].default)) or 0
    requests = unique([*make_catalogue(limit), *generate(user.paths), *own])
    baseline = _make_checked("ingress-nginx", load_variant(BASELINE, manifests), target, user, data, extras)
    systems = list[VerifiedSystem]()
    stand_ins = map_stand_ins(manifests)
    for migration in plan.migrations:
        try:
            systems.append(_prepare_successor(migration, manifests, target, user, stand_ins))
        except UsageError as error:
            notes.append(
                f"{migration.system}: not verified: {error.fault}" + (f" ({error.remedy})" if error.remedy else "")
            )
    refuse_if(not systems, "migrate --verify", "no successor can be brought up here", "\n  ".join(notes))
    return Verification(baseline, systems, requests, user.services, [*user.notes, *notes])


def _prepare_successor(
    migration: Migration, manifests: Path, target: LocalTarget, user: UserIngresses, stand_ins: Mapping[str, str]
) -> VerifiedSystem:
    """Return a successor of ingress-nginx with the user's settings and routes, ready to be brought up.

    It runs on the named target if it can. If not, a program that can replace it there runs in its place; without such a program, it runs on
    the target `local`.

    Args:
        migration: The migration to the successor.
        manifests: A copy of the lab's manifests.
        target: The target that the user named.
        user: The user's Ingresses.
        stand_ins: Name of a system → the variant of the program that can replace it.

    Raises:
        UsageError: The successor cannot be brought up here.

    """
    name = migration.system
    refuse_if(not has_manifests(name, manifests), name, "the lab has no manifests of it yet")
    places = [target] if type(target) is LocalTarget else [target, LocalTarget()]
    only_on = load_overlay(name, manifests).only_on
    place = next((item for item in places if not only_on or item.name in only_on), None)
    if place is None:
        raise UsageError(name, f"it runs on {' and '.join(only_on)} alone", f"--target {only_on[0]}")
    stand_in = stand_ins.get(name)
    if place is not target and stand_in and target.name in load_overlay(stand_in, manifests).only_on:
        place, overlay = target, stand_in
        notes = [f"{stand_in} stands in for it, which takes none of its settings"]
    else:
        overlay, notes = write_accepted(manifests, migration, lambda text: find_refusal(manifests, place, text))
        notes = [*(["on local, by itself: no controller reads the routes"] if place is not target else []), *notes]
    if overlay is None:
        raise UsageError(name, "; ".join(notes), "")
    system = _make_checked(name, load_variant(overlay, manifests), place, user)
    system.migration, system.notes[:0] = migration, notes
    return system


def _make_checked(
    name: str,
    variant: Variant,
    target: LocalTarget,
    user: UserIngresses,
    data: dict[str, str] | None = None,
    extras: Sequence[dict[str, Any]] = (),
) -> VerifiedSystem:
    """Return a system with the user's routes and settings, without those that the target refuses.

    A note names each route, and each key of the ConfigMap, that is left out.

    Args:
        name: The name of the system.
        variant: The system's variant with the lab's routes.
        target: The target.
        user: The user's Ingresses.
        data: The data for ingress-nginx's ConfigMap, from which refused keys are removed; None for another system.
        extras: Further objects to add.

    Raises:
        UsageError: The target refuses the system for another reason than a route or key.

    """
    pods = [pod.name for pod in target.read(variant.manifests).pods]
    backend = f"{network.SIDE_NAMES['left'].addresses}.0.{pods.index('backend-0') + 3}"
    controlled = any(
        find_controller(container.repository)
        for pod in target.read(variant.manifests).role("proxy")
        for container in pod.containers
    )
    reads_all = target.name == "apiserver" and controlled
    left_out, notes = set[str](), list[str]()
    while True:
        made, reduced = make_manifests(variant.manifests, user, reads_all, backend, data, extras)
        kept = [obj for obj in made if f"{obj['kind']}/{obj['metadata']['name']}" not in left_out]
        checked = variant.model_copy(update={"manifests": tuple(kept), "readback": ()})
        try:
            target.check_variant(checked, [])
        except NotMeasurableError as error:
            raise UsageError(name, error.fault, error.remedy) from None
        except UsageError as error:
            fault = f"{error.place}: {error.fault}"
            routes = [
                f"{obj['kind']}/{obj['metadata']['name']}"
                for obj in kept
                if obj["kind"] in ("Ingress", "HTTPRoute") and obj["metadata"]["name"] not in OWN
            ]
            route = _find_named(fault, routes)
            key = "" if route else _find_named(fault, list(data or ()))
            if not route and not key:
                raise
            left_out.add(route)
            (data or {}).pop(key, None)
            notes.append(f"{route or key} is left out: {fault}")
            continue
        return VerifiedSystem(name, target, checked, [*notes, *reduced])


def _find_named(fault: str, names: Sequence[str]) -> str:
    """Return the longest of the names that occur in an error message; empty if none of them occurs there."""
    return max((name for name in names if name in fault), key=len, default="")


# -- the run -------------------------------------------------------------------------------------------------------

Recorded = list[tuple[Exchange, Mapping[str, str]]]
"""The answers of one system: (exchange, name of an aspect → its text) for each request; aspects are compared."""


def verify(verification: Verification, repeats: int, say: Callable[[str], None]) -> Iterator[VerifiedPair]:
    """Bring up ingress-nginx and each successor in turn, and yield how each successor's answers differ.

    Args:
        verification: The verification.
        repeats: How often each system, ingress-nginx included, is brought up again and compared with itself (noise check).
        say: Called with a line about what is being done.

    Raises:
        MeasuringError: ingress-nginx does not come up.

    """
    baseline: Recorded = []
    for system in (verification.baseline, *verification.systems):
        began = time.monotonic()
        try:
            answers = record_answers(system, verification, say)
            for number in range(repeats):
                again = find_differences(answers, record_answers(system, verification, say), None)
                yield system.pair(f"{system.name} against itself {number + 1}", len(answers), began, again)
        except (MeasuringError, UsageError) as error:
            if system is verification.baseline:
                raise
            system.notes.append(f"did not come up: {error.place}: {error.fault}")
            yield system.pair(system.name, 0, began, ())
            continue
        if system is verification.baseline:
            baseline = answers
        else:
            yield system.pair(system.name, len(answers), began, find_differences(baseline, answers, system.migration))


def record_answers(system: VerifiedSystem, verification: Verification, say: Callable[[str], None]) -> Recorded:
    """Bring a system up, send it all requests one after the other, and return the answers.

    Args:
        system: The system.
        verification: The verification, which has the requests.
        say: Called with a line about what is being done.

    Returns:
        (exchange, its aspects) for each request. An exchange is the answer, with the request as the backend received it. Its aspects are
        the parts that are compared.

    """
    say(f"{system.name}: coming up on {system.target.name}")
    with system.target.up(system.variant) as up:
        send = _make_sender(up, verification.services)
        wait_for_routes(verification.requests, send)
        say(f"{system.name}: {len(verification.requests)} requests")
        places = {up.net[network.CLIENT].address: "{client}", up.pod_address("proxy"): "{proxy}"}
        exchanges = [send(request) for request in verification.requests]
        return [(exchange, list_aspects(exchange, places)) for exchange in exchanges]


def _make_sender(up: LocalSystem, services: Mapping[int, str]) -> Callable[[RawRequest], Exchange]:
    """Return a function that sends a request to a running system, and returns the answer with what the backend received.

    A request without an answer is sent a second time, since a busy machine may be late once.

    Args:
        up: The running system.
        services: Port of the backend → the Service whose requests arrive there.

    """

    def read(record: dict[str, Any]) -> Received:
        headers, trailers = (tuple((name, value) for name, value in record.pop(key)) for key in ("headers", "trailers"))
        service = services.get(record.pop("port"), "lab")
        return Received(service=service, headers=headers, trailers=trailers, **record)

    def attempt(request: RawRequest) -> Exchange:
        answer = wire.exchange(up.connect, request)
        received = map(read, json.loads(up.ask("backend", CONTROL_PORT, "/take")))
        kept = wire.KEPT_HEADER.lower()
        clients = (item for item in received if all(name.lower() != kept for name, _ in item.headers))
        return Exchange(request, answer, tuple(clients))

    def send(request: RawRequest) -> Exchange:
        first = attempt(request)
        # A busy machine may be late once; a system that never answers is late twice.
        return attempt(request) if first.answer.error.startswith(wire.NO_ANSWER) else first

    up.ask("backend", CONTROL_PORT, "/take")
    return send


def wait_for_routes(requests: Sequence[RawRequest], send: Callable[[RawRequest], Exchange]) -> None:
    """Wait until a system has probably loaded all routes, that is, until its answers no longer change.

    Plain requests to all routes are repeated. Their answers must stay equal for SETTLED_S seconds, or for EMPTY_S seconds if
    a route is still answered as if it were missing. After SETTLE_S seconds the wait ends in any case.

    Args:
        requests: All requests of the verification, among which are the plain ones.
        send: The function that sends a request.

    """
    probes = [item for item in requests if item.case.endswith(_PLAIN)]
    deadline, before, since = time.monotonic() + SETTLE_S, list[tuple[int, bool]](), time.monotonic()
    while time.monotonic() < deadline:
        now = [(item.answer.status, bool(item.received)) for item in map(send, probes)]
        if now != before:
            before, since = now, time.monotonic()
        missing = any(status in _NO_ROUTE for status, _ in now)
        if time.monotonic() - since >= (EMPTY_S if missing else SETTLED_S):
            return
        time.sleep(0.1)
