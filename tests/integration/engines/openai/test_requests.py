"""What the engine sends, in each wire form."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from dirty_equals import IsStr

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.run_options import NamedTool
from nova_workers.engines.openai import Key, OpenAIEngine
from nova_workers.engines.openai.provider import WireForm
from tests.contract.engines.stage import Bench
from tests.integration.engines.openai.conftest import MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Stream

FINE = Stream((Part("text", ["Well"]),))
PNG = base64.b64encode(b"\x89PNG").decode()
IMAGE: ContentBlock = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
PDF: ContentBlock = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
TOLD = (
    Message("user", (text_block("What is 1 + 2?"),)),
    Message(
        "assistant",
        (
            {"type": "thinking", "thinking": "Hm", "signature": "of another provider"},
            text_block("Let me see."),
            {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1, "b": 2}},
        ),
    ),
    Message("user", ({"type": "tool_result", "tool_use_id": "call_1", "content": [text_block("3"), IMAGE]},)),
    Message("assistant", (text_block("Three."),)),
)


async def _asked(engine: OpenAIEngine, server: ModelServer, content: Any = "hi", **given: Any) -> dict[str, Any]:
    server.reply(FINE)
    options = replace(EngineOptions(model="local/some-model"), **given)
    result = await engine.run(content, options, "sandbox")
    assert result.error is None
    return server.requests[-1]


async def test_chat_completions_get_the_conversation(server: ModelServer, make_engine: MakeEngine) -> None:
    asked = await _asked(make_engine("chat"), server, history=TOLD, system_prompt="Be brief.")
    assert server.paths == ["/v1/chat/completions"]
    arguments = '{"a":1,"b":2}'
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert asked == {
        "model": "some-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 8192,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 2?"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            {"role": "user", "content": [{"type": "text", "text": "[From the result of add:]"}, image]},
            {"role": "assistant", "content": "Three."},
            {"role": "user", "content": "hi"},
        ],
    }


async def test_the_responses_api_gets_the_conversation(server: ModelServer, make_engine: MakeEngine) -> None:
    asked = await _asked(make_engine("responses"), server, history=TOLD, system_prompt="Be brief.")
    assert server.paths == ["/v1/responses"]

    def said(text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        return {"type": "message", "role": "assistant", "content": content}

    assert asked == {
        "model": "some-model",
        "stream": True,
        "store": False,
        "max_output_tokens": 8192,
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is 1 + 2?"}]},
            said("Let me see."),
            {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1,"b":2}'},
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "3"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
            said("Three."),
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ],
    }


async def test_images_and_documents_are_sent_where_the_provider_takes_them(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    asked = await _asked(make_engine("chat"), server, (IMAGE, PDF))
    file = {"filename": "document-2.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
    assert [part["type"] for part in asked["messages"][-1]["content"]] == ["image_url", "file"]
    assert asked["messages"][-1]["content"][1]["file"] == file
    asked = await _asked(make_engine("responses"), server, (IMAGE, PDF))
    assert [part["type"] for part in asked["input"][-1]["content"]] == ["input_image", "input_file"]
    assert asked["input"][-1]["content"][1] == {"type": "input_file", **file}


async def test_a_note_takes_the_place_of_what_the_provider_does_not_take(
    server: ModelServer, make_engine: MakeEngine, api: WireForm
) -> None:
    engine = make_engine(api, images=False, documents=False)
    await _asked(engine, server, (IMAGE, PDF))
    assert server.conversation()[-1][1].count("Left out") == 2


async def test_tools_are_offered_and_long_names_come_back_whole(
    server: ModelServer, engine: OpenAIEngine, bench: Bench
) -> None:
    await _asked(engine, server, mcp_servers=bench.servers())
    tools = [tool.get("function", tool) for tool in server.requests[-1]["tools"]]
    assert [tool["name"] for tool in tools] == ["add", "count", "break", "raise", "hang", "meet"]
    name = "a" * 60 + "_tool_of_a_long_name"
    call = {"type": "tool_use", "id": "c" * 100, "name": name, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c" * 100, "content": "ok"}
    asked = await _asked(engine, server, history=(Message("assistant", (call,)), Message("user", (result,))))
    flat = str(asked)
    assert name not in flat
    assert "c" * 65 not in flat
    short = ("c" * 31 + "_", "a" * 55 + "_")
    assert all(flat.count(each) >= 1 for each in short)


async def test_a_structured_answer_is_asked_for_with_its_schema(server: ModelServer, make_engine: MakeEngine) -> None:
    fine = Stream((Part("text", ['{"n": 3}']),))
    for api in ("chat", "responses"):
        server.reply(fine)
        options = EngineOptions(model="local/m", output_schema=SCHEMA)
        result = await make_engine(api).run("hi", options, "sandbox")
        assert result.output == {"n": 3}
    described = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert server.requests[0]["response_format"] == {"type": "json_schema", "json_schema": described}
    assert server.requests[1]["text"] == {"format": {"type": "json_schema", **described}}


async def test_a_schema_that_strict_mode_cannot_express_is_sent_without_it(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    server.reply(Stream((Part("text", ["{}"]),)))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    result = await make_engine("chat").run("hi", EngineOptions(model="local/m", output_schema=schema), "sandbox")
    assert result.output == {}
    assert not server.requests[0]["response_format"]["json_schema"]["strict"]


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_schema_that_is_no_object_is_asked_for_in_words(
    server: ModelServer, make_engine: MakeEngine, api: WireForm
) -> None:
    server.reply(Stream((Part("text", ["[3]"]),)))
    schema = {"type": "array", "items": {"type": "integer"}}
    result = await make_engine(api).run("hi", EngineOptions(model="local/m", output_schema=schema), "sandbox")
    assert (result.error, result.output) == (None, [3])
    assert "fulfils this JSON schema" in str(server.requests[0])


@pytest.mark.parametrize(("mode", "sent"), [("json_object", {"type": "json_object"}), ("none", None)])
async def test_a_server_without_schemas_is_asked_in_words_and_checked(
    server: ModelServer, make_engine: MakeEngine, mode: str, sent: Any
) -> None:
    server.reply(Stream((Part("text", ['{"n": "three"}']),)), Stream((Part("text", ['{"n": 3}']),)))
    engine = make_engine("chat", structured_output=mode)
    result = await engine.run("hi", EngineOptions(model="local/m", output_schema=SCHEMA), "sandbox")
    assert result.output == {"n": 3}
    assert server.requests[0].get("response_format") == sent
    assert server.requests[0]["messages"][0] == {"role": "system", "content": IsStr(regex=r"(?s).*JSON schema.*")}
    assert "does not fulfil the schema" in server.conversation()[-1][1]


async def test_the_operators_fields_and_headers_are_sent(server: ModelServer, make_engine: MakeEngine) -> None:
    server.also_takes = frozenset({"enable_thinking"})
    engine = make_engine(
        "chat",
        headers={"X-Team": "agents"},
        extra_body={"seed": 7},
        max_tokens_field="max_completion_tokens",
        parallel_tool_calls=False,
        thinking_body={"enable_thinking": True},
    )
    bench = Bench()
    asked = await _asked(engine, server, thinking_budget_tokens=2_000, mcp_servers=bench.servers())
    assert server.headers[-1]["x-team"] == "agents"
    assert (asked["seed"], asked["max_completion_tokens"], asked["enable_thinking"]) == (7, 8192, True)
    assert asked["parallel_tool_calls"] is False
    assert "reasoning_effort" not in asked
    assert "max_tokens" not in asked


async def test_thinking_asks_for_effort_and_summaries(server: ModelServer, make_engine: MakeEngine) -> None:
    asked = await _asked(make_engine("responses"), server, thinking_budget_tokens=10_000)
    assert asked["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert asked["include"] == ["reasoning.encrypted_content"]
    assert asked["max_output_tokens"] == 11_024
    asked = await _asked(make_engine("chat"), server, thinking_budget_tokens=30_000)
    assert asked["reasoning_effort"] == "high"
    asked = await _asked(make_engine("chat"), server, engine_config={"reasoning_effort": "none"})
    assert asked["reasoning_effort"] == "none"
    assert "reasoning_effort" not in await _asked(make_engine("chat"), server)


@proves("engine.key-scope")
async def test_a_server_without_a_key_gets_none_of_the_environment(
    server: ModelServer, make_engine: MakeEngine, api: WireForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "of-the-operators-openai-account")
    await _asked(make_engine(api, keys=(Key(),)), server)
    assert not [value for value in server.headers[-1].values() if "of-the-operators" in value]


async def test_a_temperature_is_sent(server: ModelServer, engine: OpenAIEngine) -> None:
    assert (await _asked(engine, server, temperature=0.5))["temperature"] == 0.5


@proves("runs.options")
async def test_a_choice_of_tools_is_sent_and_a_call_is_forced_once(server: ModelServer, engine: OpenAIEngine) -> None:
    tools = Bench().servers()
    assert (await _asked(engine, server, mcp_servers=tools, tool_choice="none"))["tool_choice"] == "none"
    assert "tool_choice" not in await _asked(engine, server, tool_choice="none")
    server.reply(Stream((Part("tool", ("toolu_0_0", "add", {"a": 1, "b": 2})),)), FINE)
    options = EngineOptions(model="local/some-model", mcp_servers=tools, tool_choice=NamedTool(name="add"))
    assert (await engine.run("hi", options, "sandbox")).error is None
    first, second = (request.get("tool_choice") for request in server.requests[-2:])
    assert first is not None
    assert (first["type"], first.get("function", first)["name"], second) == ("function", "add", None)
    result = await engine.run("hi", replace(options, tool_choice=NamedTool(name="weather")), "sandbox")
    assert result.error is not None
    assert "to call the tool 'weather', and it is not offered. Offered: add, break" in result.error.message
