"""Bounds of what a model provider sends: waits, counts, names and words.

A provider, or a gateway in front of it, may send any number and any text, and SDKs do not check the types of what they
stream. What a wait, a count or a name may be is decided here, for all engines.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from nova_workers.contracts.content import storable

MAX_WAIT_S = 300.0
"""Longest wait that a provider can impose. A quota that is spent for longer is found spent again by one call."""
MAX_COUNT = 1_000_000_000
"""A thousand times what the largest models read: the total of a program's long turn is below it as well."""
MAX_COST_USD = 100_000.0
"""What the ledger's columns hold many times over."""
MAX_NAME_CHARS = 200
MAX_SAID_CHARS = 1_000


def wait_s(given: float) -> float | None:
    """Return a wait within the bounds; None for one that is not finite."""
    return min(max(0.0, given), MAX_WAIT_S) if math.isfinite(given) else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the requested wait in seconds from an answer's headers, in any of its three formats; None without one."""
    try:
        if "retry-after-ms" in headers:
            return wait_s(float(headers["retry-after-ms"]) / 1000)
        given = headers.get("retry-after", "")
        if not given:
            return None
        try:
            seconds = float(given)
        except ValueError:
            seconds = (parsedate_to_datetime(given) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return wait_s(seconds)


def count(given: object) -> int:
    """Return a count within the bounds; 0 for what is no number."""
    if isinstance(given, bool) or not isinstance(given, int | float) or math.isnan(given):
        return 0
    return int(min(max(0, given), MAX_COUNT))


def name(given: object) -> str:
    """Return the name of a model, or an id, within the bounds; empty for what is no text."""
    return storable(given[:MAX_NAME_CHARS]) if isinstance(given, str) else ""


def said(words: str) -> str:
    """Return the provider's words within the bounds."""
    return words if len(words) <= MAX_SAID_CHARS else f"{words[:MAX_SAID_CHARS]} […]"
