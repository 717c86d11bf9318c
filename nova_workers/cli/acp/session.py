"""A session of an editor: a thread of the fleet, with what belongs to the editor's machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from acp.exceptions import RequestError
from acp.helpers import text_block, tool_content
from acp.schema import (
    CreateFormSessionElicitationRequest,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    SessionInfoUpdate,
    StopReason,
    ToolCallUpdate,
)

from nova_workers.base.errors import Conflict, InvalidInput, NovaError
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.acp.editor import Editor, refusal
from nova_workers.cli.acp.mcp_servers import ToolServers
from nova_workers.cli.acp.tools import EditorTools
from nova_workers.cli.acp.updates import (
    LiveUpdates,
    StoredUpdates,
    kind_of,
    plan_of,
    prompted,
    said,
    tasks_of,
    thought,
    title_of,
)
from nova_workers.client.client import NovaClient
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.events import EventCursor, Step, StreamEnd, StreamError, Waiting
from nova_workers.contracts.http.wire import MessageView, RunCreate, RunView
from nova_workers.contracts.run_options import RunOptions
from nova_workers.contracts.waits import (
    AskApproval,
    AskUser,
    CallClientTool,
    RunAnswer,
    ToolResult,
    ToolResults,
    WaitView,
)

_CANCELED_S: Final = 5.0
"""Longest wait for a canceled run to end: a worker may have died with it. The editor has its answer then."""
_PAGE: Final = 200

_AT_LIMIT: Final[Mapping[str, StopReason]] = {
    "turns": "max_turn_requests",
    "tokens": "max_tokens",
    "cost": "max_turn_requests",
    "time": "max_turn_requests",
}
_LONGEST_CHOICES: Final = 6
"""Most options that are shown as buttons."""


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
    model: str | None = None
    title: str | None = None
    skills: Mapping[str, str] = field(default_factory=dict[str, str])
    """The agent's skills, which are its commands, with what they are for."""
    last_message: str | None = None
    """The newest message that the editor was shown."""
    from_depth: int | None = None
    """Where the messages begin that it was not shown, before it was shown any."""
    _run: tuple[str, LiveUpdates] | None = None
    """The run that is followed, or was last."""
    _asked: WaitView | None = None
    """The question that the next prompt answers."""
    _cursor: EventCursor = field(default_factory=EventCursor)
    _begun: set[str] = field(default_factory=set[str])
    """Waits that are being answered, or were."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the prompt that is being answered; others wait for it."""
    _cancels: int = 0
    _canceled: asyncio.Event = field(default_factory=asyncio.Event)
    _handed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a question was left to the next prompt."""

    async def prompt(self, message: list[ContentBlock], text: str, options: RunOptions) -> StopReason:
        """Send a message, or answer the question that the agent asked, and show what follows.

        Raises:
            RequestError: The run failed.
            NovaError: The fleet refused the message.
        """
        cancels = self._cancels
        async with self._turn:
            if cancels != self._cancels:
                return "cancelled"
            self._canceled.clear()
            is_answer = self._asked is not None and await self._answered(self._asked, text)
            self._asked = None
            if self._run is None or not is_answer:
                body = RunCreate(message=message, model=self.model, **options.model_dump(exclude_unset=True))
                run = await self.client.runs.create(body, thread_id=self.id)
                self._run, self._cursor = (run.id, LiveUpdates(run.id)), EventCursor()
            return await self._until_canceled(*self._run)

    async def take_up(self, run_id: str, *, shown_steps: int = 0) -> None:
        """Show what the thread's active run does, and answer what it asks: another process began it.

        Args:
            run_id: The active run of the thread.
            shown_steps: How many of its steps the editor has.
        """
        async with self._turn:
            self._canceled.clear()
            self._run, self._cursor = (run_id, LiveUpdates(run_id, shown_steps=shown_steps)), EventCursor()
            await self._until_canceled(*self._run)

    async def cancel(self) -> None:
        """Cancel the run that is followed, and prompts that wait for it.

        They are answered soon, even if no worker answers.
        """
        self._cancels += 1
        self._canceled.set()

    async def close(self) -> None:
        """Cancel what runs, and stop the tool servers."""
        await self.cancel()
        if self._turn.locked() and self._run is not None:
            await self._cancel_run(self._run[0])
        await self.leave()

    async def leave(self) -> None:
        """Stop what this process does for the session. What runs in the fleet goes on."""
        await stop_tasks(self._tasks)
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

    async def _until_canceled(self, run_id: str, live: LiveUpdates) -> StopReason:
        self._handed.clear()
        follow = asyncio.ensure_future(self._follow(run_id, live))
        canceled = asyncio.ensure_future(self._canceled.wait())
        handed = asyncio.ensure_future(self._handed.wait())
        try:
            await asyncio.wait({follow, canceled, handed}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                return follow.result()
            if handed.done():
                return "end_turn"
            await stop_tasks(self._tasks)
            await self._cancel_run(run_id)
            await asyncio.wait({follow}, timeout=_CANCELED_S)
            return "cancelled"
        finally:
            await stop_tasks({follow, canceled, handed})

    async def _cancel_run(self, run_id: str) -> None:
        try:
            await self.client.runs.cancel(run_id)
        except NovaError:
            # It ended meanwhile, or the fleet does not answer; the editor gets its answer either way.
            pass

    async def _follow(self, run_id: str, live: LiveUpdates) -> StopReason:
        """Show a run until it ends, or asks what the next prompt answers."""
        error: StreamError | None = None
        async with aclosing(self.client.runs.events(run_id, after=self._cursor)) as feed:
            async for cursor, event in feed:
                self._cursor = cursor
                for update in live.of(event):
                    await self.editor.show(self.id, update)
                match event:
                    case Step():
                        await self._show_details()
                    case Waiting(kind="user" | "approval" | "client_tool"):
                        await self._attend(run_id)
                    case StreamError():
                        error = event
                    case StreamEnd(final=True):
                        await self._show_details()
                        await self._show_title()
                        return _outcome(event, error)
                    case _:
                        pass
        # The run had ended before the cursor.
        return "end_turn"

    async def _show_details(self) -> None:
        """Show what the ledger has of the calls since the last step."""
        messages = [message async for message in self._unseen()]
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

    async def _attend(self, run_id: str) -> None:
        """Begin to answer what a run waits for."""
        run = await self.client.runs.get(run_id)
        for wait in run.waits:
            if wait.id in self._begun:
                continue
            match wait.request:
                case CallClientTool():
                    self._begin(wait, self._execute(wait, wait.request))
                case AskApproval():
                    self._begin(wait, self._ask_permission(wait, wait.request))
                case AskUser() if self.editor.has_forms:
                    self._begin(wait, self._ask_by_form(wait, wait.request))
                case AskUser() if wait.request.only_options and len(wait.request.options) <= _LONGEST_CHOICES:
                    self._begin(wait, self._ask_to_choose(wait, wait.request))
                case AskUser():
                    self._begin(wait, self._leave_to_prompt(wait, wait.request))
                case _:
                    pass

    async def _leave_to_prompt(self, wait: WaitView, request: AskUser) -> None:
        """Say a question as the agent would, and let the next prompt answer it."""
        self._asked = wait
        await self.editor.show(self.id, said(_with_options(request), wait.id))
        self._handed.set()

    def _begin(self, wait: WaitView, work: Coroutine[None, None, None]) -> None:
        self._begun.add(wait.id)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, wait: WaitView, call: CallClientTool) -> None:
        text, failed = await self.tools.call(wait.tool_call_id, call.tool_name, call.params)
        result = ToolResult(tool_call_id=wait.tool_call_id, content=text, is_error=failed)
        try:
            await self.client.runs.give_results(wait.run_id, ToolResults(results=[result]))
        except InvalidInput as error:
            refused = result.model_copy(update={"content": error.message, "is_error": True})
            await self._settle(self.client.runs.give_results(wait.run_id, ToolResults(results=[refused])))
        except NovaError as error:
            await self._not_taken(error)

    async def _ask_permission(self, wait: WaitView, request: AskApproval) -> None:
        call = ToolCallUpdate(
            tool_call_id=wait.tool_call_id,
            title=title_of(request.tool_name, request.params),
            kind=kind_of(request.tool_name),
            raw_input=request.params,
            content=[tool_content(text_block(request.reason))] if request.reason else None,
        )
        allow = PermissionOption(option_id="allow", name="Allow", kind="allow_once")
        reject = PermissionOption(option_id="reject", name="Reject", kind="reject_once")
        # A dialog that is closed permits nothing: what it asked is shown nowhere else.
        chosen = await self._chosen(call, [allow, reject])
        await self._answer(wait, RunAnswer(approve=chosen == "allow", wait_id=wait.id))

    async def _ask_to_choose(self, wait: WaitView, request: AskUser) -> None:
        call = ToolCallUpdate(tool_call_id=wait.tool_call_id, title=request.question, kind="other")
        options = [
            PermissionOption(option_id=str(index), name=option, kind="allow_once")
            for index, option in enumerate(request.options)
        ]
        chosen = await self._chosen(call, options)
        if chosen is None:
            await self._leave_to_prompt(wait, request)
        else:
            await self._answer(wait, RunAnswer(text=request.options[int(chosen)], wait_id=wait.id))

    async def _chosen(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Return the option that the person chose; None if the dialog was closed, or could not be shown."""
        try:
            chosen = await self.editor.choose(self.id, call, options)
        except RequestError as error:
            await self.note(f"The editor cannot ask: {error}\n")
            return None
        return chosen if chosen in {option.option_id for option in options} else None

    async def _ask_by_form(self, wait: WaitView, request: AskUser) -> None:
        field_ = ElicitationStringPropertySchema(
            type="string", title="Answer", enum=list(request.options) if request.only_options else None
        )
        form = CreateFormSessionElicitationRequest(
            session_id=self.id,
            mode="form",
            message=_with_options(request) if not request.only_options else request.question,
            requested_schema=ElicitationSchema(properties={"answer": field_}, required=["answer"]),
        )
        try:
            filled_in = await self.editor.fill_in(form) or {}
        except RequestError as error:
            await self.note(f"The editor cannot show a form: {error}\n")
            filled_in = {}
        if text := str(filled_in.get("answer") or "").strip():
            await self._answer(wait, RunAnswer(text=text, wait_id=wait.id))
        else:
            await self._leave_to_prompt(wait, request)

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

    async def _answer(self, wait: WaitView, answer: RunAnswer) -> None:
        await self._settle(self.client.runs.answer(wait.run_id, answer))

    async def _settle(self, request: Awaitable[RunView]) -> None:
        try:
            await request
        except NovaError as error:
            await self._not_taken(error)

    async def _not_taken(self, error: NovaError) -> None:
        """Say that an answer came to nothing: another was first, its time was over, or the fleet does not answer."""
        await self.editor.show(self.id, thought(f"The answer was not taken: {error.message}\n"))


def _with_options(request: AskUser) -> str:
    return request.question + "".join(f"\n- {option}" for option in request.options)


def _outcome(end: StreamEnd, error: StreamError | None) -> StopReason:
    if end.status == "canceled":
        return "cancelled"
    if end.status == "failed":
        message = "The run failed." if error is None else error.error
        raise RequestError(-32603, message, {"run_id": end.run_id, "kind": None if error is None else error.kind})
    if end.limit is not None:
        return _AT_LIMIT[end.limit]
    return "max_tokens" if end.stop_reason == "max_tokens" else "end_turn"
