"""What a client gets when Redis fails a request that cannot do without it."""

from __future__ import annotations

from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from redis.exceptions import ConnectionError as RedisConnectionError

from api.errors import install_error_handlers


async def test_a_request_that_redis_fails_is_answered_as_unavailable():
    app = FastAPI()
    install_error_handlers(app)

    @app.post("/thing")
    async def thing() -> None:
        raise RedisConnectionError("reset by peer")

    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        answer = await client.post("/thing")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["context"] == {"server": "redis", "may_be_written": False}
    assert "Nothing was written" in answer.json()["detail"]
