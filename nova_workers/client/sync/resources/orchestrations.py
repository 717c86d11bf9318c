# Generated from nova_workers/client/resources/orchestrations.py by `make format`: change that file instead.
"""The client's calls of orchestrations: trees of agents that work on one task."""

from collections.abc import Generator, Mapping
from contextlib import closing

from pydantic import ValidationError

from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import HistoryDetail
from nova_workers.client.sync.connection import sleep
from nova_workers.client.sync.transport import EventSource, Params, Transport
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
from nova_workers.contracts.orchestration.events import (
    OrchestrationEnd,
    TreeCursor,
    TreeRecord,
    tree_record_adapter,
)

__all__ = ["Orchestrations"]

_PATH = "/v1/orchestrations"
_NO_MORE_EVENTS = 204


class Orchestrations:
    """``/v1/orchestrations``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def start(self, task: OrchestrationCreate, *, idempotency_key: str | None = None) -> OrchestrationView:
        """Start an orchestration, with an Idempotency-Key, generated unless given, so that a retry starts no other."""
        headers = {"Idempotency-Key": idempotency_key or new_id("evt")}
        return self._transport.fetch(OrchestrationView, "POST", _PATH, body=task, headers=headers)

    def wait(
        self, task: OrchestrationCreate, *, idempotency_key: str | None = None, timeout_s: float = 660.0
    ) -> OrchestrationView:
        """Start an orchestration and return it once it has ended, or its state at the server's wait limit.

        It returns sooner if one of the agents waits for a person.
        """
        headers = {"Idempotency-Key": idempotency_key or new_id("evt")}
        return self._transport.fetch(
            OrchestrationView, "POST", f"{_PATH}/wait", body=task, headers=headers, timeout_s=timeout_s
        )

    def result(self, orchestration_id: str, *, timeout_s: float = 660.0) -> OrchestrationView:
        """Return an orchestration once it has ended, or its state as `wait` does."""
        return self._transport.fetch(OrchestrationView, "GET", f"{_PATH}/{orchestration_id}/wait", timeout_s=timeout_s)

    def get(self, orchestration_id: str) -> OrchestrationView:
        """Return an orchestration."""
        return self._transport.fetch(OrchestrationView, "GET", f"{_PATH}/{orchestration_id}")

    def list(
        self,
        *,
        open: bool | None = None,
        agent_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[OrchestrationView]:
        """Return a page of orchestrations, newest first."""
        params: Params = {
            "open": None if open is None else str(open).lower(),
            "agent_id": agent_id,
            "limit": limit,
            "cursor": cursor,
        }
        return self._transport.fetch(Page[OrchestrationView], "GET", _PATH, params=params)

    def tree(self, orchestration_id: str) -> OrchestrationTree:
        """Return all agents of an orchestration, parents before children."""
        return self._transport.fetch(OrchestrationTree, "GET", f"{_PATH}/{orchestration_id}/tree")

    def history(self, orchestration_id: str, agent: str, *, detail_level: HistoryDetail = "summary") -> AgentHistory:
        """Return what an agent said and did."""
        path = f"{_PATH}/{orchestration_id}/agents/{agent}/history"
        return self._transport.fetch(AgentHistory, "GET", path, params={"detail_level": detail_level})

    def messages(
        self, orchestration_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[OrchestrationMessageView]:
        """Return a page of the messages between agents, oldest first."""
        return self._transport.fetch(
            Page[OrchestrationMessageView],
            "GET",
            f"{_PATH}/{orchestration_id}/messages",
            params={"limit": limit, "cursor": cursor},
        )

    def changes(
        self, orchestration_id: str, *, agent: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[FileChange]:
        """Return a page of the files that agents changed, oldest change first, each with why it was made.

        Args:
            orchestration_id: The orchestration.
            agent: Only those of this agent: its id, or a unique part of it.
            limit: At most so many.
            cursor: `next_cursor` of the page before.
        """
        return self._transport.fetch(
            Page[FileChange],
            "GET",
            f"{_PATH}/{orchestration_id}/changes",
            params={"agent": agent, "limit": limit, "cursor": cursor},
        )

    def continue_(
        self, orchestration_id: str, follow_up: OrchestrationContinue, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, with an Idempotency-Key as `start` does."""
        headers = {"Idempotency-Key": idempotency_key or new_id("evt")}
        return self._change(orchestration_id, "continue", follow_up, headers=headers)

    def continue_and_wait(
        self,
        orchestration_id: str,
        follow_up: OrchestrationContinue,
        *,
        idempotency_key: str | None = None,
        timeout_s: float = 660.0,
    ) -> OrchestrationView:
        """Give an ended master a follow-up task, and return the orchestration as `wait` does."""
        headers = {"Idempotency-Key": idempotency_key or new_id("evt")}
        return self._change(orchestration_id, "continue/wait", follow_up, headers=headers, timeout_s=timeout_s)

    def kill(self, orchestration_id: str, kill: AgentKill | None = None) -> OrchestrationView:
        """Kill an agent and all below it; without one the whole tree."""
        return self._change(orchestration_id, "kill", kill or AgentKill())

    def master_tools(self) -> Page[MasterTool]:
        """Return the tools of external masters."""
        return self._transport.fetch(Page[MasterTool], "GET", f"{_PATH}/master/tools")

    def master_call(
        self, orchestration_id: str, call: MasterCall, *, key: str, timeout_s: float = 660.0
    ) -> MasterReply:
        """Call a tool as the external master. While the reply is `pending`, repeat the call with the same key."""
        return self._transport.fetch(
            MasterReply,
            "POST",
            f"{_PATH}/{orchestration_id}/master/calls",
            body=call,
            headers={"Idempotency-Key": key},
            timeout_s=timeout_s,
        )

    def complete(self, orchestration_id: str, result: MasterComplete) -> OrchestrationView:
        """End an orchestration as its external master."""
        path = f"{_PATH}/{orchestration_id}/master/complete"
        return self._transport.fetch(OrchestrationView, "POST", path, body=result)

    def prompt(
        self, orchestration_id: str, agent: str, prompt: AgentPrompt, *, idempotency_key: str | None = None
    ) -> OrchestrationView:
        """Send a message to an agent, with an Idempotency-Key as `start` does."""
        headers = {"Idempotency-Key": idempotency_key or new_id("evt")}
        return self._change(orchestration_id, f"agents/{agent}/prompt", prompt, headers=headers)

    def events(
        self, orchestration_id: str, *, after: TreeCursor | None = None
    ) -> Generator[tuple[TreeCursor, TreeRecord]]:
        """Yield the events of all agents from `after` on, in order, each once, until the orchestration ends.

        A dropped connection is resumed after the last event. Event types that this client does not know are skipped.
        Close the generator (`contextlib.closing`) when leaving it early.

        Raises:
            Unavailable: The connection was lost more often in a row than `Retry` allows.
            NotFound: No such orchestration.
        """
        seen = after or TreeCursor()
        failures, over = 0, False
        while True:
            cause: NovaError | None = None
            headers = {"Last-Event-ID": str(seen)} if seen.key() > (0, 0, 0) else None
            try:
                with self._transport.listen("GET", f"{_PATH}/{orchestration_id}/events", headers=headers) as source:
                    if source.response.status_code == _NO_MORE_EVENTS:
                        return
                    with closing(_read(source)) as feed:
                        for cursor, record in feed:
                            seen, failures = cursor, 0
                            if record is not None:
                                over = isinstance(record.event, OrchestrationEnd)
                                yield cursor, record
                    if over:
                        return
            except Unavailable as error:
                cause = error
            failures += 1
            if failures > self._transport.retry.attempts:
                raise Unavailable(
                    f"The event stream of {orchestration_id} was lost {failures} times in a row. The orchestration "
                    f"goes on; follow it again with `nova orchestrations tree {orchestration_id} --follow`.",
                    orchestration_id=orchestration_id,
                ) from cause
            sleep(self._transport.retry.delay_s(failures))

    def _change(
        self,
        orchestration_id: str,
        how: str,
        body: OrchestrationContinue | AgentKill | AgentPrompt,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> OrchestrationView:
        path = f"{_PATH}/{orchestration_id}/{how}"
        return self._transport.fetch(OrchestrationView, "POST", path, body=body, headers=headers, timeout_s=timeout_s)


def _read(source: EventSource) -> Generator[tuple[TreeCursor, TreeRecord | None]]:
    """Yield the events of an open stream; None stands for one of an unknown type."""
    for frame in source:
        if frame.data and frame.id:
            yield TreeCursor.parse(frame.id), _parse(frame.data)


def _parse(data: str) -> TreeRecord | None:
    try:
        return tree_record_adapter.validate_json(data)
    except ValidationError as error:
        if {item["type"] for item in error.errors()} == {"union_tag_invalid"}:
            return None
        raise
