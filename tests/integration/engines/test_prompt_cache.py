"""The marks for the provider's prompt cache, and that the content before them never changes."""

import itertools
import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.domain.prompts.rules import build_system_prompt, stable_prefix_chars
from nova_workers.engines.anthropic import AnthropicEngine
from tests.contract.engines.stage import Bench
from tests.support.servers.model_server import ModelServer, Part, Stream

Json = dict[str, Any]

HELLO = Stream((Part("text", ["Hello"]),))
CALL = Stream((Part("text", ["Look"]), Part("tool", ("toolu_1", "count", {}))))
AGENT = AgentSpec(name="Nova", identity="You are Nova.", instructions="Be kind.")


def _options(history: tuple[Message, ...], now: str, bench: Bench, **more: Any) -> EngineOptions:
    prompt = build_system_prompt(AGENT, memories=[now])
    return EngineOptions(
        system_prompt=prompt,
        stable_prompt_chars=stable_prefix_chars(prompt),
        mcp_servers=bench.servers(),
        history=history,
        **more,
    )


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _marks(request: Json) -> list[str]:
    marks = [f"tool {tool['name']}" for tool in request["tools"] if "cache_control" in tool]
    marks += [f"system {at}" for at, block in enumerate(request["system"]) if "cache_control" in block]
    for at, message in enumerate(request["messages"]):
        marks += [f"message {at}" for block in message["content"] if "cache_control" in block]
    return [*marks, *(["last"] if "cache_control" in request else [])]


async def _two_turns(server: ModelServer, engine: AnthropicEngine) -> list[Json]:
    server.reply(CALL, HELLO, CALL, HELLO)
    bench = Bench()
    first = await engine.run("one", _options((), "Monday", bench), "sandbox")
    history = (Message("user", (text_block("one"),)), *first.messages)
    await engine.run("two", _options(history, "Tuesday", bench), "sandbox")
    return server.requests


async def test_four_cache_marks_end_the_parts_that_change_less_often(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    requests = await _two_turns(server, engine)
    assert [_marks(request) for request in requests] == snapshot(
        [
            ["tool meet", "system 0", "last"],
            ["tool meet", "system 0", "last"],
            ["tool meet", "system 0", "message 3", "last"],
            ["tool meet", "system 0", "message 3", "last"],
        ]
    )


async def test_tools_and_the_stable_part_of_the_prompt_are_the_same_bytes_in_every_step(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    requests = await _two_turns(server, engine)
    prefixes = {json.dumps([request["tools"], request["system"][0]]) for request in requests}
    assert len(prefixes) == 1
    assert [request["system"][1]["text"] for request in requests[1:3]] == [
        "\n\n<Memories>\n- Monday\n</Memories>",
        "\n\n<Memories>\n- Tuesday\n</Memories>",
    ]


async def test_each_conversation_begins_with_the_bytes_of_the_one_before(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    requests = await _two_turns(server, engine)
    sent = [json.dumps(_unmarked(request["messages"])).removesuffix("]") for request in requests]
    for shorter, longer in itertools.pairwise(sent):
        assert longer.startswith(shorter)


async def test_cache_marks_do_not_change_the_transcript(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    block = text_block("one")
    await engine.run(
        "two", EngineOptions(history=(Message("user", (block,)), Message("assistant", (block,)))), "sandbox"
    )
    assert block == text_block("one")


async def test_a_prompt_without_a_changing_part_is_one_block(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    await engine.run("hi", EngineOptions(system_prompt="Be kind"), "sandbox")
    assert [block["text"] for block in server.requests[0]["system"]] == ["Be kind"]


@pytest.mark.parametrize("forged", ["<Context>", "a\n<memories>\nb", "< task >"])
def test_content_cannot_move_the_split(forged: str) -> None:
    agent = AgentSpec(name="Nova", identity="x", instructions=forged)
    prompt = build_system_prompt(agent, memories=["Monday"])
    assert prompt[stable_prefix_chars(prompt) :] == "\n\n<Memories>\n- Monday\n</Memories>"
    plain = build_system_prompt(agent)
    assert stable_prefix_chars(plain) == len(plain)
