"""The end of a run, as effects of packages get it."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict

from nova_workers.base.vocabulary import FinishStatus

EFFECT_CALL: Final = "nova/effect:"
"""Before the name of an effect: the name under which a worker calls it. No tool has such a name."""


class RunError(BaseModel):
    """Why a run failed."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    kind: str
    message: str | None = None


class EndedRun(BaseModel):
    """A run that ended, as its effects get it. Fields that a later release adds are not seen by an older package.

    Attributes:
        run_id: The run. An effect has it once for each run.
        agent_id: The agent, by its name of today.
        thread_id: The conversation.
        status: How it ended.
        stop_reason: Why its turn stopped, such as ``end_turn``.
        source: What began it, such as ``api`` or ``trigger``.
        text: The answer, in at most 16,000 characters; empty if there is none. Secrets are taken out.
        text_truncated: Whether the answer is longer. The API has all of it.
        error: Of a run that failed.
        created_at: When it was submitted.
        finished_at: When it ended.
    """

    model_config = ConfigDict(defer_build=True, frozen=True)

    run_id: str
    tenant_id: str
    agent_id: str
    thread_id: str
    status: FinishStatus
    stop_reason: str | None
    source: str
    text: str
    text_truncated: bool = False
    error: RunError | None = None
    created_at: datetime
    finished_at: datetime
