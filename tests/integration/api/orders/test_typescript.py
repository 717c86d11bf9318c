"""The documents' TypeScript submits an order to the API, as a program of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nova_workers.contracts.orders import AiWorkResultV1
from tests.integration.api.conftest import Api
from tests.support.data.work_orders import example_order
from tests.support.harness.orders import AnsweringEngine, policy
from tests.support.servers.typescript_compiler import compile_order_example, run_module, why_no_typescript

pytestmark = pytest.mark.skipif(why_no_typescript() is not None, reason=str(why_no_typescript()))

_PROGRAM = """
import { submit } from "./example.js";
const [url, key, secret, orders] = %s;
const results = [];
for (const order of orders) results.push(await submit(url, key, secret, order));
console.log(JSON.stringify(results));
"""


async def test_the_example_submits_orders_and_gets_their_results(
    api: Api, order_secret: str, engine: AnsweringEngine, tmp_path: Path
) -> None:
    document = policy(inputsSchema={"required": ["currentCopy"]}).to_wire()
    stored = await api.http.put("/v1/work-order-policies/test_policy", json={"document": document})
    assert stored.status_code == 200, stored.text
    example = example_order("butler_basic")
    inputs = example["inputs"] | {"texts": ["\u20ac \U0001f600"], "numbers": [1e21, 4.5, -0.0]}
    order = example | {"tenant": api.tenant.id, "policyId": "test_policy", "inputs": inputs}
    given = [api.url, api.tenant.key, order_secret, [order, order, order | {"inputs": {}}]]
    await asyncio.to_thread(compile_order_example, tmp_path)
    printed = await asyncio.to_thread(run_module, _PROGRAM % json.dumps(given), tmp_path)
    made, again, refused = [AiWorkResultV1.from_wire(each) for each in json.loads(printed)]
    assert (made.stop_reason, again.trace_id, len(engine.calls)) == ("ok", made.trace_id, 1)
    assert made.artifacts[0].to_wire()["payload"]["value"] == "A better headline"
    assert refused.stop_reason == "invalid_request"
    assert refused.extensions is not None
    assert [each.path for each in refused.extensions.problems or []] == ["inputs"]
