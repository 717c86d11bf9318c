"""The content of an order: the order itself, its policy and the answers of its parts; encrypted where it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from nova_workers.base.vocabulary import RoleKind
from nova_workers.contracts.orders import AiWorkOrderV1, PolicyDocument
from nova_workers.domain.orders.rules.sealing import OrderSeal
from nova_workers.domain.orders.sql.records import PartRow

_CONTENT: Final = "content"


@dataclass(frozen=True, slots=True)
class OrderContent:
    """An order and the version of the policy that it was accepted under."""

    order: AiWorkOrderV1
    policy: PolicyDocument


@dataclass(frozen=True, slots=True)
class PartOutput:
    """The answer of a part that succeeded: a proposal's payload, or a critique."""

    part_id: str
    kind: RoleKind
    role: str
    round: int
    position: int
    value: dict[str, Any]


def seal_content(seal: OrderSeal, content: OrderContent) -> bytes:
    """Encrypt the content of an order."""
    document = {"order": content.order.to_wire(), "policy": content.policy.to_wire()}
    return seal.seal(_CONTENT, orjson.dumps(document))


def open_content(seal: OrderSeal, sealed: bytes) -> OrderContent:
    """Decrypt the content of an order. Raises `Conflict` if it was changed."""
    document = orjson.loads(seal.open(_CONTENT, sealed))
    return OrderContent(AiWorkOrderV1.from_wire(document["order"]), PolicyDocument.from_wire(document["policy"]))


def open_outputs(seal: OrderSeal, parts: Sequence[PartRow]) -> list[PartOutput]:
    """Decrypt the answers of parts, in their order. Raises `Conflict` if one was changed."""
    return [
        PartOutput(
            part.id,
            part.kind,
            part.role,
            part.round,
            part.position,
            orjson.loads(seal.open(part.id, part.sealed_output)),
        )
        for part in parts
        if part.sealed_output is not None
    ]
