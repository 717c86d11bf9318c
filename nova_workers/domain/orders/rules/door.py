"""The door of work orders: validates an order as a whole, and says what is wrong without any of its content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.json_schemas import InvalidSchema
from nova_workers.base.validation import problem_of
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.orders import (
    AiWorkOrderV1,
    OrderProblem,
    PolicyDocument,
    canonical_form,
    is_key_hash_of,
    key_hash_of,
)
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orders.rules.policies.registry import LoadedPolicy, Policies
from nova_workers.domain.orders.rules.secrets import OrderSecrets, TenantSecrets
from nova_workers.domain.tenants.sql.settings import get_ceilings
from nova_workers.ledger.database import Database

_MOST_PROBLEMS: Final = 50
_FIELD_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_UNKEYED: Final = (
    "the tenant has no secret of work orders, so no key can be checked; `nova orders secrets create` makes one"
)
_REFUSED_SCHEMA: Final = (
    "a schema of the policy is not accepted: {why}; `nova orders policies set` stores a version without it"
)
_WRONG_KEY: Final = (
    "it is not the key of this order: HMAC-SHA256, under the tenant's secret, of the canonical JSON (RFC 8785) of "
    "version, tenant, scope, policyId, inputs and constraints"
)


@dataclass(frozen=True, slots=True)
class AdmittedOrder:
    """An order that may be executed.

    Attributes:
        policy: What it is bound by.
        key_hashes: Its key under each secret of the tenant: that of the oldest first, under which its result is kept.
            An equal order may have any of them.
    """

    order: AiWorkOrderV1
    policy: PolicyDocument
    key_hashes: Sequence[str]


@dataclass(frozen=True, slots=True)
class RefusedOrder:
    """What is wrong with an order."""

    problems: Sequence[OrderProblem]


class OrderDoor:
    """Validates orders. It reads policies and secrets, and writes nothing."""

    def __init__(self, database: Database, policies: Policies, secrets: OrderSecrets, rules: CeilingRules) -> None:
        self._database = database
        self._policies = policies
        self._secrets = secrets
        self._rules = rules

    async def admit(self, tenant_id: str, value: object) -> AdmittedOrder | RefusedOrder:
        """Return an order that may be executed, or everything that is wrong with it.

        Args:
            tenant_id: The tenant of the key that the request came with.
            value: The order as parsed JSON.
        """
        try:
            order = AiWorkOrderV1.from_wire(value)
        except ValidationError as error:
            return RefusedOrder(problems_of(error))
        problems: list[OrderProblem] = []
        loaded: LoadedPolicy | None = None
        async with self._database.connection() as connection:
            try:
                loaded = await self._policies.load(connection, tenant_id, order.policy_id)
                if loaded is None:
                    problems.append(OrderProblem(path="policyId", rule="there is no such policy"))
            except InvalidSchema as error:
                problems.append(OrderProblem(path="policyId", rule=_REFUSED_SCHEMA.format(why=error.why[:200])))
            secrets = await self._secrets.of_tenant(connection, tenant_id)
            ceilings = await get_ceilings(connection, tenant_id)
        if order.tenant != tenant_id:
            problems.append(OrderProblem(path="tenant", rule="it is not the tenant of the API key"))
        if loaded is not None:
            problems += await _input_problems(order, loaded)
            problems += self._ceiling_problems(loaded.document, ceilings)
            problems += _capability_problems(loaded.document)
        key_hashes, key_problems = _check_key(order, secrets)
        problems += key_problems
        if problems or loaded is None:
            return RefusedOrder(problems)
        return AdmittedOrder(order, loaded.document, key_hashes)

    def _ceiling_problems(self, policy: PolicyDocument, ceilings: Ceilings | None) -> Iterator[OrderProblem]:
        for role in policy.roles:
            if not any(self._rules.permits_engine(ceilings, model.engine) for model in role.models):
                rule = f"the operator permits this tenant no engine of the policy's role {role.name!r}"
                yield OrderProblem(path="policyId", rule=rule)


def _capability_problems(policy: PolicyDocument) -> Iterator[OrderProblem]:
    for role in policy.roles:
        if not policy.eligible(role):
            rule = f"no model of the policy's role {role.name!r} has all capabilities that the policy requires"
            yield OrderProblem(path="policyId", rule=rule)


def problems_of(error: ValidationError) -> list[OrderProblem]:
    """Return the problems that a validation found, without any content of the order."""
    items = error.errors(include_url=False, include_input=False)
    return [OrderProblem(path=_path(item["loc"]), rule=_rule(item)) for item in items[:_MOST_PROBLEMS]]


def _rule(item: Mapping[str, Any]) -> str:
    # These messages say what is needed, and never what was given.
    return problem_of(item, AiWorkOrderV1)


def _path(parts: Sequence[str | int]) -> str:
    """Return a path of names. A key that is no plain name may be a text of a person, so it is shown as ``*``."""
    return ".".join(
        str(part) if isinstance(part, int) or _FIELD_NAME.fullmatch(part) else "*" for part in _outside_inputs(parts)
    )


def _outside_inputs(parts: Sequence[str | int]) -> Sequence[str | int]:
    """Return a path as far as its names are the contract's: not into the inputs, whose keys are the caller's."""
    return parts[:1] if parts[:1] == ("inputs",) else parts


async def _input_problems(order: AiWorkOrderV1, policy: LoadedPolicy) -> list[OrderProblem]:
    if policy.inputs is None:
        return []
    known = set(_property_names(policy.document.inputs_schema))
    return [
        OrderProblem(
            path=".".join(
                ["inputs", *(str(part) if isinstance(part, int) or part in known else "*" for part in problem.path)]
            ),
            rule=f"the policy's schema of inputs is not fulfilled: {problem.keyword}",
        )
        for problem in await policy.inputs.problems(order.inputs, _MOST_PROBLEMS)
    ]


def _property_names(schema: object) -> Iterator[str]:
    """Yield the names of properties that a schema mentions: these are the policy's, and not the order's."""
    if isinstance(schema, Mapping):
        for key, inner in schema.items():
            if key == "properties" and isinstance(inner, Mapping):
                yield from (str(name) for name in inner)
            yield from _property_names(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _property_names(inner)


def _check_key(order: AiWorkOrderV1, secrets: TenantSecrets) -> tuple[Sequence[str], Sequence[OrderProblem]]:
    """Return the keys of an order under the tenant's secrets, and what is wrong with the one that it has."""
    if not secrets.usable:
        rule = _UNKEYED if secrets.unreadable is None else f"it cannot be checked: {secrets.unreadable}"
        return (), [OrderProblem(path="idempotency.keyHash", rule=rule)]
    try:
        canonical = canonical_form(order)
    except InvalidInput as error:
        return (), [OrderProblem(path=str(error.fields["field"]), rule=error.message)]
    if not any(is_key_hash_of(canonical, secret, order.idempotency.key_hash) for secret in secrets.usable):
        return (), [OrderProblem(path="idempotency.keyHash", rule=_WRONG_KEY)]
    # The first one is that of the oldest secret, so that a result is found whichever secrets there were since.
    return [key_hash_of(canonical, secret) for secret in secrets.oldest_first()], ()
