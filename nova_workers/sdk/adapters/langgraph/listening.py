"""What models within a graph say and use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from nova_workers.contracts.user_agents import ModelUse


class UsageCollector(BaseCallbackHandler):
    """Collects what chat models report as used, from whatever node and thread."""

    run_inline = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: list[ModelUse] = []

    def take(self) -> tuple[ModelUse, ...]:
        """Return the usage since the last call."""
        with self._lock:
            used, self._used = tuple(self._used), []
        return used

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Take note of an answer."""
        for generations in response.generations:
            for each in generations:
                if isinstance(each, ChatGeneration) and isinstance(each.message, AIMessage):
                    self._add(each.message)

    def _add(self, message: AIMessage) -> None:
        usage, about = message.usage_metadata, message.response_metadata
        if usage is None:
            return
        read = usage.get("input_token_details", {}).get("cache_read", 0)
        written = usage.get("input_token_details", {}).get("cache_creation", 0)
        used = ModelUse(
            model=str(about.get("model_name") or about.get("model") or "")[:200],
            provider=about.get("model_provider"),
            # Of LangChain the sum, of which these are parts.
            input_tokens=max(usage["input_tokens"] - read - written, 0),
            output_tokens=usage["output_tokens"],
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=usage.get("output_token_details", {}).get("reasoning", 0),
        )
        with self._lock:
            self._used.append(used)


class Speech:
    """Emits what models say, one message at a time: what others say meanwhile follows it."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._speaker: str | None = None
        self._held: dict[str, list[str]] = {}
        self._said = False

    def hear(self, message: BaseMessage) -> None:
        """Take a message, or a piece of one."""
        text = str(message.text)
        if not isinstance(message, AIMessage) or not text:
            return
        speaker = message.id or ""
        if self._speaker is None:
            self._begin(speaker)
        if speaker == self._speaker:
            self._emit(text)
        else:
            self._held.setdefault(speaker, []).append(text)

    def pause(self) -> None:
        """End what is being said, before a step of the journal: the rest is said too."""
        for speaker, pieces in tuple(self._held.items()):
            self._begin(speaker)
            self._emit("".join(pieces))
        self._held.clear()
        self._speaker, self._said = None, False

    def _begin(self, speaker: str) -> None:
        if self._said:
            self._emit("\n\n")
        self._speaker, self._said = speaker, True
