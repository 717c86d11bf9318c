"""The block in front of a turn's message: when the turn started, and what caused it.

A pure function of what the ledger keeps beside the message. So the block is the same bytes in each request of the turn,
after a crash, and in the history of all later turns, and the provider's prompt cache holds the conversation.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nova_workers.contracts.event_context import EventContext, TriggerOccurrence
from nova_workers.domain.prompts.rules.markup import CONTEXT, bullets, section

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_UNREAD = """\
This run was started in the background: no person reads along.
Your answer is kept with the conversation and is sent to no one.
Do what is asked with what you have. Where you would ask, decide for yourself, unless a tool of yours asks a person."""

_ASKED_BY_AGENT = """\
Another agent asked you for this. Your final answer goes to that agent, and to no person.
Make it whole: it is all that the agent gets to see."""


def event_words(event: EventContext) -> str:
    """Return the block's text."""
    zone = _zone(event.timezone)
    facts = {
        "Time": _moment(event.at, zone),
        "Source": event.source.replace("_", " "),
        "Trigger": "" if event.trigger is None else _occurrence(event.trigger, zone),
        "Channel": event.channel or "",
        "Thread": event.thread or "",
        "Queue": event.queue,
    }
    listed = bullets(f"{name}: {value}" for name, value in facts.items() if value.strip())
    return section(CONTEXT, f"{listed}\n\n{_readers(event)}")


def is_event_block(text: str) -> bool:
    """Return whether the text of a message's first block is from `event_words`."""
    return text.startswith(f"<{CONTEXT}>\n") and text.endswith(f"\n</{CONTEXT}>")


def _readers(event: EventContext) -> str:
    if event.asked_by_agent:
        return _ASKED_BY_AGENT
    return _UNREAD if event.queue == "background" else ""


def _occurrence(trigger: TriggerOccurrence, zone: ZoneInfo) -> str:
    name = trigger.id if trigger.title is None else f"{trigger.title} ({trigger.id})"
    if trigger.manual:
        return f"{name}, fired on request"
    return name if trigger.scheduled_for is None else f"{name}, planned for {_moment(trigger.scheduled_for, zone)}"


def _moment(at: datetime, zone: ZoneInfo) -> str:
    local = at.astimezone(zone)
    written = local.isoformat(timespec="minutes")
    date, time_of_day, offset = written[:10], written[11:16], written[16:]
    return f"{_WEEKDAYS[local.weekday()]}, {date}, {time_of_day} ({zone.key}, UTC{offset})"


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        # Postgres knows names that Python does not. A turn must not fail for that.
        return ZoneInfo("UTC")
