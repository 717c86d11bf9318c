"""Gives an agent of a tree a new activation (a run at the end of its thread), or a person's message."""

from __future__ import annotations

from nova_workers.base.errors import AgentSpawnError, MessageRoutingError
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import ENDED_AGENTS, RunSource
from nova_workers.contracts.content import storable, text_block
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.contracts.runs import Submission
from nova_workers.domain.orchestrations.rules.lifecycle import can_restart, legal_sources
from nova_workers.domain.orchestrations.rules.routing import deliver
from nova_workers.domain.orchestrations.sql import activations, messages, open_trees
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.runs.sql.submit import insert_run
from nova_workers.ledger.work import UnitOfWork


async def activate(
    tx: UnitOfWork,
    tree: LockedTree,
    agent: AgentDescriptor,
    prompt: str,
    *,
    parent_run_id: str | None = None,
    run_id: str | None = None,
    source: RunSource = "agent",
) -> str:
    """Restart an ended agent with a prompt, with its identity, and return the id of the run, a new one unless given.

    `source` says who asks for it: another agent of the tree, or a person over the API.

    Raises:
        AgentSpawnError: The agent has not ended, or its thread or configuration was deleted.
    """
    if agent.parent_id is None and tree.is_external:
        raise AgentSpawnError(
            f"The master of orchestration {tree.id!r} is a program outside of the fleet and has ended. Start "
            "another orchestration."
        )
    if not can_restart(agent.state):
        raise AgentSpawnError(
            f"Agent {agent.id!r} is {agent.state}; only one that has ended can be restarted. "
            "Send it a message with send_child_prompt, or wait for its result."
        )
    run_id = run_id or new_id("run")
    submission = Submission(
        tree.tenant_id,
        (text_block(storable(prompt)),),
        thread_id=agent.thread_id,
        queue=tree.queue,
        source=source,
        parent_run_id=parent_run_id,
    )
    accepted = await insert_run(tx.connection, submission, run_id)
    if accepted is None:
        raise AgentSpawnError(f"Agent {agent.id!r} cannot be restarted: its thread or configuration was deleted.")
    if not await activations.reactivate(tx.connection, agent.id, run_id, prompt, legal_sources("PENDING")):
        raise AgentSpawnError(f"Agent {agent.id!r} was restarted meanwhile. Wait for its result.")
    if agent.parent_id is None:
        await open_trees.close_tree(tx.connection, tree.id, closed=False)
    tx.ring([accepted.doorbell])
    return run_id


async def activate_with_prompts(tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor) -> None:
    """Restart an agent that ended before it received all prompts that were sent to it, so that none is lost."""
    prompts = [each for each in await messages.pending(tx.connection, [agent.id]) if each.type == "USER_PROMPT"]
    if not prompts:
        return
    text = "\n\n".join(str(prompt.payload["text"]) for prompt in prompts)
    by_a_person = all(prompt.source_id is None for prompt in prompts)
    run_id = await activate(tx, tree, agent, text, source="api" if by_a_person else "agent")
    await messages.mark_delivered(tx.connection, [prompt.id for prompt in prompts], run_id)


async def prompt_agent(tx: UnitOfWork, tree: LockedTree, agent: AgentDescriptor, text: str, *, send_key: str) -> None:
    """Send a person's message to an agent: it ends its `wait_for_message`, or restarts it if it has ended.

    Raises:
        MessageRoutingError: The agent was killed, or it has ended and has a parent.
    """
    if agent.state == "KILLED" or (agent.state in ENDED_AGENTS and agent.parent_id is not None):
        raise MessageRoutingError(
            f"Agent {agent.id!r} is {agent.state}; only its parent can restart it. Continue the master instead."
        )
    await messages.send(
        tx.connection,
        tree,
        "USER_PROMPT",
        source_id=None,
        target_id=agent.id,
        payload={"text": text},
        send_key=send_key,
    )
    await deliver(tx, tree)
    if agent.state in ENDED_AGENTS:
        await activate_with_prompts(tx, tree, agent)
