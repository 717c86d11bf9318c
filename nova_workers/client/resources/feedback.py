# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""Feedback on runs."""

from datetime import datetime

from nova_workers.base.vocabulary import FeedbackSource, Rating
from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.feedback import FeedbackGive, FeedbackReport, FeedbackView


class FeedbackCalls:
    """``/v1/feedback``, and that of runs and agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def give(self, run_id: str, feedback: FeedbackGive) -> FeedbackView:
        """Give feedback on a run, or replace that of the same author and name. `Conflict` if it has not begun."""
        return await self._transport.fetch(
            FeedbackView, "POST", f"/v1/runs/{run_id}/feedback", body=feedback, repeatable=True
        )

    async def of_run(self, run_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[FeedbackView]:
        """Return a page of the feedback on a run, newest first."""
        return await self._transport.fetch(
            Page[FeedbackView], "GET", f"/v1/runs/{run_id}/feedback", params={"limit": limit, "cursor": cursor}
        )

    async def list(
        self,
        *,
        agent_id: str | None = None,
        agent_version: int | None = None,
        name: str | None = None,
        source: FeedbackSource | None = None,
        rated: Rating | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[FeedbackView]:
        """Return a page of feedback, newest first.

        Args:
            agent_id: Only on runs of this agent.
            agent_version: Only on runs of this version of their agent.
            name: Only of this name.
            source: Only of this source.
            rated: Only with a score above 0 (``up``), or below (``down``).
            since: Only what was first given at this time or later.
            until: Only what was first given before this time.
        """
        return await self._transport.fetch(
            Page[FeedbackView],
            "GET",
            "/v1/feedback",
            params={
                "agent_id": agent_id,
                "agent_version": agent_version,
                "name": name,
                "source": source,
                "rated": rated,
                "since": since,
                "until": until,
                "limit": limit,
                "cursor": cursor,
            },
        )

    async def report(self, agent_id: str, *, since: datetime | None = None) -> FeedbackReport:
        """Return how the versions of an agent were rated in the last 30 days, or since a time."""
        return await self._transport.fetch(
            FeedbackReport, "GET", f"/v1/agents/{agent_id}/feedback", params={"since": since}
        )

    async def delete(self, feedback_id: str) -> None:
        """Delete feedback."""
        await self._transport.send("DELETE", f"/v1/feedback/{feedback_id}")
