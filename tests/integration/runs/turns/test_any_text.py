"""Tools and models may return any text; a run survives text that the database cannot store."""

from __future__ import annotations

from nova_workers.contracts.content import storable, storable_json
from tests.requirements import proves
from tests.support.harness.invariants import check_settled
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@proves("input.any-text")
async def test_a_tool_result_with_nul_and_a_lone_surrogate_is_sanitized_and_kept(harness: Harness):
    worker = harness.worker()
    run = await harness.submit(plan(["nul", "nul"]))
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    results = (await harness.transcript(run.run_id))[2]["content"]
    assert [block["content"][0]["text"] for block in results] == ["a\ufffdb and \ufffd"] * 2
    await check_settled(harness.database, harness.engine)


@proves("input.any-text")
async def test_a_message_with_nul_and_a_lone_surrogate_is_answered(harness: Harness):
    worker = harness.worker()
    run = await harness.submit("a\x00b \ud83d")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    assert harness.engine.model_calls[0].texts == ("a\ufffdb \ufffd",)


def test_storable_text_is_unchanged():
    for text in ("", "plain", "\\u0000 in letters", "é 🎉 \n\t"):
        assert storable(text) is text or storable(text) == text


def test_two_adjacent_surrogates_become_their_character():
    assert storable("\ud83c\udf89") == "🎉"
    assert storable_json({"\x00": ["\ud83c", 1, None, {"a": "\udf89"}]}) == {
        "\ufffd": ["\ufffd", 1, None, {"a": "\ufffd"}]
    }
