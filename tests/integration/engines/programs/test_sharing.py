"""What turns and programs share: slots, subagents, and the models of a vendor."""

from __future__ import annotations

import asyncio

import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import SubagentConfig
from tests.contract.engines.stage import Bench
from tests.integration.engines.programs.stage import ProgramStage, program_processes
from tests.support.servers.model_server import Part, Status
from tests.support.waiting import stays

_ONE = pytest.mark.parametrize("stage", ["codex"], indirect=True)
"""What the programs share is tested with the one that starts faster."""


@_ONE
async def test_a_subagent_has_a_program_beside_that_of_its_turn_in_the_only_slot(stage: ProgramStage) -> None:
    helper = SubagentConfig("Counts things.", "You count.")
    stage.server.reply(
        stage.calls(("Task", {"agent": "counter", "prompt": "Count to three."})),
        stage.says("One, two, three."),
        stage.says("It counted."),
    )
    engine = stage.engine(max_processes=1)
    result = await asyncio.wait_for(engine.run("hi", stage.options(agents={"counter": helper}), "sandbox"), 60)
    assert (result.error, result.text) == (None, "It counted.")
    assert "One, two, three." in text_of(result.tool_calls[0].result or ())
    assert not list(program_processes())


@_ONE
async def test_a_turn_waits_for_a_slot(stage: ProgramStage) -> None:
    engine, bench, abort = stage.engine(max_processes=1), Bench(), AbortSignal()
    stage.server.reply(stage.calls(("hang", {})), stage.says("After it."))
    options = stage.options(mcp_servers=bench.servers())
    first = asyncio.create_task(engine.run("one", options, "sandbox", abort=abort))
    async with asyncio.timeout(60):
        await bench.began.wait()
    second = asyncio.create_task(engine.run("two", options, "sandbox"))
    await stays(lambda: len(stage.server.requests) == 1, for_s=0.5)
    abort.abort("cancel")
    assert (await first).stop_reason == "aborted"
    assert (await asyncio.wait_for(second, 60)).text == "After it."


async def test_another_model_of_the_vendor_answers_where_the_first_is_gone(stage: ProgramStage) -> None:
    other = f"{stage.model}-other"
    stage.server.reply(Status(404, "NOT_FOUND", "The model does not exist"), stage.says("Here."))
    result = await stage.engine(fallbacks=(other,)).run("hi", stage.options(), "sandbox")
    assert (result.error, result.text, result.model) == (None, "Here.", other)


async def test_an_answer_that_breaks_off_is_a_failure_that_may_be_repeated(stage: ProgramStage) -> None:
    whole = stage.says("Never.")
    stage.server.reply(type(whole)((Part("text", ["Half"]), Part("cut"))))
    result = await stage.engine().run("hi", stage.options(), "sandbox")
    assert result.stop_reason == "error"
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == ("model_error", True), result.error.message
