"""What `nova doctor` says of a key that the API cannot look up."""

from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.cli.operations.api_checks import check_api
from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.target import Target
from nova_workers.client.client import NovaClient
from tests.integration.api.conftest import Serve
from tests.requirements import proves


async def _key(url: str, key: str) -> Finding:
    target = Target(url, key, "the test", "/home/nova/.nova/api_key")
    async with NovaClient(url, key) as client:
        (found,) = [each for each in await check_api(client, target) if each.name == "key"]
    return found


@proves("doctor.key")
async def test_a_database_that_is_away_is_no_reason_to_replace_a_key(serve: Serve, settings: Settings) -> None:
    away = SecretStr("postgresql://nova@127.0.0.1:9/none")
    api = await serve(settings.model_copy(update={"database_url": away}))
    found = await _key(api.url, api.tenant.key)
    assert found.state == "fail"
    assert found.detail.startswith("not checked: ")
    assert found.fix.startswith("nothing is known against the key")


@proves("doctor.key")
async def test_a_refused_key_is_replaced_and_no_file_deleted(serve: Serve, settings: Settings) -> None:
    api = await serve(settings)
    assert (await _key(api.url, api.tenant.key)).state == "ok"
    found = await _key(api.url, "nova_wrong")
    assert "/home/nova/.nova/api_key" in found.fix
    assert "delete" not in found.fix
