"""The current step of a turn."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nova_workers.contracts.content import ContentBlock, JsonObject, Message, text_block, text_of
from nova_workers.contracts.engine import DeferredCall, StepRecord, ToolCall
from nova_workers.contracts.steps import INTERRUPTED, NOT_ANSWERED, NOT_BEGUN, NOT_PERMITTED_YET
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.intake import Admitted
from nova_workers.engines.turn.seam import ToolOutcome

_MAY_BEGIN = frozenset({"approved", "deferred"})
"""States of calls in a journal that did not begin: permitted meanwhile, or not asked about yet."""


@dataclass(slots=True)
class OpenStep:
    """The step in progress: a response, and the state of its calls.

    Attributes:
        committed_messages: How many of the record's first messages an earlier attempt committed.
        tool_usage: Model usage besides its response, mainly by its tools.
        follow_up: Messages to the model after its response.
        deferred: Calls whose result comes from outside.
        approved: Ids of calls that were deferred for approval and may begin now, or that asked a person and are made
            again with the answer; these have a time at which they began.
        unasked: Ids of calls in the journal that wait for approval although the turn did not stop for it.
        refused: Positions of calls that are not executed: their input is unusable, or the caller does not allow them.
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
    unasked: frozenset[str] = frozenset()
    refused: list[int] = field(default_factory=list[int])
    unpermitted: set[str] = field(default_factory=set[str])
    """Ids of calls that wait for approval."""
    first_token_ms: int | None = None
    """See `StepRecord.first_token_ms`."""

    @classmethod
    def reopened(cls, record: StepRecord) -> "OpenStep":
        """Continue a step whose response is committed and whose calls may not all have ended.

        A call without a result may have begun, so it counts as running, unless it was committed as waiting for an
        approval: either that was given, or the worker died before the turn stopped for it.
        """
        approved = frozenset(call.id for call in record.tool_calls if call.status == "approved")
        unasked = frozenset(call.id for call in record.tool_calls if call.status == "deferred" and call.result is None)
        return cls(
            index=record.index,
            response=record.messages[:1],
            calls=[
                call
                if call.result is not None
                else replace(call, status="pending" if call.status in _MAY_BEGIN else "running")
                for call in record.tool_calls
            ],
            approved=approved,
            unasked=unasked,
            usage=record.usage,
            model=record.model,
            committed_messages=1,
        )

    def refuse(self, at: int, reason: str) -> None:
        """End a call that does not begin."""
        self.calls[at] = ended(self.calls[at], ToolOutcome((text_block(reason),), failed=True))
        self.refused.append(at)

    def supply(self, at: int, outcome: ToolOutcome) -> None:
        """End a call with a result that the caller gives: it does not begin."""
        self.calls[at] = ended(self.calls[at], outcome)
        self.refused.append(at)

    def defer(self, at: int, request: JsonObject, *, for_permission: bool = False) -> None:
        """Leave a call open, because its result comes from outside, or the permission to begin it."""
        if for_permission:
            self.unpermitted.add(self.calls[at].id)
        self.calls[at] = replace(self.calls[at], status="deferred")
        self.deferred.append(DeferredCall(self.calls[at], request))

    def unfinished(self) -> Iterator[tuple[int, ToolCall]]:
        """Return position and value of each call without a result."""
        return ((at, call) for at, call in enumerate(self.calls) if call.result is None)

    def to_begin(self) -> Iterator[tuple[int, ToolCall]]:
        """Return position and value of each call that may begin."""
        return ((at, call) for at, call in self.unfinished() if call.status != "deferred")

    def before_tools(self) -> StepRecord:
        """Return the record that is committed before the first tool runs."""
        return StepRecord(
            self.index,
            self.response,
            tuple(self.calls),
            self.usage,
            self.model,
            complete=False,
            first_token_ms=self.first_token_ms,
        )

    def record(self, *, final: bool) -> StepRecord:
        """Return the step's record. Calls without a result are marked as interrupted here."""
        for at, call in self.unfinished():
            self.calls[at] = _without_result(call, self.unpermitted)
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
            first_token_ms=self.first_token_ms,
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
    message = (Message("assistant", content),) if content else ()
    step = OpenStep(index, message, calls, response.usage, response.model)
    for at, call in enumerate(calls):
        if call.id in admitted.rejected:
            step.refuse(at, admitted.rejected[call.id])
    return step


def ended(call: ToolCall, outcome: ToolOutcome) -> ToolCall:
    """Return the call with its result."""
    return replace(
        call,
        status="failed" if outcome.failed else "completed",
        result=outcome.content,
        error=text_of(outcome.content) if outcome.failed else None,
        completed_at=datetime.now(UTC),
    )


def _without_result(call: ToolCall, unpermitted: Collection[str]) -> ToolCall:
    match call.status:
        case "running":
            return interrupted(call, INTERRUPTED)
        case "deferred":
            return interrupted(call, NOT_PERMITTED_YET if call.id in unpermitted else NOT_ANSWERED)
        case _:
            # One that asked a person began before, and was to be made again.
            return interrupted(call, NOT_BEGUN if call.started_at is None else INTERRUPTED)


def interrupted(call: ToolCall, reason: str) -> ToolCall:
    """Return the call with a result that states how far it came."""
    return replace(
        call, status="interrupted", result=(text_block(reason),), error=reason, completed_at=datetime.now(UTC)
    )


def _result_block(call: ToolCall) -> ContentBlock:
    # With its keys in the order of `storable_json`.
    block: ContentBlock = {"type": "tool_result"}
    if call.result:
        block["content"] = list(call.result)
    if call.status != "completed":
        block["is_error"] = True
    return {**block, "tool_use_id": call.id}
