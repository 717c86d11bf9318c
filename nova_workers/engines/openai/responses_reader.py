"""Reads the stream of the Responses API."""

from collections.abc import Iterator

from openai.types.responses import (
    Response,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputMessage,
    ResponseReasoningItem,
    ResponseStreamEvent,
)

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, text_block
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.openai.content import origin_of
from nova_workers.engines.openai.failures import broken, refusal, stream_failure
from nova_workers.engines.openai.wire import Answered, TurnRequest, counted
from nova_workers.engines.turn import Draft, Ending
from nova_workers.engines.turn.intake import parse_input

__all__ = ["ResponsesReader"]

_OF_ANSWER = ("response.output", "response.reasoning", "response.function_call", "response.completed")
"""How the types of events begin that prove that the model works; others may come from a queue or a proxy."""
_BETWEEN_SUMMARIES = "\n\n"


class ResponsesReader:
    """Implements `Reader`."""

    def __init__(self, turn: TurnRequest) -> None:
        self._turn = turn
        self._items: dict[int, ResponseOutputItem] = {}
        self._ended: Response | None = None
        self._summarized = False
        self.model = ""
        self.counted: TokenUsage | None = None
        self.begun = False

    def take(self, event: ResponseStreamEvent, draft: Draft) -> None:
        """See `Reader.take`."""
        if not self.begun:
            self.begun = event.type.startswith(_OF_ANSWER)
        match event.type:
            case "response.output_text.delta":
                draft.token(event.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._summarized = True
                draft.reasoning(event.delta)
            case "response.reasoning_summary_part.added":
                if self._summarized:
                    draft.reasoning(_BETWEEN_SUMMARIES)
            case "response.output_item.done":
                self._items[event.output_index] = event.item
                if isinstance(event.item, ResponseFunctionToolCall):
                    draft.call(self._call(event.item))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(event.response)
            case "error":
                raise stream_failure(event.code, event.message)
            case _:
                pass

    def answered(self) -> Answered:
        """See `Reader.answered`."""
        ended = self._ended
        if ended is None:
            raise broken("The model provider closed the stream before the response was complete.")
        if ended.status == "failed" or ended.error is not None:
            error = ended.error
            raise stream_failure(*(("", "it gave no reason") if error is None else (error.code, error.message)))
        ending: Ending = "end"
        if ended.incomplete_details is not None:
            if ended.incomplete_details.reason == "content_filter":
                raise refusal("the provider's content filter stopped it")
            ending = "max_tokens"
        items = [item for _, item in sorted(self._items.items())] or list(ended.output or ())
        if ending == "end" and any(isinstance(item, ResponseFunctionToolCall) for item in items):
            ending = "tools"
        return Answered(tuple(self._blocks(items, ending)), ending)

    def _end(self, response: Response) -> None:
        self._ended = response
        self.model = bounds.name(response.model) or self.model
        if response.usage is not None:
            self.counted = counted(response.usage, read="input_tokens", produced="output_tokens")

    def _blocks(self, items: list[ResponseOutputItem], ending: Ending) -> list[ContentBlock]:
        blocks: list[ContentBlock] = []
        for item in items:
            match item:
                case ResponseReasoningItem():
                    blocks.append(self._thinking(item))
                case ResponseOutputMessage():
                    blocks += self._said(item)
                case ResponseFunctionToolCall() if ending == "tools":
                    blocks.append(self._call(item))
                case _:
                    pass
        while blocks and blocks[-1]["type"] == "thinking":
            # The provider refuses reasoning without anything after it.
            blocks.pop()
        return blocks

    def _thinking(self, item: ResponseReasoningItem) -> ContentBlock:
        texts = [part.text for part in item.summary or ()] or [part.text for part in item.content or ()]
        # Without either, the provider could not find the item again, since nothing is stored there.
        returnable = item.encrypted_content or item.content
        kept: JsonObject = {"item": item.to_dict(mode="json", exclude_none=True)} if returnable else {}
        kept.get("item", {}).pop("status", None)
        return {
            "type": "thinking",
            "thinking": _BETWEEN_SUMMARIES.join(texts),
            ORIGIN: origin_of(self._turn.target, **kept),
        }

    def _said(self, item: ResponseOutputMessage) -> Iterator[ContentBlock]:
        for part in item.content:
            if part.type == "refusal":
                raise refusal(part.refusal)
            if part.text.strip():
                block = text_block(part.text)
                if item.phase is not None:
                    block[ORIGIN] = origin_of(self._turn.target, phase=item.phase)
                yield block

    def _call(self, item: ResponseFunctionToolCall) -> ContentBlock:
        given = parse_input(item.arguments) if item.arguments.strip() else {}
        return {"type": "tool_use", "id": item.call_id, "name": self._turn.names.own(item.name), "input": given}
