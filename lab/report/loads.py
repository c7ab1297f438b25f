"""The description of a load and of its disruption in words, for tables, pages and plans."""

from __future__ import annotations

from collections import Counter

from lab.model.sweeps import LoadPoint
from lab.model.traffic import MAX_BYTES, Traffic
from lab.stats.units import format_bytes, format_duration


def describe_load(point: LoadPoint) -> str:
    """Return the load of a load point in words: `64 connections, closed loop, 5 s, 1kB.bin, new connection per request`."""
    if point.websocket:
        many = f"{point.connections:,} WebSockets{f', TLS {point.tls}' if point.tls not in ('none', 'routed') else ''}"
        return (
            f"{many}, a message of {point.event_bytes} bytes every {point.every_s:g} s on each, {point.duration_s:g} s"
        )
    if point.every_s is not None:
        many = f"{point.connections * point.streams:,} streams" + (
            f" on {point.connections:,} connections" * (point.streams > 1)
        )
        held = f", held for {point.held_s * 1e3:g} ms" if point.held_s else ""
        version = ", HTTP/2" if point.protocol == "h2" else ""
        return f"{many}{version}, an event of {point.event_bytes} bytes every {point.every_s:g} s{held}, {point.duration_s:g} s"
    load = f"{point.rate_rps:,g} req/s" if point.rate_rps is not None else "closed loop"
    amount = f"{point.requests:,} requests" if point.requests is not None else f"{point.duration_s:g} s"
    apart = ", each a value of its own" if point.singly else ""
    extra = (
        (not point.keepalive, "new connection per request"),
        (point.tls not in ("none", "routed"), f"TLS {point.tls}"),
        (point.protocol == "h2", "gRPC" if point.grpc else "HTTP/2"),
        (point.messages > 0, f"{point.messages} messages for each call"),
        (point.streams > 1, f"{point.streams} requests at once on each"),
        (point.window_bits is not None, f"windows of 2^{point.window_bits} bytes"),
        (point.link_mbit is not None, f"client link {point.link_mbit or 0.0:g} Mbit/s"),
        (bool(point.link_delay_ms), f"{point.link_delay_ms:g} ms more per round trip"),
        (point.accept_encoding != "identity", f"accepts {point.accept_encoding}"),
        (bool(point.answers), f"answered {' or '.join(map(str, point.answers))}"),
        (point.routes != 1, f"{point.routes} routes"),
        (point.resumption is not None, f"TLS sessions {'' if point.resumption else 'not '}resumed"),
        (point.generations > 1, f"a pair on {point.generations} generations of workers{apart}"),
        (point.repeats > 1, f"{point.repeats} times on each"),
    )
    details = [text for applies, text in extra if applies]
    page = point.page or "/" if point.traffic is None else str(point.traffic)
    page += f" {point.transfer}ed" if point.transfer is not None else ""
    return ", ".join([f"{point.connections:,} connections", load, amount, page, *details])


def describe_traffic(traffic: Traffic) -> list[str]:
    """Return lines of text about a mix of requests: shares of the methods, sizes of the answers, numbers of routes and paths.

    If the mix was made from an access log, further lines describe the log, and which parts of it the mix does not contain.
    """
    shapes, log = traffic.shapes, traffic.log
    count = sum(shape.count for shape in shapes)
    methods = Counter[str]()
    for shape in shapes:
        methods[shape.method] += shape.count
    shares = ", ".join(f"{method} {number / count:.1%}" for method, number in methods.most_common())
    sizes = (
        format_bytes(max(shape.size_bytes for shape in shapes)),
        format_bytes(traffic.mean_bytes(len(traffic.order))),
    )
    paths = len({shape.path for shape in shapes})
    lines = [f"{shares}; answers of up to {sizes[0]}, {sizes[1]} on average; {traffic.routes} routes, {paths} paths"]
    if log is None:
        return lines
    read = f"{log.requests:,} requests in the format {log.format}, {log.rate_rps:,g} a second for {format_duration(log.span_s)}"
    unread = (
        f"{log.unread:,} line{'' if log.unread == 1 else 's'} could not be read, the first is line {log.first_unread}"
    )
    cut = f"{log.cut:,} answers were longer than {format_bytes(MAX_BYTES)} and are cut to that"
    return [
        f"{read}: {log.hosts:,} {log.hosts_are}, {log.paths:,} paths",
        *lines,
        *([unread] if log.unread else []),
        *([cut] if log.cut else []),
        "requests have no body, and every answer is a 200 of the size that is in the log",
        "stored are shapes and counts: hosts and paths are numbers, and nothing else of the log is kept",
    ]


def describe_kind(point: LoadPoint) -> str:
    """Return a load point's load and disruption in words, without its duration and repeats.

    Duration and repeats change the precision of an effect, but not the effect. So the same load in several runs gets equal words.
    """
    plain = point.model_copy(update={"duration_s": 0.0, "generations": 1, "repeats": 1, "singly": False})
    return "; ".join(filter(None, [describe_load(plain).replace(", 0 s", ""), describe_disruption(point)]))


def describe_disruption(point: LoadPoint) -> str:
    """Return a load point's disruption in words, with its time and all its settings that are not null.

    Example: `starve after 5 s (role proxy, cpu 20m, for_s 10, recovers_s 5)`. The text is empty for a load point
    without a disruption.
    """
    if point.disturbance is None:
        return ""
    settings = point.disturbance.model_dump(exclude_none=True)
    kind, at_s = settings.pop("kind"), settings.pop("at_s")
    details = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in settings.items()
    )
    return f"{kind} after {at_s:g} s" + (f" ({details})" if details else "")


def describe_point(point: LoadPoint) -> str:
    """Return a load point's load and disruption in words. For a control run, the text says that nothing is done to the system."""
    done = "nothing is done to the system" if point.control else describe_disruption(point)
    return "; ".join(filter(None, [describe_load(point), done]))
