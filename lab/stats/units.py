"""Text for rates, latencies, durations and percentages. Numbers inside the lab are seconds, bytes and ratios."""

from __future__ import annotations

from math import expm1, floor, log10

from lab.stats.histogram import LIMIT_US, UNIT_S


def format_blocks(count: int) -> str:
    """Return a number of blocks (repetitions) as text: 1 block, 6 blocks."""
    return f"{count} block" if count == 1 else f"{count} blocks"


def format_percent(log_ratio: float) -> str:
    """Return a log-ratio as a signed percentage with one decimal, a true minus sign and no unit: −12.3."""
    return f"{round(100 * expm1(log_ratio), 1) + 0.0:+.1f}".replace("-", "−")


def format_size(log_ratio: float) -> str:
    """Return a log-ratio as a percentage with one decimal and its unit: 12.3 %."""
    return f"{100 * expm1(log_ratio):.1f} %"


def format_interval(low: float | None, high: float | None) -> str:
    """Return an interval of log-ratios as percentages, with a leading space: ` [−12.3, +4.5]`; empty if an end is None."""
    return f" [{format_percent(low)}, {format_percent(high)}]" if low is not None and high is not None else ""


def format_rate(value: float | None) -> str:
    """Return requests per second without the unit: 999.8, 1,000, 23,456; – for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10_000 or float(value).is_integer() else f"{value:,.1f}"


def format_seconds(value_s: float | None) -> str:
    """Return a latency with three significant digits and its unit: 210 µs, 3.61 ms, 1.20 s; – for None."""
    if value_s is None:
        return "–"
    scale, unit = (1.0, "s") if value_s >= 0.9995 else (1e3, "ms") if value_s >= 0.9995e-3 else (1e6, "µs")
    return f"{format_three_digits(value_s, scale)} {unit}"


def format_micros(value_s: float) -> str:
    """Return seconds as µs with a sign: −0.24, +41.5, +120, or 0.

    There are two decimals below 1, one below 100, and none from 100 on.
    """
    value = value_s * 1e6
    decimals = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 0.995 else 2
    return f"{value:+,.{decimals}f}".replace("-", "−") if round(value, decimals) else "0"


def format_bytes(value: float) -> str:
    """Return a size in bytes with three significant digits and its unit: 950 B, 61.2 kB, 1.05 GB.

    The units are powers of 1000.
    """
    steps = ((1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB"))
    scale, unit = next(((scale, unit) for scale, unit in steps if value * scale >= 0.9995), (1.0, "B"))
    return f"{value:.0f} B" if unit == "B" else f"{_format_three_digits(value * scale)} {unit}"


def format_duration(value_s: float) -> str:
    """Return a duration in seconds as text: 45 s, 5 min 10 s, 2 h 5 min."""
    seconds = round(value_s)
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def format_three_digits(value_s: float, scale: float) -> str:
    """Return a latency times `scale` with three significant digits: 0.361, 3.61, 1,234.

    From 100 on it is a whole number. A latency at the end of the histogram's range (120 s) gets a ≥, because longer
    ones are recorded as this one.

    Args:
        value_s: The latency in seconds.
        scale: The factor that converts seconds to the displayed unit, such as 1000 for ms.

    """
    bound = "≥" if value_s >= LIMIT_US * UNIT_S else ""
    return f"{bound}{_format_three_digits(value_s * scale)}"


def format_significant(value: float, count: int) -> str:
    """Return an imprecise number with few significant digits: with two digits 24, 0.33, 19,000.

    Args:
        value: The number.
        count: The number of significant digits.

    """
    if not value:
        return "0"
    rounded = round(value, count - 1 - floor(log10(abs(value))))
    decimals = max(0, count - 1 - floor(log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def format_digits(value: float | None) -> str:
    """Return a number with three significant digits, or as a whole number from 100 on: 0.123, 12.3, 1,234; – for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def format_range(low: float, high: float) -> str:
    """Return the range of a few values with two significant digits: 19–24; a single number if both ends are equal."""
    return "–".join(dict.fromkeys(format_significant(end, 2) for end in (low, high)))


def format_with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return a number with its interval: 12.3 [11.9, 12.8]; without the interval if an end is None."""
    return format_digits(value) + (
        f" [{format_digits(low)}, {format_digits(high)}]" if low is not None and high is not None else ""
    )


def _format_three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{value:,.{decimals}f}"
