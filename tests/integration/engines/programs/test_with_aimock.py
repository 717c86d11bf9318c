"""The programs before a model server that we did not write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nova_workers.contracts.engine import EngineOptions
from tests.contract.engines.program_stage import codex_engine, gemini_engine
from tests.contract.engines.stage import Bench
from tests.support.servers.aimock_server import aimock_server, why_no_aimock
from tests.support.servers.installed_programs import why_no_program

pytestmark = pytest.mark.skipif(why_no_aimock() is not None, reason=str(why_no_aimock()))

ANSWER = "Gravity keeps planets in their orbits around the sun."


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    fixtures: list[dict[str, Any]] = [
        {"match": {"userMessage": "explain gravity"}, "response": {"content": ANSWER}},
        {
            "match": {"userMessage": "count twice", "hasToolResult": False},
            "response": {
                "content": "I shall count.",
                "toolCalls": [{"name": "mcp_nova_count", "arguments": {"n": n}} for n in (1, 2)],
            },
        },
        {"match": {"userMessage": "count twice", "hasToolResult": True}, "response": {"content": "Counted."}},
    ]
    with aimock_server(tmp_path_factory.mktemp("aimock"), fixtures) as url:
        yield url


@pytest.mark.skipif(why_no_program("codex") is not None, reason=str(why_no_program("codex")))
async def test_codex_answers(model_url: str) -> None:
    engine = codex_engine(model_url)
    result = await engine.run("explain gravity", EngineOptions(model="gpt-5"), "sandbox")
    assert (result.error, result.text, result.stop_reason) == (None, ANSWER, "end_turn")
    await engine.close()


@pytest.mark.skipif(why_no_program("gemini") is not None, reason=str(why_no_program("gemini")))
async def test_gemini_calls_tools_and_answers(model_url: str) -> None:
    engine, bench = gemini_engine(model_url), Bench()
    options = EngineOptions(model="gemini-2.5-flash", mcp_servers=bench.servers())
    result = await engine.run("count twice", options, "sandbox")
    assert (result.error, result.text, bench.runs) == (None, "Counted.", ["count", "count"])
    assert [(call.tool_name, call.status) for call in result.tool_calls] == [("count", "completed")] * 2
    await engine.close()
