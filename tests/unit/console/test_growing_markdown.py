"""Markdown that is still being written: what no longer changes is rendered once, and nothing is lost or doubled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.console.chat.growing_markdown import GrowingMarkdown, code_of

_TEXT = """# Title

A paragraph
in two lines.

- one
- two

  still two

| a | b |
| - | - |
| 1 | 2 |

```python
x = 1

~~~ not the end
```

> quoted

    indented

1. first

Last."""


def _grown(pieces: list[str]) -> str:
    """Feed pieces; return the text of all that a page shows at the end."""
    markdown, shown, closed, last = GrowingMarkdown(), "", "", ""
    for piece in pieces:
        shown += piece
        growth = markdown.grow(shown)
        if growth is None:
            continue
        closed = "".join(growth.closed) if growth.anew else closed + "".join(growth.closed)
        last = last + growth.code if growth.open is None else growth.open
        assert closed + last == shown
    return closed + last


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=60))
def test_however_a_text_is_cut_all_of_it_is_shown_once(sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(_TEXT[at : at + size])
        at += size
    assert _grown([*pieces, _TEXT[at:]]) == _TEXT


@given(st.lists(st.text(alphabet="`~ab \n#-|>1.\u2028\x0b", max_size=8), max_size=30))
def test_no_text_loses_or_doubles_a_character(pieces: list[str]) -> None:
    assert _grown(pieces) == "".join(pieces)


def test_a_block_is_closed_when_the_next_one_begins() -> None:
    markdown = GrowingMarkdown()
    first = markdown.grow("One.\n\n")
    assert first is not None
    assert (first.closed, first.open) == ((), "One.\n\n")
    second = markdown.grow("One.\n\nTwo")
    assert second is not None
    assert (second.closed, second.open) == (("One.\n\n",), "Two")


def test_code_in_an_open_fence_is_appended_and_not_rendered_again() -> None:
    markdown = GrowingMarkdown()
    markdown.grow("```py\nx = 1\n")
    growth = markdown.grow("```py\nx = 1\ny = 2\n")
    assert growth is not None
    assert (growth.open, growth.code) == (None, "y = 2\n")
    closed = markdown.grow("```py\nx = 1\ny = 2\n```\n\nDone")
    assert closed is not None
    assert (closed.closed, closed.open) == (("```py\nx = 1\ny = 2\n```\n\n",), "Done")


def test_another_text_makes_what_was_shown_void() -> None:
    markdown = GrowingMarkdown()
    markdown.grow("One.\n\nTwo.")
    growth = markdown.grow("Anew")
    assert growth is not None
    assert (growth.anew, growth.closed, growth.open) == (True, (), "Anew")
    assert markdown.grow("Anew") is None


@pytest.mark.parametrize(
    ("block", "code"),
    [("```py\nx", "x"), ("~~~~\n```\n", "```\n"), ("```py", None), ("```\nx\n```", None), ("text", None)],
)
def test_only_an_open_fence_has_open_code(block: str, code: str | None) -> None:
    assert code_of(block) == code
