"""What an agent of an orchestration does by its tools: spawn, restart, ask, answer, prompt, report.

Each action is one transaction that locks the tree while the agent's run is held under its fence, so a worker that lost
the run changes nothing. Actions carry the id of their tool call: one that is repeated after a crash finds what the
first one did.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from nova_workers.capabilities.mcp_servers import McpServerForm
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.native import native_tools
from nova_workers.contracts.orchestration import AgentDescriptor, SpawnRequest
from nova_workers.contracts.ports import CancelNotifier, Dispatcher
from nova_workers.errors import (
    AgentSpawnError,
    ExpertNotFoundError,
    InvalidInput,
    MaxDepthExceededError,
    MessageRoutingError,
)
from nova_workers.ledger.database import Database
from nova_workers.ledger.orchestrations import agents as ledger
from nova_workers.ledger.orchestrations import messages
from nova_workers.ledger.orchestrations.agents import NewAgent
from nova_workers.ledger.orchestrations.locking import LockedTree, lock_tree_of_run
from nova_workers.ledger.workspace.agents import get_agent
from nova_workers.orchestration.activation import activate
from nova_workers.orchestration.config.plugins import resolve_plugins
from nova_workers.orchestration.config.values import ExpertProfile, OrchestrationConfig
from nova_workers.orchestration.models.choosing import ChosenModel, ModelChooser
from nova_workers.orchestration.profile import agent_spec, check_cwd, check_tools, is_peer
from nova_workers.orchestration.routing import TreeChange, deliver
from nova_workers.orchestration.service import find_agent, pick_agent
from nova_workers.orchestration.transitions import after_change, apply_change
from nova_workers.vocabulary import ENDED_AGENTS, PermissionMode

__all__ = ["AgentActions", "Caller", "Spawned"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that acts, by a tool call of its running turn.

    Attributes:
        agent_id: The agent within the orchestration.
        key: Names the tool call; None if the engine does not, and a repeated call then acts again.
    """

    tenant_id: str
    orchestration_id: str
    agent_id: str
    run_id: str
    fence: int
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Spawned:
    """A child that works on a prompt: fresh, restarted, or prompted while it was idle."""

    agent_id: str
    run_id: str
    how: Literal["spawned", "restarted", "prompted"]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A spawn request with everything resolved that needs no lock."""

    request: SpawnRequest
    spec: AgentSpec
    chosen: ChosenModel
    plugins: tuple[str, ...]
    name: str


class AgentActions:
    """The actions of agents. One object serves all worker slots of a process."""

    def __init__(
        self, database: Database, dispatcher: Dispatcher | None, notifier: CancelNotifier | None, models: ModelChooser
    ) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._notifier = notifier
        self._models = models

    async def spawn(self, caller: Caller, requests: Sequence[SpawnRequest]) -> list[Spawned]:
        """Give each request to a child: an idle one that matches, else an ended one, else a fresh one.

        All of them or none: a request that is refused leaves nothing behind.

        Raises:
            MaxDepthExceededError: The children would be nested too deeply.
            AgentSpawnError: There would be too many active agents, or a request is refused.
            ModelNotAvailableError: See `ModelChooser.choose`.
            ProviderNotAvailableError: See `ModelChooser.choose`.
            ExpertNotFoundError: There is no such expert.
            RunLost: Another claim holds the run.
        """
        prepared = await self._prepare(caller, requests)
        async with self._changed(caller) as change:
            parent = await _own(change, caller)
            if parent.depth + 1 > change.tree.limits.max_agent_depth:
                raise MaxDepthExceededError(
                    f"Agents of this orchestration may be nested {change.tree.limits.max_agent_depth} levels deep; you "
                    f"are at level {parent.depth}. Do the work yourself."
                )
            return [
                await self._place(change, parent, each, f"{caller.key} {index}" if caller.key else None)
                for index, each in enumerate(prepared)
            ]

    async def _prepare(self, caller: Caller, requests: Sequence[SpawnRequest]) -> list[_Prepared]:
        """Resolve models, plugins and configurations, before the tree is locked."""
        async with self._database.connection() as connection:
            tree = await lock_tree_of_run(
                connection,
                caller.orchestration_id,
                agent_id=caller.agent_id,
                run_id=caller.run_id,
                fence=caller.fence,
            )
            owner = (await get_agent(connection, tree.tenant_id, tree.agent_id)).spec
            agents = await ledger.agents_of(connection, tree.tenant_id, tree.id)
        mode = pick_agent(agents, caller.agent_id, what="agent").permission_mode
        config = OrchestrationConfig.model_validate(tree.config)
        return [await self._prepare_one(tree, owner, config, request, mode) for request in requests]

    async def _prepare_one(
        self,
        tree: LockedTree,
        owner: AgentSpec,
        config: OrchestrationConfig,
        request: SpawnRequest,
        parent_mode: PermissionMode,
    ) -> _Prepared:
        expert = _expert(config, request.expert_id)
        if expert is not None:
            request = replace(
                request, permission_mode=expert.permission_mode, cwd=expert.cwd, tools=_expert_tools(owner, expert)
            )
        if parent_mode == "PLAN":
            # Otherwise an agent that may only read would write through a child.
            request = replace(request, permission_mode="PLAN")
        check_tools(owner, request.tools)
        check_cwd(owner, request.cwd)
        chosen = await self._models.choose(
            tree.tenant_id,
            config,
            role=request.role,
            task=request.prompt,
            model=request.model or (None if expert is None else expert.model),
            complexity=request.complexity,
        )
        servers = (
            {}
            if is_peer(request)
            else resolve_plugins(
                config.plugins,
                role=request.role,
                prompt=request.prompt,
                mcp_servers=_named_servers(config, expert, request),
                exclude_plugins=(*request.exclude_plugins, *(() if expert is None else expert.exclude_plugins)),
            )
        )
        name = request.name or (None if expert is None else expert.name or expert.expert_id)
        name = name or request.role.capitalize()
        spec = agent_spec(owner, request, chosen, config, name=name, servers=servers, expert=expert)
        return _Prepared(request, spec, chosen, tuple(sorted(servers)), name)

    async def _place(
        self,
        change: TreeChange,
        parent: AgentDescriptor,
        prepared: _Prepared,
        key: str | None,
    ) -> Spawned:
        before = None if key is None else await messages.find_sent(change.connection, change.tree, key)
        if before is not None:
            return Spawned(before.target_id, before.payload["run_id"], before.payload["how"])
        agents = await ledger.agents_of(change.connection, change.tree.tenant_id, change.tree.id)
        child = await self._reusable(change, agents, parent, prepared) if prepared.request.reuse else None
        if child is not None and child.state not in ENDED_AGENTS:
            prompt_key = None if key is None else f"{key} prompt"
            await _send_prompt(change, parent, child, prepared.request.prompt, prompt_key)
            spawned = Spawned(child.id, child.run_id, "prompted")
        else:
            _check_room(change.tree, agents)
            spawned = await self._activate(change, parent, prepared, child)
        await messages.send(
            change.connection,
            change.tree,
            "SPAWN_REQUEST",
            source_id=parent.id,
            target_id=spawned.agent_id,
            payload={"text": prepared.request.prompt, "run_id": spawned.run_id, "how": spawned.how},
            send_key=key,
            delivered=True,
        )
        return spawned

    async def _activate(
        self,
        change: TreeChange,
        parent: AgentDescriptor,
        prepared: _Prepared,
        child: AgentDescriptor | None,
    ) -> Spawned:
        request = prepared.request
        if child is not None:
            run_id = await activate(change, child, request.prompt, parent_run_id=parent.run_id)
            return Spawned(child.id, run_id, "restarted")
        agent = NewAgent(
            role=request.role,
            name=prepared.name,
            prompt=request.prompt,
            spec=prepared.spec.model_dump(mode="json"),
            parent_id=parent.id,
            parent_run_id=parent.run_id,
            depth=parent.depth + 1,
            tools=prepared.spec.native_tools,
            model=prepared.spec.model,
            cwd=request.cwd,
            plugins=prepared.plugins,
            permission_mode=request.permission_mode,
            expert_id=request.expert_id,
            category=prepared.chosen.category,
        )
        agent_id, bell = await ledger.insert_agent(change.connection, change.tree, agent)
        change.bells.append(bell)
        return Spawned(agent_id, bell.run_id, "spawned")

    async def _reusable(
        self,
        change: TreeChange,
        agents: Sequence[AgentDescriptor],
        parent: AgentDescriptor,
        prepared: _Prepared,
    ) -> AgentDescriptor | None:
        """Return a child of the parent that matches a request: an idle one before an ended one."""
        matching = [agent for agent in agents if agent.parent_id == parent.id and _matches(agent, prepared)]
        busy = {message.target_id for message in await messages.pending(change.connection, [a.id for a in matching])}
        idle = await messages.idle_agents(change.connection, [agent.id for agent in matching])
        for agent in matching:
            if agent.id in idle and agent.id not in busy:
                return agent
        return next((agent for agent in matching if agent.state in ("COMPLETED", "FAILED")), None)

    async def restart(self, caller: Caller, child: str, prompt: str) -> Spawned:
        """Restart an ended child with a new prompt. It keeps its identity and its conversation.

        Raises:
            NotFound: There is no such child.
            AgentSpawnError: It has not ended, or there are too many active agents.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as change:
            before = (
                None if caller.key is None else await messages.find_sent(change.connection, change.tree, caller.key)
            )
            if before is not None:
                return Spawned(before.target_id, before.payload["run_id"], "restarted")
            target = await find_agent(change.connection, change.tree, child, below=caller.agent_id)
            _check_room(change.tree, await ledger.agents_of(change.connection, change.tree.tenant_id, change.tree.id))
            run_id = await activate(change, target, prompt, parent_run_id=caller.run_id)
            await messages.send(
                change.connection,
                change.tree,
                "SPAWN_REQUEST",
                source_id=caller.agent_id,
                target_id=target.id,
                payload={"text": prompt, "run_id": run_id, "how": "restarted"},
                send_key=caller.key,
                delivered=True,
            )
            return Spawned(target.id, run_id, "restarted")

    async def ask_parent(self, caller: Caller, question: str) -> tuple[str, str]:
        """Send a question to the parent, and return its correlation id and the parent's id.

        Raises:
            MessageRoutingError: The agent is the master.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as change:
            own = await _own(change, caller)
            if own.parent_id is None:
                raise MessageRoutingError("You are the master and have no parent. Ask the user with ask_user.")
            message_id = await messages.send(
                change.connection,
                change.tree,
                "QUESTION",
                source_id=own.id,
                target_id=own.parent_id,
                payload={"text": question},
                send_key=caller.key,
            )
            await deliver(change)
            return message_id, own.parent_id

    async def respond(self, caller: Caller, child: str, correlation_id: str | None, response: str) -> str:
        """Answer a question of a child, and return the child's id.

        Args:
            caller: The parent.
            child: The child's id, or a unique part of it.
            correlation_id: The question; None is the child's newest unanswered one.
            response: The answer.

        Raises:
            NotFound: There is no such child.
            MessageRoutingError: The child asked no such question, or it was answered.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as change:
            target = await find_agent(change.connection, change.tree, child, below=caller.agent_id)
            if (
                caller.key is not None
                and await messages.find_sent(change.connection, change.tree, caller.key) is not None
            ):
                return target.id
            question = await messages.find_question(
                change.connection,
                change.tree,
                child_id=target.id,
                parent_id=caller.agent_id,
                correlation_id=correlation_id,
            )
            if question is None:
                which = "no open question" if correlation_id is None else f"no open question {correlation_id!r}"
                raise MessageRoutingError(
                    f"Child {target.id!r} has {which}. check_child_status shows what it waits for; to send it "
                    "something else, use send_child_prompt."
                )
            # The parent knows the question, even if it answers before a wait received it.
            await messages.mark_delivered(change.connection, [question.id], caller.run_id)
            await messages.send(
                change.connection,
                change.tree,
                "ANSWER",
                source_id=caller.agent_id,
                target_id=target.id,
                correlation_id=question.correlation_id,
                payload={"text": response},
                send_key=caller.key,
            )
            await deliver(change)
            return target.id

    async def prompt_child(self, caller: Caller, child: str, prompt: str) -> AgentDescriptor:
        """Send a prompt to an active child. It receives it with `wait_for_message`, or continues with it at its end.

        Raises:
            NotFound: There is no such child.
            MessageRoutingError: It has ended.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as change:
            target = await find_agent(change.connection, change.tree, child, below=caller.agent_id)
            parent = await _own(change, caller)
            if target.state in ENDED_AGENTS:
                raise MessageRoutingError(
                    f"Child {target.id!r} is {target.state} and receives no messages. Restart it with restart_child."
                )
            await _send_prompt(change, parent, target, prompt, caller.key)
            return target

    async def report_progress(self, caller: Caller, status: str, percent: float | None) -> None:
        """Record progress: the parent's status tools, the tree view and the event stream show it.

        Raises:
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as change:
            own = await _own(change, caller)
            await ledger.set_progress(change.connection, own.id, caller.run_id, status, percent)
            await messages.send(
                change.connection,
                change.tree,
                "PROGRESS_UPDATE",
                source_id=own.id,
                target_id=own.parent_id or own.id,
                payload={"text": status, "percent": percent},
                send_key=caller.key,
                delivered=True,
            )

    async def complete(self, caller: Caller, summary: str, artifacts: Mapping[str, Any]) -> None:
        """Record the result of the activation. The turn ends with the step of this call.

        Raises:
            InvalidInput: The summary is blank.
            RunLost: Another claim holds the run.
        """
        if not summary.strip():
            raise InvalidInput("summary: it is blank. Say what was done and what was found.", field="summary")
        async with self._changed(caller) as change:
            await ledger.set_summary(change.connection, caller.agent_id, caller.run_id, summary.strip(), artifacts)

    async def expect_message(self, caller: Caller) -> None:
        """Check that a message can still arrive: the agent has a parent, an active child, or a message already.

        Raises:
            MessageRoutingError: None can, except from a person. Waiting would never end.
        """
        async with self._database.connection() as connection:
            agents = await ledger.agents_of(connection, caller.tenant_id, caller.orchestration_id)
            own = pick_agent(agents, caller.agent_id, what="agent")
            if own.parent_id is not None or any(
                agent.parent_id == own.id and agent.state not in ENDED_AGENTS for agent in agents
            ):
                return
            if not await messages.pending(connection, [own.id]):
                raise MessageRoutingError(
                    "You have no active children and no unread messages, so none would arrive. Spawn a child, or "
                    "complete the task."
                )

    @asynccontextmanager
    async def _changed(self, caller: Caller) -> AsyncGenerator[TreeChange]:
        """Change the tree within the block, as its agent; then ring and cancel what follows from the change."""
        async with self._database.transaction() as connection:
            tree = await lock_tree_of_run(
                connection,
                caller.orchestration_id,
                agent_id=caller.agent_id,
                run_id=caller.run_id,
                fence=caller.fence,
            )
            change = TreeChange(connection, tree)
            yield change
            after = await after_change(change)
        if self._dispatcher is not None and self._notifier is not None:
            await apply_change(self._dispatcher, self._notifier, after)


async def _own(change: TreeChange, caller: Caller) -> AgentDescriptor:
    return await find_agent(change.connection, change.tree, caller.agent_id)


async def _send_prompt(
    change: TreeChange,
    parent: AgentDescriptor,
    child: AgentDescriptor,
    prompt: str,
    key: str | None,
) -> None:
    await messages.send(
        change.connection,
        change.tree,
        "USER_PROMPT",
        source_id=parent.id,
        target_id=child.id,
        payload={"text": prompt},
        send_key=key,
    )
    await deliver(change)


def _check_room(tree: LockedTree, agents: Sequence[AgentDescriptor]) -> None:
    active = [agent for agent in agents if agent.state not in ENDED_AGENTS]
    if len(active) >= tree.limits.max_concurrent_agents:
        raise AgentSpawnError(
            f"This orchestration has {len(active)} active agents, and may have {tree.limits.max_concurrent_agents}. "
            "Wait for results with wait_for_message, or do the work yourself."
        )


def _matches(agent: AgentDescriptor, prepared: _Prepared) -> bool:
    request, spec = prepared.request, prepared.spec
    return (
        agent.role == request.role
        and agent.tools == spec.native_tools
        and agent.model == spec.model
        and agent.cwd == request.cwd
        and agent.plugins == prepared.plugins
        and agent.permission_mode == request.permission_mode
        and agent.expert_id == request.expert_id
        and (request.name is None or agent.name == request.name)
    )


def _expert(config: OrchestrationConfig, expert_id: str | None) -> ExpertProfile | None:
    if expert_id is None:
        return None
    expert = config.experts.get(expert_id)
    if expert is None:
        known = ", ".join(sorted(config.experts)) or "none are configured"
        raise ExpertNotFoundError(f"There is no expert {expert_id!r}. Known: {known}.", expert_id=expert_id)
    return expert


def _expert_tools(owner: AgentSpec, expert: ExpertProfile) -> tuple[str, ...] | None:
    """Return the native tools of an expert that the owner's trust permits; None for those of its role."""
    if expert.tools is None:
        return None
    return tuple(tool for tool in native_tools(owner.trust, owner.native_tools) if tool in expert.tools)


def _named_servers(
    config: OrchestrationConfig, expert: ExpertProfile | None, request: SpawnRequest
) -> dict[str, McpServerForm] | None:
    """Return the servers that a request or an expert names; None if neither names any."""
    named = {} if expert is None else dict(expert.mcp_servers)
    for name in request.mcp_servers or ():
        plugin = config.plugins.get(name)
        if plugin is None:
            known = ", ".join(sorted(config.plugins)) or "none are configured"
            raise AgentSpawnError(f"mcp_servers: there is no plugin {name!r}. Known: {known}.")
        named[name] = plugin
    return named if named or request.mcp_servers is not None else None
