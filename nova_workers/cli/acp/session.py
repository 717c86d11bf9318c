"""A session of an editor: a thread of the fleet, with what belongs to the editor's machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Final

from acp.exceptions import RequestError
from acp.schema import (
    SessionInfoUpdate,
    StopReason,
)

from nova_workers.base.errors import Conflict, Gone, NotFound, NovaError, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.acp.editor import Editor, refusal
from nova_workers.cli.acp.mcp_servers import ToolServers
from nova_workers.cli.acp.tools import EditorTools
from nova_workers.cli.acp.updates import (
    LiveUpdates,
    StoredUpdates,
    plan_of,
    prompted,
    tasks_of,
    thought,
)
from nova_workers.cli.acp.waits import AGAIN_S, Waits
from nova_workers.client.client import NovaClient
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.events import Event, EventCursor, Step, StreamEnd, StreamError, Waiting
from nova_workers.contracts.http.wire import MessageView, RunCreate, RunView
from nova_workers.contracts.run_options import RunOptions
from nova_workers.contracts.waits import (
    RunAnswer,
    WaitView,
)

_CANCELED_S: Final = 5.0
"""Longest wait for the fleet to take a cancel, and for a canceled run to end: a worker may have died with it. The
editor has its answer then."""
_PAGE: Final = 200

_AT_LIMIT: Final[Mapping[str, StopReason]] = {
    "turns": "max_turn_requests",
    "tokens": "max_tokens",
    "cost": "max_turn_requests",
    "time": "max_turn_requests",
}


@dataclass
class _Followed:
    """A run that is shown.

    Attributes:
        cursor: The newest event that was shown.
        due: An event that was shown, while what it asks for is not done: the fleet did not answer.
        error: Why it failed, if it did.
    """

    run_id: str
    live: LiveUpdates
    cursor: EventCursor = field(default_factory=EventCursor)
    due: Event | None = None
    error: StreamError | None = None


@dataclass
class EditorSession:
    """One session.

    Attributes:
        id: The thread.
        model: The model of its next runs; None is the agent's.
    """

    id: str
    client: NovaClient
    editor: Editor
    tools: EditorTools
    servers: ToolServers
    stored: StoredUpdates
    waits: Waits
    model: str | None = None
    title: str | None = None
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    """The agent's skills, which are its commands, with what they are for."""
    last_message: str | None = None
    """The newest message that the editor was shown."""
    from_depth: int | None = None
    """Where the messages begin that it was not shown, before it was shown any."""
    _run: _Followed | None = None
    """The run that is followed, or was last."""
    _unsettled: tuple[RunCreate, str] | None = None
    """A message of which it is not known whether the fleet accepted it, and the key of its request."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the prompt that is being answered; others wait for it."""
    _lost: bool = False
    """Whether the stream of the run was lost before its end, so that nothing reads what the run asks."""
    _reader: asyncio.Task[None] | None = None
    """Follows a run whose stream was lost, once the fleet answers again."""
    _cancels: int = 0
    _canceled: asyncio.Event = field(default_factory=asyncio.Event)
    _left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this process does nothing more for the session."""

    async def prompt(self, message: list[ContentBlock], text: str, options: RunOptions) -> StopReason:
        """Send a message, or answer the question that the agent asked, and show what follows.

        Raises:
            RequestError: The run failed, or the run before asked something meanwhile; then nothing was sent.
            NovaError: The fleet refused the message, or does not answer.
        """
        cancels = self._cancels
        async with self._turn:
            if cancels != self._cancels or self._left.is_set():
                return "cancelled"
            self._canceled.clear()
            asked = self.waits.asked
            await self._finish_lost()
            if cancels != self._cancels:
                return "cancelled"
            if self.waits.asked is not asked:
                raise refusal("The agent asks something. Answer it, and send your message again.", field="prompt")
            is_answer = self.waits.asked is not None and await self._answered(self.waits.asked, text)
            self.waits.asked = None
            if self._run is None or not is_answer:
                body = RunCreate(message=message, model=self.model, **options.model_dump(exclude_unset=True))
                run = await self._send(body)
                self._run = _Followed(run.id, LiveUpdates(run.id))
            return await self._show_run(self._run)

    async def _send(self, body: RunCreate) -> RunView:
        """Send a message. The same one again, after an outage, is the same request: the fleet accepts it once."""
        if self._unsettled is None or self._unsettled[0] != body:
            self._unsettled = (body, new_id("evt"))
        try:
            run = await self.client.runs.create(body, thread_id=self.id, idempotency_key=self._unsettled[1])
        except Unavailable:
            raise
        except NovaError:
            self._unsettled = None
            raise
        self._unsettled = None
        return run

    async def take_up(self, run_id: str, *, shown_steps: int = 0) -> None:
        """Show what the thread's active run does, and answer what it asks: another process began it.

        Args:
            run_id: The active run of the thread.
            shown_steps: How many of its steps the editor has.
        """
        async with self._turn:
            self._canceled.clear()
            self._run = _Followed(run_id, LiveUpdates(run_id, shown_steps=shown_steps))
            await self._show_run(self._run)

    async def cancel(self) -> None:
        """Cancel the run that is followed, and prompts that wait for it.

        They are answered soon, even if no worker answers.
        """
        self._cancels += 1
        self._canceled.set()

    async def close(self) -> None:
        """Cancel what runs, and stop the tool servers.

        Raises:
            NovaError: The run goes on. The session is closed nevertheless.
        """
        await self.cancel()
        try:
            if self._run is not None and (self._turn.locked() or self._lost):
                await self._cancel_run(self._run.run_id)
        finally:
            await self.leave()

    async def leave(self) -> None:
        """Stop what this process does for the session. What runs in the fleet goes on; its prompt ends."""
        self._left.set()
        await stop_tasks(() if self._reader is None else (self._reader,))
        await self.waits.stop()
        await self.servers.stop()

    async def note(self, text: str) -> None:
        """Show a note that is no part of the conversation."""
        await self.editor.show(self.id, thought(text))

    async def replay(self, to_depth: int | None = None) -> None:
        """Show the conversation from its beginning, up to the turn at a depth."""
        async for message in self._unseen(to_depth):
            for update in self.stored.replayed(message):
                await self.editor.show(self.id, update)

    async def show_prompt(self, run: RunView) -> None:
        """Show the message of a run, as its editor did that sent it."""
        for update in prompted(run.id, run.message):
            await self.editor.show(self.id, update)

    async def _show_run(self, run: _Followed) -> StopReason:
        """Show a run until it ends, asks what the next prompt answers, or is canceled.

        Raises:
            RequestError: The run failed.
            Unavailable: The fleet does not answer. Once it does, the run is followed again.
        """
        try:
            return await self._until_canceled(run)
        except Unavailable as error:
            self._lost = True
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read_again())
            raise Unavailable(error.message, run_id=run.run_id) from error

    async def _read_again(self) -> None:
        """Follow the run whose stream was lost, so that what it asks is answered."""
        while self._lost:
            await asyncio.sleep(AGAIN_S)
            async with self._turn:
                with suppress(Unavailable, ConnectionError):
                    await self._finish_lost()

    async def _finish_lost(self) -> None:
        """Show the rest of a run whose stream was lost.

        Raises:
            Unavailable: The fleet does not answer yet.
        """
        if not self._lost or self._run is None:
            return
        try:
            await self._show_run(self._run)
        except Unavailable:
            raise
        except (NovaError, RequestError) as error:
            await self.note(f"The run before ended: {error}\n")
        self._lost = False

    async def _until_canceled(self, run: _Followed) -> StopReason:
        self.waits.handed.clear()
        follow = asyncio.ensure_future(self._follow(run))
        canceled = asyncio.ensure_future(self._canceled.wait())
        handed = asyncio.ensure_future(self.waits.handed.wait())
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({follow, canceled, handed, left}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                return follow.result()
            if handed.done():
                return "end_turn"
            if not canceled.done():
                return "cancelled"
            await self.waits.stop()
            try:
                await self._cancel_run(run.run_id)
            except NovaError as error:
                await self.note(
                    f"The run was not canceled, and goes on in the fleet: {error.message} "
                    f"`nova runs cancel {run.run_id}` cancels it.\n"
                )
            else:
                await asyncio.wait({follow}, timeout=_CANCELED_S)
            return "cancelled"
        finally:
            await stop_tasks({follow, canceled, handed, left})

    async def _cancel_run(self, run_id: str) -> None:
        """Cancel a run, unless it has ended.

        Raises:
            NovaError: It goes on, as far as is known.
        """
        try:
            async with asyncio.timeout(_CANCELED_S):
                await self.client.runs.cancel(run_id)
        except (Conflict, Gone, NotFound):
            pass
        except TimeoutError as error:
            raise Unavailable(f"The fleet did not answer for {_CANCELED_S:g} s.") from error

    async def _follow(self, run: _Followed) -> StopReason:
        """Show a run until it ends, or asks what the next prompt answers."""
        outcome = await self._do_due(run)
        if outcome is not None:
            return outcome
        async with aclosing(self.client.runs.events(run.run_id, after=run.cursor)) as feed:
            async for cursor, event in feed:
                for update in run.live.of(event):
                    await self.editor.show(self.id, update)
                run.cursor, run.due = cursor, event
                outcome = await self._do_due(run)
                if outcome is not None:
                    return outcome
        # The run had ended before the cursor.
        return "end_turn"

    async def _do_due(self, run: _Followed) -> StopReason | None:
        """Do what the newest event of a run asks for, and return how the run ended; None if it goes on.

        Raises:
            Unavailable: The fleet does not answer. It stays due.
            RequestError: The run failed.
        """
        end: StreamEnd | None = None
        match run.due:
            case Step():
                await self._show_details()
            case Waiting(kind="user" | "approval" | "client_tool"):
                await self.waits.attend(await self.client.runs.get(run.run_id))
            case StreamError() as error:
                run.error = error
            case StreamEnd(final=True) as end:
                await self._show_details()
                await self._show_title()
            case _:
                pass
        run.due = None
        return None if end is None else _outcome(end, run.error)

    async def _show_details(self) -> None:
        """Show what the ledger has of the calls since the last step."""
        shown = self.last_message
        try:
            messages = [message async for message in self._unseen()]
        except NovaError:
            self.last_message = shown
            raise
        for message in messages:
            for update in self.stored.details(message):
                await self.editor.show(self.id, update)
        for task_id in tasks_of(messages):
            try:
                task = await self.client.tasks.get(task_id)
            except NovaError:
                continue
            await self.editor.show(self.id, plan_of(task))

    async def _unseen(self, to_depth: int | None = None) -> AsyncGenerator[MessageView]:
        cursor: str | None = None
        after, from_depth = self.last_message, self.from_depth if self.last_message is None else None
        while True:
            page = await self.client.threads.messages(
                self.id, after=after, from_depth=from_depth, to_depth=to_depth, limit=_PAGE, cursor=cursor
            )
            for message in page.items:
                self.last_message = message.id
                yield message
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _show_title(self) -> None:
        title = (await self.client.threads.get(self.id)).title
        if title is not None and title != self.title:
            self.title = title
            await self.editor.show(self.id, SessionInfoUpdate(session_update="session_info_update", title=title))

    async def _answered(self, wait: WaitView, text: str) -> bool:
        """Answer a question with a prompt. Return whether it was still open.

        Raises:
            RequestError: The prompt has no text.
        """
        if not text:
            raise refusal("The agent waits for the answer to its question: a text.", field="prompt")
        try:
            await self.client.runs.answer(wait.run_id, RunAnswer(text=text, wait_id=wait.id))
        except Conflict:
            return False
        return True


def _outcome(end: StreamEnd, error: StreamError | None) -> StopReason:
    if end.status == "canceled":
        return "cancelled"
    if end.status == "failed":
        message = "The run failed." if error is None else error.error
        raise RequestError(-32603, message, {"run_id": end.run_id, "kind": None if error is None else error.kind})
    if end.limit is not None:
        return _AT_LIMIT[end.limit]
    return "max_tokens" if end.stop_reason == "max_tokens" else "end_turn"
