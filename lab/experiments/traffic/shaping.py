"""The mix of requests in an access log, and the sweep (list of load points) that makes such requests.

Hosts and paths are replaced by numbers in the order of their frequency, the most frequent first. If a path has responses
of many sizes, the frequent sizes stay as they are. The others are divided into groups of neighbouring sizes, and each
group gets its mean size in whole bytes. So the shares of the frequent paths are exact, and the total of bytes nearly so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from lab.base.errors import UsageError
from lab.experiments.traffic.reading import PATHS, AccessLog
from lab.model.sweeps import Sweep
from lab.model.traffic import MAX_BYTES, MAX_ROUTES, LogCounts, Traffic
from lab.records.sweep_files import load_sweep

SWEEP = "traffic"
MAX_PATHS = 1000
"""The paths that have a number to themselves. The rarer ones share `SHARED_PATHS` more."""
SHARED_PATHS = 100
SIZES = 2000
"""The approximate number of different sizes in a mix. A path has a part of them in proportion to its requests, and at least `LEAST_SIZES`."""
LEAST_SIZES = 3
GAP_QUANTILES = 50
"""The number of quantiles that describe the gaps between requests."""
LEAST_REQUESTS, LONGEST_S = 1000, 60.0
"""The requests that a sample at the log's rate should have, and the longest that it lasts for them, in seconds."""


def make_traffic(log: AccessLog, seed: int) -> Traffic:
    """Return the mix of requests in an access log: how often each method, host, path and size occurs, and at which intervals.

    Args:
        log: The log.
        seed: The seed of the random order in which the mix is requested.

    """
    hosts_are = log.hosts_are if any(line.host for line in log.lines) else PATHS
    hosts = [  # in a log without hosts, the first segment of the path takes the place of the host
        line.path.split("/", 2)[1] if hosts_are == PATHS and "/" in line.path else line.host for line in log.lines
    ]
    host_ranks = _rank(hosts)
    path_ranks = _rank(zip(hosts, (line.path for line in log.lines), strict=True))
    sizes: defaultdict[tuple[str, int, int], list[int]] = defaultdict(list)
    for line, host in zip(log.lines, hosts, strict=True):
        rank = path_ranks[host, line.path]
        path = rank if rank < MAX_PATHS else MAX_PATHS + rank % SHARED_PATHS
        sizes[line.method, host_ranks[host] % MAX_ROUTES + 1, path + 1].append(min(line.size_bytes, MAX_BYTES))
    shapes = [
        (count, method, host, path, size)
        for (method, host, path), of_path in sizes.items()
        for size, count in _group_sizes(of_path, max(LEAST_SIZES, round(SIZES * len(of_path) / len(hosts))))
    ]
    times_s, span_s = _spread_times([line.time_s for line in log.lines])
    counts = LogCounts(
        format=log.format,
        requests=len(hosts),
        unread=log.unread,
        first_unread=log.first_unread,
        hosts=len(host_ranks),
        hosts_are=hosts_are,
        paths=len(path_ranks),
        cut=sum(line.size_bytes > MAX_BYTES for line in log.lines),
        span_s=round(span_s, 3),
        rate_rps=float(f"{len(hosts) / span_s:.6g}"),
    )
    requests = (
        f"{count} {method} h{host} p{path} {size}" for count, method, host, path, size in sorted(shapes, reverse=True)
    )
    return Traffic(requests=tuple(requests), gaps=_find_gaps(times_s), seed=seed, log=counts)


def _rank(values: Iterator[tuple[str, str]] | Sequence[str]) -> Mapping[object, int]:
    """Return the rank of each value by frequency, as value → rank; 0 is the most frequent value.

    Of two equally frequent values, the one that occurs first has the lower rank.
    """
    return {value: rank for rank, (value, _) in enumerate(Counter[object](values).most_common())}


def _group_sizes(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Reduce the sizes of responses to about `most` different ones, and yield (size in bytes, number of requests) for each.

    Frequent sizes stay as they are. The other sizes are sorted and divided into groups, and the mean of each group replaces its sizes.

    Args:
        sizes: The size of each request in bytes.
        most: The approximate number of different sizes to yield.

    """
    counts = Counter(sizes)
    least = len(sizes) / most if len(counts) > most else 0
    frequent = {size: count for size, count in counts.items() if count >= least}
    others = np.sort([size for size in sizes if size not in frequent])
    grouped = Counter(frequent)
    for group in np.array_split(others, ceil(len(others) / least) if least else 1) if others.size else ():
        grouped[round(float(group.mean()))] += len(group)
    yield from grouped.items()


def _spread_times(times_s: Sequence[float]) -> tuple[np.ndarray, float]:
    """Return the times of all requests in ascending order, and the seconds that so many requests take at the log's rate.

    Times with fractions of a second are returned as they are. In a log with whole seconds, many requests have the same time. So
    the requests of each second are spread evenly over this second.

    The first and the last second of such a log are usually incomplete. Their requests are returned like all others. The rate
    is that of the seconds between them, if these have more than half of all requests, and else that of the whole log.

    Args:
        times_s: The times of the requests in the log, in seconds since 1970.

    """
    sorted_s = np.sort(np.array(times_s))
    span_s = float(sorted_s[-1] - sorted_s[0])
    if np.any(sorted_s % 1):
        return sorted_s, span_s * len(sorted_s) / max(1, len(sorted_s) - 1) or 1.0
    _, firsts, counts = np.unique(sorted_s, return_index=True, return_counts=True)
    within = np.arange(len(sorted_s)) - np.repeat(firsts, counts)
    inner = int(counts[1:-1].sum())
    span_s = (span_s - 1) * len(sorted_s) / inner if inner > len(sorted_s) / 2 else span_s + 1
    return sorted_s + (within + 0.5) / np.repeat(counts, counts), span_s


def _find_gaps(times_s: np.ndarray) -> tuple[float, ...]:
    """Return quantiles of the gaps between successive requests, each divided by the mean of the quantiles.

    The result is empty if there are fewer than two requests, or if all of them came at one time.

    Args:
        times_s: The times of the requests in ascending order, in seconds.

    """
    gaps = np.diff(times_s)
    if not gaps.size or not gaps.sum():
        return ()
    quantiles = np.quantile(gaps, (np.arange(GAP_QUANTILES) + 0.5) / GAP_QUANTILES)
    return tuple(float(f"{value:.4g}") for value in quantiles / max(quantiles.mean(), 1e-12))


def make_sweep(traffic: Traffic, rate_rps: float | None) -> Sweep:
    """Return the sweep `traffic` (a list of two load points) with a mix of requests: one point at saturation, one at a rate.

    Args:
        traffic: The mix.
        rate_rps: The rate in requests per second; None: the rate of the log, or if the mix comes from no log, the rate in the sweep's file.

    Raises:
        UsageError: The rate, of the log or given, is below 0.001 or above 1,000,000 requests per second.

    """
    _, sweep = load_sweep(SWEEP)
    closed, open_ = sweep.points
    rate_rps = rate_rps or (traffic.log.rate_rps if traffic.log else None)
    if rate_rps is not None:
        lasts_s = min(LONGEST_S, max(open_.duration_s, float(round(LEAST_REQUESTS / rate_rps))))
        label = f"{rate_rps:.0f}" if rate_rps >= 10 else f"{rate_rps:.3f}"
        if not 0.001 <= rate_rps <= 1_000_000:
            raise UsageError("--traffic", f"the log's mean rate is {rate_rps:g} req/s", "name one: --traffic-rate 200")
        open_ = open_.model_copy(update={"name": f"rate-{label}", "rate_rps": rate_rps, "duration_s": lasts_s})
    return sweep.model_copy(update={"traffic": traffic, "points": [closed, open_]})
