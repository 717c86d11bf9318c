"""The configurations of docs/reverse-proxy.md, in a real nginx and a real Caddy with TLS before a real API."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker
from tests.requirements import proves
from tests.support.data.documents import ROOT, blocks
from tests.support.processes.caddy import own_caddy, why_no_caddy
from tests.support.processes.nginx import adapted, own_nginx, trusting, why_no_nginx

_HOST = "nova.example.org"
_CLIENT = "127.0.0.7"
"""Not the proxy's own address, which the API trusts."""
_BOUND_S = 60.0


Change = tuple[str, str]
"""A text of a documented configuration, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Front:
    """An API, and how clients reach it through a proxy.

    Attributes:
        impatient: Runs a proxy like this one that gives up after a second without data.
    """

    api: Api
    port: int
    trust: ssl.SSLContext
    impatient: Callable[[], AbstractAsyncContextManager[Front]]

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Give a client of the proxy, from an address that is not the proxy's."""
        headers = {"Authorization": f"Bearer {self.api.tenant.key}", "Host": _HOST}
        transport = httpx2.AsyncHTTPTransport(verify=self.trust, local_address=_CLIENT)
        url = f"https://127.0.0.1:{self.port}"
        async with httpx2.AsyncClient(base_url=url, headers=headers, transport=transport, timeout=_BOUND_S) as client:
            client.event_hooks["request"] = [_name_the_host]
            yield client


async def _name_the_host(request: httpx2.Request) -> None:
    request.extensions["sni_hostname"] = _HOST


def _documented(language: str, words: str) -> str:
    (text,) = [block.text for block in blocks(language, ROOT / "docs" / "reverse-proxy.md") if words in block.text]
    return text


def _changed(text: str, changes: tuple[Change, ...]) -> str:
    for was, becomes in changes:
        assert was in text, was
        text = text.replace(was, becomes)
    return text


@asynccontextmanager
async def _behind_nginx(api: Api, folder: Path, *changes: Change) -> AsyncGenerator[Front]:
    # The API asks nginx not to buffer its streams; what the page sets must suffice where it does not.
    deaf = ("server {", "server {\n    proxy_ignore_headers X-Accel-Buffering;")
    text = _changed(_documented("nginx", "server {"), (deaf, *changes))
    site = adapted(text, {"127.0.0.1:8700": api.url.removeprefix("http://")}, folder)
    impatient = partial(_behind_nginx, api, folder, ("proxy_read_timeout 660s;", "proxy_read_timeout 1s;"))
    with own_nginx(site, folder / f"nginx-{len(changes)}"):
        yield Front(api, site.port, trusting(folder), impatient)


@asynccontextmanager
async def _behind_caddy(api: Api, folder: Path, *changes: Change) -> AsyncGenerator[Front]:
    text = _changed(_documented("text", "reverse_proxy"), changes)
    upstreams = {"127.0.0.1:8700": api.url.removeprefix("http://")}
    impatient = partial(_behind_caddy, api, folder, ("keepalive 60s", "response_header_timeout 1s"))
    with own_caddy(text, upstreams, _HOST, folder / f"caddy-{len(changes)}") as caddy:
        yield Front(api, caddy.port, caddy.trust, impatient)


def _unless(reason: str | None) -> pytest.MarkDecorator:
    return pytest.mark.skipif(reason is not None, reason=str(reason))


@pytest.fixture(
    params=[
        pytest.param(_behind_nginx, id="nginx", marks=_unless(why_no_nginx())),
        pytest.param(_behind_caddy, id="caddy", marks=_unless(why_no_caddy())),
    ]
)
async def front(
    request: pytest.FixtureRequest, serve: Serve, settings: Settings, tmp_path: Path
) -> AsyncIterator[Front]:
    """An API with the settings of the page behind a proxy with its configuration."""
    documented = {"trusted_proxies": ("127.0.0.1",), "public_url": f"https://{_HOST}"}
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update=documented)}))
    async with request.param(api, tmp_path) as found:
        yield found


@proves("proxy.streams")
async def test_events_and_long_waits_pass_the_proxy(front: Front, worker: ManualWorker) -> None:
    """A client gets each event before the next one is made, and waits for longer than a proxy of less patience."""
    thread_id = await front.api.thread()
    run_id = await front.api.run(thread_id)
    async with front.client() as client, asyncio.timeout(_BOUND_S):
        waits = asyncio.create_task(client.get(f"/v1/runs/{run_id}/wait"))
        async with client.stream("GET", f"/v1/runs/{run_id}/events") as response:
            lines = response.aiter_lines()
            turn = await worker.claim(thread_id)
            await _until_line(lines, "event: stream_start")
            await turn.commit("one")
            await _until_line(lines, "event: step")
            async with front.impatient() as other, other.client() as client_of_other:
                assert (await client_of_other.get(f"/v1/runs/{run_id}/wait")).status_code == 504
            assert not waits.done()
            await turn.finish("two")
            await _until_line(lines, "event: stream_end")
        answer = await waits
        assert (answer.status_code, answer.json()["status"]) == (200, "succeeded")


async def _until_line(lines: AsyncIterator[str], wanted: str) -> None:
    async for line in lines:
        if line == wanted:
            return
    raise AssertionError(f"the stream ended without {wanted!r}")


@proves("proxy.addresses")
async def test_the_api_sees_the_client_and_not_what_it_states(front: Front) -> None:
    async with front.client() as client:
        answer = await client.get("/v1/tenant", headers={"X-Forwarded-For": "203.0.113.9"})
        assert answer.status_code == 200, answer.text
        await front.api.state.key_uses.write()
        keys = {key["id"]: key for key in (await client.get("/v1/keys")).json()["items"]}
        assert keys[front.api.tenant.key_id]["last_used_address"] == _CLIENT
        # Of another name the API serves nothing, whichever server block took the request. Caddy passes none on.
        other = await client.get("/healthz", headers={"Host": "other.example.org"})
        assert other.status_code == 421 or not other.content


@proves("proxy.addresses")
async def test_metrics_are_not_reachable_through_the_proxy(front: Front) -> None:
    assert (await front.api.http.get("/metrics")).status_code == 200
    async with front.client() as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200


def test_times_and_sizes_of_the_page_fit_the_defaults_of_the_api() -> None:
    text, api = _documented("nginx", "server {"), Settings.model_construct().api
    server, console = text.split("server_name console.example.org")
    assert _seconds(server) == [660, 3660]
    assert _seconds(console) == [660]
    assert api.wait_timeout_s < 660
    assert api.archive_timeout_s < 3660
    # nginx keeps idle connections to the API for 60 s by default.
    assert "keepalive_timeout" not in text
    assert api.idle_timeout_s > 60
    assert "client_max_body_size 20m;" in server
    assert api.max_import_bytes < 20 * 2**20
    assert "keepalive 60s" in _documented("text", "reverse_proxy")


def _seconds(blocks_: str) -> list[int]:
    return [int(found) for found in re.findall(r"proxy_read_timeout (\d+)s;", blocks_)]
