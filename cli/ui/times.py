"""Times and durations as commands print them."""

from datetime import UTC, datetime


def seconds(milliseconds: int) -> str:
    """A duration in ms as text: ``7.3 s``, ``12.0 min``, ``5.2 h``, ``3.1 d``."""
    for unit, size, until in (("s", 1_000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if milliseconds / size < until:
            return f"{milliseconds / size:.1f} {unit}"
    return f"{milliseconds / 86_400_000:.1f} d"


def moment(unix_ms: int) -> str:
    """A time in ms since 1970 as text in UTC: 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
