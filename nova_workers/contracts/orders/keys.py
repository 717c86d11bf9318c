"""The idempotency key of an order: HMAC-SHA256 over the canonical JSON (RFC 8785) of what is to be executed."""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import rfc8785

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.orders.order import (
    AiWorkOrderV1,
    AuditConfig,
    EngineConstraints,
    EngineTrace,
    IdempotencyConfig,
    OrderExtensions,
)

KEY_PREFIX: Final = "hmac-sha256:"
_MOST_EXACT: Final = 2**53
"""From here on, not each integer is a double."""


def canonical_form(order: AiWorkOrderV1) -> bytes:
    """Return the canonical JSON of the fields that make two orders equal. Extensions are not part of it.

    Raises:
        InvalidInput: A number has no canonical form: an integer that no double has. ``fields['field']`` names the
            place.
    """
    return _canonical(order.tenant, order.scope, order.policy_id, order.inputs, order.constraints)


def derive_key_hash(order: AiWorkOrderV1, secret: str) -> str:
    """Return the `idempotency.keyHash` of an order under a tenant's secret.

    Raises:
        InvalidInput: The order has no canonical form.
    """
    return key_hash_of(canonical_form(order), secret)


def is_key_hash_of(canonical: bytes, secret: str, key_hash: str) -> bool:
    """Return whether a key hash, with or without its prefix, belongs to a canonical form under a secret."""
    derived = key_hash_of(canonical, secret)
    return hmac.compare_digest(derived.removeprefix(KEY_PREFIX).encode(), key_hash.removeprefix(KEY_PREFIX).encode())


def build_order(
    secret: str,
    *,
    tenant: str,
    scope: str,
    policy_id: str,
    inputs: Mapping[str, Any],
    trace: EngineTrace,
    constraints: EngineConstraints | None = None,
    audit: AuditConfig | None = None,
    ttl_hours: float | None = None,
    extensions: OrderExtensions | None = None,
) -> AiWorkOrderV1:
    """Return a complete order with its key.

    Args:
        secret: The tenant's secret of work orders.
        tenant: Id of the API key's tenant.
        scope: What the order is for, such as ``actionRequests.aiProposeCopy``.
        policy_id: A policy of the tenant, or a built-in one.
        inputs: Customer-safe JSON.
        trace: The caller's own references.
        constraints: Default: the policy's caps.
        audit: Default: both trails.
        ttl_hours: Default: 24.
        extensions: They do not change the key.

    Raises:
        InvalidInput: The inputs have no canonical form.
        pydantic.ValidationError: A value does not fit.
    """
    limits = constraints or EngineConstraints()
    key_hash = key_hash_of(_canonical(tenant, scope, policy_id, dict(inputs), limits), secret)
    timed = {} if ttl_hours is None else {"ttl_hours": ttl_hours}
    extended = {} if extensions is None else {"extensions": extensions}
    return AiWorkOrderV1(
        version="v1",
        tenant=tenant,
        scope=scope,
        policy_id=policy_id,
        inputs=dict(inputs),
        constraints=limits,
        idempotency=IdempotencyConfig(key_hash=key_hash, **timed),
        trace=trace,
        audit=audit or AuditConfig(customer_trail_on=True, internal_trail_on=True),
        **extended,
    )


def _canonical(
    tenant: str, scope: str, policy_id: str, inputs: dict[str, Any], constraints: EngineConstraints
) -> bytes:
    material = {
        "version": "v1",
        "tenant": tenant,
        "scope": scope,
        "policyId": policy_id,
        "inputs": inputs,
        "constraints": constraints.to_wire(),
    }
    try:
        return canonical_json(material)
    except (ValueError, RecursionError):
        raise InvalidInput(
            "inputs: they have no canonical JSON: an integer beyond 2^53 is none that a double has, so that programs "
            "round it (send it as a string); or a string holds half a character.",
            field="inputs",
        ) from None


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value.

    Raises:
        ValueError: It has none.
        RecursionError: It nests too deep.
    """
    return rfc8785.dumps(_as_numbers(value))


def _as_numbers(value: Any) -> Any:
    """Return a value with integers beyond 2^53 - 1 as the doubles that they are to RFC 8785.

    Raises:
        ValueError: No double has an integer, neither exactly nor as RFC 8785 writes it.
    """
    if isinstance(value, dict):
        return {key: _as_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_numbers(inner) for inner in value]
    if isinstance(value, int) and abs(value) >= _MOST_EXACT:
        try:
            number = float(value)
        except OverflowError:
            raise ValueError("beyond all doubles") from None
        if number != value and rfc8785.dumps(number) != str(value).encode():
            raise ValueError("no double")
        return number
    return value


def key_hash_of(canonical: bytes, secret: str) -> str:
    """Return the key hash of a canonical form under a secret."""
    return KEY_PREFIX + hmac.new(secret.encode(), canonical, sha256).hexdigest()
