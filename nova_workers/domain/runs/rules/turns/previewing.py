"""The system prompt that a configuration makes, saved or not, without a run."""

from __future__ import annotations

import orjson

from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.agents import AgentPromptTool, AgentPromptView
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.usage import CHARS_PER_TOKEN
from nova_workers.domain.agents.sql.records import get_directory
from nova_workers.domain.capabilities.rules import CapabilityInfo
from nova_workers.domain.capabilities.rules.deferred import DeferredRegistry
from nova_workers.domain.runs.rules.turns.prompting import PromptNeeds, needs_of, prompt_of
from nova_workers.domain.threads.sql.prompt_facts import PromptFacts, load_prompt_facts
from nova_workers.ledger.database import Database

_SKILLS = "skills"


class PromptPreviews:
    """Shows prompts as `Prompter` builds them for a run in the foreground, on a thread without a task."""

    def __init__(self, database: Database, settings: Settings, capabilities: DeferredRegistry) -> None:
        self._database = database
        self._settings = settings
        self._capabilities = capabilities

    async def preview(
        self, tenant_id: str, agent_id: str, spec: AgentSpec, *, channel: str | None, may_read_workspace: bool
    ) -> AgentPromptView:
        """Return the prompt and the tools of a configuration.

        Args:
            tenant_id: Whose memories and skills it contains.
            agent_id: The agent's id, which need not exist yet.
            spec: The configuration.
            channel: Where the answer is read, if that matters.
            may_read_workspace: Otherwise memories and descriptions of skills are left out.
        """
        needs = needs_of(spec, self._settings)
        needed = bool(needs.memories or needs.skills)
        facts = await self._facts(tenant_id, needs) if needed and may_read_workspace else PromptFacts()
        directory = await self._directory(tenant_id, agent_id) if native_tools(spec.trust) else None
        prompt = prompt_of(
            spec,
            facts,
            self._settings,
            agent_id=agent_id,
            channel=channel,
            cwd=directory,
            task="",
            offers=lambda name, tool: _grants(spec, name, tool),
        )
        tools = self._tools(spec, needs)
        return AgentPromptView(
            text=prompt.text,
            stable_chars=prompt.stable_chars,
            tokens=_tokens(prompt.text),
            tools=tools,
            tools_tokens=sum(tool.tokens for tool in tools),
            complete=may_read_workspace or not needed,
        )

    async def _directory(self, tenant_id: str, agent_id: str) -> str:
        async with self._database.connection() as connection:
            name = await get_directory(connection, tenant_id, agent_id)
        return str(self._settings.agent_directory(tenant_id, name))

    async def _facts(self, tenant_id: str, needs: PromptNeeds) -> PromptFacts:
        async with self._database.connection() as connection:
            return await load_prompt_facts(
                connection,
                tenant_id,
                memories=needs.memories,
                memory_chars=self._settings.prompts.memory_chars,
                skills=needs.skills,
            )

    def _tools(self, spec: AgentSpec, needs: PromptNeeds) -> list[AgentPromptTool]:
        """Return the tools of capabilities; those of MCP servers are known once they answer."""
        return [
            AgentPromptTool(
                capability=info.name,
                name=tool.name,
                tokens=_tokens(tool.name + tool.description + orjson.dumps(tool.input_schema).decode()),
            )
            for info in self._capabilities.discover()
            for tool in info.tools
            if _has(spec, needs, info, tool.name)
        ]


def _has(spec: AgentSpec, needs: PromptNeeds, info: CapabilityInfo, tool: str) -> bool:
    return bool(needs.skills) if info.name == _SKILLS else not info.injected and _grants(spec, info.name, tool)


def _grants(spec: AgentSpec, name: str, tool: str) -> bool:
    grant = spec.capabilities.get(name)
    return grant is not None and (grant.tools is None or tool in grant.tools)


def _tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)
