"""The script of the scripted engine."""

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import EngineCallbacks, EngineOptions, EngineResult
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.scripted import ScriptedEngine
from tests.requirements import proves

Script = list[dict[str, Any]]


async def _play(
    script: Any = None, message: str = "hi there", callbacks: EngineCallbacks | None = None
) -> EngineResult:
    options = EngineOptions(engine_config={} if script is None else {"script": script})
    return await ScriptedEngine(environment="development").run(message, options, "sandbox", callbacks=callbacks)


@proves("security.production")
def test_it_cannot_be_created_in_production() -> None:
    with pytest.raises(ConfigurationError, match="must not run in production"):
        ScriptedEngine(environment="production")


async def test_without_a_script_it_echoes() -> None:
    result = await _play()
    assert result.text == "You said: hi there"
    assert (result.model, result.stop_reason) == ("scripted", "end_turn")


async def test_the_script_of_a_message_overrides_the_options() -> None:
    result = await _play([{"say": "options"}], json.dumps({"script": [{"say": "message"}]}))
    assert result.text == "message"


@pytest.mark.parametrize("message", ['{"script": oops', '{"other": 1, "x": "\\"script\\""}', "{ not json"])
async def test_a_message_that_only_looks_like_a_script_is_a_message(message: str) -> None:
    assert (await _play(message=message)).text == f"You said: {message}"


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ([{"sya": "typo"}], "0.sya"),
        ("not a list", "script"),
        ([{"say": "x", "tokens_per_s": 0}], "0.tokens_per_s"),
        ([{"say": "x", "tokens_per_s": 1, "token_delay_ms": 1}], "not both"),
        ([{"error": {"kind": "no such kind"}}], "0.error.kind"),
    ],
)
async def test_a_malformed_script_fails_the_turn_with_the_position(script: Any, where: str) -> None:
    result = await _play(script)
    assert result.stop_reason == "error"
    assert result.error is not None
    assert where in result.error.message
    assert not result.error.retryable


async def test_tools_are_played_with_result_failure_and_sleep() -> None:
    tools = [
        {"name": "a", "input": {"x": 1}, "result": {"y": [2]}, "sleep_s": 0.01},
        {"name": "b", "fail": "broken"},
        {"name": "c", "fail": True},
        {"name": "d", "idempotent": True},
    ]
    result = await _play([{"tool": tools}, {"say": "End"}])
    said = [(call.status, text_of(call.result or ())) for call in result.tool_calls]
    assert said == [("completed", '{"y":[2]}'), ("failed", "broken"), ("failed", "c failed"), ("completed", "ok")]
    assert [call.idempotent for call in result.tool_calls] == [False, False, False, True]
    assert [call.id for call in result.tool_calls] == [f"toolu_local_0_{at}" for at in range(4)]


async def test_a_script_that_ends_with_a_tool_gets_a_final_text() -> None:
    assert (await _play([{"tool": {"name": "a"}}])).text == "Done."


async def test_a_script_sets_the_usage() -> None:
    result = await _play([{"say": "x", "usage": {"input_tokens": 7, "output_tokens": 3, "cost_usd": 0.5}}])
    assert result.usage.tokens == TokenUsage(input_tokens=7, output_tokens=3, cost_usd=0.5)


async def test_an_error_has_the_scripts_kind() -> None:
    script = [{"say": "So far"}, {"error": {"kind": "rate_limit", "message": "slow down", "retryable": True}}]
    result = await _play(script)
    assert result.error is not None
    assert (result.error.kind, result.error.message, result.error.retryable) == ("rate_limit", "slow down", True)
    assert result.text == "So far"


async def test_a_crash_by_exception_leaves_the_engine_as_one() -> None:
    with pytest.raises(RuntimeError, match="crashed"):
        await _play([{"crash": "raise"}])


def test_a_crash_by_exit_ends_the_process_as_a_kill_would() -> None:
    program = """
import asyncio
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.scripted import ScriptedEngine
options = EngineOptions(engine_config={"script": [{"crash": "exit"}]})
asyncio.run(ScriptedEngine(environment="development").run("hi", options, "sandbox"))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 137


@pytest.mark.parametrize("pace", [{"tokens_per_s": 50}, {"token_delay_ms": 20}])
async def test_tokens_come_at_the_scripts_pace(pace: dict[str, Any]) -> None:
    arrived_s: list[float] = []
    callbacks = EngineCallbacks(on_token=lambda _: arrived_s.append(time.monotonic()))
    started_s = time.monotonic()
    await _play([{"say": "one two three four five six", **pace}], callbacks=callbacks)
    assert len(arrived_s) == 6
    assert arrived_s[0] - started_s >= 0.015
    assert arrived_s[-1] - started_s >= 0.115


async def test_a_long_text_without_a_pace_lets_the_loop_run() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    result = await _play([{"say": "word " * 10_000}])
    counter.cancel()
    assert len(result.text.split()) == 10_000
    assert turns > 20


async def test_the_same_script_gives_the_same_messages() -> None:
    script: Script = [{"think": "Hm", "say": "Look", "tool": {"name": "a"}}, {"say": "End"}]
    assert (await _play(script)).messages == (await _play(script)).messages
