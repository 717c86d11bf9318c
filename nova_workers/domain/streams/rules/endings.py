"""What the last event of a run tells beside the event: enough to answer who waits for the run, without a read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from nova_workers.contracts.content import ContentBlock

_MAX_CHARS = 16_000
"""A longer message is not worth its digest: the read costs less."""


class RunEnding(BaseModel):
    """What a plain run has at its end and did not have when it was accepted, besides what its last event tells.

    Plain is a run that succeeded, without an output by a schema, on a message that is one text.
    """

    model_config = ConfigDict(frozen=True)

    message: str
    """The digest of the message that was answered: it may have been edited since it was accepted."""
    agent_id: str
    agent_version: int
    turn_id: str
    cancel_requested_at: datetime | None = None
    """The time at which a run was canceled too late."""
    started_at: datetime
    finished_at: datetime


def message_digest(content: Sequence[ContentBlock]) -> str | None:
    """Return a digest of a message that is one text block of moderate size; None of any other."""
    if len(content) != 1 or content[0].keys() != {"type", "text"} or content[0]["type"] != "text":
        return None
    text: str = content[0]["text"]
    if len(text) > _MAX_CHARS:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
