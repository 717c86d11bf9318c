"""Modules of routes are imported with the first request below their paths, and then serve as all others."""

from __future__ import annotations

import re
from asyncio import gather
from collections.abc import Iterator

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.routing import BaseRoute, Match, Route

from api.app import build_app
from api.late_modules import LateModule, load_all
from api.routes.workspace import notes
from nova_workers.base.config import Settings


@pytest.fixture(scope="module")
def app() -> FastAPI:
    settings = Settings(database_url=SecretStr("postgresql://nowhere/x"), redis_url=SecretStr("redis://nowhere"))
    return build_app(settings)


def _with(module: LateModule) -> FastAPI:
    return FastAPI(routes=[module], openapi_url=None)


def _example(path: str) -> dict[str, str]:
    return {"type": "http", "path": re.sub(r"\{\w+(:\w+)?\}", "any", path)}


def _paths(routes: list[BaseRoute]) -> Iterator[str]:
    yield from (route.path for route in routes if isinstance(route, Route))


def test_each_module_has_exactly_the_routes_below_its_paths(app: FastAPI) -> None:
    before = list(app.routes)
    late = [route for route in before if isinstance(route, LateModule)]
    assert len(late) > 15
    for module in late:
        assert [path for path in _paths(before) if module.matches(_example(path))[0] is Match.FULL] == []
        paths = list(_paths(load_all(_with(module)).routes))
        assert paths
        assert [path for path in paths if module.matches(_example(path))[0] is not Match.FULL] == []


def test_a_path_may_have_line_breaks() -> None:
    assert LateModule("workspace.notes", "/v1/notes").matches(_example("/v1/notes/a\nb"))[0] is Match.FULL


async def test_the_first_requests_bring_the_routes_and_are_answered_by_them() -> None:
    module = LateModule("workspace.notes", "/v1/notes")
    app = _with(module)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://api") as client:
        assert (await client.get("/v1/notesbook")).status_code == 404
        assert app.routes == [module]
        answers = await gather(client.put("/v1/notes"), client.put("/v1/notes"), client.get("/v1/notes/a/b/c"))
        assert [answer.status_code for answer in answers] == [405, 405, 404]
        assert app.routes == notes.router.routes
        assert (await client.put("/v1/notes")).status_code == 405
