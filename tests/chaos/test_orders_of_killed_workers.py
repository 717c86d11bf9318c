"""A worker process is killed at each write of the protocol of work orders: one result each, and one charge per call.

Each order is at another moment when the same SIGKILL kills the worker of them all. Triggers of the test hold its
transactions: deferred ones at the commit, others in the middle. After the kill a held transaction is either let go, so
that the worker died after the commit and before its reply, or ended, so that it died before the commit.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest

from nova_workers.contracts.http.order_policies import PolicyPut
from nova_workers.contracts.orders import AiWorkOrderV1, AiWorkResultV1, EngineTrace, build_order
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from tests.requirements import proves
from tests.support.harness.orders import critique, proposal
from tests.support.processes.fleet import Fleet
from tests.support.servers.model_server import Hang, ModelServer, Part, Stream, model_server
from tests.support.waiting import until

pytestmark = pytest.mark.fleet


@dataclass(frozen=True)
class Moment:
    """A write at which a worker is killed.

    Attributes:
        write: A trigger's event and condition.
        commits: Whether the held transaction commits after the worker's death; in the middle of one it never does.
        at_commit: Whether it is held at its commit, and not in the middle.
        repeats: Whether a model call has to be made again, since its answer was lost.
        loses: Whether a reserved call is lost.
        kind: Of the role whose run is held, with a write of runs.
    """

    name: str
    write: str
    commits: bool = False
    at_commit: bool = True
    repeats: bool = False
    loses: bool = False
    kind: str = "craft"


_CLAIM = "UPDATE ON runs {} WHEN (OLD.status = 'queued' AND NEW.status = 'running')"
_BEGIN = "UPDATE ON work_order_parts {} WHEN (NEW.attempts > OLD.attempts)"
_RESERVE = "UPDATE ON work_order_parts {} WHEN (NEW.calls > OLD.calls)"
_STORE = "UPDATE ON work_order_parts {} WHEN (OLD.stop_reason IS NULL AND NEW.stop_reason IS NOT NULL)"
_MOVE = "UPDATE ON work_orders {} WHEN (NEW.stage <> OLD.stage)"
_ADD_PART = "INSERT ON work_order_parts {}"
_TRAIL = "INSERT ON work_order_trail {}"
_FINISH = "UPDATE ON runs {} WHEN (NEW.finished_at IS NOT NULL)"
_END = "UPDATE ON work_orders {} WHEN (NEW.state = 'ended')"

_MOMENTS: Final = (
    Moment("claim_lost", _CLAIM),
    Moment("claim_committed", _CLAIM, commits=True),
    Moment("begin_lost", _BEGIN),
    Moment("begin_committed", _BEGIN, commits=True),
    Moment("reserve_lost", _RESERVE),
    Moment("reserve_committed", _RESERVE, commits=True, loses=True),
    Moment("call", "", repeats=True, loses=True),
    Moment("store_in_the_middle", _STORE, at_commit=False, repeats=True, loses=True),
    Moment("trail_in_the_middle", _TRAIL, at_commit=False, repeats=True, loses=True),
    Moment("move_in_the_middle", _MOVE, at_commit=False, repeats=True, loses=True),
    Moment("add_part_in_the_middle", _ADD_PART, at_commit=False, repeats=True, loses=True),
    Moment("store_lost", _STORE, repeats=True, loses=True),
    Moment("store_committed", _STORE, commits=True),
    Moment("finish_lost", _FINISH, kind="general"),
    Moment("finish_committed", _FINISH, commits=True, kind="general"),
    Moment("end_in_the_middle", _END, at_commit=False, repeats=True, loses=True),
    Moment("end_lost", _END, repeats=True, loses=True),
    Moment("end_committed", _END, commits=True),
)
_HELD: Final = [moment for moment in _MOMENTS if moment.write]

_PREPARE: Final = (
    """
CREATE TABLE held (order_id text PRIMARY KEY, moment text NOT NULL, kind text NOT NULL, number bigint NOT NULL)
""",
    """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed jsonb := to_jsonb(NEW);
BEGIN
    PERFORM pg_advisory_xact_lock(h.number)
       FROM held h
      WHERE h.moment = TG_ARGV[0]
        AND h.order_id = CASE TG_TABLE_NAME
                WHEN 'work_orders' THEN changed->>'id'
                WHEN 'runs' THEN (SELECT p.order_id FROM work_order_parts p
                                   WHERE p.run_id = changed->>'id' AND p.kind = h.kind)
                ELSE changed->>'order_id' END;
    RETURN NULL;
END $$
""",
)
_HOLD = "INSERT INTO held (order_id, moment, kind, number) VALUES (:id, :moment, :kind, :number)"
_BLOCKED = """
SELECT l.objid::int AS number, l.pid
  FROM pg_locks l JOIN pg_database d ON d.oid = l.database
 WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()
"""

_PRICED = {"engine": "anthropic", "model": "haiku", "provider": "anthropic"}
_SAYS = {"craft": proposal("Draft"), "review": critique(), "general": proposal("Final")}
_POLICY: Final[dict[str, Any]] = {
    "id": "killed",
    "version": "1",
    "produces": "copy_proposal_v1",
    "roles": [
        {
            "name": kind,
            "kind": kind,
            "models": [_PRICED],
            "prompt": {"system": "{{schema}}", "user": f"The role {kind}. {{{{inputs}}}}"},
            "maxOutputTokens": 500,
        }
        for kind in _SAYS
    ],
    "caps": {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 50_000, "timeoutMs": 120_000},
    "presentation": {"modes": ["single_best"], "default": "single_best"},
}


def _answer(server: ModelServer) -> None:
    """Answer each role; the first request of the order that is killed in its call gets no answer."""
    for kind, text in _SAYS.items():
        said = Stream((Part("text", [text]),))
        if kind == "craft":
            server.reply_when(lambda _, body: _asks(body, "The role craft.", '"call"'), Hang(), said)
        server.reply_when(lambda _, body, kind=kind: _asks(body, f"The role {kind}."), said)


def _asks(body: dict[str, Any], *words: str) -> bool:
    text = "".join(
        block["text"] for message in body["messages"] for block in message["content"] if block["type"] == "text"
    )
    return all(word in text for word in words)


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model server that answers all roles."""
    async with model_server() as server:
        _answer(server)
        yield server


@pytest.fixture
async def fleet(env: dict[str, str], model: ModelServer) -> AsyncIterator[Fleet]:
    """An API without workers, whose workers will use the model server."""
    more = {
        "NOVA_MODEL__BASE_URL": model.url,
        "NOVA_MODEL__API_KEY": "key",
        "NOVA_SECRETS__KEYS": orjson.dumps([f"test:{b64encode(os.urandom(32)).decode()}"]).decode(),
        # Held transactions keep their slots and connections.
        "NOVA_DATABASE_POOL": "40",
        # No run of the first worker is to be lost before the worker is killed, however busy the machine is.
        "NOVA_RUNS__LEASE_TTL_S": "15",
        "NOVA_RUNS__LEASE_RENEW_S": "3",
    }
    async with Fleet({**env, **more}, workers=0, concurrency=30) as fleet:
        yield fleet


@asynccontextmanager
async def _holding(url: str) -> AsyncGenerator[Connection]:
    """Hold every moment of `_HELD` for the block, for orders in the table ``held``."""
    database = PostgresDatabase(url, pool_size=1)
    try:
        # The locks belong to the session of this one connection.
        async with database.connection() as connection:
            for statement in _PREPARE:
                await connection.execute(statement)
            for number, moment in enumerate(_HELD):
                await connection.execute(_trigger(moment))
                await connection.execute("SELECT pg_advisory_lock(:number)", number=number)
            yield connection
    finally:
        await database.close()


def _trigger(moment: Moment) -> str:
    kind, when = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if moment.at_commit else ("TRIGGER", "")
    event = moment.write.format(f"{when} FOR EACH ROW")
    return f"CREATE {kind} hold_{moment.name} AFTER {event} EXECUTE FUNCTION hold('{moment.name}')"


async def _orders(fleet: Fleet) -> dict[Moment, AiWorkOrderV1]:
    """Return an order for each moment."""
    await fleet.client.work_order_policies.put("killed", PolicyPut(document=_POLICY))
    made = await fleet.client.work_order_secrets.create()
    return {
        moment: build_order(
            made.secret,
            tenant=fleet.tenant_id or "",
            scope="tests",
            policy_id="killed",
            inputs={"moment": moment.name},
            trace=EngineTrace(job_id=moment.name),
        )
        for moment in _MOMENTS
    }


async def _kill_at_every_moment(fleet: Fleet, model: ModelServer, held: Connection) -> None:
    """Start a worker, wait until each order is at its moment, and kill it."""
    worker = await fleet.start_worker()

    async def missing() -> list[str]:
        reached = {row["number"] for row in await held.fetch(_BLOCKED)}
        return [moment.name for number, moment in enumerate(_HELD) if number not in reached]

    await until(lambda: any(_asks(body, '"call"') for body in model.requests), "the call")
    async with asyncio.timeout(60):
        while missed := await missing():
            assert worker.exit_code is None, missed
            await asyncio.sleep(0.05)
    await held.execute("DELETE FROM held")
    worker.kill()
    for row in await held.fetch(_BLOCKED):
        if not _HELD[row["number"]].commits:
            await held.execute("SELECT pg_terminate_backend(:pid)", pid=row["pid"])
    for number in range(len(_HELD)):
        await held.execute("SELECT pg_advisory_unlock(:number)", number=number)


@proves("order.killed")
async def test_orders_of_a_worker_that_is_killed_at_any_write_get_one_result_and_one_charge(
    fleet: Fleet, model: ModelServer, database: Database, database_url: str
) -> None:
    orders = await _orders(fleet)
    client = fleet.client.work_orders
    async with _holding(database_url) as held:
        traces = {moment: (await client.submit(order, respond_async=True)).trace_id for moment, order in orders.items()}
        for number, moment in enumerate(_HELD):
            await held.execute(_HOLD, id=traces[moment], moment=moment.name, kind=moment.kind, number=number)
        await _kill_at_every_moment(fleet, model, held)
        await fleet.start_beat()
        await fleet.start_worker()
        async with asyncio.timeout(120):
            results = {moment: await client.submit(order) for moment, order in orders.items()}
    for moment, result in results.items():
        assert result.trace_id == traces[moment]
        await until(lambda moment=moment: _all_runs_ended(database, traces[moment]), moment.name)
        _check_result(result, moment)
        await _check_charges(fleet, database, moment, result)
        await _check_trails(fleet, database, result)
        calls = [body for body in model.requests if _asks(body, f'"{moment.name}"')]
        assert len(calls) == (4 if moment.repeats else 3), moment.name


async def _all_runs_ended(database: Database, trace_id: str) -> bool:
    return await database.fetchval(
        "SELECT bool_and(r.finished_at IS NOT NULL) FROM work_order_parts p JOIN runs r ON r.id = p.run_id"
        " WHERE p.order_id = :trace_id",
        trace_id=trace_id,
    )


def _check_result(result: AiWorkResultV1, moment: Moment) -> None:
    assert (result.status, result.stop_reason) == ("succeeded", "ok"), moment.name
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Final"]
    assert result.extensions is not None
    meta = result.extensions.meta
    assert meta is not None
    assert (meta.calls, meta.input_tokens, meta.output_tokens) == (3, 30, 15), moment.name


async def _check_charges(fleet: Fleet, database: Database, moment: Moment, result: AiWorkResultV1) -> None:
    """Three finished calls are in the result, the parts and the usage; what was lost is in neither."""
    internal = await fleet.client.work_orders.get(result.trace_id, internal=True)
    assert internal.extensions is not None
    assert internal.extensions.cost_breakdown is not None
    assert internal.extensions.meta is not None
    cost = internal.extensions.cost_breakdown.total
    assert cost == internal.extensions.meta.estimated_usd > 0
    parts = await database.fetch(
        "SELECT p.kind, p.stop_reason, p.calls, p.used_usd::float8 AS used, u.cost_usd::float8 AS charged,"
        "       u.input_tokens, u.output_tokens, p.lost_usd > 0 AS lost, p.sealed_output"
        "  FROM work_order_parts p JOIN usage u ON u.run_id = p.run_id WHERE p.order_id = :id ORDER BY p.id",
        id=result.trace_id,
    )
    seen = [(row["kind"], row["stop_reason"], row["calls"], row["input_tokens"], row["output_tokens"]) for row in parts]
    assert seen == [(kind, "ok", 1, 10, 5) for kind in _SAYS], moment.name
    assert [row["used"] for row in parts] == [row["charged"] for row in parts]
    assert sum(row["used"] for row in parts) == pytest.approx(cost)
    assert any(row["lost"] for row in parts) == moment.loses, moment.name
    assert {row["sealed_output"] for row in parts} == {None}


async def _check_trails(fleet: Fleet, database: Database, result: AiWorkResultV1) -> None:
    """Each event is in its trail once, and the key of the content is destroyed."""
    customer = (await fleet.client.work_orders.trail(result.trace_id)).items
    assert [entry.event for entry in customer] == ["accepted", "ended"]
    internal = (await fleet.client.work_orders.trail(result.trace_id, internal=True)).items
    stage = ["part_ended", "stage_started"]
    assert [entry.event for entry in internal] == ["accepted", *stage, *stage, "part_ended", "ended"]
    row = await database.fetchrow(
        "SELECT data_key, sealed, sealed_draft FROM work_orders WHERE id = :id", id=result.trace_id
    )
    assert row is not None
    assert set(row.values()) == {None}
