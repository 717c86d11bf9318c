"""Executes a work order with a real engine, and prints its stop reason and the spans as JSON.

A program of its own, because the SDKs use the one global tracer provider of a process.

    python -m tests.support.processes.print_order_spans DATABASE_URL REDIS_URL HOME TEXT [content]
"""

import asyncio
import json
import sys

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts.orders import PolicyDocument
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import PostgresDatabase
from tests.support.harness.orders import OrderDesk, critique, policy, proposal
from tests.support.servers.model_server import Part, Status, Stream, model_server


async def main(database_url: str, redis_url: str, home: str, text: str, *, trace_content: bool) -> None:
    """Execute the order, and print the spans."""
    exporter = InMemorySpanExporter()
    settings = Settings.model_validate(
        {
            "database_url": database_url,
            "redis_url": redis_url,
            "home": home,
            "telemetry": {"trace_content": trace_content},
        }
    )
    tracing = Tracing(settings.telemetry, "test", exporter=exporter)
    tracing.install()
    database, redis = PostgresDatabase(database_url, pool_size=4), Redis.from_url(redis_url)
    async with model_server() as server:
        refused = Status(400, "invalid_request_error", f"The prompt says {text}")
        said = [proposal("A final text"), critique(issues=[text])]
        server.reply(*(Stream((Part("text", [each]),)) for each in said), refused)
        desk = OrderDesk(database, redis, settings)
        await desk.harness.open()
        engine = AnthropicEngine(api_key="k", base_url=server.url)
        desk.harness.engines["anthropic"] = engine
        with tracing.conversation("thr_of_the_test"), tracing.span("nova.test"):
            result = await desk.run(_policy(), desk.order({"currentCopy": text}))
        await desk.harness.close()
        await engine.close()
    await redis.aclose()
    await database.close()
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    print(json.dumps({"stop_reason": result.stop_reason, "calls": len(server.requests), "spans": spans}))


def _policy() -> PolicyDocument:
    document = policy({"craft": "craft", "critic": "review", "general": "general"}).to_wire()
    for role in document["roles"]:
        role["models"] = [{"engine": "anthropic", "model": "haiku", "provider": "anthropic"}]
    return PolicyDocument.from_wire(document)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], trace_content="content" in sys.argv[5:]))
