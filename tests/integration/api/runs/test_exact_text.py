"""A model at full speed: slow clients and those that reconnect get the whole text."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from nova_workers.contracts import events as live
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.api.runs.event_streams import begun
from tests.requirements import proves
from tests.support.harness.run_reader import RunReader, committed_texts
from tests.support.waiting import until

_TOKENS = 30_000


@proves("events.exact")
async def test_thirty_thousand_tokens_at_full_speed_reach_every_client_whole(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    turn = await begun(api, worker)
    pieces = [f"{at} " for at in range(_TOKENS)]
    run_id = turn.claim.run_id
    readers = [
        RunReader(api.url, api.tenant.key, run_id),
        RunReader(api.url, api.tenant.key, run_id, pause_s=0.002),
        RunReader(api.url, api.tenant.key, run_id, cut_after=60, seed=1),
    ]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read())
        for at in range(0, _TOKENS, 1_000):
            for piece in pieces[at : at + 1_000]:
                turn.events.emit(live.Token(text=piece))
            await asyncio.sleep(0)
        await turn.finish("".join(pieces))
    assert await committed_texts(database, run_id) == ("".join(pieces),)
    for reader in readers:
        assert reader.text.texts == ("".join(pieces),)
        assert "assistant_message" not in reader.seen, "the stream has every token"


@proves("events.exact")
async def test_text_before_a_wipe_comes_with_the_end_of_its_step(
    api: Api, worker: ManualWorker, redis: Redis, database: Database
) -> None:
    turn = await begun(api, worker)
    await turn.emit(live.Token(text="before "))
    early = RunReader(api.url, api.tenant.key, turn.claim.run_id)
    late = RunReader(api.url, api.tenant.key, turn.claim.run_id, cut_after=6)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(early.read())
        await until(lambda: early.text.open == "before ", "the first token")
        await redis.flushdb()
        group.create_task(late.read())
        await turn.emit(live.Token(text="and "), live.Token(text="after"))
        await until(lambda: early.text.open == "before and after", "the rest")
        assert late.text.open == "", "it never has text with a hole"
        await turn.commit("before and after")
        await turn.emit(live.Token(text="done"))
        await turn.finish("done")
    for reader in (early, late):
        assert reader.text.texts == ("before and after", "done") == await committed_texts(database, reader.run_id)
