"""Loads the content of an agent's system prompt, and builds the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import McpServer
from nova_workers.domain.prompts.rules import (
    ASK_USER,
    STATE,
    WAYS,
    background_words,
    build_system_prompt,
    caller_words,
    formatting_words,
    stable_prefix_chars,
    state_words,
    storage_words,
)
from nova_workers.domain.prompts.rules.task import task_section
from nova_workers.domain.skills.rules.service import loads_on_demand, skills_words
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.domain.threads.sql.prompt_facts import PromptFacts, load_prompt_facts
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.persist import persist

_MEMORY = "memory"
_MEMORY_LIST = "memory_list"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt. `stable_chars`: the length of its beginning that other turns of the agent share."""

    text: str
    stable_chars: int


@dataclass(frozen=True, slots=True)
class PromptNeeds:
    """What a prompt contains that is not in the configuration: most memories, and the names of skills."""

    memories: int
    skills: tuple[str, ...]


class Prompter:
    """Builds the prompts of runs. One object serves all slots of a worker process."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    async def prompt(
        self, run: HeldRun, *, cwd: str | None, servers: Mapping[str, McpServer], readable: Sequence[str] = ()
    ) -> Prompt:
        """Return the prompt of a claimed run.

        The ledger is queried only if the agent may read memories or has skills, or the thread has a task.

        Args:
            run: Its claim, and what ends the wait for an unavailable database.
            cwd: The agent's working directory, if it has one.
            servers: The tool servers that the run has, by name.
            readable: See `EngineOptions.readable`.

        Raises:
            RunLost: The database was unavailable until the lease expired.
        """
        claim = run.claim
        facts, task = await self._load(run)
        return prompt_of(
            claim.agent,
            facts,
            self._settings,
            agent_id=claim.agent_id,
            channel=claim.channel,
            cwd=cwd,
            readable=readable,
            task=task,
            caller=claim.options.instructions or "",
            offers=lambda name, tool: _offers(servers, name, tool),
        )

    async def _load(self, run: HeldRun) -> tuple[PromptFacts, str]:
        """Return memories and skills, by one statement, and the section of the task; no query without need."""
        claim, limits = run.claim, self._settings.prompts
        needs = needs_of(claim.agent, self._settings)
        memories, skills = needs.memories if claim.has_memories else 0, needs.skills

        async def load(connection: Connection) -> tuple[PromptFacts, str]:
            facts, task = PromptFacts(), ""
            if memories or skills:
                facts = await load_prompt_facts(
                    connection, claim.tenant_id, memories=memories, memory_chars=limits.memory_chars, skills=skills
                )
            if claim.task_id is not None:
                task = await task_section(connection, claim.tenant_id, claim.task_id)
            return facts, task

        if not memories and not skills and claim.task_id is None:
            return PromptFacts(), ""
        return await persist(self._database, run.abort, load)


def needs_of(agent: AgentSpec, settings: Settings) -> PromptNeeds:
    """Return the needs of a prompt of the agent: the tenant's memories and skills in it."""
    on_demand = loads_on_demand(agent.engine or settings.default_engine, agent.trust)
    return PromptNeeds(settings.prompts.memories if _recalls(agent) else 0, agent.skills if on_demand else ())


def prompt_of(
    agent: AgentSpec,
    facts: PromptFacts,
    settings: Settings,
    *,
    agent_id: str,
    channel: str | None,
    cwd: str | None,
    task: str,
    caller: str = "",
    offers: Callable[[str, str], bool],
    readable: Sequence[str] = (),
) -> Prompt:
    """Return the prompt of a configuration.

    Args:
        agent: The configuration.
        facts: What the tenant has of its `needs_of`.
        settings: The operator's words for channels.
        channel: Where the answer is read, if that is known.
        cwd: The agent's working directory, if it has one.
        task: The section of the thread's task; empty without one.
        caller: What the caller of the run adds to the instructions.
        offers: Whether the run has a tool, by the names of its server and its own.
        readable: See `EngineOptions.readable`.
    """
    text = build_system_prompt(
        agent,
        agent_id=agent_id,
        skills=skills_words(agent.skills, facts.skills),
        storage=storage_words(cwd, readable),
        formatting=formatting_words(channel, settings.prompts.formatting, fixed_form=agent.output_schema is not None),
        background=background_words(ways=[way for way in WAYS if offers(*way)], can_ask=offers(*ASK_USER)),
        state=state_words(can_read=offers(*STATE)),
        memories=_memories(facts),
        task=task,
        caller=caller_words(caller),
    )
    return Prompt(text, stable_prefix_chars(text))


def _recalls(agent: AgentSpec) -> bool:
    """Return whether the agent may read memories: a grant without the reading tool gives none."""
    grant = agent.capabilities.get(_MEMORY)
    return grant is not None and (grant.tools is None or _MEMORY_LIST in grant.tools)


def _offers(servers: Mapping[str, McpServer], name: str, tool: str) -> bool:
    server = servers.get(name)
    return server is not None and (server.tools is None or tool in server.tools)


def _memories(facts: PromptFacts) -> tuple[str, ...]:
    if not facts.more_memories:
        return facts.memories
    return (f"(There are older memories: {_MEMORY_LIST} shows them.)", *facts.memories)
