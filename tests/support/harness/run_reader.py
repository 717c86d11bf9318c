"""A client of event streams that loses its connection at random, and checks what it gets."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import httpx2
import orjson

from nova_workers.client.run_text import RunText
from nova_workers.contracts.events import EventCursor, event_adapter
from nova_workers.ledger.database import Database

_PAUSE_S = 0.05


@dataclass
class RunReader:
    """Reads a run to its end by the rules for clients. It reads the frames itself: our client skips ids that do not
    grow.

    Attributes:
        cut_after: Events of one connection, at the most; then the reader connects again. None: it keeps its connection.
        pause_s: Time before each event is taken: a slow reader.
        seen: Types of the events, in order.
    """

    url: str
    key: str
    run_id: str
    cut_after: int | None = None
    seed: int = 0
    pause_s: float = 0.0
    text: RunText = field(default_factory=RunText)
    last: EventCursor = field(default_factory=EventCursor)
    seen: list[str] = field(default_factory=list[str])
    is_over: bool = False

    async def read(self) -> None:
        """Read until the run has ended."""
        chance = random.Random(self.seed)
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, verify=False) as client:
            while not self.is_over:
                try:
                    await self._connect(client, None if self.cut_after is None else chance.randint(1, self.cut_after))
                except httpx2.HTTPError:
                    await asyncio.sleep(_PAUSE_S)

    async def _connect(self, client: httpx2.AsyncClient, events: int | None) -> None:
        after = {"Last-Event-ID": str(self.last)} if self.seen else {}
        async with client.stream("GET", f"/v1/runs/{self.run_id}/events", headers=after) as answer:
            if answer.status_code >= 500:
                answer.raise_for_status()
            assert answer.status_code == 200, (self.last, await answer.aread())
            left = events
            async for frame in httpx2.EventSource(answer):
                self._take(frame.id, frame.data)
                left = None if left is None else left - 1
                if self.is_over or left == 0:
                    return
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)

    def _take(self, id_: str, data: str) -> None:
        cursor = EventCursor.parse(id_)
        assert cursor.key() > self.last.key(), f"after {self.last} came {id_}: {data}"
        self.last = cursor
        event = event_adapter.validate_python(orjson.loads(data))
        self.text.feed(event)
        self.seen.append(event.type)
        self.is_over = event.type == "stream_end" and event.final


async def committed_texts(database: Database, run_id: str) -> tuple[str, ...]:
    """Return the texts of a run's steps, as the ledger has them; without steps that have none."""
    rows = await database.fetch(
        "SELECT m.step, m.content FROM messages m JOIN turns t ON t.id = m.turn_id"
        " WHERE t.run_id = :run_id AND m.kind = 'response' ORDER BY m.seq",
        run_id=run_id,
    )
    texts = ("".join(block["text"] for block in row["content"] if block["type"] == "text") for row in rows)
    return tuple(text for text in texts if text)
