"""Runs one turn of an engine with every kind of tool, and prints its spans as JSON.

A program of its own, because the SDKs use the one global tracer provider of a process.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.tracing import Tracing
from nova_workers.contracts.engine import Engine, EngineOptions, StdioMcpServer, SubagentConfig
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from tests.contract.engines.stage import Bench
from tests.support.servers.model_server import Part, Stream, model_server

_CALLS = (
    ("toolu_in", "count", {}),
    ("toolu_out", "echo", {"text": "SECRET sk-ant-api03-hunter2hunter2hunter2hunter2"}),
    ("toolu_native", "Read", {"file_path": "note.txt"}),
    ("toolu_task", "Task", {"agent": "scout", "prompt": "Find SECRET"}),
)


@contextmanager
def _directory() -> Generator[str]:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "note.txt").write_text("SECRET")
        yield directory


def _engine(url: str, *, openai: bool) -> Engine:
    if not openai:
        return AnthropicEngine(api_key="k", base_url=url)
    provider = OpenAIProvider("local", f"{url}/v1", "responses", (Key(api_key="k"),))
    return OpenAIEngine(Catalog([provider], default_model="local/some-model"))


async def main(*, openai: bool, trace_content: bool) -> None:
    """Run the turn, and print the spans."""
    exporter = InMemorySpanExporter()
    tracing = Tracing(TelemetrySettings(trace_content=trace_content), "test", exporter=exporter)
    tracing.install()
    child = StdioMcpServer(sys.executable, ("-m", "tests.support.servers.mcp_stdio_server"), cwd=os.getcwd())
    with _directory() as directory:
        async with model_server() as server:
            calls = tuple(Part("tool", call) for call in _CALLS)
            done = Stream((Part("text", ["SECRET"]),))
            server.reply(Stream(calls), done)
            server.reply_to("Find SECRET", done)
            engine = _engine(server.url, openai=openai)
            options = EngineOptions(
                cwd=directory,
                system_prompt="SECRET",
                mcp_servers={**Bench().servers(), "child": child},
                agents={"scout": SubagentConfig("Finds.", "You find.")},
            )
            with tracing.conversation("thr_of_the_test"), tracing.span("invoke_agent"):
                result = await engine.run("SECRET", options, "controlled")
            assert [call.status for call in result.tool_calls] == ["completed"] * 4, result
            await engine.close()
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans()]
    print(json.dumps(spans))


if __name__ == "__main__":
    asyncio.run(main(openai="openai" in sys.argv, trace_content="content" in sys.argv))
