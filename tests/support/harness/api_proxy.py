"""A proxy before the API on loopback: a test sees each request of a client, and acts between its effect and its answer.

async with api_proxy(fleet.api_url) as proxy:
    proxy.after = hook  # such as one that kills the client at "POST /v1/runs/{id}/answers"
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.support.servers.asgi import serving

_ID = re.compile(r"/(?:[a-z]+_[0-9A-Z]{26}|channel:[^/]+)")
_NOT_PASSED_ON = frozenset({"connection", "content-length", "host", "transfer-encoding"})


class ApiProxy:
    """Passes requests on to the API.

    Attributes:
        after: Runs when the API has answered, before the client gets that. It gets the call, such as
            ``POST /v1/threads/{id}/runs``.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.url = ""
        self.after: Callable[[str], Awaitable[None]] | None = None
        self._client = client

    async def handle(self, request: Request) -> StreamingResponse:
        """Pass one request on."""
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = [(name, value) for name, value in request.headers.items() if name not in _NOT_PASSED_ON]
        asked = self._client.build_request(request.method, path, headers=headers, content=await request.body())
        answer = await self._client.send(asked, stream=True)
        if self.after is not None:
            await self.after(f"{request.method} {_ID.sub('/{id}', request.url.path)}")
        passed_on = {name: value for name, value in answer.headers.items() if name not in _NOT_PASSED_ON}
        return StreamingResponse(_body(answer), answer.status_code, passed_on)


async def _body(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in answer.aiter_raw():
            yield chunk
    finally:
        await answer.aclose()


@asynccontextmanager
async def api_proxy(api_url: str) -> AsyncGenerator[ApiProxy]:
    """Run a proxy before an API on loopback."""
    async with httpx2.AsyncClient(base_url=api_url, timeout=None, trust_env=False) as client:
        proxy = ApiProxy(client)
        methods = ["DELETE", "GET", "PATCH", "POST", "PUT"]
        async with serving(Starlette(routes=[Route("/{path:path}", proxy.handle, methods=methods)])) as proxy.url:
            yield proxy
