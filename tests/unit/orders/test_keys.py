"""The key of an order is made of its canonical JSON, and only of what is to be executed."""

import hashlib
import hmac
import json
from typing import Any

import pytest
import rfc8785

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.orders import (
    AiWorkOrderV1,
    EngineConstraints,
    EngineTrace,
    build_order,
    canonical_form,
    derive_key_hash,
    is_key_hash_of,
)
from tests.support.data.work_orders import EXAMPLES, example_order

SECRET = "a secret of this tenant"


def _order(**changes: Any) -> AiWorkOrderV1:
    return AiWorkOrderV1.from_wire(example_order("butler_basic") | changes)


@pytest.mark.parametrize("policy_id", EXAMPLES)
def test_the_key_is_the_hmac_of_the_six_fields_in_canonical_form(policy_id: str) -> None:
    value = example_order(policy_id)
    fields = ("version", "tenant", "scope", "policyId", "inputs", "constraints")
    # For these examples canonical JSON is JSON with sorted keys, without blanks, and without a fraction of zero.
    plain = json.dumps({name: value[name] for name in fields}, sort_keys=True, separators=(",", ":"))
    canonical = plain.replace("2.0,", "2,").replace("5.0,", "5,").encode()
    order = AiWorkOrderV1.from_wire(value)
    assert canonical_form(order) == canonical
    digest = hmac.new(SECRET.encode(), canonical, hashlib.sha256).hexdigest()
    assert derive_key_hash(order, SECRET) == f"hmac-sha256:{digest}"
    assert is_key_hash_of(canonical, SECRET, digest)
    assert is_key_hash_of(canonical, SECRET, f"hmac-sha256:{digest}")
    assert not is_key_hash_of(canonical, "another secret", digest)


def test_the_canonical_form_is_that_of_rfc_8785() -> None:
    # The example of the RFC's section 3.2.2, and the order of keys of 3.2.3.
    numbers = [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001]
    assert (
        rfc8785.dumps({"numbers": numbers, "string": '€$\x0f\nA\'B"\\\\"/', "literals": [None, True, False]})
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )
    keys = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    assert list(json.loads(rfc8785.dumps(keys)).values()) == [2, 4, 6, 7, 1, 5, 3]


def test_the_key_does_not_depend_on_extensions_trace_and_audit() -> None:
    other = _order(
        extensions={"presentationMode": "ranked", "moonPhase": "full"},
        trace={"jobId": "another"},
        audit={"customerTrailOn": False, "internalTrailOn": True},
    )
    assert derive_key_hash(other, SECRET) == derive_key_hash(_order(), SECRET)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "launchbase"},
        {"scope": "consumer.other"},
        {"policyId": "launchbase_standard"},
        {"inputs": {"userTextHash": "sha256:jkl346"}},
        {"constraints": {"maxRounds": 1, "costCapUsd": 0.11}},
        {"constraints": {"costCapUsd": 0.1}},
    ],
)
def test_the_key_depends_on_everything_that_is_executed(change: dict[str, Any]) -> None:
    assert derive_key_hash(_order(**change), SECRET) != derive_key_hash(_order(), SECRET)


def test_the_key_does_not_depend_on_how_json_was_written() -> None:
    one = _order(inputs={"b": 1, "a": {"y": 2.0, "x": [1e0]}}, constraints={"costCapUsd": 1.0, "maxRounds": 1})
    other = _order(inputs={"a": {"x": [1], "y": 2}, "b": 1.0}, constraints={"maxRounds": 1, "costCapUsd": 1})
    assert derive_key_hash(one, SECRET) == derive_key_hash(other, SECRET)


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (2**53 - 1, "9007199254740991"),
        (2**53, "9007199254740992"),
        (-(2**53), "-9007199254740992"),
        (2**60, "1152921504606847000"),
        (1152921504606847000, "1152921504606847000"),
        (-(10**20), "-100000000000000000000"),
        (10**21, "1e+21"),
    ],
)
def test_integers_beyond_2_53_are_the_doubles_that_they_are_to_javascript(value: int, canonical: str) -> None:
    assert f'"inputs":{{"n":[{canonical}]}}'.encode() in canonical_form(_order(inputs={"n": [value]}))


@pytest.mark.parametrize("value", [2**53 + 1, -(2**60) - 1, 10**400, "\ud800"])
def test_inputs_without_a_canonical_form_are_refused_without_their_content(value: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        build_order(
            SECRET,
            tenant="butler",
            scope="a",
            policy_id="butler_basic",
            inputs={"here": value},
            trace=EngineTrace(job_id="1"),
        )
    assert refused.value.fields == {"field": "inputs"}
    assert str(value) not in refused.value.message


def test_a_built_order_carries_its_key() -> None:
    order = build_order(
        SECRET,
        tenant="butler",
        scope="consumer.copyRefine",
        policy_id="butler_basic",
        inputs={"userTextHash": "sha256:jkl345"},
        trace=EngineTrace(job_id="1"),
        constraints=EngineConstraints(max_rounds=1),
        ttl_hours=6,
    )
    assert AiWorkOrderV1.from_wire(order.to_wire()) == order
    assert order.idempotency.key_hash == derive_key_hash(order, SECRET)
