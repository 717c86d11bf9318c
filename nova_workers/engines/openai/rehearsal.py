"""Turns whose model answers from memory, in both wire forms: the SDK builds its types with the first response."""

import json
from collections.abc import Mapping
from typing import Any, Final

from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.http.rehearsing import answering, direct_transport
from nova_workers.engines.openai.catalog import Catalog
from nova_workers.engines.openai.engine import OpenAIEngine
from nova_workers.engines.openai.provider import Key, OpenAIProvider, WireForm
from nova_workers.engines.prices import ModelPrice

_MODEL: Final = "rehearsal/model"
_FREE: Final = {"*": ModelPrice(input=0.0, output=0.0, cache_read=0.0, cache_write=0.0)}
_TEXT: Final = "Ready."
_TIMEOUT_S: Final = 30.0

_CHUNK: Final = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "model"}
_CHAT: Final[tuple[Mapping[str, Any], ...]] = (
    {**_CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": _TEXT}, "finish_reason": None}]},
    {**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**_CHUNK, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
)
_ITEM: Final = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": _TEXT, "annotations": []}],
}
_COUNTED: Final = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
_RESPONSE: Final = {"id": "resp_1", "object": "response", "created_at": 1, "model": "model", "tools": []}
_RESPONSES: Final[tuple[Mapping[str, Any], ...]] = (
    {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress", "output": []}},
    {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": _TEXT,
        "logprobs": [],
    },
    {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
    {
        "type": "response.completed",
        "response": {**_RESPONSE, "status": "completed", "output": [_ITEM], "usage": _COUNTED},
    },
)


async def rehearse(directory: str) -> str:
    """Play a turn in each wire form without a provider, and return the last text. Nothing is sent, stored or counted.

    Args:
        directory: Where file tools would work.
    """
    await _play(directory, "chat", "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in _CHAT) + "data: [DONE]\n\n")
    events = ({**event, "sequence_number": number} for number, event in enumerate(_RESPONSES))
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return await _play(directory, "responses", stream)


async def _play(directory: str, api: WireForm, stream: str) -> str:
    async with answering(stream) as url:
        provider = OpenAIProvider("rehearsal", f"{url}/v1", api, (Key(api_key="none"),), prices=_FREE)
        engine = OpenAIEngine(Catalog([provider]), transport=direct_transport())
        try:
            options = EngineOptions(cwd=directory, model=_MODEL, system_prompt="Answer.", timeout_s=_TIMEOUT_S)
            return (await engine.run("Ready?", options, "controlled")).text
        finally:
            await engine.close()
