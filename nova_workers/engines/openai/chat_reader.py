"""Reads the stream of chat completions.

Servers differ from OpenAI: calls may come without an index or with the same one, arguments as an object in place of a
string, the finish reason ``stop`` after calls, and counts with any chunk or none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, text_block
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.openai.chat_request import DETAILS_FIELD
from nova_workers.engines.openai.content import origin_of
from nova_workers.engines.openai.failures import broken, refusal
from nova_workers.engines.openai.wire import Answered, TurnRequest, counted
from nova_workers.engines.turn import Draft, Ending
from nova_workers.engines.turn.intake import parse_input

__all__ = ["ChatReader"]

_ENDINGS: dict[str, Ending] = {"stop": "end", "length": "max_tokens", "tool_calls": "tools", "function_call": "tools"}
_REASONING_FIELDS = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    given: Any = None
    """Arguments that came as a value and not as text."""


class ChatReader:
    """Implements `Reader`."""

    def __init__(self, turn: TurnRequest) -> None:
        self._turn = turn
        named = turn.target.provider.reasoning_field
        self._reasoning_fields = _REASONING_FIELDS if named is None else (named,)
        self._reasoning_field: str | None = None
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[JsonObject] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._ready = 0
        self._finish: str | None = None
        self.model = ""
        self.counted: TokenUsage | None = None
        self.begun = False

    def take(self, event: ChatCompletionChunk, draft: Draft) -> None:
        """See `Reader.take`."""
        self.model = bounds.name(event.model) or self.model
        if event.usage is not None:
            self.counted = counted(event.usage, read="prompt_tokens", produced="completion_tokens")
        for choice in event.choices or ():
            if choice.index:
                continue
            self.begun = True
            self._finish = choice.finish_reason or self._finish
            delta: Any = choice.delta
            if delta is None:
                # Against the SDK's types, some servers send none with the finish reason.
                continue
            if delta.model_extra:
                self._think(delta.model_extra, draft)
            if delta.content:
                self._texts.append(delta.content)
                draft.token(delta.content)
            if delta.refusal:
                self._refusal.append(delta.refusal)
            if delta.tool_calls:
                self._take_calls(delta.tool_calls, draft)

    def answered(self) -> Answered:
        """See `Reader.answered`."""
        if self._finish is None:
            raise broken("The model provider closed the stream before the response was complete.")
        if self._finish == "content_filter":
            raise refusal("the provider's content filter stopped it")
        if self._refusal and not self._calls:
            raise refusal("".join(self._refusal))
        ending = _ENDINGS.get(self._finish, "end")
        if ending == "end" and self._calls:
            ending = "tools"
        text = "".join(self._texts)
        blocks = [*self._thinking(), *((text_block(text),) if text.strip() else ())]
        if ending == "tools":
            blocks += map(self._block, self._calls)
        elif not text.strip():
            # Nothing would follow the reasoning, which no provider accepts.
            blocks = []
        return Answered(tuple(blocks), ending)

    def _think(self, extra: Mapping[str, Any], draft: Draft) -> None:
        for name in self._reasoning_fields:
            given = extra.get(name)
            if isinstance(given, str) and given:
                self._reasoning_field = name
                self._thoughts.append(given)
                draft.reasoning(given)
                return
            if isinstance(given, list) and given:
                self._reasoning_field = name
                for detail in given:
                    if isinstance(detail, dict):
                        self._take_detail(detail, draft)
                return

    def _take_detail(self, detail: JsonObject, draft: Draft) -> None:
        piece = detail.get("text") or detail.get("summary") or ""
        last = self._details[-1] if self._details else None
        key = "text" if "text" in detail else "summary"
        if last is not None and last.get("index") == detail.get("index") and key in last and piece:
            # Some servers send what is new, others all that there is so far.
            so_far = last[key]
            if len(piece) > len(so_far) and piece.startswith(so_far):
                piece = piece[len(so_far) :]
            last |= {name: value for name, value in detail.items() if value is not None} | {key: so_far + piece}
        else:
            self._details.append(dict(detail))
        if piece:
            self._thoughts.append(piece)
            draft.reasoning(piece)

    def _take_calls(self, pieces: Iterable[ChoiceDeltaToolCall], draft: Draft) -> None:
        for piece in pieces:
            call = self._call_of(piece)
            function = piece.function
            if function is None:
                continue
            call.name = function.name or call.name
            arguments: Any = function.arguments
            if isinstance(arguments, str):
                call.pieces.append(arguments)
            elif arguments is not None:
                call.given = arguments
        # A call is complete when the next one has begun.
        while self._ready < len(self._calls) - 1:
            draft.call(self._block(self._calls[self._ready]))
            self._ready += 1

    def _call_of(self, piece: ChoiceDeltaToolCall) -> _Call:
        index: Any = piece.index
        call = self._at_index.get(index) if index is not None else self._calls[-1] if self._calls else None
        begins_another = call is not None and piece.id and call.id and piece.id != call.id
        if call is None or begins_another:
            call = _Call()
            self._calls.append(call)
            if index is not None:
                self._at_index[index] = call
        call.id = piece.id or call.id
        return call

    def _block(self, call: _Call) -> ContentBlock:
        text = "".join(call.pieces)
        given = call.given if call.given is not None else parse_input(text) if text.strip() else {}
        return {"type": "tool_use", "id": call.id, "name": self._turn.names.own(call.name), "input": given}

    def _thinking(self) -> Iterable[ContentBlock]:
        if not self._thoughts:
            return ()
        kept: JsonObject = {"details": self._details} if self._reasoning_field == DETAILS_FIELD else {}
        if not kept and self._reasoning_field is not None:
            kept = {"field": self._reasoning_field}
        origin = origin_of(self._turn.target, **kept)
        return ({"type": "thinking", "thinking": "".join(self._thoughts), ORIGIN: origin},)
