"""The contract of work orders: a frozen core, open extensions, and what customers see of a stop reason."""

import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from nova_workers.base.validation import place_of
from nova_workers.base.vocabulary import WorkStopReason
from nova_workers.contracts.orders import (
    AiWorkOrderV1,
    AiWorkResultV1,
    artifact_of,
    customer_stop,
    status_of,
)
from nova_workers.contracts.orders.definitions import json_schema, typescript
from tests.support.data.work_orders import EXAMPLES, example_order, example_result

# The frozen core, v1.0. A change here is a new major version of the contract.
CORE = {
    "AiWorkOrderV1": [
        'version: "v1"',
        "tenant: string",
        "scope: string",
        "policyId: string",
        "inputs: Record<string, JsonValue>",
        "constraints: EngineConstraints",
        "idempotency: IdempotencyConfig",
        "trace: EngineTrace",
        "audit: AuditConfig",
        "extensions?: OrderExtensions",
    ],
    "AiWorkResultV1": [
        'version: "v1"',
        'status: "succeeded" | "failed" | "in_progress"',
        "stopReason: StopReasonV1",
        "needsHuman: boolean",
        "traceId: string",
        "artifacts: Array<AiArtifactV1>",
        "customerSafe: true",
        "extensions?: ResultExtensions",
    ],
    "EngineConstraints": [
        "maxRounds?: number",
        "costCapUsd?: number",
        "maxTokensTotal?: number",
        "timeoutMs?: number",
    ],
    "IdempotencyConfig": ["keyHash: string", "ttlHours?: number"],
    "EngineTrace": [
        "jobId: string",
        "step?: string",
        "requestId?: string",
        "intakeId?: number",
        "actor?: TraceActor",
    ],
    "TraceActor": ['type: "customer" | "system" | "admin"', "id?: string"],
    "AuditConfig": ["customerTrailOn: boolean", "internalTrailOn: boolean"],
    "CopyProposalArtifact": ['kind: "copy_proposal_v1"', "payload: CopyProposal"],
    "CopyProposal": [
        "targetKey: string",
        "value: string | Array<JsonValue> | Record<string, JsonValue>",
        "rationale: string",
        "confidence: number",
        "risks: Array<string>",
        "assumptions: Array<string>",
    ],
    "OtherArtifact": ["kind: string", "payload: Record<string, JsonValue>"],
}
STOP_REASONS = (
    "ok",
    "needs_human",
    "in_progress",
    "provider_failed",
    "router_failed",
    "ajv_failed",
    "json_parse_failed",
    "rate_limited",
    "cost_cap_exceeded",
    "round_cap_exceeded",
    "invalid_request",
)


def _paths(value: object) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        AiWorkOrderV1.from_wire(value)
    return [place_of(item) for item in refused.value.errors()]


def _fields_in_typescript(name: str) -> list[str]:
    found = re.search(rf"export type {name} = \{{\n(.*?)\n\}};", typescript(), re.DOTALL)
    assert found is not None
    lines = (line.strip().removesuffix(";") for line in found[1].splitlines())
    return [line for line in lines if not line.startswith("/**")]


@pytest.mark.parametrize("name", CORE)
def test_the_core_is_what_version_1_froze(name: str) -> None:
    assert _fields_in_typescript(name) == CORE[name]


def test_the_stop_reasons_are_the_frozen_eleven() -> None:
    assert get_args(WorkStopReason) == STOP_REASONS


@pytest.mark.parametrize("policy_id", EXAMPLES)
@pytest.mark.parametrize(
    ("model", "example"), [(AiWorkOrderV1, example_order), (AiWorkResultV1, example_result)], ids=["order", "result"]
)
def test_an_example_is_read_and_written_without_a_change(
    model: type[AiWorkOrderV1 | AiWorkResultV1], example: Callable[[str], dict[str, Any]], policy_id: str
) -> None:
    value = example(policy_id)
    assert model.from_wire(value).to_wire() == value
    schema = {**json_schema(), "$ref": f"#/$defs/{model.__name__}"}
    assert list(Draft202012Validator(schema).iter_errors(value)) == []


@pytest.mark.parametrize(
    "path",
    ["", "constraints", "idempotency", "trace", "trace.actor", "audit"],
)
def test_an_unknown_field_of_the_core_is_refused_with_its_path(path: str) -> None:
    order = example_order("butler_basic")
    inner: Any = order
    for part in filter(None, path.split(".")):
        inner = inner[part]
    inner["priority"] = 1
    assert _paths(order) == [f"{path}.priority".removeprefix(".")]
    schema = {**json_schema(), "$ref": "#/$defs/AiWorkOrderV1"}
    assert not Draft202012Validator(schema).is_valid(order)


@pytest.mark.parametrize("field", [line.partition(":")[0] for line in CORE["AiWorkOrderV1"] if "?" not in line])
def test_every_field_of_the_core_is_required(field: str) -> None:
    order = example_order("butler_basic")
    del order[field]
    assert _paths(order) == [field]


def test_unknown_extensions_are_ignored() -> None:
    order = example_order("butler_basic")
    order["extensions"] |= {"moonPhase": "full", "providerHints": {"preferred": ["openai"], "region": "eu"}}
    extensions = AiWorkOrderV1.from_wire(order).to_wire()["extensions"]
    assert "moonPhase" not in extensions
    assert extensions["providerHints"] == {"preferred": ["openai"]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("constraints.maxRounds", 7),
        ("constraints.maxRounds", "2"),
        ("constraints.maxRounds", None),
        ("constraints.costCapUsd", 0),
        ("constraints.timeoutMs", True),
        ("idempotency.keyHash", "two words"),
        ("trace.jobId", "free text of a person"),
        ("audit.customerTrailOn", "yes"),
        ("extensions.presentationMode", "grid"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(path: str, value: object) -> None:
    order = example_order("butler_basic")
    *outer, last = path.split(".")
    inner: Any = order
    for part in outer:
        inner = inner[part]
    inner[last] = value
    assert _paths(order) == [path]


def test_names_of_python_are_no_names_on_the_wire() -> None:
    order = example_order("butler_basic")
    order["policy_id"] = order.pop("policyId")
    assert set(_paths(order)) == {"policyId", "policy_id"}


def test_a_result_may_carry_extensions_that_this_version_does_not_know() -> None:
    result = example_result("butler_basic")
    result["extensions"]["moonPhase"] = "full"
    assert AiWorkResultV1.from_wire(result).trace_id == result["traceId"]


def test_a_result_that_is_not_customer_safe_cannot_be_made() -> None:
    result = example_result("butler_basic") | {"customerSafe": False}
    with pytest.raises(ValidationError):
        AiWorkResultV1.from_wire(result)


def test_a_typed_artifact_fits_its_kind_and_another_is_an_object() -> None:
    with pytest.raises(ValidationError):
        artifact_of("copy_proposal_v1", {"value": "Hello"})
    assert artifact_of("design_brief_v1", {"colour": None}).to_wire() == {
        "kind": "design_brief_v1",
        "payload": {"colour": None},
    }


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("provider_failed", "Temporary issue, we'll handle it"),
        ("router_failed", "We're reviewing your request"),
        ("ajv_failed", "We need to review this manually"),
        ("json_parse_failed", "We need to review this manually"),
    ],
)
def test_an_internal_stop_reason_becomes_needs_human_with_its_message(reason: WorkStopReason, message: str) -> None:
    assert customer_stop(reason) == ("needs_human", message)


@given(st.sampled_from(STOP_REASONS))
def test_a_customer_sees_only_customer_safe_stop_reasons(reason: WorkStopReason) -> None:
    seen, message = customer_stop(reason)
    assert seen not in {"provider_failed", "router_failed", "ajv_failed", "json_parse_failed"}
    assert (message is None) == (seen == reason)
    assert status_of(seen) in {"succeeded", "failed", "in_progress"}
