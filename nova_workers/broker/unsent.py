"""Doorbells that the broker did not take: they are sent again until it does, or the reconciler has rung instead."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

__all__ = ["Ring", "UnsentRings"]

_PAUSE_S = 0.25
_MOST = 2_000
_LIFE_S = 30.0
"""The reconciler has found the runs by then."""


class Ring(NamedTuple):
    """A message for a queue."""

    task: str
    queue: str
    kwargs: dict[str, Any]


class UnsentRings:
    """Sends again, in order, on a thread of its own that ends when nothing is left."""

    def __init__(self, send: Callable[[Ring], bool], on_lost: Callable[[Ring], None]) -> None:
        """Take the callbacks.

        Args:
            send: Sends a message, and returns whether it is settled. If not, the broker is away: later messages wait.
            on_lost: Called with each message that is not sent again.
        """
        self._send = send
        self._on_lost = on_lost
        self._waiting: deque[tuple[Ring, float]] = deque()
        self._lock = threading.Lock()
        self._is_sending = False
        self._closed = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="doorbells-again")

    def add(self, ring: Ring) -> None:
        """Send a message later. Never blocks."""
        with self._lock:
            if self._closed.is_set() or len(self._waiting) >= _MOST:
                self._on_lost(ring)
                return
            self._waiting.append((ring, time.monotonic() + _LIFE_S))
            if self._is_sending:
                return
            self._is_sending = True
        self._executor.submit(self._send_all)

    def close(self) -> None:
        """Stop; what is left is lost."""
        with self._lock:
            self._closed.set()
            lost, self._waiting = self._waiting, deque()
        for ring, _ in lost:
            self._on_lost(ring)
        self._executor.shutdown(wait=True)

    def _send_all(self) -> None:
        while not self._closed.wait(_PAUSE_S):
            while (ring := self._next()) is not None:
                if not self._send(ring):
                    break
                self._forget(ring)
            else:
                return

    def _next(self) -> Ring | None:
        """Return the oldest message that is worth sending. None ends the thread's work."""
        with self._lock:
            while self._waiting:
                ring, until_s = self._waiting[0]
                if time.monotonic() < until_s:
                    return ring
                self._waiting.popleft()
                self._on_lost(ring)
            self._is_sending = False
            return None

    def _forget(self, ring: Ring) -> None:
        with self._lock:
            if self._waiting and self._waiting[0][0] is ring:
                self._waiting.popleft()
