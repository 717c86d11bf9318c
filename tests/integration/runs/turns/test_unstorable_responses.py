"""A model sends what the ledger cannot store or the provider would refuse: it gets an error, and the run continues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_workers.contracts.content import Message, storable_json, text_block
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, StepRecord, StepVerdict
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.engines.turn import Response
from nova_workers.engines.turn.intake import UsedIds, admit
from tests.contract.engines.stage import assert_valid
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

Json = dict[str, Any]

USAGE = {"input_tokens": 100, "output_tokens": 10}
DONE = Stream((Part("text", ["Done."]),), usage=USAGE)
DEEP = '{"command": "echo x >> log", "a": ' + "[" * 260 + "]" * 260 + "}"
VERY_DEEP = "[" * 50_000 + "]" * 50_000
UNUSABLE = {
    "an integer over 64 bits": ('{"command": "echo x >> log", "n": [123456789012345678901234567890]}', "input.n[0]"),
    "NaN": ('{"command": "echo x >> log", "n": NaN}', "not a JSON number"),
    "infinity": ('{"command": "echo x >> log", "n": 1e999}', "not a JSON number"),
    "deep nesting": (DEEP, "nests deeper than 100 levels"),
    "nesting that no parser takes": (VERY_DEEP, "not a JSON object"),
    "a list": ('["echo x >> log"]', "not a JSON object"),
    "a string": ('"echo x >> log"', "not a JSON object"),
    "null": ("null", "not a JSON object"),
    "no JSON": ('{"command": }', "not a JSON object"),
    "half a character": ('{"command": "echo x >> log", "t": "\\ud83d"}', "half of a surrogate pair"),
    "half a character in a key": ('{"command": "echo x >> log", "\\ud83d": 1}', "half of a surrogate pair"),
    "NUL": ('{"command": "echo x >> log", "t": "a\\u0000b"}', "U+0000"),
}


@pytest.fixture
async def server(harness: Harness, tmp_path: Path) -> AsyncIterator[ModelServer]:
    """The model, behind the real engine."""
    async with model_server() as server:
        native = NativeTools(shell=ShellSettings())
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=5, native=native)
        harness.engines["anthropic"] = engine
        spec = {"name": "Keeper", "engine": "anthropic", "trust": "unrestricted", "directories": [str(tmp_path)]}
        await harness.add_agent("keeper", spec)
        yield server
        await engine.close()


def _bash(call_id: str, given: Json | str) -> Part:
    return Part("tool", (call_id, "Bash", given))


def _assert_request(request: Json) -> None:
    """Assert what the provider requires of a request: JSON in UTF-8, unique ids, objects as inputs, all results."""
    json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
    assert_valid([Message(message["role"], tuple(message["content"])) for message in request["messages"]])
    blocks = [block for message in request["messages"] for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)
    assert all(isinstance(block["input"], dict) for block in blocks if block["type"] == "tool_use")


async def _used(harness: Harness, run_id: str) -> tuple[int, int]:
    row = await harness.database.fetchrow(
        "SELECT input_tokens, output_tokens FROM usage WHERE run_id = :run_id", run_id=run_id
    )
    assert row is not None
    return row["input_tokens"], row["output_tokens"]


@pytest.mark.parametrize("form", list(UNUSABLE))
@proves("engine.unusable-calls")
async def test_an_unstorable_call_is_a_tool_error_and_costs_one_response(
    harness: Harness, server: ModelServer, tmp_path: Path, form: str
):
    text, why = UNUSABLE[form]
    server.reply(Stream((_bash("toolu_1", text),), usage=USAGE), DONE)
    worker = harness.worker()
    run = await harness.submit("go", agent_id="keeper")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    assert len(server.requests) == 2
    _assert_request(server.requests[1])
    (result,) = server.requests[1]["messages"][-1]["content"]
    assert result["is_error"] is True
    assert why in result["content"][0]["text"]
    assert await _used(harness, run.run_id) == (200, 20)
    assert not (tmp_path / "log").exists()
    call = await harness.database.fetchrow("SELECT * FROM tool_calls WHERE call_id = 'toolu_1'")
    assert call is not None
    assert (call["status"], call["started_at"]) == ("failed", None)
    await check_any_time(harness.database)


@proves("engine.unusable-calls")
async def test_the_thread_continues_after_an_unstorable_call(harness: Harness, server: ModelServer):
    server.reply(Stream((_bash("toolu_1", '{"n": 1' + "0" * 40 + "}"),), usage=USAGE), DONE, DONE)
    worker = harness.worker()
    first = await harness.submit("go", agent_id="keeper")
    await harness.settle(worker)
    second = await harness.submit("and on", first.thread_id)
    await harness.settle(worker)
    assert await harness.status(second.run_id) == "succeeded"
    _assert_request(server.requests[2])


@proves("engine.unique-calls")
async def test_two_calls_with_one_id_are_two_calls(harness: Harness, server: ModelServer):
    server.reply(
        Stream((_bash("toolu_1", {"command": "echo a"}), _bash("toolu_1", {"command": "echo b"})), usage=USAGE), DONE
    )
    worker = harness.worker()
    run = await harness.submit("go", agent_id="keeper")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    _assert_request(server.requests[1])
    results = server.requests[1]["messages"][-1]["content"]
    assert [block["content"][0]["text"].strip() for block in results] == ["a", "b"]
    rows = await harness.database.fetch("SELECT params, result FROM tool_calls ORDER BY sequence")
    assert [(row["params"]["command"], row["result"][0]["text"].strip()) for row in rows] == [
        ("echo a", "a"),
        ("echo b", "b"),
    ]
    await check_any_time(harness.database)


@proves("engine.unique-calls")
async def test_an_id_used_again_in_a_later_step_or_turn_overwrites_no_call(harness: Harness, server: ModelServer):
    def call(word: str) -> Stream:
        return Stream((_bash("toolu_1", {"command": f"echo {word}"}),), usage=USAGE)

    server.reply(call("a"), call("b"), DONE, call("c"), DONE)
    worker = harness.worker()
    first = await harness.submit("go", agent_id="keeper")
    await harness.settle(worker)
    await harness.submit("again", first.thread_id)
    await harness.settle(worker)
    for request in server.requests:
        _assert_request(request)
    rows = await harness.database.fetch("SELECT params, result FROM tool_calls ORDER BY turn_id, sequence")
    assert sorted((row["params"]["command"], row["result"][0]["text"].strip()) for row in rows) == [
        ("echo a", "a"),
        ("echo b", "b"),
        ("echo c", "c"),
    ]
    await check_any_time(harness.database)


async def test_text_and_thinking_with_lone_surrogates_are_sanitized_and_kept(harness: Harness, server: ModelServer):
    server.reply(Stream((Part("thinking", ["hm \ud83d"]), Part("text", ["a\x00", "b \ud83d"])), usage=USAGE), DONE)
    worker = harness.worker()
    first = await harness.submit("go", agent_id="keeper")
    await harness.settle(worker)
    second = await harness.submit("and on", first.thread_id)
    await harness.settle(worker)
    assert [await harness.status(run.run_id) for run in (first, second)] == ["succeeded"] * 2
    _assert_request(server.requests[1])
    assert (await harness.run(first.run_id))["result_text"] == "a\ufffdb \ufffd"


@pytest.mark.parametrize("form", ["an integer over 64 bits", "NaN", "deep nesting", "a list", "half a character"])
async def test_a_script_can_send_unstorable_values(form: str):
    engine = ScriptedEngine(environment="development")
    sent: Any = json.loads(UNUSABLE[form][0])
    steps: list[StepRecord] = []

    async def on_step(step: StepRecord) -> StepVerdict:
        steps.append(step)
        return "continue"

    tools = [{"name": "echo", "id": "x", "input": given, "result": word} for given, word in ((sent, "no"), ({}, "yes"))]
    options = EngineOptions(engine_config={"script": [{"tool": tools}, {"say": "So."}]})
    result = await engine.run("hi", options, "sandbox", callbacks=EngineCallbacks(on_step=on_step))
    await engine.close()
    assert (result.text, result.error) == ("So.", None)
    refused, answered = steps[0].tool_calls
    assert (refused.status, answered.status) == ("failed", "completed")
    assert UNUSABLE[form][1] in (refused.error or "")
    assert answered.result == (text_block("yes"),)
    orjson.dumps([step.messages[0].content for step in steps])


def _like(stored: Any, sent: Any) -> Any:
    """Return a stored value with floats where floats were sent: the database writes large ones as integers."""
    match sent:
        case float():
            return float(stored)
        case dict():
            return {key: _like(item, sent.get(key)) for key, item in stored.items()}
        case list():
            return [_like(*pair) for pair in zip(stored, sent, strict=True)]
        case _:
            return stored


_text = st.text(st.characters(exclude_categories=()), max_size=20)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=20,
)
_calls = st.lists(st.tuples(st.sampled_from(["a", "b", "a:b", "", "\x00", "a_b"]) | _text, _json), max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_calls, max_size=3), said=_text, depth=st.integers(0, 400))
@proves("engine.unusable-calls", "engine.unique-calls")
async def test_whatever_a_model_sends_is_stored_read_back_and_sent_again(
    harness: Harness, steps: list[list[tuple[str, Any]]], said: str, depth: int
):
    conversation: list[Message] = []
    used_ids = UsedIds()
    nested: Any = 1
    for _ in range(depth):
        nested = [nested]
    for calls in steps:
        content: list[Json] = [{"type": "text", "text": said}] if said.strip() else []
        content += [{"type": "tool_use", "id": id, "name": "f", "input": given} for id, given in calls]
        content.append({"type": "tool_use", "id": "deep", "name": "f", "input": {"n": nested}})
        response = Response(tuple(content), "tools", TokenUsage(), "m")
        admitted = admit(response, used_ids.of(conversation))
        assert admit(admitted.response, used_ids.of(conversation)).response == admitted.response
        message = Message("assistant", admitted.response.content)
        stored = await harness.database.fetchval("SELECT :content::jsonb", content=list(message.content))
        assert _like(stored, list(message.content)) == list(message.content)
        results: list[Json] = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": [text_block("x")]}
            for block in message.content
            if block["type"] == "tool_use"
        ]
        conversation += [message, Message("user", tuple(results))]
        assert (depth > 99) == (message.content[-1]["id"] in admitted.rejected)
    _assert_request({"messages": [{"role": each.role, "content": each.content} for each in conversation]})


@given(value=_json)
def test_storable_json_does_not_change_storable_values(value: Any):
    once = storable_json(value)
    assert storable_json(once) == once
    orjson.dumps(once)
