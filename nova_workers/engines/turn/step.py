"""The current step of a turn."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block, text_of
from nova_workers.contracts.engine import DeferredCall, StepRecord, ToolCall
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.intake import Admitted
from nova_workers.engines.turn.seam import ToolOutcome

__all__ = ["OpenStep", "ended", "interrupted", "open_step"]

_INTERRUPTED = (
    "This call was interrupted before it ended. Whether it had an effect is not known; check before repeating it."
)
_NOT_STARTED = "The turn was stopped before this call began. It had no effect."
_NOT_ANSWERED = "The turn was stopped before this call had its answer."


@dataclass(slots=True)
class OpenStep:
    """The step in progress: a response, and the state of its calls.

    Attributes:
        committed_messages: How many of the record's first messages an earlier attempt committed.
        tool_usage: Model usage besides its response, mainly by its tools.
        follow_up: Messages to the model after its response.
        deferred: Calls whose result comes from outside.
        approved: Ids of calls that were deferred for approval and may begin now.
        rejected: Positions of calls that are not executed, because their input is unusable.
    """

    index: int
    response: tuple[Message, ...]
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str | None = None
    committed_messages: int = 0
    tool_usage: TokenUsage = field(default_factory=TokenUsage)
    follow_up: tuple[Message, ...] = ()
    deferred: list[DeferredCall] = field(default_factory=list[DeferredCall])
    approved: frozenset[str] = frozenset()
    rejected: tuple[int, ...] = ()

    @classmethod
    def reopened(cls, record: StepRecord) -> "OpenStep":
        """Continue a step whose response is committed and whose calls may not all have ended.

        A call without a result may have begun, so it counts as running, unless it waited for an approval that was
        given.
        """
        approved = frozenset(call.id for call in record.tool_calls if call.status == "approved")
        return cls(
            index=record.index,
            response=record.messages[:1],
            calls=[
                call
                if call.result is not None
                else replace(call, status="pending" if call.id in approved else "running")
                for call in record.tool_calls
            ],
            approved=approved,
            usage=record.usage,
            model=record.model,
            committed_messages=1,
        )

    def defer(self, at: int, request: JsonObject) -> None:
        """Leave a call open, because its result comes from outside."""
        self.calls[at] = replace(self.calls[at], status="deferred")
        self.deferred.append(DeferredCall(self.calls[at], request))

    def unfinished(self) -> Iterator[tuple[int, ToolCall]]:
        """Return position and value of each call without a result."""
        return ((at, call) for at, call in enumerate(self.calls) if call.result is None)

    def before_tools(self) -> StepRecord:
        """Return the record that is committed before the first tool runs."""
        return StepRecord(self.index, self.response, tuple(self.calls), self.usage, self.model, complete=False)

    def record(self, *, final: bool) -> StepRecord:
        """Return the step's record. Calls without a result are marked as interrupted here."""
        for at, call in self.unfinished():
            self.calls[at] = interrupted(call)
        messages = self.response
        if self.calls:
            messages += (Message("user", tuple(_result_block(call) for call in self.calls)),)
        return StepRecord(
            self.index,
            messages + self.follow_up,
            tuple(self.calls),
            self.usage,
            self.model,
            final=final,
            tool_usage=self.tool_usage,
        )


async def open_step(
    index: int, admitted: Admitted, is_idempotent: Callable[[str], Awaitable[bool]], *, first_sequence: int
) -> OpenStep:
    """Return the step that a response begins. Its calls are pending; rejected ones have failed.

    Args:
        index: The step's index within the turn.
        admitted: The response. Unless it ends with ``tools``, its calls are dropped.
        is_idempotent: Returns whether a tool declares to be idempotent. May connect to its server.
        first_sequence: The sequence number of its first call, within the turn.
    """
    response = admitted.response
    with_tools = response.ending == "tools"
    content = tuple(block for block in response.content if with_tools or block.get("type") != "tool_use")
    calls = [
        ToolCall(
            id=block["id"],
            tool_name=block["name"],
            params=block["input"],
            step=index,
            sequence=sequence,
            idempotent=block["id"] not in admitted.rejected and await is_idempotent(block["name"]),
        )
        for sequence, block in enumerate(
            (block for block in content if block.get("type") == "tool_use"), first_sequence
        )
    ]
    rejected = tuple(at for at, call in enumerate(calls) if call.id in admitted.rejected)
    for at in rejected:
        why = text_block(admitted.rejected[calls[at].id])
        calls[at] = ended(calls[at], ToolOutcome((why,), failed=True))
    message = (Message("assistant", content),) if content else ()
    return OpenStep(index, message, calls, response.usage, response.model, rejected=rejected)


def ended(call: ToolCall, outcome: ToolOutcome) -> ToolCall:
    """Return the call with its result."""
    return replace(
        call,
        status="failed" if outcome.failed else "completed",
        result=outcome.content,
        error=text_of(outcome.content) if outcome.failed else None,
        completed_at=datetime.now(UTC),
    )


def interrupted(call: ToolCall) -> ToolCall:
    """Return the call with a result which says that it did not end, and whether it had begun."""
    reason = {"running": _INTERRUPTED, "deferred": _NOT_ANSWERED}.get(call.status, _NOT_STARTED)
    return replace(
        call, status="interrupted", result=(text_block(reason),), error=reason, completed_at=datetime.now(UTC)
    )


def _result_block(call: ToolCall) -> ContentBlock:
    block: ContentBlock = {"type": "tool_result", "tool_use_id": call.id}
    if call.result:
        block["content"] = list(call.result)
    if call.status != "completed":
        block["is_error"] = True
    return block
