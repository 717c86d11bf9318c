"""The stand-in for a model answers every role of the built-in policies of work orders with JSON of its schema."""

from typing import Any

import orjson
import pytest

from nova_workers.contracts.orders import Critique, PolicyRole, artifact_of
from nova_workers.devstack.stand_in.rules import reply_to
from nova_workers.domain.orders.rules.policies.builtin_policies import builtin_policies

ROLES = [
    pytest.param(policy.id, role, id=f"{policy.id}-{role.name}")
    for policy in builtin_policies().values()
    for role in policy.roles
]


@pytest.mark.parametrize(("policy_id", "role"), ROLES)
def test_a_role_gets_an_answer_of_its_schema(policy_id: str, role: PolicyRole) -> None:
    policy = builtin_policies()[policy_id]
    schema: Any = Critique.model_json_schema(by_alias=True) if role.kind == "review" else policy.payload_schema()
    system, user = role.prompt.render(
        {"inputs": '{"targetSection":"hero","how":"is it"}', "schema": orjson.dumps(schema).decode()}
    )
    reply = reply_to({"system": system, "messages": [{"role": "user", "content": user}]})
    assert reply.tool is None
    answer = orjson.loads(reply.text)
    if role.kind == "review":
        Critique.from_wire(answer)
    else:
        assert artifact_of(policy.produces, answer).to_wire()["payload"]["targetKey"] == "hero.headline"
