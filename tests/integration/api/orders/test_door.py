"""The door of work orders: everything wrong is named at once, in the form of a result, without any content."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httpx2
import orjson
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from api.app import build_app
from api.routes.orders.admission import Admitted
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.orders import AiWorkResultV1, OrderProblem
from nova_workers.contracts.orders.definitions import json_schema
from nova_workers.domain.orders.rules.door import AdmittedOrder, RefusedOrder
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.orders.conftest import keyed, valid_order
from tests.integration.api.workspace.test_secrets import key
from tests.requirements import proves
from tests.support.data.fuzzed_orders import MARK, damaged_orders
from tests.support.data.order_policies import POLICY
from tests.support.data.work_orders import EXAMPLES, example_order
from tests.support.servers.asgi import serving

FUZZED = int(os.environ.get("FUZZED_ORDERS", "200"))
"""Orders of the property test."""
_AT_ONCE = 8
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


async def test_without_a_master_key_the_reason_is_that_and_not_a_missing_secret(
    api: Api, serve: Serve, settings: Settings, order_secret: str
) -> None:
    bare = await serve(Settings.model_validate({**settings.model_dump(), "secrets": {"keys": []}}))
    other = await serve(Settings.model_validate({**settings.model_dump(), "secrets": {"keys": [key("other")]}}))
    order = valid_order(api.tenant.id, order_secret)
    for each, reason in ((bare, "it has no master key"), (other, "encrypted with the master key 'first'")):
        rule = (await _problems(each, order))["idempotency.keyHash"]
        assert reason in rule
        assert "NOVA_SECRETS__KEYS" in rule
        assert "secrets create" not in rule


async def test_an_order_is_refused_if_no_model_of_a_role_has_what_its_policy_requires(
    api: Api, order_secret: str
) -> None:
    document: dict[str, Any] = {**POLICY, "requiredCapabilities": ["vision"]}
    stored = await api.http.put("/v1/work-order-policies/plain", json={"document": document})
    assert stored.status_code == 422
    assert "roles.0.models: none has all of requiredCapabilities (vision)" in stored.text
    # As a release stored it that did not compare them.
    await api.state.services.database.execute(
        "INSERT INTO work_order_policies (tenant_id, policy_id, number, version, document) "
        "VALUES (:tenant_id, 'plain', 1, '1', :document)",
        tenant_id=api.tenant.id,
        document=document,
    )
    order = valid_order(api.tenant.id, order_secret, policyId="plain")
    assert "has all capabilities" in (await _problems(api, order))["policyId"]


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
    order = valid_order(api.tenant.id, order_secret) | {"inputs": {"big": 2**60 + 1}}
    assert set(await _problems(api, order)) == {"inputs"}


async def test_extensions_that_are_not_known_change_nothing(api: Api, order_secret: str) -> None:
    order = valid_order(api.tenant.id, order_secret)
    order["extensions"]["moonPhase"] = CANARY
    found = await api.state.services.order_door.admit(api.tenant.id, order)
    assert isinstance(found, AdmittedOrder)
    assert CANARY not in str(found.order)


@pytest.mark.hypothesis
@proves("order.refused")
async def test_a_fuzzed_order_always_gets_a_result_and_no_text_of_it_is_shown(
    api: Api, order_secret: str, logs: list[MutableMapping[str, Any]]
) -> None:
    drawn: list[Any] = []

    @hypothesis_settings(
        max_examples=FUZZED,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(damaged_orders(), st.sampled_from([None, "butler_basic", "launchbase_standard"]))
    def collect(order: Any, policy_id: str | None) -> None:
        # Of a policy that exists, undamaged orders are accepted.
        known = {} if policy_id is None or "policyId" not in order else {"policyId": policy_id}
        drawn.append(order | {"tenant": api.tenant.id} | known)

    # In a thread: drawing thousands takes minutes, in which the API's own tasks have to go on.
    await asyncio.to_thread(collect)
    statuses: Counter[int] = Counter()
    contract = json_schema()
    result_of = Draft202012Validator({**contract["$defs"]["AiWorkResultV1"], "$defs": contract["$defs"]})

    async def submit(order: Any) -> None:
        with suppress(ValueError, TypeError, InvalidInput):  # Damaged so that it has no key.
            order = keyed(order, order_secret)
        answer = await api.http.post("/v1/work-orders", json=order, headers={"Prefer": "respond-async"})
        statuses[answer.status_code] += 1
        assert answer.status_code in {HTTPStatus.ACCEPTED, HTTPStatus.UNPROCESSABLE_ENTITY}, answer.text
        result_of.validate(answer.json())
        result = AiWorkResultV1.from_wire(answer.json())
        refused = answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        assert result.stop_reason == ("invalid_request" if refused else "in_progress")
        problems = result.extensions.problems if result.extensions is not None else None
        assert bool(problems) == refused
        assert MARK not in answer.text

    for first in range(0, len(drawn), _AT_ONCE):
        await asyncio.gather(*(submit(order) for order in drawn[first : first + _AT_ONCE]))
    assert statuses[HTTPStatus.ACCEPTED] > FUZZED // 100, statuses
    assert statuses[HTTPStatus.UNPROCESSABLE_ENTITY] > FUZZED // 10, statuses
    assert MARK not in str(logs)


@pytest.fixture
async def probe(settings: Settings, api: Api) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an API with one more route: it answers an admitted order with its policy."""
    app = build_app(api.state.services.settings)

    @app.post("/v1/probe")
    async def answer(admitted: Admitted) -> dict[str, str]:
        return {"policy": admitted.policy.id}

    async with serving(app, patient=True) as url:
        headers = {"Authorization": f"Bearer {api.tenant.key}", "Content-Type": "application/json"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, verify=False, timeout=60) as client:
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


async def test_a_stored_policy_whose_schema_is_no_longer_accepted_refuses_its_orders(
    probe: httpx2.AsyncClient, api: Api, database: Database, order_secret: str
) -> None:
    outside: dict[str, Any] = {"type": "object", "$ref": "https://example.com/schema.json"}
    changes = ({"inputsSchema": outside}, {"produces": "odd_v1", "artifactKinds": {"odd_v1": outside}})
    for number, change in enumerate(changes, 1):
        # As a release stored it that accepted such a schema.
        await database.execute(
            "INSERT INTO work_order_policies (tenant_id, policy_id, number, version, document)"
            " VALUES (:tenant_id, 'plain', :number, :version, :document)",
            tenant_id=api.tenant.id,
            number=number,
            version=str(number),
            document=POLICY | {"version": str(number)} | change,
        )
        order = keyed(example_order("butler_basic") | {"tenant": api.tenant.id, "policyId": "plain"}, order_secret)
        answer = await probe.post("/v1/probe", content=orjson.dumps(order))
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        result = AiWorkResultV1.from_wire(answer.json())
        assert result.extensions is not None
        (problem,) = result.extensions.problems or []
        assert problem.path == "policyId"
        assert "refers to another document" in problem.rule


async def test_an_admitted_order_reaches_the_route(probe: httpx2.AsyncClient, api: Api, order_secret: str) -> None:
    answer = await probe.post("/v1/probe", content=orjson.dumps(valid_order(api.tenant.id, order_secret)))
    assert (answer.status_code, answer.json()) == (200, {"policy": "butler_basic"})
    anonymous = await probe.post("/v1/probe", content=b"{}", headers={"Authorization": "Bearer no"})
    assert anonymous.status_code == HTTPStatus.UNAUTHORIZED
