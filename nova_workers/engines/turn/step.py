"""A step while it is being made."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nova_workers.contracts.content import ContentBlock, Message, text_block, text_of
from nova_workers.contracts.engine import StepRecord, ToolCall
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.seam import ToolOutcome

__all__ = ["OpenStep", "ended", "interrupted"]

_INTERRUPTED = (
    "This call was interrupted before it ended. Whether it had an effect is not known; check before repeating it."
)
_NOT_STARTED = "The turn was stopped before this call began. It had no effect."


@dataclass(slots=True)
class OpenStep:
    """The step that a turn is in: a response, and its calls as far as they got.

    Attributes:
        committed_messages: How many of the record's first messages an earlier attempt committed.
        tool_usage: What its tools used of models.
        follow_up: What is said to the model after its response.
    """

    index: int
    response: tuple[Message, ...]
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    usage: TokenUsage = field(default_factory=TokenUsage)
    model: str | None = None
    committed_messages: int = 0
    tool_usage: TokenUsage = field(default_factory=TokenUsage)
    follow_up: tuple[Message, ...] = ()

    @classmethod
    def reopened(cls, record: StepRecord) -> "OpenStep":
        """Go on with a step whose response is committed and whose tools may not all have ended.

        Any call without a result may have begun: it counts as running.
        """
        return cls(
            index=record.index,
            response=record.messages[:1],
            calls=[call if call.result is not None else replace(call, status="running") for call in record.tool_calls],
            usage=record.usage,
            model=record.model,
            committed_messages=1,
        )

    def unfinished(self) -> Iterator[tuple[int, ToolCall]]:
        """Return position and value of each call that has no result."""
        return ((at, call) for at, call in enumerate(self.calls) if call.result is None)

    def before_tools(self) -> StepRecord:
        """Return the record that is committed before the first tool runs."""
        return StepRecord(self.index, self.response, tuple(self.calls), self.usage, self.model, complete=False)

    def record(self, *, final: bool) -> StepRecord:
        """Return the whole step. Every call has its result: those that have none are interrupted here."""
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
    """Return the call with a result that tells the model that it did not end; and whether it began."""
    reason = _INTERRUPTED if call.status == "running" else _NOT_STARTED
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
