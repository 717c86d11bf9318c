"""Options, responses of the model, and the requests of a turn for tests of the claude_agent engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.domain.prompts.rules import is_event_block
from tests.support.servers.model_server import ModelServer, Part, Stream

MODEL = "claude-sonnet-5"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
"""A PNG of one pixel, as base64."""


class Sessions:
    """Implements `SessionStore` in memory."""

    def __init__(self) -> None:
        self.saved: dict[str, NewSession] = {}

    async def load(self, session_id: str) -> StoredSession | None:
        chain: list[NewSession] = []
        at: str | None = session_id
        while at is not None:
            session = self.saved.get(at)
            if session is None:
                return None
            chain.insert(0, session)
            at = session.parent_id
        return StoredSession(tuple(entry for part in chain for entry in part.entries), chain[-1].fingerprint)

    async def save(self, session: NewSession) -> None:
        self.saved[session.id] = session


def options(**given: Any) -> EngineOptions:
    """Return options on the tests' model."""
    return replace(EngineOptions(model=MODEL), **given)


def text_response(*pieces: str) -> Stream:
    """Return a response with text."""
    return Stream((Part("text", list(pieces)),))


def tool_response(*calls: tuple[str, dict[str, Any]], step: int = 0) -> Stream:
    """Return a response that calls tools."""
    return Stream(tuple(Part("tool", (f"toolu_{step}_{at}", name, given)) for at, (name, given) in enumerate(calls)))


def results(result: EngineResult) -> list[tuple[str, str]]:
    """Return status and text of each call of a turn."""
    return [(call.status, text_of(call.result or ())) for call in result.tool_calls]


def conversation_of(server: ModelServer, request: int = -1) -> list[tuple[str, str]]:
    """Return the conversation of a request, without event contexts and what the program adds of its own."""
    found: list[tuple[str, str]] = []
    for message in server.requests[request]["messages"]:
        content = message["content"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            text = block.get("text") or block.get("name") or json.dumps(block.get("content"), sort_keys=True)
            if message["role"] != "system" and "<system-reminder>" not in text and not is_event_block(text):
                found.append((message["role"], text))
    return found


def request_text(server: ModelServer, request: int = -1) -> str:
    """Return a whole request to the model, as JSON."""
    return json.dumps(server.requests[request])
