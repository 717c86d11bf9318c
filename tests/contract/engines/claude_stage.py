"""The contract suite on the `claude_agent` engine: the real program, over HTTP to a local model server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from nova_workers.contracts.engine import Engine, EngineOptions
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from tests.contract.engines.stage import Answer
from tests.support.model_server import ModelServer, Part, Status, Stream

__all__ = ["ClaudeStage"]


class ClaudeStage:
    """The claude_agent engine."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.engine: Engine = ClaudeAgentEngine(
            environment={"PATH": os.environ["PATH"]}, api_key="k", base_url=server.url, max_retries=0
        )

    def options(self, answers: Sequence[Answer], **given: Any) -> EngineOptions:
        steps = len(given.get("journal", ()))
        self.server.reply(*(self._reply(step, answer) for step, answer in enumerate(answers) if step >= steps))
        return EngineOptions(model="claude-sonnet-4-5", **given)

    def call_id(self, step: int, at: int) -> str:
        return f"toolu_{step}_{at}"

    def _reply(self, step: int, answer: Answer) -> Stream | Status:
        parts: list[Part] = []
        if answer.think:
            parts.append(Part("thinking", [answer.think]))
        if answer.wait_s:
            parts.append(Part("sleep", answer.wait_s))
        if answer.text:
            words = answer.text.split(" ")
            parts.append(Part("text", [f"{word} " for word in words[:-1]] + words[-1:]))
        if answer.stalls:
            parts.append(Part("stall"))
        if answer.fails:
            parts.append(Part("event", ("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})))
        parts += [
            Part("tool", (self.call_id(step, at), f"mcp__nova__{call.name}", call.input))
            for at, call in enumerate(answer.calls)
        ]
        return Stream(tuple(parts))
