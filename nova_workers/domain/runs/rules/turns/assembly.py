"""Builds an engine's options from an agent's configuration, in the terms of the engine contract."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Final, TypeVar

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.confined import Confinement, PrivateFiles
from nova_workers.base.errors import EngineFailure, Forbidden
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import AskedEngines, Engine, EngineOptions, SubagentConfig
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.contracts.skills import SkillDirectory
from nova_workers.contracts.user_agents import CODE_ENGINE
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.capabilities.rules import CapabilityContext, CapabilityRegistry
from nova_workers.domain.prompts.rules import event_words
from nova_workers.domain.runs.rules.turns.attempt import Attempt
from nova_workers.domain.runs.rules.turns.past import as_past
from nova_workers.domain.runs.rules.turns.prompting import Prompter
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.runs.sql.sessions import load_session, save_session
from nova_workers.domain.skills.rules.service import loads_on_demand
from nova_workers.domain.skills.sql import load_skills
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.domain.threads.rules.transcript import conversation
from nova_workers.domain.threads.sql.history import HistoryTurn, load_history_turns
from nova_workers.ledger.database import Database
from nova_workers.ledger.persist import persist
from nova_workers.shell_sandbox import make_private

BoundT = TypeVar("BoundT", int, float)

_LEAST_REASONING_S = 0.001

_INSTALL_HINTS = {
    "openai": "Set NOVA_OPENAI__MODEL of the workers, and a key or NOVA_OPENAI__PROVIDERS.",
    "claude_agent": "Install the extra 'claude-agent' on the workers: pip install 'nova-workers[claude-agent]'.",
}
"""How to install an engine that is optional."""

_ENGINES_OF_SOURCES: Final[Mapping[str, str]] = {"work_order": "work_order"}
"""Engines of runs that their source determines, whatever people make of the configuration of their agent."""

_ASK_NO_MODEL: Final = frozenset({CODE_ENGINE, *_ENGINES_OF_SOURCES.values()})

_TRUSTED_FOR_S = 60.0
"""How long a directory that was seen is assumed to exist: a check takes a thread, as the disk may be remote."""
_REMEMBERED = 4096


class TurnAssembler:
    """Chooses the engine of a claimed run and builds its options."""

    def __init__(
        self,
        database: Database,
        engines: Mapping[str, Engine],
        capabilities: CapabilityRegistry,
        prompter: Prompter,
        *,
        directories: AgentDirectories,
        settings: Settings,
    ) -> None:
        self._database = database
        self._engines = engines
        self._capabilities = capabilities
        self._prompter = prompter
        self._directories = directories
        self._settings = settings
        self._ceilings = CeilingRules.of(settings)

    def engine(self, claim: Claim) -> Engine:
        """Return the engine that the run's source requires, or else the one that the agent names.

        Raises:
            EngineFailure: This process has no such engine, or the agent exceeds a ceiling of its tenant: one that was
                lowered after the agent was written, or an agent that another way brought in.
        """
        if claim.source not in _ENGINES_OF_SOURCES:
            self._check_ceilings(claim)
        name = self._engine_name(claim)
        engine = self._engines.get(name)
        if engine is None:
            hint = _INSTALL_HINTS.get(name, "Give the agent one of these.")
            raise EngineFailure(
                f"Agent {claim.agent_id!r} names engine {name!r}; this fleet has {sorted(self._engines)}. {hint}",
                kind="unknown",
                retryable=False,
            )
        return engine

    def _check_ceilings(self, claim: Claim) -> None:
        cwd = None if claim.place is None else claim.place.cwd
        try:
            self._ceilings.check(claim.tenant_id, claim.agent, claim.ceilings, grants=self._capabilities, cwd=cwd)
        except Forbidden as error:
            raise EngineFailure(
                f"Agent {claim.agent_id!r} has more than its tenant may give it. {error.message}",
                kind="unknown",
                retryable=False,
            ) from error

    def _engine_name(self, claim: Claim) -> str:
        return _ENGINES_OF_SOURCES.get(claim.source) or claim.agent.engine or self._settings.default_engine

    def model(self, claim: Claim) -> str:
        """Return the model of a run, an alias or an id: the run's own, the agent's, or the fleet's."""
        return claim.model or claim.agent.model or self._settings.default_model

    async def learn_secrets(self, run: HeldRun, redactor: Redactor) -> bool:
        """Pass the secrets that a claimed run may handle to a redactor. Return whether it may handle any, now or later.

        Raises:
            RunLost: The database was unavailable until the lease expired.
            InvalidInput: A grant that reveals secrets is no longer valid.
        """
        agent, tenant_id = run.claim.agent, run.claim.tenant_id
        if not self._capabilities.reveals(agent):
            return False
        redactor.watch(self._capabilities.secret_fields(agent))
        revealed = await persist(self._database, run.abort, lambda c: self._capabilities.revealed(c, agent, tenant_id))
        for each in revealed:
            for name, value in each.values.items():
                redactor.learn(name, value, readable=each.readable)
        return True

    async def options(self, attempt: Attempt, committed: Journal) -> EngineOptions:
        """Return the options of an attempt: history, prompt, tools, limits.

        Args:
            attempt: Its run, its rest of time and of budgets.
            committed: The committed part of its turn, as the engine is to read it.

        Raises:
            RunLost: The database was unavailable until the lease expired.
            EngineFailure: The time limit has expired, or the agent's working directory cannot be created.
        """
        run, claim, rest = attempt.run, attempt.claim, attempt.rest
        agent = claim.agent
        cwd = await self._directories.directory(claim)
        readable = self._directories.readable(claim)
        kept = self._directories.kept(claim)
        enclosure = self._ceilings.enclosure(claim.tenant_id, claim.ceilings)
        context = CapabilityContext(
            tenant_id=claim.tenant_id,
            agent_id=claim.agent_id,
            thread_id=claim.thread_id,
            run_id=claim.run_id,
            queue=claim.queue,
            source=claim.source,
            depth=claim.depth,
            task_id=claim.task_id,
            has_state=claim.has_state,
            agent=agent,
            place=claim.place,
            enclosure=enclosure,
            cwd=cwd,
            readable=readable,
            kept=kept,
            client_tools=claim.options.client_tools,
            turn_id=claim.turn_id,
            fence=claim.fence,
            attempt=claim.attempt,
        )
        servers = await self._capabilities.resolve(agent, context)
        is_code = self._engine_name(claim) == CODE_ENGINE
        program = await self._capabilities.program(agent, context) if is_code else None
        prompt = await self._prompter.prompt(run, cwd=cwd, readable=readable, servers=servers)
        return EngineOptions(
            cwd=cwd,
            directories=() if readable else agent.directories,
            readable=readable,
            kept=kept,
            enclosure=enclosure,
            native_tools=agent.native_tools,
            system_prompt=prompt.text,
            stable_prompt_chars=prompt.stable_chars,
            model=self.model(claim),
            max_turns=(
                committed.next_step + 1
                if rest.last_call is not None
                else claim.max_turns or agent.max_turns or self._settings.runs.max_turns
            ),
            tool_choice=claim.options.tool_choice,
            fallback_models=self._settings.model.fallbacks,
            reasoning_timeout_s=_reasoning_timeout_s(claim, self._settings),
            tool_timeout_s=(
                self._settings.runs.tool_timeout_s
                if claim.place is None
                else claim.place.limits.tool_call_timeout_seconds
            ),
            mcp_servers=servers,
            agents=_subagents(agent),
            max_tokens=agent.max_tokens,
            temperature=agent.temperature,
            timeout_s=attempt.time_left.seconds(),
            thinking_budget_tokens=agent.thinking_budget_tokens,
            token_budget=_least(agent.token_budget, rest.tokens),
            cost_budget_usd=_least(agent.cost_budget_usd, rest.usd),
            allowance=attempt.journal.allowance,
            spent=committed.spent,
            output_schema=agent.output_schema,
            skills=await self._skills(run),
            sessions=_RunSessions(self._database, run, self._engine_name(claim)),
            history=conversation(await past_turns(self._database, run, with_events=not is_code)),
            event_context=None if claim.event is None else event_words(claim.event),
            journal=committed.steps_for_model,
            program=program,
            asked_engines=self._asked_engines(claim) if is_code else None,
            engine_config=agent.engine_config,
            conversation=claim.thread_id,
            run_id=claim.run_id,
        )

    def _asked_engines(self, claim: Claim) -> AskedEngines:
        """Return the engines whose models the code of a run may ask."""
        permitted = {
            name: engine
            for name, engine in self._engines.items()
            if name not in _ASK_NO_MODEL and self._ceilings.permits_engine(claim.ceilings, name)
        }
        return AskedEngines(self._settings.default_engine, permitted)

    async def _skills(self, run: HeldRun) -> tuple[SkillDirectory, ...]:
        """Return the agent's skills for an engine that loads them itself. Deleted ones are left out."""
        claim, agent = run.claim, run.claim.agent
        if not agent.skills or loads_on_demand(self._engine_name(claim), agent.trust):
            return ()
        return await persist(self._database, run.abort, lambda c: load_skills(c, claim.tenant_id, agent.skills))


class AgentDirectories:
    """Creates missing agent directories. One object serves all worker slots of a process."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._ceilings = CeilingRules.of(settings)
        self._private = PrivateFiles(settings.home, settings.workspace_root)
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        """The path of a directory, and when it was seen, by tenant and name."""

    def readable(self, claim: Claim) -> tuple[str, ...]:
        """Return the directories that a run's agent may only read: of one that writes in a directory of its own."""
        if claim.place is None or claim.place.cwd is None or not native_tools(claim.agent.trust):
            return ()
        own = self._settings.agent_directory(claim.tenant_id, claim.directory or claim.agent_id)
        return (str(own), *claim.agent.directories)

    def kept(self, claim: Claim) -> str | None:
        """Return the folder in a run's workspace where children of its orchestration have directories of their own."""
        if claim.place is None or claim.place.cwd is not None:
            return None
        own = self._settings.agent_directory(claim.tenant_id, claim.directory or claim.agent_id)
        return str(own / claim.place.orchestration_id)

    async def directory(self, claim: Claim) -> str | None:
        """Return the working directory of a run's agent; None for an agent without native tools.

        Raises:
            EngineFailure: It does not exist and cannot be created.
        """
        if not native_tools(claim.agent.trust):
            return None
        own = await self._own(claim)
        if claim.place is None or claim.place.cwd is None:
            return own
        return await self._below(claim, own, claim.place.cwd)

    async def _below(self, claim: Claim, own: str, cwd: str) -> str:
        """Make the working directory that an agent of an orchestration has, and return it without links.

        Those who may write where it lies may have put a link in its place.
        """
        ceilings = claim.ceilings
        within = () if ceilings is None else self._ceilings.roots(claim.tenant_id, ceilings)
        confinement = Confinement((cwd,), within=within, beneath=(own, *claim.agent.directories), private=self._private)

        def make() -> str:
            target = confinement.resolve(cwd)
            confinement.make_directory(target)
            return str(target)

        try:
            return await asyncio.to_thread(make)
        except (OSError, ValueError) as error:
            why = str(error) if isinstance(error, ValueError) else (error.strerror or "input or output error").lower()
            raise EngineFailure(
                f"The working directory {cwd!r} cannot be used: {why}.", kind="unknown", retryable=False
            ) from error

    async def _own(self, claim: Claim) -> str:
        owner = claim.tenant_id, claim.directory or claim.agent_id
        now_s = self._clock.monotonic_s()
        known, seen_s = self._seen.get(owner, ("", -math.inf))
        if now_s - seen_s < _TRUSTED_FOR_S:
            return known
        path = self._settings.agent_directory(*owner)
        ceilings = claim.ceilings
        try:
            await asyncio.to_thread(make_private, path, other_user=ceilings is not None and ceilings.sandbox)
        except OSError as error:
            raise EngineFailure(
                f"The directory {str(path)!r} cannot be created: {error.strerror}. See NOVA_TOOLS__WORKSPACE_ROOT.",
                kind="unknown",
                retryable=True,
            ) from error
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[owner] = str(path), now_s
        return str(path)


def _reasoning_timeout_s(claim: Claim, settings: Settings) -> float:
    """Return the rest of the reasoning time; in an orchestration it counts over all attempts of an activation."""
    if claim.place is None:
        return settings.runs.reasoning_timeout_s
    return max(claim.place.limits.agent_timeout_seconds - claim.place.reasoning_ms / 1000, _LEAST_REASONING_S)


def _least(*bounds: BoundT | None) -> BoundT | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _subagents(agent: AgentSpec) -> dict[str, SubagentConfig]:
    return {
        name: SubagentConfig(given.description, given.prompt, given.tools, given.model, given.max_turns)
        for name, given in agent.subagents.items()
    }


async def past_turns(database: Database, run: HeldRun, *, with_events: bool = True) -> tuple[HistoryTurn, ...]:
    """Return the turns before a claimed run's, as their models read them.

    Args:
        database: Has the turns.
        run: Claimed by this worker.
        with_events: Whether messages have in front what caused their turns, which only models read.

    Raises:
        RunLost: The database was unavailable until the lease expired.
    """
    parent, tenant_id = run.claim.parent_turn_id, run.claim.tenant_id
    if parent is None:
        return ()
    turns = await persist(database, run.abort, lambda c: load_history_turns(c, tenant_id, parent))
    return tuple(as_past(turn) for turn in turns) if with_events else tuple(turns)


class _RunSessions:
    """Implements `SessionStore` for a run: reads sessions of its tenant, writes those of its thread.

    A write needs no fence: a new session is referenced only by the end of the run, which is fenced.
    """

    def __init__(self, database: Database, run: HeldRun, engine: str) -> None:
        self._database = database
        self._run = run
        self._engine = engine

    async def load(self, session_id: str) -> StoredSession | None:
        """Return a session. See `nova_workers.contracts.sessions.SessionStore`."""
        claim = self._run.claim
        return await persist(
            self._database,
            self._run.abort,
            lambda connection: load_session(connection, claim.tenant_id, self._engine, session_id),
        )

    async def save(self, session: NewSession) -> None:
        """Save a session. See `nova_workers.contracts.sessions.SessionStore`."""
        claim = self._run.claim
        await persist(
            self._database,
            self._run.abort,
            lambda connection: save_session(connection, claim.tenant_id, claim.thread_id, self._engine, session),
        )
