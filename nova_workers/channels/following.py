"""Follows one run for a conversation: partial answers, tool calls, questions, and the end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

from nova_workers.base.errors import TooManyRequests, Unavailable
from nova_workers.channels.conversations import Conversations
from nova_workers.channels.delivering import Deliverer
from nova_workers.channels.port import FIRST_CHARS, Origin, Reply, ToolLine
from nova_workers.channels.replies import closed_reply, end_reply, question_reply, text_reply
from nova_workers.client.client import NovaClient
from nova_workers.client.run_text import RunText
from nova_workers.contracts.events import (
    AssistantMessage,
    Event,
    EventCursor,
    Restart,
    Step,
    StreamEnd,
    StreamError,
    StreamStart,
    Token,
    ToolStatus,
    Waiting,
)
from nova_workers.contracts.waits import ANSWERABLE

_PARTIAL_EVERY_S = 1.0
_MAX_TOOLS = 200


class RunFollower:
    """Delivers what one run says, from its beginning to its end."""

    def __init__(
        self,
        client: NovaClient,
        conversations: Conversations,
        deliverer: Deliverer,
        origin: Origin,
        run_id: str,
        *,
        shown: Collection[str] = (),
    ) -> None:
        """Prepare to follow a run.

        Args:
            client: Of the tenant.
            conversations: Of the channel.
            deliverer: Of the channel.
            origin: The update whose message the run has.
            shown: Ids of replies that a former process has shown: its questions may have been answered since.
        """
        self._client = client
        self._conversations = conversations
        self._deliverer = deliverer
        self._origin = origin
        self._run_id = run_id
        self._answer = RunText()
        self._tools: dict[str, ToolLine] = {}
        self._shown_s = 0.0
        self._asked: set[str] = set()
        question = text_reply("question", origin, "", run_id)
        self._open: dict[str, Reply] = {
            shown_id: question.model_copy(update={"id": shown_id}) for shown_id in shown if shown_id.startswith("wait_")
        }
        """Questions that are shown and not reported as closed, by their id."""

    async def follow(self, settled: asyncio.Event) -> Reply | None:
        """Return the last reply. `settled` is set while the run waits for a person."""
        problem: StreamError | None = None
        async with aclosing(self._events()) as events:
            async for event in events:
                self._answer.feed(event)
                match event:
                    case StreamStart() | Restart(agent=None) | Step():
                        settled.clear()
                        await self._close_answered()
                    case Token(agent=None) | AssistantMessage(agent=None):
                        await self._show()
                    case ToolStatus(agent=None):
                        self._note(event)
                        await self._show()
                    case Waiting() if event.kind in ANSWERABLE:
                        if await self._ask():
                            settled.set()
                    case StreamError():
                        problem = event
                    case StreamEnd(final=True):
                        await self._close_answered(all_of_them=True)
                        return end_reply(self._origin, self._run_id, event, problem)
                    case _:
                        pass
        return None

    def _note(self, event: ToolStatus) -> None:
        status = {"started": "running", "running": "running", "completed": "completed"}.get(event.status, "failed")
        if event.tool_call_id in self._tools or len(self._tools) < _MAX_TOOLS:
            line = ToolLine.model_validate({"name": event.tool_name, "status": status})
            self._tools[event.tool_call_id] = line

    async def _show(self) -> None:
        begun = self._tools or len(self._answer.open) >= FIRST_CHARS
        if self._deliverer.streams and begun and time.monotonic() - self._shown_s >= _PARTIAL_EVERY_S:
            self._shown_s = time.monotonic()
            reply = text_reply("partial", self._origin, self._answer.open, self._run_id)
            await self._deliverer.show(reply.model_copy(update={"tools": tuple(self._tools.values())}))

    async def _ask(self) -> bool:
        """Deliver the open questions of the run that were not asked yet. Return whether there are open ones."""
        waits = await self._deliverer.answered(lambda: self._conversations.open_waits(self._run_id))
        for wait in waits:
            if wait.id not in self._asked:
                self._asked.add(wait.id)
                self._open[wait.id] = question_reply(self._origin, wait)
                await self._deliverer.deliver(self._open[wait.id])
        return bool(waits)

    async def _close_answered(self, *, all_of_them: bool = False) -> None:
        """Report questions that were answered, here or elsewhere, as closed."""
        open_ids: set[str] = set()
        if self._open and not all_of_them:
            waits = await self._deliverer.answered(lambda: self._conversations.open_waits(self._run_id))
            open_ids = {wait.id for wait in waits}
        for wait_id in [*self._open]:
            if wait_id not in open_ids:
                await self._deliverer.show(closed_reply(self._open.pop(wait_id)))

    async def _events(self) -> AsyncGenerator[Event]:
        """Yield the events of the run, each once, also while the API is away for a long time."""
        seen, failures = EventCursor(), 0
        while True:
            try:
                async with aclosing(self._client.runs.events(self._run_id, after=seen)) as events:
                    async for cursor, event in events:
                        seen, failures = cursor, 0
                        yield event
            except (Unavailable, TooManyRequests) as error:
                failures += 1
                await self._deliverer.pause(failures, error)
            else:
                return
