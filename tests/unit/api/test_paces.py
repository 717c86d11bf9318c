"""How often a client may call: a burst, then a rate."""

from __future__ import annotations

from api.guard.paces import Paces


def _paces(most: int = 100) -> Paces:
    """Return paces of three at once, then one each 0.1 s."""
    return Paces(interval_s=0.1, at_once=3, most=most)


def test_a_burst_is_taken_and_then_one_in_each_interval() -> None:
    paces = _paces()
    assert [paces.take("a", 50.0) for _ in range(5)] == [0, 0, 0, 0.1, 0.1]
    assert paces.take("a", 50.06) == 0.04
    assert paces.take("a", 50.1) == 0
    assert paces.take("a", 50.1) == 0.1
    assert [paces.take("a", 51.0) for _ in range(4)] == [0, 0, 0, 0.1]


def test_each_name_has_a_pace_of_its_own() -> None:
    paces = _paces()
    assert [paces.take("a", 0.0) for _ in range(4)] == [0, 0, 0, 0.1]
    assert paces.take("b", 0.0) == 0


def test_a_look_counts_nothing() -> None:
    paces = _paces()
    for _ in range(3):
        assert paces.wait_s("a", 7.0) == 0
        paces.take("a", 7.0)
    assert [paces.wait_s("a", 7.0) for _ in range(2)] == [0.1, 0.1]
    assert paces.wait_s("a", 7.1) == 0


def test_a_long_burst_is_taken_to_its_last_one() -> None:
    paces = Paces(interval_s=1 / 3, at_once=1_000, most=1)
    assert sum(paces.take("a", 0.1) == 0 for _ in range(1_100)) == 1_000


def test_the_names_that_were_not_seen_for_longest_are_forgotten() -> None:
    paces = _paces(most=2)
    for name in ("a", "b"):
        for _ in range(3):
            paces.take(name, 0.0)
    # It is refused, but it was seen.
    assert paces.take("a", 0.0) == 0.1
    paces.take("c", 0.0)
    assert paces.wait_s("a", 0.0) == 0.1
    assert paces.wait_s("b", 0.0) == 0
