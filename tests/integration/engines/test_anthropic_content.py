"""Content besides plain text in the anthropic engine: thinking, images, documents, server tools."""

import base64
import io
from typing import Any

import pytest
from mcp.server import Server
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    TextContent,
    TextResourceContents,
    Tool,
)
from PIL import Image

from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineOptions, EngineResult, InProcessMcpServer
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.sdk.testing.strict.signatures import sign
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.requirements import proves
from tests.support.data import media_samples
from tests.support.servers.model_server import ModelServer, Part, Stream

PNG = base64.b64encode(media_samples.png()).decode()
PDF = base64.b64encode(media_samples.PDF).decode()
HELLO = Stream((Part("text", ["Hello"]),))
THINKS = Part("block", ({"type": "thinking", "thinking": "", "signature": ""}, [
    {"type": "thinking_delta", "thinking": "Let me "},
    {"type": "thinking_delta", "thinking": "see"},
    {"type": "signature_delta", "signature": sign("Let me see")},
]))  # fmt: skip
HIDDEN = Part("block", ({"type": "redacted_thinking", "data": "c2VjcmV0"}, []))


def _tool(*results: Any) -> dict[str, InProcessMcpServer]:
    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="show", description="Shows.", input_schema={"type": "object"})])

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        return CallToolResult(content=list(results))

    return {"show": InProcessMcpServer(Server("show", on_list_tools=list_tools, on_call_tool=call_tool))}


def _png(raw: bytes) -> ImageContent:
    return ImageContent(data=base64.b64encode(raw).decode(), mime_type="image/png")


async def _show(server: ModelServer, engine: AnthropicEngine, *results: Any, **options: Any) -> list[Any]:
    server.reply(Stream((Part("tool", ("toolu_1", "show", {})),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=_tool(*results), **options), "sandbox")
    assert result.text == "Hello"
    (block,) = server.requests[1]["messages"][-1]["content"]
    assert block["tool_use_id"] == "toolu_1"
    assert list(result.tool_calls[0].result or ()) == block["content"]
    return block["content"]


@proves("engine.thinking")
async def test_thinking_goes_back_with_its_signature_while_tools_run(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    bench = Bench()
    recorder = TurnRecorder()
    server.reply(Stream((THINKS, HIDDEN, Part("tool", ("toolu_1", "count", {})))), HELLO)
    options = EngineOptions(mcp_servers=bench.servers(), thinking_budget_tokens=2_000)
    result = await engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    thought = {"type": "thinking", "thinking": "Let me see", "signature": sign("Let me see")}
    hidden = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    assert server.requests[1]["messages"][1]["content"][:2] == [thought, hidden]
    assert result.messages[0].content[:2] == (thought, hidden)
    assert [entry for entry in recorder.log if entry[0] == "reasoning"] == [
        ("reasoning", "Let me "),
        ("reasoning", "see"),
    ]


THOUGHTS = ({"type": "thinking", "thinking": "Hm", "signature": sign("Hm")}, {"type": "redacted_thinking", "data": "x"})


async def test_trailing_thinking_of_an_old_conversation_is_not_sent(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    server.reply(HELLO)
    marked = {**text_block("b"), "cache_control": {"type": "ephemeral"}}
    history = (
        Message("user", (text_block("a"),)),
        Message("assistant", (*THOUGHTS, text_block("b"), *THOUGHTS)),
        Message("assistant", THOUGHTS),
    )
    await engine.run("hi", EngineOptions(history=history), "sandbox")
    said = [(message["role"], message["content"]) for message in server.requests[0]["messages"]]
    assert said == [
        ("user", [text_block("a")]),
        ("assistant", [*THOUGHTS, marked]),
        ("user", [text_block("hi")]),
    ]


async def test_a_response_cut_off_in_thinking_leaves_nothing_to_send(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    cut = Part("tool", ("toolu_1", "show", '{"a": "b'))
    server.reply(Stream((THINKS, HIDDEN, cut), stop_reason="max_tokens"))
    result = await engine.run("hi", EngineOptions(thinking_budget_tokens=2_000), "sandbox")
    assert (result.stop_reason, result.messages) == ("max_tokens", ())
    server.reply(Stream((Part("text", ["So"]), THINKS), stop_reason="max_tokens"))
    result = await engine.run("hi", EngineOptions(thinking_budget_tokens=2_000), "sandbox")
    assert result.messages == (Message("assistant", (text_block("So"),)),)


@pytest.mark.parametrize(
    ("kept", "sent"),
    [
        ({}, [text_block("(no output)")]),
        ({"is_error": True}, [text_block("(no output)")]),
        ({"content": [], "is_error": True}, [text_block("(no output)")]),
        ({"content": " \n"}, [text_block("(no output)")]),
        ({"content": "words"}, "words"),
        ({"content": [text_block("")]}, [text_block("(no output)")]),
        ({"content": [text_block(" "), text_block("words"), text_block("")]}, [text_block("words")]),
    ],
)
async def test_an_empty_result_is_sent_as_such(
    server: ModelServer, engine: AnthropicEngine, kept: dict[str, Any], sent: Any
) -> None:
    server.reply(HELLO)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", **kept}
    history = (
        Message("user", (text_block("a"),)),
        Message("assistant", ({"type": "tool_use", "id": "toolu_1", "name": "show", "input": {}},)),
        Message("user", (result,)),
        Message("assistant", (text_block("b"),)),
    )
    await engine.run("hi", EngineOptions(history=history), "sandbox")
    assert server.requests[0]["messages"][2]["content"] == [{**result, "content": sent}]


async def test_a_turn_continues_after_an_empty_tool_result(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "show", {})),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=_tool(TextContent(text=""))), "sandbox")
    assert result.text == "Hello"
    assert server.requests[1]["messages"][-1]["content"][0]["content"] == [text_block("(no output)")]


async def test_a_temperature_is_left_out_while_the_model_thinks(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    options = EngineOptions(model="claude-haiku-4-5", temperature=0.3, thinking_budget_tokens=100)
    await engine.run("hi", options, "sandbox")
    assert "temperature" not in server.requests[0]
    assert server.requests[0]["thinking"] == {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("image", {"type": "base64", "media_type": "image/png", "data": PNG}),
        ("document", {"type": "base64", "media_type": "application/pdf", "data": PDF}),
        ("image", {"type": "url", "url": "https://example.org/a.png"}),
        ("document", {"type": "url", "url": "https://example.org/a.pdf"}),
        ("image", {"type": "file", "file_id": "file_1"}),
        ("document", {"type": "file", "file_id": "file_1"}),
    ],
)
async def test_images_and_documents_go_in(
    server: ModelServer, engine: AnthropicEngine, kind: str, source: dict[str, str]
) -> None:
    server.reply(HELLO)
    block = {"type": kind, "source": source}
    await engine.run((block, text_block("What is it?")), EngineOptions(), "sandbox")
    assert server.requests[0]["messages"][0]["content"] == [block, text_block("What is it?")]
    betas = server.headers[0].get("anthropic-beta", "")
    assert ("files-api" in betas) == (source["type"] == "file")


async def test_a_file_in_a_tool_result_of_the_history_is_sent(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(HELLO)
    file = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
    history = (
        Message("user", (text_block("a"),)),
        Message("assistant", ({"type": "tool_use", "id": "t", "name": "x", "input": {}},)),
        Message("user", ({"type": "tool_result", "tool_use_id": "t", "content": [file]},)),
        Message("assistant", (text_block("b"),)),
    )
    await engine.run("hi", EngineOptions(history=history), "sandbox")
    assert "files-api" in server.headers[0]["anthropic-beta"]


async def test_images_and_documents_of_tools_reach_the_model(server: ModelServer, engine: AnthropicEngine) -> None:
    pdf = BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob=PDF)
    note = TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="a note")
    sent = await _show(
        server,
        engine,
        TextContent(text="Here"),
        ImageContent(data=PNG, mime_type="image/png"),
        EmbeddedResource(resource=pdf),
        EmbeddedResource(resource=note),
        AudioContent(data="AAAA", mime_type="audio/wav"),
    )
    assert sent == [
        text_block("Here"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        text_block("[file:///a.txt (text/plain)]\na note"),
        text_block("[Left out: Audio (audio/wav, about 3 bytes). Models read no audio.]"),
    ]


async def test_an_image_that_is_too_large_is_left_out_with_a_note(server: ModelServer, engine: AnthropicEngine) -> None:
    (sent,) = await _show(server, engine, ImageContent(data="A" * (5 * 1024 * 1024 + 4), mime_type="image/png"))
    assert sent["type"] == "text"
    assert sent["text"].startswith("[Left out: image that has")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (_png(b"not an image"), "its content is something else"),
        (_png(media_samples.JPEG[:-2]), "begins as image/jpeg"),
        (_png(media_samples.png(9_000, 1)), "9000 x 1 pixels"),
        (ImageContent(data="?", mime_type="image/png"), "not valid base64"),
        (
            EmbeddedResource(
                resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="bm90IGE=")
            ),
            "something else",
        ),
    ],
    ids=["no image", "half a file", "too many pixels", "no base64", "no pdf"],
)
async def test_an_image_that_the_provider_would_refuse_is_left_out_with_a_note(
    server: ModelServer, engine: AnthropicEngine, given: Any, says: str
) -> None:
    (sent,) = await _show(server, engine, given)
    assert sent["type"] == "text"
    assert sent["text"].startswith("[Left out: ")
    assert says in sent["text"]


async def test_a_long_result_is_cut_in_the_middle(server: ModelServer, engine: AnthropicEngine) -> None:
    text = "".join(f"line {number}\n" for number in range(1_000))
    (sent,) = await _show(server, engine, TextContent(text=text), max_tool_output_chars=100)
    head, note, tail = sent["text"].rpartition("[…")[0], sent["text"], sent["text"].rpartition("…]")[2]
    assert text.startswith(head.strip())
    assert text.endswith(tail.lstrip("\n"))
    assert (len(head.strip()), len(tail.lstrip("\n"))) == (74, 25)
    assert f"{len(text) - 100:,} of {len(text):,} characters are left out" in note


async def test_the_bound_on_a_result_is_for_all_its_blocks_together(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    blocks = [TextContent(text="a" * 80), TextContent(text="z" * 500), TextContent(text="b" * 500)]
    sent = await _show(server, engine, *blocks, max_tool_output_chars=100)
    assert sent[0] == text_block("a" * 80)
    assert sent[1]["text"].count("z") == 20
    assert sent[2]["text"].count("b") == 0


async def test_blocks_of_server_tools_are_sent_back_unchanged(server: ModelServer, engine: AnthropicEngine) -> None:
    call = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    asks = Part("block", (call, [{"type": "input_json_delta", "partial_json": '{"query": "tea"}'}]))
    server.reply(
        Stream((Part("text", ["Look"]), asks), stop_reason="pause_turn"),
        Stream((Part("block", (found, [])), *HELLO.parts)),
    )
    result = await engine.run("hi", EngineOptions(), "sandbox")
    assert server.requests[1]["messages"][-1] == {
        "role": "assistant",
        "content": [text_block("Look"), {**call, "input": {"query": "tea"}}],
    }
    assert result.messages[1].content == (found, text_block("Hello"))
    assert (result.text, result.tool_calls) == ("Hello", ())


async def test_a_server_call_that_was_cut_off_is_not_kept(server: ModelServer, engine: AnthropicEngine) -> None:
    call = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    cut = Part("block", (call, [{"type": "input_json_delta", "partial_json": '{"que'}]))
    server.reply(Stream((Part("text", ["So"]), cut), stop_reason="max_tokens"))
    result = await engine.run("hi", EngineOptions(), "sandbox")
    assert (result.stop_reason, result.messages[0].content) == ("max_tokens", (text_block("So"),))


async def test_a_blank_text_is_not_kept(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("text", ["\n\n"]), Part("tool", ("toolu_1", "show", {})))), HELLO)
    result: EngineResult = await engine.run("hi", EngineOptions(mcp_servers=_tool(TextContent(text="x"))), "sandbox")
    assert_valid(result.messages)


async def test_a_call_whose_input_is_no_json_is_a_tool_error(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "show", '{"a": }')),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=_tool()), "sandbox")
    assert (result.text, result.error, len(server.requests)) == ("Hello", None, 2)
    call, answer = (message["content"][0] for message in server.requests[1]["messages"][-2:])
    assert call["input"] == {"invalid_input": '{"a": }'}
    assert "not a JSON object" in answer["content"][0]["text"]


async def test_an_invented_tool_name_is_replaced_by_a_valid_one(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("tool", ("functions.show:0", "show me!", {})),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=_tool()), "sandbox")
    assert result.tool_calls[0].tool_name == "show me!"
    call, answer = (message["content"][0] for message in server.requests[1]["messages"][-2:])
    assert (call["id"], call["name"], answer["tool_use_id"]) == ("functions_show_0", "show_me_", "functions_show_0")


async def test_lone_surrogates_of_a_server_do_not_fail_a_turn(server: ModelServer, engine: AnthropicEngine) -> None:
    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        schema = {"type": "object", "properties": {"n": {"default": float("nan"), "description": "\ud83d"}}}
        return ListToolsResult(tools=[Tool(name="show", description="\ud83d\x00", input_schema=schema)])

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(text="a\x00b \ud83d")])

    servers = {"show": InProcessMcpServer(Server("show", on_list_tools=list_tools, on_call_tool=call_tool))}
    server.reply(Stream((Part("tool", ("toolu_1", "show", {})),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=servers), "sandbox")
    assert (result.text, result.error) == ("Hello", None)
    assert server.requests[1]["messages"][-1]["content"][0]["content"] == [text_block("a\ufffdb \ufffd")]


async def test_an_unserializable_request_is_no_outage_of_the_provider(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    result = await engine.run("hi", EngineOptions(system_prompt="\ud83d"), "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, server.requests) == ("model_error", False, [])


@proves("engine.tool-result-forms")
async def test_a_failed_call_with_an_image_is_sent_as_text_and_the_image_after_it(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="show", description="Shows.", input_schema={"type": "object"})])

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(text="no"), _png(media_samples.png())], is_error=True)

    servers = {"show": InProcessMcpServer(Server("show", on_list_tools=list_tools, on_call_tool=call_tool))}
    server.reply(Stream((Part("tool", ("toolu_1", "show", {})),)), HELLO)
    result = await engine.run("hi", EngineOptions(mcp_servers=servers), "sandbox")
    assert (result.text, result.tool_calls[0].status, len(result.tool_calls[0].result or ())) == ("Hello", "failed", 2)
    failed, heading, image = server.requests[1]["messages"][-1]["content"]
    assert (failed["is_error"], {part["type"] for part in failed["content"]}) == (True, {"text"})
    assert (heading["type"], image["source"]["data"]) == ("text", PNG)


@proves("media.scaled-once")
async def test_a_large_image_of_a_tool_is_scaled_before_it_is_recorded(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    written = io.BytesIO()
    Image.new("RGB", (3_000, 30), "red").save(written, "PNG")
    (sent,) = await _show(server, engine, _png(written.getvalue()))
    assert Image.open(io.BytesIO(base64.b64decode(sent["source"]["data"]))).size == (2_000, 20)
