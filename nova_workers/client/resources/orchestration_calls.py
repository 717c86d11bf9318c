# Generated from deploy/environment/client.toml by `make format`: change that file instead.
"""The calls of ``/v1/orchestrations`` that are one request each."""

from nova_workers.base.vocabulary import HistoryDetail
from nova_workers.client.headers import idempotency
from nova_workers.client.transport import Transport
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.orchestrations import (
    AgentHistory,
    AgentKill,
    AgentPrompt,
    FileChange,
    MasterCall,
    MasterComplete,
    MasterReply,
    MasterTool,
    OrchestrationContinue,
    OrchestrationCreate,
    OrchestrationMessageView,
    OrchestrationTree,
    OrchestrationView,
)


class OrchestrationCalls:
    """``/v1/orchestrations``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def start(self, task: OrchestrationCreate, *, idempotency_key: str | None = None) -> OrchestrationView:
        """Start an orchestration, with an Idempotency-Key, generated unless given, so that a retry starts no other."""
        return await self._transport.fetch(
            OrchestrationView, "POST", "/v1/orchestrations", body=task, headers=idempotency(idempotency_key)
        )

    async def wait(
        self, task: OrchestrationCreate, *, idempotency_key: str | None = None, timeout_s: float = 660.0
    ) -> OrchestrationView:
        """Start an orchestration and return it once it has ended, or its state at the server's wait limit.

        It returns sooner if one of the agents waits for a person.
        """
        return await self._transport.fetch(
            OrchestrationView,
            "POST",
            "/v1/orchestrations/wait",
            body=task,
            headers=idempotency(idempotency_key),
            timeout_s=timeout_s,
        )

    async def result(self, orchestration_id: str, *, timeout_s: float = 660.0) -> OrchestrationView:
        """Return an orchestration once it has ended, or its state as `wait` does."""
        return await self._transport.fetch(
            OrchestrationView, "GET", f"/v1/orchestrations/{orchestration_id}/wait", timeout_s=timeout_s
        )

    async def get(self, orchestration_id: str) -> OrchestrationView:
        """Return an orchestration."""
        return await self._transport.fetch(OrchestrationView, "GET", f"/v1/orchestrations/{orchestration_id}")

    async def list(
        self,
        *,
        open: bool | None = None,
        agent_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[OrchestrationView]:
        """Return a page of orchestrations, newest first."""
        return await self._transport.fetch(
            Page[OrchestrationView],
            "GET",
            "/v1/orchestrations",
            params={"open": open, "agent_id": agent_id, "limit": limit, "cursor": cursor},
        )

    async def tree(self, orchestration_id: str) -> OrchestrationTree:
        """Return all agents of an orchestration, parents before children."""
        return await self._transport.fetch(OrchestrationTree, "GET", f"/v1/orchestrations/{orchestration_id}/tree")

    async def history(
        self, orchestration_id: str, agent: str, *, detail_level: HistoryDetail = "summary"
    ) -> AgentHistory:
        """Return the history of an agent: texts and tool calls."""
        return await self._transport.fetch(
            AgentHistory,
            "GET",
            f"/v1/orchestrations/{orchestration_id}/agents/{agent}/history",
            params={"detail_level": detail_level},
        )

    async def messages(
        self, orchestration_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[OrchestrationMessageView]:
        """Return a page of the messages between agents, oldest first."""
        return await self._transport.fetch(
            Page[OrchestrationMessageView],
            "GET",
            f"/v1/orchestrations/{orchestration_id}/messages",
            params={"limit": limit, "cursor": cursor},
        )

    async def changes(
        self, orchestration_id: str, *, agent: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[FileChange]:
        """Return a page of the files that agents changed, oldest change first, each with why it was made.

        Args:
            agent: Only those of this agent: its id, or a unique part of it.
            limit: At most so many.
            cursor: `next_cursor` of the page before.
        """
        return await self._transport.fetch(
            Page[FileChange],
            "GET",
            f"/v1/orchestrations/{orchestration_id}/changes",
            params={"agent": agent, "limit": limit, "cursor": cursor},
        )

    async def continue_(
        self, orchestration_id: str, follow_up: OrchestrationContinue, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, with an Idempotency-Key as `start` does."""
        return await self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/continue",
            body=follow_up,
            headers=idempotency(idempotency_key),
        )

    async def continue_and_wait(
        self,
        orchestration_id: str,
        follow_up: OrchestrationContinue,
        *,
        idempotency_key: str | None = None,
        timeout_s: float = 660.0,
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, and return the orchestration as `wait` does."""
        return await self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/continue/wait",
            body=follow_up,
            headers=idempotency(idempotency_key),
            timeout_s=timeout_s,
        )

    async def kill(self, orchestration_id: str, kill: AgentKill | None = None) -> OrchestrationView:
        """Kill an agent and all below it; without one the whole tree."""
        return await self._transport.fetch(
            OrchestrationView, "POST", f"/v1/orchestrations/{orchestration_id}/kill", body=kill or AgentKill()
        )

    async def master_tools(self) -> Page[MasterTool]:
        """Return the tools of external masters."""
        return await self._transport.fetch(Page[MasterTool], "GET", "/v1/orchestrations/master/tools")

    async def master_call(
        self, orchestration_id: str, call: MasterCall, *, key: str, timeout_s: float = 660.0
    ) -> MasterReply:
        """Call a tool as the external master. While the reply is `pending`, repeat the call with the same key."""
        return await self._transport.fetch(
            MasterReply,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/master/calls",
            body=call,
            headers=idempotency(key),
            timeout_s=timeout_s,
        )

    async def complete(self, orchestration_id: str, result: MasterComplete) -> OrchestrationView:
        """End an orchestration as its external master."""
        return await self._transport.fetch(
            OrchestrationView, "POST", f"/v1/orchestrations/{orchestration_id}/master/complete", body=result
        )

    async def prompt(
        self, orchestration_id: str, agent: str, prompt: AgentPrompt, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Send a message to an agent, with an Idempotency-Key as `start` does."""
        return await self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/agents/{agent}/prompt",
            body=prompt,
            headers=idempotency(idempotency_key),
        )
