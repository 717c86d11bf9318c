"""A response that breaks off in mid-stream: what followers see, and what the ledger stores."""

from __future__ import annotations

from typing import cast

from nova_workers.base.keys import run_events
from nova_workers.domain.streams.rules.wire import FIELD, decode
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.resilience import Policy, Resilience
from tests.support.harness.workers import AGENT, Harness
from tests.support.servers.model_server import Part, Status, Stream, model_server


async def test_followers_learn_that_the_first_text_is_void_and_the_ledger_has_only_the_last(
    harness: Harness,
) -> None:
    async with model_server() as server:
        server.reply(Stream((Part("text", ["Half a"]), Part("cut"))), Stream((Part("text", ["A whole one"]),)))
        engine = AnthropicEngine(api_key="k", base_url=server.url)
        harness.engines[AGENT] = engine
        worker = harness.worker()
        accepted = await harness.submit("hi")
        await harness.settle(worker)
        await engine.close()
    assert await harness.status(accepted.run_id) == "succeeded"
    events = await _events(harness, accepted.run_id)
    kinds = [event["type"] for event in events]
    assert kinds[kinds.index("token") :] == ["token", "restart", "token", "stream_end"]
    assert [event["text"] for event in events if event["type"] == "token"] == ["Half a", "A whole one"]
    assert events[-1]["text"] == "A whole one"
    said = [row["content"] for row in await harness.transcript(accepted.run_id) if row["role"] == "assistant"]
    assert said == [[{"type": "text", "text": "A whole one"}]]


async def test_an_interrupted_response_costs_and_does_not_lengthen_the_conversation(harness: Harness) -> None:
    used = {"input_tokens": 1_000, "output_tokens": 50}
    broken = Stream((Part("text", ["Half a"]), Part("cut")), usage=used)
    call = Stream((Part("tool", ("toolu_1", "nobody", {})),), usage=used)
    whole = Stream((Part("text", ["A whole one"]),), usage=used)
    hasty = Resilience.of_one_process(Policy(backoff_s=0.01))
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, resilience=hasty)
        harness.engines[AGENT] = engine
        worker = harness.worker()
        for replies in ((broken, call, broken, whole), (broken, call, Status(400, "invalid_request_error"))):
            # At the end of a step, at the end of the turn, and at that of a turn that fails.
            server.reply(*replies)
            accepted = await harness.submit("hi")
            await harness.settle(worker)
            row = await harness.database.fetchrow(
                "SELECT context_tokens, input_tokens FROM turns WHERE run_id = :run_id", run_id=accepted.run_id
            )
            assert row is not None
            told = sum(isinstance(reply, Stream) for reply in replies)
            assert (row["context_tokens"], row["input_tokens"]) == (1_050, told * 1_000)
        await engine.close()


async def _events(harness: Harness, run_id: str) -> list[dict[str, object]]:
    entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", await harness.redis.xrange(run_events(run_id)))
    return [live.event for _, entry in entries for live in decode(entry[FIELD])]
