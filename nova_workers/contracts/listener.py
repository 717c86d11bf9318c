"""The turn listener: the interface through which an engine reports a running turn and queries its caller.

Our code uses `TurnListener`, whose methods do nothing unless overridden. `EngineCallbacks` takes the optional callables
that the OpenNova engine contract specifies, and is a listener too, so an engine never tests whether a callback is set.

There are two kinds of methods. Plain methods must return at once, since the engine calls them between two pieces of a
response, and must not raise. Awaited methods belong to the run protocol: the engine waits for them, and an abort does
not cancel them, so that no commit is interrupted. If an awaited method raises `RunLost`, the engine stops without
calling the listener again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nova_workers.base.errors import Outage
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.steps import (
    EngineEvent,
    ModelRequest,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    ToolServerAway,
)

_ALLOWED = ToolAuthorization(allowed=True)


class TurnListener:
    """Receives the progress of one turn. This class's methods do nothing, allow every call and continue the turn."""

    def on_thinking(self) -> None:
        """Called when the turn starts waiting for the model: at its start, and after tool results. Plain."""

    def on_request(self, request: ModelRequest) -> None:
        """Called right before a model is asked, with what it gets besides the conversation. Plain.

        Called again where a response is requested again. Engines that do not make their requests do not call it.
        """

    def on_provider_wait(self, outage: Outage, why: str, pause_s: float) -> None:
        """Called when the turn pauses, because the model provider cannot be used; then it is asked again. Plain."""

    def on_token(self, text: str) -> None:
        """Called for every piece of the answer's text. Plain."""

    def on_reasoning(self, text: str) -> None:
        """Called for every piece of extended thinking. Plain."""

    def on_restart(self) -> None:
        """Called when a broken response is requested again: text and reasoning since the last step are void. Plain.

        Called only if `can_restart` returned True.
        """

    def can_restart(self, *, text: bool, reasoning: bool) -> bool:
        """Return whether a response that broke off may be requested again. Plain; may be called several times.

        A listener that forwards tokens and cannot retract them must return False: the turn then fails with a retryable
        error, so that no reader sees the beginning of one response and the end of another.

        Args:
            text: Whether `on_token` received any of the response.
            reasoning: Whether `on_reasoning` received any of it.
        """
        return True

    def on_assistant_message(self, text: str) -> None:
        """Text that accompanies tool calls (narration). Plain.

        Not called for the text that ends the turn: that is the result.
        """

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """Called when a call begins; `summary` describes it in one line for people. Plain.

        For a call that the provider ran itself, this is called once the response is complete.
        """

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """Called when a running call reports progress in `summary`, at most a few times a second for each. Plain."""

    def on_tool_use_summary(self, summary: str) -> None:
        """Called when a call ended; `summary` describes its result in one line. Plain."""

    def on_event(self, event: EngineEvent) -> None:
        """Called with each structured event, for callers that record the execution history. Plain."""

    async def on_content_refused(self, left_out: tuple[LeftOut, ...]) -> None:
        """Called when the provider refused content of the conversation. Awaited; may raise `RunLost`.

        The turn continues with notes instead. Store that decision: later turns should not send the content again.

        Also called for tools that the model does not get, with a block of type ``tool``: a provider refused them, or
        would. Later turns decide anew, since the tools may have changed.
        """

    def on_option_left_out(self, option: str, note: str) -> None:
        """Called once for each option of the turn that the model does not take; the turn goes on without it. Plain."""

    async def on_tool_servers(self, away: tuple[ToolServerAway, ...]) -> None:
        """Called when tool servers of other processes were tried; the turn goes without those that are away. Awaited.

        Called once for each attempt of a turn that has such servers, also if none is away.
        """

    async def on_tool_calls(self, step: StepRecord) -> None:
        """Called when a response calls tools, none of which has begun. Awaited; may raise `RunLost`.

        The step has the assistant message and its calls as pending. Commit it, so that after a crash the ledger shows
        which calls may have been in flight.
        """

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """Called when a call has its result: completed, failed or interrupted. Awaited; may raise `RunLost`.

        Commit it, so that a crash during the step's other calls does not repeat this one.
        """

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Called when a step is complete. Awaited; may raise `RunLost`.

        A turn that stops or fails within a step reports the partial step as final: the text so far, and every call with
        a result; calls that were stopped have the status ``interrupted``.

        Returns:
            ``stop`` ends the turn here, with stop reason ``tool_use``. Ignored for a final step.
        """
        return "continue"

    async def take_steering(self) -> tuple[Message, ...]:
        """Return the messages that join the turn now. Awaited after each non-final step; may raise `RunLost`.

        Each message must be returned only once.
        """
        return ()

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Return whether a call may begin. Awaited before each call; may raise `RunLost`.

        For a read-only tool it may be called while the response still streams.
        """
        return _ALLOWED

    async def may_offer(self, tool_name: str) -> bool:
        """Return whether the model may have a tool that the provider runs: its calls cannot be authorized one by one.

        Awaited once per turn, before the first response; may raise `RunLost`. By default as a call without parameters.
        """
        return (await self.authorize_tool(tool_name, {})).allowed

    def on_provider_call(self, tool_name: str) -> None:
        """Called when the provider ran a call of such a tool, before the step is committed. Plain."""

    async def confirm_run(self) -> None:
        """Called right before a call that may run begins. Awaited; raises `RunLost` if the run may be another worker's.

        Not called for a call that began while the response still streamed: its tool is read-only.
        """

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Return the listener for a subagent's turn that begins. Plain.

        By default that turn reports nothing, and its calls are authorized like the turn's own.

        Args:
            call_id: The call that runs the subagent.
            name: The subagent.
        """
        return EngineCallbacks(authorize_tool=self.authorize_tool, confirm_run=self.confirm_run)


_METHODS = tuple(name for name in vars(TurnListener) if not name.startswith("_"))


class ForwardingListener(TurnListener):
    """A wrapper around another listener: a subclass overrides what it changes, and calls `self._to` from there.

    Methods that the subclass does not override are the inner listener's own bound methods, so wrappers that do not
    handle tokens add no call per token.
    """

    def __init__(self, to: TurnListener) -> None:
        self._to = to
        for name in _METHODS:
            if getattr(type(self), name) is getattr(TurnListener, name):
                setattr(self, name, getattr(to, name))


class EngineCallbacks(TurnListener):
    """The callbacks of the engine contract: a listener made of optional callables."""

    def __init__(
        self,
        *,
        on_thinking: Callable[[], None] | None = None,
        on_request: Callable[[ModelRequest], None] | None = None,
        on_provider_wait: Callable[[Outage, str, float], None] | None = None,
        on_assistant_message: Callable[[str], None] | None = None,
        on_tool_use: Callable[[ToolCall, str], None] | None = None,
        on_tool_use_summary: Callable[[str], None] | None = None,
        on_tool_progress: Callable[[ToolCall, str], None] | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
        on_token: Callable[[str], None] | None = None,
        on_reasoning: Callable[[str], None] | None = None,
        on_restart: Callable[[], None] | None = None,
        on_tool_result: Callable[[ToolCall, str], Awaitable[None]] | None = None,
        on_option_left_out: Callable[[str, str], None] | None = None,
        on_provider_call: Callable[[str], None] | None = None,
        on_content_refused: Callable[[tuple[LeftOut, ...]], Awaitable[None]] | None = None,
        on_tool_servers: Callable[[tuple[ToolServerAway, ...]], Awaitable[None]] | None = None,
        on_tool_calls: Callable[[StepRecord], Awaitable[None]] | None = None,
        on_step: Callable[[StepRecord], Awaitable[StepVerdict]] | None = None,
        take_steering: Callable[[], Awaitable[tuple[Message, ...]]] | None = None,
        authorize_tool: Callable[[str, JsonObject], Awaitable[ToolAuthorization]] | None = None,
        may_offer: Callable[[str], Awaitable[bool]] | None = None,
        confirm_run: Callable[[], Awaitable[None]] | None = None,
        subagent: Callable[[str, str], TurnListener] | None = None,
    ) -> None:
        """Take the callables. Each replaces the method of `TurnListener` of the same name, under the same contract.

        Without `on_restart`, a response is not requested again once `on_token` or `on_reasoning` received part of it.
        """
        given = {name: value for name, value in locals().items() if name in _METHODS and value is not None}
        vars(self).update(given)
        self._shows_text = on_token is not None
        self._shows_reasoning = on_reasoning is not None
        self._takes_back = on_restart is not None

    def can_restart(self, *, text: bool, reasoning: bool) -> bool:
        """Return whether no callback received anything, or `on_restart` can retract it."""
        shown = (text and self._shows_text) or (reasoning and self._shows_reasoning)
        return self._takes_back or not shown
