"""Orchestrations as people and programs use them: start, continue, prompt, kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nova_workers.base.errors import AgentSpawnError, Gone, NotFound, deleted
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.http.orchestrations import OrchestrationView
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.idempotency.sql import find_made, once
from nova_workers.domain.orchestrations.rules.activation import activate, prompt_agent
from nova_workers.domain.orchestrations.rules.finding import find_agent
from nova_workers.domain.orchestrations.rules.models.choice import ModelChooser
from nova_workers.domain.orchestrations.rules.planning import NewOrchestration, plan_tree
from nova_workers.domain.orchestrations.rules.routing import kill_branch
from nova_workers.domain.orchestrations.sql import agents as ledger
from nova_workers.domain.orchestrations.sql import messages, spawning
from nova_workers.domain.orchestrations.sql.changes import changed_now
from nova_workers.domain.orchestrations.sql.locking import LockedTree, lock_tree
from nova_workers.domain.orchestrations.sql.spawning import NewTree
from nova_workers.domain.orchestrations.sql.trees import get_orchestration, orchestration_of_run
from nova_workers.domain.runs.sql.submit import find_accepted
from nova_workers.ledger.database import Connection
from nova_workers.ledger.in_doubt import doubtful, write_once
from nova_workers.ledger.work import UnitOfWork, Work
from nova_workers.ledger.write_record import name_outcome


class Orchestrations:
    """Starts, continues, prompts and kills. One object per process."""

    def __init__(
        self,
        work: Work,
        models: ModelChooser,
        directory_of: Callable[[str, str], Path],
    ) -> None:
        self._work = work
        self._models = models
        self._directory_of = directory_of

    async def plan(self, new: NewOrchestration) -> NewTree:
        """Return the orchestration of a request, ready to be inserted; see `plan_tree`."""
        return await plan_tree(self._work.database, self._models, new, self._directory_of)

    async def start(self, new: NewOrchestration) -> Started:
        """Start an orchestration: its master's run is queued.

        Raises:
            NotFound: No such agent.
            AgentSpawnError: The working directory is not one of the agent's.
            ModelNotAvailableError: See `ModelChooser.choose`.
            ProviderNotAvailableError: See `ModelChooser.choose`.
            IdempotencyMismatch: The key was used for another request.
            Gone: The agent was deleted, or what the key was used for.
        """
        tree = await self.plan(new)
        run_id = new_id("run")
        if new.is_external:
            # Found again by the id that an idempotency key is bound to: it is no run.
            tree = replace(tree, start_key=_external_key(run_id))

        async def write() -> Started:
            async with self._work.begin() as tx:
                started, _ = await once(
                    tx.connection,
                    new.tenant_id,
                    new.request,
                    lambda: _insert(tx, tree, run_id),
                    lambda made_id: _find_made(tx, new.tenant_id, made_id, run_id),
                    made_id=run_id,
                )
                return started

        return await write_once(
            write,
            lambda: self._find_begun(new.tenant_id, run_id, tree.start_key),
            doubt=lambda: doubtful("the orchestration", new.request),
        )

    async def _find_begun(self, tenant_id: str, run_id: str, start_key: str | None) -> Started | None:
        """Return the orchestration that was started with the id of its master's run, or with a key."""
        async with self._work.begin() as tx:
            ids = await orchestration_of_run(tx.connection, tenant_id, run_id)
            if ids is None and start_key is not None:
                found = await spawning.find_started(tx.connection, tenant_id, start_key)
                ids = None if found is None else found[:2]
            accepted = await find_accepted(tx.connection, tenant_id, run_id)
            tx.ring([] if ids is None or accepted is None else [accepted.doorbell])
        return None if ids is None else Started(*ids, run_id)

    async def find_replay(self, tenant_id: str, request: RequestKey) -> Started | None:
        """Return the orchestration that a request with this key started before, if it did.

        Raises:
            IdempotencyMismatch: It was another request.
            Gone: What it started was deleted.
        """
        async with self._work.database.connection() as connection:
            run_id = await find_made(connection, tenant_id, request)
            return None if run_id is None else await _started_before(connection, tenant_id, run_id)

    async def find_started(self, tenant_id: str, start_key: str) -> Started | None:
        """Return the orchestration that a call with this key started before, if any. `start` looks again."""
        async with self._work.database.connection() as connection:
            found = await spawning.find_started(connection, tenant_id, start_key)
        return None if found is None else Started(*found, replayed=True)

    async def continue_(
        self,
        tenant_id: str,
        orchestration_id: str,
        task: str,
        *,
        request: RequestKey | None = None,
    ) -> Started:
        """Restart the ended master with a follow-up task. It keeps its identity and its conversation.

        A request with a key that was used before changes nothing, also while that task runs.

        Raises:
            NotFound: No such orchestration.
            AgentSpawnError: The master has not ended.
            IdempotencyMismatch: The key was used for another request.
        """
        run_id = new_id("run")

        async def write() -> Started:
            async with self._work.begin() as tx:
                tree = await lock_tree(tx.connection, tenant_id, orchestration_id)
                started, _ = await once(
                    tx.connection,
                    tenant_id,
                    request,
                    lambda: _continue(tx, tree, task, run_id),
                    lambda made_id: _find_made(tx, tenant_id, made_id, run_id),
                    made_id=run_id,
                )
                return started

        name_outcome(f"/v1/orchestrations/{orchestration_id}", orchestration_id=orchestration_id, run_id=run_id)
        return await write_once(
            write,
            lambda: self._find_begun(tenant_id, run_id, None),
            doubt=lambda: doubtful("the follow-up task", request, run_id=run_id),
        )

    async def prompt(
        self, tenant_id: str, orchestration_id: str, agent: str, text: str, *, request: RequestKey | None = None
    ) -> tuple[OrchestrationView | None, bool]:
        """Send a person's message to an agent: it ends its `wait_for_message`, or restarts it if it has ended.

        Args:
            tenant_id: Whose orchestration.
            agent: The agent's id, or a unique part of it.
            text: The message.
            request: The request's idempotency key: the message of a repeated request is sent once.

        Returns:
            The orchestration as the message left it, unless it was not clear at once whether it was sent; and whether
            an earlier request with the key sent it.

        Raises:
            NotFound: No such orchestration or agent.
            IdempotencyMismatch: The key was used for another request.
            MessageRoutingError: The agent was killed, or its parent has ended.
            Unavailable: The database does not answer. Where the reply to the commit was lost, it may have been sent.
        """
        sent_id = new_id("omsg")
        doubted: UnitOfWork | None = None

        async def write() -> tuple[OrchestrationView, bool]:
            async with self._work.begin() as tx:
                tree = await lock_tree(tx.connection, tenant_id, orchestration_id)
                target = await find_agent(tx.connection, tree, agent)

                async def send() -> None:
                    nonlocal doubted
                    await prompt_agent(tx, tree, target, text, send_key=sent_id)
                    tx.announce(await changed_now(tx.connection, orchestration_id))
                    doubted = tx

                async def find_sent(made_id: str) -> None:
                    if made_id == sent_id and doubted is not None:
                        tx.take_over(doubted)

                _, is_replay = await once(tx.connection, tenant_id, request, send, find_sent, made_id=sent_id)
                return await get_orchestration(tx.connection, tenant_id, orchestration_id), is_replay

        async def find() -> tuple[OrchestrationView | None, bool] | None:
            async with self._work.begin() as tx:
                tree = await lock_tree(tx.connection, tenant_id, orchestration_id)
                if await messages.find_sent(tx.connection, tree, sent_id) is None:
                    return None
                if doubted is not None:
                    tx.take_over(doubted)
            return None, False

        name_outcome(f"/v1/orchestrations/{orchestration_id}", orchestration_id=orchestration_id)
        return await write_once(
            write,
            find,
            doubt=lambda: doubtful("the message", request, orchestration_id=orchestration_id),
        )

    async def kill(
        self, tenant_id: str, orchestration_id: str, agent: str | None, why: str
    ) -> tuple[list[str], OrchestrationView]:
        """Kill an agent and everything below it, the whole tree without `agent`.

        Repeating it changes nothing. Partial output is kept.

        Returns:
            The agents that it ended, and the orchestration as that left it.

        Raises:
            NotFound: No such orchestration or agent.
        """
        async with self._work.begin() as tx:
            tree = await lock_tree(tx.connection, tenant_id, orchestration_id)
            target = await find_agent(tx.connection, tree, agent or tree.master_id)
            killed = await kill_branch(tx, tree, target, why=why)
            tx.announce(await changed_now(tx.connection, tree.id))
            return killed, await get_orchestration(tx.connection, tenant_id, orchestration_id)


async def _insert(tx: UnitOfWork, tree: NewTree, run_id: str) -> Started:
    """Insert an orchestration, unless there is one with its start key."""
    if tree.start_key is not None:
        found = await spawning.find_started(tx.connection, tree.tenant_id, tree.start_key)
        if found is not None:
            return Started(*found, replayed=True)
    inserted = await spawning.insert_tree(tx.connection, tree, run_id=run_id)
    if inserted is None:
        raise deleted("agent", tree.agent_id)
    orchestration_id, master_id, bell = inserted
    tx.announce(await changed_now(tx.connection, orchestration_id))
    tx.ring([] if bell is None else [bell])
    view = await get_orchestration(tx.connection, tree.tenant_id, orchestration_id)
    return Started(orchestration_id, master_id, run_id, view=view)


async def _continue(tx: UnitOfWork, tree: LockedTree, task: str, run_id: str) -> Started:
    master = await _agent(tx.connection, tree, tree.master_id)
    if master.state not in ENDED_AGENTS:
        raise AgentSpawnError(
            f"The master of orchestration {tree.id!r} is {master.state}. Send it a message, or wait for its end."
        )
    await activate(tx, tree, master, task, run_id=run_id, source="api")
    tx.announce(await changed_now(tx.connection, tree.id))
    view = await get_orchestration(tx.connection, tree.tenant_id, tree.id)
    return Started(tree.id, master.id, run_id, view=view)


async def _find_made(tx: UnitOfWork, tenant_id: str, made_id: str, run_id: str) -> Started:
    """Return the orchestration of a key: an earlier request's, or this one's own, whose commit was in doubt."""
    earlier = await _started_before(tx.connection, tenant_id, made_id)
    if made_id != run_id:
        return earlier
    accepted = await find_accepted(tx.connection, tenant_id, run_id)
    tx.ring([] if accepted is None else [accepted.doorbell])
    return replace(earlier, replayed=False)


async def _started_before(connection: Connection, tenant_id: str, run_id: str) -> Started:
    """Return the orchestration that an earlier request started, or continued with this run."""
    ids = await orchestration_of_run(connection, tenant_id, run_id)
    if ids is None:
        external = await spawning.find_started(connection, tenant_id, _external_key(run_id))
        ids = None if external is None else external[:2]
    if ids is None:
        text = f"The orchestration of run {run_id!r} was deleted. Use a new Idempotency-Key."
        raise Gone(text, kind="orchestration", id=None)
    return Started(*ids, run_id, replayed=True)


def _external_key(run_id: str) -> str:
    return f"external {run_id}"


async def _agent(connection: Connection, tree: LockedTree, agent_id: str) -> AgentDescriptor:
    agent = await ledger.get_agent(connection, tree.tenant_id, agent_id)
    if agent is None:
        raise NotFound(f"There is no agent {agent_id!r} in orchestration {tree.id!r}.", kind="agent", id=agent_id)
    return agent
