"""What Gemini CLI's error messages mean (0.61): mostly the provider's error as JSON, within its own words."""

import re

from nova_workers.engines.verdicts import (
    FORBIDDEN,
    INVALID,
    NO_MODEL,
    OUT_OF_ORDER,
    OVERFLOW,
    RATE_LIMITED,
    REFUSED,
    Verdict,
    of_status,
)

__all__ = ["verdict"]

_STATUS = re.compile(r"(?:\bstatus:? |\"?code\"?\s*:\s*|\bgot status: )(\d{3})\b")
_FIRST: tuple[tuple[re.Pattern[str], Verdict], ...] = (
    (re.compile(r"exceeds the maximum number of tokens|token count .* exceeds|context window", re.I), OVERFLOW),
    (re.compile(r"api key not valid|api_key_invalid|invalid auth method|unauthenticated", re.IGNORECASE), REFUSED),
)
"""Patterns that say more than a status."""
_BY_WORDS: tuple[tuple[re.Pattern[str], Verdict], ...] = (
    (re.compile(r"permission_denied", re.IGNORECASE), FORBIDDEN),
    (re.compile(r"quota|resource_exhausted|rate limit|too many requests", re.IGNORECASE), RATE_LIMITED),
    (
        re.compile(r"model.*(?:not found|does not exist)|requested entity was not found|not_found", re.IGNORECASE),
        NO_MODEL,
    ),
    (re.compile(r"invalid_argument", re.IGNORECASE), INVALID),
    (
        re.compile(
            r"overloaded|unavailable|internal error|fetch failed|econn|socket hang up|network|timed? ?out|stream"
            r"|\bterminated\b",
            re.IGNORECASE,
        ),
        OUT_OF_ORDER,
    ),
)
"""Patterns for messages without a status. The first match counts."""


def verdict(message: str) -> Verdict | None:
    """Return what a message means; None if it is unknown."""
    for pattern, found in _FIRST:
        if pattern.search(message):
            return found
    status = _STATUS.search(message)
    if status is not None:
        return of_status(int(status[1]))
    return next((found for pattern, found in _BY_WORDS if pattern.search(message)), None)
