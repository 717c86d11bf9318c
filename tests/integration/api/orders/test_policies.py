"""Policies of work orders over HTTP: built-in ones, versions of tenants, and refusals that name every error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nova_workers.domain.orders.rules.door import AdmittedOrder, RefusedOrder
from nova_workers.domain.orders.rules.policies.parsing import parse_policy
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import Tenant
from tests.integration.api.orders.conftest import valid_order
from tests.requirements import proves
from tests.support.data.order_policies import POLICY
from tests.support.data.work_orders import EXAMPLES

PATH = "/v1/work-order-policies"


def body(version: str, **changes: Any) -> dict[str, Any]:
    return {"document": POLICY | {"version": version} | changes}


async def test_a_tenant_begins_with_the_built_in_policies(api: Api) -> None:
    listed = (await api.http.get(PATH)).json()["items"]
    assert {(each["id"], each["built_in"], each["number"]) for each in listed} == {(name, True, 0) for name in EXAMPLES}
    shown = (await api.http.get(f"{PATH}/{EXAMPLES[0]}")).json()
    assert parse_policy(shown["document"]).id == EXAMPLES[0]
    assert (await api.http.get(f"{PATH}/unknown")).status_code == 404
    assert (await api.http.get(f"{PATH}/{EXAMPLES[0]}", params={"version": "0.1"})).status_code == 404


async def test_each_change_needs_a_version_of_its_own_and_the_newest_applies(api: Api) -> None:
    assert (await api.http.put(f"{PATH}/plain", json=body("1"))).json()["number"] == 1
    assert (await api.http.put(f"{PATH}/plain", json=body("1"))).json()["number"] == 1
    changed = await api.http.put(f"{PATH}/plain", json=body("1", description="other"))
    assert (changed.status_code, changed.json()["code"]) == (409, "conflict")
    assert (await api.http.put(f"{PATH}/plain", json=body("2", description="other"))).json()["number"] == 2
    assert (await api.http.get(f"{PATH}/plain")).json()["version"] == "2"
    assert (await api.http.get(f"{PATH}/plain", params={"version": "1"})).json()["description"] == ""
    page = (await api.http.get(f"{PATH}/plain/versions", params={"limit": 1})).json()
    rest = await api.http.get(f"{PATH}/plain/versions", params={"limit": 1, "cursor": page["next_cursor"]})
    assert [each["version"] for each in page["items"] + rest.json()["items"]] == ["2", "1"]


@proves("ceilings.write")
async def test_policies_and_orders_obey_the_ceiling_of_engines(api: Api, order_secret: str) -> None:
    path = f"/v1/tenants/{api.tenant.id}"
    assert (await api.http.patch(path, json={"ceilings": {"engines": ["openai"]}})).status_code == 200
    refused = await api.http.put(f"{PATH}/plain", json=body("1"))
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "document.roles.0.models.0.engine")
    assert (await api.http.get(f"{PATH}/plain")).status_code == 404
    order = valid_order(api.tenant.id, order_secret)
    await api.http.patch(path, json={"ceilings": {"engines": ["gemini"]}})
    found = await api.state.services.order_door.admit(api.tenant.id, order)
    assert isinstance(found, RefusedOrder)
    assert {problem.path for problem in found.problems} == {"policyId"}
    assert "permits this tenant no engine" in found.problems[0].rule
    await api.http.patch(path, json={"ceilings": None})
    assert isinstance(await api.state.services.order_door.admit(api.tenant.id, order), AdmittedOrder)


async def test_of_concurrent_writers_each_makes_a_version(api: Api) -> None:
    answers = await asyncio.gather(*(api.http.put(f"{PATH}/plain", json=body(str(each))) for each in range(6)))
    assert sorted(answer.json()["number"] for answer in answers) == [1, 2, 3, 4, 5, 6]


async def test_a_tenant_s_policy_takes_the_place_of_a_built_in_one_for_that_tenant(
    api: Api, other_tenant: Tenant
) -> None:
    own = await api.http.put(f"{PATH}/{EXAMPLES[0]}", json=body("own", id=EXAMPLES[0]))
    assert own.status_code == 200, own.text
    assert (await api.http.get(f"{PATH}/{EXAMPLES[0]}")).json()["version"] == "own"
    async with api.client(other_tenant.key) as other:
        assert (await other.get(f"{PATH}/{EXAMPLES[0]}")).json()["built_in"] is True
        assert (await other.get(f"{PATH}/{EXAMPLES[0]}/versions")).json()["items"] == []


async def test_after_a_tenant_s_policy_is_deleted_the_built_in_one_applies(
    api: Api, order_secret: str, other_tenant: Tenant
) -> None:
    path = f"{PATH}/{EXAMPLES[0]}"
    for version in ("1", "2"):
        await api.http.put(path, json=body(version, id=EXAMPLES[0]))
    async with api.client(other_tenant.key) as other:
        assert (await other.delete(path)).status_code == 404
    assert (await api.http.get(path)).json()["version"] == "2"
    assert (await api.http.delete(path)).status_code == 204
    assert (await api.http.get(path)).json()["built_in"] is True
    assert (await api.http.get(f"{path}/versions")).json()["items"] == []
    again = await api.http.delete(path)
    assert (again.status_code, again.json()["code"]) == (404, "not_found")
    assert "built-in" in again.json()["detail"]


async def test_a_version_that_was_deleted_is_not_applied_when_its_number_is_used_again(
    api: Api, order_secret: str
) -> None:
    door = api.state.services.order_door
    for description in ("before", "after"):
        await api.http.put(f"{PATH}/plain", json=body("1", description=description))
        found = await door.admit(api.tenant.id, valid_order(api.tenant.id, order_secret, policyId="plain"))
        assert isinstance(found, AdmittedOrder)
        assert found.policy.description == description
        assert (await api.http.delete(f"{PATH}/plain")).status_code == 204


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"roles": []}, "document.roles", "at least 1"),
        ({"tier2": 1}, "document.tier2", "no such field"),
        ({"inputsSchema": {"type": "thing"}}, "document.inputsSchema.type", "no JSON schema"),
        ({"inputsSchema": {"$ref": "https://example.com/a.json"}}, "document.inputsSchema", "another document"),
        ({"inputsSchema": {"$ref": "#/$defs/missing"}}, "document.inputsSchema", "leads nowhere"),
        ({"inputsSchema": {"$ref": "#"}}, "document.inputsSchema", "back to itself"),
        ({"id": "other"}, "document.id", "is the policy 'other'"),
    ],
)
async def test_a_policy_with_errors_is_refused_whole(api: Api, changes: dict[str, Any], field: str, words: str) -> None:
    answer = await api.http.put(f"{PATH}/plain", json=body("1", **changes))
    assert answer.status_code == 422
    assert any(each["field"] == field and words in each["message"] for each in answer.json()["errors"]), answer.text
    assert (await api.http.get(f"{PATH}/plain")).status_code == 404
