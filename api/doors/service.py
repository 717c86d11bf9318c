"""What every door does: submit, follow, answer, cancel, items. It is all that a door calls."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from itertools import dropwhile
from typing import Annotated, Any, Final, NamedTuple

import orjson
import structlog
from fastapi import Depends, Request
from pydantic import BaseModel

from nova_workers.base.errors import ConfigurationError, Unavailable, missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.thread_states import ThreadStateReplace, ThreadStateView
from nova_workers.contracts.http.wire import AgentView, PastMessage, RunView, StatelessRunCreate, ThreadView
from nova_workers.contracts.ports import Embedder
from nova_workers.contracts.pushes import PushConfigCreate, PushConfigView
from nova_workers.contracts.runs import RequestKey
from nova_workers.contracts.waits import RunAnswer, ToolResult
from nova_workers.domain.delivery.rules.task_status import changed_at
from nova_workers.domain.idempotency.sql import find_made
from nova_workers.domain.runs.rules.submit import MakeThread, WithRun, thread_after
from nova_workers.domain.runs.rules.waiting import Within
from nova_workers.domain.runs.sql.changes import ChangedRuns, count_changed_runs, list_changed_runs
from nova_workers.domain.runs.sql.reads import RunState, get_run, list_thread_runs
from nova_workers.domain.threads.rules.past import turns_of
from nova_workers.domain.threads.rules.states import offer_state
from nova_workers.domain.threads.sql.importing import ImportedTurn, import_turns
from nova_workers.domain.threads.sql.items import (
    RunFacts,
    get_run_facts,
    load_contents_of_runs,
    load_run_contents,
    load_run_message,
    load_turn_contents,
)
from nova_workers.domain.threads.sql.lineage import list_turn_places
from nova_workers.domain.threads.sql.places import find_place, note_place
from nova_workers.domain.threads.sql.records import (
    create_thread,
    fork_thread,
    get_thread,
    list_threads,
    merge_thread_metadata,
    readdress_thread,
)
from nova_workers.domain.threads.sql.states import read_state
from nova_workers.domain.webhooks.sql.push_configs import delete_push_config, list_push_configs
from nova_workers.ledger.auditing import act_as
from nova_workers.ledger.database import Connection

from ..acceptance import MessageAcceptance, longest_wait_s, view_at_end
from ..auth import Caller, RunsCaller, SubmittingCaller
from ..errors import EmbeddingsOff
from ..pagination import PageRequest
from ..routes.runs.past_messages import checked_messages, scaled_messages
from ..state import ApiState, state_of
from ..streaming.following import Ending, Follower, Target
from ..streaming.stream_permits import StreamPermit
from ..submitting import given_results
from .items import Item, input_id, input_item, items_of, newest_event
from .streams import DoorStream, Writer

_log = structlog.get_logger(__name__)

_AGENTS_AT_ONCE: Final = 200
_LEAST_WAIT_S: Final = 0.001
"""The wait of a request whose time is over: 0 would be no limit of its own."""


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


class ItemPage(NamedTuple):
    """Items of a conversation, oldest first."""

    items: tuple[Item, ...]
    below_depth: int | None
    """Where the page before this one continues; None at the beginning of the conversation."""


class RecordedRun(NamedTuple):
    """A run with what the ledger has of it."""

    run: RunView
    facts: RunFacts
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Door:
    """The service for one request of a door.

    Attributes:
        caller: Who makes the request. All that is read and written is of its tenant.
    """

    state: ApiState
    caller: Caller
    request: Request

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

    async def submit_and_follow(
        self,
        message: StatelessRunCreate,
        writer_of: Callable[[Begun], Writer],
        *,
        key: RequestKey | None = None,
        make_thread: MakeThread | None = None,
    ) -> DoorStream:
        """Accept a message as `submit` does, and respond with what its run does.

        A refusal for too many streams creates no run.

        Raises:
            NovaError: It is refused; then there is no run.
        """
        async with self.stream_permit() as permit:
            begun = await self.submit(message, key=key, make_thread=make_thread)
            return await self.follow(begun.run_id, writer_of(begun), found=begun.state, permit=permit)

    def stream_permit(self) -> AbstractAsyncContextManager[StreamPermit]:
        """Hold a permit of a stream, for a request that changes something before its stream begins: see `follow`.

        Raises:
            TooManyStreams: All permits of the key are in use.
        """
        return self.state.permits.hold(self.caller.key_id)

    async def follow(
        self,
        run_id: str,
        writer: Writer,
        *,
        after: EventCursor | None = None,
        found: RunState | None = None,
        permit: StreamPermit | None = None,
    ) -> DoorStream:
        """Respond with what a run does, from its beginning or after an event that the client has.

        Args:
            run_id: Whose events are sent.
            writer: Writes the response.
            after: The event.
            found: The run's state, where it is known.
            permit: Is handed over to the stream. None to take one.

        Raises:
            NotFound: No such run in this tenant.
            CursorFromTheFuture: The cursor is beyond the run's newest event.
            TooManyStreams: All permits of the key are in use.
        """
        target = Target(self.caller.tenant_id, run_id, after or EventCursor())
        found = found or await self.state.follower.find(target)
        if permit is not None:
            return DoorStream(self.state, target, found, writer=writer, permit=permit.handed_over())
        async with self.stream_permit() as own:
            return DoorStream(self.state, target, found, writer=writer, permit=own.handed_over())

    async def watch(self, run_id: str, follower: Follower) -> Ending:
        """Pass the events of a run to a follower up to the final one, and return why it ended.

        The follower's response holds the permit of a stream.

        Raises:
            NotFound: No such run in this tenant.
        """
        target = Target(self.caller.tenant_id, run_id)
        return await self.state.follower.follow(target, await self.state.follower.find(target), follower)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunView:
        """Return a run when it has ended or asks its caller or a person; as it is then, if that takes too long.

        Of a message that joins another run's turn, it is that run, which answers it.

        Raises:
            NotFound: No such run in this tenant.
        """
        clock = self.state.services.clock
        until_s = clock.monotonic_s() + longest_wait_s(self.state, timeout_s)
        while True:
            left_s = max(until_s - clock.monotonic_s(), _LEAST_WAIT_S)
            run = await view_at_end(self.state, self.caller, self.request, run_id, timeout_s=left_s)
            if run.merged_into is None:
                return run
            run_id = run.merged_into

    async def run(self, run_id: str) -> RunView:
        """Return a run as it is now. Of a message that joined another run's turn, that run, which answers it.

        Raises:
            NotFound: No such run in this tenant.
        """
        async with self.state.services.database.connection() as connection:
            run = await get_run(connection, self.caller.tenant_id, run_id)
            while run.merged_into is not None:
                run = await get_run(connection, self.caller.tenant_id, run.merged_into)
        return run

    async def changed_runs(self, which: ChangedRuns, paging: PageRequest) -> Page[RunView]:
        """Return a page of an agent's runs, those that changed last first.

        Raises:
            InvalidCursor: The cursor is none of this list.
        """
        tenant_id = self.caller.tenant_id
        # A set has another order in each process.
        filters = (which.agent_id, which.thread_id, sorted(which.statuses), which.since)
        listing = paging.of_pairs(tenant_id, "changed_runs", str, str, *filters)
        before = None if listing.key is None else (datetime.fromisoformat(listing.key[0]), listing.key[1])
        async with self.state.services.database.connection() as connection:
            rows = await list_changed_runs(connection, tenant_id, which, before=before, limit=listing.rows)
        return listing.page(rows, lambda run: (changed_at(run).isoformat(), run.id))

    async def count_changed_runs(self, which: ChangedRuns, *, at_most: int) -> int:
        """Return how many of an agent's runs there are, up to `at_most`."""
        async with self.state.services.database.connection() as connection:
            return await count_changed_runs(connection, self.caller.tenant_id, which, at_most=at_most)

    async def facts(self, run_id: str) -> RunFacts:
        """Return the options of a run, the run before it and its tokens by step.

        Raises:
            NotFound: No such run in this tenant, or its thread was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await get_run_facts(connection, self.caller.tenant_id, run_id)

    async def new_thread(self, agent_id: str, metadata: Mapping[str, Any], *, label: str | None = None) -> ThreadView:
        """Make an empty conversation with an agent.

        Raises:
            NotFound: No such agent in this tenant.
            AgentRenamed: It has another id now.
            Conflict: Another thread has the label.
        """
        async with self.state.services.database.connection() as connection:
            return await create_thread(connection, self.caller.tenant_id, agent_id, label=label, metadata=metadata)

    async def readdress(self, thread_id: str, agent_id: str) -> ThreadView | None:
        """Make a conversation that has no run yet that of another agent. None if it has one, or there is no such agent.

        For protocols whose clients name the agent with the first message only.
        """
        async with self.state.services.database.connection() as connection:
            return await readdress_thread(connection, self.caller.tenant_id, thread_id, agent_id)

    async def merge_metadata(self, thread_id: str, metadata: Mapping[str, Any]) -> ThreadView:
        """Set keys of a conversation's metadata; the others stay.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await merge_thread_metadata(connection, self.caller.tenant_id, thread_id, metadata)

    async def fork(self, thread_id: str, *, label: str | None = None) -> ThreadView:
        """Make a conversation that continues after the last finished turn of this one.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
            Conflict: It has no finished turn, or another thread has the label.
        """
        async with self.state.services.database.connection() as connection:
            return await fork_thread(connection, self.caller.tenant_id, thread_id, label=label)

    async def threads(self, *, agent_id: str | None, before: str | None, limit: int) -> list[ThreadView]:
        """Return conversations, newest first, from before the thread `before`: of one agent, or of all."""
        async with self.state.services.database.connection() as connection:
            return await list_threads(connection, self.caller.tenant_id, agent_id=agent_id, before=before, limit=limit)

    async def runs_of_thread(self, thread_id: str, *, limit: int) -> list[RunView]:
        """Return the newest runs of a conversation in reverse order of its queue, without the data of images.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            await get_thread(connection, tenant_id, thread_id)
            rows = await list_thread_runs(connection, tenant_id, thread_id, before_seq=None, limit=limit, media=False)
        return [run for run, _ in rows]

    async def recorded(self, run_id: str, *, with_items: bool = True) -> RecordedRun:
        """Return a run with what the ledger has of it, by one connection.

        Raises:
            NotFound: No such run in this tenant, or its thread was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            facts = await get_run_facts(connection, tenant_id, run_id)
            run = await get_run(connection, tenant_id, run_id)
            items = await _items_of_run(connection, tenant_id, run_id) if with_items else ()
            return RecordedRun(run, facts, items)

    async def thread(self, thread_id: str) -> ThreadView:
        """Return a conversation.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await get_thread(connection, self.caller.tenant_id, thread_id)

    async def agents(self) -> tuple[AgentView, ...]:
        """Return the agents that the key may send messages to, by their ids.

        The scope of messages is enough: a client that may name any agent may know which there are.
        """
        found: list[AgentView] = []
        while page := await self.state.services.agents.list(
            self.caller.tenant_id, after=found[-1].id if found else None, limit=_AGENTS_AT_ONCE
        ):
            found += page
            if len(page) < _AGENTS_AT_ONCE:
                break
        return tuple(found)

    async def agent(self, agent_id: str) -> AgentView:
        """Return an agent that the key may send messages to.

        Raises:
            NotFound: No such agent in this tenant.
            Gone: It was deleted or renamed.
        """
        return await self.state.services.agents.get(self.caller.tenant_id, agent_id)

    async def note_place(self, digest: str, continued: str) -> None:
        """Keep what a conversation continues, for clients that send it whole and name it by nothing else.

        If that fails, the answer is sent all the same; the conversation is imported when it goes on.

        Args:
            digest: Of all that was said.
            continued: A name of the protocol's; `find_place` returns it.
        """
        try:
            async with self.state.services.database.connection() as connection:
                await note_place(connection, self.caller.tenant_id, digest, continued)
        except Unavailable as error:
            _log.warning("door.place_not_noted", continued=continued, error=str(error))

    async def find_place(self, digest: str) -> str | None:
        """Return the name of what a conversation continues; None if it is not known."""
        async with self.state.services.database.connection() as connection:
            return await find_place(connection, self.caller.tenant_id, digest)

    def embedding_model(self) -> str:
        """Return the name of the fleet's embedding model.

        Raises:
            EmbeddingsOff: It has none.
        """
        return self._embeddings.model

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector a text, in order. It counts as an open stream of the key while it takes.

        Raises:
            EmbeddingsOff: The fleet has no embedding model.
            Unavailable: It does not answer now.
            TooManyStreams: All permits of the key are in use.
        """
        async with self.state.permits.hold(self.caller.key_id):
            try:
                return await self._embeddings.embed(texts)
            except ConfigurationError as error:
                raise Unavailable("The embedding model cannot be used now.", cause=str(error)) from error

    @property
    def _embeddings(self) -> Embedder:
        embedder = self.state.services.embeddings
        if embedder is None:
            raise EmbeddingsOff(
                "This fleet has no embedding model: the operator installs the extra 'embeddings', or sets "
                "NOVA_EFFECTS__EMBEDDING_PROVIDER to a server that has one."
            )
        return embedder

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
        services, tenant_id = self.state.services, self.caller.tenant_id
        scaled = await scaled_messages(messages)

        def check() -> list[ImportedTurn]:
            max_chars = services.settings.api.max_message_chars
            return turns_of(checked_messages(scaled, max_chars=max_chars, now=services.clock.now()))

        # A long conversation takes some 0.1 s.
        turns = await asyncio.to_thread(check) if messages else []

        async def make(connection: Connection) -> str:
            thread = await create_thread(connection, tenant_id, agent_id, label=label, ephemeral=ephemeral)
            if turns:
                await import_turns(connection, tenant_id, thread.id, thread.agent_id, turns, embed=False)
            return thread.id

        return make

    async def labelled_thread(self, label: str) -> ThreadView | None:
        """Return the thread with a label: a protocol's own name of a conversation is one."""
        async with self.state.services.database.connection() as connection:
            found = await list_threads(connection, self.caller.tenant_id, label=label, limit=1)
        return found[0] if found else None

    def in_thread(self, thread_id: str) -> MakeThread:
        """Return a maker for a thread that exists."""

        async def choose(_: Connection) -> str:
            return thread_id

        return choose

    def after(self, run_id: str, *, label: str | None = None) -> MakeThread:
        """Return the maker of the thread in which a message continues a run, as `thread_after`."""
        return lambda connection: thread_after(connection, self.caller.tenant_id, run_id, label=label)

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

    async def thread_state(self, thread_id: str) -> ThreadStateView:
        """Return the state document of a thread.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await read_state(connection, self.caller.tenant_id, thread_id)

    async def answer(self, run_id: str, answer: RunAnswer, *, within: Within | None = None) -> RunView:
        """Answer a question of a run, or permit or refuse a call. The same may be given again. It is in the audit log.

        Raises:
            NovaError: As `Waiting.answer`.
        """
        act_as(self.caller.actor())
        waiting, tenant_id = self.state.services.waiting, self.caller.tenant_id
        return await waiting.answer(tenant_id, run_id, answer.wait_id, answer, within=within)

    async def give(
        self,
        run_id: str,
        *,
        results: Sequence[ToolResult] = (),
        answers: Sequence[RunAnswer] = (),
        key: RequestKey | None = None,
        made: str = "",
        within: Within | None = None,
    ) -> str:
        """Give a run results of calls that its caller executed, and answers, all or none. The same may be given again.

        Args:
            run_id: The run that waits.
            results: At most one for each call.
            answers: With their waits. They are in the audit log.
            key: Of the request. With it, a repeated one gives nothing.
            made: What the protocol calls the rest of the run, which a repeated request finds by `earlier`.
            within: Writes what the request has beside, as of `Waiting.give`.

        Returns:
            `made`, or what an earlier request with the key made.

        Raises:
            NovaError: As `Waiting.give`.
        """
        if answers:
            act_as(self.caller.actor())
        given = await given_results(results, max_chars=self.state.services.settings.api.max_message_chars)
        taken = await self.state.services.waiting.give(
            self.caller.tenant_id,
            run_id,
            results=given,
            answers={answer.wait_id or "": answer for answer in answers},
            request=key,
            made_id=made,
            within=within,
        )
        return taken.made_id

    def offering(self, thread_id: str, offered: ThreadStateReplace) -> Within:
        """Return the writer, for an answer or results, of the state document that a client has, as `offer_state`.

        The change is in the audit log.
        """
        act_as(self.caller.actor())

        async def offer(connection: Connection) -> None:
            await offer_state(connection, self.caller.tenant_id, thread_id, offered.state, version=offered.version)

        return offer

    def with_push(self, given: PushConfigCreate) -> WithRun:
        """Return the writer of an address that gets the changes of the run that is made with it.

        It is in the audit log.

        Raises:
            InvalidInput: Deliveries to the address are not allowed.
        """
        act_as(self.caller.actor())
        return self.state.services.pushes.adding(self.caller.tenant_id, given)

    async def put_push(self, run_id: str, given: PushConfigCreate) -> PushConfigView:
        """Let an address get the changes of a run, or replace the one of its name. It is in the audit log.

        Raises:
            NovaError: As `Pushes.put`.
        """
        act_as(self.caller.actor())
        return await self.state.services.pushes.put(self.caller.tenant_id, run_id, given)

    async def pushes(self, run_id: str) -> list[PushConfigView]:
        """Return the addresses that get the changes of a run."""
        async with self.state.services.database.connection() as connection:
            return await list_push_configs(connection, self.caller.tenant_id, run_id)

    async def delete_push(self, run_id: str, name: str) -> None:
        """Delete an address of a run; one that is not there is deleted already. It is in the audit log."""
        act_as(self.caller.actor())
        async with self.state.services.database.connection() as connection:
            await delete_push_config(connection, self.caller.tenant_id, run_id, name)

    async def cancel(self, run_id: str) -> RunView:
        """Cancel a run. Canceling twice changes nothing. It is in the audit log.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: It ended otherwise.
        """
        act_as(self.caller.actor())
        return await self.state.services.canceller.cancel(self.caller.tenant_id, run_id)

    async def delete_run(self, run_id: str) -> None:
        """Delete the thread of a run that is alone in it, and cancel the run if it is open.

        Raises:
            NotFound: No such run in this tenant.
            Gone: The thread was deleted before.
            Conflict: Other runs are in the thread.
        """
        await self.state.services.canceller.delete_only_run(self.caller.tenant_id, run_id)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a conversation, and cancel its open runs.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted before.
        """
        await self.state.services.canceller.delete_thread(self.caller.tenant_id, thread_id)

    async def items(self, run_id: str) -> tuple[Item, ...]:
        """Return the committed items of a run, in order, with its message first.

        Of a message that joined another run's turn, it is what that turn has from the message on.

        Raises:
            NotFound: No such run in this tenant.
        """
        async with self.state.services.database.connection() as connection:
            return await _items_of_run(connection, self.caller.tenant_id, run_id)

    async def newest_event(self, run_id: str) -> EventCursor:
        """Return the event after which a client that knows the committed items of a run follows the rest of it."""
        async with self.state.services.database.connection() as connection:
            turn = await load_run_contents(connection, self.caller.tenant_id, run_id)
        return EventCursor() if turn is None else newest_event(turn)

    async def items_of_runs(self, run_ids: Collection[str]) -> list[tuple[Item, ...]]:
        """Return the committed items of the runs that there are and whose turns have begun, in one read."""
        async with self.state.services.database.connection() as connection:
            turns = await load_contents_of_runs(connection, self.caller.tenant_id, run_ids)
        return [items_of(turn) for turn in turns]

    async def items_of_thread(self, thread_id: str, *, below_depth: int | None = None, turns: int = 20) -> ItemPage:
        """Return the items of the newest turns of a conversation, with those that a fork inherited.

        A page has up to `turns` of them; `below_depth` is that of an earlier page.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            await get_thread(connection, tenant_id, thread_id)
            page = await list_turn_places(connection, tenant_id, thread_id, below_depth=below_depth, limit=turns + 1)
            shown = page[:turns]
            contents = await load_turn_contents(connection, tenant_id, [turn.id for turn in shown])
        items = tuple(item for turn in contents for item in items_of(turn))
        return ItemPage(items, shown[-1].depth if len(page) > turns else None)


async def _items_of_run(connection: Connection, tenant_id: str, run_id: str) -> tuple[Item, ...]:
    turn = await load_run_contents(connection, tenant_id, run_id)
    found = () if turn is None else items_of(turn)
    if found and found[0].step < 0:
        return found
    message = await load_run_message(connection, tenant_id, run_id)
    if message is None:
        raise missing("run", run_id)
    if message.merged_into is not None:
        turn = await load_run_contents(connection, tenant_id, message.merged_into)
        whole = () if turn is None else items_of(turn)
        found = tuple(dropwhile(lambda item: item.id != input_id(run_id), whole))[1:]
    return (input_item(run_id, message.content), *found)


async def _sending_door(request: Request, caller: SubmittingCaller) -> Door:
    return Door(state_of(request), caller, request)


async def _door(request: Request, caller: RunsCaller) -> Door:
    return Door(state_of(request), caller, request)


SendingDoor = Annotated[Door, Depends(_sending_door)]
"""The door of a route that submits, whose record is the run."""

AnyDoor = Annotated[Door, Depends(_door)]
"""The door of any other route: its changes are in the audit log."""
