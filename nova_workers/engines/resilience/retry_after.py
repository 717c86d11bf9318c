"""Reads the wait that a provider asks for."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["retry_after_s"]


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the requested wait in seconds from an answer's headers, in any of its three formats; None without one."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        given = headers.get("retry-after", "")
        if not given:
            return None
        try:
            seconds = float(given)
        except ValueError:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
