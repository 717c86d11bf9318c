"""The stream of a tenant's changes: which thing changed, and how. What it is now, a reader asks the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from nova_workers.base.vocabulary import ChangeSubject
from nova_workers.contracts.http.scopes import Scope

KEPT_S: Final = 24 * 3600
"""How old a cursor may be from which a stream resumes."""

SCOPE_OF: Final[Mapping[ChangeSubject, Scope | None]] = {
    "run": "runs:read",
    "wait": "runs:read",
    "thread": "runs:read",
    "orchestration": "runs:read",
    "task": "workspace:read",
    "trigger": "workspace:read",
    "delivery": "workspace:read",
    "webhook": "workspace",
    "pause": None,
    "feedback": "runs:read",
    "rollout": "agents:read",
}
"""The scope of the list that shows a subject; None for what every key may read."""


class _Event(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")


class Ready(_Event):
    """The first event of a stream without a cursor: what is read from now on is older than what follows."""

    type: Literal["ready"] = "ready"


class Reset(_Event):
    """Changes were missed, since the cursor is too old or of another database: read again what is shown."""

    type: Literal["reset"] = "reset"
    reason: Literal["expired", "unknown"]


class Changed(_Event):
    """A thing changed. More changes may have followed: what is read then is as new, or newer."""

    type: Literal["change"] = "change"
    subject: ChangeSubject
    id: str
    """Of the thing; of a wait that of its run, and of a pause its scope."""
    change: str
    """Its new state, or a verb such as `created`. There may be new words."""
    agent_id: str | None = None
    thread_id: str | None = None
    at: datetime


ChangeEvent = Annotated[Ready | Reset | Changed, Field(discriminator="type")]
change_event_adapter: TypeAdapter[ChangeEvent] = TypeAdapter(ChangeEvent, config={"defer_build": True})
