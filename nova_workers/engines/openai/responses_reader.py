"""Reads the stream of the Responses API. What has another type than expected counts as absent: no event raises."""

from collections.abc import Iterator

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, text_block
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.http.failures import broken_off, refusal
from nova_workers.engines.openai.content import origin_of
from nova_workers.engines.openai.failures import stream_failure
from nova_workers.engines.openai.untyped import counted, objects, word
from nova_workers.engines.openai.wire import Answered, TurnRequest
from nova_workers.engines.turn import Draft, Ending
from nova_workers.engines.turn.intake import parse_input

_OF_ANSWER = ("response.output", "response.reasoning", "response.function_call", "response.completed")
"""How the types of events begin that prove that the model works; others may come from a queue or a proxy."""
_BETWEEN_SUMMARIES = "\n\n"


class ResponsesReader:
    """Implements `Reader`."""

    def __init__(self, turn: TurnRequest) -> None:
        self._turn = turn
        self._items: dict[int, JsonObject] = {}
        self._ended: JsonObject | None = None
        self._summarized = False
        self.model = ""
        self.counted: TokenUsage | None = None
        self.begun = False

    @property
    def is_complete(self) -> bool:
        """See `Reader.is_complete`."""
        return self._ended is not None

    def take(self, event: object, draft: Draft) -> None:
        """See `Reader.take`."""
        given: JsonObject = event if isinstance(event, dict) else {}
        kind = word(given.get("type"))
        self.begun = self.begun or kind.startswith(_OF_ANSWER)
        match kind:
            case "response.output_text.delta":
                draft.token(word(given.get("delta")))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._summarized = True
                draft.reasoning(word(given.get("delta")))
            case "response.reasoning_summary_part.added" if self._summarized:
                draft.reasoning(_BETWEEN_SUMMARIES)
            case "response.output_item.done":
                self._take_item(given, draft)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.done":
                self._end(given.get("response"))
            case "error":
                raise stream_failure(word(given.get("code")), word(given.get("message")))
            case _:
                pass

    def answered(self, *, is_marked: bool) -> Answered:
        """See `Reader.answered`."""
        ended = self._ended
        if ended is None:
            raise broken_off()
        error = ended.get("error")
        if ended.get("status") == "failed" or error:
            failed: JsonObject = error if isinstance(error, dict) else {}
            raise stream_failure(word(failed.get("code")), word(failed.get("message")) or "it gave no reason")
        ending: Ending = "end"
        reason = ended.get("status")
        if details := ended.get("incomplete_details"):
            if isinstance(details, dict) and details.get("reason") == "content_filter":
                raise refusal("the provider's content filter stopped it")
            ending = "max_tokens"
            reason = details.get("reason") if isinstance(details, dict) else reason
        items = [item for _, item in sorted(self._items.items())] or list(objects(ended.get("output")))
        if ending == "end" and any(item.get("type") == "function_call" for item in items):
            ending = "tools"
        return Answered(
            tuple(self._blocks(items, ending)), ending, bounds.name(ended.get("id")), bounds.name(reason) or None
        )

    def _take_item(self, event: JsonObject, draft: Draft) -> None:
        item, index = event.get("item"), event.get("output_index")
        if not isinstance(item, dict):
            return
        self._items[index if isinstance(index, int) else len(self._items)] = item
        if item.get("type") == "function_call":
            draft.call(self._call(item))

    def _end(self, response: object) -> None:
        ended: JsonObject = response if isinstance(response, dict) else {}
        self._ended = ended
        self.model = bounds.name(ended.get("model")) or self.model
        self.counted = counted(ended.get("usage"), read="input_tokens", produced="output_tokens") or self.counted

    def _blocks(self, items: list[JsonObject], ending: Ending) -> list[ContentBlock]:
        blocks: list[ContentBlock] = []
        for item in items:
            match item.get("type"):
                case "reasoning":
                    blocks.append(self._thinking(item))
                case "message":
                    blocks += self._said(item)
                case "function_call" if ending == "tools":
                    blocks.append(self._call(item))
                case _:
                    pass
        while blocks and blocks[-1]["type"] == "thinking":
            # The provider refuses reasoning without anything after it.
            blocks.pop()
        return blocks

    def _thinking(self, item: JsonObject) -> ContentBlock:
        summary, content = (
            [word(part.get("text")) for part in objects(item.get(key))] for key in ("summary", "content")
        )
        # Without either, the provider could not find the item again, since nothing is stored there.
        returnable = item.get("encrypted_content") or content
        sent = {key: value for key, value in item.items() if value is not None and key != "status"}
        kept: JsonObject = {"item": sent} if returnable else {}
        return {
            "type": "thinking",
            "thinking": _BETWEEN_SUMMARIES.join(summary or content),
            ORIGIN: origin_of(self._turn.target, **kept),
        }

    def _said(self, item: JsonObject) -> Iterator[ContentBlock]:
        for part in objects(item.get("content")):
            if part.get("type") == "refusal":
                raise refusal(word(part.get("refusal")))
            text = word(part.get("text"))
            if text.strip():
                block = text_block(text)
                if phase := word(item.get("phase")):
                    block[ORIGIN] = origin_of(self._turn.target, phase=phase)
                yield block

    def _call(self, item: JsonObject) -> ContentBlock:
        arguments = item.get("arguments")
        given = parse_input(arguments) if isinstance(arguments, str) and arguments.strip() else arguments or {}
        call_id = word(item.get("call_id")) or word(item.get("id"))
        return {"type": "tool_use", "id": call_id, "name": self._turn.names.own(word(item.get("name"))), "input": given}
