"""Orchestrations as people and programs use them: start, continue, prompt, kill."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_workers.contracts.orchestration import AgentDescriptor, Started
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.ports import CancelNotifier, Dispatcher
from nova_workers.contracts.runs import Doorbell
from nova_workers.errors import AgentSpawnError, Gone, IdempotencyMismatch, NotFound
from nova_workers.ids import new_id
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.idempotency import RequestKey, find_key, take_idempotency_key, take_key
from nova_workers.ledger.in_doubt import doubtful, write_once
from nova_workers.ledger.orchestrations import agents as ledger
from nova_workers.ledger.orchestrations import messages, spawning
from nova_workers.ledger.orchestrations.changes import changed_now
from nova_workers.ledger.orchestrations.locking import LockedTree, lock_tree
from nova_workers.ledger.orchestrations.spawning import NewTree
from nova_workers.ledger.orchestrations.trees import orchestration_of_run
from nova_workers.ledger.runs.submit import find_accepted
from nova_workers.orchestration.activation import activate, prompt_agent
from nova_workers.orchestration.finding import find_agent
from nova_workers.orchestration.models.choosing import ModelChooser
from nova_workers.orchestration.planning import NewOrchestration, plan_tree
from nova_workers.orchestration.routing import TreeChange, kill_branch
from nova_workers.orchestration.transitions import after_change, apply_change
from nova_workers.runs.orchestrated import AfterTransition
from nova_workers.vocabulary import ENDED_AGENTS

__all__ = ["Orchestrations"]


class Orchestrations:
    """Starts, continues, prompts and kills. One object per process."""

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher,
        notifier: CancelNotifier,
        models: ModelChooser,
        *,
        idempotency_ttl_s: float = 86_400.0,
    ) -> None:
        self._idempotency_ttl_s = idempotency_ttl_s
        self._database = database
        self._dispatcher = dispatcher
        self._notifier = notifier
        self._models = models

    async def plan(self, new: NewOrchestration) -> NewTree:
        """Return the orchestration of a request, ready to be inserted; see `plan_tree`."""
        return await plan_tree(self._database, self._models, new)

    async def start(self, new: NewOrchestration) -> Started:
        """Start an orchestration: its master's run is queued.

        Raises:
            NotFound: No such agent.
            AgentSpawnError: The working directory is not one of the agent's.
            ModelNotAvailableError: See `ModelChooser.choose`.
            ProviderNotAvailableError: See `ModelChooser.choose`.
            IdempotencyMismatch: The key was used before with another body.
            Gone: The agent was deleted, or what the key was used for.
        """
        tree = await self.plan(new)
        run_id = new_id("run")
        if new.is_external:
            # Found again by the id that an idempotency key is bound to: it is no run.
            tree = replace(tree, start_key=_external_key(run_id))

        async def write() -> _Begun:
            async with self._database.transaction() as connection:
                key, before = new.idempotency_key, None
                if key is not None and not await take_idempotency_key(
                    connection,
                    new.tenant_id,
                    key,
                    body_hash=new.body_hash,
                    run_id=run_id,
                    ttl_s=self._idempotency_ttl_s,
                ):
                    before = await _find_replay(connection, new.tenant_id, key, new.body_hash)
                elif tree.start_key is not None:
                    found = await spawning.find_started(connection, new.tenant_id, tree.start_key)
                    before = None if found is None else Started(*found, replayed=True)
                if before is not None:
                    return _Begun(before)
                inserted = await spawning.insert_tree(connection, tree, run_id=run_id)
                if inserted is None:
                    raise Gone(f"Agent {new.agent_id!r} was deleted.", kind="agent")
                orchestration_id, master_id, bell = inserted
                news = await changed_now(connection, orchestration_id)
                return _Begun(Started(orchestration_id, master_id, run_id), bell, news)

        begun = await write_once(
            write,
            lambda: self._find_begun(new.tenant_id, run_id, tree.start_key),
            doubt=lambda: doubtful("the orchestration", new.idempotency_key),
        )
        # In this order: a worker that answers the doorbell announces what the agent does next.
        if begun.news is not None:
            self._notifier.announce_tree(begun.news)
        if begun.bell is not None:
            self._dispatcher.ring_runs([begun.bell])
        return begun.started

    async def _find_begun(self, tenant_id: str, run_id: str, start_key: str | None) -> _Begun | None:
        """Return what was started with the id of its master's run, or with a key."""
        async with self._database.transaction() as connection:
            ids = await orchestration_of_run(connection, tenant_id, run_id)
            if ids is None and start_key is not None:
                found = await spawning.find_started(connection, tenant_id, start_key)
                ids = None if found is None else found[:2]
            accepted = await find_accepted(connection, tenant_id, run_id)
        return None if ids is None else _Begun(Started(*ids, run_id), None if accepted is None else accepted.doorbell)

    async def find_replay(self, tenant_id: str, idempotency_key: str, body_hash: bytes | None) -> Started | None:
        """Return what a request with this key started before, if it did.

        Raises:
            IdempotencyMismatch: It had another body.
            Gone: What it started was deleted.
        """
        async with self._database.connection() as connection:
            return await _find_replay(connection, tenant_id, idempotency_key, body_hash)

    async def find_started(self, tenant_id: str, start_key: str) -> Started | None:
        """Return what a call with this key started before, if it did. `start` looks again, in its transaction."""
        async with self._database.connection() as connection:
            found = await spawning.find_started(connection, tenant_id, start_key)
        return None if found is None else Started(*found, replayed=True)

    async def continue_(
        self,
        tenant_id: str,
        orchestration_id: str,
        task: str,
        *,
        idempotency_key: str | None = None,
        body_hash: bytes | None = None,
    ) -> Started:
        """Restart the ended master with a follow-up task. It keeps its identity and its conversation.

        A request with a key that was used before changes nothing, also while that task runs.

        Raises:
            NotFound: No such orchestration.
            AgentSpawnError: The master has not ended.
            IdempotencyMismatch: The key was used before with another body.
        """
        run_id = new_id("run")

        async def write() -> _Begun:
            async with self._database.transaction() as connection:
                tree = await lock_tree(connection, tenant_id, orchestration_id)
                if idempotency_key is not None and not await take_idempotency_key(
                    connection,
                    tenant_id,
                    idempotency_key,
                    body_hash=body_hash,
                    run_id=run_id,
                    ttl_s=self._idempotency_ttl_s,
                ):
                    before = await _find_replay(connection, tenant_id, idempotency_key, body_hash)
                    if before is not None:
                        return _Begun(before)
                return await _continue(connection, tree, task, run_id)

        begun = await write_once(
            write,
            lambda: self._find_begun(tenant_id, run_id, None),
            doubt=lambda: doubtful("the follow-up task", idempotency_key, run_id=run_id),
        )
        if begun.bell is not None:
            self._dispatcher.ring_runs([begun.bell])
        if begun.after is not None:
            await apply_change(self._dispatcher, self._notifier, begun.after)
        return begun.started

    async def prompt(
        self, tenant_id: str, orchestration_id: str, agent: str, text: str, *, request: RequestKey | None = None
    ) -> tuple[AgentDescriptor, bool]:
        """Send a person's message to an agent: it ends its `wait_for_message`, or restarts it if it has ended.

        Args:
            tenant_id: Whose orchestration.
            orchestration_id: The orchestration.
            agent: The agent's id, or a unique part of it.
            text: The message.
            request: The request's idempotency key: the message of a repeated request is sent once.

        Returns:
            The agent, and whether an earlier request with the key sent the message.

        Raises:
            NotFound: No such orchestration or agent.
            IdempotencyMismatch: The key was used for another request.
            MessageRoutingError: The agent was killed, or its parent has ended.
            Unavailable: The database does not answer. Where the reply to the commit was lost, it may have been sent.
        """
        sent_id = new_id("omsg")
        sent: _Prompted | None = None

        async def write() -> _Prompted:
            nonlocal sent
            async with self._database.transaction() as connection:
                change = TreeChange(connection, await lock_tree(connection, tenant_id, orchestration_id))
                target = await find_agent(connection, change.tree, agent)
                earlier = await take_key(connection, tenant_id, request, sent_id)
                if earlier not in {None, sent_id}:
                    return _Prompted(target)
                if sent is None or earlier is None:
                    await prompt_agent(change, target, text, send_key=sent_id)
                    sent = _Prompted(target, await after_change(change))
            return sent

        async def find() -> _Prompted | None:
            async with self._database.transaction() as connection:
                tree = await lock_tree(connection, tenant_id, orchestration_id)
                return None if await messages.find_sent(connection, tree, sent_id) is None else sent

        prompted = await write_once(
            write,
            find,
            doubt=lambda: doubtful("the message", request and request.key, orchestration_id=orchestration_id),
        )
        if prompted.after is not None:
            await apply_change(self._dispatcher, self._notifier, prompted.after)
        return prompted.target, prompted.after is None

    async def kill(self, tenant_id: str, orchestration_id: str, agent: str | None, why: str) -> list[str]:
        """Kill an agent and everything below it, the whole tree without `agent`; return the agents that it ended.

        Repeating it changes nothing. Partial output is kept.

        Raises:
            NotFound: No such orchestration or agent.
        """
        async with self._database.transaction() as connection:
            tree = await lock_tree(connection, tenant_id, orchestration_id)
            change = TreeChange(connection, tree)
            target = await find_agent(connection, tree, agent or tree.master_id)
            killed = await kill_branch(change, target, why=why)
            after = await after_change(change)
        await apply_change(self._dispatcher, self._notifier, after)
        return killed


@dataclass(frozen=True, slots=True)
class _Begun:
    """An orchestration that was started or continued, and what follows the commit."""

    started: Started
    bell: Doorbell | None = None
    news: TreeNews | None = None
    after: AfterTransition | None = None


@dataclass(frozen=True, slots=True)
class _Prompted:
    """An agent that got a message, and what follows the commit; nothing if an earlier request sent it."""

    target: AgentDescriptor
    after: AfterTransition | None = None


async def _continue(connection: Connection, tree: LockedTree, task: str, run_id: str) -> _Begun:
    change = TreeChange(connection, tree)
    master = await _agent(connection, tree, tree.master_id)
    if master.state not in ENDED_AGENTS:
        raise AgentSpawnError(
            f"The master of orchestration {tree.id!r} is {master.state}. Send it a message, or wait for its end."
        )
    await activate(change, master, task, run_id=run_id)
    return _Begun(Started(tree.id, master.id, run_id), after=await after_change(change))


async def _find_replay(connection: Connection, tenant_id: str, key: str, body_hash: bytes | None) -> Started | None:
    found = await find_key(connection, tenant_id, key)
    if found is None:
        return None
    first_hash, run_id = found
    if first_hash != body_hash:
        raise IdempotencyMismatch(
            f"Idempotency-Key {key!r} was used for run {run_id!r} with another body. "
            "Send the same body to get the same orchestration, or use a new key.",
            run_id=run_id,
        )
    ids = await orchestration_of_run(connection, tenant_id, run_id)
    if ids is None:
        external = await spawning.find_started(connection, tenant_id, _external_key(run_id))
        ids = None if external is None else external[:2]
    if ids is None:
        raise Gone(f"Idempotency-Key {key!r} belongs to an orchestration that was deleted. Use a new key.", key=key)
    return Started(*ids, run_id, replayed=True)


def _external_key(run_id: str) -> str:
    return f"external {run_id}"


async def _agent(connection: Connection, tree: LockedTree, agent_id: str) -> AgentDescriptor:
    agent = await ledger.get_agent(connection, tree.tenant_id, agent_id)
    if agent is None:
        raise NotFound(f"No agent {agent_id!r} in orchestration {tree.id!r}.", kind="agent")
    return agent
