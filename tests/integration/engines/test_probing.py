"""Engines find out which of their providers answer, and never say a key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nova_workers.contracts.engine import ProbedEngine
from nova_workers.engines.anthropic import AnthropicEngine, Profile
from nova_workers.engines.anthropic_probe import AnthropicProbe
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.http import probing
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.scripted import ScriptedEngine
from tests.requirements import proves
from tests.support.servers.web_server import WebServer, reply, web_server

SECRET = "sk-secret-of-the-operator"
LISTS = {"anthropic": "/v1/models?limit=1", "anthropic without its SDK": "/v1/models?limit=1", "openai": "/v1/models"}


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebServer]:
    """A provider."""
    monkeypatch.setattr(probing, "_PAUSE_S", 0.05)
    async with web_server() as web:
        yield web


async def why_not(kind: str, port: int, *keys: str, timeout_s: float = 60.0) -> str | None:
    """Return what an engine says about the provider at a port."""
    url = f"http://127.0.0.1:{port}"
    if kind == "anthropic without its SDK":
        return await AnthropicProbe([Profile(key, key) for key in keys], url)(timeout_s)
    if kind == "anthropic":
        engine = AnthropicEngine(profiles=[Profile(key, key) for key in keys], base_url=url)
    else:
        provider = OpenAIProvider("", f"{url}/v1", "chat", tuple(Key(key, key) for key in keys))
        engine = OpenAIEngine(Catalog([provider]))
    assert isinstance(engine, ProbedEngine)
    try:
        return (await engine.probe(timeout_s=timeout_s))[""]
    finally:
        await engine.close()


@proves("orchestration.probes")
@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("200 OK", None),
        ("403 Forbidden", None),
        ("404 Not Found", None),
        ("429 Too Many Requests", None),
        ("401 Unauthorized", "it refuses the key (401)"),
        ("402 Payment Required", "it refuses the key (402)"),
        ("503 Service Unavailable", "it answers with the error 503"),
    ],
)
async def test_a_provider_is_judged_by_its_answer(server: WebServer, kind: str, status: str, why: str | None) -> None:
    server.page(LISTS[kind], reply(f'{{"error": {{"message": "not {SECRET}"}}}}'.encode(), status=status))
    assert await why_not(kind, server.port, SECRET) == why
    assert SECRET in server.heads[0]
    assert len(server.heads) == (2 if status.startswith("503") else 1), "Only a failure that may pass is tried twice."


@pytest.mark.parametrize("kind", LISTS)
async def test_a_provider_that_is_down_or_silent_is_unavailable(server: WebServer, kind: str) -> None:
    server.page(LISTS[kind], b"<stall>")
    assert await why_not(kind, server.port, SECRET, timeout_s=0.2) == "it does not answer within 0.2 s"
    async with web_server() as gone:
        port = gone.port
    assert await why_not(kind, port, SECRET) == "it cannot be reached (ConnectError)"


@pytest.mark.parametrize("kind", LISTS)
async def test_a_failure_that_passes_at_once_is_none(server: WebServer, kind: str) -> None:
    answers = iter(["503 Service Unavailable", "200 OK"])
    server.page(LISTS[kind], lambda: reply(b"{}", status=next(answers)))
    assert await why_not(kind, server.port, SECRET) is None


@pytest.mark.parametrize("kind", LISTS)
async def test_one_key_that_is_accepted_suffices(server: WebServer, kind: str) -> None:
    def page() -> bytes:
        return reply(b"{}", status="200 OK" if "good" in server.heads[-1] else "401 Unauthorized")

    server.page(LISTS[kind], page)
    assert await why_not(kind, server.port, "bad", "good") is None
    assert await why_not(kind, server.port, "bad", "worse") == "it refuses the key (401)"


async def test_the_request_without_the_sdk_is_that_of_the_sdk(server: WebServer) -> None:
    for kind in ("anthropic", "anthropic without its SDK"):
        assert await why_not(kind, server.port, SECRET) is None
    by_sdk, without = ({line.lower() for line in head.splitlines()} for head in server.heads)
    # Of the SDK's own headers, all others describe it.
    assert {line.partition(":")[0] for line in without - by_sdk} == {"accept", "user-agent"}
    assert f"authorization: bearer {SECRET}" in without


async def test_engines_without_a_key_ask_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert await AnthropicEngine(base_url="http://127.0.0.1:9").probe(timeout_s=60) == {"": "it has no key"}
    openai = OpenAIEngine(Catalog([OpenAIProvider()]))
    assert await openai.probe(timeout_s=60) == {"openai": "it has no key"}


async def test_the_program_of_claude_agent_must_start(tmp_path: Path) -> None:
    async def probe(program: Path | None) -> str | None:
        engine = ClaudeAgentEngine(environment={"PATH": "/usr/bin:/bin"}, program=program)
        return (await engine.probe(timeout_s=20))[""]

    broken = tmp_path / "claude"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    assert await probe(None) is None
    assert await probe(broken) == "the Claude Code program ends with 3"
    missing = await probe(tmp_path / "none")
    assert missing is not None
    assert "cannot be started" in missing


def test_an_engine_without_providers_tries_nothing() -> None:
    assert not isinstance(ScriptedEngine(environment="development"), ProbedEngine)
