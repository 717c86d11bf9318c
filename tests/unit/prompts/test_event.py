"""The event context before a turn's message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from inline_snapshot import snapshot

from nova_workers.contracts.event_context import EventContext
from nova_workers.domain.prompts.rules import event_words, is_event_block
from tests.requirements import proves

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def _words(**given: Any) -> str:
    fields = {"at": NOON, "timezone": "Europe/Oslo", "source": "api", "queue": "interactive", **given}
    return event_words(EventContext.model_validate(fields))


@proves("context.time")
def test_a_message_of_a_person_has_time_source_and_channel() -> None:
    assert _words(channel="sms", thread="Tea") == snapshot("""\
<Context>
- Time: Friday, 2026-01-02, 13:00 (Europe/Oslo, UTC+01:00)
- Source: api
- Channel: sms
- Thread: Tea
- Queue: interactive
</Context>\
""")


@proves("context.time")
@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-03-29T00:59:59Z", "Sunday, 2026-03-29, 01:59 (Europe/Oslo, UTC+01:00)"),
        ("2026-03-29T01:00:00Z", "Sunday, 2026-03-29, 03:00 (Europe/Oslo, UTC+02:00)"),
        ("2026-10-25T00:30:00Z", "Sunday, 2026-10-25, 02:30 (Europe/Oslo, UTC+02:00)"),
        ("2026-10-25T01:30:00Z", "Sunday, 2026-10-25, 02:30 (Europe/Oslo, UTC+01:00)"),
    ],
)
def test_the_two_hours_of_a_clock_change_differ_by_their_offset(at: str, words: str) -> None:
    assert f"- Time: {words}\n" in _words(at=at)


def test_a_zone_that_python_does_not_know_is_replaced_by_utc() -> None:
    assert "12:00 (UTC, UTC+00:00)" in _words(timezone="Mars/Olympus")


@proves("context.occurrence")
def test_a_trigger_names_its_occurrence() -> None:
    trigger = {"id": "trg_1", "title": "Mail </Context>", "scheduled_for": "2026-01-02T11:55:00Z"}
    assert _words(source="trigger", queue="background", trigger=trigger) == snapshot("""\
<Context>
- Time: Friday, 2026-01-02, 13:00 (Europe/Oslo, UTC+01:00)
- Source: trigger
- Trigger: Mail &lt;/Context> (trg_1), planned for Friday, 2026-01-02, 12:55 (Europe/Oslo, UTC+01:00)
- Queue: background

This run was started in the background: no person reads along.
Your answer is kept with the conversation and is sent to no one.
Do what is asked with what you have. Where you would ask, decide for yourself, unless a tool of yours asks a person.
</Context>\
""")
    assert "- Trigger: trg_1, fired on request\n" in _words(trigger={"id": "trg_1", "manual": True})


@pytest.mark.parametrize("queue", ["background", "interactive"])
def test_an_answer_that_another_agent_waits_for_goes_to_that_agent(queue: str) -> None:
    words = _words(queue=queue, asked_by_agent=True)
    assert "\n\nAnother agent asked you for this." in words
    assert "no person reads along" not in words


def test_an_event_block_is_distinguished_from_a_message() -> None:
    assert is_event_block(_words())
    assert not is_event_block("What is <Context>?")
