"""Tools and models say what they like; a run does not die of what a database cannot hold."""

from __future__ import annotations

from nova_workers.contracts.content import storable, storable_json
from tests.requirements import proves
from tests.support.harness.invariants import check_settled
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


@proves("input.any-text")
async def test_a_tool_result_with_nul_and_half_a_character_is_kept_as_far_as_it_can_be(harness: Harness):
    worker = harness.worker()
    run = await harness.submit(plan(["nul", "nul"]))
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    results = (await harness.transcript(run.run_id))[2]["content"]
    assert [block["content"][0]["text"] for block in results] == ["a\ufffdb and \ufffd"] * 2
    await check_settled(harness.database, harness.engine)


@proves("input.any-text")
async def test_a_message_with_nul_and_half_a_character_is_answered(harness: Harness):
    worker = harness.worker()
    run = await harness.submit("a\x00b \ud83d")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"
    assert harness.engine.model_calls[0].texts == ("a\ufffdb \ufffd",)


def test_text_that_every_store_takes_is_left_as_it_is():
    for text in ("", "plain", "\\u0000 in letters", "é 🎉 \n\t"):
        assert storable(text) is text or storable(text) == text


def test_two_halves_side_by_side_become_their_character():
    assert storable("\ud83c\udf89") == "🎉"
    assert storable_json({"\x00": ["\ud83c", 1, None, {"a": "\udf89"}]}) == {
        "\ufffd": ["\ufffd", 1, None, {"a": "\ufffd"}]
    }
