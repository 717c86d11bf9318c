"""Pagination cursors, as a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import InvalidCursor
from api.pagination import Pager, PageRequest

POSITIONS = st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**53), 2**53))
PAGER = Pager("ten_1", "runs", (str, int), ("thr_1", None))


@given(POSITIONS)
def test_a_cursor_round_trips(position: tuple[str, int]) -> None:
    assert PAGER.read(PAGER.write([*position])) == [*position]


@given(POSITIONS, st.integers(0), st.characters(codec="ascii"))
def test_any_change_of_a_cursor_is_detected(position: tuple[str, int], place: int, letter: str) -> None:
    cursor = PAGER.write([*position])
    place %= len(cursor)
    edited = cursor[:place] + letter + cursor[place + 1 :]
    if edited != cursor:
        with pytest.raises(InvalidCursor):
            PAGER.read(edited)


@pytest.mark.parametrize(
    "other",
    [
        Pager("ten_2", "runs", (str, int), ("thr_1", None)),
        Pager("ten_1", "threads", (str, int), ("thr_1", None)),
        Pager("ten_1", "runs", (str, int), ("thr_2", None)),
        Pager("ten_1", "runs", (str, int), (None, "thr_1")),
        Pager("ten_1", "runs", (str, int)),
        Pager("ten_1", "runs", (str,), ("thr_1", None)),
        Pager("ten_1", "runs", (str, str), ("thr_1", None)),
    ],
)
def test_a_cursor_of_another_list_is_refused(other: Pager) -> None:
    with pytest.raises(InvalidCursor):
        other.read(PAGER.write(["a", 1]))


def test_a_page_has_a_cursor_only_if_there_is_more() -> None:
    pager = Pager("ten_1", "numbers", (int,))

    def position(number: int) -> list[int]:
        return [number]

    full = pager.page([1, 2, 3], 2, position)
    assert (full.items, pager.read(full.next_cursor)) == ([1, 2], [2])
    last = pager.page([1, 2], 2, position)
    assert (last.items, last.next_cursor) == ([1, 2], None)
    assert pager.page([], 2, position).next_cursor is None


def test_the_next_page_begins_after_the_last_key() -> None:
    first = PageRequest(None, 2).of("ten_1", "numbers", int, "odd")
    assert (first.key, first.rows) == (None, 3)
    page = first.page([1, 3, 5], lambda number: number)
    assert page.items == [1, 3]
    assert PageRequest(page.next_cursor, 2).of("ten_1", "numbers", int, "odd").key == 3
    with pytest.raises(InvalidCursor):
        PageRequest(page.next_cursor, 2).of("ten_1", "numbers", int, "even")

    pairs = PageRequest(None, 1).of_pairs("ten_1", "pairs", str, int)
    page_of_pairs = pairs.page([("a", 1), ("a", 2)], lambda pair: pair)
    assert PageRequest(page_of_pairs.next_cursor, 1).of_pairs("ten_1", "pairs", str, int).key == ("a", 1)
