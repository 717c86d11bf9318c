"""What Codex's error messages mean. It reports most of the provider's errors in words of its own (0.169)."""

import re

from nova_workers.engines.verdicts import (
    INVALID,
    NO_MODEL,
    OUT_OF_ORDER,
    OVERFLOW,
    RATE_LIMITED,
    REFUSED,
    UNPAID,
    Verdict,
    of_status,
)

__all__ = ["verdict"]

_STATUS = re.compile(r"\bstatus:? (\d{3})\b")
_BY_WORDS: tuple[tuple[re.Pattern[str], Verdict], ...] = (
    (re.compile(r"context window|context length|exceeds the maximum length", re.IGNORECASE), OVERFLOW),
    (re.compile(r"quota exceeded|usage limit|billing", re.IGNORECASE), UNPAID),
    (re.compile(r"invalid api key|incorrect api key", re.IGNORECASE), REFUSED),
    (re.compile(r"rate limit|too many requests", re.IGNORECASE), RATE_LIMITED),
    (re.compile(r"model .*(?:does not exist|not found|not supported)", re.IGNORECASE), NO_MODEL),
    (
        re.compile(
            r"high demand|overloaded|at capacity|stream disconnected|connection failed|error sending request"
            r"|timed? ?out|idle timeout|internal server error",
            re.IGNORECASE,
        ),
        OUT_OF_ORDER,
    ),
    (re.compile(r"invalid[ _](?:request|image|value|type)|bad request|unsupported (?:parameter|value)", re.I), INVALID),
)
"""Patterns for messages without a status. The first match counts."""


def verdict(message: str) -> Verdict | None:
    """Return what a message means; None if it is unknown."""
    status = _STATUS.search(message)
    if status is not None:
        return of_status(int(status[1]))
    return next((found for pattern, found in _BY_WORDS if pattern.search(message)), None)
