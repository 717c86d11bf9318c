"""The configuration of orchestrations over HTTP: versions, and refusals that name every error."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nova_workers.base.errors import InvalidInput, NotFound, VersionMismatch
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves

PATH = "/v1/orchestrations/config"


def depth(levels: int) -> dict[str, str]:
    return {"text": f"engine: {{max_agent_depth: {levels}}}\n"}


@pytest.mark.usefixtures("own_api")
async def test_a_tenant_begins_without_a_configuration(api: Api) -> None:
    answer = await api.http.get(PATH)
    assert (answer.status_code, answer.headers["etag"]) == (200, '"0"')
    assert (answer.json()["version"], answer.json()["text"]) == (0, "")
    config, version = await api.state.services.orchestration_configs.load(api.tenant.id)
    assert (config.engine.max_agent_depth, version) == (5, 0)
    assert config.model("opus").provider == "claude"


@pytest.mark.usefixtures("own_api")
async def test_each_change_is_a_version(api: Api) -> None:
    first = await api.http.put(PATH, json={**depth(3), "models_text": "models: {mine: opus}"})
    assert (first.status_code, first.headers["etag"], first.json()["version"]) == (200, '"1"', 1)
    assert (await api.http.put(PATH, json={**depth(3), "models_text": "models: {mine: opus}"})).json()["version"] == 1
    assert (await api.http.put(PATH, json=depth(4))).json()["version"] == 2
    assert (await api.http.put(PATH, json={**depth(3), "models_text": "models: {mine: opus}"})).json()["version"] == 3
    pages = await api.http.get(f"{PATH}/versions", params={"limit": 2})
    rest = await api.http.get(f"{PATH}/versions", params={"limit": 2, "cursor": pages.json()["next_cursor"]})
    assert [each["version"] for each in pages.json()["items"] + rest.json()["items"]] == [3, 2, 1]
    assert (await api.http.get(f"{PATH}/versions/2")).json()["text"] == depth(4)["text"]
    assert (await api.http.get(f"{PATH}/versions/9")).status_code == 404
    config, version = await api.state.services.orchestration_configs.load(api.tenant.id)
    assert (config.engine.max_agent_depth, version, config.model("mine").provider) == (3, 3, "claude")


async def test_a_version_that_another_writer_made_is_not_overwritten(api: Api) -> None:
    assert (await api.http.put(PATH, json=depth(3), headers={"If-Match": '"0"'})).status_code == 200
    late = await api.http.put(PATH, json=depth(4), headers={"If-Match": '"0"'})
    assert (late.status_code, late.json()["code"]) == (412, "version_mismatch")
    assert (await api.http.get(PATH)).json()["text"] == depth(3)["text"]
    assert (await api.http.put(PATH, json=depth(4), headers={"If-Match": "x"})).status_code == 422


async def test_of_concurrent_writers_without_an_expectation_each_makes_a_version(api: Api) -> None:
    answers = await asyncio.gather(*(api.http.put(PATH, json=depth(levels)) for levels in range(1, 7)))
    assert sorted(answer.json()["version"] for answer in answers) == [1, 2, 3, 4, 5, 6]


async def test_of_concurrent_writers_that_expect_one_version_one_succeeds(api: Api) -> None:
    answers = await asyncio.gather(
        *(api.http.put(PATH, json=depth(levels), headers={"If-Match": "0"}) for levels in range(1, 7))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412, 412, 412]


@proves("orchestration.config-whole")
async def test_a_configuration_with_errors_is_refused_whole(api: Api) -> None:
    answer = await api.http.put(PATH, json={"text": "engine:\n  max_agent_dept: 3\nmodels: {a: b}\n"})
    assert answer.status_code == 422
    assert [(each["field"], each["file"], each["line"], each["column"]) for each in answer.json()["errors"]] == [
        ("engine.max_agent_dept", "orchestration.yaml", 2, 3),
        ("models.a", "orchestration.yaml", 3, 13),
    ]
    assert (await api.http.get(PATH)).json()["version"] == 0


async def test_a_program_that_the_operator_does_not_permit_is_refused(api: Api) -> None:
    text = "plugins: {evil: {type: stdio, command: rm, args: [-rf, /]}}"
    answer = await api.http.put(PATH, json={"text": text})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "plugins.evil.command"


async def test_a_tenant_sees_its_own_configuration_only(api: Api, other_tenant: Tenant) -> None:
    await api.http.put(PATH, json=depth(3))
    async with api.client(other_tenant.key) as other:
        assert (await other.get(PATH)).json()["version"] == 0
        assert (await other.get(f"{PATH}/versions")).json()["items"] == []


async def test_the_client_writes_and_reads_it(api: Api, tmp_path: Path) -> None:
    async with NovaClient(api.url, api.tenant.key) as nova:
        configs = nova.orchestration_config
        made = await configs.put(OrchestrationConfigPut(text="engine: {}"), if_version=0)
        assert await configs.get() == made == await configs.version(1)
        assert [each.version for each in (await configs.versions()).items] == [1]
        with pytest.raises(VersionMismatch):
            await configs.put(OrchestrationConfigPut(text=""), if_version=0)
        with pytest.raises(InvalidInput, match="2 errors"):
            await configs.put(OrchestrationConfigPut(text="a: 1\nb: 2"))
        with pytest.raises(NotFound):
            await configs.version(7)
