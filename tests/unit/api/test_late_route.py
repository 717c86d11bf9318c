"""Routes are built with their first request, and are what FastAPI would have made at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter, FastAPI, Query
from fastapi.routing import APIRoute
from pydantic import SecretStr

from api.app import build_app
from api.direct_route import DirectRoute
from api.late_modules import load_all
from api.late_route import LateRoute
from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import StatelessRunCreate

_BUILT = "dependant"
"""What FastAPI makes of an endpoint's parameters."""


async def _read(number: int, size: Annotated[int, Query(ge=1)] = 2) -> list[int]:
    """Return numbers."""
    return [number] * size


async def _write(body: StatelessRunCreate) -> StatelessRunCreate:
    return body


def _app(route_class: type[APIRoute]) -> FastAPI:
    router = APIRouter(prefix="/things", tags=["things"], route_class=route_class)
    router.get("/{number}", status_code=203)(_read)
    router.post("", name="another_name", response_model_exclude_none=True)(_write)
    return FastAPI(routes=list(router.routes))


def test_routes_that_are_built_late_are_described_as_others() -> None:
    assert _app(LateRoute).openapi() == _app(APIRoute).openapi()


async def test_only_the_route_of_a_request_is_built() -> None:
    app = _app(LateRoute)
    read, write = (route for route in app.routes if isinstance(route, LateRoute))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://api") as client:
        assert (await client.get("/other")).status_code == 404
        assert (await client.put("/things/3")).status_code == 405
        assert _BUILT not in vars(read)
        for _ in range(2):
            answer = await client.get("/things/3")
            assert (answer.status_code, answer.json()) == (203, [3, 3])
        assert (await client.get("/things/3?size=0")).status_code == 422
    assert _BUILT in vars(read)
    assert _BUILT not in vars(write)


def test_a_route_is_built_once_if_two_threads_need_it() -> None:
    built: list[str] = []

    class _Counted(LateRoute):
        def get_route_handler(self):
            built.append(self.path)
            return super().get_route_handler()

    route = _Counted("/things/{number}", _read)
    both = Barrier(2)

    def use() -> object:
        both.wait(timeout=10)
        return route.app

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(use), threads.submit(use)
        assert first.result(timeout=10) is second.result(timeout=10)
    assert built == ["/things/{number}"]


def test_an_attribute_that_no_route_has_is_missing() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = LateRoute("/things/{number}", _read).colour


def test_an_application_that_has_served_nothing_has_built_its_hot_routes_only() -> None:
    settings = Settings(database_url=SecretStr("postgresql://nowhere/x"), redis_url=SecretStr("redis://nowhere"))
    routes = [route for route in load_all(build_app(settings)).routes if isinstance(route, LateRoute)]
    # Other tests of this process may have served some, or made the document of all.
    fresh = [type(route)(route.path, route.endpoint) for route in routes]
    assert len(fresh) > 200
    assert all((_BUILT in vars(route)) == isinstance(route, DirectRoute) for route in fresh)
