"""Source of a chat model of LangChain for code in tests: it asks the server at `URL` by the Messages API.

Without a vendor's SDK, whose import costs two seconds in each process that has the code.
"""

from typing import Final

CHAT_MODEL: Final = """
import json
import httpx2
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

class Asked(BaseChatModel):
    @property
    def _llm_type(self):
        return "asked"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        said = [{"role": "assistant" if each.type == "ai" else "user", "content": each.text} for each in messages]
        body = {"model": "claude-haiku-4-5", "max_tokens": 100, "stream": True, "messages": said}
        head = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        used = {}
        async with httpx2.AsyncClient() as client:
            async with client.stream("POST", f"{URL}/v1/messages", json=body, headers=head) as reply:
                async for line in reply.aiter_lines():
                    event = json.loads(line[5:]) if line.startswith("data:") else {}
                    used |= event.get("message", event).get("usage", {})
                    if text := event.get("delta", {}).get("text"):
                        yield ChatGenerationChunk(message=AIMessageChunk(text))
        read, written = used["input_tokens"], used["output_tokens"]
        about = {"model_name": "claude-haiku-4-5", "model_provider": "anthropic"}
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=usage, response_metadata=about))
"""
