"""The prompts of an order's parts, made from the policy's templates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from nova_workers.base.vocabulary import RoleKind
from nova_workers.contracts.orders import Critique, PolicyRole
from nova_workers.domain.orders.rules.content import OrderContent, PartOutput

_CANARY: Final = "(Internal mark of this request, never part of an answer: {canary})"


class PartPrompt(NamedTuple):
    """What a part asks its model, and the JSON schema of the answer."""

    system: str
    user: str
    schema: Mapping[str, Any]


def role_named(content: OrderContent, name: str) -> PolicyRole:
    """Return a role of the order's policy."""
    return next(role for role in content.policy.roles if role.name == name)


def prompt_of(
    content: OrderContent, role: PolicyRole, canary: str, *, kind: RoleKind, round: int, outputs: Sequence[PartOutput]
) -> PartPrompt:
    """Return the prompt of a part.

    The canary of the order is at its very end, after all that orders have in common: providers cache prefixes.

    A part that crafts gets the proposals and critiques of the round before; all others those of their own round.
    """
    policy, order = content.policy, content.order
    shown = round - 1 if kind == "craft" else round
    schema = Critique.model_json_schema(by_alias=True) if kind == "review" else policy.payload_schema()
    candidates = sorted((o for o in outputs if o.kind == "craft" and o.round == shown), key=lambda o: o.position)
    critiques = [{"role": o.role, **o.value} for o in outputs if o.kind == "review" and o.round == shown]
    intent = order.extensions.intent_type if order.extensions is not None else None
    system, user = role.prompt.render(
        {
            "inputs": _json(order.inputs),
            "intent": _json(intent) if intent is not None else "",
            "candidates": _json([each.value for each in candidates]) if candidates else "",
            "critiques": _json(critiques) if critiques else "",
            "kind": _json(policy.produces),
            "schema": _json(schema),
        }
    )
    return PartPrompt(system, f"{user}\n\n{_CANARY.format(canary=canary)}", schema)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
