# Generated from nova_workers/client/resources/rollouts.py by `make format`: change that file instead.
"""The client's calls of ``/v1/agents/{agent_id}/rollout``."""

from nova_workers.client.sync.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.rollouts import (
    RolloutAdvance,
    RolloutHistory,
    RolloutReport,
    RolloutStart,
    RolloutStop,
    RolloutView,
)


class Rollouts:
    """``/v1/agents/{agent_id}/rollout``: a version of an agent takes over its conversations in steps."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def start(self, agent_id: str, rollout: RolloutStart) -> RolloutView:
        """Begin a rollout of a saved version; `Conflict` if the agent has an open one."""
        return self._transport.fetch(RolloutView, "POST", f"/v1/agents/{agent_id}/rollout", body=rollout)

    def report(self, agent_id: str) -> RolloutReport:
        """Return the newest rollout of an agent, with the figures of both versions."""
        return self._transport.fetch(RolloutReport, "GET", f"/v1/agents/{agent_id}/rollout")

    def list(self, agent_id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[RolloutView]:
        """Return a page of the rollouts of an agent, newest first."""
        return self._transport.fetch(
            Page[RolloutView], "GET", f"/v1/agents/{agent_id}/rollouts", params={"limit": limit, "cursor": cursor}
        )

    def history(self, agent_id: str, rollout_id: str) -> RolloutHistory:
        """Return any rollout of an agent, with the figures of both versions in all and over time."""
        return self._transport.fetch(RolloutHistory, "GET", f"/v1/agents/{agent_id}/rollouts/{rollout_id}")

    def advance(self, agent_id: str, step: int) -> RolloutView:
        """Begin the step after this one now; after the last one, make the candidate the current version."""
        return self._transport.fetch(
            RolloutView, "POST", f"/v1/agents/{agent_id}/rollout/advance", body=RolloutAdvance(step=step)
        )

    def stop(self, agent_id: str, reason: str | None = None) -> RolloutView:
        """Stop a rollout: each thread continues with the current version at its next turn."""
        return self._transport.fetch(
            RolloutView, "POST", f"/v1/agents/{agent_id}/rollout/stop", body=RolloutStop(reason=reason)
        )
