"""A chat completion: a part of a run, to its end, to the next calls of its client's functions, or to a question.

Its id names the run and the step with which it begins, so that any process finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import orjson

from nova_workers.base.ids import second_of
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import AskApproval

from ..items import Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem
from ..service import Door
from .parts import PartId, cut, usage_of_part

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]

BETWEEN: Final = "\n\n"
"""Stands between the texts of two steps, which a completion has in one."""


class CompletionId(PartId):
    """The id of a completion."""

    __slots__ = ()
    prefix = "chatcmpl-"
    kind = "chat_completion"

    @property
    def created(self) -> int:
        """The second in which the run was submitted."""
        return second_of(self.run_id)


class Part(NamedTuple):
    """What a completion has of its run.

    Attributes:
        last_step: The step whose calls or questions end it; None if it goes to the end of the run.
    """

    texts: Sequence[str]
    reasoning: Sequence[str]
    calls: Sequence[ToolCallItem]
    questions: Sequence[QuestionItem]
    last_step: int | None

    @property
    def text(self) -> str:
        """The text, with the questions."""
        return BETWEEN.join([*self.texts, *map(question_text, self.questions)])


def part_of(items: Iterable[Item], first_step: int) -> Part:
    """Return the part of a run that is a completion, from the items of the run."""
    shown, last = cut(items, first_step)
    calls = [item for item in shown if isinstance(item, ToolCallItem) and item.for_caller]
    return Part(
        [item.text for item in shown if isinstance(item, MessageItem) and item.role == "assistant"],
        [item.text for item in shown if isinstance(item, ReasoningItem)],
        calls,
        # The client's calls come first; what else their step asks is asked again behind them.
        [] if calls else [item for item in shown if isinstance(item, QuestionItem)],
        last,
    )


def question_text(item: QuestionItem) -> str:
    """Return a question of a run as its agent would write it in a chat."""
    request = item.request
    if isinstance(request, AskApproval):
        params = orjson.dumps(request.params).decode()
        return f"May I call {request.tool_name} with {params:.2000}? {request.reason} Answer yes or no."
    if not request.options:
        return request.question
    return "\n".join([request.question, *(f"- {option}" for option in request.options)])


def finish_of(run: RunView, part: Part) -> FinishReason | None:
    """Return why a completion ends; None if it has not."""
    if part.last_step is not None:
        return "tool_calls" if part.calls else "stop"
    if run.status not in ENDED_RUNS:
        return None
    is_cut = run.stop_reason == "max_tokens" or run.limit_reached is not None or run.status == "canceled"
    return "length" if is_cut else "stop"


def completion_document(run: RunView, completion: CompletionId, part: Part, usage: JsonObject | None) -> JsonObject:
    """Return a completion as a whole."""
    message: JsonObject = {"role": "assistant", "content": part.text or None, "refusal": None, "annotations": []}
    if part.reasoning:
        message["reasoning_content"] = BETWEEN.join(part.reasoning)
    if part.calls:
        message["tool_calls"] = [call_document(call) for call in part.calls]
    elif message["content"] is None:
        message["content"] = ""
    return {
        "id": str(completion),
        "object": "chat.completion",
        "created": completion.created,
        "model": run.agent_id,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(run, part)}],
        "usage": usage,
        "service_tier": "default",
        "system_fingerprint": fingerprint_of(run),
    }


def call_document(call: ToolCallItem) -> JsonObject:
    """Return a call of a function of the client. Its id names the run, which its result answers."""
    arguments = orjson.dumps(call.params).decode()
    return {"id": call.id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}


async def usage_of(door: Door, run: RunView, completion: CompletionId, last_step: int | None) -> JsonObject | None:
    """Return the tokens of a completion: those of its run up to its end, without those before it."""
    is_whole = not completion.first_step and last_step is None
    facts = None if is_whole else await door.facts(run.id)
    used = usage_of_part(run, facts, completion.first_step, last_step)
    if used is None:
        return None
    return {
        "prompt_tokens": used.read,
        "completion_tokens": used.written,
        "total_tokens": used.read + used.written,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning, "audio_tokens": 0},
    }


def fingerprint_of(run: RunView) -> str | None:
    """Return the version of the agent, which changes with its configuration."""
    return None if run.agent_version is None else f"v{run.agent_version}"


def failure_document(run: RunView) -> dict[str, Any]:
    """Return the error of a run that failed."""
    message = "The run failed." if run.error is None else run.error.message
    code = "run_failed" if run.error is None else run.error.kind
    return {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
