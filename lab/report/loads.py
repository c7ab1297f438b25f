"""A load in words, and what is done to a system meanwhile; a module of its own, as plans say both and print no table."""

from __future__ import annotations

from lab.model.sweeps import Point


def load_text(point: Point) -> str:
    """A point's load in words: `64 connections, closed loop, 5 s, 1kB.bin, new connection per request`."""
    load = f"{point.rate_rps:,g} req/s" if point.rate_rps is not None else "closed loop"
    extra = ["new connection per request"] if not point.keepalive else []
    extra += [f"TLS {point.tls}"] if point.tls not in ("none", "routed") else []
    extra += ["HTTP/2"] if point.protocol == "h2" else []
    extra += [f"{point.streams} requests at once on each"] if point.streams > 1 else []
    extra += [f"client link {point.link_mbit:g} Mbit/s"] if point.link_mbit is not None else []
    extra += [f"accepts {point.accept_encoding}"] if point.accept_encoding != "identity" else []
    extra += [f"answered {' or '.join(map(str, point.answers))}"] if point.answers else []
    extra += [f"{point.routes} routes"] if point.routes != 1 else []
    extra += [f"TLS sessions {'' if point.resumption else 'not '}resumed"] if point.resumption is not None else []
    if point.generations > 1:
        extra.append(
            f"a pair on {point.generations} generations of workers{', each a value of its own' if point.singly else ''}"
        )
    extra += [f"{point.repeats} times on each"] if point.repeats > 1 else []
    amount = f"{point.requests:,} requests" if point.requests is not None else f"{point.duration_s:g} s"
    return ", ".join([f"{point.connections:,} connections", load, amount, point.page or "/", *extra])


def disturbance_text(point: Point) -> str:
    """What is done, and when: `kill after 5 s (role proxy, how delete)`."""
    if point.disturbance is None:
        return ""
    told = point.disturbance.model_dump(exclude_none=True)
    kind, at_s = told.pop("kind"), told.pop("at_s")
    details = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in told.items()
    )
    return f"{kind} after {at_s:g} s" + (f" ({details})" if details else "")


def point_text(point: Point) -> str:
    """Both; of a control run that there is nothing."""
    done = "nothing is done to the system" if point.control else disturbance_text(point)
    return "; ".join(filter(None, [load_text(point), done]))
