"""The OpenAPI document: what it lists, and that the API does as it says under generated requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import threading
import time
from collections.abc import Generator
from copy import deepcopy
from typing import Any, NamedTuple

import jsonschema_rs
import pytest
import requests
import schemathesis
import uvicorn
from fastapi.routing import APIRoute
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from inline_snapshot import snapshot
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.hypothesis.builder import HypothesisTestConfig, HypothesisTestMode, create_test
from schemathesis.generation.meta import FuzzingPhaseData
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from api.app import build_app
from nova_workers.base.config import Settings
from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.http.archive import MEDIA_TYPE
from nova_workers.contracts.orders import OrderProblem
from nova_workers.contracts.orders.definitions import schemas as order_schemas
from nova_workers.domain.orders.rules.checker import invalid_result
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import make_tenant
from tests.support.data.idle_api import idle_api
from tests.support.servers.asgi import loopback_listener

_SETTINGS = hypothesis_settings(
    max_examples=12,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_routes_and_the_scopes_that_they_need() -> None:
    document = idle_api().openapi()

    def scopes(operation: dict[str, Any]) -> list[str]:
        return [scope for need in operation.get("security", ()) for scope in need["HTTPBearer"]]

    listed = [
        " ".join([method.upper(), path, *scopes(operation)])
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    assert listed == snapshot(
        [
            "POST /v1/threads/{thread_id}/runs runs",
            "GET /v1/threads/{thread_id}/runs runs:read",
            "POST /v1/runs runs",
            "GET /v1/runs runs:read",
            "POST /v1/threads/{thread_id}/runs/wait runs",
            "POST /v1/runs/wait runs",
            "POST /v1/threads/{thread_id}/runs/stream runs",
            "POST /v1/runs/stream runs",
            "GET /v1/runs/{run_id}/wait runs:read",
            "POST /v1/runs/batch runs",
            "GET /healthz",
            "GET /readyz",
            "GET /metrics",
            "GET /v1/runs/{run_id}/events runs:read",
            "GET /v1/waits runs:read",
            "POST /v1/runs/{run_id}/answers runs",
            "POST /v1/runs/{run_id}/tool-results runs",
            "GET /v1/runs.csv runs:read",
            "GET /v1/run-lists runs:read",
            "POST /v1/run-lists runs:read",
            "DELETE /v1/run-lists/{list_id} runs:read",
            "POST /v1/runs/cancel runs",
            "POST /v1/runs/retry runs",
            "GET /v1/runs/{run_id} runs:read",
            "PATCH /v1/runs/{run_id} runs",
            "DELETE /v1/runs/{run_id} runs",
            "POST /v1/runs/{run_id}/cancel runs",
            "POST /v1/runs/{run_id}/retry runs",
            "GET /v1/runs/{run_id}/reasons runs:read",
            "POST /v1/runs/{run_id}/kick runs",
            "POST /v1/runs/{run_id}/requeue runs",
            "POST /v1/runs/{run_id}/fail runs",
            "GET /v1/runs/{run_id}/timeline runs:read",
            "GET /v1/runs/{run_id}/steps/{step}/request runs:read prompts",
            "POST /v1/runs/{run_id}/feedback feedback",
            "GET /v1/runs/{run_id}/feedback runs:read",
            "GET /v1/feedback runs:read",
            "DELETE /v1/feedback/{feedback_id} feedback",
            "GET /v1/agents/{agent_id}/feedback runs:read",
            "POST /v1/datasets runs",
            "GET /v1/datasets runs:read",
            "GET /v1/datasets/{dataset} runs:read",
            "PATCH /v1/datasets/{dataset} runs",
            "DELETE /v1/datasets/{dataset} runs",
            "POST /v1/datasets/{dataset}/from-runs runs",
            "GET /v1/datasets/{dataset}/examples runs:read",
            "POST /v1/datasets/{dataset}/examples runs",
            "DELETE /v1/datasets/{dataset}/examples/{key} runs",
            "POST /v1/evaluations runs",
            "GET /v1/evaluations runs:read",
            "GET /v1/evaluations/{evaluation_id} runs:read",
            "DELETE /v1/evaluations/{evaluation_id} runs",
            "GET /v1/evaluations/{evaluation_id}/trials runs:read",
            "POST /v1/evaluations/{evaluation_id}/cancel runs",
            "POST /v1/threads runs",
            "GET /v1/threads runs:read",
            "GET /v1/threads/{thread_id} runs:read",
            "PATCH /v1/threads/{thread_id} runs",
            "DELETE /v1/threads/{thread_id} runs",
            "POST /v1/threads/{thread_id}/fork runs",
            "GET /v1/threads/{thread_id}/forks runs:read",
            "GET /v1/threads/{thread_id}/messages runs:read",
            "GET /v1/threads/{thread_id}/turns runs:read",
            "POST /v1/threads/{thread_id}/turns/{turn_id}/restore runs",
            "GET /v1/threads/{thread_id}/state runs:read",
            "PUT /v1/threads/{thread_id}/state runs",
            "PATCH /v1/threads/{thread_id}/state runs",
            "POST /v1/agents agents",
            "GET /v1/agents agents:read",
            "GET /v1/agents/{agent_id} agents:read",
            "PUT /v1/agents/{agent_id} agents",
            "PATCH /v1/agents/{agent_id} agents",
            "DELETE /v1/agents/{agent_id} agents",
            "GET /v1/agents/{agent_id}/tool-servers agents:read",
            "GET /v1/agents/{agent_id}/versions agents:read",
            "POST /v1/agents/{agent_id}/versions agents",
            "GET /v1/agents/{agent_id}/versions/{version} agents:read",
            "POST /v1/agents/{agent_id}/rollback agents",
            "POST /v1/agents/{agent_id}/rename agents",
            "POST /v1/agents/{agent_id}/prompt agents",
            "POST /v1/agents/{agent_id}/rollout agents",
            "GET /v1/agents/{agent_id}/rollout agents:read",
            "GET /v1/agents/{agent_id}/rollouts agents:read",
            "GET /v1/agents/{agent_id}/rollouts/{rollout_id} agents:read",
            "POST /v1/agents/{agent_id}/rollout/advance agents",
            "POST /v1/agents/{agent_id}/rollout/stop agents",
            "PUT /v1/agents/{agent_id}/sampling runs",
            "GET /v1/agents/{agent_id}/sampling runs:read",
            "DELETE /v1/agents/{agent_id}/sampling runs",
            "GET /v1/fleet",
            "GET /v1/fleet/top",
            "GET /v1/fleet/queued",
            "GET /v1/fleet/doors",
            "POST /v1/fleet/pause",
            "POST /v1/fleet/resume",
            "POST /v1/fleet/workers/{worker_id}/drain operator",
            "GET /v1/fleet/providers operator",
            "POST /v1/fleet/providers/clear operator",
            "POST /v1/keys keys",
            "GET /v1/keys keys",
            "POST /v1/keys/{key_id}/rotate keys",
            "DELETE /v1/keys/{key_id} keys",
            "POST /v1/sign-ins",
            "GET /v1/sign-ins keys",
            "GET /sso",
            "POST /sso/sign-ins",
            "DELETE /v1/sign-ins/{session_id}",
            "GET /v1/whoami",
            "PUT /v1/leases/{name} channels",
            "GET /v1/inbound-channels workspace:read",
            "POST /v1/inbound-channels/{channel}/retry workspace",
            "POST /v1/pairings channels",
            "GET /v1/pairings keys",
            "POST /v1/pairings/confirm keys",
            "DELETE /v1/pairings/{pairing_id} keys",
            "GET /v1/usage runs:read",
            "GET /v1/attention",
            "GET /v1/activity runs:read",
            "GET /v1/events",
            "GET /v1/audit keys",
            "GET /v1/audit/chain keys",
            "GET /v1/audit/export keys",
            "GET /v1/tenant",
            "PATCH /v1/tenant",
            "GET /v1/budgets runs:read",
            "POST /v1/tenants operator",
            "GET /v1/tenants operator",
            "GET /v1/tenants/{tenant_id} operator",
            "PATCH /v1/tenants/{tenant_id} operator",
            "DELETE /v1/tenants/{tenant_id} operator",
            "GET /v1/export workspace",
            "POST /v1/import workspace",
            "GET /v1/capabilities agents:read",
            "GET /v1/search runs:read",
            "POST /v1/memories workspace",
            "GET /v1/memories workspace:read",
            "DELETE /v1/memories/{memory_id} workspace",
            "POST /v1/tasks workspace",
            "GET /v1/tasks workspace:read",
            "GET /v1/tasks/{task_id} workspace:read",
            "PATCH /v1/tasks/{task_id} workspace",
            "POST /v1/tasks/{task_id}/activate workspace",
            "POST /v1/tasks/{task_id}/run workspace",
            "POST /v1/tasks/{task_id}/complete workspace",
            "POST /v1/tasks/{task_id}/cancel workspace",
            "GET /v1/tasks/{task_id}/history workspace:read",
            "PUT /v1/tasks/{task_id}/steps workspace",
            "PATCH /v1/tasks/{task_id}/steps/{step_id} workspace",
            "POST /v1/tasks/{task_id}/steps/{step_id}/subtask workspace",
            "POST /v1/tasks/{task_id}/resources workspace",
            "DELETE /v1/tasks/{task_id}/resources/{resource_id} workspace",
            "POST /v1/notes workspace",
            "GET /v1/notes workspace:read",
            "GET /v1/notes/{note_id} workspace:read",
            "PATCH /v1/notes/{note_id} workspace",
            "DELETE /v1/notes/{note_id} workspace",
            "GET /v1/deliveries workspace:read",
            "GET /v1/deliveries/{delivery_id} workspace:read",
            "POST /v1/deliveries/{delivery_id}/replay workspace",
            "POST /v1/deliveries/{delivery_id}/close workspace",
            "GET /v1/delivery-targets workspace:read",
            "POST /v1/delivery-targets/{target}/retry workspace",
            "GET /v1/files workspace:read",
            "GET /v1/files/{file_id} workspace:read",
            "DELETE /v1/files/{file_id} workspace",
            "GET /v1/files/{file_id}/content workspace:read",
            "POST /v1/fleet/secrets/rotate",
            "GET /v1/secrets secrets",
            "PUT /v1/secrets/{name} secrets",
            "DELETE /v1/secrets/{name} secrets",
            "GET /v1/skills workspace:read",
            "GET /v1/skills/{name} workspace:read",
            "PUT /v1/skills/{name} workspace",
            "DELETE /v1/skills/{name} workspace",
            "GET /v1/skills/{name}/file workspace:read",
            "POST /v1/projects/plan agents workspace",
            "POST /v1/projects/apply agents workspace",
            "GET /v1/projects agents:read workspace:read",
            "GET /v1/projects/{project}/items agents:read workspace:read",
            "POST /v1/triggers workspace",
            "GET /v1/triggers workspace:read",
            "GET /v1/triggers/preview workspace:read",
            "GET /v1/triggers/{trigger_id} workspace:read",
            "PATCH /v1/triggers/{trigger_id} workspace",
            "DELETE /v1/triggers/{trigger_id} workspace",
            "GET /v1/triggers/{trigger_id}/preview workspace:read",
            "POST /v1/triggers/{trigger_id}/resume workspace",
            "POST /v1/triggers/{trigger_id}/fire workspace",
            "GET /v1/triggers/{trigger_id}/firings workspace:read",
            "GET /v1/orchestrations/config agents:read",
            "PUT /v1/orchestrations/config agents",
            "GET /v1/orchestrations/config/versions agents:read",
            "GET /v1/orchestrations/config/versions/{version} agents:read",
            "GET /v1/orchestrations/models agents:read",
            "GET /v1/orchestrations/models/judgement agents:read",
            "POST /v1/orchestrations runs",
            "GET /v1/orchestrations runs:read",
            "POST /v1/orchestrations/wait runs",
            "GET /v1/orchestrations/{orchestration_id}/wait runs",
            "POST /v1/orchestrations/{orchestration_id}/continue runs",
            "POST /v1/orchestrations/{orchestration_id}/continue/wait runs",
            "GET /v1/orchestrations/{orchestration_id} runs:read",
            "GET /v1/orchestrations/{orchestration_id}/tree runs:read",
            "GET /v1/orchestrations/{orchestration_id}/messages runs:read",
            "GET /v1/orchestrations/{orchestration_id}/changes runs:read",
            "GET /v1/orchestrations/{orchestration_id}/agents/{agent}/history runs:read",
            "POST /v1/orchestrations/{orchestration_id}/kill runs",
            "POST /v1/orchestrations/{orchestration_id}/agents/{agent}/prompt runs",
            "GET /v1/orchestrations/master/tools runs",
            "POST /v1/orchestrations/{orchestration_id}/master/calls runs",
            "POST /v1/orchestrations/{orchestration_id}/master/complete runs",
            "GET /v1/orchestrations/{orchestration_id}/events runs:read",
            "POST /v1/work-orders runs",
            "GET /v1/work-orders runs:read",
            "GET /v1/work-orders/{trace_id} runs:read",
            "GET /v1/work-orders/{trace_id}/wait runs:read",
            "POST /v1/work-orders/{trace_id}/cancel runs",
            "GET /v1/work-orders/{trace_id}/internal agents:read",
            "POST /v1/work-orders/{trace_id}/review workspace",
            "GET /v1/work-orders/{trace_id}/parts agents:read",
            "GET /v1/work-orders/{trace_id}/trail runs:read",
            "GET /v1/work-orders/{trace_id}/internal-trail agents:read",
            "GET /v1/work-order-policies agents:read",
            "GET /v1/work-order-policies/{policy_id} agents:read",
            "PUT /v1/work-order-policies/{policy_id} agents",
            "DELETE /v1/work-order-policies/{policy_id} agents",
            "GET /v1/work-order-policies/{policy_id}/versions agents:read",
            "GET /v1/work-order-secrets secrets",
            "POST /v1/work-order-secrets secrets",
            "DELETE /v1/work-order-secrets/{secret_id} secrets",
            "POST /v1/webhooks workspace",
            "GET /v1/webhooks workspace",
            "GET /v1/webhooks/{webhook_id} workspace",
            "PATCH /v1/webhooks/{webhook_id} workspace",
            "DELETE /v1/webhooks/{webhook_id} workspace",
            "POST /v1/webhooks/{webhook_id}/rotate workspace",
            "POST /v1/webhooks/{webhook_id}/test workspace",
        ]
    )


def test_the_document_says_what_each_field_of_an_agents_configuration_is() -> None:
    schemas = idle_api().openapi()["components"]["schemas"]
    models = ["AgentReplace", "Responsibility", "CapabilityGrant", "Permissions", "ApprovalRule", "SubagentSpec"]
    fields = {f"{model}.{name}": field for model in models for name, field in schemas[model]["properties"].items()}
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_every_error_is_a_problem_document() -> None:
    document = idle_api().openapi()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for status, response in operation["responses"].items():
                if (method, path) == ("post", "/v1/work-orders") and status in ("400", "415", "422"):
                    # An invalid order gets a result.
                    assert list(response["content"]) == ["application/json"]
                elif status >= "400" and path.startswith("/v1/"):
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)
                    schema = response["content"]["application/problem+json"]["schema"]
                    assert schema == {"$ref": "#/components/schemas/Problem"}


def test_every_operation_is_described() -> None:
    document = idle_api().openapi()
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))
    # Generated clients have methods of these names.
    assert [each for each in ids if not re.fullmatch(r"[a-z]+(_[a-z]+)+", each)] == []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation["description"], (method, path)


def test_every_answer_has_a_schema() -> None:
    document = idle_api().openapi()
    without = [
        (operation["operationId"], status)
        for item in document["paths"].values()
        for operation in item.values()
        for status, response in operation["responses"].items()
        if status != "204" and not all(content.get("schema") for content in response.get("content", {"": {}}).values())
    ]
    assert without == []
    named = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))
    assert set(named) <= set(document["components"]["schemas"])


def test_work_orders_and_their_results_have_the_schemas_of_their_contract() -> None:
    document = idle_api().openapi()
    schemas, paths = document["components"]["schemas"], document["paths"]
    submit = paths["/v1/work-orders"]["post"]
    assert submit["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/AiWorkOrderV1")
    answers = [submit["responses"][status] for status in ("200", "202", "400", "415", "422")]
    answers += [paths[f"/v1/work-orders/{{trace_id}}{path}"]["get"]["responses"]["200"] for path in ("", "/wait")]
    for answer in answers:
        assert answer["content"]["application/json"]["schema"]["$ref"].endswith("/AiWorkResultV1")
    defined = order_schemas("#/components/schemas/{model}")
    assert {name: schemas[name] for name in defined} == defined
    validator = jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/AiWorkResultV1", "components": {"schemas": schemas}}
    )
    result = invalid_result("trc_1", [OrderProblem(path="inputs", rule="it is needed")]).to_wire()
    assert validator.is_valid(result)
    assert not validator.is_valid({**result, "stopReason": "perhaps"})


def test_the_events_of_streams_have_schemas() -> None:
    document = idle_api().openapi()
    streamed = {
        operation["operationId"]: content["itemSchema"]["properties"]["data"]["contentSchema"]["$ref"].split("/")[-1]
        for item in document["paths"].values()
        for operation in item.values()
        if (content := operation["responses"].get("200", {}).get("content", {}).get("text/event-stream"))
    }
    assert streamed == {
        "create_run_and_stream": "RunEvent",
        "create_thread_run_and_stream": "RunEvent",
        "follow_run": "RunEvent",
        "follow_orchestration": "OrchestrationEvent",
        "follow_changes": "ChangeEvent",
    }
    schemas = document["components"]["schemas"]
    assert set(schemas["RunEvent"]["discriminator"]["mapping"]) >= {"token", "tool_status", "waiting", "stream_end"}
    validator = jsonschema_rs.validator_for(
        {"$ref": "#/components/schemas/RunEvent", "components": {"schemas": schemas}}
    )
    end = StreamEnd(run_id="run_1", final=True, status="succeeded", text="Hello").model_dump(mode="json")
    assert validator.is_valid(end)
    assert not validator.is_valid({**end, "final": "perhaps"})


class Served(NamedTuple):
    """A server on a thread of its own, since schemathesis blocks."""

    url: str
    session: requests.Session


@pytest.fixture(scope="module")
def served(shared_settings: Settings) -> Generator[Served]:
    """The API. No worker executes runs here, so requests that wait end soon; it tries many wrong keys."""
    own = {
        "wait_timeout_s": 0.02,
        "failed_keys_per_minute": 1_000_000,
        "requests_per_s_per_address": 1_000_000,
        "requests_per_s_per_key": 1_000_000,
        "requests_per_s_without_key": 1_000_000,
    }
    api = shared_settings.api.model_copy(update=own)
    listener = loopback_listener()
    app = build_app(shared_settings.model_copy(update={"api": api}))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    try:
        deadline_s = time.monotonic() + 60
        while not server.started and time.monotonic() < deadline_s:
            time.sleep(0.01)
        with requests.Session() as session:
            # It would look for proxies and passwords before each of 10,000 requests.
            session.trust_env = False
            yield Served(f"http://127.0.0.1:{listener.getsockname()[1]}", session)
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
async def headers(shared_database: Database) -> dict[str, str]:
    """Headers with a key of a new tenant. What pauses the fleet is undone: it would be so for all tenants."""
    await shared_database.execute("DELETE FROM switches")
    return {"Authorization": f"Bearer {(await make_tenant(shared_database)).key}"}


_FIRST = 4
"""So many requests are sent in any case: an operation with few has the permitted ones first."""
_LONG_CHARACTERS = 1_000

# Postgres stores no U+0000, which a schema's strings cannot say; tests of its own cover the refusal.
_GENERATION = GenerationConfig(allow_x00=False)


def _read(document: dict[str, Any]) -> BaseSchema:
    config = SchemathesisConfig(projects=ProjectsConfig(default=ProjectConfig(generation=_GENERATION)))
    return schemathesis.openapi.from_dict(document, config=config)


@pytest.fixture(scope="module")
def document() -> BaseSchema:
    """The document of an application that never starts."""
    return _read(idle_api().openapi())


@pytest.fixture(scope="module")
def document_without_long_patterns() -> BaseSchema:
    """The document in which a text with a pattern is long without limit.

    For a pattern of up to 200,000 characters the generator computes for seconds, and yields few requests.
    """
    document = deepcopy(idle_api().openapi())
    parts: list[Any] = [document]
    while parts:
        part = parts.pop()
        if isinstance(part, dict) and "pattern" in part and part.get("maxLength", 0) > _LONG_CHARACTERS:
            del part["maxLength"]
        parts += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return _read(document)


@schemathesis.serializer(MEDIA_TYPE)
def _as_it_is(_: Any, value: Any) -> bytes:
    """Send a body of lines as it was generated."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


# The event streams have no end, that of a run while no worker runs; `tests/integration/api/runs/test_events.py` and
# `tests/integration/api/operations/test_changes.py` cover them.
_OPERATIONS = [
    (route.path, method)
    for route in idle_api().routes
    if isinstance(route, APIRoute) and route.include_in_schema and not route.path.endswith(("/stream", "/v1/events"))
    for method in sorted(route.methods or ())
]


_FIRST_OF_THEIR_KIND = set(
    {(path.split("/")[1:3][-1], method): (path, method) for path, method in reversed(_OPERATIONS)}.values()
)
"""The first operation of each resource with each method. The same module answers the others, by the same means."""


# Not `parametrize` of schemathesis: it generates all requests while tests are collected, in each test process.
@pytest.mark.parametrize(
    ("path", "method"),
    [
        pytest.param(*operation, marks=() if operation in _FIRST_OF_THEIR_KIND else pytest.mark.long)
        for operation in _OPERATIONS
    ],
)
def test_the_api_does_as_its_document_says(
    path: str, method: str, document_without_long_patterns: BaseSchema, served: Served, headers: dict[str, str]
) -> None:
    modes = [mode for mode in HypothesisTestMode if mode != HypothesisTestMode.FUZZING]
    _compare(document_without_long_patterns[path][method], modes, served, headers, every=16)


@pytest.mark.long
@pytest.mark.parametrize(("path", "method"), _OPERATIONS)
def test_the_api_does_as_its_document_says_under_all_requests(
    path: str, method: str, document: BaseSchema, served: Served, headers: dict[str, str]
) -> None:
    _compare(document[path][method], list(HypothesisTestMode), served, headers)


def _compare(
    operation: APIOperation[Any, Any, Any, Any],
    modes: list[HypothesisTestMode],
    served: Served,
    headers: dict[str, str],
    *,
    every: int = 1,
) -> None:
    """Send the requests that the document permits, and those that it does not, and compare the answers with it.

    Args:
        operation: What is called.
        modes: Where the requests come from.
        served: The API.
        headers: With a key.
        every: Of this many requests one is sent, and the first ones.
    """
    needs_a_key = False
    numbers = itertools.count()

    def check(case: schemathesis.Case[Any]) -> None:
        nonlocal needs_a_key
        number = next(numbers)
        if number >= _FIRST and number % every:
            return
        # A schema cannot say all: which cursors were given, which fields go together, that a text is not blank.
        excluded: list[Any] = [positive_data_acceptance]
        if _spoils_a_header(case):
            excluded.append(negative_data_rejection)
        if needs_a_key:
            # Two more requests, without a key and with a wrong one, for each that succeeds.
            excluded.append(ignored_auth)
        response = case.call_and_validate(
            base_url=served.url, session=served.session, headers=headers, excluded_checks=excluded, timeout=120
        )
        needs_a_key |= response.status_code < 300 and not _spoils_the_path(case)

    config = HypothesisTestConfig(operation.schema.config, modes, settings=_SETTINGS)
    create_test(operation=operation, test_func=check, config=config)()


def _spoils_the_path(case: schemathesis.Case[Any]) -> bool:
    """Whether the path was made wrong. Then schemathesis does not try it without a key."""
    return case.meta is not None and case.meta.is_negative_at(ParameterLocation.PATH)


def _spoils_a_header(case: schemathesis.Case[Any]) -> bool:
    """Whether a header was made wrong. The key is sent in its place, so what is left may be right."""
    data = None if case.meta is None else case.meta.phase.data
    return isinstance(data, FuzzingPhaseData) and any(
        mutation.parameter_location == ParameterLocation.HEADER for mutation in data.mutations
    )
