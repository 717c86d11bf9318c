"""Sign-ins that fail, and the address that the console states to the API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nova_workers.base.config import Settings
from nova_workers.base.config.console import ConsoleSettings
from nova_workers.base.errors import TooManyRequests, Unauthenticated, Unavailable
from nova_workers.console.app import build_console
from nova_workers.console.sign_in_limit import SignInLimit
from tests.requirements import proves
from tests.support.servers.asgi import serving

_PER_MINUTE = 3


class Api:
    """An API that knows one key.

    Attributes:
        clients: The address that each request states.
    """

    def __init__(self) -> None:
        self.clients: list[str | None] = []
        self.app = Starlette(routes=[Route("/v1/sign-ins", self._sign_in, methods=["POST"])])

    async def _sign_in(self, request: Request) -> Response:
        self.clients.append(request.headers.get("x-forwarded-for"))
        status = 200 if request.headers["authorization"] == "Bearer nova_good" else 401
        if status == 200:
            return JSONResponse(_KEY)
        problem = {
            "type": "about:blank",
            "title": "x",
            "status": 401,
            "code": "unauthenticated",
            "detail": "Unknown key.",
        }
        return JSONResponse(problem, status_code=401, media_type="application/problem+json")


_KEY = {
    **{"key_id": "key_1", "key_name": "ann", "prefix": "nova_good", "scopes": ["runs"], "expires_at": None},
    **{"tenant_id": "ten_1", "tenant_name": "Acme", "timezone": "UTC"},
}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
async def browser(api: Api, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    own = ConsoleSettings(trusted_proxies=("127.0.0.1",), failed_sign_ins_per_minute=_PER_MINUTE)
    async with serving(api.app) as api_url:
        console = build_console(Settings(home=tmp_path, console=own), api_url=api_url)
        async with serving(console) as url, httpx2.AsyncClient(base_url=url, timeout=60) as browser:
            browser.headers["sec-fetch-site"] = "same-origin"
            yield browser


async def _sign_in(browser: httpx2.AsyncClient, key: str, address: str) -> httpx2.Response:
    return await browser.post("/login", data={"key": key}, headers={"x-forwarded-for": address})


@proves("security.sign-in")
async def test_an_address_that_guesses_keys_is_slowed_by_the_console_and_no_other_person_is(
    api: Api, browser: httpx2.AsyncClient
) -> None:
    tried = [await _sign_in(browser, f"nova_{number}", "203.0.113.7") for number in range(_PER_MINUTE + 2)]
    assert [answer.status_code for answer in tried] == [403] * _PER_MINUTE + [429] * 2
    assert int(tried[-1].headers["retry-after"]) >= 1
    assert "sign-ins from your address failed" in tried[-1].text
    link = await browser.get("/login?token=guessed", headers={"x-forwarded-for": "203.0.113.7"})
    assert link.status_code == 429
    # What is refused here does not reach the API, which gets the person's address with each request.
    assert (await _sign_in(browser, "nova_good", "203.0.113.8")).status_code == 303
    assert api.clients == ["203.0.113.7"] * _PER_MINUTE + ["203.0.113.8"]


class _Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.s, UTC)

    def monotonic_s(self) -> float:
        return self.s


def test_failures_are_forgotten_after_a_minute() -> None:
    clock = _Clock()
    limit = SignInLimit(2, clock)

    def fail(group: str) -> None:
        with suppress(Unauthenticated), limit.trying(group):
            raise Unauthenticated("no")

    fail("a")
    clock.s = 30
    with limit.trying("a"):
        pass
    with suppress(Unavailable), limit.trying("a"):
        raise Unavailable("the API is away", server="api")
    fail("a")
    with pytest.raises(TooManyRequests, match="Wait 30 s"):
        fail("a")
    fail("b")
    clock.s = 60
    fail("a")


def test_a_sign_in_that_takes_longer_than_the_window_ends_as_it_does() -> None:
    clock = _Clock()
    limit = SignInLimit(2, clock)
    with limit.trying("a"):
        clock.s = 61
        with limit.trying("a"):
            pass
    with suppress(Unauthenticated), limit.trying("a"):
        raise Unauthenticated("no")
    with limit.trying("a"), limit.trying("b"):
        pass
