"""A worker that is ready loads, in the background, what the first turns would load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from api import acceptance
from api.app import build_app
from api.routes.runs.rehearsal import rehearse_messages
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.stopping import stop_tasks
from nova_workers.bootstrap.api import ApiServices
from nova_workers.bootstrap.deferred import DeferredEngine
from nova_workers.bootstrap.worker import WorkerServices, build_worker
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.runs import Claim, Finish, Finished
from nova_workers.domain.agents.sql.records import create_agent, delete_agent
from nova_workers.domain.capabilities.rules.seam import input_schema
from nova_workers.domain.runs.rules import attempts
from nova_workers.domain.streams.rules.wire import LiveEvent
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.domain.upkeep.rules.rehearsal import PLANNED_AFTER
from nova_workers.engines.anthropic import rehearsal as anthropic_rehearsal
from nova_workers.engines.openai import rehearsal as openai_rehearsal
from nova_workers.engines.tool_schemas import RepairedSchema, ToolLimits
from nova_workers.ledger.database import Connection
from nova_workers.ledger.sessions import TENANT_ROLE
from nova_workers.ledger.visibility import all_tenants, one_tenant
from nova_workers.worker.fork_server import MOST_BYTES
from nova_workers.worker.rehearsal import rehearse_turns
from nova_workers.worker.warming import Warming
from tests.support.waiting import until

_TABLES = "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


async def _warm(settings: Settings, **agents: AgentSpec) -> WorkerServices:
    worker = build_worker(settings)
    async with worker.database.connection() as connection:
        await ensure_tenant(connection, "ten_warm", name="Warm")
        for agent_id, spec in agents.items():
            await create_agent(connection, "ten_warm", agent_id, spec, created_by="test")
        if "deleted" in agents:
            await delete_agent(connection, "ten_warm", "deleted")
    await Warming(worker).run()
    return worker


def _loaded(worker: WorkerServices) -> set[str]:
    return {name for name, engine in worker.engines.items() if isinstance(engine, DeferredEngine) and engine.is_loaded}


async def test_without_agents_that_name_one_the_default_engine_is_loaded(settings: Settings) -> None:
    worker = await _warm(settings.model_copy(update={"default_engine": "scripted"}), plain=AgentSpec(name="Plain"))
    assert _loaded(worker) == {"scripted"}
    # A suspect's process has them as soon: those of the engine, and of tools that are found by name.
    modules = worker.fork_server.modules()
    assert {"nova_workers.bootstrap.on_demand.scripted", "nova_workers.domain.notes.tools"} <= set(modules)
    assert len(orjson.dumps(modules)) < MOST_BYTES
    await worker.aclose()


async def test_engines_and_tools_that_agents_have_are_loaded_and_no_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    input_schema.cache_clear()
    repairs: set[bytes] = set()

    def repair(text: bytes, _: ToolLimits) -> RepairedSchema:
        repairs.add(text)
        return RepairedSchema({})

    monkeypatch.setattr("nova_workers.engines.tool_schemas.repair._remembered", repair)
    with capture_logs() as logs:
        worker = await _warm(
            settings.model_copy(update={"default_engine": "scripted"}),
            asks=AgentSpec(name="Asks", engine="anthropic", capabilities={"notes": CapabilityGrant()}),
            # No engine of this fleet: its turns fail with a message of their own.
            other=AgentSpec(name="Other", engine="missing"),
            deleted=AgentSpec(name="Deleted", engine="claude_agent", capabilities={"triggers": CapabilityGrant()}),
        )
    assert _loaded(worker) == {"scripted", "anthropic"}
    assert [log["engines"] for log in logs if log["event"] == "worker.warm"] == [["anthropic", "missing", "scripted"]]
    described = input_schema.cache_info().currsize
    assert described > 0
    for given in worker.capabilities.tool_inputs({"notes"}):
        assert orjson.dumps(input_schema(given)) in repairs, "The first turn repairs no schema."
    assert input_schema.cache_info().currsize == described, "The first turn describes no tool anew."
    await worker.aclose()


async def test_an_engine_that_cannot_be_loaded_does_not_keep_others_from_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_workers.bootstrap.engines._MODULES", "library_that_is_missing")
    broken = build_worker(settings.model_copy(update={"default_engine": "scripted"}))
    with capture_logs() as logs:
        await Warming(broken).run()
    events = [log["event"] for log in logs]
    assert "worker.engine_not_loaded" in events
    assert "worker.warm" in events
    await broken.aclose()


async def test_warming_waits_for_a_database_that_is_away(settings: Settings) -> None:
    away = settings.model_copy(
        update={"default_engine": "scripted", "database_url": SecretStr("postgresql://nova@127.0.0.1:9/none")}
    )
    worker = build_worker(away)
    warming = asyncio.create_task(Warming(worker).run())
    # What needs no database is loaded meanwhile.
    await until(lambda: _loaded(worker) == {"scripted"})
    assert not warming.done()
    await stop_tasks([warming])
    await worker.aclose()


@pytest.mark.parametrize("rehearse", [anthropic_rehearsal.rehearse, openai_rehearsal.rehearse])
async def test_a_rehearsal_plays_a_turn_without_a_provider(
    rehearse: Callable[[str], Awaitable[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not through a proxy that can reach no loopback address.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert await rehearse(str(tmp_path)) == "Ready."


async def test_rehearsed_turns_are_rolled_back_and_leave_nothing_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    finish_run = attempts.finish_run

    async def noting(connection: Connection, claim: Claim, finish: Finish, **given: Any) -> Finished:
        ended.append(f"{finish.status}: {finish.text}")
        return await finish_run(connection, claim, finish, **given)

    monkeypatch.setattr(attempts, "finish_run", noting)
    worker = build_worker(settings.model_copy(update={"default_engine": "scripted"}))
    assert await worker.schema.look()
    before = await _everything(worker)
    await rehearse_turns(worker)
    assert ended == ["succeeded: Ready."] * 2 * PLANNED_AFTER
    assert await _everything(worker) == before
    await worker.aclose()


async def test_rehearsed_messages_are_answered_and_leave_nothing_behind(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[str | None] = []
    view_of = acceptance.ended_view

    def noting(before: RunView, final: LiveEvent | None) -> RunView | None:
        view = view_of(before, final)
        answered.append(None if view is None else f"{view.status}: {view.text}")
        return view

    monkeypatch.setattr(acceptance, "ended_view", noting)
    worker, app = build_worker(settings), build_app(settings)
    services: ApiServices = app.state.nova.services
    with all_tenants():
        await services.start()
    before = await _everything(worker), _counts(services.metrics)
    await rehearse_messages(app)
    assert answered == ["succeeded: Hello"] * PLANNED_AFTER
    assert (await _everything(worker), _counts(services.metrics)) == before
    # The session is no longer in the role of the fleet, in which its tenant was made.
    with one_tenant("ten_none"):
        assert await services.database.fetchval("SELECT current_user") == TENANT_ROLE
    await services.aclose()
    await worker.aclose()


async def test_nothing_is_rehearsed_on_a_schema_that_does_not_fit(settings: Settings) -> None:
    worker = build_worker(settings)
    worker.schema.fits = False
    # It would not reach the database either.
    await worker.database.close()
    await rehearse_turns(worker)
    await worker.aclose()


async def _everything(worker: WorkerServices) -> tuple[object, ...]:
    """Return the number of rows of each table, the keys of Redis, and the metrics of runs."""
    async with worker.database.connection() as connection:
        tables = [row["name"] for row in await connection.fetch(_TABLES)]
        rows = {name: await connection.fetchval(f"SELECT count(*) FROM {name}") for name in tables}
    return rows, sorted(await worker.redis.keys()), _counts(worker.metrics)


def _counts(metrics: Metrics) -> list[str]:
    return [line for line in metrics.exposition()[0].decode().splitlines() if line.startswith("nova_run")]
