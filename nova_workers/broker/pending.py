"""Doorbells that the broker has not taken yet, in bounded memory and for a bounded time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from nova_workers.contracts.runs import Doorbell

_MOST_SINGLE: Final = 2_000
_MOST_LISTED: Final = 20_000
"""The most messages of a list that are read. More are left to the reconciler."""
_PIECE: Final = 100
"""The loop is held while a piece is encoded and written: about 0.8 ms."""
_LIFE_S: Final = 30.0
"""The reconciler has found the runs by then."""


class Ring(NamedTuple):
    """A message to send.

    Attributes:
        task: The name of the Celery task.
        bell: The run to announce; None for effects and deliveries.
        until_s: When it is no longer worth sending.
    """

    task: str
    bell: Doorbell | None
    until_s: float


class _Lane(NamedTuple):
    """Doorbells that are sent in order: the single ones of a queue, or those of its long lists."""

    queue: str
    is_listed: bool


class Piece(NamedTuple):
    """Doorbells of one lane that are sent together."""

    lane: _Lane
    rings: Sequence[Ring]


class PendingRings:
    """Doorbells in lanes that take turns, so that no lane waits for more than a piece of each other one."""

    def __init__(self, clock_s: Callable[[], float], on_lost: Callable[[str, int], None]) -> None:
        """Take the callbacks.

        Args:
            clock_s: Returns monotonic seconds.
            on_lost: Called with a queue and the number of its doorbells that are dropped.
        """
        self._clock_s = clock_s
        self._on_lost = on_lost
        self._lanes: dict[_Lane, deque[Ring]] = {}
        self._free = {False: _MOST_SINGLE, True: _MOST_LISTED}

    def add(self, queue: str, task: str, bells: Sequence[Doorbell | None], *, is_listed: bool = False) -> None:
        """Keep the doorbells of a queue; drop those for which there is no room."""
        kept = bells[: max(self._free[is_listed], 0)]
        if len(kept) < len(bells):
            self._on_lost(queue, len(bells) - len(kept))
        if kept:
            self._free[is_listed] -= len(kept)
            until_s = self._clock_s() + _LIFE_S
            self._lanes.setdefault(_Lane(queue, is_listed), deque()).extend(Ring(task, bell, until_s) for bell in kept)

    def take(self) -> Piece | None:
        """Remove the oldest doorbells of the next lane, and return them. None if there are none."""
        now_s = self._clock_s()
        while self._lanes:
            lane = next(iter(self._lanes))
            waiting = self._lanes.pop(lane)
            taken = [waiting.popleft() for _ in range(min(len(waiting), _PIECE))]
            if waiting:
                self._lanes[lane] = waiting
            self._free[lane.is_listed] += len(taken)
            rings = [ring for ring in taken if ring.until_s > now_s]
            if len(rings) < len(taken):
                self._on_lost(lane.queue, len(taken) - len(rings))
            if rings:
                return Piece(lane, rings)
        return None

    def put_back(self, piece: Piece) -> None:
        """Keep what was not sent. Its lane's turn comes after the others'."""
        self._lanes.setdefault(piece.lane, deque()).extendleft(reversed(piece.rings))
        self._free[piece.lane.is_listed] -= len(piece.rings)

    def drop_lists(self) -> None:
        """Drop what waits of long lists."""
        self._drop([lane for lane in self._lanes if lane.is_listed])

    def drop_all(self) -> None:
        """Drop what waits."""
        self._drop(list(self._lanes))

    def _drop(self, lanes: Sequence[_Lane]) -> None:
        for lane in lanes:
            count = len(self._lanes.pop(lane))
            self._free[lane.is_listed] += count
            self._on_lost(lane.queue, count)
