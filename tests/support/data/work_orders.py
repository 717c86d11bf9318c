"""The examples of the work order contract, as it was specified: three orders and their results."""

from pathlib import Path
from typing import Any, Final

import orjson

EXAMPLES: Final = ("launchbase_standard", "launchbase_swarm_premium", "butler_basic")
"""Ids of policies, each with an example."""

_FOLDER = Path(__file__).parent / "orders"


def example_order(policy_id: str) -> dict[str, Any]:
    """Return the example's order as parsed JSON. Its key is no real one."""
    return orjson.loads((_FOLDER / f"{policy_id}.order.json").read_bytes())


def example_result(policy_id: str) -> dict[str, Any]:
    """Return the example's result as parsed JSON."""
    return orjson.loads((_FOLDER / f"{policy_id}.result.json").read_bytes())
