"""Gates: evaluated before a run starts, outside of transactions, and without a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.http.triggers import UrlGate
from nova_workers.domain.triggers.rules.gate_addresses import check_gate_address
from tests.integration.triggers.trigger_harness import TriggerHarness
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, FaultInjector
from tests.support.servers.web_server import WebServer, redirect, reply, web_server
from tests.support.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with web_server() as server:
        yield server


@proves("triggers.gate")
async def test_an_address_that_answers_opens_the_gate(triggers: TriggerHarness, server: WebServer) -> None:
    trigger_id = await triggers.make(gate={"kind": "url", "url": f"http://127.0.0.1:{server.port}/orders"})
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 0
    server.page("/orders", reply(b"one"))
    await triggers.pass_time(60)
    assert (await triggers.tick()).fired == 1
    assert await triggers.outcomes(trigger_id) == ["gate", "fired"]
    assert "answered 404, not 200" in (await triggers.firings(trigger_id))[0]["detail"]
    assert not triggers.harness.engine.model_calls


@proves("triggers.gate")
async def test_only_a_change_since_the_last_firing_opens_the_gate(triggers: TriggerHarness, server: WebServer) -> None:
    url = f"http://127.0.0.1:{server.port}/orders"
    trigger_id = await triggers.make(gate={"kind": "url", "url": url, "changed": True}, overlap="skip")
    for body in (b"one", b"one", b"two"):
        server.page("/orders", reply(body))
        await triggers.pass_time(60)
        await triggers.tick()
    # The third was new, but a run was open: it is still new when that has ended.
    await triggers.end_runs()
    await triggers.pass_time(60)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired", "gate", "overlap", "fired"]


@proves("triggers.gate")
async def test_a_gate_without_an_answer_is_closed_and_delays_no_other(
    triggers: TriggerHarness, server: WebServer
) -> None:
    server.page("/slow", b"HTTP/1.1 200 OK\r\n\r\n<stall>")
    slow = await triggers.make(gate={"kind": "url", "url": f"http://127.0.0.1:{server.port}/slow"})
    plain = await triggers.make()
    await triggers.pass_time(60)
    ticking = asyncio.create_task(triggers.tick())
    await until(lambda: triggers.runs(plain))
    assert not ticking.done()
    # Meanwhile no other worker evaluates it.
    assert (await triggers.ticker().tick()).skipped == 0
    assert (await ticking).skipped == 1
    assert await triggers.outcomes(slow) == ["gate"]


@proves("triggers.gate", "security.addresses")
async def test_a_gate_cannot_reach_the_operators_network(triggers: TriggerHarness, server: WebServer) -> None:
    server.page("/", redirect("http://10.0.0.1/"))
    for url in ("http://169.254.169.254/", "http://localhost:1/", f"http://127.0.0.1:{server.port}/"):
        trigger_id = await triggers.make(gate={"kind": "url", "url": url})
        await triggers.pass_time(60, trigger_id)
        await triggers.tick()
        assert await triggers.outcomes(trigger_id) == ["gate"], url


@proves("triggers.gate")
async def test_a_gate_that_is_looked_at_long_loses_no_occurrence(triggers: TriggerHarness, server: WebServer) -> None:
    """Also if its trigger has no window, and the first process to evaluate it crashed."""
    server.page("/orders", reply(b"one"))
    url = f"http://127.0.0.1:{server.port}/orders"
    trigger_id = await triggers.make(schedule="600", catchup_s=0, gate={"kind": "url", "url": url})
    await triggers.pass_time(600)
    faults = FaultInjector()
    faults.plan("crash_before", "take_again")
    with pytest.raises(Crashed):
        await triggers.ticker(faults).tick()
    await triggers.pass_time(122)
    assert (await triggers.tick()).fired == 1
    assert await triggers.outcomes(trigger_id) == ["fired"]


async def test_an_agent_without_active_task_is_left_alone(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(gate={"kind": "open_tasks"})
    await triggers.pass_time(60)
    await triggers.tick()
    await triggers.database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, status)"
        " VALUES (:tenant_id, 1, 'T', 'planned', 'person', 'active')",
        tenant_id=triggers.harness.tenant_id,
    )
    await triggers.pass_time(60)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["gate", "fired"]


async def test_an_agent_that_was_busy_is_left_alone(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(gate={"kind": "idle", "for_s": 300}, overlap="queue")
    await triggers.harness.submit("hello")
    for age in (None, 10, 301):
        if age is not None:
            await triggers.end_runs()
            await triggers.database.execute("UPDATE runs SET finished_at = now() - :age * interval '1 second'", age=age)
        await triggers.pass_time(60)
        await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["gate", "gate", "fired"]


async def test_an_agent_whose_only_run_is_scheduled_for_later_is_idle(triggers: TriggerHarness) -> None:
    trigger_id = await triggers.make(gate={"kind": "idle", "for_s": 300})
    later = await triggers.harness.submit("hello", start_at=datetime.now(UTC) + timedelta(hours=1))
    await triggers.pass_time(60)
    await triggers.tick()
    assert await triggers.outcomes(trigger_id) == ["fired"]
    assert await triggers.harness.status(later.run_id) == "scheduled"


@proves("triggers.crash", "triggers.gate")
@pytest.mark.parametrize("statement", ["was_busy", "take_again"])
async def test_a_ticker_that_dies_at_a_gate_leaves_the_slot_due(triggers: TriggerHarness, statement: str) -> None:
    trigger_id = await triggers.make(gate={"kind": "idle", "for_s": 300})
    await triggers.pass_time(61)
    faults = FaultInjector()
    faults.plan("crash_before", statement)
    with pytest.raises(Crashed):
        await triggers.ticker(faults).tick()
    assert (await triggers.tick()).fired == 0
    assert await triggers.outcomes(trigger_id) == []
    # After two minutes no evaluation can be in progress.
    await triggers.database.execute("UPDATE triggers SET next_fire_at = next_fire_at - interval '2 minutes'")
    assert (await triggers.tick()).fired == 1
    assert (await triggers.tick()).fired == 0


async def test_a_trigger_that_is_changed_while_its_gate_is_looked_at_begins_nothing(
    triggers: TriggerHarness, server: WebServer
) -> None:
    server.page("/", b"HTTP/1.1 200 OK\r\n\r\n<stall>")
    trigger_id = await triggers.make(gate={"kind": "url", "url": f"http://127.0.0.1:{server.port}/"})
    await triggers.pass_time(60)
    ticking = asyncio.create_task(triggers.tick())
    await until(lambda: server.heads)
    await triggers.patch(trigger_id, enabled=False)
    ticked = await ticking
    assert (ticked.fired, ticked.skipped) == (0, 0)
    assert await triggers.outcomes(trigger_id) == []
    assert (await triggers.get(trigger_id)).next_fire_at is None


def test_an_address_that_the_operator_admits_is_a_good_gate() -> None:
    gate = UrlGate(kind="url", url="http://10.0.0.5:9000/health")
    rules = OutboundRules(allow_hosts=("10.0.0.5:9000",))
    check_gate_address(gate, rules)
    with pytest.raises(InvalidInput, match="would never open"):
        check_gate_address(gate, OutboundRules())
