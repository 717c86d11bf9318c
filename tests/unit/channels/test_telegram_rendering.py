"""Markdown in Telegram: what is shown, and the bounds of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.channels.telegram.buttons import read_press, thumbs
from nova_workers.channels.telegram.rendering import split_markdown, to_html, units
from tests.support.servers.telegram_server import shown_text

_MARKS = ("**", "_", "`", "\n", "\n\n", "```py\n", "```\n", "- ", "1. ", "> ", "# ", "~~", "***", "    code\n", "\t")
_WORDS = ("word ", "<b>", "&", "[x](http://a.b)", "[y](javascript:z)", "![i](s)", "|a|b|\n|-|-|\n", "😀", "x" * 500)
_PIECES = st.sampled_from([*_MARKS, *_WORDS])


@pytest.mark.parametrize(
    ("markdown", "html"),
    [
        ("**b** *i* ~~s~~ `a<b`", "<b>b</b> <i>i</i> <s>s</s> <code>a&lt;b</code>"),
        ("# Title\n\ntext", "<b>Title</b>\n\ntext"),
        ("- a\n  - b\n- c", "• a\n  • b\n• c"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("```py\nx < 1\n```", '<pre><code class="language-py">x &lt; 1</code></pre>'),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("|a|bb|\n|-|-|\n|ccc|d|", "<pre>a    bb\nccc  d</pre>"),
        ("[x](http://a.b?c=1&d=2) [y](javascript:z)", '<a href="http://a.b?c=1&amp;d=2">x</a> [y](javascript:z)'),
        ("<script>a & b</script>", "&lt;script&gt;a &amp; b&lt;/script&gt;"),
        ("not **closed", "not **closed"),
    ],
)
def test_markdown_becomes_the_html_of_telegram(markdown: str, html: str) -> None:
    assert to_html(markdown) == html


@given(st.lists(_PIECES, max_size=60).map("".join))
def test_any_text_becomes_messages_that_telegram_accepts(text: str) -> None:
    for part in split_markdown(text, limit=700):
        assert units(part) <= 700
        shown_text(to_html(part))


@given(st.lists(st.sampled_from(["word ", "other. ", "\n", "\n\n", "longer😀 "]), max_size=400).map("".join))
def test_no_word_is_lost_between_messages(text: str) -> None:
    assert " ".join(split_markdown(text, limit=300)).split() == text.split()


def test_a_long_code_block_is_a_code_block_in_each_message() -> None:
    lines = [f"line {number}" for number in range(900)]
    parts = split_markdown("\n".join(["Before.", "", "```py", *lines, "```", "", "After."]))
    coded = [part for part in parts if "line" in part]
    assert len(coded) > 2
    assert all(part.count("```") == 2 for part in coded)
    assert [line for part in parts for line in part.splitlines() if line.startswith("line")] == lines


def test_a_code_block_with_a_first_line_without_an_end_is_cut_too() -> None:
    parts = split_markdown(f"```{'x' * 9_000}\n{'y' * 9_000}\n```")
    assert all(units(part) <= 3_600 for part in parts)


def test_a_line_separator_in_a_code_block_ends_no_line_of_markdown() -> None:
    code = "\n".join(["Before.", "", "```", *(f"a\u2028b {number}" for number in range(9)), "```", "", "After."])
    assert split_markdown(code, limit=60)[0] == "Before."
    assert all(part.count("```") in {0, 2} for part in split_markdown(code, limit=60))


def test_thumbs_are_read_as_they_were_shown_and_the_chosen_one_is_marked() -> None:
    [row] = thumbs("run_01J", "down").inline_keyboard
    assert [button.text for button in row] == ["👍", "👎 ✓"]
    pressed = [read_press(button.callback_data) for button in row]
    assert [None if press is None else (press.run_id, press.rating) for press in pressed] == [
        ("run_01J", "up"),
        ("run_01J", "down"),
    ]
    assert read_press("f:01J:sideways") is None
