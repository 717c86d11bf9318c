"""Keeps the log of an outage short: one line for each state, however often the process meets it."""

import time
from collections.abc import Callable

import structlog
from structlog.typing import EventDict, WrappedLogger

_SAME_STATE_S = 60.0
"""A line that repeats one of less than this ago reports no new state. Longer than any pause between two attempts."""


class OneLineAState:
    """Drops a line of an outage that repeats an earlier one.

    A line belongs to an outage if it has the field ``outage``, which names what is away: ``redis``, ``postgres``,
    ``api``. Without this, a loop that tries again and each message that waits would write a line each time: hundreds a
    second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen_s: dict[tuple[object, object], float] = {}

    def __call__(self, logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
        """Return the line, or drop it.

        Raises:
            DropEvent: It repeats the line of a state that lasts.
        """
        outage = event_dict.get("outage")
        if outage is None:
            return event_dict
        key, now_s = (event_dict.get("event"), outage), self._clock()
        last_s = self._seen_s.get(key)
        self._seen_s[key] = now_s
        if last_s is not None and now_s - last_s < _SAME_STATE_S:
            raise structlog.DropEvent
        return event_dict
