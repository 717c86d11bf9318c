"""A small policy, and orders for it."""

from typing import Any

from nova_workers.contracts.orders import AiWorkOrderV1, PolicyDocument
from tests.support.data.work_orders import example_order

ANTHROPIC = {"engine": "anthropic", "model": "haiku", "provider": "anthropic"}
OPENAI = {"engine": "openai", "model": "gpt-4o-mini", "provider": "openai"}
POLICY: dict[str, Any] = {
    "id": "plain",
    "version": "1",
    "produces": "copy_proposal_v1",
    "roles": [
        {
            "name": "craft",
            "kind": "craft",
            "models": [ANTHROPIC, OPENAI],
            "prompt": {
                "system": "Write one better text for the place that the facts name.\n{{schema}}",
                "user": "{{inputs}}",
            },
        }
    ],
    "caps": {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 10_000, "timeoutMs": 30_000},
    "presentation": {"modes": ["single_best", "side_by_side", "ranked"], "default": "single_best"},
}


def policy(**changes: Any) -> PolicyDocument:
    """Return the policy with other fields, which are named as in JSON."""
    return PolicyDocument.from_wire(POLICY | changes)


def order(**changes: Any) -> AiWorkOrderV1:
    """Return an order for the policy, without a key that belongs to it."""
    return AiWorkOrderV1.from_wire(example_order("butler_basic") | {"policyId": "plain"} | changes)
