"""Submissions: what a message becomes, and in which thread."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import orjson
from pydantic import BaseModel

from nova_workers.contracts.http.thread_states import ThreadStateReplace
from nova_workers.contracts.http.wire import PastMessage, StatelessRunCreate
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.idempotency.sql import find_made
from nova_workers.domain.runs.rules.submit import MakeThread, WithRun, thread_after
from nova_workers.domain.runs.sql.reads import RunState
from nova_workers.domain.threads.rules.past import turns_of
from nova_workers.domain.threads.rules.states import offer_state
from nova_workers.domain.threads.sql.importing import ImportedTurn, import_turns
from nova_workers.domain.threads.sql.records import (
    create_thread,
)
from nova_workers.ledger.auditing import act_as
from nova_workers.ledger.database import Connection

from ...acceptance import MessageAcceptance
from ...routes.runs.past_messages import checked_messages, scaled_messages
from .request import DoorRequest


class Begun(NamedTuple):
    """A run that a door submitted."""

    run_id: str
    thread_id: str
    agent_id: str
    is_replay: bool
    """Whether an earlier request with the same id submitted it."""

    @property
    def state(self) -> RunState | None:
        """The run's state, if it is known: of a new run."""
        return None if self.is_replay else RunState.accepted(self.run_id, self.thread_id, self.agent_id)


class Submitting(DoorRequest):
    """What submits messages."""

    __slots__ = ()

    def key(self, request_id: str | None, body: BaseModel, *, path: str | None = None) -> RequestKey | None:
        """Return the idempotency key of a request; None if its protocol gave it no id.

        It is bound to the request as it came, and not to what became of it: a thread that is forked for it, say, is
        another each time. Ids of protocols may be longer than keys, and of other characters.

        Args:
            request_id: Unique among the protocol's requests of the tenant.
            body: What makes it another request.
            path: The digest's, for a protocol that has several paths for one request; None for that of the request.
        """
        if request_id is None:
            return None
        door = self.request.url.path.split("/")[1]
        name = hashlib.sha256(request_id.encode("utf-8", "surrogatepass")).hexdigest()
        meant = orjson.dumps(body.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS)
        digest = hashlib.sha256((path or self.request.url.path).encode() + b"\0" + meant).digest()
        return RequestKey(f"{door}-{name}", digest, self.state.services.settings.runs.idempotency_ttl_s)

    async def earlier(self, key: RequestKey | None) -> str | None:
        """Return the run that an earlier request with a key submitted, or the name that it gave to the rest of one.

        Raises:
            IdempotencyMismatch: It was another request.
        """
        if key is None:
            return None
        async with self.state.services.database.connection() as connection:
            return await find_made(connection, self.caller.tenant_id, key)

    async def submit(
        self,
        message: StatelessRunCreate,
        *,
        key: RequestKey | None = None,
        make_thread: MakeThread | None = None,
        with_run: WithRun | None = None,
    ) -> Begun:
        """Accept a message for a thread, for a new thread of an agent, or for one that is made with its run.

        Args:
            message: The message with the options of its run.
            key: Of the request: with it, a repeated one gets the same run.
            make_thread: For a message that names neither thread nor agent, makes or chooses its thread (`with_past`,
                `after`, `with_state`). What it writes is there only if the run is: a refusal leaves nothing.
            with_run: Writes what the message has beside (`with_push`), likewise.

        Raises:
            NovaError: It is refused; then there is no run.
        """
        acceptance = MessageAcceptance(self.state, self.caller, self.request, None)
        accepted, _ = await acceptance.submit(message, None, request=key, make_thread=make_thread, with_run=with_run)
        return Begun(accepted.run_id, accepted.thread_id, accepted.agent_id, accepted.replayed)

    async def with_past(
        self, agent_id: str, messages: Sequence[PastMessage], *, ephemeral: bool = False, label: str | None = None
    ) -> MakeThread:
        """Return the maker of a thread that begins with the messages of a conversation that the client keeps.

        Args:
            agent_id: The agent that the thread is of.
            messages: The conversation; may be empty.
            ephemeral: Whether the thread is.
            label: A name that no other thread of the tenant has. If one has, the maker raises `Conflict`, whose
                ``fields['field']`` is ``label``.

        Raises:
            InvalidInput: A message cannot be imported; names it as ``messages.<index>``.
        """
        services, tenant_id, creator = self.state.services, self.caller.tenant_id, self.caller.principal
        scaled = await scaled_messages(messages)

        def check() -> list[ImportedTurn]:
            max_chars = services.settings.api.max_message_chars
            return turns_of(checked_messages(scaled, max_chars=max_chars, now=services.clock.now()))

        # A long conversation takes some 0.1 s.
        turns = await asyncio.to_thread(check) if messages else []

        async def make(connection: Connection) -> str:
            thread = await create_thread(
                connection, tenant_id, agent_id, label=label, ephemeral=ephemeral, created_by=creator
            )
            if turns:
                await import_turns(connection, tenant_id, thread.id, thread.agent_id, turns, embed=False)
            return thread.id

        return make

    def in_thread(self, thread_id: str) -> MakeThread:
        """Return a maker for a thread that exists."""

        async def choose(_: Connection) -> str:
            return thread_id

        return choose

    def after(self, run_id: str, *, label: str | None = None) -> MakeThread:
        """Return the maker of the thread in which a message continues a run, as `thread_after`."""
        tenant_id, creator = self.caller.tenant_id, self.caller.principal
        return lambda connection: thread_after(connection, tenant_id, run_id, label=label, created_by=creator)

    def with_state(self, make_thread: MakeThread, offered: ThreadStateReplace) -> MakeThread:
        """Return a maker that also takes the state document that a client has, as `offer_state`.

        The change is in the audit log.
        """
        act_as(self.caller.actor())

        async def make(connection: Connection) -> str:
            thread_id = await make_thread(connection)
            await offer_state(connection, self.caller.tenant_id, thread_id, offered.state, version=offered.version)
            return thread_id

        return make
