"""Routing in a locked tree: delivers messages to waits, reports ends to parents, and kills branches.

All functions work in the unit of work that holds the tree's lock (`orchestrations.sql.locking`), and say there what
follows its commit. A process that dies before it did that loses nothing: the reconciler rings queued runs and applies
cancel requests, and the tick of orchestrations repeats what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nova_workers.base.vocabulary import ACTIVE_AGENTS, ENDED_AGENTS, AgentRole, RoutedMessageType
from nova_workers.contracts.content import text_block
from nova_workers.contracts.orchestration import AgentDescriptor, AgentResult, RoutedMessage, is_peer
from nova_workers.domain.orchestrations.rules.lifecycle import legal_sources
from nova_workers.domain.orchestrations.rules.matching import Match, match
from nova_workers.domain.orchestrations.rules.reporting import queue_report
from nova_workers.domain.orchestrations.sql import activations, messages, open_trees
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.orchestrations.sql.messages import OpenWait
from nova_workers.domain.runs.sql.cancel import request_cancel
from nova_workers.domain.waits.sql.records import Resolution, resolve_wait
from nova_workers.ledger.work import UnitOfWork


async def deliver(tx: UnitOfWork, tree: LockedTree, known: Sequence[OpenWait] | None = None) -> list[OpenWait]:
    """End every wait of the tree's agents that pending messages end, and return the waits that stay open.

    Args:
        tx: The unit of work.
        known: All open waits of the tree, if the caller has read them.
    """
    still_open = list(await messages.open_waits(tx.connection, tree.id) if known is None else known)
    waits = [wait for wait in still_open if wait.messages is not None]
    if not waits:
        return still_open
    pending: dict[str, list[RoutedMessage]] = {wait.waiter: [] for wait in waits}
    for message in await messages.pending(tx.connection, list(pending)):
        pending[message.target_id].append(message)
    for wait in waits:
        assert wait.messages is not None  # noqa: S101 - narrows the type; the others are filtered above
        found = match(wait.messages, pending[wait.waiter])
        if found is not None and await end_wait(tx, wait, found):
            still_open.remove(wait)
            taken = {message.id for message in found.messages}
            pending[wait.waiter] = [message for message in pending[wait.waiter] if message.id not in taken]
    return still_open


async def end_wait(tx: UnitOfWork, wait: OpenWait, found: Match) -> bool:
    """End a wait with messages. False if it ended in another way meanwhile: then they stay pending."""
    record = {"message_ids": [message.id for message in found.messages]}
    resolution = Resolution(
        "resolved", record, (text_block(found.text),), failed=found.failed, error=found.text if found.failed else None
    )
    ended, bell = await resolve_wait(tx.connection, wait.wait, resolution)
    if not ended:
        return False
    await messages.mark_delivered(tx.connection, record["message_ids"], wait.wait.id)
    if bell is not None:
        tx.ring([bell])
    return True


async def report_end(
    tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, result: AgentResult, *, has_children: bool = True
) -> None:
    """Report the end of an agent's activation to its parent, end its active children, and deliver.

    The agent's state has been moved. Reporting the same activation again changes nothing.
    """
    if has_children:
        await _kill_children(tx, tree, agent, "its parent ended")
    if agent.parent_id is None:
        await open_trees.close_tree(tx.connection, tree.id)
        bell = await queue_report(tx.connection, tree, agent, result)
        if bell is not None:
            tx.ring([bell])
        return
    await messages.send(
        tx.connection,
        tree,
        _result_type(agent),
        source_id=agent.id,
        target_id=agent.parent_id,
        correlation_id=agent.run_id,
        send_key=f"end {agent.run_id}",
        payload={
            "success": result.success,
            "text": result.summary or result.error or "",
            "role": agent.role,
            "artifacts": dict(result.artifacts),
            "error_code": result.error_code,
        },
    )
    await deliver(tx, tree)


def request_type(role: AgentRole, expert_id: str | None) -> RoutedMessageType:
    """Return the type of the message that gives an agent a task."""
    if is_peer(role, expert_id):
        return "PEER_REQUEST"
    return "EXPERT_REQUEST" if role == "EXPERT" else "SPAWN_REQUEST"


def _result_type(agent: AgentDescriptor) -> RoutedMessageType:
    if is_peer(agent.role, agent.expert_id):
        return "PEER_RESPONSE"
    return "EXPERT_RESPONSE" if agent.role == "EXPERT" else "TASK_RESULT"


async def complete_agent(
    tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, summary: str, artifacts: Mapping[str, Any]
) -> bool:
    """Complete an active agent whose run does not do it, and report it. False if it has ended."""
    await activations.set_summary(tx.connection, agent.id, agent.run_id, summary, artifacts)
    ended = await activations.end_activation(
        tx.connection, agent.id, agent.run_id, "COMPLETED", ACTIVE_AGENTS, summary=summary
    )
    if ended is None or not ended.moved:
        return False
    result = AgentResult(agent.id, success=True, summary=summary, artifacts=artifacts)
    await report_end(tx, tree, ended.agent, result, has_children=ended.has_active_children)
    return True


async def end_agent(tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, *, code: str, why: str) -> bool:
    """Fail an active agent, stop its run, and report it. False if it has ended."""
    moved = await activations.move(
        tx.connection,
        [agent.id],
        "FAILED",
        legal_sources("FAILED"),
        run_id=agent.run_id,
        error_code=code,
        error_message=why,
    )
    if not moved:
        return False
    tx.cancel(await request_cancel(tx.connection, tree.tenant_id, [agent.run_id]))
    await report_end(tx, tree, agent, AgentResult(agent.id, success=False, summary="", error_code=code, error=why))
    return True


async def kill_branch(tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, *, why: str) -> list[str]:
    """Kill an agent and everything below it, and report the kill to its parent. Return the agents that it ended.

    Their runs stop at once and keep their partial output. An agent that has ended keeps its state.
    """
    tree_agents = await ledger.agents_of(tx.connection, tree.tenant_id, tree.id)
    branch = [agent, *_below(agent.id, tree_agents)]
    killed = await _kill(tx, tree, branch, why)
    if agent.id in killed:
        error = f"It was killed: {why}."
        result = AgentResult(agent.id, success=False, summary="", error_code="killed", error=error)
        await report_end(tx, tree, agent, result)
    return killed


async def _kill_children(tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, why: str) -> None:
    below = _below(agent.id, await ledger.agents_of(tx.connection, tree.tenant_id, tree.id))
    await _kill(tx, tree, below, why)


async def _kill(tx: UnitOfWork, tree: LockedTree, agents: Sequence[AgentDescriptor], why: str) -> list[str]:
    active = [agent for agent in agents if agent.state not in ENDED_AGENTS]
    if not active:
        return []
    killed = await activations.move(
        tx.connection,
        [agent.id for agent in active],
        "KILLED",
        ACTIVE_AGENTS,
        error_code="killed",
        error_message=f"Killed: {why}.",
    )
    for agent in active:
        await messages.send(
            tx.connection,
            tree,
            "KILL_SIGNAL",
            source_id=None,
            target_id=agent.id,
            payload={"text": why},
            send_key=f"kill {agent.run_id}",
            delivered=True,
        )
    tx.cancel(await request_cancel(tx.connection, tree.tenant_id, [agent.run_id for agent in active]))
    return killed


def _below(agent_id: str, agents: Iterable[AgentDescriptor]) -> list[AgentDescriptor]:
    """Return all agents below one. Agents come in the order of their spawning, so parents before children."""
    branch = {agent_id}
    found: list[AgentDescriptor] = []
    for agent in agents:
        if agent.parent_id in branch:
            branch.add(agent.id)
            found.append(agent)
    return found
