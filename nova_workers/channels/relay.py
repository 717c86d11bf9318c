"""What all inbound channels share: each update has its effect once, and its replies are delivered until they arrive.

Without a journal, an update is `done` when its answer was delivered. If the process dies before, the channel brings the
update again: it is submitted under the same key, which returns the same run, and the run's answer is delivered, perhaps
a second time but under the same id.

With a journal, an update is `done` when the fleet has it and the journal knows what replies to it. After a crash the
next process continues from the journal.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

import structlog

from nova_workers.base.errors import (
    ConfigurationError,
    DeliveryFailed,
    Forbidden,
    Gone,
    NotFound,
    NovaError,
    Rejected,
    Unauthenticated,
)
from nova_workers.base.stopping import stop_tasks
from nova_workers.channels.allow_list import AllowList
from nova_workers.channels.commands import Commands
from nova_workers.channels.conversations import Conversations
from nova_workers.channels.delivering import Deliverer
from nova_workers.channels.following import RunFollower
from nova_workers.channels.inbox import InboxFeed
from nova_workers.channels.journal import Journal, OpenUpdate
from nova_workers.channels.port import InboundChannel, Origin, Update
from nova_workers.channels.replies import chosen_reply, rated_reply, text_reply
from nova_workers.channels.wording import FAULT, refusal_words
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry

_log = structlog.get_logger(__name__)

_PATIENCE = Retry(attempts=10, base_s=0.5, max_s=30.0)
"""The patience with replies: about two minutes. The API is waited for without an end, with the same pauses."""


class _Record(Protocol):
    """Where it is kept that the reply to an update is not delivered yet."""

    def is_accepted(self, update_id: str) -> bool: ...

    async def accept(self, update: OpenUpdate) -> None: ...

    async def settle(self, origin: Origin) -> None: ...


class Relay:
    """Serves one channel: submits its updates, follows their runs, and delivers the replies."""

    def __init__(
        self,
        client: NovaClient,
        channel: InboundChannel,
        *,
        agent_id: str,
        senders: Collection[str] | AllowList,
        patience: Retry = _PATIENCE,
        journal: Journal | None = None,
        inbox: InboxFeed | None = None,
        may_choose_agents: bool = True,
        hidden_agents: Collection[str] = (),
    ) -> None:
        """Serve a channel.

        Args:
            client: Of the tenant. Its key needs the scope `runs`.
            channel: The channel, which is closed at the end.
            agent_id: The agent of new conversations.
            senders: Who may write; an asterisk permits everyone. Updates of others are dropped and logged.
            patience: Pauses between attempts, and how often a reply is delivered before the update stays undone.
            journal: Of a channel that one process serves at a time; it is acquired already.
            inbox: With a journal: delivers what agents hand over beside their answers.
            may_choose_agents: Whether a person may change a conversation's agent.
            hidden_agents: Agents that are not offered to people.
        """
        self._client = client
        self._channel = channel
        self._senders = senders if isinstance(senders, AllowList) else AllowList(senders)
        self._conversations = Conversations(client, channel.name, agent_id)
        only_agent = agent_id if not may_choose_agents else None
        self._commands = Commands(client, self._conversations, only_agent, frozenset(hidden_agents))
        self._patience = patience
        self._deliverer = Deliverer(client, channel, patience)
        self._journal = journal
        self._record: _Record = _Unrecorded(channel) if journal is None else _Recorded(channel, journal)
        self._inbox = inbox
        self._open: dict[asyncio.Task[None], asyncio.Event] = {}

    async def run(self) -> None:
        """Serve until the channel ends, and each open run has ended or waits for a person. Cancel it to stop sooner.

        Raises:
            ConfigurationError: There is no such agent.
            Unauthenticated: The API does not know the key.
            Forbidden: The key lacks the scope.
        """
        tasks: list[asyncio.Task[object]] = []
        try:
            # A key that is not valid should show before the first message comes.
            await self._deliverer.answered(lambda: self._client.threads.list(limit=1))
            for left in () if self._journal is None else self._journal.open_updates:
                self._start(left)
            if self._inbox is not None:
                tasks.append(asyncio.create_task(self._inbox.run(self._start), name=f"inbox-{self._channel.name}"))
            async for update in self._channel.updates():
                await self._accept(update)
            for task, settled in [*self._open.items()]:
                waiting = asyncio.create_task(settled.wait())
                tasks.append(waiting)
                await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            await stop_tasks([*tasks, *self._open])
            await self._channel.close()

    async def _accept(self, update: Update) -> None:
        """Give one update its effect. Updates are accepted in their order; only their runs are concurrent."""
        if self._record.is_accepted(update.id):
            await self._channel.done(update)
            return
        if not self._senders.permits(update.sender):
            _log.warning("channel.sender_refused", channel=self._channel.name, sender=update.sender)
            opened = OpenUpdate(origin=update.origin())
        else:
            try:
                opened = await self._deliverer.answered(lambda: self._effect(update))
            except (Unauthenticated, Forbidden):
                # The updates that remain are not lost: they come again when the cause is removed.
                raise
            except ConfigurationError as error:
                # There is no such agent.
                if self._journal is None:
                    raise
                _log.error("channel.update_refused", channel=self._channel.name, error=error.message)
                opened = _refused(update, error.message)
            except Rejected as error:
                opened = _refused(update, refusal_words(error))
            except NovaError:
                # A fault of the API that this update meets. It does not stop those of other people.
                _log.exception("channel.update_failed", channel=self._channel.name, update_id=update.id)
                if self._journal is None:
                    return
                opened = _refused(update, FAULT)
        await self._record.accept(opened)
        self._start(opened)

    async def _effect(self, update: Update) -> OpenUpdate:
        """Submit an update, or do what it commands; return what replies to it."""
        if update.refusal is not None:
            return _refused(update, update.refusal)
        if update.command is not None:
            return OpenUpdate(origin=update.origin(), reply=await self._commands.obey(update, update.command))
        if update.rating is not None and update.run_id is not None:
            await self._conversations.rate(update, update.run_id, update.rating)
            shown = rated_reply(update.origin(), update.run_id, update.rating)
            return OpenUpdate(origin=update.origin(), reply=shown)
        submitted = await self._conversations.submit(update)
        shown = None if submitted.chosen is None else chosen_reply(update.origin(), submitted.chosen)
        return OpenUpdate(origin=update.origin(), run_id=submitted.run_id, reply=shown)

    def _start(self, opened: OpenUpdate) -> None:
        """Bring an update to its end, in a task of its own."""
        settled = asyncio.Event()

        task = asyncio.create_task(self._finish_in_the_end(opened, settled), name=f"channel-{self._channel.name}")
        self._open[task] = settled
        task.add_done_callback(lambda ended: self._open.pop(ended, None))

    async def _finish_in_the_end(self, opened: OpenUpdate, settled: asyncio.Event) -> None:
        """Finish an update despite faults. Without a journal it stays undone, and comes again after a restart."""
        failures = 0
        while True:
            try:
                await self._finish(opened, settled)
            except DeliveryFailed as error:
                _log.warning("channel.update_not_done", channel=self._channel.name, error=error.message)
            except Exception:
                _log.exception("channel.update_failed", channel=self._channel.name, update_id=opened.origin.id)
            else:
                return
            if self._journal is None:
                return
            failures += 1
            await asyncio.sleep(self._patience.delay_s(failures))

    async def _finish(self, opened: OpenUpdate, settled: asyncio.Event) -> None:
        """Follow the run of an update, deliver the last reply, and settle the update."""
        reply = opened.reply
        if opened.run_id is not None:
            follower = RunFollower(
                self._client,
                self._conversations,
                self._deliverer,
                opened.origin,
                opened.run_id,
                shown=opened.messages,
            )
            try:
                reply = await follower.follow(settled)
            except (NotFound, Gone):
                words = "The conversation was deleted, so there is no answer."
                reply = text_reply("failure", opened.origin, words, opened.run_id)
        if opened.is_item and self._inbox is not None:
            inbox = self._inbox
            reply = await self._deliverer.answered(lambda: inbox.reply(opened.origin))
        if reply is None or await self._deliverer.deliver(reply):
            await self._record.settle(opened.origin)


class _Unrecorded:
    """The journal of a channel that keeps its updates until they are answered."""

    def __init__(self, channel: InboundChannel) -> None:
        self._channel = channel

    def is_accepted(self, update_id: str) -> bool:
        return False

    async def accept(self, update: OpenUpdate) -> None:
        pass

    async def settle(self, origin: Origin) -> None:
        await self._channel.done(origin)


class _Recorded:
    """Of a channel with a journal, which forgets an update when that is recorded."""

    def __init__(self, channel: InboundChannel, journal: Journal) -> None:
        self._channel = channel
        self._journal = journal

    def is_accepted(self, update_id: str) -> bool:
        return self._journal.is_accepted(update_id)

    async def accept(self, update: OpenUpdate) -> None:
        await self._journal.accept(update)
        await self._channel.done(update.origin)

    async def settle(self, origin: Origin) -> None:
        await self._journal.settle(origin.id)


def _refused(update: Update, why: str) -> OpenUpdate:
    return OpenUpdate(origin=update.origin(), reply=text_reply("refusal", update.origin(), why))
