"""The windows of a long text that the local model embeds, and which of them it computes together."""

from nova_workers.domain.effects.rules.minilm import CALL_PIECES, WINDOW, batches, windows

SIZE = WINDOW - 2


def test_a_short_text_is_one_window() -> None:
    assert windows([], SIZE) == [[]]
    assert windows([1, 2, 3], SIZE) == [[1, 2, 3]]


def test_a_text_of_four_windows_is_embedded_whole() -> None:
    pieces = list(range(4 * SIZE))
    assert [piece for window in windows(pieces, SIZE) for piece in window] == pieces


def test_the_beginning_and_the_end_of_a_long_text_are_embedded() -> None:
    pieces = list(range(100 * SIZE + 7))
    seen = windows(pieces, SIZE)
    assert len(seen) == 4
    assert seen[0] + seen[1] + seen[2] == pieces[: 3 * SIZE]
    assert seen[3] == pieces[-SIZE:]


def test_windows_of_like_length_are_computed_together() -> None:
    assert batches([5, 60, 6, 5, 61]) == [[0, 3, 2], [1, 4]]
    assert batches([]) == []


def test_full_windows_are_computed_alone() -> None:
    assert batches([WINDOW, WINDOW, WINDOW // 2 + 1]) == [[2], [0], [1]]


def test_no_call_is_larger_than_its_bound() -> None:
    lengths = [2 + place % 90 for place in range(500)]
    cut = batches(lengths)
    assert sorted(place for batch in cut for place in batch) == list(range(500))
    assert max(len(batch) * max(lengths[place] for place in batch) for batch in cut) <= CALL_PIECES
    assert len(cut) < 250


def test_a_window_is_not_padded_for_more_than_a_call_costs() -> None:
    assert batches([4, 12]) == [[0, 1]]
    assert batches([4, 13]) == [[0], [1]]
    assert batches([4, 4, 8]) == [[0, 1, 2]]
    assert batches([4, 4, 9]) == [[0, 1], [2]]
