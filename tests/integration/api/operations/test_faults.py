"""Unavailable servers: nothing is half-written, and all that can continue does."""

import asyncio
import socket
import time
from collections.abc import MutableMapping
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves
from tests.support.waiting import until


def _closed_port() -> int:
    """Return a loopback port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _without_redis(settings: Settings) -> Settings:
    return settings.model_copy(update={"redis_url": SecretStr(f"redis://127.0.0.1:{_closed_port()}/0")})


def _without_database(settings: Settings) -> Settings:
    url = f"postgresql://nobody@127.0.0.1:{_closed_port()}/none"
    return settings.model_copy(update={"database_url": SecretStr(url)})


async def test_with_the_broker_down_a_message_is_accepted(serve: Serve, settings: Settings, database: Database) -> None:
    api = await serve(_without_redis(settings))
    began_s = time.monotonic()
    answer = await api.http.post("/v1/runs", json={"message": "hello"})
    assert answer.status_code == 202
    assert time.monotonic() - began_s < 30
    shown = (await api.http.get(f"/v1/runs/{answer.json()['id']}")).json()
    assert shown["waiting_for"] == "Redis does not answer: the run starts when it is back"
    groups = (await api.http.get("/v1/fleet/queued")).json()["groups"]
    assert [group["reason"] for group in groups] == ["redis_unavailable"]
    fleet = (await api.http.get("/v1/fleet")).json()
    assert (fleet["redis_answers"], fleet["workers"]) == (False, [])
    row = await database.fetchrow("SELECT status FROM runs WHERE id = :run_id", run_id=answer.json()["id"])
    assert row is not None
    assert row["status"] == "queued"


async def test_with_the_broker_down_all_other_endpoints_work(
    serve: Serve, settings: Settings, worker: ManualWorker
) -> None:
    api = await serve(_without_redis(settings))
    thread_id = await api.thread()
    first, second = await api.run(thread_id), await api.run(thread_id)
    assert (await api.http.post(f"/v1/runs/{second}/cancel")).json()["status"] == "canceled"
    assert (await api.http.get("/v1/fleet")).status_code == 200
    turn = await worker.claim(thread_id)
    closed = await turn.commit("one")
    await turn.finish("two")
    replayed = (await api.http.get(f"/v1/runs/{first}/events")).text
    assert [line for line in replayed.splitlines() if line.startswith("event:")] == [
        "event: stream_start",
        "event: assistant_message",
        "event: usage",
        "event: step",
        "event: assistant_message",
        "event: step",
        "event: stream_end",
    ]
    assert f"id: {closed}\n" in replayed


async def test_a_stream_opened_without_redis_ends_from_the_ledger(
    serve: Serve, settings: Settings, worker: ManualWorker
) -> None:
    api = await serve(_without_redis(settings))
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    async with asyncio.timeout(60), api.http.stream("GET", f"/v1/runs/{run_id}/events") as response:
        lines = response.aiter_lines()
        await worker.play(thread_id, "the answer")
        assert any("the answer" in line for line in [line async for line in lines])


async def test_with_the_database_down_every_endpoint_reports_it(serve: Serve, settings: Settings) -> None:
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


@proves("submit.refused-whole")
async def test_a_database_that_becomes_unavailable_leaves_nothing_half_written(
    serve: Serve, settings: Settings, database: Database, database_url: str
) -> None:
    """The key is remembered, so the request gets as far as the write itself."""
    async with CutableLink(database_url) as link:
        patient = settings.api.model_copy(update={"key_cache_s": 60})
        api = await serve(settings.model_copy(update={"database_url": SecretStr(link.url), "api": patient}))
        thread_id = await api.thread()
        path = f"/v1/threads/{thread_id}/runs"
        await link.cut()
        answers = [
            await api.http.post(path, json={"message": "x"}, headers=headers)
            for headers in ({}, {"Idempotency-Key": "k"}, {})
        ]
        assert [answer.status_code for answer in answers] == [503, 503, 503], [a.text for a in answers]
        assert (await api.http.get("/readyz")).status_code == 503
        assert (await api.http.get("/healthz")).status_code == 200
        assert await database.fetchval("SELECT count(*) FROM runs") == 0
        assert await database.fetchval("SELECT count(*) FROM idempotency_keys") == 0
        assert await database.fetchval("SELECT next_seq FROM threads") == 1
        link.restore()
        await until(lambda: _is_ready(api))
        again = await api.http.post(path, json={"message": "x"}, headers={"Idempotency-Key": "k"})
        assert again.status_code == 202
        assert "idempotent-replayed" not in again.headers


async def _is_ready(api: Api) -> bool:
    return (await api.http.get("/readyz")).status_code == 200


class CutableLink:
    """A TCP port of loopback that leads to a database's socket, until it is cut."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        self._socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._parts = parts
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.partition("@")[0]
        self.url = self._parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="").geturl()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()
        self._server.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cut(self) -> None:
        """Break every connection, and refuse new ones."""
        self._is_cut = True
        for writer in tuple(self._writers):
            writer.transport.abort()

    def restore(self) -> None:
        """Let connections through again."""
        self._is_cut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket)
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._tasks.add(asyncio.create_task(self._copy(source, sink)))

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(65536):
                sink.write(piece)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            sink.transport.abort()
            self._writers.discard(sink)


async def test_an_unexpected_error_is_a_problem_with_an_id_and_a_traceback(
    api: Api, monkeypatch: pytest.MonkeyPatch, logs: list[MutableMapping[str, Any]]
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("api.routes.runs.lists.run_lists.list_runs", explode)
    answer = await api.http.get("/v1/runs")
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert "secret detail" not in answer.text
    (failure,) = [line for line in logs if line["event"] == "http_request.failed"]
    assert failure["error_id"] == answer.json()["context"]["trace_id"]
    assert failure["exc_info"], "with its traceback"


async def test_a_client_that_disconnects_in_mid_body_is_no_server_error(
    api: Api, database: Database, logs: list[MutableMapping[str, Any]]
) -> None:
    before = await database.fetchval("SELECT count(*) FROM memories")
    address = urlsplit(api.url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST /v1/import HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {api.tenant.key}\r\n"
        f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: 1000\r\n\r\n{{".encode()
    )
    await writer.drain()
    writer.close()
    await until(lambda: any(line["event"] == "http.request" for line in logs))
    (request,) = (line for line in logs if line["event"] == "http.request")
    assert (request["path"], request["status"]) == ("/v1/import", 499)
    (left,) = (line for line in logs if line["event"] == "http_request.client_left")
    assert left["log_level"] == "info"
    assert not [line for line in logs if line["log_level"] == "error" or "exc_info" in line]
    assert await database.fetchval("SELECT count(*) FROM memories") == before
