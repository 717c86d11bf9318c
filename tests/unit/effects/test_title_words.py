"""The title in a model's answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.domain.effects.rules.title import clean_title, title_from_words


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Resetting a Forgotten Password", "Resetting a Forgotten Password"),
        ('"Resetting a forgotten password."', "Resetting a forgotten password"),
        ("“Resetting a forgotten password”", "Resetting a forgotten password"),
        ("**Title: Weekly Report Draft**\n\nLet me know!", "Weekly Report Draft"),
        ("\n\n# Titel: Angebot für den Kunden", "Angebot für den Kunden"),
        ("Plan\tthe\x07 launch  week", "Plan the launch week"),
        ("パスワードの再設定", "パスワードの再設定"),
        ("One Two Three Four Five Six Seven", "One Two Three Four Five Six"),
        ("C++ Build Errors: Linker", "C++ Build Errors: Linker"),
    ],
)
def test_the_title_is_unwrapped(answer: str, title: str) -> None:
    assert clean_title(answer) == title


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "  \n\t",
        "...",
        '""',
        "I'm sorry, I can't help with that.",
        "Sure! Here is a title",
        "You said: <conversation>",
        "This conversation is about a user who would like to have their password reset today",
    ],
)
def test_unusable_text_is_no_title(answer: str) -> None:
    assert clean_title(answer) is None


def test_the_first_words_replace_a_missing_title() -> None:
    assert title_from_words("  please reset\nmy password for the web shop") == "please reset my password for the"
    assert title_from_words(" \n ") is None
    assert title_from_words("x" * 500) == "x" * 79 + "…"


@given(st.text(max_size=300))
def test_a_title_is_always_one_short_printable_line(answer: str) -> None:
    for title in (clean_title(answer), title_from_words(answer)):
        if title is not None:
            assert 1 <= len(title) <= 80
            assert len(title.split()) <= 6
            assert title == title.strip()
            assert title.isprintable()
