"""Keeps secrets out of a run's journal, result, live events and SDK session.

Within a turn the conversation contains the values, since the model must be able to use them. The output of the engine
is redacted here. So later turns, and a turn resumed after a crash, contain placeholders, and the model reads a secret
again if needed. Only the arguments of a pending call are restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nova_workers.base.errors import Outage
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    DeferredCall,
    EngineEvent,
    EngineResult,
    ForwardingListener,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.sessions import NewSession, SessionStore, StoredSession
from nova_workers.contracts.steps import ModelRequest, ToolServerAway
from nova_workers.contracts.waits import MAX_ANSWER_CHARS, MAX_MESSAGE_CHARS, MAX_OPTION_CHARS
from nova_workers.domain.runs.sql.resume import Journal

_WORDS: dict[str, int | None] = {
    "question": MAX_ANSWER_CHARS,
    "options": MAX_OPTION_CHARS,
    "default": MAX_ANSWER_CHARS,
    "message": MAX_MESSAGE_CHARS,
    "params": None,
    "reason": None,
}
"""Free-text fields of a `WaitRequest` with their maximum lengths. Only these are redacted."""


class RedactedListener(ForwardingListener):
    """Forwards everything with secrets redacted.

    Streamed text that may be the beginning of a secret is held back until the next piece, or an event of another kind,
    decides.
    """

    def __init__(self, to: TurnListener, redactor: Redactor) -> None:
        super().__init__(to)
        self._redactor = redactor
        self._text = redactor.stream()
        self._reasoning = redactor.stream()
        self._nested: list[RedactedListener] = []

    def settle(self) -> None:
        """Forward the text held back, at the end of a text."""
        for nested in self._nested:
            nested.settle()
        self._end_reasoning()
        self._end_text()

    def redact(self, result: EngineResult) -> EngineResult:
        """Forward the text held back and return the turn's result without secrets."""
        self.settle()
        return redact_result(result, self._redactor)

    def on_token(self, text: str) -> None:
        """Forward text that cannot be part of a secret."""
        self._end_reasoning()
        clean = self._text.feed(text)
        if clean:
            self._to.on_token(clean)

    def on_reasoning(self, text: str) -> None:
        """Forward text that cannot be part of a secret."""
        self._end_text()
        clean = self._reasoning.feed(text)
        if clean:
            self._to.on_reasoning(clean)

    def on_restart(self) -> None:
        """Drop the text held back of the void response."""
        self._text.drop()
        self._reasoning.drop()
        self._to.on_restart()

    def on_thinking(self) -> None:
        """Forward the text held back, then the event."""
        self.settle()
        self._to.on_thinking()

    def on_request(self, request: ModelRequest) -> None:
        """Forward the request without secrets: an agent's instructions or memories may contain one."""
        redactor = self._redactor
        if redactor.is_empty:
            # As the same objects, by which the journal knows the request before.
            self._to.on_request(request)
            return
        self._to.on_request(
            replace(
                request,
                system=redactor.text(request.system),
                tools=[redactor.json(tool) for tool in request.tools],
                parameters=redactor.json(request.parameters),
            )
        )

    def on_provider_wait(self, outage: Outage, why: str, pause_s: float) -> None:
        """Forward the pause without secrets: providers quote requests in their errors."""
        self._to.on_provider_wait(outage, self._redactor.text(why), pause_s)

    def on_option_left_out(self, option: str, note: str) -> None:
        """Forward the note without secrets."""
        self._to.on_option_left_out(option, self._redactor.text(note))

    def on_assistant_message(self, text: str) -> None:
        """Forward the narration without secrets."""
        self.settle()
        self._to.on_assistant_message(self._redactor.text(text))

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Forward the call without secrets."""
        self.settle()
        self._to.on_tool_use(_call(call, self._redactor), self._redactor.text(summary))

    def on_tool_use_summary(self, summary: str) -> None:
        """Forward the summary without secrets."""
        self.settle()
        self._to.on_tool_use_summary(self._redactor.text(summary))

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Forward the progress without secrets."""
        self.settle()
        self._to.on_tool_progress(_call(call, self._redactor), self._redactor.text(summary))

    def on_event(self, event: EngineEvent) -> None:
        """Forward the event without secrets."""
        self._to.on_event(EngineEvent(event.type, self._redactor.json(event.data)))

    async def on_content_refused(self, left_out: tuple[LeftOut, ...]) -> None:
        """Forward the blocks as the ledger stores them."""
        redactor = self._redactor
        await self._to.on_content_refused(
            tuple(replace(each, block=redactor.json(each.block), note=redactor.text(each.note)) for each in left_out)
        )

    async def on_tool_servers(self, away: tuple[ToolServerAway, ...]) -> None:
        """Forward the servers without secrets."""
        text = self._redactor.text
        await self._to.on_tool_servers(
            tuple(replace(each, reason=text(each.reason), output=tuple(map(text, each.output))) for each in away)
        )

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Forward the result without secrets."""
        self.settle()
        await self._to.on_tool_result(_call(call, self._redactor), self._redactor.text(summary))

    async def on_tool_calls(self, step: StepRecord) -> None:
        """Forward the response without secrets."""
        self.settle()
        await self._to.on_tool_calls(_step(step, self._redactor))

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Forward the step without secrets."""
        self.settle()
        return await self._to.on_step(_step(step, self._redactor))

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Learn the secrets that the call sets, and forward the call unchanged.

        Command patterns must match the real arguments. A request for approval is redacted with the result.
        """
        self._redactor.learn_call(tool_name, params)
        return await self._to.authorize_tool(tool_name, params)

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Redact a subagent's events as well."""
        nested = RedactedListener(self._to.subagent(call_id, name), self._redactor)
        self._nested.append(nested)
        return nested

    def _end_text(self) -> None:
        rest = self._text.end()
        if rest:
            self._to.on_token(rest)

    def _end_reasoning(self) -> None:
        rest = self._reasoning.end()
        if rest:
            self._to.on_reasoning(rest)


class RedactedSessions:
    """A store of SDK sessions that receives no secrets.

    A redacted session no longer matches the conversation; engines then continue from the ledger, as with any outdated
    session.
    """

    def __init__(self, sessions: SessionStore, redactor: Redactor) -> None:
        self._sessions = sessions
        self._redactor = redactor

    async def load(self, session_id: str) -> StoredSession | None:
        """Return a session. See `nova_workers.contracts.sessions.SessionStore`."""
        return await self._sessions.load(session_id)

    async def save(self, session: NewSession) -> None:
        """Save a session. See `nova_workers.contracts.sessions.SessionStore`."""
        entries = tuple(self._redactor.json(entry) for entry in session.entries)
        await self._sessions.save(replace(session, entries=entries))


def redact_result(result: EngineResult, redactor: Redactor) -> EngineResult:
    """Return a turn's result without secrets."""
    error = result.error
    compaction = result.compaction
    return replace(
        result,
        text=redactor.text(result.text),
        messages=_messages(result.messages, redactor),
        tool_calls=tuple(_call(call, redactor) for call in result.tool_calls),
        error=None if error is None else replace(error, message=redactor.text(error.message)),
        compaction=None if compaction is None else replace(compaction, summary=redactor.text(compaction.summary)),
        output=redactor.json(result.output),
        deferred=tuple(
            DeferredCall(_call(each.call, redactor), _request(each.request, redactor)) for each in result.deferred
        ),
    )


def restore_open_calls(journal: Journal, redactor: Redactor) -> Journal:
    """Return the journal with the original arguments of pending calls.

    These are calls that waited for permission and calls that may be repeated after a crash. Only secrets that the model
    can read are restored.
    """
    if redactor.is_empty or not journal.steps or journal.steps[-1].complete:
        return journal
    last = journal.steps[-1]
    pending = {
        call.id for call in last.tool_calls if call.result is None and not redactor.is_given_secrets(call.tool_name)
    }
    calls = tuple(
        replace(call, params=redactor.restore(call.params)) if call.id in pending else call for call in last.tool_calls
    )
    messages = tuple(
        Message(message.role, tuple(_restored(block, pending, redactor) for block in message.content))
        for message in last.messages
    )
    return replace(journal, steps=(*journal.steps[:-1], replace(last, messages=messages, tool_calls=calls)))


def _restored(block: ContentBlock, pending: set[str], redactor: Redactor) -> ContentBlock:
    if block.get("type") == "tool_use" and block.get("id") in pending:
        return {**block, "input": redactor.restore(block.get("input"))}
    return block


def _step(step: StepRecord, redactor: Redactor) -> StepRecord:
    for call in step.tool_calls:
        redactor.learn_call(call.tool_name, call.params)
    calls = tuple(_call(call, redactor) for call in step.tool_calls)
    return replace(step, messages=_messages(step.messages, redactor), tool_calls=calls)


def _call(call: ToolCall, redactor: Redactor) -> ToolCall:
    redactor.learn_call(call.tool_name, call.params)
    return replace(
        call,
        params=redactor.json(call.params),
        result=None if call.result is None else tuple(redactor.json(block) for block in call.result),
        error=None if call.error is None else redactor.text(call.error),
    )


def _request(request: JsonObject, redactor: Redactor) -> JsonObject:
    """Return a wait request without secrets. Only free-text fields change, within their maximum lengths."""
    # A default must stay one of the options, so both are truncated alike.
    bounds = {**_WORDS, "default": MAX_OPTION_CHARS} if request.get("options") else _WORDS
    return {
        key: _within(redactor.json(value), bounds[key]) if key in bounds else value for key, value in request.items()
    }


def _within(value: Any, max_chars: int | None) -> Any:
    """Truncate a text, or each text of a list: a placeholder may be longer than the secret."""
    if isinstance(value, list):
        return [_within(item, max_chars) for item in value]
    if isinstance(value, str) and max_chars is not None and len(value) > max_chars:
        return value[: max_chars - 1] + "…"
    return value


def _messages(messages: Iterable[Message], redactor: Redactor) -> tuple[Message, ...]:
    return tuple(Message(message.role, _content(message.content, redactor)) for message in messages)


def _content(content: tuple[ContentBlock, ...], redactor: Redactor) -> tuple[ContentBlock, ...]:
    clean = tuple(redactor.json(content))
    # Providers refuse a message without content, which remains if all of it was a thinking block with a secret.
    return (text_block("[left out, since it holds a secret]"),) if content and not clean else clean
