"""Checks what a caller gives a run beside its agent's configuration, against that configuration."""

from __future__ import annotations

from typing import Protocol

from nova_workers.base.errors import InvalidInput
from nova_workers.base.json_schemas import schema_problem
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.native import TAKEN_NAMES
from nova_workers.contracts.run_options import LACKING_OPTIONS, NamedTool, RunOptions
from nova_workers.contracts.runs import Submission
from nova_workers.domain.runs.sql.submit import addressed_agent
from nova_workers.ledger.database import Connection


class KnownTools(Protocol):
    """The registry of capabilities, which knows the names of their tools."""

    async def load(self) -> None:
        """Import the capabilities, if that is not done yet."""
        ...

    def declared_names(self, spec: AgentSpec) -> set[str]:
        """Return the names of the tools of an agent's capabilities, as far as they are known."""
        ...


class OptionRules:
    """What each agent's runs may be given. Read when a run is accepted; the agent may change before it is claimed."""

    def __init__(self, tools: KnownTools, *, default_engine: str) -> None:
        self._tools = tools
        self._default_engine = default_engine

    async def check(self, connection: Connection, submission: Submission, options: RunOptions) -> None:
        """Check the options of a submission. Nothing is checked if its agent is not there, which is refused anyway.

        Raises:
            InvalidInput: An option is invalid, or the agent or its engine cannot have it; names the field.
        """
        self._check_schemas(options)
        addressed = await addressed_agent(connection, submission)
        if addressed is None:
            return
        if addressed.orchestrated:
            field = min(options.model_fields_set)
            raise _wrong(field, "the thread is an agent's of an orchestration, which has what that gives it")
        self._check_engine(addressed.spec, options)
        if options.client_tools:
            await self._tools.load()
        self._check_names(addressed.spec, options)

    def _check_schemas(self, options: RunOptions) -> None:
        if options.output_schema is not None:
            _check_schema(options.output_schema, "output_schema")
        for index, tool in enumerate(options.client_tools):
            field = f"client_tools.{index}.input_schema"
            if tool.input_schema.get("type") != "object":
                raise _wrong(field, "the input of a tool is an object; give the schema the type 'object'")
            _check_schema(tool.input_schema, field)

    def _check_engine(self, spec: AgentSpec, options: RunOptions) -> None:
        engine = spec.engine or self._default_engine
        for field in sorted(LACKING_OPTIONS.get(engine, frozenset()) & options.model_fields_set):
            raise _wrong(field, f"the agent's engine {engine!r} has no such option; leave it out, or use another agent")
        if spec.thinking_budget_tokens is None:
            return
        if options.temperature is not None:
            raise _wrong("temperature", "the agent thinks, and a model that thinks takes none")
        if options.tool_choice == "required" or isinstance(options.tool_choice, NamedTool):
            raise _wrong("tool_choice", "the agent thinks, and a model that thinks cannot be made to call a tool")

    def _check_names(self, spec: AgentSpec, options: RunOptions) -> None:
        known = self._tools.declared_names(spec)
        for index, tool in enumerate(options.client_tools):
            if tool.name in known or tool.name in TAKEN_NAMES:
                whose = "the agent has a tool" if tool.name in known else "agents have a tool"
                raise _wrong(f"client_tools.{index}.name", f"{whose} {tool.name!r}; rename yours")


def _check_schema(schema: JsonObject, field: str) -> None:
    problem = schema_problem(schema, field)
    if problem is not None:
        raise _wrong(*problem)


def _wrong(field: str, why: str) -> InvalidInput:
    return InvalidInput(f"{field}: {why}.", field=field)
