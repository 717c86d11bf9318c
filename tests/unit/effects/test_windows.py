"""The windows of a long text that the local model embeds."""

from nova_workers.effects.minilm import WINDOW, windows

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
