"""What an agent of an orchestration does by its tools: spawn, restart, ask, answer, prompt, report.

Each action is one transaction that locks the tree while the agent's run is held under its fence, so a worker that lost
the run changes nothing. Actions carry the id of their tool call: one that is repeated after a crash finds what the
first one did.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nova_workers.base.errors import InvalidInput, MaxDepthExceededError, MessageRoutingError
from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import AgentDescriptor, CapabilityTools, SpawnRequest
from nova_workers.domain.agents.sql.records import get_agent, get_directory
from nova_workers.domain.orchestrations.rules.activation import activate
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.finding import find_agent, pick_agent
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser
from nova_workers.domain.orchestrations.rules.routing import deliver, request_type
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea, writers_beside
from nova_workers.domain.orchestrations.rules.spawning.granting import Giver, servers_of
from nova_workers.domain.orchestrations.rules.spawning.placing import (
    Spawned,
    check_restart,
    check_room,
    place_spawn,
    send_prompt,
)
from nova_workers.domain.orchestrations.rules.spawning.preparing import PreparedSpawn, prepare_spawn
from nova_workers.domain.orchestrations.sql import activations, messages
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.changes import changed_now
from nova_workers.domain.orchestrations.sql.locking import LockedTree, lock_tree_of_external, lock_tree_of_run
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored
from nova_workers.ledger.work import UnitOfWork, Work


@dataclass(frozen=True, slots=True)
class Caller:
    """The agent that acts, by a tool call of its running turn.

    Attributes:
        agent_id: The agent within the orchestration.
        key: Names the tool call; None if the engine does not, and a repeated call then acts again.
        is_external: It is an external master, which has no run: `run_id` only names its activation.
    """

    tenant_id: str
    orchestration_id: str
    agent_id: str
    run_id: str
    fence: int
    key: str | None = None
    is_external: bool = False


class AgentActions:
    """The actions of agents. One object serves all worker slots of a process."""

    def __init__(
        self,
        work: Work,
        models: ModelChooser,
        known: Callable[[], CapabilityTools],
        *,
        directory_of: Callable[[str, str], Path],
    ) -> None:
        """Store the parts.

        Args:
            work: Begins the units of work of tools.
            models: Chooses models of children.
            known: Returns all capabilities.
            directory_of: Returns the own directory of an agent, by its tenant and the directory's name.
        """
        self._directory_of = directory_of
        self._work = work
        self._models = models
        self._known = known

    async def spawn(self, caller: Caller, requests: Sequence[SpawnRequest], *, waits: bool = True) -> list[Spawned]:
        """Give each request to a fresh child, or to the child that it names.

        All of them or none: a request that is refused leaves nothing behind. `waits`: whether the caller waits for the
        results before it does anything else.

        Raises:
            MaxDepthExceededError: The children would be nested too deeply.
            AgentSpawnError: There would be too many active agents, two that may write in the same place, or a request
                is refused.
            ModelNotAvailableError: See `ModelChooser.choose`.
            ProviderNotAvailableError: See `ModelChooser.choose`.
            ExpertNotFoundError: There is no such expert.
            RunLost: Another claim holds the run.
        """
        prepared = await self._prepare(caller, requests)
        async with self._changed(caller) as (tx, tree):
            parent = await _own(tx, tree, caller)
            if parent.depth + 1 > tree.limits.max_agent_depth:
                raise MaxDepthExceededError(
                    f"Agents of this orchestration may be nested {tree.limits.max_agent_depth} levels deep; you "
                    f"are at level {parent.depth}. Do the work yourself."
                )
            return [
                await place_spawn(
                    tx,
                    tree,
                    parent,
                    each,
                    f"{caller.key} {index}" if caller.key else None,
                    alone=waits and len(prepared) == 1,
                )
                for index, each in enumerate(prepared)
            ]

    async def _prepare(self, caller: Caller, requests: Sequence[SpawnRequest]) -> list[PreparedSpawn]:
        """Resolve models, plugins and configurations, before the tree is locked."""
        async with self._work.database.connection() as connection:
            tree = await _lock(connection, caller, lock=False)
            owner = (await get_agent(connection, tree.tenant_id, tree.agent_id)).spec
            agents = await ledger.agents_of(connection, tree.tenant_id, tree.id)
            parent = pick_agent(agents, caller.agent_id, what="agent")
            is_master = parent.role == "MASTER"
            spec = owner if is_master else await ledger.spec_of(connection, parent)
            area = await self._area(connection, tree, owner)
            giver = Giver(
                spec,
                self._known(),
                area if is_master else area.at(parent.cwd),
                parent.cwd,
                parent.permission_mode,
                None if is_master else servers_of(spec),
            )
        config = read_stored(OrchestrationConfig.model_validate, tree.config)
        return [await prepare_spawn(self._models, tree, owner, config, request, giver=giver) for request in requests]

    async def restart(self, caller: Caller, child: str, prompt: str) -> Spawned:
        """Restart an ended child with a new prompt. It keeps its identity and its conversation.

        Raises:
            NotFound: There is no such child.
            AgentSpawnError: It has not ended, there are too many active agents, or another one may write where it may.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as (tx, tree):
            before = None if caller.key is None else await messages.find_sent(tx.connection, tree, caller.key)
            if before is not None:
                return Spawned(before.target_id, before.payload["run_id"], "restarted")
            target = await find_agent(tx.connection, tree, child, below=caller.agent_id)
            agents = await ledger.agents_of(tx.connection, tree.tenant_id, tree.id)
            check_room(tree, agents)
            owner = (await get_agent(tx.connection, tree.tenant_id, tree.agent_id)).spec
            area = await self._area(tx.connection, tree, owner)
            parent = pick_agent(agents, caller.agent_id, what="agent")
            known = self._known()
            check_restart(target, area, known, writers_beside(agents, area, known, parent, target))
            run_id = await activate(tx, tree, target, prompt, parent_run_id=caller.run_id)
            await messages.send(
                tx.connection,
                tree,
                request_type(target.role, target.expert_id),
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
        async with self._changed(caller) as (tx, tree):
            own = await _own(tx, tree, caller)
            if own.parent_id is None:
                raise MessageRoutingError("You are the master and have no parent. Ask the user with ask_user.")
            message_id = await messages.send(
                tx.connection,
                tree,
                "QUESTION",
                source_id=own.id,
                target_id=own.parent_id,
                payload={"text": question},
                send_key=caller.key,
            )
            await deliver(tx, tree)
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
        async with self._changed(caller) as (tx, tree):
            target = await find_agent(tx.connection, tree, child, below=caller.agent_id)
            if caller.key is not None and await messages.find_sent(tx.connection, tree, caller.key) is not None:
                return target.id
            question = await messages.find_question(
                tx.connection,
                tree,
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
            await messages.mark_delivered(tx.connection, [question.id], caller.run_id)
            await messages.send(
                tx.connection,
                tree,
                "ANSWER",
                source_id=caller.agent_id,
                target_id=target.id,
                correlation_id=question.correlation_id,
                payload={"text": response},
                send_key=caller.key,
            )
            await deliver(tx, tree)
            return target.id

    async def prompt_child(self, caller: Caller, child: str, prompt: str) -> AgentDescriptor:
        """Send a prompt to an active child. It receives it with `wait_for_message`, or continues with it at its end.

        Raises:
            NotFound: There is no such child.
            MessageRoutingError: It has ended.
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as (tx, tree):
            target = await find_agent(tx.connection, tree, child, below=caller.agent_id)
            parent = await _own(tx, tree, caller)
            if target.state in ENDED_AGENTS:
                raise MessageRoutingError(
                    f"Child {target.id!r} is {target.state} and receives no messages. Restart it with restart_child."
                )
            await send_prompt(tx, tree, parent, target, prompt, key=caller.key)
            return target

    async def report_progress(self, caller: Caller, status: str, percent: float | None) -> None:
        """Record progress: the parent's status tools, the tree view and the event stream show it.

        Raises:
            RunLost: Another claim holds the run.
        """
        async with self._changed(caller) as (tx, tree):
            own = await _own(tx, tree, caller)
            await activations.set_progress(tx.connection, own.id, caller.run_id, status, percent)
            await messages.send(
                tx.connection,
                tree,
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
        async with self._changed(caller) as (tx, _):
            await activations.set_summary(tx.connection, caller.agent_id, caller.run_id, summary.strip(), artifacts)

    async def expect_message(self, caller: Caller) -> None:
        """Check that a message can still arrive: the agent has a parent, an active child, or a message already.

        Raises:
            MessageRoutingError: None can, except from a person. Waiting would never end.
        """
        async with self._work.database.connection() as connection:
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

    async def _area(self, connection: Connection, tree: LockedTree, owner: AgentSpec) -> WorkArea:
        """Return where the agent may write that the tree runs under."""
        name = await get_directory(connection, tree.tenant_id, tree.agent_id)
        workspace = self._directory_of(tree.tenant_id, name)
        return WorkArea(str(workspace), str(workspace / tree.id), owner.directories)

    @asynccontextmanager
    async def _changed(self, caller: Caller) -> AsyncGenerator[tuple[UnitOfWork, LockedTree]]:
        """Change the tree within the block, as its agent."""
        async with self._work.begin() as tx:
            tree = await _lock(tx.connection, caller)
            yield tx, tree
            tx.announce(await changed_now(tx.connection, tree.id))


async def _lock(connection: Connection, caller: Caller, *, lock: bool = True) -> LockedTree:
    if caller.is_external:
        return await lock_tree_of_external(connection, caller.tenant_id, caller.orchestration_id, run_id=caller.run_id)
    return await lock_tree_of_run(
        connection,
        caller.orchestration_id,
        agent_id=caller.agent_id,
        run_id=caller.run_id,
        fence=caller.fence,
        lock=lock,
    )


async def _own(tx: UnitOfWork, tree: LockedTree, caller: Caller) -> AgentDescriptor:
    return await find_agent(tx.connection, tree, caller.agent_id)
