"""What a run waits for from the editor: calls of its tools, permissions, and questions to the person."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final

from acp.exceptions import RequestError
from acp.helpers import text_block, tool_content
from acp.schema import (
    CreateFormSessionElicitationRequest,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from nova_workers.base.errors import InvalidInput, NovaError, Unavailable
from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.acp.editor import Editor
from nova_workers.cli.acp.tools import EditorTools
from nova_workers.cli.acp.updates import kind_of, said, thought, title_of
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import (
    AskApproval,
    AskUser,
    CallClientTool,
    RunAnswer,
    ToolResult,
    ToolResults,
    WaitView,
)

AGAIN_S: Final = 2.0
"""Pause between two attempts while the fleet does not answer, beside those of the client."""
_LONGEST_CHOICES: Final = 6
"""Most options that are shown as buttons."""


@dataclass
class Waits:
    """The waits of a session's runs.

    Attributes:
        asked: The question that the next prompt answers.
        handed: Set when a question was left to the next prompt.
    """

    session_id: str
    client: NovaClient
    editor: Editor
    tools: EditorTools
    asked: WaitView | None = None
    handed: asyncio.Event = field(default_factory=asyncio.Event)
    _begun: set[str] = field(default_factory=set[str])
    """Waits that are being answered, or were."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def stop(self) -> None:
        """Stop what is being answered."""
        await stop_tasks(self._tasks)

    async def attend(self, run: RunView) -> None:
        """Begin to answer what a run waits for."""
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
        self.asked = wait
        await self.editor.show(self.session_id, said(_with_options(request), wait.id))
        self.handed.set()

    def _begin(self, wait: WaitView, work: Coroutine[None, None, None]) -> None:
        self._begun.add(wait.id)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _execute(self, wait: WaitView, call: CallClientTool) -> None:
        text, failed = await self.tools.call(wait.tool_call_id, call.tool_name, call.params)
        result = ToolResult(tool_call_id=wait.tool_call_id, content=text, is_error=failed)

        async def give() -> RunView:
            try:
                return await self.client.runs.give_results(wait.run_id, ToolResults(results=[result]))
            except InvalidInput as error:
                refused = result.model_copy(update={"content": error.message, "is_error": True})
                return await self.client.runs.give_results(wait.run_id, ToolResults(results=[refused]))

        await self._settle(give)

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
            chosen = await self.editor.choose(self.session_id, call, options)
        except RequestError as error:
            await self.editor.show(self.session_id, thought(f"The editor cannot ask: {error}\n"))
            return None
        return chosen if chosen in {option.option_id for option in options} else None

    async def _ask_by_form(self, wait: WaitView, request: AskUser) -> None:
        field_ = ElicitationStringPropertySchema(
            type="string", title="Answer", enum=list(request.options) if request.only_options else None
        )
        form = CreateFormSessionElicitationRequest(
            session_id=self.session_id,
            mode="form",
            message=_with_options(request) if not request.only_options else request.question,
            requested_schema=ElicitationSchema(properties={"answer": field_}, required=["answer"]),
        )
        try:
            filled_in = await self.editor.fill_in(form) or {}
        except RequestError as error:
            await self.editor.show(self.session_id, thought(f"The editor cannot show a form: {error}\n"))
            filled_in = {}
        if text := str(filled_in.get("answer") or "").strip():
            await self._answer(wait, RunAnswer(text=text, wait_id=wait.id))
        else:
            await self._leave_to_prompt(wait, request)

    async def _answer(self, wait: WaitView, answer: RunAnswer) -> None:
        await self._settle(lambda: self.client.runs.answer(wait.run_id, answer))

    async def _settle(self, send: Callable[[], Awaitable[RunView]]) -> None:
        """Give an answer or a result, again while the fleet does not answer: a tool is not called twice for it."""
        while True:
            try:
                await send()
                return
            except Unavailable:
                await asyncio.sleep(AGAIN_S)
            except NovaError as error:
                # Another was first, or its time was over.
                await self.editor.show(self.session_id, thought(f"The answer was not taken: {error.message}\n"))
                return


def _with_options(request: AskUser) -> str:
    return request.question + "".join(f"\n- {option}" for option in request.options)
