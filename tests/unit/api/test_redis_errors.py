"""What a client gets when Redis fails a request that cannot do without it."""

from __future__ import annotations

from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from api.errors import install_error_handlers
from nova_workers.ledger.write_record import note_sent, start_record


async def test_a_request_that_redis_fails_is_answered_as_unavailable():
    app = FastAPI()
    install_error_handlers(app)

    @app.post("/thing")
    async def thing() -> None:
        raise RedisConnectionError("reset by peer")

    async with AsyncClient(transport=ASGITransport(app), base_url="http://test", timeout=60) as client:
        answer = await client.post("/thing")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["context"] == {"server": "redis", "may_be_written": False}
    assert "Nothing was written" in answer.json()["detail"]


async def test_a_request_that_redis_fails_after_a_commit_may_have_been_carried_out():
    app = FastAPI()
    install_error_handlers(app)

    @app.get("/v1/things/{thing_id}")
    async def thing(thing_id: str) -> None: ...

    @app.post("/v1/things/{thing_id}/change")
    async def change(thing_id: str) -> None:
        start_record()
        note_sent(["UPDATE things SET x = 1"])
        raise ResponseError("READONLY You can't write against a read only replica at 10.0.0.7:6379.")

    async with AsyncClient(transport=ASGITransport(app), base_url="http://test", timeout=60) as client:
        answer = await client.post("/v1/things/17/change")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "outcome_unknown")
    assert problem["context"] == {
        "server": "redis",
        "may_be_written": True,
        "thing_id": "17",
        "look_up": "/v1/things/17",
    }
    assert "Redis refused a command. The request may have been carried out" in problem["detail"]
    assert "6379" not in problem["detail"]
    assert "retry-after" not in answer.headers
