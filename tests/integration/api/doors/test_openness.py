"""Which doors are open, and under which address clients reach them, as the API states it."""

from __future__ import annotations

import httpx2

from api.doors.loading import DOORS
from nova_workers.base.config import Settings
from nova_workers.client import NovaClient
from tests.integration.api.conftest import Api, served


async def test_any_key_learns_which_doors_are_open(api: Api) -> None:
    async with NovaClient(api.url, api.tenant.key) as nova:
        found = await nova.fleet.doors()
    assert found.public_url is None
    assert {door.name: (door.path, door.state) for door in found.doors} == {
        name: (place.prefix.rstrip("/"), "open") for name, place in DOORS.items()
    }


async def test_the_public_address_is_named_and_served(settings: Settings, api: Api) -> None:
    public = settings.api.model_copy(update={"public_url": "https://nova.example.org"})
    async with served(settings.model_copy(update={"api": public})) as (url, _), httpx2.AsyncClient(timeout=60) as http:
        refused = await http.get(f"{url}/healthz", headers={"Host": "other.example.org"})
        answered = await http.get(f"{url}/healthz", headers={"Host": "nova.example.org"})
        assert (refused.status_code, answered.status_code) == (421, 200)
        key = {"Authorization": f"Bearer {api.tenant.key}"}
        found = (await http.get(f"{url}/v1/fleet/doors", headers=key)).json()
    assert found["public_url"] == "https://nova.example.org"
    assert {door["state"] for door in found["doors"]} == {"closed"}
