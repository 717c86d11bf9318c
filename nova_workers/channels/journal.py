"""What a channel must not forget, in the fleet: which process serves it, and which replies are not delivered yet.

A `Journal` is a lease of the fleet with a state. One process of several holds it and serves the channel; if it dies,
the next one acquires the lease when it expires and continues: it follows the open runs, and edits the messages that
were sent already instead of sending them again.
"""

import asyncio
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import structlog
from pydantic import BaseModel, ConfigDict, Field

from nova_workers.base.errors import Conflict, Forbidden, NovaError, TooManyRequests, Unauthenticated, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.channels.port import Origin, Reply
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.leases import MAX_PAUSE_S, LeasePause, LeaseRequest, LeaseView

_log = structlog.get_logger(__name__)

_KEPT_UPDATES = 500
"""Ids of updates that were accepted, which the channel may bring again: above one batch of any channel."""
_MAX_ERROR_CHARS = 500
_PAUSES = Retry(base_s=0.2, max_s=2.0)
_SAFE_PART = 2 / 3
"""Of a lease's time after which its holder stops, since the clocks of two machines do not run alike."""


class OpenUpdate(BaseModel):
    """An update, or an item of the inbox, whose reply is not delivered yet.

    Attributes:
        run_id: The run to follow, whose answer is the reply.
        is_item: The reply is the item of the inbox with the origin's id, and is read when it is delivered.
        reply: The reply itself, if it is known.
        messages: Ids of the channel's messages that show a reply, by the id of the reply.
    """

    model_config = ConfigDict(frozen=True)

    origin: Origin
    run_id: str | None = None
    is_item: bool = False
    reply: Reply | None = None
    messages: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])


class InboxMark(BaseModel):
    """How far the inbox was read: all items older than `since` were seen, and those of `seen`."""

    model_config = ConfigDict(frozen=True)

    since: datetime | None = None
    seen: dict[str, datetime] = Field(default_factory=dict[str, datetime])


class _State(BaseModel):
    open: dict[str, OpenUpdate] = Field(default_factory=dict[str, OpenUpdate])
    accepted: list[str] = Field(default_factory=list[str])
    inbox: InboxMark | None = None


@dataclass(frozen=True, slots=True)
class _Pause:
    """Why the channel pauses.

    Attributes:
        until_s: On the monotonic clock.
        has_stopped: Whether serving it ended, and begins again after the pause.
    """

    error: str
    until_s: float
    has_stopped: bool = False

    def reported(self) -> LeasePause:
        words = "".join(each if each.isprintable() else " " for each in self.error)
        left_s = min(max(self.until_s - time.monotonic(), 0.0), MAX_PAUSE_S)
        return LeasePause(error=" ".join(words.split())[:_MAX_ERROR_CHARS] or "unknown", next_try_s=left_s)


class Journal:
    """The lease of one channel, and its state. Each change is written before its method returns.

    Implements `SentMessages` and `Rests`. Why the channel pauses is reported with the next renewal of the lease, whose
    answer also has what an operator asked for: both take seconds.
    """

    def __init__(self, client: NovaClient, name: str, *, ttl_s: float = 15.0) -> None:
        """Prepare a journal; `acquire` comes first.

        Args:
            client: Of the tenant. Its key needs the scope `channels`.
            name: The lease's name. Processes with the same name exclude each other.
            ttl_s: The channel passes to another process this long after its holder crashed.
        """
        self._client = client
        self._name = name
        self._ttl_s = ttl_s
        self._holder = f"{socket.gethostname()} pid {os.getpid()} {new_id('evt')[-6:]}"
        self._token: str | None = None
        self._pause: _Pause | None = None
        self._retry_requested_at: datetime | None = None
        self._to_try_now = asyncio.Event()
        self._renewed_s = 0.0
        self._state = _State()
        self._saving = asyncio.Lock()
        self._changes = 0
        self._saved = 0

    async def acquire(self) -> None:
        """Wait until no other process holds the lease, and acquire it with the state of its last holder."""
        is_waiting = False
        while True:
            began_s = time.monotonic()
            try:
                lease = await self._put(LeaseRequest(holder=self._holder, ttl_s=self._ttl_s))
            except Conflict as error:
                if not is_waiting:
                    _log.info("channel.standby", lease=self._name, why=error.message)
                is_waiting = True
            except (Unauthenticated, Forbidden):
                raise
            except NovaError as error:
                _log.warning("channel.api_away", outage="api", lease=self._name, error=error.message)
            else:
                self._token, self._renewed_s = lease.token, began_s
                self._state = _State.model_validate(lease.state)
                self._changes = self._saved = 0
                _log.info("channel.acquired", lease=self._name, fence=lease.fence, open=len(self._state.open))
                return
            await asyncio.sleep(min(1.0, self._ttl_s / 3))

    async def keep(self) -> None:
        """Renew the lease; return when it is lost, since another process has it or it could not be renewed in time."""
        while True:
            await asyncio.sleep(self._ttl_s / 4)
            problem = "no answer in time"
            try:
                # Not longer than another process waits: a client waits for an answer longer than a lease lasts.
                async with asyncio.timeout(self._safe_for_s()):
                    await self._renew()
            except TimeoutError:
                pass
            except (Conflict, Unauthenticated, Forbidden) as error:
                _log.warning("channel.lease_lost", lease=self._name, error=error.message)
                return
            except NovaError as error:
                problem = error.message
            if self._safe_for_s() <= 0:
                _log.warning("channel.lease_lost", lease=self._name, error=problem)
                return

    async def release(self) -> None:
        """Let another process acquire the lease at once, if this one still holds it."""
        try:
            await self._put(LeaseRequest(holder=self._holder, ttl_s=0, token=self._token))
        except (Conflict, Unavailable, TooManyRequests) as error:
            _log.info("channel.lease_not_released", lease=self._name, error=error.message)

    async def rest(self, error: str, for_s: float) -> None:
        """See `Rests.rest`."""
        self._pause = _Pause(error, time.monotonic() + for_s)
        self._to_try_now.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self._to_try_now.wait()

    def works(self) -> None:
        """See `Rests.works`."""
        self._pause = None

    def has_stopped(self, error: str, again_s: float) -> None:
        """Report with the release that the channel stopped, and is served again after a pause."""
        self._pause = _Pause(error, time.monotonic() + again_s, has_stopped=True)

    def has_recovered(self) -> None:
        """Report that a channel which had stopped is served again."""
        if self._pause is not None and self._pause.has_stopped:
            self._pause = None

    @property
    def open_updates(self) -> tuple[OpenUpdate, ...]:
        """The updates whose replies are not delivered, oldest first."""
        return tuple(self._state.open.values())

    @property
    def inbox(self) -> InboxMark | None:
        """How far the inbox was read; None before the first time."""
        return self._state.inbox

    def is_accepted(self, update_id: str) -> bool:
        """Return whether an update is recorded, so that it has had its effect."""
        return update_id in self._state.accepted or update_id in self._state.open

    def messages(self, reply: Reply) -> tuple[str, ...]:
        """Return the channel's messages that show a reply."""
        found = self._state.open.get(reply.update_id)
        return () if found is None else found.messages.get(reply.id, ())

    async def add_message(self, reply: Reply, message_id: str) -> None:
        """Record a message that shows a reply, so that it is edited from now on."""
        found = self._state.open.get(reply.update_id)
        if found is not None:
            sent = {**found.messages, reply.id: (*self.messages(reply), message_id)}
            self._state.open[reply.update_id] = found.model_copy(update={"messages": sent})
            await self._save()

    async def accept(self, update: OpenUpdate) -> None:
        """Record that an update had its effect, and what replies to it."""
        self._state.accepted = [*self._state.accepted[1 - _KEPT_UPDATES :], update.origin.id]
        if update.run_id is not None or update.reply is not None:
            self._state.open[update.origin.id] = update
        await self._save()

    async def settle(self, update_id: str) -> None:
        """Forget an update whose reply was delivered."""
        left = self._state.open.pop(update_id, None)
        if left is not None:
            try:
                await self._save()
            except BaseException:
                # Its messages are still known, so that a repetition edits them.
                self._state.open[update_id] = left
                raise

    async def replace_message(self, reply: Reply, old_id: str, new_id: str) -> None:
        """Record that another message shows a part of a reply, since the old one was deleted."""
        found = self._state.open.get(reply.update_id)
        if found is not None:
            shown = tuple(new_id if message_id == old_id else message_id for message_id in self.messages(reply))
            sent = {**found.messages, reply.id: shown}
            self._state.open[reply.update_id] = found.model_copy(update={"messages": sent})
            await self._save()

    async def drop_messages(self, reply: Reply) -> None:
        """Forget the messages that show a reply, which are there no longer."""
        found = self._state.open.get(reply.update_id)
        if found is not None and reply.id in found.messages:
            left = {key: sent for key, sent in found.messages.items() if key != reply.id}
            self._state.open[reply.update_id] = found.model_copy(update={"messages": left})
            await self._save()

    async def accept_items(self, items: tuple[OpenUpdate, ...], mark: InboxMark) -> None:
        """Record items of the inbox that are to be delivered, and how far it was read.

        If that fails, the items are as if they had not been read.
        """
        before = self._state.inbox
        self._state.open |= {item.origin.id: item for item in items}
        self._state.inbox = mark
        try:
            await self._save()
        except BaseException:
            self._state.inbox = before
            for item in items:
                self._state.open.pop(item.origin.id, None)
            raise

    async def _save(self) -> None:
        """Write the state. Changes that wait for each other are written together."""
        self._changes += 1
        mine = self._changes
        async with self._saving:
            if self._saved >= mine:
                return
            upto, state, failures = self._changes, self._state.model_dump(mode="json"), 0
            while True:
                try:
                    await self._renew(state)
                except (Unavailable, TooManyRequests):
                    # Also when another process may have the lease: then its token is refused, and `keep` ends.
                    failures += 1
                    await asyncio.sleep(_PAUSES.delay_s(failures))
                else:
                    self._saved = upto
                    return

    async def _renew(self, state: dict[str, object] | None = None) -> None:
        began_s = time.monotonic()
        await self._put(LeaseRequest(holder=self._holder, ttl_s=self._ttl_s, token=self._token, state=state))
        self._renewed_s = began_s

    def _safe_for_s(self) -> float:
        """Return for how long no other process can have the lease."""
        return self._renewed_s + self._ttl_s * _SAFE_PART - time.monotonic()

    async def _put(self, request: LeaseRequest) -> LeaseView:
        pause = None if self._pause is None else self._pause.reported()
        lease = await self._client.leases.put(self._name, request.model_copy(update={"pause": pause}))
        if lease.retry_requested_at != self._retry_requested_at:
            self._retry_requested_at = lease.retry_requested_at
            self._to_try_now.set()
        return lease
