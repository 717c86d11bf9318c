"""Routes that skip FastAPI answer as FastAPI does, to every kind of request."""

from __future__ import annotations

from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer, SecurityScopes

from api.direct_route import DirectRoute
from api.errors import install_error_handlers
from api.json_body import StrictRoute
from api.params import RunIdPath
from nova_workers.base.errors import Forbidden
from nova_workers.contracts.http.wire import StatelessRunCreate


class _Check(HTTPBearer):
    async def __call__(self, request: Request, needed: SecurityScopes) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - FastAPI passes what it declares
        for scope in needed.scopes:
            if scope not in request.headers.get("x-scopes", ""):
                raise Forbidden(f"no scope {scope!r}")
        return needed.scopes


_Caller = Annotated[list[str], Security(_Check(), scopes=["runs"])]
_Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=5)]
_Timeout = Annotated[float | None, Query(gt=0)]
_Number = Annotated[int, Path(ge=1)]


async def _parts(request: Request, caller: _Caller, key: _Key = None) -> list[object]:
    return [request.url.path, caller, key]


_Parts = Annotated[list[object], Depends(_parts)]


async def _post(
    number: _Number, body: StatelessRunCreate, parts: _Parts, needed: Annotated[int, Query()], timeout_s: _Timeout = 1.5
) -> Response:
    """Answer with what was received."""
    return Response(repr((number, body, parts, needed, timeout_s)), 202, {"x-made": "1"}, "text/plain")


async def _get(run_id: RunIdPath, request: Request, caller: _Caller, timeout_s: _Timeout = None) -> Response:
    return Response(repr((run_id, request.method, caller, timeout_s)))


def _app(route_class: type[APIRoute]) -> FastAPI:
    router = APIRouter(route_class=route_class)
    router.post("/things/{number}", response_model=StatelessRunCreate)(_post)
    router.get("/runs/{run_id}/wait")(_get)
    app = FastAPI(routes=list(router.routes))
    install_error_handlers(app)
    return app


_SCOPE = {"x-scopes": "runs"}
_JSON = {**_SCOPE, "content-type": "application/json"}


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/things/3?needed=4", _JSON, '{"message": "hi"}'),
        ("/things/3?needed=4&timeout_s=2", _JSON, '{"message": "hi", "priority": 3}'),
        ("/things/3?needed=4&needed=5&other=1", _JSON, '{"message": "hi"}'),
        ("/things/3?needed=4", {**_JSON, "idempotency-key": "abc"}, '{"message": "hi"}'),
        ("/things/3?needed=4", {**_JSON, "idempotency-key": ""}, '{"message": "hi"}'),
        ("/things/3?needed=4", {**_JSON, "idempotency-key": "abcdef"}, '{"message": "hi"}'),
        ("/things/3", _JSON, '{"message": "hi"}'),
        ("/things/3?needed=x&timeout_s=-1", _JSON, '{"message": 3, "odd": 1}'),
        ("/things/x?needed=4", _JSON, '{"message": "hi"}'),
        ("/things/0?needed=4", _JSON, "[]"),
        ("/things/3?needed=4", _JSON, "{"),
        ("/things/3?needed=4", _JSON, ""),
        ("/things/3?needed=4", _JSON, "null"),
        ("/things/3?needed=4", _JSON, '{"message": "\\u0000"}'),
        ("/things/3?needed=4", _SCOPE, '{"message": "hi"}'),
        ("/things/3?needed=4", {"content-type": "application/json"}, '{"message": "hi"}'),
        ("/things/x", {"content-type": "application/json"}, '{"message": 3}'),
        ("/runs/run_1/wait", _SCOPE, None),
        ("/runs/run_1/wait?timeout_s=0.5", _SCOPE, None),
        ("/runs/run_1/wait?timeout_s=", _SCOPE, None),
        ("/runs/run_1/wait?timeout_s=x", _SCOPE, None),
        ("/runs/run%2E1/wait", _SCOPE, None),
        ("/runs/run_1/wait", {}, None),
    ],
)
async def test_both_kinds_of_route_give_the_same_answer(path: str, headers: dict[str, str], body: str | None) -> None:
    answers: list[tuple[int, list[tuple[str, str]], str]] = []
    for route_class in (StrictRoute, DirectRoute):
        transport = httpx2.ASGITransport(app=_app(route_class))
        async with httpx2.AsyncClient(transport=transport, base_url="http://api", timeout=60) as client:
            method = "GET" if body is None else "POST"
            answer = await client.request(method, path, headers=headers, content=body)
            answers.append((answer.status_code, sorted(answer.headers.items()), answer.text))
    assert answers[0] == answers[1]


async def test_a_method_that_a_route_does_not_have_is_refused_alike() -> None:
    for route_class in (StrictRoute, DirectRoute):
        transport = httpx2.ASGITransport(app=_app(route_class))
        async with httpx2.AsyncClient(transport=transport, base_url="http://api", timeout=60) as client:
            assert (await client.put("/runs/run_1/wait")).status_code == 405


def test_both_kinds_of_route_are_described_alike() -> None:
    assert _app(DirectRoute).openapi() == _app(StrictRoute).openapi()


async def _returns_a_value() -> int:
    return 1


def _is_no_coroutine() -> Response:
    return Response()


async def _changes_the_response(response: Response) -> Response:
    return response


@pytest.mark.parametrize("endpoint", [_returns_a_value, _is_no_coroutine, _changes_the_response])
def test_an_endpoint_that_only_fastapi_serves_is_refused(endpoint: Any) -> None:
    with pytest.raises(TypeError, match="StrictRoute"):
        APIRouter(route_class=DirectRoute).get("/")(endpoint)
