from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextContent
from pydantic import BaseModel, ConfigDict

from nova_workers.base.errors import ConfigurationError, InvalidInput, ToolFailure
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.engine import InProcessMcpServer, McpServer
from nova_workers.domain.capabilities.rules import (
    CapabilityContext,
    CapabilityRegistry,
    NoConfig,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.capabilities.rules.seam import DeclaredServer
from tests.requirements import proves
from tests.support.harness.tool_server import tool_server

CONTEXT = CapabilityContext("ten_1", "nova", "thr_1", "run_1")


class _Words(ToolInput):
    words: str


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    loud: bool = False


class EchoCapability:
    """Repeats, or fails in different ways."""

    name = "parrot"
    description = "Repeats."
    config: type[BaseModel] = _Config
    injected: Callable[[CapabilityContext], bool] | None = None

    def __init__(self, name: str = "parrot", tool: str = "parrot_say") -> None:
        self.name = name
        self.seen: list[Any] = []
        self.tools: tuple[ToolDeclaration[Any], ...] | None = (
            ToolDeclaration(tool, "Say it.", _Words, self._say, idempotent=True, read_only=True),
            ToolDeclaration(f"{tool}_not", "Do not.", _Words, self._fail),
        )

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> McpServer:
        self.seen.append((config, context))
        return await tool_server()(DeclaredServer(self.name, self.tools or (), context))

    async def _say(self, context: CapabilityContext, given: _Words) -> str:
        return f"{context.agent_id}: {given.words}"

    async def _fail(self, context: CapabilityContext, given: _Words) -> str:
        if given.words == "bug":
            raise ZeroDivisionError("inside")
        raise ToolFailure("I will not")


def _spec(**grants: CapabilityGrant) -> AgentSpec:
    return AgentSpec(name="x", capabilities=grants)


def test_capabilities_are_discovered_without_starting_anything() -> None:
    parrot = EchoCapability()
    (info,) = CapabilityRegistry([parrot]).discover()
    assert (info.name, [tool.name for tool in info.tools]) == ("parrot", ["parrot_say", "parrot_say_not"])
    assert (info.tools[0].idempotent, info.tools[0].read_only, info.tools[1].idempotent) == (True, True, False)
    assert info.config_schema["properties"]["loud"]["type"] == "boolean"
    assert parrot.seen == []


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        (_spec(owl=CapabilityGrant()), "capabilities.owl", "no capability 'owl'. Known: parrot"),
        (_spec(parrot=CapabilityGrant(tools=("parrot_sing",))), "capabilities.parrot.tools", "no tool 'parrot_sing'"),
        (_spec(parrot=CapabilityGrant(config={"loud": "very"})), "capabilities.parrot.config.loud", "got 'very'"),
        (_spec(parrot=CapabilityGrant(config={"quiet": 1})), "capabilities.parrot.config.quiet", "fields are: loud"),
    ],
)
async def test_an_invalid_grant_is_refused_with_its_field(spec: AgentSpec, field: str, says: str) -> None:
    registry = CapabilityRegistry([EchoCapability()])
    with pytest.raises(InvalidInput) as at_writing:
        registry.validate(spec)
    with pytest.raises(InvalidInput) as at_running:
        await registry.resolve(spec, CONTEXT)
    for refused in (at_writing, at_running):
        assert refused.value.fields["field"] == field
        assert says in refused.value.message


@pytest.mark.parametrize("tool", ["parrot_say", "Bash", "given_say"])
def test_a_subagent_may_have_the_tools_of_its_agent(tool: str) -> None:
    given = EchoCapability(name="given", tool="given_say")
    given.injected = lambda _: True
    registry = CapabilityRegistry([EchoCapability(), given, EchoCapability(name="owl", tool="owl_say")])
    helper = {"description": "x", "prompt": "x", "tools": [tool]}
    registry.validate(_helped(helper))
    with pytest.raises(InvalidInput, match=r"the agent has no tool 'owl_say'\. Known: Bash, ") as refused:
        registry.validate(_helped({**helper, "tools": [tool, "owl_say"]}))
    assert refused.value.fields["field"] == "subagents.eye.tools.1"


def test_a_subagents_tools_are_not_checked_if_external_servers_have_some() -> None:
    outside = EchoCapability(name="outside", tool="outside_say")
    outside.tools = None
    spec = _helped({"description": "x", "prompt": "x", "tools": ["whatever"]}).model_copy(
        update={"capabilities": {"outside": CapabilityGrant()}}
    )
    CapabilityRegistry([outside]).validate(spec)


def _helped(helper: dict[str, Any]) -> AgentSpec:
    return AgentSpec.model_validate({"name": "x", "capabilities": {"parrot": {}}, "subagents": {"eye": helper}})


async def test_a_grant_becomes_a_server_with_its_allow_list() -> None:
    parrot = EchoCapability()
    registry = CapabilityRegistry([parrot])
    grant = CapabilityGrant(tools=("parrot_say",), config={"loud": True})
    servers = await registry.resolve(_spec(parrot=grant), CONTEXT)
    server = servers["parrot"]
    assert isinstance(server, InProcessMcpServer)
    assert server.tools == ("parrot_say",)
    assert parrot.seen == [(_Config(loud=True), CONTEXT)]
    assert await registry.resolve(_spec(), CONTEXT) == {}


async def test_servers_with_unknown_tools_come_after_our_own() -> None:
    outside, given = EchoCapability(name="outside", tool="outside_say"), EchoCapability(name="given", tool="given_say")
    outside.tools, given.injected = None, lambda _: True
    registry = CapabilityRegistry([outside, EchoCapability(), given])
    servers = await registry.resolve(_spec(outside=CapabilityGrant(), parrot=CapabilityGrant()), CONTEXT)
    assert list(servers) == ["given", "parrot", "outside"]


@pytest.mark.parametrize("twin", [EchoCapability(), EchoCapability(name="other")])
def test_two_capabilities_of_one_name_stop_the_process(twin: EchoCapability) -> None:
    with pytest.raises(ConfigurationError, match="Two"):
        CapabilityRegistry([EchoCapability(), twin])


@pytest.mark.parametrize(
    ("tool", "given", "failed", "says"),
    [
        ("parrot_say", {"words": "hi"}, False, "nova: hi"),
        ("parrot_say", {}, True, "words: Field required"),
        ("parrot_say", {"words": "hi", "loud": True}, True, "loud: Extra inputs"),
        ("parrot_say_not", {"words": "hi"}, True, "I will not"),
        ("parrot_say_not", {"words": "bug"}, True, "failed for a reason of its own"),
        ("parrot_sing", {}, True, "parrot has no tool 'parrot_sing'"),
    ],
)
async def test_the_model_gets_the_error_of_a_tool(tool: str, given: dict[str, Any], failed: bool, says: str) -> None:
    server = await EchoCapability().resolve(NoConfig(), CONTEXT)
    assert isinstance(server, InProcessMcpServer)
    async with Client(server.built()) as client:
        result = await client.call_tool(tool, given)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert (result.is_error, says in content.text) == (failed, True)
    assert "inside" not in content.text


def _taking(tool: ToolDeclaration[Any], field: str) -> ToolDeclaration[Any]:
    return replace(tool, takes_secrets=(field,)) if tool.name == "parrot_say" else tool


@proves("secrets.declared")
def test_tools_that_take_secrets_declare_it() -> None:
    parrot = EchoCapability()
    parrot.tools = tuple(_taking(tool, "words") for tool in parrot.tools or ())
    registry = CapabilityRegistry([parrot])
    granted = AgentSpec(name="A", capabilities={"parrot": CapabilityGrant()})
    assert registry.secret_fields(granted) == {"parrot_say": ("words",)}
    assert registry.reveals(granted)
    without = AgentSpec(name="A", capabilities={"parrot": CapabilityGrant(tools=("parrot_say_not",))})
    for spec in (without, AgentSpec(name="A")):
        assert registry.secret_fields(spec) == {}
        assert not registry.reveals(spec)


def test_a_tool_cannot_take_secrets_in_a_field_that_it_lacks() -> None:
    parrot = EchoCapability()
    parrot.tools = tuple(_taking(tool, "value") for tool in parrot.tools or ())
    with pytest.raises(ConfigurationError, match="'parrot_say' takes secrets in 'value'"):
        CapabilityRegistry([parrot])
