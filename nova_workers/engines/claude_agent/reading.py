"""Assembles a response from the raw events of the Messages API that the program forwards."""

from typing import Any

from anthropic.types.beta import BetaUsage

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.claude_agent.transcript import to_own_names
from nova_workers.engines.turn import Draft, Ending, Response
from nova_workers.engines.turn.intake import parse_input

_ENDINGS: dict[str | None, Ending] = {
    "tool_use": "tools",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "pause_turn": "resume",
    "compaction": "resume",
}
_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Kinds of deltas that are text, and the field that holds it."""


class ResponseReader:
    """One response so far."""

    def __init__(self, draft: Draft, prices: Prices, asked: str | None) -> None:
        self._draft = draft
        self._prices = prices
        self._asked = asked
        self._blocks: dict[int, ContentBlock] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._usage: JsonObject = {}
        self._id = ""
        self._stop_reason: str | None = None
        self.complete = False

    def take(self, event: JsonObject) -> None:
        """Process an event, and forward text and reasoning at once.

        Raises:
            TurnStopped: The turn must stop.
        """
        match event.get("type"):
            case "message_start":
                self._draft.model = bounds.name(event["message"]["model"])
                self._id = bounds.name(event["message"].get("id"))
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                self._add(event["index"], event["delta"])
            case "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                self.complete = True
            case _:
                pass

    @property
    def begun(self) -> bool:
        """Whether any of the response has arrived."""
        return bool(self._usage or self._blocks)

    @property
    def calls_tools(self) -> bool:
        """Whether the response calls tools that the program runs."""
        return any(block.get("type") == "tool_use" for block in self._blocks.values())

    def response(self, ending: Ending | None = None) -> Response:
        """Return the complete response.

        Raises:
            EngineFailure: The model refused.
        """
        if self._stop_reason == "refusal":
            raise EngineFailure("The model refused to answer.", kind="model_error", retryable=False)
        blocks = [self._whole(index) for index in sorted(self._blocks)]
        content = tuple(block for block in blocks if block.get("type") != "text" or block["text"].strip())
        ends = "tools" if self.calls_tools else ending or _ENDINGS.get(self._stop_reason, "end")
        return Response(content, ends, self._draft.usage, self._draft.model, self._id or None, self._stop_reason)

    def _add(self, index: int, delta: JsonObject) -> None:
        kind = delta.get("type", "")
        if kind not in _PIECES:
            if kind == "citations_delta":
                self._blocks[index].setdefault("citations", []).append(delta["citation"])
            return
        piece: str = delta[_PIECES[kind]]
        self._pieces.setdefault((index, kind), []).append(piece)
        if kind == "text_delta":
            self._draft.token(piece)
        elif kind == "thinking_delta":
            self._draft.reasoning(piece)

    def _whole(self, index: int) -> ContentBlock:
        block = dict(self._blocks[index])
        for kind in ("text_delta", "thinking_delta", "signature_delta"):
            pieces = self._pieces.get((index, kind))
            if pieces:
                field = _PIECES[kind]
                block[field] = (block.get(field) or "") + "".join(pieces)
        given = "".join(self._pieces.get((index, "input_json_delta"), ()))
        if given:
            block["input"] = parse_input(given)
        return to_own_names(block)

    def _count(self, usage: JsonObject | None) -> None:
        self._usage |= {key: value for key, value in (usage or {}).items() if value is not None}
        self._draft.usage = usage_of(self._prices, self._usage, self._draft.model or "", self._asked)


def usage_of(prices: Prices, counts: JsonObject, model: str, asked: str | None = None) -> TokenUsage:
    """Convert the API's counts to the contract's usage with its cost. What is no count is ignored.

    `model` is the one that answered, `asked` the one that was asked for.
    """
    plain: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        plain[name] = bounds.count(counts.get(name))
    plain["output_tokens_details"] = {"thinking_tokens": _count_in(counts, "output_tokens_details", "thinking_tokens")}
    searches = _count_in(counts, "server_tool_use", "web_search_requests")
    plain["server_tool_use"] = {"web_search_requests": searches, "web_fetch_requests": 0}
    return prices.usage(BetaUsage.model_validate(plain), model, asked)


def _count_in(counts: JsonObject, group: str, name: str) -> int:
    within = counts.get(group)
    return bounds.count(within.get(name)) if isinstance(within, dict) else 0
