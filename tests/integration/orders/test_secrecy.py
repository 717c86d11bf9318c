"""What an order contains, and what models say of it, is nowhere in the clear: a canary is searched for everywhere."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import subprocess

import orjson
import structlog
from redis.asyncio import Redis

from nova_workers.contracts.engine import EngineError
from nova_workers.devstack.servers.binaries import postgres_programs
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from tests.requirements import proves
from tests.support.harness.logs import recorded_logs
from tests.support.harness.orders import Asked, OrderDesk, critique, policy, proposal

CANARY = "xanthic-quokka-5531"
SINGLE = {"modes": ["single_best"], "default": "single_best"}
"""A result keeps only what the modes of its policy may show: here the final proposal, and no draft."""


async def _dump(url: str) -> str:
    """Return every row of a database, bytes in hexadecimal."""
    done = await asyncio.to_thread(
        subprocess.run,
        [postgres_programs() / "pg_dump", "--data-only", "--inserts", url],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


async def _stored(redis: Redis) -> str:
    """Return every key of Redis with its value, as it is dumped."""
    return "".join([f"{key} {await redis.dump(key)!r}" for key in await redis.keys("*")])


def _contains(text: str) -> bool:
    return CANARY in text or CANARY.encode().hex() in text


@proves("order.secret")
async def test_the_content_of_an_order_is_nowhere_while_it_runs_and_after_it_ended(
    desk: OrderDesk, database_url: str, redis: Redis
) -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(await _dump(database_url))
        # As an SDK logs what its provider refused, and as our own code logs errors.
        logging.getLogger("vendor").warning("The provider refused %s", CANARY)
        structlog.get_logger("ours").warning("model_refused", error=f"It said {CANARY}", nested={"text": [CANARY]})

    desk.engine.before = look
    desk.engine.answers = {
        "craft": proposal(f"Draft {CANARY}"),
        "critic": [f"no JSON {CANARY}", critique(issues=[f"It says {CANARY}"])],
        "compliance": EngineError("model_error", f"Your prompt {CANARY} was refused", retryable=False),
        "general": proposal("A final proposal"),
    }
    with recorded_logs() as lines:
        order = desk.order({"currentCopy": f"The old {CANARY} headline"})
        roles = {"craft": "craft", "critic": "review", "compliance": "review", "general": "general"}
        result = await desk.run(policy(roles, satisfied={"minApprovals": 1}, presentation=SINGLE), order)
    assert result.stop_reason == "ok"
    assert any(CANARY in call.user for call in desk.engine.calls)
    after = await _dump(database_url)
    assert result.trace_id in after
    assert "hmac-sha256:" in after
    assert "model_refused" in lines.getvalue()
    for place in (*seen, after, await _stored(redis), lines.getvalue(), result.model_dump_json()):
        assert place
        assert not _contains(place)


async def test_an_exception_of_a_task_that_no_code_retrieves_is_logged_without_its_message(desk: OrderDesk) -> None:
    async def fail() -> None:
        raise ValueError(f"The provider refused {CANARY}")

    async def leave_a_task() -> None:
        left.append(asyncio.create_task(fail()))
        await asyncio.wait(left)

    left: list[asyncio.Task[None]] = []
    desk.engine.before = leave_a_task
    with recorded_logs() as lines:
        await desk.run(policy())
        left.clear()
        gc.collect()
    (line,) = [line for line in map(orjson.loads, lines.getvalue().splitlines()) if line["logger"] == "asyncio"]
    assert (line["event"], line["error_type"]) == ("Task exception was never retrieved", "ValueError")
    assert "in fail" in line["frames"][-1]
    assert not _contains(lines.getvalue())


@proves("order.safe")
async def test_an_answer_that_repeats_its_prompt_is_left_out_and_the_trail_names_why(desk: OrderDesk) -> None:
    roles = {"craft": "craft", "critic": "review"}
    desk.engine.answers = {"critic": critique()}
    first = await desk.run(policy(roles))
    # One mark for all parts of an order.
    (mark,) = {call.user.splitlines()[-1] for call in desk.engine.calls}
    assert len(desk.engine.calls) == 2
    systems = {call.model: call.system for call in desk.engine.calls}
    desk.engine.calls.clear()

    def repeat(asked: Asked) -> str:
        return proposal(base64.b64encode(asked.user.encode()).decode()[:2_000])

    desk.engine.answers = {"craft": repeat, "critic": critique()}
    result = await desk.run(policy(roles), desk.order({"another": "order"}))
    assert (result.stop_reason, result.artifacts) == ("needs_human", [])
    # The prefix that providers cache is that of the order before; the mark is not.
    assert {call.model: call.system for call in desk.engine.calls} == systems
    assert mark not in {call.user.splitlines()[-1] for call in desk.engine.calls}
    left_out = await desk.database.fetchval(
        "SELECT data->'leftOut' FROM work_order_trail WHERE order_id = :id AND audience = 'internal' "
        "AND event = 'ended'",
        id=result.trace_id,
    )
    assert left_out == [{"path": "artifacts.0", "rule": "it contains the mark of a prompt"}]
    assert first.stop_reason == "ok"


@proves("order.safe")
async def test_secrets_of_the_tenant_and_of_the_fleet_are_in_no_result(desk: OrderDesk) -> None:
    vault = Vault.of(desk.settings.secrets.source)
    await Secrets(desk.database, vault).put(desk.tenant_id, "SHOP_PIN", "open sesame 77", by="key_1")
    for value in ("The word is open sesame 77.", "77 emases nepo", "OPEN SESAME 77"):
        desk.engine.answers = {"craft": proposal(value)}
        result = await desk.run(policy(), desk.order({"value": value}))
        assert (result.stop_reason, result.artifacts) == ("needs_human", []), value
    # It is changed, and no secret any more.
    await Secrets(desk.database, vault).put(desk.tenant_id, "SHOP_PIN", "open barley 78", by="key_1")
    desk.engine.answers = {"craft": proposal("The word is open sesame 77.")}
    assert (await desk.run(policy(), desk.order({"value": "once more"}))).stop_reason == "ok"


@proves("order.secret")
async def test_the_key_of_an_order_is_destroyed_at_its_end(desk: OrderDesk) -> None:
    result = await desk.run(policy())
    row = await desk.row(result.trace_id)
    assert (row.data_key, row.sealed, row.sealed_draft) == (None, None, None)
    (part,) = await desk.parts(result.trace_id)
    assert part.sealed_output is None
    assert part.fingerprint is not None


async def test_the_runs_of_orders_are_not_indexed_and_have_no_titles(desk: OrderDesk) -> None:
    await desk.run(policy())
    assert await desk.database.fetchval("SELECT count(*) FROM effects") == 0
