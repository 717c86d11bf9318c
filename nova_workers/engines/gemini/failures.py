"""What Gemini CLI's error messages mean (0.61): mostly the provider's error as JSON, within its own words."""

import re
from typing import Final

from nova_workers.engines.verdicts import (
    FORBIDDEN,
    INVALID,
    NO_MODEL,
    OUT_OF_ORDER,
    OVERFLOW,
    PROGRAM_MEDIA,
    RATE_LIMITED,
    REFUSED,
    VerdictTable,
    pattern,
)

VERDICTS: Final = VerdictTable(
    first=(
        (pattern(r"exceeds the maximum number of tokens|token count .* exceeds|context window"), OVERFLOW),
        (pattern(r"api key not valid|api_key_invalid|invalid auth method|unauthenticated"), REFUSED),
    ),
    status=re.compile(r"(?:\bstatus:? |\"?code\"?\s*:\s*|\bgot status: )(\d{3})\b"),
    words=(
        (pattern(r"permission_denied"), FORBIDDEN),
        (pattern(r"quota|resource_exhausted|rate limit|too many requests"), RATE_LIMITED),
        (pattern(r"model.*(?:not found|does not exist)|requested entity was not found|not_found"), NO_MODEL),
        (pattern(r"invalid_argument"), INVALID),
        (
            pattern(
                r"overloaded|unavailable|internal error|fetch failed|econn|socket hang up|network|timed? ?out|stream"
                r"|\bterminated\b"
            ),
            OUT_OF_ORDER,
        ),
    ),
    media=PROGRAM_MEDIA,
)
