"""Whatever a tool returns, the program sends the model a request that the provider takes."""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    TextContent,
    Tool,
)

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.engine import InProcessMcpServer
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from tests.integration.engines.claude_agent.claude_turns import PIXEL, options, text_response, tool_response
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer

CALL: ContentBlock = {"type": "tool_use", "id": "toolu_9", "name": "show", "input": {}}
IMAGE: ContentBlock = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}


def _server(*results: CallToolResult) -> dict[str, InProcessMcpServer]:
    left = list(results)

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="show", description="Shows.", input_schema={"type": "object"})])

    async def call_tool(_: Any, __: Any) -> CallToolResult:
        return left.pop(0)

    return {"show": InProcessMcpServer(Server("show", on_list_tools=list_tools, on_call_tool=call_tool))}


def _results_sent(server: ModelServer, request: int) -> list[ContentBlock]:
    last = [message for message in server.requests[request]["messages"] if message["role"] == "user"][-1]
    return [block for block in last["content"] if block.get("type") == "tool_result"]


@proves("engine.tool-result-forms")
async def test_the_model_sees_each_part_of_a_failed_result(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    image = ImageContent(data=PIXEL, mime_type="image/png")
    file = EmbeddedResource(
        resource=BlobResourceContents(uri="file:///a.zip", mime_type="application/zip", blob="UEs=")
    )
    servers = _server(
        CallToolResult(content=[TextContent(text="no"), TextContent(text="why"), image], is_error=True),
        CallToolResult(content=[TextContent(text="")], is_error=True),
        CallToolResult(content=[image, file, TextContent(text=" ")]),
    )
    calls = [tool_response(("mcp__nova__show", {}), step=step) for step in range(3)]
    server.reply(*calls, text_response("Ok."))
    result = await engine.run("hi", options(mcp_servers=servers), "sandbox")
    assert (result.text, [call.status for call in result.tool_calls]) == ("Ok.", ["failed", "failed", "completed"])
    (mixed,) = _results_sent(server, 1)
    assert not mixed.get("is_error")
    assert "no" in str(mixed["content"])
    assert "why" in str(mixed["content"])
    assert PIXEL in str(mixed["content"])
    (silent,) = _results_sent(server, 2)
    assert "without a message" in str(silent["content"])
    (whole,) = _results_sent(server, 3)
    assert PIXEL in str(whole["content"])
    assert "file:///a.zip" in str(whole["content"])


@proves("engine.tool-result-forms")
async def test_a_failed_result_with_an_image_in_the_ledger_is_resumed(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    failed: ContentBlock = {
        "type": "tool_result",
        "tool_use_id": "toolu_9",
        "is_error": True,
        "content": [text_block("no"), IMAGE],
    }
    history = (
        Message("user", (text_block("a"),)),
        Message("assistant", (CALL,)),
        Message("user", (failed,)),
        Message("assistant", (text_block("b"),)),
    )
    server.reply(text_response("Ok."))
    result = await engine.run("hi", options(history=history), "sandbox")
    assert result.text == "Ok."
    sent = [block for message in server.requests[0]["messages"] for block in message["content"]]
    (call,) = [block for block in sent if isinstance(block, dict) and block.get("type") == "tool_result"]
    assert "image" not in str(call["content"])
    assert PIXEL in str(sent)
