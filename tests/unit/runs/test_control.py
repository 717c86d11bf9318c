"""Notifications of cancel requests, over connections that break."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.keys import CONTROL_CHANNEL
from nova_workers.base.observability.foreign import ForeignMessages
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.stopping import stop_tasks
from nova_workers.broker import redis_connections
from nova_workers.broker.redis_connections import connect
from nova_workers.contracts.runs import CancelReason
from nova_workers.domain.runs.rules.control import ControlChannel
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

NONE = ForeignMessages(None)
GARBAGE = (
    b"",
    b"no JSON",
    b"[]",
    b"null",
    b"7",
    b"\xff",
    b'{"type":"cancel"}',
    b'{"type":"cancel","run_ids":5,"reason":"x"}',
)


@proves("input.foreign-messages")
async def test_garbage_on_the_channel_is_counted_and_nothing_else_is_missed(redis: Redis):
    canceled: list[str] = []
    missed: list[None] = []
    metrics = Metrics(CollectorRegistry())
    listening = asyncio.create_task(
        ControlChannel(redis).listen(
            lambda run_id, _: canceled.append(run_id), lambda: missed.append(None), foreign=ForeignMessages(metrics)
        )
    )
    await until(lambda: missed)
    for payload in GARBAGE:
        await redis.publish(CONTROL_CHANNEL, payload)
    await ControlChannel(redis).notify_cancel(["run_1"], "cancel")
    await until(lambda: canceled == ["run_1"])
    counted = {"source": "notification", "reason": "unreadable"}
    assert metrics.registry.get_sample_value("nova_foreign_messages_total", counted) == len(GARBAGE)
    assert len(missed) == 1
    await stop_tasks([listening])


async def test_a_worker_on_a_forgotten_connection_listens_again_and_reads_what_it_missed(
    redis: Redis, redis_url: str, tmp_path: Path
):
    canceled: list[str] = []
    missed = 0

    def on_cancel(run_id: str, _: CancelReason) -> None:
        canceled.append(run_id)

    def on_missed() -> None:
        nonlocal missed
        missed += 1

    async with FaultProxy.to_redis(redis_url, tmp_path) as wire:
        client = connect(wire.url)
        listening = asyncio.create_task(
            ControlChannel(client).listen(on_cancel, on_missed, foreign=NONE, ping_every_s=0.1)
        )
        await until(lambda: missed == 1)
        for break_connection in (wire.forget, wire.reset):
            begun = missed
            break_connection()
            await until(lambda begun=begun: missed > begun)
            await ControlChannel(redis).notify_cancel(["run_1"], "cancel")
            await until(lambda: canceled == ["run_1"])
            canceled.clear()
        await stop_tasks([listening])
        await client.aclose()


async def test_a_notification_on_a_dead_connection_does_not_hold_its_caller(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_connections, "_REPLY_S", 120.0)
    async with FaultProxy.to_redis(redis_url, tmp_path) as wire:
        client = connect(wire.url)
        await client.ping()
        received: list[str] = []
        listening = asyncio.create_task(
            ControlChannel(client).listen(lambda run_id, _: received.append(run_id), lambda: None, foreign=NONE)
        )
        channel = ControlChannel(client)
        wire.blocks_requests = True
        async with asyncio.timeout(60):
            await channel.notify_cancel(["run_2"], "cancel")
        wire.heal()
        await until(lambda: received)
        await stop_tasks([listening])
        await client.aclose()
