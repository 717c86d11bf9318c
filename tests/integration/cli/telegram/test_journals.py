"""What a channel with a journal does when the API fails, and when much is to be delivered."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from nova_workers.base.errors import Conflict
from nova_workers.channels import Origin, Relay
from nova_workers.channels.inbox import Home, InboxFeed
from nova_workers.channels.journal import InboxMark, Journal, OpenUpdate
from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.leases import MAX_PAUSE_S
from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from tests.integration.cli.test_channels import MemoryChannel
from tests.support.harness.api_proxy import ApiProxy, api_proxy
from tests.support.processes.fleet import Fleet, add_api_key
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

QUICK = Retry(attempts=10_000, base_s=0.01, max_s=0.02)


@pytest.fixture
async def api(fleet: Fleet) -> AsyncIterator[ApiProxy]:
    async with api_proxy(fleet.api_url) as api:
        yield api


@pytest.fixture
async def nova(fleet: Fleet, api: ApiProxy) -> AsyncIterator[NovaClient]:
    key, _ = await add_api_key(fleet.env["NOVA_DATABASE_URL"])
    async with NovaClient(api.url, key) as nova:
        yield nova


async def test_a_holder_stops_before_its_lease_ends_when_the_api_does_not_answer(
    nova: NovaClient, api: ApiProxy
) -> None:
    journal = Journal(nova, "channel:test", ttl_s=15.0)
    await journal.acquire()
    acquired_s = time.monotonic()

    async def hang(call: str) -> None:
        await asyncio.Event().wait()

    api.after = hang
    await asyncio.wait_for(journal.keep(), 60)
    assert time.monotonic() - acquired_s < 15.0


async def test_items_that_could_not_be_recorded_are_as_if_they_had_not_been_read(nova: NovaClient) -> None:
    former, holder = (Journal(nova, "channel:test", ttl_s=0.01) for _ in range(2))
    await former.acquire()
    await holder.acquire()
    origin = Origin(id="dlv_1", conversation="kitchen", sender="nova")
    mark = InboxMark(since=datetime.now(UTC))
    with pytest.raises(Conflict):
        await former.accept_items((OpenUpdate(origin=origin, is_item=True),), mark)
    assert (former.open_updates, former.inbox) == ((), None)


async def test_many_items_are_taken_in_bounded_portions_the_oldest_first(
    nova: NovaClient, script: Callable[..., str]
) -> None:
    agent_id = f"agent-{uuid.uuid4().hex[:8]}"
    await nova.agents.create(
        AgentCreate.model_validate({"id": agent_id, "name": "Chatter", "capabilities": {"user": {}}})
    )
    journal = Journal(nova, "channel:test", ttl_s=60.0)
    await journal.acquire()
    await journal.accept_items((), InboxMark())
    wanted: list[str] = []
    for number in range(3):
        texts = [f"{number}.{each} " + "word " * 500 for each in range(9)]
        calls = [{"tool": {"name": "notify_user", "input": {"message": text}}} for text in texts]
        message = script(*calls, {"say": "Done."})
        done = await nova.runs.wait(StatelessRunCreate(agent_id=agent_id, message=message, queue="background"))
        assert done.status == "succeeded"
        wanted += [text[:3] for text in texts]
    feed = InboxFeed(nova, journal, "test", Home("kitchen"), every_s=0.01)
    taken: list[OpenUpdate] = []
    reading = asyncio.create_task(feed.run(taken.append))
    try:
        await until(lambda: len(taken) == len(wanted))
    finally:
        reading.cancel()
    # The texts are read when they are delivered, so that the journal stays small.
    assert [item.reply for item in taken if item.reply is not None] == []
    replies = [await feed.reply(item.origin) for item in taken]
    assert [reply.text[:3] for reply in replies if reply is not None] == wanted


async def test_a_fault_of_the_api_delays_a_reply_and_loses_none(nova: NovaClient, api: ApiProxy) -> None:
    channel, journal = MemoryChannel("chat"), Journal(nova, "channel:test", ttl_s=60.0)
    await journal.acquire()
    relay = Relay(nova, channel, agent_id="nova", senders=["ann"], patience=QUICK, journal=journal)
    serving = asyncio.create_task(relay.run())
    faults: list[str] = []

    async def fail_once(call: str) -> None:
        if call == "GET /v1/runs/{id}/events" and not faults:
            faults.append(call)
            raise RuntimeError("a fault of the API, as the channel sees it")

    api.after = fail_once
    channel.says("1", "hello")
    await until(lambda: [reply.text for reply in channel.of("answer")] == ["You said: hello"])
    await until(lambda: journal.open_updates == ())
    assert len(faults) == 1
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_a_channel_that_rests_says_why_and_tries_as_soon_as_a_person_asks(nova: NovaClient) -> None:
    journal = Journal(nova, "channel:test", ttl_s=2.0)
    await journal.acquire()
    keeping = asyncio.create_task(journal.keep())
    resting = asyncio.create_task(journal.rest("The mailbox\nrefuses the password.", 2 * MAX_PAUSE_S))

    async def error() -> str | None:
        (channel,) = (await nova.inbound_channels.list()).items
        return channel.error

    async def is_reported() -> bool:
        return await error() == "The mailbox refuses the password."

    async def works() -> bool:
        return await error() is None

    await until(is_reported)
    assert not resting.done()
    await nova.inbound_channels.retry("test")
    await asyncio.wait_for(resting, 60)
    journal.works()
    await until(works)
    # What ends the serving of a channel is reported with the release, and until it is served again.
    journal.has_stopped("It ended.", 600.0)
    await journal.release()
    assert await error() == "It ended."
    await asyncio.wait_for(keeping, 60)
    await journal.acquire()
    assert await error() == "It ended."
    journal.has_recovered()
    await journal.release()
    assert await works()
