"""A turn whose model answers from memory, before the first real one.

The SDK builds the types of a stream's events with the first response that it reads: 0.4 s of CPU, which the first
message after a start would wait for.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.anthropic.engine import AnthropicEngine
from nova_workers.engines.http.rehearsing import answering, direct_transport

_MODEL = "haiku"
"""Any that the price list knows."""
_TIMEOUT_S = 30.0
_USAGE = {"input_tokens": 1, "output_tokens": 1}
_EVENTS: tuple[Mapping[str, Any], ...] = (
    {
        "type": "message_start",
        "message": {
            "id": "msg_rehearsal",
            "type": "message",
            "role": "assistant",
            "model": _MODEL,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _USAGE,
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Ready."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
)
ANSWER: Final = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
"""A stream of the Messages API."""


async def rehearse(directory: str) -> str:
    """Play a turn without a provider, and return its text. Nothing is sent, stored or counted.

    Args:
        directory: Where its file tools would work.
    """
    async with answering(ANSWER) as url:
        engine = AnthropicEngine(api_key="none", base_url=url, transport=direct_transport())
        try:
            options = EngineOptions(cwd=directory, model=_MODEL, system_prompt="Answer.", timeout_s=_TIMEOUT_S)
            return (await engine.run("Ready?", options, "controlled")).text
        finally:
            await engine.close()
