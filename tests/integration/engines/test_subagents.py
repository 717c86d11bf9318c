"""Subagents: turns inside a call, on the turn's tools, within the turn's bounds."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.agents import Permissions
from nova_workers.contracts.content import JsonObject, text_block, text_of
from nova_workers.contracts.engine import (
    EngineCallbacks,
    EngineOptions,
    EngineResult,
    SubagentConfig,
    ToolAuthorization,
    ToolCall,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.tool_policy.rules import CommandPolicy, ToolPolicy
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.engines.resilience import Policy, Resilience
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Stream
from tests.support.waiting import pass_time, until

AGENTS = {
    "scout": SubagentConfig("Finds things.", "You are a scout.", tools=("count", "hang"), model="haiku", max_turns=3),
    "clerk": SubagentConfig("Writes things.", "You are a clerk."),
}
FOUND = Stream((Part("text", ["Found ", "it"]),))
DONE = Stream((Part("text", ["Done"]),))


def _tasks(*prompts: tuple[str, str]) -> Stream:
    calls = [
        Part("tool", (f"toolu_{at}", "Task", {"agent": agent, "prompt": prompt}))
        for at, (agent, prompt) in enumerate(prompts)
    ]
    return Stream((Part("text", ["I ask"]), *calls))


class Watch:
    """The recorder of the turn, and one of each subagent."""

    def __init__(self) -> None:
        self.main = TurnRecorder()
        self.nested: dict[tuple[str, str], TurnRecorder] = {}

    def callbacks(self, **others: Any) -> EngineCallbacks:
        return self.main.callbacks(subagent=self._begin, **others)

    def _begin(self, call_id: str, name: str) -> EngineCallbacks:
        recorder = self.nested[call_id, name] = TurnRecorder()
        return recorder.callbacks(on_tool_calls=None, on_step=None, take_steering=None)


async def _run(engine: AnthropicEngine, bench: Bench, watch: Watch | None = None, **more: Any) -> EngineResult:
    options = EngineOptions(mcp_servers=bench.servers(), agents=AGENTS, **more)
    return await asyncio.wait_for(engine.run("hi", options, "sandbox", callbacks=(watch or Watch()).callbacks()), 60)


@pytest.fixture
async def bench() -> Bench:
    """Tools to call."""
    return Bench()


async def test_a_subagent_has_its_own_turn_and_returns_its_answer(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "Find the key")), DONE)
    server.reply_to("Find the key", Stream((Part("tool", ("toolu_n", "count", {})),)), FOUND)
    watch = Watch()
    result = await _run(engine, bench, watch)
    asked, first, second, _ = server.requests
    task = asked["tools"][-1]
    assert (task["name"], task["input_schema"]["properties"]["agent"]["enum"]) == ("Task", ["scout", "clerk"])
    assert "- scout: Finds things." in task["description"]
    assert first["model"].startswith("claude-haiku-")
    assert first["system"][0]["text"] == "You are a scout."
    assert first["messages"] == [{"role": "user", "content": [text_block("Find the key")]}]
    assert [tool["name"] for tool in first["tools"]] == ["count", "hang"]
    assert len(second["messages"]) == 3
    (call,) = result.tool_calls
    assert (call.tool_name, call.status, call.result) == ("Task", "completed", (text_block("Found it"),))
    assert (result.text, bench.runs) == ("Done", ["count"])
    assert_valid(result.messages)


async def test_events_name_their_subagent(server: ModelServer, engine: AnthropicEngine, bench: Bench) -> None:
    server.reply(_tasks(("scout", "Find the key")), DONE)
    server.reply_to("Find the key", Stream((Part("text", ["Hm"]), Part("tool", ("toolu_n", "count", {})))), FOUND)
    watch = Watch()
    await _run(engine, bench, watch)
    nested = watch.nested["toolu_0", "scout"]
    assert nested.tokens == ["Hm", "Found ", "it"]
    assert ("narration", "Hm") in nested.log
    assert ("authorize", "count") in nested.log
    assert ("result", "count", "completed") in nested.log
    assert watch.main.tokens == ["I ask", "Done"]
    assert [entry for entry in watch.main.log if entry[0] in ("tool", "authorize")] == [
        ("authorize", "Task"),
        ("tool", "Task"),
    ]


async def test_usage_of_subagents_is_part_of_the_step(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one"), ("clerk", "two")), DONE)
    server.reply_to("one", replace(FOUND, usage={"input_tokens": 100, "output_tokens": 1}))
    server.reply_to("two", replace(FOUND, usage={"input_tokens": 200, "output_tokens": 2}))
    watch = Watch()
    result = await _run(engine, bench, watch)
    first, second = watch.main.records
    assert (first.tool_usage.input_tokens, first.tool_usage.output_tokens) == (300, 3)
    assert first.usage.input_tokens == 10
    assert second.tool_usage == TokenUsage()
    assert result.usage.tokens == first.usage + first.tool_usage + second.usage
    assert result.usage.turns == 2


async def test_subagents_of_one_step_run_concurrently(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("clerk", "one"), ("clerk", "two")), DONE)
    meets = Stream((Part("tool", ("toolu_m", "meet", {})),))
    server.reply_to("one", meets, FOUND)
    server.reply_to("two", meets, FOUND)
    result = await _run(engine, bench)
    assert [call.status for call in result.tool_calls] == ["completed", "completed"]


async def test_a_subagent_has_neither_other_tools_nor_subagents(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one"), ("clerk", "two")), DONE)
    server.reply_to("one", Stream((Part("tool", ("toolu_n", "add", {"a": 1, "b": 1})),)), FOUND)
    server.reply_to("two", Stream((Part("tool", ("toolu_n", "Task", {"agent": "scout", "prompt": "x"})),)), FOUND)
    await _run(engine, bench)
    assert bench.runs == []
    results = [
        block["content"][0]["text"]
        for request in server.requests
        for block in request["messages"][-1]["content"]
        if block.get("tool_use_id") == "toolu_n"
    ]
    assert len(results) == 2
    assert all(text.startswith("There is no tool") for text in results)
    clerk = next(request for request in server.requests if request["messages"][0]["content"][0]["text"] == "two")
    assert "Task" not in [tool["name"] for tool in clerk["tools"]]


async def test_a_subagent_that_fails_is_a_tool_error(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one")), DONE)
    refusal = Stream((Part("text", ["No"]),), stop_reason="refusal")
    server.reply_to("one", refusal)
    result = await _run(engine, bench)
    assert result.text == "Done"
    assert result.tool_calls[0].status == "failed"
    assert "scout failed: The model refused" in (result.tool_calls[0].error or "")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"agent": "nobody", "prompt": "x"}, "There is no agent 'nobody'. Available: scout, clerk."),
        ({"agent": "scout", "prompt": " "}, "'prompt' must say"),
        ({}, "There is no agent None"),
    ],
)
async def test_the_model_gets_an_error_for_an_invalid_call(
    server: ModelServer, engine: AnthropicEngine, bench: Bench, params: dict[str, str], told: str
) -> None:
    server.reply(Stream((Part("tool", ("toolu_0", "Task", params)),)), DONE)
    result = await _run(engine, bench)
    assert told in (result.tool_calls[0].error or "")


async def test_a_subagent_that_does_not_end_is_stopped_with_the_reason(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one")), DONE)
    server.reply_to("one", Stream((Part("text", ["Again"]), Part("tool", ("toolu_n", "count", {})))))
    result = await _run(engine, bench)
    assert bench.runs == ["count"] * 3
    assert text_of(result.tool_calls[0].result or ()) == "Again\n[scout was stopped before it was done: turns]"


async def test_a_budget_is_for_the_turn_and_its_subagents_together(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one")), DONE)
    costly = {"input_tokens": 600, "output_tokens": 0}
    server.reply_to("one", Stream((Part("tool", ("toolu_n", "count", {})),), usage=costly))
    result = await _run(engine, bench, token_budget=1_000)
    assert bench.runs == ["count"] * 2
    assert (result.stop_reason, result.limit, len(server.requests)) == ("max_tokens", "tokens", 3)
    assert_valid(result.messages)


async def test_an_abort_reaches_the_tools_of_subagents(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    abort, watch = AbortSignal(), Watch()
    server.reply(_tasks(("scout", "one")), DONE)
    server.reply_to("one", Stream((Part("tool", ("toolu_n", "hang", {})),)))
    options = EngineOptions(mcp_servers=bench.servers(), agents=AGENTS)
    running = asyncio.create_task(engine.run("hi", options, "sandbox", callbacks=watch.callbacks(), abort=abort))
    await asyncio.wait_for(bench.began.wait(), 60)
    abort.abort("cancel")
    result = await asyncio.wait_for(running, 60)
    assert bench.canceled.is_set()
    assert (result.stop_reason, result.tool_calls[0].status) == ("aborted", "interrupted")
    # What the subagent had used by then is counted.
    assert watch.main.records[0].tool_usage.total_tokens == 15
    assert result.usage.tokens.total_tokens == 30
    assert_valid(result.messages)


BEGUN = Stream((Part("text", ["Let me"]), Part("stall")), usage={"input_tokens": 500, "output_tokens": 9})
"""Of its usage the start is known: 500 read, 1 produced."""


async def test_a_subagents_usage_is_counted_if_an_abort_cuts_its_response(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    abort, watch = AbortSignal(), Watch()
    server.reply(_tasks(("scout", "one")), DONE)
    server.reply_to("one", BEGUN)

    def stop(_: str) -> None:
        abort.abort("cancel")

    def subagent(_call_id: str, _name: str) -> EngineCallbacks:
        return EngineCallbacks(on_token=stop)

    callbacks = watch.main.callbacks(subagent=subagent)
    options = EngineOptions(mcp_servers=bench.servers(), agents=AGENTS)
    running = engine.run("hi", options, "sandbox", callbacks=callbacks, abort=abort)
    result = await asyncio.wait_for(running, 60)
    assert (result.stop_reason, result.tool_calls[0].status) == ("aborted", "interrupted")
    assert watch.main.records[0].tool_usage.total_tokens == 501
    assert result.usage.tokens.total_tokens == 15 + 501


async def test_a_subagents_usage_is_counted_if_a_time_limit_cuts_its_response(
    server: ModelServer, bench: Bench
) -> None:
    watch = Watch()
    server.reply(_tasks(("scout", "one")), DONE)
    # What broke off before counts as well.
    server.reply_to("one", replace(BEGUN, parts=(Part("cut"),)), BEGUN)
    hasty = Resilience.of_one_process(Policy(backoff_s=0.01))
    engine = AnthropicEngine(api_key="k", base_url=server.url, resilience=hasty)
    running = asyncio.create_task(_run(engine, bench, watch, tool_timeout_s=20))
    (nested,) = await until(lambda: list(watch.nested.values()))
    await until(lambda: "".join(nested.tokens).endswith("Let me"), "the response to the second request")
    await pass_time(21)
    result = await running
    await engine.close()
    assert (result.text, result.tool_calls[0].status) == ("Done", "failed")
    assert watch.main.records[0].tool_usage.total_tokens == 2 * 501
    assert result.usage.tokens.total_tokens == 15 + 2 * 501 + 15


async def test_a_subagents_tools_are_authorized_also_without_callbacks_of_its_own(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one")), DONE)
    server.reply_to("one", Stream((Part("tool", ("toolu_n", "count", {})),)), FOUND)
    recorder = TurnRecorder()
    recorder.refuse = {"count": "no"}
    options = EngineOptions(mcp_servers=bench.servers(), agents=AGENTS)
    await engine.run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert bench.runs == []


@proves("engine.subagents")
async def test_a_subagents_calls_have_the_turns_policy_and_count_with_its_own(
    server: ModelServer, tmp_path: Path
) -> None:
    engine = AnthropicEngine(api_key="k", base_url=server.url, native=NativeTools(shell=ShellSettings()))
    policy = ToolPolicy("unrestricted", CommandPolicy(Permissions(deny_commands=("make *",))))

    async def authorize(name: str, given: JsonObject) -> ToolAuthorization:
        verdict = policy.judge(name, given)
        return ToolAuthorization(verdict.kind == "allow", verdict.reason)

    def look(at: int, command: str = "echo same") -> Stream:
        return Stream((Part("tool", (f"toolu_n{at}", "Bash", {"command": command})),))

    server.reply(look(0), look(1), _tasks(("clerk", "one")), DONE)
    server.reply_to("one", look(2, "make it"), look(3), look(4), FOUND)

    def subagent(_call_id: str, _name: str) -> EngineCallbacks:
        return EngineCallbacks(authorize_tool=authorize)

    callbacks = TurnRecorder().callbacks(authorize_tool=authorize, subagent=subagent)
    options = EngineOptions(cwd=str(tmp_path), agents=AGENTS)
    result = await engine.run("hi", options, "unrestricted", callbacks=callbacks)
    await engine.close()
    assert (result.error, result.text) == (None, "Done")
    last = [body["messages"] for body in server.requests if body["messages"][0]["content"][0]["text"] == "one"][-1]
    results = [block for message in last for block in message["content"] if block["type"] == "tool_result"]
    # Calls of the turn and its subagent count together: the subagent's second call is one too many.
    assert [block.get("is_error", False) for block in results] == [True, False, True]
    assert "make" in str(results[0]["content"])


async def test_after_a_crash_a_subagent_is_interrupted_and_not_run_again(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(_tasks(("scout", "one")), DONE)
    server.reply_to("one", FOUND)
    watch = Watch()
    await _run(engine, bench, watch)
    server.requests.clear()
    server.reply(DONE)
    result = await _run(engine, bench, journal=(watch.main.before_tools[0],))
    assert len(server.requests) == 1
    calls: tuple[ToolCall, ...] = result.tool_calls
    assert [call.status for call in calls] == ["interrupted"]


async def test_without_subagents_there_is_no_task_tool(
    server: ModelServer, engine: AnthropicEngine, bench: Bench
) -> None:
    server.reply(DONE)
    await engine.run("hi", EngineOptions(mcp_servers=bench.servers()), "sandbox")
    assert "Task" not in [tool["name"] for tool in server.requests[0]["tools"]]
