"""Servers that are away: nothing is half-written, and what can go on goes on."""

import asyncio
import socket
import time
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from nova_workers.config import Settings
from nova_workers.errors import NovaError
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.hands import Hands


def _nobody() -> int:
    """Return a port of loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _without_redis(settings: Settings) -> Settings:
    return settings.model_copy(update={"redis_url": SecretStr(f"redis://127.0.0.1:{_nobody()}/0")})


def _without_database(settings: Settings) -> Settings:
    url = f"postgresql://nobody@127.0.0.1:{_nobody()}/none"
    return settings.model_copy(update={"database_url": SecretStr(url)})


async def test_with_the_broker_down_a_message_is_accepted_all_the_same(
    serve: Serve, settings: Settings, database: Database
) -> None:
    api = await serve(_without_redis(settings))
    began_s = time.monotonic()
    answer = await api.http.post("/v1/runs", json={"message": "hello"})
    assert answer.status_code == 202
    assert time.monotonic() - began_s < 2
    row = await database.fetchrow("SELECT status FROM runs WHERE id = $1", answer.json()["id"])
    assert row is not None
    assert row["status"] == "queued"


async def test_with_the_broker_down_everything_else_works_too(serve: Serve, settings: Settings, hands: Hands) -> None:
    api = await serve(_without_redis(settings))
    thread_id = await api.thread()
    first, second = await api.run(thread_id), await api.run(thread_id)
    assert (await api.http.post(f"/v1/runs/{second}/cancel")).json()["status"] == "canceled"
    assert (await api.http.get("/v1/fleet")).status_code == 200
    turn = await hands.claim(thread_id)
    closed = await turn.commit("one")
    await turn.finish("two")
    replayed = (await api.http.get(f"/v1/runs/{first}/events")).text
    assert [line for line in replayed.splitlines() if line.startswith("event:")] == [
        "event: stream_start",
        "event: assistant_message",
        "event: step",
        "event: assistant_message",
        "event: step",
        "event: stream_end",
    ]
    assert f"id: {closed}\n" in replayed


async def test_a_stream_opened_without_redis_ends_from_the_ledger(
    serve: Serve, settings: Settings, hands: Hands
) -> None:
    api = await serve(_without_redis(settings))
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with asyncio.timeout(20), api.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        lines = response.aiter_lines()
        await hands.play(thread_id, "the answer")
        assert any("the answer" in line for line in [line async for line in lines])


async def test_with_the_database_down_every_endpoint_says_so(serve: Serve, settings: Settings) -> None:
    api = await serve(_without_database(settings))
    for method, path, body in (
        ("GET", "/v1/runs", None),
        ("POST", "/v1/runs", {"message": "hello"}),
        ("POST", "/v1/threads", {}),
        ("GET", "/v1/agents/nova", None),
        ("GET", "/v1/runs/run_x/events", None),
    ):
        answer = await api.http.request(method, path, json=body)
        assert answer.status_code == 503, (path, answer.text)
        assert answer.json()["code"] == "unavailable"
        assert int(answer.headers["retry-after"]) >= 1


async def test_a_database_that_goes_away_takes_nothing_half_with_it(
    api: Api, database: Database, database_url: str, postgres_url_admin: str
) -> None:
    """The key is remembered, so the request gets as far as the write itself."""
    thread_id = await api.thread()
    name = urlsplit(database_url).path.removeprefix("/")
    admin = Database(postgres_url_admin, pool_size=1)
    try:
        await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        answers = [
            await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": "x"}, headers=headers)
            for headers in ({}, {"Idempotency-Key": "k"}, {})
        ]
        assert [answer.status_code for answer in answers] == [503, 503, 503], [a.text for a in answers]
        assert (await api.http.get("/readyz")).status_code == 503
        assert (await api.http.get("/healthz")).status_code == 200
    finally:
        await admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        await admin.close()
    assert (await api.http.get("/readyz")).status_code == 200
    assert await _eventually(database, "SELECT count(*) FROM runs") == 0
    assert await _eventually(database, "SELECT count(*) FROM idempotency_keys") == 0
    assert await _eventually(database, "SELECT next_seq FROM threads") == 1
    again = await api.http.post(
        f"/v1/threads/{thread_id}/runs", json={"message": "x"}, headers={"Idempotency-Key": "k"}
    )
    assert again.status_code == 202
    assert "idempotent-replayed" not in again.headers


async def _eventually(database: Database, query: str) -> int:
    """Ask over connections that the test cut itself: those of the pool fail once each."""
    for _ in range(20):
        try:
            return await database.fetchval(query)
        except NovaError:
            continue
    raise AssertionError("the database did not come back")


async def test_what_nobody_foresaw_is_a_problem_with_an_id_and_a_traceback(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("api.routes.runs.run_reads.list_runs", explode)
    answer = await api.http.get("/v1/runs")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "secret detail" not in answer.text
    trace_id = answer.json()["context"]["trace_id"]
    logged = capsys.readouterr()
    assert trace_id in logged.out + logged.err
    assert "ZeroDivisionError" in logged.out + logged.err
