"""What a tree does when a run of one of its agents begins, is suspended or ends."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from nova_workers.base.vocabulary import ACTIVE_AGENTS, AgentState
from nova_workers.contracts.orchestration import AgentResult, OrchestrationPlace
from nova_workers.contracts.runs import Claim, Finish
from nova_workers.domain.orchestrations.rules.activation import activate_with_prompts
from nova_workers.domain.orchestrations.rules.lifecycle import legal_sources
from nova_workers.domain.orchestrations.rules.routing import deliver, report_end
from nova_workers.domain.orchestrations.rules.unblocking import break_deadlocks
from nova_workers.domain.orchestrations.sql import activations, messages
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql.changes import changed_now, news_of_agents
from nova_workers.domain.orchestrations.sql.locking import LockedTree, lock_tree
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork

_WAITING_FOR: Mapping[str, AgentState] = {
    "parent": "WAITING_FOR_PARENT",
    "child": "WAITING_FOR_CHILD",
    "expert": "WAITING_FOR_EXPERT",
}


class TreeTransitions:
    """Implements `runs.rules.orchestrated.OrchestratedRuns`. One object serves all worker slots of a process."""

    async def lock(self, connection: Connection, claim: Claim) -> LockedTree:
        """Lock the tree."""
        return await lock_tree(connection, claim.tenant_id, _place(claim).orchestration_id)

    async def starting(self, tx: UnitOfWork, claim: Claim) -> None:
        """Move a new activation from PENDING to STARTING."""
        await _move(tx, claim, "STARTING")

    async def running(self, tx: UnitOfWork, claim: Claim) -> None:
        """Move an agent that starts, or whose wait has ended, to RUNNING."""
        await _move(tx, claim, "RUNNING")

    async def suspended(self, tx: UnitOfWork, tree: LockedTree, claim: Claim, reasoning_ms: int) -> None:
        """Move the agent to the state that says what it waits for, deliver what is there, and look for a deadlock."""
        connection, place = tx.connection, _place(claim)
        await activations.add_reasoning(connection, place.agent_id, claim.run_id, reasoning_ms)
        waits = await messages.open_waits(connection, tree.id)
        own = [wait.messages.sender for wait in waits if wait.waiter == place.agent_id and wait.messages is not None]
        if own:
            state = _WAITING_FOR.get(own[0]) or await _state_of_any(connection, tree, place)
            await activations.move(connection, [place.agent_id], state, legal_sources(state), run_id=claim.run_id)
            await break_deadlocks(tx, tree, await deliver(tx, tree, waits))
        tx.announce(await changed_now(connection, tree.id))

    async def finished(self, tx: UnitOfWork, tree: LockedTree, claim: Claim, finish: Finish) -> None:
        """Record the end of an activation, report it to the parent, and continue with prompts that came meanwhile."""
        connection, place = tx.connection, _place(claim)
        succeeded = finish.status == "succeeded" and finish.limit is None
        state: AgentState = "COMPLETED" if succeeded else "KILLED" if finish.status == "canceled" else "FAILED"
        code, why = _failure(finish) if state == "FAILED" else (None, None)
        ended = await activations.end_activation(
            connection,
            place.agent_id,
            claim.run_id,
            state,
            ACTIVE_AGENTS if state == "KILLED" else legal_sources(state),
            summary=finish.text if finish.output is None else orjson.dumps(finish.output).decode(),
            error_code="killed" if state == "KILLED" else code,
            error_message="Its run was canceled." if state == "KILLED" else why,
        )
        if ended is None or not ended.moved:
            # It was killed, or failed to break a deadlock, and has been reported.
            return
        agent = ended.agent
        result = AgentResult(
            agent.id,
            success=succeeded,
            summary=agent.summary or "",
            artifacts=agent.artifacts,
            error_code=agent.error_code,
            error=agent.error_message,
        )
        await report_end(tx, tree, agent, result, has_children=ended.has_active_children)
        if state != "KILLED":
            await activate_with_prompts(tx, tree, agent)
        tx.announce(await changed_now(connection, tree.id))


async def _move(tx: UnitOfWork, claim: Claim, state: AgentState) -> None:
    place = _place(claim)
    sources = legal_sources(state) if state == "RUNNING" else ("PENDING",)
    moved = await activations.move(
        tx.connection, [place.agent_id], state, sources, run_id=claim.run_id, fence=claim.fence
    )
    if moved:
        tx.announce(await news_of_agents(tx.connection, place.orchestration_id, moved))


def _place(claim: Claim) -> OrchestrationPlace:
    assert claim.place is not None  # noqa: S101 - see `OrchestratedRuns`
    return claim.place


async def _state_of_any(connection: Connection, tree: LockedTree, place: OrchestrationPlace) -> AgentState:
    """Return the state of an agent in `wait_for_message`: for its children if it has active ones."""
    agents = await ledger.agents_of(connection, tree.tenant_id, tree.id)
    has_children = any(agent.parent_id == place.agent_id and agent.ended_at is None for agent in agents)
    return "WAITING_FOR_CHILD" if has_children or place.parent_id is None else "WAITING_FOR_PARENT"


def _failure(finish: Finish) -> tuple[str, str]:
    if finish.error is not None:
        return finish.error.kind, finish.error.message
    return f"limit_{finish.limit}", f"It reached its limit of {finish.limit}."
