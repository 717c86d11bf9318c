"""Gives a prepared spawn request to a fresh child, or to the child that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from nova_workers.base.errors import AgentSpawnError
from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.orchestration import AgentDescriptor, CapabilityTools
from nova_workers.domain.orchestrations.rules.activation import activate
from nova_workers.domain.orchestrations.rules.routing import deliver, request_type
from nova_workers.domain.orchestrations.rules.spawning.areas import WorkArea, Writers, agent_may_write, writers_beside
from nova_workers.domain.orchestrations.rules.spawning.preparing import PreparedSpawn
from nova_workers.domain.orchestrations.rules.spawning.reusing import find_reusable
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql import messages, spawning
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.orchestrations.sql.spawning import NewAgent
from nova_workers.ledger.stored import to_store
from nova_workers.ledger.work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Spawned:
    """A child that works on a prompt: fresh, restarted, or prompted while it was idle.

    Attributes:
        cwd: Its working directory, if it has one of its own.
    """

    agent_id: str
    run_id: str
    how: Literal["spawned", "restarted", "prompted"]
    cwd: str | None = None


async def place_spawn(
    tx: UnitOfWork,
    tree: LockedTree,
    parent: AgentDescriptor,
    prepared: PreparedSpawn,
    key: str | None,
    *,
    alone: bool,
) -> Spawned:
    """Give a request to a child, and record it under the key of the tool call; a repeated key finds the record.

    `alone`: whether the parent waits for this child, and spawns no other with it.

    Raises:
        AgentSpawnError: There would be too many active agents, another one may write where this one would, or the child
            to reuse does not fit.
    """
    before = None if key is None else await messages.find_sent(tx.connection, tree, key)
    if before is not None:
        return Spawned(before.target_id, before.payload["run_id"], before.payload["how"], before.payload.get("cwd"))
    agents = await ledger.agents_of(tx.connection, tree.tenant_id, tree.id)
    reuse = prepared.request.reuse
    child = None if reuse is None else await find_reusable(tx.connection, agents, parent, prepared, reuse)
    if child is not None and child.state not in ENDED_AGENTS:
        prompt_key = None if key is None else f"{key} prompt"
        await send_prompt(tx, tree, parent, child, prepared.request.prompt, key=prompt_key)
        spawned = Spawned(child.id, child.run_id, "prompted")
    else:
        check_room(tree, agents)
        writers = writers_beside(agents, prepared.giver.area, prepared.giver.known, parent, child)
        if child is not None:
            spawned = await _reactivate(tx, tree, parent, prepared, child=child, writers=writers)
        else:
            spawned = await _insert(tx, tree, parent, _with_distinct_name(prepared, agents), writers, alone=alone)
    await messages.send(
        tx.connection,
        tree,
        request_type(prepared.request.role, prepared.request.expert_id),
        source_id=parent.id,
        target_id=spawned.agent_id,
        payload={"text": prepared.request.prompt, "run_id": spawned.run_id, "how": spawned.how, "cwd": spawned.cwd},
        send_key=key,
        delivered=True,
    )
    return spawned


async def _reactivate(
    tx: UnitOfWork,
    tree: LockedTree,
    parent: AgentDescriptor,
    prepared: PreparedSpawn,
    *,
    child: AgentDescriptor,
    writers: Writers,
) -> Spawned:
    check_restart(child, prepared.giver.area, prepared.giver.known, writers)
    run_id = await activate(tx, tree, child, prepared.request.prompt, parent_run_id=parent.run_id)
    return Spawned(child.id, run_id, "restarted")


async def _insert(
    tx: UnitOfWork, tree: LockedTree, parent: AgentDescriptor, prepared: PreparedSpawn, writers: Writers, *, alone: bool
) -> Spawned:
    request, held, area = prepared.request, prepared.held, prepared.giver.area
    inherited = prepared.giver.cwd
    if held.writes:
        cwd = writers.place(area.at(inherited), held.cwd, alone=alone, name=prepared.name)
    else:
        cwd = held.cwd or inherited
    agent = NewAgent(
        role=request.role,
        name=prepared.name,
        prompt=request.prompt,
        spec=to_store(AgentSpec, prepared.spec),
        parent_id=parent.id,
        parent_run_id=parent.run_id,
        depth=parent.depth + 1,
        tools=held.native,
        model=prepared.spec.model,
        cwd=cwd,
        plugins=tuple(sorted(held.servers)),
        permission_mode=held.permission_mode,
        expert_id=request.expert_id,
        category=prepared.chosen.category,
    )
    agent_id, bell = await spawning.insert_agent(tx.connection, tree, agent)
    tx.ring([bell])
    return Spawned(agent_id, bell.run_id, "spawned", cwd if cwd != inherited else None)


def check_restart(agent: AgentDescriptor, area: WorkArea, known: CapabilityTools, writers: Writers) -> None:
    """Check that an agent that has ended may work again beside others. Raises `AgentSpawnError`."""
    if agent_may_write(agent, known):
        writers.check(area.at(agent.cwd), area)


def _with_distinct_name(prepared: PreparedSpawn, agents: Sequence[AgentDescriptor]) -> PreparedSpawn:
    """Return the request with a name that no agent of the tree has, unless the parent gave one."""
    taken = {agent.name for agent in agents}
    if prepared.request.name is not None or prepared.name not in taken:
        return prepared
    name = next(name for number in count(2) if (name := f"{prepared.name} {number}") not in taken)
    return replace(prepared, name=name, spec=prepared.spec.model_copy(update={"name": name}))


async def send_prompt(
    tx: UnitOfWork,
    tree: LockedTree,
    parent: AgentDescriptor,
    child: AgentDescriptor,
    prompt: str,
    *,
    key: str | None,
) -> None:
    """Send a prompt to an active child."""
    await messages.send(
        tx.connection,
        tree,
        "USER_PROMPT",
        source_id=parent.id,
        target_id=child.id,
        payload={"text": prompt},
        send_key=key,
    )
    await deliver(tx, tree)


def check_room(tree: LockedTree, agents: Sequence[AgentDescriptor]) -> None:
    """Check that one more agent may be active. Raises `AgentSpawnError`."""
    active = [agent for agent in agents if agent.state not in ENDED_AGENTS]
    if len(active) >= tree.limits.max_concurrent_agents:
        raise AgentSpawnError(
            f"This orchestration has {len(active)} active agents, and may have {tree.limits.max_concurrent_agents}. "
            "Wait for results with wait_for_message, or do the work yourself."
        )
