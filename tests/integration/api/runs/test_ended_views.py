"""Requests that wait are answered from a run's last event where that tells all, and always as the ledger has it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from redis.asyncio import Redis

from api import acceptance
from api.streaming.ended_views import ended_view
from nova_workers.base.config import Settings
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.streams.rules.wire import LiveEvent, decode, encode, message_digest
from nova_workers.ledger.database import Connection, Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.support.harness.trees import script
from tests.support.harness.workers import Harness
from tests.support.waiting import until

_TEXT = {"type": "text", "text": "hello"}


class _Fleet:
    """Workers that play the tenant's scripts in this process, and the reads of ended runs."""

    def __init__(self, api: Api, harness: Harness) -> None:
        self.api = api
        self.harness = harness
        self.read: list[str] = []

    async def sent(self, **body: Any) -> asyncio.Task[httpx2.Response]:
        """Send a message and wait for its end."""
        request = self.api.http.post("/v1/runs/wait", json={"agent_id": "scripted", **body})
        return await self._followed(request)

    async def awaited(self, run_id: str) -> asyncio.Task[httpx2.Response]:
        """Wait for the end of a run."""
        return await self._followed(self.api.http.get(f"/v1/runs/{run_id}/wait"))

    async def _followed(self, request: Any) -> asyncio.Task[httpx2.Response]:
        task = asyncio.create_task(request)
        queued = "SELECT count(*)::int FROM runs WHERE status = 'queued'"
        await until(lambda: self.api.state.services.hub.open_feeds == 1)
        await until(lambda: self.harness.database.fetchval(queued))
        return task

    async def play(self) -> None:
        """Let a worker play what is queued."""
        rows = await self.harness.database.fetch("SELECT id, thread_id, queue FROM runs WHERE status = 'queued'")
        self.harness.bells.ring_runs([Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows])
        await self.harness.settle(self.harness.workers[0])

    async def answered(self, request: asyncio.Task[httpx2.Response]) -> dict[str, Any]:
        """Return the answer, which is what a later read gives."""
        answer = await request
        assert answer.status_code == 200, answer.text
        run = answer.json()
        assert (await self.api.http.get(f"/v1/runs/{run['id']}")).json() == run
        return run


@pytest.fixture
async def fleet(
    api: Api, tenant: Tenant, database: Database, redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[_Fleet]:
    harness = Harness(database, redis, settings)
    harness.tenant_id = tenant.id
    await harness.open()
    harness.worker()
    fleet = _Fleet(api, harness)
    get_ended_run = acceptance.get_ended_run

    async def noted(connection: Connection, tenant_id: str, run_id: str) -> RunView | None:
        fleet.read.append(run_id)
        return await get_ended_run(connection, tenant_id, run_id)

    monkeypatch.setattr(acceptance, "get_ended_run", noted)
    yield fleet
    await harness.close()


async def test_a_plain_run_is_answered_without_a_read(fleet: _Fleet) -> None:
    fields = {"metadata": {"of": "a test"}, "max_turns": 3, "priority": 2, "model": "scripted"}
    request = await fleet.sent(message=script({"say": "one"}), **fields)
    await fleet.play()
    run = await fleet.answered(request)
    assert (run["text"], run["attempt"], run["max_turns"]) == ("one", 1, 3)
    assert run["usage"]["output_tokens"] > 0
    assert fleet.read == []


@pytest.mark.parametrize(
    "fields",
    [
        {"on_busy": "steer"},
        {"on_busy": "interrupt"},
        {"queue": "background"},
        {"start_at": "2026-11-01T09:00:00.5+02:00"},
        {"metadata": {"z": 1.0, "a": [1e2, 1e22, {"deep": None}], "text": "\u00fc"}},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_what_was_asked_for_is_answered_as_it_is_stored(fleet: _Fleet, fields: dict[str, Any]) -> None:
    request = await fleet.sent(message="hello", **fields)
    await fleet.play()
    await fleet.answered(request)
    assert fleet.read == []


async def test_a_run_that_is_waited_for_later_is_answered_without_a_read_of_its_end(fleet: _Fleet) -> None:
    accepted = await fleet.api.http.post("/v1/runs", json={"agent_id": "scripted", "message": [_TEXT]})
    request = await fleet.awaited(accepted.json()["id"])
    await fleet.play()
    assert (await fleet.answered(request))["message"] == [_TEXT]
    assert fleet.read == []


async def test_a_message_that_was_edited_in_the_queue_is_read(fleet: _Fleet) -> None:
    request = await fleet.sent(message="hello")
    (run,) = (await fleet.api.http.get("/v1/runs")).json()["items"]
    edited = await fleet.api.http.patch(f"/v1/runs/{run['id']}", json={"message": script({"say": "edited"})})
    assert edited.status_code == 200
    await fleet.play()
    answer = await fleet.answered(request)
    assert answer["text"] == "edited"
    assert answer["message"] != [_TEXT]
    assert fleet.read == [run["id"]]


@pytest.mark.parametrize(
    "message",
    [
        [_TEXT, {"type": "text", "text": "again"}],
        [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}],
        "long " * 5_000,
        script({"error": {"message": "no"}}),
    ],
    ids=["two blocks", "an image", "a long text", "a failure"],
)
async def test_what_the_last_event_does_not_tell_is_read(fleet: _Fleet, message: Any) -> None:
    request = await fleet.sent(message=message)
    await fleet.play()
    run = await fleet.answered(request)
    assert fleet.read == [run["id"]]


async def test_a_run_that_was_canceled_in_the_queue_is_read(fleet: _Fleet) -> None:
    request = await fleet.sent(message="hello")
    (run,) = (await fleet.api.http.get("/v1/runs")).json()["items"]
    await fleet.api.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (await fleet.answered(request))["status"] == "canceled"
    assert fleet.read == [run["id"]]


_NOW = datetime(2026, 11, 1, tzinfo=UTC)
_BEFORE = RunView(
    id="run_1",
    thread_id="thr_1",
    agent_id="nova",
    status="queued",
    queue="interactive",
    on_busy="enqueue",
    source="api",
    message=[_TEXT],
    metadata={},
    attempt=0,
    created_at=_NOW,
)
_USAGE = {"type": "usage", "input_tokens": 1, "output_tokens": 1}
_END = {"type": "stream_end", "run_id": "run_1", "final": True, "status": "succeeded", "text": "", "usage": _USAGE}
_ENDING = {
    "message": message_digest([_TEXT]),
    "agent_id": "nova",
    "agent_version": 1,
    "turn_id": "trn_1",
    "started_at": _NOW.isoformat(),
    "finished_at": _NOW.isoformat(),
}


def _final(end: dict[str, Any] = _END, ending: dict[str, Any] | None = _ENDING) -> LiveEvent:
    return LiveEvent(EventCursor(attempt=1, seq=9), end, ending)


@pytest.mark.parametrize(
    "final",
    [
        None,
        _final(ending=None),
        _final(ending={**_ENDING, "finished_at": "soon"}),
        _final(ending={**_ENDING, "message": message_digest([{"type": "text", "text": "other"}])}),
        _final({**_END, "usage": None}),
        _final({**_END, "status": "failed"}),
        _final({**_END, "run_id": "run_2"}),
    ],
    ids=["no event", "an earlier release", "odd", "another message", "no usage", "a failure", "another run"],
)
def test_an_event_that_does_not_tell_all_makes_no_view(final: LiveEvent | None) -> None:
    assert ended_view(_BEFORE, _final()) is not None
    assert ended_view(_BEFORE, final) is None


def test_an_ending_is_beside_the_last_event_and_no_other() -> None:
    step, end = b'{"type":"step","index":0}', b'{"type":"stream_end","final":true}'
    assert [event.ending for event in decode(encode(1, [(1, step), (2, end)], b'{"a":1}'))] == [None, {"a": 1}]
    assert [event.ending for event in decode(encode(1, [(1, step)], b'{"a":1}'))] == [None]
    assert [event.ending for event in decode(encode(1, [(1, end)], b"7"))] == [None]
