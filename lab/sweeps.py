"""Sweeps: one TOML file → a named list of points (loads). Refuses unknown keys, impossible numbers and values of
another type (`"5"` and `true` are no numbers).

`connections`, `rate_rps` and `page` may be lists: they are crossed, except that `rate_rps = "connections"`
offers as many requests per second as there are connections, and `requests_per_connection` makes the requests grow with
them. Whether a generator can make a load, it says itself (`Generator.refusal`).
"""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lab.errors import UsageError, did_you_mean

FOLDER = Path(__file__).parent / "sweeps"
PAGES = {
    f"{size}{suffix}": bytes_
    for size, bytes_ in [(f"{n}kB", n * 1024) for n in (1, 2, 4, 8, 16, 64)]
    + [(f"{n}MB", n * 1024 * 1024) for n in (1, 10, 100)]
    for suffix in (".bin", ".txt")
}
"""Page → size in bytes. `.bin` does not compress, `.txt` does. The backend base serves exactly these."""

Connections = Annotated[int, Field(ge=1, le=100_000)]
Rate = Annotated[float, Field(gt=0, le=10_000_000)]
Tls = Literal["none", "edge", "passthrough", "reencrypt"]
Subject = Literal["errors", "listen-overflow"]

RATE = "offered requests per second; null = closed loop"
DURATION = "how long to load; with `requests` the deadline: a generator still running well after it is killed"
WARMUP = "the same load before it, not recorded, for this long, at least 1 s; 0 = none"
THREADS = "threads of the generator, for those that have them"
REQUESTS = "end after so many requests instead of after `duration_s` (hey, oha); null = by time"
KEEPALIVE = "false = a new connection for every request"
TLS = "the routes the load goes to, by where TLS ends; `routed` = whatever the variant's routes say"
ROUTES = "how many routes (hosts) the load is spread over; `all` = as many as the variant has"
RESUMPTION = "whether new TLS connections must resume a session (true), must not (false); null = recorded only"
ENCODING = "what the client accepts: `gzip` lets the proxy compress"
LINK = "the client's link, shaped to so many Mbit/s in both directions; null = as fast as it goes"
GENERATORS = "how many generators make it together, each its part; more than one: k6, on a cluster with k6-operator"
SUBJECT = "faults that are this load's subject: counted as outcome, never a reason against a sample"


class Point(BaseModel):
    """One load: what the generator is asked for, for how long, and which page."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str = Field(description="unique in the sweep; part of sample ids")
    generator: str = Field(description="the generator asked for; a stand-in is recorded in the sample")
    connections: int
    rate_rps: float | None = Field(description=RATE)
    duration_s: float = Field(description=DURATION)
    warmup_s: float = Field(description=WARMUP)
    threads: int = Field(description=THREADS)
    page: str
    requests: int | None = Field(default=None, description=REQUESTS)
    keepalive: bool = Field(default=True, description=KEEPALIVE)
    tls: Tls | Literal["routed"] = Field(default="routed", description=TLS)
    routes: int | Literal["all"] = Field(default=1, description=ROUTES)
    resumption: bool | None = Field(default=None, description=RESUMPTION)
    accept_encoding: Literal["identity", "gzip"] = Field(default="identity", description=ENCODING)
    link_mbit: float | None = Field(default=None, description=LINK)
    generators: int = Field(default=1, description=GENERATORS)
    subject: tuple[Subject, ...] = Field(default=(), description=SUBJECT)


class PointSpec(BaseModel):
    """One `[[points]]` table as written in the file: expands to one or more `Point`s."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$",
        description="lower-case name; a list appends its value",
    )
    generator: str
    connections: Connections | Annotated[list[Connections], Field(min_length=1)]
    rate_rps: Rate | Annotated[list[Rate], Field(min_length=1)] | Literal["connections"] | None = Field(
        default=None, description=f"{RATE}; `connections` = as many as there are connections"
    )
    duration_s: float = Field(ge=1, le=86_400, description=DURATION)
    warmup_s: float = Field(default=1.0, ge=0, le=600, description=WARMUP)
    threads: int = Field(default=1, ge=1, le=256, description=THREADS)
    page: str | Annotated[list[str], Field(min_length=1)] = "1kB.bin"
    requests: Annotated[int, Field(ge=1)] | None = Field(default=None, description=REQUESTS)
    keepalive: bool = Field(default=True, description=KEEPALIVE)
    requests_per_connection: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="`requests` as a multiple of the connections, where both grow together"
    )
    tls: Tls | Literal["routed"] = Field(default="routed", description=TLS)
    routes: Annotated[int, Field(ge=1, le=10_000)] | Literal["all"] = Field(default=1, description=ROUTES)
    resumption: bool | None = Field(default=None, description=RESUMPTION)
    accept_encoding: Literal["identity", "gzip"] = Field(default="identity", description=ENCODING)
    link_mbit: Annotated[float, Field(ge=0.1, le=100_000)] | None = Field(default=None, description=LINK)
    generators: int = Field(default=1, ge=1, le=100, description=GENERATORS)
    subject: list[Subject] = Field(default_factory=list[Subject], description=SUBJECT)

    @property
    def pages(self) -> list[str]:
        return self.page if isinstance(self.page, list) else [self.page]

    @property
    def fault(self) -> str | None:
        """What is wrong with these keys together: `key: fault`. What a generator cannot do, it says itself."""
        if unknown := next((page for page in self.pages if page not in PAGES), None):
            return f"page: unknown page {unknown!r}: {did_you_mean(unknown, PAGES)}"
        if self.requests is not None and self.requests_per_connection is not None:
            return "requests: so is requests_per_connection given: keep one"
        if self.resumption is not None and self.tls == "none":
            return 'resumption: there is no TLS to resume: leave it out, or leave out tls = "none"'
        if self.generators > 1 and self.generator != "k6":
            return f"generators: only k6 is run as several at once, not {self.generator}"
        if len(set(self.subject)) < len(self.subject):
            return f"subject: {self.subject[0]!r} stands there twice"
        return None

    def expand(self) -> list[Point]:
        """Every combination of the lists. What is called the same in `Point` and has no list of values is handed on."""
        connections = self.connections if isinstance(self.connections, list) else [self.connections]
        rates = self.rate_rps if isinstance(self.rate_rps, list) else [self.rate_rps]
        same = PointSpec.model_fields.keys() & Point.model_fields.keys()
        fixed = self.model_dump(include=same - {"name", "connections", "rate_rps", "page", "requests", "subject"})
        points: list[Point] = []
        for clients, rate, page in product(connections, rates, self.pages):
            labels = [self.name]
            labels += [f"c{clients}"] if len(connections) > 1 else []
            labels += [f"r{rate:g}"] if len(rates) > 1 and isinstance(rate, float) else []
            labels += [page.lower()] if len(self.pages) > 1 else []
            each = self.requests_per_connection
            points.append(
                Point(
                    **fixed,
                    name="-".join(labels),
                    connections=clients,
                    rate_rps=float(clients) if isinstance(rate, str) else rate,
                    page=page,
                    requests=self.requests if each is None else each * clients,
                    subject=tuple(self.subject),
                )
            )
        return points


class Sweep(BaseModel):
    """A sweep file. `blocks` is the default number of blocks; fewer than six give no interval."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str
    question: str
    blocks: Annotated[int, Field(ge=1, le=1000)]
    study: str | None = None
    points: list[PointSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Sweep:
        names = [point.name for point in self.expanded()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"points: two points are called {twice[0]!r}")
        for spec in self.points:
            if spec.fault is not None:
                raise ValueError(f"points.{spec.name}.{spec.fault}")
        return self

    def expanded(self) -> list[Point]:
        return [point for spec in self.points for point in spec.expand()]


def sweep_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_sweep(name_or_path: str) -> tuple[str, Sweep]:
    """(name, sweep) of a sweep in `lab/sweeps/`, or of a file given by its path (ends in .toml)."""
    path = Path(name_or_path) if name_or_path.endswith(".toml") else FOLDER / f"{name_or_path}.toml"
    place = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    try:
        return path.stem, Sweep.model_validate(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise UsageError(
            "--sweep",
            f"unknown sweep '{name_or_path}'",
            did_you_mean(name_or_path, sweep_names()),
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(place, f"not TOML: {error}", "see lab/sweeps/quick.toml for the form") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(place, f"cannot be read: {error}", "make it a readable text file") from None
    except ValidationError as error:
        raise UsageError(
            place,
            "; ".join(faults(error, PointSpec, Sweep)),
            "lab/schema/sweep.json lists every key",
        ) from None


def faults(error: ValidationError, *models: type[BaseModel]) -> list[str]:
    """pydantic's errors as `key.path: expected …, got …`, unknown keys with the nearest key of `models`."""
    known = {name for model in models for name in model.model_fields}
    found = []
    for item in error.errors():
        where = ".".join(
            str(part)
            for part in item["loc"]
            if not str(part).startswith(("constrained", "list[", "literal", "float", "int"))
        )
        if item["type"] == "extra_forbidden":
            key = str(item["loc"][-1])
            found.append(f"{where}: unknown key: {did_you_mean(key, known)}")
        elif item["type"] == "value_error":
            found.append(item["msg"].removeprefix("Value error, "))
        else:
            found.append(f"{where}: {item['msg'][0].lower()}{item['msg'][1:]}, got {item['input']!r}")
    return list(dict.fromkeys(found))
