"""Reads the stream of chat completions.

Servers differ from OpenAI, and any field may have another type: content as a list of parts, reasoning in a field of
another name or between tags in the text, calls without an index or id, arguments as an object, counts with any chunk or
none. What has another type than all of these counts as absent, so that no chunk raises.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, text_block
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.http.failures import broken, broken_off, refusal
from nova_workers.engines.openai.chat_request import DETAILS_FIELD
from nova_workers.engines.openai.content import origin_of
from nova_workers.engines.openai.failures import stream_failure
from nova_workers.engines.openai.names import wire_name
from nova_workers.engines.openai.tagged import ThinkTags, calls_at_end
from nova_workers.engines.openai.untyped import counted, objects, texts_of, word
from nova_workers.engines.openai.wire import Answered, TurnRequest
from nova_workers.engines.turn import Draft, Ending
from nova_workers.engines.turn.intake import parse_input

_ENDINGS: dict[str, Ending] = {
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tools",
    "function_call": "tools",
}
"""The endings by reasons in lower case. Any other reason ends the answer."""
_FILTERED = frozenset({"content_filter", "sensitive", "safety", "prohibited_content", "blocklist", "recitation"})
_FAILED = frozenset({"error", "network_error", "insufficient_system_resource", "abort", "aborted"})
_REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking", DETAILS_FIELD)


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    given: Any = None
    """Arguments that came as a value and not as text."""

    @property
    def input(self) -> Any:
        text = "".join(self.pieces)
        return self.given if self.given is not None else parse_input(text) if text.strip() else {}

    @property
    def is_whole(self) -> bool:
        """Whether its arguments can be complete. Without any, a piece with them may follow."""
        return self.given is not None or (bool(self.pieces) and isinstance(parse_input("".join(self.pieces)), dict))


class ChatReader:
    """Implements `Reader`."""

    def __init__(self, turn: TurnRequest) -> None:
        self._turn = turn
        named = turn.target.provider.reasoning_field
        self._reasoning_fields = _REASONING_FIELDS if named is None else (named,)
        self._reasoning_field: str | None = None
        self._tags = ThinkTags()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[JsonObject] = []
        self._refusal = ""
        self._calls: list[_Call] = []
        self._at_index: dict[int | str, _Call] = {}
        self._ready = 0
        self._finish = ""
        self._id = ""
        self.model = ""
        self.counted: TokenUsage | None = None
        self.begun = False

    @property
    def is_complete(self) -> bool:
        """See `Reader.is_complete`."""
        return bool(self._finish)

    def take(self, event: object, draft: Draft) -> None:
        """See `Reader.take`."""
        if not isinstance(event, dict):
            return
        chunk: JsonObject = event
        self.model = bounds.name(chunk.get("model")) or self.model
        self._id = self._id or bounds.name(chunk.get("id"))
        self._count(chunk)
        for choice in objects(chunk.get("choices")):
            # Of several answers, only the first was asked for.
            if choice.get("index"):
                continue
            self.begun = True
            self._count(choice)
            if isinstance(failed := choice.get("error"), dict) and failed:
                raise stream_failure(word(failed.get("code")), word(failed.get("message")))
            self._finish = word(choice.get("finish_reason")).lower() or self._finish
            # Some servers send none with the finish reason.
            if isinstance(delta := choice.get("delta"), dict):
                self._take_delta(delta, draft)

    def answered(self, *, is_marked: bool) -> Answered:
        """See `Reader.answered`."""
        is_something = self._texts or self._thoughts or self._calls or self.counted
        if not self._finish and not (is_marked and is_something):
            raise broken_off()
        if self._finish in _FILTERED:
            raise refusal("the provider's content filter stopped it")
        if self._finish in _FAILED:
            raise broken(f"The model provider could not complete the response ({self._finish}).")
        if self._refusal and not self._calls:
            raise refusal(self._refusal)
        for thinks, text in self._tags.rest():
            (self._thoughts if thinks else self._texts).append(text)
        ending = _ENDINGS.get(self._finish, "end")
        text = "".join(self._texts)
        if ending != "max_tokens" and not self._calls:
            text = self._take_calls_of_text(text)
        if ending == "end" and self._calls:
            ending = "tools"
        blocks = [*self._thinking(), *((text_block(text),) if text.strip() else ())]
        if ending == "tools":
            blocks += map(self._block, self._calls)
        elif not text.strip():
            # Nothing would follow the reasoning, which no provider accepts.
            blocks = []
        return Answered(tuple(blocks), ending, self._id, bounds.name(self._finish) or None)

    def _count(self, given: JsonObject) -> None:
        usage = given.get("usage") or (given["x_groq"].get("usage") if isinstance(given.get("x_groq"), dict) else None)
        if usage:
            counts = counted(usage, read="prompt_tokens", produced="completion_tokens")
            self.counted = counts or counted(usage, read="input_tokens", produced="output_tokens") or self.counted

    def _take_delta(self, delta: JsonObject, draft: Draft) -> None:
        for name in self._reasoning_fields:
            if given := delta.get(name):
                self._think(name, given, draft)
                break
        if content := delta.get("content"):
            for thinks, text in texts_of(content):
                if thinks:
                    self._thoughts.append(text)
                    draft.reasoning(text)
                else:
                    self._say(text, draft)
        self._refusal += word(delta.get("refusal"))
        calls = delta.get("tool_calls")
        if not calls and delta.get("function_call"):
            # The form before there were several calls.
            calls = [{"function": delta["function_call"]}]
        if calls:
            self._take_calls(objects(calls), draft)

    def _say(self, text: str, draft: Draft) -> None:
        for thinks, piece in self._tags.split(text):
            if not piece:
                continue
            if thinks:
                self._thoughts.append(piece)
                draft.reasoning(piece)
            else:
                self._texts.append(piece)
                draft.token(piece)

    def _think(self, name: str, given: object, draft: Draft) -> None:
        self._reasoning_field = name
        if name == DETAILS_FIELD:
            for detail in objects(given):
                self._take_detail(detail, draft)
            return
        for _, text in texts_of(given):
            self._thoughts.append(text)
            draft.reasoning(text)

    def _take_detail(self, detail: JsonObject, draft: Draft) -> None:
        piece = word(detail.get("text")) or word(detail.get("summary"))
        last = self._details[-1] if self._details else None
        key = "text" if "text" in detail else "summary"
        if last is not None and last.get("index") == detail.get("index") and isinstance(last.get(key), str) and piece:
            # Some servers send what is new, others all that there is so far.
            so_far: str = last[key]
            if len(piece) > len(so_far) and piece.startswith(so_far):
                piece = piece[len(so_far) :]
            last |= {name: value for name, value in detail.items() if value is not None} | {key: so_far + piece}
        else:
            self._details.append(dict(detail))
        if piece:
            self._thoughts.append(piece)
            draft.reasoning(piece)

    def _take_calls(self, pieces: Iterable[JsonObject], draft: Draft) -> None:
        for piece in pieces:
            function = piece.get("function")
            named: JsonObject = function if isinstance(function, dict) else {}
            name, arguments = word(named.get("name")), named.get("arguments")
            call = self._call_of(piece, begins=bool(name))
            call.name = name or call.name
            if isinstance(arguments, str):
                call.pieces.append(arguments)
            elif arguments is not None:
                call.given = arguments
        # A call is complete when the next one has begun.
        while self._ready < len(self._calls) - 1:
            draft.call(self._block(self._calls[self._ready]))
            self._ready += 1

    def _call_of(self, piece: JsonObject, *, begins: bool) -> _Call:
        """Return the call of a piece: by its index, or the last one, unless the piece begins another."""
        index, call_id = piece.get("index"), word(piece.get("id"))
        if not isinstance(index, int | str):
            index = None
        call = self._at_index.get(index) if index is not None else self._calls[-1] if self._calls else None
        if call is not None and begins:
            is_another = call_id != call.id if call_id and call.id else call.is_whole
            call = None if is_another else call
        if call is None:
            call = _Call()
            self._calls.append(call)
            if index is not None:
                self._at_index[index] = call
        call.id = call.id or call_id
        return call

    def _take_calls_of_text(self, text: str) -> str:
        names = {wire_name(tool.name) for tool in self._turn.tools}
        text, calls = calls_at_end(text, names)
        self._calls += (_Call(name=call["name"], given=call["arguments"]) for call in calls)
        return text

    def _block(self, call: _Call) -> ContentBlock:
        return {"type": "tool_use", "id": call.id, "name": self._turn.names.own(call.name), "input": call.input}

    def _thinking(self) -> Iterable[ContentBlock]:
        if not self._thoughts:
            return ()
        kept: JsonObject = {}
        if self._reasoning_field == DETAILS_FIELD:
            kept = {"details": self._details}
        elif self._reasoning_field is not None:
            kept = {"field": self._reasoning_field}
        elif self._tags.tag is not None:
            kept = {"tag": self._tags.tag}
        origin = origin_of(self._turn.target, **kept)
        return ({"type": "thinking", "thinking": "".join(self._thoughts), ORIGIN: origin},)
