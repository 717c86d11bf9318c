"""What Codex's error messages mean. It reports most of the provider's errors in words of its own (0.169)."""

import re
from typing import Final

from nova_workers.engines.verdicts import (
    INVALID,
    NO_MODEL,
    OUT_OF_ORDER,
    OVERFLOW,
    PROGRAM_MEDIA,
    RATE_LIMITED,
    REFUSED,
    UNPAID,
    VerdictTable,
    pattern,
)

VERDICTS: Final = VerdictTable(
    status=re.compile(r"\bstatus:? (\d{3})\b"),
    words=(
        (pattern(r"context window|context length|exceeds the maximum length"), OVERFLOW),
        (pattern(r"quota exceeded|usage limit|billing"), UNPAID),
        (pattern(r"invalid api key|incorrect api key"), REFUSED),
        (pattern(r"rate limit|too many requests"), RATE_LIMITED),
        (pattern(r"model .*(?:does not exist|not found|not supported)"), NO_MODEL),
        (
            pattern(
                r"high demand|overloaded|at capacity|stream disconnected|connection failed|error sending request"
                r"|timed? ?out|idle timeout|internal server error"
            ),
            OUT_OF_ORDER,
        ),
        (pattern(r"invalid[ _](?:request|image|value|type)|bad request|unsupported (?:parameter|value)"), INVALID),
    ),
    media=PROGRAM_MEDIA,
)
