"""Numbers as people read them: rates, latencies, durations, percentages. Everything inside the lab is seconds, bytes and ratios."""

from __future__ import annotations

from math import expm1, floor, log10

from lab.stats.histogram import LIMIT_US, UNIT_S


def format_blocks(count: int) -> str:
    return f"{count} block" if count == 1 else f"{count} blocks"


def format_percent(log_ratio: float) -> str:
    """A log-ratio as a signed percentage with one decimal and a true minus sign: −12.3."""
    return f"{round(100 * expm1(log_ratio), 1) + 0.0:+.1f}".replace("-", "−")


def format_size(log_ratio: float) -> str:
    return f"{100 * expm1(log_ratio):.1f} %"


def format_interval(low: float | None, high: float | None) -> str:
    return f" [{format_percent(low)}, {format_percent(high)}]" if low is not None and high is not None else ""


def format_rate(value: float | None) -> str:
    """Requests per second without the unit: 999.8, 1,000, 23,456; – for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10_000 or float(value).is_integer() else f"{value:,.1f}"


def format_seconds(value_s: float | None) -> str:
    """A latency with three significant digits and its unit: 210 µs, 3.61 ms, 1.20 s; – for None."""
    if value_s is None:
        return "–"
    scale, unit = (1.0, "s") if value_s >= 0.9995 else (1e3, "ms") if value_s >= 0.9995e-3 else (1e6, "µs")
    return f"{three_digits(value_s, scale)} {unit}"


def format_micros(value_s: float) -> str:
    """Seconds as signed µs, of which hundredths are shown below 1, none from 100 on: −0.24, +41.5, 0 for nothing."""
    value = value_s * 1e6
    after = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 0.995 else 2
    return f"{value:+,.{after}f}".replace("-", "−") if round(value, after) else "0"


def format_bytes(value: float | None) -> str:
    """A size with three significant digits: 950 B, 61.2 kB, 12.3 MB, 1.05 GB (powers of 1000); – for None."""
    if value is None:
        return "–"
    steps = ((1e-9, "GB"), (1e-6, "MB"), (1e-3, "kB"))
    scale, unit = next(((scale, unit) for scale, unit in steps if value * scale >= 0.9995), (1.0, "B"))
    return f"{value:.0f} B" if unit == "B" else f"{_three(value * scale)} {unit}"


def format_duration(value_s: float) -> str:
    """How long something takes, for people: 45 s, 5 min 10 s, 2 h 5 min."""
    seconds = round(value_s)
    minutes, hours = seconds // 60, seconds // 3600
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"


def three_digits(value_s: float | None, scale: float) -> str:
    """Three significant digits, whole numbers from 100 on; the histogram's end is a bound, not a value."""
    if value_s is None:
        return "–"
    bound = "≥" if value_s >= LIMIT_US * UNIT_S else ""
    return f"{bound}{_three(value_s * scale)}"


def significant(value: float, count: int) -> str:
    """Return a number with so many significant digits, for what is not known any better: with two 24, 0.33, 19,000."""
    if not value:
        return "0"
    rounded = round(value, count - 1 - floor(log10(abs(value))))
    decimals = max(0, count - 1 - floor(log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def digits(value: float | None) -> str:
    """Three significant digits, whole numbers from 100 on; – for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def format_range(low: float, high: float) -> str:
    """Return the ends of what too few blocks range over, with two significant digits: 19–24; one number where they are the same."""
    return "–".join(dict.fromkeys(significant(end, 2) for end in (low, high)))


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """12.3 [11.9, 12.8], without an end that there is not."""
    return digits(value) + (f" [{digits(low)}, {digits(high)}]" if low is not None and high is not None else "")


def _three(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{value:,.{digits}f}"
