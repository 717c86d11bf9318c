"""Doorbells that wait to be sent: turns, bounds and age."""

from __future__ import annotations

from collections import Counter

import pytest

from nova_workers.broker.pending import PendingRings
from nova_workers.contracts.runs import Doorbell


class _Stage:
    """Pending doorbells with a clock that stands, and what was lost of each queue."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.lost: Counter[str] = Counter()
        self.pending = PendingRings(lambda: self.now_s, self._lose)

    def _lose(self, queue: str, count: int) -> None:
        self.lost[queue] += count

    def ring(self, queue: str, count: int, *, is_listed: bool = False) -> None:
        bells = [Doorbell(f"run_{at}", "thr_1", queue) for at in range(count)]
        self.pending.add(queue, "nova.run_agent", bells, is_listed=is_listed)

    def take_all(self) -> list[tuple[str, int]]:
        taken: list[tuple[str, int]] = []
        while (piece := self.pending.take()) is not None:
            taken.append((piece.lane.queue, len(piece.rings)))
        return taken


@pytest.fixture
def stage() -> _Stage:
    return _Stage()


def test_a_long_list_is_taken_in_pieces_and_single_doorbells_between_them(stage: _Stage) -> None:
    stage.ring("background", 250, is_listed=True)
    stage.ring("interactive", 3)
    stage.ring("background", 1)
    assert stage.take_all() == [
        ("background", 100),
        ("interactive", 3),
        ("background", 1),
        ("background", 100),
        ("background", 50),
    ]


def test_what_was_not_sent_is_taken_again_in_its_order_and_after_other_queues(stage: _Stage) -> None:
    stage.ring("interactive", 3)
    unsent = stage.pending.take()
    assert unsent is not None
    stage.ring("effects", 1)
    stage.ring("interactive", 1)
    stage.pending.put_back(unsent)
    other, again = stage.pending.take(), stage.pending.take()
    assert other is not None
    assert other.lane.queue == "effects"
    assert again is not None
    assert [ring.bell.run_id for ring in again.rings if ring.bell] == ["run_0", "run_1", "run_2", "run_0"]


def test_a_doorbell_that_is_older_than_30_seconds_is_lost(stage: _Stage) -> None:
    stage.ring("interactive", 2)
    stage.now_s += 29
    stage.ring("interactive", 1)
    stage.now_s += 2
    assert stage.take_all() == [("interactive", 1)]
    assert stage.lost == {"interactive": 2}


def test_more_doorbells_than_memory_is_for_are_lost_and_single_ones_have_a_share_of_their_own(stage: _Stage) -> None:
    stage.ring("background", 20_010, is_listed=True)
    stage.ring("interactive", 2_001)
    assert stage.lost == {"background": 10, "interactive": 1}
    assert sum(count for _, count in stage.take_all()) == 22_000
    stage.ring("interactive", 2_000)
    assert stage.lost["interactive"] == 1


def test_what_is_dropped_makes_room(stage: _Stage) -> None:
    stage.ring("background", 20_000, is_listed=True)
    stage.ring("interactive", 5)
    stage.pending.drop_lists()
    assert stage.lost == {"background": 20_000}
    stage.ring("background", 20_000, is_listed=True)
    assert stage.lost == {"background": 20_000}
    stage.pending.drop_all()
    assert stage.lost == {"background": 40_000, "interactive": 5}
    assert stage.pending.take() is None
