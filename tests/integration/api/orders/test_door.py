"""The door of work orders: everything wrong is named at once, in the form of a result, without any content."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from api.app import build_app
from api.routes.orders.admission import Admitted
from nova_workers.config import Settings
from nova_workers.contracts.orders import AiWorkResultV1, OrderProblem
from nova_workers.errors import InvalidInput
from nova_workers.ids import new_id
from nova_workers.orders.checker import invalid_result
from nova_workers.orders.door import AdmittedOrder, RefusedOrder
from tests.integration.api.conftest import Api
from tests.integration.api.orders.conftest import keyed, valid_order
from tests.requirements import proves
from tests.support.data.fuzzed_orders import MARK, damaged_orders
from tests.support.data.order_policies import POLICY
from tests.support.data.work_orders import EXAMPLES
from tests.support.servers.asgi import serving

FUZZED = int(os.environ.get("FUZZED_ORDERS", "400"))
"""Orders of the property test."""
CANARY = "the text of a person"


async def _problems(api: Api, order: object) -> dict[str, str]:
    found = await api.state.services.order_door.admit(api.tenant.id, order)
    assert isinstance(found, RefusedOrder)
    return {problem.path: problem.rule for problem in found.problems}


@pytest.mark.parametrize("policy_id", EXAMPLES)
async def test_an_example_with_its_key_is_admitted_with_its_policy(api: Api, order_secret: str, policy_id: str) -> None:
    found = await api.state.services.order_door.admit(
        api.tenant.id, valid_order(api.tenant.id, order_secret, policy_id)
    )
    assert isinstance(found, AdmittedOrder)
    assert (found.policy.id, found.order.tenant) == (policy_id, api.tenant.id)


async def test_everything_wrong_is_named_at_once(api: Api, order_secret: str) -> None:
    order = valid_order(api.tenant.id, order_secret)
    wrong = order | {"tenant": "elsewhere", "policyId": "unknown"}
    assert set(await _problems(api, wrong)) == {"tenant", "policyId", "idempotency.keyHash"}


async def test_a_key_that_does_not_belong_to_the_content_is_refused(api: Api, order_secret: str) -> None:
    order = valid_order(api.tenant.id, order_secret)
    assert set(await _problems(api, order | {"inputs": {"userTextHash": "sha256:other"}})) == {"idempotency.keyHash"}


async def test_without_a_secret_an_order_is_refused_with_the_reason(api: Api) -> None:
    problems = await _problems(api, valid_order(api.tenant.id, "any"))
    assert "nova orders secrets create" in problems["idempotency.keyHash"]


async def test_inputs_that_break_the_schema_of_the_policy_are_named_without_their_content(
    api: Api, order_secret: str
) -> None:
    schema = {
        "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
        "additionalProperties": False,
        "required": ["facts"],
    }
    stored = await api.http.put("/v1/work-order-policies/plain", json={"document": POLICY | {"inputsSchema": schema}})
    assert stored.status_code == 200, stored.text
    order = valid_order(api.tenant.id, order_secret, policyId="plain", inputs={"facts": ["a", 1], CANARY: CANARY})
    problems = await _problems(api, order)
    assert set(problems) == {"inputs", "inputs.facts.1"}
    assert CANARY not in str(problems)


async def test_an_unknown_field_is_named_and_a_text_as_its_name_is_not(api: Api) -> None:
    order = valid_order(api.tenant.id, "any")
    problems = await _problems(api, order | {"priority": 1, CANARY: 2})
    assert set(problems) == {"priority", "*"}


async def test_a_number_without_a_canonical_form_is_named(api: Api, order_secret: str) -> None:
    order = valid_order(api.tenant.id, order_secret) | {"inputs": {"big": 2**60}}
    assert set(await _problems(api, order)) == {"inputs"}


async def test_extensions_that_are_not_known_change_nothing(api: Api, order_secret: str) -> None:
    order = valid_order(api.tenant.id, order_secret)
    order["extensions"]["moonPhase"] = CANARY
    found = await api.state.services.order_door.admit(api.tenant.id, order)
    assert isinstance(found, AdmittedOrder)
    assert CANARY not in str(found.order)


@proves("order.refused")
async def test_a_fuzzed_order_is_never_an_error_and_its_text_is_never_shown(api: Api, order_secret: str) -> None:
    door = api.state.services.order_door

    async def check(order: Any) -> None:
        try:
            order = keyed(order | {"tenant": api.tenant.id}, order_secret)
        except (ValueError, TypeError, InvalidInput):
            pass  # Damaged so that it has no key.
        found = await door.admit(api.tenant.id, order)
        if isinstance(found, RefusedOrder):
            assert found.problems
            result = invalid_result(new_id("trc"), found.problems).to_wire()
            assert MARK not in str(result)
            assert AiWorkResultV1.from_wire(result).stop_reason == "invalid_request"

    orders: list[Any] = []

    @hypothesis_settings(
        max_examples=FUZZED,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(damaged_orders())
    def collect(order: Any) -> None:
        orders.append(order)

    collect()
    for order in orders:
        await check(order)


@pytest.fixture
async def probe(settings: Settings, api: Api) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an API with one more route: it answers an admitted order with its policy."""
    app = build_app(api.state.services.settings)

    @app.post("/v1/probe")
    async def answer(admitted: Admitted) -> dict[str, str]:
        return {"policy": admitted.policy.id}

    async with serving(app, patient=True) as url:
        headers = {"Authorization": f"Bearer {api.tenant.key}", "Content-Type": "application/json"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, verify=False) as client:
            yield client
        app.state.nova.watch.close()


@pytest.mark.parametrize(
    ("content", "headers", "status", "rule"),
    [
        (b"{", {}, HTTPStatus.BAD_REQUEST, "not JSON"),
        (b'{"a": "\xff"}', {}, HTTPStatus.BAD_REQUEST, "not JSON"),
        (b"[" * 100 + b"]" * 100, {}, HTTPStatus.BAD_REQUEST, "nested deeper"),
        (b'{"the text of a person": "\\u0000"}', {}, HTTPStatus.UNPROCESSABLE_ENTITY, "U+0000"),
        (b"{}", {"Content-Type": "text/plain"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "application/json"),
        (b"[]", {}, HTTPStatus.UNPROCESSABLE_ENTITY, "AiWorkOrderV1"),
        (b'{"version": "the text of a person"}', {}, HTTPStatus.UNPROCESSABLE_ENTITY, "'v1'"),
    ],
)
async def test_what_cannot_be_an_order_is_answered_with_a_result(
    probe: httpx2.AsyncClient, content: bytes, headers: dict[str, str], status: HTTPStatus, rule: str
) -> None:
    answer = await probe.post("/v1/probe", content=content, headers=headers)
    assert answer.status_code == status
    result = AiWorkResultV1.from_wire(answer.json())
    assert (result.status, result.stop_reason, result.customer_safe) == ("failed", "invalid_request", True)
    assert result.trace_id.startswith("trc_")
    assert result.extensions is not None
    problems: list[OrderProblem] = result.extensions.problems or []
    assert any(rule in problem.rule for problem in problems), answer.text
    assert CANARY not in answer.text


async def test_an_admitted_order_reaches_the_route(probe: httpx2.AsyncClient, api: Api, order_secret: str) -> None:
    answer = await probe.post("/v1/probe", content=orjson.dumps(valid_order(api.tenant.id, order_secret)))
    assert (answer.status_code, answer.json()) == (200, {"policy": "butler_basic"})
    anonymous = await probe.post("/v1/probe", content=b"{}", headers={"Authorization": "Bearer no"})
    assert anonymous.status_code == HTTPStatus.UNAUTHORIZED
