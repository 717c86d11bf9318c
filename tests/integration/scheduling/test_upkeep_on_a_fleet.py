"""Backfill and retention on a real fleet: beat ticks, a worker does it."""

from __future__ import annotations

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.integration.scheduling.old_runs import age_thread, count
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, fleet_env
from tests.support.waiting import until

pytestmark = pytest.mark.fleet


@proves("backfill.finds", "retention.whole")
async def test_messages_of_a_time_without_effects_are_indexed_and_later_deleted(
    settings: Settings, database: Database
) -> None:
    env = fleet_env(settings)
    async with Fleet({**env, "NOVA_EFFECTS__ENABLED": "false"}) as fleet:
        key = fleet.api_key
        accepted = await fleet.client.runs.wait(StatelessRunCreate(message="The parrot is called Pericles"))
        assert await count(database, "message_texts") == 0
    await database.execute("UPDATE usage SET created_at = now() - interval '1 hour'")
    fast = {"NOVA_EFFECTS__BACKFILL_EVERY_S": "1", "NOVA_RETENTION__EVERY_S": "1"}
    async with Fleet({**env, **fast}, beat=True, api_key=key, embeddings=True) as fleet:

        async def found() -> bool:
            hits = await fleet.client.history.search("Pericles")
            return bool(hits.items) and hits.items[0].thread_id == accepted.thread_id

        await until(found)
        await until(lambda: _is(database, "embeddings", "dimensions = 384"))
        await database.execute(
            """UPDATE agents SET spec = spec || '{"retention": {"after_days": 7, "keep": "none"}}'"""
        )
        await age_thread(database, accepted.thread_id, 8)
        await until(lambda: _is_not(database, "threads"))
        assert await count(database, "messages") == await count(database, "message_texts") == 0
        assert await count(database, "usage") == 1


async def _is(database: Database, table: str, where: str) -> bool:
    return await count(database, table, where) > 0


async def _is_not(database: Database, table: str) -> bool:
    return await count(database, table) == 0
