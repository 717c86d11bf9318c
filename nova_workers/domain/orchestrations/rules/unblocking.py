"""Breaks deadlocks of a locked tree, in the transaction that would close them, or by the tick.

`deadlock` finds them; this reads who waits for whom, and ends a wait or an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nova_workers.base.errors import DeadlockDetectedError
from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.rules.deadlock import Waiter, find_deadlock
from nova_workers.domain.orchestrations.rules.matching import Match, interrupted, match
from nova_workers.domain.orchestrations.rules.routing import end_agent, end_wait
from nova_workers.domain.orchestrations.sql import activations, external, messages
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.orchestrations.sql.messages import OpenWait
from nova_workers.ledger.work import UnitOfWork


async def break_deadlocks(tx: UnitOfWork, tree: LockedTree, waits: Sequence[OpenWait]) -> LockedTree:
    """Break every deadlock: wake an agent of it with a question of its child, else end its deepest agent.

    Args:
        tx: The unit of work.
        waits: All open waits of the tree, after messages were delivered.

    Returns:
        The tree as that left it: an external master that was woken waits no more.
    """
    while True:
        if not any(wait.messages is not None for wait in waits):
            return tree
        agents = {a.id: a for a in await ledger.agents_of(tx.connection, tree.tenant_id, tree.id)}
        deadlock = find_deadlock([*_waiters(waits, agents), *await _external_waiter(tx, tree, agents)])
        if not deadlock:
            return tree
        woken = await _wake(tx, tree, deadlock, waits, agents)
        if woken is not None:
            tree = woken
        else:
            error = DeadlockDetectedError(
                f"Agents waited for each other in a cycle; {deadlock[0]!r}, the deepest of them, was ended to break it."
            )
            if not await end_agent(tx, tree, agents[deadlock[0]], code=error.code, why=error.message):
                return tree
        waits = await messages.open_waits(tx.connection, tree.id)


async def _wake(
    tx: UnitOfWork,
    tree: LockedTree,
    deadlock: Sequence[str],
    waits: Sequence[OpenWait],
    agents: Mapping[str, AgentDescriptor],
) -> LockedTree | None:
    """End the waits of an agent with a question of its child that these did not receive. None if there is none.

    A wait for one agent does not end with the question of another. If it can end in no other way, the question does
    it: the agent can answer, and receives what it waited for with `wait_for_message`. A question is delivered once, so
    an agent that waits on without an answer is not woken again.
    """
    asking = {agent.id for agent in agents.values() if agent.state not in ENDED_AGENTS}
    unread = {
        message.target_id: message
        for message in reversed(await messages.pending(tx.connection, deadlock))
        if message.type == "QUESTION" and message.source_id in asking
    }
    for agent_id in deadlock:
        if agent_id not in unread:
            continue
        question = interrupted(unread[agent_id])
        if agent_id == tree.master_id and tree.is_external:
            return await _wake_external(tx, tree, agents[agent_id], question)
        # All of its waits: the run goes on when the last one has ended.
        own = [wait for wait in waits if wait.waiter == agent_id]
        if any([await end_wait(tx, wait, question) for wait in own]):
            return tree
    return None


async def _wake_external(tx: UnitOfWork, tree: LockedTree, master: AgentDescriptor, question: Match) -> LockedTree:
    """Deliver a question to one of the external master's calls, which receives it when it sees that the master runs."""
    key = min(tree.master_waits)
    await messages.mark_delivered(tx.connection, [message.id for message in question.messages], key)
    await external.end_wait(tx.connection, tree.id, key)
    await activations.move(
        tx.connection, [master.id], "RUNNING", ("WAITING_FOR_CHILD", "WAITING_FOR_EXPERT"), run_id=master.run_id
    )
    # Its other calls do not count: it can act with this one's answer.
    return replace(tree, master_waits={})


def _waiters(waits: Iterable[OpenWait], agents: Mapping[str, AgentDescriptor]) -> list[Waiter]:
    """Return the agents that only messages of other agents can wake, with whom they wait for."""
    active = {agent.id for agent in agents.values() if agent.state not in ENDED_AGENTS}
    groups: dict[str, list[frozenset[str]]] = {}
    awake: set[str] = set()
    for wait in waits:
        agent, request = agents.get(wait.waiter), wait.messages
        if agent is None or agent.id not in active or request is None or wait.wait.due_at is not None:
            awake.add(wait.waiter)
            continue
        found = groups.setdefault(agent.id, [])
        if request.sender == "any":
            children = (each.id for each in agents.values() if each.parent_id == agent.id and each.id in active)
            parent = (agent.parent_id,) if agent.parent_id is not None else ()
            found.append(frozenset((*parent, *children)))
        else:
            found.extend(frozenset((each,)) for each in request.agent_ids if each in active)
    return [
        Waiter(agent_id, agents[agent_id].depth, tuple(found))
        for agent_id, found in groups.items()
        if agent_id not in awake
    ]


async def _external_waiter(tx: UnitOfWork, tree: LockedTree, agents: Mapping[str, AgentDescriptor]) -> list[Waiter]:
    """Return the external master if it waits and no message is there for it.

    It may have several calls open, and acts once any of them is answered.
    """
    waits = tree.master_waits.values()
    if not waits or any(request.timeout_s is not None for request in waits):
        return []
    pending = await messages.pending(tx.connection, [tree.master_id])
    if any(match(request, pending) is not None for request in waits):
        return []
    active = {agent.id for agent in agents.values() if agent.state not in ENDED_AGENTS}
    children = {agent.id for agent in agents.values() if agent.parent_id == tree.master_id}
    awaited = {
        agent_id for request in waits for agent_id in (children if request.sender == "any" else request.agent_ids)
    }
    return [Waiter(tree.master_id, 0, (frozenset(awaited & active),))]
