"""From an agent's configuration to what an engine gets: resolved, and free of our words."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from nova_workers.capabilities import CapabilityContext, CapabilityRegistry
from nova_workers.config import Settings
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import Engine, EngineOptions, SubagentConfig
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.runs import Claim
from nova_workers.errors import EngineFailure
from nova_workers.ledger.database import Database
from nova_workers.ledger.history import load_history
from nova_workers.ledger.resume import Journal
from nova_workers.prompts.builder import build_system_prompt, stable_prefix_chars
from nova_workers.runs.persist import persist
from nova_workers.runs.sessions import RunSessions
from nova_workers.threads.transcript import repair

__all__ = ["TurnAssembler"]

_MENDS = {
    "claude_agent": "Install the extra 'claude-agent' on the workers: pip install 'nova-workers[claude-agent]'.",
}
"""What brings an engine that a fleet may lack."""


class TurnAssembler:
    """Chooses the engine of a claimed run and builds its options."""

    def __init__(
        self,
        database: Database,
        engines: Mapping[str, Engine],
        capabilities: CapabilityRegistry,
        settings: Settings,
    ) -> None:
        self._database = database
        self._engines = engines
        self._capabilities = capabilities
        self._settings = settings

    def engine(self, claim: Claim) -> Engine:
        """Return the engine that the agent names.

        Raises:
            EngineFailure: This process has no such engine.
        """
        name = self._engine_name(claim)
        engine = self._engines.get(name)
        if engine is None:
            mend = _MENDS.get(name, "Give the agent one of these.")
            raise EngineFailure(
                f"Agent {claim.agent_id!r} names engine {name!r}; this fleet has {sorted(self._engines)}. {mend}",
                kind="unknown",
                retryable=False,
            )
        return engine

    def _engine_name(self, claim: Claim) -> str:
        return claim.agent.engine or self._settings.default_engine

    def model(self, claim: Claim) -> str:
        """Return the model of a run, an alias or an id: the run's own, the agent's, or the fleet's."""
        return claim.model or claim.agent.model or self._settings.default_model

    async def options(self, claim: Claim, journal: Journal, abort: AbortSignal) -> EngineOptions:
        """Return the options of a claimed run: history, prompt, tools, limits.

        Raises:
            RunLost: The database was away until the lease ran out.
            EngineFailure: The agent's working directory cannot be made.
        """
        agent = claim.agent
        context = CapabilityContext(
            tenant_id=claim.tenant_id,
            agent_id=claim.agent_id,
            thread_id=claim.thread_id,
            run_id=claim.run_id,
            queue=claim.queue,
            source=claim.source,
            depth=claim.depth,
            task_id=claim.task_id,
            agent=agent,
        )
        history = ()
        parent = claim.parent_turn_id
        if parent is not None:
            history = repair(await persist(self._database, abort, lambda c: load_history(c, claim.tenant_id, parent)))
        cwd = await self._workspace(claim)
        prompt = build_system_prompt(agent, storage="" if cwd is None else f"Your working directory is {cwd}.")
        return EngineOptions(
            cwd=cwd,
            directories=agent.directories,
            system_prompt=prompt,
            stable_prompt_chars=stable_prefix_chars(prompt),
            model=self.model(claim),
            max_turns=claim.max_turns or agent.max_turns or self._settings.runs.max_turns,
            fallback_models=self._settings.model.fallbacks,
            reasoning_timeout_s=self._settings.runs.reasoning_timeout_s,
            tool_timeout_s=self._settings.runs.tool_timeout_s,
            mcp_servers=await self._capabilities.resolve(agent, context),
            agents=_subagents(agent),
            max_tokens=agent.max_tokens,
            thinking_budget_tokens=agent.thinking_budget_tokens,
            token_budget=agent.token_budget,
            cost_budget_usd=agent.cost_budget_usd,
            spent=journal.spent,
            output_schema=agent.output_schema,
            sessions=RunSessions(self._database, claim, self._engine_name(claim), abort),
            history=history,
            journal=journal.steps,
            engine_config=agent.engine_config,
            run_id=claim.run_id,
        )

    async def _workspace(self, claim: Claim) -> str | None:
        """Return the agent's working directory, made if need be; None for an agent without native tools."""
        if not native_tools(claim.agent.trust):
            return None
        path = self._settings.workspace_root / claim.tenant_id / claim.agent_id
        try:
            await asyncio.to_thread(_make_private, path)
        except OSError as error:
            raise EngineFailure(
                f"The directory {str(path)!r} cannot be made: {error.strerror}. See NOVA_TOOLS__WORKSPACE_ROOT.",
                kind="unknown",
                retryable=True,
            ) from error
        return str(path)


def _subagents(agent: AgentSpec) -> dict[str, SubagentConfig]:
    return {
        name: SubagentConfig(given.description, given.prompt, given.tools, given.model, given.max_turns)
        for name, given in agent.subagents.items()
    }


def _make_private(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
