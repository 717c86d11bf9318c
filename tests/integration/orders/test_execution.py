"""Orders are executed by runs: rounds of proposals and reviews, caps, and results."""

from __future__ import annotations

import pytest

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.default_agents import ORDER_AGENT
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.orders import EngineConstraints, OrderExtensions, PolicyDocument, ProviderHints
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.orders.rules.advance import ORDER_AGENT_SPEC
from nova_workers.ledger.database import Database
from nova_workers.ledger.stored import read_stored
from tests.requirements import proves
from tests.support.harness.orders import OrderDesk, critique, policy, proposal

SWARM = {"craft": "craft", "critic": "review", "compliance": "review", "general": "general"}


async def test_an_order_of_one_role_gets_its_proposal(desk: OrderDesk) -> None:
    result = await desk.run(policy())
    assert (result.status, result.stop_reason, result.needs_human) == ("succeeded", "ok", False)
    (artifact,) = result.artifacts
    assert artifact.to_wire()["payload"]["value"] == "A better headline"
    assert result.extensions is not None
    assert result.extensions.meta is not None
    meta = result.extensions.meta
    assert (meta.calls, meta.rounds, meta.models, meta.cached) == (1, 1, ["craft"], False)
    assert meta.estimated_usd == pytest.approx(0.01)
    assert (meta.input_tokens, meta.output_tokens) == (100, 50)


@proves("upgrade.beside")
async def test_the_agent_of_orders_is_stored_without_fields_that_the_previous_release_may_not_know(
    desk: OrderDesk, database: Database
) -> None:
    await desk.run(policy())
    stored = await database.fetchval("SELECT spec FROM agents WHERE id = :agent_id", agent_id=ORDER_AGENT)
    assert read_stored(AgentSpec.model_validate, stored) == ORDER_AGENT_SPEC
    assert None not in stored.values()


async def test_a_swarm_reviews_in_parallel_and_repeats_with_the_critiques_until_its_policy_is_satisfied(
    desk: OrderDesk,
) -> None:
    desk.engine.answers = {
        "craft": [proposal("First"), proposal("Second", 0.95)],
        "critic": [critique(approve=False, issues=["Too long"]), critique()],
        "compliance": critique(),
        "general": proposal("Final", 0.92),
    }
    result = await desk.run(policy(SWARM))
    assert result.stop_reason == "ok"
    assert [artifact.to_wire()["payload"]["value"] for artifact in result.artifacts] == ["Final"]
    assert result.extensions is not None
    swarm = result.extensions.swarm
    assert swarm is not None
    assert (swarm.field_general_model, swarm.swirls) == ("general", 2)
    assert [(each.role, each.stop_reason, each.confidence) for each in swarm.specialists] == [
        ("craft", "ok", 0.95),
        ("critic", "ok", 0.8),
        ("compliance", "ok", 0.8),
    ]
    assert [call.model for call in desk.engine.calls].count("craft") == 2
    assert len(desk.engine.calls) == 7
    second = [call for call in desk.engine.calls if call.model == "craft"][1]
    assert "Too long" in second.user
    assert "First" in second.user


async def test_an_unsatisfied_policy_stops_at_the_cap_of_rounds_with_the_best_proposal(desk: OrderDesk) -> None:
    desk.engine.answers = {"critic": critique(approve=False)}
    order = desk.order(constraints=EngineConstraints(max_rounds=2))
    result = await desk.run(policy({"craft": "craft", "critic": "review"}), order)
    assert (result.status, result.stop_reason) == ("failed", "round_cap_exceeded")
    assert len(result.artifacts) == 1
    assert len(desk.engine.calls) == 4


async def test_a_specialist_that_fails_costs_its_part_and_not_the_order(desk: OrderDesk) -> None:
    failure = EngineError("model_error", "The provider is down", retryable=True)
    desk.engine.answers = {"critic": failure, "compliance": critique()}
    result = await desk.run(
        policy({"craft": "craft", "critic": "review", "compliance": "review"}, satisfied={"minApprovals": 1})
    )
    assert result.stop_reason == "ok"
    assert result.extensions is not None
    assert result.extensions.swarm is not None
    assert [each.stop_reason for each in result.extensions.swarm.specialists] == ["ok", "needs_human", "ok"]


@proves("order.caps")
async def test_no_call_is_made_that_the_order_cannot_afford(desk: OrderDesk) -> None:
    order = desk.order(constraints=EngineConstraints(max_tokens_total=300))
    result = await desk.run(policy(), order)
    assert (result.status, result.stop_reason) == ("failed", "cost_cap_exceeded")
    assert not desk.engine.calls


async def test_a_call_gets_no_more_tokens_than_are_left(desk: OrderDesk) -> None:
    order = desk.order(constraints=EngineConstraints(max_tokens_total=1_200))
    await desk.run(policy(), order)
    (call,) = desk.engine.calls
    assert 256 <= call.max_tokens < 500


@proves("order.caps")
async def test_cost_that_was_used_counts_before_each_further_call(desk: OrderDesk) -> None:
    desk.engine.usage = TokenUsage(input_tokens=10, output_tokens=10, cost_usd=0.6)
    desk.engine.answers = {"critic": critique(approve=False)}
    order = desk.order(constraints=EngineConstraints(cost_cap_usd=1.0))
    result = await desk.run(policy({"craft": "craft", "critic": "review"}), order)
    assert result.stop_reason == "cost_cap_exceeded"
    assert len(desk.engine.calls) == 2
    assert len(result.artifacts) == 1


@proves("budgets.reserved")
async def test_no_call_of_an_order_exceeds_the_budget_of_its_tenant(desk: OrderDesk) -> None:
    await desk.database.execute("UPDATE tenants SET max_cost_usd_per_day = 0.025")
    roles = {"craft": "craft", "critic": "review", "compliance": "review"}
    desk.engine.answers = {"critic": critique(), "compliance": critique()}
    result = await desk.run(policy(roles))
    assert len(desk.engine.calls) == 2
    assert result.extensions is not None
    assert result.extensions.swarm is not None
    assert sorted(each.stop_reason for each in result.extensions.swarm.specialists)[:1] == ["cost_cap_exceeded"]


@pytest.mark.parametrize(("answer", "reason"), [("no JSON", "json_parse_failed"), ('{"targetKey": 1}', "ajv_failed")])
async def test_an_answer_of_the_wrong_form_is_sent_back_once(desk: OrderDesk, answer: str, reason: str) -> None:
    desk.engine.answers = {"craft": [answer, proposal("Corrected")]}
    result = await desk.run(policy())
    assert result.stop_reason == "ok"
    assert len(desk.engine.calls) == 2
    desk.engine.answers = {"craft": answer}
    desk.engine.calls.clear()
    accepted = await desk.accept(desk.order({"another": "order"}), policy())
    await desk.settle()
    result = await desk.result(accepted.trace_id)
    assert (result.status, result.stop_reason, result.needs_human) == ("failed", "needs_human", True)
    assert result.extensions is not None
    assert result.extensions.message == "We need to review this manually"
    assert (await desk.row(accepted.trace_id)).stop_reason == reason
    assert len(desk.engine.calls) == 2


@pytest.mark.parametrize(
    "form",
    [
        "```json\n{}\n```",
        "Here is the proposal:\n\n{}",
        "Sure {{really}}!\n```\n{}\n```\nI hope that you like it {{:-)}}.",
        'First {{"targetKey": "a"}}, and better: {} Enjoy.',
    ],
)
async def test_json_in_a_fence_or_beside_sentences_is_an_answer(desk: OrderDesk, form: str) -> None:
    desk.engine.answers = {"craft": form.format(proposal("In words"))}
    result = await desk.run(policy())
    assert result.stop_reason == "ok"
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["In words"]
    assert len(desk.engine.calls) == 1


async def test_an_equal_order_gets_no_result_that_is_older_than_it_accepts(desk: OrderDesk) -> None:
    first = await desk.run(policy(), desk.order(ttl_hours=24))
    await desk.database.execute("UPDATE work_orders SET ended_at = now() - interval '2 hours'")
    assert (await desk.accept(desk.order(ttl_hours=3), policy())).trace_id == first.trace_id
    again = await desk.accept(desk.order(ttl_hours=1), policy())
    assert (again.shared, again.trace_id == first.trace_id) == (False, False)
    await desk.settle()
    assert len(desk.engine.calls) == 2


async def test_a_result_is_kept_for_as_long_as_any_of_the_equal_orders_asks(desk: OrderDesk) -> None:
    await desk.run(policy(), desk.order(ttl_hours=1))
    assert (await desk.accept(desk.order(ttl_hours=48), policy())).shared
    await desk.accept(desk.order({"another": "order"}, ttl_hours=1), policy())
    await desk.accept(desk.order({"another": "order"}, ttl_hours=72), policy())
    await desk.settle()
    hours = await desk.database.fetch(
        "SELECT round(extract(epoch FROM expires_at - now()) / 3600)::int AS kept FROM work_order_keys "
        "ORDER BY order_id"
    )
    assert [row["kept"] for row in hours] == [48, 72]


async def test_orders_are_not_equal_if_an_extension_differs_that_their_policy_reads(desk: OrderDesk) -> None:
    prompt = {"system": "{{schema}}", "user": "{{inputs}} {{intent}}"}
    document = policy(hintsOverride=True).to_wire()
    document["roles"][0]["prompt"] = prompt
    reading = PolicyDocument.from_wire(document)
    for read, shared in ((reading, False), (policy(), True)):
        first = await desk.accept(desk.order(extensions=OrderExtensions(intent_type="one")), read)
        assert (await desk.accept(desk.order(extensions=OrderExtensions(intent_type="one")), read)).shared
        other = await desk.accept(desk.order(extensions=OrderExtensions(intent_type="two")), read)
        hints = ProviderHints(preferred=["maker-of-craft"])
        hinted = await desk.accept(
            desk.order(extensions=OrderExtensions(intent_type="one", provider_hints=hints)), read
        )
        assert [other.trace_id == first.trace_id, hinted.trace_id == first.trace_id] == [shared, shared]


async def test_another_model_of_the_role_answers_if_a_provider_fails(desk: OrderDesk) -> None:
    document = policy().to_wire()
    document["roles"][0]["models"].append({"engine": "scripted", "model": "spare", "provider": "other"})
    desk.engine.answers = {"craft": EngineError("rate_limit", "Slow down", retryable=True)}
    result = await desk.run(type(policy()).from_wire(document))
    assert result.stop_reason == "ok"
    assert [call.model for call in desk.engine.calls] == ["craft", "spare"]


async def test_a_role_without_a_model_of_the_fleet_is_a_failure_of_the_router(desk: OrderDesk) -> None:
    document = policy().to_wire()
    document["roles"][0]["models"] = [{"engine": "missing", "model": "any", "provider": "none"}]
    accepted = await desk.accept(desk.order(), type(policy()).from_wire(document))
    await desk.settle()
    assert (await desk.row(accepted.trace_id)).stop_reason == "router_failed"
    result = await desk.result(accepted.trace_id)
    assert result.extensions is not None
    assert result.extensions.message == "We're reviewing your request"


@proves("ceilings.run")
async def test_no_model_is_called_whose_engine_the_ceilings_of_the_tenant_leave_out(desk: OrderDesk) -> None:
    ceilings = {"engines": ["anthropic"]}
    await desk.database.execute(
        "UPDATE tenants SET ceilings = :ceilings::jsonb WHERE id = :id", ceilings=ceilings, id=desk.tenant_id
    )
    accepted = await desk.accept(desk.order(), policy())
    await desk.settle()
    assert (await desk.row(accepted.trace_id)).stop_reason == "router_failed"
    assert desk.engine.calls == []


async def test_an_equal_order_gets_the_result_of_the_first_one_in_its_own_presentation(desk: OrderDesk) -> None:
    crafts = policy({"craft": "craft", "second": "craft"})
    desk.engine.answers = {"craft": proposal("One", 0.8), "second": proposal("Two", 0.9)}
    first = await desk.accept(desk.order(), crafts)
    await desk.settle()
    again = await desk.accept(desk.order(extensions=OrderExtensions(presentation_mode="ranked")), crafts)
    assert (again.trace_id, again.shared) == (first.trace_id, True)
    result = await desk.result(first.trace_id, mode="ranked", shared=True)
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Two", "One"]
    assert result.extensions is not None
    assert result.extensions.meta is not None
    assert result.extensions.meta.cached
    assert len(desk.engine.calls) == 2


async def test_another_version_of_the_policy_is_executed_anew(desk: OrderDesk) -> None:
    await desk.run(policy())
    again = await desk.accept(desk.order(), policy(version="2"))
    assert not again.shared


async def test_a_failure_of_the_provider_is_not_kept_for_equal_orders(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": EngineError("model_error", "Down", retryable=True)}
    await desk.run(policy())
    desk.engine.answers = {}
    assert (await desk.run(policy())).stop_reason == "ok"


@pytest.mark.parametrize("mode", ["single_best", "ranked"])
async def test_in_place_of_an_artifact_that_is_not_safe_for_customers_the_next_best_is_shown(
    desk: OrderDesk, mode: str
) -> None:
    desk.engine.answers = {"a": proposal("Bearer sk-ant-api03-" + "Q7" * 12, 0.9), "b": proposal("Safe", 0.7)}
    shown = {"modes": [mode], "default": mode}
    result = await desk.run(policy({"a": "craft", "b": "craft"}, presentation=shown))
    assert (result.status, result.stop_reason) == ("succeeded", "ok")
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Safe"]
    left_out = await desk.database.fetchval(
        "SELECT data->'leftOut' FROM work_order_trail WHERE audience = 'internal' AND event = 'ended'"
    )
    assert {"path": "artifacts.0", "rule": "it contains a credential: Anthropic API key"} in left_out
    assert {each["path"] for each in left_out} == {"artifacts.0"}


@pytest.mark.parametrize("text", ["漢字かな" * 300, "ስራ" * 300, "🦊🪿" * 300, "9f86d081884c7d65" * 100])
async def test_the_reservation_of_a_call_covers_its_input_in_any_script(desk: OrderDesk, text: str) -> None:
    reserved: list[int] = []

    async def look() -> None:
        reserved.append(await desk.database.fetchval("SELECT reserved_tokens - 500 FROM work_order_parts"))

    desk.engine.before = look
    await desk.run(policy(), desk.order({"currentCopy": text}))
    # The most that byte-level tokenizers make of it: a token for each byte, and of hexadecimal digits one for two.
    assert reserved[0] >= (len(text) // 2 if text.isascii() else len(text.encode()))


async def test_no_call_is_paid_for_whose_answer_no_schema_accepts(desk: OrderDesk) -> None:
    kinds = {"odd_v1": {"type": "object", "$ref": "https://example.com/schema.json"}}
    result = await desk.run(policy(produces="odd_v1", artifactKinds=kinds))
    assert desk.engine.calls == []
    (part,) = await desk.parts(result.trace_id)
    assert (part.stop_reason, part.used_usd, part.calls) == ("ajv_failed", 0, 0)
