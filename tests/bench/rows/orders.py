"""Work orders: what an order of one model job costs beside a plain run, and how soon an equal order has its result."""

from __future__ import annotations

import os
import time
from base64 import b64encode

import httpx2
import orjson

from nova_workers.contracts.orders import EngineTrace, build_order
from tests.bench.figures import Figure, Result, percentile
from tests.bench.stage import Bench, Stage, scripted

_POLICY = "bench_policy"
_PAYLOAD = {
    "targetKey": "hero.headline",
    "value": "Short",
    "rationale": "It is short",
    "confidence": 0.9,
    "risks": [],
    "assumptions": [],
}


async def measure_orders(bench: Bench) -> Result:
    """Alternate between an order and a plain run that get the same answer, then repeat one order."""
    key = f"bench:{b64encode(os.urandom(32)).decode()}"
    orders_s: list[float] = []
    plain_s: list[float] = []
    async with bench.stage(env={"NOVA_SECRETS__KEYS": orjson.dumps([key]).decode()}) as stage:
        secret = await _prepare(stage)
        answer = {"say": orjson.dumps(_PAYLOAD).decode()}
        for number in range(bench.sizes.orders):
            orders_s.append(await _order_s(stage, secret, number))
            began_s = time.perf_counter()
            await stage.post_and_wait(scripted(answer))
            plain_s.append(time.perf_counter() - began_s)
        cached_s = [await _order_s(stage, secret, 0) for _ in range(bench.sizes.cached_orders)]
    return Result(
        "orders",
        "work orders of one model job, one after the other, beside plain runs; equal orders again",
        (
            Figure("an equal order, p95", percentile(cached_s, 0.95) * 1000, "ms", bound=10),
            Figure("p50", percentile(cached_s, 0.5) * 1000, "ms"),
            Figure("an order / a plain run, p50", percentile(orders_s, 0.5) / percentile(plain_s, 0.5), "x"),
            Figure("an order, p50", percentile(orders_s, 0.5) * 1000, "ms"),
            Figure("a plain run, p50", percentile(plain_s, 0.5) * 1000, "ms"),
        ),
        notes=("Both are submitted and waited for in one request, and alternate.",),
    )


async def _prepare(stage: Stage) -> str:
    """Store a policy whose only role plays the script of its order, and return the secret of orders."""
    document = {
        "id": _POLICY,
        "version": "1",
        "produces": "copy_proposal_v1",
        "roles": [
            {
                "name": "craft",
                "kind": "craft",
                "models": [{"engine": "scripted", "model": "scripted", "provider": "scripted"}],
                # An answer may have what the order has, and nothing that only a prompt has.
                "prompt": {"user": "{{inputs}}"},
            }
        ],
        "caps": {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 100_000, "timeoutMs": 60_000},
        "presentation": {"modes": ["single_best"], "default": "single_best"},
    }
    headers = {"Authorization": f"Bearer {stage.fleet.api_key}"}
    async with httpx2.AsyncClient(base_url=stage.fleet.api_url, headers=headers, timeout=60) as client:
        stored = await client.put(f"/v1/work-order-policies/{_POLICY}", json={"document": document})
    assert stored.status_code == 200, stored.text
    made = await stage.client.post("/v1/work-order-secrets", {})
    assert made.status == 201, made.body
    return orjson.loads(made.body)["secret"]


async def _order_s(stage: Stage, secret: str, number: int) -> float:
    """Submit an order, wait for its result, and return how long that took."""
    order = build_order(
        secret,
        tenant=stage.fleet.tenant_id or "",
        scope="bench",
        policy_id=_POLICY,
        inputs={"number": number, "script": [{"say": orjson.dumps(_PAYLOAD).decode()}]},
        trace=EngineTrace(job_id=f"job-{number}"),
    ).to_wire()
    began_s = time.perf_counter()
    answer = await stage.client.post("/v1/work-orders", order)
    took_s = time.perf_counter() - began_s
    assert answer.status == 200, (answer.status, answer.body)
    assert b'"stopReason":"ok"' in answer.body, answer.body
    return took_s
