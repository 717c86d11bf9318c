"""The order of tests in a run with xdist."""

from __future__ import annotations

from tests.support.harness.ordering import dealt


def test_each_worker_begins_with_its_share_of_the_longest() -> None:
    ordered = dealt(["A", "B", "C"], [], [str(number) for number in range(10)], workers=2)
    assert ordered == ["A", "C", "0", "1", "2", "3", "B", "4", "5", "6", "7", "8", "9"]


def test_a_group_is_left_together() -> None:
    ordered = dealt(["A", "B"], [["x", "y"], ["z"]], [str(number) for number in range(7)], workers=2)
    assert ordered == ["A", "z", "0", "1", "2", "3", "B", "x", "y", "4", "5", "6"]


def test_no_test_is_lost_where_workers_have_little_to_do() -> None:
    assert sorted(dealt(["A", "B", "C", "D"], [["x"]], ["0"], workers=4)) == ["0", "A", "B", "C", "D", "x"]
