"""The turn listener: how an engine reports a turn while it runs, and where it asks its caller.

Everything inside works with `TurnListener`, whose methods do nothing until a subclass overrides them. `EngineCallbacks`
is the form that the OpenNova engine contract specifies, optional callables, and is a listener as well: so an engine
never tests whether a callback is there.

Methods come in two kinds. The plain ones return at once, since the engine calls them between two pieces of a response,
and must not raise. The awaited ones are the seams of the run protocol: the engine waits for them, and an abort does not
cancel them, so that a commit is never cut short. An awaited one may raise `RunLost`, upon which the engine stops
without calling the listener again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nova_workers.contracts.content import ContentBlock, JsonObject, Message
from nova_workers.contracts.steps import EngineEvent, StepRecord, StepVerdict, ToolAuthorization, ToolCall

__all__ = ["EngineCallbacks", "ForwardingListener", "TurnListener"]

_ALLOWED = ToolAuthorization(allowed=True)


class TurnListener:
    """Follows one turn. The methods of this class do nothing, allow every call and let the turn go on."""

    def on_thinking(self) -> None:
        """The turn waits for the model: at its start, and after tool results. Plain."""

    def on_token(self, text: str) -> None:
        """A piece of the answer's text arrived. Plain; called for every token."""

    def on_reasoning(self, text: str) -> None:
        """A piece of extended thinking arrived. Plain; called for every token."""

    def on_restart(self) -> None:
        """The response broke off and comes anew: the text and reasoning since the last step are void. Plain.

        Called only where `can_restart` allowed it.
        """

    def can_restart(self, *, text: bool, reasoning: bool) -> bool:
        """Return whether a response that broke off may be asked for again. Plain; may be called several times.

        A listener that passes tokens on and cannot take them back must refuse: the turn then fails with a retryable
        error, so that no reader sees the beginning of one response and the end of another.

        Args:
            text: Whether `on_token` got any of the response.
            reasoning: Whether `on_reasoning` got any of it.
        """
        return True

    def on_assistant_message(self, text: str) -> None:
        """Text that accompanies tool calls (narration). Plain.

        Text that ends the turn is not given here; it is the result.
        """

    def on_tool_use(self, call: ToolCall, summary: str) -> None:
        """A call begins; `summary` says it in one line for people. Plain.

        For a call that the provider ran itself it comes once the response is complete.
        """

    def on_tool_progress(self, call: ToolCall, summary: str) -> None:
        """A call runs; `summary` says how far it is. Plain; at most a few times a second for each call."""

    def on_tool_use_summary(self, summary: str) -> None:
        """A call ended; `summary` says what it did, in one line. Plain."""

    def on_event(self, event: EngineEvent) -> None:
        """A structured event: for callers that record the execution history. Plain."""

    async def on_content_refused(self, block: ContentBlock, note: str) -> None:
        """The provider refused a block of the conversation. Awaited; may raise `RunLost`.

        The turn goes on with `note` in its place. Keep that decision: later turns should not send the block again.
        """

    async def on_tool_calls(self, step: StepRecord) -> None:
        """A response calls tools, and none of them has begun. Awaited; may raise `RunLost`.

        The step has the assistant message and its calls as pending: commit it, so that after a crash it is known what
        may have been in flight.
        """

    async def on_tool_result(self, call: ToolCall, summary: str) -> None:
        """A call has its result: completed, failed or interrupted. Awaited; may raise `RunLost`.

        Commit it, so that a crash before the other calls of the step end does not run this one again.
        """

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """A step is complete. Awaited; may raise `RunLost`.

        A turn that is stopped or fails in mid-step hands over what there is of the step as final: the text so far, and
        every call with a result, those that were cut as ``interrupted``.

        Returns:
            ``stop`` ends the turn here, with stop reason ``tool_use``. Ignored for a final step.
        """
        return "continue"

    async def take_steering(self) -> tuple[Message, ...]:
        """Return the messages that join the turn now. Awaited after each step that is not final; may raise `RunLost`.

        A message must be returned once only.
        """
        return ()

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Return whether a call may begin. Awaited before each call; may raise `RunLost`.

        For a tool that only reads it may come while the response that calls it still streams. For a tool that the
        provider runs itself it comes once a turn, with empty `params`, before the tool is offered: what is not allowed
        at once is not offered.
        """
        return _ALLOWED

    def subagent(self, call_id: str, name: str) -> TurnListener:
        """Return the listener of a subagent's turn, which begins. Plain.

        By default nothing of that turn is reported, and its calls are authorized as the turn's own are.

        Args:
            call_id: The call that runs the subagent.
            name: The subagent.
        """
        return EngineCallbacks(authorize_tool=self.authorize_tool)


_METHODS = tuple(name for name in vars(TurnListener) if not name.startswith("_"))


class ForwardingListener(TurnListener):
    """A listener around another one: a subclass overrides what it changes, and calls `self._to` from there.

    Every method that the subclass leaves alone is the inner listener's own, so it costs no call: a token passes through
    any number of wrappers that are not concerned with tokens at the price of one.
    """

    def __init__(self, to: TurnListener) -> None:
        self._to = to
        for name in _METHODS:
            if getattr(type(self), name) is getattr(TurnListener, name):
                setattr(self, name, getattr(to, name))


class EngineCallbacks(TurnListener):
    """The callbacks of the engine contract: a listener made of callables, each of them optional."""

    def __init__(
        self,
        *,
        on_thinking: Callable[[], None] | None = None,
        on_assistant_message: Callable[[str], None] | None = None,
        on_tool_use: Callable[[ToolCall, str], None] | None = None,
        on_tool_use_summary: Callable[[str], None] | None = None,
        on_tool_progress: Callable[[ToolCall, str], None] | None = None,
        on_event: Callable[[EngineEvent], None] | None = None,
        on_token: Callable[[str], None] | None = None,
        on_reasoning: Callable[[str], None] | None = None,
        on_restart: Callable[[], None] | None = None,
        on_tool_result: Callable[[ToolCall, str], Awaitable[None]] | None = None,
        on_content_refused: Callable[[ContentBlock, str], Awaitable[None]] | None = None,
        on_tool_calls: Callable[[StepRecord], Awaitable[None]] | None = None,
        on_step: Callable[[StepRecord], Awaitable[StepVerdict]] | None = None,
        take_steering: Callable[[], Awaitable[tuple[Message, ...]]] | None = None,
        authorize_tool: Callable[[str, JsonObject], Awaitable[ToolAuthorization]] | None = None,
        subagent: Callable[[str, str], TurnListener] | None = None,
    ) -> None:
        """Take the callables. Each is the method of `TurnListener` of the same name, and keeps its contract.

        Without `on_restart`, a response of which `on_token` or `on_reasoning` got a part is not asked for again.
        """
        given = {name: value for name, value in locals().items() if name in _METHODS and value is not None}
        vars(self).update(given)
        self._shows_text = on_token is not None
        self._shows_reasoning = on_reasoning is not None
        self._takes_back = on_restart is not None

    def can_restart(self, *, text: bool, reasoning: bool) -> bool:
        """Return whether nothing was passed on, or `on_restart` can take it back."""
        shown = (text and self._shows_text) or (reasoning and self._shows_reasoning)
        return self._takes_back or not shown
