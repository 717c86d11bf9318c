"""A tool that the provider refuses, or would refuse, costs that tool and not the turn; with every engine."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server import Server
from mcp.types import CallToolResult, TextContent, Tool

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import EngineCallbacks, InProcessMcpServer
from nova_workers.contracts.refusals import LeftOut
from tests.contract.engines.stage import Answer, Call, Stage, WireStage
from tests.requirements import proves

ODD: dict[str, Any] = {
    "union": {"oneOf": [{"properties": {"a": {"type": "STRING"}}, "required": ["a"]}, {"required": ["b"]}]},
    "renamed": {"type": None, "properties": {"user id": {"type": "array"}, "b": True}},
    "references": {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"child": {"$ref": "#/$defs/tree"}}}}},
    "text": {"type": "string"},
}


class _Odd:
    """A server with odd schemas, which keeps what it was called with."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._tools = [Tool(name=name, description=name, input_schema=schema) for name, schema in schemas.items()]

    def servers(self) -> dict[str, InProcessMcpServer]:
        async def call_tool(_: Any, params: Any) -> CallToolResult:
            self.calls.append((params.name, params.arguments or {}))
            return CallToolResult(content=[TextContent(text="done")])

        return {"odd": InProcessMcpServer(Server("odd", on_call_tool=call_tool), listing=self._tools)}


class _Told:
    """What the turn reports of tools that are left out."""

    def __init__(self) -> None:
        self.notes: list[tuple[ContentBlock, str]] = []

    def callbacks(self) -> EngineCallbacks:
        async def on_content_refused(left_out: tuple[LeftOut, ...]) -> None:
            self.notes += [(each.block, each.note) for each in left_out]

        return EngineCallbacks(on_content_refused=on_content_refused)


@proves("engine.tool-schemas")
async def test_odd_schemas_are_sent_in_a_form_that_the_provider_takes(stage: Stage) -> None:
    odd, told = _Odd(ODD), _Told()
    options = stage.options(
        [Answer(calls=(Call("renamed", {"user_id": ["x"]}),)), Answer(text="So.")], mcp_servers=odd.servers()
    )
    result = await stage.engine.run("hi", options, "sandbox", callbacks=told.callbacks())
    assert (result.error, result.text) == (None, "So.")
    assert odd.calls == [("renamed", {"user id": ["x"]})]
    ((block, note),) = told.notes
    assert block == {"type": "tool", "names": ["text"]}
    assert "text (its input is not an object" in note
    assert "text" not in (result.tools_available or ())
    if isinstance(stage, WireStage):
        assert "These tools are not available: text (its input is not an object" in str(stage.server.requests[0])


@proves("engine.tool-schemas")
async def test_a_tool_that_the_provider_refuses_is_left_out_and_the_turn_goes_on(stage: Stage) -> None:
    if not isinstance(stage, WireStage):
        pytest.skip("it has no provider")
    odd, told = _Odd({name: {"type": "object"} for name in ("zeta", "alpha", "mid")}), _Told()
    options = stage.options([Answer(text="So.")], mcp_servers=odd.servers())
    stage.server.refuses_tool = "alpha"
    result = await stage.engine.run("hi", options, "sandbox", callbacks=told.callbacks())
    assert (result.error, result.text) == (None, "So.")
    ((block, note),) = told.notes
    assert block == {"type": "tool", "names": ["alpha"]}
    assert "alpha (the model provider refused it:" in note
    assert "alpha" not in (result.tools_available or ())
    assert {"zeta", "mid"} <= set(result.tools_available or ())
    assert "These tools are not available: alpha" in str(stage.server.requests[-1])
