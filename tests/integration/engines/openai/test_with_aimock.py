"""The openai engine before a second model server that we did not write, in both wire forms."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from nova_workers.engines.resilience import Policy, Resilience
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.support.servers.aimock_server import aimock_server, why_no_aimock

pytestmark = pytest.mark.skipif(why_no_aimock() is not None, reason=str(why_no_aimock()))

HASTY = Policy(max_retries=3, backoff_s=0.01, backoff_cap_s=0.02, rate_cooldown_s=0.05, breaker_failures=100)
OPTIONS = EngineOptions(model="mock/gpt-5")
LONG = "Gravity keeps planets in their orbits around the sun."


def _failing(word: str, status: int, code: str, message: str) -> list[dict[str, Any]]:
    """Return fixtures for a question that fails once and then is answered."""
    error = {"error": {"type": code, "code": code, "message": message}, "status": status}
    return [
        {"match": {"userMessage": word, "sequenceIndex": 0}, "response": error},
        {"match": {"userMessage": word}, "response": {"content": "At last."}},
    ]


def _fixtures(api: WireForm) -> list[dict[str, Any]]:
    # Fixtures that answer in sequence count for the whole server, so each form has words of its own.
    return [
        *_failing(f"limited {api}", 429, "rate_limit_exceeded", "slow down"),
        *_failing(f"broken {api}", 500, "server_error", "Internal server error"),
        {
            "match": {"userMessage": f"cut short {api}", "sequenceIndex": 0},
            "response": {"content": LONG},
            "truncateAfterChunks": 6,
        },
        {"match": {"userMessage": f"cut short {api}"}, "response": {"content": "Whole."}},
    ]


FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "explain gravity"}, "response": {"content": LONG}},
    {
        "match": {"userMessage": "count twice", "hasToolResult": False},
        "response": {
            "content": "I shall count.",
            "toolCalls": [{"name": "count", "arguments": {"n": 1}}, {"name": "count", "arguments": {"n": 2}}],
        },
    },
    {"match": {"userMessage": "count twice", "hasToolResult": True}, "response": {"content": "Counted."}},
    {
        "match": {"userMessage": "think and count", "hasToolResult": False},
        "response": {"reasoning": "Counting will do.", "toolCalls": [{"name": "count", "arguments": {"n": 3}}]},
    },
    {"match": {"userMessage": "think and count", "hasToolResult": True}, "response": {"content": "Thought."}},
    *_fixtures("chat"),
    *_fixtures("responses"),
    {
        "match": {"userMessage": "far too long"},
        "response": {
            "error": {"type": "invalid_request_error", "message": "too long", "code": "context_length_exceeded"},
            "status": 400,
        },
    },
    {
        "match": {"userMessage": "who am i", "systemMessage": "You are Nova."},
        "response": {"content": "A friend.", "usage": {"input_tokens": 12, "output_tokens": 3}},
    },
]


@pytest.fixture(scope="module")
def model_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with aimock_server(tmp_path_factory.mktemp("aimock"), FIXTURES) as url:
        yield url


@pytest.fixture
async def engine(model_url: str, api: WireForm) -> AsyncIterator[OpenAIEngine]:
    provider = OpenAIProvider("mock", f"{model_url}/v1", api, (Key(api_key="not-used"),), price_list="openai")
    engine = OpenAIEngine(Catalog([provider]), resilience=Resilience.of_one_process(HASTY))
    yield engine
    await engine.close()


async def test_an_answer_streams_in_pieces(engine: OpenAIEngine) -> None:
    recorder = TurnRecorder()
    result = await engine.run("explain gravity", OPTIONS, "sandbox", callbacks=recorder.callbacks())
    assert (result.stop_reason, result.text, "".join(recorder.tokens)) == ("end_turn", LONG, LONG)
    assert len(recorder.tokens) > 10


async def test_parallel_calls_and_their_results_are_taken_back(engine: OpenAIEngine) -> None:
    options = replace(OPTIONS, mcp_servers=Bench().servers())
    result = await engine.run("count twice", options, "sandbox")
    assert (result.stop_reason, result.text) == ("end_turn", "Counted.")
    assert [(call.tool_name, call.status) for call in result.tool_calls] == [("count", "completed")] * 2
    assert len({call.id for call in result.tool_calls}) == 2
    assert_valid(result.messages)


async def test_reasoning_is_kept_and_the_turn_goes_on(engine: OpenAIEngine) -> None:
    recorder = TurnRecorder()
    options = replace(OPTIONS, mcp_servers=Bench().servers(), thinking_budget_tokens=2_000)
    result = await engine.run("think and count", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.error, result.text) == (None, "Thought.")
    assert "".join(entry[1] for entry in recorder.log if entry[0] == "reasoning") == "Counting will do."
    assert result.messages[0].content[0]["thinking"] == "Counting will do."


async def test_a_history_and_a_prompt_are_seen(engine: OpenAIEngine) -> None:
    history = (Message("user", (text_block("hello"),)), Message("assistant", (text_block("Hello."),)))
    options = replace(OPTIONS, system_prompt="You are Nova. Be kind.", history=history)
    result = await engine.run("who am i", options, "sandbox")
    assert result.text == "A friend."
    assert (result.usage.tokens.input_tokens, result.usage.tokens.output_tokens) == (12, 3)
    assert result.usage.tokens.cost_usd


@pytest.mark.parametrize("question", ["limited", "broken"])
async def test_a_transient_failure_is_retried(engine: OpenAIEngine, api: WireForm, question: str) -> None:
    result = await engine.run(f"{question} {api}", OPTIONS, "sandbox")
    assert (result.error, result.text, result.usage.turns) == (None, "At last.", 1)


async def test_a_stream_that_is_cut_is_retried(engine: OpenAIEngine, api: WireForm) -> None:
    result = await engine.run(f"cut short {api}", OPTIONS, "sandbox")
    assert (result.error, result.text) == (None, "Whole.")


async def test_a_conversation_that_is_too_long_is_reported_as_such(engine: OpenAIEngine) -> None:
    result = await engine.run("this is far too long", OPTIONS, "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("context_overflow", False)
