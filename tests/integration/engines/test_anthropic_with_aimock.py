"""The anthropic engine before a second model server that we did not write."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.contracts.content import Message, text_block, text_of
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.resilience import Policy, Resilience
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.support.servers.aimock_server import aimock_server, why_no_aimock

pytestmark = pytest.mark.skipif(why_no_aimock() is not None, reason=str(why_no_aimock()))

HASTY = Policy(max_retries=3, backoff_s=0.01, backoff_cap_s=0.02, rate_cooldown_s=0.05, breaker_failures=100)
OPTIONS = EngineOptions(model="claude-haiku-4-5")
LONG = "Gravity keeps planets in their orbits around the sun."


def _failing(word: str, status: int, kind: str, message: str) -> list[dict[str, Any]]:
    """Return fixtures for a question that fails once and then is answered."""
    error = {"error": {"type": kind, "message": message}, "status": status}
    return [
        {"match": {"userMessage": word, "sequenceIndex": 0}, "response": error},
        {"match": {"userMessage": word}, "response": {"content": "At last."}},
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
    {
        "match": {"userMessage": "tool first", "hasToolResult": False},
        "response": {
            "blocks": [
                {"type": "toolCall", "name": "count", "arguments": {"n": 4}},
                {"type": "text", "text": "It is on its way."},
            ]
        },
    },
    {"match": {"userMessage": "tool first", "hasToolResult": True}, "response": {"content": "It came."}},
    {
        "match": {"userMessage": "cut short", "sequenceIndex": 0},
        "response": {"content": LONG},
        "truncateAfterChunks": 6,
    },
    {"match": {"userMessage": "cut short"}, "response": {"content": "Whole."}},
    *_failing("limited", 429, "rate_limit_error", "slow down"),
    *_failing("overloaded", 529, "overloaded_error", "Overloaded"),
    *_failing("broken", 500, "api_error", "Internal server error"),
    {
        "match": {"userMessage": "far too long"},
        "response": {
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 201000 tokens > 200000 maximum"},
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
async def engine(model_url: str) -> AsyncIterator[AnthropicEngine]:
    engine = AnthropicEngine(api_key="not-used", base_url=model_url, resilience=Resilience.of_one_process(HASTY))
    yield engine
    await engine.close()


async def test_an_answer_streams_in_pieces(engine: AnthropicEngine) -> None:
    recorder = TurnRecorder()
    result = await engine.run("explain gravity", OPTIONS, "sandbox", callbacks=recorder.callbacks())
    assert (result.stop_reason, result.text, "".join(recorder.tokens)) == ("end_turn", LONG, LONG)
    assert len(recorder.tokens) > 10


async def test_parallel_calls_and_their_results_are_taken_back(engine: AnthropicEngine) -> None:
    recorder = TurnRecorder()
    options = replace(OPTIONS, mcp_servers=Bench().servers())
    result = await engine.run("count twice", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.stop_reason, result.text) == ("end_turn", "Counted.")
    assert [(call.tool_name, call.status) for call in result.tool_calls] == [("count", "completed")] * 2
    assert len({call.id for call in result.tool_calls}) == 2
    assert ("narration", "I shall count.") in recorder.log
    assert_valid(result.messages)


async def test_thinking_is_sent_back_unchanged(engine: AnthropicEngine) -> None:
    options = replace(OPTIONS, mcp_servers=Bench().servers(), thinking_budget_tokens=2_000)
    result = await engine.run("think and count", options, "sandbox")
    assert (result.error, result.text) == (None, "Thought.")
    thinking = result.messages[0].content[0]
    assert (thinking["type"], thinking["thinking"]) == ("thinking", "Counting will do.")
    assert thinking["signature"]


async def test_text_after_a_call_in_the_same_response_is_kept_in_its_place(engine: AnthropicEngine) -> None:
    options = replace(OPTIONS, mcp_servers=Bench().servers())
    result = await engine.run("tool first", options, "sandbox")
    assert [block["type"] for block in result.messages[0].content] == ["tool_use", "text"]
    assert result.text == "It came."


async def test_a_history_and_a_prompt_are_sent(engine: AnthropicEngine) -> None:
    history = (Message("user", (text_block("hello"),)), Message("assistant", (text_block("Hello."),)))
    options = replace(OPTIONS, system_prompt="You are Nova. Be kind.", history=history)
    result = await engine.run("who am i", options, "sandbox")
    assert (result.text, text_of(result.messages[-1].content)) == ("A friend.", "A friend.")
    assert (result.usage.tokens.input_tokens, result.usage.tokens.output_tokens) == (12, 3)
    assert result.usage.tokens.cost_usd


@pytest.mark.parametrize("question", ["limited", "overloaded", "broken"])
async def test_a_temporary_failure_is_retried(engine: AnthropicEngine, question: str) -> None:
    result = await engine.run(question, OPTIONS, "sandbox")
    assert (result.error, result.text, result.usage.turns) == (None, "At last.", 1)


async def test_a_cut_stream_is_retried(engine: AnthropicEngine) -> None:
    result = await engine.run("cut short", OPTIONS, "sandbox")
    assert (result.error, result.text) == (None, "Whole.")


async def test_a_conversation_that_is_too_long_is_reported_as_such(engine: AnthropicEngine) -> None:
    result = await engine.run("this is far too long", OPTIONS, "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("context_overflow", False)
