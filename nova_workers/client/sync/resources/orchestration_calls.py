# Generated from nova_workers/client/resources/orchestration_calls.py by `make format`: change that file instead.
"""The calls of ``/v1/orchestrations`` that are one request each."""

from nova_workers.base.vocabulary import HistoryDetail
from nova_workers.client.headers import idempotency
from nova_workers.client.sync.transport import Transport
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

    def start(self, task: OrchestrationCreate, *, idempotency_key: str | None = None) -> OrchestrationView:
        """Start an orchestration, with an Idempotency-Key, generated unless given, so that a retry starts no other."""
        return self._transport.fetch(
            OrchestrationView, "POST", "/v1/orchestrations", body=task, headers=idempotency(idempotency_key)
        )

    def wait(
        self, task: OrchestrationCreate, *, idempotency_key: str | None = None, timeout_s: float = 660.0
    ) -> OrchestrationView:
        """Start an orchestration and return it once it has ended, or its state at the server's wait limit.

        It returns sooner if one of the agents waits for a person.
        """
        return self._transport.fetch(
            OrchestrationView,
            "POST",
            "/v1/orchestrations/wait",
            body=task,
            headers=idempotency(idempotency_key),
            timeout_s=timeout_s,
        )

    def result(self, orchestration_id: str, *, timeout_s: float = 660.0) -> OrchestrationView:
        """Return an orchestration once it has ended, or its state as `wait` does."""
        return self._transport.fetch(
            OrchestrationView, "GET", f"/v1/orchestrations/{orchestration_id}/wait", timeout_s=timeout_s
        )

    def get(self, orchestration_id: str) -> OrchestrationView:
        """Return an orchestration."""
        return self._transport.fetch(OrchestrationView, "GET", f"/v1/orchestrations/{orchestration_id}")

    def list(
        self,
        *,
        open: bool | None = None,
        agent_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[OrchestrationView]:
        """Return a page of orchestrations, newest first."""
        return self._transport.fetch(
            Page[OrchestrationView],
            "GET",
            "/v1/orchestrations",
            params={"open": open, "agent_id": agent_id, "limit": limit, "cursor": cursor},
        )

    def tree(self, orchestration_id: str) -> OrchestrationTree:
        """Return all agents of an orchestration, parents before children."""
        return self._transport.fetch(OrchestrationTree, "GET", f"/v1/orchestrations/{orchestration_id}/tree")

    def history(self, orchestration_id: str, agent: str, *, detail_level: HistoryDetail = "summary") -> AgentHistory:
        """Return the history of an agent: texts and tool calls."""
        return self._transport.fetch(
            AgentHistory,
            "GET",
            f"/v1/orchestrations/{orchestration_id}/agents/{agent}/history",
            params={"detail_level": detail_level},
        )

    def messages(
        self, orchestration_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[OrchestrationMessageView]:
        """Return a page of the messages between agents, oldest first."""
        return self._transport.fetch(
            Page[OrchestrationMessageView],
            "GET",
            f"/v1/orchestrations/{orchestration_id}/messages",
            params={"limit": limit, "cursor": cursor},
        )

    def changes(
        self, orchestration_id: str, *, agent: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[FileChange]:
        """Return a page of the files that agents changed, oldest change first, each with why it was made.

        Args:
            agent: Only those of this agent: its id, or a unique part of it.
            limit: At most so many.
            cursor: `next_cursor` of the page before.
        """
        return self._transport.fetch(
            Page[FileChange],
            "GET",
            f"/v1/orchestrations/{orchestration_id}/changes",
            params={"agent": agent, "limit": limit, "cursor": cursor},
        )

    def continue_(
        self, orchestration_id: str, follow_up: OrchestrationContinue, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, with an Idempotency-Key as `start` does."""
        return self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/continue",
            body=follow_up,
            headers=idempotency(idempotency_key),
        )

    def continue_and_wait(
        self,
        orchestration_id: str,
        follow_up: OrchestrationContinue,
        *,
        idempotency_key: str | None = None,
        timeout_s: float = 660.0,
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, and return the orchestration as `wait` does."""
        return self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/continue/wait",
            body=follow_up,
            headers=idempotency(idempotency_key),
            timeout_s=timeout_s,
        )

    def kill(self, orchestration_id: str, kill: AgentKill | None = None) -> OrchestrationView:
        """Kill an agent and all below it; without one the whole tree."""
        return self._transport.fetch(
            OrchestrationView, "POST", f"/v1/orchestrations/{orchestration_id}/kill", body=kill or AgentKill()
        )

    def master_tools(self) -> Page[MasterTool]:
        """Return the tools of external masters."""
        return self._transport.fetch(Page[MasterTool], "GET", "/v1/orchestrations/master/tools")

    def master_call(
        self, orchestration_id: str, call: MasterCall, *, key: str, timeout_s: float = 660.0
    ) -> MasterReply:
        """Call a tool as the external master. While the reply is `pending`, repeat the call with the same key."""
        return self._transport.fetch(
            MasterReply,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/master/calls",
            body=call,
            headers=idempotency(key),
            timeout_s=timeout_s,
        )

    def complete(self, orchestration_id: str, result: MasterComplete) -> OrchestrationView:
        """End an orchestration as its external master."""
        return self._transport.fetch(
            OrchestrationView, "POST", f"/v1/orchestrations/{orchestration_id}/master/complete", body=result
        )

    def prompt(
        self, orchestration_id: str, agent: str, prompt: AgentPrompt, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Send a message to an agent, with an Idempotency-Key as `start` does."""
        return self._transport.fetch(
            OrchestrationView,
            "POST",
            f"/v1/orchestrations/{orchestration_id}/agents/{agent}/prompt",
            body=prompt,
            headers=idempotency(idempotency_key),
        )
