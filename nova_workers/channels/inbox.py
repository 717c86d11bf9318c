"""Delivers what agents hand over beside their answers: notifications, files, notes, and questions of other runs."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

import structlog

from nova_workers.base.errors import Forbidden, Gone, NotFound, TooManyRequests, Unavailable
from nova_workers.channels.journal import InboxMark, Journal, OpenUpdate
from nova_workers.channels.port import File, Origin, Reply
from nova_workers.channels.replies import question_reply, text_reply
from nova_workers.client.client import NovaClient
from nova_workers.contracts.deliveries import DeliveryView

_log = structlog.get_logger(__name__)

_LATE = timedelta(minutes=2)
"""An item may become visible this long after newer ones: its transaction was longer."""
_PAGE = 50
_AT_ONCE = 20
_MAX_OPEN = 200
"""Above so many replies that are not delivered, no more items are taken: the journal's state stays small."""
_AFTER_FAULT_S = 30.0


class Home(NamedTuple):
    """Where items go whose thread is of no conversation, such as those of triggers.

    Attributes:
        conversation: The conversation; None drops such items.
        only_agent: Only items of this agent; None is every agent,
        but_agents: except these, which have channels of their own.
    """

    conversation: str | None = None
    only_agent: str | None = None
    but_agents: frozenset[str] = frozenset()

    def takes(self, agent_id: str | None) -> bool:
        """Return whether items of an agent go there."""
        if self.conversation is None or agent_id in self.but_agents:
            return False
        return self.only_agent is None or agent_id == self.only_agent


class InboxFeed:
    """Reads the inbox in short intervals, and starts the delivery of each new item once."""

    def __init__(self, client: NovaClient, journal: Journal, channel: str, home: Home, *, every_s: float = 2.0) -> None:
        """Prepare the feed.

        Args:
            client: Of the tenant. Its key needs the scope `workspace`.
            journal: Remembers which items were taken.
            channel: The channel's name.
            home: For items of threads that are of no conversation.
            every_s: Interval of the reads.
        """
        self._client = client
        self._journal = journal
        self._channel = channel
        self._home = home
        self._every_s = every_s

    async def run(self, start: Callable[[OpenUpdate], None]) -> None:
        """Read until canceled; end if the key may not read the inbox."""
        while True:
            try:
                for item in await self._read():
                    start(item)
            except Forbidden as error:
                _log.warning("channel.inbox_not_read", channel=self._channel, error=error.message)
                return
            except (Unavailable, TooManyRequests) as error:
                _log.debug("channel.api_away", channel=self._channel, error=error.message)
            except Exception:
                _log.exception("channel.inbox_failed", channel=self._channel)
                await asyncio.sleep(_AFTER_FAULT_S)
            await asyncio.sleep(self._every_s)

    async def _read(self) -> list[OpenUpdate]:
        """Return new items of this channel, recorded in the journal: the oldest ones, in a bounded number."""
        mark = self._journal.inbox
        if len(self._journal.open_updates) >= _MAX_OPEN:
            return []
        found = await self._new_items(mark)
        if mark is not None:
            found = found[-_AT_ONCE:]
            if not found:
                return []
        seen = {**({} if mark is None else mark.seen), **{item.id: item.created_at for item in found}}
        since = max(seen.values()) - _LATE if seen else None
        kept = {item_id: at for item_id, at in seen.items() if since is None or at >= since}
        items: list[OpenUpdate] = []
        if mark is not None:
            # Items from before the first start are not delivered: they may be old.
            for item in reversed(found):
                origin = await self._origin(item)
                if origin is not None:
                    items.append(OpenUpdate(origin=origin, is_item=True))
        await self._journal.accept_items(tuple(items), InboxMark(since=since, seen=kept))
        return items

    async def _new_items(self, mark: InboxMark | None) -> list[DeliveryView]:
        """Return items that were not seen, newest first; before the first time a page of them."""
        found: list[DeliveryView] = []
        cursor: str | None = None
        while True:
            page = await self._client.deliveries.list(limit=_PAGE, cursor=cursor)
            for item in page.items:
                if mark is not None and mark.since is not None and item.created_at < mark.since:
                    return found
                if mark is None or item.id not in mark.seen:
                    found.append(item)
            cursor = page.next_cursor
            if mark is None or cursor is None:
                return found

    async def reply(self, origin: Origin) -> Reply | None:
        """Return the reply to deliver for an item that was recorded; None if there is none any more."""
        try:
            return await self._reply(origin, await self._client.deliveries.get(origin.id))
        except (NotFound, Gone):
            return None

    async def _origin(self, item: DeliveryView) -> Origin | None:
        """Return where an item goes; None if it is not for this channel."""
        conversation = await self._conversation(item) if item.status == "pending" else None
        if conversation is None:
            return None
        return Origin(id=item.id, conversation=conversation, sender=item.agent_id or "fleet")

    async def _conversation(self, item: DeliveryView) -> str | None:
        """Return the conversation of an item's thread, else the home."""
        if item.thread_id is not None:
            try:
                metadata = (await self._client.threads.get(item.thread_id)).metadata
            except (NotFound, Gone):
                metadata = {}
            if metadata.get("channel") == self._channel and isinstance(metadata.get("to"), str):
                return metadata["to"]
            if "channel" in metadata:
                return None
        return self._home.conversation if self._home.takes(item.agent_id) else None

    async def _reply(self, origin: Origin, item: DeliveryView) -> Reply | None:
        payload = item.payload
        match item.kind:
            case "notification":
                return text_reply("notification", origin, str(payload["text"]))
            case "file":
                file = File(
                    id=payload["file_id"],
                    name=payload["name"],
                    media_type=payload["media_type"],
                    size_bytes=payload["size_bytes"],
                )
                caption = str(payload.get("caption") or "")
                return text_reply("notification", origin, caption).model_copy(update={"file": file})
            case "note":
                return await self._note(origin, payload["note_id"])
            case "question" | "approval":
                return await self._question(origin, item, payload["wait_id"])
            case _:
                return None

    async def _note(self, origin: Origin, note_id: str) -> Reply | None:
        note = await self._client.notes.get(note_id)
        return text_reply("notification", origin, f"**{note.title}**\n\n{note.content}")

    async def _question(self, origin: Origin, item: DeliveryView, wait_id: str) -> Reply | None:
        """Return a question of a run that no conversation of this channel follows."""
        if item.run_id is None:
            return None
        run = await self._client.runs.get(item.run_id)
        if run.metadata.get("channel") == self._channel:
            return None
        return next((question_reply(origin, wait) for wait in run.waits if wait.id == wait_id), None)
