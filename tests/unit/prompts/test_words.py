"""Sections of the prompt whose text is not from a configuration."""

import pytest

from nova_workers.domain.prompts.rules import background_words, formatting_words, storage_words


@pytest.mark.parametrize(
    ("channel", "given", "words"),
    [
        ("sms", {"sms": "Short.", "*": "Plain."}, "Short."),
        ("mail", {"sms": "Short.", "*": "Plain."}, "Plain."),
        (None, {"*": "Plain."}, "Plain."),
        ("sms", {"sms": ""}, ""),
    ],
)
def test_the_operators_format_for_a_channel_takes_precedence(
    channel: str | None, given: dict[str, str], words: str
) -> None:
    assert formatting_words(channel, given, fixed_form=False) == words
    assert formatting_words(channel, given, fixed_form=True) == ""


def test_the_default_format_is_markdown() -> None:
    assert formatting_words("mail", {}, fixed_form=False).startswith("Answer in Markdown.")


def test_only_an_agent_with_files_has_storage() -> None:
    assert storage_words(None) == ""
    assert "/srv/nova" in storage_words("/srv/nova")


def test_the_ways_to_reach_a_person_from_the_background_are_named() -> None:
    assert background_words(ways=[]) == ""
    named = background_words(ways=[("notifications", "notify_user"), ("notes", "note_share")])
    assert named == (
        "In a run that was started in the background, no person reads along.\n"
        "The only ways to reach the person: `notify_user` for what the person should know now; "
        "`note_share` for a note that can wait."
    )


def test_the_prompt_says_where_a_question_goes() -> None:
    words = background_words(ways=[("notifications", "notify_user")], can_ask=True)
    assert "`ask_user` is put into the person's inbox" in words
    assert words.endswith("The other ways to reach the person: `notify_user` for what the person should know now.")
