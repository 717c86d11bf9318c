"""Who may write to a channel, and how often a stranger gets a refusal."""

import time
from collections.abc import Callable, Collection

ANYONE = "*"
_REFUSED_AGAIN_S = 3_600.0
_MAX_STRANGERS = 1_000
"""Above it no further stranger gets a refusal, until the first may have another: memory and replies stay bounded."""


class AllowList:
    """The senders of a channel that may write to agents."""

    def __init__(self, senders: Collection[str], *, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Permit these senders; an asterisk permits everyone."""
        self._senders = frozenset(senders)
        self._clock_s = clock_s
        self._refused_s: dict[str, float] = {}
        self._paired_s: dict[str, float] = {}

    def permits(self, sender: str) -> bool:
        """Return whether a sender may write."""
        is_named = ANYONE in self._senders or sender in self._senders
        return is_named or self._paired_s.get(sender, 0.0) > self._clock_s()

    def permit_for(self, sender: str, seconds: float) -> None:
        """Permit a sender for some time, as its pairing was found."""
        now_s = self._clock_s()
        self._paired_s = {known: until_s for known, until_s in self._paired_s.items() if until_s > now_s}
        self._paired_s[sender] = now_s + seconds

    def should_refuse(self, sender: str) -> bool:
        """Return whether a stranger should get a refusal now: once an hour each, in a bounded number."""
        now_s = self._clock_s()
        while self._refused_s:
            oldest = next(iter(self._refused_s))
            if now_s - self._refused_s[oldest] < _REFUSED_AGAIN_S:
                break
            del self._refused_s[oldest]
        if sender in self._refused_s or len(self._refused_s) >= _MAX_STRANGERS:
            return False
        self._refused_s[sender] = now_s
        return True
