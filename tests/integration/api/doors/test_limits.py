"""Limits and outages at doors, in the form of each protocol: an API with narrow limits, and one without a database."""

from __future__ import annotations

from typing import Final

import httpx2
import pytest
from pydantic import SecretStr

from nova_workers.base.config import Settings
from tests.integration.api.conftest import Api, served
from tests.integration.api.doors.door_clients import DoorClient
from tests.integration.api.doors.every_door import DOORS, each_door
from tests.integration.api.doors.openai_client import OpenAIDoor
from tests.integration.api.doors.test_contract import NO_RUN, sent
from tests.integration.api.shared_servers import SharedServers

_PAGES: Final = "https://front.example"
_BURST: Final = 20
"""The requests of a key that come at once: two a second, for ten seconds."""


def with_doors(settings: Settings, **api: object) -> Settings:
    """Return settings with every door."""
    doors = tuple({door.door: None for door in DOORS})
    return settings.model_copy(update={"doors": doors, "api": settings.api.model_copy(update=api)})


@pytest.fixture(scope="module")
def shared_api_url(shared: SharedServers) -> str:
    """URL of an API with narrow limits, which tests of the module share."""
    narrow = {"requests_per_s_per_key": 2, "max_streams_per_key": 1, "cors_origins": (_PAGES,)}
    return shared.enter(served(with_doors(shared.settings, **narrow)))[0]


@pytest.fixture(scope="module")
def url_without_database(shared: SharedServers) -> str:
    """URL of an API whose database does not answer."""
    away = shared.settings.model_copy(update={"database_url": SecretStr("postgresql://nova@127.0.0.1:9/none")})
    return shared.enter(served(with_doors(away)))[0]


@each_door()
async def test_a_key_that_asks_too_often_gets_429_and_when_to_come_back(api: Api, door: DoorClient) -> None:
    request = door.requests(NO_RUN)[0]
    answer = await request.send(api.http)
    for _ in range(2 * _BURST):
        if answer.status_code == 429:
            break
        answer = await request.send(api.http)
    assert door.refusal_of(answer).is_like(429, "rate_limited")
    assert int(answer.headers["retry-after"]) >= 1


@each_door()
async def test_streams_take_permits_of_the_key(api: Api, door: DoorClient) -> None:
    run_id = await sent(api, door)
    runs = await api.count("runs")
    async with api.http.stream("GET", f"/v1/runs/{run_id}/events") as held:
        assert held.status_code == 200
        refused = await door.stream(run_id).send(api.http)
        assert door.refusal_of(refused).is_like(429, "too_many_streams")
    assert await api.count("runs") == runs, "a run was made for a stream that was refused"


async def test_a_response_in_the_background_is_not_made_where_its_stream_is_refused(api: Api) -> None:
    door = OpenAIDoor()
    run_id = await sent(api, door)
    async with api.http.stream("GET", f"/v1/runs/{run_id}/events") as held:
        assert held.status_code == 200
        refused = await door.send(api.http, stream=True)
        assert door.refusal_of(refused).is_like(429, "too_many_streams")
    assert await api.count("runs") == 1


@each_door()
async def test_pages_of_origins_that_the_operator_names_may_use_the_door(api: Api, door: DoorClient) -> None:
    request = door.message()
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    asked = await api.http.options(request.path, headers={"origin": _PAGES, **asks})
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, _PAGES)
    other = await api.http.options(request.path, headers={"origin": "https://other.example", **asks})
    assert other.status_code == 400
    async with api.client(None) as keyless:
        for client in (api.http, keyless):
            answer = await door.post(client, request.plus(origin=_PAGES))
            assert answer.headers["access-control-allow-origin"] == _PAGES


@each_door()
async def test_a_request_for_another_host_is_refused_in_the_form_of_the_protocol(api: Api, door: DoorClient) -> None:
    answer = await door.message().plus(host="other.example").send(api.http)
    assert door.refusal_of(answer).is_like(421, "unknown_host")


@each_door()
async def test_without_a_database_every_request_gets_503_and_when_to_come_back(
    api: Api, door: DoorClient, url_without_database: str
) -> None:
    async with httpx2.AsyncClient(
        base_url=url_without_database, headers=api.http.headers, verify=False, timeout=60
    ) as client:
        for request in door.requests(NO_RUN):
            answer = await request.send(client)
            refused = door.refusal_of(answer)
            assert refused.is_like(503, refused.code or ""), request
            assert int(answer.headers["retry-after"]) >= 1
