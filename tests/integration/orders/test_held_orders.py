"""A fault of a model provider fails no order: its parts wait, visibly, for as long as the order has time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from nova_workers.base.errors import Outage
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.orders import AiWorkResultV1, OrderWait, PolicyDocument
from nova_workers.engines.anthropic import AnthropicEngine
from tests.requirements import proves
from tests.support.harness.orders import OrderDesk, critique, policy, proposal
from tests.support.servers.model_server import Part, Status, Stream, model_server

_MODEL = "claude-haiku-4-5"
_REFUSALS = {
    "key_refused": Status(401, "authentication_error", "invalid x-api-key"),
    "rate_limit": Status(429, "rate_limit_error", "slow down", headers={"retry-after": "11"}),
}
_LIMITED = EngineError(
    "rate_limit", "slow down: xanthic-quokka", retryable=True, outage=Outage("anthropic", "rate_limit", "default", "m")
)
_KEYLESS = EngineError("auth_failure", "no key", retryable=False, outage=Outage("anthropic", "key_missing"))
_CONTENT = EngineError("model_error", "400: the request is refused", retryable=False)


def _policy(models: Mapping[str, str], **fields: Any) -> PolicyDocument:
    """Return a policy of one role with these models, each with its engine."""
    document = policy(**fields).to_wire()
    document["roles"][0]["models"] = [
        {"engine": engine, "model": model, "provider": f"maker-of-{model}"} for model, engine in models.items()
    ]
    return PolicyDocument.from_wire(document)


async def _try_again(desk: OrderDesk) -> None:
    await desk.database.execute("UPDATE runs SET held_until = now() WHERE held_until > now()")
    await desk.harness.reconciler.reconcile()


async def _end_of_time(desk: OrderDesk) -> None:
    await desk.database.execute("UPDATE work_orders SET deadline_at = now() - interval '1 second'")


def _waiting(result: AiWorkResultV1) -> OrderWait:
    assert result.extensions is not None
    assert result.extensions.waiting is not None
    return result.extensions.waiting


@pytest.mark.parametrize("reason", _REFUSALS)
@proves("order.holds")
async def test_an_order_waits_for_a_provider_that_refuses_and_is_executed_afterwards(
    desk: OrderDesk, reason: str
) -> None:
    async with model_server() as server:
        desk.harness.engines["anthropic"] = engine = AnthropicEngine(api_key="k", base_url=server.url)
        server.reply(_REFUSALS[reason])
        accepted = await desk.accept(desk.order(), _policy({_MODEL: "anthropic"}))
        async with asyncio.timeout(20):
            await desk.settle()
        (part,) = await desk.parts(accepted.trace_id)
        assert part.stop_reason is None
        run = await desk.harness.run(part.run_id)
        assert (run["status"], run["hold"], run["hold_detail"]["outage"], run["losses"]) == (
            "queued",
            "provider",
            reason,
            0,
        )
        result = await desk.result(accepted.trace_id)
        assert (result.status, result.stop_reason, result.needs_human) == ("in_progress", "in_progress", False)
        seen = _waiting(result)
        assert seen.next_try_in_ms is not None
        assert (seen.provider, seen.reason, seen.message) == (None, None, None)
        internal = _waiting(await desk.result(accepted.trace_id, internal=True))
        assert (internal.provider, internal.reason) == ("anthropic", reason)
        assert internal.advice
        assert internal.line.startswith(f"{internal.message} {internal.advice} It has waited 0 s. Next try in ")
        assert seen.line.startswith("A model provider cannot be used. It has waited 0 s. Next try in ")
        await engine.close()

        # As if the pause had passed, also that of the key.
        await desk.harness.redis.flushdb()
        desk.harness.engines["anthropic"] = fresh = AnthropicEngine(api_key="k", base_url=server.url)
        server.reply(Stream((Part("text", [proposal()]),)))
        await _try_again(desk)
        await desk.settle()
        assert (await desk.result(accepted.trace_id)).stop_reason == "ok"
        assert len(server.requests) == 2
        await fresh.close()


@proves("order.holds")
async def test_one_part_tries_for_all_and_its_answer_releases_them(desk: OrderDesk) -> None:
    desk.engine.answers = dict.fromkeys("abc", _LIMITED)
    worker = desk.harness.worker()
    accepted = await desk.accept(desk.order(), policy(dict.fromkeys("abc", "craft")))
    await desk.settle(worker)
    assert len(desk.engine.calls) == 3
    await _try_again(desk)
    await desk.settle(worker)
    assert len(desk.engine.calls) == 4

    desk.engine.answers = {}
    await _try_again(desk)
    async with asyncio.timeout(10):
        while (await desk.row(accepted.trace_id)).state == "running":
            await desk.settle(worker)
            await asyncio.sleep(0.01)  # until the others are released
    assert (await desk.result(accepted.trace_id)).stop_reason == "ok"
    assert len(desk.engine.calls) == 7


@proves("order.holds")
async def test_another_model_of_the_role_answers_in_place_of_a_wait(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": _LIMITED}
    result = await desk.run(_policy({"craft": "scripted", "second": "scripted"}))
    assert result.stop_reason == "ok"
    assert [call.model for call in desk.engine.calls] == ["craft", "second"]


async def test_an_order_waits_if_only_one_of_its_models_may_answer_later(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": [_LIMITED, proposal()], "second": _CONTENT}
    accepted = await desk.accept(desk.order(), _policy({"craft": "scripted", "second": "scripted"}))
    await desk.settle()
    assert (await desk.row(accepted.trace_id)).state == "running"
    await _try_again(desk)
    await desk.settle()
    assert (await desk.result(accepted.trace_id)).stop_reason == "ok"


@pytest.mark.parametrize(("error", "reason"), [(_LIMITED, "rate_limited"), (_KEYLESS, "needs_human")])
@proves("order.holds")
async def test_an_order_whose_time_is_over_says_what_it_waited_for_and_is_not_kept(
    desk: OrderDesk, error: EngineError, reason: str
) -> None:
    desk.engine.answers = {"craft": error}
    order = desk.order()
    accepted = await desk.accept(order, policy())
    await desk.settle()
    # Longer than an interactive run may wait: an order has a time of its own.
    await desk.database.execute("UPDATE runs SET held_since = now() - interval '5 minutes'")
    await _try_again(desk)
    await desk.settle()
    assert (await desk.row(accepted.trace_id)).state == "running"
    assert len(desk.engine.calls) == 2
    await desk.settle()
    assert len(desk.engine.calls) == 2
    await _end_of_time(desk)
    await desk.ticker.tick()
    assert (await desk.result(accepted.trace_id)).stop_reason == reason
    assert not (await desk.accept(order, policy())).shared


async def test_a_try_after_the_end_of_the_time_has_the_same_reason(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": _LIMITED}
    accepted = await desk.accept(desk.order(), policy())
    await desk.settle()
    await _end_of_time(desk)
    await _try_again(desk)
    await desk.settle()
    assert (await desk.result(accepted.trace_id)).stop_reason == "rate_limited"
    assert len(desk.engine.calls) == 1


async def test_an_order_that_a_provider_cut_short_keeps_its_proposal_but_is_not_the_result_of_an_equal_one(
    desk: OrderDesk,
) -> None:
    desk.engine.answers = {"craft": proposal(), "critic": [_LIMITED, critique()]}
    order, roles = desk.order(), {"craft": "craft", "critic": "review"}
    accepted = await desk.accept(order, policy(roles))
    await desk.settle()
    await _end_of_time(desk)
    await desk.ticker.tick()
    result = await desk.result(accepted.trace_id)
    assert (result.stop_reason, len(result.artifacts)) == ("round_cap_exceeded", 1)
    assert not (await desk.accept(order, policy(roles))).shared


@proves("order.holds")
async def test_what_a_provider_reports_is_in_no_run_while_an_order_waits(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": _LIMITED}
    await desk.accept(desk.order(), policy())
    await desk.settle()
    assert "xanthic-quokka" not in str(await desk.database.fetch("SELECT * FROM runs"))
    (message,) = [row["hold_detail"]["message"] for row in await desk.database.fetch("SELECT hold_detail FROM runs")]
    assert message == "anthropic limits the key 'default' for m."


async def test_calls_of_tries_that_failed_reserve_nothing(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": [*[_LIMITED] * 6, proposal()]}
    caps = {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 1_500, "timeoutMs": 60_000}
    accepted = await desk.accept(desk.order(), policy(caps=caps))
    for _ in range(7):
        await desk.settle()
        await _try_again(desk)
    assert (await desk.result(accepted.trace_id)).stop_reason == "ok"
    (part,) = await desk.parts(accepted.trace_id)
    assert part.used_tokens == 150
