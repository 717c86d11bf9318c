"""A method that a path does not have, and the OpenAPI document, which takes seconds to make."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, FastAPI

from api.errors import install_error_handlers
from api.routes import reference


async def _answer() -> str:
    return ""


class _SlowDocument:
    """Stands for the making of a document: it ends when it may, and counts."""

    def __init__(self) -> None:
        self.made = 0
        self.may_end = threading.Event()

    def __call__(self) -> dict[str, Any]:
        self.made += 1
        assert self.may_end.wait(60)
        return {"openapi": "3.1.0"}


@pytest.fixture
def document() -> _SlowDocument:
    """The document of the application."""
    return _SlowDocument()


@pytest.fixture
def app(document: _SlowDocument) -> FastAPI:
    """An application whose document is slow."""
    router = APIRouter()
    for method, path in (("GET", "/things/{name}"), ("DELETE", "/things/{name}"), ("POST", "/things/plan")):
        router.add_api_route(path, _answer, methods=[method])
    app = FastAPI(routes=[*router.routes, *reference.routes], openapi_url=None, docs_url=None)
    app.openapi = document  # pyright: ignore[reportAttributeAccessIssue] - FastAPI's own way to extend it
    install_error_handlers(app)
    return app


@pytest.mark.parametrize(
    ("path", "allowed"), [("/things/a", "DELETE, GET"), ("/things/plan", "POST"), ("/openapi.json", "GET")]
)
async def test_all_methods_of_the_path_are_named_without_the_document(
    app: FastAPI, document: _SlowDocument, path: str, allowed: str
) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://api", timeout=60) as client:
        refused = await client.put(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
    assert refused.json()["detail"].endswith(f"it takes {allowed}.")
    assert document.made == 0


async def test_other_requests_go_on_while_the_document_is_made_once(app: FastAPI, document: _SlowDocument) -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://api", timeout=60) as client:
        asking = [asyncio.create_task(client.get("/openapi.json")) for _ in range(3)]
        for _ in range(3):
            assert (await client.get("/things/a")).status_code == 200
        asking.pop(0).cancel()  # The one that began it.
        assert not any(each.done() for each in asking)
        document.may_end.set()
        assert [answer.json() for answer in await asyncio.gather(*asking)] == [{"openapi": "3.1.0"}] * 2
    assert document.made == 1
