"""What sections say that no configuration says."""

from datetime import date

import pytest

from nova_workers.prompts import background_words, day_words, formatting_words, storage_words


def test_a_day_is_named_with_its_weekday_and_zone() -> None:
    assert day_words(date(2026, 3, 1), "Europe/Oslo") == "Sunday, 2026-03-01 (Europe/Oslo)"


@pytest.mark.parametrize(
    ("channel", "given", "words"),
    [
        ("sms", {"sms": "Short.", "*": "Plain."}, "Short."),
        ("mail", {"sms": "Short.", "*": "Plain."}, "Plain."),
        (None, {"*": "Plain."}, "Plain."),
        ("sms", {"sms": ""}, ""),
    ],
)
def test_the_operators_words_for_a_channel_go_first(channel: str | None, given: dict[str, str], words: str) -> None:
    assert formatting_words(channel, given, fixed_form=False) == words
    assert formatting_words(channel, given, fixed_form=True) == ""


def test_without_any_it_is_markdown() -> None:
    assert formatting_words("mail", {}, fixed_form=False).startswith("Answer in Markdown.")


def test_only_an_agent_with_files_has_storage() -> None:
    assert storage_words(None) == ""
    assert "/srv/nova" in storage_words("/srv/nova")


def test_who_is_not_read_is_told_so_and_how_to_be_heard() -> None:
    assert background_words(background=False, asked_by_agent=False, ways=[("notes", "note_share")]) == ""
    unread = background_words(background=True, asked_by_agent=False, ways=[])
    assert "You cannot ask anybody" in unread
    heard = background_words(
        background=True, asked_by_agent=False, ways=[("notifications", "notify_user"), ("notes", "note_share")]
    )
    assert heard.removeprefix(f"{unread}\n") == (
        "The only ways to reach the person: `notify_user` for what the person should know now; "
        "`note_share` for a note that can wait."
    )


def test_a_run_in_the_background_that_may_ask_is_told_where_its_question_goes() -> None:
    words = background_words(
        background=True, asked_by_agent=False, ways=[("notifications", "notify_user")], can_ask=True
    )
    assert "`ask_user` is put into the person's inbox" in words
    assert "cannot ask" not in words
    assert words.endswith("The other ways to reach the person: `notify_user` for what the person should know now.")


@pytest.mark.parametrize("background", [True, False])
def test_an_answer_that_another_agent_waits_for_goes_to_that_agent(background: bool) -> None:
    words = background_words(background=background, asked_by_agent=True, ways=[("notes", "note_share")])
    assert words.startswith("Another agent asked you for this.")
