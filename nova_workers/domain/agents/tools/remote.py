"""The `a2a` capability: asks agents of other systems, by the A2A protocol."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nova_workers.base.clock import Clock
from nova_workers.base.config import ToolSettings
from nova_workers.base.errors import InvalidInput, NovaError, OutboundFailed, ToolFailure, Unavailable
from nova_workers.base.field_docs import DescribedFields
from nova_workers.base.ids import new_ulid
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.authors.rights import PARTS, authored
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.mcp.servers import HttpAddress, ServerName
from nova_workers.domain.agents.rules.remote_calls import (
    RemoteAgent,
    RemoteCalls,
    RemoteEndpoint,
    RemoteReply,
    RemoteTask,
)
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    Revealed,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.capabilities.rules.transactions import committed_at_once
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.threads.sql.places import find_place, note_place
from nova_workers.ledger.database import Connection, Database

_MAX_WAIT_S: Final = 3_600.0
_WAIT_S: Final = 600.0
_MAX_SHOWN_CHARS: Final = 100_000
_MAX_LINE_CHARS: Final = 2_000
_COMPLETED: Final = "TASK_STATE_COMPLETED"

_RemoteId = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _RemoteForm(HttpAddress):
    """An agent elsewhere: the address of its card, such as ``https://example.com/.well-known/agent-card.json``."""


@authored(
    agents=PARTS,
)
class _Config(DescribedFields, TrueNumbers):
    """The agents, by names that the author chooses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agents: Annotated[dict[ServerName, _RemoteForm], Field(min_length=1, max_length=50)]
    """The agents by the names under which they are asked."""

    def references(self) -> set[str]:
        """Return the names of the secrets that they need."""
        return {name for agent in self.agents.values() for name in agent.references()}

    def includes(self, other: _Config) -> bool:
        """Return whether each agent of another one is among them, under the same name and with the same secrets."""
        return all(self.agents.get(name) == agent for name, agent in other.agents.items())


class _List(ToolInput):
    pass


class _Ask(ToolInput):
    agent: Annotated[str, Field(min_length=1, max_length=40, description="As list_remote_agents gives it.")]
    message: Annotated[
        str | None,
        Field(min_length=1, max_length=200_000, description="The task or question, with all that the agent must know."),
    ] = None
    task_id: Annotated[
        _RemoteId | None,
        Field(description="A task of an earlier call: with a message it answers what the agent asks, else it waits."),
    ] = None
    context_id: Annotated[_RemoteId | None, Field(description="Continues the conversation of an earlier call.")] = None
    timeout_s: Annotated[float, Field(gt=0, le=_MAX_WAIT_S, description="Seconds to wait at most.")] = _WAIT_S


class _RemoteTools:
    def __init__(self, database: Database, secrets: Secrets, calls: RemoteCalls, clock: Clock) -> None:
        self._database = database
        self._secrets = secrets
        self._calls = calls
        self._clock = clock

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="list_remote_agents",
                description="See which agents of other systems you may ask, and what each is for.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="ask_remote_agent",
                description=(
                    "Give an agent of another system a task or a question and wait for its answer. It knows nothing of "
                    "this conversation. The result names the task and the context: give them to continue."
                ),
                input=_Ask,
                run=self._ask,
                # A repeated call finds the task that it began, or sends the same message with the same id.
                idempotent=True,
            ),
        )

    async def _list(self, context: CapabilityContext, _: _List) -> str:
        return "\n".join(await asyncio.gather(*(self._line(context, name) for name in _config(context).agents)))

    async def _line(self, context: CapabilityContext, name: str) -> str:
        try:
            about = await self._calls.description(await self._agent(context, name))
        except Unavailable:
            raise
        except NovaError as error:
            return f"{name}: cannot be asked now. {error.message}"
        return f"{name}: {about[:_MAX_LINE_CHARS] or 'no description'}"

    async def _ask(self, context: CapabilityContext, given: _Ask) -> str:
        if given.message is None and given.task_id is None:
            raise InvalidInput("message: give one, or the task_id of an earlier call.", field="message")
        deadline_s = self._clock.monotonic_s() + given.timeout_s
        endpoint = await self._calls.reach(await self._agent(context, given.agent), deadline_s=deadline_s)
        task_id = given.task_id
        if given.message is not None:
            begun = await self._begin(context, given, endpoint, deadline_s)
            if isinstance(begun, RemoteReply):
                return _shown(begun.said) + _footer(None, begun.context_id)
            task_id = begun
        assert task_id is not None  # noqa: S101 - a message or a task is given
        try:
            return _result(await self._calls.settled(endpoint, task_id, deadline_s=deadline_s))
        except OutboundFailed as error:
            raise ToolFailure(
                f"{error.message} Call again with the task_id to wait on.{_footer(task_id, None)}"
            ) from error

    async def _begin(
        self, context: CapabilityContext, given: _Ask, endpoint: RemoteEndpoint, deadline_s: float
    ) -> str | RemoteReply:
        """Return the task that this call began, now or in an attempt before; or the message that answers at once."""
        call = f"{context.run_id}\0{context.call_id or new_ulid()}"
        name = hashlib.sha256(f"a2a call\0{call}".encode()).hexdigest()
        async with self._database.connection() as connection:
            known = await find_place(connection, context.tenant_id, name)
        if known is not None:
            return known
        message: JsonObject = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": given.message}]}
        named = {"taskId": given.task_id, "contextId": given.context_id}
        message |= {field: value for field, value in named.items() if value is not None}
        answer = await self._calls.send(endpoint, message, deadline_s=deadline_s)
        if isinstance(answer, RemoteTask):
            # Not with the call: it may wait for an hour, and its repetition is to find the task.
            with committed_at_once():
                async with self._database.connection() as connection:
                    await note_place(connection, context.tenant_id, name, answer.id)
            return answer.id
        return answer

    async def _agent(self, context: CapabilityContext, name: str) -> RemoteAgent:
        form = _config(context).agents.get(name)
        if form is None:
            known = ", ".join(_config(context).agents)
            raise InvalidInput(f"agent: there is no {name!r}. You may ask: {known}.", field="agent")
        return RemoteAgent(*form.filled(await self._secrets.require(context.tenant_id, form.references())))


class _RemoteAgents(ToolCapability):
    """Its configuration may have secrets, which an agent elsewhere could return."""

    def __init__(self, tools: _RemoteTools, secrets: Secrets, settings: ToolSettings) -> None:
        super().__init__(
            "a2a",
            "Asks agents of other systems by the A2A protocol; their answers come back to the agent that asked.",
            tools.declare(),
            config=_Config,
        )
        self._secrets = secrets
        self._settings = settings

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Refuse agents over plain HTTP that the operator does not permit."""
        assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
        for name, agent in config.agents.items():
            agent.check(self._settings, f"{field}.agents.{name}")

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that are sent."""
        assert isinstance(config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
        names = config.references()
        values = await self._secrets.readable(connection, tenant_id, names) if names else {}
        return Revealed(values, readable=False)


def _config(context: CapabilityContext) -> _Config:
    assert isinstance(context.config, _Config)  # noqa: S101 - narrows the type; the registry parses it as this class
    return context.config


def _result(task: RemoteTask) -> str:
    """Return the state of a task in words, with its answer or its question.

    Raises:
        ToolFailure: It has ended without an answer.
    """
    footer = _footer(task.id, task.context_id)
    if task.asks:
        return f"The agent asks; answer with a message and the task_id:\n{_shown(task.said)}{footer}"
    if not task.has_ended:
        return f"The agent still works on it. Call again with the task_id to wait on.{footer}"
    if task.state == _COMPLETED:
        return _shown(task.made or task.said or "It is done.") + footer
    word = task.state.removeprefix("TASK_STATE_").lower()
    raise ToolFailure(f"The task of the agent is {word}. {_shown(task.said)}".strip() + footer)


def _footer(task_id: object, context_id: object) -> str:
    named = [f"{name}: {value}" for name, value in (("task_id", task_id), ("context_id", context_id)) if value]
    return f"\n[{', '.join(named)}]" if named else ""


def _shown(text: str) -> str:
    if len(text) <= _MAX_SHOWN_CHARS:
        return text
    return f"{text[:_MAX_SHOWN_CHARS]}\n[… {len(text) - _MAX_SHOWN_CHARS} more characters]"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    settings = parts.settings.tools
    secrets = Secrets(parts.database, Vault.of(parts.settings.secrets.source))
    rules = OutboundRules(ports=settings.fetch_ports, allow_hosts=settings.mcp_allow_hosts)
    calls = RemoteCalls(Outbound(rules), parts.clock)
    return _RemoteAgents(_RemoteTools(parts.database, secrets, calls, parts.clock), secrets, settings)
