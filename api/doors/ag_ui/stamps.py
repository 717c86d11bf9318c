"""Which version of the state document a client has: its messages say it, as clients keep and return their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ag_ui.core import AssistantMessage, Message

from nova_workers.contracts.content import JsonObject

NAMESPACE: Final = "nova"
"""The key of what is ours in metadata, and before the names of our custom events."""
_VERSION: Final = "stateVersion"
_MOST: Final = 2**53
"""Greater numbers lose digits on their way through a browser."""


def stamp_of(version: int | None) -> JsonObject | None:
    """Return the metadata of what a client gets with a version of the document; None if there is none yet."""
    return {NAMESPACE: {_VERSION: version}} if version else None


def version_of(messages: Sequence[Message]) -> int:
    """Return the version that a client has: the last one that its messages or their calls name; 0 if none does.

    A greater one before may be of another thread.
    """
    return next((version for message in reversed(messages) for version in _versions(message)), 0)


def stamped(messages: Sequence[Message], version: int | None) -> list[Message]:
    """Return messages of which the last one names a version."""
    stamp = stamp_of(version)
    if not messages or stamp is None:
        return list(messages)
    last = messages[-1]
    held = last.metadata or {}
    ours = held.get(NAMESPACE)
    named = {**ours, **stamp[NAMESPACE]} if isinstance(ours, dict) else stamp[NAMESPACE]
    return [*messages[:-1], last.model_copy(update={"metadata": {**held, NAMESPACE: named}})]


def _versions(message: Message) -> Iterator[int]:
    """Yield the versions that a message names, the last one first: a call follows the text of its message."""
    calls = reversed(message.tool_calls or ()) if isinstance(message, AssistantMessage) else ()
    for metadata in (*(call.metadata for call in calls), message.metadata):
        match metadata:
            case {"nova": {"stateVersion": int(version)}} if 0 < version <= _MOST:
                yield version
            case _:
                pass
